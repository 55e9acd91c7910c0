//! `toolyard workspaces`.

use clap::Subcommand;

/// `toolyard workspaces`.
#[derive(Debug, Subcommand)]
pub enum WorkspacesCommand {
    /// List the workspaces
    List,
    /// Make a workspace and print its token, which is shown once
    Add {
        /// 1 to 32 lower-case letters, digits or hyphens
        #[arg(value_name = "NAME")]
        name: String,
        /// The workspace may use the tools of the notes' vault
        #[arg(long = "with-vault")]
        with_vault: bool,
    },
    /// Remove a workspace: its token, devices and connections end at once; what it recorded is kept
    Remove {
        /// The workspace
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print a new token for a workspace, which is shown once; the old one ends at once
    Rotate {
        /// The workspace
        #[arg(value_name = "NAME")]
        name: String,
    },
}
