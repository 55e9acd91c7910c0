//! The binary's parts: command line, configuration, wiring, output.
//!
//! What a command means is decided here; what it does is done by the methods of `toolyard-service`, in this process or in
//! a running Toolyard.

pub mod authority;
pub mod backend;
pub mod cli;
pub mod clients;
pub mod commands;
pub mod config;
mod context;
pub mod context_methods;
mod editors;
pub mod error_reference;
pub mod heads;
pub mod home;
pub mod hooks;
mod index_program;
pub mod mcp;
pub mod method_reference;
mod notes;
pub mod output;
pub mod plugins;
pub mod progress;
pub mod run_files;
mod server_file;
pub mod stdio;
mod typescript;
pub mod upkeep;
pub mod upstreams;
pub mod why;
pub mod wiring;
