//! Notes that can be asked: parses the vault's notes, cuts them into chunks, embeds and indexes them, and answers by
//! words and meaning together. The `obsidian_rag_*` tools are here.
//!
//! A question's way: [`KnowledgeProvider`] -> `tools/search.rs` -> [`search`] (fusion) -> an [`index::IndexReader`].
//! A note's way: `indexer/run.rs` -> [`note::Note::parse`] -> an [`embed::Embedder`] -> an [`index::IndexWriter`].
//!
//! Knows an index only as the traits of [`index`] (the crate `toolyard-noteindex`), embedders only as
//! [`embed::Embedder`], and files only through the vault. Knows no LanceDB, no index program, no policy beyond the
//! caller's path rules, no transport.

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
pub use service::{Knowledge, KnowledgeParts, VaultLook, vector_weight};
pub use tools::definitions;
pub use watcher::{PROBE_EVERY, serve, serve_watching};
