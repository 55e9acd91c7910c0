//! Checks tools: that each exists and is unambiguous, that the plan declares a sufficient risk level, and that the
//! arguments fit.

use super::{Checker, references::StepParts};
use crate::plan::reference::Template;
use serde_json::{Map, Value};
use std::sync::Arc;
use toolyard_catalog::{Decision, Resolution, ToolEntry, did_you_mean};
use toolyard_protocol::{RiskLevel, Step};

impl Checker<'_> {
    pub(super) fn look_up(&mut self, i: usize, step: &Step) -> Option<Arc<ToolEntry>> {
        let path = || format!("/steps/{i}/tool");
        match self.tools.resolve_visible(&step.tool, |entry| self.policy.knows(entry)) {
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
            Resolution::Unknown(suggestions) => {
                let near = suggestions.only(|entry| !self.policy.decide(entry, None).is_denied()).names();
                let hint = did_you_mean(&near).map_or_else(String::new, |question| format!(". {question}"));
                let name: String = step.tool.chars().take(80).collect();
                self.error("tool", path(), Some(step), format!("there is no tool {name:?}{hint}"));
                None
            }
        }
    }

    pub(super) fn check_risk(&mut self, entries: &[Option<Arc<ToolEntry>>]) {
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

    /// Arguments without references are checked whole; with references, as far as their names go.
    pub(super) fn check_arguments(&mut self, i: usize, step: &Step, entry: &ToolEntry, parts: &StepParts) {
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
}

fn risk_word(risk: RiskLevel) -> &'static str {
    match risk {
        RiskLevel::ReadOnly => "read-only",
        RiskLevel::Writes => "writes",
        RiskLevel::Commands => "commands",
    }
}
