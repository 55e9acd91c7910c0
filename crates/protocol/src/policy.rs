//! A snapshot of the policy that applied to a call. Every [`crate::ToolCall`] contains one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The policy that applied when the call was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicySnapshot {
    /// Whether calls with side effects needed a person's approval.
    pub confirmations_required: bool,
    /// Which paths of the vault tools may access.
    pub sandbox: Sandbox,
    /// Limits for each run.
    pub limits: PolicyLimits,
    /// Tool names, globs or groups that may be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Tool names, globs or groups that may never be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_tools: Vec<String>,
    /// Whether tools of risk `commands` may run.
    #[serde(default)]
    pub allow_commands: bool,
    /// Whether files may be deleted permanently, instead of being moved to the trash.
    #[serde(default)]
    pub allow_delete: bool,
}

/// Path rules, matched on vault-relative paths. `/` is the vault's root.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Sandbox {
    /// `false` turns these rules off. The vault's own path checks always apply.
    pub enabled: bool,
    /// Folders that tools may access, with everything below them.
    pub allowed_roots: Vec<String>,
    /// Forbidden text in paths. `..` is matched as a whole path segment, anything else as a substring.
    pub deny_patterns: Vec<String>,
    /// Globs for paths that tools may never access.
    pub deny_globs: Vec<String>,
    /// Whether reads may follow links that stay inside the vault. Writes never follow links.
    pub follow_symlinks: bool,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            enabled: true,
            allowed_roots: vec!["/".to_owned()],
            deny_patterns: vec!["..".to_owned(), "://".to_owned()],
            deny_globs: [".obsidian/**", ".git/**", ".trash/**"].map(str::to_owned).to_vec(),
            follow_symlinks: false,
        }
    }
}

/// Every limit has a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyLimits {
    /// Maximum number of calls of one run in flight at the same time.
    pub max_concurrency: u32,
    /// Maximum number of attempts of one call, the first included.
    pub max_attempts: u32,
    /// Steps in one plan.
    pub max_steps: u32,
    /// Iterations of one foreach.
    pub max_iterations: u32,
    /// Milliseconds a run may take.
    pub max_run_ms: u64,
    /// Milliseconds that one call may take, even if it asks for more.
    pub max_call_ms: u64,
    /// Maximum milliseconds between two attempts of a call, even if the failed attempt asks for more. Unset: 300000.
    #[serde(skip_serializing_if = "is_default_retry_delay")]
    pub max_retry_delay_ms: u64,
    /// Bytes one run may write.
    pub max_bytes_written: u64,
    /// Files and folders that one run may delete, including those moved to the trash.
    pub max_deletes: u64,
    /// Bytes of one call's arguments, as JSON.
    pub max_args_bytes: u64,
    /// Bytes of one call's output, as JSON. A larger output is returned by reference.
    pub max_output_bytes: u64,
}

const MAX_RETRY_DELAY_MS: u64 = 300_000;

/// Left out of the JSON, so that the hashes of policies recorded before the limit existed stay as they are.
fn is_default_retry_delay(ms: &u64) -> bool {
    *ms == MAX_RETRY_DELAY_MS
}

impl Default for PolicyLimits {
    fn default() -> Self {
        Self {
            max_concurrency: 16,
            max_attempts: 5,
            max_steps: 10_000,
            max_iterations: 10_000,
            max_run_ms: 3_600_000,
            max_call_ms: 600_000,
            max_retry_delay_ms: MAX_RETRY_DELAY_MS,
            max_bytes_written: 100 << 20,
            max_deletes: 100,
            max_args_bytes: 8 << 20,
            max_output_bytes: 16 << 20,
        }
    }
}

impl Default for PolicySnapshot {
    fn default() -> Self {
        Self {
            confirmations_required: true,
            sandbox: Sandbox::default(),
            limits: PolicyLimits::default(),
            allowed_tools: vec!["*".to_owned()],
            denied_tools: Vec::new(),
            allow_commands: false,
            allow_delete: false,
        }
    }
}
