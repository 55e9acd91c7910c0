//! A summary of what a plan would do, as far as it is known without running it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, collections::HashSet};
use toolyard_catalog::Snapshot;
use toolyard_protocol::{ActionPlan, RiskLevel};

/// What a plan would do, as far as it is known without running it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// The goal of the plan.
    pub goal: String,
    /// The declared risk.
    pub risk_level: Option<RiskLevel>,
    /// Steps, a loop counted once.
    pub estimated_steps: usize,
    /// Files that would be new.
    pub files_created: Vec<String>,
    /// Files that would change.
    pub files_modified: Vec<String>,
    /// Files that would be deleted.
    pub files_deleted: Vec<String>,
    /// Folders that would be new.
    pub folders_created: Vec<String>,
    /// Commands that would run.
    pub commands_executed: Vec<String>,
    /// Tools, each once.
    pub tools_used: Vec<String>,
    /// Whether a step has a `foreach`.
    pub has_loops: bool,
    /// Whether steps depend on each other.
    pub has_dependencies: bool,
    /// `low`, `medium` or `high`.
    pub estimated_complexity: Cow<'static, str>,
}

pub(super) fn summarise(plan: &ActionPlan, tools: &Snapshot) -> PlanSummary {
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
        let kinds: HashSet<&str> = definition.side_effects.iter().map(|kind| &**kind).collect();
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
    }
    .into();
    summary
}
