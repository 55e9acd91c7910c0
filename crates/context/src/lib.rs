//! The viking:// context store: resources, memories, skills and sessions as plain files that a person can read; searched
//! by words and meaning; with the fifteen tools of OpenViking's plugin and the HTTP interface of its server.
//!
//! A request's way: [`ContextProvider`] or [`wire::http::HttpDoor`] -> `wire/` -> `store/`, `sessions/` or `find/`. A
//! file's way: `store/account.rs` (locks, order of syncs) -> `store/disk.rs`; what describes it is made in
//! `store/layers.rs`, what finds it in `find/library.rs`.
//!
//! Knows no sockets, no credentials and no policy; how texts are ranked and what is worth remembering is
//! `toolyard-recall`'s. No model is needed; where one is configured it is asked first (`sessions/writer.rs`).

pub mod config;
pub mod error;
pub mod find;
mod provider;
mod service;
pub mod sessions;
pub mod store;
pub mod wire;

pub use config::ContextConfig;
pub use provider::{ContextProvider, SessionIds, session_of};
pub use service::ContextStore;
pub use sessions::archive::Retain;
pub use store::{account::Account, host_paths::HostPaths};
pub use wire::tools::{PLUGIN, definitions, writing_tools};
