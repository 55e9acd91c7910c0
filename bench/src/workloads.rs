//! Plans made of the benchmark's tools.

use crate::tools::{ECHO, RANGE, WRITE};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use toolyard_protocol::ActionPlan;

fn plan(risk: &str, steps: Vec<Value>) -> Result<ActionPlan> {
    let plan = json!({"version": "1.0", "goal": "Measure", "riskLevel": risk, "steps": steps});
    serde_json::from_value(plan).context("a plan of the benchmark")
}

/// Independent echo steps.
pub(crate) fn echoes(count: usize) -> Result<ActionPlan> {
    let step = |n| json!({"id": format!("s{n}"), "tool": ECHO, "args": {"text": format!("step number {n}"), "n": n}});
    plan("read-only", (0..count).map(step).collect())
}

/// Sequential steps that declare a write.
pub(crate) fn writes(count: usize) -> Result<ActionPlan> {
    let step = |n| json!({"id": format!("s{n}"), "tool": WRITE, "args": {"n": n}});
    plan("writes", (0..count).map(step).collect())
}

/// One loop over a list, with 16 concurrent iterations.
pub(crate) fn echo_loop(count: usize) -> Result<ActionPlan> {
    looped(
        "read-only",
        count,
        16,
        json!({"id": "each", "tool": ECHO, "args": {"text": "item number {item}", "n": "{item}"}}),
    )
}

/// One loop of steps that declare a write, with 16 concurrent iterations.
pub(crate) fn write_loop(count: usize) -> Result<ActionPlan> {
    wide_write_loop(count, 16)
}

/// One loop of steps that declare a write, with so many concurrent iterations.
pub(crate) fn wide_write_loop(count: usize, wide: u32) -> Result<ActionPlan> {
    looped("writes", count, wide, json!({"id": "each", "tool": WRITE, "args": {"n": "{item}"}}))
}

fn looped(risk: &str, count: usize, wide: u32, mut each: Value) -> Result<ActionPlan> {
    each["foreach"] = json!({"from": "$steps.list.items", "itemName": "item", "concurrency": wide});
    let list = json!({"id": "list", "tool": RANGE, "args": {"count": count}});
    plan(risk, vec![list, each])
}
