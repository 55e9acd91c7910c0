//! `tools.toolSearch`: the configuration as written, and as resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZeroU64};
use toolyard_catalog::{
    PolicyConfig, PolicyError,
    policy::Selectors,
    surface::{CONTROL_NAMES, Mode, SurfaceSettings},
};

/// The configuration key.
const KEY: &str = "tools.toolSearch";

/// Default timeout of a script, in milliseconds.
pub(crate) const DEFAULT_CODE_TIMEOUT_MS: u64 = 10_000;
/// The least a script gets.
pub(crate) const MIN_CODE_TIMEOUT_MS: u64 = 1_000;
/// The most a script gets.
pub(crate) const MAX_CODE_TIMEOUT_MS: u64 = 60_000;
/// Default number of tools that a search returns.
pub(crate) const DEFAULT_SEARCH_LIMIT: u64 = 8;
/// Default maximum number of tools that a search returns.
pub(crate) const DEFAULT_MAX_SEARCH_LIMIT: u64 = 20;
/// The most the configuration may say.
pub(crate) const MAX_SEARCH_LIMIT: u64 = 50;

/// `tools.toolSearch` as written: `true`, `false`, or a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "tools.toolSearch is true, false, or a table of enabled, mode, alwaysVisible (a list), codeTimeoutMs, searchDefaultLimit and maxSearchLimit (whole numbers above 0)"
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
    /// `code` (the default), `tools` or `directory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Tools that models are shown with their schemas in every mode: names, globs and groups as in policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub always_visible: Vec<String>,
    /// Milliseconds a script gets, the tools it calls included: 1000 to 60000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_timeout_ms: Option<NonZeroU64>,
    /// Default number of tools that a search returns: 1 to `maxSearchLimit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_default_limit: Option<NonZeroU64>,
    /// The most a search returns: 1 to 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_search_limit: Option<NonZeroU64>,
}

/// What the configuration means, every number within its bounds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The settings of what models are shown.
    pub surface: SurfaceSettings,
    /// Milliseconds a script gets.
    pub code_timeout_ms: u64,
    /// Default number of tools that a search returns.
    pub default_limit: usize,
    /// The most a search returns.
    pub max_limit: usize,
}

impl Default for Settings {
    /// Models are shown every tool.
    fn default() -> Self {
        Self {
            surface: SurfaceSettings::default(),
            code_timeout_ms: DEFAULT_CODE_TIMEOUT_MS,
            default_limit: DEFAULT_SEARCH_LIMIT as usize,
            max_limit: DEFAULT_MAX_SEARCH_LIMIT as usize,
        }
    }
}

impl Settings {
    /// Whether models are shown control tools in place of the catalog.
    pub fn is_searching(&self) -> bool {
        self.surface.mode != Mode::Direct
    }

    /// Where Tool Search is on, an allow list or profile that was written for the tools themselves must not shut out
    /// the control tools: they are added to it. A deny list still shuts them out, and a list that admits nothing stays so.
    pub fn admit_controls(&self, policy: &mut PolicyConfig) {
        if !self.is_searching() {
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
    let names = || CONTROL_NAMES.iter().map(|name| (*name).to_owned());
    match allow {
        Some(list) if list.is_empty() => {}
        Some(list) => list.extend(names()),
        None if has_profile => also_allow.extend(names()),
        None => {}
    }
}

impl ToolSearchConfig {
    /// The settings for small local models without configuration: `tools` mode with short answers.
    pub fn lean() -> Self {
        Self::Keys(Options {
            enabled: Some(true),
            mode: Some(Mode::Tools.as_str().to_owned()),
            search_default_limit: NonZeroU64::new(5),
            max_search_limit: NonZeroU64::new(10),
            ..Options::default()
        })
    }

    /// Fills in the defaults. `groups` are the policy's own, which `alwaysVisible` may name.
    ///
    /// # Errors
    /// An unknown mode, a number out of its range, a list that names no group. Nothing is clamped: a number that was
    /// written and not kept would be a setting that does nothing.
    pub fn settings(&self, groups: &BTreeMap<String, Vec<String>>) -> Result<Settings, PolicyError> {
        let (options, is_on) = match self {
            Self::Switch(on) => (Options::default(), *on),
            Self::Keys(options) => {
                let any_other = Options { enabled: None, ..options.clone() } != Options::default();
                (options.clone(), options.enabled.unwrap_or(any_other))
            }
        };
        let wanted = options.mode.as_deref().unwrap_or(Mode::Code.as_str());
        let mode = Mode::searching(wanted).ok_or_else(|| {
            let known = Mode::SEARCHING.map(Mode::as_str).join(", ");
            let shown: String = wanted.chars().take(40).collect();
            PolicyError::new(format!("{KEY}.mode"), format!("there is no mode {shown:?}; use one of {known}"))
        })?;
        let always_visible = Selectors::parse(&format!("{KEY}.alwaysVisible"), &options.always_visible, groups)?;
        let max_limit =
            number("maxSearchLimit", options.max_search_limit, DEFAULT_MAX_SEARCH_LIMIT, (1, MAX_SEARCH_LIMIT))?;
        let default = DEFAULT_SEARCH_LIMIT.min(max_limit);
        Ok(Settings {
            surface: SurfaceSettings { mode: if is_on { mode } else { Mode::Direct }, always_visible },
            code_timeout_ms: number(
                "codeTimeoutMs",
                options.code_timeout_ms,
                DEFAULT_CODE_TIMEOUT_MS,
                (MIN_CODE_TIMEOUT_MS, MAX_CODE_TIMEOUT_MS),
            )?,
            default_limit: number("searchDefaultLimit", options.search_default_limit, default, (1, max_limit))?
                as usize,
            max_limit: max_limit as usize,
        })
    }
}

fn number(key: &str, given: Option<NonZeroU64>, default: u64, (least, most): (u64, u64)) -> Result<u64, PolicyError> {
    match given.map(NonZeroU64::get) {
        None => Ok(default),
        Some(number) if (least..=most).contains(&number) => Ok(number),
        Some(number) => {
            Err(PolicyError::new(format!("{KEY}.{key}"), format!("{number} is not between {least} and {most}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<Settings, PolicyError> {
        let groups = BTreeMap::from([("mine".to_owned(), vec!["vault.*".to_owned()])]);
        serde_json::from_value::<ToolSearchConfig>(value).unwrap().settings(&groups)
    }

    fn settings(value: Value) -> Settings {
        read(value).unwrap()
    }

    fn mode(value: Value) -> Mode {
        settings(value).surface.mode
    }

    #[toolyard_shows::shows("001-3-11")]
    #[test]
    fn a_switch_an_empty_table_and_keys_mean_what_the_contract_says() {
        assert_eq!(Settings::default().surface.mode, Mode::Direct, "unset is off");
        assert_eq!(mode(json!(false)), Mode::Direct);
        assert_eq!(mode(json!(true)), Mode::Code);
        assert_eq!(mode(json!({})), Mode::Direct, "no key at all is off");
        assert_eq!(mode(json!({"mode": "tools"})), Mode::Tools, "any other key switches on");
        assert_eq!(mode(json!({"alwaysVisible": ["vault.readFile"]})), Mode::Code);
        assert_eq!(mode(json!({"mode": "tools", "enabled": false})), Mode::Direct);
        assert_eq!(mode(json!({"mode": "directory"})), Mode::Directory);
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
    fn numbers_within_their_range_are_kept_and_others_are_refused() {
        let all = settings(json!({"codeTimeoutMs": 1000, "searchDefaultLimit": 40, "maxSearchLimit": 50}));
        assert_eq!((all.code_timeout_ms, all.default_limit, all.max_limit), (1_000, 40, 50));
        assert_eq!(settings(json!({"maxSearchLimit": 5})).default_limit, 5, "a default gives way");
        for (bad, what) in [
            (
                json!({"mode": "nonsense"}),
                "tools.toolSearch.mode: there is no mode \"nonsense\"; use one of code, tools, directory",
            ),
            (
                json!({"mode": "direct"}),
                "tools.toolSearch.mode: there is no mode \"direct\"; use one of code, tools, directory",
            ),
            (json!({"codeTimeoutMs": 999}), "tools.toolSearch.codeTimeoutMs: 999 is not between 1000 and 60000"),
            (json!({"codeTimeoutMs": 60_001}), "tools.toolSearch.codeTimeoutMs: 60001 is not between 1000 and 60000"),
            (json!({"maxSearchLimit": 51}), "tools.toolSearch.maxSearchLimit: 51 is not between 1 and 50"),
            (json!({"searchDefaultLimit": 21}), "tools.toolSearch.searchDefaultLimit: 21 is not between 1 and 20"),
            (
                json!({"enabled": false, "mode": "x"}),
                "tools.toolSearch.mode: there is no mode \"x\"; use one of code, tools, directory",
            ),
        ] {
            assert_eq!(read(bad.clone()).unwrap_err().to_string(), what, "{bad}");
        }
        assert!(read(json!({"alwaysVisible": ["group:mine", "ov_*"]})).is_ok());
        let unknown = read(json!({"alwaysVisible": ["group:nobody"]})).unwrap_err();
        assert!(
            unknown.to_string().starts_with("tools.toolSearch.alwaysVisible: there is no group:nobody"),
            "{unknown}"
        );
    }

    #[test]
    fn nonsense_is_refused() {
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
