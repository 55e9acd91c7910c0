//! Limits: sizes, origins, proxies, guessed credentials, clients that do not read.

use crate::harness::{PATIENCE, Server, TOKEN, connect_params};
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use std::time::Duration;
use tokio_websockets::Message;
use toolyard_gateway::{Settings, settings::RateLimit};

/// A client that waits this long for an answer has noticed that another one does not read.
const NOTICED: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_foreign_page_is_refused_even_with_the_right_token() {
    let server = Server::start().await;
    let mut ws = server.open_with("/", &[("origin", "https://evil.example")]).await.unwrap();
    let refused = ws.connect(connect_params(&["operator.read"], &[])).await;
    assert_eq!(refused["error"]["details"]["code"], "CONTROL_UI_ORIGIN_NOT_ALLOWED");
    assert_eq!(ws.until_closed(PATIENCE).await.0, 1008);
    let own = format!("http://{}", server.address);
    let mut ws = server.open_with("/ws?x=1", &[("origin", &own)]).await.unwrap();
    assert_eq!(ws.connect(connect_params(&["operator.read"], &[])).await["ok"], true, "any path, our own page");
}

#[tokio::test]
async fn forwarding_headers_are_refused_from_anybody_unknown() {
    let server = Server::start().await;
    let error = server.open_with("/", &[("x-forwarded-for", "203.0.113.9")]).await.err().unwrap();
    assert!(error.contains("403"), "{error}");
    let (status, body) = server.http("GET /metrics HTTP/1.1\r\nX-Forwarded-For: 203.0.113.9", "").await;
    assert_eq!(status, 403);
    assert!(body.contains("proxy_attribution_required"));
}

fn behind_a_proxy() -> Settings {
    Settings {
        trusted_proxies: vec!["127.0.0.1".parse().unwrap()],
        rate_limit: RateLimit { max_attempts: 3, ..RateLimit::default() },
        ..Settings::new(TOKEN)
    }
}

#[tokio::test]
async fn wrong_guesses_lock_an_address_out() {
    let server = Server::start_with(behind_a_proxy()).await;
    let from = [("x-forwarded-for", "203.0.113.9")];
    let wrong = || {
        let mut params = connect_params(&["operator.read"], &[]);
        params["auth"]["token"] = json!("wrong");
        params
    };
    for _ in 0..3 {
        let mut ws = server.open_with("/", &from).await.unwrap();
        assert_eq!(ws.connect(wrong()).await["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH");
    }
    let mut ws = server.open_with("/", &from).await.unwrap();
    let locked = ws.connect(connect_params(&["operator.read"], &[])).await;
    assert_eq!(locked["error"]["details"]["code"], "AUTH_RATE_LIMITED", "even the right one now: {locked}");
    assert_eq!(locked["error"]["retryable"], true);
    assert!(locked["error"]["retryAfterMs"].as_u64().unwrap() > 200_000);
    let bearer = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nX-Forwarded-For: ");
    assert_eq!(server.http(&format!("{bearer}203.0.113.9"), "").await.0, 429);
    assert_eq!(server.http(&format!("{bearer}203.0.113.10"), "").await.0, 200, "nobody else is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_closed_and_nobody_else_notices() {
    let server = Server::start().await;
    let mut deaf = server.client(&["operator.write"], &[]).await;
    // A request's id comes back with its answer: large answers at little cost.
    let id = "x".repeat(1 << 20);
    for _ in 0..80 {
        deaf.send(json!({"type":"req","id":id,"method":"health"}).to_string()).await;
    }
    let mut other = server.client(&["operator.read"], &[]).await;
    let mut slowest = Duration::ZERO;
    let give_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        let began = tokio::time::Instant::now();
        assert_eq!(other.call("health", json!({})).await["ok"], true);
        slowest = slowest.max(began.elapsed());
        let (_, page) = server.http(&format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"), "").await;
        if page.contains("toolyard_slow_consumers_total 1") {
            break;
        }
        assert!(tokio::time::Instant::now() < give_up, "the deaf client is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(slowest < NOTICED, "{slowest:?}");
    // Frames that were already queued arrive, then the connection is closed.
    while let Some(Ok(message)) = deaf.socket.next().await {
        if message.is_close() {
            break;
        }
    }
}

#[tokio::test]
async fn a_binary_frame_with_json_is_taken_and_broken_utf8_is_not() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    let frame = json!({"type":"req","id":"b","method":"health"}).to_string();
    ws.socket.send(Message::binary(frame.into_bytes())).await.unwrap();
    assert_eq!(ws.response("b").await["ok"], true);
    let mut first = server.open().await;
    first.challenge().await;
    first.socket.send(Message::binary(vec![0xff_u8, 0xfe])).await.unwrap();
    assert_eq!(first.until_closed(PATIENCE).await.0, 1000);
}

#[tokio::test]
async fn a_client_that_never_says_what_it_wants_is_given_up() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start().await;
    let mut slow = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let mut silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    // Sending headers slowly does not extend the deadline.
    let dripping = async {
        let mut last = Vec::new();
        for i in 0.. {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if slow.write_all(format!("x-{i}: y\r\n").as_bytes()).await.is_err() {
                break;
            }
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(1), slow.read_to_end(&mut last)).await {
                break;
            }
        }
        String::from_utf8_lossy(&last).into_owned()
    };
    let mut nothing = Vec::new();
    let both = async { tokio::join!(dripping, silent.read_to_end(&mut nothing)) };
    let (answer, _) = tokio::time::timeout(PATIENCE, both).await.expect("both are closed");
    assert!(!answer.contains("200"), "{answer}");
    assert_eq!(server.http("GET /health HTTP/1.1", "").await.0, 200, "others are served");
}

#[tokio::test]
async fn ticks_come_numbered_and_a_silent_peer_is_noticed() {
    let settings = Settings { tick: Duration::from_millis(200), ..Settings::new(TOKEN) };
    let server = Server::start_with(settings).await;
    let mut ws = server.client(&[], &[]).await;
    let (first, second) = (ws.event("tick").await, ws.event("tick").await);
    assert_eq!(second["seq"].as_u64().unwrap(), first["seq"].as_u64().unwrap() + 1);
    // A peer that answers no ping: the TCP connection stays, but nothing comes back.
    let silent = server.client(&[], &[]).await;
    let held = silent.socket; // not polled, so pings are not answered
    let give_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (_, page) = server.http(&format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"), "").await;
        // On a busy machine the other client's pongs may come too late as well.
        if page.contains("toolyard_disconnections_total") && !page.contains("toolyard_disconnections_total 0") {
            break;
        }
        assert!(tokio::time::Instant::now() < give_up, "the silent peer is still there");
        ws.frame_within(Duration::from_millis(50)).await;
    }
    drop(held);
}
