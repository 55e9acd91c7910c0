//! A small client of the Gateway's RPC, for the command line and for tests.

use crate::{
    identity::{Identity, SignedClaim, SignedDevice},
    wire,
};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio_websockets::{ClientBuilder, Limits, Message, WebSocketStream};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Methods, NoParams, Object, hub::MAX_BUFFERED_BYTES};

/// Timeout of closing the connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// Parameters of a connection.
#[derive(Debug, Clone)]
pub struct Connect {
    /// The URL, `ws://HOST:PORT` or `wss://HOST:PORT`.
    pub url: String,
    /// A PEM file with a certificate that is trusted in addition to the system's trust store.
    pub ca_file: Option<PathBuf>,
    /// The credential that authenticates the client.
    pub credential: Credential,
    /// The device identity that signs the request, if any.
    pub identity: Option<Identity>,
    /// Requested scopes.
    pub scopes: Vec<String>,
    /// The client mode: `cli`, `probe` and so on.
    pub mode: String,
    /// Timeout of connecting and of each call.
    pub timeout: Duration,
}

/// The credential that authenticates a client.
#[derive(Clone)]
pub enum Credential {
    /// The gateway's shared token.
    Shared(String),
    /// The token that the gateway issued to this device.
    Device(String),
}

impl std::fmt::Debug for Credential {
    /// Prints the kind of credential without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Shared(_) => "Shared",
            Self::Device(_) => "Device",
        })
    }
}

/// A connection to a gateway.
pub struct Client {
    socket: WebSocketStream<Box<dyn wire::Wire>>,
    timeout: Duration,
    next: u64,
    /// The gateway's response to the handshake.
    pub hello: Hello,
}

/// The fields of the gateway's handshake response that a client needs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hello {
    /// Protocol version.
    pub protocol: u64,
    /// The gateway.
    pub server: ServerInfo,
    /// The result of the authentication.
    pub auth: HelloAuth,
}

/// Information about a gateway.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerInfo {
    /// Its version.
    pub version: String,
    /// All other fields.
    #[serde(flatten)]
    pub more: Object,
}

/// The result of the authentication.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelloAuth {
    /// The authentication method that was accepted.
    pub method: String,
    /// The token that the device can use from now on.
    pub device_token: Option<String>,
}

/// The error of a response, as the gateway reported it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallError {
    /// The error code.
    pub code: String,
    /// The message for people.
    pub message: String,
    /// Details for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Object>,
    /// All other fields.
    #[serde(flatten)]
    pub more: Object,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl CallError {
    fn unreachable(failure: Failure) -> Self {
        Self { code: "UNAVAILABLE".to_owned(), message: failure.message, ..Self::default() }
    }

    fn detail(&self, name: &str) -> Option<&str> {
        self.details.as_ref()?.get(name)?.as_str()
    }
}

/// A request frame.
#[derive(Serialize)]
struct Request<'a, P> {
    r#type: &'static str,
    id: &'a str,
    method: &'a str,
    params: P,
}

/// The fields of a gateway frame that a client reads.
#[derive(Deserialize)]
struct Frame {
    r#type: String,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    event: String,
    #[serde(default)]
    ok: bool,
    payload: Option<Box<RawValue>>,
    error: Option<CallError>,
}

/// The event that starts the handshake.
#[derive(Deserialize)]
struct Challenge {
    nonce: String,
}

pub(crate) fn lost(what: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("the gateway cannot be reached: {what}"))
        .suggest("Is it running? `toolyard up` starts one; --url says where to look.")
}

impl Client {
    /// Connects and authenticates.
    pub async fn connect(connect: &Connect) -> Result<Self, Failure> {
        let uri = wire::read_uri(&connect.url)?;
        let place = wire::UrlTarget::read(&connect.url, &uri)?;
        let limits = Limits::default().max_payload_len(Some(MAX_BUFFERED_BYTES));
        let opening = async {
            let stream = place.connect(connect.ca_file.as_deref()).await?;
            let (socket, _) =
                ClientBuilder::from_uri(uri).limits(limits).connect_on(stream).await.map_err(|e| lost(&e))?;
            Ok::<_, Failure>(socket)
        };
        let socket =
            tokio::time::timeout(connect.timeout, opening).await.map_err(|_| lost(&"it does not answer"))??;
        let mut client = Self { socket, timeout: connect.timeout, next: 0, hello: Hello::default() };
        let challenge = client.receive(|frame| frame.event == "connect.challenge").await?;
        let challenge: Challenge = payload(challenge)?;
        let answer = client.request("connect", hello_params(connect, &challenge.nonce)).await.map_err(refused)?;
        client.hello = read(&answer)?;
        Ok(client)
    }

    /// Calls a method; returns the result as JSON.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, CallError> {
        let answer = self.request(method, params).await?;
        read(&answer).map_err(CallError::unreachable)
    }

    async fn request(&mut self, method: &str, params: impl Serialize) -> Result<Box<RawValue>, CallError> {
        self.next += 1;
        let id = format!("{}:{}", self.next, uuid::Uuid::now_v7());
        let gone = CallError::unreachable;
        let frame = serde_json::to_string(&Request { r#type: "req", id: &id, method, params });
        let frame = frame.map_err(|e| gone(lost(&e)))?;
        self.socket.send(Message::text(frame)).await.map_err(|e| gone(lost(&e)))?;
        let answer = self.receive(|frame| frame.r#type == "res" && frame.id == id.as_str()).await.map_err(gone)?;
        match answer.ok {
            true => Ok(answer.payload.unwrap_or_else(|| RawValue::NULL.to_owned())),
            false => Err(answer.error.unwrap_or_default()),
        }
    }

    async fn receive(&mut self, wanted: impl Fn(&Frame) -> bool) -> Result<Frame, Failure> {
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
                let frame = message.as_text().and_then(|text| serde_json::from_str::<Frame>(text).ok());
                if let Some(frame) = frame.filter(&wanted) {
                    return Ok(frame);
                }
            }
        };
        tokio::time::timeout(self.timeout, waiting).await.map_err(|_| lost(&"it does not answer in time"))?
    }

    /// Closes the connection.
    pub async fn close(mut self) {
        if let Ok(Err(error)) = tokio::time::timeout(GOODBYE, self.socket.close()).await {
            tracing::debug!(%error, "the gateway closed the connection first");
        }
    }
}

fn payload<T: DeserializeOwned>(frame: Frame) -> Result<T, Failure> {
    read(&frame.payload.unwrap_or_else(|| RawValue::NULL.to_owned()))
}

fn read<T: DeserializeOwned>(text: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(text.get()).map_err(|error| lost(&format!("it speaks otherwise: {error}")))
}

/// The parameters of `connect`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConnectParams<'a> {
    min_protocol: u8,
    max_protocol: u8,
    client: ClientParams<'a>,
    role: &'static str,
    scopes: &'a [String],
    caps: [&'static str; 0],
    auth: AuthParams<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<SignedDevice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientParams<'a> {
    id: &'static str,
    version: &'static str,
    platform: &'static str,
    mode: &'a str,
    instance_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum AuthParams<'a> {
    Token(&'a str),
    DeviceToken(&'a str),
}

fn hello_params<'a>(connect: &'a Connect, nonce: &'a str) -> ConnectParams<'a> {
    let (platform, role) = (std::env::consts::OS, "operator");
    let (auth, token) = match &connect.credential {
        Credential::Shared(token) => (AuthParams::Token(token), token),
        Credential::Device(token) => (AuthParams::DeviceToken(token), token),
    };
    let claim = SignedClaim {
        client_id: "cli",
        client_mode: &connect.mode,
        role,
        scopes: &connect.scopes,
        token,
        nonce,
        platform,
    };
    ConnectParams {
        min_protocol: if connect.mode == "probe" { 3 } else { 4 },
        max_protocol: 4,
        client: ClientParams {
            id: "cli",
            version: env!("CARGO_PKG_VERSION"),
            platform,
            mode: &connect.mode,
            instance_id: uuid::Uuid::now_v7().to_string(),
        },
        role,
        scopes: &connect.scopes,
        caps: [],
        auth,
        device: connect.identity.as_ref().map(|identity| identity.sign(&claim)),
    }
}

/// Explains why the gateway refused the connection, with a suggestion.
fn refused(error: CallError) -> Failure {
    let code = error.detail("code").unwrap_or(&error.code).to_owned();
    let help = match code.as_str() {
        "PAIRING_REQUIRED" => format!(
            "An operator must let this device in: `toolyard devices approve {}` where the gateway runs.",
            error.detail("requestId").unwrap_or("REQUEST")
        ),
        "DEVICE_IDENTITY_REQUIRED" => "From elsewhere a device must sign: try again with --device.".to_owned(),
        _ => "Check the token; it is printed by `toolyard up` and lies in state/token.".to_owned(),
    };
    let message = if error.message.is_empty() { "no reason given" } else { &error.message };
    Failure::new(ErrorCode::Unavailable, format!("the gateway refused the connection: {message}"))
        .suggest(help)
        .detail("code", code)
}

/// The scopes that a method needs; all scopes for a method that this version does not know.
pub fn scopes_for(methods: &Methods, method: &str) -> Vec<String> {
    match methods.find(method).filter(|known| known.terms.is_on_gateway()) {
        Some(known) => known.scope().map(str::to_owned).into_iter().collect(),
        None => ["admin", "read", "write", "approvals", "pairing"].map(|s| format!("operator.{s}")).to_vec(),
    }
}

/// The result of a probe.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// The URL of the gateway.
    pub url: String,
    /// Time taken to connect, in milliseconds.
    pub connect_ms: f64,
    /// The gateway.
    pub server: ServerInfo,
    /// Protocol version.
    pub protocol: u64,
    /// The result of `health`.
    pub health: ProbedMethod,
    /// The result of `status`.
    pub status: ProbedMethod,
    /// The result of `system-presence`.
    #[serde(rename = "system-presence")]
    pub system_presence: ProbedMethod,
    /// The result of `config.get`.
    #[serde(rename = "config.get")]
    pub config_get: ProbedMethod,
    /// Whether all methods succeeded.
    pub ok: bool,
}

impl Probe {
    /// The probed methods, by name.
    pub fn methods(&self) -> [(&'static str, &ProbedMethod); 4] {
        [
            ("health", &self.health),
            ("status", &self.status),
            ("system-presence", &self.system_presence),
            ("config.get", &self.config_get),
        ]
    }
}

/// Whether a method succeeded, and its latency.
#[derive(Debug, Clone, Serialize)]
pub struct ProbedMethod {
    /// Whether the method succeeded.
    pub ok: bool,
    /// Latency in milliseconds.
    pub ms: f64,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
}

impl Client {
    async fn try_method(&mut self, method: &str) -> ProbedMethod {
        let began = Instant::now();
        let answer = self.request(method, NoParams {}).await;
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        ProbedMethod { ok: answer.is_ok(), ms, error: answer.err() }
    }
}

/// Probes a gateway: connects, calls four methods and measures their latency.
pub async fn probe(connect: &Connect) -> Result<Probe, Failure> {
    let began = Instant::now();
    let mut client = Client::connect(connect).await?;
    let connect_ms = began.elapsed().as_secs_f64() * 1000.0;
    let health = client.try_method("health").await;
    let status = client.try_method("status").await;
    let system_presence = client.try_method("system-presence").await;
    let config_get = client.try_method("config.get").await;
    let ok = [&health, &status, &system_presence, &config_get].iter().all(|method| method.ok);
    let Hello { server, protocol, .. } = client.hello.clone();
    client.close().await;
    let url = connect.url.clone();
    Ok(Probe { url, connect_ms, server, protocol, health, status, system_presence, config_get, ok })
}
