//! Small tools, each with one behaviour: echoing, failing a number of times, hanging, panicking, returning wrong
//! output.

use crate::support::entry;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use toolyard_catalog::ToolEntry;
use toolyard_engine::{BoxFuture, CallContext, Failed, Output, Prepared, Provider};
use toolyard_protocol::{EntryKind, ErrorCode, Failure, ToolCall};

#[derive(Default)]
pub(crate) struct Lab {
    /// Every `execute`, in order.
    pub(crate) dispatched: Mutex<Vec<(String, Map<String, Value>)>>,
    failures: Mutex<HashMap<String, u64>>,
    running: AtomicUsize,
    /// The most calls that ran side by side.
    pub(crate) widest: AtomicUsize,
    /// Lets `hang` go on.
    pub(crate) release: Notify,
    /// When set, `execute` writes to this log first.
    pub(crate) log: Mutex<Option<std::sync::Arc<Mutex<Vec<String>>>>>,
}

fn tool(name: &str, risk: &str, idempotency: &str, properties: Value, required: Value, output: Value) -> Value {
    json!({
        "name": name, "title": name, "description": name, "category": "lab", "riskLevel": risk, "idempotency": idempotency,
        "inputSchema": {"type":"object","additionalProperties":false,"properties":properties,"required":required},
        "outputSchema": output,
    })
}

fn with(mut definition: Value, more: Value) -> Value {
    definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    definition
}

impl Lab {
    pub(crate) fn entries() -> Vec<ToolEntry> {
        let any = || json!({"type":"object"});
        let value =
            || json!({"type":"object","additionalProperties":false,"properties":{"value":{}},"required":["value"]});
        [
            tool("lab.echo", "read-only", "pure", json!({"value":{}}), json!(["value"]), value()),
            // Without an output schema: anything may come out, and no path can be checked beforehand.
            {
                let mut open = tool("lab.open", "read-only", "pure", json!({"data":{"type":"object"}}), json!([]), any());
                open.as_object_mut().unwrap().remove("outputSchema");
                open
            },
            tool("lab.items", "read-only", "pure", json!({"items":{"type":"array"}}), json!(["items"]),
                json!({"type":"object","additionalProperties":false,"properties":{"items":{"type":"array"}},"required":["items"]})),
            tool("lab.count", "read-only", "pure", json!({"n":{"type":"integer"}}), json!(["n"]), any()),
            tool("lab.flaky", "read-only", "pure",
                json!({"key":{"type":"string"},"failures":{"type":"integer"},"retryable":{"type":"boolean"},"code":{"type":"string"},"retryAfterMs":{}}),
                json!(["key","failures"]), any()),
            tool("lab.slow", "read-only", "pure", json!({"ms":{"type":"integer"},"value":{}}), json!(["ms"]), any()),
            with(tool("lab.hang", "writes", "none", json!({}), json!([]), any()), json!({"sideEffects":["create-file"]})),
            tool("lab.stubborn", "read-only", "pure", json!({"ms":{"type":"integer"}}), json!(["ms"]), any()),
            tool("lab.panic", "read-only", "pure", json!({"later":{"type":"boolean"}}), json!([]), any()),
            tool("lab.panicWrite", "writes", "none", json!({"later":{"type":"boolean"}}), json!([]), any()),
            tool("lab.panicPrepare", "writes", "none", json!({}), json!([]), any()),
            tool("lab.misshapen", "writes", "none", json!({}), json!([]), value()),
            tool("lab.huge", "read-only", "pure", json!({"bytes":{"type":"integer"}}), json!(["bytes"]),
                json!({"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"}},"required":["text"]})),
            with(tool("lab.command", "commands", "none", json!({"id":{"type":"string"},"failures":{"type":"integer"}}), json!(["id"]), any()),
                json!({"sideEffects":["run-command"]})),
            tool("lab.keyed", "writes", "key", json!({"value":{}}), json!([]), any()),
            tool("lab.same", "writes", "idempotent", json!({"value":{}}), json!([]), any()),
            tool("lab.chatty", "read-only", "pure", json!({"n":{"type":"integer"}}), json!(["n"]), any()),
        ]
        .into_iter()
        .map(|d| {
            let stubborn = d["name"] == "lab.stubborn";
            entry(if stubborn { with(d, json!({"cancellable": false})) } else { d })
        })
        .collect()
    }

    pub(crate) fn calls_of(&self, tool: &str) -> usize {
        self.dispatched.lock().unwrap().iter().filter(|(t, _)| t == tool).count()
    }

    pub(crate) fn total(&self) -> usize {
        self.dispatched.lock().unwrap().len()
    }

    fn note(&self, call: &ToolCall) {
        if let Some(log) = &*self.log.lock().unwrap() {
            log.lock().unwrap().push(format!("execute {}", call.tool));
        }
        self.dispatched.lock().unwrap().push((call.tool.to_string(), call.args.as_ref().clone()));
    }
}

fn out(value: Value) -> Result<Output, Failed> {
    Ok(Output::data(value.as_object().unwrap().clone()))
}

struct Counted<'a>(&'a AtomicUsize);
impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Provider for Lab {
    fn prepare<'a>(&'a self, _: &'a CallContext, call: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        assert!(call.tool.as_str() != "lab.panicPrepare", "prepare does not like this");
        Box::pin(async { Ok(Prepared::default()) })
    }

    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        self.note(call);
        let later = call.args.get("later").and_then(Value::as_bool).unwrap_or(false);
        if call.tool.as_str().starts_with("lab.panic") && !later {
            panic!("before the first await");
        }
        Box::pin(async move {
            let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            let _counted = Counted(&self.running);
            self.widest.fetch_max(now, Ordering::SeqCst);
            let number = |key: &str| call.args.get(key).and_then(Value::as_u64).unwrap_or(0);
            match call.tool.as_str() {
                "lab.echo" => out(json!({"value": call.args["value"]})),
                "lab.open" => {
                    Ok(Output::data(call.args.get("data").and_then(Value::as_object).cloned().unwrap_or_default()))
                }
                "lab.items" => out(json!({"items": call.args["items"]})),
                "lab.count" => out(json!({"items": (0..number("n")).collect::<Vec<_>>()})),
                "lab.flaky" | "lab.command" => {
                    let key = call.args.get("key").or(call.args.get("id")).and_then(Value::as_str).unwrap_or_default();
                    let seen = {
                        let mut failures = self.failures.lock().unwrap();
                        let seen = failures.entry(key.to_owned()).or_default();
                        // A lab that was built anew after a crash still knows which try this is.
                        *seen = (*seen + 1).max(u64::from(call.attempt));
                        *seen
                    };
                    if seen <= number("failures") {
                        let code = call.args.get("code").and_then(Value::as_str).and_then(ErrorCode::parse);
                        let mut failure =
                            Failure::new(code.unwrap_or(ErrorCode::Unavailable), format!("failure {seen}"));
                        failure.retryable = call.args.get("retryable").and_then(Value::as_bool);
                        if let Some(wait) = call.args.get("retryAfterMs") {
                            failure = failure.detail("retryAfterMs", wait.clone());
                        }
                        return Err(Failed::from(failure).debug(Some("the reason behind it".to_owned())));
                    }
                    out(json!({"tries": seen}))
                }
                "lab.slow" => {
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_millis(number("ms"))) => {}
                        () = context.cancel.cancelled() => {
                            return Err(Failed::new(ErrorCode::Cancelled, "told to stop"));
                        }
                    }
                    out(json!({"value": call.args.get("value").cloned().unwrap_or_default()}))
                }
                // Ignores every request to stop; once released it says that it made a file.
                "lab.hang" => {
                    self.release.notified().await;
                    let mut output = Output::default();
                    output.effects.created("late.md", EntryKind::File);
                    Ok(output)
                }
                "lab.stubborn" => {
                    tokio::time::sleep(Duration::from_millis(number("ms"))).await;
                    out(json!({"done": true}))
                }
                "lab.panic" | "lab.panicWrite" => {
                    tokio::task::yield_now().await;
                    panic!("after the first await")
                }
                "lab.misshapen" => {
                    let mut output = Output::default();
                    output.data.insert("surprise".into(), json!(1));
                    output.effects.created("half.md", EntryKind::File);
                    Ok(output)
                }
                "lab.huge" => out(json!({"text": "x".repeat(number("bytes") as usize), "n": 7})),
                "lab.keyed" | "lab.same" => {
                    let mut output = Output::default();
                    output.effects.observe("state");
                    output.data.insert("value".into(), call.args.get("value").cloned().unwrap_or_default());
                    Ok(output)
                }
                "lab.chatty" => {
                    for i in 0..number("n") {
                        context.progress.report(format!("{i}"), None);
                    }
                    out(json!({"said": number("n")}))
                }
                other => Err(Failed::new(ErrorCode::InternalError, format!("no lab tool {other}"))),
            }
        })
    }
}
