//! The viking:// context store: resources, memories, skills and sessions as plain files that a person can read. They
//! are searched by words and meaning, through the fifteen tools of OpenViking's plugin and the HTTP interface of its
//! server.
//!
//! The path of a request: [`ContextProvider`] or [`wire::http::HttpDoor`] -> `wire/` -> `store/`, `sessions/` or
//! `find/`. The path of a file: `store/account.rs` (locks, order of syncs) -> `store/disk.rs`. Its descriptions are
//! built in `store/layers.rs` and its index entries in `find/library.rs`.
//!
//! This crate knows no sockets, no credentials and no policy. `toolyard-recall` decides how texts are ranked and what
//! is worth remembering. No language model is needed; if one is configured, it is tried first (`sessions/writer.rs`).

pub mod config;
pub mod error;
pub mod find;
mod provider;
mod service;
pub mod sessions;
pub mod store;
pub mod wire;

pub use config::ContextConfig;
pub use provider::{ContextProvider, SessionIds, account_of, session_of};
pub use service::ContextStore;
pub use sessions::archive::Retain;
pub use store::{account::Account, host_paths::HostPaths};
pub use wire::tools::{PLUGIN, definitions, writing_tools};
