//! The HTTP door against the recorded answers, and what the real gateway does not have: metrics and run events.

use crate::harness::{Server, TOKEN};
use serde_json::{Value, json};

async fn invoke(server: &Server, token: &str, body: &str) -> (u16, Value) {
    let request =
        format!("POST /tools/invoke HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json");
    let (status, text) = server.http(&request, body).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

#[tokio::test]
async fn tools_are_invoked_with_the_recorded_shapes_and_status_codes() {
    let server = Server::start().await;
    let (status, ok) = invoke(&server, TOKEN, r#"{"tool":"bench_echo","args":{"text":"hi"}}"#).await;
    assert_eq!((status, &ok["ok"], &ok["result"]["content"][0]["text"]), (200, &json!(true), &json!("hi")));
    assert_eq!(ok["result"]["details"]["p"], json!({"text": "hi"}));
    let named = invoke(&server, TOKEN, r#"{"name":"bench_echo","args":{"text":"hi"},"sessionKey":"main"}"#).await;
    assert_eq!(named.0, 200);
    for (token, body, status, kind) in [
        ("wrong", r#"{"tool":"bench_echo"}"#, 401, "unauthorized"),
        (TOKEN, r#"{"tool":"nope"}"#, 404, "not_found"),
        (TOKEN, "{}", 400, "invalid_request"),
        (TOKEN, "{oops", 400, "invalid_request_error"),
        (TOKEN, r#"{"tool":"bench_fail"}"#, 500, "tool_error"),
        (TOKEN, r#"{"tool":"bench_blocked"}"#, 403, "tool_call_blocked"),
        (TOKEN, r#"{"tool":"bench_denied"}"#, 404, "not_found"),
        (TOKEN, r#"{"tool":"bench_ask","args":{"x":"1"}}"#, 403, "tool_call_blocked"),
        (TOKEN, r#"{"tool":"exec","args":{"command":"id"}}"#, 404, "not_found"),
        (TOKEN, r#"{"tool":"bench_echo","args":{}}"#, 400, "tool_error"),
    ] {
        let (got, answer) = invoke(&server, token, body).await;
        assert_eq!((got, answer["error"]["type"].as_str()), (status, Some(kind)), "{body}: {answer}");
    }
    let (_, asked) = invoke(&server, TOKEN, r#"{"tool":"bench_ask"}"#).await;
    assert_eq!(asked["error"]["requiresApproval"], true);
    let (_, failed) = invoke(&server, TOKEN, r#"{"tool":"bench_fail"}"#).await;
    assert!(!failed.to_string().contains(TOKEN), "a credential never comes back: {failed}");
    let (status, large) = invoke(&server, TOKEN, &" ".repeat((2 << 20) + 1)).await;
    assert_eq!((status, large["error"]["message"].as_str()), (413, Some("Payload too large")));
    assert_eq!(server.http("OPTIONS /tools/invoke HTTP/1.1", "").await, (405, "Method Not Allowed".into()));
    assert_eq!(server.http("GET /tools/invoke HTTP/1.1", "").await.0, 405);
}

#[tokio::test]
async fn health_is_open_and_the_rest_is_not() {
    let server = Server::start().await;
    assert_eq!(server.http("GET /healthz HTTP/1.1", "").await, (200, r#"{"ok":true,"status":"live"}"#.into()));
    assert_eq!(server.http("POST /health HTTP/1.1", "").await, (405, "Method Not Allowed".into()));
    let (status, ready) = server.http("GET /ready HTTP/1.1", "").await;
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((status, &ready["ready"], &ready["failing"]), (200, &json!(true), &json!([])));
    assert!(ready["eventLoop"]["delayP99Ms"].is_number());
    for path in ["/metrics", "/runs/01a1e17c-0385-7610-8843-1050c8653910/events"] {
        assert_eq!(server.http(&format!("GET {path} HTTP/1.1"), "").await.0, 401, "{path}");
    }
    assert_eq!(server.http("POST /mcp HTTP/1.1", "{}").await, (404, "Not Found".into()));
}

#[tokio::test]
async fn an_idempotency_key_gives_the_recorded_result_and_refuses_other_arguments() {
    let server = Server::start().await;
    let first = invoke(&server, TOKEN, r#"{"tool":"bench_echo","args":{"text":"a"},"idempotencyKey":"k"}"#).await.1;
    let second = invoke(&server, TOKEN, r#"{"tool":"bench_echo","args":{"text":"a"},"idempotencyKey":"k"}"#).await.1;
    assert_eq!(second["deduplicated"], true);
    assert_eq!(first["result"]["meta"]["callId"], second["result"]["meta"]["callId"]);
    let (status, other) =
        invoke(&server, TOKEN, r#"{"tool":"bench_echo","args":{"text":"b"},"idempotencyKey":"k"}"#).await;
    assert_eq!((status, other["error"]["code"].as_str()), (409, Some("conflict")));
}

#[tokio::test]
async fn a_runs_events_are_streamed_from_the_record_to_the_end() {
    let server = Server::start().await;
    let (_, done) = invoke(&server, TOKEN, r#"{"tool":"bench_echo","args":{"text":"hi"}}"#).await;
    let run = done["result"]["meta"]["runId"].as_str().unwrap();
    let get = |extra: &str| format!("GET /runs/{run}/events HTTP/1.1\r\nAuthorization: Bearer {TOKEN}{extra}");
    let (status, text) = server.http(&get(""), "").await;
    assert_eq!(status, 200);
    let kinds: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("event: ")).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"run.started"), Some(&"run.finished")), "{text}");
    let (_, rest) = server.http(&get("\r\nLast-Event-ID: 1"), "").await;
    assert!(!rest.contains("run.started") && rest.contains("run.finished"), "goes on where it was");
    let unknown =
        format!("GET /runs/01a1e17c-0385-7610-8843-1050c8653910/events HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    assert_eq!(server.http(&unknown, "").await.0, 404);
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    ws.call("health", json!({})).await;
    invoke(&server, TOKEN, r#"{"tool":"bench_echo","args":{"text":"hi"}}"#).await;
    let (status, page) = server.http(&format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"), "").await;
    assert_eq!(status, 200);
    for line in [
        "toolyard_connections 1",
        r#"toolyard_tool_calls_total{outcome="ok"} 1"#,
        r#"toolyard_request_seconds_count{method="health",outcome="ok"} 1"#,
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}
