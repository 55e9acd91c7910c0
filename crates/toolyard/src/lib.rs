//! The binary's parts: command line, configuration, wiring, output.
//!
//! This crate interprets commands; the methods of `toolyard-service` carry them out, in this process or in a running
//! Toolyard.

pub mod authority;
pub mod backend;
pub mod cli;
pub mod clients;
pub mod commands;
pub mod config;
pub mod config_methods;
mod context;
pub mod context_methods;
mod drain;
mod editors;
pub mod error_reference;
pub mod heads;
pub mod home;
pub mod hooks;
mod index_program;
pub mod mcp;
pub mod method_reference;
mod notes;
pub mod notify;
pub mod output;
pub mod plugins;
pub mod progress;
pub mod run_files;
mod server_file;
mod shared_config;
pub mod stdio;
mod stores;
pub mod terminal;
pub mod tool_methods;
mod typescript;
pub mod upkeep;
pub mod upstreams;
mod vault_elsewhere;
pub mod why;
pub mod wiring;
