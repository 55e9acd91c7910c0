//! Files the user owns: path rules, etags, atomic writes, links, patches, trash; and the tools that work on them
//! (`vault.*`, `util.*`) or through a connected editor (`editor.*`, `workspace.*`, `commands.*`).
//!
//! A vault is a folder of Markdown notes that other programs write to as well. Nothing here keeps a copy or an index:
//! every call looks at the files as they are, guards what it changes by content hash, and reports what it saw happen.
//!
//! How a write goes: a tool *plans* on a view of the files; the plan is *staged* next to its targets and described in
//! the intent; once that is durable, the *commit* is a few renames. A dry run plans on an overlay and stops there.
//!
//! Knows nothing of policies, approvals, transports or storage. Linux only, as it leans on `openat2` and `renameat2`.

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

pub use clients::{EditorClients, NoClients};
pub use error::VaultError;
pub use etag::{ETAG_DIGITS, etag};
pub use locks::STRIPES;
pub use path::{MAX_DEPTH, MAX_PATH_BYTES, MAX_SEGMENT_BYTES, PathError, VaultPath};
pub use provider::VaultProvider;
pub use reading::{HeadingAt, NoteContent, Outline, Surveyed, outline};
pub use tools::definitions;
pub use vault::{Vault, VaultOptions};
pub use view::MAX_FILE_BYTES;
