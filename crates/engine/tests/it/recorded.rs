//! The record: what is exported, and what can be proven about it.

use crate::{
    stores::Tap,
    support::{Bench, bench, person, plan, quick, request, until, within, yolo},
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};
use toolyard_engine::{
    CallRequest, Store, Subscription,
    ledger::{VerifyOptions, VerifyReport, verify_ledger, verify_run},
    plan::RunReport,
    store::{Batch, Durability, RunRow},
};
use toolyard_protocol::{EventType, RunId, RunStatus, canonical};

async fn mixed_run(b: &Bench) -> RunReport {
    let report = b
        .run(json!([
            {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}},
            {"id": "list", "tool": "lab.items", "args": {"items": [1, 2, 3]}},
            {"id": "each", "tool": "lab.echo", "args": {"value": "{item}"}, "foreach": {"from": "$steps.list.items", "itemName": "item", "concurrency": 3}},
            {"id": "bad", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "onError": "retry", "retry": {"maxAttempts": 2, "backoffMs": 1}},
            {"id": "gone", "tool": "file.read", "args": {"path": "gone.md"}, "onError": "skip"},
            {"id": "never", "tool": "lab.echo", "args": {"value": "$steps.gone.content"}},
            {"id": "open", "tool": "lab.open", "args": {}},
            {"id": "unresolved", "tool": "lab.echo", "args": {"value": "$steps.open.x"}, "onError": "skip"}]))
        .await;
    assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
    b.engine.seal().await.unwrap();
    report
}

fn verify(b: &Bench, store: &dyn Store, run_id: RunId) -> VerifyReport {
    verify_run(store, run_id, &b.engine.signer().verifier()).unwrap()
}

#[toolyard_shows::shows(
    "002-3.3-02",
    "002-3.3-07",
    "002-3.3-09",
    "002-3.3-10",
    "002-3.3-11",
    "002-3.3-18",
    "002-3.3-19"
)]
#[tokio::test]
async fn the_export_says_what_happened_once_and_in_order() {
    let b = bench();
    let mut live = b.engine.bus().subscribe(Subscription::default());
    let report = mixed_run(&b).await;
    let export = b.export(report.run_id);
    // Every call has exactly one result, and what has a result without a call was never dispatched.
    let mut results: HashMap<_, usize> = HashMap::new();
    for r in &export.results {
        *results.entry(r.call_id).or_default() += 1;
    }
    assert!(results.values().all(|n| *n == 1));
    assert!(export.calls.iter().all(|c| results.contains_key(&c.call_id)));
    let undispatched: Vec<&str> = export
        .results
        .iter()
        .filter(|r| !export.calls.iter().any(|c| c.call_id == r.call_id))
        .map(|r| r.step_id.as_str())
        .collect();
    assert_eq!(undispatched, ["never", "unresolved"]);
    for call in &export.calls {
        let result = export.results.iter().find(|r| r.call_id == call.call_id).unwrap();
        assert_eq!((&call.step_id, &call.tool, call.attempt), (&result.step_id, &result.tool, result.attempt));
        // step.scheduled, step.started and the end, in this order and each once.
        let of_call: Vec<EventType> =
            export.events.iter().filter(|e| e.call_id == Some(call.call_id)).map(|e| e.event_type).collect();
        let end = if result.ok { EventType::StepFinished } else { EventType::StepFailed };
        assert_eq!(of_call, [EventType::StepScheduled, EventType::StepStarted, end]);
    }
    // Every result says which try it is or would have been.
    assert!(export.results.iter().all(|r| r.attempt >= 1));
    let seqs: Vec<u64> = export.events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=export.events.len() as u64).collect::<Vec<_>>());
    assert_eq!(export.events[0].event_type, EventType::RunStarted);
    assert_eq!(export.events.last().unwrap().event_type, EventType::RunFinished);
    let mut seen = Vec::new();
    while let Some(event) = live.try_next() {
        seen.push((*event).clone());
    }
    assert_eq!(seen, export.events, "a watcher saw what is exported");
    let manifest = &export.manifest;
    assert_eq!((manifest.run_id, manifest.status), (report.run_id, RunStatus::Finished));
    assert_eq!(manifest.plan_hash, Some(b.engine.check_plan(&person(), manifest.plan.as_ref().unwrap()).plan_hash));
    assert_eq!(manifest.policy_hash, b.engine.policy_for(&person()).hash());
    assert_eq!(manifest.head.seq as usize, b.store.kept_frames(report.run_id).len());
    assert!(manifest.ended_at.unwrap() >= manifest.started_at);
    // What goes over the wire comes back.
    for call in &export.calls {
        let text = serde_json::to_string(call).unwrap();
        assert_eq!(&serde_json::from_str::<toolyard_protocol::ToolCall>(&text).unwrap(), call);
    }
}

#[toolyard_shows::shows("002-7-01", "002-7-02", "002-7-03", "002-7-04")]
#[tokio::test]
async fn a_run_can_be_told_again_from_its_plan_calls_results_and_confirmation() {
    let b = bench();
    let p = plan(json!([
        {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}},
        {"id": "r", "tool": "file.read", "args": {"path": "a.md"}, "dependsOn": ["w"]},
        {"id": "e", "tool": "lab.echo", "args": {"value": "$steps.r.content"}},
        {"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "dependsOn": ["e"], "onError": "retry", "retry": {"maxAttempts": 2, "backoffMs": 1}}]));
    let report = b.run_plan(&p).await;
    assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
    // Only what the files hold: run.json, calls.jsonl, results.jsonl.
    let export = b.export(report.run_id);
    let run = serde_json::to_value(&export.manifest).unwrap();
    let calls: Vec<Value> = export.calls.iter().map(|c| serde_json::to_value(c).unwrap()).collect();
    let results: Vec<Value> = export.results.iter().map(|r| serde_json::to_value(r).unwrap()).collect();
    assert_eq!(run["plan"], serde_json::to_value(&p).unwrap(), "the plan as it was written");
    assert_eq!(run["planHash"], canonical::hash(&p).unwrap());
    let told: Vec<Value> = calls.iter().map(|c| json!([c["stepId"], c["attempt"], c["args"]])).collect();
    let flaky = json!({"key": "k", "failures": 1});
    assert_eq!(
        told,
        [
            json!(["w", 1, {"path": "a.md", "content": "x"}]),
            json!(["r", 1, {"path": "a.md"}]),
            json!(["e", 1, {"value": "x"}]),
            json!(["f", 1, flaky]),
            json!(["f", 2, flaky]),
        ],
        "what was asked, with references filled in"
    );
    let ends: Vec<Value> = results.iter().map(|r| json!([r["callId"], r["status"]])).collect();
    let statuses = ["ok", "ok", "ok", "error", "ok"];
    let expected: Vec<Value> = calls.iter().zip(statuses).map(|(c, status)| json!([c["callId"], status])).collect();
    assert_eq!(ends, expected, "what became of it");
    for step in &report.steps {
        let last = results.iter().rfind(|r| r["stepId"] == step.id.as_str()).unwrap();
        assert_eq!(last["data"], json!(step.data), "{}", step.id);
    }
    let confirmation = &run["confirmation"];
    assert_eq!((&confirmation["by"], &confirmation["planHash"]), (&json!("ada"), &run["planHash"]));
    assert!(calls.iter().all(|c| c["confirmationId"] == confirmation["confirmationId"]));
}

#[tokio::test]
async fn a_sound_record_verifies_and_is_signed_and_sealed() {
    let b = bench();
    let report = mixed_run(&b).await;
    let call = b.call("lab.echo", json!({"value": 1})).await;
    b.engine.seal().await.unwrap();
    let verified = verify(&b, &*b.store, report.run_id);
    assert!(verified.ok && verified.ledger_entry.is_some(), "{verified:?}");
    assert!(verified.signed_seq >= verified.records - 2, "{verified:?}");
    assert!(verify(&b, &*b.store, call.run_id).ok);
    let ledger = verify_ledger(&*b.store, &b.engine.signer().verifier(), &VerifyOptions::default()).unwrap();
    assert!(ledger.ok && ledger.runs == 2, "{ledger:?}");
    let unknown = verify_run(&*b.store, RunId::from_uuid(uuid::Uuid::nil()), &b.engine.signer().verifier());
    assert_eq!(unknown.unwrap_err().code.as_str(), "NOT_FOUND");
}

#[tokio::test]
async fn the_first_record_that_was_edited_removed_or_moved_is_named() {
    let b = bench();
    let run_id = mixed_run(&b).await.run_id;
    let n = b.store.kept_frames(run_id).len();
    for k in 1..n {
        let edited = b.store.with_frames(run_id, |f| f[k].payload.push(b' '), false);
        assert_eq!(verify(&b, &edited, run_id).first_bad.unwrap().seq, k as u64 + 1, "edited");
        let other_kind = b.store.with_frames(run_id, |f| f[k].kind ^= 1, false);
        assert_eq!(verify(&b, &other_kind, run_id).first_bad.unwrap().seq, k as u64 + 1, "kind");
        let removed = b.store.with_frames(run_id, |f| drop(f.remove(k)), false);
        assert_eq!(verify(&b, &removed, run_id).first_bad.unwrap().seq, k as u64 + 1, "removed");
        let moved = b.store.with_frames(
            run_id,
            |f| {
                let (a, c) = (f[k - 1].seq, f[k].seq);
                f.swap(k - 1, k);
                f[k - 1].seq = a;
                f[k].seq = c;
            },
            false,
        );
        assert_eq!(verify(&b, &moved, run_id).first_bad.unwrap().seq, k as u64, "moved");
    }
}

#[tokio::test]
async fn a_shortened_record_is_caught_by_the_ledger_even_when_its_row_was_edited_too() {
    let b = bench();
    let run_id = mixed_run(&b).await.run_id;
    let n = b.store.kept_frames(run_id).len();
    for k in 1..n {
        let short = b.store.with_frames(run_id, |f| f.truncate(k), false);
        let report = verify(&b, &short, run_id);
        assert_eq!(report.first_bad.as_ref().map(|bad| bad.seq), Some(k as u64 + 1), "{report:?}");
        let row = short.run(run_id).unwrap().unwrap();
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * 365);
        for row in [
            RunRow { ended_at: Some(later), started_at: later, ..row.clone() },
            RunRow { ended_at: None, status: RunStatus::Running, ..row },
        ] {
            let batch = Batch { run_id, frames: vec![], blobs: vec![], row: Some(row), durability: Durability::Sync };
            short.append(batch).unwrap();
            assert!(!verify(&b, &short, run_id).ok);
        }
    }
}

#[tokio::test]
async fn a_record_made_anew_without_the_key_is_caught() {
    let b = bench();
    let run_id = mixed_run(&b).await.run_id;
    let forged = b.store.with_frames(
        run_id,
        |frames| {
            let mut chain = toolyard_engine::chain::genesis(run_id);
            for frame in frames {
                frame.payload = String::from_utf8(frame.payload.clone()).unwrap().replace("a.md", "b.md").into_bytes();
                frame.chain = toolyard_engine::chain::link(&chain, frame.seq, frame.kind, &frame.payload);
                chain = frame.chain;
            }
        },
        false,
    );
    assert!(!verify(&b, &forged, run_id).ok);
}

#[tokio::test]
async fn a_removed_run_is_missed_by_the_ledger() {
    let b = bench();
    let run_id = mixed_run(&b).await.run_id;
    b.call("lab.echo", json!({"value": 1})).await;
    b.engine.seal().await.unwrap();
    let without = b.store.without_run(run_id);
    let report = verify_ledger(&without, &b.engine.signer().verifier(), &VerifyOptions::default()).unwrap();
    assert!(!report.ok);
    assert_eq!(report.missing_runs, [run_id]);
}

#[tokio::test]
async fn an_edited_or_foreign_ledger_entry_is_named() {
    let b = bench();
    for _ in 0..3 {
        b.call("lab.echo", json!({"value": 1})).await;
        b.engine.seal().await.unwrap();
    }
    let entries = b.store.ledger(1, 10).unwrap();
    assert_eq!(entries.len(), 3);
    let copy = Tap::new();
    for (i, entry) in entries.iter().enumerate() {
        let mut payload = entry.payload.clone();
        if i == 1 {
            payload = String::from_utf8(payload).unwrap().replace("\"first\":1", "\"first\":9").into_bytes();
            assert_ne!(payload, entry.payload);
        }
        copy.ledger_append(&mut |_| Ok((payload.clone(), entry.chain))).unwrap();
    }
    let report = verify_ledger(&copy, &b.engine.signer().verifier(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.ok, report.first_bad.unwrap().seq), (false, 2));
    let other = toolyard_engine::chain::Signer::from_secret("test", &[9; 32]).verifier();
    assert_eq!(verify_ledger(&*b.store, &other, &VerifyOptions::default()).unwrap().first_bad.unwrap().seq, 1);
}

#[tokio::test]
async fn a_blob_that_is_gone_makes_the_export_fail_and_not_lie() {
    let b = bench();
    let result = b.call("lab.huge", json!({"bytes": 100_000})).await;
    let copy = Tap::new();
    let frames = b.store.kept_frames(result.run_id);
    let policy = b.store.run(result.run_id).unwrap();
    copy.append(Batch { run_id: result.run_id, frames, blobs: vec![], row: policy, durability: Durability::Sync })
        .unwrap();
    let failure = toolyard_engine::view::export_run(&copy, result.run_id).unwrap_err();
    assert!(matches!(failure.code.as_str(), "RECORD_CORRUPTED" | "STORE_UNAVAILABLE"), "{failure}");
}

#[tokio::test]
async fn a_long_run_is_signed_along_the_way() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.count", "args": {"n": 1200}},
            {"id": "each", "tool": "lab.echo", "args": {"value": "{item}"}, "foreach": {"from": "$steps.list.items", "itemName": "item", "concurrency": 16}}]))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    let checkpoints = b.store.kept_frames(report.run_id).iter().filter(|f| f.kind == 13).count();
    assert!(checkpoints >= 3, "{checkpoints}");
    assert!(verify(&b, &*b.store, report.run_id).ok);
}

#[tokio::test]
async fn ended_runs_are_sealed_in_the_background() {
    let store = Arc::new(Tap::new());
    let options = toolyard_engine::EngineOptions { seal_every: std::time::Duration::from_millis(5), ..quick() };
    let b =
        crate::support::bench_with(crate::support::BenchParts { store, options, policy: yolo(), ..Default::default() });
    b.call("lab.echo", json!({"value": 1})).await;
    until("the seal", || b.store.ledger(1, 1).unwrap().len() == 1).await;
}

#[tokio::test]
async fn two_engines_may_seal_into_one_ledger() {
    let store = Arc::new(Tap::new());
    let make = || crate::support::bench_with(crate::support::BenchParts { store: store.clone(), ..Default::default() });
    let (one, two) = (make(), make());
    for b in [&one, &two, &one] {
        let answer = within(b.engine.call(person(), CallRequest { ..request("lab.echo", json!({"value": 1})) })).await;
        assert!(answer.result.ok);
        b.engine.seal().await.unwrap();
    }
    let report = verify_ledger(&*store, &one.engine.signer().verifier(), &VerifyOptions::default()).unwrap();
    assert!(report.ok && report.entries == 3, "{report:?}");
}
