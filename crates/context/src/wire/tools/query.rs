//! `ov_search`, `ov_read`, `ov_multi_read`, `ov_list`.

use super::{Call, Outcome, ToolFailure, text_result};
use crate::{
    error::ApiError,
    find::{
        library::Hit,
        query_config::{QueryParams, ResourceType},
        search::{Find, find},
        trace::{self, Search, Selected},
    },
    store::{
        digest::collapse,
        fs::{self, Entry, Listing},
        uri::{Identity, Kind, SCHEME, SCOPES, StorePath, USER_FOLDERS},
    },
    wire::shapes::{Grouped, Item, Row, RowStyle},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::HashSet, time::Instant};
use toolyard_recall::index::LEAF;

/// Maximum length of an abstract in the table, including the ellipsis.
const MAX_SHOWN: usize = 220;
/// Number of descriptions of fixed folders: an abstract and an overview each.
const FIXED_FOLDERS: usize = 2 * (USER_FOLDERS.len() + SCOPES.len() + 2);
/// Maximum number of URIs read in one call.
const MAX_URIS: usize = 100;

const TIP: &str = "Tip: search results are ranked snippets. Use ov_read on exact hit URIs before answering precise questions. Use ov_list on a hit's parent URI to inspect sibling chunks or overview files before answering procedural or multi-step questions.";
const NOTE: &str = "Note: result URIs are OpenViking virtual URIs, not local file paths. Use the ov_read tool with the exact viking:// URI to read full content; do not use filesystem read tools for these URIs.";

fn type_of_uri(uri: &str) -> ResourceType {
    if uri.starts_with("viking://resources") || uri.contains("/resources") {
        ResourceType::Resource
    } else if uri.contains("/skills") || uri.starts_with("viking://agent") {
        ResourceType::Agent
    } else if uri.starts_with("viking://~") || uri.starts_with("viking://user") {
        ResourceType::User
    } else {
        ResourceType::Resource
    }
}

/// The details of a search response.
#[derive(Serialize)]
struct SearchDetails<'a> {
    action: &'static str,
    query: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    #[serde(flatten)]
    results: Grouped,
}

pub(super) fn search(call: &Call<'_>) -> Outcome {
    let Some(query) = call.text("query").map(str::trim) else { return Err(ToolFailure::argument("query is required")) };
    let effective = call.effective(&QueryParams::default());
    let given = call.text("uri").map(str::to_owned);
    if given.as_ref().is_some_and(|uri| !uri.starts_with(SCHEME)) {
        return Err(ToolFailure::argument("targetUri must start with viking://"));
    }
    let target = given.clone().or_else(|| effective.target_uri.clone());
    let limit = call.count("limit", effective.ov_search_limit);
    let scopes = match &target {
        Some(uri) => vec![Scope { about: type_of_uri(uri), uri: uri.clone(), kinds: Vec::new() }],
        None => Scope::all(),
    };
    let (mut hits, mut searches, mut failed) = (Vec::<Hit>::new(), Vec::new(), None);
    for scope in &scopes {
        let (search, found) = search_scope(call, query, scope, limit, effective.score_threshold);
        match found {
            Ok(found) => hits.extend(found),
            Err(error) => failed = Some(error),
        }
        searches.push(Search { target_uri_input: given.as_ref().map(|_| scope.uri.clone()), ..search });
    }
    if let Some(error) = failed.filter(|_| searches.iter().all(|search| search.error.is_some())) {
        return Err(error.into());
    }
    let mut seen = HashSet::new();
    hits.retain(|hit| seen.insert(hit.uri.clone()));
    hits.sort_by(|a, b| b.rank.total_cmp(&a.rank).then_with(|| a.uri.cmp(&b.uri)));
    let candidates = hits.len();
    hits.truncate(limit);
    let shown: Vec<&Hit> = hits.iter().collect();
    let mut trace = call.trace_of("ov_search", "semantic_find", query);
    trace.resource_types = scopes.iter().map(|scope| scope.about).collect();
    trace.searches = searches;
    trace.selected = shown
        .iter()
        .map(|hit| Selected { category: None, displayed: Some(true), ..Selected::of(hit, call.config()) })
        .collect();
    trace.stats.candidate_count = candidates;
    trace.stats.selected_count = shown.len();
    call.record(trace);
    let results = Grouped::new(&hits, |hit| Item::from(hit));
    let details = SearchDetails { action: "searched", query, uri: target.as_deref(), results };
    text_result(rendered(query, target.as_deref(), &shown), details)
}

/// A part of the store that is searched.
struct Scope {
    about: ResourceType,
    uri: String,
    kinds: Vec<Kind>,
}

impl Scope {
    /// Resources, skills and memories.
    fn all() -> Vec<Self> {
        let scope = |about, uri: &str, kind| Self { about, uri: uri.to_owned(), kinds: vec![kind] };
        vec![
            scope(ResourceType::Resource, "viking://resources", Kind::Resource),
            scope(ResourceType::Agent, "viking://~/skills", Kind::Skill),
            scope(ResourceType::User, "viking://~", Kind::Memory),
        ]
    }
}

/// Whether a result only describes the purpose of a fixed folder.
fn tells_nothing(hit: &Hit, who: &Identity) -> bool {
    let folder = StorePath::parse(&hit.uri, who).ok().and_then(|place| place.parent());
    hit.level != LEAF && folder.is_some_and(|folder| folder.is_fixed())
}

/// Searches one scope; returns the trace entry and the results.
fn search_scope(
    call: &Call<'_>,
    query: &str,
    scope: &Scope,
    limit: usize,
    threshold: f64,
) -> (Search, Result<Vec<Hit>, ApiError>) {
    let started = Instant::now();
    let asked = Find {
        query: query.to_owned(),
        targets: vec![scope.uri.clone()],
        kinds: scope.kinds.clone(),
        // The limit is raised because some results are removed afterwards.
        limit: limit.saturating_add(FIXED_FOLDERS),
        threshold,
        ..Find::default()
    };
    let found = call.store.account(&call.who).and_then(|account| find(&account, &call.who, &asked));
    let found = found.map(|mut hits| {
        hits.retain(|hit| !tells_nothing(hit, &call.who));
        hits.truncate(limit);
        hits
    });
    let mut search = Search {
        target_uri_resolved: Some(scope.uri.clone()),
        score_threshold: Some(threshold),
        duration_ms: started.elapsed().as_millis() as u64,
        ..Search::new(scope.about, limit)
    };
    match &found {
        Ok(hits) => {
            search.total = hits.len();
            search.results = trace::Hit::first(hits, call.config());
        }
        Err(error) => search.error = Some(error.tool_message()),
    }
    (search, found)
}

fn rendered(query: &str, uri: Option<&str>, hits: &[&Hit]) -> String {
    let under = uri.map(|uri| format!(" under {uri}")).unwrap_or_default();
    if hits.is_empty() {
        return format!("No OpenViking resource or skill results found for \"{query}\"{under}.");
    }
    let mut rows: Vec<[String; 6]> = vec![["no", "type", "uri", "level", "score", "abstract"].map(str::to_owned)];
    for (at, hit) in hits.iter().enumerate() {
        let abstract_text = collapse(&hit.abstract_text);
        let abstract_text = match abstract_text.chars().count() {
            0 => "(no summary)".to_owned(),
            n if n > MAX_SHOWN => abstract_text.chars().take(MAX_SHOWN - 3).chain("...".chars()).collect(),
            _ => abstract_text,
        };
        rows.push([
            (at + 1).to_string(),
            hit.kind.as_str().to_owned(),
            hit.uri.clone(),
            hit.level.to_string(),
            format!("{:.2}", hit.score),
            abstract_text,
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

/// Checks that a URI is in the form that these tools accept.
fn exact(tool: &str, uri: &str) -> Result<(), ToolFailure> {
    if !uri.starts_with(SCHEME) {
        return Err(ToolFailure::argument(format!(
            "{tool} only accepts OpenViking viking:// URIs, not local file paths or openviking:// display aliases"
        )));
    }
    if uri.ends_with("...") || uri.contains('…') {
        return Err(ToolFailure::argument(format!(
            "{tool} received a truncated display URI. Use the exact full viking:// URI from ov_search details/results; do not shorten it with ... or …."
        )));
    }
    Ok(())
}

fn content(call: &Call<'_>, uri: &str) -> Result<String, ApiError> {
    let account = call.store.account(&call.who)?;
    fs::read(&account, &StorePath::parse(uri, &call.who)?)
}

/// Length in UTF-16 units, as JavaScript counts it.
fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

fn framed(uri: &str, body: &str) -> String {
    let body = if body.is_empty() { "(empty OpenViking content)" } else { body };
    format!("--- START OF {uri} ---\n{body}\n--- END OF {uri} ---")
}

pub(super) fn read(call: &Call<'_>) -> Outcome {
    let Some(uri) = call.text("uri").map(str::trim) else { return Err(ToolFailure::argument("uri is required")) };
    exact("ov_read", uri)?;
    let body = content(call, uri)?;
    text_result(framed(uri, &body), json!({"action": "read", "uri": uri, "chars": utf16(&body)}))
}

pub(super) fn multi_read(call: &Call<'_>) -> Outcome {
    let uris: Vec<&str> = call
        .args
        .get("uris")
        .and_then(Value::as_array)
        .map(|all| all.iter().filter_map(Value::as_str).map(str::trim).filter(|uri| !uri.is_empty()).collect())
        .unwrap_or_default();
    if uris.is_empty() {
        return Err(ToolFailure::argument("uris is required"));
    }
    if uris.len() > MAX_URIS {
        return Err(ToolFailure::argument(format!("ov_multi_read reads at most {MAX_URIS} URIs at once")));
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
                let message = error.tool_message();
                blocks.push(framed(uri, &format!("ERROR: {message}")));
                results.push(json!({"uri": uri, "content": message, "success": false, "chars": 0}));
            }
        }
    }
    let noun = if uris.len() == 1 { "resource" } else { "resources" };
    text_result(
        format!("Multi-read results for {} OpenViking {noun}:\n\n{}", uris.len(), blocks.join("\n\n")),
        json!({"action": "multi_read", "count": uris.len(), "success_count": successes, "results": results}),
    )
}

pub(super) fn list(call: &Call<'_>) -> Outcome {
    let Some(uri) = call.text("uri").map(str::trim) else { return Err(ToolFailure::argument("uri is required")) };
    exact("ov_list", uri)?;
    let (recursive, simple) = (call.flag("recursive"), call.flag("simple"));
    let account = call.store.account(&call.who)?;
    let place = StorePath::parse(uri, &call.who)?;
    let abstracts = Listing::default().abstracts.filter(|_| !simple);
    let how = Listing { recursive, abstracts, node_limit: call.count("limit", 100), ..Listing::default() };
    let (entries, _) = fs::list(&account, &call.who, &place, &how)?;
    let line = |entry: &Entry| {
        let word = if entry.is_folder { "dir" } else { "file" };
        let abstract_text = collapse(&entry.abstract_);
        let abstract_text = if abstract_text.is_empty() { abstract_text } else { format!(" - {abstract_text}") };
        if simple { entry.uri.clone() } else { format!("[{word}] {}{abstract_text}", entry.uri) }
    };
    let lines: Vec<String> = entries.iter().map(line).collect();
    let style = if simple { RowStyle::Simple } else { RowStyle::Agent };
    let entries: Vec<Row> = entries.into_iter().map(|entry| Row::new(entry, style, recursive)).collect();
    let count = lines.len();
    let text = match count {
        0 => format!("No OpenViking entries found under {uri}."),
        1 => format!("Listed 1 OpenViking entry under {uri}\n\n{}", lines.join("\n")),
        n => format!("Listed {n} OpenViking entries under {uri}\n\n{}", lines.join("\n")),
    };
    text_result(
        text,
        json!({"action": "listed", "uri": uri, "recursive": recursive, "simple": simple, "count": count, "entries": entries}),
    )
}
