//! `find`, `search` and `recall` as the HTTP interface answers them.

use crate::{
    error::{ApiError, Result},
    find::library::{Hit, Wanted},
    sessions::tokens,
    store::{
        account::Account,
        fs,
        uri::{Identity, Kind, Place},
    },
};
use serde_json::{Map, Value, json};
use toolyard_recall::index::LEAF;

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
    /// `memory`, `resource` or `skill`; empty: all.
    pub context_types: Vec<String>,
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
    let kind = |word: &String| match word.as_str() {
        "memory" => Ok(Kind::Memory),
        "resource" => Ok(Kind::Resource),
        "skill" => Ok(Kind::Skill),
        other => Err(ApiError::argument(format!("Invalid context_type: {}", fs::cut(other, 40)))),
    };
    let kinds = find.context_types.iter().map(kind).collect::<Result<Vec<_>>>()?;
    // Who asks for memories wants memories, not what is said of the folders they lie in.
    let levels = match find.levels.as_slice() {
        [] if kinds == [Kind::Memory] => vec![LEAF],
        levels => levels.to_vec(),
    };
    let query: String = find.query.chars().take(MAX_QUERY_CHARS).collect();
    let wanted = Wanted {
        within,
        kinds,
        levels,
        tags: find.tags.clone(),
        limit: find.limit.clamp(1, MAX_RESULTS),
        least: find.threshold as f32,
        since_ms: find.since_ms,
        until_ms: find.until_ms,
        ..Wanted::new(&query, find.limit)
    };
    account.library.search(account, who, &wanted)
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
/// What fits less well is not recalled, unless said otherwise.
const RECALL_THRESHOLD: f64 = 0.1;
/// Entries of each kind in a recall, unless said otherwise.
const QUOTAS: [(&str, usize); 4] = [("events", 10), ("entities", 10), ("preferences", 3), ("experiences", 0)];
/// Entries of a kind that no quota names.
const OTHERS: usize = 10;
/// What is looked at for a recall.
const RECALL_CANDIDATES: usize = 40;

/// What a recall is asked.
#[derive(Debug, Clone, Default)]
pub struct Recall {
    /// In words.
    pub query: String,
    /// Tokens of all entries together.
    pub max_tokens: Option<u64>,
    /// Entries that fit less well are left out.
    pub threshold: Option<f64>,
    /// Entries of each kind, at most: categories of memories, `resources` and `skills`.
    pub quotas: Option<Map<String, Value>>,
    /// `memory`, `resource`, `skill`; empty: memories, and what else a quota names.
    pub context_types: Vec<String>,
    /// Entries, at most.
    pub limit: Option<usize>,
    /// Abstracts instead of whole texts.
    pub abstracts: bool,
    /// Also what is kept for other peers of the user.
    pub all_peers: bool,
    /// What it is for; only told again.
    pub purpose: Option<String>,
    /// Asked by its old name.
    pub deprecated: bool,
}

impl Recall {
    fn quota(&self, category: &str) -> usize {
        let told = self.quotas.as_ref().and_then(|quotas| quotas.get(category)).and_then(Value::as_u64);
        let usual = || QUOTAS.iter().find(|(name, _)| *name == category).map_or(OTHERS, |(_, most)| *most);
        told.map_or_else(usual, |n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    fn kinds(&self) -> Vec<String> {
        if !self.context_types.is_empty() {
            return self.context_types.clone();
        }
        let named =
            |name: &str| self.quotas.as_ref().and_then(|q| q.get(name)).and_then(Value::as_u64).unwrap_or(0) > 0;
        let also = [("resource", "resources"), ("skill", "skills")].into_iter().filter(|(_, quota)| named(quota));
        std::iter::once("memory").chain(also.map(|(kind, _)| kind)).map(str::to_owned).collect()
    }
}

/// `POST /search/search` with mode `context`, and `POST /search/recall`: what is known within a budget, ready to be put
/// before a prompt.
pub fn recall(account: &Account, who: &Identity, asked: &Recall) -> Result<Value> {
    let budget = asked.max_tokens.unwrap_or(RECALL_TOKENS);
    let threshold = asked.threshold.unwrap_or(RECALL_THRESHOLD);
    let seen_by = Identity { peer: who.peer.clone().filter(|_| !asked.all_peers), ..who.clone() };
    let find = Find {
        query: asked.query.clone(),
        context_types: asked.kinds(),
        limit: RECALL_CANDIDATES,
        threshold,
        levels: vec![LEAF],
        ..Find::default()
    };
    let hits = find_hits(account, &seen_by, &find)?;
    let mut searched: Map<String, Value> = Map::new();
    let (mut entries, mut rendered, mut used, mut dropped) = (Vec::new(), Vec::new(), 0, 0);
    let mut taken: Map<String, Value> = Map::new();
    let mut origins = [0usize; 3];
    let detail = if asked.abstracts { "abstract" } else { "full" };
    for hit in &hits {
        let category = match hit.kind {
            Kind::Resource => "resources".to_owned(),
            Kind::Skill => "skills".to_owned(),
            _ => hit.category.clone().unwrap_or_else(|| "memory".to_owned()),
        };
        let count = |map: &mut Map<String, Value>| {
            let n = map.get(&category).and_then(Value::as_u64).unwrap_or_default() + 1;
            map.insert(category.clone(), n.into());
            n
        };
        count(&mut searched);
        let read = || Place::parse(&hit.uri, &seen_by).and_then(|place| fs::read(account, &place));
        let Ok(text) = (if asked.abstracts { Ok(hit.told.clone()) } else { read() }) else { continue };
        let cost = tokens(&text).ceil() as u64;
        let full = asked.limit.is_some_and(|most| entries.len() >= most) || used + cost > budget;
        if full || count(&mut taken) > asked.quota(&category) as u64 {
            dropped += 1;
            continue;
        }
        used += cost;
        let peer = hit.uri.split_once("/peers/").and_then(|(_, rest)| rest.split('/').next());
        let origin = match (peer, &who.peer) {
            (None, _) => 1,
            (Some(of), Some(own)) if of == own => 0,
            (Some(_), _) => 2,
        };
        origins[origin] += 1;
        let word = ["actor_peer", "self", "other_peer"][origin];
        rendered.push(format!(
            "<memory uri=\"{}\" type=\"{category}\" score=\"{:.2}\" detail=\"{detail}\">\n{text}\n</memory>",
            hit.uri, hit.score
        ));
        entries.push(json!({
            "uri": hit.uri, "category": category, "score": score(hit), "detail": detail, "text": text, "origin": word,
        }));
    }
    let returned = entries.len();
    let mut quotas: Map<String, Value> =
        QUOTAS.iter().map(|(name, most)| ((*name).to_owned(), (*most).into())).collect();
    quotas.extend(asked.quotas.clone().unwrap_or_default());
    let mut told = json!({
        "entries": entries, "rendered": rendered.join("\n"), "digest": "",
        "stats": {
            "searched": searched, "candidates": hits.len(), "excluded": 0,
            "origins": {"actor_peer": origins[0], "self": origins[1], "other_peer": origins[2]},
            "peer_scope": if seen_by.peer.is_some() { "actor" } else { "all" }, "quotas": quotas,
            "max_tokens": budget, "used_tokens": used, "per_entry_cap": budget, "returned": returned, "dropped": dropped,
            "deduped": 0, "detail": asked.abstracts.then_some(detail), "tier_counts": {(detail): returned},
            "fill": {"floor_tokens": used, "overview_upgrades": 0, "full_upgrades": 0, "spare_upgrades": 0},
            "purpose": asked.purpose.as_deref().unwrap_or("coding"), "query_expansion": "off",
            "planned_queries": [asked.query], "score_threshold": threshold,
            "other_peer_penalties": {}, "rewrite": "off", "rewrite_usage": null,
            "dedup": {"turns": 0, "status": "off", "cooled": 0, "turn": null},
        },
    });
    if asked.deprecated {
        told["stats"]["deprecated"] = json!({
            "endpoint": "/api/v1/search/recall", "successor": "/api/v1/search/search",
            "successor_body": {"mode": "context"}, "aliases_used": [],
        });
    }
    Ok(told)
}
