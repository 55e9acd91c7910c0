//! The commands `config` and `explain`.

use clap::{Args, Subcommand};

/// `toolyard config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the resolved configuration; secrets are hidden
    Show {
        /// In a cluster: the shared settings of this version
        #[arg(long, value_name = "VERSION")]
        at: Option<u64>,
    },
    /// Check the configuration file
    Check,
    /// Set a key, such as `notify.coalesceSeconds 30`; a running Toolyard uses what it can at once
    Set {
        /// The key
        key: String,
        /// The value: JSON, or a text
        value: String,
    },
    /// Remove a key, so that its default applies
    Unset {
        /// The key
        key: String,
    },
    /// Change several keys at once, from a file with a JSON merge patch or with TOML
    Patch {
        /// The file; `-` reads standard input
        file: std::path::PathBuf,
    },
    /// In a cluster: list the versions of the shared configuration, and what this node's config.toml sets differently
    Versions,
    /// In a cluster: make the shared settings of this node's config.toml the configuration of all nodes
    Push {
        /// Print what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// In a cluster: make an earlier version the newest
    Rollback {
        /// The version to go back to
        #[arg(value_name = "VERSION")]
        to: u64,
    },
    /// Print the reference of every key, in Markdown
    #[command(hide = true)]
    Reference,
    /// Print the JSON Schema of the configuration
    #[command(hide = true)]
    Schema,
    /// Print the page about who may do what, in Markdown
    #[command(hide = true)]
    Authority,
    /// Print the reference of every command, in Markdown
    #[command(hide = true)]
    Commands,
    /// Print the reference of every method, in Markdown
    #[command(hide = true)]
    Methods,
    /// Print the JSON Schemas of the parameters and answers of every method
    #[command(hide = true)]
    MethodSchemas,
    /// Print the list of every error code, in Markdown
    #[command(hide = true)]
    ErrorCodes,
    /// Print the types of every method, in TypeScript
    #[command(hide = true)]
    MethodTypes,
    /// Write a man page for every command into a folder
    #[command(hide = true)]
    ManPages {
        /// The folder; it must exist
        folder: std::path::PathBuf,
    },
}

/// `toolyard explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code, for example POLICY_DENIED; without one, all codes are listed
    pub code: Option<String>,
}
