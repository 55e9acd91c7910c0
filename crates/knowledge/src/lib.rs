//! The index of the notes: parses the vault's notes, splits them into chunks, embeds and indexes them, and searches by
//! words and by meaning. Contains the `obsidian_rag_*` tools.
//!
//! A query passes [`KnowledgeProvider`] -> `tools/search.rs` -> [`search`] (fusion) -> an [`index::IndexReader`]. A
//! note passes `indexer/run.rs` -> [`note::Note::parse`] -> an [`embed::Embedder`] -> an [`index::IndexWriter`].
//!
//! Uses an index only through the traits of [`index`] (the crate `toolyard-noteindex`), embedders only through
//! [`embed::Embedder`], and files only through the vault. Does not know LanceDB, the index program, transports, or any
//! policy except the caller's path rules.

mod changes;
pub mod config;
pub mod embed;
pub mod envelope;
pub mod evaluate;
mod facts;
pub mod health;
pub mod indexer;
pub mod note;
mod provider;
mod scope;
pub mod search;
pub mod sensitive;
mod service;
pub mod text;
pub mod tools;
mod watcher;

pub use toolyard_noteindex as index;

pub use config::KnowledgeConfig;
pub use facts::{Fact, FactStore};
pub use provider::KnowledgeProvider;
pub use service::{Knowledge, KnowledgeParts, VaultScan, vector_weight};
pub use tools::{definitions, entries};
pub use watcher::{PROBE_EVERY, serve, serve_watching};
