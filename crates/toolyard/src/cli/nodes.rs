//! `toolyard nodes` and `toolyard migrate`.

use clap::{Args, Subcommand};

/// `toolyard nodes`.
#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// List the nodes that serve: name, epoch, address and state (live, draining, dead)
    List,
    /// Let a node finish its work and end; other nodes resume the runs that are left
    Drain {
        /// The node's name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Revoke a node's right to write; another node takes over its runs. If the node is still running, it ends
    Fence {
        /// The node's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// `toolyard migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The target: `postgres://…`, or `sqlite` for this home's own disk
    #[arg(long, value_name = "STORE")]
    pub to: String,
}
