//! JSON Schemas of the public shapes, generated from the types so that they cannot drift.
//!
//! The folder `schema/` at the root of the repository contains the output of [`all`]; a test in `tests/` compares the
//! two.

use crate::{
    ActionPlan, ErrorCode, ExecutionEvent, PLAN_SCHEMA_ID, PolicySnapshot, RunManifest, ToolCallParts, ToolDefinition,
    ToolResultParts,
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// File name and schema, for every public shape.
pub fn all() -> Vec<(&'static str, Value)> {
    let mut plan = of::<ActionPlan>();
    plan["$id"] = PLAN_SCHEMA_ID.into();
    vec![
        ("action-plan.schema.json", plan),
        ("tool-call.schema.json", of::<ToolCallParts>()),
        ("tool-result.schema.json", of::<ToolResultParts>()),
        ("execution-event.schema.json", of::<ExecutionEvent>()),
        ("tool-definition.schema.json", of::<ToolDefinition>()),
        ("policy-snapshot.schema.json", of::<PolicySnapshot>()),
        ("run.schema.json", of::<RunManifest>()),
        ("error-code.schema.json", of::<ErrorCode>()),
    ]
}

fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().into()
}
