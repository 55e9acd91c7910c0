//! `toolyard approvals` and `toolyard grants`: questions to people, and lasting permissions.

use clap::{Args, Subcommand, ValueEnum};

/// `toolyard approvals`.
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List the open questions
    List,
    /// Show a question: the arguments, the diff, the rule that asked, and the answer if there is one
    Show {
        /// The question's id
        id: String,
    },
    /// Allow a call that waits for approval: only this call, or with --scope or --for also later ones
    Allow(AllowArgs),
    /// Deny a call that waits for approval
    Deny {
        /// The question's id
        id: String,
        /// The reason that the caller receives
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// The hash of what you were shown; the answer is refused if the question shows something else
        #[arg(long, value_name = "HASH")]
        shown: Option<String>,
    },
    /// Print questions and answers as they come, until interrupted; while it runs, Toolyard counts a person as
    /// connected
    Watch,
}

/// `toolyard approvals allow`.
#[derive(Debug, Args)]
pub struct AllowArgs {
    /// The question's id
    pub id: String,
    /// Do not ask again about such calls of this agent
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub scope: Option<GrantScopeArg>,
    /// The folder of --scope folder [default: the folder of the call's first path]
    #[arg(long, value_name = "PATH")]
    pub folder: Option<String>,
    /// End the permission after this time, such as 45m, 1h or 7d [default scope: tool]
    #[arg(long = "for", value_name = "TIME")]
    pub lasting: Option<String>,
    /// The hash of what you were shown; the answer is refused if the question shows something else
    #[arg(long, value_name = "HASH")]
    pub shown: Option<String>,
}

/// Which calls a permission covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GrantScopeArg {
    /// Calls with the same arguments
    Arguments,
    /// Calls of the tool in the same run
    Run,
    /// Calls of the tool whose paths lie in a folder
    Folder,
    /// All calls of the tool
    Tool,
}

/// `toolyard grants`.
#[derive(Debug, Subcommand)]
pub enum GrantsCommand {
    /// List the lasting permissions that have not ended
    List {
        /// Only those of this agent
        #[arg(long)]
        agent: Option<String>,
        /// Only those for this tool
        #[arg(long)]
        tool: Option<String>,
    },
    /// Revoke a lasting permission
    Revoke {
        /// The permission's id
        id: String,
    },
}
