//! `find`, `search` and `recall` as the HTTP interface answers them.

use crate::{
    account::Account,
    error::{ApiError, Result},
    fs,
    library::{Hit, Wanted},
    sessions::tokens,
    uri::{Identity, Kind, Place},
};
use serde_json::{Map, Value, json};

/// A question is at most this long; the rest is not looked at.
pub const MAX_QUERY_CHARS: usize = 20_000;
/// Results of one search, at most.
pub const MAX_RESULTS: usize = 1000;

/// An item of an answer.
pub(crate) fn item(hit: &Hit) -> Value {
    json!({
        "context_type": hit.kind.as_str(), "uri": hit.uri, "level": hit.level, "score": score(hit),
        "abstract": hit.told, "tags": hit.tags,
    })
}

fn score(hit: &Hit) -> f64 {
    // Four digits say all there is, and print the same everywhere.
    (f64::from(hit.score) * 10_000.0).round() / 10_000.0
}

/// What `find` is asked.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// In words.
    pub query: String,
    /// Below here; empty: everywhere.
    pub targets: Vec<String>,
    /// `memory`, `resource` or `skill`.
    pub context_type: Option<String>,
    /// At most.
    pub limit: usize,
    /// At least.
    pub threshold: f64,
    /// Only these levels.
    pub levels: Vec<u8>,
    /// Not before.
    pub since_ms: Option<i64>,
    /// Not after.
    pub until_ms: Option<i64>,
    /// Only with all of these labels.
    pub tags: Vec<String>,
}

/// Searches; results in the order of their rank.
pub(crate) fn find_hits(account: &Account, who: &Identity, find: &Find) -> Result<Vec<Hit>> {
    if find.query.trim().is_empty() {
        return Err(ApiError::argument("Search query or image_url must not be empty unless a filter is provided."));
    }
    let within = find.targets.iter().map(|uri| Place::parse(uri, who)).collect::<Result<Vec<_>>>()?;
    let kinds = match find.context_type.as_deref() {
        None => Vec::new(),
        Some("memory") => vec![Kind::Memory],
        Some("resource") => vec![Kind::Resource],
        Some("skill") => vec![Kind::Skill],
        Some(other) => return Err(ApiError::argument(format!("Invalid context_type: {}", fs::cut(other, 40)))),
    };
    let query: String = find.query.chars().take(MAX_QUERY_CHARS).collect();
    let wanted = Wanted {
        within,
        kinds,
        levels: find.levels.clone(),
        limit: find.limit.clamp(1, MAX_RESULTS),
        least: find.threshold as f32,
        since_ms: find.since_ms,
        until_ms: find.until_ms,
        ..Wanted::new(&query, find.limit)
    };
    let mut hits = account.library.search(account, who, &wanted)?;
    hits.retain(|hit| find.tags.iter().all(|tag| hit.tags.contains(tag)));
    Ok(hits)
}

/// By kind, as `find` answers.
pub(crate) fn grouped(hits: &[Hit]) -> Value {
    let of = |kind: Kind| hits.iter().filter(|hit| hit.kind == kind).map(item).collect::<Vec<_>>();
    json!({
        "memories": of(Kind::Memory), "resources": of(Kind::Resource), "skills": of(Kind::Skill), "total": hits.len(),
    })
}

/// `POST /search/find`; `read` adds the content of files.
pub fn find(account: &Account, who: &Identity, find: &Find, read: bool) -> Result<Value> {
    let hits = find_hits(account, who, find)?;
    let mut told = grouped(&hits);
    if read {
        for kind in ["memories", "resources", "skills"] {
            for item in told[kind].as_array_mut().into_iter().flatten() {
                let uri = item["uri"].as_str().unwrap_or_default().to_owned();
                let content = Place::parse(&uri, who).and_then(|place| fs::read(account, &place));
                item["content"] = content.map(Value::from).unwrap_or(Value::Null);
            }
        }
    }
    Ok(told)
}

/// Tokens of a recall, unless said otherwise.
const RECALL_TOKENS: u64 = 1600;
/// Memories of each kind in a recall.
const QUOTAS: [(&str, usize); 3] = [("events", 10), ("entities", 10), ("preferences", 3)];

/// `POST /search/recall`: memories within a budget, ready to be put before a prompt.
pub fn recall(account: &Account, who: &Identity, query: &str, max_tokens: Option<u64>) -> Result<Value> {
    let budget = max_tokens.unwrap_or(RECALL_TOKENS);
    let asked = Find {
        query: query.to_owned(),
        context_type: Some("memory".to_owned()),
        limit: 40,
        threshold: 0.1,
        levels: vec![2],
        ..Find::default()
    };
    let hits = find_hits(account, who, &asked)?;
    let mut searched: Map<String, Value> = Map::new();
    let (mut entries, mut rendered, mut used, mut dropped) = (Vec::new(), Vec::new(), 0, 0);
    let mut taken: Map<String, Value> = Map::new();
    let mut origins = [0usize; 3];
    for hit in &hits {
        let category = hit.category.clone().unwrap_or_else(|| "memory".to_owned());
        let count = |map: &mut Map<String, Value>| {
            let n = map.get(&category).and_then(Value::as_u64).unwrap_or_default() + 1;
            map.insert(category.clone(), n.into());
            n
        };
        count(&mut searched);
        let most = QUOTAS.iter().find(|(name, _)| *name == category).map_or(10, |(_, most)| *most);
        let Ok(text) = Place::parse(&hit.uri, who).and_then(|place| fs::read(account, &place)) else { continue };
        let cost = tokens(&text).ceil() as u64;
        if count(&mut taken) > most as u64 || used + cost > budget {
            dropped += 1;
            continue;
        }
        used += cost;
        let origin = match (hit.uri.contains("/peers/"), &who.peer) {
            (false, _) => 1,
            (true, Some(_)) => 0,
            (true, None) => 2,
        };
        origins[origin] += 1;
        let word = ["actor_peer", "self", "other_peer"][origin];
        rendered.push(format!(
            "<memory uri=\"{}\" type=\"{category}\" score=\"{:.2}\" detail=\"full\">\n{text}\n</memory>",
            hit.uri, hit.score
        ));
        entries.push(json!({
            "uri": hit.uri, "category": category, "score": score(hit), "detail": "full", "text": text, "origin": word,
        }));
    }
    let returned = entries.len();
    Ok(json!({
        "entries": entries, "rendered": rendered.join("\n"), "digest": "",
        "stats": {
            "searched": searched, "candidates": hits.len(), "excluded": 0,
            "origins": {"actor_peer": origins[0], "self": origins[1], "other_peer": origins[2]},
            "peer_scope": if who.peer.is_some() { "actor" } else { "all" },
            "quotas": {"events": 10, "entities": 10, "preferences": 3, "experiences": 0},
            "max_tokens": budget, "used_tokens": used, "per_entry_cap": budget, "returned": returned, "dropped": dropped,
            "deduped": 0, "detail": null, "tier_counts": {"full": returned},
            "fill": {"floor_tokens": used, "overview_upgrades": 0, "full_upgrades": 0, "spare_upgrades": 0},
            "purpose": "coding", "query_expansion": "off", "planned_queries": [query], "score_threshold": 0.1,
            "other_peer_penalties": {}, "rewrite": "off", "rewrite_usage": null,
            "dedup": {"turns": 0, "status": "off", "cooled": 0, "turn": null},
            "deprecated": {
                "endpoint": "/api/v1/search/recall", "successor": "/api/v1/search/search",
                "successor_body": {"mode": "context"}, "aliases_used": [],
            },
        },
    }))
}
