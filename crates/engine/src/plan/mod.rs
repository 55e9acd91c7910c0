//! Plans: checking, scheduling, running, predicting, replaying, forking and taking back.
//!
//! [`check`](check::check) finds what is wrong before anything runs; [`scheduler`] decides, purely, what comes next; the executor carries it
//! out through the one pipeline. Resuming after a crash, replaying and forking are the same execution against a memo
//! of what the record says has happened already.

pub mod check;
mod executor;
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
pub use recovery::{Recovered, Swept};
pub use report::{Deviation, IterationReport, RunReport, StepReport};
pub use runs::{Consent, DryRunReport, PlanRequest, ReplayReport, StartedRun};
pub use undo::{NotUndoable, UndoPlan};
