//! The commands `init`, `report`, `version` and `self`.

use crate::config::ApprovalsBy;
use clap::{Args, Subcommand};

/// `toolyard init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Who approves writes: the client's own prompt, Toolyard (console, phone, channel), or nobody
    #[arg(long, value_enum, value_name = "WHO")]
    pub approvals: Option<ApprovalsBy>,
    /// Write a unit for systemd, so that Toolyard starts at login
    #[arg(long)]
    pub start_at_login: bool,
    /// Do not index the notes now
    #[arg(long)]
    pub no_index: bool,
    /// Write a new configuration even if there is one; a copy of the old one is kept
    #[arg(long)]
    pub force: bool,
    /// Ask nothing: flags and defaults decide
    #[arg(long)]
    pub yes: bool,
}

/// `toolyard report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The beginning: yesterday, an age (24h, 7d), a date, or a time
    #[arg(long, default_value = "yesterday", value_name = "TIME")]
    pub since: String,
    /// Print Markdown (the default)
    #[arg(long, conflicts_with = "html")]
    pub markdown: bool,
    /// Print HTML
    #[arg(long)]
    pub html: bool,
}

/// `toolyard self`.
#[derive(Debug, Subcommand)]
pub enum SelfCommand {
    /// Check that the programs that Toolyard needs are installed
    Check,
}
