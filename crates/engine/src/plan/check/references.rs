//! References: that each can be read, leads to a step or a context, and to something its output can have.

use super::Checker;
use crate::plan::{
    reference::{self, BindingNames, Hop, Reference, Root, Template},
    schema_path::{PathVerdict, check_path},
};
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::Arc};
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{Schema, Step};

/// A step's arguments and list, with the references in them and where they stand.
#[derive(Default)]
pub(super) struct StepParts {
    pub(super) args: Vec<(String, Template)>,
    pub(super) from: Option<Reference>,
    pub(super) references: Vec<(String, Reference)>,
}

/// The step that a reference takes its value from, or one iteration of it.
pub(super) struct Producer {
    pub(super) step: usize,
    iteration: bool,
}

impl Checker<'_> {
    pub(super) fn templates(&mut self, i: usize, step: &Step, vars: &[&str]) -> StepParts {
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
    pub(super) fn producer(
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

    pub(super) fn check_reference(
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

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}
