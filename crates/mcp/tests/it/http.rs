//! Streamable HTTP, at the endpoint itself: what comes before it (credentials, `Host`, `Origin`) is the gateway's.

use crate::harness::{Lab, PATIENCE, meta};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolyard_mcp::server::{
    Client,
    http::{HttpBody, HttpDoor},
};

struct Answer {
    status: StatusCode,
    session: Option<String>,
    /// Whether it was a stream of events.
    streamed: bool,
    messages: Vec<Value>,
}

async fn send(door: &HttpDoor, method: Method, headers: &[(&str, &str)], body: &Value) -> http::Response<HttpBody> {
    let mut request = Request::builder().method(method).uri("/mcp").header("content-type", "application/json");
    request = request.header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    tokio::time::timeout(PATIENCE, door.handle(Client::owner("tester"), request.body(body).unwrap())).await.unwrap()
}

async fn exchange(door: &HttpDoor, method: Method, headers: &[(&str, &str)], body: Value) -> Answer {
    let response = send(door, method, headers, &body).await;
    let status = response.status();
    let session = response.headers().get("mcp-session-id").map(|v| v.to_str().unwrap().to_owned());
    let (streamed, text) = match response.into_body() {
        HttpBody::Whole(bytes) => (false, bytes.to_vec()),
        HttpBody::Stream(stream) => {
            let parts = tokio::time::timeout(PATIENCE, stream.collect::<Vec<_>>()).await.unwrap();
            (true, parts.concat())
        }
    };
    let text = String::from_utf8(text).unwrap();
    let messages = if streamed {
        text.lines().filter_map(|l| l.strip_prefix("data: ")).map(|l| serde_json::from_str(l).unwrap()).collect()
    } else {
        serde_json::from_str(&text).into_iter().collect()
    };
    Answer { status, session, streamed, messages }
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn opened(door: &HttpDoor, capabilities: Value) -> String {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}});
    let answer = exchange(door, Method::POST, &[], request("initialize", hello)).await;
    assert_eq!(answer.status, 200);
    answer.session.expect("a session")
}

#[tokio::test]
async fn a_session_lives_from_initialize_to_delete() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let none = exchange(&door, Method::POST, &[], request("tools/list", json!({}))).await;
    assert_eq!(none.status, 400);
    let session = opened(&door, json!({})).await;
    assert!(session.bytes().all(|b| (0x21..=0x7e).contains(&b)));
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(exchange(&door, Method::POST, &headers, told).await.status, 202);
    let listed = exchange(&door, Method::POST, &headers, request("tools/list", json!({}))).await;
    assert!(!listed.streamed && listed.messages[0]["result"]["tools"].as_array().unwrap().len() > 3);
    let wrong = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "1999-01-01")];
    assert_eq!(exchange(&door, Method::POST, &wrong, request("ping", json!({}))).await.status, 400);
    assert_eq!(exchange(&door, Method::DELETE, &headers, Value::Null).await.status, 204);
    assert_eq!(exchange(&door, Method::POST, &headers, request("ping", json!({}))).await.status, 404);
    assert_eq!(exchange(&door, Method::GET, &[], Value::Null).await.status, 405);
}

#[tokio::test]
async fn somebody_elses_session_looks_like_none() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let session = opened(&door, json!({})).await;
    let request = Request::builder()
        .method(Method::POST)
        .header("content-type", "application/json")
        .header("mcp-session-id", session)
        .body(Bytes::from(request("ping", json!({})).to_string()))
        .unwrap();
    assert_eq!(door.handle(Client::owner("other"), request).await.status(), 404);
}

#[tokio::test]
async fn an_answer_becomes_a_stream_only_when_something_comes_before_it() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let session = opened(&door, json!({})).await;
    let headers = [("mcp-session-id", session.as_str())];
    let plain = request("tools/call", json!({"name": "test_steps"}));
    assert!(!exchange(&door, Method::POST, &headers, plain).await.streamed);
    let told = request("tools/call", json!({"name": "test_steps", "_meta": {"progressToken": 7}}));
    let told = exchange(&door, Method::POST, &headers, told).await;
    assert!(told.streamed);
    let methods: Vec<&str> = told.messages.iter().filter_map(|m| m["method"].as_str()).collect();
    assert_eq!(methods, ["notifications/progress"; 3]);
    assert!(told.messages.last().unwrap()["result"].is_object());
}

#[tokio::test]
async fn a_question_comes_on_the_stream_and_its_answer_by_a_request_of_its_own() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let session = opened(&door, json!({"elicitation": {}})).await;
    let headers = [("mcp-session-id", session.as_str())];
    let response = send(&door, Method::POST, &headers, &request("tools/call", json!({"name": "test_ask"}))).await;
    let HttpBody::Stream(mut stream) = response.into_body() else { panic!("no stream") };
    let first = String::from_utf8(stream.next().await.unwrap().to_vec()).unwrap();
    let question: Value = serde_json::from_str(first.lines().find_map(|l| l.strip_prefix("data: ")).unwrap()).unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    assert_eq!(exchange(&door, Method::POST, &headers, answer).await.status, 202);
    let rest = tokio::time::timeout(PATIENCE, stream.collect::<Vec<_>>()).await.unwrap().concat();
    assert!(String::from_utf8(rest).unwrap().contains("decline"));
}

#[tokio::test]
async fn the_newest_revision_checks_headers_against_the_body() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let body =
        request("tools/call", json!({"_meta": meta(json!({})), "name": "test_echo", "arguments": {"text": "x"}}));
    let good = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "test_echo")];
    let called = exchange(&door, Method::POST, &good, body.clone()).await;
    assert_eq!(called.messages[0]["result"]["structuredContent"]["said"], "x", "{:?}", called.messages);
    let encoded = [good[0], good[1], ("mcp-name", "=?base64?dGVzdF9lY2hv?=")];
    assert_eq!(exchange(&door, Method::POST, &encoded, body.clone()).await.status, 200);
    for bad in [
        vec![good[1], good[2]],
        vec![good[0], good[2]],
        vec![good[0], good[1]],
        vec![("mcp-protocol-version", "2025-11-25"), good[1], good[2]],
        vec![good[0], ("mcp-method", "tools/List"), good[2]],
        vec![good[0], good[1], ("mcp-name", "test_fail")],
    ] {
        let refused = exchange(&door, Method::POST, &bad, body.clone()).await;
        assert_eq!(
            (refused.status.as_u16(), refused.messages[0]["error"]["code"].clone()),
            (400, json!(-32020)),
            "{bad:?}"
        );
    }
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let bare = exchange(&door, Method::POST, &headers, request("tools/list", json!({}))).await;
    assert_eq!((bare.status.as_u16(), bare.messages[0]["error"]["code"].clone()), (400, json!(-32602)));
    let unknown = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "ping")];
    let refused = exchange(&door, Method::POST, &unknown, request("ping", json!({"_meta": meta(json!({}))}))).await;
    assert_eq!((refused.status.as_u16(), refused.messages[0]["error"]["code"].clone()), (404, json!(-32601)));
    let later = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01", "io.modelcontextprotocol/clientCapabilities": {}}});
    let headers = [("mcp-protocol-version", "2031-01-01"), ("mcp-method", "tools/list")];
    let refused = exchange(&door, Method::POST, &headers, request("tools/list", later)).await;
    assert_eq!((refused.status.as_u16(), refused.messages[0]["error"]["code"].clone()), (400, json!(-32022)));
}

#[tokio::test]
async fn a_client_of_the_newest_revision_that_goes_away_takes_its_call_with_it() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let body = request("tools/call", json!({"_meta": meta(json!({})), "name": "test_forever"}));
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "test_forever")];
    {
        let waiting = send(&door, Method::POST, &headers, &body);
        tokio::pin!(waiting);
        while lab.engine.active_runs().is_empty() {
            tokio::select! { biased; _ = &mut waiting => panic!("it ended"), () = tokio::task::yield_now() => {} }
        }
    }
    while !lab.engine.active_runs().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bodies_that_are_no_messages_are_refused() {
    let lab = Lab::new();
    let door = lab.server.http(CancellationToken::new());
    let post = |kind: &'static str, body: &'static str| {
        let request = Request::builder().method(Method::POST).header("content-type", kind);
        door.handle(Client::owner("tester"), request.body(Bytes::from_static(body.as_bytes())).unwrap())
    };
    assert_eq!(post("text/plain", "{}").await.status(), 415);
    assert_eq!(post("application/json", "{").await.status(), 400);
    assert_eq!(post("application/json", "[]").await.status(), 400);
    assert_eq!(exchange(&door, Method::PUT, &[], Value::Null).await.status, 405);
}
