//! Backup, restore, retention and the store.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `toolyard backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The folder to write, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Leave keys and tokens out
    #[arg(long)]
    pub without_keys: bool,
}

/// `toolyard restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup's folder
    #[arg(value_name = "DIR")]
    pub from: PathBuf,
}

/// `toolyard prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Remove runs that ended longer ago than this, such as 30d, 12h or 2w [default: what [retention] says]
    #[arg(long, value_name = "AGE")]
    pub older_than: Option<String>,
    /// Remove the oldest ended runs while the store uses more megabytes than this
    #[arg(long, value_name = "N")]
    pub max_megabytes: Option<u64>,
}

/// `toolyard store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Check the store: structure of the database, frames, blobs, journals
    Check,
    /// Print the size of the store and the numbers of its entries
    Stats,
}

/// `toolyard logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Keep printing lines as they are written
    #[arg(long, short)]
    pub follow: bool,
    /// How many of the last lines are printed first
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub lines: u64,
}
