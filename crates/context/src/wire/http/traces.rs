//! The routes of the plugin itself: recall traces, and the content of a URI.

use super::{Answer, Ask, params::Params, routes::owner};
use crate::{
    error::Result,
    find::{
        query_config::ResourceType,
        trace::{self, Trace, TraceQuery},
    },
    store::{fs, uri::StorePath},
    wire::shapes::StatShape,
};
use http::{Method, StatusCode};
use serde::Serialize;

/// Default number of traces.
const SHOWN: i64 = 20;
/// Maximum number of items of a list.
const MAX_ITEMS: i64 = 100;
/// Default number of characters of content.
const CONTENT: i64 = 20_000;
/// Maximum number of characters of content.
const MAX_CONTENT: i64 = 100_000;

/// The error response of these routes.
#[derive(Serialize)]
struct ErrorBody<'a> {
    ok: bool,
    error: RouteError<'a>,
}

#[derive(Serialize)]
struct RouteError<'a> {
    code: &'a str,
    message: &'a str,
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Result<Answer> {
    Answer::plain(status, ErrorBody { ok: false, error: RouteError { code, message } })
}

fn invalid(message: &str) -> Result<Answer> {
    refuse(StatusCode::BAD_REQUEST, "invalid_param", message)
}

pub(super) fn answer(ask: &Ask<'_>, rest: &[&str]) -> Result<Answer> {
    if ask.method != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET is supported");
    }
    match rest {
        ["recall-traces"] => list(ask),
        ["recall-traces", "latest-ov-search-list"] => latest(ask),
        ["recall-traces", id] => one(ask, id),
        ["uri-detail"] => detail(ask),
        _ => refuse(StatusCode::NOT_FOUND, "not_found", "There is no such route"),
    }
}

/// The value of the first spelling of a parameter that is present.
fn text(query: &mut Params, names: &[&'static str]) -> Option<String> {
    names.iter().find_map(|name| query.text(name)).filter(|text| !text.is_empty())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListShape {
    ok: bool,
    count: usize,
    lookup_layer: &'static str,
    warnings: Vec<String>,
    entries: Vec<Trace>,
}

fn list(ask: &Ask<'_>) -> Result<Answer> {
    let mut query = Params::query(ask.query);
    let types = text(&mut query, &["resourceTypes", "resource-types", "resource_types"]);
    let types = match types.map(|types| ResourceType::parse_text(&types)).transpose() {
        Ok(types) => types.unwrap_or_default(),
        Err(why) => return invalid(&why),
    };
    let turn = query.text("turn").unwrap_or_else(|| "all".to_owned());
    let limit = query.integer("limit", i64::MIN).unwrap_or(SHOWN).max(1);
    let wanted = TraceQuery {
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
    if let Err(error) = query.finish() {
        return invalid(&error.message);
    }
    let mut found = ask.store.traces.query(&wanted);
    let mut entries: Vec<Trace> = found.entries.iter().map(|trace| (**trace).clone()).collect();
    if content.unwrap_or(ask.store.config().trace_recall_include_content_by_default) {
        crate::wire::tools::trace::add_content(ask.store, &ask.who, &mut entries, &mut found.warnings);
    }
    let (count, lookup_layer, warnings) = (entries.len(), found.layer, found.warnings);
    Answer::plain(StatusCode::OK, ListShape { ok: true, count, lookup_layer, warnings, entries })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneShape<'a> {
    ok: bool,
    lookup_layer: &'static str,
    warnings: &'a [String],
    entry: &'a Trace,
}

fn one(ask: &Ask<'_>, id: &str) -> Result<Answer> {
    let wanted =
        TraceQuery { trace_id: Some(id.to_owned()), limit: 1, owner: Some(owner(ask)), ..TraceQuery::default() };
    let found = ask.store.traces.query(&wanted);
    let Some(entry) = found.entries.first() else {
        return refuse(StatusCode::NOT_FOUND, "not_found", "There is no such trace");
    };
    let shape = OneShape { ok: true, lookup_layer: found.layer, warnings: &found.warnings, entry };
    Answer::plain(StatusCode::OK, shape)
}

/// A search result with the URL of its details.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LatestItem<'a> {
    #[serde(flatten)]
    hit: &'a trace::Hit,
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<bool>,
    detail_url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LatestShape<'a> {
    ok: bool,
    trace_id: Option<&'a str>,
    query: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<i64>,
    count: usize,
    items: Vec<LatestItem<'a>>,
}

/// The results of the newest `ov_search` of a session.
fn latest(ask: &Ask<'_>) -> Result<Answer> {
    let mut query = Params::query(ask.query);
    let limit = query.integer("limit", i64::MIN).unwrap_or(SHOWN).clamp(1, MAX_ITEMS);
    let mark_selected = query.flag("includeSelected").unwrap_or(true);
    let dedupe = query.flag("dedupe").unwrap_or(true);
    let skills = query.flag("includeSkills").unwrap_or(true);
    let strict = query.flag("strict").unwrap_or_default();
    let wanted = TraceQuery {
        source: Some("ov_search".to_owned()),
        session_key: text(&mut query, &["sessionKey", "session-key", "session_key"]),
        session_id: text(&mut query, &["sessionId", "session-id", "session_id"]),
        ov_session_id: text(&mut query, &["ovSessionId", "ov-session-id", "ov_session_id"]),
        limit: 1,
        owner: Some(owner(ask)),
        ..TraceQuery::default()
    };
    if let Err(error) = query.finish() {
        return invalid(&error.message);
    }
    let found = ask.store.traces.query(&wanted);
    let Some(trace) = found.entries.first() else {
        if strict {
            return refuse(StatusCode::NOT_FOUND, "not_found", "There is no ov_search trace");
        }
        let none = LatestShape { ok: true, trace_id: None, query: None, ts: None, count: 0, items: Vec::new() };
        return Answer::plain(StatusCode::OK, none);
    };
    let mut seen = std::collections::HashSet::new();
    let results = trace.searches.iter().flat_map(|search| &search.results);
    let items: Vec<LatestItem<'_>> = results
        .filter(|hit| (skills || hit.result_type != "skill") && (!dedupe || seen.insert(&hit.uri)))
        .take(usize::try_from(limit).unwrap_or(1))
        .map(|hit| LatestItem {
            hit,
            selected: mark_selected.then(|| trace.selected.iter().any(|selected| selected.uri == hit.uri)),
            detail_url: format!(
                "/api/openviking/uri-detail?uri={}&traceId={}",
                encode(&hit.uri),
                encode(&trace.trace_id)
            ),
        })
        .collect();
    let shape = LatestShape {
        ok: true,
        trace_id: Some(&trace.trace_id),
        query: Some(&trace.trigger.query),
        ts: Some(trace.ts),
        count: items.len(),
        items,
    };
    Answer::plain(StatusCode::OK, shape)
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContentShape {
    text: String,
    offset: usize,
    limit: usize,
    returned_chars: usize,
    total_chars: usize,
    has_more: bool,
}

/// Information about a place; an empty object when it does not exist.
#[derive(Serialize)]
#[serde(untagged)]
enum Metadata {
    Known(Box<StatShape>),
    Unknown {},
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DetailShape {
    ok: bool,
    uri: String,
    uri_type: &'static str,
    metadata: Metadata,
    read_status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    abstract_preview: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<ContentShape>,
}

/// The preview of a URI in a trace.
fn traced_preview(ask: &Ask<'_>, trace_id: String, uri: &str) -> Option<String> {
    let wanted = TraceQuery { trace_id: Some(trace_id), limit: 1, owner: Some(owner(ask)), ..TraceQuery::default() };
    let found = ask.store.traces.query(&wanted);
    let selected = found.entries.first()?.selected.iter().find(|selected| selected.uri == uri)?;
    Some(selected.abstract_preview.clone())
}

fn detail(ask: &Ask<'_>) -> Result<Answer> {
    let mut query = Params::query(ask.query);
    let uri = query.text("uri").unwrap_or_default();
    let trace_id = text(&mut query, &["traceId", "trace-id", "trace_id"]);
    let offset = query.integer("offset", 0).unwrap_or_default();
    let limit = query.integer("contentLimit", i64::MIN).unwrap_or(CONTENT).clamp(1, MAX_CONTENT);
    let content = query.flag("includeContent").unwrap_or(true);
    let prefer_trace = query.flag("preferTracePreview").unwrap_or_default();
    if let Err(error) = query.finish() {
        return invalid(&error.message);
    }
    let place = match StorePath::parse(&uri, &ask.who) {
        Ok(place) => place,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, "invalid_uri", &error.message),
    };
    let account = match ask.store.account(&ask.who) {
        Ok(account) => account,
        Err(error) => return refuse(StatusCode::BAD_GATEWAY, "read_failed", &error.message),
    };
    let stat = fs::stat(&account, &place).ok();
    let is_folder = stat.as_ref().is_some_and(|stat| stat.entries.is_some());
    let mut shape = DetailShape {
        ok: true,
        uri: place.to_string(),
        uri_type: place.kind().as_str(),
        metadata: stat.map_or(Metadata::Unknown {}, |stat| Metadata::Known(Box::new(stat.into()))),
        read_status: "skipped",
        abstract_preview: trace_id.and_then(|id| traced_preview(ask, id, &uri)),
        content: None,
    };
    if !content || (prefer_trace && shape.abstract_preview.is_some()) {
        return Answer::plain(StatusCode::OK, shape);
    }
    let read = if is_folder {
        fs::described(&account, &place).map(|(_, overview)| overview)
    } else {
        fs::read(&account, &place)
    };
    match read {
        Ok(text) => {
            let total_chars = text.chars().count();
            let (offset, limit) = (usize::try_from(offset).unwrap_or_default(), usize::try_from(limit).unwrap_or(1));
            let text: String = text.chars().skip(offset).take(limit).collect();
            let returned_chars = text.chars().count();
            let has_more = offset.saturating_add(returned_chars) < total_chars;
            shape.content = Some(ContentShape { text, offset, limit, returned_chars, total_chars, has_more });
            shape.read_status = "ok";
            Answer::plain(StatusCode::OK, shape)
        }
        Err(error) => refuse(StatusCode::BAD_GATEWAY, "read_failed", &error.tool_message()),
    }
}
