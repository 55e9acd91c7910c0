//! A runner and a bridge that answers a few things.

use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::{
    BoxFuture, Bridge, Finished, Limits, Method, ScriptFailure, ScriptRunner, wire::ScriptException,
};

/// Answers `search` and `describe` with what it was asked, `call` with a little behaviour.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) asked: AtomicUsize,
    pub(crate) under_way: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
    pub(crate) stop: CancellationToken,
}

impl Bridge for Echo {
    fn ask(&self, method: Method, args: Vec<Value>) -> BoxFuture<'_, Result<Value, ScriptException>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            let answer = match (method, args.first().and_then(Value::as_str)) {
                (Method::Call, Some("slow")) => {
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_secs(60)) => {}
                        () = self.stop.cancelled() => {}
                    }
                    Ok(json!("slow"))
                }
                (Method::Call, Some("short")) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Ok(json!("short"))
                }
                (Method::Call, Some("fail")) => Err(ScriptException {
                    code: Some("NOT_FOUND".to_owned()),
                    ..ScriptException::new("ToolError", "no such thing")
                }),
                (Method::Call, Some("huge")) => Ok(json!("x".repeat(2 << 20))),
                _ => Ok(json!({"method": method, "args": args})),
            };
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            answer
        })
    }
    fn stop(&self) {
        self.stop.cancel();
    }
}

pub(crate) fn runner() -> ScriptRunner {
    ScriptRunner::with_program(env!("CARGO_BIN_EXE_toolyard-script"))
}

/// Short enough for a test, long enough for a busy machine.
pub(crate) fn limits(time_ms: u64) -> Limits {
    Limits { time_ms, ..Limits::default() }
}

pub(crate) async fn run_with(code: &str, limits: Limits, bridge: &Arc<Echo>) -> Result<Finished, ScriptFailure> {
    runner().run(code, limits, bridge.clone(), CancellationToken::new()).await
}

pub(crate) async fn run(code: &str) -> Result<Finished, ScriptFailure> {
    run_with(code, limits(20_000), &Arc::default()).await
}

pub(crate) async fn value(code: &str) -> Value {
    run(code).await.unwrap_or_else(|e| panic!("{code}: {e:?}")).value
}
