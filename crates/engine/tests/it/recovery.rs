//! After a crash, no recorded call is lost, none is made twice, and no result is invented.

use crate::{
    files::{Dies, Disk, Tree},
    stores::Tap,
    support::{
        Bench, BenchParts, agent, approver, bench, bench_with, code, failure_code, limits, person, plan, request,
        status_words, step, until, within, words, yolo,
    },
};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};
use toolyard_engine::{
    Store,
    ledger::verify_run,
    plan::RunReport,
    record::{Record, Settlement},
    store::Frame,
};
use toolyard_protocol::{ActionPlan, CallId, ResultStatus, RunId, RunStatus};

/// A run as a crash left it: its first records, and the disk as it was at that moment.
pub(crate) struct Wreck {
    pub(crate) store: Tap,
    pub(crate) tree: Tree,
    /// How often each call had been applied.
    pub(crate) applied: HashMap<CallId, u32>,
}

/// What was on the disk when the first `k` records had been made. A call that has begun and has no result may or may
/// not have had its effect: `happened` says which.
pub(crate) fn wreck(original: &Bench, start: &Tree, run_id: RunId, k: usize, happened: bool) -> Wreck {
    let frames = original.store.kept_frames(run_id);
    let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
    for frame in &frames[..k] {
        match Record::decode(frame.kind, &frame.payload).unwrap() {
            Record::Call(c) => drop(begun.insert(c.call_id)),
            Record::Result(r) => drop(ended.insert(r.call_id)),
            _ => {}
        }
    }
    let mut tree = start.clone();
    let mut applied = HashMap::new();
    for change in original.disk.history.lock().unwrap().iter() {
        if ended.contains(&change.call) || (happened && begun.contains(&change.call)) {
            match &change.after {
                Some(content) => drop(tree.insert(change.path.clone(), content.clone())),
                None => drop(tree.remove(&change.path)),
            }
            *applied.entry(change.call).or_default() += 1;
        }
    }
    Wreck { store: original.store.crashed_at(run_id, k), tree, applied }
}

impl Wreck {
    pub(crate) fn bench(self, policy: Value) -> Bench {
        let disk = Disk::of(self.tree);
        *disk.applied.lock().unwrap() = self.applied;
        bench_with(BenchParts { store: Arc::new(self.store), disk, policy, ..BenchParts::default() })
    }
}

pub(crate) fn assert_sound(b: &Bench, run_id: RunId, context: &str) {
    let report = verify_run(&*b.store, run_id, &b.engine.signer().verifier()).unwrap();
    assert!(report.ok, "{context}: {report:?}");
    let export = b.export(run_id);
    let mut results: HashMap<CallId, usize> = HashMap::new();
    for r in &export.results {
        *results.entry(r.call_id).or_default() += 1;
    }
    assert!(results.values().all(|n| *n == 1), "{context}: one result each");
    let calls: HashSet<CallId> = export.calls.iter().map(|c| c.call_id).collect();
    assert_eq!(calls.len(), export.calls.len(), "{context}: each call once");
    assert!(calls.iter().all(|c| results.contains_key(c)), "{context}: every call has a result");
    let seqs: Vec<u64> = export.events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{context}");
}

fn twelve_steps() -> ActionPlan {
    plan(json!([
        {"id": "read", "tool": "file.read", "args": {"path": "in.md"}},
        {"id": "create", "tool": "file.write", "args": {"path": "out.md", "content": "$steps.read.content", "ifNotExists": true}},
        {"id": "append", "tool": "file.append", "args": {"path": "out.md", "text": "+1"}, "dependsOn": ["create"]},
        {"id": "again", "tool": "file.append", "args": {"path": "out.md", "text": "+2"}, "dependsOn": ["append"]},
        {"id": "list", "tool": "lab.items", "args": {"items": ["a", "b", "c"]}},
        {"id": "each", "tool": "file.append", "args": {"path": "log.md", "text": "{item}"}, "dependsOn": ["again"],
         "foreach": {"from": "$steps.list.items", "itemName": "item"}},
        {"id": "flaky", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "onError": "retry", "retry": {"maxAttempts": 3, "backoffMs": 5}},
        {"id": "gone", "tool": "file.read", "args": {"path": "nowhere.md"}, "onError": "skip"},
        {"id": "skipped", "tool": "file.append", "args": {"path": "log.md", "text": "never"}, "dependsOn": ["gone"]},
        {"id": "guarded", "tool": "file.write", "args": {"path": "out.md", "content": "final", "expectedEtag": "$steps.again.etag"}},
        {"id": "remove", "tool": "file.delete", "args": {"path": "in.md"}, "dependsOn": ["guarded"]},
        {"id": "same", "tool": "lab.same", "args": {"value": "$steps.each.okCount"}, "dependsOn": ["remove"]}]))
}

#[tokio::test(start_paused = true)]
async fn at_every_place_a_crash_loses_nothing_and_repeats_nothing() {
    let original = bench();
    original.disk.set("in.md", "hello");
    let start = original.disk.snapshot();
    let whole = original.run_plan(&twelve_steps()).await;
    assert_eq!(whole.status, RunStatus::Finished, "{:?}", whole.error);
    let run_id = whole.run_id;
    let end = original.disk.snapshot();
    assert_eq!(end.get("log.md").map(String::as_str), Some("abc"));
    let n = original.store.kept_frames(run_id).len();
    assert!(n > 30, "{n} records");
    for k in 2..=n {
        for happened in [false, true] {
            let context = format!("crash after record {k} of {n}, effect {happened}");
            let b = wreck(&original, &start, run_id, k, happened).bench(yolo());
            let recovered = within(b.engine.recover()).await.unwrap();
            assert!(recovered.failed.is_empty(), "{context}: {:?}", recovered.failed);
            assert_eq!(b.until_settled(run_id).await, RunStatus::Finished, "{context}");
            assert_eq!(b.disk.snapshot(), end, "{context}");
            let applied = b.disk.applied.lock().unwrap().clone();
            assert_eq!(applied.len(), 8, "{context}: every write happened");
            assert!(applied.values().all(|n| *n == 1), "{context}: and once only: {applied:?}");
            assert_sound(&b, run_id, &context);
            assert_eq!(b.store.holder(run_id).unwrap(), None, "{context}");
            let report = b.export(run_id);
            let ok = report.results.iter().filter(|r| r.ok).count();
            assert_eq!(ok, original.export(run_id).results.iter().filter(|r| r.ok).count(), "{context}");
            assert!(within(b.engine.replay(run_id)).await.unwrap().ok, "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_crashes_again_and_again_still_ends_once() {
    let original = bench();
    original.disk.set("in.md", "hello");
    let start = original.disk.snapshot();
    let whole = original.run_plan(&twelve_steps()).await;
    let (run_id, end) = (whole.run_id, original.disk.snapshot());
    // Crash in the middle, recover, and crash again at each place of what the recovery wrote.
    let first = wreck(&original, &start, run_id, 9, true);
    let tree = first.tree.clone();
    let b = first.bench(yolo());
    within(b.engine.recover()).await.unwrap();
    assert_eq!(b.until_settled(run_id).await, RunStatus::Finished);
    let n = b.store.kept_frames(run_id).len();
    for k in 9..=n {
        for happened in [false, true] {
            let context = format!("second crash after {k} of {n}, effect {happened}");
            let again = wreck(&b, &tree, run_id, k, happened).bench(yolo());
            within(again.engine.recover()).await.unwrap();
            assert_eq!(again.until_settled(run_id).await, RunStatus::Finished, "{context}");
            assert_eq!(again.disk.snapshot(), end, "{context}");
            assert_sound(&again, run_id, &context);
        }
    }
}

// A process that really stops in the middle of a write.

async fn die_in(path: &str, when: Dies, steps: Value) -> (Bench, RunId) {
    let b = Arc::new(bench());
    b.disk.set("in.md", "hello");
    b.disk.dies_at(path, when);
    let run = {
        let b = b.clone();
        tokio::spawn(async move { b.run(steps).await })
    };
    within(b.disk.died.notified()).await;
    let run_id = b.engine.active_runs()[0];
    run.abort();
    let _ = run.await;
    b.disk.lives();
    let frames = b.store.kept_frames(run_id).len();
    let store = Arc::new(b.store.crashed_at(run_id, frames));
    (bench_with(BenchParts { store, disk: b.disk.clone(), ..BenchParts::default() }), run_id)
}

#[tokio::test]
async fn a_write_cut_off_before_or_after_its_change_happens_exactly_once() {
    for when in [Dies::BeforeTheChange, Dies::AfterTheChange] {
        let (b, run_id) = die_in(
            "log.md",
            when,
            json!([{"id": "a", "tool": "file.append", "args": {"path": "log.md", "text": "x"}},
                   {"id": "b", "tool": "file.append", "args": {"path": "log.md", "text": "y"}, "dependsOn": ["a"]}]),
        )
        .await;
        let report = within(b.engine.resume(run_id, None)).await.unwrap();
        assert_eq!(report.status, RunStatus::Finished, "{when:?}");
        assert_eq!(b.disk.get("log.md").unwrap(), "xy", "{when:?}");
        assert_eq!(report.effects.created.len() + report.effects.modified.len(), 2, "{when:?}: both are reported");
        assert_sound(&b, run_id, "cut off");
        let notes = b.export(run_id).events;
        assert!(notes.iter().any(|e| e.payload.as_ref().is_some_and(|p| p.get("recovered").is_some())));
    }
}

#[tokio::test]
async fn a_target_that_is_neither_before_nor_after_is_a_conflict_and_left_alone() {
    let steps = json!([{"id": "a", "tool": "file.append", "args": {"path": "log.md", "text": "x"}}]);
    let (b, run_id) = die_in("log.md", Dies::BeforeTheChange, steps).await;
    b.disk.set("log.md", "somebody else's");
    let report = within(b.engine.resume(run_id, None)).await.unwrap();
    assert_eq!((report.status, failure_code(&report.error)), (RunStatus::Failed, "CONFLICT"));
    assert_eq!(b.disk.get("log.md").unwrap(), "somebody else's");
    assert_sound(&b, run_id, "conflict");
}

// Calls that cannot be asked.

pub(crate) fn with_command() -> Value {
    json!([
        {"id": "w", "tool": "file.append", "args": {"path": "log.md", "text": "x"}},
        {"id": "c", "tool": "lab.command", "args": {"id": "reload"}, "dependsOn": ["w"]},
        {"id": "after", "tool": "file.append", "args": {"path": "log.md", "text": "y"}, "dependsOn": ["c"]}])
}

/// A run whose process died while the command ran.
async fn in_doubt() -> (Bench, RunId) {
    let original = bench();
    let whole = original.run(with_command()).await;
    assert_eq!(whole.status, RunStatus::Finished);
    let frames = original.store.kept_frames(whole.run_id);
    let command =
        |f: &Frame| matches!(Record::decode(f.kind, &f.payload), Ok(Record::Call(c)) if c.step_id.as_str() == "c");
    let k = frames.iter().position(command).unwrap() + 1;
    (wreck(&original, &Tree::new(), whole.run_id, k, true).bench(yolo()), whole.run_id)
}

#[tokio::test]
async fn a_call_that_cannot_be_asked_pauses_the_run() {
    let (b, run_id) = in_doubt().await;
    let recovered = within(b.engine.recover()).await.unwrap();
    assert_eq!(recovered.resumed, [run_id]);
    assert_eq!(b.until_settled(run_id).await, RunStatus::Paused);
    assert_eq!(b.lab.total(), 0, "not made again");
    assert_eq!(b.disk.get("log.md").unwrap(), "x");
    let export = b.export(run_id);
    assert_eq!(export.manifest.status, RunStatus::Paused);
    assert!(export.events.iter().any(|e| e.payload.as_ref().is_some_and(|p| p.get("paused").is_some())));
    assert_eq!(b.store.holder(run_id).unwrap(), None);
    // Resumed without a decision, the run pauses again.
    let report = within(b.engine.resume(run_id, None)).await.unwrap();
    assert_eq!((report.status, failure_code(&report.error)), (RunStatus::Paused, "IN_DOUBT"));
    assert_eq!(status_words(&report), words([("w", "ok"), ("c", "error"), ("after", "open")]));
}

async fn settled(choice: Settlement) -> (Bench, RunReport) {
    let (b, run_id) = in_doubt().await;
    within(b.engine.recover()).await.unwrap();
    b.until_settled(run_id).await;
    let calls = within(b.engine.settle(run_id, choice, &approver("ada"))).await.unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!(b.row(run_id).status, RunStatus::Paused);
    let again = within(b.engine.settle(run_id, choice, &approver("ada"))).await.unwrap_err();
    assert_eq!(again.code.as_str(), "PRECONDITION_FAILED", "settled once");
    // A paused run is held by nobody.
    let report = within(b.engine.resume(run_id, None)).await.unwrap();
    assert_sound(&b, run_id, "settled");
    assert_eq!(b.row(run_id).status, report.status);
    (b, report)
}

#[tokio::test]
async fn a_person_can_say_that_it_happened() {
    let (b, report) = settled(Settlement::AssumeDone).await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(b.lab.total(), 0);
    assert_eq!(b.disk.get("log.md").unwrap(), "xy");
    let c = b.export(report.run_id).results.into_iter().find(|r| r.step_id.as_str() == "c").unwrap();
    assert_eq!(c.status, ResultStatus::Skipped);
    assert!(c.user_message.as_ref().unwrap().contains("ada"));
}

#[tokio::test]
async fn a_person_can_have_it_made_again() {
    let (b, report) = settled(Settlement::Rerun).await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(b.lab.calls_of("lab.command"), 1);
    assert_eq!(b.disk.get("log.md").unwrap(), "xy");
}

#[tokio::test]
async fn a_person_can_give_it_up() {
    let (b, report) = settled(Settlement::Abort).await;
    assert_eq!(report.status, RunStatus::Cancelled);
    assert_eq!(b.lab.total(), 0);
    assert_eq!(b.disk.get("log.md").unwrap(), "x");
    let c = b.export(report.run_id).results.into_iter().find(|r| r.step_id.as_str() == "c").unwrap();
    assert_eq!(c.error.as_ref().unwrap().details.as_ref().unwrap()["abortedBy"], "ada");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_under_way_cannot_be_settled_or_resumed_from_outside() {
    let b = Arc::new(bench());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            b.run(json!([{"id": "s", "tool": "lab.slow", "args": {"ms": 100}}, {"id": "c", "tool": "lab.command", "args": {"id": "x"}}])).await
        })
    };
    until("it runs", || b.lab.total() == 1).await;
    let run_id = b.engine.active_runs()[0];
    assert!(b.engine.settle(run_id, Settlement::Abort, &approver("ada")).await.is_err());
    assert!(b.engine.resume(run_id, None).await.is_err());
    let recovered = b.engine.recover().await.unwrap();
    assert!(recovered.resumed.is_empty());
    assert_eq!(within(run).await.unwrap().status, RunStatus::Finished);
}

#[tokio::test]
async fn of_two_that_take_a_run_up_at_once_one_is_refused() {
    let (b, run_id) = in_doubt().await;
    within(b.engine.recover()).await.unwrap();
    b.until_settled(run_id).await;
    b.engine.settle(run_id, Settlement::AssumeDone, &approver("ada")).await.unwrap();
    let (one, two) = tokio::join!(b.engine.resume(run_id, None), b.engine.resume(run_id, None));
    let ended: Vec<_> = [&one, &two].into_iter().filter(|r| r.is_ok()).collect();
    assert_eq!(ended.len(), 1, "{one:?} {two:?}");
    assert_eq!(b.disk.get("log.md").unwrap(), "xy");
    assert_sound(&b, run_id, "taken up twice");
}

// Direct calls.

async fn crashed_call(tool: &str, args: Value, tree: Tree, after: usize, happened: bool) -> (Bench, RunId) {
    let original = bench_with(BenchParts { disk: Disk::of(tree.clone()), ..BenchParts::default() });
    let result = original.answer(agent(), request(tool, args)).await.result;
    assert!(result.ok);
    let wreck = wreck(&original, &tree, result.run_id, after, happened);
    (wreck.bench(yolo()), result.run_id)
}

#[tokio::test]
async fn an_interrupted_direct_call_gets_its_result_and_is_not_made_again() {
    let write = json!({"path": "a.md", "content": "x"});
    // (tool, happened) -> (status, code, reason)
    for (tool, args, happened, status, word) in [
        ("file.write", write.clone(), true, RunStatus::Finished, "none"),
        ("file.write", write, false, RunStatus::Failed, "CANCELLED"),
        ("lab.echo", json!({"value": 1}), false, RunStatus::Failed, "CANCELLED"),
        ("lab.command", json!({"id": "x"}), false, RunStatus::Failed, "INTERNAL_ERROR"),
        ("lab.keyed", json!({}), false, RunStatus::Failed, "INTERNAL_ERROR"),
    ] {
        let (b, run_id) = crashed_call(tool, args, Tree::new(), 2, happened).await;
        let recovered = within(b.engine.recover()).await.unwrap();
        assert_eq!(recovered.settled_calls, [run_id], "{tool}: {:?}", recovered.failed);
        assert_eq!(b.row(run_id).status, status, "{tool}");
        let export = b.export(run_id);
        assert_eq!((export.results.len(), code(&export.results[0])), (1, word), "{tool}");
        if happened {
            assert_eq!(export.results[0].effects.as_ref().unwrap().created[0].path, "a.md");
        }
        assert_eq!(b.lab.total(), 0, "{tool}: nobody waits for it any more");
        assert_eq!(b.disk.changes(), 0, "{tool}");
        assert_sound(&b, run_id, tool);
    }
}

#[tokio::test]
async fn a_direct_call_that_died_before_it_was_made_just_ends() {
    let (b, run_id) = crashed_call("lab.echo", json!({"value": 1}), Tree::new(), 1, false).await;
    within(b.engine.recover()).await.unwrap();
    assert_eq!(b.row(run_id).status, RunStatus::Failed);
    assert_sound(&b, run_id, "never made");
}

// Timers, limits, policies.

#[tokio::test(start_paused = true)]
async fn a_retry_goes_on_waiting_for_the_rest_of_its_time() {
    let steps = json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "onError": "retry",
        "retry": {"maxAttempts": 2, "backoffMs": 600_000}}]);
    let original = bench();
    let whole = original.run(steps).await;
    let frames = original.store.kept_frames(whole.run_id);
    let retry = frames.iter().position(|f| matches!(Record::decode(f.kind, &f.payload), Ok(Record::Retry(_)))).unwrap();
    let Ok(Record::Retry(recorded)) = Record::decode(frames[retry].kind, &frames[retry].payload) else { panic!() };
    let b = wreck(&original, &Tree::new(), whole.run_id, retry + 1, false).bench(yolo());
    let wait = recorded.due.as_microsecond() - jiff::Timestamp::now().as_microsecond();
    let began = tokio::time::Instant::now();
    let report = within(b.engine.resume(whole.run_id, None)).await.unwrap();
    assert_eq!(step(&report, "f").attempts, 2);
    let waited = began.elapsed().as_micros() as i64;
    // The wait is in the runtime's paused time, the moment it ends in the system's: a busy machine may let real seconds
    // pass between the two.
    assert!((waited - wait).abs() < 60_000_000, "waited {waited} of {wait}");
    let retries = b.store.kept_frames(whole.run_id).iter().filter(|f| f.kind == 7).count();
    assert_eq!(retries, 1, "the wait is recorded once");
}

#[tokio::test]
async fn a_retry_is_recorded_before_it_is_waited_for() {
    let b = Arc::new(bench());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            b.run(json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 1}, "onError": "retry",
                "retry": {"maxAttempts": 2, "backoffMs": 600_000}}]))
                .await
        })
    };
    until("the wait is in the store", || b.store.log().iter().any(|l| l.contains("Retry"))).await;
    run.abort();
}

#[tokio::test]
async fn what_was_written_before_the_crash_counts_against_the_limit() {
    let append = |id: &str, text: &str| json!({"id": id, "tool": "file.write", "args": {"path": format!("{id}.md"), "content": text}});
    let original = bench();
    let whole = original.run(json!([append("a", "123456"), append("b", "123456")])).await;
    let frames = original.store.kept_frames(whole.run_id);
    let first = frames.iter().position(|f| f.kind == 5).unwrap() + 1;
    let store = wreck(&original, &Tree::new(), whole.run_id, first, true);
    let b = store.bench(limits(json!({"maxBytesWritten": 10})));
    let report = within(b.engine.resume(whole.run_id, Some(approver("ada")))).await.unwrap();
    assert_eq!(failure_code(&report.error), "LIMIT_EXCEEDED");
    assert_eq!(b.disk.get("b.md"), None);
}

#[tokio::test]
async fn under_another_policy_a_run_goes_on_only_with_a_new_approval() {
    let original = bench();
    let whole = original.run(with_command()).await;
    let run_id = whole.run_id;
    let b = wreck(&original, &Tree::new(), run_id, 2, false).bench(limits(json!({"maxAttempts": 2})));
    let recovered = within(b.engine.recover()).await.unwrap();
    assert_eq!((recovered.paused.as_slice(), recovered.resumed.len()), (&[run_id][..], 0));
    assert_eq!(b.disk.changes(), 0);
    let refused = b.engine.resume(run_id, None).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "CONFIRMATION_REQUIRED");
    let report = within(b.engine.resume(run_id, Some(approver("grace")))).await.unwrap();
    assert_eq!(report.status, RunStatus::Finished);
    let confirmation = b.export(run_id).manifest.confirmation.unwrap();
    assert_eq!(
        (confirmation.by.as_str(), confirmation.policy_hash.as_str()),
        ("grace", b.engine.policy_for(&person()).hash())
    );
    assert_sound(&b, run_id, "approved anew");
}

#[tokio::test]
async fn a_run_that_was_never_approved_is_not_started_by_a_restart() {
    let original = bench();
    let whole = original.run(with_command()).await;
    // Only the first record reached the disk.
    let b = wreck(&original, &Tree::new(), whole.run_id, 1, false)
        .bench(json!({"risk": {"writes": "ask"}, "allowCommands": true}));
    let recovered = within(b.engine.recover()).await.unwrap();
    assert_eq!(recovered.paused, [whole.run_id]);
    assert_eq!((b.disk.changes(), b.lab.total()), (0, 0));
}
