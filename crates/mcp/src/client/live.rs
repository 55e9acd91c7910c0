//! [`LiveServer`]: a connected upstream server. Opens a connection, agrees on a revision, and sends requests.

use super::{
    child::{ChildLink, ChildSpec, Launcher, StderrTail},
    config::{RevisionChoice, ServerConfig, Transport},
    http::{Address, HttpClient, HttpLink, LISTEN_WITHIN, Target},
    mux::{Inbox, LinkError, Mux, ServerUnavailable},
    oauth::Authorizer,
    old_sse,
    pins::ServerCatalog,
    terms::Dialect,
};
use crate::{
    Revision, RpcError,
    asks::ClientRoutes,
    jsonrpc::{HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_REVISION},
    wire::{
        self, Empty, Implementation, Payload,
        answers::Content,
        requests::{Listen, ListenFilter},
        upstream::{
            Discovered, Initialize, Initialized, InputRequest, InputRequired, LineCall, LineResult, LineStarted, List,
            ListPage, Listing, ModernMeta, OfferedCapabilities, Question, RequestMeta, RequestParams, ResultKind,
            RevisionsSpoken,
        },
    },
};
use http::StatusCode;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::Clock;
use toolyard_protocol::RunId;

/// Maximum number of pages of one list. A server that sends more is treated as faulty.
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

/// A connected server.
pub(crate) struct LiveServer {
    link: Link,
    revision: Revision,
    /// The server's capabilities.
    capabilities: Payload,
    pub(crate) server: Value,
    /// A plugin's answer to `start`, if it uses the line protocol.
    line: Option<LineStarted>,
    max_tools: usize,
}

/// The parameters of a connection.
pub(crate) struct ConnectContext<'a> {
    pub(crate) name: &'a str,
    pub(crate) config: &'a ServerConfig,
    pub(crate) launcher: &'a dyn Launcher,
    pub(crate) client: Option<HttpClient>,
    pub(crate) auth: Option<Arc<Authorizer>>,
    pub(crate) inbox: Arc<dyn Inbox>,
    pub(crate) dialect: &'a Dialect,
    /// Counts children.
    pub(crate) children: Arc<()>,
    /// Takes what a child writes to its standard error.
    pub(crate) errors: Arc<StderrTail>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A call's route to its client, for requests of the server.
pub(crate) struct CallRoute<'a> {
    pub(crate) asks: &'a ClientRoutes,
    pub(crate) run_id: Option<RunId>,
    pub(crate) cancel: &'a CancellationToken,
}

impl LiveServer {
    /// Connects and agrees on a revision.
    pub(crate) async fn open(opening: ConnectContext<'_>) -> Result<Self, ServerUnavailable> {
        let config = opening.config;
        if let Some(command) = &config.command {
            let spec = ChildSpec {
                name: opening.name.to_owned(),
                program: command.clone(),
                args: config.args.clone(),
                cwd: config.cwd.clone(),
                env: config.environment()?,
            };
            let child = ChildLink::start(
                &spec,
                opening.launcher,
                config.max_message_bytes,
                opening.inbox,
                opening.children,
                opening.errors,
            )?;
            if let Dialect::Line { start } = opening.dialect {
                return Self::begin(child, start, config).await.map_err(LinkError::into_unavailable);
            }
            return Self::agree(Link::Child(child), config).await.map_err(|(_, error)| error.into_unavailable());
        }
        let client = opening.client.ok_or_else(|| "there is no HTTP client".to_owned())?;
        let target = || Target::new(config, client.clone(), opening.auth.clone(), opening.clock.clone());
        if config.transport != Transport::Sse {
            let link = Link::Http(HttpLink::new(target()?, opening.inbox.clone()));
            match Self::agree(link, config).await {
                Ok(live) => return Ok(live),
                Err((_, LinkError::Unavailable(unavailable)))
                    if config.transport == Transport::Auto && is_other_transport(&unavailable) => {}
                Err((_, error)) => return Err(error.into_unavailable()),
            }
        }
        let mux = old_sse::open(target()?, opening.inbox).await.map_err(LinkError::into_unavailable)?;
        Self::agree(Link::Sse(mux), config).await.map_err(|(_, error)| error.into_unavailable())
    }

    /// Starts a plugin that speaks the line protocol.
    async fn begin(child: ChildLink, start: &Payload, config: &ServerConfig) -> Result<Self, LinkError> {
        let params = Value::Object(start.clone());
        let answer = child.mux.request("start", &params, &CancellationToken::new()).await?;
        let line: LineStarted = parse_answer("start", answer)?;
        Ok(Self {
            link: Link::Child(child),
            revision: Revision::V20251125,
            capabilities: Payload::new(),
            server: line.plugin.clone(),
            line: Some(line),
            max_tools: config.max_tools,
        })
    }

    async fn agree(link: Link, config: &ServerConfig) -> Result<Self, (Link, LinkError)> {
        let mut live = Self {
            link,
            revision: Revision::V20251125,
            capabilities: Payload::new(),
            server: Value::Null,
            line: None,
            max_tools: config.max_tools,
        };
        let first = match config.protocol {
            RevisionChoice::V20260728 => None,
            RevisionChoice::V20250618 => Some(Revision::V20250618),
            RevisionChoice::Auto | RevisionChoice::V20251125 => Some(Revision::V20251125),
        };
        let outcome = match first {
            None => match live.discover().await {
                // The client repeats the request with a revision that the server named.
                Err(LinkError::Rpc(error)) if names_ours(&error) => live.discover().await,
                other => other,
            },
            Some(revision) => match live.handshake(revision).await {
                Err(LinkError::Rpc(error))
                    if config.protocol == RevisionChoice::Auto && is_without_handshake(&error) =>
                {
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
        let hello = Initialize {
            protocol_version: revision.as_str(),
            capabilities: OfferedCapabilities::default(),
            client_info: client_info(),
        };
        let params = wire::value(&hello).map_err(LinkError::Rpc)?;
        let result = self.send("initialize", &params, Address::default(), &CancellationToken::new()).await?;
        let Initialized { protocol_version, capabilities, server_info } = parse_answer("initialize", result)?;
        let version = protocol_version.as_str();
        // Older revisions are compatible as far as they are used here.
        let is_old = version < Revision::V20250618.as_str() && version.starts_with("202");
        self.revision = match Revision::parse(version).filter(|r| r.has_handshake()) {
            Some(revision) => revision,
            None if is_old => Revision::V20250618,
            None => {
                return Err(LinkError::unavailable(format!("the server speaks {version:?}, which is not spoken here")));
            }
        };
        self.server = server_info.unwrap_or_default();
        self.capabilities = capabilities.unwrap_or_default();
        if let Link::Http(link) = &self.link {
            link.agree(self.revision);
        }
        self.notify("notifications/initialized", &Empty {}).await?;
        if let Link::Http(link) = &self.link {
            tokio::spawn(link.clone().listen(None));
            if tokio::time::timeout(LISTEN_WITHIN, link.listening.cancelled()).await.is_err() {
                tracing::debug!("an upstream server has not answered that it is listened to");
            }
        }
        Ok(())
    }

    async fn discover(&mut self) -> Result<(), LinkError> {
        self.revision = Revision::V20260728;
        if let Link::Http(link) = &self.link {
            link.agree(self.revision);
        }
        let result = self.request("server/discover", &Empty {}, &CancellationToken::new()).await?;
        let found: Discovered = parse_answer("server/discover", result)?;
        if !found.supported_versions.iter().any(|version| version == self.revision.as_str()) {
            return Err(LinkError::unavailable(format!("the server speaks {}", found.supported_versions.join(", "))));
        }
        self.capabilities = found.capabilities.unwrap_or_default();
        self.server = found.meta.and_then(|meta| meta.server).or(found.server_info).unwrap_or_default();
        let wanted = Listen {
            notifications: ListenFilter {
                tools_list_changed: true,
                prompts_list_changed: true,
                resources_list_changed: true,
                resource_subscriptions: Vec::new(),
            },
        };
        let params = self.params(&wanted)?;
        match &self.link {
            Link::Http(link) => {
                tokio::spawn(link.clone().listen(Some(params)));
            }
            Link::Child(child) => {
                let mux = child.mux.clone();
                tokio::spawn(async move {
                    let forever = CancellationToken::new();
                    if let Err(error) = mux.request("subscriptions/listen", &params, &forever).await {
                        tracing::debug!(?error, "an upstream server does not tell of changes");
                    }
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

    /// What a child wrote to its standard error last.
    pub(crate) fn last_errors(&self) -> Option<String> {
        match &self.link {
            Link::Child(child) => child.last_errors(),
            _ => None,
        }
    }

    /// The process id of the child, if there is one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.link {
            Link::Child(child) => Some(child.pid),
            _ => None,
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether the server has a capability.
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
        address: Address<'_>,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        match &self.link {
            Link::Child(child) => child.mux.request(method, params, cancel).await,
            Link::Http(link) => link.request(method, params, address, cancel).await,
            Link::Sse(mux) => mux.request(method, params, cancel).await,
        }
    }

    async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), LinkError> {
        match &self.link {
            Link::Child(child) => child.mux.notify(method, params).await,
            Link::Http(link) => link.notify(method, params).await,
            Link::Sse(mux) => mux.notify(method, params).await,
        }
    }

    /// What the revision wants in `_meta` of every request.
    fn modern<'a>(&self, capabilities: &'a Payload) -> Option<ModernMeta<'a>> {
        let meta = || ModernMeta { version: self.revision.as_str(), client: client_info(), capabilities };
        (!self.revision.has_handshake()).then(meta)
    }

    /// Parameters with the revision's `_meta`, without a route to a client.
    fn params(&self, params: &impl Serialize) -> Result<Value, LinkError> {
        let nothing = Payload::new();
        let meta = RequestMeta { progress_token: None, modern: self.modern(&nothing) };
        wire::value(&RequestParams { params, input_responses: None, request_state: None, meta }).map_err(LinkError::Rpc)
    }

    /// A request that raises no questions.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &impl Serialize,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        let params = self.params(params)?;
        self.send(method, &params, Address::default(), cancel).await
    }

    /// A request that may raise questions, which go to the client of a run.
    pub(crate) async fn converse(
        &self,
        question: &Question<'_>,
        progress_token: Option<u64>,
        mirrored: &[(String, String)],
        asker: CallRoute<'_>,
    ) -> Result<Value, LinkError> {
        let CallRoute { asks, run_id, cancel } = asker;
        if self.line.is_some() {
            return self.line_call(question, progress_token, cancel).await;
        }
        let method = question.method();
        let address = Address { subject: question.subject(), mirrored };
        let can = run_id.map(|run_id| asks.capabilities(run_id)).unwrap_or_default();
        let (mut input_responses, mut request_state) = (None, None);
        for _ in 0..MAX_ROUNDS {
            let meta = RequestMeta { progress_token, modern: self.modern(&can.0) };
            let sent = RequestParams {
                params: question,
                input_responses: input_responses.take(),
                request_state: request_state.take(),
                meta,
            };
            let params = wire::value(&sent).map_err(LinkError::Rpc)?;
            let result = self.send(method, &params, address, cancel).await?;
            if self.revision.has_handshake() || !ResultKind::wants_input(&result) {
                return Ok(result);
            }
            let wanted: InputRequired = parse_answer(method, result)?;
            request_state = wanted.request_state;
            if let Some(requests) = wanted.input_requests {
                let run_id = run_id
                    .ok_or_else(|| LinkError::unavailable("nobody can answer the server's question".to_owned()))?;
                input_responses = Some(answers(asks, run_id, requests).await.map_err(LinkError::Rpc)?);
            }
        }
        Err(LinkError::unavailable(format!("the server asked for more input {MAX_ROUNDS} times")))
    }

    /// A call in the line protocol.
    async fn line_call(
        &self,
        question: &Question<'_>,
        progress_token: Option<u64>,
        cancel: &CancellationToken,
    ) -> Result<Value, LinkError> {
        let Question::Tool { name: tool, arguments: args } = question else {
            return Err(LinkError::Rpc(RpcError::method(question.method())));
        };
        let call = wire::value(&LineCall { tool, args, progress_token }).map_err(LinkError::Rpc)?;
        let answer = self.send("call", &call, Address::default(), cancel).await?;
        if answer.get("content").is_some_and(Value::is_array) {
            return Ok(answer);
        }
        // A plugin need not know what content is.
        let (content, details) = match answer {
            Value::String(text) => (Content::text(text), None),
            Value::Null => (Content::Forwarded(Value::Array(Vec::new())), None),
            other => {
                let text = format!("{other:#}");
                (Content::text(text), Some(if other.is_object() { other } else { Value::Object(Payload::new()) }))
            }
        };
        wire::value(&LineResult { content, details }).map_err(LinkError::Rpc)
    }

    /// Everything on a list, over all its pages.
    async fn list(&self, list: List, most: usize) -> Result<Vec<Value>, LinkError> {
        let mut items = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let listing = Listing { cursor: cursor.take() };
            let page = self.request(list.method(), &listing, &CancellationToken::new()).await?;
            let mut page: ListPage = parse_answer(list.method(), page)?;
            items.extend(page.take(list));
            if items.len() >= most {
                items.truncate(most);
                return Ok(items);
            }
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() {
                return Ok(items);
            }
        }
        Ok(items)
    }

    /// The entries of a list that need not be there. A server that cannot list them has none.
    async fn entries<T: DeserializeOwned>(&self, list: List) -> Vec<T> {
        let items = self.list(list, MAX_LISTED).await.unwrap_or_else(|error| {
            let why = RpcError::from(error).message;
            tracing::warn!(why, "{} of an upstream server was not answered", list.method());
            Vec::new()
        });
        let entry = |item| {
            let read = serde_json::from_value(item);
            read.inspect_err(|error| tracing::info!(%error, "an entry of {} is left out", list.method())).ok()
        };
        items.into_iter().filter_map(entry).collect()
    }

    /// The server's tools.
    pub(crate) async fn tools(&self) -> Result<Vec<Payload>, LinkError> {
        let tools = match &self.line {
            Some(line) => line.tools.iter().flatten().take(self.max_tools).cloned().collect(),
            None if self.can("tools") => self.list(List::Tools, self.max_tools).await?,
            None => Vec::new(),
        };
        let object = |tool| if let Value::Object(tool) = tool { Some(tool) } else { None };
        Ok(tools.into_iter().filter_map(object).collect())
    }

    /// Everything it offers. Only the tools must come; a server that cannot list the rest has none.
    pub(crate) async fn look(&self) -> Result<ServerCatalog, LinkError> {
        let tools = self.tools().await?;
        let mut seen = ServerCatalog { tools, server: self.server.clone(), ..ServerCatalog::default() };
        self.revision.as_str().clone_into(&mut seen.protocol);
        if let Some(line) = &self.line {
            seen.hooks = line.hooks.clone().unwrap_or_default();
            seen.health = line.health.clone();
            "line".clone_into(&mut seen.protocol);
            return Ok(seen);
        }
        if self.can("prompts") {
            seen.prompts = self.entries(List::Prompts).await;
        }
        if self.can("resources") {
            seen.resources = self.entries(List::Resources).await;
            seen.templates = self.entries(List::Templates).await;
        }
        Ok(seen)
    }
}

/// What the client of a run answers to a server's questions.
async fn answers(
    asks: &ClientRoutes,
    run_id: RunId,
    requests: BTreeMap<String, InputRequest>,
) -> Result<BTreeMap<String, Value>, RpcError> {
    let keys: Vec<String> = requests.keys().cloned().collect();
    let questions = requests.into_iter().map(|(key, request)| (Some(key), request.method, request.params));
    let answers = asks.ask_all(run_id, questions.collect()).await?;
    keys.into_iter().zip(answers).map(|(key, answer)| Ok((key, answer?))).collect()
}

/// Reads an answer of a server.
fn parse_answer<T: DeserializeOwned>(method: &str, answer: Value) -> Result<T, LinkError> {
    serde_json::from_value(answer)
        .map_err(|e| LinkError::unavailable(format!("the answer to {method} cannot be read: {e}")))
}

/// Who we are.
fn client_info() -> &'static Implementation {
    static INFO: LazyLock<Implementation> = LazyLock::new(|| Implementation {
        name: "toolyard".to_owned(),
        title: "Toolyard".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    &INFO
}

/// Whether a server that refused a revision names it, or names ours among others.
fn names_ours(error: &RpcError) -> bool {
    let spoken = error.data.as_ref().and_then(|data| RevisionsSpoken::deserialize(data).ok());
    let ours = Revision::V20260728.as_str();
    error.code == UNSUPPORTED_REVISION && spoken.is_some_and(|spoken| spoken.supported.iter().any(|v| v == ours))
}

/// Whether an answer to `initialize` comes from a server that knows no handshake.
fn is_without_handshake(error: &RpcError) -> bool {
    matches!(error.code, METHOD_NOT_FOUND | INVALID_PARAMS | INVALID_REQUEST | HEADER_MISMATCH | UNSUPPORTED_REVISION)
}

/// Whether a server of the older transport answers so where it is asked in the newer one's way.
fn is_other_transport(unavailable: &ServerUnavailable) -> bool {
    matches!(unavailable.status, Some(StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED))
}
