//! The bridge over real sockets: authentication, invalid frames, and calls through the pipeline.

use crate::harness::{Server, TOKEN, Ws};
use serde_json::{Value, json};
use std::time::Duration;
use toolyard_gateway::Settings;

const PATIENCE: Duration = Duration::from_secs(30);

async fn server() -> Server {
    let settings = Settings { bridge_url: Some("ws://127.0.0.1:1/bridge".to_owned()), ..Settings::new(TOKEN) };
    Server::start_with(settings).await
}

async fn open(server: &Server) -> (Ws, String) {
    let mut operator = server.client(&["operator.write", "operator.approvals"], &[]).await;
    let opened = operator.call("bridge.open", json!({"sessionKey": "claude", "allowedSenders": ["u1"]})).await;
    assert_eq!(opened["ok"], true, "{opened}");
    let token = opened["payload"]["env"]["SYNTHESIS_BRIDGE_TOKEN"].as_str().unwrap().to_owned();
    (operator, token)
}

pub(crate) fn hello(token: &str) -> String {
    json!({"type": "hello", "openclaw_session": "agent:main:claude", "claude_session": "c", "pid": 7, "token": token})
        .to_string()
}

pub(crate) async fn join(server: &Server, token: &str) -> (Ws, Value) {
    let mut plugin = server.open_with("/bridge", &[]).await.unwrap();
    plugin.send(hello(token)).await;
    let ack = plugin.frame().await.expect("hello_ack");
    assert_eq!(ack["type"], "hello_ack", "{ack}");
    (plugin, ack)
}

#[tokio::test]
async fn only_a_proper_hello_gets_in_and_the_newest_stays() {
    let server = server().await;
    let (_operator, token) = open(&server).await;
    for (first, code) in [
        (hello("wrong"), 4001),
        (hello("wrong").replace("agent:main:claude", "nobody"), 4001),
        (hello(&token).replace("agent:main:claude", "nobody"), 4002),
        ("{}".to_owned(), 4004),
        ("not json".to_owned(), 4004),
        (format!("\"{}\"", "x".repeat(100 << 10)), 1009),
    ] {
        let mut plugin = server.open_with("/bridge", &[]).await.unwrap();
        plugin.send(first).await;
        assert_eq!(plugin.until_closed(PATIENCE).await.0, code);
    }
    let mut silent = server.open_with("/bridge", &[]).await.unwrap();
    assert_eq!(silent.until_closed(PATIENCE).await.0, 4003);
    let (mut older, ack) = join(&server, &token).await;
    let names: Vec<&str> = ack["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"bench_echo") && !names.contains(&"bench_denied"), "{names:?}");
    let (_newer, _) = join(&server, &token).await;
    assert_eq!(older.until_closed(PATIENCE).await.0, 4005);
    let mut page = server.open_with("/bridge", &[("origin", "https://evil.example")]).await.unwrap();
    assert_eq!(page.until_closed(PATIENCE).await.0, 1008, "a page elsewhere");
    assert_eq!(server.http("GET /bridge HTTP/1.1", "").await.0, 426);
}

#[tokio::test]
async fn a_call_goes_down_the_road_once_for_each_id() {
    let server = server().await;
    let (_operator, token) = open(&server).await;
    let (mut plugin, _) = join(&server, &token).await;
    let call =
        json!({"type": "tool_call", "call_id": "tc_001", "tool": "bench_echo", "args": {"text": "hi"}}).to_string();
    plugin.send(call.clone()).await;
    let first = plugin.frame().await.unwrap();
    assert_eq!((&first["ok"], &first["result"]["content"][0]["text"]), (&json!(true), &json!("hi")), "{first}");
    drop(plugin);
    let (mut plugin, _) = join(&server, &token).await;
    plugin.send(call).await;
    let again = plugin.frame().await.unwrap();
    let id = |frame: &Value| frame["result"]["structuredContent"]["id"].clone();
    assert!(id(&first).is_string() && id(&first) == id(&again), "the recorded result: {first} {again}");
    for (tool, args, word) in [
        ("bench_echo", json!({}), "VALIDATION_ERROR"),
        ("bench_denied", json!({}), "Unknown tool"),
        ("bench_blocked", json!({}), "nope by policy hook"),
        ("bench_fail", json!({}), "INTERNAL_ERROR"),
        ("bench_ask", json!({}), "APPROVAL"),
    ] {
        plugin.send(json!({"type": "tool_call", "call_id": tool, "tool": tool, "args": args}).to_string()).await;
        let refused = plugin.frame().await.unwrap();
        let error = refused["error"].as_str().unwrap_or_default();
        assert!(refused["ok"] == false && error.contains(word), "{tool}: {refused}");
        assert!(!refused.to_string().contains(TOKEN), "{refused}");
        assert_eq!(
            (&refused["result"]["isError"], refused["result"]["content"][0]["text"].as_str()),
            (&json!(true), Some(error))
        );
    }
    plugin
        .send(
            json!({"type": "tool_call", "call_id": "slow", "tool": "bench_slow", "args": {"ms": 600_000}}).to_string(),
        )
        .await;
    plugin.send(json!({"type": "tool_cancel", "call_id": "slow"}).to_string()).await;
    assert_eq!(plugin.frame().await.unwrap()["ok"], false);
    // Invalid and unknown frames are ignored.
    for text in ["{", "[]", r#"{"type":"later"}"#, r#"{"type":"ack"}"#] {
        plugin.send(text).await;
    }
    plugin.send(r#"{"type":"ping","ts":3}"#).await;
    assert_eq!(plugin.frame().await.unwrap(), json!({"type": "pong", "ts": 3}));
}

#[tokio::test]
async fn messages_come_by_rpc_and_http_and_changed_tools_are_told() {
    let server = server().await;
    let (mut operator, token) = open(&server).await;
    let first = operator.call("bridge.inbound", json!({"sessionKey": "claude", "content": "one"})).await;
    assert_eq!(first["payload"]["outcome"], "buffered", "{first}");
    let (mut plugin, _) = join(&server, &token).await;
    assert_eq!(plugin.frame().await.unwrap()["content"], "one");
    let bearer = format!("POST /bridge/inbound HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    let (status, body) = server.http(&bearer, r#"{"sessionKey":"claude","content":"two","meta":{"a":1}}"#).await;
    assert!(status == 200 && body.contains("\"sent\""), "{status} {body}");
    let second = plugin.frame().await.unwrap();
    assert_eq!((&second["content"], &second["meta"]["a"]), (&json!("two"), &json!(1)));
    assert_eq!(server.http("POST /bridge/inbound HTTP/1.1", "{}").await.0, 401);
    assert_eq!(server.http(&bearer, r#"{"sessionKey":"claude"}"#).await.0, 400);
    assert_eq!(server.http(&bearer, r#"{"sessionKey":"nobody","content":"x"}"#).await.0, 400);
    let huge = json!({"sessionKey": "claude", "content": "x".repeat(1 << 21)});
    let refused = operator.call("bridge.inbound", huge).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("content has"), "{refused}");
    server.engine.unregister(&toolyard_catalog::ToolSource::plugin("bench"));
    let changed = plugin.frame().await.unwrap();
    assert_eq!((&changed["type"], &changed["tools"]), (&json!("tools_changed"), &json!([])));
}

#[tokio::test]
async fn questions_are_events_and_their_answers_need_the_scope() {
    let server = server().await;
    let (mut operator, token) = open(&server).await;
    let (mut plugin, _) = join(&server, &token).await;
    plugin
        .send(json!({"type": "permission_request", "request_id": "abxyz", "tool": "Bash", "args": {"command": "ls"}, "rationale": "look"}).to_string())
        .await;
    let asked = operator.event("bridge.permission.requested").await;
    assert_eq!((&asked["payload"]["tool"], &asked["payload"]["args"]["command"]), (&json!("Bash"), &json!("ls")));
    let answer = json!({"sessionKey": "claude", "request_id": "abxyz", "behavior": "deny"});
    let mut writer = server.client(&["operator.write"], &[]).await;
    let refused = writer.call("bridge.permission.reply", answer.clone()).await;
    assert_eq!(refused["error"]["details"]["missingScope"], "operator.approvals");
    assert_eq!(operator.call("bridge.permission.reply", answer.clone()).await["ok"], true);
    assert_eq!(
        plugin.frame().await.unwrap(),
        json!({"type": "permission_reply", "request_id": "abxyz", "behavior": "deny"})
    );
    let resolved = operator.event("bridge.permission.resolved").await;
    assert_eq!((&resolved["payload"]["decision"], &resolved["payload"]["by"]), (&json!("deny"), &json!("operator")));
    assert_eq!(operator.call("bridge.permission.reply", answer).await["ok"], false, "once");
    let closed = operator.call("bridge.close", json!({"sessionKey": "claude"})).await;
    assert_eq!(closed["payload"]["closed"], true);
    assert_eq!(plugin.until_closed(PATIENCE).await.0, 4002);
}

#[tokio::test]
async fn neither_a_verdict_nor_who_may_give_one_is_to_be_had_without_the_scope() {
    let server = server().await;
    let (mut operator, token) = open(&server).await;
    let (mut plugin, _) = join(&server, &token).await;
    let question =
        json!({"type": "permission_request", "request_id": "abxyz", "tool": "Bash", "args": {}, "rationale": "look"});
    plugin.send(question.to_string()).await;
    operator.event("bridge.permission.requested").await;
    let mut writer = server.client(&["operator.read", "operator.write"], &[]).await;
    let is_forbidden = |answer: &Value| answer["error"]["details"]["missingScope"] == "operator.approvals";
    // The id is not shown.
    let status = writer.call("bridge.status", json!({})).await;
    assert_eq!(status["payload"]["sessions"][0]["openQuestions"], 1, "{status}");
    assert!(!status.to_string().contains("abxyz"), "{status}");
    // Nobody can be allowed, in an open session or a new one.
    for session in ["claude", "another"] {
        let widened = writer.call("bridge.open", json!({"sessionKey": session, "allowedSenders": ["me"]})).await;
        assert!(is_forbidden(&widened), "{widened}");
    }
    // A verdict in words does not count, whoever it says it is from.
    for sender in ["u1", "me"] {
        let said = json!({"sessionKey": "claude", "content": "yes abxyz", "meta": {"user_id": sender}});
        let refused = writer.call("bridge.inbound", said).await;
        assert!(is_forbidden(&refused), "{refused}");
    }
    // Nor over HTTP with the gateway's token, because agents use that door.
    let bearer = format!("POST /bridge/inbound HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    let said = json!({"sessionKey": "claude", "content": "yes abxyz", "meta": {"user_id": "u1"}});
    let (status, body) = server.http(&bearer, &said.to_string()).await;
    assert!(status == 400 && body.contains("operator.approvals"), "{status} {body}");
    // Messages are still delivered, and the plugin receives nothing else.
    writer.call("bridge.inbound", json!({"sessionKey": "claude", "content": "hello"})).await;
    assert_eq!(plugin.frame().await.unwrap()["content"], "hello");
    // Opening again without the scope keeps who was allowed.
    let again = writer.call("bridge.open", json!({"sessionKey": "claude"})).await;
    assert_eq!(again["ok"], true, "{again}");
    let counted = json!({"sessionKey": "claude", "content": "no abxyz", "meta": {"user_id": "u1"}});
    assert_eq!(operator.call("bridge.inbound", counted).await["payload"]["behavior"], "deny");
    assert_eq!(plugin.frame().await.unwrap()["behavior"], "deny");
    assert!(writer.events.iter().all(|event| !event.to_string().contains("abxyz")), "{:?}", writer.events);
    let status = operator.call("bridge.status", json!({})).await;
    assert_eq!(status["ok"], true, "{status}");
}
