//! The first frame: `connect` in, `hello-ok` or a refusal out. Decides who a client is and what it may ask for.

use super::{
    frame::RpcError,
    params::{Field, Kind, check, count, text, texts},
};
use crate::{
    auth::{Origin, same_secret},
    devices::{Device, Signed},
    hub::{Admitted, ClientInfo, Gateway, NodeSurface},
    settings::{MAX_BUFFERED_BYTES, MAX_PAYLOAD_BYTES, SIGNATURE_SKEW_MS},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use toolyard_engine::authority::holds;

/// The protocol spoken here.
const PROTOCOL: u64 = 4;
/// The oldest one that nodes and probes may still ask for.
const OLDEST_PROTOCOL: u64 = 3;

/// Wider than the real gateway's in one way: any client id and mode is taken, since neither gives any right.
const CONNECT: &[Field] = &[
    Field::required("minProtocol", Kind::Count),
    Field::required("maxProtocol", Kind::Count),
    Field::required(
        "client",
        Kind::Fields(&[
            Field::required("id", Kind::TextUpTo(128)),
            Field::required("version", Kind::TextUpTo(128)),
            Field::required("platform", Kind::TextUpTo(128)),
            Field::required("mode", Kind::TextUpTo(64)),
            Field::optional("displayName", Kind::TextUpTo(128)),
            Field::optional("buildId", Kind::TextUpTo(96)),
            Field::optional("deviceFamily", Kind::TextUpTo(128)),
            Field::optional("modelIdentifier", Kind::TextUpTo(128)),
            Field::optional("timeZone", Kind::TextUpTo(64)),
            Field::optional("instanceId", Kind::TextUpTo(128)),
        ]),
    ),
    Field::optional("caps", Kind::Texts),
    Field::optional("commands", Kind::Texts),
    Field::optional("permissions", Kind::Flags),
    Field::optional("pathEnv", Kind::AnyText),
    Field::optional("role", Kind::Text),
    Field::optional("scopes", Kind::Texts),
    Field::optional(
        "device",
        Kind::Fields(&[
            Field::required("id", Kind::TextUpTo(128)),
            Field::required("publicKey", Kind::TextUpTo(128)),
            Field::required("signature", Kind::TextUpTo(256)),
            Field::required("signedAt", Kind::Count),
            Field::required("nonce", Kind::TextUpTo(128)),
        ]),
    ),
    Field::optional(
        "auth",
        Kind::Fields(&[
            Field::optional("token", Kind::AnyText),
            Field::optional("password", Kind::AnyText),
            Field::optional("deviceToken", Kind::AnyText),
            Field::optional("bootstrapToken", Kind::AnyText),
            Field::optional("approvalRuntimeToken", Kind::AnyText),
            Field::optional("agentRuntimeIdentityToken", Kind::AnyText),
        ]),
    ),
    Field::optional("locale", Kind::AnyText),
    Field::optional("userAgent", Kind::AnyText),
    Field::optional("workerRuns", Kind::Any),
    Field::optional("computerUse", Kind::Any),
];

/// Why a client is not let in.
pub(crate) struct Refusal {
    pub(crate) error: RpcError,
    pub(crate) close: u16,
}

impl Refusal {
    fn new(error: RpcError) -> Self {
        Self { error, close: 1008 }
    }
    fn unauthorized(message: &str, code: &str, reason: &str, next: &str) -> Self {
        Self::new(RpcError::invalid(format!("unauthorized: {message}")).details(json!({
            "code": code, "authReason": reason, "canRetryWithDeviceToken": false, "recommendedNextStep": next,
        })))
    }
    /// The word under which it is counted.
    pub(crate) fn code(&self) -> &str {
        let code = self.error.details.as_ref().and_then(|d| d.get("code")).and_then(Value::as_str);
        code.unwrap_or(self.error.code)
    }
}

/// A client that is let in, and what it is told about itself.
pub(crate) struct Welcome {
    pub(crate) admitted: Admitted,
    auth: Value,
}

/// How a credential was right.
enum Proof {
    Shared(&'static str),
    Device(Box<Device>),
}

/// Reads `connect`.
pub(crate) async fn connect(
    gateway: &Gateway,
    origin: &Origin,
    nonce: &str,
    params: Option<Value>,
) -> Result<Welcome, Refusal> {
    let params = check("connect", params, CONNECT).map_err(Refusal::new)?;
    let empty = Map::new();
    let object = |key: &str| params.get(key).and_then(Value::as_object);
    let client = read_client(object("client").unwrap_or(&empty));
    let role = text(&params, "role").unwrap_or("operator");
    check_protocol(&params, &client, role)?;
    if !matches!(role, "operator" | "node") {
        return Err(Refusal::new(RpcError::invalid("invalid role")));
    }
    if !origin.browser_allowed {
        return Err(Refusal::new(
            RpcError::invalid(
                "origin not allowed (open the console from the gateway itself or allow it in gateway.allowedOrigins)",
            )
            .details(json!({"code": "CONTROL_UI_ORIGIN_NOT_ALLOWED", "reason": "origin not allowed"})),
        ));
    }
    let scopes = texts(&params, "scopes");
    let auth = object("auth").unwrap_or(&empty);
    let given = |key: &str| text(auth, key).filter(|t| !t.is_empty());
    let device = object("device").map(|device| {
        let now = Timestamp::now();
        let signed = Signed {
            device_id: text(device, "id").unwrap_or_default(),
            public_key: text(device, "publicKey").unwrap_or_default(),
            signature: text(device, "signature").unwrap_or_default(),
            signed_at_ms: i64::try_from(count(device, "signedAt").unwrap_or_default()).unwrap_or(i64::MAX / 2),
            nonce: text(device, "nonce").unwrap_or_default(),
            client_id: &client.id,
            client_mode: &client.mode,
            role,
            scopes: &scopes,
            token: given("token").or_else(|| given("deviceToken")).unwrap_or_default(),
            platform: &client.platform,
            device_family: client.device_family.as_deref().unwrap_or_default(),
        };
        signed.verify(nonce, now.as_millisecond(), SIGNATURE_SKEW_MS).map(|()| Device {
            device_id: signed.device_id.to_owned(),
            public_key: signed.public_key.to_owned(),
            client_id: client.id.clone(),
            client_mode: client.mode.clone(),
            platform: client.platform.clone(),
            display_name: client.display_name.clone(),
            role: role.to_owned(),
            scopes: scopes.clone(),
            approved_by: "local".to_owned(),
            created_at_ms: now.as_millisecond(),
            issued_at_ms: now.as_millisecond(),
            // Never the same twice, so that a token of a device that was forgotten stays worthless.
            generation: now.as_microsecond().unsigned_abs(),
            narrowed: None,
        })
    });
    let device = device.transpose().map_err(|(code, reason, message)| {
        Refusal::new(RpcError::invalid(message).details(json!({"code": code, "reason": reason})))
    })?;
    if given("token").is_none() && given("password").is_none() && given("deviceToken").is_none() {
        return Err(match device {
            None => device_required(),
            Some(_) if given("bootstrapToken").is_some() => {
                // Setup codes are not issued here, so that no code is a right one.
                gateway.inner.guesses.wrong(origin);
                Refusal::unauthorized(
                    "bootstrap token invalid or expired (pair with the gateway token instead)",
                    "AUTH_BOOTSTRAP_TOKEN_INVALID",
                    "bootstrap_token_invalid",
                    "update_auth_credentials",
                )
            }
            Some(_) => Refusal::unauthorized(
                "gateway token missing (provide gateway auth token)",
                "AUTH_TOKEN_MISSING",
                "token_missing",
                "update_auth_configuration",
            ),
        });
    }
    let proof = prove(gateway, origin, auth, device.as_ref(), &scopes)?;
    let method = match &proof {
        Proof::Shared(method) => method,
        Proof::Device(_) => "device-token",
    };
    let mut shown = json!({"method": method, "role": role, "scopes": scopes});
    let device_id = match (device, proof) {
        (Some(_), Proof::Device(known)) => {
            show_token(gateway, &known, &mut shown)?;
            Some(known.device_id)
        }
        (Some(device), Proof::Shared(_)) => {
            let known = pair(gateway, origin, device, &scopes).await?;
            show_token(gateway, &known, &mut shown)?;
            Some(known.device_id)
        }
        // The shared credential alone is enough on this machine; beyond it, an operator must have let the device in.
        (None, _) if origin.is_local || !gateway.settings().require_device => None,
        (None, _) => return Err(device_required()),
    };
    // What an operator's client says it can do means nothing: it is never asked to.
    let node = (role == "node").then(|| {
        Box::new(NodeSurface {
            commands: texts(&params, "commands"),
            permissions: object("permissions").cloned().unwrap_or_default(),
            path_env: text(&params, "pathEnv").map(str::to_owned),
        })
    });
    tracing::debug!(
        client = %client.id, mode = %client.mode, version = %client.version, address = %origin.address,
        build = text(object("client").unwrap_or(&empty), "buildId"), locale = text(&params, "locale"),
        user_agent = text(&params, "userAgent"), "a client is in"
    );
    let admitted = Admitted {
        id: uuid::Uuid::now_v7().to_string(),
        client,
        role: role.to_owned(),
        scopes,
        caps: texts(&params, "caps"),
        device: device_id,
        address: origin.address,
        node,
    };
    Ok(Welcome { admitted, auth: shown })
}

fn read_client(client: &Map<String, Value>) -> ClientInfo {
    let own = |key: &str| text(client, key).unwrap_or_default().to_owned();
    let maybe = |key: &str| text(client, key).map(str::to_owned);
    ClientInfo {
        id: own("id"),
        mode: own("mode"),
        version: own("version"),
        platform: own("platform"),
        device_family: maybe("deviceFamily"),
        model_identifier: maybe("modelIdentifier"),
        time_zone: maybe("timeZone"),
        display_name: maybe("displayName"),
        instance_id: maybe("instanceId"),
    }
}

fn check_protocol(params: &Map<String, Value>, client: &ClientInfo, role: &str) -> Result<(), Refusal> {
    let least = count(params, "minProtocol").unwrap_or_default();
    let most = count(params, "maxProtocol").unwrap_or_default();
    let lenient = client.mode == "probe" || (role == "node" && client.mode == "node");
    let oldest = if lenient { OLDEST_PROTOCOL } else { PROTOCOL };
    if least <= most && least <= PROTOCOL && most >= oldest {
        return Ok(());
    }
    let error = RpcError::invalid("protocol mismatch").details(json!({
        "code": "PROTOCOL_MISMATCH", "clientMinProtocol": least, "clientMaxProtocol": most,
        "expectedProtocol": PROTOCOL, "minimumProbeProtocol": OLDEST_PROTOCOL,
    }));
    Err(Refusal { error, close: 1002 })
}

fn prove(
    gateway: &Gateway,
    origin: &Origin,
    auth: &Map<String, Value>,
    device: Option<&Device>,
    scopes: &[String],
) -> Result<Proof, Refusal> {
    let guesses = &gateway.inner.guesses;
    if let Some(wait) = guesses.locked(origin) {
        let mut refusal = Refusal::unauthorized(
            "too many failed authentication attempts (retry later)",
            "AUTH_RATE_LIMITED",
            "rate_limited",
            "wait_then_retry",
        );
        refusal.error.retryable = Some(true);
        refusal.error.retry_after_ms = Some(wait.as_millis() as u64);
        return Err(refusal);
    }
    let given = |key: &str| text(auth, key).filter(|t| !t.is_empty());
    for (key, method) in [("token", "token"), ("password", "password")] {
        if given(key).is_some_and(|shown| same_secret(shown, &gateway.settings().token)) {
            guesses.right(origin);
            return Ok(Proof::Shared(method));
        }
    }
    if let Some(device) = device
        && let Some(shown) = given("deviceToken").or_else(|| given("token"))
        && let Some(known) = gateway.inner.devices.get(&device.device_id).map_err(broken)?
        && known.role == device.role
        && gateway.inner.devices.is_token(&known, shown).map_err(broken)?
    {
        if !scopes.iter().all(|scope| holds(known.token_scopes(), scope)) {
            return Err(Refusal::unauthorized(
                "device token scope mismatch (re-pair or approve scope upgrade)",
                "AUTH_SCOPE_MISMATCH",
                "scope_mismatch",
                "review_auth_configuration",
            ));
        }
        guesses.right(origin);
        return Ok(Proof::Device(Box::new(known)));
    }
    guesses.wrong(origin);
    tracing::info!(address = %origin.address, "a client showed a wrong credential");
    Err(if given("token").is_some() {
        Refusal::unauthorized(
            "gateway token mismatch (provide gateway auth token)",
            "AUTH_TOKEN_MISMATCH",
            "token_mismatch",
            "update_auth_credentials",
        )
    } else if given("password").is_some() {
        Refusal::unauthorized(
            "gateway password mismatch (provide gateway auth password)",
            "AUTH_PASSWORD_MISMATCH",
            "password_mismatch",
            "update_auth_credentials",
        )
    } else {
        Refusal::unauthorized(
            "device token mismatch (rotate/reissue device token)",
            "AUTH_DEVICE_TOKEN_MISMATCH",
            "device_token_mismatch",
            "update_auth_credentials",
        )
    })
}

/// A device with the shared credential: on this machine it is let in at once, from elsewhere an operator decides.
async fn pair(gateway: &Gateway, origin: &Origin, device: Device, scopes: &[String]) -> Result<Device, Refusal> {
    let devices = &gateway.inner.devices;
    let known = devices.get(&device.device_id).map_err(broken)?.filter(|known| known.role == device.role);
    let covered = |known: &Device| scopes.iter().all(|scope| holds(&known.scopes, scope));
    match known {
        Some(known) if covered(&known) => Ok(known),
        _ if origin.is_local && origin.browser.is_none() => devices.pair(device).await.map_err(broken),
        known => {
            let reason = if known.is_some() { "scope-upgrade" } else { "not-paired" };
            let request = devices
                .request(device, origin.address.to_string())
                .await
                .map_err(|failure| Refusal::new(RpcError::unavailable(failure.message, 60_000)))?;
            Err(Refusal::new(RpcError::new("NOT_PAIRED", "pairing required").details(json!({
                "code": "PAIRING_REQUIRED", "reason": reason, "requestId": request.request_id,
                "deviceId": request.device.device_id, "recommendedNextStep": "approve_device",
            }))))
        }
    }
}

fn show_token(gateway: &Gateway, device: &Device, shown: &mut Value) -> Result<(), Refusal> {
    shown["deviceToken"] = gateway.inner.devices.token(device).map_err(broken)?.into();
    shown["issuedAtMs"] = device.issued_at_ms.into();
    Ok(())
}

fn device_required() -> Refusal {
    Refusal::new(
        RpcError::new("NOT_PAIRED", "device identity required").details(json!({"code": "DEVICE_IDENTITY_REQUIRED"})),
    )
}

fn broken(error: toolyard_engine::store::StoreError) -> Refusal {
    tracing::error!(%error, "the store did not answer during a handshake");
    Refusal { error: RpcError::unavailable("the store does not answer", 1000), close: 1013 }
}

/// What a client is told when it is in.
pub(crate) async fn hello(gateway: &Gateway, admitted: &Admitted, auth: Value) -> Value {
    let (presence, health) = gateway.versions();
    let events = crate::rpc::EVENTS;
    let methods = crate::registry::gateway_names();
    let mut hello = json!({
        "type": "hello-ok", "protocol": PROTOCOL,
        "server": {
            "version": env!("CARGO_PKG_VERSION"), "buildId": concat!("toolyard-", env!("CARGO_PKG_VERSION")),
            "bootId": gateway.inner.boot_id, "connId": admitted.id,
        },
        "features": {"methods": methods, "events": events, "capabilities": []},
        "snapshot": {
            "suspension": {"phase": "accepting"},
            "presence": if holds(&admitted.scopes, "operator.read") { gateway.presence() } else { Vec::new() },
            // Without its store a gateway has little to say about itself; a call will say why.
            "health": crate::rpc::health::health(gateway).await.unwrap_or_else(|_| json!({})),
            "stateVersion": {"presence": presence, "health": health},
            "uptimeMs": gateway.service().uptime_ms(),
            "sessionDefaults": {
                "defaultAgentId": "main", "modelConfigured": false, "ownership": "sole", "selectionRequired": false,
                "mainKey": "main", "mainSessionKey": "agent:main:main", "scope": "per-sender",
            },
        },
        "auth": auth,
        "policy": {
            "maxPayload": MAX_PAYLOAD_BYTES, "maxBufferedBytes": MAX_BUFFERED_BYTES,
            "tickIntervalMs": gateway.settings().tick.as_millis() as u64,
        },
    });
    // Where things lie on this machine is nobody's business but its administrator's.
    if holds(&admitted.scopes, "operator.admin") {
        let snapshot = &mut hello["snapshot"];
        if let Some(path) = &gateway.settings().config_path {
            snapshot["configPath"] = path.as_str().into();
        }
        snapshot["stateDir"] = gateway.settings().state_path.as_str().into();
        snapshot["authMode"] = "token".into();
    }
    hello
}

impl Welcome {
    /// The client's part and what it is told about itself.
    pub(crate) fn into_parts(self) -> (Admitted, Value) {
        (self.admitted, self.auth)
    }
}
