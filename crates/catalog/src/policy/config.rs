//! The `[policy]` table of the configuration. Doc comments here are the configuration reference.

use crate::native::NativePreset;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolyard_protocol::{PolicyLimits, RiskLevel, Sandbox};

/// How long a person has to answer by default, in milliseconds.
pub const DEFAULT_APPROVAL_TIMEOUT_MS: u64 = 120_000;
/// The longest a person may be given to answer.
pub const MAX_APPROVAL_TIMEOUT_MS: u64 = 600_000;

/// How long a question stays open by default if its caller can ask for the result later: 7 days.
pub const DEFAULT_APPROVAL_KEEP_MS: u64 = 604_800_000;
/// The longest a question may stay open: 30 days.
pub const MAX_APPROVAL_KEEP_MS: u64 = 2_592_000_000;

/// A ready-made selection of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// `group:util` and `session_status`: enough to answer, nothing that reads or writes notes.
    Minimal,
    /// Files, vault, editor, commands, web, memory, sessions, utilities, and tools of MCP servers and clients.
    Coding,
    /// Messages, memory, sessions, utilities, and tools of MCP servers and clients.
    Messaging,
    /// Every tool, optional ones included.
    Full,
}

/// How approvals are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    /// Nobody is asked unless an `ask` rule names the tool. Denials still apply.
    Yolo,
    /// The risk rules decide: by default reads run, writes are asked for.
    #[default]
    Ask,
    /// Every call is asked for, reads too, except tools named in `approval.allowedTools`.
    Paranoid,
}

/// The decision of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The call runs without a question.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is refused.
    Deny,
}

/// What happens to calls by the tool's risk level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RiskRules {
    /// Tools that only read. Default `allow`.
    #[serde(alias = "read-only")]
    pub read_only: Verdict,
    /// Tools that change files or state. Default `ask`.
    pub writes: Verdict,
    /// Tools that run commands. Default `ask`; without `allowCommands` they are always denied.
    pub commands: Verdict,
}

impl Default for RiskRules {
    fn default() -> Self {
        Self { read_only: Verdict::Allow, writes: Verdict::Ask, commands: Verdict::Ask }
    }
}

impl RiskRules {
    pub(super) fn of(&self, risk: RiskLevel) -> Verdict {
        match risk {
            RiskLevel::ReadOnly => self.read_only,
            RiskLevel::Writes => self.writes,
            RiskLevel::Commands => self.commands,
        }
    }
}

/// When a person is asked, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ApprovalConfig {
    /// `ask` (default), `yolo` or `paranoid`.
    pub mode: ApprovalMode,
    /// Milliseconds that a person has to answer; 1 to 600000.
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: u64,
    /// Milliseconds that a question stays open after its caller stopped waiting, if the caller can ask for the result
    /// later. This applies to the questions of plans and of calls with an idempotency key. 1 to 2592000000 (30 days);
    /// default 7 days. Applies to questions of `toolyard up`.
    #[serde(skip_serializing_if = "is_default_keep")]
    #[schemars(range(min = 1, max = 2_592_000_000u64))]
    pub keep_ms: u64,
    /// Tools (names, globs, groups) that need no approval. An `ask` rule that names the tool still asks.
    pub allowed_tools: Vec<String>,
    /// Globs on vault paths. A call whose path arguments all match needs no approval, except in `paranoid` mode.
    pub allowed_paths: Vec<String>,
}

impl Default for ApprovalConfig {
    fn default() -> Self {
        Self {
            mode: ApprovalMode::Ask,
            timeout_ms: DEFAULT_APPROVAL_TIMEOUT_MS,
            keep_ms: DEFAULT_APPROVAL_KEEP_MS,
            allowed_tools: Vec::new(),
            allowed_paths: Vec::new(),
        }
    }
}

/// The default is not written, so that the hash of a policy that does not name it stays what it was.
fn is_default_keep(keep_ms: &u64) -> bool {
    *keep_ms == DEFAULT_APPROVAL_KEEP_MS
}

/// Asks a person about certain calls, whatever the mode and the risk rules say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskRule {
    /// Tools (names, globs, groups) that the rule applies to.
    pub tools: Vec<String>,
    /// Globs on vault paths. If any are given, the rule applies only to calls with a path argument that matches one of
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Shown to the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds that the person has to answer; at most 600000. Unset: `approval.timeoutMs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: Option<u64>,
}

/// Arguments whose values are kept in the record as an HMAC instead of their text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRule {
    /// Tools (names, globs, groups) that the rule applies to.
    pub tools: Vec<String>,
    /// Names of arguments. A dot leads into an object, and `*` stands for any name or position: `login.pin`, `keys.*`.
    pub arguments: Vec<String>,
}

/// A layer for one agent, session or door. It can only narrow what the global policy admits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LayerConfig {
    /// Only tools of this profile may be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Only these tools may be called; an empty list allows none. Cannot be combined with `alsoAllow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Tools that this layer allows in addition to those of its own `profile`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_allow: Vec<String>,
    /// Tools that may never be called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// More calls that need approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<AskRule>,
    /// A stricter approval mode than the global one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_mode: Option<ApprovalMode>,
    /// Stricter risk rules. For each risk level, the stricter of this rule and the global one applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<LayerRiskRules>,
    /// Tools may access only these folders and everything below them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_roots: Option<Vec<String>>,
    /// More globs for paths that tools may never access.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_globs: Vec<String>,
    /// `false` denies tools that run commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_commands: Option<bool>,
    /// `false` denies permanent deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_delete: Option<bool>,
}

/// A layer's risk rules: only those it wants to tighten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LayerRiskRules {
    /// Tools that only read.
    #[serde(alias = "read-only", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<Verdict>,
    /// Tools that change files or state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Verdict>,
    /// Tools that run commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Verdict>,
}

/// Who may call what. The default: every tool but optional ones, reads run, writes are asked for, commands and
/// permanent deletion are off.
///
/// Lists take tool names, `*` globs (letter case does not matter), groups (`group:vault`, `group:fs`, `group:editor`,
/// `group:util`, `group:memory`, `group:web`, `group:runtime`, `group:sessions`, `group:messaging`, `group:plugins`,
/// `group:openclaw`, `group:client`, and your own from `policy.groups`), a plugin's id for its tools, `<server>__*` for
/// those of one MCP server, and `bundle-mcp` for those of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Only tools of this profile may be called: `minimal`, `coding`, `messaging` or `full`. Without a profile, every
    /// tool except optional ones may be called; an allow list must name optional ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Only these tools may be called; an empty list allows none. Cannot be combined with `alsoAllow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Tools that may be called in addition to those of `profile`, including optional ones. Cannot be combined with
    /// `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_allow: Vec<String>,
    /// Tools that may never be called, whatever other rules and the mode say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Your own groups: `groups.notes = ["vault.*", "editor.*"]` makes `group:notes`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Vec<String>>,
    /// When a person must approve a call.
    pub approval: ApprovalConfig,
    /// Calls that always need approval, even in `yolo` mode. The first matching rule sets the reason and the time to
    /// answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<AskRule>,
    /// Arguments that are secret, beside those that a tool's own schema marks and those that look like credentials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRule>,
    /// The decision for each risk level.
    pub risk: RiskRules,
    /// Which paths of the vault tools may access.
    pub sandbox: Sandbox,
    /// Whether tools that run commands may be called.
    pub allow_commands: bool,
    /// Whether files may be deleted permanently. Moving to the trash is always allowed.
    pub allow_delete: bool,
    /// Limits for each run.
    pub limits: PolicyLimits,
    /// What happens to native calls of coding agents. Set from `hooks.preset`.
    #[serde(skip_deserializing, skip_serializing_if = "NativePreset::is_default")]
    #[schemars(skip)]
    pub native: NativePreset,
    /// Layers by agent id; `*` globs are possible.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, LayerConfig>,
    /// Layers by session key; `*` globs are possible.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sessions: BTreeMap<String, LayerConfig>,
    /// Layers by door: `cli`, `gateway`, `http`, `mcp`, `bridge`, `script`, `console`, `hooks` or `internal`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub doors: BTreeMap<String, LayerConfig>,
}
