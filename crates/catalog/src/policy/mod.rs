//! The policy: who may see and call what, decided by one predicate for lists, searches and calls alike.
//!
//! A policy is a global layer and, on top of it, layers for agents, sessions and doors. A layer can only narrow what
//! the ones below it admit, and a deny is a deny in every mode. Nothing here asks a person or touches a file: the
//! answer is a [`Decision`], and the engine acts on it.

mod config;
mod decide;
mod layers;
mod sandbox;
mod selector;

pub use config::{ApprovalConfig, ApprovalMode, AskRule, LayerConfig, PolicyConfig, Profile, RiskRules, Verdict};
pub use config::{DEFAULT_APPROVAL_TIMEOUT_MS, MAX_APPROVAL_TIMEOUT_MS};
pub use decide::{Decision, EffectivePolicy};
pub use layers::{Policy, PolicyError, Subject};
pub use sandbox::PathFilter;
pub use selector::Selectors;
