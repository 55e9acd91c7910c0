//! `tool_search_code`: a script in the sandbox, and the bridge that answers its requests.

use crate::{
    arguments::{self, Requester, SearchRequest},
    entries::DescribedTool,
    lookup,
    provider::{ResponseSize, SCRIPT_DOOR, ToolSearch, called, report, tool_answer, unwritable},
    telemetry::{Counters, Telemetry},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::surface::{EffectiveCatalog, Mode};
use toolyard_engine::{BoxFuture, CallContext, NestedCalls, Output};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_sandbox::{Bridge, Cause, Limits, Method, ScriptFailure, wire::ScriptException};

/// Runs the script of a call.
pub(crate) async fn run(
    search: &ToolSearch,
    context: &CallContext,
    args: &Map<String, Value>,
) -> Result<Output, Failure> {
    let code = match args.get("code") {
        Some(Value::String(code)) if !code.trim().is_empty() => code,
        _ => {
            return Err(Failure::new(ErrorCode::ValidationError, "code must be a non-empty string.").retryable(false));
        }
    };
    let calls = context.calls.through(SCRIPT_DOOR);
    let catalog = search.nested_catalog(&calls).await?;
    let telemetry = Telemetry::new(&search.first_surface(&catalog, Mode::Code));
    Counters::add(&search.counters.scripts);
    let stop = context.cancel.child_token();
    // The bridge outlives no script: `run` returns only when every request was answered.
    let (requests, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let bridge = Arc::new(Relay { requests, stop: stop.clone() });
    let limits = Limits { time_ms: search.settings.code_timeout_ms, ..Limits::default() };
    let server = Server { search, calls, stop, telemetry: Mutex::new(telemetry) };
    let ran = {
        let mut script = std::pin::pin!(search.runner.run(code, limits, bridge, context.cancel.clone()));
        let mut open = futures_util::stream::FuturesUnordered::new();
        use futures_util::StreamExt;
        loop {
            tokio::select! {
                ran = &mut script => break ran,
                Some(request) = asked.recv() => open.push(server.serve(request)),
                Some(()) = open.next() => {}
            }
        }
    };
    let telemetry = server.telemetry.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(context, &telemetry)?;
    match ran {
        Ok(finished) => {
            Output::of(&ScriptAnswer { ok: true, value: finished.value, logs: finished.logs, telemetry: &telemetry })
        }
        Err(failure) => {
            Counters::add(&search.counters.failed_scripts);
            if matches!(failure.cause, Cause::TimedOut(_)) {
                Counters::add(&search.counters.timed_out_scripts);
            }
            Err(to_failure(failure).detail("telemetry", serde_json::to_value(&telemetry).map_err(unwritable)?))
        }
    }
}

/// The result of a script that completed.
#[derive(Serialize)]
struct ScriptAnswer<'a> {
    ok: bool,
    value: Value,
    logs: Vec<String>,
    telemetry: &'a Telemetry,
}

/// Passes a script's requests to the call that runs it, so that the call's own context answers them.
struct Relay {
    requests: tokio::sync::mpsc::UnboundedSender<Request>,
    stop: CancellationToken,
}

struct Request {
    method: Method,
    args: Vec<Value>,
    answer: tokio::sync::oneshot::Sender<Result<Value, ScriptException>>,
}

impl Bridge for Relay {
    fn ask(&self, method: Method, args: Vec<Value>) -> BoxFuture<'_, Result<Value, ScriptException>> {
        Box::pin(async move {
            let gone = || ScriptException::new("Error", "the script was stopped");
            if self.stop.is_cancelled() {
                return Err(gone());
            }
            let (answer, answered) = tokio::sync::oneshot::channel();
            self.requests.send(Request { method, args, answer }).map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn stop(&self) {
        self.stop.cancel();
    }
}

/// Answers the script's requests.
struct Server<'a> {
    search: &'a ToolSearch,
    calls: NestedCalls,
    stop: CancellationToken,
    telemetry: Mutex<Telemetry>,
}

impl Server<'_> {
    async fn serve(&self, request: Request) {
        let answer = match request.method {
            Method::Search => self.find(&request.args).await,
            Method::Describe => self.describe(&request.args).await,
            Method::Call => self.call(&request.args).await,
        };
        if request.answer.send(answer.map_err(|failure| thrown(&failure))).is_err() {
            tracing::debug!("a script was stopped before its request was answered");
        }
    }

    /// As it is now: a tool that has gone, or that the policy has come to deny, is not found.
    async fn catalog(&self) -> Result<Arc<EffectiveCatalog>, Failure> {
        self.search.nested_catalog(&self.calls).await
    }

    fn note(&self, change: impl FnOnce(&mut Telemetry)) {
        change(&mut self.telemetry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn find(&self, args: &[Value]) -> Result<Value, Failure> {
        let catalog = self.catalog().await?;
        let settings = &self.search.settings;
        let wanted =
            arguments::search(&search_arguments(args), settings.default_limit, settings.max_limit, Requester::Script)?;
        self.note(|telemetry| telemetry.search_count += 1);
        match &wanted {
            SearchRequest::One(query) => {
                serde_json::to_value(self.search.hits(&catalog, &query.text, query.limit, false))
            }
            SearchRequest::Batch(queries) => {
                serde_json::to_value(self.search.batch(&catalog, queries, ResponseSize::Any, false).results)
            }
        }
        .map_err(unwritable)
    }

    async fn describe(&self, args: &[Value]) -> Result<Value, Failure> {
        let catalog = self.catalog().await?;
        let entry = lookup::find(&catalog, &selector(args)?)?;
        Counters::add(&self.search.counters.describes);
        self.note(|telemetry| {
            telemetry.describe_count += 1;
            telemetry.select(&entry);
        });
        serde_json::to_value(DescribedTool::of(&entry)).map_err(unwritable)
    }

    async fn call(&self, args: &[Value]) -> Result<Value, Failure> {
        let catalog = self.catalog().await?;
        let entry = lookup::find(&catalog, &selector(args)?)?;
        let target = match args.get(1) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(_) => return Err(Failure::new(ErrorCode::ValidationError, "args must be an object.").retryable(false)),
        };
        self.note(|telemetry| {
            telemetry.call_count += 1;
            telemetry.select(&entry);
        });
        let answer = self.search.dispatch(&self.calls, &entry, target, &self.stop).await?;
        self.note(|telemetry| telemetry.called(called(&entry, &answer)));
        serde_json::to_value(tool_answer(&entry, &answer)?).map_err(unwritable)
    }
}

/// `search("q", {limit})`, `search(["q", "r"], {limit})` and `search({query | queries, limit})` in one form.
fn search_arguments(args: &[Value]) -> Map<String, Value> {
    let options = args.get(1).filter(|options| options.is_object()).cloned();
    let mut map = Map::new();
    match args.first() {
        Some(Value::Object(given)) => return given.clone(),
        Some(Value::Array(list)) => {
            let limit = options.as_ref().and_then(|options| options.get("limit")).cloned();
            let entry = |query: &Value| match (query, &limit) {
                (Value::String(_), Some(limit)) => Value::Object(Map::from_iter([
                    ("query".to_owned(), query.clone()),
                    ("limit".to_owned(), limit.clone()),
                ])),
                _ => query.clone(),
            };
            map.insert("queries".to_owned(), Value::Array(list.iter().map(entry).collect()));
        }
        Some(query) => {
            map.insert("query".to_owned(), query.clone());
            map.extend(options.map(|options| ("options".to_owned(), options)));
        }
        None => {}
    }
    map
}

/// A tool is named by its id, or handed over as a search found it.
fn selector(args: &[Value]) -> Result<String, Failure> {
    match args.first() {
        Some(Value::Object(found)) => arguments::selector(found),
        other => arguments::selector(&Map::from_iter(other.map(|id| ("id".to_owned(), id.clone())))),
    }
}

fn thrown(failure: &Failure) -> ScriptException {
    ScriptException {
        code: Some(failure.code.as_str().to_owned()),
        ..ScriptException::new("ToolError", failure.message.clone())
    }
}

fn to_failure(failed: ScriptFailure) -> Failure {
    let message = failed.cause.to_string();
    let failure = match failed.cause {
        Cause::Threw(thrown) => {
            let code = match &thrown.code {
                // A tool's failure that the script let through is that failure.
                Some(code) => ErrorCode::parse(code).unwrap_or(ErrorCode::ValidationError),
                None if thrown.name == "InternalError" || thrown.message.ends_with("lack of memory") => {
                    ErrorCode::LimitExceeded
                }
                None => ErrorCode::ValidationError,
            };
            let failure = Failure::new(code, message).detail("name", thrown.name);
            let failure = match thrown.stack {
                Some(stack) => failure.detail("stack", stack),
                None => failure,
            };
            failure.suggest("Correct the script and run it again; what it called before it failed did happen.")
        }
        Cause::TimedOut(limit) => Failure::new(ErrorCode::Timeout, message)
            .suggest("Do less in one script; tools it had called by then did run.")
            .detail("timeoutMs", limit),
        Cause::Aborted => Failure::new(ErrorCode::Cancelled, message),
        Cause::Died { .. } | Cause::Misbehaved(_) => Failure::new(ErrorCode::LimitExceeded, message)
            .suggest("Use less memory and send less in one script.")
            .retryable(false),
        Cause::Unavailable(_) => Failure::new(ErrorCode::Unavailable, message)
            .suggest("Use tool_search, tool_describe and tool_call instead."),
        Cause::Refused(_) => Failure::new(ErrorCode::ValidationError, message),
    };
    let failure = failure.retryable(false);
    if failed.logs.is_empty() { failure } else { failure.detail("logs", failed.logs) }
}
