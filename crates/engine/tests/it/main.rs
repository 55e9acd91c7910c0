//! The engine as its doors see it: whole calls, whole plans, whole records, and what is left of them after a crash.
//!
//! Each test is named after the rule it holds. The tools are those of [`lab`] (small, each with one bad habit) and of
//! [`files`] (a disk in memory with etags, intents, reconciliation, previews and inverses).

mod approvals;
mod files;
mod lab;
mod pipeline;
mod plan_check;
mod plan_lineage;
mod plan_preview;
mod plans;
mod property;
mod recorded;
mod recovery;
mod stores;
mod support;
