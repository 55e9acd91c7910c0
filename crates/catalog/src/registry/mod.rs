//! The registry: which tools exist, from which source, with which ids, and what their schemas require of arguments.
//!
//! [`Registry`] is mutable. Queries read a [`Snapshot`], which is immutable; its version is a fingerprint of its
//! content. Neither decides who may call a tool; see [`crate::policy`].

mod entry;
mod marks;
mod names;
mod schema;
mod snapshot;

pub use entry::{Fingerprint, RegistryError, SourceKind, ToolEntry, ToolSource};
pub use names::{MAX_SAFE_NAME_BYTES, safe_name};
pub(crate) use schema::push_segment;
pub use schema::{MAX_VIOLATIONS, Violation, check_once};
pub use snapshot::{CATALOG_VERSION, Registry, Resolution, Snapshot};
