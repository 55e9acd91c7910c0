//! Claude Code joined to a session: the bridge, starting it, and its plugin.

use super::GatewayTarget;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use toolyard_service::{bridge::OpenParams, params::Text};

/// How a session is opened for Claude Code.
#[derive(Debug, Args)]
pub struct BridgeOpening {
    /// Where the session's messages come from, told to Claude
    #[arg(long, value_name = "NAME")]
    pub source_channel: Option<String>,
    /// The chat that the session serves, told to Claude
    #[arg(long, value_name = "ID")]
    pub chat_id: Option<String>,
    /// The person whose messages they are, told to Claude with each message that names nobody
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Who may answer permission questions in words ("yes abxyz"), by user id (repeatable)
    #[arg(long, value_name = "USER")]
    pub allow_sender: Vec<String>,
}

impl BridgeOpening {
    /// Whether it says who may answer permission questions.
    pub fn names_senders(&self) -> bool {
        !self.allow_sender.is_empty()
    }

    /// The parameters of `bridge.open`.
    pub fn params(&self, session: &str) -> OpenParams {
        let text = |given: &Option<String>| given.as_deref().map(Text::from);
        OpenParams {
            session_key: session.into(),
            agent_id: None,
            source_channel: text(&self.source_channel),
            chat_id: text(&self.chat_id),
            user: text(&self.user),
            claude_session: None,
            allowed_senders: self.allow_sender.clone(),
            command: None,
        }
    }
}

/// A person's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verdict {
    /// Yes
    Allow,
    /// No
    Deny,
}

/// `toolyard bridge`.
#[derive(Debug, Subcommand)]
pub enum BridgeCommand {
    /// Prepare a session; prints the environment and the MCP configuration for Claude Code
    Open {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// How
        #[command(flatten)]
        opening: BridgeOpening,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Close a session: its token is worth nothing, and its Claude Code is disconnected
    Close {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Send Claude a message; it waits while Claude Code is not connected
    Inbound {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The text; `-` for standard input
        content: String,
        /// Who, where and when, as a JSON object: chat_id, message_id, user, user_id, ts, source_channel, attachments
        #[arg(long, default_value = "{}", value_name = "JSON")]
        meta: String,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Print what Claude said
    Outbound {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// Only what came after this number
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Answer a permission question of Claude Code's
    Reply {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The question's id, five letters
        request_id: String,
        /// The answer
        verdict: Verdict,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Show the sessions: connected or not, messages that wait, open questions
    Status {
        /// Only this session
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
}

/// `toolyard claude`.
#[derive(Debug, Subcommand)]
pub enum ClaudeCommand {
    /// Start Claude Code joined to a session, and stop it with this command
    Start(ClaudeStart),
}

/// `toolyard claude start`.
#[derive(Debug, Args)]
pub struct ClaudeStart {
    /// The session's key, made if it is new
    #[arg(long, value_name = "KEY")]
    pub session: String,
    /// How Claude Code takes channel events: `server:toolyard` (development), `plugin:NAME@MARKETPLACE`, or `none`
    #[arg(long, value_name = "SPEC", default_value = "server:toolyard")]
    pub channel: Vec<String>,
    /// The Claude Code program
    #[arg(long, env = "TOOLYARD_CLAUDE", default_value = "claude", value_name = "PATH")]
    pub claude: PathBuf,
    /// How the session is opened
    #[command(flatten)]
    pub opening: BridgeOpening,
    /// Where the gateway is
    #[command(flatten)]
    pub target: GatewayTarget,
    /// More arguments for Claude Code, after `--`
    #[arg(last = true)]
    pub args: Vec<String>,
}

/// `toolyard claude-plugin`.
#[derive(Debug, Args)]
pub struct ClaudePluginArgs {
    /// Trust this certificate (PEM) beside those the system trusts, for a bridge behind wss://: an authority's, or the
    /// server's own
    #[arg(long, env = "TOOLYARD_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}
