//! The command `runs`: runs and their records.

use clap::Subcommand;
use std::path::PathBuf;

/// `toolyard runs`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List {
        /// Only this state: pending, running, paused, finished, failed, cancelled (repeatable)
        #[arg(long)]
        status: Vec<String>,
        /// Only `plan` or `call`
        #[arg(long)]
        kind: Option<String>,
        /// Maximum number of runs
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: usize,
        /// Only runs before this one (the next page)
        #[arg(long, value_name = "RUN")]
        before: Option<String>,
    },
    /// Show one run: its calls and results
    Show {
        /// The run
        run: String,
    },
    /// Print the calls and results of a run as messages; calls made by a script follow the script
    Transcript {
        /// The run
        run: String,
    },
    /// Write run.json, calls.jsonl, results.jsonl and events.jsonl
    Export {
        /// The run
        run: String,
        /// The folder; created if it does not exist
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Verify that records were not edited, removed or reordered
    Verify {
        /// The run; without one, the ledger and every run
        run: Option<String>,
    },
    /// Resume a run after a crash, or after a call whose outcome is unknown
    Resume {
        /// The run
        run: String,
        /// The call with the unknown outcome happened; continue
        #[arg(long, conflicts_with_all = ["rerun", "abort"])]
        assume_done: bool,
        /// The call with the unknown outcome did not happen; make it now
        #[arg(long, conflicts_with = "abort")]
        rerun: bool,
        /// End the run
        #[arg(long)]
        abort: bool,
        /// Approve the run, for example because the policy has changed
        #[arg(long, short)]
        yes: bool,
    },
    /// Cancel a run
    Cancel {
        /// The run
        run: String,
    },
}
