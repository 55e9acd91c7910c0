//! Plans: check, schedule, run, predict, replay, fork and undo.
//!
//! [`check`](check::check) finds errors before anything runs; [`scheduler`] is a pure state machine that decides what
//! comes next; the executor carries it out through the pipeline. Resume after a crash, replay and fork are the same
//! execution against a memo of what the record contains.

pub mod check;
mod consent;
mod executor;
mod kept;
mod memo;
mod parse;
mod recovery;
pub mod reference;
pub mod report;
mod runs;
pub mod scheduler;
mod schema_path;
mod undo;

pub use check::{CheckReport, Issue, PlanSummary};
pub use parse::parse_plan;
pub use recovery::{Recovered, SweepHistory};
pub use report::{Deviation, IterationReport, RunReport, StepReport};
pub use runs::{Consent, DryRunReport, PlanRequest, ReplayReport, StartedRun};
pub use undo::{NotUndoable, UndoPlan};
