//! A small client of the Gateway's RPC, for the command line and for tests.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_websockets::{ClientBuilder, Limits, MaybeTlsStream, Message, WebSocketStream};
use toolyard_protocol::{ErrorCode, Failure};

/// What a client asks for when it connects.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Where, `ws://HOST:PORT`.
    pub url: String,
    /// The shared credential.
    pub token: String,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// `cli`, `probe` and so on.
    pub mode: String,
    /// How long connecting and each call may take.
    pub timeout: Duration,
}

/// A connection.
pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    timeout: Duration,
    next: u64,
    /// What the gateway said about itself.
    pub hello: Value,
}

fn lost(what: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("the gateway cannot be reached: {what}"))
        .suggest("Is it running? `toolyard up` starts one; --url says where to look.")
}

impl Client {
    /// Connects and shows the credential.
    pub async fn connect(connect: &Connect) -> Result<Self, Failure> {
        let uri = connect.url.parse().map_err(|e| {
            Failure::new(ErrorCode::UsageError, format!("--url {:?} cannot be used: {e}", connect.url))
                .suggest("Write it as ws://127.0.0.1:18789.")
        })?;
        let limits = Limits::default().max_payload_len(Some(crate::settings::MAX_BUFFERED_BYTES));
        let builder = ClientBuilder::from_uri(uri).limits(limits);
        let (socket, _) = tokio::time::timeout(connect.timeout, builder.connect())
            .await
            .map_err(|_| lost(&"it does not answer"))?
            .map_err(|e| lost(&e))?;
        let mut client = Self { socket, timeout: connect.timeout, next: 0, hello: Value::Null };
        client.receive(|frame| frame["event"] == "connect.challenge").await?;
        let params = json!({
            "minProtocol": if connect.mode == "probe" { 3 } else { 4 }, "maxProtocol": 4,
            "client": {"id": "cli", "version": env!("CARGO_PKG_VERSION"), "platform": std::env::consts::OS,
                "mode": connect.mode, "instanceId": uuid::Uuid::now_v7().to_string()},
            "role": "operator", "scopes": connect.scopes, "caps": [], "auth": {"token": connect.token},
        });
        client.hello = client.call("connect", params).await.map_err(|error| {
            let code = error["details"]["code"].as_str().or(error["code"].as_str()).unwrap_or("refused").to_owned();
            Failure::new(ErrorCode::Unavailable, format!("the gateway refused the connection: {}", text(&error)))
                .suggest("Check the token; it is printed by `toolyard up` and lies in state/token.")
                .detail("code", code)
        })?;
        Ok(client)
    }

    /// Calls a method; the error is the frame's `error` object.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = format!("{}:{}", self.next, uuid::Uuid::now_v7());
        let frame = json!({"type": "req", "id": id, "method": method, "params": params}).to_string();
        let gone = |failure: Failure| json!({"code": "UNAVAILABLE", "message": failure.message});
        self.socket.send(Message::text(frame)).await.map_err(|e| gone(lost(&e)))?;
        let mut answer =
            self.receive(|frame| frame["type"] == "res" && frame["id"] == id.as_str()).await.map_err(gone)?;
        if answer["ok"] == true { Ok(answer["payload"].take()) } else { Err(answer["error"].take()) }
    }

    async fn receive(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        let waiting = async {
            loop {
                let message = match self.socket.next().await {
                    Some(Ok(message)) => message,
                    Some(Err(error)) => return Err(lost(&error)),
                    None => return Err(lost(&"it closed the connection")),
                };
                if let Some((code, reason)) = message.as_close() {
                    return Err(lost(&format!("closed with {} {reason}", u16::from(code))));
                }
                let Some(frame) = message.as_text().and_then(|t| serde_json::from_str::<Value>(t).ok()) else {
                    continue;
                };
                if wanted(&frame) {
                    return Ok(frame);
                }
            }
        };
        tokio::time::timeout(self.timeout, waiting).await.map_err(|_| lost(&"it does not answer in time"))?
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.socket.close()).await;
    }
}

fn text(error: &Value) -> &str {
    error["message"].as_str().unwrap_or("no reason given")
}

/// The scopes a method needs, as far as this version knows; all of them for a method it does not know.
pub fn scopes_for(method: &str) -> Vec<String> {
    let known = crate::rpc::METHODS.iter().find(|m| m.name == method);
    match known {
        Some(known) => known.scope().map(str::to_owned).into_iter().collect(),
        None => ["admin", "read", "write", "approvals", "pairing"].map(|s| format!("operator.{s}")).to_vec(),
    }
}

/// What `probe` finds: whether each of the usual questions is answered, and how long it took.
pub async fn probe(connect: &Connect) -> Result<Value, Failure> {
    let began = std::time::Instant::now();
    let mut client = Client::connect(connect).await?;
    let mut found = Map::new();
    found.insert("url".to_owned(), connect.url.as_str().into());
    found.insert("connectMs".to_owned(), (began.elapsed().as_secs_f64() * 1000.0).into());
    found.insert("server".to_owned(), client.hello["server"].clone());
    found.insert("protocol".to_owned(), client.hello["protocol"].clone());
    let mut ok = true;
    for method in ["health", "status", "system-presence", "config.get"] {
        let began = std::time::Instant::now();
        let answer = client.call(method, json!({})).await;
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        ok &= answer.is_ok();
        let shown = match answer {
            Ok(_) => json!({"ok": true, "ms": ms}),
            Err(error) => json!({"ok": false, "ms": ms, "error": error}),
        };
        found.insert(method.to_owned(), shown);
    }
    client.close().await;
    found.insert("ok".to_owned(), ok.into());
    Ok(Value::Object(found))
}
