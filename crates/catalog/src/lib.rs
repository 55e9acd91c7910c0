//! Which tools exist and who may see them: the registry and its immutable snapshots, schema checks of arguments and
//! results, the policy that decides lists, searches and calls with one predicate, the search itself, and what a model
//! is shown ([`surface`]).
//!
//! All functions are pure: this crate has no IO, clock or transport, and cannot run a tool. The same question always
//! gets the same answer.

pub mod authority;
pub mod native;
pub mod policy;
pub mod registry;
pub mod search;
mod suggest;
pub mod surface;

pub use policy::{
    Decision, EffectivePolicy, PathFilter, Policy, PolicyConfig, PolicyError, Profile, Subject, VisibleTools,
};
pub use registry::{
    Registry, RegistryError, Resolution, Snapshot, SourceKind, ToolEntry, ToolSource, Violation, check_once, safe_name,
};
pub use suggest::{Suggestions, did_you_mean};
