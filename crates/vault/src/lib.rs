//! The user's files: path rules, etags, atomic writes, links, patches, trash; and the tools that work on them
//! (`vault.*`, `util.*`) or through a connected editor (`editor.*`, `workspace.*`, `commands.*`).
//!
//! A vault is a folder of Markdown notes that other programs change as well. This crate keeps no copy and no index:
//! every call reads the files as they are, compares content hashes before it changes a file, and reports the changes
//! that it observed.
//!
//! A write has three steps: a tool *plans* on a view of the files; the plan is *staged* next to its targets and
//! described in the intent; when the intent is durable, the *commit* is a few renames. A dry run plans on an overlay
//! and stops there.
//!
//! Does not depend on policies, approvals, transports or storage. Linux only, because it uses `openat2` and
//! `renameat2`.

// A failure ends a call and is built once; boxing it everywhere would buy nothing.
#![allow(clippy::result_large_err)]

mod change;
mod clients;
mod commit;
mod confine;
mod error;
mod etag;
#[doc(hidden)]
pub mod fuzzing;
mod locks;
mod markdown;
mod overlay;
mod patch;
mod path;
mod preview;
pub mod process;
#[cfg(test)]
mod properties;
mod provider;
mod reading;
mod reconcile;
mod resolve;
mod root;
mod staging;
mod text;
mod tools;
mod undo;
mod unified;
mod vault;
mod view;

pub use clients::{EditorClients, NoEditors};
pub use error::VaultError;
pub use etag::{ETAG_DIGITS, etag};
pub use locks::STRIPES;
pub use path::{MAX_DEPTH, MAX_PATH_BYTES, MAX_SEGMENT_BYTES, PathError, VaultPath};
pub use provider::VaultProvider;
pub use reading::{HeadingAt, NoteContent, Outline, SurveyEntry, outline};
pub use tools::definitions;
pub use vault::{Vault, VaultOptions};
pub use view::MAX_FILE_BYTES;
