//! Questions whose callers can come back: they stay open, survive a restart, and their answer is used once.

use crate::{
    approvals::{answer, asked, asks, write},
    support::{
        Bench, BenchParts, SettableClock, agent, bench_under, bench_with, code, detail, person, plan, request, until,
        within,
    },
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};
use toolyard_engine::{
    CallAnswer, CallRequest,
    approvals::{ApprovalDecision, DenialCause},
    ledger::verify_run,
    plan::{Consent, PlanRequest},
    record::{Record, RecordKind},
};
use toolyard_protocol::RunStatus;

/// A caller waits 200 ms, a question stays open for 7 days.
fn patient() -> Value {
    json!({"risk": {"writes": "ask"}, "approval": {"timeoutMs": 200}})
}

fn kept(policy: Value) -> Arc<Bench> {
    let b = Arc::new(bench_under(policy));
    b.engine.approvals().keep_questions();
    b
}

/// The next process over the same store and disk.
fn restarted(b: &Bench, policy: Value) -> Arc<Bench> {
    let parts = BenchParts { store: b.store.clone(), disk: b.disk.clone(), policy, ..BenchParts::default() };
    let next = Arc::new(bench_with(parts));
    next.engine.approvals().keep_questions();
    next
}

fn keyed() -> CallRequest {
    CallRequest { idempotency_key: Some("k".into()), ..request("file.write", write("a.md")) }
}

async fn call(b: &Bench) -> CallAnswer {
    b.answer(agent(), keyed()).await
}

#[tokio::test]
async fn a_caller_with_a_key_comes_back_for_the_answer_and_the_call_runs_once() {
    let b = kept(patient());
    let early = call(&b).await.result;
    assert_eq!(code(&early), "CONFIRMATION_REQUIRED", "nobody was connected, and the question stays open");
    let [question] = &b.engine.approvals().pending()[..] else { panic!("one question") };
    let id = question.request.id.clone();
    assert_eq!(detail(early.error.as_ref().unwrap(), "approvalId"), &json!(id));
    let days = question.request.expires_at.duration_since(question.request.created_at).as_hours() / 24;
    assert_eq!(days, 7);
    let still = call(&b).await.result;
    assert_eq!(code(&still), "CONFIRMATION_REQUIRED");
    assert_eq!(b.engine.approvals().pending().len(), 1, "asked once, however often the caller comes");
    b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    assert_eq!(b.disk.changes(), 0, "nothing runs without its caller");
    let done = call(&b).await;
    assert!(done.result.ok && !done.deduplicated, "{done:?}");
    let again = call(&b).await;
    assert!(again.result.ok && again.deduplicated);
    assert_eq!(b.disk.changes(), 1);
    let export = b.export(done.result.run_id);
    assert_eq!(export.approvals[0].approval_id.as_ref(), Some(&id));
    // The same call under another key is asked about anew.
    let other = CallRequest { idempotency_key: Some("l".into()), ..keyed() };
    assert_eq!(code(&b.answer(agent(), other).await.result), "CONFIRMATION_REQUIRED");
    assert_eq!(b.engine.approvals().pending().len(), 1);
}

#[tokio::test]
async fn a_denial_is_what_the_caller_finds_when_it_comes_back() {
    let b = kept(patient());
    call(&b).await;
    answer(&b, ApprovalDecision::Deny).await;
    let denied = call(&b).await.result;
    assert_eq!(code(&denied), "APPROVAL_DENIED");
    assert_eq!(detail(denied.error.as_ref().unwrap(), "cause"), &json!(DenialCause::User.as_str()));
    assert!(b.engine.approvals().pending().is_empty());
    assert_eq!(code(&call(&b).await.result), "APPROVAL_DENIED");
}

#[tokio::test]
async fn without_a_key_or_without_a_door_for_later_nothing_stays_open() {
    let b = kept(patient());
    let result = b.call_as(agent(), "file.write", write("a.md")).await;
    assert_eq!((code(&result), b.engine.approvals().pending().len()), ("APPROVAL_DENIED", 0));
    let b = Arc::new(bench_under(patient()));
    assert_eq!(code(&call(&b).await.result), "APPROVAL_DENIED");
    assert!(b.engine.approvals().pending().is_empty());
}

#[tokio::test]
async fn a_question_and_its_call_survive_a_process_that_dies_while_it_waits() {
    for answered_before in [false, true] {
        let b = kept(asks());
        let waiting = {
            let b = b.clone();
            tokio::spawn(async move { b.engine.call(agent(), keyed()).await })
        };
        let id = asked(&b).await;
        waiting.abort();
        until("the caller is gone", || waiting.is_finished()).await;
        if answered_before {
            b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
        }
        let next = restarted(&b, asks());
        within(next.engine.recover()).await.unwrap();
        if !answered_before {
            assert_eq!(next.engine.approvals().pending()[0].request.id, id, "it is listed again");
            next.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
        }
        let done = call(&next).await;
        assert!(done.result.ok, "{:?}", done.result.error);
        assert!(call(&next).await.deduplicated);
        assert_eq!(next.disk.changes(), 1);
        let report = verify_run(&*next.store, done.result.run_id, &next.engine.signer().verifier()).unwrap();
        assert!(report.ok, "{report:?}");
    }
}

#[tokio::test]
async fn a_target_that_changed_since_is_asked_about_again_and_the_old_question_is_closed() {
    let b = kept(patient());
    call(&b).await;
    let first = asked(&b).await;
    b.disk.set("a.md", "new content");
    call(&b).await;
    let [second] = &b.engine.approvals().pending()[..] else { panic!("one question is open") };
    assert_ne!(second.request.id, first);
    assert!(second.request.shown.as_ref().unwrap().diff.as_ref().unwrap().contains("-new content"));
    let closed = b.engine.approvals().get(&first).unwrap().unwrap();
    assert_eq!(closed.terminal_reason.as_deref(), Some("superseded"));
}

#[tokio::test]
async fn a_question_that_nobody_answers_in_all_its_time_is_a_denial() {
    let policy = json!({"risk": {"writes": "ask"}, "approval": {"timeoutMs": 1, "keepMs": 3_600_000}});
    let clock = Arc::new(SettableClock::default());
    let b = Arc::new(bench_with(BenchParts { policy, clock: clock.clone(), ..BenchParts::default() }));
    b.engine.approvals().keep_questions();
    call(&b).await;
    assert_eq!(
        b.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap().len(),
        0,
        "it is still open"
    );
    clock.advance(Duration::from_hours(1));
    assert!(b.engine.approvals().pending().is_empty());
    b.engine.approvals().expire().await.unwrap();
    let history = b.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap();
    assert_eq!(history[0].terminal_reason.as_deref(), Some("timeout"));
    assert_eq!(code(&call(&b).await.result), "APPROVAL_DENIED");
}

#[tokio::test]
async fn a_stopping_process_leaves_a_kept_question_open() {
    let b = kept(asks());
    let waiting = {
        let b = b.clone();
        tokio::spawn(async move { b.engine.call(agent(), keyed()).await.result })
    };
    let id = asked(&b).await;
    within(b.engine.shutdown()).await;
    assert_eq!(code(&within(waiting).await.unwrap()), "CONFIRMATION_REQUIRED");
    let next = restarted(&b, asks());
    within(next.engine.recover()).await.unwrap();
    next.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    assert!(call(&next).await.result.ok);
    assert_eq!(next.disk.changes(), 1);
}

#[tokio::test]
async fn a_plans_question_is_asked_once_and_its_run_goes_on_after_a_restart() {
    for answered_before in [false, true] {
        let b = kept(asks());
        let run = {
            let b = b.clone();
            tokio::spawn(async move {
                let p = plan(json!([{"id": "w", "tool": "file.write", "args": write("a.md")}]));
                let request = PlanRequest { consent: Consent::Ask, ..PlanRequest::default() };
                let run = b.engine.start_plan(agent(), &p, request, HashMap::new()).await.unwrap();
                run.detached().drive().await.unwrap()
            })
        };
        let id = asked(&b).await;
        within(b.engine.shutdown()).await;
        let left = within(run).await.unwrap();
        assert_eq!(left.status, RunStatus::Pending, "the run is left for the next start");
        if answered_before {
            b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
        }
        let next = restarted(&b, asks());
        let recovered = within(next.engine.recover()).await.unwrap();
        assert_eq!(recovered.resumed, [left.run_id], "{recovered:?}");
        if !answered_before {
            assert_eq!(asked(&next).await, id, "the same question");
            answer(&next, ApprovalDecision::AllowOnce).await;
        }
        assert_eq!(next.until_settled(left.run_id).await, RunStatus::Finished);
        assert_eq!(next.disk.changes(), 1);
        let frames = next.store.kept_frames(left.run_id);
        let questions = frames.iter().filter(|f| f.kind == RecordKind::ConfirmationRequested as u8);
        assert_eq!(questions.count(), 1, "asked once");
        let given = frames.iter().find_map(|f| match Record::decode(f.kind, &f.payload).unwrap() {
            Record::Confirmed(given) => Some(given.0),
            _ => None,
        });
        assert_eq!(given.unwrap().approval_id, Some(id));
        let report = verify_run(&*next.store, left.run_id, &next.engine.signer().verifier()).unwrap();
        assert!(report.ok, "{report:?}");
    }
}

#[tokio::test]
async fn records_of_approvals_before_they_were_bound_are_read() {
    let old = json!({"confirmationId": "01a1e17c-0385-7610-8843-1050c8653910", "planHash": "sha256:a",
        "policyHash": "sha256:p", "decision": "approved", "by": "ada", "at": "2026-01-01T00:00:00Z", "scope": "call"});
    let read = Record::decode(RecordKind::Confirmed as u8, old.to_string().as_bytes()).unwrap();
    let Record::Confirmed(given) = &read else { panic!("an approval") };
    assert_eq!((given.0.shown.as_ref(), given.0.door.as_ref()), (None, None));
    assert_eq!(serde_json::from_slice::<Value>(&read.encode()).unwrap(), old, "and written as they were");
    let asked = json!({"message": "m", "at": "2026-01-01T00:00:00Z"});
    let read = Record::decode(RecordKind::ConfirmationRequested as u8, asked.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&read.encode()).unwrap(), asked);
}
