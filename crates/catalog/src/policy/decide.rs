//! [`EffectivePolicy`]: the predicate that decides lists, searches and calls.
//!
//! The part of a decision that depends on the tool alone is computed once for each tool and cached. Arguments can only
//! change a decision towards Deny or Ask, or make an approval unnecessary (`approval.allowedPaths`). A tool that is
//! denied without arguments is therefore denied with any arguments, and a list never contains a tool that a call would
//! refuse by its name.

use super::{
    config::{ApprovalMode, RiskRules, Verdict},
    layers::{Ask, GlobalRules, Layer, strictest_mode, strictest_risk},
    sandbox::common_roots,
    secrets::SecretArguments,
    selector::in_profile,
};
use crate::{
    native::NativeClass,
    registry::{Fingerprint, ToolEntry},
};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};
use toolyard_protocol::{PolicyLimits, PolicySnapshot, RiskLevel, Sandbox, canonical};

/// Maximum number of tools whose decision is cached; beyond it, decisions are computed each time.
const MAX_CACHED_TOOLS: usize = 50_000;

/// The policy's decision about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The call may run.
    Allow,
    /// The call is refused.
    Deny {
        /// Why, for the caller.
        reason: String,
        /// The configuration key that decided.
        rule: String,
    },
    /// A person must be asked first.
    Ask {
        /// Why, for the person.
        reason: String,
        /// The configuration key that decided.
        rule: String,
        /// How long the person has.
        timeout_ms: u64,
    },
}

impl Decision {
    /// Whether the call is denied.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Deny { .. })
    }
}

/// What the tool alone decides.
#[derive(Debug)]
struct ToolVerdict {
    plain: Decision,
    /// Ask rules that name the tool, as (layer, rule), in order.
    asks: Vec<(usize, usize)>,
}

/// The policy that holds for one combination of layers and scopes.
#[derive(Debug)]
pub struct EffectivePolicy {
    global: Arc<GlobalRules>,
    layers: Vec<Arc<Layer>>,
    scopes: Vec<String>,
    /// The session, if it has its own tools.
    own: Option<String>,
    /// Whether the subject comes in through the hooks' door.
    is_native: bool,
    /// Whether the tools are there that work on what belongs to the owner of the installation.
    has_owners_tools: bool,
    mode: ApprovalMode,
    risk: RiskRules,
    allow_commands: bool,
    allow_delete: bool,
    snapshot: Arc<PolicySnapshot>,
    hash: String,
    verdicts: RwLock<HashMap<Fingerprint, Arc<ToolVerdict>>>,
    /// What most of a large catalog's tools share.
    allowed: Arc<ToolVerdict>,
}

impl EffectivePolicy {
    pub(super) fn new(
        global: Arc<GlobalRules>,
        layers: Vec<Arc<Layer>>,
        scopes: Vec<String>,
        own: Option<String>,
        is_native: bool,
    ) -> Self {
        let config = &global.config;
        let mode = strictest_mode(&global, &layers);
        let risk = strictest_risk(&global, &layers);
        let allow_commands = config.allow_commands && layers.iter().all(|l| l.config.allow_commands != Some(false));
        let allow_delete = config.allow_delete && layers.iter().all(|l| l.config.allow_delete != Some(false));
        let snapshot = PolicySnapshot {
            confirmations_required: match mode {
                ApprovalMode::Yolo => false,
                ApprovalMode::Ask => risk.writes == Verdict::Ask,
                ApprovalMode::Paranoid => true,
            },
            sandbox: merged_sandbox(&layers),
            limits: config.limits.clone(),
            allowed_tools: allowed_words(&layers),
            denied_tools: layers.iter().flat_map(|layer| layer.config.deny.iter().cloned()).collect(),
            allow_commands,
            allow_delete,
        };
        let held: Vec<Value> = layers.iter().map(|layer| json!([layer.key, layer.config])).collect();
        let rules = json!({ "snapshot": snapshot, "global": config, "layers": held });
        let hash = canonical::hash(&rules)
            .unwrap_or_else(|_| format!("sha256:{}", canonical::sha256_hex(rules.to_string().as_bytes())));
        let snapshot = Arc::new(snapshot);
        let verdicts = RwLock::new(HashMap::new());
        let allowed = Arc::new(ToolVerdict { plain: Decision::Allow, asks: Vec::new() });
        Self {
            global,
            layers,
            scopes,
            own,
            is_native,
            has_owners_tools: true,
            mode,
            risk,
            allow_commands,
            allow_delete,
            snapshot,
            hash,
            verdicts,
            allowed,
        }
    }

    /// Whether a call may run. Lists and searches ask with `None`; a call asks with its arguments.
    pub fn decide(&self, tool: &ToolEntry, args: Option<&Map<String, Value>>) -> Decision {
        if !self.knows(tool) {
            let (whose, rule) = match tool.native() {
                Some(_) => ("to the hooks of coding agents", "hooks"),
                None => ("to another session", "session"),
            };
            return Decision::Deny { reason: format!("{} belongs {whose}", tool.name()), rule: rule.to_owned() };
        }
        let verdict = self.verdict(tool);
        if verdict.plain.is_denied() {
            return verdict.plain.clone();
        }
        let Some(args) = args else {
            let ask = self.asks(&verdict).find(|rule| rule.paths.is_empty());
            return ask.map_or_else(|| verdict.plain.clone(), |rule| asked(rule, tool));
        };
        if !self.allow_delete && is_permanent_delete(tool, args) {
            return Decision::Deny {
                reason: "removing files for good is off; leave out \"trash\": false to move them to the trash"
                    .to_owned(),
                rule: "policy.allowDelete".to_owned(),
            };
        }
        let paths = if tool.has_path_arguments() { tool.path_arguments(args) } else { Vec::new() };
        for (_, path) in &paths {
            if let Some(denial) = self.layers.iter().find_map(|layer| layer.paths.check(path).err()) {
                return Decision::Deny { reason: denial.reason, rule: denial.rule };
            }
        }
        let fits = |rule: &&Ask| rule.paths.is_empty() || paths.iter().any(|(_, path)| rule.paths.is_match(path));
        if let Some(rule) = self.asks(&verdict).find(fits) {
            return asked(rule, tool);
        }
        let exempt = &self.global.exempt_paths;
        let is_exempt = |path: &str| exempt.is_match(path) && !path.split(['/', '\\']).any(|segment| segment == "..");
        if self.mode != ApprovalMode::Paranoid && !paths.is_empty() && paths.iter().all(|(_, path)| is_exempt(path)) {
            return Decision::Allow;
        }
        verdict.plain.clone()
    }

    /// The same policy for somebody for whom the owner's tools do not exist. Its hash differs, because lists of tools are
    /// kept by it.
    pub(super) fn without_owners_tools(self) -> Self {
        let text = format!("{}\nwithout the owner's tools", self.hash);
        let hash = format!("sha256:{}", canonical::sha256_hex(text.as_bytes()));
        Self { has_owners_tools: false, hash, ..self }
    }

    /// The policy as it is written on calls made under it.
    pub fn snapshot(&self) -> &Arc<PolicySnapshot> {
        &self.snapshot
    }
    /// `sha256:` + hex over the snapshot and every rule behind it. Scopes are not part of it.
    pub fn hash(&self) -> &str {
        &self.hash
    }
    /// Whether the tool exists for the subject: a tool of another session does not, and a native tool exists for hooks only.
    pub fn knows(&self, tool: &ToolEntry) -> bool {
        (tool.native().is_none() || self.is_native)
            && (!tool.is_owners() || self.has_owners_tools)
            && tool.session().is_none_or(|session| self.own.as_deref() == Some(session))
    }
    /// The session whose own tools are visible. Not part of the hash.
    pub fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }
    /// Limits for each run.
    pub fn limits(&self) -> &PolicyLimits {
        &self.snapshot.limits
    }
    /// The approval mode that applies: the strictest of all layers.
    pub fn approval_mode(&self) -> ApprovalMode {
        self.mode
    }

    pub(super) fn secret_rules(&self) -> &[SecretArguments] {
        &self.global.secrets
    }

    /// How long a question stays open if its caller can ask for the result later, in milliseconds.
    pub fn approval_keep_ms(&self) -> u64 {
        self.global.config.approval.keep_ms
    }
    /// How long a caller waits for an answer where no rule says otherwise, in milliseconds.
    pub fn approval_timeout_ms(&self) -> u64 {
        self.global.config.approval.timeout_ms
    }

    fn asks<'a>(&'a self, verdict: &'a ToolVerdict) -> impl Iterator<Item = &'a Ask> {
        verdict.asks.iter().filter_map(|&(layer, rule)| self.layers.get(layer).and_then(|layer| layer.ask.get(rule)))
    }

    fn verdict(&self, tool: &ToolEntry) -> Arc<ToolVerdict> {
        // By fingerprint, not id: a tool that was replaced may have another risk.
        if let Some(known) = self.verdicts.read().unwrap_or_else(|e| e.into_inner()).get(tool.fingerprint()) {
            return Arc::clone(known);
        }
        let mut asks = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let named = layer.ask.iter().enumerate().filter(|(_, rule)| rule.tools.matching(tool).is_some());
            asks.extend(named.map(|(rule, _)| (index, rule)));
        }
        let verdict = match self.plain(tool) {
            Decision::Allow if asks.is_empty() => Arc::clone(&self.allowed),
            plain => Arc::new(ToolVerdict { plain, asks }),
        };
        let mut verdicts = self.verdicts.write().unwrap_or_else(|e| e.into_inner());
        if verdicts.len() >= MAX_CACHED_TOOLS {
            verdicts.clear();
        }
        Arc::clone(verdicts.entry(*tool.fingerprint()).or_insert(verdict))
    }

    /// The answer that needs no arguments, ask rules aside. Denials come first, in whatever mode.
    fn plain(&self, tool: &ToolEntry) -> Decision {
        if let Some(class) = tool.native() {
            return self.native(tool, class);
        }
        if let Some(denial) = self.denial(tool) {
            return denial;
        }
        let risk = tool.definition().risk_level;
        let exempt = || self.global.exempt_tools.matching(tool).is_some();
        let (reason, rule) = match self.mode {
            ApprovalMode::Yolo => return Decision::Allow,
            ApprovalMode::Ask if self.risk.of(risk) == Verdict::Allow || exempt() => return Decision::Allow,
            ApprovalMode::Paranoid if exempt() => return Decision::Allow,
            ApprovalMode::Ask => (describe(risk).to_owned(), format!("policy.risk.{}", risk_key(risk))),
            ApprovalMode::Paranoid => ("every call is asked for".to_owned(), "policy.approval.mode".to_owned()),
        };
        let reason = format!("{}: {reason}", tool.name());
        Decision::Ask { reason, rule, timeout_ms: self.global.config.approval.timeout_ms }
    }

    /// A native call: denied by name where a layer says so, otherwise as the preset says. The lists and risk rules that
    /// select among Toolyard's own tools do not name an agent's, so they do not apply.
    fn native(&self, tool: &ToolEntry, class: NativeClass) -> Decision {
        let name = tool.name();
        for layer in &self.layers {
            if let Some(word) = layer.deny.matching(tool) {
                let reason = format!("{name} is denied ({word})");
                return Decision::Deny { reason, rule: format!("{}.deny", layer.key) };
            }
        }
        let (reason, rule) = (format!("{name}: {}", class.describe()), "hooks.preset".to_owned());
        match self.global.config.native.verdict(class) {
            Verdict::Allow => Decision::Allow,
            Verdict::Ask => Decision::Ask { reason, rule, timeout_ms: self.global.config.approval.timeout_ms },
            Verdict::Deny => Decision::Deny { reason: format!("{reason}, and those calls are refused"), rule },
        }
    }

    fn denial(&self, tool: &ToolEntry) -> Option<Decision> {
        let name = tool.name();
        let deny = |reason: String, rule: String| Some(Decision::Deny { reason, rule });
        for layer in &self.layers {
            if let Some(word) = layer.deny.matching(tool) {
                return deny(format!("{name} is denied ({word})"), format!("{}.deny", layer.key));
            }
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let listed = layer.allow.as_ref().map(|allow| allow.matching(tool).is_some());
            if listed == Some(false) {
                return deny(format!("{name} is not on the allow list"), format!("{}.allow", layer.key));
            }
            let also = layer.also_allow.matching(tool).is_some();
            if let Some(profile) = layer.profile
                && !also
                && !in_profile(profile, tool)
            {
                let profile = format!("{profile:?}").to_lowercase();
                return deny(
                    format!("{name} does not belong to the profile {profile}"),
                    format!("{}.profile", layer.key),
                );
            }
            let named = also || listed == Some(true) || layer.profile == Some(super::Profile::Full);
            if index == 0 && tool.optional() && !named {
                return deny(
                    format!("{name} is optional and no allow list names it"),
                    format!("{}.alsoAllow", layer.key),
                );
            }
        }
        let definition = tool.definition();
        if definition.risk_level == RiskLevel::Commands && !self.allow_commands {
            return deny(format!("{name} runs commands, and those are off"), "policy.allowCommands".to_owned());
        }
        if self.risk.of(definition.risk_level) == Verdict::Deny {
            let rule = format!("policy.risk.{}", risk_key(definition.risk_level));
            return deny(format!("{name}: {}, and those are denied", describe(definition.risk_level)), rule);
        }
        let missing = definition.required_permissions.iter().find(|permission| !self.grants(permission));
        missing.and_then(|permission| {
            deny(
                format!("{name} needs the permission {permission}, which the caller's scopes do not give"),
                "scopes".to_owned(),
            )
        })
    }

    fn grants(&self, permission: &str) -> bool {
        self.scopes.iter().any(|scope| match scope.as_str() {
            "operator.admin" => true,
            "operator.write" if permission.ends_with(":read") || permission.ends_with(":write") => true,
            "operator.read" if permission.ends_with(":read") => true,
            scope => scope == permission,
        })
    }
}

fn asked(rule: &Ask, tool: &ToolEntry) -> Decision {
    let reason = rule.reason.clone().unwrap_or_else(|| format!("{} is asked for by rule", tool.name()));
    Decision::Ask { reason, rule: rule.key.clone(), timeout_ms: rule.timeout_ms }
}

fn describe(risk: RiskLevel) -> &'static str {
    match risk {
        RiskLevel::ReadOnly => "it reads",
        RiskLevel::Writes => "it changes files or state",
        RiskLevel::Commands => "it runs commands",
    }
}

fn risk_key(risk: RiskLevel) -> &'static str {
    match risk {
        RiskLevel::ReadOnly => "readOnly",
        RiskLevel::Writes => "writes",
        RiskLevel::Commands => "commands",
    }
}

fn is_permanent_delete(tool: &ToolEntry, args: &Map<String, Value>) -> bool {
    let deletes = tool.name().as_str() == "vault.delete"
        || tool.definition().side_effects.iter().any(|effect| effect == "delete" || effect.starts_with("delete-"));
    deletes && args.get("trash") == Some(&Value::Bool(false))
}

/// The intersection of the path rules of all layers.
fn merged_sandbox(layers: &[Arc<Layer>]) -> Sandbox {
    let mut active = layers.iter().filter_map(|layer| layer.sandbox.as_ref()).filter(|sandbox| sandbox.enabled);
    let Some(first) = active.next() else {
        return layers.iter().find_map(|layer| layer.sandbox.clone()).unwrap_or_default();
    };
    active.fold(first.clone(), |mut merged, more| {
        merged.allowed_roots = common_roots(&merged.allowed_roots, &more.allowed_roots);
        for (list, words) in
            [(&mut merged.deny_patterns, &more.deny_patterns), (&mut merged.deny_globs, &more.deny_globs)]
        {
            for word in words {
                if !list.contains(word) {
                    list.push(word.clone());
                }
            }
        }
        merged
    })
}

/// What the snapshot shows as allowed: the list of the innermost layer that has one. All of them hold; the hash covers
/// them all.
fn allowed_words(layers: &[Arc<Layer>]) -> Vec<String> {
    let words = |layer: &Arc<Layer>| match (&layer.config.allow, layer.profile) {
        (Some(allow), _) => Some(allow.clone()),
        (None, Some(profile)) => {
            let profile = format!("profile:{profile:?}").to_lowercase();
            Some(std::iter::once(profile).chain(layer.config.also_allow.iter().cloned()).collect())
        }
        (None, None) => None,
    };
    layers.iter().rev().find_map(words).unwrap_or_else(|| vec!["*".to_owned()])
}
