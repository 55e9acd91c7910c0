//! Runs and their records.

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
        /// At most this many
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: usize,
        /// Runs before this one: the next page
        #[arg(long, value_name = "RUN")]
        before: Option<String>,
    },
    /// Show one run: its calls and results
    Show {
        /// The run
        run: String,
    },
    /// Print a run as the messages of a session: calls and results, with what a script called after the script
    Transcript {
        /// The run
        run: String,
    },
    /// Write run.json, calls.jsonl, results.jsonl and events.jsonl
    Export {
        /// The run
        run: String,
        /// The folder, made if missing
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Prove that a run's record was not edited, shortened or reordered
    Verify {
        /// The run; without one, the whole ledger
        run: Option<String>,
    },
    /// Take a run up again after a crash, or after a call in doubt
    Resume {
        /// The run
        run: String,
        /// The call in doubt happened
        #[arg(long, conflicts_with_all = ["rerun", "abort"])]
        assume_done: bool,
        /// The call in doubt did not happen; do it now
        #[arg(long, conflicts_with = "abort")]
        rerun: bool,
        /// End the run
        #[arg(long)]
        abort: bool,
        /// Approve it again where the policy changed
        #[arg(long, short)]
        yes: bool,
    },
    /// Stop a run
    Cancel {
        /// The run
        run: String,
    },
}
