//! The command `vault`: the index of the notes, and searches.

use clap::{Args, Subcommand, ValueEnum, builder::TypedValueParser};
use toolyard_knowledge::tools::status::FileFilter;

/// `toolyard vault`.
#[derive(Debug, Subcommand)]
pub enum VaultCommand {
    /// Bring the index up to date
    Index(IndexArgs),
    /// Search the notes
    Search(SearchArgs),
    /// Show the state of the index and of each note
    Status {
        /// List the notes in this state, with reasons
        #[arg(long, value_name = "STATE")]
        files: Option<FileStateArg>,
        /// Maximum number of notes to list
        #[arg(long, requires = "files", default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000).map(usize::from))]
        limit: usize,
        /// Number of notes to skip (the next page)
        #[arg(long, requires = "files", default_value_t = 0, value_name = "N")]
        offset: usize,
    },
    /// Index changes until stopped
    Watch,
    /// Return to the complete version before the current one
    Rollback,
}

/// `toolyard vault index`.
#[derive(Debug, Args)]
pub struct IndexArgs {
    /// Read the content of every note, not only of those whose time or size changed
    #[arg(long)]
    pub full: bool,
    /// Build a new index from scratch; the old one is searched until the new one is complete
    #[arg(long, conflicts_with = "full")]
    pub rebuild: bool,
    /// Start the job and return at once; needs a running Toolyard
    #[arg(long)]
    pub detach: bool,
    /// Cancel the running job, in any process; the next job continues where it stopped
    #[arg(long, conflicts_with_all = ["full", "rebuild", "detach"])]
    pub cancel: bool,
}

/// `toolyard vault search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The query
    #[arg(required = true)]
    pub query: Vec<String>,
    /// Maximum number of results
    #[arg(long, short = 'n', default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50).map(usize::from))]
    pub limit: usize,
    /// Only notes in this folder (repeatable)
    #[arg(long, value_name = "DIR")]
    pub folder: Vec<String>,
    /// Only notes with this tag (repeatable: any of them)
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only notes from this day or later
    #[arg(long, value_name = "DAY")]
    pub from: Option<String>,
    /// Only notes from this day or earlier
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
    /// Include results that are withheld as sensitive
    #[arg(long)]
    pub confirm_sensitive: bool,
    /// Explain each score
    #[arg(long)]
    pub explain: bool,
}

/// The state of a note in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileStateArg {
    /// The note is indexed
    Indexed,
    /// The note has no content
    Empty,
    /// The note was left out on purpose
    Skipped,
    /// The note could not be read
    Failed,
    /// Every note
    All,
}

impl From<FileStateArg> for FileFilter {
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
