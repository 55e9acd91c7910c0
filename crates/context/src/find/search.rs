//! `find` and the recall of a whole context within a budget, as the HTTP interface asks for them.

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
use serde::Serialize;
use std::collections::BTreeMap;
use toolyard_recall::index::LEAF;

/// A question is at most this long; the rest is not looked at.
pub const MAX_QUERY_CHARS: usize = 20_000;
/// Results of one search, at most.
pub const MAX_RESULTS: usize = 1000;

/// What `find` is asked.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// In words.
    pub query: String,
    /// Below here; empty: everywhere.
    pub targets: Vec<String>,
    /// Only these; empty: all.
    pub kinds: Vec<Kind>,
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
pub fn find(account: &Account, who: &Identity, find: &Find) -> Result<Vec<Hit>> {
    if find.query.trim().is_empty() {
        return Err(ApiError::argument("Search query or image_url must not be empty unless a filter is provided."));
    }
    let within = find.targets.iter().map(|uri| Place::parse(uri, who)).collect::<Result<Vec<_>>>()?;
    // Who asks for memories wants memories, not what is said of the folders they lie in.
    let levels = match find.levels.as_slice() {
        [] if find.kinds == [Kind::Memory] => vec![LEAF],
        levels => levels.to_vec(),
    };
    let query: String = find.query.chars().take(MAX_QUERY_CHARS).collect();
    let wanted = Wanted {
        within,
        kinds: find.kinds.clone(),
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

/// Tokens of a recall, unless said otherwise.
const RECALL_TOKENS: u64 = 1600;
/// What fits less well is not recalled, unless said otherwise.
const RECALL_THRESHOLD: f64 = 0.1;
/// Entries of each kind in a recall, unless said otherwise.
const QUOTAS: [(&str, u64); 4] = [("events", 10), ("entities", 10), ("preferences", 3), ("experiences", 0)];
/// Entries of a kind that no quota names.
const OTHERS: u64 = 10;
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
    pub quotas: BTreeMap<String, u64>,
    /// Only these; empty: memories, and what else a quota names.
    pub kinds: Vec<Kind>,
    /// Entries, at most.
    pub limit: Option<usize>,
    /// Abstracts instead of whole texts.
    pub abstracts: bool,
    /// Also what is kept for other peers of the user.
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

/// For whom an entry is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptFor {
    /// The peer that acts.
    ActorPeer,
    /// The user.
    #[serde(rename = "self")]
    User,
    /// Another peer of the user.
    OtherPeer,
}

impl KeptFor {
    fn of(uri: &str, who: &Identity) -> Self {
        match (uri.split_once("/peers/").and_then(|(_, rest)| rest.split('/').next()), &who.peer) {
            (None, _) => Self::User,
            (Some(of), Some(own)) if of == own => Self::ActorPeer,
            (Some(_), _) => Self::OtherPeer,
        }
    }
}

/// Something that was recalled.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it is.
    pub uri: String,
    /// A category of memories, `resources` or `skills`.
    pub category: String,
    /// How well it fits.
    pub score: f64,
    /// What it says.
    pub text: String,
    /// For whom it is kept.
    pub kept_for: KeptFor,
}

/// What is known within a budget.
#[derive(Debug, Clone, Default)]
pub struct Recalled {
    /// The best first.
    pub entries: Vec<Entry>,
    /// How many fitted, by category.
    pub searched: BTreeMap<String, u64>,
    /// How many fitted in all.
    pub candidates: usize,
    /// Those that no quota or budget had room for.
    pub dropped: usize,
    /// The budget,
    pub max_tokens: u64,
    /// and what was used of it.
    pub used_tokens: u64,
    /// Entries that fit less well were left out.
    pub threshold: f64,
    /// The quotas that held.
    pub quotas: BTreeMap<String, u64>,
}

/// Recalls what is known within a budget, ready to be put before a prompt.
pub fn recall(account: &Account, who: &Identity, asked: &Recall) -> Result<Recalled> {
    let mut recalled = Recalled {
        max_tokens: asked.max_tokens.unwrap_or(RECALL_TOKENS),
        threshold: asked.threshold.unwrap_or(RECALL_THRESHOLD),
        quotas: QUOTAS.iter().map(|(name, most)| ((*name).to_owned(), *most)).collect(),
        ..Recalled::default()
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
            hit.told.clone()
        } else {
            match Place::parse(&hit.uri, &seen_by).and_then(|place| fs::read(account, &place)) {
                Ok(text) => text,
                // Forgotten between the search and the reading.
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
            kept_for: KeptFor::of(&hit.uri, who),
        });
    }
    Ok(recalled)
}
