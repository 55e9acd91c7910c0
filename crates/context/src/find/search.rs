//! `find`, and recall within a token budget, as the HTTP interface offers them.

use crate::{
    error::{ApiError, Result},
    find::library::{Hit, SearchRequest},
    sessions::tokens,
    store::{
        account::Account,
        fs,
        uri::{Identity, Kind, StorePath},
    },
};
use serde::Serialize;
use std::collections::BTreeMap;
use toolyard_recall::index::LEAF;

/// Maximum length of a query; the rest is ignored.
pub const MAX_QUERY_CHARS: usize = 20_000;
/// Maximum number of results of one search.
pub const MAX_RESULTS: usize = 1000;

/// A `find` request.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// The query text.
    pub query: String,
    /// Only inside these URIs; empty: everywhere.
    pub targets: Vec<String>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// Maximum number of results.
    pub limit: usize,
    /// Minimum score.
    pub threshold: f64,
    /// Only these levels.
    pub levels: Vec<u8>,
    /// Only resources from this time on.
    pub since_ms: Option<i64>,
    /// Only resources up to this time.
    pub until_ms: Option<i64>,
    /// Only resources with all of these labels.
    pub tags: Vec<String>,
}

/// Searches; results are ordered by rank.
pub fn find(account: &Account, who: &Identity, find: &Find) -> Result<Vec<Hit>> {
    if find.query.trim().is_empty() {
        return Err(ApiError::argument("Search query or image_url must not be empty unless a filter is provided."));
    }
    let within = find.targets.iter().map(|uri| StorePath::parse(uri, who)).collect::<Result<Vec<_>>>()?;
    // A search for memories returns memories, not the descriptions of their folders.
    let levels = match find.levels.as_slice() {
        [] if find.kinds == [Kind::Memory] => vec![LEAF],
        levels => levels.to_vec(),
    };
    let query: String = find.query.chars().take(MAX_QUERY_CHARS).collect();
    let wanted = SearchRequest {
        within,
        kinds: find.kinds.clone(),
        levels,
        tags: find.tags.clone(),
        limit: find.limit.clamp(1, MAX_RESULTS),
        least: find.threshold as f32,
        since_ms: find.since_ms,
        until_ms: find.until_ms,
        ..SearchRequest::new(&query, find.limit)
    };
    account.library.search(account, who, &wanted)
}

/// Default token budget of a recall.
const RECALL_TOKENS: u64 = 1600;
/// Default minimum score of a recall.
const RECALL_THRESHOLD: f64 = 0.1;
/// Default number of entries per category.
const QUOTAS: [(&str, u64); 4] = [("events", 10), ("entities", 10), ("preferences", 3), ("experiences", 0)];
/// Number of entries of a category without a quota.
const OTHERS: u64 = 10;
/// Number of candidates of a recall.
const RECALL_CANDIDATES: usize = 40;

/// A recall request.
#[derive(Debug, Clone, Default)]
pub struct Recall {
    /// The query text.
    pub query: String,
    /// Token budget of all entries.
    pub max_tokens: Option<u64>,
    /// Minimum score.
    pub threshold: Option<f64>,
    /// Maximum number of entries per category: categories of memories, `resources` and `skills`.
    pub quotas: BTreeMap<String, u64>,
    /// Only these kinds; empty: memories, and the kinds that a quota names.
    pub kinds: Vec<Kind>,
    /// Maximum number of entries.
    pub limit: Option<usize>,
    /// Return abstracts instead of full texts.
    pub abstracts: bool,
    /// Include memories of the user's other peers.
    pub all_peers: bool,
}

impl Recall {
    fn kinds(&self) -> Vec<Kind> {
        if !self.kinds.is_empty() {
            return self.kinds.clone();
        }
        let also = [(Kind::Resource, "resources"), (Kind::Skill, "skills")];
        let named = also.into_iter().filter(|(_, quota)| self.quotas.get(*quota).is_some_and(|most| *most > 0));
        std::iter::once(Kind::Memory).chain(named.map(|(kind, _)| kind)).collect()
    }
}

/// Whom an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryOwner {
    /// The acting peer.
    ActorPeer,
    /// The user.
    #[serde(rename = "self")]
    User,
    /// Another peer of the user.
    OtherPeer,
}

impl EntryOwner {
    fn of(uri: &str, who: &Identity) -> Self {
        match (uri.split_once("/peers/").and_then(|(_, rest)| rest.split('/').next()), &who.peer) {
            (None, _) => Self::User,
            (Some(of), Some(own)) if of == own => Self::ActorPeer,
            (Some(_), _) => Self::OtherPeer,
        }
    }
}

/// A recalled entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The URI.
    pub uri: String,
    /// A category of memories, `resources` or `skills`.
    pub category: String,
    /// The relevance score.
    pub score: f64,
    /// The text.
    pub text: String,
    /// The owner of the entry.
    pub kept_for: EntryOwner,
}

/// The result of a recall.
#[derive(Debug, Clone, Default)]
pub struct ContextRecall {
    /// The entries, best first.
    pub entries: Vec<Entry>,
    /// Number of matches by category.
    pub searched: BTreeMap<String, u64>,
    /// Total number of matches.
    pub candidates: usize,
    /// Number of matches dropped because of quotas or the budget.
    pub dropped: usize,
    /// The token budget.
    pub max_tokens: u64,
    /// Tokens used.
    pub used_tokens: u64,
    /// The minimum score that was applied.
    pub threshold: f64,
    /// The quotas that were applied.
    pub quotas: BTreeMap<String, u64>,
}

/// Recalls entries within a token budget, ready to be put before a prompt.
pub fn recall(account: &Account, who: &Identity, asked: &Recall) -> Result<ContextRecall> {
    let mut recalled = ContextRecall {
        max_tokens: asked.max_tokens.unwrap_or(RECALL_TOKENS),
        threshold: asked.threshold.unwrap_or(RECALL_THRESHOLD),
        quotas: QUOTAS.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect(),
        ..ContextRecall::default()
    };
    recalled.quotas.extend(asked.quotas.clone());
    let seen_by = Identity { peer: who.peer.clone().filter(|_| !asked.all_peers), ..who.clone() };
    let question = Find {
        query: asked.query.clone(),
        kinds: asked.kinds(),
        limit: RECALL_CANDIDATES,
        threshold: recalled.threshold,
        levels: vec![LEAF],
        ..Find::default()
    };
    let hits = find(account, &seen_by, &question)?;
    recalled.candidates = hits.len();
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for hit in &hits {
        let category = match hit.kind {
            Kind::Resource => "resources".to_owned(),
            Kind::Skill => "skills".to_owned(),
            _ => hit.category.clone().unwrap_or_else(|| "memory".to_owned()),
        };
        *recalled.searched.entry(category.clone()).or_default() += 1;
        let text = if asked.abstracts {
            hit.abstract_text.clone()
        } else {
            match StorePath::parse(&hit.uri, &seen_by).and_then(|place| fs::read(account, &place)) {
                Ok(text) => text,
                // The memory was forgotten between the search and the read.
                Err(error) => {
                    tracing::debug!(uri = hit.uri, error = error.message, "a result could not be read");
                    continue;
                }
            }
        };
        let cost = tokens(&text).ceil() as u64;
        let full = asked.limit.is_some_and(|most| recalled.entries.len() >= most)
            || recalled.used_tokens + cost > recalled.max_tokens;
        let quota = recalled.quotas.get(&category).copied().unwrap_or(OTHERS);
        let of_kind = taken.entry(category.clone()).or_default();
        if full || *of_kind >= quota {
            recalled.dropped += 1;
            continue;
        }
        *of_kind += 1;
        recalled.used_tokens += cost;
        recalled.entries.push(Entry {
            uri: hit.uri.clone(),
            category,
            score: hit.rounded_score(),
            text,
            kept_for: EntryOwner::of(&hit.uri, who),
        });
    }
    Ok(recalled)
}
