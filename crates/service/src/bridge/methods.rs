//! `bridge.*`: sessions for Claude Code, messages to and from it, and answers to its permission questions.

use super::owners;
use crate::{
    Call, Handle, Hub, Lane, MethodError, Object, RpcError, Terms,
    hub::Connection,
    methods,
    params::{Count, Text},
    sessions::{CreateParams, Key},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolyard_bridge::{
    frames::{Behavior, InboundMessage},
    server::{
        ApprovalRole, InboundOutcome, MAX_SESSIONS, PermissionOutcome, ReplyError, SessionTerms, SessionView,
        check_message,
    },
};
use toolyard_engine::{Caller, authority::Power};

/// The name of the server in the MCP configuration.
const SERVER: &str = "toolyard";
/// The largest number of people who may answer in words.
const MAX_SENDERS: usize = 100;
/// How many characters of a caller's id are repeated in an error.
const MAX_SHOWN: usize = 20;
/// The scope that is needed to answer Claude Code's permission questions, to name others who may, and to see the
/// questions.
const APPROVALS: &str = "operator.approvals";

methods! {
    /// Prepares a session for Claude Code and returns its token, environment and MCP configuration.
    BridgeOpen = "bridge.open", Terms::write().may_use(&[Power::Approve]), OpenParams => Opened;
    /// Closes a session of Claude Code.
    BridgeClose = "bridge.close", Terms::write(), SessionParams => Closed;
    /// Sends a message to Claude Code; the message is durable when the method returns.
    BridgeInbound = "bridge.inbound", Terms::write().may_use(&[Power::Approve]), InboundParams => Receive;
    /// Shows Claude's latest messages.
    BridgeOutbound = "bridge.outbound", Terms::read(), OutboundParams => Outbound;
    /// Lists the sessions of Claude Code.
    BridgeStatus = "bridge.status", Terms::read(), StatusParams => BridgeState;
    /// Answers a permission question of Claude Code.
    BridgePermissionReply = "bridge.permission.reply", Terms::consent().lane(Lane::Express), ReplyParams => ReplyReceipt;
}

/// What a connection may do about permission questions. Its scopes decide, and nothing that it sends.
fn standing(connection: &Connection) -> ApprovalRole {
    if connection.has(APPROVALS) { ApprovalRole::Approver } else { ApprovalRole::Messenger }
}

fn needs_approvals(what: &str) -> RpcError {
    RpcError::new("FORBIDDEN", format!("missing scope: {APPROVALS} ({what})"))
        .detail("code", "MISSING_SCOPE")
        .detail("missingScope", APPROVALS)
        .detail("requiredScopes", vec![APPROVALS])
}

fn not_open(session: &str) -> RpcError {
    RpcError::invalid(format!("no bridge is open for session \"{session}\""))
        .detail("code", "NOT_FOUND")
        .detail("suggestion", "Open it with bridge.open or `toolyard claude start`.")
}

/// Which session is opened, and for whom.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenParams {
    /// The session.
    pub session_key: Text,
    /// The session's agent, if the key does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text>,
    /// The channel that messages come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub source_channel: Option<Text>,
    /// The chat that messages come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub chat_id: Option<Text>,
    /// The user for whom Claude Code works.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub user: Option<Text>,
    /// The UUID that Claude Code is started with; a new one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub claude_session: Option<Text>,
    /// Users who may answer permission questions in words, in addition to the configured ones.
    #[serde(default)]
    pub allowed_senders: Vec<String>,
    /// The program of the plugin; this program by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub command: Option<Text>,
}

/// The settings with which Claude Code must be started.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    ok: bool,
    session_key: String,
    claude_session: String,
    server: &'static str,
    env: PluginEnv,
    mcp_config: McpConfig,
}

/// The environment of Claude Code's plugin.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
struct PluginEnv {
    synthesis_bridge_url: String,
    synthesis_bridge_token: String,
    synthesis_openclaw_session: String,
    synthesis_claude_session: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct McpConfig {
    mcp_servers: BTreeMap<&'static str, StdioServer>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct StdioServer {
    r#type: &'static str,
    command: String,
    args: [&'static str; 1],
    env: PluginEnv,
}

impl Handle<BridgeOpen> for Hub {
    async fn handle(&self, call: &Call<'_>, params: OpenParams) -> Result<Opened, MethodError> {
        let workspace = &call.caller.workspace;
        let key = Key::read(workspace, &params.session_key, params.agent_id.as_deref())?;
        let Some(url) = self.settings().bridge_url.clone() else {
            return Err(RpcError::unavailable("this gateway does not know its own address; set bridge.url").into());
        };
        if self.see_bridge(|rules| rules.len() >= MAX_SESSIONS && !rules.is_open(&key.full)) {
            let problem = format!("{MAX_SESSIONS} sessions are open; close some with bridge.close");
            return Err(RpcError::invalid(problem).into());
        }
        let claude_session = claude_session(params.claude_session.as_deref())?;
        // Sessions are opened one at a time: the senders of an open session are read here and written below.
        let _one = self.inner.bridge.opening.lock().await;
        let allowed_senders = self.senders(call.connection()?, &key.full, params.allowed_senders)?;
        if allowed_senders.len() > MAX_SENDERS {
            return Err(RpcError::invalid(format!("at most {MAX_SENDERS} senders may be allowed")).into());
        }
        self.create_session(
            &call.caller,
            CreateParams { key: Some(Text(key.full.clone())), ..CreateParams::default() },
        )
        .await?;
        let mut secret = [0u8; 32];
        secret[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        secret[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        let token = BASE64URL.encode(secret);
        let mut meta = Object::from_iter([("agent_id".to_owned(), key.agent.clone().into())]);
        for (name, given) in
            [("source_channel", params.source_channel), ("chat_id", params.chat_id), ("user", params.user)]
        {
            meta.extend(given.map(|given| (name.to_owned(), given.0.into())));
        }
        if !self.own_bridge(&key.full).await? {
            return Err(owners::opened_elsewhere().into());
        }
        self.open_bridge(SessionTerms {
            session: key.full.clone(),
            token_sha256: SessionTerms::digest(&token),
            claude_session: claude_session.clone(),
            allowed_senders,
            meta,
        })
        .await?;
        let env = PluginEnv {
            synthesis_bridge_url: url,
            synthesis_bridge_token: token,
            synthesis_openclaw_session: key.full.clone(),
            synthesis_claude_session: claude_session.clone(),
        };
        let command = params.command.map_or_else(|| self.settings().program.clone(), String::from);
        let server = StdioServer { r#type: "stdio", command, args: ["claude-plugin"], env: env.clone() };
        Ok(Opened {
            ok: true,
            session_key: key.full,
            claude_session,
            server: SERVER,
            env,
            mcp_config: McpConfig { mcp_servers: BTreeMap::from([(SERVER, server)]) },
        })
    }
}

/// The UUID that Claude Code is started with: the caller's, or a new one.
fn claude_session(named: Option<&str>) -> Result<String, RpcError> {
    match named {
        None => Ok(uuid::Uuid::new_v4().to_string()),
        Some(text) => uuid::Uuid::parse_str(text)
            .map(|uuid| uuid.to_string())
            .map_err(|_| RpcError::invalid("claudeSession must be a UUID: it is what `claude --session-id` takes")),
    }
}

impl Hub {
    /// Who may answer a session's questions in words. Only an approver decides that: anybody else opens a new session with
    /// the configured senders, and an open one with those it has.
    fn senders(&self, by: &Connection, session: &str, named: Vec<String>) -> Result<Vec<String>, RpcError> {
        let named: Vec<String> = named.into_iter().filter(|sender| !sender.is_empty()).collect();
        let configured = self.settings().bridge_senders.clone();
        if standing(by) == ApprovalRole::Approver {
            return Ok(configured.into_iter().chain(named).collect());
        }
        if !named.is_empty() {
            return Err(needs_approvals("allowedSenders says who may answer permission questions"));
        }
        let is_open = self.see_bridge(|rules| rules.is_open(session).then(|| rules.allowed_senders(session)));
        Ok(is_open.unwrap_or(configured))
    }
}

/// A session by key.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionParams {
    /// The session.
    pub session_key: Text,
    /// The session's agent, if the key does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text>,
}

/// Whether a session was closed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Closed {
    ok: bool,
    session_key: String,
    closed: bool,
}

impl Handle<BridgeClose> for Hub {
    async fn handle(&self, call: &Call<'_>, params: SessionParams) -> Result<Closed, MethodError> {
        let key = Key::read(&call.caller.workspace, &params.session_key, params.agent_id.as_deref())?;
        let closed = self.close_bridge(&key.full).await?;
        Ok(Closed { ok: true, session_key: key.full, closed })
    }
}

/// A message for Claude.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundParams {
    /// The session.
    pub session_key: Text,
    /// The session's agent, if the key does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text>,
    /// The message.
    pub content: Text,
    /// Metadata from its channel.
    #[serde(default)]
    pub meta: Object,
}

/// A message for Claude, by whichever door.
pub type Message = InboundParams;

/// The result of a message.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Receive {
    /// The message was sent to Claude, or waits for it.
    Message {
        /// Always true.
        ok: bool,
        /// The message.
        request_id: String,
        /// `sent` or `buffered`.
        outcome: &'static str,
    },
    /// The message was an answer to a permission question.
    Verdict {
        /// Whether the answer was accepted.
        ok: bool,
        /// `verdict`.
        outcome: &'static str,
        /// `allow` or `deny`, if it was accepted.
        #[serde(skip_serializing_if = "Option::is_none")]
        behavior: Option<&'static str>,
        /// Why it was not accepted.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
    },
}

impl Handle<BridgeInbound> for Hub {
    async fn handle(&self, call: &Call<'_>, params: InboundParams) -> Result<Receive, MethodError> {
        let connection = call.connection()?;
        self.receive(&call.caller, params, standing(connection)).await
    }
}

impl Hub {
    /// Accepts a message for Claude from any door. The message is durable when this returns; it may be sent earlier.
    pub async fn receive(&self, caller: &Caller, message: Message, from: ApprovalRole) -> Result<Receive, MethodError> {
        let key = Key::read(&caller.workspace, &message.session_key, message.agent_id.as_deref())?;
        check_message(&message.content, &message.meta)
            .map_err(|why| RpcError::invalid(format!("invalid bridge.inbound params: {why}")))?;
        let request_id = format!("msg_{}", uuid::Uuid::now_v7().simple());
        let known = self.see_bridge(|rules| rules.session_meta(&key.full));
        let meta = complete(message.meta, known, &request_id, &caller.principal);
        let message = InboundMessage { request_id: request_id.clone(), content: message.content.0, meta };
        let (accepted, kept) = self.with_bridge_kept(|rules| match rules.inbound(&key.full, message, from) {
            Ok((accepted, actions)) => (Some(accepted), actions),
            Err(_) => (None, Vec::new()),
        });
        if let Some(kept) = kept {
            self.service().engine().store().durable(kept?).await?;
        }
        match accepted {
            None => Err(not_open(&key.full).into()),
            Some(InboundOutcome::Message { sent }) => {
                Ok(Receive::Message { ok: true, request_id, outcome: if sent { "sent" } else { "buffered" } })
            }
            Some(InboundOutcome::Verdict(permitted)) => verdict(permitted),
        }
    }
}

/// Adds to a message's description what the session and the gateway know and the caller did not say. `user_id` is never
/// added: it decides whose answers to permission questions count.
fn complete(mut meta: Object, mut known: Object, id: &str, principal: &str) -> Object {
    let facts = [
        ("chat_id", known.remove("chat_id")),
        ("source_channel", known.remove("source_channel")),
        ("user", Some(known.remove("user").unwrap_or_else(|| principal.into()))),
        ("message_id", Some(id.into())),
        ("ts", Some(Timestamp::now().to_string().into())),
    ];
    for (key, value) in facts {
        if let (Some(value), false) = (value, meta.contains_key(key)) {
            meta.insert(key.to_owned(), value);
        }
    }
    meta
}

/// The result of an answer in words.
fn verdict(permitted: PermissionOutcome) -> Result<Receive, MethodError> {
    let refused = |reason| Receive::Verdict { ok: false, outcome: "verdict", behavior: None, reason: Some(reason) };
    match permitted {
        PermissionOutcome::Counted(behavior) => {
            let behavior = Some(behavior.as_str());
            Ok(Receive::Verdict { ok: true, outcome: "verdict", behavior, reason: None })
        }
        PermissionOutcome::NotAllowed => Ok(refused("the sender may not answer permission questions")),
        PermissionOutcome::TooLate => Ok(refused("the question is closed")),
        PermissionOutcome::NeedsApprover => {
            Err(needs_approvals("a question is open, and the message reads like its answer").into())
        }
    }
}

/// Which of Claude's messages are shown.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutboundParams {
    /// The session.
    pub session_key: Text,
    /// The session's agent, if the key does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text>,
    /// Only messages after the one with this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Count>,
}

/// Messages from Claude.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outbound {
    session_key: String,
    messages: Vec<SentMessage>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SentMessage {
    seq: u64,
    chat_id: String,
    text: String,
    reply_to: Option<String>,
    files: Vec<String>,
    request_id: Option<String>,
}

impl Handle<BridgeOutbound> for Hub {
    async fn handle(&self, call: &Call<'_>, params: OutboundParams) -> Result<Outbound, MethodError> {
        let to = standing(call.connection()?);
        let key = Key::read(&call.caller.workspace, &params.session_key, params.agent_id.as_deref())?;
        let after = params.after.unwrap_or_default().0;
        let said =
            self.see_bridge(|rules| rules.outbound_after(&key.full, after, to)).ok_or_else(|| not_open(&key.full))?;
        let messages = said.into_iter().map(|(seq, said)| SentMessage {
            seq,
            chat_id: said.chat_id,
            text: said.text,
            reply_to: said.reply_to,
            files: said.files,
            request_id: said.permission,
        });
        Ok(Outbound { messages: messages.collect(), session_key: key.full })
    }
}

/// A person's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BehaviorWord {
    /// The action is allowed.
    Allow,
    /// The action is denied.
    Deny,
}

/// An answer to a permission question.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplyParams {
    /// The session.
    pub session_key: Text,
    /// The session's agent, if the key does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text>,
    /// The question.
    #[serde(rename = "request_id")]
    pub request_id: Text,
    /// The answer.
    pub behavior: BehaviorWord,
}

/// The confirmation that an answer was accepted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReplyReceipt {
    ok: bool,
    request_id: String,
    behavior: &'static str,
}

impl Handle<BridgePermissionReply> for Hub {
    async fn handle(&self, call: &Call<'_>, params: ReplyParams) -> Result<ReplyReceipt, MethodError> {
        let key = Key::read(&call.caller.workspace, &params.session_key, params.agent_id.as_deref())?;
        let request_id = params.request_id.0;
        let behavior = match params.behavior {
            BehaviorWord::Allow => Behavior::Allow,
            BehaviorWord::Deny => Behavior::Deny,
        };
        let by = &call.connection()?.principal;
        let replied = self.with_bridge(|rules| match rules.permission_reply(&key.full, &request_id, behavior, by) {
            Ok(actions) => (Ok(()), actions),
            Err(error) => (Err(error), Vec::new()),
        });
        match replied {
            Ok(()) => Ok(ReplyReceipt { ok: true, request_id, behavior: behavior.as_str() }),
            Err(ReplyError::UnknownSession) => Err(not_open(&key.full).into()),
            Err(ReplyError::NotOpen) => {
                let shown: String = request_id.chars().take(MAX_SHOWN).collect();
                Err(RpcError::invalid(format!("no permission question \"{shown}\" is open"))
                    .detail("code", "NOT_FOUND")
                    .detail("suggestion", "It was answered, has expired, or Claude Code has disconnected.")
                    .into())
            }
        }
    }
}

/// Which session is shown; all without one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatusParams {
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<Text>,
    /// The session's agent, if the key does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text>,
}

/// The open sessions of Claude Code.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BridgeState {
    #[schemars(with = "Vec<Object>")]
    sessions: Vec<SessionView>,
}

impl Handle<BridgeStatus> for Hub {
    async fn handle(&self, call: &Call<'_>, params: StatusParams) -> Result<BridgeState, MethodError> {
        let workspace = &call.caller.workspace;
        let read = |key: Text| Key::read(workspace, &key, params.agent_id.as_deref());
        let key = params.session_key.map(read).transpose()?;
        let wanted = key.map(|key| key.full);
        let to = standing(call.connection()?);
        let mut sessions = self.see_bridge(|rules| rules.view(wanted.as_deref(), to));
        sessions.retain(|session| workspace.owns(&session.session_key));
        Ok(BridgeState { sessions })
    }
}
