//! What lies in viking://.

use clap::Subcommand;

/// `toolyard ctx`.
#[derive(Debug, Subcommand)]
pub enum CtxCommand {
    /// List what lies in a folder
    Ls {
        /// The folder
        #[arg(default_value = "viking://")]
        uri: String,
        /// Everything below it as well
        #[arg(long, short)]
        recursive: bool,
        /// Hidden files as well
        #[arg(long, short)]
        all: bool,
        /// At most so many entries
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// List a folder as a tree, with what each folder is about
    Tree {
        /// The folder
        #[arg(default_value = "viking://")]
        uri: String,
        /// How far down
        #[arg(long, value_name = "N", default_value_t = 3)]
        depth: usize,
    },
    /// Print a file
    Read {
        /// The file
        uri: String,
        /// Lines left out at the beginning
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Lines at most; -1 for all
        #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
        limit: i64,
    },
    /// Search by words and meaning
    Find {
        /// In words
        query: String,
        /// Only below here
        #[arg(long, value_name = "URI")]
        uri: Option<String>,
        /// Only memory, resource or skill
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// At most so many results
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
    },
    /// Search lines by a regular expression
    Grep {
        /// The expression
        pattern: String,
        /// Only below here
        #[arg(long, value_name = "URI", default_value = "viking://resources")]
        uri: String,
        /// Letters in either case
        #[arg(long, short)]
        ignore_case: bool,
    },
    /// Bring in a file, folder, archive, web page or Git repository
    Add {
        /// A path or an address
        source: String,
        /// Exactly here
        #[arg(long, value_name = "URI", conflicts_with = "parent")]
        to: Option<String>,
        /// Below here
        #[arg(long, value_name = "URI")]
        parent: Option<String>,
        /// Why; remembered
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Look again every so many minutes
        #[arg(long, value_name = "MINUTES")]
        watch: Option<f64>,
    },
    /// Remove a file, or a folder with everything in it
    Rm {
        /// What
        uri: String,
        /// A folder with everything in it
        #[arg(long, short)]
        recursive: bool,
    },
    /// List sessions, or show one
    Sessions {
        /// The session's id
        id: Option<String>,
    },
    /// Show what was recalled, the newest first
    Trace {
        /// Only this one
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Only of auto_recall, memory_recall, ov_search or ov_archive_search
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Only of this session
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Run a slash command: /ov-search, /add-resource, /add-skill, /ov-query-config, /ov-recall-trace
    Command {
        /// The whole line
        line: String,
        /// In this session
        #[arg(long, value_name = "KEY", default_value = "agent:main:main")]
        session: String,
    },
}
