//! The commands `plugins` and `mcp`: plugins and upstream MCP servers.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `toolyard plugins`.
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// Install a plugin: check its manifest and unpack it; nothing of it runs outside the sandbox
    Install {
        /// A folder, a tarball, npm:NAME, git:URL or clawhub:NAME
        source: String,
        /// A right to grant: network, read:PATH, write:PATH or env:NAME (repeatable)
        #[arg(long, value_name = "WHAT")]
        grant: Vec<String>,
    },
    /// List plugins with their health
    List,
    /// Show everything about one plugin
    Info {
        /// The plugin's id
        id: String,
    },
    /// Enable a plugin, optionally with more grants
    Enable {
        /// The plugin's id
        id: String,
        /// A right to grant: network, read:PATH, write:PATH or env:NAME (repeatable)
        #[arg(long, value_name = "WHAT")]
        grant: Vec<String>,
    },
    /// Disable a plugin
    Disable {
        /// The plugin's id
        id: String,
    },
    /// Install a plugin again from its source
    Update {
        /// The plugin's id
        id: String,
    },
    /// Remove a plugin
    Remove {
        /// The plugin's id
        id: String,
        /// Also remove the plugin's own data
        #[arg(long)]
        data: bool,
    },
    /// Start every enabled plugin and report its health
    Doctor,
}

/// `toolyard mcp`: serves MCP without a subcommand; with one, manages upstream servers.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// The subcommand for upstream servers
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

/// The subcommands for upstream servers.
#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// List upstream servers with their health, tools and withheld tools
    #[command(alias = "list")]
    Servers,
    /// Add a server to config.toml: a program that runs in a sandbox, or a URL
    Add(McpAdd),
    /// Start a server now and list its tools
    Start {
        /// The server's name in config.toml
        server: String,
    },
    /// Start a server, list its tools, and show the error if that fails
    Test {
        /// The server's name
        server: String,
    },
    /// Print the last lines that a server's process wrote to standard error
    Log {
        /// The server's name
        server: String,
    },
    /// Remove a server from config.toml and stop it
    Remove {
        /// The server's name
        server: String,
    },
    /// Stop a server; the next call starts it again
    Stop {
        /// The server's name
        server: String,
    },
    /// Show the changes in withheld tool definitions, and approve them
    Approve {
        /// The server's name
        server: String,
        /// The tools; without any, all withheld tools
        tools: Vec<String>,
        /// The hash of a definition that was shown to you, or at least its first 12 digits (repeatable). Without a
        /// terminal, only definitions whose hash is given are approved
        #[arg(long, value_name = "HASH")]
        hash: Vec<String>,
    },
    /// Forget the stored and approved tool definitions of a server
    Forget {
        /// The server's name
        server: String,
    },
    /// Log in to a server that requires it (OAuth)
    Login {
        /// The server's name
        server: String,
        /// How many seconds to wait for the login
        #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
        wait: u64,
    },
    /// Delete the tokens of a server
    Logout {
        /// The server's name
        server: String,
    },
}

/// `toolyard mcp add`.
#[derive(Debug, Args)]
pub struct McpAdd {
    /// The server's name: letters, digits, '-' and '_'
    pub name: String,
    /// A file or folder that the program may read
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// A file or folder that the program may read and change (repeatable)
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Allow the program to use the network
    #[arg(long)]
    pub network: bool,
    /// A variable of Toolyard's environment to pass to the program (repeatable)
    #[arg(long, value_name = "NAME")]
    pub env: Vec<String>,
    /// Run the program without a sandbox: it has all your rights
    #[arg(long, conflicts_with_all = ["read", "write", "network", "env"])]
    pub no_sandbox: bool,
    /// The URL of a server over HTTP, instead of a program
    #[arg(long, conflicts_with_all = ["read", "write", "network", "env", "no_sandbox", "command"])]
    pub url: Option<String>,
    /// The program and its arguments, after `--`
    #[arg(last = true, required_unless_present = "url", value_name = "COMMAND")]
    pub command: Vec<String>,
}
