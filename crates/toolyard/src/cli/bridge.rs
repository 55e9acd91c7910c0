//! The commands of the Claude bridge: messages, starting Claude Code, and the plugin that Claude Code starts.

use super::GatewayTarget;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use toolyard_service::{bridge::OpenParams, params::Text};

/// How a session is opened for Claude Code.
#[derive(Debug, Args)]
pub struct BridgeOpening {
    /// The channel that the session's messages come from; passed to Claude
    #[arg(long, value_name = "NAME")]
    pub source_channel: Option<String>,
    /// The chat that the session belongs to; passed to Claude
    #[arg(long, value_name = "ID")]
    pub chat_id: Option<String>,
    /// The sender of messages that do not name one; passed to Claude
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The id of a user who may answer permission questions in words, such as "yes abxyz" (repeatable)
    #[arg(long, value_name = "USER")]
    pub allow_sender: Vec<String>,
}

impl BridgeOpening {
    /// Whether `--allow-sender` was given.
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

/// The answer to a permission question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verdict {
    /// Allow the action
    Allow,
    /// Deny the action
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
        /// How the session is opened
        #[command(flatten)]
        opening: BridgeOpening,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Close a session: invalidate its token and disconnect its Claude Code
    Close {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Send a message to Claude; it is kept until Claude Code is connected
    Inbound {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The text; `-` for standard input
        content: String,
        /// Metadata as a JSON object: chat_id, message_id, user, user_id, ts, source_channel, attachments
        #[arg(long, default_value = "{}", value_name = "JSON")]
        meta: String,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Print Claude's replies
    Outbound {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// Only replies after this sequence number
        #[arg(long, default_value_t = 0, value_name = "SEQ")]
        after: u64,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Answer a permission question of Claude Code
    Reply {
        /// The session's key
        #[arg(long, value_name = "KEY")]
        session: String,
        /// The question's id, five letters
        request_id: String,
        /// The answer
        verdict: Verdict,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Show the sessions: connected or not, waiting messages, open questions
    Status {
        /// Only this session
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
}

/// `toolyard claude`.
#[derive(Debug, Subcommand)]
pub enum ClaudeCommand {
    /// Start Claude Code connected to a session; both end together
    Start(ClaudeStart),
}

/// `toolyard claude start`.
#[derive(Debug, Args)]
pub struct ClaudeStart {
    /// The session's key; the session is created if it does not exist
    #[arg(long, value_name = "KEY")]
    pub session: String,
    /// How Claude Code receives messages: `server:toolyard` (development), `plugin:NAME@MARKETPLACE`, or `none`
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
    /// A certificate (PEM) to trust in addition to the system's trust store, for wss://: an authority's, or the
    /// server's own
    #[arg(long, env = "TOOLYARD_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}
