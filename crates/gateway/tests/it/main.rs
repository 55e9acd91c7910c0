//! The network doors over real sockets, with the tools of the recordings behind them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod admission;
mod approvals;
mod authority;
mod bench_tools;
mod bridge;
mod cluster;
mod console;
mod devices;
mod fuzz;
mod harness;
mod http;
mod lanes;
mod limits;
mod nodes;
mod params;
mod replay;
mod rpc;
mod tls;
mod workspaces;
