//! `tools/list`: the tools as text, written once for callers alike; and a call's result in MCP's words.

use super::{
    Inner, approve,
    session::lock,
    shelf::{Shown, ShownTool},
};
use crate::{
    RpcError,
    jsonrpc::{INVALID_PARAMS, MISSING_CAPABILITY},
};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_catalog::{SourceKind, ToolEntry};
use toolyard_engine::{Caller, Engine};
use toolyard_protocol::{ErrorCode, Failure, Idempotency, RiskLevel, ToolDefinition, ToolResult, Undo};

/// Tool lists kept for callers alike; beyond it all are forgotten.
const MAX_KEPT_LISTS: usize = 64;
/// A list that nobody asked for this long is written anew.
pub(crate) const LIST_KEPT_FOR: Duration = Duration::from_secs(5);
/// Tools on one page. Many clients never ask for a second one, so a page holds what people really have.
pub(crate) const TOOLS_PAGE: usize = 10_000;
/// In `_meta` of a result: the failure with its code and suggestion.
const META_ERROR: &str = "dev.toolyard/error";
/// In `_meta` of a result: the run to look it up by.
const META_RUN: &str = "dev.toolyard/runId";

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

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets those nobody asked for lately: a client asks when it starts, and a list of thousands is megabytes.
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
        let Shown { tools, instructions } = self.shelf.show(&self.engine, caller).await?;
        let pages = tools.chunks(TOOLS_PAGE).map(|page| self.write_page(page)).collect::<Vec<_>>();
        let pages = if pages.is_empty() { vec!["[]".to_owned()] } else { pages };
        let list = Arc::new(ToolList { pages, instructions });
        let mut lists = lock(&self.lists);
        // Nobody asks for an earlier version's again.
        lists.0.retain(|known, _| known.lines().next() == Some(snapshot.version()));
        if lists.0.len() >= MAX_KEPT_LISTS {
            lists.0.clear();
        }
        lists.0.insert(key, (list.clone(), Instant::now()));
        Ok(list)
    }

    fn write_page(&self, tools: &[ShownTool]) -> String {
        let snapshot = self.engine.tools().snapshot.clone();
        let mut text = String::from("[");
        // One at a time: thousands of tools as values would take many times the memory of their text.
        for tool in tools {
            let entry = tool.id.as_deref().and_then(|id| snapshot.get(id));
            let extras = tool.id.as_deref().and_then(|id| self.extras.as_ref()?.extras(id));
            let map = shown(tool, entry.map(|e| &**e), extras.as_deref());
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&Value::Object(map).to_string());
        }
        text.push(']');
        text.shrink_to_fit();
        text
    }
}

fn shown(tool: &ShownTool, entry: Option<&ToolEntry>, extras: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("name".to_owned(), tool.name.as_str().into());
    if let Some(entry) = entry {
        map.insert("title".to_owned(), entry.definition().title.as_str().into());
    }
    let definition = entry.map(ToolEntry::definition);
    let description = tool.description.as_deref().or_else(|| definition.map(|d| d.description.as_str()));
    map.insert("description".to_owned(), description.unwrap_or_default().into());
    let schema = match &tool.input_schema {
        Some(schema) => Value::Object(schema.clone()),
        None => definition.map_or_else(|| json!({"type": "object"}), |d| d.input_schema.value()),
    };
    map.insert("inputSchema".to_owned(), schema);
    match entry {
        Some(entry) => {
            if let Some(schema) = structured_schema(entry.definition()) {
                map.insert("outputSchema".to_owned(), schema);
            }
            map.insert("annotations".to_owned(), annotations(entry));
        }
        // Control tools look, and call others that have annotations of their own.
        None => {
            map.insert("annotations".to_owned(), json!({"openWorldHint": true}));
        }
    }
    if let Some(extras) = extras {
        map.extend(extras.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    map
}

/// The schema of `structuredContent`. A tool whose data is `{content, structuredContent}` already (it came by MCP or from
/// a plugin) has it inside.
fn structured_schema(definition: &ToolDefinition) -> Option<Value> {
    let schema = definition.output_schema.as_ref()?.parse();
    let properties = schema.get("properties").and_then(Value::as_object);
    match properties.and_then(|p| p.get("structuredContent")) {
        Some(inner) => Some(inner.clone()),
        None if properties.is_some_and(|p| p.contains_key("content") && p.contains_key("details")) => None,
        None => Some(Value::Object(schema)),
    }
}

fn annotations(entry: &ToolEntry) -> Value {
    let d = entry.definition();
    let reads = d.risk_level == RiskLevel::ReadOnly;
    let again = matches!(d.idempotency, Idempotency::Pure | Idempotency::Idempotent);
    let outside = entry.source().kind != SourceKind::Core || d.risk_level == RiskLevel::Commands;
    let mut map = json!({"title": d.title, "readOnlyHint": reads, "idempotentHint": again, "openWorldHint": outside});
    if !reads {
        // What can be taken back destroys nothing.
        map["destructiveHint"] = (d.undo == Undo::None).into();
    }
    map
}

/// A call's result as `CallToolResult`. `Err` only where MCP wants a protocol error.
pub(crate) fn call_result(
    engine: &Engine,
    caller: &Caller,
    name: &str,
    result: ToolResult,
) -> Result<Map<String, Value>, RpcError> {
    let parts = result.into_parts();
    let run_id = Value::from(parts.run_id.to_string());
    if let Some(data) = parts.data {
        return Ok(with_meta(rendered(data), META_RUN, run_id));
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
            Some(near) => error.with(json!({"suggestion": near})),
            None => error,
        });
    }
    let failure = approve::advise(caller, failure);
    let details = failure.details.as_ref();
    if let Some(code) = details.and_then(|d| d.get("rpcCode")).and_then(Value::as_i64)
        && code == MISSING_CAPABILITY
    {
        // The upstream server wants something of the client that only the client can give.
        let data = details.and_then(|d| d.get("rpcData")).cloned();
        return Err(RpcError { code, message: failure.message, data });
    }
    Ok(with_meta(failed(&failure), META_RUN, run_id))
}

fn is_visible(engine: &Engine, caller: &Caller, name: &str) -> bool {
    let tools = engine.tools();
    tools.snapshot.get(name).is_some_and(|entry| !engine.policy_for(caller).decide(entry, None).is_denied())
}

fn rendered(mut data: Map<String, Value>) -> Map<String, Value> {
    let shaped = data
        .get("content")
        .and_then(Value::as_array)
        .is_some_and(|parts| parts.iter().all(|part| part.get("type").is_some_and(Value::is_string)));
    let mut map = Map::new();
    if shaped {
        map.insert("content".to_owned(), data.remove("content").unwrap_or_default());
        let structured = data.remove("structuredContent").or_else(|| data.remove("details"));
        if let Some(structured) = structured.filter(|s| s.as_object().is_some_and(|o| !o.is_empty())) {
            map.insert("structuredContent".to_owned(), structured);
        }
        if let Some(meta) = data.remove("_meta").filter(Value::is_object) {
            map.insert("_meta".to_owned(), meta);
        }
        return map;
    }
    // Clients that know no structured content read the text.
    let text = serde_json::to_string(&data).unwrap_or_default();
    map.insert("content".to_owned(), json!([{"type": "text", "text": text}]));
    map.insert("structuredContent".to_owned(), Value::Object(data));
    map
}

fn failed(failure: &Failure) -> Map<String, Value> {
    let mut map = Map::new();
    // What the tool itself said about its failure stays as it said it.
    let own = failure.details.as_ref().and_then(|d| d.get("content")).filter(|c| c.is_array()).cloned();
    let content = own.unwrap_or_else(|| {
        let mut text = format!("{}: {}", failure.code, failure.message);
        if let Some(suggestion) = &failure.suggestion {
            text.push('\n');
            text.push_str(suggestion);
        }
        if let Some(errors) = failure.details.as_ref().and_then(|d| d.get("errors")) {
            text.push('\n');
            text.push_str(&errors.to_string());
        }
        json!([{"type": "text", "text": text}])
    });
    map.insert("content".to_owned(), content);
    map.insert("isError".to_owned(), true.into());
    let mut shown = failure.clone();
    if let Some(details) = shown.details.as_mut() {
        details.remove("content"); // it stands above
    }
    with_meta(map, META_ERROR, serde_json::to_value(shown).unwrap_or_default())
}

pub(crate) fn with_meta(mut map: Map<String, Value>, key: &str, value: Value) -> Map<String, Value> {
    let meta = map.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(key.to_owned(), value);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn data_becomes_text_and_structure_and_content_stays_content() {
        let plain = rendered(object(json!({"path": "a.md", "content": "text"})));
        assert_eq!(plain["structuredContent"]["content"], "text");
        assert!(plain["content"][0]["text"].as_str().unwrap().contains("a.md"));
        let shaped = rendered(object(json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]})));
        assert_eq!(shaped["content"][0]["type"], "image");
        assert!(!shaped.contains_key("structuredContent"));
        let detailed = rendered(object(json!({"content": [{"type": "text", "text": "x"}], "details": {"a": 1}})));
        assert_eq!(detailed["structuredContent"]["a"], 1);
    }

    #[test]
    fn a_failure_is_a_result_that_says_what_to_do() {
        let failure = Failure::new(ErrorCode::Conflict, "changed meanwhile").suggest("Read it again.");
        let map = failed(&failure);
        assert_eq!(map["isError"], true);
        assert_eq!(map["content"][0]["text"], "CONFLICT: changed meanwhile\nRead it again.");
        assert_eq!(map["_meta"][META_ERROR]["code"], "CONFLICT");
        let own = failed(
            &Failure::new(ErrorCode::InternalError, "x").detail("content", json!([{"type": "text", "text": "own"}])),
        );
        assert_eq!(own["content"][0]["text"], "own");
    }
}
