//! Calls that a person must allow.

use crate::support::{Bench, agent, bench_under, code, object, person, plan, request, until, within};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use toolyard_engine::{
    BoxFuture, CallRequest, Hook, HookCall, HookVerdict,
    approvals::{ApprovalDecision, GrantScope},
    plan::{Consent, PlanRequest},
};
use toolyard_protocol::{EventType, ResultStatus, RunStatus, ToolResult};

/// Long enough that a call made at once is still covered on a busy machine.
const GRANT_SECONDS: i64 = 3;

pub(crate) fn asks() -> Value {
    json!({"risk": {"writes": "ask"}, "approval": {"timeoutMs": 5000}})
}

pub(crate) fn write(path: &str) -> Value {
    json!({"path": path, "content": "x"})
}

pub(crate) fn spawn(b: &Arc<Bench>, tool: &'static str, args: Value) -> tokio::task::JoinHandle<ToolResult> {
    let b = b.clone();
    tokio::spawn(async move { b.call_as(agent(), tool, args).await })
}

pub(crate) async fn asked(b: &Bench) -> String {
    b.until("a question", |b| !b.engine.approvals().pending().is_empty()).await;
    b.engine.approvals().pending()[0].request.id.clone()
}

fn always(until: Option<Timestamp>) -> ApprovalDecision {
    ApprovalDecision::AllowAlways { until, scope: GrantScope::Tool }
}

pub(crate) async fn answer(b: &Bench, decision: ApprovalDecision) {
    let id = asked(b).await;
    b.engine.approvals().resolve(&id, decision, &person()).await.unwrap();
}

#[toolyard_shows::shows("002-3.3-04")]
#[tokio::test]
async fn a_persons_own_act_answers_the_policys_question_and_is_recorded() {
    let b = bench_under(asks());
    let result = b.call("file.write", write("a.md")).await;
    assert!(result.ok);
    let export = b.export(result.run_id);
    let confirmation = export.manifest.confirmation.as_ref().unwrap();
    assert_eq!(confirmation.by, "ada");
    assert_eq!(export.calls[0].confirmation_id, Some(confirmation.confirmation_id));
    assert_eq!(confirmation.plan_hash, export.calls[0].args_hash(), "it was for these arguments");
    let order: Vec<EventType> = export.events.iter().map(|e| e.event_type).collect();
    let at = |t: EventType| order.iter().position(|e| *e == t).unwrap();
    assert!(at(EventType::RunConfirmed) < at(EventType::StepStarted));
}

#[tokio::test]
async fn an_agent_with_nobody_to_ask_is_refused_at_once() {
    let b = bench_under(asks());
    let result = b.call_as(agent(), "file.write", write("a.md")).await;
    assert_eq!((result.status, code(&result)), (ResultStatus::Error, "APPROVAL_DENIED"));
    assert_eq!(b.disk.changes(), 0);
    let history = b.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap();
    assert_eq!(history[0].terminal_reason.as_deref(), Some("no-route"));
}

#[toolyard_shows::shows("002-3.3-03")]
#[tokio::test]
async fn an_approved_call_runs_under_the_approvers_name() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let call = spawn(&b, "file.write", write("a.md"));
    let id = asked(&b).await;
    let question = b.engine.approvals().get(&id).unwrap().unwrap().request;
    assert_eq!((question.tool.as_str(), question.agent.as_str()), ("file.write", "scribe"));
    assert_eq!(b.disk.changes(), 0, "nothing happens before the answer");
    b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    let result = within(call).await.unwrap();
    assert!(result.ok);
    let export = b.export(result.run_id);
    assert_eq!(export.calls[0].args_hash(), question.args_hash);
    let confirmation = export.manifest.confirmation.unwrap();
    assert_eq!(
        (confirmation.by.as_str(), Some(confirmation.confirmation_id)),
        ("ada", export.calls[0].confirmation_id)
    );
    let types: Vec<_> = export.events.iter().map(|e| e.event_type).collect();
    assert!(types.contains(&EventType::RunConfirmationRequested) && types.contains(&EventType::RunConfirmed));
    // The same answer again is fine, another is not.
    b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    let other = b.engine.approvals().resolve(&id, ApprovalDecision::Deny, &person()).await.unwrap_err();
    assert_eq!(other.code.as_str(), "CONFLICT");
    // Once was once.
    let again = spawn(&b, "file.write", write("b.md"));
    answer(&b, ApprovalDecision::Deny).await;
    assert_eq!(code(&within(again).await.unwrap()), "APPROVAL_DENIED");
}

#[tokio::test]
async fn only_those_with_the_scope_may_answer() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let call = spawn(&b, "file.write", write("a.md"));
    let id = asked(&b).await;
    let refused = b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &agent()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "POLICY_DENIED");
    let unknown = b.engine.approvals().resolve("nope", ApprovalDecision::AllowOnce, &person()).await.unwrap_err();
    assert_eq!(unknown.code.as_str(), "NOT_FOUND");
    answer(&b, ApprovalDecision::Deny).await;
    let result = within(call).await.unwrap();
    assert_eq!(code(&result), "APPROVAL_DENIED");
    assert_eq!(result.error.as_ref().unwrap().retryable, Some(false));
    assert_eq!(b.disk.changes(), 0);
    assert!(b.export(result.run_id).calls.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_question_nobody_answers_times_out_as_denied() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let result = b.call_as(agent(), "file.write", write("a.md")).await;
    assert_eq!(code(&result), "APPROVAL_DENIED");
    assert!(result.error.as_ref().unwrap().message.contains("timed out"));
    assert!(b.engine.approvals().pending().is_empty());
    assert_eq!(
        b.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap()[0].terminal_reason.as_deref(),
        Some("timeout")
    );
}

#[toolyard_shows::shows("002-3.2-07")]
#[tokio::test]
async fn a_call_stopped_while_it_waits_ends_as_cancelled() {
    for by_call in [false, true] {
        let b = Arc::new(bench_under(asks()));
        let _somebody = b.engine.approvals().approver_connected(&Default::default());
        let call = spawn(&b, "file.write", write("a.md"));
        let id = asked(&b).await;
        let question = b.engine.approvals().get(&id).unwrap().unwrap().request;
        let stopped = if by_call {
            b.engine.cancel_call_for(&toolyard_engine::Caller::cli("ada"), question.call_id.unwrap())
        } else {
            b.engine.cancel_run(question.run_id.unwrap())
        };
        assert!(stopped, "by call: {by_call}");
        let result = within(call).await.unwrap();
        assert_eq!((result.status, code(&result)), (ResultStatus::Cancelled, "CANCELLED"));
        assert_eq!(b.row(result.run_id).status, RunStatus::Cancelled);
        assert_eq!(
            b.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap()[0].terminal_reason.as_deref(),
            Some("cancelled")
        );
        let late = b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap_err();
        assert_eq!(late.code.as_str(), "CONFLICT");
        assert_eq!(b.disk.changes(), 0);
    }
}

#[tokio::test]
async fn allow_always_means_the_next_call_is_not_asked_until_it_is_taken_back() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let call = spawn(&b, "file.write", write("a.md"));
    answer(&b, always(None)).await;
    assert!(within(call).await.unwrap().ok);
    let result = b.call_as(agent(), "file.write", write("b.md")).await;
    assert!(result.ok, "not asked again");
    let confirmation = b.export(result.run_id).manifest.confirmation.unwrap();
    assert!(confirmation.by.contains("ada") && confirmation.by.contains("allow-always"), "{}", confirmation.by);
    // It is for this tool alone.
    let other = spawn(&b, "file.append", json!({"path": "a.md", "text": "x"}));
    answer(&b, ApprovalDecision::Deny).await;
    assert!(!within(other).await.unwrap().ok);
    let [grant] = &b.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap()[..] else {
        panic!("one grant")
    };
    let refused = b.engine.approvals().revoke_grant(&grant.id, &agent()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "POLICY_DENIED", "an agent takes nothing back");
    b.engine.approvals().revoke_grant(&grant.id, &person()).await.unwrap();
    let again = spawn(&b, "file.write", write("c.md"));
    answer(&b, ApprovalDecision::Deny).await;
    assert!(!within(again).await.unwrap().ok);
}

#[tokio::test]
async fn allow_always_with_an_end_asks_again_after_it() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let call = spawn(&b, "file.write", write("a.md"));
    let until = Timestamp::now() + SignedDuration::from_secs(GRANT_SECONDS);
    answer(&b, always(Some(until))).await;
    assert!(within(call).await.unwrap().ok);
    assert!(b.call_as(agent(), "file.write", write("b.md")).await.ok);
    while Timestamp::now() <= until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let again = spawn(&b, "file.write", write("c.md"));
    answer(&b, ApprovalDecision::Deny).await;
    assert_eq!(code(&within(again).await.unwrap()), "APPROVAL_DENIED");
}

struct Asks;
impl Hook for Asks {
    fn name(&self) -> &str {
        "careful"
    }
    fn before<'a>(&'a self, _: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
        Box::pin(async {
            HookVerdict::Ask { title: "Sure?".into(), description: "a hook wonders".into(), timeout_ms: 5000 }
        })
    }
}

#[toolyard_shows::shows("001-6-14")]
#[tokio::test]
async fn a_hooks_question_is_put_to_a_person() {
    let b = Arc::new(bench_under(crate::support::yolo()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    b.engine.add_hook(Arc::new(Asks));
    let call = spawn(&b, "lab.echo", json!({"value": 1}));
    let id = asked(&b).await;
    let question = b.engine.approvals().get(&id).unwrap().unwrap().request;
    assert_eq!((question.kind.as_str(), question.title.as_str()), ("plugin", "Sure?"));
    b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    assert!(within(call).await.unwrap().ok);
}

#[tokio::test]
async fn a_hooks_question_is_not_swallowed_by_the_policys() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    b.engine.add_hook(Arc::new(Asks));
    let call = spawn(&b, "file.write", write("a.md"));
    let first = asked(&b).await;
    b.engine.approvals().resolve(&first, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    b.until("the second question", |b| b.engine.approvals().pending().iter().any(|a| a.request.id != first)).await;
    let kinds: Vec<String> = b.engine.approvals().pending().iter().map(|a| a.request.kind.clone()).collect();
    assert_eq!(kinds, ["plugin"]);
    assert_eq!(b.disk.changes(), 0);
    answer(&b, ApprovalDecision::Deny).await;
    assert_eq!(code(&within(call).await.unwrap()), "APPROVAL_DENIED");
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn a_hooks_question_is_asked_even_in_an_approved_run() {
    let b = Arc::new(bench_under(asks()));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    b.engine.add_hook(Arc::new(Asks));
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            let p = plan(json!([{"id": "w", "tool": "file.write", "args": write("a.md")}]));
            b.engine.run_plan(agent(), &p, crate::support::approved()).await
        })
    };
    answer(&b, ApprovalDecision::Deny).await;
    let report = within(run).await.unwrap().unwrap();
    assert_eq!(report.status, RunStatus::Failed);
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn what_was_allowed_once_in_a_plan_is_not_allowed_twice() {
    // Nobody is asked about plans as a whole, but these two tools are always asked about.
    let b = Arc::new(bench_under(json!({"approval": {"mode": "yolo"}, "ask": [{"tools": ["file.*"]}]})));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            let p = plan(json!([
                {"id": "w", "tool": "file.write", "args": write("a.md")},
                {"id": "d", "tool": "file.delete", "args": {"path": "a.md"}, "dependsOn": ["w"]}]));
            b.engine.run_plan(agent(), &p, PlanRequest::default()).await
        })
    };
    answer(&b, ApprovalDecision::AllowOnce).await;
    answer(&b, ApprovalDecision::Deny).await;
    let report = within(run).await.unwrap().unwrap();
    assert_eq!(report.status, RunStatus::Failed);
    assert_eq!(b.disk.get("a.md").as_deref(), Some("x"), "the delete was not allowed");
}

#[toolyard_shows::shows("002-3.1-24", "002-6-02", "002-6-04")]
#[tokio::test]
async fn one_approval_of_a_plan_covers_its_calls_and_stands_on_each() {
    let b = bench_under(asks());
    let report = within(b.engine.run_plan(
        agent(),
        &plan(json!([
            {"id": "a", "tool": "file.write", "args": write("a.md")},
            {"id": "b", "tool": "file.write", "args": write("b.md")}])),
        crate::support::approved(),
    ))
    .await
    .unwrap();
    assert_eq!(report.status, RunStatus::Finished);
    let export = b.export(report.run_id);
    let confirmation = export.manifest.confirmation.unwrap();
    assert!(export.calls.iter().all(|c| c.confirmation_id == Some(confirmation.confirmation_id)));
    assert_eq!(Some(confirmation.plan_hash), export.manifest.plan_hash);
}

#[toolyard_shows::shows("002-6-01")]
#[tokio::test]
async fn a_plan_can_ask_for_its_approval_and_a_no_ends_it() {
    for decision in [ApprovalDecision::AllowOnce, ApprovalDecision::Deny] {
        let b = Arc::new(bench_under(asks()));
        let _somebody = b.engine.approvals().approver_connected(&Default::default());
        let run = {
            let b = b.clone();
            tokio::spawn(async move {
                let p = plan(json!([{"id": "a", "tool": "file.write", "args": write("a.md")}]));
                let request = PlanRequest { consent: Consent::Ask, ..PlanRequest::default() };
                b.engine.run_plan(agent(), &p, request).await
            })
        };
        answer(&b, decision.clone()).await;
        let report = within(run).await.unwrap().unwrap();
        let yes = decision == ApprovalDecision::AllowOnce;
        assert_eq!(report.status, if yes { RunStatus::Finished } else { RunStatus::Cancelled });
        assert_eq!(b.disk.changes(), usize::from(yes));
        assert_eq!(b.row(report.run_id).status, report.status);
    }
}

#[tokio::test]
async fn the_answer_is_for_the_arguments_that_are_used() {
    struct Rewrites;
    impl Hook for Rewrites {
        fn name(&self) -> &str {
            "rewrites"
        }
        fn before<'a>(&'a self, _: HookCall<'a>) -> BoxFuture<'a, HookVerdict> {
            Box::pin(async { HookVerdict::Rewrite(object(json!({"path": "b.md", "content": "y"}))) })
        }
    }
    let b = Arc::new(bench_under(asks()));
    b.engine.add_hook(Arc::new(Rewrites));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let call = spawn(&b, "file.write", write("a.md"));
    let id = asked(&b).await;
    let question = b.engine.approvals().get(&id).unwrap().unwrap().request;
    assert_eq!(b.engine.approvals().pending().len(), 1, "asked once, not once per rewrite");
    b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap();
    let result = within(call).await.unwrap();
    assert!(result.ok);
    assert_eq!(b.export(result.run_id).calls[0].args_hash(), question.args_hash);
    assert!(b.disk.get("a.md").is_none() && b.disk.get("b.md").is_some());
}

#[tokio::test]
async fn a_dry_run_asks_nobody() {
    let b = bench_under(asks());
    let call = CallRequest { dry_run: true, ..request("file.write", write("a.md")) };
    assert!(b.answer(agent(), call).await.result.ok);
    assert!(b.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap().is_empty());
    until("nothing waits", || b.engine.approvals().pending().is_empty()).await;
}
