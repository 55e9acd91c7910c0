//! `tools/list`: the tools as text, written once for callers with the same rights; and a call's result as an MCP
//! result.

use super::{Inner, approve, session::lock};
use crate::{
    RpcError,
    jsonrpc::{INVALID_PARAMS, MISSING_CAPABILITY},
    wire::{
        self, Item, Payload,
        answers::{CallToolResult, Content, ListedTool, ResultMeta, SuggestionDetails, ToolAnnotations},
        upstream::{ToolDetails, UpstreamError},
    },
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_catalog::{
    SourceKind, ToolEntry,
    surface::{ShownTool, Turn},
};
use toolyard_engine::{Caller, Engine};
use toolyard_protocol::{ErrorCode, Failure, Idempotency, RiskLevel, ToolDefinition, ToolResult, Undo};

/// Maximum number of cached tool lists; beyond it, all are dropped.
const MAX_KEPT_LISTS: usize = 64;
/// How long an unused list is cached.
pub(crate) const LIST_KEPT_FOR: Duration = Duration::from_secs(5);
/// Number of tools on one page. Many clients never request a second page, so one page is large enough for real
/// catalogs.
pub(crate) const TOOLS_PAGE: usize = 10_000;
/// A caller's tools, written.
pub(crate) struct ToolList {
    /// JSON texts, each an array, one a page.
    pub(crate) pages: Vec<String>,
    pub(crate) instructions: Option<String>,
}

/// Lists that were written lately, with when each was last asked for.
#[derive(Default)]
pub(crate) struct ToolLists(HashMap<String, (Arc<ToolList>, Instant)>);

impl ToolLists {
    fn get(&mut self, key: &str) -> Option<Arc<ToolList>> {
        let (list, asked) = self.0.get_mut(key)?;
        *asked = Instant::now();
        Some(list.clone())
    }

    /// Drops all lists.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Drops lists that were not used recently: a client requests one when it starts, and a list of thousands takes
    /// megabytes.
    pub(crate) fn forget_unused(&mut self) {
        self.0.retain(|_, (_, asked)| asked.elapsed() < LIST_KEPT_FOR);
        self.0.shrink_to_fit();
    }
}

impl Inner {
    /// The caller's tools. The key holds everything the list depends on.
    pub(crate) async fn tool_list(&self, caller: &Caller) -> Result<Arc<ToolList>, Failure> {
        let snapshot = self.engine.tools().snapshot.clone();
        let policy = self.engine.policy_for(caller);
        let key = format!("{}\n{}\n{}\n{}", snapshot.version(), policy.hash(), caller.agent, caller.scopes.join(","));
        if let Some(list) = lock(&self.lists).get(&key) {
            return Ok(list);
        }
        let surface = self.view.show(&self.engine, caller, Turn::default()).await?.surface;
        let pages = surface.tools.chunks(TOOLS_PAGE).map(|page| self.write_page(page)).collect::<Result<Vec<_>, _>>();
        let pages = pages.map_err(|error| Failure::new(ErrorCode::InternalError, error.message))?;
        let pages = if pages.is_empty() { vec!["[]".to_owned()] } else { pages };
        let list = Arc::new(ToolList { pages, instructions: surface.directory });
        let mut lists = lock(&self.lists);
        // Lists of earlier catalog versions are never requested again.
        lists.0.retain(|known, _| known.lines().next() == Some(snapshot.version()));
        if lists.0.len() >= MAX_KEPT_LISTS {
            lists.0.clear();
        }
        lists.0.insert(key, (list.clone(), Instant::now()));
        Ok(list)
    }

    fn write_page(&self, tools: &[ShownTool]) -> Result<String, RpcError> {
        let mut text = String::from("[");
        // Written one at a time: thousands of tools as values would take many times the memory of their text.
        for tool in tools {
            let extras = self.extras.as_ref().and_then(|extras| extras.extras(tool.entry.id()));
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&wire::text(&shown(tool, extras.as_deref()))?);
        }
        text.push(']');
        text.shrink_to_fit();
        Ok(text)
    }
}

fn shown<'a>(tool: &'a ShownTool, details: Option<&ToolDetails>) -> ListedTool<'a> {
    // Control tools find and call others, which may do anything and have annotations of their own.
    let own = Some(&tool.entry).filter(|_| !tool.is_control());
    let details = details.cloned().unwrap_or_default();
    ListedTool {
        name: &tool.name,
        title: own.map(|entry| entry.definition().title.as_str()),
        description: tool.description(),
        input_schema: tool.input_schema().value(),
        output_schema: details.output_schema.or_else(|| structured_schema(own?.definition())),
        annotations: match (details.annotations, own) {
            (Some(said), _) => Item::Forwarded(said),
            (None, Some(entry)) => Item::Own(annotations(entry)),
            (None, None) => Item::Own(ToolAnnotations { open_world_hint: true, ..ToolAnnotations::default() }),
        },
        icons: details.icons,
        execution: details.execution,
        meta: details.meta,
    }
}

/// The schema of `structuredContent`. A tool whose data is already `{content, structuredContent}` (from MCP or a
/// plugin) has it inside.
fn structured_schema(definition: &ToolDefinition) -> Option<Value> {
    let schema = definition.output_schema.as_ref()?.parse();
    let properties = schema.get("properties").and_then(Value::as_object);
    match properties.and_then(|p| p.get("structuredContent")) {
        Some(inner) => Some(inner.clone()),
        None if properties.is_some_and(|p| p.contains_key("content") && p.contains_key("details")) => None,
        None => Some(Value::Object(schema)),
    }
}

fn annotations(entry: &ToolEntry) -> ToolAnnotations {
    let d = entry.definition();
    let reads = d.risk_level == RiskLevel::ReadOnly;
    ToolAnnotations {
        title: Some(d.title.clone()),
        read_only_hint: Some(reads),
        // A change that can be undone is not destructive.
        destructive_hint: (!reads).then_some(d.undo == Undo::None),
        idempotent_hint: Some(matches!(d.idempotency, Idempotency::Pure | Idempotency::Idempotent)),
        open_world_hint: entry.source().kind != SourceKind::Core || d.risk_level == RiskLevel::Commands,
    }
}

/// A call's result as `CallToolResult`. `Err` only where MCP wants a protocol error.
pub(crate) fn call_result(
    engine: &Engine,
    caller: &Caller,
    name: &str,
    result: ToolResult,
) -> Result<CallToolResult, RpcError> {
    let parts = result.into_parts();
    let run_id = parts.run_id;
    if let Some(data) = parts.data {
        let mut result = rendered(data)?;
        result.meta = result.meta.with_run(run_id);
        return Ok(result);
    }
    let failure = parts.error.unwrap_or_else(|| {
        Failure::new(ErrorCode::InternalError, parts.user_message.unwrap_or_else(|| "skipped".to_owned()))
    });
    if matches!(failure.code, ErrorCode::NotFound | ErrorCode::PolicyDenied) && !is_visible(engine, caller, name) {
        // A tool that may not be seen looks like one that does not exist.
        let shown: String = name.chars().take(128).collect();
        let near = failure.suggestion.filter(|_| failure.code == ErrorCode::NotFound);
        let error = RpcError::new(INVALID_PARAMS, format!("Unknown tool: {shown}"));
        return Err(match near {
            Some(near) => error.with(&SuggestionDetails { suggestion: &near }),
            None => error,
        });
    }
    let failure = approve::advise(caller, failure);
    let refused = failure.details.as_ref().and_then(|details| UpstreamError::deserialize(details).ok());
    if let Some(UpstreamError { rpc_code: code, rpc_data: data }) = refused.filter(|e| e.rpc_code == MISSING_CAPABILITY)
    {
        // The upstream server requires something that only the client can provide.
        return Err(RpcError { code, message: failure.message, data });
    }
    let mut result = failed(failure);
    result.meta = result.meta.with_run(run_id);
    Ok(result)
}

fn is_visible(engine: &Engine, caller: &Caller, name: &str) -> bool {
    let tools = engine.tools();
    let entry = tools.snapshot.get_in(&caller.workspace, name);
    entry.is_some_and(|entry| !engine.policy_for(caller).decide(entry, None).is_denied())
}

fn rendered(mut data: Payload) -> Result<CallToolResult, RpcError> {
    let shaped = data
        .get("content")
        .and_then(Value::as_array)
        .is_some_and(|parts| parts.iter().all(|part| part.get("type").is_some_and(Value::is_string)));
    if !shaped {
        // Clients that know no structured content read the text.
        let text = wire::text(&data)?;
        let structured_content = Some(Value::Object(data));
        return Ok(CallToolResult { structured_content, ..CallToolResult::of(Content::text(text)) });
    }
    let content = data.remove("content").unwrap_or_default();
    let structured = data.remove("structuredContent").or_else(|| data.remove("details"));
    let meta = match data.remove("_meta") {
        Some(Value::Object(meta)) => ResultMeta::forwarding(meta),
        _ => ResultMeta::default(),
    };
    Ok(CallToolResult {
        structured_content: structured.filter(|s| s.as_object().is_some_and(|o| !o.is_empty())),
        meta,
        ..CallToolResult::of(Content::Forwarded(content))
    })
}

fn failed(mut failure: Failure) -> CallToolResult {
    let said = failure.details.as_mut().and_then(|details| details.remove("content"));
    let content = match said {
        // The tool's own description of its failure is kept unchanged.
        Some(own @ Value::Array(_)) => Content::Forwarded(own),
        _ => {
            let mut text = format!("{}: {}", failure.code, failure.message);
            if let Some(suggestion) = &failure.suggestion {
                text.push('\n');
                text.push_str(suggestion);
            }
            if let Some(errors) = failure.details.as_ref().and_then(|d| d.get("errors")) {
                text.push('\n');
                text.push_str(&errors.to_string());
            }
            Content::text(text)
        }
    };
    CallToolResult { meta: ResultMeta::default().with_error(failure), ..CallToolResult::failed(content) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The result of data, as a client gets it.
    fn result(data: Value) -> Value {
        serde_json::to_value(rendered(data.as_object().unwrap().clone()).unwrap()).unwrap()
    }

    #[test]
    fn data_becomes_text_and_structure_and_content_stays_content() {
        let plain = result(json!({"path": "a.md", "content": "text"}));
        assert_eq!(plain["structuredContent"]["content"], "text");
        assert!(plain["content"][0]["text"].as_str().unwrap().contains("a.md"));
        let shaped = result(json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}));
        assert_eq!(shaped["content"][0]["type"], "image");
        assert_eq!(shaped.get("structuredContent"), None);
        let detailed = result(json!({"content": [{"type": "text", "text": "x"}], "details": {"a": 1}}));
        assert_eq!(detailed["structuredContent"]["a"], 1);
    }

    #[test]
    fn a_failure_is_a_result_that_says_what_to_do() {
        let failure = Failure::new(ErrorCode::Conflict, "changed meanwhile").suggest("Read it again.");
        let told = serde_json::to_value(failed(failure)).unwrap();
        assert_eq!(told["isError"], true);
        assert_eq!(told["content"], json!([{"type": "text", "text": "CONFLICT: changed meanwhile\nRead it again."}]));
        assert_eq!(told["_meta"]["dev.toolyard/error"]["code"], "CONFLICT");
        let own =
            Failure::new(ErrorCode::InternalError, "x").detail("content", json!([{"type": "text", "text": "own"}]));
        let own = serde_json::to_value(failed(own)).unwrap();
        assert_eq!(own["content"][0]["text"], "own");
        assert_eq!(own["_meta"]["dev.toolyard/error"]["details"].get("content"), None, "it stands above");
    }
}
