//! Lanes and shares: hanging calls do not block health, approvals, cancellation or other clients' calls.

use crate::harness::{Server, TOKEN, Ws};
use serde_json::json;
use std::time::{Duration, Instant};

/// The largest number of requests of one connection in flight.
const FULL: usize = 512;
const HANG: u64 = 60_000;

/// Sends this number of hanging calls without waiting for answers.
async fn hang(ws: &mut Ws, count: usize) {
    for _ in 0..count {
        ws.request("tools.invoke", json!({"name": "bench_slow", "args": {"ms": HANG}})).await;
    }
}

async fn under_way(server: &Server, at_least: usize) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while server.engine.active_runs().len() < at_least {
        assert!(Instant::now() < give_up, "only {} calls are under way", server.engine.active_runs().len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_calls_hold_up_neither_health_nor_approvals_nor_cancel() {
    let server = Server::start().await;
    let mut hung = Vec::new();
    for _ in 0..4 {
        let mut ws = server.client(&["operator.write"], &[]).await;
        hang(&mut ws, FULL).await;
        hung.push(ws);
    }
    under_way(&server, 600).await;

    // On a connection that has all the requests it may have, and on a fresh one.
    let full = &mut hung[0];
    assert_eq!(full.call("health", json!({})).await["ok"], true);
    let refused = full.call("tools.catalog", json!({})).await;
    assert_eq!(refused["error"]["code"], "UNAVAILABLE", "{refused}");
    let cancelled = full.call("tools.cancel", json!({"requestId": "r2"})).await;
    assert_eq!(cancelled["payload"]["cancelled"], true, "{cancelled}");
    let first = full.response("r2").await;
    assert_eq!(first["payload"]["error"]["code"], "cancelled", "{first}");

    let mut approver = server.client(&["operator.admin"], &["approvals"]).await;
    let mut asker = server.client(&["operator.approvals"], &[]).await;
    let question = json!({"title": "May I?", "description": "It is for a test.", "twoPhase": true});
    let id = asker.request("plugin.approval.request", question).await;
    let accepted = asker.response(&id).await;
    let approval = accepted["payload"]["id"].as_str().unwrap_or_else(|| panic!("{accepted}")).to_owned();
    let resolved = approver.call("approval.resolve", json!({"id": approval, "decision": "allow-once"})).await;
    assert_eq!(resolved["payload"]["applied"], true, "{resolved}");

    let mut fresh = server.client(&["operator.write"], &[]).await;
    assert_eq!(fresh.call("health", json!({})).await["ok"], true);
    let called = fresh.call("tools.invoke", json!({"name": "bench_echo", "args": {"text": "hi"}})).await;
    assert_eq!(called["payload"]["ok"], true, "a connection that holds nothing gets a place: {called}");
    let request = format!("POST /tools/invoke HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    let (status, body) = server.http(&request, r#"{"tool":"bench_echo","args":{"text":"hi"}}"#).await;
    assert_eq!(status, 200, "{body}");
    for path in ["/health", "/ready"] {
        assert_eq!(server.http(&format!("GET {path} HTTP/1.1"), "").await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_for_its_place_can_be_cancelled() {
    let server = Server::start().await;
    let mut first = server.client(&["operator.write"], &[]).await;
    hang(&mut first, FULL).await;
    let mut second = server.client(&["operator.write"], &[]).await;
    hang(&mut second, FULL).await;
    under_way(&server, 600).await;
    // The last one is among those that wait: one connection does not get all places.
    let last = format!("r{}", FULL + 1);
    let cancelled = second.call("tools.cancel", json!({"requestId": last})).await;
    assert_eq!(cancelled["payload"]["cancelled"], true, "{cancelled}");
    let answer = second.response(&last).await;
    assert_eq!(answer["payload"]["error"]["code"], "cancelled", "{answer}");
}
