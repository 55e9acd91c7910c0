//! Replays, forks and undoing: runs that come from other runs.

use crate::support::{
    Bench, approved, bench, bench_under, detail, limits, object, person, plan, status_words, step, within, words,
};
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{
    BoxFuture, Hook, HookCall, HookVerdict, chain,
    plan::{PlanRequest, RunReport},
    record::{Record, RecordKind},
};
use toolyard_protocol::{ActionPlan, RunStatus, StepId};

fn id(text: &str) -> StepId {
    StepId::parse(text).unwrap()
}

fn chained() -> Value {
    json!([
        {"id": "read", "tool": "file.read", "args": {"path": "in.md"}},
        {"id": "write", "tool": "file.write", "args": {"path": "out.md", "content": "$steps.read.content"}},
        {"id": "list", "tool": "lab.items", "args": {"items": ["a", "b"]}},
        {"id": "each", "tool": "file.append", "args": {"path": "log.md", "text": "{item}"}, "dependsOn": ["write"],
         "foreach": {"from": "$steps.list.items", "itemName": "item"}},
        {"id": "last", "tool": "lab.echo", "args": {"value": "$steps.each.okCount"}}])
}

async fn chained_run() -> (Bench, RunReport) {
    let b = bench();
    b.disk.set("in.md", "hello");
    let report = b.run(chained()).await;
    assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
    (b, report)
}

// Replay.

#[tokio::test]
async fn a_replay_resolves_every_argument_again_and_calls_nothing() {
    let (b, report) = chained_run().await;
    let (calls, changes, reads) = (b.lab.total(), b.disk.changes(), *b.disk.reads.lock().unwrap());
    let frames = b.store.kept_frames(report.run_id).len();
    b.disk.set("in.md", "other by now");
    let replay = within(b.engine.replay(report.run_id)).await.unwrap();
    assert!(replay.ok, "{replay:?}");
    assert_eq!(replay.calls_checked, 6);
    assert_eq!((b.lab.total(), b.disk.changes(), *b.disk.reads.lock().unwrap()), (calls, changes, reads));
    assert_eq!(b.store.kept_frames(report.run_id).len(), frames, "no trace in the record");
}

#[tokio::test]
async fn a_replay_tells_the_watchers_nothing() {
    let (b, report) = chained_run().await;
    let mut events = b.engine.bus().subscribe(Default::default());
    within(b.engine.replay(report.run_id)).await.unwrap();
    assert!(events.try_next().is_none());
}

#[tokio::test]
async fn a_tampered_result_is_a_replay_mismatch() {
    let (b, report) = chained_run().await;
    // Somebody changes what was read, and links the chain anew so that only a replay can tell.
    let tampered = b.store.with_frames(
        report.run_id,
        |frames| {
            let mut chain = chain::genesis(report.run_id);
            let mut first = true;
            for frame in frames {
                if frame.kind == RecordKind::Result as u8 && std::mem::take(&mut first) {
                    let text = String::from_utf8(frame.payload.clone()).unwrap();
                    assert!(text.contains("hello"));
                    frame.payload = text.replace("hello", "jello").into_bytes();
                }
                frame.chain = chain::link(&chain, frame.seq, frame.kind, &frame.payload);
                chain = frame.chain;
            }
        },
        false,
    );
    let b = crate::support::bench_with(crate::support::BenchParts { store: Arc::new(tampered), ..Default::default() });
    let replay = within(b.engine.replay(report.run_id)).await.unwrap();
    assert!(!replay.ok);
    let error = replay.error.unwrap();
    assert_eq!((error.code.as_str(), detail(&error, "step").as_str()), ("REPLAY_MISMATCH", Some("write")));
    assert_ne!(detail(&error, "recorded"), detail(&error, "resolved"));
}

struct Stamps;
impl Hook for Stamps {
    fn name(&self) -> &str {
        "stamps"
    }
    fn before<'a>(&'a self, call: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        let value = call.args.get("value").cloned();
        Box::pin(async move {
            value.map_or(HookVerdict::Proceed, |v| HookVerdict::Rewrite(object(json!({"value": [v, "stamped"]}))))
        })
    }
}

#[tokio::test]
async fn what_a_hook_rewrote_is_no_mismatch() {
    let b = bench();
    b.engine.add_hook(Arc::new(Stamps));
    let report = b
        .run(json!([
            {"id": "a", "tool": "lab.echo", "args": {"value": 1}},
            {"id": "b", "tool": "lab.echo", "args": {"value": "$steps.a.value"}}]))
        .await;
    assert_eq!(step(&report, "b").data.as_ref().unwrap()["value"], json!([[1, "stamped"], "stamped"]));
    let replay = within(b.engine.replay(report.run_id)).await.unwrap();
    assert!(replay.ok, "{replay:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_retried_and_skipped_runs_replay_too() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "onError": "retry"},
            {"id": "g", "tool": "lab.flaky", "args": {"key": "g", "failures": 9, "retryable": false}, "onError": "skip"},
            {"id": "h", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["g"]},
            {"id": "i", "tool": "lab.flaky", "args": {"key": "i", "failures": 9, "retryable": false}, "dependsOn": ["f"]}]))
        .await;
    assert_eq!(report.status, RunStatus::Failed);
    let replay = within(b.engine.replay(report.run_id)).await.unwrap();
    assert!(replay.ok, "{replay:?}");
    assert_eq!(replay.calls_checked, 4);
}

// Fork.

async fn fork(b: &Bench, from: &RunReport, step: &str, edited: Option<ActionPlan>) -> RunReport {
    let started = b.engine.fork(person(), from.run_id, &id(step), edited, approved()).await.unwrap();
    within(started.drive()).await.unwrap()
}

#[tokio::test]
async fn a_fork_takes_over_what_came_before_and_does_the_rest_again() {
    let (b, parent) = chained_run().await;
    let (reads, changes) = (*b.disk.reads.lock().unwrap(), b.disk.changes());
    let report = fork(&b, &parent, "each", None).await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(*b.disk.reads.lock().unwrap(), reads, "read is not called again");
    assert_eq!(b.disk.changes(), changes + 2, "only the loop");
    assert_eq!(b.disk.get("log.md").unwrap(), "abab");
    assert!(report.effects.created.is_empty(), "the parent's effects are not the fork's: {:?}", report.effects);
    let export = b.export(report.run_id);
    assert_eq!(export.manifest.parent_run_id, Some(parent.run_id));
    // The record is complete by itself: every step has its results, every call its result.
    for s in ["read", "write", "list", "each", "last"] {
        assert!(export.results.iter().any(|r| r.step_id.as_str() == s && r.ok), "{s}");
    }
    let taken = export.results.iter().find(|r| r.step_id.as_str() == "read").unwrap();
    assert_eq!(taken.data.as_ref().unwrap()["content"], "hello");
    assert!(taken.user_message.as_ref().unwrap().contains(&parent.run_id.to_string()));
    assert_eq!(taken.run_id, report.run_id);
    assert!(export.calls.iter().all(|c| matches!(c.step_id.as_str(), "each" | "last")));
    let replay = within(b.engine.replay(report.run_id)).await.unwrap();
    assert!(replay.ok, "{replay:?}");
}

#[tokio::test]
async fn what_builds_on_an_edited_step_is_done_again() {
    let (b, parent) = chained_run().await;
    let mut edited = plan(chained());
    edited.steps[2].args["items"] = json!(["x"]); // `list`, on which `each` builds; forked from `last`, which is after both
    let report = fork(&b, &parent, "last", Some(edited)).await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(b.disk.get("log.md").unwrap(), "abx");
    assert_eq!(step(&report, "last").data.as_ref().unwrap()["value"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_failed_run_goes_on_where_it_failed() {
    let b = bench();
    let parent = b
        .run(json!([
            {"id": "w", "tool": "file.append", "args": {"path": "a.md", "text": "once"}},
            {"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1, "retryable": false}},
            {"id": "after", "tool": "lab.echo", "args": {"value": "$steps.f.tries"}}]))
        .await;
    assert_eq!(parent.status, RunStatus::Failed);
    let report = fork(&b, &parent, "f", None).await;
    assert_eq!(status_words(&report), words([("w", "ok"), ("f", "ok"), ("after", "ok")]));
    assert_eq!(b.disk.get("a.md").unwrap(), "once");
}

#[tokio::test(start_paused = true)]
async fn tries_that_were_taken_over_are_not_waited_for_again() {
    let b = bench();
    let parent = b
        .run(json!([
            {"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 2}, "onError": "retry", "retry": {"maxAttempts": 3, "backoffMs": 600_000}},
            {"id": "after", "tool": "lab.echo", "args": {"value": "$steps.f.tries"}}]))
        .await;
    assert_eq!(parent.status, RunStatus::Finished);
    let began = tokio::time::Instant::now();
    let report = fork(&b, &parent, "after", None).await;
    assert_eq!(report.status, RunStatus::Finished);
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(b.lab.calls_of("lab.flaky"), 3);
}

#[tokio::test]
async fn a_large_result_is_taken_over_as_a_blob() {
    let b = bench_under(limits(json!({"maxOutputBytes": 70_000})));
    let parent = b
        .run(json!([
            {"id": "big", "tool": "lab.huge", "args": {"bytes": 100_000}},
            {"id": "use", "tool": "lab.echo", "args": {"value": "$steps.big.n"}}]))
        .await;
    let report = fork(&b, &parent, "use", None).await;
    assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
    assert!(b.store.kept_frames(report.run_id).iter().all(|f| f.payload.len() < 4_000));
    assert_eq!(step(&report, "big").data.as_ref().unwrap()["externalized"], true);
    let export = b.export(report.run_id);
    assert_eq!(export.results[0].data.as_ref().unwrap()["text"].as_str().unwrap().len(), 100_000);
}

#[tokio::test]
async fn a_fork_needs_its_own_approval_and_an_existing_step() {
    let b = bench_under(json!({"risk": {"writes": "ask"}}));
    let parent = b.run(json!([{"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}])).await;
    let refused = b.engine.fork(person(), parent.run_id, &id("w"), None, PlanRequest::default()).await.err().unwrap();
    assert_eq!(refused.code.as_str(), "CONFIRMATION_REQUIRED");
    let unknown = b.engine.fork(person(), parent.run_id, &id("nope"), None, approved()).await.err().unwrap();
    assert_eq!(unknown.code.as_str(), "NOT_FOUND");
}

// Undo.

#[tokio::test]
async fn a_run_is_taken_back_in_reverse_order() {
    let b = bench();
    b.disk.set("a.md", "before");
    b.disk.set("b.md", "kept");
    let was = b.disk.snapshot();
    let report = b
        .run(json!([
            {"id": "one", "tool": "file.append", "args": {"path": "a.md", "text": " one"}},
            {"id": "two", "tool": "file.append", "args": {"path": "a.md", "text": " two"}},
            {"id": "new", "tool": "file.write", "args": {"path": "{odd} $steps.x.md", "content": "n"}},
            {"id": "gone", "tool": "file.delete", "args": {"path": "b.md"}},
            {"id": "look", "tool": "file.list", "args": {}}]))
        .await;
    assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
    assert_ne!(b.disk.snapshot(), was);
    let undo = within(b.engine.plan_undo(report.run_id)).await.unwrap();
    let p = undo.plan.unwrap();
    assert!(undo.not_undoable.is_empty());
    let order: Vec<(&str, &str)> =
        p.steps.iter().map(|s| (s.tool.as_str(), s.args["path"].as_str().unwrap())).collect();
    assert_eq!(
        order,
        [
            ("file.restore", "b.md"),
            ("file.delete", "{{odd}} $steps.x.md"),
            ("file.restore", "a.md"),
            ("file.restore", "a.md")
        ]
    );
    let back = b.run_plan(&p).await;
    assert_eq!(back.status, RunStatus::Finished, "{:?}", back.error);
    assert_eq!(b.disk.snapshot(), was);
}

#[tokio::test]
async fn taking_back_stops_at_what_somebody_else_changed_since() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "one", "tool": "file.write", "args": {"path": "a.md", "content": "x"}},
            {"id": "two", "tool": "file.write", "args": {"path": "b.md", "content": "x"}}]))
        .await;
    b.disk.set("a.md", "mine now");
    let undo = within(b.engine.plan_undo(report.run_id)).await.unwrap();
    let back = b.run_plan(&undo.plan.unwrap()).await;
    assert_eq!(back.error.unwrap().code.as_str(), "CONFLICT");
    assert_eq!((b.disk.get("a.md").as_deref(), b.disk.get("b.md")), (Some("mine now"), None));
}

#[tokio::test]
async fn what_cannot_be_taken_back_is_named_and_a_run_must_have_ended() {
    let b = bench();
    let report = b.run(json!([{"id": "k", "tool": "lab.keyed", "args": {}}])).await;
    let undo = within(b.engine.plan_undo(report.run_id)).await.unwrap();
    assert!(undo.plan.is_none());
    assert_eq!(undo.not_undoable[0].step_id.as_str(), "k");
    let p = plan(json!([{"id": "a", "tool": "lab.echo", "args": {"value": 1}}]));
    let started = b.engine.start_plan(person(), &p, approved(), Default::default()).await.unwrap();
    let refused = b.engine.plan_undo(started.run_id()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "PRECONDITION_FAILED");
    // Records can be read back one by one.
    let frame = &b.store.kept_frames(report.run_id)[0];
    assert!(matches!(Record::decode(frame.kind, &frame.payload), Ok(Record::RunStarted(_))));
}
