//! The store, its HTTP interface and its tools, from outside.

mod http_replay;
mod model;
mod place;
mod store;
mod tools_replay;
