//! Tools that others bring: plugins and upstream MCP servers.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `toolyard plugins`.
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// Install a plugin: its manifest is checked, its package unpacked, nothing of it runs outside its walls
    Install {
        /// A folder, a tarball, npm:NAME, git:URL or clawhub:NAME
        source: String,
        /// What it may touch: network, read:PATH, write:PATH or env:NAME
        #[arg(long, value_name = "WHAT")]
        grant: Vec<String>,
    },
    /// List plugins and how they are
    List,
    /// Everything about one plugin
    Info {
        /// The plugin's id
        id: String,
    },
    /// Use a plugin, and grant it more if wanted
    Enable {
        /// The plugin's id
        id: String,
        /// What it may touch: network, read:PATH, write:PATH or env:NAME
        #[arg(long, value_name = "WHAT")]
        grant: Vec<String>,
    },
    /// Stop using a plugin
    Disable {
        /// The plugin's id
        id: String,
    },
    /// Fetch a plugin again from where it came
    Update {
        /// The plugin's id
        id: String,
    },
    /// Remove a plugin
    Remove {
        /// The plugin's id
        id: String,
        /// Remove the plugin's own data as well
        #[arg(long)]
        data: bool,
    },
    /// Start every plugin that is used and ask it how it is
    Doctor,
}

/// `toolyard mcp`: alone it serves; with a command it looks after upstream servers.
#[derive(Debug, Args)]
pub struct McpArgs {
    /// What to do with upstream servers
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

/// What can be done with upstream servers.
#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// List upstream servers: how they are, what they offer, what is held back
    #[command(alias = "list")]
    Servers,
    /// Add a server to config.toml: a program that is started within walls, or a URL
    Add(McpAdd),
    /// Start a server now and look at what it offers
    Start {
        /// The server's name in config.toml
        server: String,
    },
    /// Stop a server; the next call starts it again
    Stop {
        /// The server's name
        server: String,
    },
    /// Show what changed in tool definitions that are held back, and approve them
    Approve {
        /// The server's name
        server: String,
        /// The tools; all that are held back if none is named
        tools: Vec<String>,
        /// The hash of a definition that you have seen, or its first 12 digits or more (repeatable). Without a terminal
        /// nothing is approved unless its hash is named
        #[arg(long, value_name = "HASH")]
        hash: Vec<String>,
    },
    /// Forget what was seen and approved of a server
    Forget {
        /// The server's name
        server: String,
    },
    /// Let Toolyard use a server in your name, where the server asks for that (OAuth)
    Login {
        /// The server's name
        server: String,
        /// Seconds to wait for your answer
        #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
        wait: u64,
    },
    /// Forget the tokens of a server
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
    /// A file or folder that the program may read and change
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Let the program use the network
    #[arg(long)]
    pub network: bool,
    /// A variable of Toolyard's environment that the program gets
    #[arg(long, value_name = "NAME")]
    pub env: Vec<String>,
    /// Run the program without walls: it can do whatever you can
    #[arg(long, conflicts_with_all = ["read", "write", "network", "env"])]
    pub no_sandbox: bool,
    /// The address of a server over HTTP, in place of a program
    #[arg(long, conflicts_with_all = ["read", "write", "network", "env", "no_sandbox", "command"])]
    pub url: Option<String>,
    /// The program and its arguments, after `--`
    #[arg(last = true, required_unless_present = "url", value_name = "COMMAND")]
    pub command: Vec<String>,
}
