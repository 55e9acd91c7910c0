//! The executor's own values, waits that a tool asks for, the numbering of tries, and what is kept from models.

use crate::support::{
    agent, approved, bench, bench_under, limits, person, plan_of, request, status_words, step, within, words,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use toolyard_engine::Failed;
use toolyard_protocol::{ErrorCode, EventType, Failure, ResultStatus, RunStatus};

/// A loop over three items of which the second fails.
fn partly_failing() -> Value {
    json!([
        {"id": "list", "tool": "lab.items", "args": {"items": [0, 9, 0]}},
        {"id": "each", "tool": "lab.flaky", "args": {"key": "k{n}", "failures": "{times}", "retryable": false},
         "foreach": {"from": "$steps.list.items", "itemName": "times", "indexName": "n"}, "onError": "skip"}])
}

fn with_step(steps: Value, step: Value) -> Value {
    let mut steps = steps.as_array().unwrap().clone();
    steps.push(step);
    Value::Array(steps)
}

#[toolyard_shows::shows("002-4-04")]
#[tokio::test]
async fn vars_hold_the_run_and_the_counts_of_a_finished_loop() {
    let b = bench();
    let values = json!({"run": "$vars.run.id", "at": "$vars.run.startedAt", "all": "$vars.each.count",
        "ok": "$vars.each.okCount", "failed": "$vars.each.failedCount"});
    let report =
        b.run(with_step(partly_failing(), json!({"id": "sum", "tool": "lab.echo", "args": {"value": values}}))).await;
    assert_eq!(status_words(&report), words([("list", "ok"), ("each", "ok"), ("sum", "ok")]));
    let value = &step(&report, "sum").data.as_ref().unwrap()["value"];
    assert_eq!(value["run"], report.run_id.to_string());
    assert_eq!(value["at"], report.started_at.to_string());
    assert_eq!((&value["all"], &value["ok"], &value["failed"]), (&json!(3), &json!(2), &json!(1)));
}

#[tokio::test]
async fn a_captured_name_hides_the_executors_value_of_that_name() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "mine", "tool": "lab.open", "args": {"data": {"id": "captured"}}, "captureAs": "run"},
            {"id": "use", "tool": "lab.echo", "args": {"value": "$vars.run.id"}}]))
        .await;
    assert_eq!(step(&report, "use").data.as_ref().unwrap()["value"], "captured");
}

#[toolyard_shows::shows("002-5-10")]
#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_the_tool_asks() {
    let b = bench();
    let begun = Instant::now();
    let report = b
        .run(json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1, "retryAfterMs": 90_000},
            "onError": "retry", "retry": {"maxAttempts": 2, "backoffMs": 1}}]))
        .await;
    assert_eq!((report.status, step(&report, "f").attempts), (RunStatus::Finished, 2));
    assert!(begun.elapsed() >= Duration::from_secs(90), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_policy_clamps_the_wait_that_a_tool_asks_for() {
    for (asked, limit) in [(json!(90_000), 2_000), (json!(1e18), 2_000), (json!("soon"), 2_000)] {
        let b = bench_under(limits(json!({"maxRetryDelayMs": limit})));
        let begun = Instant::now();
        let report = b
            .run(json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1, "retryAfterMs": asked},
                "onError": "retry", "retry": {"maxAttempts": 2, "backoffMs": 1}}]))
            .await;
        assert_eq!((report.status, step(&report, "f").attempts), (RunStatus::Finished, 2));
        assert!(begun.elapsed() <= Duration::from_millis(limit + 1_000), "{asked}: {:?}", begun.elapsed());
        if asked.is_number() {
            assert!(begun.elapsed() >= Duration::from_millis(limit), "{asked}: {:?}", begun.elapsed());
        }
    }
}

#[tokio::test]
async fn attempts_count_from_1_also_where_nothing_was_dispatched() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "bad", "tool": "lab.flaky", "args": {"key": "k", "failures": 9, "retryable": false}, "onError": "skip"},
            {"id": "skipped", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["bad"]},
            {"id": "open", "tool": "lab.open", "args": {"data": {}}},
            {"id": "unresolved", "tool": "lab.echo", "args": {"value": "$steps.open.gone"}, "onError": "skip"},
            {"id": "no-list", "tool": "lab.echo", "args": {"value": 1}, "onError": "skip",
             "foreach": {"from": "$steps.open.gone", "itemName": "item"}}]))
        .await;
    let export = b.export(report.run_id);
    let of = |id: &str| {
        let found: Vec<_> = export.results.iter().filter(|r| r.step_id.as_str() == id).collect();
        assert_eq!(found.len(), 1, "{id}");
        (found[0].status, found[0].attempt)
    };
    assert_eq!(of("skipped"), (ResultStatus::Skipped, 1));
    assert_eq!(of("unresolved"), (ResultStatus::Error, 1));
    assert_eq!(of("no-list"), (ResultStatus::Error, 1));
}

#[tokio::test]
async fn a_fork_runs_what_the_parent_skipped() {
    let b = bench();
    let steps = |failures: u64| {
        json!({"version": "1.0", "goal": "g", "riskLevel": "read-only", "steps": [
            {"id": "bad", "tool": "lab.flaky", "args": {"key": "k", "failures": failures, "retryable": false}, "onError": "skip"},
            {"id": "after", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["bad"]}]})
    };
    let parent = b.run_plan(&plan_of(steps(1))).await;
    assert_eq!(status_words(&parent), words([("bad", "error"), ("after", "skipped")]));
    let from = toolyard_protocol::StepId::parse("bad").unwrap();
    let started = b.engine.fork(person(), parent.run_id, &from, Some(plan_of(steps(1))), approved()).await.unwrap();
    let report = within(started.drive()).await.unwrap();
    assert_eq!(status_words(&report), words([("bad", "ok"), ("after", "ok")]));
}

#[toolyard_shows::shows("002-3.3-06")]
#[tokio::test(start_paused = true)]
async fn every_call_is_scheduled_before_it_is_started_also_side_by_side() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": [5, 1, 4, 2, 3, 0]}},
            {"id": "each", "tool": "lab.slow", "args": {"ms": "{item}"},
             "foreach": {"from": "$steps.list.items", "itemName": "item", "concurrency": 6}}]))
        .await;
    let export = b.export(report.run_id);
    for call in &export.calls {
        let of_call: Vec<EventType> =
            export.events.iter().filter(|e| e.call_id == Some(call.call_id)).map(|e| e.event_type).collect();
        assert_eq!(of_call, [EventType::StepScheduled, EventType::StepStarted, EventType::StepFinished]);
    }
    assert_eq!(export.calls.len(), 7);
}

#[toolyard_shows::shows("002-3.2-25")]
#[tokio::test]
async fn a_person_gets_the_debug_message_and_a_model_does_not() {
    let b = bench();
    let args = json!({"key": "k", "failures": 9, "retryable": false});
    let seen = b.call("lab.flaky", args.clone()).await;
    assert_eq!(seen.debug_message.as_deref(), Some("the reason behind it"));
    let hidden = b.answer(agent(), request("lab.flaky", args)).await.result;
    assert_eq!((hidden.debug_message.as_deref(), hidden.ok), (None, false));
    let recorded = b.export(hidden.run_id).results.remove(0);
    assert_eq!(recorded.debug_message.as_deref(), Some("the reason behind it"), "the record keeps it");
}

/// An error with another one behind it.
#[derive(Debug)]
struct Layer(&'static str, Option<Box<Layer>>);

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Layer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|layer| layer as _)
    }
}

#[test]
fn a_failure_brings_its_causes_and_repeats_nothing() {
    let refused = || Layer("connection refused", None);
    let chain = Layer("request failed", Some(Box::new(Layer("connect error", Some(Box::new(refused()))))));
    let failure = || Failure::new(ErrorCode::Unavailable, "the server is away");
    let debug = |failure: Failure| Failed::from(failure).debug_message;
    assert_eq!(
        debug(failure().caused_by(&chain)).as_deref(),
        Some("request failed\ncaused by: connect error\ncaused by: connection refused")
    );
    let said = Failure::new(ErrorCode::Unavailable, "the server is away: connection refused");
    assert_eq!(debug(said.caused_by(&refused())), None, "there is nothing more to say");
    assert_eq!(debug(failure()), None);
    // What a tool adds stands behind the causes, and neither is written with the failure.
    let both = Failed::from(failure().caused_by(&refused())).debug(Some("its last words".to_owned()));
    assert_eq!(both.debug_message.as_deref(), Some("connection refused\nits last words"));
    assert_eq!(both.failure, failure());
    let written = serde_json::to_string(&failure().caused_by(&chain)).unwrap();
    assert!(!written.contains("refused"), "{written}");
    // Without end, only so many are looked at; of what is too long, the end is kept.
    let mut deep = refused();
    for _ in 0..100 {
        deep = Layer("again and again", Some(Box::new(Layer("and", Some(Box::new(deep))))));
    }
    assert!(debug(failure().caused_by(&deep)).unwrap().lines().count() <= 16);
    let long = Failed::from(failure()).debug(Some(format!("{}é{}", "x".repeat(20_000), "y".repeat(8_191))));
    let kept = long.debug_message.unwrap();
    assert!(kept.len() <= 8_192 && kept.ends_with('y') && !kept.contains('x'), "{}", kept.len());
}
