//! The command `plan`: a plan file, its context, and a person's approval.

use clap::{Args, Subcommand};

/// A plan file and the context it requests.
#[derive(Debug, Args)]
pub struct PlanFile {
    /// The plan, a JSON file; `-` for standard input
    pub file: String,
    /// Answer a context request: KIND=JSON (repeatable)
    #[arg(long, value_name = "KIND=JSON")]
    pub context: Vec<String>,
}

/// A person's approval.
#[derive(Debug, Clone, Default, Args)]
pub struct Approval {
    /// Approve without a question
    #[arg(long, short)]
    pub yes: bool,
    /// Run only if the preview still has this hash (from `plan dry-run`)
    #[arg(long, value_name = "HASH")]
    pub preview_hash: Option<String>,
}

/// `toolyard plan`.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Check a plan without running anything
    Check {
        /// The plan, a JSON file; `-` for standard input
        file: String,
    },
    /// Predict a plan's effects without making them, with a unified diff
    DryRun(PlanFile),
    /// Run a plan
    Run {
        /// The plan
        #[command(flatten)]
        plan: PlanFile,
        /// The approval
        #[command(flatten)]
        approval: Approval,
        /// Start it and return at once; needs a running Toolyard
        #[arg(long)]
        detach: bool,
        /// The version of the planner that wrote the plan; recorded with every call
        #[arg(long, value_name = "V")]
        planner_version: Option<String>,
    },
    /// Resolve a run's arguments again and compare them with the record; calls no tool
    Replay {
        /// The run
        run: String,
    },
    /// Start a new run from a step of another run, with the results of the earlier steps
    Fork {
        /// The run
        run: String,
        /// The step to start with
        #[arg(long, value_name = "STEP")]
        from: String,
        /// An edited plan to use instead
        #[arg(long, value_name = "FILE")]
        edit: Option<String>,
        /// Answer a context request: KIND=JSON (repeatable)
        #[arg(long, value_name = "KIND=JSON")]
        context: Vec<String>,
        /// The approval
        #[command(flatten)]
        approval: Approval,
    },
    /// Undo a run with inverse calls, guarded by etags
    Undo {
        /// The run
        run: String,
        /// Show what would be done, without doing it
        #[arg(long)]
        dry_run: bool,
        /// Undo what can be undone, even if some calls cannot
        #[arg(long)]
        partial: bool,
        /// The approval
        #[command(flatten)]
        approval: Approval,
    },
}
