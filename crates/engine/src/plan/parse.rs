//! Reading a plan from text.

use toolyard_protocol::{ActionPlan, ErrorCode, Failure, canonical};

/// Parses a plan from JSON text. Errors contain the place.
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
