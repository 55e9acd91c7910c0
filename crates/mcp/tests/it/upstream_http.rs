//! Upstream servers over HTTP: our own server on the other side of a real socket, and one that speaks the old transport.

use crate::{
    harness::{Lab, PATIENCE},
    upstream::{TestHost, said},
};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;
use toolyard_mcp::{
    ServerConfig,
    client::{RevisionChoice, Transport, Trust},
    server::{
        Client,
        http::{HttpBody, HttpDoor},
    },
};

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// Serves requests on a free port of this machine; gives the address.
pub(crate) async fn serve<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> String
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    format!("http://{address}")
}

pub(crate) fn whole(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed());
    *response.status_mut() = status;
    response
}

/// Our own server behind a bearer token. Counts requests that had none.
async fn serve_door(door: HttpDoor, strangers: Arc<AtomicUsize>) -> String {
    serve(move |request| {
        let (door, strangers) = (door.clone(), strangers.clone());
        async move {
            if request.headers().get("authorization").is_none_or(|v| v != "Bearer hush") {
                strangers.fetch_add(1, Ordering::SeqCst);
                return whole(StatusCode::UNAUTHORIZED, "Unauthorized");
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            answer_of(&door, Request::from_parts(parts, body)).await
        }
    })
    .await
}

/// What our own server answers.
pub(crate) async fn answer_of(door: &HttpDoor, request: Request<Bytes>) -> Response<Body> {
    let response = door.handle(Client::owner("upstream"), request).await;
    response.map(|body| match body {
        HttpBody::Whole(bytes) => Full::new(bytes).boxed(),
        HttpBody::Stream(stream) => BodyExt::boxed(StreamBody::new(sync(stream).map(|b| Ok(Frame::data(b))))),
    })
}

/// A stream that may be looked at from several threads, as a boxed body must be.
fn sync(
    mut stream: impl futures_util::Stream<Item = Bytes> + Send + Unpin + 'static,
) -> impl futures_util::Stream<Item = Bytes> + Send + Sync {
    let (sender, mut receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(bytes) = stream.next().await {
            if sender.send(bytes).await.is_err() {
                return;
            }
        }
    });
    futures_util::stream::poll_fn(move |context| receiver.poll_recv(context))
}

fn remote(url: String) -> ServerConfig {
    ServerConfig {
        url: Some(url),
        headers: [("Authorization".to_owned(), "Bearer hush".to_owned())].into(),
        trust: Trust::Annotations,
        ..ServerConfig::default()
    }
}

#[tokio::test]
async fn a_server_over_http_is_used_in_both_generations_with_its_own_credential() {
    for (protocol, spoken) in [(RevisionChoice::Auto, "2025-11-25"), (RevisionChoice::V20260728, "2026-07-28")] {
        let lab = Lab::new();
        let strangers = Arc::new(AtomicUsize::new(0));
        let url = serve_door(lab.server.http(CancellationToken::new()), strangers.clone()).await;
        let host = TestHost::new();
        host.add(vec![("far", ServerConfig { protocol, ..remote(url) })]).await;
        let echoed = host.call("far__test_echo", json!({"text": "over there"})).await;
        let data = echoed.data.as_ref().unwrap_or_else(|| panic!("{echoed:?}"));
        assert_eq!(data["structuredContent"]["said"], "over there");
        assert_eq!(host.status("far").protocol.as_deref(), Some(spoken));
        let failed = host.call("far__test_fail", json!({})).await;
        assert!(failed.error.as_ref().unwrap().message.contains("somebody was faster"), "{failed:?}");
        assert_eq!(strangers.load(Ordering::SeqCst), 0, "every request had the credential");
        host.upstreams.shutdown().await;
    }
}

#[tokio::test]
async fn a_session_the_server_has_forgotten_is_opened_again_within_the_call() {
    let lab = Lab::new();
    let door = Arc::new(Mutex::new(lab.server.http(CancellationToken::new())));
    let current = door.clone();
    let url = serve(move |request| {
        let door = current.lock().unwrap().clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            answer_of(&door, Request::from_parts(parts, body)).await
        }
    })
    .await;
    let host = TestHost::new();
    host.add(vec![("far", remote(url))]).await;
    assert!(host.call("far__test_echo", json!({"text": "a"})).await.ok);
    // A new endpoint has no sessions, as after a restart of the server.
    *door.lock().unwrap() = lab.server.http(CancellationToken::new());
    let after = host.call("far__test_echo", json!({"text": "b"})).await;
    assert!(after.ok, "{after:?}");
    host.upstreams.shutdown().await;
}

#[tokio::test]
async fn a_server_with_only_the_old_transport_is_understood() {
    let (events, receiver) = mpsc::channel::<Bytes>(64);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let url = serve(move |request| {
        let (events, receiver) = (events.clone(), receiver.clone());
        async move {
            match (request.method().clone(), request.uri().path()) {
                (Method::GET, "/sse") => {
                    let Some(mut receiver) = receiver.lock().unwrap().take() else {
                        return whole(StatusCode::CONFLICT, "once only");
                    };
                    let hello = Bytes::from_static(b"event: endpoint\ndata: /messages?session=1\n\n");
                    let rest = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
                    let stream = futures_util::stream::iter([hello]).chain(rest);
                    let mut response =
                        Response::new(BodyExt::boxed(StreamBody::new(stream.map(|b| Ok(Frame::data(b))))));
                    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
                    response
                }
                (Method::POST, "/messages") => {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let message: Value = serde_json::from_slice(&body).unwrap();
                    if let Some(result) = old_answer(&message) {
                        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                        events.send(Bytes::from(format!("event: message\ndata: {answer}\n\n"))).await.unwrap();
                    }
                    whole(StatusCode::ACCEPTED, "Accepted")
                }
                _ => whole(StatusCode::METHOD_NOT_ALLOWED, "no"),
            }
        }
    })
    .await;
    let host = TestHost::new();
    host.add(vec![("old", ServerConfig { transport: Transport::Auto, ..remote(format!("{url}/sse")) })]).await;
    let called = tokio::time::timeout(PATIENCE, host.call("old__greet", json!({}))).await.unwrap();
    assert_eq!(said(&called), "hello from before");
    host.upstreams.shutdown().await;
}

fn old_answer(message: &Value) -> Option<Value> {
    Some(match message["method"].as_str()? {
        "initialize" => {
            json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}})
        }
        "tools/list" => {
            json!({"tools": [{"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": "hello from before"}]}),
        _ => return None,
    })
}
