//! The policy: who may see and call what, decided by one predicate for lists, searches and calls alike.
//!
//! A policy consists of a global layer and of layers for agents, sessions and doors. A layer can only restrict what the
//! layers below it allow, and a deny applies in every mode. This module neither asks a person nor accesses a file: it
//! returns a [`Decision`], and the engine acts on it.

mod config;
mod decide;
mod layers;
mod sandbox;
mod secrets;
mod selector;

pub use config::{
    ApprovalConfig, ApprovalMode, AskRule, LayerConfig, PolicyConfig, Profile, RiskRules, SecretRule, Verdict,
};
pub use config::{
    DEFAULT_APPROVAL_KEEP_MS, DEFAULT_APPROVAL_TIMEOUT_MS, MAX_APPROVAL_KEEP_MS, MAX_APPROVAL_TIMEOUT_MS,
};
pub use decide::{Decision, EffectivePolicy};
pub use layers::{Policy, PolicyError, Subject, VisibleTools};
pub use sandbox::PathFilter;
pub use selector::Selectors;
