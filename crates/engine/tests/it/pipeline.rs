//! One call, from its name to its result.

use crate::{
    files::Dies,
    lab::Lab,
    support::{
        BenchParts, agent, bench, bench_under, bench_with, code, data, detail, entry, entry_of, limits, object, person,
        quick, request, until, within, yolo,
    },
};
use serde_json::{Map, Value, json};
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use toolyard_catalog::ToolSource;
use toolyard_engine::{
    BoxFuture, CallContext, CallRequest, EngineOptions, Failed, Hook, HookCall, HookVerdict, Output, Prepared,
    Provider, Store, Subscription, store::RunFilter,
};
use toolyard_protocol::{EventType, ResultStatus, RunStatus, ToolCall, ToolResult};

fn error_paths(result: &ToolResult) -> Vec<String> {
    let errors = detail(result.error.as_ref().unwrap(), "errors").as_array().cloned().unwrap_or_default();
    errors.iter().map(|e| e["path"].as_str().unwrap().to_owned()).collect()
}

#[toolyard_shows::shows("002-3.1-26", "002-5-03")]
#[tokio::test]
async fn an_unknown_tool_is_not_found_with_a_suggestion_and_recorded_as_refused() {
    let b = bench();
    let result = b.call("lab.ecko", json!({"value": 1})).await;
    assert_eq!((result.status, code(&result)), (ResultStatus::Error, "NOT_FOUND"));
    assert_eq!(detail(result.error.as_ref().unwrap(), "suggestions")[0], "lab.echo");
    let export = b.export(result.run_id);
    assert!(export.calls.is_empty());
    assert_eq!(export.results, [result]);
    assert_eq!(export.manifest.status, RunStatus::Failed);
}

#[tokio::test]
async fn suggestions_do_not_give_away_tools_the_caller_may_not_use() {
    let b = bench_under(json!({"approval": {"mode": "yolo"}, "deny": ["lab.echo"]}));
    let result = b.call("lab.ecko", json!({"value": 1})).await;
    assert!(!serde_json::to_string(&result).unwrap().contains("lab.echo"), "{result:?}");
}

#[tokio::test]
async fn a_name_that_is_not_even_a_name_is_refused_without_a_panic() {
    let b = bench();
    for name in ["", " ", "../../etc", "naïve\n", &"x".repeat(10_000)] {
        assert_eq!(code(&b.call(name, json!({})).await), "NOT_FOUND", "{name}");
    }
}

#[tokio::test]
async fn an_ambiguous_name_lists_the_ids_and_an_id_settles_it() {
    let b = bench();
    let twin = json!({"name":"lab.echo","title":"t","description":"d","category":"x","riskLevel":"read-only","idempotency":"pure",
        "inputSchema":{"type":"object"}});
    b.engine.register(vec![entry_of(twin, ToolSource::plugin("other"))], b.lab.clone()).unwrap();
    let result = b.call("lab.echo", json!({"value": 1})).await;
    assert_eq!(code(&result), "VALIDATION_ERROR");
    let ids: Vec<String> = serde_json::from_value(detail(result.error.as_ref().unwrap(), "ids").clone()).unwrap();
    assert_eq!(ids.len(), 2);
    for id in ids {
        assert!(b.call(&id, json!({"value": 1})).await.ok, "{id}");
    }
    assert_eq!(b.lab.calls_of("lab.echo"), 2);
}

#[toolyard_shows::shows("002-3.1-25", "002-3.2-15", "002-5-01")]
#[tokio::test]
async fn invalid_arguments_name_every_path_and_dispatch_nothing() {
    let b = bench();
    let result = b.call("file.write", json!({"path": 5, "surprise": true})).await;
    assert_eq!(code(&result), "VALIDATION_ERROR");
    assert_eq!(result.error.as_ref().unwrap().retryable, Some(false));
    let paths = error_paths(&result);
    assert!(paths.iter().any(|p| p == "/path"), "{paths:?}");
    assert!(paths.len() >= 3, "the missing and the surplus argument are named too: {:?}", result.error);
    assert!(b.export(result.run_id).calls.is_empty());
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn arguments_larger_than_the_policy_allows_are_refused_with_the_limit() {
    let b = bench_under(limits(json!({"maxArgsBytes": 1000})));
    let result = b.call("lab.echo", json!({"value": "x".repeat(2000)})).await;
    assert_eq!(code(&result), "LIMIT_EXCEEDED");
    assert_eq!(detail(result.error.as_ref().unwrap(), "limit"), "maxArgsBytes");
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test]
async fn integers_that_other_json_readers_would_round_are_refused_with_their_place() {
    let b = bench();
    let result = b.call("lab.echo", json!({"value": {"deep": [1, 9_007_199_254_740_993_u64]}})).await;
    assert_eq!(code(&result), "VALIDATION_ERROR");
    assert_eq!(error_paths(&result), ["/value/deep/1"]);
    assert_eq!(b.lab.total(), 0);
}

#[toolyard_shows::shows("002-3.1-27", "002-3.1-28", "002-5-02")]
#[tokio::test]
async fn a_denied_call_gets_a_policy_denied_result_and_is_not_dispatched() {
    let b = bench_under(json!({"approval": {"mode": "yolo"}, "deny": ["lab.echo"]}));
    let result = b.call("lab.echo", json!({"value": 1})).await;
    assert_eq!((result.status, code(&result)), (ResultStatus::Error, "POLICY_DENIED"));
    assert_eq!(b.lab.total(), 0);
    let outside = b.call("file.write", json!({"path": "../x", "content": ""})).await;
    assert_eq!(code(&outside), "POLICY_DENIED");
    assert_eq!(b.disk.changes(), 0);
}

#[toolyard_shows::shows("002-0-02", "002-0-05", "002-0-06", "002-1-01")]
#[tokio::test]
async fn an_ordinary_call_ends_ok_and_its_record_says_the_same() {
    let b = bench();
    let result = b.call("file.write", json!({"path": "a.md", "content": "hi"})).await;
    assert!(result.ok);
    assert_eq!(result.effects.as_ref().unwrap().created[0].path, "a.md");
    let export = b.export(result.run_id);
    assert_eq!(export.results, [result]);
    assert_eq!(export.calls.len(), 1);
    assert_eq!(export.manifest.status, RunStatus::Finished);
}

// Hooks.

type Verdicts = Box<dyn Fn(&Map<String, Value>) -> HookVerdict + Send + Sync>;

struct Rule {
    name: &'static str,
    verdict: Verdicts,
    after: Mutex<Vec<ToolResult>>,
}

fn hook(name: &'static str, verdict: impl Fn(&Map<String, Value>) -> HookVerdict + Send + Sync + 'static) -> Arc<Rule> {
    Arc::new(Rule { name, verdict: Box::new(verdict), after: Mutex::default() })
}

impl Hook for Rule {
    fn name(&self) -> &str {
        self.name
    }
    fn before<'a>(&'a self, call: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        Box::pin(async move { (self.verdict)(call.args) })
    }
    fn after(&self, result: &ToolResult) {
        self.after.lock().unwrap().push(result.clone());
    }
}

#[tokio::test]
async fn a_hook_can_block_and_is_named() {
    let b = bench();
    b.engine.add_hook(hook("guard", |_| HookVerdict::Block { reason: "not today".into() }));
    let result = b.call("lab.echo", json!({"value": 1})).await;
    assert_eq!(code(&result), "POLICY_DENIED");
    assert_eq!(result.error.as_ref().unwrap().message, "not today");
    assert_eq!(detail(result.error.as_ref().unwrap(), "hook"), "guard");
    assert_eq!(b.lab.total(), 0);
}

#[toolyard_shows::shows("002-4-10", "002-4-11")]
#[tokio::test]
async fn rewritten_arguments_are_used_recorded_and_seen_by_the_next_hook() {
    let b = bench();
    b.engine.add_hook(hook("one", |_| HookVerdict::Rewrite(object(json!({"value": "rewritten"})))));
    let second = hook("two", |args| {
        assert_eq!(args["value"], "rewritten");
        HookVerdict::Proceed
    });
    b.engine.add_hook(second.clone());
    let result = b.call("lab.echo", json!({"value": 1})).await;
    assert_eq!(data(&result), json!({"value": "rewritten"}));
    assert_eq!(b.export(result.run_id).calls[0].args["value"], "rewritten");
    assert_eq!(second.after.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn rewritten_arguments_are_validated_again() {
    let b = bench();
    b.engine.add_hook(hook("one", |_| HookVerdict::Rewrite(object(json!({"nonsense": true})))));
    let result = b.call("lab.echo", json!({"value": 1})).await;
    assert_eq!(code(&result), "VALIDATION_ERROR");
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test]
async fn rewritten_arguments_are_decided_by_the_policy_again() {
    let b = bench();
    let to = object(json!({"path": ".git/config", "content": "x"}));
    b.engine.add_hook(hook("one", move |_| HookVerdict::Rewrite(to.clone())));
    let result = b.call("file.write", json!({"path": "a.md", "content": "x"})).await;
    assert_eq!(code(&result), "POLICY_DENIED");
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn a_hook_that_panics_stops_the_call_and_not_the_engine() {
    let b = bench();
    b.engine.add_hook(hook("broken", |_| panic!("a hook with a defect")));
    let result = b.call("lab.echo", json!({"value": 1})).await;
    assert_eq!(code(&result), "INTERNAL_ERROR");
    assert_eq!(b.lab.total(), 0);
}

struct Stuck;
impl Hook for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }
    fn before<'a>(&'a self, _: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_is_under_the_calls_own_deadline() {
    let b = bench();
    b.engine.add_hook(Arc::new(Stuck));
    let result = b
        .answer(person(), CallRequest { timeout_ms: Some(50), ..request("lab.echo", json!({"value": 1})) })
        .await
        .result;
    assert_eq!((result.status, code(&result)), (ResultStatus::Timeout, "TIMEOUT"));
    assert_eq!(b.lab.total(), 0);
}

// Time, stops, panics.

#[toolyard_shows::shows("002-1-06", "002-3.2-06", "002-5-06")]
#[tokio::test(start_paused = true)]
async fn a_call_that_stops_when_told_ends_as_timeout() {
    let b = bench();
    let result = b
        .answer(person(), CallRequest { timeout_ms: Some(20), ..request("lab.slow", json!({"ms": 60_000})) })
        .await
        .result;
    assert_eq!((result.status, code(&result)), (ResultStatus::Timeout, "TIMEOUT"));
    assert_eq!(detail(result.error.as_ref().unwrap(), "timeoutMs"), 20);
}

#[toolyard_shows::shows("002-3.2-29")]
#[tokio::test(start_paused = true)]
async fn after_a_timeout_the_effects_are_observed_on_the_target() {
    let b = bench();
    b.disk.dies_at("a.md", Dies::AfterTheChange);
    let call = CallRequest { timeout_ms: Some(20), ..request("file.write", json!({"path": "a.md", "content": "hi"})) };
    let result = b.answer(person(), call).await.result;
    assert_eq!(result.status, ResultStatus::Timeout);
    assert_eq!(result.effects.as_ref().unwrap().created[0].path, "a.md");

    b.disk.dies_at("b.md", Dies::BeforeTheChange);
    let call = CallRequest { timeout_ms: Some(20), ..request("file.write", json!({"path": "b.md", "content": "hi"})) };
    let result = b.answer(person(), call).await.result;
    assert_eq!(result.status, ResultStatus::Timeout);
    assert_eq!(result.effects, None, "nothing was seen to change");
}

#[toolyard_shows::shows("002-3.3-08")]
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_a_note_and_never_a_second_result() {
    let b = bench();
    let mut events = b.engine.bus().subscribe(Subscription::default());
    let result =
        b.answer(person(), CallRequest { timeout_ms: Some(20), ..request("lab.hang", json!({})) }).await.result;
    assert_eq!(result.status, ResultStatus::Timeout);
    b.lab.release.notify_one();
    b.until("the late answer", |b| {
        b.export(result.run_id).events.iter().any(|e| e.payload.as_ref().is_some_and(|p| p.get("late").is_some()))
    })
    .await;
    let export = b.export(result.run_id);
    assert_eq!(export.results, std::slice::from_ref(&result));
    let note = export.events.last().unwrap();
    assert_eq!(note.event_type, EventType::StepProgress);
    assert_eq!(note.payload.as_ref().unwrap()["late"], true);
    assert_eq!(note.payload.as_ref().unwrap()["effects"]["created"][0]["path"], "late.md");
    assert_eq!(note.call_id, Some(result.call_id));
    let mut live = Vec::new();
    while let Some(event) = events.try_next() {
        live.push((*event).clone());
    }
    assert_eq!(live, export.events, "watchers saw what is exported");
    b.engine.seal().await.unwrap();
    let report = toolyard_engine::ledger::verify_run(&*b.store, result.run_id, &b.engine.signer().verifier()).unwrap();
    assert!(report.ok, "{report:?}");
}

#[toolyard_shows::shows("002-1-07", "002-5-07")]
#[tokio::test(start_paused = true)]
async fn one_call_can_be_stopped_and_the_others_go_on() {
    let b = Arc::new(bench());
    let mut events = b.engine.bus().subscribe(Subscription::default());
    let calls: Vec<_> = (0..2)
        .map(|i| {
            let b = b.clone();
            tokio::spawn(async move { b.call("lab.slow", json!({"ms": 1000, "value": i})).await })
        })
        .collect();
    until("both are under way", || b.lab.total() == 2).await;
    let call_id = loop {
        let event = events.next().await.unwrap();
        if event.event_type == EventType::StepStarted {
            break event.call_id.unwrap();
        }
    };
    assert!(b.engine.cancel_call_for(&toolyard_engine::Caller::cli("ada"), call_id));
    let mut statuses = Vec::new();
    for call in calls {
        let result = within(call).await.unwrap();
        assert_eq!(result.call_id == call_id, result.status == ResultStatus::Cancelled);
        if result.call_id == call_id {
            assert_eq!(b.export(result.run_id).manifest.status, RunStatus::Cancelled);
        }
        statuses.push(result.status);
    }
    assert!(statuses.contains(&ResultStatus::Ok) && statuses.contains(&ResultStatus::Cancelled));
    assert!(!b.engine.cancel_call_for(&toolyard_engine::Caller::cli("ada"), call_id), "it is over");
}

#[toolyard_shows::shows("002-3.1-11")]
#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_stopped_is_waited_for() {
    let b = Arc::new(bench());
    let call = {
        let b = b.clone();
        tokio::spawn(async move {
            b.answer(person(), CallRequest { timeout_ms: Some(10), ..request("lab.stubborn", json!({"ms": 500})) })
                .await
        })
    };
    until("it is under way", || b.lab.total() == 1).await;
    assert!(b.engine.cancel_run(b.engine.active_runs()[0]));
    let result = within(call).await.unwrap().result;
    assert!(result.ok, "{result:?}");
    assert!(!b.export(result.run_id).calls[0].cancellable);
}

#[toolyard_shows::shows("000-4-01", "002-5-08")]
#[tokio::test]
async fn a_panic_before_or_after_the_first_await_gives_exactly_one_result() {
    let b = bench();
    for (tool, args) in [
        ("lab.panic", json!({})),
        ("lab.panic", json!({"later": true})),
        ("lab.panicWrite", json!({})),
        ("lab.panicWrite", json!({"later": true})),
        ("lab.panicPrepare", json!({})),
    ] {
        let result = b.call(tool, args).await;
        assert_eq!((result.status, code(&result)), (ResultStatus::Error, "INTERNAL_ERROR"), "{tool}");
        assert!(result.debug_message.as_ref().unwrap().starts_with("panic: "), "{tool}: {result:?}");
        assert!(!result.error.as_ref().unwrap().message.contains("await"), "the panic's words are for logs");
        let export = b.export(result.run_id);
        assert_eq!((export.calls.len(), export.results), (1, vec![result]), "{tool}");
    }
    assert!(b.call("lab.echo", json!({"value": 1})).await.ok, "the engine is well");
}

struct PanicsWhenAsked;
impl Provider for PanicsWhenAsked {
    fn prepare<'a>(&'a self, _: &'a CallContext, _: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(async { Ok(Prepared { intent: Some(Default::default()), ..Prepared::default() }) })
    }
    fn execute<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async { panic!("in the middle of it") })
    }
    fn reconcile<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        _: &'a toolyard_engine::Intent,
    ) -> BoxFuture<'a, Result<toolyard_engine::Reconciled, Failed>> {
        panic!("and when asked about it")
    }
}

#[tokio::test]
async fn a_provider_that_panics_even_when_asked_what_happened_gets_one_result() {
    let b = bench();
    let tool = json!({"name":"bad.write","title":"t","description":"d","category":"x","riskLevel":"writes","idempotency":"etag",
        "inputSchema":{"type":"object"}});
    b.engine.register(vec![entry(tool)], Arc::new(PanicsWhenAsked)).unwrap();
    let result = b.call("bad.write", json!({})).await;
    assert_eq!(code(&result), "INTERNAL_ERROR");
    assert_eq!(b.export(result.run_id).results, [result]);
}

// Output.

#[toolyard_shows::shows("002-2-06", "002-3.2-11")]
#[tokio::test]
async fn output_that_does_not_fit_its_schema_is_an_error_and_its_effects_are_kept() {
    let b = bench();
    let result = b.call("lab.misshapen", json!({})).await;
    assert_eq!((result.status, code(&result)), (ResultStatus::Error, "INTERNAL_ERROR"));
    assert_eq!(result.data, None);
    assert!(!error_paths(&result).is_empty());
    assert_eq!(result.effects.as_ref().unwrap().created[0].path, "half.md");
    assert_eq!(b.export(result.run_id).results, [result]);
}

#[toolyard_shows::shows("002-3.2-12")]
#[tokio::test]
async fn output_over_64_kib_lies_in_a_blob_and_is_whole_again_in_the_export() {
    let b = bench();
    let result = b.call("lab.huge", json!({"bytes": 100_000})).await;
    assert_eq!(data(&result)["text"].as_str().unwrap().len(), 100_000);
    assert!(b.store.kept_frames(result.run_id).iter().all(|f| f.payload.len() < 2_000), "the record stays small");
    let export = b.export(result.run_id);
    assert_eq!(export.results[0].data, result.data);
    assert_eq!(export.results[0].data_hash, result.data_hash);
    assert!(result.data_hash.is_some());
}

#[tokio::test]
async fn arguments_over_64_kib_lie_in_a_blob_and_are_whole_again_in_the_export() {
    let b = bench();
    let content = "y".repeat(100_000);
    let result = b.call("file.write", json!({"path": "big.md", "content": content})).await;
    assert!(b.store.kept_frames(result.run_id).iter().all(|f| f.payload.len() < 2_000));
    assert_eq!(b.export(result.run_id).calls[0].args["content"], content.as_str());
}

#[tokio::test]
async fn output_over_max_output_bytes_is_handed_over_by_reference() {
    let b = bench_under(limits(json!({"maxOutputBytes": 90_000})));
    let result = b.call("lab.huge", json!({"bytes": 100_000})).await;
    assert!(result.ok);
    let reference = data(&result);
    assert_eq!(reference["externalized"], true);
    let sha256 = reference["ref"].as_str().unwrap().strip_prefix("blob:sha256:").unwrap();
    let whole: Value = serde_json::from_slice(&b.store.blob(sha256).unwrap().unwrap()).unwrap();
    assert_eq!(whole["text"].as_str().unwrap().len(), 100_000);
    assert_eq!(reference["bytes"], b.store.blob(sha256).unwrap().unwrap().len());
    let export = b.export(result.run_id);
    assert_eq!(
        export.results[0].data.as_ref().unwrap()["text"].as_str().unwrap().len(),
        100_000,
        "the record is whole"
    );
    assert_eq!(export.results[0].data_hash, result.data_hash, "the hash is that of the data, not of the reference");
}

#[tokio::test]
async fn bytes_and_deletes_beyond_the_policy_are_refused_before_anything_changes() {
    let b = bench_under(limits(json!({"maxBytesWritten": 10, "maxDeletes": 0})));
    b.disk.set("a.md", "old");
    let result = b.call("file.write", json!({"path": "a.md", "content": "12345678901"})).await;
    assert_eq!(code(&result), "LIMIT_EXCEEDED");
    assert_eq!(detail(result.error.as_ref().unwrap(), "limit"), "maxBytesWritten");
    let result = b.call("file.delete", json!({"path": "a.md"})).await;
    assert_eq!(detail(result.error.as_ref().unwrap(), "limit"), "maxDeletes");
    assert_eq!(b.disk.get("a.md").unwrap(), "old");
    assert_eq!(b.export(result.run_id).results, [result]);
}

// Idempotency keys.

#[toolyard_shows::shows("002-3.3-01")]
#[tokio::test]
async fn ten_thousand_unread_events_hold_up_nobody_and_are_counted() {
    let b = bench();
    let events = b.engine.bus().subscribe(Subscription::default());
    let result = b.call("lab.chatty", json!({"n": 10_000})).await;
    assert!(result.ok);
    let lost = events.take_lost();
    assert!(lost > 8_000 && lost < 10_010, "{lost}");
    assert_eq!(b.export(result.run_id).events.len(), 5, "progress is not part of the record");
}

#[toolyard_shows::shows("002-0-07")]
#[tokio::test]
async fn a_watcher_of_one_run_or_session_hears_only_that() {
    let b = bench();
    let mut session = b.engine.bus().subscribe(Subscription { session: Some("s1".into()), ..Subscription::default() });
    let mut other = b.engine.bus().subscribe(Subscription { session: Some("s2".into()), ..Subscription::default() });
    let result = b.call_as(agent(), "lab.echo", json!({"value": 1})).await;
    b.call("lab.echo", json!({"value": 1})).await;
    let mut heard = Vec::new();
    while let Some(event) = session.try_next() {
        heard.push((*event).clone());
    }
    assert_eq!(heard, b.export(result.run_id).events);
    assert!(other.try_next().is_none());
}

// Dry runs of one call, limits of the engine, shutdown.

#[tokio::test]
async fn a_dry_call_predicts_and_leaves_no_trace() {
    let b = bench();
    let mut events = b.engine.bus().subscribe(Subscription::default());
    let call = CallRequest { dry_run: true, ..request("file.write", json!({"path": "a.md", "content": "hi"})) };
    let result = b.answer(agent(), call).await.result;
    assert!(result.ok);
    assert_eq!(result.effects.as_ref().unwrap().created[0].path, "a.md");
    assert_eq!(b.disk.changes(), 0);
    assert!(b.store.runs(&RunFilter::default()).unwrap().is_empty());
    assert!(events.try_next().is_none(), "watchers see what happens, not what is imagined");
    let call = CallRequest { dry_run: true, ..request("lab.command", json!({"id": "x"})) };
    let result = b.answer(person(), call).await.result;
    assert_eq!(result.status, ResultStatus::Skipped);
    assert!(result.user_message.as_ref().unwrap().contains("run-command"));
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_the_engine_allows() {
    let parts = BenchParts { options: EngineOptions { max_calls: 3, ..quick() }, ..BenchParts::default() };
    let b = Arc::new(bench_with(parts));
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let b = b.clone();
            tokio::spawn(async move { b.call("lab.slow", json!({"ms": 20})).await })
        })
        .collect();
    for call in calls {
        assert!(within(call).await.unwrap().ok);
    }
    assert_eq!(b.lab.widest.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_direct_calls_and_takes_no_more() {
    let b = Arc::new(bench());
    let call = {
        let b = b.clone();
        tokio::spawn(async move { b.call("lab.slow", json!({"ms": 60_000})).await })
    };
    until("it is under way", || b.lab.total() == 1).await;
    within(b.engine.shutdown()).await;
    assert_eq!(within(call).await.unwrap().status, ResultStatus::Cancelled);
    let after = b.call("lab.echo", json!({"value": 1})).await;
    assert!(!after.ok);
    assert_eq!(b.lab.total(), 1);
}

#[tokio::test]
async fn a_tool_taken_away_is_gone_for_new_calls() {
    let b = bench_with(BenchParts { policy: yolo(), ..BenchParts::default() });
    b.engine.unregister(&ToolSource::core());
    assert_eq!(code(&b.call("lab.echo", json!({"value": 1})).await), "NOT_FOUND");
    b.engine.register(Lab::entries(), b.lab.clone()).unwrap();
    assert!(b.call("lab.echo", json!({"value": 1})).await.ok);
    assert!(b.engine.register(Lab::entries(), b.lab.clone()).is_err(), "all or none");
    tokio::time::sleep(Duration::from_millis(1)).await;
}
