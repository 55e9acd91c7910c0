//! The static check: everything that can be known to be wrong with a plan before a single step runs.

use super::{
    reference::{self, BindingNames, Hop, Reference, Root, Template},
    scheduler::{StepShape, topological_order},
    schema_path::{PathVerdict, check_path},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use toolyard_catalog::{Decision, EffectivePolicy, Snapshot, ToolEntry};
use toolyard_protocol::{ActionPlan, ErrorCode, Failure, OnError, RetryPolicy, RiskLevel, Schema, Step, canonical};

/// What the check found.
#[derive(Debug, Clone, Serialize)]
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
    /// What it would do, as far as can be told.
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
                .detail("errors", serde_json::to_value(&self.errors).unwrap_or_default())
                .retryable(false),
        )
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Issue {
    /// `schema`, `tool`, `dependency`, `path`, `argument`, `limit`, `risk-mismatch`, `safety`, `performance`, `placeholder`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// JSON Pointer into the plan.
    pub path: String,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What is wrong, and with what.
    pub message: String,
}

/// What a plan would do, as far as can be told without running it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// The goal.
    pub goal: String,
    /// The declared risk.
    pub risk_level: Option<RiskLevel>,
    /// Steps, a loop counted once.
    pub estimated_steps: usize,
    /// Files that would be new.
    pub files_created: Vec<String>,
    /// Files that would change.
    pub files_modified: Vec<String>,
    /// Files that would go.
    pub files_deleted: Vec<String>,
    /// Folders that would be new.
    pub folders_created: Vec<String>,
    /// Commands that would run.
    pub commands_executed: Vec<String>,
    /// Tools, each once.
    pub tools_used: Vec<String>,
    /// Whether it loops.
    pub has_loops: bool,
    /// Whether steps depend on each other.
    pub has_dependencies: bool,
    /// `low`, `medium` or `high`.
    pub estimated_complexity: &'static str,
}

/// A plan with every name looked up and every reference found.
pub struct CompiledPlan {
    /// The plan.
    pub plan: Arc<ActionPlan>,
    /// Its hash.
    pub plan_hash: String,
    /// Its steps.
    pub steps: Vec<CompiledStep>,
    /// Captured variables: name to step id.
    pub vars: HashMap<String, String>,
    /// References to single iterations of loops: `<loop>_<n>`.
    pub aliases: HashSet<String>,
}

/// A step, ready to run.
pub struct CompiledStep {
    plan: Arc<ActionPlan>,
    position: usize,
    /// For the scheduler.
    pub shape: StepShape,
    /// Arguments with their references found.
    pub args: Vec<(String, Template)>,
    /// Where a foreach takes its items from.
    pub from: Option<Reference>,
    /// Whether its calls have side effects.
    pub side_effects: bool,
    /// What may be done with an unknown outcome.
    pub idempotency: toolyard_protocol::Idempotency,
}

impl CompiledStep {
    /// The step as written.
    pub fn step(&self) -> &Step {
        &self.plan.steps[self.position]
    }
}

/// Checks a plan against the tools and the policy of this moment.
pub fn check(plan: &ActionPlan, tools: &Snapshot, policy: &EffectivePolicy) -> (CheckReport, Option<CompiledPlan>) {
    let shared = Arc::new(plan.clone());
    let mut checker = Checker { plan, shared: &shared, tools, policy, errors: Vec::new(), warnings: Vec::new() };
    let plan_hash = canonical::hash(plan).unwrap_or_default();
    let compiled = checker.run();
    let summary = summarise(plan, tools);
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
            self.errors.push(Issue { kind, path, step: step.map(|s| s.id.to_string()), message });
        }
    }

    fn warn(&mut self, kind: &'static str, path: String, step: Option<&Step>, message: String) {
        if self.warnings.len() < 100 {
            self.warnings.push(Issue { kind, path, step: step.map(|s| s.id.to_string()), message });
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
                idempotency: definition.map_or(toolyard_protocol::Idempotency::None, |d| d.idempotency),
                plan: self.shared.clone(),
                position: i,
            });
        }
        if let Err(cycle) = topological_order(&edges) {
            let mut names: Vec<&str> = cycle.iter().map(|&i| steps[i].id.as_str()).collect();
            names.extend(cycle.first().map(|&i| steps[i].id.as_str()));
            let at = cycle.first().copied().unwrap_or_default();
            self.error(
                "dependency",
                format!("/steps/{at}"),
                steps.get(at),
                format!("steps depend on each other in a circle: {}", names.join(" -> ")),
            );
            return None;
        }
        self.errors.is_empty().then_some((compiled, vars))
    }

    fn look_up(&mut self, i: usize, step: &Step) -> Option<Arc<ToolEntry>> {
        use toolyard_catalog::Resolution;
        let path = || format!("/steps/{i}/tool");
        match self.tools.resolve(&step.tool) {
            Resolution::Found(entry) => {
                let entry = entry.clone();
                if let Decision::Deny { reason, .. } = self.policy.decide(&entry, None) {
                    self.warn(
                        "safety",
                        path(),
                        Some(step),
                        format!("the policy does not allow {}: {reason}", step.tool),
                    );
                }
                Some(entry)
            }
            Resolution::Ambiguous(ids) => {
                self.error(
                    "tool",
                    path(),
                    Some(step),
                    format!("several tools are called {}: {}", step.tool, ids.join(", ")),
                );
                None
            }
            Resolution::Unknown { suggestions } => {
                // A suggestion must not give away a tool that the caller may not see.
                let may_see = |s: &String| self.tools.get(s).is_some_and(|e| !self.policy.decide(e, None).is_denied());
                let suggestions: Vec<String> = suggestions.into_iter().filter(may_see).collect();
                let hint = if suggestions.is_empty() {
                    String::new()
                } else {
                    format!("; did you mean {}?", suggestions.join(", "))
                };
                let name: String = step.tool.chars().take(80).collect();
                self.error("tool", path(), Some(step), format!("there is no tool {name:?}{hint}"));
                None
            }
        }
    }

    fn check_risk(&mut self, entries: &[Option<Arc<ToolEntry>>]) {
        let Some(highest) = entries.iter().flatten().map(|e| e.definition().risk_level).max() else { return };
        let declared = self.plan.risk_level;
        if highest > declared {
            let culprit = entries
                .iter()
                .position(|e| e.as_ref().is_some_and(|e| e.definition().risk_level > declared))
                .unwrap_or_default();
            let step = self.plan.steps.get(culprit);
            let tool = step.map(|s| s.tool.as_str()).unwrap_or_default().to_owned();
            let (declared, highest) = (risk_word(declared), risk_word(highest));
            self.error(
                "risk-mismatch",
                "/riskLevel".into(),
                step,
                format!("the plan says {declared}, but {tool} is {highest}; say \"riskLevel\":\"{highest}\""),
            );
        } else if highest < declared {
            let (declared, highest) = (risk_word(declared), risk_word(highest));
            self.warn(
                "risk-mismatch",
                "/riskLevel".into(),
                None,
                format!("the plan says {declared}, but no tool in it is more than {highest}"),
            );
        }
    }

    fn templates(&mut self, i: usize, step: &Step, vars: &[&str]) -> StepParts {
        let mut parts = StepParts::default();
        let bindings = step
            .foreach
            .as_ref()
            .map(|f| BindingNames { item: &f.item_name, index: f.index_name.as_deref().unwrap_or("index") });
        if let Some(foreach) = &step.foreach {
            let place = format!("/steps/{i}/foreach/from");
            match reference::parse_reference(&foreach.from, vars) {
                Ok(Some(reference)) => {
                    parts.references.push((place, reference.clone()));
                    parts.from = Some(reference);
                }
                Ok(None) => self.error(
                    "path",
                    place,
                    Some(step),
                    format!("foreach.from must be a reference such as $steps.<id>.items, not {:?}", cut(&foreach.from)),
                ),
                Err(message) => self.error("path", place, Some(step), message),
            }
        }
        for (key, value) in &step.args {
            let place = || format!("/steps/{i}/args/{}", key.replace('~', "~0").replace('/', "~1"));
            match reference::compile(value, vars, bindings) {
                Ok(template) => {
                    reference::each_reference(&template, &mut |r| parts.references.push((place(), r.clone())));
                    if bindings.is_none() && value.as_str().is_some_and(|s| s.starts_with("{item") || s == "{index}") {
                        self.warn(
                            "placeholder",
                            place(),
                            Some(step),
                            "this looks like a loop binding, but the step has no foreach: it stays as it is".into(),
                        );
                    }
                    parts.args.push((key.clone(), template));
                }
                Err(e) => self.error("path", place() + &e.path, Some(step), e.message),
            }
        }
        parts
    }

    /// Which step a reference takes its value from. `None` for references to the run or the context, or after an error.
    fn producer(
        &mut self,
        place: &str,
        step: &Step,
        reference: &Reference,
        positions: &HashMap<&str, usize>,
        vars: &HashMap<String, String>,
    ) -> Option<Producer> {
        let id = match &reference.root {
            Root::Step(id) => id.clone(),
            Root::Var(name) => match vars.get(name) {
                Some(id) => id.clone(),
                None => {
                    self.error("path", place.to_owned(), Some(step), format!("{reference}: no step captures {name}"));
                    return None;
                }
            },
            Root::Context(kind) => {
                if !self.plan.context_requests.iter().any(|r| r.kind == *kind) {
                    self.error(
                        "path",
                        place.to_owned(),
                        Some(step),
                        format!("{reference}: the plan does not ask for this context in contextRequests"),
                    );
                }
                return None;
            }
            Root::RunId | Root::RunStartedAt => return None,
        };
        if let Some(&p) = positions.get(id.as_str()) {
            return Some(Producer { step: p, iteration: false });
        }
        // `<loop>_<n>` is the nth iteration of a loop, where no step has that name itself.
        let alias = id.rsplit_once('_').filter(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if let Some(&p) =
            alias.and_then(|(base, _)| positions.get(base)).filter(|&&p| self.plan.steps[p].foreach.is_some())
        {
            return Some(Producer { step: p, iteration: true });
        }
        self.error("path", place.to_owned(), Some(step), format!("{reference}: there is no step {id}"));
        None
    }

    fn check_reference(
        &mut self,
        place: &str,
        step: &Step,
        reference: &Reference,
        producer: &Producer,
        entries: &[Option<Arc<ToolEntry>>],
    ) {
        let Some(schema) =
            entries[producer.step].as_ref().and_then(|e| e.definition().output_schema.as_ref().map(Schema::parse))
        else {
            return;
        };
        let is_loop = self.plan.steps[producer.step].foreach.is_some() && !producer.iteration;
        let verdict =
            if is_loop { check_loop_path(&schema, &reference.path) } else { check_path(&schema, &reference.path) };
        if let PathVerdict::Impossible { fields } = verdict {
            let tool = &self.plan.steps[producer.step].tool;
            let hint = if fields.is_empty() { String::new() } else { format!("; it has {}", fields.join(", ")) };
            let loop_hint =
                if is_loop { " (the step is a loop: its output is {items, results, count, okCount})" } else { "" };
            self.error(
                "path",
                place.to_owned(),
                Some(step),
                format!("{reference}: the output of {tool} has no such field{hint}{loop_hint}"),
            );
        }
    }

    /// Arguments without references are checked whole; with references, as far as their names go.
    fn check_arguments(&mut self, i: usize, step: &Step, entry: &ToolEntry, parts: &StepParts) {
        let literal: Option<Value> = parts
            .args
            .iter()
            .map(|(k, t)| if let Template::Literal(v) = t { Some((k.clone(), v.clone())) } else { None })
            .collect::<Option<Map<String, Value>>>()
            .filter(|a| a.len() == step.args.len())
            .map(Value::Object);
        if let Some(args) = literal {
            if let Err(violations) = entry.check_input(&args) {
                for v in violations {
                    self.error("argument", format!("/steps/{i}/args{}", v.path), Some(step), v.message);
                }
            } else if let Decision::Deny { reason, .. } = self.policy.decide(entry, args.as_object())
                && !self.policy.decide(entry, None).is_denied()
            {
                self.warn(
                    "safety",
                    format!("/steps/{i}/args"),
                    Some(step),
                    format!("the policy does not allow this: {reason}"),
                );
            }
            return;
        }
        let schema = entry.definition().input_schema.parse();
        let properties = schema.get("properties").and_then(Value::as_object);
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) && !schema.contains_key("patternProperties")
        {
            for key in step.args.keys().filter(|k| !properties.is_some_and(|p| p.contains_key(*k))) {
                self.error(
                    "argument",
                    format!("/steps/{i}/args/{key}"),
                    Some(step),
                    format!("{} has no argument {key:?}", step.tool),
                );
            }
        }
        for required in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            if !step.args.contains_key(required) {
                self.error(
                    "argument",
                    format!("/steps/{i}/args"),
                    Some(step),
                    format!("{} needs the argument {required:?}", step.tool),
                );
            }
        }
    }

    fn retry_of(&self, step: &Step) -> RetryPolicy {
        step.retry.or(self.plan.defaults.retry).unwrap_or_default()
    }
}

#[derive(Default)]
struct StepParts {
    args: Vec<(String, Template)>,
    from: Option<Reference>,
    references: Vec<(String, Reference)>,
}

struct Producer {
    step: usize,
    iteration: bool,
}

/// A loop's output: `{items:[data|null], results:[{index,status,data?,error?}], count, okCount}`.
fn check_loop_path(item: &Map<String, Value>, path: &[Hop]) -> PathVerdict {
    let Some((first, rest)) = path.split_first() else { return PathVerdict::Possible };
    let fields =
        || PathVerdict::Impossible { fields: ["items", "results", "count", "okCount"].map(str::to_owned).to_vec() };
    let Hop::Key(first) = first else { return fields() };
    match (first.as_str(), rest) {
        ("count" | "okCount", []) | ("items" | "results", [] | [Hop::Index(_)]) => PathVerdict::Possible,
        ("items", [Hop::Index(_), rest @ ..]) => check_path(item, rest),
        ("results", [Hop::Index(_), Hop::Key(key), rest @ ..]) => match key.as_str() {
            "data" => check_path(item, rest),
            "index" | "status" if rest.is_empty() => PathVerdict::Possible,
            "error" => PathVerdict::Possible,
            _ => PathVerdict::Impossible { fields: ["index", "status", "data", "error"].map(str::to_owned).to_vec() },
        },
        _ => fields(),
    }
}

fn summarise(plan: &ActionPlan, tools: &Snapshot) -> PlanSummary {
    let mut summary = PlanSummary {
        goal: plan.goal.clone(),
        risk_level: Some(plan.risk_level),
        estimated_steps: plan.steps.len(),
        has_loops: plan.steps.iter().any(|s| s.foreach.is_some()),
        has_dependencies: plan.steps.iter().any(|s| !s.depends_on.is_empty()),
        ..PlanSummary::default()
    };
    let mut used = HashSet::new();
    for step in &plan.steps {
        if used.insert(step.tool.clone()) {
            summary.tools_used.push(step.tool.clone());
        }
        let Some(entry) = tools.get(&step.tool) else { continue };
        let definition = entry.definition();
        if definition.risk_level == RiskLevel::Commands {
            let shown = step.args.get("id").and_then(Value::as_str).unwrap_or(step.tool.as_str());
            summary.commands_executed.push(shown.to_owned());
        }
        let paths: Vec<String> = entry.path_arguments(&step.args).into_iter().map(|(_, p)| p.to_owned()).collect();
        let kinds: HashSet<&str> = definition.side_effects.iter().map(String::as_str).collect();
        let list = if kinds.contains("trash") || kinds.contains("delete") {
            &mut summary.files_deleted
        } else if kinds.contains("modify-file") || kinds.contains("rename") {
            &mut summary.files_modified
        } else if kinds.contains("create-file") {
            &mut summary.files_created
        } else if kinds.contains("create-folder") {
            &mut summary.folders_created
        } else {
            continue;
        };
        list.extend(paths);
    }
    let weight = plan.steps.len() + if summary.has_loops { 10 } else { 0 };
    summary.estimated_complexity = match weight {
        0..=5 => "low",
        6..=20 => "medium",
        _ => "high",
    };
    summary
}

fn risk_word(risk: RiskLevel) -> &'static str {
    match risk {
        RiskLevel::ReadOnly => "read-only",
        RiskLevel::Writes => "writes",
        RiskLevel::Commands => "commands",
    }
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Reads a plan from JSON text; what is wrong is named with its place.
pub fn parse_plan(text: &[u8]) -> Result<ActionPlan, Failure> {
    /// A plan larger than this is refused unread.
    const MAX_PLAN_BYTES: usize = 16 << 20;
    if text.len() > MAX_PLAN_BYTES {
        return Err(Failure::new(
            ErrorCode::LimitExceeded,
            format!("the plan is {} bytes; the most is {MAX_PLAN_BYTES}", text.len()),
        )
        .detail("limit", "planBytes")
        .detail("value", MAX_PLAN_BYTES as u64)
        .retryable(false));
    }
    let plan: ActionPlan = serde_json::from_slice(text).map_err(|e| {
        Failure::new(ErrorCode::ValidationError, format!("the plan cannot be read: {e}"))
            .suggest("The plan's schema is schema/action-plan.schema.json; unknown keys are errors.")
            .detail("line", e.line() as u64)
            .detail("column", e.column() as u64)
            .retryable(false)
    })?;
    check_plan_integers(&plan)?;
    Ok(plan)
}

/// Numbers that would not survive hashing are refused with their place.
fn check_plan_integers(plan: &ActionPlan) -> Result<(), Failure> {
    for (i, step) in plan.steps.iter().enumerate() {
        for (key, value) in &step.args {
            canonical::check_integers(value).map_err(|e| {
                Failure::new(ErrorCode::ValidationError, format!("step {}, argument {key}: {e}", step.id))
                    .detail("path", format!("/steps/{i}/args/{key}"))
                    .retryable(false)
            })?;
        }
    }
    Ok(())
}
