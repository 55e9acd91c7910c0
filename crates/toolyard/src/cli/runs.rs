//! The command `runs`: runs and their records.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Which runs are listed.
#[derive(Debug, Default, Args)]
pub struct RunFilterArgs {
    /// Only runs of this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only runs that called this tool
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Only runs that came by this door: cli, gateway, http, mcp, bridge, script, console, hooks
    #[arg(long, value_name = "DOOR")]
    pub door: Option<String>,
    /// Only runs whose title contains this text
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Only runs that began at this time or later, RFC 3339
    #[arg(long, value_name = "TIME")]
    pub from: Option<jiff::Timestamp>,
    /// Only runs that began before this time, RFC 3339
    #[arg(long, value_name = "TIME")]
    pub to: Option<jiff::Timestamp>,
    /// Show who began each run, and how many calls it made
    #[arg(long)]
    pub counts: bool,
}

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
        /// Which of them, and how they are shown
        #[command(flatten)]
        filter: RunFilterArgs,
    },
    /// List the calls of a run
    Calls {
        /// The run
        run: String,
        /// Only calls after this record (the next page)
        #[arg(long, value_name = "SEQ")]
        after: Option<u64>,
        /// Maximum number of calls
        #[arg(long, default_value_t = 200, value_name = "N")]
        limit: usize,
        /// Only calls that failed or were refused
        #[arg(long)]
        failed: bool,
        /// Only calls of this tool
        #[arg(long, value_name = "TOOL")]
        tool: Option<String>,
    },
    /// Summarise what happened since a time: runs, changed files, failures, expired questions
    Digest {
        /// The beginning, RFC 3339, for example 2026-11-18T08:00:00Z
        #[arg(long, value_name = "TIME")]
        since: jiff::Timestamp,
    },
    /// Print the records of a run as bytes with their hashes, as JSON, to be verified elsewhere
    Record {
        /// The run
        run: String,
        /// The first record
        #[arg(long, default_value_t = 1, value_name = "SEQ")]
        from: u64,
    },
    /// Print runs as they begin, progress and end, until interrupted
    Watch,
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
    /// Check that nothing in the record was edited, removed, shortened, reordered or rolled back
    Verify {
        /// The run; without one, everything: every record, the ledger and the kept heads
        run: Option<String>,
        /// Compare with a signed head that was kept elsewhere: what `runs head --json` printed, or the note in it
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
        /// Check a receipt and nothing else
        #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "head"])]
        receipt: Option<PathBuf>,
        /// Name the arguments of the run that contained the secret in this file; fails if there are none
        #[arg(long, value_name = "FILE", requires = "run")]
        secret: Option<PathBuf>,
    },
    /// Print the signed head of the ledger, to be kept somewhere else
    Head {
        /// Write the whole tree into a folder as well, in the layout of C2SP tlog-tiles
        #[arg(long, value_name = "DIR")]
        tiles: Option<PathBuf>,
    },
    /// Write a receipt: the proof that a run or a call is in the ledger, for somebody who has only the public key
    Prove {
        /// The run, or a call of it. The receipt of a call holds the records from it to the end of its run
        id: String,
        /// The file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
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

/// `toolyard keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys that signed the record, each with the ledger entries that it signed
    List,
    /// Replace the signing key; the old key signs the new one, in the ledger
    Rotate,
}
