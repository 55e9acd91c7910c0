//! The engine as its doors see it: whole calls, whole plans, whole records, and what is left of them after a crash.
//!
//! Each test is named after the rule it holds. The tools are those of [`lab`] (small, each with one behaviour) and of
//! [`files`] (a disk in memory with etags, intents, reconciliation, previews and inverses).

// `Failure` is the vocabulary's one error and is handed over by value.
#![allow(clippy::result_large_err)]
// The helpers of tests fail tests by panicking, just as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod approvals_bound;
mod approvals_kept;
mod authority;
mod files;
mod fuzz;
mod grants;
mod lab;
mod nodes;
mod pipeline;
mod pipeline_record;
mod plan_check;
mod plan_lineage;
mod plan_preview;
mod plan_values;
mod plans;
mod proof;
mod property;
mod recorded;
mod recovery;
mod recovery_restart;
mod stores;
mod support;
mod tools;
mod unsigned;
