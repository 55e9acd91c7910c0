//! Lasting permissions: what they cover, how they end.

use crate::{
    approvals::{answer, asked, asks, spawn, write},
    support::{Bench, agent, bench_under, code, detail, person, plan, within},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;
use toolyard_engine::{
    Store,
    approvals::{ApprovalDecision, GrantScope},
    plan::PlanRequest,
};
use toolyard_protocol::RunStatus;

fn waiting() -> Arc<Bench> {
    let b = Arc::new(bench_under(asks()));
    std::mem::forget(b.engine.approvals().approver_connected(&Default::default()));
    b
}

fn always(scope: GrantScope) -> ApprovalDecision {
    ApprovalDecision::AllowAlways { until: None, scope }
}

/// Whether a call is asked about; the question is denied.
async fn is_asked(b: &Arc<Bench>, path: &str) -> bool {
    let call = spawn(b, "file.write", write(path));
    loop {
        if call.is_finished() {
            let result = call.await.unwrap();
            assert!(result.ok, "{result:?}");
            return false;
        }
        if !b.engine.approvals().pending().is_empty() {
            answer(b, ApprovalDecision::Deny).await;
            assert_eq!(code(&within(call).await.unwrap()), "APPROVAL_DENIED");
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_grant_covers_what_its_scope_says_and_is_named_in_the_record() {
    for (scope, covered, others) in [
        (GrantScope::Arguments { args_hash: String::new() }, vec!["in/a.md"], vec!["in/b.md", "out.md"]),
        (GrantScope::Folder { path: "in".into() }, vec!["in/a.md", "in/deep/b.md"], vec!["out.md", "in/../out.md"]),
        (GrantScope::Run { run_id: None }, vec![], vec!["in/a.md"]),
        (GrantScope::Tool, vec!["in/a.md", "out.md"], vec![]),
    ] {
        let b = waiting();
        let call = spawn(&b, "file.write", write("in/a.md"));
        answer(&b, always(scope.clone())).await;
        assert!(within(call).await.unwrap().ok);
        let [grant] = &b.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap()[..] else {
            panic!("one grant")
        };
        assert_eq!((grant.agent.as_str(), grant.tool.as_str()), ("scribe", "file.write"));
        assert_eq!((grant.given_by.as_str(), grant.door.as_deref()), ("ada", Some("cli")));
        for path in covered {
            assert!(!is_asked(&b, path).await, "{scope:?} covers {path}");
        }
        for path in others.into_iter().filter(|path| !path.contains("..")) {
            assert!(is_asked(&b, path).await, "{scope:?} does not cover {path}");
        }
        if scope == GrantScope::Tool {
            let again = b.call_as(agent(), "file.write", write("c.md")).await;
            let given = b.export(again.run_id).approvals.remove(0);
            assert_eq!((given.grant_id.as_ref(), given.shown), (Some(&grant.id), None));
        }
    }
}

#[tokio::test]
async fn a_grant_for_a_run_covers_the_runs_other_calls_of_the_tool() {
    let b =
        Arc::new(bench_under(json!({"approval": {"mode": "yolo", "timeoutMs": 5000}, "ask": [{"tools": ["file.*"]}]})));
    let _somebody = b.engine.approvals().approver_connected(&Default::default());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            let p = plan(json!([
                {"id": "a", "tool": "file.write", "args": write("a.md")},
                {"id": "b", "tool": "file.write", "args": write("b.md"), "dependsOn": ["a"]}]));
            b.engine.run_plan(agent(), &p, PlanRequest::default()).await.unwrap()
        })
    };
    answer(&b, always(GrantScope::Run { run_id: None })).await;
    assert_eq!(within(run).await.unwrap().status, RunStatus::Finished);
    assert!(is_asked(&b, "c.md").await, "another run is asked about");
}

#[tokio::test]
async fn a_scope_that_does_not_cover_its_own_question_is_refused() {
    let b = waiting();
    let call = spawn(&b, "file.write", write("in/a.md"));
    let id = asked(&b).await;
    for folder in ["out", "", "in/..", "in/a.md"] {
        let decision = always(GrantScope::Folder { path: folder.into() });
        let refused = b.engine.approvals().resolve(&id, decision, &person()).await.unwrap_err();
        assert_eq!(refused.code.as_str(), "VALIDATION_ERROR", "{folder}");
    }
    assert!(b.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap().is_empty());
    answer(&b, ApprovalDecision::Deny).await;
    within(call).await.unwrap();
}

#[tokio::test]
async fn a_grant_ends_when_its_time_is_up_and_when_it_is_revoked() {
    let b = waiting();
    let call = spawn(&b, "file.write", write("a.md"));
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    answer(&b, ApprovalDecision::AllowAlways { until: Some(until), scope: GrantScope::Tool }).await;
    assert!(within(call).await.unwrap().ok);
    let grant = b.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap().remove(0);
    assert_eq!(grant.until, Some(until));
    assert!(!is_asked(&b, "b.md").await);
    let unknown = b.engine.approvals().revoke_grant("nope", &person()).await.unwrap_err();
    assert_eq!(unknown.code.as_str(), "NOT_FOUND");
    let refused = b.engine.approvals().revoke_grant(&grant.id, &agent()).await.unwrap_err();
    assert_eq!(detail(&refused, "missingScope"), &json!("operator.approvals"));
    b.engine.approvals().revoke_grant(&grant.id, &person()).await.unwrap();
    assert!(b.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap().is_empty());
    assert!(is_asked(&b, "c.md").await);
}

#[tokio::test]
async fn grants_of_earlier_versions_are_read_listed_and_revoked() {
    let b = waiting();
    b.store.put("grants", "scribe\nfile.write", b"ada".to_vec(), None).unwrap();
    b.store.put("grants", "scribe\nfile.append", b"x (asked by the MCP client)".to_vec(), None).unwrap();
    assert!(!is_asked(&b, "a.md").await);
    let [grant] = &b.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap()[..] else {
        panic!("the client's does not count")
    };
    assert_eq!((grant.tool.as_str(), &grant.scope, grant.given_by.as_str()), ("file.write", &GrantScope::Tool, "ada"));
    b.engine.approvals().revoke_grant(&grant.id, &person()).await.unwrap();
    assert!(is_asked(&b, "b.md").await);
}
