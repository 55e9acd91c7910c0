//! The method table of the MCP server. Responses are JSON texts, because long lists are written once and sent often.

use super::{
    Change, Exchange, Inner, Requester, ResourceSource, VaultNotes,
    call::{ClientRequest, InputAnswers, RequestOutcome},
    notice, session,
};
use crate::{
    Revision, RpcError,
    jsonrpc::{self, RESOURCE_NOT_FOUND},
    wire::{
        self, Item, Payload,
        answers::{
            Acknowledged, AfterTools, Answer, CacheScope, ChangeNotification, Completed, Completion, Discovered,
            Initialized, MissingResource, PromptList, ResourceList, ResultMeta, ResultType, ServerCapabilities,
            SuggestionDetails, TemplateList,
        },
        requests::{Complete, Listen, ListenFilter, Listing, NamedCall, ReadResource, Reference, SetLevel, Subscribe},
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use toolyard_engine::{Caller, authority};
use toolyard_protocol::Failure;

/// How long a client that does not listen for changes may cache a list, in milliseconds.
const LIST_TTL_MS: u64 = 60_000;
/// Resources of several sources are combined on one page up to this number.
const RESOURCES_PAGE: usize = 1000;
/// An empty result.
const NOTHING: &str = "{}";
/// The tool that reads a note. A caller that may not see this tool is not notified of changed notes either.
const READ_NOTE: &str = "vault.readFile";

/// Whether a client may cache an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CachePolicy {
    Never,
    /// For this many milliseconds, privately.
    For(u64),
}

impl Inner {
    /// Answers a request with the text of its result.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        exchange: &Exchange,
        method: &str,
        params: Payload,
    ) -> Result<String, RpcError> {
        let demand = super::authority::demand(method).ok_or_else(|| RpcError::method(method))?;
        authority::decide(&exchange.caller, demand).map_err(Failure::from)?;
        let handshake = exchange.revision.has_handshake();
        match method {
            "server/discover" if !handshake => self.discover(exchange).await,
            "ping" if handshake => Ok(NOTHING.to_owned()),
            "logging/setLevel" if handshake => set_level(exchange, wire::read(method, params)?),
            "tools/list" => self.tools_list(exchange, wire::read(method, params)?).await,
            "tools/call" => self.tools_call(exchange, wire::read(method, params)?).await,
            "resources/list" => self.resources_list(exchange, wire::read(method, params)?).await,
            "resources/templates/list" => self.templates_list(exchange).await,
            "resources/read" => self.resources_read(exchange, wire::read(method, params)?).await,
            "resources/subscribe" if handshake => self.subscribe(exchange, &wire::read(method, params)?),
            "resources/unsubscribe" if handshake => unsubscribe(exchange, &wire::read(method, params)?),
            "prompts/list" => self.prompts_list(exchange).await,
            "prompts/get" => self.prompts_get(exchange, wire::read(method, params)?).await,
            "completion/complete" => self.complete(exchange, &wire::read(method, params)?).await,
            "subscriptions/listen" if !handshake => self.listen(exchange, wire::read(method, params)?).await,
            _ => Err(RpcError::method(method)),
        }
    }

    /// What `initialize` answers.
    pub(crate) async fn initialize(&self, exchange: &Exchange) -> Result<String, RpcError> {
        wire::text(&Initialized {
            protocol_version: exchange.revision.as_str(),
            capabilities: ServerCapabilities::new(true),
            server_info: &self.info,
            instructions: self.instructions(exchange).await,
        })
    }

    async fn discover(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let result = Discovered {
            supported_versions: Revision::names(),
            capabilities: ServerCapabilities::new(false),
            instructions: self.instructions(exchange).await,
        };
        self.written(exchange, result, CachePolicy::For(LIST_TTL_MS))
    }

    async fn instructions(&self, exchange: &Exchange) -> Option<String> {
        let list = self.tool_list(&exchange.caller).await;
        list.inspect_err(|failure| tracing::warn!(%failure, "a client begins without instructions"))
            .ok()?
            .instructions
            .clone()
    }

    /// A result with what its revision adds to every result.
    fn written(&self, exchange: &Exchange, result: impl Serialize, keep: CachePolicy) -> Result<String, RpcError> {
        self.written_with(exchange, result, ResultType::Complete, ResultMeta::default(), keep)
    }

    fn written_with(
        &self,
        exchange: &Exchange,
        result: impl Serialize,
        result_type: ResultType,
        meta: ResultMeta,
        keep: CachePolicy,
    ) -> Result<String, RpcError> {
        if exchange.revision.has_handshake() {
            return wire::text(&Answer { result, result_type: None, ttl_ms: None, cache_scope: None, meta });
        }
        let (ttl_ms, cache_scope) = match keep {
            CachePolicy::Never => (None, None),
            CachePolicy::For(ttl) => (Some(ttl), Some(CacheScope::Private)),
        };
        let meta = meta.with_server(self.info.clone());
        wire::text(&Answer { result, result_type: Some(result_type), ttl_ms, cache_scope, meta })
    }

    async fn tools_list(&self, exchange: &Exchange, listing: Listing) -> Result<String, RpcError> {
        let page = match decoded(listing)? {
            None => 0,
            Some(text) => text.parse::<usize>().map_err(|_| bad_cursor())?,
        };
        let list = self.tool_list(&exchange.caller).await?;
        let tools = list.pages.get(page).ok_or_else(bad_cursor)?;
        let next_cursor = (page + 1 < list.pages.len()).then(|| encoded(&(page + 1).to_string()));
        let rest = self.written(exchange, AfterTools { next_cursor }, CachePolicy::For(LIST_TTL_MS))?;
        // `{"tools":[…]`, followed by the members of `rest` without the opening brace.
        let mut text = String::with_capacity(tools.len() + rest.len() + 16);
        text.push_str("{\"tools\":");
        text.push_str(tools);
        if rest.len() > 2 {
            text.push(',');
        }
        text.push_str(&rest[1..]);
        Ok(text)
    }

    async fn tools_call(self: &Arc<Self>, exchange: &Exchange, call: NamedCall) -> Result<String, RpcError> {
        let NamedCall { name, arguments, input_responses, request_state } = call;
        let client_call = exchange.origin.id.clone();
        let work = ClientRequest::Tool { name, arguments: arguments.unwrap_or_default(), client_call };
        let ended = self.run(exchange, work, InputAnswers::new(exchange, input_responses, request_state)).await?;
        self.ended(exchange, ended, CachePolicy::Never)
    }

    fn ended(&self, exchange: &Exchange, ended: RequestOutcome, keep: CachePolicy) -> Result<String, RpcError> {
        match ended {
            RequestOutcome::Result(mut result) => {
                let meta = result.take_meta();
                self.written_with(exchange, result, ResultType::Complete, meta, keep)
            }
            RequestOutcome::NeedsInput(questions) => {
                let meta = ResultMeta::default();
                self.written_with(exchange, questions, ResultType::InputRequired, meta, CachePolicy::Never)
            }
        }
    }

    fn requester(&self, exchange: &Exchange) -> Requester {
        Requester { engine: self.engine.clone(), caller: exchange.caller.clone(), run_id: None }
    }

    async fn resources_list(&self, exchange: &Exchange, listing: Listing) -> Result<String, RpcError> {
        let requester = self.requester(exchange);
        let (from, mut inner) = match decoded(listing)? {
            None => (None, None),
            Some(text) => {
                let (source, rest) = text.split_once('\t').ok_or_else(bad_cursor)?;
                // Nothing after the name: from the source's beginning.
                (Some(source.to_owned()), Some(rest.to_owned()).filter(|rest| !rest.is_empty()))
            }
        };
        let first = match &from {
            None => 0,
            Some(name) => self.resources.iter().position(|s| s.name() == name).ok_or_else(bad_cursor)?,
        };
        let mut items = Vec::new();
        let mut next = None;
        for (index, source) in self.resources.iter().enumerate().skip(first) {
            let is_asked_for = inner.is_some();
            let page = match source.list(&requester, inner.take().as_deref()).await {
                Ok(page) => page,
                Err(error) if is_asked_for => return Err(error),
                Err(error) => {
                    // A source that does not answer does not affect the others.
                    tracing::warn!(source = source.name(), error = error.message, "resources could not be listed");
                    continue;
                }
            };
            items.extend(page.items);
            if let Some(rest) = page.next {
                next = Some(format!("{}\t{rest}", source.name()));
                break;
            }
            if items.len() >= RESOURCES_PAGE
                && let Some(following) = self.resources.get(index + 1)
            {
                next = Some(format!("{}\t", following.name()));
                break;
            }
        }
        let result = ResourceList { resources: items, next_cursor: next.as_deref().map(encoded) };
        self.written(exchange, result, CachePolicy::For(0))
    }

    async fn templates_list(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let requester = self.requester(exchange);
        let mut resource_templates = Vec::new();
        for source in &self.resources {
            match source.templates(&requester).await {
                Ok(some) => resource_templates.extend(some),
                Err(error) => tracing::warn!(source = source.name(), error = error.message, "no templates"),
            }
        }
        self.written(exchange, TemplateList { resource_templates }, CachePolicy::For(LIST_TTL_MS))
    }

    async fn resources_read(self: &Arc<Self>, exchange: &Exchange, read: ReadResource) -> Result<String, RpcError> {
        let ReadResource { uri, input_responses, request_state } = read;
        let sources = self.resources.iter().filter(|s| s.owns(&uri)).cloned().collect();
        let not_found = {
            let shown: String = uri.chars().take(256).collect();
            let code = if exchange.revision.has_handshake() { RESOURCE_NOT_FOUND } else { jsonrpc::INVALID_PARAMS };
            RpcError::new(code, "Resource not found").with(&MissingResource { uri: &shown })
        };
        let work = ClientRequest::Resource { uri, sources, not_found };
        let ended = self.run(exchange, work, InputAnswers::new(exchange, input_responses, request_state)).await?;
        self.ended(exchange, ended, CachePolicy::For(0))
    }

    fn subscribe(self: &Arc<Self>, exchange: &Exchange, wanted: &Subscribe) -> Result<String, RpcError> {
        let session = exchange.session.as_ref().ok_or_else(|| RpcError::method("resources/subscribe"))?;
        if !self.may_watch(&exchange.caller, &wanted.uri) {
            return Err(RpcError::new(RESOURCE_NOT_FOUND, "Resource not found"));
        }
        session.subscribe(&wanted.uri)?;
        self.watch_notes();
        Ok(NOTHING.to_owned())
    }

    /// Whether a caller may hear that a resource has changed: a workspace without the vault hears nothing of its notes.
    fn may_watch(&self, caller: &Caller, uri: &str) -> bool {
        let tools = self.engine.tools();
        let reads = tools.snapshot.get(READ_NOTE).filter(|_| VaultNotes.owns(uri));
        caller.workspace.is_default() || reads.is_none_or(|tool| self.engine.policy_for(caller).knows(tool))
    }

    async fn prompts_list(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let requester = self.requester(exchange);
        let mut prompts = Vec::new();
        for source in &self.prompts {
            match source.list(&requester).await {
                Ok(some) => prompts.extend(some),
                Err(error) => {
                    tracing::warn!(source = source.name(), error = error.message, "prompts could not be listed");
                }
            }
        }
        self.written(exchange, PromptList { prompts }, CachePolicy::For(0))
    }

    async fn prompts_get(self: &Arc<Self>, exchange: &Exchange, call: NamedCall) -> Result<String, RpcError> {
        let NamedCall { name, arguments, input_responses, request_state } = call;
        let sources = self.prompts.clone();
        let work = ClientRequest::Prompt { name, arguments: arguments.unwrap_or_default(), sources };
        let ended = self.run(exchange, work, InputAnswers::new(exchange, input_responses, request_state)).await?;
        self.ended(exchange, ended, CachePolicy::Never)
    }

    async fn complete(&self, exchange: &Exchange, wanted: &Complete) -> Result<String, RpcError> {
        let requester = self.requester(exchange);
        let mut found = None;
        match wanted.reference {
            Reference::Prompt { .. } => {
                for source in &self.prompts {
                    found = source.complete(&requester, wanted).await?;
                    if found.is_some() {
                        break;
                    }
                }
            }
            Reference::Resource { .. } => {
                for source in &self.resources {
                    found = source.complete(&requester, wanted).await?;
                    if found.is_some() {
                        break;
                    }
                }
            }
        }
        let completion = found.unwrap_or_else(|| Item::Own(Completion::default()));
        self.written(exchange, Completed { completion }, CachePolicy::Never)
    }

    /// Sends notifications of changes until the client cancels the request; then answers it.
    async fn listen(self: &Arc<Self>, exchange: &Exchange, wanted: Listen) -> Result<String, RpcError> {
        let mut filter = wanted.notifications;
        filter.resource_subscriptions.truncate(RESOURCES_PAGE);
        let mut changes = self.changes.subscribe();
        if !filter.resource_subscriptions.is_empty() {
            self.watch_notes();
        }
        let meta = ResultMeta::of_subscription(exchange.id.clone());
        let acknowledged = Acknowledged { meta: &meta, notifications: &filter };
        let text = jsonrpc::notification("notifications/subscriptions/acknowledged", Some(&acknowledged));
        exchange.outlet.send(text).await;
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = exchange.cancel.cancelled() => break,
            };
            let changes = match change {
                Ok(change) => Vec::from([change]),
                // The missed changes are unknown, so all lists may have changed.
                Err(RecvError::Lagged(_)) => Vec::from([Change::Tools, Change::Prompts, Change::Resources]),
                Err(RecvError::Closed) => break,
            };
            for change in changes.iter().filter(|change| filter.wants(change)) {
                let uri = if let Change::Resource(uri) = change { Some(uri.as_str()) } else { None };
                let text = jsonrpc::notification(notice(change), Some(&ChangeNotification { meta: Some(&meta), uri }));
                if !exchange.outlet.send(text).await {
                    break;
                }
            }
        }
        let nothing = wire::Empty {};
        self.written_with(exchange, nothing, ResultType::Complete, meta, CachePolicy::Never)
    }
}

impl ListenFilter {
    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools_list_changed,
            Change::Prompts => self.prompts_list_changed,
            Change::Resources => self.resources_list_changed,
            Change::Resource(uri) => self.resource_subscriptions.contains(uri),
        }
    }
}

fn unsubscribe(exchange: &Exchange, wanted: &Subscribe) -> Result<String, RpcError> {
    let session = exchange.session.as_ref().ok_or_else(|| RpcError::method("resources/unsubscribe"))?;
    session.unsubscribe(&wanted.uri);
    Ok(NOTHING.to_owned())
}

fn set_level(exchange: &Exchange, wanted: SetLevel) -> Result<String, RpcError> {
    let level = session::level(&wanted.level);
    let level = level.ok_or_else(|| RpcError::params("level must be one of debug, info, … emergency"))?;
    if let Some(session) = &exchange.session {
        session.set_log_level(level);
    }
    Ok(NOTHING.to_owned())
}

/// The content of our cursor; `None` for the first page.
fn decoded(listing: Listing) -> Result<Option<String>, RpcError> {
    let Some(cursor) = listing.cursor else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad_cursor())?;
    String::from_utf8(bytes).map(Some).map_err(|_| bad_cursor())
}

fn encoded(cursor: &str) -> String {
    URL_SAFE_NO_PAD.encode(cursor)
}

fn bad_cursor() -> RpcError {
    let suggestion = "List again without a cursor.";
    RpcError::params("the cursor is not one of ours").with(&SuggestionDetails { suggestion })
}
