//! The static check: finds every error of a plan that can be found before a step runs.

mod bindings;
mod compiled;
mod references;
mod summary;
mod tools;

pub use compiled::{CompiledPlan, CompiledStep};
pub use summary::PlanSummary;

use super::{
    reference::{self, Reference, Root},
    scheduler::{StepShape, topological_order},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use toolyard_catalog::{EffectivePolicy, Snapshot, ToolEntry};
use toolyard_protocol::{ActionPlan, ErrorCode, Failure, Idempotency, OnError, RetryPolicy, Step, canonical};

/// What the check found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// True when the plan can be run.
    pub ok: bool,
    /// Hash of the plan.
    pub plan_hash: String,
    /// What keeps it from running.
    pub errors: Vec<Issue>,
    /// What may surprise.
    pub warnings: Vec<Issue>,
    /// What the plan would do, as far as it is known.
    pub summary: PlanSummary,
}

impl CheckReport {
    /// The report as one failure, for callers that only run good plans.
    pub fn to_failure(&self) -> Option<Failure> {
        let first = self.errors.first()?;
        let code = if self.errors.iter().any(|e| e.kind == "limit") {
            ErrorCode::LimitExceeded
        } else {
            ErrorCode::ValidationError
        };
        let more = if self.errors.len() > 1 { format!(" (and {} more)", self.errors.len() - 1) } else { String::new() };
        Some(
            Failure::new(code, format!("the plan cannot be run: {}{more}", first.message))
                .detail("errors", crate::facts::written(&self.errors))
                .retryable(false),
        )
    }
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Issue {
    /// `schema`, `tool`, `dependency`, `path`, `argument`, `limit`, `risk-mismatch`, `safety`, `performance`, `placeholder`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// JSON Pointer into the plan.
    pub path: String,
    /// The step that it concerns, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What is wrong, and with what.
    pub message: String,
}

/// Checks a plan against the tools and the policy of this moment.
pub fn check(plan: &ActionPlan, tools: &Snapshot, policy: &EffectivePolicy) -> (CheckReport, Option<CompiledPlan>) {
    let shared = Arc::new(plan.clone());
    let mut checker = Checker { plan, shared: &shared, tools, policy, errors: Vec::new(), warnings: Vec::new() };
    let plan_hash = canonical::hash(plan).unwrap_or_else(|error| {
        checker.error("schema", String::new(), None, format!("the plan has no hash: {error}"));
        String::new()
    });
    let compiled = checker.run();
    let summary = summary::summarise(plan, tools);
    let report = CheckReport {
        ok: checker.errors.is_empty(),
        plan_hash: plan_hash.clone(),
        errors: checker.errors,
        warnings: checker.warnings,
        summary,
    };
    let compiled = compiled.filter(|_| report.ok).map(|(steps, vars)| {
        let ids: HashSet<&str> = plan.steps.iter().map(|s| s.id.as_str()).collect();
        let mut aliases = HashSet::new();
        for step in &steps {
            let mut note = |r: &Reference| {
                if let Root::Step(id) = &r.root
                    && !ids.contains(id.as_str())
                {
                    aliases.insert(id.clone());
                }
            };
            step.from.iter().for_each(&mut note);
            step.args.iter().for_each(|(_, t)| reference::each_reference(t, &mut note));
        }
        CompiledPlan { plan: shared.clone(), plan_hash, steps, vars, aliases }
    });
    (report, compiled)
}

struct Checker<'a> {
    plan: &'a ActionPlan,
    shared: &'a Arc<ActionPlan>,
    tools: &'a Snapshot,
    policy: &'a EffectivePolicy,
    errors: Vec<Issue>,
    warnings: Vec<Issue>,
}

impl<'a> Checker<'a> {
    fn error(&mut self, kind: &'static str, path: String, step: Option<&Step>, message: String) {
        if self.errors.len() < 100 {
            self.errors.push(Issue { kind: kind.into(), path, step: step.map(|s| s.id.to_string()), message });
        }
    }

    fn warn(&mut self, kind: &'static str, path: String, step: Option<&Step>, message: String) {
        if self.warnings.len() < 100 {
            self.warnings.push(Issue { kind: kind.into(), path, step: step.map(|s| s.id.to_string()), message });
        }
    }

    fn run(&mut self) -> Option<(Vec<CompiledStep>, HashMap<String, String>)> {
        let limits = self.policy.limits().clone();
        let steps = &self.plan.steps;
        if steps.len() > limits.max_steps as usize {
            self.error(
                "limit",
                "/steps".into(),
                None,
                format!("the plan has {} steps; maxSteps is {}", steps.len(), limits.max_steps),
            );
            return None;
        }
        let (positions, vars) = self.names();
        let entries: Vec<Option<Arc<ToolEntry>>> =
            steps.iter().enumerate().map(|(i, step)| self.look_up(i, step)).collect();
        self.check_risk(&entries);

        let names: Vec<&str> = vars.keys().map(String::as_str).collect();
        let mut compiled = Vec::with_capacity(steps.len());
        let mut edges: Vec<Vec<usize>> = Vec::with_capacity(steps.len());
        for (i, step) in steps.iter().enumerate() {
            let mut needs: BTreeSet<usize> = BTreeSet::new();
            for (j, needed) in step.depends_on.iter().enumerate() {
                match positions.get(needed.as_str()) {
                    Some(&p) => drop(needs.insert(p)),
                    None => self.error(
                        "dependency",
                        format!("/steps/{i}/dependsOn/{j}"),
                        Some(step),
                        format!("there is no step {needed}"),
                    ),
                }
            }
            let parts = self.templates(i, step, &names);
            for (place, reference) in &parts.references {
                if let Some(producer) = self.producer(place, step, reference, &positions, &vars) {
                    needs.insert(producer.step);
                    self.check_reference(place, step, reference, &producer, &entries);
                    if *place == references::list_place(i) {
                        self.check_bindings(step, &parts, &producer, &entries);
                    }
                }
            }
            if let Some(entry) = &entries[i] {
                self.check_arguments(i, step, entry, &parts);
            }
            let retry = self.retry_of(step);
            let on_error = step.on_error.or(self.plan.defaults.on_error).unwrap_or(OnError::Stop);
            let definition = entries[i].as_ref().map(|e| e.definition());
            let side_effects = definition.is_some_and(|d| d.has_side_effects());
            edges.push(needs.iter().copied().collect());
            compiled.push(CompiledStep {
                shape: StepShape {
                    depends_on: needs.into_iter().collect(),
                    read_only: !side_effects,
                    foreach: step.foreach.as_ref().map(|f| f.concurrency.unwrap_or(1)),
                    on_error,
                    max_attempts: retry.max_attempts.min(limits.max_attempts).max(1),
                    backoff_ms: retry.backoff_ms,
                },
                args: parts.args,
                from: parts.from,
                side_effects,
                idempotency: definition.map_or(Idempotency::None, |d| d.idempotency),
                plan: self.shared.clone(),
                position: i,
            });
        }
        if let Err(cycle) = topological_order(&edges) {
            self.tell_cycle(&cycle);
            return None;
        }
        self.errors.is_empty().then_some((compiled, vars))
    }

    /// The steps by their ids, and which step captures which name.
    fn names(&mut self) -> (HashMap<&'a str, usize>, HashMap<String, String>) {
        let steps = &self.plan.steps;
        let mut positions: HashMap<&str, usize> = HashMap::new();
        for (i, step) in steps.iter().enumerate() {
            if positions.insert(step.id.as_str(), i).is_some() {
                self.error("schema", format!("/steps/{i}/id"), Some(step), format!("two steps are called {}", step.id));
            }
        }
        let mut vars: HashMap<String, String> = HashMap::new();
        for (i, step) in steps.iter().enumerate() {
            if let Some(name) = &step.capture_as
                && vars.insert(name.clone(), step.id.to_string()).is_some()
            {
                self.error("schema", format!("/steps/{i}/captureAs"), Some(step), format!("two steps capture {name}"));
            }
        }
        (positions, vars)
    }

    fn tell_cycle(&mut self, cycle: &[usize]) {
        let steps = &self.plan.steps;
        let mut names: Vec<&str> = cycle.iter().map(|&i| steps[i].id.as_str()).collect();
        names.extend(cycle.first().map(|&i| steps[i].id.as_str()));
        let at = cycle.first().copied().unwrap_or_default();
        self.error(
            "dependency",
            format!("/steps/{at}"),
            steps.get(at),
            format!("steps depend on each other in a circle: {}", names.join(" -> ")),
        );
    }

    fn retry_of(&self, step: &Step) -> RetryPolicy {
        step.retry.or(self.plan.defaults.retry).unwrap_or_default()
    }
}
