//! What a question shows, and that its answer applies to exactly that.

use crate::{
    approvals::{answer, asked, asks, spawn, write},
    support::{Bench, agent, bench_under, code, detail, person, plan, policy, within},
};
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{
    Caller, Door, SessionMessage,
    approvals::{ApprovalDecision, ApprovalRequest, PreviewState, Shown, Verdict},
    ledger::verify_run,
    plan::{Consent, PlanRequest},
    redact::redactor,
    transcript,
};
use toolyard_protocol::{EventType, RunStatus};

async fn question(b: &Bench) -> ApprovalRequest {
    let id = asked(b).await;
    b.engine.approvals().get(&id).unwrap().unwrap().request
}

fn shown(request: &ApprovalRequest) -> &Shown {
    request.shown.as_ref().unwrap()
}

fn waiting() -> Arc<Bench> {
    let b = Arc::new(bench_under(asks()));
    std::mem::forget(b.engine.approvals().approver_connected(&Default::default()));
    b
}

#[tokio::test]
async fn a_question_shows_the_arguments_and_what_the_call_would_change() {
    let b = waiting();
    b.disk.set("a.md", "old");
    redactor().learn("correct-horse-battery");
    let args = json!({"path": "a.md", "content": "new correct-horse-battery"});
    let call = spawn(&b, "file.write", args);
    let request = question(&b).await;
    let seen = shown(&request);
    assert_eq!(seen.args["path"], "a.md");
    assert_eq!(seen.args["content"], "new (hidden)", "a secret is hidden");
    assert_eq!(seen.diff.as_deref(), Some("--- a.md\n+++ a.md\n-old\n+new (hidden)\n"));
    assert_eq!(seen.effects.as_ref().unwrap().modified[0].path, "a.md");
    assert_eq!((seen.preview, seen.args_cut, seen.diff_cut), (PreviewState::Made, false, false));
    assert_eq!((request.rule.as_str(), request.paths.as_slice()), ("policy.risk.writes", &["a.md".to_owned()][..]));
    assert_eq!(b.disk.get("a.md").as_deref(), Some("old"), "a prediction changes nothing");
    answer(&b, ApprovalDecision::Deny).await;
    within(call).await.unwrap();
}

#[tokio::test]
async fn a_tool_without_a_dry_run_and_one_that_would_fail_say_so() {
    let b = Arc::new(bench_under(json!({"approval": {"mode": "paranoid", "timeoutMs": 5000}})));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    for (tool, args, state) in [
        ("lab.echo", json!({"value": 1}), PreviewState::None),
        ("file.delete", json!({"path": "gone.md"}), PreviewState::Failed),
    ] {
        let call = spawn(&b, tool, args);
        let request = question(&b).await;
        assert_eq!(shown(&request).preview, state, "{tool}");
        assert_eq!(shown(&request).problem.is_some(), state == PreviewState::Failed, "{tool}");
        answer(&b, ApprovalDecision::Deny).await;
        within(call).await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_to_something_else_than_is_shown_is_refused() {
    let b = waiting();
    let call = spawn(&b, "file.write", write("a.md"));
    let request = question(&b).await;
    let verdict = |shown: &str| Verdict { shown: Some(shown.to_owned()), ..ApprovalDecision::AllowOnce.into() };
    let other = b.engine.approvals().resolve(&request.id, verdict("sha256:other"), &person()).await.unwrap_err();
    assert_eq!((other.code.as_str(), detail(&other, "reason")), ("CONFLICT", &json!("APPROVAL_SHOWN_DIFFERS")));
    assert_eq!(b.engine.approvals().pending().len(), 1, "it stays open");
    assert_eq!(b.disk.changes(), 0);
    b.engine.approvals().resolve(&request.id, verdict(request.shown_hash()), &person()).await.unwrap();
    assert!(within(call).await.unwrap().ok);
}

#[tokio::test]
async fn a_target_that_changed_after_it_was_shown_is_left_alone() {
    let b = waiting();
    b.disk.set("a.md", "old");
    let call = spawn(&b, "file.write", write("a.md"));
    question(&b).await;
    b.disk.set("a.md", "somebody else's");
    answer(&b, ApprovalDecision::AllowOnce).await;
    let result = within(call).await.unwrap();
    assert_eq!(code(&result), "CONFLICT");
    let failure = result.error.as_ref().unwrap();
    assert_eq!(detail(failure, "reason"), &json!("CHANGED_SINCE_APPROVAL"));
    assert_eq!(detail(failure, "changed"), &json!(["a.md"]));
    assert_eq!(b.disk.get("a.md").as_deref(), Some("somebody else's"));
    assert!(b.export(result.run_id).calls.is_empty(), "nothing was dispatched");
}

#[tokio::test]
async fn an_answer_under_another_policy_than_was_shown_does_not_count() {
    let b = waiting();
    let call = spawn(&b, "file.write", write("a.md"));
    question(&b).await;
    b.engine.set_policy(policy(json!({"risk": {"writes": "ask"}, "deny": ["file.delete"]})));
    answer(&b, ApprovalDecision::AllowOnce).await;
    let result = within(call).await.unwrap();
    assert_eq!(code(&result), "CONFIRMATION_REQUIRED");
    assert_eq!(detail(result.error.as_ref().unwrap(), "changed"), &json!(["policy"]));
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn the_record_says_who_approved_by_which_door_shown_what_and_when() {
    let b = waiting();
    let call = spawn(&b, "file.write", write("a.md"));
    let request = question(&b).await;
    let console = Caller { door: Door::Console, ..Caller::cli("grace") };
    b.engine.approvals().resolve(&request.id, ApprovalDecision::AllowOnce, &console).await.unwrap();
    let result = within(call).await.unwrap();
    assert!(result.ok);
    let answered = b.engine.approvals().get(&request.id).unwrap().unwrap();
    let export = b.export(result.run_id);
    let [given] = &export.approvals[..] else { panic!("one approval: {:?}", export.approvals) };
    assert_eq!((given.by.as_str(), given.door.as_deref()), ("grace", Some("console")));
    assert_eq!((given.approval_id.as_ref(), Some(given.at)), (Some(&request.id), answered.resolved_at));
    assert_eq!(given.shown.as_deref(), Some(shown(&request).hash.as_str()));
    assert_eq!(given.preview_hash, shown(&request).preview_hash);
    assert_eq!((&given.plan_hash, &given.policy_hash), (&request.args_hash, &shown(&request).policy_hash));
    assert_eq!(export.calls[0].confirmation_id, Some(given.confirmation_id));
    let facts = |kind: EventType| export.events.iter().find(|e| e.event_type == kind).unwrap().payload.clone().unwrap();
    assert_eq!(facts(EventType::RunConfirmationRequested)["shown"], shown(&request).hash.as_str());
    assert_eq!(facts(EventType::RunConfirmed)["door"], "console");
    let SessionMessage::Assistant { approval, .. } = &transcript(&export)[0] else { panic!("a call") };
    assert_eq!(approval.as_ref().unwrap().shown, given.shown);
    b.store_settled();
    let report = verify_run(&*b.store, result.run_id, &b.engine.signer().verifier()).unwrap();
    assert_eq!((report.ok, report.approvals), (true, 1), "{report:?}");
}

impl Bench {
    fn store_settled(&self) {
        toolyard_engine::Store::settle(&*self.store).unwrap();
    }
}

#[tokio::test]
async fn of_two_answers_at_once_one_counts_and_the_other_learns_whose() {
    for _ in 0..20 {
        let b = waiting();
        let call = spawn(&b, "file.write", write("a.md"));
        let id = asked(&b).await;
        let (ada, bob) = (Caller::cli("ada"), Caller::cli("bob"));
        let approvals = b.engine.approvals();
        let (yes, no) = tokio::join!(
            approvals.resolve(&id, ApprovalDecision::AllowOnce, &ada),
            approvals.resolve(&id, ApprovalDecision::Deny, &bob),
        );
        let (winner, lost) = match (yes, no) {
            (Ok(()), Err(lost)) => ("ada", lost),
            (Err(lost), Ok(())) => ("bob", lost),
            other => panic!("one of the two: {other:?}"),
        };
        assert_eq!(lost.code.as_str(), "CONFLICT");
        assert_eq!(detail(&lost, "resolvedBy"), &json!(winner));
        assert_eq!(within(call).await.unwrap().ok, winner == "ada");
        assert_eq!(b.disk.changes(), usize::from(winner == "ada"));
    }
}

#[tokio::test]
async fn the_person_can_tell_the_caller_why_not() {
    let b = waiting();
    let call = spawn(&b, "file.write", write("a.md"));
    let id = asked(&b).await;
    let verdict = Verdict { note: Some("use the journal".into()), ..ApprovalDecision::Deny.into() };
    b.engine.approvals().resolve(&id, verdict, &person()).await.unwrap();
    let result = within(call).await.unwrap();
    assert!(result.error.as_ref().unwrap().message.ends_with("Reason: use the journal"), "{result:?}");
}

fn ask_for(b: &Arc<Bench>, steps: Value) -> tokio::task::JoinHandle<toolyard_engine::plan::RunReport> {
    let b = b.clone();
    tokio::spawn(async move {
        let request = PlanRequest { consent: Consent::Ask, ..PlanRequest::default() };
        b.engine.run_plan(agent(), &plan(steps), request).await.unwrap()
    })
}

#[tokio::test]
async fn a_plans_question_shows_its_dry_run_and_binds_the_run_to_it() {
    let steps = || json!([{"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "new"}}]);
    for changes in [false, true] {
        let b = waiting();
        b.disk.set("a.md", "old");
        let run = ask_for(&b, steps());
        let request = question(&b).await;
        assert_eq!(shown(&request).diff.as_deref(), Some("--- a.md\n+++ a.md\n-old\n+new\n"));
        assert_eq!(shown(&request).args["steps"][0]["tool"], "file.write");
        if changes {
            b.disk.set("a.md", "other");
        }
        answer(&b, ApprovalDecision::AllowOnce).await;
        let report = within(run).await.unwrap();
        if changes {
            assert_eq!(report.status, RunStatus::Cancelled);
            assert!(report.error.unwrap().message.contains("the preview changed"));
            assert_eq!(b.disk.get("a.md").as_deref(), Some("other"));
        } else {
            assert_eq!(report.status, RunStatus::Finished);
            let given = b.export(report.run_id).manifest.confirmation.unwrap();
            assert_eq!((given.shown.as_ref(), given.door.as_deref()), (Some(&shown(&request).hash), Some("cli")));
            assert_eq!(given.preview_hash, shown(&request).preview_hash);
        }
    }
}
