//! Checks references: syntax, the existence of the step or context, and whether its output can have the field.

use super::{Checker, bindings::Text};
use crate::plan::{
    reference::{self, BindingNames, BindingPath, Hop, LOOP_COUNTS, Reference, Root, Template},
    schema_path::{PathVerdict, check_path},
};
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::Arc};
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{Schema, Step};

/// The arguments and the list of a step, with their references and places.
#[derive(Default)]
pub(super) struct StepParts {
    pub(super) args: Vec<(String, Template)>,
    pub(super) from: Option<Reference>,
    pub(super) references: Vec<(String, Reference)>,
    /// Fields of the loop's item, with their places.
    bindings: Vec<(String, BindingPath)>,
}

/// The step that a reference takes its value from, or one iteration of it.
pub(super) struct Producer {
    pub(super) step: usize,
    part: ProducerPart,
}

/// What of a step's output a reference begins at.
#[derive(PartialEq)]
enum ProducerPart {
    /// The whole output; a loop's is `{items, results, count, okCount}`.
    Output,
    /// The data of one iteration.
    Iteration,
    /// The counts of a loop, which are always there.
    Counts,
}

impl Checker<'_> {
    pub(super) fn templates(&mut self, i: usize, step: &Step, vars: &[&str]) -> StepParts {
        let mut parts = StepParts::default();
        let bindings = step
            .foreach
            .as_ref()
            .map(|f| BindingNames { item: &f.item_name, index: f.index_name.as_deref().unwrap_or("index") });
        if let Some(foreach) = &step.foreach {
            let place = list_place(i);
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
                    reference::each_binding(&template, &mut |b| parts.bindings.push((place(), b.clone())));
                    reference::each_unbound(value, bindings, &mut |u| self.unbound(place(), step, u, Text::Argument));
                    parts.args.push((key.clone(), template));
                }
                Err(e) => self.error("path", place() + &e.path, Some(step), e.message),
            }
        }
        if let Some(line) = step.preview.clone().map(Value::from) {
            let place = || format!("/steps/{i}/preview");
            reference::each_unbound(&line, bindings, &mut |u| self.unbound(place(), step, u, Text::Preview));
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
                None => return self.executor_value(place, step, reference, name, positions),
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
            return Some(Producer { step: p, part: ProducerPart::Output });
        }
        // `<loop>_<n>` is the nth iteration of a loop, where no step has that name itself.
        let alias = id.rsplit_once('_').filter(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if let Some(&p) =
            alias.and_then(|(base, _)| positions.get(base)).filter(|&&p| self.plan.steps[p].foreach.is_some())
        {
            return Some(Producer { step: p, part: ProducerPart::Iteration });
        }
        self.error("path", place.to_owned(), Some(step), format!("{reference}: there is no step {id}"));
        None
    }

    /// A variable that no step captures: the counts of a loop, or nothing.
    fn executor_value(
        &mut self,
        place: &str,
        step: &Step,
        reference: &Reference,
        name: &str,
        positions: &HashMap<&str, usize>,
    ) -> Option<Producer> {
        let a_loop = positions.get(name).filter(|&&p| self.plan.steps[p].foreach.is_some());
        let why = match (a_loop, &reference.path[..]) {
            (Some(&p), [Hop::Key(count)]) if LOOP_COUNTS.contains(&count.as_str()) => {
                return Some(Producer { step: p, part: ProducerPart::Counts });
            }
            (Some(_), _) => format!("of a loop, $vars has {}; $steps.{name} is its output", LOOP_COUNTS.join(", ")),
            (None, _) if name == "run" => "of the run, $vars has id and startedAt".to_owned(),
            (None, _) => format!("no step captures {name}"),
        };
        self.error("path", place.to_owned(), Some(step), format!("{reference}: {why}"));
        None
    }

    /// Fields of the loop's item that an element of its list cannot have.
    pub(super) fn check_bindings(
        &mut self,
        step: &Step,
        parts: &StepParts,
        producer: &Producer,
        entries: &[Option<Arc<ToolEntry>>],
    ) {
        let (Some(from), Some(foreach)) = (&parts.from, &step.foreach) else { return };
        for (place, binding) in &parts.bindings {
            let path: Vec<Hop> =
                from.path.iter().cloned().chain([Hop::Index(0)]).chain(binding.path.iter().cloned()).collect();
            let of_item = Reference { root: from.root.clone(), path };
            if let Some(PathVerdict::Impossible { fields }) = self.verdict(&of_item, producer, entries)
                && !binding.path.is_empty()
            {
                let written = reference::written(&foreach.item_name, &binding.path);
                let hint = if fields.is_empty() { String::new() } else { format!("; it has {}", fields.join(", ")) };
                let message = format!("{written}: an element of {from} has no such field{hint}");
                self.error("path", place.clone(), Some(step), message);
            }
        }
    }

    fn verdict(
        &self,
        reference: &Reference,
        producer: &Producer,
        entries: &[Option<Arc<ToolEntry>>],
    ) -> Option<PathVerdict> {
        let schema = entries[producer.step].as_ref()?.definition().output_schema.as_ref().map(Schema::parse)?;
        Some(match producer.part {
            ProducerPart::Counts => PathVerdict::Possible,
            ProducerPart::Output if self.plan.steps[producer.step].foreach.is_some() => {
                check_loop_path(&schema, &reference.path)
            }
            ProducerPart::Output | ProducerPart::Iteration => check_path(&schema, &reference.path),
        })
    }

    pub(super) fn check_reference(
        &mut self,
        place: &str,
        step: &Step,
        reference: &Reference,
        producer: &Producer,
        entries: &[Option<Arc<ToolEntry>>],
    ) {
        if let Some(PathVerdict::Impossible { fields }) = self.verdict(reference, producer, entries) {
            let tool = &self.plan.steps[producer.step].tool;
            let is_loop = self.plan.steps[producer.step].foreach.is_some() && producer.part == ProducerPart::Output;
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

/// The JSON Pointer of a step's list in the plan.
pub(super) fn list_place(step: usize) -> String {
    format!("/steps/{step}/foreach/from")
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
