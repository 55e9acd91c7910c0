//! Runs that a shutdown or a crash left: which go on, which wait for a person, and which cannot be taken up.

use crate::{
    files::{Dies, Tree},
    recovery::{assert_sound, with_command, wreck},
    support::{
        Bench, BenchParts, agent, approved, approver, bench, bench_with, failure_code, person, plan, policy, until,
        within, yolo,
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use toolyard_catalog::ToolSource;
use toolyard_engine::{
    BoxFuture, CallContext, Failed, Output, Prepared, Provider, Store,
    ledger::{VerifyOptions, verify_ledger, verify_run},
    record::Settlement,
    store::{Batch, Durability},
};
use toolyard_protocol::{RunStatus, ToolCall};

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_stays_cancelled_after_a_crash() {
    let b = Arc::new(bench());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            b.run(json!([{"id": "s", "tool": "lab.slow", "args": {"ms": 60_000}}, {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}])).await
        })
    };
    until("it runs", || b.lab.total() == 1).await;
    b.engine.cancel_run(b.engine.active_runs()[0]);
    let run_id = within(run).await.unwrap().run_id;
    let frames = b.store.kept_frames(run_id);
    let cancel = frames.iter().position(|f| f.kind == 9).unwrap() + 1;
    for k in cancel..=frames.len() {
        let again = wreck(&b, &Tree::new(), run_id, k, false).bench(yolo());
        within(again.engine.recover()).await.unwrap();
        assert_eq!(again.until_settled(run_id).await, RunStatus::Cancelled, "{k} of {}", frames.len());
        assert_eq!(again.disk.changes(), 0);
        assert_sound(&again, run_id, "cancelled");
    }
}

// Shutdown.

#[tokio::test(start_paused = true)]
async fn shutdown_leaves_a_run_that_the_next_start_takes_up() {
    for (what, waiting) in [("a call", false), ("a wait", true)] {
        let b = Arc::new(bench());
        let middle = if waiting {
            json!({"id": "m", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "onError": "retry", "retry": {"maxAttempts": 2, "backoffMs": 600_000}, "dependsOn": ["w"]})
        } else {
            json!({"id": "m", "tool": "lab.slow", "args": {"ms": 20_000}, "dependsOn": ["w"]})
        };
        let steps = json!([
            {"id": "w", "tool": "file.append", "args": {"path": "log.md", "text": "x"}}, middle,
            {"id": "v", "tool": "file.append", "args": {"path": "log.md", "text": "y"}, "dependsOn": ["m"]}]);
        let run = {
            let b = b.clone();
            tokio::spawn(async move { b.run(steps).await })
        };
        until("it is in the middle", || b.lab.total() == 1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let began = tokio::time::Instant::now();
        within(b.engine.shutdown()).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{what}: {:?}", began.elapsed());
        let report = within(run).await.unwrap();
        assert_eq!(report.status, RunStatus::Running, "{what}");
        let row = b.row(report.run_id);
        let holder = b.store.holder(report.run_id).unwrap();
        assert_eq!((row.status, holder), (RunStatus::Running, None), "{what}: anybody may take it up");
        let next = bench_with(BenchParts { store: b.store.clone(), disk: b.disk.clone(), ..BenchParts::default() });
        let recovered = within(next.engine.recover()).await.unwrap();
        assert_eq!(recovered.resumed, [report.run_id], "{what}: {:?}", recovered.failed);
        assert_eq!(next.until_settled(report.run_id).await, RunStatus::Finished, "{what}");
        assert_eq!(next.disk.get("log.md").unwrap(), "xy", "{what}");
        assert_sound(&next, report.run_id, what);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_cut_off_by_shutdown_is_settled_at_the_next_start() {
    for when in [Dies::BeforeTheChange, Dies::AfterTheChange] {
        let b = Arc::new(bench());
        b.disk.dies_at("log.md", when);
        let run = {
            let b = b.clone();
            tokio::spawn(async move {
                b.run(json!([{"id": "w", "tool": "file.append", "args": {"path": "log.md", "text": "x"}}])).await
            })
        };
        within(b.disk.died.notified()).await;
        within(b.engine.shutdown()).await;
        let report = within(run).await.unwrap();
        assert_eq!(report.status, RunStatus::Running);
        b.disk.lives();
        let next = bench_with(BenchParts { store: b.store.clone(), disk: b.disk.clone(), ..BenchParts::default() });
        within(next.engine.recover()).await.unwrap();
        assert_eq!(next.until_settled(report.run_id).await, RunStatus::Finished, "{when:?}");
        assert_eq!(next.disk.get("log.md").unwrap(), "x", "{when:?}");
        assert_sound(&next, report.run_id, "shutdown");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_approval_is_left_at_shutdown() {
    use toolyard_engine::plan::{Consent, PlanRequest};
    let b = Arc::new(crate::support::bench_under(json!({"risk": {"writes": "ask"}, "allowCommands": true})));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            let request = PlanRequest { consent: Consent::Ask, ..PlanRequest::default() };
            b.engine.run_plan(agent(), &plan(with_command()), request).await
        })
    };
    until("it asks", || b.engine.approvals().pending().len() == 1).await;
    within(b.engine.shutdown()).await;
    let report = within(run).await.unwrap().unwrap();
    assert_eq!(report.status, RunStatus::Pending, "it still waits for its approval");
    assert_eq!(b.disk.changes(), 0);
    assert!(b.engine.approvals().pending().is_empty());
}

// What ended just before the crash.

#[tokio::test]
async fn runs_that_ended_and_were_not_sealed_are_sealed_at_the_next_start() {
    let b = bench();
    let sealed = b.call("lab.echo", json!({"value": 1})).await.run_id;
    b.engine.seal().await.unwrap();
    let unsealed = b.call("lab.echo", json!({"value": 2})).await.run_id;
    let next = bench_with(BenchParts { store: b.store.clone(), ..BenchParts::default() });
    within(next.engine.recover()).await.unwrap();
    let verifier = next.engine.signer().verifier();
    for run_id in [sealed, unsealed] {
        assert!(verify_run(&*next.store, run_id, &verifier).unwrap().ledger_entry.is_some());
    }
    let ledger = verify_ledger(&*next.store, &verifier, &VerifyOptions::default()).unwrap();
    // The first engine is still alive here, unlike after a crash, and its own tick may have sealed the run as well.
    assert!(ledger.ok && (2..=3).contains(&ledger.runs), "{ledger:?}");
}

// What recovery cannot read.

#[tokio::test]
async fn a_run_that_cannot_be_read_is_reported_and_the_others_go_on() {
    let original = bench();
    let bad = original.run(with_command()).await.run_id;
    let good = original.run(with_command()).await.run_id;
    let store = original.store.with_frames(
        bad,
        |f| {
            f.truncate(4);
            f[2].payload = b"{".to_vec()
        },
        true,
    );
    // The other run crashed as well.
    let row = store.run(good).unwrap().unwrap();
    let row = toolyard_engine::store::RunRow { status: RunStatus::Running, ended_at: None, ..row };
    let (frames, blobs, epoch, durability) = (vec![], vec![], store.epoch(), Durability::Sync);
    store.append(Batch { run_id: good, frames, blobs, row: Some(row), epoch, release: false, durability }).unwrap();
    let b = bench_with(BenchParts { store: Arc::new(store), ..BenchParts::default() });
    let recovered = within(b.engine.recover()).await.unwrap();
    assert_eq!(recovered.failed.len(), 1);
    assert_eq!((recovered.failed[0].0, recovered.failed[0].1.code.as_str()), (bad, "RECORD_CORRUPTED"));
    assert_eq!(b.until_settled(good).await, RunStatus::Finished, "its record says that it has ended");
    assert_sound(&b, good, "the other");
}

#[tokio::test]
async fn a_run_that_has_ended_cannot_be_taken_up() {
    let b = bench();
    let report = within(b.engine.run_plan(person(), &plan(with_command()), approved())).await.unwrap();
    let refused = b.engine.resume(report.run_id, None).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "PRECONDITION_FAILED");
    b.engine.set_policy(policy(yolo()));
    assert!(within(b.engine.recover()).await.unwrap().resumed.is_empty());
}

// Who is asked, and under which name.

#[tokio::test]
async fn a_call_made_again_keeps_its_id_so_that_the_tool_can_tell() {
    let original = bench();
    let whole = original.run(json!([{"id": "k", "tool": "lab.keyed", "args": {"value": 1}}])).await;
    let frames = original.store.kept_frames(whole.run_id);
    let call = frames.iter().position(|f| f.kind == 4).unwrap() + 1;
    let b = wreck(&original, &Tree::new(), whole.run_id, call, true).bench(yolo());
    let report = within(b.engine.resume(whole.run_id, None)).await.unwrap();
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(b.lab.calls_of("lab.keyed"), 1);
    assert_eq!(b.export(whole.run_id).calls[0].call_id, original.export(whole.run_id).calls[0].call_id);
    assert_sound(&b, whole.run_id, "keyed");
}

/// Guarded by etags, it says, but it cannot tell what became of a call.
struct CannotTell;
impl Provider for CannotTell {
    fn prepare<'a>(&'a self, _: &'a CallContext, _: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(async { Ok(Prepared { intent: Some(Default::default()), ..Prepared::default() }) })
    }
    fn execute<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async { Ok(Output::default()) })
    }
}

fn cannot_tell(b: &Bench) {
    let tool = json!({"name":"x.write","title":"t","description":"d","category":"x","riskLevel":"writes","idempotency":"etag",
        "inputSchema":{"type":"object"}});
    b.engine.register(vec![crate::support::entry(tool)], Arc::new(CannotTell)).unwrap();
}

#[tokio::test]
async fn a_provider_that_cannot_tell_leaves_the_call_in_doubt_rather_than_failed() {
    let original = bench();
    cannot_tell(&original);
    let whole = original.run(json!([{"id": "x", "tool": "x.write", "args": {}}])).await;
    assert_eq!(whole.status, RunStatus::Finished);
    let frames = original.store.kept_frames(whole.run_id);
    let call = frames.iter().position(|f| f.kind == 4).unwrap() + 1;
    for choice in [Settlement::AssumeDone, Settlement::Rerun] {
        let b = wreck(&original, &Tree::new(), whole.run_id, call, false).bench(yolo());
        cannot_tell(&b);
        let report = within(b.engine.resume(whole.run_id, None)).await.unwrap();
        assert_eq!((report.status, failure_code(&report.error)), (RunStatus::Paused, "IN_DOUBT"));
        b.engine.settle(whole.run_id, choice, &approver("ada")).await.unwrap();
        let report = within(b.engine.resume(whole.run_id, None)).await.unwrap();
        assert_eq!(report.status, RunStatus::Finished, "{choice:?}");
        assert_sound(&b, whole.run_id, "cannot tell");
    }
}

#[tokio::test]
async fn of_two_tools_with_one_name_the_one_that_was_called_is_asked() {
    let plugin = |b: &Bench| {
        let tool = json!({"name":"file.append","title":"t","description":"d","category":"x","riskLevel":"writes","idempotency":"none",
            "inputSchema":{"type":"object"}});
        let entry = crate::support::entry_of(tool, ToolSource::plugin("other"));
        b.engine.register(vec![entry], Arc::new(CannotTell)).unwrap();
    };
    let original = bench();
    plugin(&original);
    let id = original
        .engine
        .tools()
        .snapshot
        .iter()
        .find(|e| e.name().as_str() == "file.append" && e.source() == &ToolSource::core())
        .unwrap()
        .id()
        .to_owned();
    let whole = original.run(json!([{"id": "a", "tool": id, "args": {"path": "a.md", "text": "x"}}])).await;
    assert_eq!(whole.status, RunStatus::Finished, "{:?}", whole.error);
    let frames = original.store.kept_frames(whole.run_id);
    let call = frames.iter().position(|f| f.kind == 4).unwrap() + 1;
    for happened in [false, true] {
        let b = wreck(&original, &Tree::new(), whole.run_id, call, happened).bench(yolo());
        plugin(&b);
        let report = within(b.engine.resume(whole.run_id, None)).await.unwrap();
        assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
        assert_eq!(b.disk.get("a.md").unwrap(), "x");
        let undo = within(b.engine.plan_undo(whole.run_id)).await.unwrap();
        assert!(undo.not_undoable.is_empty(), "{undo:?}");
    }
}

#[tokio::test]
async fn a_tool_that_is_gone_keeps_the_run_from_going_on_and_nothing_is_made_up() {
    let original = bench();
    let whole = original.run(with_command()).await;
    let b = wreck(&original, &Tree::new(), whole.run_id, 3, false).bench(yolo());
    b.engine.unregister(&ToolSource::core());
    let recovered = within(b.engine.recover()).await.unwrap();
    assert_eq!(recovered.failed.len(), 1);
    assert_eq!(b.row(whole.run_id).status, RunStatus::Running, "it can still go on once the tool is back");
    assert_eq!(b.store.kept_frames(whole.run_id).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_draining_node_ends_what_it_has_and_begins_nothing_new() {
    let b = Arc::new(bench());
    b.engine.announce_drain();
    assert!(b.engine.is_draining());
    assert!(b.call("lab.echo", json!({"value": 1})).await.ok, "what still arrives is done");
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            b.run(json!([{"id": "s", "tool": "lab.slow", "args": {"ms": 20_000}}, {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}, "dependsOn": ["s"]}])).await
        })
    };
    until("it runs", || b.lab.total() == 2).await;
    b.engine.refuse_new_runs();
    let refused = b.call("lab.echo", json!({"value": 1})).await;
    let error = refused.error.clone().unwrap();
    assert_eq!((error.code.as_str(), error.retryable), ("UNAVAILABLE", Some(true)), "{error:?}");
    let steps = plan(json!([{"id": "e", "tool": "lab.echo", "args": {"value": 1}}]));
    let started = b.engine.start_plan(person(), &steps, approved(), Default::default()).await;
    assert_eq!(started.err().unwrap().code.as_str(), "UNAVAILABLE");
    assert_eq!(within(run).await.unwrap().status, RunStatus::Finished, "runs under way go on");
    assert_eq!(b.disk.get("a.md").unwrap(), "x");
}
