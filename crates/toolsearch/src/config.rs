//! `tools.toolSearch`: what may be written, and what it means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_catalog::PolicyConfig;

/// Milliseconds a script gets when nothing else is said.
pub(crate) const DEFAULT_CODE_TIMEOUT_MS: u64 = 10_000;
/// The least a script gets.
pub(crate) const MIN_CODE_TIMEOUT_MS: u64 = 1_000;
/// The most a script gets.
pub(crate) const MAX_CODE_TIMEOUT_MS: u64 = 60_000;
/// Tools a search returns when nothing else is said.
pub(crate) const DEFAULT_SEARCH_LIMIT: u64 = 8;
/// The most a search returns, unless the configuration says otherwise.
pub(crate) const DEFAULT_MAX_SEARCH_LIMIT: u64 = 20;
/// The most the configuration may say.
pub(crate) const MAX_SEARCH_LIMIT: u64 = 50;

/// How a model reaches the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One tool, `tool_search_code`, that runs a script in a sandbox.
    #[default]
    Code,
    /// Three tools: search, describe, call.
    Tools,
    /// The same three, with a bounded list of names and descriptions in the prompt.
    Directory,
}

impl Mode {
    /// The word used in configurations and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Tools => "tools",
            Self::Directory => "directory",
        }
    }

    /// Reads the word; an unknown one means `code`.
    pub fn from_word(word: &str) -> Self {
        match word.trim().to_ascii_lowercase().as_str() {
            "tools" => Self::Tools,
            "directory" => Self::Directory,
            _ => Self::Code,
        }
    }
}

/// `tools.toolSearch` as written: `true`, `false`, or a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "tools.toolSearch is true, false, or a table of enabled, mode, codeTimeoutMs, searchDefaultLimit and maxSearchLimit (whole numbers above 0)"
)]
pub enum ToolSearchConfig {
    /// On with the defaults, or off.
    Switch(bool),
    /// On, with some keys set.
    Keys(Options),
}

impl Default for ToolSearchConfig {
    fn default() -> Self {
        Self::Switch(false)
    }
}

/// The keys of `tools.toolSearch`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Options {
    /// Whether models see the control tools in place of the catalog. True when any other key is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `code`, `tools` or `directory`; anything else means `code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Milliseconds a script gets, the tools it calls included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_timeout_ms: Option<std::num::NonZeroU64>,
    /// Tools a search returns when nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_default_limit: Option<std::num::NonZeroU64>,
    /// The most a search returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_search_limit: Option<std::num::NonZeroU64>,
}

/// What the configuration means, every number within its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether models see the control tools in place of the catalog.
    pub enabled: bool,
    /// How.
    pub mode: Mode,
    /// Milliseconds a script gets.
    pub code_timeout_ms: u64,
    /// Tools a search returns when nothing else is said.
    pub default_limit: usize,
    /// The most a search returns.
    pub max_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        ToolSearchConfig::default().settings()
    }
}

impl Settings {
    /// Where Tool Search is on, an allow list or profile that was written for the tools themselves must not shut out
    /// the control tools: they are added to it. A deny list still shuts them out, and a list that admits nothing stays so.
    pub fn admit_controls(&self, policy: &mut PolicyConfig) {
        if !self.enabled {
            return;
        }
        admit(&mut policy.allow, &mut policy.also_allow, policy.profile.is_some());
        let layers = policy.agents.values_mut().chain(policy.sessions.values_mut()).chain(policy.doors.values_mut());
        for layer in layers {
            admit(&mut layer.allow, &mut layer.also_allow, layer.profile.is_some());
        }
    }
}

fn admit(allow: &mut Option<Vec<String>>, also_allow: &mut Vec<String>, has_profile: bool) {
    let names = || crate::controls::CONTROL_NAMES.iter().map(|name| (*name).to_owned());
    match allow {
        Some(list) if list.is_empty() => {}
        Some(list) => list.extend(names()),
        None if has_profile => also_allow.extend(names()),
        None => {}
    }
}

impl ToolSearchConfig {
    /// What small local models get where nothing is configured: the three tools, and short answers.
    pub fn lean() -> Self {
        Self::Keys(Options {
            enabled: Some(true),
            mode: Some(Mode::Tools.as_str().to_owned()),
            search_default_limit: std::num::NonZeroU64::new(5),
            max_search_limit: std::num::NonZeroU64::new(10),
            ..Options::default()
        })
    }

    /// Fills in the defaults and clamps the numbers.
    pub fn settings(&self) -> Settings {
        let (options, enabled) = match self {
            Self::Switch(on) => (Options::default(), *on),
            Self::Keys(options) => {
                let any_other = Options { enabled: None, ..options.clone() } != Options::default();
                (options.clone(), options.enabled.unwrap_or(any_other))
            }
        };
        let number = |given: Option<std::num::NonZeroU64>, default: u64, least: u64, most: u64| {
            given.map_or(default, std::num::NonZeroU64::get).clamp(least, most)
        };
        let max_limit = number(options.max_search_limit, DEFAULT_MAX_SEARCH_LIMIT, 1, MAX_SEARCH_LIMIT);
        Settings {
            enabled,
            mode: options.mode.as_deref().map_or(Mode::default(), Mode::from_word),
            code_timeout_ms: number(
                options.code_timeout_ms,
                DEFAULT_CODE_TIMEOUT_MS,
                MIN_CODE_TIMEOUT_MS,
                MAX_CODE_TIMEOUT_MS,
            ),
            default_limit: number(options.search_default_limit, DEFAULT_SEARCH_LIMIT, 1, max_limit) as usize,
            max_limit: max_limit as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn settings(value: Value) -> Settings {
        serde_json::from_value::<ToolSearchConfig>(value).unwrap().settings()
    }

    #[test]
    fn a_switch_an_empty_table_and_keys_mean_what_the_contract_says() {
        assert!(!Settings::default().enabled, "unset is off");
        assert!(settings(json!(true)).enabled);
        assert_eq!(settings(json!(true)).mode, Mode::Code);
        assert!(!settings(json!({})).enabled, "no key at all is off");
        assert!(settings(json!({"mode": "tools"})).enabled, "any other key switches on");
        assert!(!settings(json!({"mode": "tools", "enabled": false})).enabled);
        assert_eq!(settings(json!({"mode": "nonsense"})).mode, Mode::Code);
        assert_eq!(settings(json!({"mode": "directory"})).mode, Mode::Directory);
    }

    #[test]
    fn allow_lists_and_profiles_admit_the_control_tools() {
        let policy = |value: Value| serde_json::from_value::<PolicyConfig>(value).unwrap();
        let on = settings(json!(true));
        let mut listed =
            policy(json!({"allow": ["vault.*"], "agents": {"a": {"profile": "minimal"}, "b": {"allow": []}}}));
        on.admit_controls(&mut listed);
        assert!(listed.allow.unwrap().contains(&"tool_search_code".to_owned()));
        assert!(listed.agents["a"].also_allow.contains(&"tool_call".to_owned()));
        assert_eq!(listed.agents["b"].allow, Some(vec![]), "what admits nothing still does");
        let mut untouched = policy(json!({"allow": ["vault.*"]}));
        Settings::default().admit_controls(&mut untouched);
        assert_eq!(untouched.allow, Some(vec!["vault.*".to_owned()]), "only where it is on");
    }

    #[test]
    fn numbers_are_clamped_and_nonsense_is_refused() {
        let all = settings(json!({"codeTimeoutMs": 1, "searchDefaultLimit": 40, "maxSearchLimit": 1000}));
        assert_eq!((all.code_timeout_ms, all.default_limit, all.max_limit), (1_000, 40, 50));
        let all = settings(json!({"codeTimeoutMs": 10_000_000, "searchDefaultLimit": 40, "maxSearchLimit": 5}));
        assert_eq!((all.code_timeout_ms, all.default_limit, all.max_limit), (60_000, 5, 5));
        for bad in [
            json!({"codeTimeoutMs": 0}),
            json!({"maxSearchLimit": -1}),
            json!({"searchDefaultLimit": 1.5}),
            json!({"sources": []}),
            json!("on"),
        ] {
            assert!(serde_json::from_value::<ToolSearchConfig>(bad.clone()).is_err(), "{bad}");
        }
    }
}
