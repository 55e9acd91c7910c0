//! The tools and hooks that the recordings were made with, written anew from what the recordings show of them.

use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_engine::{
    BoxFuture, CallContext, Engine, Failed, Hook, HookCall, HookVerdict, Output, Prepared, Provider,
};
use toolyard_protocol::{ErrorCode, ToolCall, ToolDefinition};

pub(crate) struct Bench;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn said(text: Value, details: Value) -> Result<Output, Failed> {
    Ok(Output::data(object(json!({"content": [{"type": "text", "text": text}], "details": details}))))
}

impl Provider for Bench {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            let p = Value::Object((*call.args).clone());
            match call.tool.as_str() {
                "bench_echo" => said(p["text"].clone(), json!({"id": call.call_id, "p": p})),
                "bench_slow" => {
                    let ms = p["ms"].as_u64().unwrap_or(100);
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_millis(ms)) => {}
                        () = context.cancel.cancelled() => return Err(Failed::new(ErrorCode::Cancelled, "stopped")),
                    }
                    said("slept".into(), json!({"ms": ms, "aborted": false}))
                }
                "bench_fail" => Err(Failed::new(ErrorCode::InternalError, "it broke with test-token-abc123 in hand")),
                "bench_ask" => said("asked ok".into(), json!({"id": call.call_id, "p": p})),
                "bench_big" => {
                    let bytes = p["bytes"].as_u64().unwrap_or(1);
                    said("x".repeat(bytes as usize).into(), json!({"bytes": bytes}))
                }
                "bench_rewrite" | "bench_action" => said(p.to_string().into(), json!({"p": p})),
                "bench_status" => said("st".into(), json!({"status": "error", "error": "soft failure"})),
                _ => said(call.tool.to_string().into(), json!({})),
            }
        })
    }
}

struct BenchHook;

impl Hook for BenchHook {
    fn name(&self) -> &str {
        "bench"
    }

    fn before<'a>(&'a self, call: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        Box::pin(async move {
            match call.tool.name().as_str() {
                "bench_blocked" => HookVerdict::Block { reason: "nope by policy hook".into() },
                "bench_rewrite" => HookVerdict::Rewrite(object(json!({"x": "rewritten"}))),
                "bench_ask" => HookVerdict::Ask {
                    title: "Ask".into(),
                    description: format!("please approve {}", Value::Object(call.args.clone())),
                    timeout_ms: call.args.get("wait").and_then(Value::as_u64).unwrap_or(20_000),
                },
                _ => HookVerdict::Proceed,
            }
        })
    }
}

pub(crate) fn register(engine: &Engine) {
    let any = json!({"type": "object"});
    let text = json!({"type": "object", "required": ["text"], "additionalProperties": false,
        "properties": {"text": {"type": "string"}}});
    let action = json!({"type": "object", "properties": {"action": {"type": "string"}}});
    let tools = [
        ("bench_echo", &text),
        ("bench_slow", &any),
        ("bench_fail", &any),
        ("bench_denied", &any),
        ("bench_blocked", &any),
        ("bench_rewrite", &any),
        ("bench_status", &any),
        ("bench_big", &any),
        ("bench_ask", &any),
        ("bench_action", &action),
    ];
    let entries = tools.into_iter().map(|(name, schema)| {
        let definition: ToolDefinition = serde_json::from_value(json!({
            "name": name, "title": name, "description": format!("{name}. For tests."), "category": "bench",
            "riskLevel": "read-only", "inputSchema": schema, "idempotency": "pure", "defaultTimeoutMs": 60_000,
        }))
        .unwrap();
        ToolEntry::new(definition, ToolSource::plugin("bench")).unwrap()
    });
    let optional: ToolDefinition = serde_json::from_value(json!({
        "name": "bench_opt", "title": "bench_opt", "description": "Optional.", "category": "bench",
        "riskLevel": "read-only", "inputSchema": any, "idempotency": "pure",
    }))
    .unwrap();
    let optional = ToolEntry::new(optional, ToolSource::plugin("bench")).unwrap().with_optional(true);
    engine.register(entries.chain([optional]).collect(), Arc::new(Bench)).unwrap();
    engine.add_hook(Arc::new(BenchHook));
}

/// A tool with side effects, which the recordings have none of.
pub(crate) fn register_write(engine: &Engine) {
    let definition: ToolDefinition = serde_json::from_value(json!({
        "name": "bench_write", "title": "bench_write", "description": "Writes. For tests.", "category": "bench",
        "riskLevel": "writes", "inputSchema": {"type": "object"}, "idempotency": "idempotent", "sideEffects": ["bench.write"],
    }))
    .unwrap();
    let entry = ToolEntry::new(definition, ToolSource::plugin("bench")).unwrap();
    engine.register(vec![entry], Arc::new(Bench)).unwrap();
}
