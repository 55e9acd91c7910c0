//! The network doors over real sockets, with the tools of the recordings behind them.

mod approvals;
mod bench_tools;
mod devices;
mod fuzz;
mod harness;
mod http;
mod limits;
mod replay;
mod rpc;
