//! `[context]` in config.toml: the context store, its tools and recall.

use crate::find::query_config::ResourceType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The viking:// context store, its tools and its HTTP interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContextConfig {
    /// Whether the context store is on.
    pub enabled: bool,
    /// The folder of its files. Unset: `context` inside TOOLYARD_HOME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The account that tools use.
    pub account_id: String,
    /// The user on whose behalf tools act.
    pub user_id: String,
    /// Which peers have separate memories: `assistant` (each agent), `person` (each sender) or `none`.
    pub peer_role: PeerRole,
    /// A prefix for an agent's id when it names a peer, separated by `_`.
    pub peer_prefix: String,
    /// The URI below which `memory_forget` searches.
    pub target_uri: String,
    /// Whether resources are recalled in addition to memories.
    pub recall_resources: bool,
    /// What is recalled if the request does not say: `user`, `agent`, `resource`.
    pub recall_target_types: Vec<String>,
    /// Maximum number of memories in one recall; at least 1.
    pub recall_limit: usize,
    /// Minimum score of a recalled memory; 0 to 1.
    pub recall_score_threshold: f64,
    /// Maximum number of characters of all recalled memories together; 100 to 50000.
    pub recall_max_injected_chars: usize,
    /// Maximum number of characters of content in a trace; 50 to 10000.
    pub recall_max_content_chars: usize,
    /// Whether abstracts are recalled instead of whole memories.
    pub recall_prefer_abstract: bool,
    /// Whether memories are put before a user's message when context is assembled.
    pub auto_recall: bool,
    /// Share of the token budget above which a session is committed to an archive; 0 to 1.
    pub commit_token_threshold_ratio: f64,
    /// Number of messages that stay live when a session is archived; 0 to 1000.
    pub commit_keep_recent_count: usize,
    /// Patterns of sessions in which the context tools do nothing. `**` matches anything, `*` anything except `:`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypass_session_patterns: Vec<String>,
    /// Whether traces of recalls and searches are kept for `ov_recall_trace`.
    pub trace_recall: bool,
    /// Whether traces are also written to files, one for each day.
    pub trace_recall_persist: bool,
    /// The folder of these files. Unset: `recall-traces` beside the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_recall_dir: Option<PathBuf>,
    /// Days after which traces are deleted; 1 to 3650.
    pub trace_recall_retention_days: i64,
    /// Maximum number of traces in memory; 1 to 1000000.
    pub trace_recall_max_entries: usize,
    /// Maximum number of results of each search in a trace; 1 to 1000.
    pub trace_recall_max_results_per_search: usize,
    /// Characters of a preview in a trace; 20 to 10000.
    pub trace_recall_preview_chars: usize,
    /// Maximum number of characters of a query in a trace; 200 to 200000.
    pub trace_recall_query_max_chars: usize,
    /// Number of days of trace files that are searched; 1 to 3650.
    pub trace_recall_query_max_days: i64,
    /// Whether traces are shown with content by default.
    pub trace_recall_include_content_by_default: bool,
    /// Whether the user's own text is written to trace files.
    pub trace_recall_include_raw_user_preview: bool,
    /// Folders of this machine from which agents may import by path, with `add_skill` and `add_resource`. With an empty
    /// list, agents cannot name a path. The vault and Toolyard's own folders are never included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub import_roots: Vec<PathBuf>,
    /// Whether agents have the tool `add_resource`.
    pub enable_add_resource_tool: bool,
    /// Enabled tools and groups: `all`, `default`, `memory`, `resource_query`, `import`, `recall_trace`, `archive`,
    /// `tool_result`, `experience`, or a tool's name. An empty list means `default`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled_tools: Vec<String>,
    /// Disabled tools and groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled_tools: Vec<String>,
    /// Whether an agent needs a person's approval to store, forget or import. Reading never needs approval.
    pub ask_before_writing: bool,
    /// The file in which the settings of `/ov-query-config` are kept. Unset: in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_query_config_path: Option<PathBuf>,
    /// Hosts outside the public internet from which imports are allowed, by name or address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_private_hosts: Vec<String>,
    /// A language model that writes summaries and memories. Without one, they are extracted by rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm: Option<LlmConfig>,
}

/// A language model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LlmConfig {
    /// `ollama` or `openai` (any server with OpenAI's interface).
    pub kind: LlmKind,
    /// Its address, for example `http://127.0.0.1:11434`.
    #[schemars(extend("x-secret" = "url"))]
    pub url: String,
    /// The model's name.
    pub model: String,
    /// The environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-secret" = "variable"))]
    pub api_key_env: Option<String>,
    /// Milliseconds that a response may take; 1000 to 600000.
    #[serde(default = "llm_timeout")]
    pub timeout_ms: u64,
}

fn llm_timeout() -> u64 {
    60_000
}

/// The interface of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LlmKind {
    /// Ollama's chat interface.
    Ollama,
    /// OpenAI's chat completions interface.
    Openai,
}

/// Which peers have separate memories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PeerRole {
    /// Each agent.
    #[default]
    Assistant,
    /// Each sender.
    Person,
    /// No peer.
    None,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: None,
            account_id: "default".to_owned(),
            user_id: "default".to_owned(),
            peer_role: PeerRole::Assistant,
            peer_prefix: String::new(),
            target_uri: "viking://~/memories".to_owned(),
            recall_resources: false,
            recall_target_types: vec!["user".to_owned(), "agent".to_owned()],
            recall_limit: 6,
            recall_score_threshold: 0.15,
            recall_max_injected_chars: 4000,
            recall_max_content_chars: 5000,
            recall_prefer_abstract: false,
            auto_recall: true,
            commit_token_threshold_ratio: 0.5,
            commit_keep_recent_count: 10,
            bypass_session_patterns: Vec::new(),
            trace_recall: true,
            trace_recall_persist: true,
            trace_recall_dir: None,
            trace_recall_retention_days: 14,
            trace_recall_max_entries: 1000,
            trace_recall_max_results_per_search: 20,
            trace_recall_preview_chars: 240,
            trace_recall_query_max_chars: 4000,
            trace_recall_query_max_days: 14,
            trace_recall_include_content_by_default: false,
            trace_recall_include_raw_user_preview: false,
            import_roots: Vec::new(),
            enable_add_resource_tool: false,
            enabled_tools: Vec::new(),
            disabled_tools: Vec::new(),
            ask_before_writing: false,
            runtime_query_config_path: None,
            allow_private_hosts: Vec::new(),
            llm: None,
        }
    }
}

impl ContextConfig {
    /// The default recall types. [`Self::check`] has already rejected unknown names.
    pub(crate) fn recall_types(&self) -> Vec<ResourceType> {
        ResourceType::parse_all(self.recall_target_types.iter().map(String::as_str)).unwrap_or_default()
    }

    /// Validates the configuration.
    pub fn check(&self) -> Result<(), String> {
        let range = |key: &str, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("context.{key} is {value}; it must be {least} to {most}"))
            }
        };
        range("recallLimit", self.recall_limit as f64, 1.0, 1e6)?;
        range("recallScoreThreshold", self.recall_score_threshold, 0.0, 1.0)?;
        range("recallMaxInjectedChars", self.recall_max_injected_chars as f64, 100.0, 50_000.0)?;
        range("recallMaxContentChars", self.recall_max_content_chars as f64, 50.0, 10_000.0)?;
        range("commitTokenThresholdRatio", self.commit_token_threshold_ratio, 0.0, 1.0)?;
        range("commitKeepRecentCount", self.commit_keep_recent_count as f64, 0.0, 1000.0)?;
        range("traceRecallRetentionDays", self.trace_recall_retention_days as f64, 1.0, 3650.0)?;
        range("traceRecallMaxEntries", self.trace_recall_max_entries as f64, 1.0, 1e6)?;
        range("traceRecallMaxResultsPerSearch", self.trace_recall_max_results_per_search as f64, 1.0, 1000.0)?;
        range("traceRecallPreviewChars", self.trace_recall_preview_chars as f64, 20.0, 10_000.0)?;
        range("traceRecallQueryMaxChars", self.trace_recall_query_max_chars as f64, 200.0, 200_000.0)?;
        range("traceRecallQueryMaxDays", self.trace_recall_query_max_days as f64, 1.0, 3650.0)?;
        crate::store::uri::Identity::new(&self.account_id, &self.user_id, None)
            .map_err(|e| format!("context: {}", e.message))?;
        if !self.target_uri.starts_with(crate::store::uri::SCHEME) {
            return Err("context.targetUri must start with viking://".to_owned());
        }
        ResourceType::parse_all(self.recall_target_types.iter().map(String::as_str))
            .map_err(|why| format!("context.recallTargetTypes: {why}"))?;
        if let Some(llm) = &self.llm {
            range("llm.timeoutMs", llm.timeout_ms as f64, 1000.0, 600_000.0)?;
        }
        crate::wire::tools::enabled(self).map(|_| ())
    }
}
