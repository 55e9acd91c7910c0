//! [`Trace`]: one recall as it is shown and kept, in the fields of OpenViking's plugin.

use crate::{
    config::ContextConfig,
    find::{library, query_config::ResourceType},
    store::uri::Kind,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolyard_recall::index::Parts;

/// Letters and digits of a trace's own part.
const ID_CHARS: usize = 8;
/// The version of the form.
const SCHEMA_VERSION: &str = "1.0";

/// In which session something was recalled, and for which agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Speaker {
    /// The gateway's id of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The gateway's key of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The store's id of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ov_session_id: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent_id: String,
}

impl Speaker {
    /// Names under which its traces are found, the most usual first.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let names = [("key", &self.session_key), ("id", &self.session_id), ("ov", &self.ov_session_id)];
        names.into_iter().filter_map(|(kind, name)| name.as_ref().map(|name| format!("{kind}:{name}")))
    }
}

/// What made the recall happen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trigger {
    /// The question.
    pub query: String,
    /// The beginning of the user's message that the question was taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_user_text_preview: Option<String>,
    /// Words that were made from the message; the question is the message itself, so there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived_keywords: Option<Vec<String>>,
    /// Whether the message was longer than the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_truncated: Option<bool>,
}

/// One search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Search {
    /// What was searched.
    pub resource_type: ResourceType,
    /// The URI that was asked for,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_uri_input: Option<String>,
    /// and the one that was searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_uri_resolved: Option<String>,
    /// One archive alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_id: Option<String>,
    /// Whether letters in either case fit; only said of archives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case_insensitive: Option<bool>,
    /// Results, at most.
    pub limit: usize,
    /// The score below which the index gave nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_threshold: Option<f64>,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
    /// Results.
    #[serde(default)]
    pub total: usize,
    /// The first of them.
    #[serde(default)]
    pub results: Vec<Hit>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Search {
    /// A search that has not been made.
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

/// A result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// Where it is.
    pub uri: String,
    /// What was searched for it.
    pub resource_type: ResourceType,
    /// The kind of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// How well it fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// What its place among the results is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// 0 an abstract, 1 an overview, 2 a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// In few words.
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
    /// Where it is.
    pub uri: String,
    /// What was searched for it.
    pub resource_type: ResourceType,
    /// The kind of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// How well it fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// What its place among the results is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
    /// The line of an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// In few words.
    #[serde(default)]
    pub abstract_preview: String,
    /// Whether the model was given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<bool>,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_reason: Option<String>,
    /// Why it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_error: Option<String>,
    /// Whether it stood in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displayed: Option<bool>,
    /// What it holds now; added for whoever asks, never kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_preview: Option<String>,
}

/// Counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// Results of all searches.
    pub candidate_count: usize,
    /// Those that were shown or used,
    pub selected_count: usize,
    /// and that the model was given.
    pub injected_count: usize,
    /// Tokens of what the model was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_tokens: Option<u64>,
}

/// One recall.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trace {
    /// The version of the form.
    pub schema_version: String,
    /// Its id.
    pub trace_id: String,
    /// When, in milliseconds since 1970.
    pub ts: i64,
    /// In which session.
    #[serde(flatten)]
    pub speaker: Speaker,
    /// The tool, or `auto_recall`.
    pub source: String,
    /// `semantic_find` or `archive_grep`.
    pub operation_type: String,
    /// What was searched.
    pub resource_types: Vec<ResourceType>,
    /// What made it happen.
    pub trigger: Trigger,
    /// The searches.
    pub searches: Vec<Search>,
    /// What was shown or used.
    pub selected: Vec<Selected>,
    /// Counts.
    pub stats: Stats,
}

impl Trace {
    /// A recall that happens now.
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

/// A trace's id.
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

/// What a place is called in traces: skills are the agent's, wherever they lie.
pub(crate) fn type_of(kind: Kind) -> ResourceType {
    match kind {
        Kind::Skill => ResourceType::Agent,
        Kind::Memory => ResourceType::User,
        Kind::Resource => ResourceType::Resource,
        Kind::Session => ResourceType::Session,
    }
}

impl Hit {
    /// The first results of a search, as many as the configuration keeps.
    pub(crate) fn first(hits: &[library::Hit], config: &ContextConfig) -> Vec<Self> {
        let shown = hits.iter().take(config.trace_recall_max_results_per_search);
        let traced = shown.map(|hit| Self {
            uri: hit.uri.clone(),
            resource_type: type_of(hit.kind),
            category: hit.category.clone(),
            score: Some(hit.rounded_score()),
            parts: Some(hit.parts.rounded()),
            level: Some(hit.level),
            abstract_preview: super::preview(&hit.told, config.trace_recall_preview_chars),
            result_type: if hit.kind == Kind::Session { Kind::Resource } else { hit.kind }.as_str().to_owned(),
        });
        traced.collect()
    }
}

impl Selected {
    /// A result of a search that was taken.
    pub(crate) fn of(hit: &library::Hit, config: &ContextConfig) -> Self {
        Self {
            category: hit.category.clone(),
            score: Some(hit.rounded_score()),
            parts: Some(hit.parts.rounded()),
            ..Self::plain(&hit.uri, type_of(hit.kind), &hit.told, config)
        }
    }

    /// A place alone.
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
