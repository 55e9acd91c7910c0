//! The arguments of a call with all references resolved, and the preview line for people.

use super::Executor;
use crate::{
    pipeline::StepCall,
    plan::{
        check::CompiledStep,
        reference::{self, Env},
    },
};
use serde_json::{Map, Value, json};
use toolyard_protocol::{ErrorCode, Failure, Iteration};

impl Executor {
    pub(super) fn env<'a>(&'a self, item: Option<(&'a Value, u64)>, run_id: &'a str, started_at: &'a str) -> Env<'a> {
        Env { steps: &self.outputs, vars: &self.plan.vars, run_id, started_at, context: &self.context, item }
    }

    pub(super) fn step_call(
        &self,
        compiled: &CompiledStep,
        iteration: Option<Iteration>,
        attempt: u32,
        args: Map<String, Value>,
    ) -> StepCall {
        StepCall {
            step_id: compiled.step().id.clone(),
            tool: compiled.step().tool.clone(),
            args,
            preview: compiled.step().preview.as_deref().map(|text| self.preview(compiled, text, iteration.as_ref())),
            iteration,
            attempt,
            timeout_ms: compiled.step().timeout_ms,
            never_ran: false,
            is_alone: false,
            recovered: None,
            cancel: self.scope.cancel.child_token(),
            asking: crate::Asking::default(),
        }
    }

    /// The plan's preview line, with loop bindings replaced if possible. It is for people, so it never fails.
    fn preview(&self, compiled: &CompiledStep, text: &str, iteration: Option<&Iteration>) -> String {
        let (Some(foreach), Some(iteration)) = (&compiled.step().foreach, iteration) else { return text.to_owned() };
        let names = reference::BindingNames {
            item: &foreach.item_name,
            index: foreach.index_name.as_deref().unwrap_or("index"),
        };
        let env = self.env(Some((&iteration.item_value, iteration.index)), "", "");
        let filled =
            reference::compile(&Value::from(text), &[], Some(names)).and_then(|t| reference::resolve(&t, &env));
        match filled {
            Ok(Value::String(line)) => line.chars().take(500).collect(),
            _ => text.to_owned(),
        }
    }

    pub(super) fn resolve(
        &self,
        compiled: &CompiledStep,
        iteration: Option<&Iteration>,
    ) -> Result<Map<String, Value>, Failure> {
        let (run_id, started_at) = if compiled.args.iter().all(|(_, t)| matches!(t, reference::Template::Literal(_))) {
            (String::new(), String::new())
        } else {
            (self.scope.run_id.to_string(), self.started_at.to_string())
        };
        let env = self.env(iteration.map(|i| (&i.item_value, i.index)), &run_id, &started_at);
        let mut args = Map::with_capacity(compiled.args.len());
        for (key, template) in &compiled.args {
            let value = reference::resolve(template, &env).map_err(|e| {
                Failure::new(
                    ErrorCode::ValidationError,
                    format!("step {}, argument {key}: {}", compiled.step().id, e.message),
                )
                .detail("errors", vec![json!({"path": format!("/{key}{}", e.path), "message": e.message})])
                .retryable(false)
            })?;
            args.insert(key.clone(), value);
        }
        Ok(args)
    }
}
