//! A small client of the Gateway's RPC, for the command line and for tests.

mod bridge;
mod identity;
mod wire;

pub use bridge::Dialler;
pub use identity::Identity;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value, json};
use std::{path::PathBuf, time::Duration};
use tokio_websockets::{ClientBuilder, Limits, Message, WebSocketStream};
use toolyard_protocol::{ErrorCode, Failure};

/// What a client asks for when it connects.
#[derive(Debug, Clone)]
pub struct Connect {
    /// Where, `ws://HOST:PORT` or `wss://HOST:PORT`.
    pub url: String,
    /// A certificate to believe beside those the system believes, PEM.
    pub ca_file: Option<PathBuf>,
    /// What is shown to be let in.
    pub credential: Credential,
    /// The device that signs, if any.
    pub identity: Option<Identity>,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// `cli`, `probe` and so on.
    pub mode: String,
    /// How long connecting and each call may take.
    pub timeout: Duration,
}

/// What is shown to be let in.
#[derive(Clone)]
pub enum Credential {
    /// The gateway's own token.
    Shared(String),
    /// The token that the gateway gave this device.
    Device(String),
}

impl std::fmt::Debug for Credential {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shared(_) => "Shared",
            Self::Device(_) => "Device",
        })
    }
}

/// A connection.
pub struct Client {
    socket: WebSocketStream<Box<dyn wire::Wire>>,
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
        let uri = wire::read_uri(&connect.url)?;
        let place = wire::Place::read(&connect.url, &uri)?;
        let limits = Limits::default().max_payload_len(Some(crate::settings::MAX_BUFFERED_BYTES));
        let opening = async {
            let stream = place.connect(connect.ca_file.as_deref()).await?;
            let (socket, _) =
                ClientBuilder::from_uri(uri).limits(limits).connect_on(stream).await.map_err(|e| lost(&e))?;
            Ok::<_, Failure>(socket)
        };
        let socket =
            tokio::time::timeout(connect.timeout, opening).await.map_err(|_| lost(&"it does not answer"))??;
        let mut client = Self { socket, timeout: connect.timeout, next: 0, hello: Value::Null };
        let challenge = client.receive(|frame| frame["event"] == "connect.challenge").await?;
        let nonce = challenge["payload"]["nonce"].as_str().unwrap_or_default();
        client.hello = client.call("connect", hello_params(connect, nonce)).await.map_err(refused)?;
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

fn hello_params(connect: &Connect, nonce: &str) -> Value {
    let (platform, role) = (std::env::consts::OS, "operator");
    let (name, token) = match &connect.credential {
        Credential::Shared(token) => ("token", token),
        Credential::Device(token) => ("deviceToken", token),
    };
    let mut params = json!({
        "minProtocol": if connect.mode == "probe" { 3 } else { 4 }, "maxProtocol": 4,
        "client": {"id": "cli", "version": env!("CARGO_PKG_VERSION"), "platform": platform,
            "mode": connect.mode, "instanceId": uuid::Uuid::now_v7().to_string()},
        "role": role, "scopes": connect.scopes, "caps": [], "auth": {name: token},
    });
    if let Some(identity) = &connect.identity {
        params["device"] = identity.sign(&identity::Claim {
            client_id: "cli",
            client_mode: &connect.mode,
            role,
            scopes: &connect.scopes,
            token,
            nonce,
            platform,
        });
    }
    params
}

/// Why we were not let in, and what would help.
fn refused(error: Value) -> Failure {
    let code = error["details"]["code"].as_str().or(error["code"].as_str()).unwrap_or("refused").to_owned();
    let help = match code.as_str() {
        "PAIRING_REQUIRED" => format!(
            "An operator must let this device in: `toolyard devices approve {}` where the gateway runs.",
            error["details"]["requestId"].as_str().unwrap_or("REQUEST")
        ),
        "DEVICE_IDENTITY_REQUIRED" => "From elsewhere a device must sign: try again with --device.".to_owned(),
        _ => "Check the token; it is printed by `toolyard up` and lies in state/token.".to_owned(),
    };
    Failure::new(ErrorCode::Unavailable, format!("the gateway refused the connection: {}", text(&error)))
        .suggest(help)
        .detail("code", code)
}

fn text(error: &Value) -> &str {
    error["message"].as_str().unwrap_or("no reason given")
}

/// The scopes a method needs, as far as this version knows; all of them for a method it does not know.
pub fn scopes_for(method: &str) -> Vec<String> {
    let known = crate::registry::find(method).filter(|m| m.is_on_gateway());
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
