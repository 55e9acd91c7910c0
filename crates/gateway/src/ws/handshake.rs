//! The first frame: `connect` in, `hello-ok` or a refusal out. Determines who a client is and which scopes it has.

mod hello;

pub(crate) use hello::hello;

use crate::{
    auth::{Access, Origin},
    gateway::Gateway,
    settings::SIGNATURE_SKEW_MS,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::LazyLock};
use toolyard_engine::{authority::holds, store::StoreError};
use toolyard_protocol::WorkspaceId;
use toolyard_service::{
    AnyJson, Object, RpcError,
    devices::{Device, Signed},
    hub::{Admitted, ClientInfo, NodeSurface},
    params::{self, Checker, Count, Text},
    workspaces::held_scopes,
};

/// The protocol spoken here.
const PROTOCOL: u64 = 4;
/// The oldest one that nodes and probes may still ask for.
const OLDEST_PROTOCOL: u64 = 3;
/// How long a client waits before it tries to pair again where too many devices wait.
const PAIRING_RETRY_MS: u64 = 60_000;
/// How long a client should wait before it retries if the store does not answer.
const STORE_RETRY_MS: u64 = 1000;

/// The parameters of `connect`. Unlike the real gateway, any client id and mode is accepted, because neither gives a
/// right.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connect {
    min_protocol: Count,
    max_protocol: Count,
    client: ClientParams,
    #[serde(default)]
    caps: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, bool>")]
    permissions: Object,
    path_env: Option<String>,
    role: Option<Text>,
    #[serde(default)]
    scopes: Vec<String>,
    device: Option<DeviceParams>,
    #[serde(default)]
    auth: AuthParams,
    locale: Option<String>,
    user_agent: Option<String>,
    #[serde(rename = "workerRuns")]
    _worker_runs: Option<AnyJson>,
    #[serde(rename = "computerUse")]
    _computer_use: Option<AnyJson>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientParams {
    #[schemars(length(max = 128))]
    id: Text,
    #[schemars(length(max = 128))]
    version: Text,
    #[schemars(length(max = 128))]
    platform: Text,
    #[schemars(length(max = 64))]
    mode: Text,
    #[schemars(length(max = 128))]
    display_name: Option<Text>,
    #[schemars(length(max = 96))]
    build_id: Option<Text>,
    #[schemars(length(max = 128))]
    device_family: Option<Text>,
    #[schemars(length(max = 128))]
    model_identifier: Option<Text>,
    #[schemars(length(max = 64))]
    time_zone: Option<Text>,
    #[schemars(length(max = 128))]
    instance_id: Option<Text>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceParams {
    #[schemars(length(max = 128))]
    id: Text,
    #[schemars(length(max = 128))]
    public_key: Text,
    #[schemars(length(max = 256))]
    signature: Text,
    signed_at: Count,
    #[schemars(length(max = 128))]
    nonce: Text,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthParams {
    token: Option<String>,
    password: Option<String>,
    device_token: Option<String>,
    bootstrap_token: Option<String>,
    #[serde(rename = "approvalRuntimeToken")]
    _approval_runtime_token: Option<String>,
    #[serde(rename = "agentRuntimeIdentityToken")]
    _agent_runtime_identity_token: Option<String>,
}

/// The text, if it is not empty.
fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// Why a client is refused.
pub(crate) struct Refusal {
    pub(crate) error: RpcError,
    pub(crate) close: u16,
}

impl Refusal {
    fn new(error: RpcError) -> Self {
        Self { error, close: 1008 }
    }

    fn unauthorized(message: &str, code: &str, reason: &str, next: &str) -> Self {
        Self::new(
            RpcError::invalid(format!("unauthorized: {message}"))
                .detail("code", code)
                .detail("authReason", reason)
                .detail("canRetryWithDeviceToken", false)
                .detail("recommendedNextStep", next),
        )
    }

    /// The label under which the refusal is counted.
    pub(crate) fn code(&self) -> &str {
        self.error.detail_text("code").unwrap_or(self.error.code)
    }
}

/// An accepted client and its state.
pub(crate) struct AcceptedClient {
    pub(crate) admitted: Admitted,
    pub(crate) auth: ShownAuth,
}

/// The client's credential, as it is reported to the client.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownAuth {
    method: &'static str,
    role: String,
    scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_at_ms: Option<i64>,
}

/// The kind of a valid credential, with the rights that it gives.
enum Proof {
    Shared(&'static str, Access),
    Device(Box<Device>),
}

/// Handles `connect`.
pub(crate) async fn connect(
    gateway: &Gateway,
    origin: &Origin,
    nonce: &str,
    params: Option<Value>,
) -> Result<AcceptedClient, Refusal> {
    static CHECKER: LazyLock<Checker> = LazyLock::new(Checker::of::<Connect>);
    let connect: Connect =
        params::read("connect params", &CHECKER, params.unwrap_or_default()).map_err(Refusal::new)?;
    let client = connect.client.info();
    let role = connect.role.as_deref().unwrap_or("operator").to_owned();
    check_protocol(&connect, &client, &role)?;
    if !matches!(role.as_str(), "operator" | "node") {
        return Err(Refusal::new(RpcError::invalid("invalid role")));
    }
    if !origin.browser_allowed {
        let message =
            "origin not allowed (open the console from the gateway itself or allow it in gateway.allowedOrigins)";
        return Err(Refusal::new(
            RpcError::invalid(message)
                .detail("code", "CONTROL_UI_ORIGIN_NOT_ALLOWED")
                .detail("reason", "origin not allowed"),
        ));
    }
    let device = connect.device.as_ref().map(|device| device.verify(&connect, &client, &role, nonce)).transpose()?;
    let auth = &connect.auth;
    if given(&auth.token).or(given(&auth.password)).or(given(&auth.device_token)).is_none() {
        return Err(without_credential(gateway, origin, auth, device.is_some()));
    }
    let proof = prove(gateway, origin, auth, device.as_ref(), &connect.scopes)?;
    let (method, access) = match &proof {
        Proof::Shared(method, access) => (*method, access.clone()),
        Proof::Device(known) => ("device-token", Access { workspace: known.workspace.clone(), generation: None }),
    };
    let workspace = access.workspace;
    let scopes = held_scopes(&workspace, connect.scopes.clone());
    let token_generation = access.generation.filter(|_| device.is_none());
    let known = match (device, proof) {
        (Some(_), Proof::Device(known)) => Some(*known),
        (Some(device), Proof::Shared(..)) => {
            let device = Device { workspace: workspace.clone(), scopes: scopes.clone(), ..device };
            Some(pair(gateway, origin, device, &scopes).await?)
        }
        // On this machine the shared credential is enough; elsewhere an operator must have approved the device.
        (None, _) if origin.is_local || !gateway.settings().require_device => None,
        (None, _) => return Err(device_required()),
    };
    let token = known.as_ref().map(|device| gateway.service().devices().token(device)).transpose().map_err(broken)?;
    let shown = ShownAuth {
        method,
        role: role.clone(),
        scopes: scopes.clone(),
        device_token: token,
        issued_at_ms: known.as_ref().map(|device| device.issued_at_ms),
    };
    tracing::debug!(
        client = %client.id, mode = %client.mode, version = %client.version, address = %origin.address,
        build = connect.client.build_id.as_deref(), locale = connect.locale, user_agent = connect.user_agent,
        "a client is in"
    );
    // The commands that an operator's client announces are ignored, because only nodes are asked to run commands.
    let surface =
        NodeSurface { commands: connect.commands, permissions: connect.permissions, path_env: connect.path_env };
    let admitted = Admitted {
        id: uuid::Uuid::now_v7().to_string(),
        client,
        node: (role == "node").then(|| Box::new(surface)),
        role,
        scopes,
        caps: connect.caps,
        device: known.map(|device| device.device_id),
        address: origin.address,
        console: None,
        workspace,
        token_generation,
    };
    Ok(AcceptedClient { admitted, auth: shown })
}

impl ClientParams {
    fn info(&self) -> ClientInfo {
        let maybe = |text: &Option<Text>| text.as_deref().map(str::to_owned);
        ClientInfo {
            id: self.id.to_string(),
            mode: self.mode.to_string(),
            version: self.version.to_string(),
            platform: self.platform.to_string(),
            device_family: maybe(&self.device_family),
            model_identifier: maybe(&self.model_identifier),
            time_zone: maybe(&self.time_zone),
            display_name: maybe(&self.display_name),
            instance_id: maybe(&self.instance_id),
        }
    }
}

impl DeviceParams {
    /// The device, where its signature is right.
    fn verify(&self, connect: &Connect, client: &ClientInfo, role: &str, nonce: &str) -> Result<Device, Refusal> {
        let now = Timestamp::now();
        let signed = Signed {
            device_id: &self.id,
            public_key: &self.public_key,
            signature: &self.signature,
            signed_at_ms: i64::try_from(self.signed_at.0).unwrap_or(i64::MAX / 2),
            nonce: &self.nonce,
            client_id: &client.id,
            client_mode: &client.mode,
            role,
            scopes: &connect.scopes,
            token: given(&connect.auth.token).or(given(&connect.auth.device_token)).unwrap_or_default(),
            platform: &client.platform,
            device_family: client.device_family.as_deref().unwrap_or_default(),
        };
        signed.verify(nonce, now.as_millisecond(), SIGNATURE_SKEW_MS).map_err(|(code, reason, message)| {
            Refusal::new(RpcError::invalid(message).detail("code", code).detail("reason", reason))
        })?;
        Ok(Device {
            device_id: self.id.to_string(),
            public_key: self.public_key.to_string(),
            client_id: client.id.clone(),
            client_mode: client.mode.clone(),
            platform: client.platform.clone(),
            display_name: client.display_name.clone(),
            role: role.to_owned(),
            scopes: connect.scopes.clone(),
            approved_by: "local".to_owned(),
            created_at_ms: now.as_millisecond(),
            issued_at_ms: now.as_millisecond(),
            // Never used twice, so that a token of a removed device stays invalid.
            generation: now.as_microsecond().unsigned_abs(),
            narrowed: None,
            console: None,
            workspace: WorkspaceId::default(),
        })
    }
}

/// The refusal of a client that shows no credential.
fn without_credential(gateway: &Gateway, origin: &Origin, auth: &AuthParams, has_device: bool) -> Refusal {
    if !has_device {
        return device_required();
    }
    if given(&auth.bootstrap_token).is_none() {
        return Refusal::unauthorized(
            "gateway token missing (provide gateway auth token)",
            "AUTH_TOKEN_MISSING",
            "token_missing",
            "update_auth_configuration",
        );
    }
    // Setup codes are not issued here, so every code is wrong.
    gateway.inner.auth_failures.wrong(origin);
    Refusal::unauthorized(
        "bootstrap token invalid or expired (pair with the gateway token instead)",
        "AUTH_BOOTSTRAP_TOKEN_INVALID",
        "bootstrap_token_invalid",
        "update_auth_credentials",
    )
}

fn check_protocol(connect: &Connect, client: &ClientInfo, role: &str) -> Result<(), Refusal> {
    let (least, most) = (connect.min_protocol.0, connect.max_protocol.0);
    let lenient = client.mode == "probe" || (role == "node" && client.mode == "node");
    let oldest = if lenient { OLDEST_PROTOCOL } else { PROTOCOL };
    if least <= most && least <= PROTOCOL && most >= oldest {
        return Ok(());
    }
    let error = RpcError::invalid("protocol mismatch")
        .detail("code", "PROTOCOL_MISMATCH")
        .detail("clientMinProtocol", least)
        .detail("clientMaxProtocol", most)
        .detail("expectedProtocol", PROTOCOL)
        .detail("minimumProbeProtocol", OLDEST_PROTOCOL);
    Err(Refusal { error, close: 1002 })
}

fn prove(
    gateway: &Gateway,
    origin: &Origin,
    auth: &AuthParams,
    device: Option<&Device>,
    scopes: &[String],
) -> Result<Proof, Refusal> {
    let guesses = &gateway.inner.auth_failures;
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
    for (shown, method) in [(&auth.token, "token"), (&auth.password, "password")] {
        if let Some(access) = given(shown).map(|shown| gateway.access(shown)).transpose().map_err(broken)?.flatten() {
            guesses.right(origin);
            return Ok(Proof::Shared(method, access));
        }
    }
    if let Some(device) = device
        && let Some(shown) = given(&auth.device_token).or(given(&auth.token))
        && let Some(known) = gateway.service().devices().get(&device.device_id).map_err(broken)?
        && known.role == device.role
        && gateway.service().devices().is_token(&known, shown).map_err(broken)?
    {
        let wanted = held_scopes(&known.workspace, scopes.to_vec());
        if !wanted.iter().all(|scope| holds(known.token_scopes(), scope)) {
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
    Err(if given(&auth.token).is_some() {
        Refusal::unauthorized(
            "gateway token mismatch (provide gateway auth token)",
            "AUTH_TOKEN_MISMATCH",
            "token_mismatch",
            "update_auth_credentials",
        )
    } else if given(&auth.password).is_some() {
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

/// Pairs a device that presented the shared credential: on this machine at once, otherwise after an operator's
/// approval.
async fn pair(gateway: &Gateway, origin: &Origin, device: Device, scopes: &[String]) -> Result<Device, Refusal> {
    let devices = gateway.service().devices();
    let is_same = |known: &Device| known.role == device.role && known.workspace == device.workspace;
    let known = devices.get(&device.device_id).map_err(broken)?.filter(is_same);
    let covered = |known: &Device| scopes.iter().all(|scope| holds(&known.scopes, scope));
    match known {
        Some(known) if covered(&known) => Ok(known),
        _ if origin.is_local && origin.browser.is_none() => devices.pair(device).await.map_err(broken),
        known => {
            let reason = if known.is_some() { "scope-upgrade" } else { "not-paired" };
            let request = devices
                .request(device, origin.address.to_string())
                .await
                .map_err(|failure| Refusal::new(RpcError::busy(failure.message, PAIRING_RETRY_MS)))?;
            Err(Refusal::new(
                RpcError::new("NOT_PAIRED", "pairing required")
                    .detail("code", "PAIRING_REQUIRED")
                    .detail("reason", reason)
                    .detail("requestId", request.request_id)
                    .detail("deviceId", request.device.device_id)
                    .detail("recommendedNextStep", "approve_device"),
            ))
        }
    }
}

fn device_required() -> Refusal {
    let error = RpcError::new("NOT_PAIRED", "device identity required");
    Refusal::new(error.detail("code", "DEVICE_IDENTITY_REQUIRED"))
}

fn broken(error: StoreError) -> Refusal {
    tracing::error!(%error, "the store did not answer during a handshake");
    Refusal { error: RpcError::busy("the store does not answer", STORE_RETRY_MS), close: 1013 }
}
