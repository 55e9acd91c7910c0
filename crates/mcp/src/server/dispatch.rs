//! The method table of the MCP server. Answers are JSON texts, because long lists are written once and sent often.

use super::{
    Asker, Change, Exchange, Inner,
    call::{Ended, InputAnswers},
    notice, session,
    tools::with_meta,
};
use crate::{
    Revision, RpcError,
    jsonrpc::{self, RESOURCE_NOT_FOUND},
    revision::{META_SERVER, META_SUBSCRIPTION},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use toolyard_engine::authority;
use toolyard_protocol::Failure;

/// How long a list may be kept before it is asked for again, for clients that do not listen for changes.
const LIST_TTL_MS: u64 = 60_000;
/// Sources' resources on one page are gathered until there are this many.
const RESOURCES_PAGE: usize = 1000;

/// Whether an answer may be kept by whoever asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Never,
    /// For this many milliseconds, by nobody else.
    For(u64),
}

impl Inner {
    /// Answers a request with the text of its result.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        exchange: &Exchange,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<String, RpcError> {
        let demand = super::authority::demand(method).ok_or_else(|| RpcError::method(method))?;
        authority::decide(&exchange.caller, demand).map_err(Failure::from)?;
        let handshake = exchange.revision.has_handshake();
        match method {
            "server/discover" if !handshake => self.discover(exchange).await,
            "ping" if handshake => Ok("{}".to_owned()),
            "logging/setLevel" if handshake => set_level(exchange, &params),
            "tools/list" => self.tools_list(exchange, &params).await,
            "tools/call" => self.tools_call(exchange, params).await,
            "resources/list" => self.resources_list(exchange, &params).await,
            "resources/templates/list" => self.templates_list(exchange).await,
            "resources/read" => self.resources_read(exchange, params).await,
            "resources/subscribe" if handshake => self.subscribe(exchange, &params, true),
            "resources/unsubscribe" if handshake => self.subscribe(exchange, &params, false),
            "prompts/list" => self.prompts_list(exchange).await,
            "prompts/get" => self.prompts_get(exchange, params).await,
            "completion/complete" => self.complete(exchange, &params).await,
            "subscriptions/listen" if !handshake => self.subscriptions_listen(exchange, &params).await,
            _ => Err(RpcError::method(method)),
        }
    }

    /// What `initialize` answers.
    pub(crate) async fn initialize(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let mut result = Map::new();
        result.insert("protocolVersion".to_owned(), exchange.revision.as_str().into());
        result.insert("capabilities".to_owned(), self.capabilities(true));
        result.insert("serverInfo".to_owned(), self.info.to_value());
        if let Some(text) = self.instructions(exchange).await {
            result.insert("instructions".to_owned(), text.into());
        }
        Ok(Value::Object(result).to_string())
    }

    async fn discover(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let mut result = Map::new();
        result.insert("supportedVersions".to_owned(), json!(Revision::names()));
        result.insert("capabilities".to_owned(), self.capabilities(false));
        if let Some(text) = self.instructions(exchange).await {
            result.insert("instructions".to_owned(), text.into());
        }
        Ok(self.written(exchange, result, Keep::For(LIST_TTL_MS)))
    }

    fn capabilities(&self, handshake: bool) -> Value {
        let mut all = json!({
            "tools": {"listChanged": true}, "resources": {"subscribe": true, "listChanged": true},
            "prompts": {"listChanged": true}, "completions": {}, "logging": {},
        });
        if !handshake && let Some(map) = all.as_object_mut() {
            map.remove("logging"); // by _meta there, and deprecated
        }
        all
    }

    async fn instructions(&self, exchange: &Exchange) -> Option<String> {
        self.tool_list(&exchange.caller).await.ok()?.instructions.clone()
    }

    /// A result with what its revision adds to every result.
    fn written(&self, exchange: &Exchange, mut result: Map<String, Value>, keep: Keep) -> String {
        if !exchange.revision.has_handshake() {
            result.entry("resultType").or_insert_with(|| "complete".into());
            if let Keep::For(ttl) = keep {
                result.insert("ttlMs".to_owned(), ttl.into());
                result.insert("cacheScope".to_owned(), "private".into());
            }
            result = with_meta(result, META_SERVER, self.info.to_value());
        }
        Value::Object(result).to_string()
    }

    async fn tools_list(&self, exchange: &Exchange, params: &Map<String, Value>) -> Result<String, RpcError> {
        let page = match cursor(params)? {
            None => 0,
            Some(text) => text.parse::<usize>().map_err(|_| bad_cursor())?,
        };
        let list = self.tool_list(&exchange.caller).await?;
        let tools = list.pages.get(page).ok_or_else(bad_cursor)?;
        let mut rest = Map::new();
        if page + 1 < list.pages.len() {
            rest.insert("nextCursor".to_owned(), encoded(&(page + 1).to_string()).into());
        }
        let rest = self.written(exchange, rest, Keep::For(LIST_TTL_MS));
        // `{"tools":[…]` and then whatever stands in `rest`, without its opening brace.
        let mut text = String::with_capacity(tools.len() + rest.len() + 16);
        text.push_str("{\"tools\":");
        text.push_str(tools);
        if rest.len() > 2 {
            text.push(',');
        }
        text.push_str(&rest[1..]);
        Ok(text)
    }

    async fn tools_call(self: &Arc<Self>, exchange: &Exchange, params: Map<String, Value>) -> Result<String, RpcError> {
        let mut params = params;
        let Some(Value::String(name)) = params.remove("name") else {
            return Err(RpcError::params("tools/call needs a name"));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(RpcError::params("arguments must be an object")),
        };
        let answers = InputAnswers::read(exchange, &mut params)?;
        let work = super::call::Work::Tool { name, arguments };
        let ended = self.run(exchange, &params, work, answers).await?;
        Ok(self.ended(exchange, ended, Keep::Never))
    }

    fn ended(&self, exchange: &Exchange, ended: Ended, keep: Keep) -> String {
        match ended {
            Ended::Result(result) => self.written(exchange, result, keep),
            Ended::NeedsInput(result) => self.written(exchange, result, Keep::Never),
        }
    }

    fn asker(&self, exchange: &Exchange) -> Asker {
        Asker { engine: self.engine.clone(), caller: exchange.caller.clone(), run_id: None }
    }

    async fn resources_list(&self, exchange: &Exchange, params: &Map<String, Value>) -> Result<String, RpcError> {
        let asker = self.asker(exchange);
        let (from, mut inner) = match cursor(params)? {
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
            let page = match source.list(&asker, inner.take().as_deref()).await {
                Ok(page) => page,
                Err(error) if is_asked_for => return Err(error),
                Err(error) => {
                    // One source that does not answer takes nothing away from the others.
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
        let mut result = Map::new();
        result.insert("resources".to_owned(), Value::Array(items));
        if let Some(next) = next {
            result.insert("nextCursor".to_owned(), encoded(&next).into());
        }
        Ok(self.written(exchange, result, Keep::For(0)))
    }

    async fn templates_list(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let asker = self.asker(exchange);
        let mut templates = Vec::new();
        for source in &self.resources {
            match source.templates(&asker).await {
                Ok(some) => templates.extend(some),
                Err(error) => tracing::warn!(source = source.name(), error = error.message, "no templates"),
            }
        }
        let mut result = Map::new();
        result.insert("resourceTemplates".to_owned(), Value::Array(templates));
        Ok(self.written(exchange, result, Keep::For(LIST_TTL_MS)))
    }

    async fn resources_read(
        self: &Arc<Self>,
        exchange: &Exchange,
        mut params: Map<String, Value>,
    ) -> Result<String, RpcError> {
        let Some(Value::String(uri)) = params.remove("uri") else {
            return Err(RpcError::params("resources/read needs a uri"));
        };
        let answers = InputAnswers::read(exchange, &mut params)?;
        let sources = self.resources.iter().filter(|s| s.owns(&uri)).cloned().collect();
        let not_found = {
            let shown: String = uri.chars().take(256).collect();
            let code = if exchange.revision.has_handshake() { RESOURCE_NOT_FOUND } else { jsonrpc::INVALID_PARAMS };
            RpcError::new(code, "Resource not found").with(json!({"uri": shown}))
        };
        let work = super::call::Work::Resource { uri, sources, not_found };
        let ended = self.run(exchange, &params, work, answers).await?;
        Ok(self.ended(exchange, ended, Keep::For(0)))
    }

    fn subscribe(
        self: &Arc<Self>,
        exchange: &Exchange,
        params: &Map<String, Value>,
        wanted: bool,
    ) -> Result<String, RpcError> {
        let uri = params.get("uri").and_then(Value::as_str).ok_or_else(|| RpcError::params("a uri is needed"))?;
        let session = exchange.session.as_ref().ok_or_else(|| RpcError::method("resources/subscribe"))?;
        if wanted {
            session.subscribe(uri)?;
            self.watch_notes();
        } else {
            session.unsubscribe(uri);
        }
        Ok("{}".to_owned())
    }

    async fn prompts_list(&self, exchange: &Exchange) -> Result<String, RpcError> {
        let asker = self.asker(exchange);
        let mut prompts = Vec::new();
        for source in &self.prompts {
            match source.list(&asker).await {
                Ok(some) => prompts.extend(some),
                Err(error) => {
                    tracing::warn!(source = source.name(), error = error.message, "prompts could not be listed");
                }
            }
        }
        let mut result = Map::new();
        result.insert("prompts".to_owned(), Value::Array(prompts));
        Ok(self.written(exchange, result, Keep::For(0)))
    }

    async fn prompts_get(
        self: &Arc<Self>,
        exchange: &Exchange,
        mut params: Map<String, Value>,
    ) -> Result<String, RpcError> {
        let Some(Value::String(name)) = params.remove("name") else {
            return Err(RpcError::params("prompts/get needs a name"));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(RpcError::params("arguments must be an object")),
        };
        let answers = InputAnswers::read(exchange, &mut params)?;
        let work = super::call::Work::Prompt { name, arguments, sources: self.prompts.clone() };
        let ended = self.run(exchange, &params, work, answers).await?;
        Ok(self.ended(exchange, ended, Keep::Never))
    }

    async fn complete(&self, exchange: &Exchange, params: &Map<String, Value>) -> Result<String, RpcError> {
        let kind = params.get("ref").and_then(|r| r.get("type")).and_then(Value::as_str);
        if params.get("argument").and_then(|a| a.get("name")).and_then(Value::as_str).is_none() {
            return Err(RpcError::params("completion/complete needs an argument with a name"));
        }
        let asker = self.asker(exchange);
        let mut found = None;
        match kind {
            Some("ref/prompt") => {
                for source in &self.prompts {
                    found = source.complete(&asker, params).await?;
                    if found.is_some() {
                        break;
                    }
                }
            }
            Some("ref/resource") => {
                for source in &self.resources {
                    found = source.complete(&asker, params).await?;
                    if found.is_some() {
                        break;
                    }
                }
            }
            _ => return Err(RpcError::params("ref must be a ref/prompt or a ref/resource")),
        }
        let completion = found.unwrap_or_else(|| json!({"values": [], "total": 0, "hasMore": false}));
        let mut result = Map::new();
        result.insert("completion".to_owned(), completion);
        Ok(self.written(exchange, result, Keep::Never))
    }

    /// Tells of changes until the client takes the request back; then answers.
    async fn subscriptions_listen(
        self: &Arc<Self>,
        exchange: &Exchange,
        params: &Map<String, Value>,
    ) -> Result<String, RpcError> {
        let filter = params.get("notifications").and_then(Value::as_object);
        let filter = filter.ok_or_else(|| RpcError::params("subscriptions/listen needs notifications"))?;
        let wants = |key: &str| filter.get(key).and_then(Value::as_bool).unwrap_or_default();
        let lists = [
            (Change::Tools, "toolsListChanged"),
            (Change::Prompts, "promptsListChanged"),
            (Change::Resources, "resourcesListChanged"),
        ];
        let uris: Vec<String> = filter
            .get("resourceSubscriptions")
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).take(RESOURCES_PAGE).map(str::to_owned).collect())
            .unwrap_or_default();
        let mut changes = self.changes.subscribe();
        if !uris.is_empty() {
            self.watch_notes();
        }
        let mut agreed = Map::new();
        for (_, key) in lists.iter().filter(|(_, key)| wants(key)) {
            agreed.insert((*key).to_owned(), true.into());
        }
        if !uris.is_empty() {
            agreed.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        let meta = json!({META_SUBSCRIPTION: exchange.id});
        let acknowledged = json!({"_meta": meta, "notifications": agreed});
        let text = jsonrpc::notification("notifications/subscriptions/acknowledged", acknowledged);
        exchange.outlet.send(text).await;
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = exchange.cancel.cancelled() => break,
            };
            let told = match change {
                Ok(Change::Resource(uri)) if uris.contains(&uri) => {
                    vec![(notice(&Change::Resource(String::new())), json!({"_meta": meta, "uri": uri}))]
                }
                Ok(Change::Resource(_)) => continue,
                Ok(change) => lists
                    .iter()
                    .filter(|(list, key)| *list == change && wants(key))
                    .map(|(list, _)| (notice(list), json!({"_meta": meta})))
                    .collect(),
                Err(RecvError::Lagged(_)) => {
                    let wanted = lists.iter().filter(|(_, key)| wants(key));
                    wanted.map(|(list, _)| (notice(list), json!({"_meta": meta}))).collect()
                }
                Err(RecvError::Closed) => break,
            };
            for (method, params) in told {
                if !exchange.outlet.send(jsonrpc::notification(method, params)).await {
                    break;
                }
            }
        }
        let result = with_meta(Map::new(), META_SUBSCRIPTION, exchange.id.clone());
        Ok(self.written(exchange, result, Keep::Never))
    }
}

fn set_level(exchange: &Exchange, params: &Map<String, Value>) -> Result<String, RpcError> {
    let level = params.get("level").and_then(Value::as_str).and_then(session::level);
    let level = level.ok_or_else(|| RpcError::params("level must be one of debug, info, … emergency"))?;
    if let Some(session) = &exchange.session {
        session.set_log_level(level);
    }
    Ok("{}".to_owned())
}

fn cursor(params: &Map<String, Value>) -> Result<Option<String>, RpcError> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad_cursor())?;
            String::from_utf8(bytes).map(Some).map_err(|_| bad_cursor())
        }
        Some(_) => Err(bad_cursor()),
    }
}

fn encoded(cursor: &str) -> String {
    URL_SAFE_NO_PAD.encode(cursor)
}

fn bad_cursor() -> RpcError {
    RpcError::params("the cursor is not one of ours").with(json!({"suggestion": "List again without a cursor."}))
}
