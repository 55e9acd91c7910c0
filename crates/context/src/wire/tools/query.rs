//! `ov_search`, `ov_read`, `ov_multi_read`, `ov_list`.

use super::{Call, Outcome, Thrown, said};
use crate::{
    find::{
        library::Hit,
        query_config,
        search::{Find, find_hits, item},
        trace::{Draft, preview},
    },
    store::{
        digest::collapse,
        fs::{self, Listing},
        uri::{Kind, Place, SCHEME},
    },
};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Characters of an abstract in the table, with the dots.
const MAX_SHOWN: usize = 220;
/// URIs that are read in one call.
const MAX_URIS: usize = 100;

const TIP: &str = "Tip: search results are ranked snippets. Use ov_read on exact hit URIs before answering precise questions. Use ov_list on a hit's parent URI to inspect sibling chunks or overview files before answering procedural or multi-step questions.";
const NOTE: &str = "Note: result URIs are OpenViking virtual URIs, not local file paths. Use the ov_read tool with the exact viking:// URI to read full content; do not use filesystem read tools for these URIs.";

/// What a place is called in traces: skills are the agent's, wherever they lie.
pub(super) fn resource_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Skill => "agent",
        Kind::Memory => "user",
        Kind::Resource => "resource",
        Kind::Session => "session",
    }
}

fn type_of_uri(uri: &str) -> &'static str {
    if uri.starts_with("viking://resources") || uri.contains("/resources") {
        "resource"
    } else if uri.contains("/skills") || uri.starts_with("viking://agent") {
        "agent"
    } else if uri.starts_with("viking://~") || uri.starts_with("viking://user") {
        "user"
    } else {
        "resource"
    }
}

/// One search as a trace shows it.
pub(super) fn traced_search(call: &Call<'_>, hits: &[Hit]) -> Vec<Value> {
    let config = call.config();
    hits.iter()
        .take(config.trace_recall_max_results_per_search)
        .map(|hit| {
            let result = match hit.kind {
                Kind::Memory => "memory",
                Kind::Skill => "skill",
                _ => "resource",
            };
            let mut told = json!({"uri": hit.uri, "resourceType": resource_type(hit.kind)});
            if let Some(category) = &hit.category {
                told["category"] = category.as_str().into();
            }
            told["score"] = item(hit)["score"].clone();
            told["level"] = hit.level.into();
            told["abstractPreview"] = preview(&hit.told, config.trace_recall_preview_chars).into();
            told["resultType"] = result.into();
            told
        })
        .collect()
}

/// The question as a trace shows it.
pub(super) fn trigger(call: &Call<'_>, query: &str) -> Map<String, Value> {
    let most = call.config().trace_recall_query_max_chars;
    Map::from_iter([("query".to_owned(), fs::cut(query, most).into())])
}

pub(super) fn search(call: &Call<'_>) -> Outcome {
    let Some(query) = call.text("query").map(str::trim) else { return Err(Thrown::argument("query is required")) };
    let effective = call.store.queries.effective(
        call.config(),
        call.session.query_key().as_deref(),
        &call.session.agent_id(call.config()),
        &Map::new(),
    );
    let given = call.text("uri").map(str::to_owned);
    if given.as_ref().is_some_and(|uri| !uri.starts_with(SCHEME)) {
        return Err(Thrown::argument("targetUri must start with viking://"));
    }
    let target = given.clone().or_else(|| effective.target_uri.clone());
    let limit = call.count("limit", effective.ov_search_limit);
    let account = call.store.account(&call.who)?;
    let scopes: Vec<(&str, String)> = match &target {
        Some(uri) => vec![(type_of_uri(uri), uri.clone())],
        None => vec![("resource", "viking://resources".to_owned()), ("agent", "viking://~/skills".to_owned())],
    };
    let mut hits: Vec<Hit> = Vec::new();
    let mut searches = Vec::new();
    let mut failed = None;
    for (kind, uri) in &scopes {
        let started = Instant::now();
        let asked = Find { query: query.to_owned(), targets: vec![uri.clone()], limit, ..Find::default() };
        let mut told = json!({"resourceType": kind});
        if given.is_some() {
            told["targetUriInput"] = uri.as_str().into();
        }
        told["targetUriResolved"] = uri.as_str().into();
        told["limit"] = limit.into();
        match find_hits(&account, &call.who, &asked) {
            Ok(found) => {
                told["durationMs"] = (started.elapsed().as_millis() as u64).into();
                told["total"] = found.len().into();
                told["results"] = traced_search(call, &found).into();
                hits.extend(found.into_iter().filter(|hit| !hits.iter().any(|h| h.uri == hit.uri)).collect::<Vec<_>>());
            }
            Err(error) => {
                told["durationMs"] = (started.elapsed().as_millis() as u64).into();
                told["total"] = 0.into();
                told["results"] = json!([]);
                told["error"] = error.told().into();
                failed = Some(error);
            }
        }
        searches.push(told);
    }
    if let Some(error) = failed.filter(|_| searches.iter().all(|s| s.get("error").is_some())) {
        return Err(error.into());
    }
    let of = |kind: Kind| hits.iter().filter(move |hit| hit.kind == kind);
    let shown: Vec<&Hit> = of(Kind::Memory).chain(of(Kind::Resource)).chain(of(Kind::Skill)).collect();
    let selected: Vec<Value> = shown
        .iter()
        .map(|hit| {
            json!({
                "uri": hit.uri, "resourceType": resource_type(hit.kind), "score": item(hit)["score"],
                "abstractPreview": preview(&hit.told, call.config().trace_recall_preview_chars), "displayed": true,
            })
        })
        .collect();
    call.trace(Draft {
        source: "ov_search",
        operation: "semantic_find",
        resource_types: scopes.iter().map(|(kind, _)| (*kind).to_owned()).collect(),
        trigger: trigger(call, query),
        stats: json!({"candidateCount": hits.len(), "selectedCount": selected.len(), "injectedCount": 0}),
        searches,
        selected,
    });
    let items = |kind: Kind| of(kind).map(item).collect::<Vec<_>>();
    let mut details = json!({"action": "searched", "query": query});
    if let Some(uri) = &target {
        details["uri"] = uri.as_str().into();
    }
    details["memories"] = items(Kind::Memory).into();
    details["resources"] = items(Kind::Resource).into();
    details["skills"] = items(Kind::Skill).into();
    details["total"] = shown.len().into();
    said(rendered(query, target.as_deref(), &shown), details)
}

fn rendered(query: &str, uri: Option<&str>, hits: &[&Hit]) -> String {
    let under = uri.map(|uri| format!(" under {uri}")).unwrap_or_default();
    if hits.is_empty() {
        return format!("No OpenViking resource or skill results found for \"{query}\"{under}.");
    }
    let mut rows: Vec<[String; 6]> = vec![["no", "type", "uri", "level", "score", "abstract"].map(str::to_owned)];
    for (at, hit) in hits.iter().enumerate() {
        let told = collapse(&hit.told);
        let told = match told.chars().count() {
            0 => "(no summary)".to_owned(),
            n if n > MAX_SHOWN => told.chars().take(MAX_SHOWN - 3).chain("...".chars()).collect(),
            _ => told,
        };
        rows.push([
            (at + 1).to_string(),
            hit.kind.as_str().to_owned(),
            hit.uri.clone(),
            hit.level.to_string(),
            format!("{:.2}", hit.score),
            told,
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..5).map(width).collect();
    let table: Vec<String> = rows
        .iter()
        .map(|row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            line + &row[5]
        })
        .collect();
    format!("Found {} OpenViking results for \"{query}\"{under}\n{TIP}\n\n{}\n\n{NOTE}", hits.len(), table.join("\n"))
}

/// A URI as these tools take it.
fn exact(tool: &str, uri: &str) -> Result<(), Thrown> {
    if !uri.starts_with(SCHEME) {
        return Err(Thrown::argument(format!(
            "{tool} only accepts OpenViking viking:// URIs, not local file paths or openviking:// display aliases"
        )));
    }
    if uri.ends_with("...") || uri.contains('…') {
        return Err(Thrown::argument(format!(
            "{tool} received a truncated display URI. Use the exact full viking:// URI from ov_search details/results; do not shorten it with ... or …."
        )));
    }
    Ok(())
}

fn content(call: &Call<'_>, uri: &str) -> Result<String, crate::error::ApiError> {
    let account = call.store.account(&call.who)?;
    fs::read(&account, &Place::parse(uri, &call.who)?)
}

/// Length as JavaScript counts it.
fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

fn framed(uri: &str, body: &str) -> String {
    let body = if body.is_empty() { "(empty OpenViking content)" } else { body };
    format!("--- START OF {uri} ---\n{body}\n--- END OF {uri} ---")
}

pub(super) fn read(call: &Call<'_>) -> Outcome {
    let Some(uri) = call.text("uri").map(str::trim) else { return Err(Thrown::argument("uri is required")) };
    exact("ov_read", uri)?;
    let body = content(call, uri)?;
    said(framed(uri, &body), json!({"action": "read", "uri": uri, "chars": utf16(&body)}))
}

pub(super) fn multi_read(call: &Call<'_>) -> Outcome {
    let uris: Vec<&str> = call
        .args
        .get("uris")
        .and_then(Value::as_array)
        .map(|all| all.iter().filter_map(Value::as_str).map(str::trim).filter(|uri| !uri.is_empty()).collect())
        .unwrap_or_default();
    if uris.is_empty() {
        return Err(Thrown::argument("uris is required"));
    }
    if uris.len() > MAX_URIS {
        return Err(Thrown::argument(format!("ov_multi_read reads at most {MAX_URIS} URIs at once")));
    }
    for uri in &uris {
        exact("ov_multi_read", uri)?;
    }
    let mut blocks = Vec::new();
    let mut results = Vec::new();
    let mut successes = 0;
    for uri in &uris {
        match content(call, uri) {
            Ok(body) => {
                successes += 1;
                results.push(json!({"uri": uri, "content": body, "success": true, "chars": utf16(&body)}));
                blocks.push(framed(uri, &body));
            }
            Err(error) => {
                let message = error.told();
                blocks.push(framed(uri, &format!("ERROR: {message}")));
                results.push(json!({"uri": uri, "content": message, "success": false, "chars": 0}));
            }
        }
    }
    let noun = if uris.len() == 1 { "resource" } else { "resources" };
    said(
        format!("Multi-read results for {} OpenViking {noun}:\n\n{}", uris.len(), blocks.join("\n\n")),
        json!({"action": "multi_read", "count": uris.len(), "success_count": successes, "results": results}),
    )
}

pub(super) fn list(call: &Call<'_>) -> Outcome {
    let Some(uri) = call.text("uri").map(str::trim) else { return Err(Thrown::argument("uri is required")) };
    exact("ov_list", uri)?;
    let (recursive, simple) = (call.flag("recursive"), call.flag("simple"));
    let account = call.store.account(&call.who)?;
    let place = Place::parse(uri, &call.who)?;
    let how = Listing { recursive, simple, node_limit: call.count("limit", 100), ..Listing::default() };
    let (entries, _) = fs::list(&account, &call.who, &place, &how)?;
    let rows = entries.as_array().map(Vec::as_slice).unwrap_or_default();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| match row {
            Value::String(uri) => uri.clone(),
            row => {
                let word = if row["isDir"] == true { "dir" } else { "file" };
                let told = row["abstract"].as_str().map(collapse).filter(|t| !t.is_empty());
                format!(
                    "[{word}] {}{}",
                    row["uri"].as_str().unwrap_or_default(),
                    told.map(|t| format!(" - {t}")).unwrap_or_default()
                )
            }
        })
        .collect();
    let count = lines.len();
    let text = match count {
        0 => format!("No OpenViking entries found under {uri}."),
        1 => format!("Listed 1 OpenViking entry under {uri}\n\n{}", lines.join("\n")),
        n => format!("Listed {n} OpenViking entries under {uri}\n\n{}", lines.join("\n")),
    };
    said(
        text,
        json!({"action": "listed", "uri": uri, "recursive": recursive, "simple": simple, "count": count, "entries": entries}),
    )
}

/// Checks types that an argument names.
pub(super) fn types(value: Option<&Value>) -> Result<Option<Vec<String>>, Thrown> {
    match value {
        Some(given @ (Value::Array(_) | Value::String(_))) => {
            let types = query_config::resource_types(given).map_err(Thrown::argument)?;
            Ok((!types.is_empty()).then_some(types))
        }
        _ => Ok(None),
    }
}
