//! `ov_recall_trace`: what was recalled, by whom it was asked, and what came of it.

use super::{Call, Outcome, query::types, said};
use crate::{
    find::trace::{Wanted, preview, rendered},
    service::ContextStore,
    store::{
        fs,
        uri::{Identity, Place},
    },
};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn query(call: &Call<'_>) -> Outcome {
    let found = look(call)?;
    let details = json!({
        "action": "queried", "count": found.0.len(), "lookupLayer": found.1, "warnings": found.2, "entries": found.0,
    });
    said(rendered(&found.0, found.1, &found.2), details)
}

/// Entries, where they were found, warnings.
type Looked = (Vec<Value>, &'static str, Vec<String>);

fn look(call: &Call<'_>) -> Result<Looked, super::Thrown> {
    let text = |name: &str| call.text(name).map(str::to_owned);
    let types = types(call.args.get("resourceTypes"))?.unwrap_or_default();
    let all = call.text("turn") == Some("all");
    let wanted = Wanted {
        trace_id: text("traceId"),
        source: text("source"),
        session_id: text("sessionId"),
        session_key: text("sessionKey"),
        ov_session_id: text("ovSessionId"),
        since: call.number("since").map(|n| n as i64),
        until: call.number("until").map(|n| n as i64),
        resource_types: types,
        limit: if all { call.count("limit", 20) } else { 1 },
        owner: Some(call.owner()),
    };
    let named = wanted.trace_id.is_some()
        || wanted.session_id.is_some()
        || wanted.session_key.is_some()
        || wanted.ov_session_id.is_some();
    let mut tries = Vec::new();
    if !named {
        // Whoever does not say whose traces are wanted means their own.
        if let Some(key) = &call.session.key {
            tries.push(Wanted { session_key: Some(key.clone()), ..wanted.clone() });
        }
        if let Some(id) = &call.session.id {
            tries.push(Wanted { session_id: Some(id.clone()), ..wanted.clone() });
        }
        if let Some(id) = call.session.ov_id() {
            tries.push(Wanted { ov_session_id: Some(id), ..wanted.clone() });
        }
    }
    if tries.is_empty() {
        tries.push(wanted);
    }
    let traces = &call.store.traces;
    let mut found = traces.query(&tries[0]);
    for wanted in &tries[1..] {
        if !found.entries.is_empty() || !traces.is_on() {
            break;
        }
        found = traces.query(wanted);
    }
    let mut entries: Vec<Value> = found.entries.iter().map(|trace| (**trace).clone()).collect();
    let content = call.args.get("includeContent").and_then(Value::as_bool);
    if content.unwrap_or(call.config().trace_recall_include_content_by_default) {
        add_content(call.store, &call.who, &mut entries, &mut found.warnings);
    }
    Ok((entries, found.layer, found.warnings))
}

/// Adds what selected URIs hold now.
pub(crate) fn add_content(
    store: &Arc<ContextStore>,
    who: &Identity,
    entries: &mut [Value],
    warnings: &mut Vec<String>,
) {
    let most = store.config().recall_max_content_chars;
    for selected in entries.iter_mut().flat_map(|e| e["selected"].as_array_mut().into_iter().flatten()) {
        let uri = selected["uri"].as_str().unwrap_or_default().to_owned();
        let read = store.account(who).and_then(|account| fs::read(&account, &Place::parse(&uri, who)?));
        match read {
            Ok(text) => selected["contentPreview"] = preview(&text, most).into(),
            Err(error) => {
                warnings.push(format!("{uri}: {}", error.told()));
                selected["readError"] = error.told().into();
            }
        }
    }
}
