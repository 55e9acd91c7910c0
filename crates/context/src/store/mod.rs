//! Storage: places, files, descriptions, imports and skills.
//!
//! `uri.rs` defines which places a caller may name. `account.rs` holds the locks and the order of syncs over `disk.rs`.
//! `layers.rs` writes abstracts and overviews.

pub(crate) mod account;
pub(crate) mod digest;
pub(crate) mod disk;
pub mod fs;
pub(crate) mod host_paths;
pub(crate) mod layers;
pub(crate) mod memory;
pub(crate) mod origin;
pub(crate) mod parse;
pub mod resources;
pub mod shared;
pub(crate) mod skills;
pub(crate) mod touched;
pub mod uri;
pub(crate) mod watches;
