//! Methods: sessions, calls, cancelling, runs and their events, scopes, configuration.

use crate::harness::{PATIENCE, Server, TOKEN, connect_params};
use serde_json::{Value, json};
use std::time::Duration;

const RW: [&str; 2] = ["operator.read", "operator.write"];

#[tokio::test]
async fn the_connect_frame_of_the_specification_is_accepted() {
    let server = Server::start().await;
    let mut ws = server.open().await;
    let hello = ws
        .connect(json!({
            "minProtocol": 3, "maxProtocol": 4,
            "client": {"id": "openviking-rpc-client", "version": "1.0.0", "platform": "macos", "mode": "operator"},
            "role": "operator", "scopes": ["operator.read", "operator.write"], "auth": {"token": TOKEN},
            "locale": "zh-CN", "userAgent": "openviking-rpc-client/1.0.0",
        }))
        .await;
    let payload = &hello["payload"];
    assert_eq!((&payload["type"], &payload["protocol"]), (&json!("hello-ok"), &json!(4)), "{hello}");
    assert_eq!(payload["auth"]["scopes"], json!(RW));
    assert_eq!(payload["policy"]["maxPayload"], 26_214_400);
    // Every listed method exists: it answers something other than "unknown method".
    let mut admin = server.client(&["operator.admin"], &[]).await;
    for method in payload["features"]["methods"].as_array().unwrap() {
        let answer = admin.call(method.as_str().unwrap(), json!({"nonsense": 1})).await;
        assert!(
            !answer["error"]["message"].as_str().unwrap_or_default().starts_with("unknown method"),
            "{method}: {answer}"
        );
    }
    assert_eq!(admin.call("connect", json!({})).await["error"]["message"], "unknown method: connect");
}

#[tokio::test]
async fn sessions_are_made_listed_changed_and_forgotten() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    assert_eq!(
        ws.call("tools.effective", json!({"sessionKey": "other"})).await["error"]["message"],
        "unknown session key \"other\""
    );
    // The main session exists from the start; creating it again returns it.
    let made = ws.call("sessions.create", json!({"key": "agent:main:main"})).await;
    assert_eq!((&made["payload"]["ok"], &made["payload"]["key"]), (&json!(true), &json!("agent:main:main")));
    assert_eq!(made["payload"]["entry"]["createdVia"], "gateway");
    let effective = ws.call("tools.effective", json!({"sessionKey": "main", "includeSchemas": true})).await;
    let tools = effective["payload"]["groups"][0]["tools"].as_array().unwrap();
    let ids: Vec<&str> = tools.iter().map(|t| t["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"bench_echo") && !ids.contains(&"bench_denied") && !ids.contains(&"bench_opt"), "{ids:?}");
    assert!(tools.iter().all(|t| t["inputSchema"].is_object()));
    let catalog = ws.call("tools.catalog", json!({})).await.to_string();
    assert!(catalog.contains("bench_denied"), "the catalog shows everything");
    let patched = ws.call("sessions.patch", json!({"key": "main", "label": "Other", "pinned": true})).await;
    assert_eq!(patched["payload"]["entry"]["label"], "Other");
    let stale = ws.call("sessions.patch", json!({"key": "main", "label": "x", "expectedSessionId": "no"})).await;
    assert_eq!(stale["error"]["details"]["reason"], "SESSION_CHANGED");
    let list = ws.call("sessions.list", json!({"limit": 1})).await;
    assert_eq!((&list["payload"]["count"], &list["payload"]["sessions"][0]["label"]), (&json!(1), &json!("Other")));
    let gone = ws.call("sessions.delete", json!({"key": "main"})).await;
    assert_eq!(gone["payload"]["deleted"], true);
    assert_eq!(ws.call("sessions.get", json!({"key": "main"})).await["ok"], false);
}

#[tokio::test]
async fn calls_are_checked_deduplicated_timed_and_recorded_in_their_session() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    let bad = ws.call("tools.invoke", json!({"name": "bench_echo", "args": {"text": 5}})).await;
    assert_eq!(bad["payload"]["error"]["code"], "validation_error");
    assert_eq!(bad["payload"]["error"]["details"]["errors"][0]["path"], "/text", "{bad}");
    let slow = ws.call("tools.invoke", json!({"name": "bench_slow", "args": {"ms": 5000}, "timeoutMs": 50})).await;
    assert_eq!(slow["payload"]["error"]["code"], "timeout", "{slow}");
    let once = json!({"name": "bench_echo", "args": {"text": "a"}, "idempotencyKey": "k", "sessionKey": "s1"});
    let first = ws.call("tools.invoke", once.clone()).await;
    let again = ws.call("tools.invoke", once).await;
    assert_eq!(again["payload"]["deduplicated"], true);
    let other = ws
        .call(
            "tools.invoke",
            json!({"name": "bench_echo", "args": {"text": "b"}, "idempotencyKey": "k", "sessionKey": "s1"}),
        )
        .await;
    assert_eq!(other["payload"]["error"]["code"], "conflict");
    let runs = ws.call("runs.list", json!({"session": "agent:main:s1"})).await;
    let listed: Vec<&Value> = runs["payload"]["runs"].as_array().unwrap().iter().map(|r| &r["runId"]).collect();
    assert!(listed.contains(&&first["payload"]["output"]["meta"]["runId"]), "{runs}");
    let events = ws.call("runs.events", json!({"runId": first["payload"]["output"]["meta"]["runId"]})).await;
    assert_eq!(events["payload"]["events"][0]["type"], "run.started");
}

#[tokio::test]
async fn a_call_can_be_stopped_by_the_request_that_made_it_or_by_its_id() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    ws.call("runs.subscribe", json!({"sessionKey": "main"})).await;
    let slow = json!({"name": "bench_slow", "args": {"ms": 30_000}});
    let id = ws.request("tools.invoke", slow.clone()).await;
    let started = ws.event("step.started").await;
    let stopped = ws.call("tools.cancel", json!({"callId": started["payload"]["callId"]})).await;
    assert_eq!(stopped["payload"]["cancelled"], true);
    assert_eq!(ws.response(&id).await["payload"]["error"]["code"], "cancelled");
    let id = ws.request("tools.invoke", slow).await;
    ws.event("step.started").await;
    let other = server.client(&RW, &[]).await.call("tools.cancel", json!({"requestId": id})).await;
    assert_eq!(other["payload"]["cancelled"], false, "another connection's request ids mean nothing");
    assert_eq!(ws.call("tools.cancel", json!({"requestId": id})).await["payload"]["cancelled"], true);
    assert_eq!(ws.response(&id).await["payload"]["error"]["code"], "cancelled");
}

#[tokio::test]
async fn a_slow_call_holds_up_no_other_and_survives_its_client() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    ws.call("runs.subscribe", json!({"sessionKey": "main"})).await;
    // The call takes longer than the test's timeout: the answer to another request shows that the gateway does not wait
    // for it.
    let slow = ws.request("tools.invoke", json!({"name": "bench_slow", "args": {"ms": 3_600_000}})).await;
    ws.event("step.started").await;
    ws.call("system-presence", json!({})).await;
    assert_eq!(ws.call("tools.cancel", json!({"requestId": slow})).await["payload"]["cancelled"], true);
    ws.response(&slow).await;
    ws.call("runs.subscribe", json!({"sessionKey": "left"})).await;
    ws.request("tools.invoke", json!({"name": "bench_slow", "args": {"ms": 1_000}, "sessionKey": "left"})).await;
    // The call has begun when its client disconnects.
    ws.event("step.started").await;
    drop(ws);
    let mut other = server.client(&RW, &[]).await;
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let runs = other.call("runs.list", json!({"session": "agent:main:left"})).await;
        if runs["payload"]["runs"][0]["status"] == "finished" {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "the call never ended: {runs}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn plans_are_checked_and_run_through_the_same_table() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    let plan = json!({"version": "1.0", "goal": "say it", "riskLevel": "read-only",
        "steps": [{"id": "s1", "tool": "bench_echo", "args": {"text": "hi"}}]});
    let checked = ws.call("plans.check", json!({"plan": plan})).await;
    assert_eq!(checked["ok"], true, "{checked}");
    ws.call("runs.subscribe", json!({"sessionKey": "main"})).await;
    let ran = ws.call("plans.run", json!({"plan": plan})).await;
    assert_eq!(ran["payload"]["status"], "finished", "{ran}");
    assert_eq!(ws.event("run.finished").await["payload"]["runId"], ran["payload"]["runId"]);
    let cancelled = ws.call("plans.cancel", json!({"runId": ran["payload"]["runId"]})).await;
    assert_eq!(cancelled["error"]["details"]["code"], "PRECONDITION_FAILED");
    let mut reader = server.client(&["operator.read"], &[]).await;
    assert_eq!(reader.call("plans.run", json!({"plan": plan})).await["error"]["code"], "FORBIDDEN");
}

#[tokio::test]
async fn presence_shows_people_and_not_machinery() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    let mut person = server.open().await;
    let mut params = connect_params(&["operator.read"], &[]);
    params["client"] = json!({"id": "cli", "version": "9", "platform": "linux", "mode": "cli"});
    person.connect(params).await;
    ws.event("presence").await;
    let listed = ws.call("system-presence", json!({})).await;
    let modes: Vec<&str> = listed["payload"].as_array().unwrap().iter().map(|p| p["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["gateway", "cli"]);
}

#[tokio::test]
async fn stopping_says_goodbye() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    let gateway = server.gateway.clone();
    let farewell = tokio::spawn(async move { gateway.farewell("stopping", &[]).await });
    assert_eq!(ws.event("shutdown").await["payload"]["reason"], "stopping");
    assert_eq!(ws.until_closed(PATIENCE).await.0, 1012);
    farewell.await.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_names_the_nodes_that_go_on() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    let gateway = server.gateway.clone();
    let others = ["http://127.0.0.1:7".to_owned()];
    let farewell = tokio::spawn(async move { gateway.farewell("draining", &others).await });
    let event = ws.event("shutdown").await;
    assert_eq!(event["payload"], json!({"reason": "draining", "elsewhere": ["http://127.0.0.1:7"]}));
    assert_eq!(ws.until_closed(PATIENCE).await, (1012, "service restart: http://127.0.0.1:7".to_owned()));
    farewell.await.unwrap();
}
