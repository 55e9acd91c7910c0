//! Who may approve an MCP client's calls: a client's own report counts only if the owner allows it, and never for more
//! than one call.

use crate::harness::{Lab, PATIENCE, Wire, meta};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolyard_engine::approvals::ApprovalDecision;
use toolyard_mcp::server::{Client, ClientApprovals, HttpClientApprovals, http::HttpBody};
use toolyard_protocol::ApprovedVia;

const FORMS: fn() -> Value = || json!({"elicitation": {"form": {}}});

fn write() -> Value {
    json!({"name": "test_write", "arguments": {"text": "w"}})
}

fn words(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

/// Calls the tool that policy asks about and answers the form.
async fn call_answered(wire: &mut Wire, answer: Value) -> Value {
    let id = wire.begin("tools/call", write()).await;
    let question = wire.heard("elicitation/create").await;
    assert!(question["params"]["message"].as_str().unwrap().contains("test.write"), "{question}");
    wire.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": answer})).await;
    wire.answer(id).await
}

#[tokio::test]
async fn where_the_owner_lets_it_a_client_that_shows_forms_is_asked_for_one_call() {
    let lab = Lab::new();
    let mut wire = lab.opened_as(ClientApprovals::Ask, "2025-11-25", FORMS()).await;
    for (decision, runs) in [("allow-once", true), ("deny", false), ("allow-always", false), ("allow-once", true)] {
        let called = call_answered(&mut wire, json!({"action": "accept", "content": {"decision": decision}})).await;
        assert_eq!(called["result"]["isError"].is_null(), runs, "{decision}: {called}");
        if !runs {
            assert_eq!(called["result"]["_meta"]["dev.toolyard/error"]["code"], "APPROVAL_DENIED");
            assert!(words(&called).contains("the client's user, as the client says"), "{called}");
        }
    }
    assert_eq!(lab.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap(), [], "nothing lasting");
    let history = lab.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap();
    for approval in &history {
        assert_eq!(approval.resolved_via, ApprovedVia::ClientUser, "{approval:?}");
        assert!(!matches!(approval.decision, Some(ApprovalDecision::AllowAlways { .. })));
        assert_eq!(approval.resolved_by.as_deref(), Some("the client's user, as the client says (tester)"));
    }
    assert_eq!(history.len(), 4);
    let mut mute = lab.opened_as(ClientApprovals::Ask, "2025-11-25", json!({})).await;
    let refused = mute.ask("tools/call", write()).await;
    assert_eq!(refused["result"]["isError"], true, "nobody can be asked");
}

#[tokio::test]
async fn without_a_handshake_the_next_request_brings_the_answer() {
    let lab = Lab::new();
    let mut wire = lab.stdio_as(ClientApprovals::Ask);
    let mut call = write();
    call["_meta"] = meta(json!({"elicitation": {}}));
    let asked = wire.ask("tools/call", call.clone()).await;
    assert_eq!(asked["result"]["inputRequests"]["approval"]["method"], "elicitation/create", "{asked}");
    call["requestState"] = asked["result"]["requestState"].clone();
    call["inputResponses"] = json!({"approval": {"action": "accept", "content": {"decision": "allow-once"}}});
    let done = wire.ask("tools/call", call).await;
    assert_eq!(done["result"]["structuredContent"]["said"], "w", "{done}");
}

#[tokio::test]
async fn unless_the_owner_says_otherwise_a_client_approves_nothing() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", FORMS()).await;
    let refused = wire.ask("tools/call", write()).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(wire.others.iter().all(|m| m["method"] != "elicitation/create"), "{:?}", wire.others);
    assert!(words(&refused).contains("mcp.approvals"), "it says what to do: {refused}");
    // Nor with an answer sent along before anybody asked.
    let mut stateless = lab.stdio();
    let mut call = write();
    call["_meta"] = meta(json!({"elicitation": {}}));
    call["inputResponses"] = json!({"approval": {"action": "accept", "content": {"decision": "allow-once"}}});
    let refused = stateless.ask("tools/call", call.clone()).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    // Nor over HTTP, with either setting of the other transport.
    let door = lab.server.http(CancellationToken::new());
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "test_write")];
    let mut request = Request::builder().method(Method::POST).uri("/mcp").header("content-type", "application/json");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let client = Client::owner("tester").with_approvals(HttpClientApprovals::default());
    let answered = door.handle(client, request.body(Bytes::from(body.to_string())).unwrap());
    let HttpBody::Whole(answer) = tokio::time::timeout(PATIENCE, answered).await.unwrap().into_body() else {
        panic!("a stream")
    };
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
}

#[tokio::test]
async fn a_form_that_the_client_declines_by_itself_is_nobodys_no() {
    let lab = Lab::new();
    let mut wire = lab.opened_as(ClientApprovals::Ask, "2025-11-25", FORMS()).await;
    for action in ["decline", "cancel"] {
        let refused = call_answered(&mut wire, json!({"action": action})).await;
        let said = words(&refused);
        assert!(said.contains("The client cannot ask anybody: it"), "{said}");
        assert!(said.contains("mcp.approvals") && !said.contains("Denied by user"), "{said}");
    }
    let id = wire.begin("tools/call", write()).await;
    let question = wire.heard("elicitation/create").await;
    let error = json!({"code": -32601, "message": "Method not found"});
    wire.send(json!({"jsonrpc": "2.0", "id": question["id"], "error": error})).await;
    let refused = wire.answer(id).await;
    assert!(words(&refused).contains("The client cannot ask anybody"), "{refused}");
    assert!(
        lab.engine
            .approvals()
            .history(&toolyard_engine::Caller::cli("ada"))
            .unwrap()
            .iter()
            .all(|a| a.resolved_by.is_none()),
        "nobody decided"
    );
}

#[tokio::test]
async fn a_client_that_asks_its_own_user_is_trusted_for_each_call_where_the_owner_says_so() {
    let lab = Lab::new();
    let mut wire = lab.opened_as(ClientApprovals::Trust, "2025-11-25", json!({})).await;
    for _ in 0..2 {
        let called = wire.ask("tools/call", write()).await;
        assert_eq!(called["result"]["structuredContent"]["said"], "w", "{called}");
    }
    let history = lab.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap();
    assert_eq!(history.len(), 2, "one question a call, and nothing lasting");
    assert!(history.iter().all(|a| a.resolved_via == ApprovedVia::ClientUser), "{history:?}");
    assert_eq!(lab.engine.approvals().grants(&toolyard_engine::Caller::cli("ada")).unwrap(), []);
}
