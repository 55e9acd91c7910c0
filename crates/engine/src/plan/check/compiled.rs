//! A plan that passed the check, ready to run.

use crate::plan::{
    reference::{Reference, Template},
    scheduler::StepShape,
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use toolyard_protocol::{ActionPlan, Idempotency, Step};

/// A plan with every name looked up and every reference found.
pub struct CompiledPlan {
    /// The plan.
    pub plan: Arc<ActionPlan>,
    /// The hash of the plan.
    pub plan_hash: String,
    /// The compiled steps.
    pub steps: Vec<CompiledStep>,
    /// Captured variables: name to step id.
    pub vars: HashMap<String, String>,
    /// References to single iterations of loops: `<loop>_<n>`.
    pub aliases: HashSet<String>,
}

/// A step, ready to run.
pub struct CompiledStep {
    pub(super) plan: Arc<ActionPlan>,
    pub(super) position: usize,
    /// For the scheduler.
    pub shape: StepShape,
    /// Arguments with their references found.
    pub args: Vec<(String, Template)>,
    /// Where a foreach takes its items from.
    pub from: Option<Reference>,
    /// Whether its calls have side effects.
    pub side_effects: bool,
    /// What may be done with an unknown outcome.
    pub idempotency: Idempotency,
}

impl CompiledStep {
    /// The step as written.
    pub fn step(&self) -> &Step {
        &self.plan.steps[self.position]
    }
}
