//! Responses about searches and recalls.

use crate::{
    find::{
        library::Hit,
        scan::{GrepMatch, GrepResult},
        search,
    },
    store::uri::{Identity, Kind},
    wire::compat::Compat,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// A search result.
#[derive(Debug, Serialize)]
pub(crate) struct Item {
    context_type: &'static str,
    uri: String,
    level: u8,
    pub(crate) score: f64,
    #[serde(rename = "abstract")]
    abstract_: String,
    tags: Vec<String>,
    /// Present if contents were requested; null if the content could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Option<String>>,
}

impl From<&Hit> for Item {
    fn from(hit: &Hit) -> Self {
        Self {
            context_type: hit.kind.as_str(),
            uri: hit.uri.clone(),
            level: hit.level,
            score: hit.rounded_score(),
            abstract_: hit.abstract_text.clone(),
            tags: hit.tags.clone(),
            content: None,
        }
    }
}

impl Item {
    pub(crate) fn with_content(hit: &Hit, content: Option<String>) -> Self {
        Self { content: Some(content), ..Self::from(hit) }
    }
}

/// Results grouped by kind, as `find` returns them.
#[derive(Debug, Serialize)]
pub(crate) struct Grouped {
    memories: Vec<Item>,
    resources: Vec<Item>,
    skills: Vec<Item>,
    total: usize,
}

impl Grouped {
    pub(crate) fn new(hits: &[Hit], item: impl Fn(&Hit) -> Item) -> Self {
        let of = |kind: Kind| hits.iter().filter(|hit| hit.kind == kind).map(&item).collect();
        Self { memories: of(Kind::Memory), resources: of(Kind::Resource), skills: of(Kind::Skill), total: hits.len() }
    }
}

/// A client's recall request.
pub(crate) struct RecallRequest {
    pub(crate) asked: search::Recall,
    /// The purpose of the recall; only repeated in the response.
    pub(crate) purpose: Option<String>,
    /// The request used the deprecated route.
    pub(crate) deprecated: bool,
}

#[derive(Serialize)]
struct RecallEntry {
    uri: String,
    category: String,
    score: f64,
    detail: &'static str,
    text: String,
    origin: search::EntryOwner,
}

#[derive(Serialize)]
struct Origins {
    actor_peer: usize,
    #[serde(rename = "self")]
    user: usize,
    other_peer: usize,
}

#[derive(Serialize)]
struct Deprecated {
    endpoint: &'static str,
    successor: &'static str,
    successor_body: SuccessorBody,
    aliases_used: [&'static str; 0],
}

#[derive(Serialize)]
struct SuccessorBody {
    mode: &'static str,
}

#[derive(Serialize)]
struct RecallStats {
    searched: BTreeMap<String, u64>,
    candidates: usize,
    origins: Origins,
    peer_scope: &'static str,
    quotas: BTreeMap<String, u64>,
    max_tokens: u64,
    used_tokens: u64,
    per_entry_cap: u64,
    returned: usize,
    dropped: usize,
    detail: Option<&'static str>,
    tier_counts: BTreeMap<&'static str, usize>,
    purpose: String,
    planned_queries: [String; 1],
    score_threshold: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    deprecated: Option<Deprecated>,
    #[serde(flatten)]
    compat: Compat,
}

/// `POST /search/search` with mode `context`, and `POST /search/recall`.
#[derive(Serialize)]
pub(crate) struct RecallShape {
    entries: Vec<RecallEntry>,
    rendered: String,
    stats: RecallStats,
    #[serde(flatten)]
    compat: Compat,
}

impl RecallShape {
    pub(crate) fn new(request: RecallRequest, who: &Identity, recalled: search::ContextRecall) -> Self {
        let RecallRequest { asked, purpose, deprecated } = request;
        let detail = if asked.abstracts { "abstract" } else { "full" };
        let count = |of: search::EntryOwner| recalled.entries.iter().filter(|entry| entry.kept_for == of).count();
        let rendered: Vec<String> = recalled
            .entries
            .iter()
            .map(|entry| {
                format!(
                    "<memory uri=\"{}\" type=\"{}\" score=\"{:.2}\" detail=\"{detail}\">\n{}\n</memory>",
                    entry.uri, entry.category, entry.score, entry.text
                )
            })
            .collect();
        let returned = recalled.entries.len();
        Self {
            stats: RecallStats {
                searched: recalled.searched,
                candidates: recalled.candidates,
                origins: Origins {
                    actor_peer: count(search::EntryOwner::ActorPeer),
                    user: count(search::EntryOwner::User),
                    other_peer: count(search::EntryOwner::OtherPeer),
                },
                peer_scope: if who.peer.is_some() && !asked.all_peers { "actor" } else { "all" },
                quotas: recalled.quotas,
                max_tokens: recalled.max_tokens,
                used_tokens: recalled.used_tokens,
                per_entry_cap: recalled.max_tokens,
                returned,
                dropped: recalled.dropped,
                detail: asked.abstracts.then_some(detail),
                tier_counts: BTreeMap::from([(detail, returned)]),
                purpose: purpose.unwrap_or_else(|| "coding".to_owned()),
                planned_queries: [asked.query],
                score_threshold: recalled.threshold,
                deprecated: deprecated.then_some(Deprecated {
                    endpoint: "/api/v1/search/recall",
                    successor: "/api/v1/search/search",
                    successor_body: SuccessorBody { mode: "context" },
                    aliases_used: [],
                }),
                compat: Compat::recall_stats(recalled.used_tokens),
            },
            entries: recalled
                .entries
                .into_iter()
                .map(|entry| RecallEntry {
                    uri: entry.uri,
                    category: entry.category,
                    score: entry.score,
                    detail,
                    text: entry.text,
                    origin: entry.kept_for,
                })
                .collect(),
            rendered: rendered.join("\n"),
            compat: Compat::recall(),
        }
    }
}

/// `POST /search/grep`.
#[derive(Serialize)]
pub(crate) struct GrepShape {
    count: usize,
    match_count: usize,
    matches: Vec<GrepMatch>,
    files_scanned: usize,
}

impl GrepShape {
    pub(crate) fn new(found: GrepResult) -> Self {
        let count = found.matches.len();
        Self { count, match_count: count, matches: found.matches, files_scanned: found.files_scanned }
    }
}

/// `POST /search/glob`.
#[derive(Serialize)]
pub(crate) struct GlobShape {
    pub(crate) matches: Vec<String>,
    pub(crate) count: usize,
}
