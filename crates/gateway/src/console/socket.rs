//! `/console/socket`: the console's WebSocket. Its first frame proves which device it is; the device says what it may do.

use super::{cookie, pairing};
use crate::{
    admission::{Admitted, coded},
    auth::Origin,
    gateway::Gateway,
    settings::{MAX_PAYLOAD_BYTES, MAX_PREAUTH_BYTES},
    ws::{connection, handshake::Refusal, upgrade},
};
use axum::{http::StatusCode, response::Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::sync::LazyLock;
use toolyard_engine::store::StoreError;
use toolyard_service::{
    RpcError,
    console::{CLIENT_ID, Console, ShownConsole},
    devices::Device,
    hub::{Admitted as AdmittedClient, ClientInfo, Connection},
    params::{self, Checker, Text},
    sessions::main_key,
    workspaces::held_scopes,
};

/// Closes a socket whose browser must be paired again.
const NOT_PAIRED: u16 = 4401;
/// Closes a socket that should be tried again later.
const TRY_AGAIN: u16 = 1013;
const PROTOCOL: u64 = 4;

/// A browser before its first frame: the device whose cookie came with the request.
pub(crate) struct PendingBrowser {
    device: Option<Box<Device>>,
}

/// Answers a request for the console's socket.
pub(crate) async fn socket(gateway: Gateway, request: Admitted) -> Response {
    if !upgrade::is_wanted(&request.parts.method, &request.parts.headers) {
        let message = "This path is a WebSocket";
        return coded(StatusCode::UPGRADE_REQUIRED, "UPGRADE_REQUIRED", message, None);
    }
    if !request.origin.is_own_page() || !request.origin.is_private {
        let message = "Only a page that this Toolyard served, over TLS or on this machine, may connect here";
        return coded(StatusCode::FORBIDDEN, "ORIGIN_NOT_ALLOWED", message, None);
    }
    let cookie = cookie::shown(&gateway, &request.origin, &request.parts.headers);
    let found = cookie.map(|cookie| gateway.service().console().browser_with(&cookie)).transpose();
    let device = match found {
        Ok(found) => found.flatten().map(Box::new),
        Err(error) => return pairing::broken(&error),
    };
    let own = gateway.clone();
    upgrade::open(&gateway, request, MAX_PREAUTH_BYTES, move |socket, origin, slot| {
        connection::serve(socket, own, origin, slot, connection::SocketPath::Console(PendingBrowser { device }))
    })
}

/// The parameters of the console's `connect`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connect {
    #[schemars(length(max = 64))]
    device_id: Text,
    #[schemars(length(max = 128))]
    signature: Text,
    #[schemars(length(max = 96))]
    version: Option<Text>,
}

fn refused(message: &str, code: &str) -> Refusal {
    Refusal { error: RpcError::new("NOT_PAIRED", message).detail("code", code), close: NOT_PAIRED }
}

/// Handles the first frame: which device it is, and what it may do.
pub(crate) async fn connect(
    gateway: &Gateway,
    origin: &Origin,
    nonce: &str,
    visitor: PendingBrowser,
    params: Option<Value>,
) -> Result<AdmittedClient, Refusal> {
    static CHECKER: LazyLock<Checker> = LazyLock::new(Checker::of::<Connect>);
    let connect: Connect = params::read("connect params", &CHECKER, params.unwrap_or_default())
        .map_err(|error| Refusal { error, close: NOT_PAIRED })?;
    if let Some(wait) = gateway.inner.auth_failures.locked(origin) {
        let error = RpcError::busy("too many failed attempts from this address", wait.as_millis() as u64)
            .detail("code", "CONSOLE_RATE_LIMITED");
        return Err(Refusal { error, close: TRY_AGAIN });
    }
    let console = gateway.service().console();
    let not_paired = || refused("this browser is not paired", "CONSOLE_NOT_PAIRED");
    let device = visitor.device.filter(|device| device.device_id == *connect.device_id).ok_or_else(not_paired)?;
    if !Console::is_nonce_signed(&device, &origin.own, nonce, &connect.signature) {
        gateway.inner.auth_failures.wrong(origin);
        tracing::warn!(device = %device.device_id, address = %origin.address, "a cookie came without its browser's key");
        return Err(refused("the signature does not fit this browser's key", "CONSOLE_BAD_SIGNATURE"));
    }
    if console.is_expired(&device) {
        return Err(refused("the pairing of this browser has ended", "CONSOLE_EXPIRED"));
    }
    // Read again: the device may have been revoked between the request and this frame.
    let known = gateway.service().devices().get(&device.device_id).map_err(|error| unavailable(&error))?;
    let known = known.filter(|known| known.console.is_some()).ok_or_else(not_paired)?;
    let Some(rights) = known.console.as_ref().map(|console| console.rights) else { return Err(not_paired()) };
    console.seen(&known).await;
    Ok(AdmittedClient {
        id: uuid::Uuid::now_v7().to_string(),
        client: ClientInfo {
            id: CLIENT_ID.to_owned(),
            mode: "ui".to_owned(),
            version: connect
                .version
                .map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |version| version.to_string()),
            platform: known.platform.clone(),
            display_name: known.display_name.clone(),
            ..ClientInfo::default()
        },
        role: "operator".to_owned(),
        scopes: held_scopes(&known.workspace, rights.scopes()),
        caps: Vec::new(),
        device: Some(known.device_id),
        address: origin.address,
        node: None,
        console: Some(rights),
        workspace: known.workspace,
        token_generation: None,
    })
}

fn unavailable(error: &StoreError) -> Refusal {
    tracing::error!(%error, "the store did not answer during a handshake of the console");
    Refusal { error: RpcError::busy("the store does not answer", 1000), close: TRY_AGAIN }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hello<'a> {
    r#type: &'static str,
    protocol: u64,
    server: Server<'a>,
    device: Option<ShownConsole>,
    public_key: String,
    instance: &'a str,
    /// The hash of the console's files, by which a tab detects that it is outdated.
    console: &'static str,
    methods: Vec<&'static str>,
    policy: Policy,
    session: Session,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Server<'a> {
    version: &'static str,
    build_id: &'static str,
    boot_id: &'a str,
    conn_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    max_payload: usize,
    tick_interval_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    main_key: String,
}

/// The answer to a browser whose handshake succeeded.
pub(crate) fn hello(gateway: &Gateway, connection: &Connection) -> Result<Box<RawValue>, RpcError> {
    let unreadable = |error: StoreError| RpcError::unavailable(format!("the device cannot be read: {error}"));
    let id = connection.device.as_deref().unwrap_or_default();
    let device = gateway.service().devices().get(id).map_err(unreadable)?;
    let hello = Hello {
        r#type: "hello-ok",
        protocol: PROTOCOL,
        server: Server {
            version: env!("CARGO_PKG_VERSION"),
            build_id: concat!("toolyard-", env!("CARGO_PKG_VERSION")),
            boot_id: &gateway.inner.boot_id,
            conn_id: &connection.id,
        },
        device: device.as_ref().and_then(ShownConsole::of),
        public_key: pairing::public_key(gateway),
        instance: gateway.service().console().instance(),
        console: toolyard_console::version(),
        methods: gateway.service().methods().console_names(connection),
        policy: Policy { max_payload: MAX_PAYLOAD_BYTES, tick_interval_ms: gateway.settings().tick.as_millis() as u64 },
        session: Session { main_key: main_key(&connection.workspace) },
    };
    serde_json::value::to_raw_value(&hello)
        .map_err(|error| RpcError::unavailable(format!("hello-ok cannot be written: {error}")))
}
