//! The implementation of `memory_recall`: which searches run, which results are selected, and what the trace records.
//! Automatic recall before a user's message uses the same code.

use crate::{
    config::ContextConfig,
    error::Result,
    find::{
        library::{Hit, SearchRequest},
        query_config::{Effective, ResourceType},
        trace,
    },
    sessions::tokens,
    store::{
        account::Account,
        fs,
        uri::{Identity, Kind, StorePath},
    },
};
use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};
use toolyard_recall::index::LEAF;

/// A selected memory with its full text.
pub(crate) struct SelectedMemory {
    pub(crate) hit: Hit,
    pub(crate) text: String,
}

/// The result of a recall.
pub(crate) struct RecallResult {
    pub(crate) chosen: Vec<SelectedMemory>,
    /// Number of results of all searches.
    pub(crate) total: usize,
    /// Whether there were relevant memories but none fitted into the budget.
    pub(crate) too_big: bool,
    /// The types that were searched.
    pub(crate) resource_types: Vec<ResourceType>,
    /// The searches, for the trace.
    pub(crate) searches: Vec<trace::Search>,
    pub(crate) selected: Vec<trace::Selected>,
    pub(crate) stats: trace::Stats,
}

/// A planned search.
struct PlannedSearch {
    about: ResourceType,
    kinds: Vec<Kind>,
    within: Vec<StorePath>,
}

fn plan(who: &Identity, how: &Effective) -> Result<Vec<PlannedSearch>> {
    if let Some(uri) = &how.target_uri {
        let place = StorePath::parse(uri, who)?;
        return Ok(vec![PlannedSearch { about: trace::type_of(place.kind()), kinds: Vec::new(), within: vec![place] }]);
    }
    let mut planned = Vec::new();
    if how.resource_types.contains(&ResourceType::Resource) {
        planned.push(PlannedSearch { about: ResourceType::Resource, kinds: vec![Kind::Resource], within: Vec::new() });
    }
    // User and agent memories are the same memories, so they are searched once.
    let about = how.resource_types.iter().find(|about| matches!(about, ResourceType::User | ResourceType::Agent));
    planned.extend(about.map(|about| PlannedSearch { about: *about, kinds: vec![Kind::Memory], within: Vec::new() }));
    Ok(planned)
}

/// Searches, ranks and reads memories.
pub(crate) fn recall(
    account: &Account,
    who: &Identity,
    config: &ContextConfig,
    query: &str,
    how: &Effective,
) -> Result<RecallResult> {
    let plan = plan(who, how)?;
    let resource_types = match &how.target_uri {
        Some(_) => plan.iter().map(|planned| planned.about).collect(),
        None => how.resource_types.clone(),
    };
    let (mut found, mut searches) = (Vec::new(), Vec::new());
    for planned in plan {
        let started = Instant::now();
        let wanted = SearchRequest {
            kinds: planned.kinds,
            within: planned.within,
            weights: how.ranking(),
            ..SearchRequest::new(query, how.candidate_limit)
        };
        let mut search = trace::Search {
            target_uri_input: how.target_uri.clone(),
            target_uri_resolved: how.target_uri.clone(),
            score_threshold: Some(0.0),
            ..trace::Search::new(planned.about, how.candidate_limit)
        };
        let hits = account.library.search(account, who, &wanted);
        search.duration_ms = started.elapsed().as_millis() as u64;
        match hits {
            Ok(hits) => {
                search.total = hits.len();
                search.results = trace::Hit::first(&hits, config);
                found.extend(hits);
            }
            Err(error) => search.error = Some(error.tool_message()),
        }
        searches.push(search);
    }
    let total = found.len();
    let ranked = ranked(found, how);
    let mut recalled = RecallResult {
        chosen: Vec::new(),
        total,
        too_big: false,
        resource_types,
        searches,
        selected: Vec::new(),
        stats: trace::Stats { candidate_count: total, ..trace::Stats::default() },
    };
    let left_out = choose(account, who, config, how, ranked, &mut recalled);
    let estimated: f64 = recalled.chosen.iter().map(|chosen| tokens(&chosen.text)).sum();
    recalled.too_big = recalled.chosen.is_empty() && left_out > 0;
    recalled.stats.selected_count = recalled.selected.len();
    recalled.stats.injected_count = recalled.chosen.len();
    recalled.stats.estimated_tokens = Some(estimated.ceil() as u64);
    Ok(recalled)
}

/// The matching memories, best first, without duplicates.
fn ranked(mut found: Vec<Hit>, how: &Effective) -> Vec<Hit> {
    // Folder descriptions are not memories.
    found.retain(|hit| hit.level == LEAF && f64::from(hit.score) >= how.score_threshold);
    let weight = |weights: &BTreeMap<String, f64>, key: &str| weights.get(key).copied().unwrap_or_default() as f32;
    for hit in &mut found {
        hit.rank += weight(&how.resource_type_weights, trace::type_of(hit.kind).as_str());
        if let Some(category) = &hit.category {
            hit.rank += weight(&how.category_weights, category);
        }
    }
    found.sort_by(|a, b| b.rank.total_cmp(&a.rank).then_with(|| a.uri.cmp(&b.uri)));
    let mut seen = HashSet::new();
    found.retain(|hit| {
        let apart = matches!(hit.category.as_deref(), Some("events" | "cases")) || hit.abstract_text.is_empty();
        let name =
            if apart { hit.uri.clone() } else { format!("{}\n{:?}", hit.abstract_text.to_lowercase(), hit.category) };
        seen.insert(name)
    });
    found.truncate(how.recall_limit);
    found
}

/// Reads memories until the budget is used up; a memory is included as a whole or not at all. Returns how many were too
/// long.
fn choose(
    account: &Account,
    who: &Identity,
    config: &ContextConfig,
    how: &Effective,
    ranked: Vec<Hit>,
    recalled: &mut RecallResult,
) -> usize {
    let (mut used, mut left_out) = (0, 0);
    for hit in ranked {
        let mut selected = trace::Selected { injected: Some(false), ..trace::Selected::of(&hit, config) };
        let text = if how.prefer_abstract && !hit.abstract_text.is_empty() {
            Ok(hit.abstract_text.clone())
        } else {
            StorePath::parse(&hit.uri, who).and_then(|place| fs::read(account, &place))
        };
        match text {
            Ok(text) if used + text.chars().count() > how.max_injected_chars => {
                selected.skipped_reason = Some("exceeds_max_injected_chars".to_owned());
                left_out += 1;
            }
            Ok(text) => {
                used += text.chars().count();
                selected.injected = Some(true);
                recalled.chosen.push(SelectedMemory { hit, text: text.trim_end().to_owned() });
            }
            Err(error) => selected.read_error = Some(error.tool_message()),
        }
        recalled.selected.push(selected);
    }
    left_out
}
