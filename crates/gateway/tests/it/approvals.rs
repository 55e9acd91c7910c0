//! Approvals end to end: who is asked, who may answer, what the caller gets, and that nothing runs without an answer.

use crate::harness::{PATIENCE, Server, Ws};
use serde_json::{Value, json};
use std::time::Duration;

/// The duration of a grant that must not end during the test, even on a busy machine.
const LONG_GRANT_MS: u64 = 3_600_000;
/// The duration of a grant whose end the test waits for.
const SHORT_GRANT_MS: u64 = 1;
const ALL: [&str; 4] = ["operator.admin", "operator.read", "operator.write", "operator.approvals"];

async fn pair(server: &Server) -> (Ws, Ws) {
    let reviewer = server.client(&ALL, &["approvals", "plugin-approvals"]).await;
    let invoker = server.client(&["operator.read", "operator.write"], &[]).await;
    (reviewer, invoker)
}

#[tokio::test]
async fn without_confirm_the_question_is_only_reported() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.write"], &[]).await;
    let answer = ws.call("tools.invoke", json!({"name": "bench_ask", "args": {"x": "1"}})).await;
    let payload = &answer["payload"];
    assert_eq!((answer["ok"].as_bool(), payload["ok"].as_bool()), (Some(true), Some(false)), "{answer}");
    assert_eq!(payload["requiresApproval"], true);
    assert_eq!(payload["error"]["code"], "requires_approval");
    assert_eq!(payload["error"]["message"], r#"please approve {"x":"1"}"#);
    assert!(
        server.engine.approvals().pending().is_empty()
            && server.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap().is_empty()
    );
}

#[tokio::test]
async fn with_confirm_and_nobody_to_ask_it_is_refused_at_once_and_recorded() {
    let server = Server::start().await;
    let mut ws = server.client(&ALL, &["approvals"]).await;
    let answer = ws.call("tools.invoke", json!({"name": "bench_ask", "args": {"x": "1"}, "confirm": true})).await;
    assert_eq!(answer["payload"]["error"]["code"], "requires_approval", "nobody approves their own call: {answer}");
    assert!(answer["payload"]["error"]["message"].as_str().unwrap().contains("no approval route"));
    assert_eq!(
        server.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap()[0].terminal_reason.as_deref(),
        Some("no-route")
    );
}

#[tokio::test]
async fn a_reviewer_allows_once_and_the_call_runs() {
    let server = Server::start().await;
    let (mut reviewer, mut invoker) = pair(&server).await;
    let id = invoker.request("tools.invoke", json!({"name": "bench_ask", "args": {"x": "a"}, "confirm": true})).await;
    let asked = reviewer.event("plugin.approval.requested").await;
    assert!(asked["seq"].is_u64());
    let payload = &asked["payload"];
    for key in ["approvalKind", "id", "request", "createdAtMs", "expiresAtMs"] {
        assert!(!payload[key].is_null(), "{key}: {payload}");
    }
    assert_eq!(payload["request"]["toolName"], "bench_ask");
    assert_eq!(payload["request"]["sessionKey"], "agent:main:main");
    let approval = payload["id"].as_str().unwrap();
    let list = reviewer.call("plugin.approval.list", json!({})).await;
    assert_eq!(list["payload"][0]["id"], approval);
    let got = reviewer.call("approval.get", json!({"id": approval})).await;
    assert_eq!(got["payload"]["approval"]["status"], "pending");
    let bad = reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "maybe"})).await;
    assert_eq!(bad["error"]["message"], "invalid decision");
    let done = reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "allow-once"})).await;
    assert_eq!(done["payload"], json!({"ok": true}));
    let told = reviewer.event("plugin.approval.resolved").await;
    assert_eq!(told["payload"]["decision"], "allow-once");
    assert_eq!(invoker.response(&id).await["payload"]["ok"], true);
    let again = reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "allow-once"})).await;
    assert_eq!(again["ok"], true, "the same answer twice is fine");
    let other = reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "deny"})).await;
    assert_eq!(other["error"]["details"]["reason"], "APPROVAL_ALREADY_RESOLVED");
    let none = reviewer.call("plugin.approval.resolve", json!({"id": "plugin:none", "decision": "deny"})).await;
    assert_eq!(none["error"]["details"]["reason"], "APPROVAL_NOT_FOUND");
    let history = reviewer.call("approval.history", json!({})).await;
    assert_eq!(history["payload"]["items"][0]["status"], "allowed");
}

#[tokio::test]
async fn denied_and_timed_out_calls_do_not_run() {
    let server = Server::start().await;
    let (mut reviewer, mut invoker) = pair(&server).await;
    let id = invoker.request("tools.invoke", json!({"name": "bench_ask", "args": {}, "confirm": true})).await;
    let approval = reviewer.event("plugin.approval.requested").await["payload"]["id"].clone();
    reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "deny"})).await;
    let denied = invoker.response(&id).await;
    assert_eq!(denied["payload"]["requiresApproval"], true);
    assert!(denied["payload"]["error"]["message"].as_str().unwrap().starts_with("Denied by user."), "{denied}");

    let late = invoker.call("tools.invoke", json!({"name": "bench_ask", "args": {"wait": 60}, "confirm": true})).await;
    assert_eq!(late["payload"]["error"]["message"], "Approval timed out");
    let told = loop {
        let told = reviewer.event("plugin.approval.resolved").await;
        if told["payload"]["resolvedBy"].is_null() {
            break told;
        }
    };
    assert_eq!(told["payload"]["decision"], "deny");
}

/// Makes a call that is allowed with a grant of this duration, and returns its caller.
async fn granted(server: &Server, grant_ms: u64) -> Ws {
    let (mut reviewer, mut invoker) = pair(server).await;
    let id = invoker.request("tools.invoke", json!({"name": "bench_ask", "args": {"x": 1}, "confirm": true})).await;
    let approval = reviewer.event("plugin.approval.requested").await["payload"]["id"].clone();
    let params = json!({"id": approval, "kind": "plugin", "decision": "allow-always", "grantExpiresInMs": grant_ms});
    let resolved = reviewer.call("approval.resolve", params).await;
    assert_eq!(
        (&resolved["payload"]["applied"], &resolved["payload"]["approval"]["decision"]),
        (&json!(true), &json!("allow-always"))
    );
    assert_eq!(invoker.response(&id).await["payload"]["ok"], true);
    invoker
}

#[tokio::test]
async fn allow_always_holds_until_it_ends() {
    let server = Server::start().await;
    let mut invoker = granted(&server, LONG_GRANT_MS).await;
    let free = invoker.call("tools.invoke", json!({"name": "bench_ask", "args": {"x": 2}})).await;
    assert_eq!(free["payload"]["ok"], true, "no question any more: {free}");
    let server = Server::start().await;
    let mut invoker = granted(&server, SHORT_GRANT_MS).await;
    tokio::time::sleep(Duration::from_millis(10 * SHORT_GRANT_MS)).await;
    let asked = invoker.call("tools.invoke", json!({"name": "bench_ask", "args": {"x": 3}})).await;
    assert_eq!(asked["payload"]["requiresApproval"], true, "the grant has ended");
}

#[tokio::test]
async fn a_caller_sees_and_answers_no_question_about_its_own_call() {
    let server = Server::start().await;
    let mut reviewer = server.client(&ALL, &["approvals"]).await;
    let mut selfish = server.client(&["operator.write", "operator.approvals"], &["approvals"]).await;
    let id = selfish.request("tools.invoke", json!({"name": "bench_ask", "args": {}, "confirm": true})).await;
    let approval = reviewer.event("plugin.approval.requested").await["payload"]["id"].clone();
    let own = selfish.call("plugin.approval.list", json!({})).await;
    assert_eq!(own["payload"], json!([]));
    let tried = selfish.call("plugin.approval.resolve", json!({"id": approval, "decision": "allow-once"})).await;
    assert_eq!(tried["error"]["details"]["reason"], "APPROVAL_NOT_FOUND");
    reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "allow-once"})).await;
    assert_eq!(selfish.response(&id).await["payload"]["ok"], true);
}

#[tokio::test]
async fn whoever_can_start_a_plan_does_not_approve_it() {
    let server = Server::start().await;
    let mut agent = server.client(&["operator.write", "operator.approvals"], &["approvals"]).await;
    let mut reviewer = server.client(&["operator.approvals"], &["approvals"]).await;
    let plan = json!({"version": "1.0", "goal": "ask", "riskLevel": "read-only",
        "steps": [{"id": "s1", "tool": "bench_ask", "args": {"x": "1"}}]});
    let id = agent.request("plans.run", json!({"plan": plan})).await;
    let approval = reviewer.event("plugin.approval.requested").await["payload"]["id"].clone();
    let tried =
        agent.call("approval.resolve", json!({"id": approval, "kind": "plugin", "decision": "allow-once"})).await;
    assert_eq!(tried["error"]["details"]["reason"], "APPROVAL_NOT_FOUND", "{tried}");
    let done = reviewer.call("plugin.approval.resolve", json!({"id": approval, "decision": "allow-once"})).await;
    assert_eq!(done["ok"], true, "{done}");
    assert_eq!(agent.response(&id).await["payload"]["status"], "finished");
}

#[tokio::test]
async fn commands_are_asked_about_in_two_phases() {
    let server = Server::start().await;
    let mut ws = server.client(&ALL, &["exec-approvals"]).await;
    let id =
        ws.request("exec.approval.request", json!({"command": "echo hi", "timeoutMs": 5000, "twoPhase": true})).await;
    let accepted = ws.response(&id).await;
    assert_eq!(accepted["payload"]["status"], "accepted");
    let approval = accepted["payload"]["id"].clone();
    let listed = ws.call("exec.approval.list", json!({})).await;
    assert_eq!(listed["payload"][0]["request"]["command"], "echo hi");
    ws.call("exec.approval.resolve", json!({"id": approval, "decision": "allow-always"})).await;
    let last = match ws.events.iter().position(|f: &Value| f["id"] == id.as_str()) {
        Some(at) => ws.events.remove(at),
        None => ws.response(&id).await,
    };
    assert_eq!(last["payload"]["decision"], "allow-always");
    let waited = ws.call("exec.approval.waitDecision", json!({"id": approval})).await;
    assert_eq!(waited["payload"]["terminalReason"], "user");
    // The same command needs no answer now; another one does.
    let same = ws.call("exec.approval.request", json!({"command": "echo hi"})).await;
    assert_eq!(same["payload"]["decision"], "allow-always");
    let other = ws.call("exec.approval.request", json!({"command": "rm -r /", "timeoutMs": 50})).await;
    assert_eq!(other["payload"]["decision"], Value::Null, "nobody answered: {other}");
    let mut alone = server.client(&ALL, &[]).await;
    drop(ws);
    // After the gateway has noticed that the reviewer disconnected, there is no route, and the call fails at once.
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let unheard = alone.call("exec.approval.request", json!({"command": "ls", "twoPhase": true})).await;
        if unheard["payload"]["status"].is_null() {
            assert_eq!(unheard["payload"]["decision"], Value::Null, "{unheard}");
            break;
        }
        assert!(tokio::time::Instant::now() < end, "it still waits for the reviewer: {unheard}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_was_decided_survives_a_restart_and_what_was_open_is_not_answered_any_more() {
    use std::sync::Arc;
    let store = Arc::new(toolyard_engine::memory_store::MemoryStore::new());
    let before = Server::start_on(store.clone(), toolyard_gateway::Settings::new(crate::harness::TOKEN)).await;
    let (mut reviewer, mut invoker) = pair(&before).await;
    let call = |x: &str| json!({"name": "bench_ask", "args": {"x": x}, "confirm": true});
    let mut decided = Vec::new();
    for (x, decision) in [("1", "deny"), ("2", "allow-always")] {
        let id = invoker.request("tools.invoke", call(x)).await;
        let asked = reviewer.event("plugin.approval.requested").await["payload"]["id"].clone();
        reviewer.call("plugin.approval.resolve", json!({"id": asked, "decision": decision})).await;
        invoker.response(&id).await;
        decided.push(asked);
    }
    let open = reviewer.request("exec.approval.request", json!({"command": "ls", "twoPhase": true})).await;
    let open = reviewer.response(&open).await["payload"]["id"].clone();
    drop((reviewer, invoker));
    drop(before);

    let after = Server::start_on(store, toolyard_gateway::Settings::new(crate::harness::TOKEN)).await;
    let (mut reviewer, mut invoker) = pair(&after).await;
    let history = reviewer.call("approval.history", json!({})).await["payload"]["items"].clone();
    let statuses: Vec<(&Value, &Value)> =
        history.as_array().unwrap().iter().map(|item| (&item["id"], &item["decision"])).collect();
    assert!(statuses.contains(&(&decided[0], &json!("deny"))), "{history}");
    assert!(statuses.contains(&(&decided[1], &json!("allow-always"))), "{history}");
    let page = reviewer.call("approval.history", json!({"limit": 1})).await["payload"].clone();
    let rest = reviewer.call("approval.history", json!({"limit": 1, "cursor": page["nextCursor"]})).await;
    assert_ne!(page["items"][0]["id"], rest["payload"]["items"][0]["id"]);
    let granted = invoker.call("tools.invoke", json!({"name": "bench_ask", "args": {"x": "3"}})).await;
    assert_eq!(granted["payload"]["ok"], true, "the allow-always holds: {granted}");
    let late = reviewer.call("exec.approval.resolve", json!({"id": open, "decision": "allow-once"})).await;
    assert_eq!(late["error"]["details"]["reason"], "APPROVAL_NOT_FOUND", "nobody waits for it any more: {late}");
}
