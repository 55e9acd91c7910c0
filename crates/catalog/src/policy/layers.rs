//! [`Policy`]: the checked configuration, and the selection of the layers that apply to a subject.

use super::{
    config::{
        ApprovalMode, AskRule, LayerConfig, MAX_APPROVAL_KEEP_MS, MAX_APPROVAL_TIMEOUT_MS, PolicyConfig, Profile,
        RiskRules, Verdict,
    },
    decide::EffectivePolicy,
    sandbox::{LetterCase, PathGlobs, PathRules},
    secrets::{self, SecretArguments},
    selector::{Glob, Selectors, is_builtin_group},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, RwLock},
};
use toolyard_protocol::{Sandbox, WorkspaceId};

/// The doors a layer can be made for.
const DOORS: [&str; 9] = ["cli", "gateway", "http", "mcp", "bridge", "script", "console", HOOKS_DOOR, "internal"];
/// The door of native calls, the only one through which native tools can be called.
const HOOKS_DOOR: &str = "hooks";
/// Maximum number of subjects whose effective policy is cached; beyond it, policies are computed each time.
const MAX_CACHED_SUBJECTS: usize = 1_024;

/// A configuration that cannot be a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PolicyError {
    /// The configuration key, for example `policy.agents.main.allow`.
    pub key: String,
    /// What is wrong there.
    pub problem: String,
}

impl PolicyError {
    /// A problem at a configuration key.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

/// Who asks, as far as the policy cares.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The agent on whose behalf the request is made.
    pub agent: &'a str,
    /// The session, if there is one.
    pub session: Option<&'a str>,
    /// The way in: `gateway`, `mcp`, `cli`.
    pub door: &'a str,
    /// What the credential allows, for example `operator.write`.
    pub scopes: &'a [String],
}

/// Which tools are there for a subject besides those that everybody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibleTools {
    /// Those of the subject's own session.
    pub of_session: bool,
    /// Those that work on what belongs to the owner of the installation.
    pub of_owner: bool,
}

impl Default for VisibleTools {
    fn default() -> Self {
        Self { of_session: false, of_owner: true }
    }
}

/// Whether a pattern names a session. A pattern without a workspace holds in every workspace, because layers restrict.
fn names_session(glob: &Glob, session: &str) -> bool {
    glob.matches(session) || glob.matches(WorkspaceId::of(session).1)
}

/// A rule that asks, ready to match.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) key: String,
    pub(super) tools: Selectors,
    pub(super) paths: PathGlobs,
    pub(super) reason: Option<String>,
    pub(super) timeout_ms: u64,
}

/// One layer, ready to match.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) key: String,
    pub(super) config: LayerConfig,
    pub(super) profile: Option<Profile>,
    pub(super) allow: Option<Selectors>,
    pub(super) also_allow: Selectors,
    pub(super) deny: Selectors,
    pub(super) ask: Vec<Ask>,
    pub(super) paths: PathRules,
    /// The sandbox this layer asks for, when it asks for one.
    pub(super) sandbox: Option<Sandbox>,
}

/// The rules that apply to everybody, in addition to the global layer.
#[derive(Debug)]
pub(super) struct GlobalRules {
    pub(super) config: PolicyConfig,
    pub(super) exempt_tools: Selectors,
    pub(super) exempt_paths: PathGlobs,
    pub(super) secrets: Vec<SecretArguments>,
}

/// The callers to which a layer applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerTarget {
    Agent,
    Session,
    Door,
}

/// Everything that distinguishes the policy of one subject from another's: the positions of the layers that apply, the
/// scopes, the session if it has its own tools, and whether the request came through the hooks' door.
type SubjectKey = (Vec<usize>, Vec<String>, Option<String>, bool, bool);

/// A policy, checked and ready.
#[derive(Debug)]
pub struct Policy {
    global: Arc<GlobalRules>,
    base: Arc<Layer>,
    layers: Vec<(LayerTarget, Glob, Arc<Layer>)>,
    cache: RwLock<HashMap<SubjectKey, Arc<EffectivePolicy>>>,
}

impl Policy {
    /// Checks a configuration and makes it ready. The error names the key that is wrong.
    pub fn compile(config: &PolicyConfig) -> Result<Policy, PolicyError> {
        check_groups(config)?;
        check_limits(config)?;
        let timeout = config.approval.timeout_ms;
        check_timeout("policy.approval.timeoutMs", timeout)?;
        if !(1..=MAX_APPROVAL_KEEP_MS).contains(&config.approval.keep_ms) {
            let problem = format!("must lie between 1 and {MAX_APPROVAL_KEEP_MS}");
            return Err(PolicyError::new("policy.approval.keepMs", problem));
        }
        let exempt_tools =
            Selectors::parse("policy.approval.allowedTools", &config.approval.allowed_tools, &config.groups)?;
        let exempt_paths =
            PathGlobs::new("policy.approval.allowedPaths", &config.approval.allowed_paths, LetterCase::Matters)?;
        let secrets = secrets::compile(config)?;
        let base_config = LayerConfig {
            profile: config.profile,
            allow: config.allow.clone(),
            also_allow: config.also_allow.clone(),
            deny: config.deny.clone(),
            ask: config.ask.clone(),
            ..LayerConfig::default()
        };
        let sandbox = config.sandbox.clone();
        let paths = PathRules::new("policy.sandbox", &sandbox)?;
        let base = layer("policy", base_config, paths, Some(sandbox), &config.groups, timeout)?;
        let mut layers = Vec::new();
        for (kind, table, entries) in [
            (LayerTarget::Agent, "agents", &config.agents),
            (LayerTarget::Session, "sessions", &config.sessions),
            (LayerTarget::Door, "doors", &config.doors),
        ] {
            for (name, entry) in entries {
                let key = format!("policy.{table}.{name}");
                if name.trim().is_empty() {
                    return Err(PolicyError::new(key, "a layer needs a name"));
                }
                if kind == LayerTarget::Door && !DOORS.contains(&name.as_str()) {
                    return Err(PolicyError::new(
                        key,
                        format!("there is no such door; use one of {}", DOORS.join(", ")),
                    ));
                }
                check_narrows(&key, entry, config)?;
                let sandbox = layer_sandbox(entry);
                let paths = PathRules::new(
                    &key,
                    sandbox.as_ref().unwrap_or(&Sandbox { enabled: false, ..Sandbox::default() }),
                )?;
                let compiled = layer(&key, entry.clone(), paths, sandbox, &config.groups, timeout)?;
                layers.push((kind, Glob::new(name), Arc::new(compiled)));
            }
        }
        let config = PolicyConfig {
            agents: BTreeMap::new(),
            sessions: BTreeMap::new(),
            doors: BTreeMap::new(),
            ..config.clone()
        };
        Ok(Self {
            global: Arc::new(GlobalRules { config, exempt_tools, exempt_paths, secrets }),
            base: Arc::new(base),
            layers,
            cache: RwLock::new(HashMap::new()),
        })
    }

    /// The policy that holds for a subject. Subjects under the same layers and scopes share one.
    pub fn effective(&self, subject: &Subject<'_>) -> Arc<EffectivePolicy> {
        self.effective_through(subject, None, VisibleTools::default())
    }

    /// The effective policy of a subject whose request passes a second door. Layers only restrict, so the layers of
    /// both doors apply.
    pub fn effective_through(
        &self,
        subject: &Subject<'_>,
        second_door: Option<&str>,
        visible: VisibleTools,
    ) -> Arc<EffectivePolicy> {
        let matching = |(index, (kind, glob, _)): (usize, &(LayerTarget, Glob, Arc<Layer>))| {
            let matches = match kind {
                LayerTarget::Agent => glob.matches(subject.agent),
                LayerTarget::Session => subject.session.is_some_and(|session| names_session(glob, session)),
                LayerTarget::Door => glob.matches(subject.door) || second_door.is_some_and(|door| glob.matches(door)),
            };
            matches.then_some(index)
        };
        let indices: Vec<usize> = self.layers.iter().enumerate().filter_map(matching).collect();
        let mut scopes = subject.scopes.to_vec();
        scopes.sort_unstable();
        scopes.dedup();
        let is_native = subject.door == HOOKS_DOOR;
        let own = subject.session.filter(|_| visible.of_session).map(str::to_owned);
        let key = (indices, scopes, own, is_native, visible.of_owner);
        // A poisoned lock only means that a thread panicked elsewhere; the cached values are still valid.
        if let Some(known) = self.cache.read().unwrap_or_else(|e| e.into_inner()).get(&key) {
            return Arc::clone(known);
        }
        let chosen = key.0.iter().filter_map(|&index| self.layers.get(index)).map(|(_, _, layer)| Arc::clone(layer));
        let layers = std::iter::once(Arc::clone(&self.base)).chain(chosen).collect();
        let effective = EffectivePolicy::new(Arc::clone(&self.global), layers, key.1.clone(), key.2.clone(), is_native);
        let effective = Arc::new(if visible.of_owner { effective } else { effective.without_owners_tools() });
        let mut cache = self.cache.write().unwrap_or_else(|e| e.into_inner());
        if cache.len() >= MAX_CACHED_SUBJECTS {
            cache.clear();
        }
        Arc::clone(cache.entry(key).or_insert(effective))
    }
}

fn layer(
    key: &str,
    config: LayerConfig,
    paths: PathRules,
    sandbox: Option<Sandbox>,
    groups: &BTreeMap<String, Vec<String>>,
    timeout: u64,
) -> Result<Layer, PolicyError> {
    if config.allow.is_some() && !config.also_allow.is_empty() {
        return Err(PolicyError::new(
            format!("{key}.alsoAllow"),
            "allow and alsoAllow cannot both be set in one place",
        ));
    }
    let list = |name: &str, words: &[String]| Selectors::parse(&format!("{key}.{name}"), words, groups);
    let allow = config.allow.as_deref().map(|words| list("allow", words)).transpose()?;
    let ask = config.ask.iter().enumerate();
    Ok(Layer {
        key: key.to_owned(),
        profile: config.profile,
        allow,
        also_allow: list("alsoAllow", &config.also_allow)?,
        deny: list("deny", &config.deny)?,
        ask: ask
            .map(|(i, rule)| ask_rule(&format!("{key}.ask.{i}"), rule, groups, timeout))
            .collect::<Result<_, _>>()?,
        paths,
        sandbox,
        config,
    })
}

fn ask_rule(
    key: &str,
    rule: &AskRule,
    groups: &BTreeMap<String, Vec<String>>,
    default_timeout: u64,
) -> Result<Ask, PolicyError> {
    if rule.tools.is_empty() {
        return Err(PolicyError::new(format!("{key}.tools"), "name at least one tool; \"*\" stands for all"));
    }
    let timeout_ms = rule.timeout_ms.unwrap_or(default_timeout);
    check_timeout(&format!("{key}.timeoutMs"), timeout_ms)?;
    Ok(Ask {
        key: key.to_owned(),
        tools: Selectors::parse(&format!("{key}.tools"), &rule.tools, groups)?,
        paths: PathGlobs::new(&format!("{key}.paths"), &rule.paths, LetterCase::Ignored)?,
        reason: rule.reason.clone(),
        timeout_ms,
    })
}

/// The path rules that a layer adds; `None` if it has none.
fn layer_sandbox(layer: &LayerConfig) -> Option<Sandbox> {
    (layer.allowed_roots.is_some() || !layer.deny_globs.is_empty()).then(|| Sandbox {
        enabled: true,
        allowed_roots: layer.allowed_roots.clone().unwrap_or_else(|| vec!["/".to_owned()]),
        deny_patterns: vec!["..".to_owned()],
        deny_globs: layer.deny_globs.clone(),
        follow_symlinks: false,
    })
}

fn check_timeout(key: &str, timeout_ms: u64) -> Result<(), PolicyError> {
    if (1..=MAX_APPROVAL_TIMEOUT_MS).contains(&timeout_ms) {
        return Ok(());
    }
    Err(PolicyError::new(key, format!("must lie between 1 and {MAX_APPROVAL_TIMEOUT_MS}")))
}

fn check_groups(config: &PolicyConfig) -> Result<(), PolicyError> {
    for (name, members) in &config.groups {
        let key = format!("policy.groups.{name}");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')) {
            return Err(PolicyError::new(key, "a group's name consists of letters, digits and '_-.'"));
        }
        if is_builtin_group(name) {
            return Err(PolicyError::new(key, format!("group:{name} is built in and cannot be redefined")));
        }
        if config.groups.keys().any(|other| other != name && other.eq_ignore_ascii_case(name)) {
            return Err(PolicyError::new(key, "another group has the same name but for letter case"));
        }
        Selectors::parse(&key, members, &config.groups)?;
        Selectors::parse(&key, &[format!("group:{name}")], &config.groups)?; // finds groups that contain themselves
    }
    Ok(())
}

fn check_limits(config: &PolicyConfig) -> Result<(), PolicyError> {
    let limits = &config.limits;
    for (name, value) in [
        ("maxConcurrency", u64::from(limits.max_concurrency)),
        ("maxAttempts", u64::from(limits.max_attempts)),
        ("maxSteps", u64::from(limits.max_steps)),
        ("maxRunMs", limits.max_run_ms),
        ("maxCallMs", limits.max_call_ms),
        ("maxArgsBytes", limits.max_args_bytes),
        ("maxOutputBytes", limits.max_output_bytes),
    ] {
        if value == 0 {
            return Err(PolicyError::new(format!("policy.limits.{name}"), "with 0 nothing could ever run"));
        }
    }
    Ok(())
}

/// A layer that asks for more than the global policy gives would be silently without effect; it is refused instead.
fn check_narrows(key: &str, layer: &LayerConfig, config: &PolicyConfig) -> Result<(), PolicyError> {
    let fail = |name: &str, global: &str| {
        let problem = format!("a layer can only narrow, and the global policy has {global}");
        Err(PolicyError::new(format!("{key}.{name}"), problem))
    };
    if layer.approval_mode.is_some_and(|mode| mode < config.approval.mode) {
        return fail("approvalMode", &format!("approval.mode {:?}", config.approval.mode).to_lowercase());
    }
    if let Some(rules) = layer.risk {
        for (name, wanted, global) in [
            ("readOnly", rules.read_only, config.risk.read_only),
            ("writes", rules.writes, config.risk.writes),
            ("commands", rules.commands, config.risk.commands),
        ] {
            if wanted.is_some_and(|wanted| wanted < global) {
                return fail(&format!("risk.{name}"), &format!("{global:?}").to_lowercase());
            }
        }
    }
    if layer.allow_commands == Some(true) && !config.allow_commands {
        return fail("allowCommands", "allowCommands = false");
    }
    if layer.allow_delete == Some(true) && !config.allow_delete {
        return fail("allowDelete", "allowDelete = false");
    }
    Ok(())
}

/// The strictest mode of all layers.
pub(super) fn strictest_mode(global: &GlobalRules, layers: &[Arc<Layer>]) -> ApprovalMode {
    layers.iter().filter_map(|layer| layer.config.approval_mode).fold(global.config.approval.mode, Ord::max)
}

/// The strictest risk rules of all layers.
pub(super) fn strictest_risk(global: &GlobalRules, layers: &[Arc<Layer>]) -> RiskRules {
    let tighter = |verdict: Verdict, wanted: Option<Verdict>| wanted.map_or(verdict, |wanted| wanted.max(verdict));
    layers.iter().filter_map(|layer| layer.config.risk).fold(global.config.risk, |rules, more| RiskRules {
        read_only: tighter(rules.read_only, more.read_only),
        writes: tighter(rules.writes, more.writes),
        commands: tighter(rules.commands, more.commands),
    })
}
