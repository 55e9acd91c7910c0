//! Admission: what strangers can take of memory, sockets and time, for every route and mount.

use crate::harness::{Server, TOKEN, connect_params};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_websockets::Message;
use toolyard_engine::{BoxFuture, memory_store::MemoryStore};
use toolyard_gateway::{
    Settings,
    admission::Rule,
    mount::{Endpoint, MountBody},
};
use toolyard_service::Lane;

const SOON: Duration = Duration::from_secs(60);
const BODY_WITHIN: Duration = Duration::from_millis(400);

/// An endpoint as others mount it, with one open path.
#[derive(Default)]
struct Mounted {
    asked: AtomicUsize,
}

impl Endpoint for Mounted {
    fn rule(&self, path: &str) -> Rule {
        match path {
            "/mounted/health" => Rule::open(),
            _ => Rule::credential(1 << 20, BODY_WITHIN).or_api_key(),
        }
    }

    fn lane(&self, _: &axum::http::Request<axum::body::Bytes>) -> Lane {
        Lane::Ordinary
    }

    fn handle(
        &self,
        _: toolyard_protocol::WorkspaceId,
        request: axum::http::Request<axum::body::Bytes>,
    ) -> BoxFuture<'_, axum::http::Response<MountBody>> {
        self.asked.fetch_add(1, Ordering::AcqRel);
        let answer = format!("{} bytes", request.body().len());
        Box::pin(async move { axum::http::Response::new(MountBody::Whole(answer.into())) })
    }
}

async fn mounted() -> (Server, Arc<Mounted>) {
    let server = Server::start().await;
    let endpoint = Arc::new(Mounted::default());
    server.gateway.mount_tree("/mounted", endpoint.clone());
    (server, endpoint)
}

/// Sends a head and the bytes after it, and returns the whole answer. The server must end the connection.
async fn raw(server: &Server, text: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection is still open after {text:?}: {}", String::from_utf8_lossy(&answer));
    String::from_utf8_lossy(&answer).into_owned()
}

async fn metric(server: &Server, name: &str) -> f64 {
    let (_, page) = server.http(&format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}"), "").await;
    let line = page.lines().find_map(|line| line.strip_prefix(name)).expect("the metric");
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn open_paths_take_no_body_whoever_asks() {
    let (server, endpoint) = mounted().await;
    for path in ["/health", "/healthz", "/ready", "/readyz", "/mounted/health"] {
        assert_eq!(server.http(&format!("GET {path} HTTP/1.1"), "").await.0, 200, "{path}");
        // No byte of these bodies is sent, so a server that waits for a body makes the test time out.
        for declared in ["Content-Length: 67108864", "Transfer-Encoding: chunked"] {
            let answer = raw(&server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{declared}\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
            assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
        }
        let posted =
            raw(&server, &format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")).await;
        assert!(posted.starts_with("HTTP/1.1 405"), "{path}: {posted}");
        for (header, status) in [
            ("Host: evil.example", 403),
            ("Host: localhost\r\nOrigin: https://evil.example", 403),
            ("Host: localhost\r\nX-Forwarded-For: 203.0.113.9", 403),
        ] {
            let answer = raw(&server, &format!("GET {path} HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {header}: {answer}");
        }
    }
    assert_eq!(endpoint.asked.load(Ordering::Acquire), 1, "what was refused never came to the endpoint");
}

#[tokio::test]
async fn no_door_opens_without_the_right_credential_host_and_origin() {
    let (server, endpoint) = mounted().await;
    let doors = [
        "POST /tools/invoke",
        "GET /metrics",
        "HEAD /metrics",
        "GET /runs/01a1e17c-0385-7610-8843-1050c8653910/events",
        "POST /bridge/inbound",
        "POST /mounted",
        "GET /mounted/deep/path",
        "PUT /mounted/x",
        "DELETE /mounted/x",
    ];
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let attempts = [
        ("Host: localhost".to_owned(), 401),
        ("Host: localhost\r\nAuthorization: Bearer wrong".to_owned(), 401),
        ("Host: localhost\r\nAuthorization: Bearer ".to_owned(), 401),
        (format!("Host: localhost\r\nAuthorization: Basic {TOKEN}"), 401),
        ("Host: localhost\r\nX-API-Key: wrong".to_owned(), 401),
        (format!("Host: evil.example\r\n{bearer}"), 403),
        (format!("Host: localhost\r\nOrigin: https://evil.example\r\n{bearer}"), 403),
        (format!("Host: localhost\r\nOrigin: null\r\n{bearer}"), 403),
        (format!("Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n{bearer}"), 403),
    ];
    for door in doors {
        for (headers, status) in &attempts {
            // A large body is declared and never sent: the refusal does not wait for it.
            let answer =
                raw(&server, &format!("{door} HTTP/1.1\r\n{headers}\r\nContent-Length: 1000000\r\n\r\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{door} {headers}: {answer}");
        }
    }
    assert_eq!(endpoint.asked.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn a_declared_body_beyond_the_limit_is_refused_unread_and_a_slow_one_in_time() {
    let (server, endpoint) = mounted().await;
    let head = |length: &str| {
        format!("POST /mounted HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {TOKEN}\r\nContent-Length: {length}\r\n\r\n")
    };
    let large = raw(&server, &head("1048577")).await;
    assert!(large.starts_with("HTTP/1.1 413"), "{large}");
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(head("1000").as_bytes()).await.unwrap();
    let (mut reading, mut writing) = slow.split();
    let began = Instant::now();
    let dripping = async {
        // Sending single bytes slowly does not extend the deadline.
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if writing.write_all(b"x").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut answer = [0; 32];
    tokio::select! {
        _ = reading.read_exact(&mut answer) => {}
        () = dripping => {}
    }
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    assert!(began.elapsed() < SOON);
    let request = format!("POST /mounted HTTP/1.1\r\nX-API-Key: {TOKEN}");
    assert_eq!(server.http(&request, "12345").await, (200, "5 bytes".to_owned()));
    assert_eq!(endpoint.asked.load(Ordering::Acquire), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sockets_are_bounded_and_shut_nobody_out() {
    let server = Server::start().await;
    let mut idle = Vec::new();
    for n in 0..400 {
        // Alternates between a WebSocket that never authenticates and a connection that sends nothing.
        if n % 2 == 0 {
            idle.push(server.open().await.socket.into_inner());
        } else {
            let stream = TcpStream::connect(server.address).await.unwrap();
            idle.push(tokio_websockets::MaybeTlsStream::Plain(stream));
        }
    }
    let began = Instant::now();
    let mut client = server.client(&["operator.read"], &[]).await;
    assert_eq!(client.call("health", json!({})).await["ok"], true);
    assert_eq!(server.http("GET /health HTTP/1.1", "").await.0, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let open = metric(&server, "toolyard_unproven_connections ").await;
    assert!((1.0..=256.0).contains(&open), "{open}");
}

/// Whether the server has closed a connection; what it sent before is read and dropped.
async fn is_ended(socket: &mut (impl tokio::io::AsyncRead + Unpin)) -> bool {
    let mut scrap = [0; 4 << 10];
    loop {
        match tokio::time::timeout(Duration::from_millis(1), socket.read(&mut scrap)).await {
            Ok(Ok(0) | Err(_)) => return true,
            Ok(Ok(_)) => {}
            Err(_) => return false,
        }
    }
}

#[tokio::test]
async fn a_refused_handshake_is_counted_until_its_socket_is_closed() {
    let server = Server::start().await;
    let give_up = Instant::now() + SOON;
    loop {
        let mut ws = server.open().await;
        ws.challenge().await;
        let mut params = connect_params(&["operator.read"], &[]);
        params["auth"]["token"] = json!("wrong");
        ws.request("connect", params).await;
        // Not closed from here: the server lingers for the close frame to be answered, but not for long.
        let mut refused = ws.socket.into_inner();
        let counted = metric(&server, "toolyard_unproven_connections ").await;
        if !is_ended(&mut refused).await {
            assert!(counted >= 1.0, "its socket was open when they were counted, and still is");
            break;
        }
        assert!(Instant::now() < give_up, "the server never lingers long enough to be looked at");
    }
    while metric(&server, "toolyard_unproven_connections ").await > 0.0 {
        assert!(Instant::now() < give_up, "they are gone, and still counted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_proven_connection_is_not_counted_and_survives_a_crowd() {
    let server = Server::start().await;
    let mut client = server.client(&["operator.read"], &[]).await;
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(TcpStream::connect(server.address).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.call("health", json!({})).await["ok"], true);
    let open = metric(&server, "toolyard_unproven_connections ").await;
    assert!(open <= 256.0, "{open}");
}

#[tokio::test]
async fn control_frames_before_the_handshake_are_bounded() {
    let server = Server::start().await;
    for path in ["/", "/bridge"] {
        let mut ws = server.open_with(path, &[]).await.unwrap();
        for _ in 0..200 {
            if ws.socket.send(Message::ping("x")).await.is_err() {
                break;
            }
        }
        let closed = tokio::time::timeout(SOON, async { while let Some(Ok(_)) = ws.socket.next().await {} }).await;
        assert!(closed.is_ok(), "{path}: still open after 200 pings without a word");
    }
}

#[tokio::test]
async fn control_frames_after_the_handshake_are_bounded_too() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    assert_eq!(ws.call("health", json!({})).await["ok"], true);
    // The answers to pings are queued inside the socket: a client that sends pings and reads nothing would fill the memory.
    for _ in 0..2_000 {
        if ws.socket.send(Message::ping("x")).await.is_err() {
            break;
        }
    }
    let closed = tokio::time::timeout(SOON, async { while let Some(Ok(_)) = ws.socket.next().await {} }).await;
    assert!(closed.is_ok(), "still open after a flood of pings");
}

#[tokio::test]
async fn the_bridges_first_frame_must_be_short_before_any_of_it_is_kept() {
    let server = Server::start().await;
    let ws = server.open_with("/bridge", &[]).await.unwrap();
    let mut stream = ws.socket.into_inner();
    // The head of a masked text frame of 8 MiB, and a little of it.
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend((8u64 << 20).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend([b'x'; 1000]);
    stream.write_all(&frame).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the server waits for 8 MiB from a stranger");
}

#[tokio::test]
async fn readiness_names_the_store_that_cannot_write() {
    let store = Arc::new(MemoryStore::new());
    let server = Server::start_on(store.clone(), Settings::new(TOKEN)).await;
    assert_eq!(server.http("GET /ready HTTP/1.1", "").await.0, 200);
    let mut client = server.client(&["operator.read"], &[]).await;
    assert_eq!(client.call("health", json!({})).await["payload"]["ok"], true);
    store.poison("no space left on device");
    for path in ["/ready", "/readyz"] {
        let (status, body) = server.http(&format!("GET {path} HTTP/1.1"), "").await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["ready"], &body["failing"]), (503, &json!(false), &json!(["store"])), "{body}");
        assert!(!body.to_string().contains("space"), "why is not for strangers");
    }
    assert_eq!(client.call("health", json!({})).await["payload"]["ok"], false);
    assert_eq!(server.http("GET /health HTTP/1.1", "").await.0, 200, "alive all the same");
}
