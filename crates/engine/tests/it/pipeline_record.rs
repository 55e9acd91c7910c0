//! One call and its record: a key returns the same result again, and nothing is reported before it is durable.

use crate::support::{agent, bench, bench_under, code, detail, entry, limits, person, request, until, within};
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{BoxFuture, CallContext, CallRequest, Failed, Output, Prepared, Provider};
use toolyard_protocol::{ResultStatus, ToolCall};

fn keyed(key: &str, value: Value) -> CallRequest {
    CallRequest { idempotency_key: Some(key.into()), ..request("lab.keyed", json!({"value": value})) }
}

#[tokio::test]
async fn the_same_key_and_arguments_give_the_recorded_result_again() {
    let b = bench();
    let first = b.answer(agent(), keyed("k", json!(1))).await;
    let second = b.answer(agent(), keyed("k", json!(1))).await;
    assert!(!first.deduplicated && second.deduplicated);
    assert_eq!(first.result, second.result);
    assert_eq!(b.lab.total(), 1);
    let elsewhere = b.answer(person(), keyed("k", json!(1))).await;
    assert!(!elsewhere.deduplicated, "keys belong to a principal and a session");
}

#[tokio::test]
async fn the_same_key_with_other_arguments_is_a_conflict() {
    let b = bench();
    b.answer(agent(), keyed("k", json!(1))).await;
    for other in [keyed("k", json!(2)), CallRequest { tool: "lab.same".into(), ..keyed("k", json!(1)) }] {
        let answer = b.answer(agent(), other).await;
        assert_eq!(code(&answer.result), "CONFLICT");
        assert!(!answer.deduplicated);
    }
    assert_eq!(b.lab.total(), 1);
}

#[tokio::test]
async fn a_large_result_is_the_same_when_it_is_given_again() {
    let b = bench_under(limits(json!({"maxOutputBytes": 90_000})));
    let call = CallRequest { idempotency_key: Some("k".into()), ..request("lab.huge", json!({"bytes": 100_000})) };
    let first = b.answer(agent(), call.clone()).await;
    let second = b.answer(agent(), call).await;
    assert!(second.deduplicated);
    assert_eq!(first.result, second.result);
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_with_one_key_run_once() {
    let b = Arc::new(bench());
    let slow =
        || CallRequest { idempotency_key: Some("k".into()), ..request("lab.slow", json!({"ms": 50, "value": 1})) };
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let b = b.clone();
            tokio::spawn(async move { b.answer(agent(), slow()).await })
        })
        .collect();
    let mut fresh = 0;
    let mut results = Vec::new();
    for call in calls {
        let answer = within(call).await.unwrap();
        fresh += usize::from(!answer.deduplicated);
        results.push(answer.result);
    }
    assert_eq!((fresh, b.lab.total()), (1, 1));
    assert!(results.iter().all(|r| *r == results[0] && r.ok));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_does_not_leave_its_key_behind() {
    let b = Arc::new(bench());
    let slow = || CallRequest { idempotency_key: Some("k".into()), ..request("lab.slow", json!({"ms": 50_000})) };
    let gone = {
        let b = b.clone();
        tokio::spawn(async move { b.answer(agent(), slow()).await })
    };
    until("it is under way", || b.lab.total() == 1).await;
    gone.abort();
    let answer = b.answer(agent(), slow()).await;
    assert_eq!(code(&answer.result), "CONFLICT", "nobody knows what became of the first");
    assert_eq!(detail(answer.result.error.as_ref().unwrap(), "reason"), "IN_DOUBT");
    assert_eq!(b.lab.total(), 1);
}

// What is durable before what.

#[toolyard_shows::shows("002-3.3-18")]
#[tokio::test]
async fn the_call_is_durable_before_the_effect_and_the_result_before_the_answer() {
    let b = bench();
    *b.disk.log.lock().unwrap() = Some(b.store.log.clone());
    assert!(b.call("file.write", json!({"path": "a.md", "content": "hi"})).await.ok);
    let log = b.store.log();
    let at = |what: &str| log.iter().position(|l| l == what).unwrap_or_else(|| panic!("{what}: {log:?}"));
    let call = at("append RunStarted,Call");
    let durable = at("durable");
    let execute = at("execute file.write");
    let result = log.iter().position(|l| l.contains("Result")).unwrap();
    let last = log.iter().rposition(|l| l == "durable").unwrap();
    assert!(call < durable && durable < execute && execute < result && result < last, "{log:?}");
}

#[tokio::test]
async fn a_call_without_effects_costs_no_sync() {
    let b = bench();
    assert!(b.call("lab.echo", json!({"value": 1})).await.ok);
    assert!(!b.store.log().iter().any(|l| l == "durable"), "{:?}", b.store.log());
}

#[tokio::test]
async fn a_store_that_cannot_sync_keeps_the_call_from_being_made() {
    let b = bench();
    b.store.fail_syncs(true);
    let result = b.call("file.write", json!({"path": "a.md", "content": "hi"})).await;
    assert_eq!((result.status, code(&result)), (ResultStatus::Error, "STORE_UNAVAILABLE"));
    assert_eq!(b.disk.changes(), 0);
    let result = b.call("lab.command", json!({"id": "x"})).await;
    assert_eq!(code(&result), "STORE_UNAVAILABLE");
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test]
async fn a_store_that_cannot_append_keeps_the_call_from_being_made() {
    let b = bench();
    b.store.fail_appends(true);
    let result = b.call("file.write", json!({"path": "a.md", "content": "hi"})).await;
    assert_eq!(code(&result), "STORE_UNAVAILABLE");
    assert_eq!(b.disk.changes(), 0);
}

/// Breaks the store while it runs.
struct BreaksTheStore(Arc<crate::stores::Tap>, &'static str);
impl Provider for BreaksTheStore {
    fn execute<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async {
            match self.1 {
                "sync" => self.0.fail_syncs(true),
                _ => self.0.fail_appends(true),
            }
            let mut output = Output::default();
            output.effects.observe("state");
            Ok(output)
        })
    }
}

#[tokio::test]
async fn a_result_that_could_not_be_made_durable_is_not_reported_as_if_it_were() {
    for what in ["sync", "append"] {
        let b = bench();
        let tool = json!({"name":"x.write","title":"t","description":"d","category":"x","riskLevel":"writes","idempotency":"none",
            "inputSchema":{"type":"object"}});
        b.engine.register(vec![entry(tool)], Arc::new(BreaksTheStore(b.store.clone(), what))).unwrap();
        let result = b.call("x.write", json!({})).await;
        assert_eq!(code(&result), "STORE_UNAVAILABLE", "{what}");
        assert_eq!(result.effects.as_ref().unwrap().side_effects_observed, ["state"], "{what}: it did happen");
    }
}

#[tokio::test]
async fn a_run_can_be_exported_while_another_that_shares_its_policy_still_waits() {
    let b = Arc::new(bench_under(json!({"risk": {"writes": "ask"}})));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let waiting = {
        let b = b.clone();
        tokio::spawn(async move { b.call_as(agent(), "file.write", json!({"path": "a.md", "content": "x"})).await })
    };
    until("it waits", || b.engine.approvals().pending().len() == 1).await;
    let result = b.call_as(agent(), "lab.echo", json!({"value": 1})).await;
    assert!(result.ok);
    assert_eq!(b.export(result.run_id).results, [result]);
    waiting.abort();
}

// Watchers.
