//! [`Trace`]: the record of one recall, with the fields of OpenViking's plugin.

use crate::{
    config::ContextConfig,
    find::{library, query_config::ResourceType},
    store::uri::Kind,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolyard_recall::index::RankParts;

/// Length of the random part of a trace id.
const ID_CHARS: usize = 8;
/// Version of the record format.
const SCHEMA_VERSION: &str = "1.0";

/// The session and agent of a recall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Speaker {
    /// The session's id in the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The session's key in the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The session's id in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ov_session_id: Option<String>,
    /// The agent's id.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
}

impl Speaker {
    /// The names by which its traces are indexed, the most common first.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let names = [("key", &self.session_key), ("id", &self.session_id), ("ov", &self.ov_session_id)];
        names.into_iter().filter_map(|(kind, name)| name.as_ref().map(|name| format!("{kind}:{name}")))
    }
}

/// What triggered the recall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trigger {
    /// The query.
    pub query: String,
    /// The beginning of the user's message from which the query was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_user_text_preview: Option<String>,
    /// Keywords derived from the message. The query is the message itself, so there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived_keywords: Option<Vec<String>>,
    /// Whether the query is a truncated message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_truncated: Option<bool>,
}

/// One search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Search {
    /// The type that was searched.
    pub resource_type: ResourceType,
    /// The requested URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_uri_input: Option<String>,
    /// The URI that was searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_uri_resolved: Option<String>,
    /// The only archive that was searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_id: Option<String>,
    /// Whether case was ignored; set for archives only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case_insensitive: Option<bool>,
    /// Maximum number of results.
    pub limit: usize,
    /// The minimum score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_threshold: Option<f64>,
    /// Duration in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// Number of results.
    #[serde(default)]
    pub total: usize,
    /// The first results.
    #[serde(default)]
    pub results: Vec<Hit>,
    /// The error, if the search failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Search {
    /// A search that has not run yet.
    pub fn new(resource_type: ResourceType, limit: usize) -> Self {
        Self {
            resource_type,
            target_uri_input: None,
            target_uri_resolved: None,
            archive_id: None,
            case_insensitive: None,
            limit,
            score_threshold: None,
            duration_ms: 0,
            total: 0,
            results: Vec::new(),
            error: None,
        }
    }
}

/// A search result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The URI.
    pub uri: String,
    /// The type that was searched.
    pub resource_type: ResourceType,
    /// The category, for a memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The relevance score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The components of the rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<RankParts>,
    /// The level: 0 abstract, 1 overview, 2 file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// A short description.
    #[serde(default)]
    pub abstract_preview: String,
    /// `memory`, `skill`, `resource` or `archive_match`.
    #[serde(default)]
    pub result_type: String,
}

/// A result that was shown or used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selected {
    /// The URI.
    pub uri: String,
    /// The type that was searched.
    pub resource_type: ResourceType,
    /// The category, for a memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The relevance score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The components of the rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<RankParts>,
    /// The line number, for an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// A short description.
    #[serde(default)]
    pub abstract_preview: String,
    /// Whether it was given to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<bool>,
    /// Why it was not given to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_reason: Option<String>,
    /// Why it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_error: Option<String>,
    /// Whether it was listed in the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displayed: Option<bool>,
    /// The current content, added when a trace is queried and never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_preview: Option<String>,
}

/// Counts of a recall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// Number of results of all searches.
    pub candidate_count: usize,
    /// Number of results that were shown or used.
    pub selected_count: usize,
    /// Number of results that were given to the model.
    pub injected_count: usize,
    /// Estimated tokens given to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<u64>,
}

/// The record of one recall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trace {
    /// Version of the record format.
    pub schema_version: String,
    /// The trace id.
    pub trace_id: String,
    /// When it happened, in milliseconds since 1970.
    pub ts: i64,
    /// The session and agent.
    #[serde(flatten)]
    pub speaker: Speaker,
    /// The tool, or `auto_recall`.
    pub source: String,
    /// `semantic_find` or `archive_grep`.
    pub operation_type: String,
    /// The types that were searched.
    pub resource_types: Vec<ResourceType>,
    /// What triggered the recall.
    pub trigger: Trigger,
    /// The searches.
    pub searches: Vec<Search>,
    /// The results that were shown or used.
    pub selected: Vec<Selected>,
    /// Counts.
    pub stats: Stats,
}

impl Trace {
    /// A trace with the current time.
    pub(crate) fn new(source: &str, operation: &str, speaker: Speaker, trigger: Trigger) -> Self {
        let ts = Timestamp::now().as_millisecond();
        Self {
            schema_version: SCHEMA_VERSION.to_owned(),
            trace_id: new_id(source, ts),
            ts,
            speaker,
            source: source.to_owned(),
            operation_type: operation.to_owned(),
            trigger,
            ..Self::default()
        }
    }
}

/// Creates a trace id.
fn new_id(source: &str, ms: i64) -> String {
    if source != "auto_recall" {
        return format!("{source}-{ms}-{}", super::base36(ID_CHARS));
    }
    let mut n = ms.max(0) as u64;
    let mut digits = Vec::new();
    while n > 0 {
        digits.push(char::from_digit((n % 36) as u32, 36).unwrap_or('0'));
        n /= 36;
    }
    digits.reverse();
    format!("recall_{}_{}", digits.into_iter().collect::<String>(), super::base36(ID_CHARS))
}

/// The type name in traces: skills count as the agent's, wherever they are stored.
pub(crate) fn type_of(kind: Kind) -> ResourceType {
    match kind {
        Kind::Skill => ResourceType::Agent,
        Kind::Memory => ResourceType::User,
        Kind::Resource => ResourceType::Resource,
        Kind::Session => ResourceType::Session,
    }
}

impl Hit {
    /// The first results of a search, up to the configured maximum.
    pub(crate) fn first(hits: &[library::Hit], config: &ContextConfig) -> Vec<Self> {
        let shown = hits.iter().take(config.trace_recall_max_results_per_search);
        let traced = shown.map(|hit| Self {
            uri: hit.uri.clone(),
            resource_type: type_of(hit.kind),
            category: hit.category.clone(),
            score: Some(hit.rounded_score()),
            parts: Some(hit.parts.rounded()),
            level: Some(hit.level),
            abstract_preview: super::preview(&hit.abstract_text, config.trace_recall_preview_chars),
            result_type: if hit.kind == Kind::Session { Kind::Resource } else { hit.kind }.as_str().to_owned(),
        });
        traced.collect()
    }
}

impl Selected {
    /// Records a search result that was selected.
    pub(crate) fn of(hit: &library::Hit, config: &ContextConfig) -> Self {
        Self {
            category: hit.category.clone(),
            score: Some(hit.rounded_score()),
            parts: Some(hit.parts.rounded()),
            ..Self::plain(&hit.uri, type_of(hit.kind), &hit.abstract_text, config)
        }
    }

    /// Records a URI without a search result.
    pub(crate) fn plain(uri: &str, resource_type: ResourceType, text: &str, config: &ContextConfig) -> Self {
        Self {
            uri: uri.to_owned(),
            resource_type,
            category: None,
            score: None,
            parts: None,
            line: None,
            abstract_preview: super::preview(text, config.trace_recall_preview_chars),
            injected: None,
            skipped_reason: None,
            read_error: None,
            displayed: None,
            content_preview: None,
        }
    }
}
