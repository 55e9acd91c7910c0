//! The notes of the vault: index and search.

use clap::{Args, Subcommand, ValueEnum, builder::TypedValueParser};
use toolyard_knowledge::tools::status::Wanted;

/// `toolyard vault`.
#[derive(Debug, Subcommand)]
pub enum VaultCommand {
    /// Bring the index up to date
    Index(IndexArgs),
    /// Find what the notes say
    Search(SearchArgs),
    /// Tell how fresh the index is and what became of each note
    Status {
        /// List the notes in this state, with reasons
        #[arg(long, value_name = "STATE")]
        files: Option<FileStateArg>,
        /// At most this many of them
        #[arg(long, requires = "files", default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000).map(usize::from))]
        limit: usize,
        /// Leave out this many of them first: the next page
        #[arg(long, requires = "files", default_value_t = 0, value_name = "N")]
        offset: usize,
    },
    /// Index what changes until stopped
    Watch,
    /// Return to the complete version before the current one
    Rollback,
}

/// `toolyard vault index`.
#[derive(Debug, Args)]
pub struct IndexArgs {
    /// Look at the content of every note, not only at those whose time or size changed
    #[arg(long)]
    pub full: bool,
    /// Build a new index from nothing; the old one answers until it is done
    #[arg(long, conflicts_with = "full")]
    pub rebuild: bool,
    /// Return at once; needs a running Toolyard
    #[arg(long)]
    pub detach: bool,
    /// Stop the job that runs, in whichever process; the next one goes on where it stopped
    #[arg(long, conflicts_with_all = ["full", "rebuild", "detach"])]
    pub cancel: bool,
}

/// `toolyard vault search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What to look for
    #[arg(required = true)]
    pub query: Vec<String>,
    /// At most this many results
    #[arg(long, short = 'n', default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50).map(usize::from))]
    pub limit: usize,
    /// Only notes in this folder (repeatable)
    #[arg(long, value_name = "DIR")]
    pub folder: Vec<String>,
    /// Only notes with this tag (repeatable: any of them)
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only notes of this day or later
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Only notes of this day or earlier
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Show results that are withheld as sensitive
    #[arg(long)]
    pub confirm_sensitive: bool,
    /// Say how each score came about
    #[arg(long)]
    pub explain: bool,
}

/// What became of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileStateArg {
    /// It can be found
    Indexed,
    /// There is nothing in it
    Empty,
    /// It was left out on purpose
    Skipped,
    /// It could not be read
    Failed,
    /// Every note
    All,
}

impl From<FileStateArg> for Wanted {
    fn from(state: FileStateArg) -> Self {
        match state {
            FileStateArg::Indexed => Self::Indexed,
            FileStateArg::Empty => Self::Empty,
            FileStateArg::Skipped => Self::Skipped,
            FileStateArg::Failed => Self::Failed,
            FileStateArg::All => Self::All,
        }
    }
}
