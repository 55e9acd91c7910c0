//! `bridge.*`: sessions opened for Claude Code, messages to it, what it says, and answers to its permission questions.

use super::{Ask, RpcError, sessions};
use crate::{
    hub::{Connection, Gateway},
    rpc::sessions::Key,
    ws::params::{Field, Kind, check, count, text, texts},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use toolyard_bridge::{
    frames::{Behavior, InboundMessage},
    server::{Accepted, MAX_SESSIONS, Opening, Permitted, ReplyError, Standing, check_message},
};

/// The name of the server in the MCP configuration.
const SERVER: &str = "toolyard";
/// People who may answer in words.
const MAX_SENDERS: usize = 100;
/// Whoever gives a verdict on Claude Code's questions, says who else may, or sees the questions, holds this.
const APPROVALS: &str = "operator.approvals";

pub(super) async fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    match ask.method {
        "bridge.open" => open(ask, params).await,
        "bridge.close" => close(ask, params).await,
        "bridge.inbound" => {
            receive(ask.gateway, ask.method, params, standing(ask.connection), &ask.connection.principal).await
        }
        "bridge.outbound" => outbound(ask, params),
        "bridge.permission.reply" => reply(ask, params),
        _ => status(ask, params),
    }
}

/// What a connection may do about permission questions: its scopes say it, and nothing that it sends.
fn standing(connection: &Connection) -> Standing {
    if connection.has(APPROVALS) { Standing::Approver } else { Standing::Messenger }
}

fn needs_approvals(what: &str) -> RpcError {
    RpcError::new("FORBIDDEN", format!("missing scope: {APPROVALS} ({what})"))
        .details(json!({"code": "MISSING_SCOPE", "missingScope": APPROVALS, "requiredScopes": [APPROVALS]}))
}

const OPEN: &[Field] = &[
    Field::required("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("sourceChannel", Kind::TextUpTo(200)),
    Field::optional("chatId", Kind::TextUpTo(200)),
    Field::optional("user", Kind::TextUpTo(200)),
    Field::optional("claudeSession", Kind::TextUpTo(64)),
    Field::optional("allowedSenders", Kind::Texts),
    Field::optional("command", Kind::TextUpTo(4096)),
];

/// Prepares a session: a secret of its own, and everything that Claude Code must be started with.
async fn open(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, OPEN)?;
    let gateway = ask.gateway;
    let key = Key::read(text(&params, "sessionKey").unwrap_or_default(), text(&params, "agentId"))?;
    let Some(url) = gateway.bridge_url() else {
        return Err(RpcError::new("UNAVAILABLE", "this gateway does not know its own address; set bridge.url"));
    };
    if gateway.see_bridge(|hub| hub.len() >= MAX_SESSIONS && !hub.is_open(&key.full)) {
        return Err(RpcError::invalid(format!("{MAX_SESSIONS} sessions are open; close some with bridge.close")));
    }
    let claude_session = claude_session(text(&params, "claudeSession"))?;
    // One at a time: the senders of an open session are read here and written below.
    let _one = gateway.inner.bridge.opening.lock().await;
    let allowed_senders = senders(ask, &key.full, texts(&params, "allowedSenders"))?;
    if allowed_senders.len() > MAX_SENDERS {
        return Err(RpcError::invalid(format!("at most {MAX_SENDERS} senders may be allowed")));
    }
    sessions::create(ask, Some(json!({"key": key.full}))).await?;
    let mut secret = [0u8; 32];
    secret[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    secret[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let token = BASE64URL.encode(secret);
    let mut meta = Map::from_iter([("agent_id".to_owned(), Value::from(key.agent.clone()))]);
    for (name, field) in [("source_channel", "sourceChannel"), ("chat_id", "chatId"), ("user", "user")] {
        if let Some(value) = text(&params, field) {
            meta.insert(name.to_owned(), value.into());
        }
    }
    let opening = Opening {
        session: key.full.clone(),
        token_sha256: Opening::digest(&token),
        claude_session: claude_session.clone(),
        allowed_senders,
        meta,
    };
    gateway.open_bridge(opening).await?;
    let env = json!({
        "SYNTHESIS_BRIDGE_URL": url, "SYNTHESIS_BRIDGE_TOKEN": token, "SYNTHESIS_OPENCLAW_SESSION": key.full,
        "SYNTHESIS_CLAUDE_SESSION": claude_session,
    });
    let command = text(&params, "command").map(str::to_owned).unwrap_or_else(|| gateway.settings().program.clone());
    let server = json!({"type": "stdio", "command": command, "args": ["claude-plugin"], "env": env});
    Ok(json!({
        "ok": true, "sessionKey": key.full, "claudeSession": claude_session, "server": SERVER, "env": env,
        "mcpConfig": {"mcpServers": {SERVER: server}},
    }))
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

/// Who may answer a session's questions in words. Only an approver decides that: anybody else opens a new session with
/// the configured senders, and an open one with those it has.
fn senders(ask: &Ask<'_>, session: &str, named: Vec<String>) -> Result<Vec<String>, RpcError> {
    let named: Vec<String> = named.into_iter().filter(|sender| !sender.is_empty()).collect();
    let configured = ask.gateway.settings().bridge_senders.clone();
    if standing(ask.connection) == Standing::Approver {
        return Ok(configured.into_iter().chain(named).collect());
    }
    if !named.is_empty() {
        return Err(needs_approvals("allowedSenders says who may answer permission questions"));
    }
    let is_open = ask.gateway.see_bridge(|hub| hub.is_open(session).then(|| hub.allowed_senders(session)));
    Ok(is_open.unwrap_or(configured))
}

const ONE: &[Field] = &[Field::required("sessionKey", Kind::Text), Field::optional("agentId", Kind::Text)];

fn key(params: &Map<String, Value>) -> Result<Key, RpcError> {
    Key::read(text(params, "sessionKey").unwrap_or_default(), text(params, "agentId"))
}

fn not_open(session: &str) -> RpcError {
    RpcError::invalid(format!("no bridge is open for session \"{session}\""))
        .details(json!({"code": "NOT_FOUND", "suggestion": "Open it with bridge.open or `toolyard claude start`."}))
}

async fn close(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, ONE)?;
    let key = key(&params)?;
    let closed = ask.gateway.close_bridge(&key.full).await?;
    Ok(json!({"ok": true, "sessionKey": key.full, "closed": closed}))
}

const INBOUND: &[Field] = &[
    Field::required("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::required("content", Kind::Text),
    Field::optional("meta", Kind::Object),
];

/// A message for Claude, by whichever door. It is durable when this answers; on its way it is sooner.
pub(crate) async fn receive(
    gateway: &Gateway,
    method: &str,
    params: Option<Value>,
    from: Standing,
    principal: &str,
) -> Result<Value, RpcError> {
    let mut params = check(method, params, INBOUND)?;
    let key = key(&params)?;
    let meta = match params.remove("meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    let content = text(&params, "content").unwrap_or_default().to_owned();
    check_message(&content, &meta).map_err(|why| RpcError::invalid(format!("invalid {method} params: {why}")))?;
    let request_id = format!("msg_{}", uuid::Uuid::now_v7().simple());
    let meta = complete(meta, gateway.see_bridge(|hub| hub.session_meta(&key.full)), &request_id, principal);
    let message = InboundMessage { request_id: request_id.clone(), content, meta };
    let (accepted, kept) = gateway.with_bridge_kept(|hub| match hub.inbound(&key.full, message, from) {
        Ok((accepted, actions)) => (Some(accepted), actions),
        Err(_) => (None, Vec::new()),
    });
    if let Some(kept) = kept {
        gateway.service().engine().store().durable(kept?).await?;
    }
    match accepted {
        None => Err(not_open(&key.full)),
        Some(Accepted::Message { sent }) => {
            Ok(json!({"ok": true, "request_id": request_id, "outcome": if sent { "sent" } else { "buffered" }}))
        }
        Some(Accepted::Verdict(permitted)) => verdict(permitted),
    }
}

/// Adds to a message's description what the session and the gateway know and the caller did not say. `user_id` is never
/// added: it decides whose answers to permission questions count.
fn complete(mut meta: Map<String, Value>, known: Map<String, Value>, id: &str, principal: &str) -> Map<String, Value> {
    let mut known = known;
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

/// What became of an answer in words.
fn verdict(permitted: Permitted) -> Result<Value, RpcError> {
    let refused = |reason: &str| Ok(json!({"ok": false, "outcome": "verdict", "reason": reason}));
    match permitted {
        Permitted::Counted(behavior) => Ok(json!({"ok": true, "outcome": "verdict", "behavior": behavior})),
        Permitted::NotAllowed => refused("the sender may not answer permission questions"),
        Permitted::TooLate => refused("the question is closed"),
        Permitted::NeedsApprover => Err(needs_approvals("a question is open, and the message reads like its answer")),
    }
}

const OUTBOUND: &[Field] = &[
    Field::required("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::optional("after", Kind::Count),
];

/// What Claude said lately, for whoever was not connected when it did.
fn outbound(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, OUTBOUND)?;
    let key = key(&params)?;
    let after = count(&params, "after").unwrap_or_default();
    let to = standing(ask.connection);
    let said = ask.gateway.see_bridge(|hub| hub.said_after(&key.full, after, to)).ok_or_else(|| not_open(&key.full))?;
    let messages: Vec<Value> = said
        .into_iter()
        .map(|(seq, m)| {
            json!({
                "seq": seq, "chatId": m.chat_id, "text": m.text, "replyTo": m.reply_to, "files": m.files,
                "requestId": m.permission,
            })
        })
        .collect();
    Ok(json!({"sessionKey": key.full, "messages": messages}))
}

const REPLY: &[Field] = &[
    Field::required("sessionKey", Kind::Text),
    Field::optional("agentId", Kind::Text),
    Field::required("request_id", Kind::Text),
    Field::required("behavior", Kind::OneOf(&["allow", "deny"])),
];

fn reply(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, REPLY)?;
    let key = key(&params)?;
    let request_id = text(&params, "request_id").unwrap_or_default();
    let behavior = if text(&params, "behavior") == Some("allow") { Behavior::Allow } else { Behavior::Deny };
    let replied = ask.gateway.with_bridge(|hub| {
        match hub.permission_reply(&key.full, request_id, behavior, &ask.connection.principal) {
            Ok(actions) => (Ok(()), actions),
            Err(error) => (Err(error), Vec::new()),
        }
    });
    match replied {
        Ok(()) => Ok(json!({"ok": true, "request_id": request_id, "behavior": behavior})),
        Err(ReplyError::UnknownSession) => Err(not_open(&key.full)),
        Err(ReplyError::NotOpen) => {
            let shown: String = request_id.chars().take(20).collect();
            Err(RpcError::invalid(format!("no permission question \"{shown}\" is open")).details(
                json!({"code": "NOT_FOUND", "suggestion": "It was answered, has expired, or Claude Code is gone."}),
            ))
        }
    }
}

const STATUS: &[Field] = &[Field::optional("sessionKey", Kind::Text), Field::optional("agentId", Kind::Text)];

fn status(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let params = check(ask.method, params, STATUS)?;
    let wanted = if params.contains_key("sessionKey") { Some(key(&params)?.full) } else { None };
    let sessions = ask.gateway.see_bridge(|hub| hub.view(wanted.as_deref(), standing(ask.connection)));
    Ok(json!({"sessions": sessions}))
}
