//! The commands of the context store, viking://.

use clap::Subcommand;

/// `toolyard ctx`.
#[derive(Debug, Subcommand)]
pub enum CtxCommand {
    /// List a folder
    Ls {
        /// The folder
        #[arg(default_value = "viking://")]
        uri: String,
        /// Include everything below the folder
        #[arg(long, short)]
        recursive: bool,
        /// Include hidden files
        #[arg(long, short)]
        all: bool,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// List a folder as a tree, with the abstract of each folder
    Tree {
        /// The folder
        #[arg(default_value = "viking://")]
        uri: String,
        /// Maximum depth
        #[arg(long, value_name = "N", default_value_t = 3)]
        depth: usize,
    },
    /// Print a file
    Read {
        /// The file
        uri: String,
        /// Number of lines to skip
        #[arg(long, value_name = "N", default_value_t = 0)]
        offset: usize,
        /// Maximum number of lines; -1 for all
        #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
        limit: i64,
    },
    /// Search by words and by meaning
    Find {
        /// The query
        query: String,
        /// Search only below this URI
        #[arg(long, value_name = "URI")]
        uri: Option<String>,
        /// Search only this kind: memory, resource or skill
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Maximum number of results
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
    },
    /// Search lines by a regular expression
    Grep {
        /// The regular expression
        pattern: String,
        /// Search only below this URI
        #[arg(long, value_name = "URI", default_value = "viking://resources")]
        uri: String,
        /// Ignore letter case
        #[arg(long, short)]
        ignore_case: bool,
    },
    /// Import a file, folder, archive, web page or Git repository
    Add {
        /// A path or a URL
        source: String,
        /// Import to exactly this URI
        #[arg(long, value_name = "URI", conflicts_with = "parent")]
        to: Option<String>,
        /// Import below this URI
        #[arg(long, value_name = "URI")]
        parent: Option<String>,
        /// The reason for the import; kept with the resource
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Repeat the import every MINUTES minutes
        #[arg(long, value_name = "MINUTES")]
        watch: Option<f64>,
    },
    /// Remove a file or a folder
    Rm {
        /// The file or folder
        uri: String,
        /// Remove a folder with its content
        #[arg(long, short)]
        recursive: bool,
    },
    /// List sessions, or show one
    Sessions {
        /// The session's id
        id: Option<String>,
    },
    /// Show traces of searches and recalls, newest first
    Trace {
        /// Only the trace with this id
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Only traces of auto_recall, memory_recall, ov_search or ov_archive_search
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Only traces of this session
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// Maximum number of traces
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Run a slash command: /ov-search, /add-resource, /add-skill, /ov-query-config, /ov-recall-trace
    Command {
        /// The complete command line
        line: String,
        /// The session to run it in
        #[arg(long, value_name = "KEY", default_value = "agent:main:main")]
        session: String,
    },
}
