//! `ov_recall_trace`: shows what was recalled, for which session, and with which result.

use super::{Call, Outcome, ToolFailure, text_result};
use crate::{
    find::trace::{Trace, TraceQuery, preview},
    service::ContextStore,
    store::{
        fs,
        uri::{Identity, StorePath},
    },
};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Default number of traces.
const SHOWN: usize = 20;
/// Maximum number of selected URIs in the text of a trace.
const SHOWN_URIS: usize = 8;

/// The details of the response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceDetails {
    action: &'static str,
    count: usize,
    lookup_layer: &'static str,
    warnings: Vec<String>,
    entries: Vec<Trace>,
}

pub(super) fn query(call: &Call<'_>) -> Outcome {
    let found = look(call)?;
    text_result(rendered(&found.entries, found.lookup_layer, &found.warnings), found)
}

fn look(call: &Call<'_>) -> Result<TraceDetails, ToolFailure> {
    let text = |name: &str| call.text(name).map(str::to_owned);
    let all = call.text("turn") == Some("all");
    let wanted = TraceQuery {
        trace_id: text("traceId"),
        source: text("source"),
        session_id: text("sessionId"),
        session_key: text("sessionKey"),
        ov_session_id: text("ovSessionId"),
        since: call.number("since").map(|n| n as i64),
        until: call.number("until").map(|n| n as i64),
        resource_types: call.resource_types("resourceTypes")?.unwrap_or_default(),
        limit: if all { call.count("limit", SHOWN) } else { 1 },
        owner: Some(call.owner()),
    };
    let traces = &call.store.traces;
    let tries = tries(call, wanted);
    let mut found = traces.query(&tries[0]);
    for wanted in &tries[1..] {
        if !found.entries.is_empty() || !traces.is_on() {
            break;
        }
        found = traces.query(wanted);
    }
    let mut entries: Vec<Trace> = found.entries.iter().map(|trace| (**trace).clone()).collect();
    let content = call.args.get("includeContent").and_then(Value::as_bool);
    if content.unwrap_or(call.config().trace_recall_include_content_by_default) {
        add_content(call.store, &call.who, &mut entries, &mut found.warnings);
    }
    Ok(TraceDetails {
        action: "queried",
        count: entries.len(),
        lookup_layer: found.layer,
        warnings: found.warnings,
        entries,
    })
}

/// Without a session in the request, the caller's own session is queried, under each of its up to three names.
fn tries(call: &Call<'_>, wanted: TraceQuery) -> Vec<TraceQuery> {
    let named = wanted.trace_id.is_some()
        || wanted.session_id.is_some()
        || wanted.session_key.is_some()
        || wanted.ov_session_id.is_some();
    let mut tries = Vec::new();
    if !named {
        if let Some(key) = &call.session.key {
            tries.push(TraceQuery { session_key: Some(key.clone()), ..wanted.clone() });
        }
        if let Some(id) = &call.session.id {
            tries.push(TraceQuery { session_id: Some(id.clone()), ..wanted.clone() });
        }
        if let Some(id) = call.session.ov_id() {
            tries.push(TraceQuery { ov_session_id: Some(id), ..wanted.clone() });
        }
    }
    if tries.is_empty() {
        tries.push(wanted);
    }
    tries
}

/// Adds the current content of selected URIs.
pub(crate) fn add_content(
    store: &Arc<ContextStore>,
    who: &Identity,
    entries: &mut [Trace],
    warnings: &mut Vec<String>,
) {
    let most = store.config().recall_max_content_chars;
    for selected in entries.iter_mut().flat_map(|trace| &mut trace.selected) {
        let read = store.account(who).and_then(|account| fs::read(&account, &StorePath::parse(&selected.uri, who)?));
        match read {
            Ok(text) => selected.content_preview = Some(preview(&text, most)),
            Err(error) => {
                warnings.push(format!("{}: {}", selected.uri, error.tool_message()));
                selected.read_error = Some(error.tool_message());
            }
        }
    }
}

/// Formats traces for people and models.
fn rendered(found: &[Trace], layer: &str, warnings: &[String]) -> String {
    let mut blocks: Vec<String> = found.iter().enumerate().map(|(at, trace)| block(at + 1, trace)).collect();
    if blocks.is_empty() {
        blocks.push(format!("No OpenViking recall traces found (lookupLayer={layer})."));
    }
    if !warnings.is_empty() {
        let lines: Vec<String> = warnings.iter().map(|w| format!("- {w}")).collect();
        blocks.push(format!("Warnings:\n{}", lines.join("\n")));
    }
    blocks.join("\n\n")
}

fn block(number: usize, trace: &Trace) -> String {
    let types: Vec<&str> = trace.resource_types.iter().map(|about| about.as_str()).collect();
    let stats = &trace.stats;
    let mut lines = vec![
        format!("## Trace {number}: {}", trace.source),
        format!("traceId: {}", trace.trace_id),
        format!("query: {}", trace.trigger.query),
        format!("resourceTypes: {}", types.join(", ")),
        format!(
            "stats: candidates={}, selected={}, injected={}",
            stats.candidate_count, stats.selected_count, stats.injected_count
        ),
    ];
    if trace.selected.is_empty() {
        lines.push("selected: (none)".to_owned());
    } else {
        lines.push("selected:".to_owned());
        for item in trace.selected.iter().take(SHOWN_URIS) {
            let score = item.score.map(|s| format!(" ({}%)", (s * 100.0).round())).unwrap_or_default();
            lines.push(format!("  - {}{score}", item.uri));
        }
    }
    lines.join("\n")
}
