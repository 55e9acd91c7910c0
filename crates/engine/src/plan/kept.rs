//! A plan as it is kept: without the secrets among its arguments. Its hash is the hash of what is kept.

use super::{
    check::{self, CheckReport, CompiledPlan},
    reference::{self, BindingNames, Template},
};
use crate::{
    Engine,
    engine::Tools,
    scope::RunScope,
    secrets::{RunSecrets, SecretMarks, whole_values},
};
use serde_json::{Map, Value};
use toolyard_catalog::EffectivePolicy;
use toolyard_protocol::{ActionPlan, ErrorCode, Failure, Step, canonical};

impl Engine {
    /// Checks a plan against the tools of this moment. `planHash` is that of the plan as it is kept.
    pub(super) fn compile(&self, plan: &ActionPlan, policy: &EffectivePolicy) -> (CheckReport, Option<CompiledPlan>) {
        let tools = self.tools();
        let (mut report, mut compiled) = check::check(plan, &tools.snapshot, policy);
        let secrets = RunSecrets::new(self.signer().clone());
        if let Ok(Some(kept)) = hide(&secrets, &tools, policy, plan)
            && let Ok(hash) = canonical::hash(&kept)
        {
            report.plan_hash.clone_from(&hash);
            compiled = compiled.map(|compiled| CompiledPlan { plan_hash: hash, ..compiled });
        }
        (report, compiled)
    }
}

/// The plan as its run's record keeps it. The run knows the plan's secrets afterwards.
pub(super) fn kept_plan(scope: &RunScope, plan: &ActionPlan) -> Result<ActionPlan, Failure> {
    let kept = hide(scope.recorder.secrets(), &scope.tools, &scope.policy, plan)?;
    Ok(kept.unwrap_or_else(|| plan.clone()))
}

/// `None` when the plan has no secrets.
fn hide(
    secrets: &RunSecrets,
    tools: &Tools,
    policy: &EffectivePolicy,
    plan: &ActionPlan,
) -> Result<Option<ActionPlan>, Failure> {
    let unwritable = |error: serde_json::Error| {
        Failure::new(ErrorCode::ValidationError, format!("the plan cannot be kept without its secrets: {error}"))
            .retryable(false)
    };
    let mut kept = serde_json::to_value(plan).map_err(unwritable)?;
    if let Some(fields) = kept.as_object() {
        secrets.learn_looks(fields);
    }
    let mut is_changed = false;
    for (index, step) in plan.steps.iter().enumerate() {
        let marks = SecretMarks::of(&tools.snapshot, policy, &step.tool);
        let args: Map<String, Value> = step.args.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        for secret in whole_values(marks, &args) {
            let place = kept.pointer_mut(&format!("/steps/{index}/args{}", secret.path));
            if let Some(place) = place
                && let Some(value) = literal(step, place)
            {
                secrets.learn_value(&value);
                *place = Value::String(secrets.placeholder(&value));
                is_changed = true;
            }
        }
    }
    if !is_changed && !secrets.is_used() {
        return Ok(None);
    }
    secrets.hide_value(&mut kept);
    let kept: ActionPlan = serde_json::from_value(kept).map_err(unwritable)?;
    Ok((kept != *plan).then_some(kept))
}

/// The value that an argument has when the call is made; `None` when the whole argument is a reference or stands in place of
/// a secret already. An argument that mixes text and references is taken as it is written.
fn literal(step: &Step, value: &Value) -> Option<Value> {
    if value.as_str().is_some_and(crate::secrets::is_placeholder) {
        return None;
    }
    let names = step
        .foreach
        .as_ref()
        .map(|f| BindingNames { item: &f.item_name, index: f.index_name.as_deref().unwrap_or("index") });
    match reference::compile(value, &[], names) {
        Ok(Template::Literal(value)) => Some(value),
        Ok(Template::Reference(_) | Template::Binding(_)) => None,
        _ => Some(value.clone()),
    }
}
