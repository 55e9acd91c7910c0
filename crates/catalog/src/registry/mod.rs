//! The registry: which tools exist, from which source, under which ids; and what their schemas say of arguments.
//!
//! [`Registry`] is the mutable side. Everything that answers questions reads a [`Snapshot`], which never changes and
//! whose version is a fingerprint of all it holds. Neither knows who may call what: that is [`crate::policy`].

mod entry;
mod names;
mod paths;
mod schema;
mod snapshot;

pub use entry::{Fingerprint, RegistryError, SourceKind, ToolEntry, ToolSource};
pub use names::{MAX_SAFE_NAME_BYTES, safe_name};
pub use schema::{MAX_VIOLATIONS, Violation, check_once};
pub use snapshot::{CATALOG_VERSION, Registry, Resolution, Snapshot};
