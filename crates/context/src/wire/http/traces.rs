//! The plugin's own routes: recall traces, and what a URI holds.

use super::{Answer, Ask, params::Params, routes::owner};
use crate::{
    error::Result,
    find::{
        query_config,
        trace::{Wanted, route_error},
    },
    store::{
        fs,
        uri::{Kind, Place},
    },
};
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// Characters of content that are shown unless said otherwise.
const CONTENT: i64 = 20_000;
/// and at most.
const MAX_CONTENT: i64 = 100_000;

pub(super) fn answer(ask: &Ask<'_>, rest: &[&str]) -> Answer {
    let refuse = |status: StatusCode, code: &str, message: &str| Answer::Plain(status, route_error(code, message));
    if ask.method != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET is supported");
    }
    let told = match rest {
        ["recall-traces"] => list(ask),
        ["recall-traces", "latest-ov-search-list"] => return latest(ask),
        ["recall-traces", id] => return one(ask, id),
        ["uri-detail"] => return detail(ask),
        _ => return refuse(StatusCode::NOT_FOUND, "not_found", "There is no such route"),
    };
    told.unwrap_or_else(|message| refuse(StatusCode::BAD_REQUEST, "invalid_param", &message))
}

/// The first of several spellings that is there.
fn text(query: &mut Params, names: &[&'static str]) -> Option<String> {
    names.iter().find_map(|name| query.text(name)).filter(|text| !text.is_empty())
}

fn list(ask: &Ask<'_>) -> Result<Answer, String> {
    let mut query = Params::query(ask.query);
    let types = text(&mut query, &["resourceTypes", "resource-types", "resource_types"]);
    let types = types.map(|t| query_config::resource_types(&t.into())).transpose()?.unwrap_or_default();
    let turn = query.text("turn").unwrap_or_else(|| "all".to_owned());
    let limit = query.integer("limit", i64::MIN).unwrap_or(20).max(1);
    let wanted = Wanted {
        trace_id: text(&mut query, &["traceId", "trace-id", "trace_id"]),
        source: query.text("source"),
        session_id: text(&mut query, &["sessionId", "session-id", "session_id"]),
        session_key: text(&mut query, &["sessionKey", "session-key", "session_key"]),
        ov_session_id: text(&mut query, &["ovSessionId", "ov-session-id", "ov_session_id"]),
        since: query.integer("since", i64::MIN),
        until: query.integer("until", i64::MIN),
        resource_types: types,
        limit: if turn == "latest" { 1 } else { usize::try_from(limit).unwrap_or(1) },
        owner: Some(owner(ask)),
    };
    let content = query.flag("includeContent").or(query.flag("include-content")).or(query.flag("include_content"));
    query.finish().map_err(|e| e.message)?;
    let mut found = ask.store.traces.query(&wanted);
    let mut entries: Vec<Value> = found.entries.iter().map(|trace| (**trace).clone()).collect();
    if content.unwrap_or(ask.store.config().trace_recall_include_content_by_default) {
        crate::wire::tools::trace::add_content(ask.store, &ask.who, &mut entries, &mut found.warnings);
    }
    Ok(Answer::Plain(
        StatusCode::OK,
        json!({"ok": true, "count": entries.len(), "lookupLayer": found.layer, "warnings": found.warnings, "entries": entries}),
    ))
}

fn one(ask: &Ask<'_>, id: &str) -> Answer {
    let wanted = Wanted { trace_id: Some(id.to_owned()), limit: 1, owner: Some(owner(ask)), ..Wanted::default() };
    let found = ask.store.traces.query(&wanted);
    match found.entries.first() {
        Some(trace) => Answer::Plain(
            StatusCode::OK,
            json!({"ok": true, "lookupLayer": found.layer, "warnings": found.warnings, "entry": **trace}),
        ),
        None => Answer::Plain(StatusCode::NOT_FOUND, route_error("not_found", "There is no such trace")),
    }
}

/// What the newest `ov_search` of a session found.
fn latest(ask: &Ask<'_>) -> Answer {
    let mut query = Params::query(ask.query);
    let limit = query.integer("limit", i64::MIN).unwrap_or(20).clamp(1, 100);
    let selected_only = query.flag("includeSelected").unwrap_or(true);
    let dedupe = query.flag("dedupe").unwrap_or(true);
    let skills = query.flag("includeSkills").unwrap_or(true);
    let strict = query.flag("strict").unwrap_or_default();
    let wanted = Wanted {
        source: Some("ov_search".to_owned()),
        session_key: text(&mut query, &["sessionKey", "session-key", "session_key"]),
        session_id: text(&mut query, &["sessionId", "session-id", "session_id"]),
        ov_session_id: text(&mut query, &["ovSessionId", "ov-session-id", "ov_session_id"]),
        limit: 1,
        owner: Some(owner(ask)),
        ..Wanted::default()
    };
    if let Err(error) = query.finish() {
        return Answer::Plain(StatusCode::BAD_REQUEST, route_error("invalid_param", &error.message));
    }
    let found = ask.store.traces.query(&wanted);
    let Some(trace) = found.entries.first() else {
        return if strict {
            Answer::Plain(StatusCode::NOT_FOUND, route_error("not_found", "There is no ov_search trace"))
        } else {
            Answer::Plain(StatusCode::OK, json!({"ok": true, "traceId": null, "query": null, "count": 0, "items": []}))
        };
    };
    let id = trace["traceId"].as_str().unwrap_or_default();
    let mut items = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let selected: Vec<&Value> = trace["selected"].as_array().into_iter().flatten().collect();
    for result in
        trace["searches"].as_array().into_iter().flatten().flat_map(|s| s["results"].as_array().into_iter().flatten())
    {
        let uri = result["uri"].as_str().unwrap_or_default();
        if (!skills && result["resultType"] == "skill") || (dedupe && !seen.insert(uri.to_owned())) {
            continue;
        }
        let mut item = result.clone();
        if selected_only {
            item["selected"] = selected.iter().any(|s| s["uri"] == uri).into();
        }
        item["detailUrl"] = format!("/api/openviking/uri-detail?uri={}&traceId={}", encode(uri), encode(id)).into();
        items.push(item);
        if items.len() >= usize::try_from(limit).unwrap_or(1) {
            break;
        }
    }
    Answer::Plain(
        StatusCode::OK,
        json!({"ok": true, "traceId": id, "query": trace["trigger"]["query"], "ts": trace["ts"], "count": items.len(), "items": items}),
    )
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b':' => {
                char::from(b).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn detail(ask: &Ask<'_>) -> Answer {
    let refuse = |status: StatusCode, code: &str, message: &str| Answer::Plain(status, route_error(code, message));
    let mut query = Params::query(ask.query);
    let uri = query.text("uri").unwrap_or_default();
    let trace_id = text(&mut query, &["traceId", "trace-id", "trace_id"]);
    let offset = query.integer("offset", 0).unwrap_or_default();
    let limit = query.integer("contentLimit", i64::MIN).unwrap_or(CONTENT).clamp(1, MAX_CONTENT);
    let content = query.flag("includeContent").unwrap_or(true);
    let prefer_trace = query.flag("preferTracePreview").unwrap_or_default();
    if let Err(error) = query.finish() {
        return refuse(StatusCode::BAD_REQUEST, "invalid_param", &error.message);
    }
    let place = match Place::parse(&uri, &ask.who) {
        Ok(place) => place,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, "invalid_uri", &error.message),
    };
    let account = match ask.store.account(&ask.who) {
        Ok(account) => account,
        Err(error) => return refuse(StatusCode::BAD_GATEWAY, "read_failed", &error.message),
    };
    let preview = trace_id.and_then(|id| {
        let found = ask.store.traces.query(&Wanted {
            trace_id: Some(id),
            limit: 1,
            owner: Some(owner(ask)),
            ..Wanted::default()
        });
        let trace = found.entries.first()?.clone();
        let selected = trace["selected"].as_array()?.iter().find(|s| s["uri"] == uri.as_str()).cloned()?;
        selected["abstractPreview"].as_str().map(str::to_owned)
    });
    let kind = match place.kind() {
        Kind::Memory => "memory",
        Kind::Resource => "resource",
        Kind::Skill => "skill",
        Kind::Session => "session",
    };
    let metadata = fs::stat(&account, &place).unwrap_or_else(|_| json!({}));
    let mut told =
        json!({"ok": true, "uri": place.to_string(), "uriType": kind, "metadata": metadata, "readStatus": "skipped"});
    if let Some(preview) = &preview {
        told["abstractPreview"] = preview.as_str().into();
    }
    if !content || (prefer_trace && preview.is_some()) {
        return Answer::Plain(StatusCode::OK, told);
    }
    let read = if metadata["isDir"] == true {
        fs::described(&account, &place).map(|(_, overview)| overview)
    } else {
        fs::read(&account, &place)
    };
    match read {
        Ok(text) => {
            let total = text.chars().count();
            let (offset, limit) = (usize::try_from(offset).unwrap_or_default(), usize::try_from(limit).unwrap_or(1));
            let part: String = text.chars().skip(offset).take(limit).collect();
            let returned = part.chars().count();
            told["content"] = json!({
                "text": part, "offset": offset, "limit": limit, "returnedChars": returned, "totalChars": total,
                "hasMore": offset.saturating_add(returned) < total,
            });
            told["readStatus"] = "ok".into();
            Answer::Plain(StatusCode::OK, told)
        }
        Err(error) => refuse(StatusCode::BAD_GATEWAY, "read_failed", &error.told()),
    }
}
