//! What tools exist and who may see them: the registry and its immutable snapshots, schema checks of arguments and
//! results, the policy that decides list, search and call with one predicate, the search itself, and what a model is
//! shown of it all ([`surface`]).
//!
//! Pure and quick. This crate knows no IO, no clock, no transport and no way to run a tool: it is asked, it answers,
//! and the same question gets the same answer.

pub mod authority;
pub mod policy;
pub mod registry;
pub mod search;
mod suggest;
pub mod surface;

pub use policy::{Decision, EffectivePolicy, PathFilter, Policy, PolicyConfig, PolicyError, Profile, Subject};
pub use registry::{
    Registry, RegistryError, Resolution, Snapshot, SourceKind, ToolEntry, ToolSource, Violation, check_once, safe_name,
};
pub use suggest::{Suggestions, did_you_mean};
