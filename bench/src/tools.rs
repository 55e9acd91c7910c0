//! The tools of the benchmarks: an echo, a no-op that declares a write, a slow tool, and a list to iterate over.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_engine::{BoxFuture, CallContext, Failed, Output, Prepared, Provider};
use toolyard_protocol::{ErrorCode, ToolCall, ToolDefinition};

/// Returns its arguments; read-only.
pub(crate) const ECHO: &str = "bench.echo";
/// Declares that it writes, and does nothing.
pub(crate) const WRITE: &str = "bench.write";
/// Waits for the requested time; read-only.
pub(crate) const HANG: &str = "bench.hang";
/// A list of numbers; read-only.
pub(crate) const RANGE: &str = "bench.range";

/// Maximum number of items of a list.
const MAX_ITEMS: u64 = 1_000_000;

/// Runs the tools and records the times of writes.
#[derive(Default)]
pub(crate) struct BenchTools {
    writes: Mutex<Vec<Instant>>,
    echoes: AtomicU64,
}

impl BenchTools {
    /// The times of the writes executed since the last call.
    pub(crate) fn take_writes(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.writes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of echoes executed so far.
    pub(crate) fn echoes(&self) -> u64 {
        self.echoes.load(Ordering::Acquire)
    }

    fn answer(&self, call: &ToolCall) -> Result<Output, Failed> {
        match call.tool.as_str() {
            ECHO => {
                self.echoes.fetch_add(1, Ordering::AcqRel);
                Ok(Output::data(call.args.as_ref().clone()))
            }
            WRITE => {
                self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                let number = call.args.get("n").cloned().unwrap_or_default();
                Ok(Output::data(Map::from_iter([("n".to_owned(), number)])))
            }
            RANGE => {
                let count = call.args.get("count").and_then(Value::as_u64).unwrap_or_default().min(MAX_ITEMS);
                let items: Vec<Value> = (0..count).map(Value::from).collect();
                Ok(Output::data(Map::from_iter([("items".to_owned(), Value::from(items))])))
            }
            other => Err(Failed::new(ErrorCode::NotFound, format!("{other} is none of these tools"))),
        }
    }
}

impl Provider for BenchTools {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            if call.tool.as_str() == HANG {
                let time = Duration::from_millis(call.args.get("ms").and_then(Value::as_u64).unwrap_or_default());
                tokio::select! {
                    () = tokio::time::sleep(time) => {}
                    () = context.cancel.cancelled() => return Err(Failed::new(ErrorCode::Cancelled, "stopped")),
                }
                return Ok(Output::data(Map::new()));
            }
            self.answer(call)
        })
    }
}

/// The catalog entries of the tools.
pub(crate) fn entries() -> Result<Vec<ToolEntry>> {
    let echo = json!({
        "type": "object", "additionalProperties": false, "required": ["text", "n"],
        "properties": {"text": {"type": "string", "maxLength": 200}, "n": {"type": "integer", "minimum": 0}},
    });
    let number = json!({
        "type": "object", "additionalProperties": false, "required": ["n"],
        "properties": {"n": {"type": "integer", "minimum": 0}},
    });
    let count = json!({
        "type": "object", "additionalProperties": false, "required": ["count"],
        "properties": {"count": {"type": "integer", "minimum": 0, "maximum": MAX_ITEMS}},
    });
    let items = json!({
        "type": "object", "additionalProperties": false, "required": ["items"],
        "properties": {"items": {"type": "array", "items": {"type": "integer"}}},
    });
    let definitions = [
        json!({
            "name": ECHO, "title": "Echo", "description": "Answers its arguments.", "category": "bench",
            "riskLevel": "read-only", "idempotency": "pure", "inputSchema": echo, "outputSchema": echo,
        }),
        json!({
            "name": WRITE, "title": "Write nothing", "description": "Says that it writes.", "category": "bench",
            "riskLevel": "writes", "idempotency": "idempotent", "sideEffects": ["modify-state"],
            "inputSchema": number, "outputSchema": number,
        }),
        json!({
            "name": HANG, "title": "Hang", "description": "Takes its time.", "category": "bench",
            "riskLevel": "read-only", "idempotency": "pure", "maxTimeoutMs": 3_600_000,
            "inputSchema": {"type": "object", "properties": {"ms": {"type": "integer", "minimum": 0}}},
        }),
        json!({
            "name": RANGE, "title": "Count", "description": "A list of numbers.", "category": "bench",
            "riskLevel": "read-only", "idempotency": "pure", "inputSchema": count, "outputSchema": items,
        }),
    ];
    definitions
        .into_iter()
        .map(|definition| {
            let definition: ToolDefinition = serde_json::from_value(definition).context("a tool of the benchmark")?;
            Ok(ToolEntry::new(definition, ToolSource::core())?)
        })
        .collect()
}
