//! [`Live`]: an upstream server that answers. Opens a connection, agrees on a revision, and asks in its words.

use super::{
    child::{ChildLink, ChildSpec, Launcher},
    config::{ServerConfig, Speaks, Transport},
    http::{HttpClient, HttpLink, LISTEN_WITHIN, Target},
    mux::{Inbox, LinkError, Mux},
    oauth::Authorizer,
    old_sse,
    pins::Seen,
    terms::{Dialect, HookInterest},
};
use crate::{
    Revision, RpcError,
    asks::Asks,
    jsonrpc::{HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_REVISION},
    revision::{META_CAPABILITIES, META_CLIENT, META_VERSION},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_protocol::RunId;

/// Pages of one list; a server that goes on is not believed.
const MAX_PAGES: usize = 200;
/// Prompts or resources of one server that are kept.
const MAX_LISTED: usize = 10_000;
/// Times a server may ask for more input within one request.
const MAX_ROUNDS: usize = 10;

/// How a server is connected.
enum Link {
    Child(ChildLink),
    Http(Arc<HttpLink>),
    Sse(Arc<Mux>),
}

/// A server that answers.
pub(crate) struct Live {
    link: Link,
    revision: Revision,
    /// What it says it can do.
    capabilities: Map<String, Value>,
    pub(crate) server: Value,
    /// What we say we can do.
    offers: Value,
    /// What a plugin answered to `start`, where it speaks the line protocol.
    line: Option<Map<String, Value>>,
    max_tools: usize,
}

/// What is needed to connect.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) config: &'a ServerConfig,
    pub(crate) launcher: &'a dyn Launcher,
    pub(crate) client: Option<HttpClient>,
    pub(crate) auth: Option<Arc<Authorizer>>,
    pub(crate) inbox: Arc<dyn Inbox>,
    pub(crate) dialect: &'a Dialect,
    /// Counts children.
    pub(crate) children: Arc<()>,
}

/// What we tell servers we can do: whatever the client of a call can.
fn offers() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
}

impl Live {
    /// Connects and agrees on a revision.
    pub(crate) async fn open(opening: Opening<'_>) -> Result<Self, String> {
        let config = opening.config;
        let said = |error: LinkError| RpcError::from(error).message;
        if let Some(command) = &config.command {
            let spec = ChildSpec {
                name: opening.name.to_owned(),
                program: command.clone(),
                args: config.args.clone(),
                cwd: config.cwd.clone(),
                env: config.environment(),
            };
            let child =
                ChildLink::start(&spec, opening.launcher, config.max_message_bytes, opening.inbox, opening.children)?;
            if let Dialect::Line { start } = opening.dialect {
                return Self::begin(child, start, config).await.map_err(said);
            }
            return Self::agree(Link::Child(child), config).await.map_err(|(_, error)| said(error));
        }
        let client = opening.client.ok_or("there is no HTTP client")?;
        let target = || Target::new(config, client.clone(), opening.auth.clone());
        if config.transport != Transport::Sse {
            let link = Link::Http(HttpLink::new(target()?, opening.inbox.clone()));
            match Self::agree(link, config).await {
                Ok(live) => return Ok(live),
                Err((_, LinkError::Gone(why)))
                    if config.transport == Transport::Auto && ["400", "404", "405"].iter().any(|c| why.contains(c)) => {
                }
                Err((_, error)) => return Err(said(error)),
            }
        }
        let mux = old_sse::open(target()?, opening.inbox).await.map_err(said)?;
        Self::agree(Link::Sse(mux), config).await.map_err(|(_, error)| said(error))
    }

    /// Starts a plugin that speaks the line protocol.
    async fn begin(child: ChildLink, start: &Map<String, Value>, config: &ServerConfig) -> Result<Self, LinkError> {
        let params = Value::Object(start.clone());
        let answer = child.mux.request("start", &params, &CancellationToken::new()).await?;
        let Value::Object(line) = answer else {
            return Err(LinkError::Gone("the plugin's answer to start is no object".to_owned()));
        };
        Ok(Self {
            link: Link::Child(child),
            revision: Revision::V20251125,
            capabilities: Map::new(),
            server: line.get("plugin").cloned().unwrap_or_default(),
            offers: Value::Null,
            line: Some(line),
            max_tools: config.max_tools,
        })
    }

    async fn agree(link: Link, config: &ServerConfig) -> Result<Self, (Link, LinkError)> {
        let mut live = Self {
            link,
            revision: Revision::V20251125,
            capabilities: Map::new(),
            server: Value::Null,
            offers: offers(),
            line: None,
            max_tools: config.max_tools,
        };
        let first = match config.protocol {
            Speaks::V20260728 => None,
            Speaks::V20250618 => Some(Revision::V20250618),
            Speaks::Auto | Speaks::V20251125 => Some(Revision::V20251125),
        };
        let outcome = match first {
            None => match live.discover().await {
                // Told which revisions there are, the client asks again.
                Err(LinkError::Rpc(error)) if names_ours(&error) => live.discover().await,
                other => other,
            },
            Some(revision) => match live.handshake(revision).await {
                Err(LinkError::Rpc(error)) if config.protocol == Speaks::Auto && is_without_handshake(&error) => {
                    live.discover().await
                }
                other => other,
            },
        };
        match outcome {
            Ok(()) => Ok(live),
            Err(error) => Err((live.link, error)),
        }
    }

    async fn handshake(&mut self, revision: Revision) -> Result<(), LinkError> {
        let params = json!({
            "protocolVersion": revision.as_str(), "capabilities": self.offers, "clientInfo": client_info(),
        });
        let result = self.send("initialize", &params, &[], &CancellationToken::new()).await?;
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        // Older ones are close enough for what is asked of them here.
        let is_old = version < Revision::V20250618.as_str() && version.starts_with("202");
        self.revision = match Revision::parse(version).filter(|r| r.has_handshake()) {
            Some(revision) => revision,
            None if is_old => Revision::V20250618,
            None => return Err(LinkError::Gone(format!("the server speaks {version:?}, which is not spoken here"))),
        };
        self.server = result.get("serverInfo").cloned().unwrap_or_default();
        self.capabilities = result.get("capabilities").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Link::Http(link) = &self.link {
            link.agree(self.revision);
        }
        self.notify("notifications/initialized", json!({})).await?;
        if let Link::Http(link) = &self.link {
            tokio::spawn(link.clone().listen(None));
            let _ = tokio::time::timeout(LISTEN_WITHIN, link.listening.cancelled()).await;
        }
        Ok(())
    }

    async fn discover(&mut self) -> Result<(), LinkError> {
        self.revision = Revision::V20260728;
        if let Link::Http(link) = &self.link {
            link.agree(self.revision);
        }
        let result = self.request("server/discover", json!({}), &CancellationToken::new()).await?;
        let versions = result.get("supportedVersions").and_then(Value::as_array).cloned().unwrap_or_default();
        if !versions.iter().any(|v| v == self.revision.as_str()) {
            return Err(LinkError::Gone(format!("the server speaks {}", Value::Array(versions))));
        }
        self.capabilities = result.get("capabilities").and_then(Value::as_object).cloned().unwrap_or_default();
        self.server = result
            .get("_meta")
            .and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"))
            .or_else(|| result.get("serverInfo"))
            .cloned()
            .unwrap_or_default();
        let wanted = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
        let params = self.with_meta(json!({"notifications": wanted}), None);
        match &self.link {
            Link::Http(link) => {
                tokio::spawn(link.clone().listen(Some(params)));
            }
            Link::Child(child) => {
                let mux = child.mux.clone();
                tokio::spawn(async move {
                    let forever = CancellationToken::new();
                    let _ = mux.request("subscriptions/listen", &params, &forever).await;
                });
            }
            Link::Sse(_) => {}
        }
        Ok(())
    }

    /// Fires when the connection has ended.
    pub(crate) fn closed(&self) -> &CancellationToken {
        match &self.link {
            Link::Child(child) => &child.mux.closed,
            Link::Http(link) => &link.closed,
            Link::Sse(mux) => &mux.closed,
        }
    }

    /// The child's process, where there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.link {
            Link::Child(child) => Some(child.pid),
            _ => None,
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether it says it can do something.
    pub(crate) fn can(&self, capability: &str) -> bool {
        self.capabilities.contains_key(capability)
    }

    /// Ends the connection and what it started.
    pub(crate) async fn stop(&self) {
        match &self.link {
            Link::Child(child) => child.stop().await,
            Link::Http(link) => link.stop().await,
            Link::Sse(mux) => mux.close("stopped"),
        }
    }

    async fn send(
        &self,
        method: &str,
        params: &Value,
        mirrored: &[(String, String)],
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        match &self.link {
            Link::Child(child) => child.mux.request(method, params, cancel).await,
            Link::Http(link) => link.request(method, params, mirrored, cancel).await,
            Link::Sse(mux) => mux.request(method, params, cancel).await,
        }
    }

    async fn notify(&self, method: &str, params: Value) -> Result<(), LinkError> {
        match &self.link {
            Link::Child(child) => child.mux.notify(method, params).await,
            Link::Http(link) => link.notify(method, params).await,
            Link::Sse(mux) => mux.notify(method, params).await,
        }
    }

    /// Parameters with what the revision wants in `_meta`.
    fn with_meta(&self, mut params: Value, capabilities: Option<&Map<String, Value>>) -> Value {
        if self.revision.has_handshake() {
            return params;
        }
        let capabilities = capabilities.cloned().map_or_else(|| json!({}), Value::Object);
        if let Some(map) = params.as_object_mut() {
            let meta = map.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.insert(META_VERSION.to_owned(), self.revision.as_str().into());
                meta.insert(META_CLIENT.to_owned(), client_info());
                meta.insert(META_CAPABILITIES.to_owned(), capabilities);
            }
        }
        params
    }

    /// A request that raises no questions.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        let params = self.with_meta(params, None);
        self.send(method, &params, &[], cancel).await
    }

    /// A request that may raise questions, which go to the client of a run.
    pub(crate) async fn converse(
        &self,
        method: &str,
        params: Value,
        mirrored: &[(String, String)],
        asks: &Asks,
        run_id: Option<RunId>,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        if self.line.is_some() {
            return self.line_call(method, &params, cancel).await;
        }
        if self.revision.has_handshake() {
            return self.send(method, &params, mirrored, cancel).await;
        }
        let can = run_id.map(|run_id| asks.capabilities(run_id)).unwrap_or_default();
        let mut round = self.with_meta(params.clone(), Some(&can.0));
        for _ in 0..MAX_ROUNDS {
            let result = self.send(method, &round, mirrored, cancel).await?;
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(result);
            }
            let mut next = params.clone();
            let Some(map) = next.as_object_mut() else { break };
            if let Some(state) = result.get("requestState") {
                map.insert("requestState".to_owned(), state.clone());
            }
            if let Some(Value::Object(requests)) = result.get("inputRequests") {
                let keys: Vec<String> = requests.keys().cloned().collect();
                let questions = requests.iter().map(|(key, request)| {
                    let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
                    (Some(key.clone()), method.to_owned(), request.get("params").cloned().unwrap_or_default())
                });
                let run_id =
                    run_id.ok_or_else(|| LinkError::Gone("nobody can answer the server's question".to_owned()))?;
                let answers = asks.ask_all(run_id, questions.collect()).await.map_err(LinkError::Rpc)?;
                let mut responses = Map::new();
                for (key, answer) in keys.into_iter().zip(answers) {
                    responses.insert(key, answer.map_err(LinkError::Rpc)?);
                }
                map.insert("inputResponses".to_owned(), Value::Object(responses));
            }
            round = self.with_meta(next, Some(&can.0));
        }
        Err(LinkError::Gone(format!("the server asked for more input {MAX_ROUNDS} times")))
    }

    /// A call in the line protocol's words.
    async fn line_call(&self, method: &str, params: &Value, cancel: &CancellationToken) -> Result<Value, LinkError> {
        if method != "tools/call" {
            return Err(LinkError::Rpc(RpcError::method(method)));
        }
        let token = params.get("_meta").and_then(|meta| meta.get("progressToken"));
        let call = json!({"tool": params["name"], "args": params["arguments"], "progressToken": token});
        let answer = self.send("call", &call, &[], cancel).await?;
        let shaped = answer.get("content").is_some_and(Value::is_array);
        Ok(match answer {
            answer if shaped => answer,
            // A plugin need not know what content is.
            Value::String(text) => json!({"content": [{"type": "text", "text": text}]}),
            Value::Null => json!({"content": []}),
            other => {
                let text = serde_json::to_string_pretty(&other).unwrap_or_default();
                json!({"content": [{"type": "text", "text": text}], "details": if other.is_object() { other } else { json!({}) }})
            }
        })
    }

    /// Everything on a list, over all its pages.
    async fn list(&self, method: &str, key: &str, most: usize) -> Result<Vec<Value>, LinkError> {
        let mut items = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let mut page = self.request(method, params, &CancellationToken::new()).await?;
            if let Some(Value::Array(more)) = page.get_mut(key).map(Value::take) {
                items.extend(more);
            }
            if items.len() >= most {
                items.truncate(most);
                return Ok(items);
            }
            cursor = page.get("nextCursor").filter(|c| c.as_str().is_some_and(|text| !text.is_empty())).cloned();
            if cursor.is_none() {
                return Ok(items);
            }
        }
        Ok(items)
    }

    /// Its tools.
    pub(crate) async fn tools(&self) -> Result<Vec<Map<String, Value>>, LinkError> {
        if let Some(line) = &self.line {
            let tools = line.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
            let tools = tools.into_iter().take(self.max_tools);
            return Ok(tools
                .filter_map(|tool| if let Value::Object(tool) = tool { Some(tool) } else { None })
                .collect());
        }
        if !self.can("tools") {
            return Ok(Vec::new());
        }
        let tools = self.list("tools/list", "tools", self.max_tools).await?;
        Ok(tools
            .into_iter()
            .filter_map(|tool| if let Value::Object(tool) = tool { Some(tool) } else { None })
            .collect())
    }

    /// Everything it offers. Only the tools must come; a server that cannot list the rest has none.
    pub(crate) async fn look(&self) -> Result<Seen, LinkError> {
        let tools = self.tools().await?;
        let mut seen = Seen { tools, server: self.server.clone(), ..Seen::default() };
        self.revision.as_str().clone_into(&mut seen.protocol);
        if let Some(line) = &self.line {
            let hooks = line.get("hooks").cloned().unwrap_or_default();
            seen.hooks = serde_json::from_value::<Vec<HookInterest>>(hooks).unwrap_or_default();
            seen.health = line.get("health").cloned().unwrap_or_default();
            "line".clone_into(&mut seen.protocol);
            return Ok(seen);
        }
        seen.prompts = self.prompts().await;
        (seen.resources, seen.templates) = self.resources().await;
        Ok(seen)
    }

    pub(crate) async fn prompts(&self) -> Vec<Value> {
        if !self.can("prompts") {
            return Vec::new();
        }
        self.list("prompts/list", "prompts", MAX_LISTED).await.unwrap_or_default()
    }

    pub(crate) async fn resources(&self) -> (Vec<Value>, Vec<Value>) {
        if !self.can("resources") {
            return (Vec::new(), Vec::new());
        }
        let resources = self.list("resources/list", "resources", MAX_LISTED).await.unwrap_or_default();
        let templates =
            self.list("resources/templates/list", "resourceTemplates", MAX_LISTED).await.unwrap_or_default();
        (resources, templates)
    }
}

fn client_info() -> Value {
    json!({"name": "toolyard", "title": "Toolyard", "version": env!("CARGO_PKG_VERSION")})
}

/// Whether a server that refused a revision says that it speaks the one we asked for, or ours among others.
fn names_ours(error: &RpcError) -> bool {
    let supported = error.data.as_ref().and_then(|data| data.get("supported")).and_then(Value::as_array);
    let ours = Revision::V20260728.as_str();
    error.code == UNSUPPORTED_REVISION && supported.is_some_and(|list| list.iter().any(|v| v == ours))
}

/// Whether an answer to `initialize` comes from a server that knows no handshake.
fn is_without_handshake(error: &RpcError) -> bool {
    matches!(error.code, METHOD_NOT_FOUND | INVALID_PARAMS | INVALID_REQUEST | HEADER_MISMATCH | UNSUPPORTED_REVISION)
}
