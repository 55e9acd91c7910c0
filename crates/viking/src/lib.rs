//! The viking:// context store: resources, memories, skills and sessions as plain files that a person can read; searched
//! by words and meaning; with the fifteen tools of OpenViking's plugin and the HTTP interface of its server.
//!
//! A request's way: [`VikingProvider`] or [`http::HttpDoor`] -> `tools/` or `http/routes.rs` -> `fs.rs`, `search.rs`,
//! `sessions.rs`. A file's way: `account.rs` (locks, order of syncs) -> `disk.rs`; what describes it is made in
//! `layers.rs`, what finds it in `library.rs`.
//!
//! Knows no sockets, no credentials and no policy; how texts are ranked and what is worth remembering is
//! `toolyard-recall`'s. No model is needed; where one is configured it is asked first (`writer.rs`).

mod account;
mod archive;
mod autocommit;
pub mod commands;
pub mod config;
mod digest;
mod disk;
pub mod error;
mod externalise;
pub mod fs;
#[doc(hidden)]
pub mod fuzzing;
mod host_paths;
pub mod http;
mod jsonl;
mod layers;
mod learned;
mod library;
mod memory;
mod model;
mod parse;
mod provider;
mod query_config;
pub mod resources;
pub mod scan;
pub mod search;
mod service;
pub mod sessions;
mod skills;
mod tasks;
pub mod tools;
pub mod trace;
pub mod turns;
pub mod uri;
mod watches;
mod writer;

pub use account::Account;
pub use archive::Retain;
pub use config::ContextConfig;
pub use host_paths::HostPaths;
pub use provider::{SessionIds, VikingProvider, session_of};
pub use service::Viking;
pub use tools::{PLUGIN, definitions, writing_tools};
