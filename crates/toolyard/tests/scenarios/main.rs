//! Scenarios that drive the real binary, as a user would.

mod bad_input;
mod commands;
mod crash;
mod gateway;
mod harness;
mod plans;
mod server;
