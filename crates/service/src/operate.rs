//! Methods for operators: configuration (with secrets hidden), log lines, devices.

use crate::{
    AnyJson, Call, Handle, Hub, MethodError, NoParams, RpcError, Service, Terms,
    devices::{DevicesAnswer, UnchangedReason},
    logs, methods,
    params::{Count, Text},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::authority::{Effect, Scope};

methods! {
    /// Shows the configuration; secrets are hidden.
    ConfigGet = "config.get", Terms::read().of_installation(), NoParams => ConfigAnswer;
    /// Shows the last log lines, or those after a cursor.
    LogsTail = "logs.tail", Terms::read().everywhere().of_installation(), TailParams => LogTail;
    /// Lists paired devices and pairing requests.
    DevicePairList = "device.pair.list", Terms::new(Some(Scope::Pairing), Effect::None), NoParams => DevicesAnswer;
    /// Approves a pairing request.
    DevicePairApprove = "device.pair.approve", Terms::pair(), RequestParams => ApprovedPairing;
    /// Rejects a pairing request.
    DevicePairReject = "device.pair.reject", Terms::pair(), RequestParams => RejectedPairing;
    /// Removes a paired device and closes its connections.
    DevicePairRemove = "device.pair.remove", Terms::pair(), DeviceParams => RemovedDevice;
    /// Issues a new token for a device, with the same or fewer scopes.
    DeviceTokenRotate = "device.token.rotate", Terms::pair(), RotateParams => RotatedToken;
    /// Invalidates a device's token.
    DeviceTokenRevoke = "device.token.revoke", Terms::pair(), RevokeParams => RevokedToken;
}

/// The configuration as administrators see it.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigAnswer {
    /// The path of the file.
    pub path: String,
    /// Whether the file exists.
    pub exists: bool,
    /// The file's text, with secrets hidden.
    pub raw: String,
    /// A hash of its text.
    pub hash: String,
    /// The parsed file, with secrets hidden.
    pub parsed: AnyJson,
    /// The resolved configuration, with secrets hidden.
    pub config: AnyJson,
    /// Whether it is valid.
    pub valid: bool,
    /// The errors in it.
    pub issues: Vec<AnyJson>,
    /// Warnings about it.
    pub warnings: Vec<AnyJson>,
}

impl Handle<ConfigGet> for Hub {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<ConfigAnswer, MethodError> {
        Ok((self.settings().config)())
    }
}

/// The number of lines by default.
const DEFAULT_LINES: u64 = 200;
/// The most lines.
const MAX_LINES: u64 = 5000;
/// The number of bytes by default.
const DEFAULT_BYTES: u64 = 250_000;
/// The most bytes of lines.
const MAX_BYTES: u64 = 1_000_000;

/// Which log lines are shown.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TailParams {
    /// Only lines after this cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Count>,
    /// How many lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Count>,
    /// How many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<Count>,
}

/// Log lines.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LogTail {
    /// The source of the lines.
    pub file: String,
    /// The cursor of the next lines.
    pub cursor: u64,
    /// Their bytes.
    pub size: usize,
    /// The lines.
    pub lines: Vec<String>,
    /// Whether lines were lost before these.
    pub truncated: bool,
    /// Whether the cursor belonged to another process, so that the newest lines are returned.
    pub reset: bool,
}

impl Handle<LogsTail> for Service {
    async fn handle(&self, _: &Call<'_>, params: TailParams) -> Result<LogTail, MethodError> {
        let limit = params.limit.map_or(DEFAULT_LINES, |limit| limit.0).clamp(1, MAX_LINES) as usize;
        let most = params.max_bytes.map_or(DEFAULT_BYTES, |most| most.0).clamp(1, MAX_BYTES) as usize;
        let from = params.cursor.map(|cursor| cursor.0);
        let (lines, cursor, truncated) = logs::ring().tail(from, limit, most);
        let size = lines.iter().map(|line| line.len() + 1).sum();
        let reset = from.is_some_and(|from| from > cursor);
        Ok(LogTail { file: "memory".to_owned(), cursor, size, lines, truncated, reset })
    }
}

/// A pairing request by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestParams {
    request_id: Text,
}

/// A device by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceParams {
    device_id: Text,
}

/// Which token is rotated, and for which scopes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateParams {
    device_id: Text,
    role: Text,
    scopes: Option<Vec<String>>,
}

/// Which token is revoked.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeParams {
    device_id: Text,
    role: Text,
}

/// A device that was approved.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPairing {
    request_id: String,
    device: PairedDevice,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PairedDevice {
    device_id: String,
    role: String,
    scopes: Vec<String>,
    approved_at_ms: i64,
}

/// A device that was rejected.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedPairing {
    request_id: String,
    device_id: String,
}

/// A device that was removed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedDevice {
    device_id: String,
}

/// A new token. Only the device that it belongs to receives the token itself.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotatedToken {
    device_id: String,
    role: String,
    scopes: Vec<String>,
    rotated_at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    token_delivery: &'static str,
}

/// A token that was revoked.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevokedToken {
    device_id: String,
    role: String,
    revoked_at_ms: i64,
}

impl Handle<DevicePairList> for Hub {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<DevicesAnswer, MethodError> {
        Ok(self.service().devices().overview(&call.caller)?)
    }
}

impl Handle<DevicePairApprove> for Hub {
    async fn handle(&self, call: &Call<'_>, params: RequestParams) -> Result<ApprovedPairing, MethodError> {
        let devices = self.service().devices();
        let request = devices.request_with_id(&call.caller, &params.request_id)?;
        let device = devices.approve(&request, &call.caller).await?;
        let device = PairedDevice {
            device_id: device.device_id,
            role: device.role,
            scopes: device.scopes,
            approved_at_ms: Timestamp::now().as_millisecond(),
        };
        Ok(ApprovedPairing { request_id: request.request_id, device })
    }
}

impl Handle<DevicePairReject> for Hub {
    async fn handle(&self, call: &Call<'_>, params: RequestParams) -> Result<RejectedPairing, MethodError> {
        let devices = self.service().devices();
        let request = devices.request_with_id(&call.caller, &params.request_id)?;
        devices.reject(&request, &call.caller).await?;
        Ok(RejectedPairing { request_id: request.request_id, device_id: request.device.device_id })
    }
}

impl Handle<DevicePairRemove> for Hub {
    async fn handle(&self, call: &Call<'_>, params: DeviceParams) -> Result<RemovedDevice, MethodError> {
        let connection = call.connection()?;
        let (id, own) = (&*params.device_id, connection.device.as_deref());
        if !connection.has("operator.admin") && own.is_some_and(|own| own != id) {
            tracing::warn!(device = %id, "a device asked to remove another device");
            return Err(RpcError::invalid("device pairing removal denied").into());
        }
        let device = self.service().devices().revoke(id, &call.caller, own).await?;
        Ok(RemovedDevice { device_id: device.device_id })
    }
}

impl Handle<DeviceTokenRotate> for Hub {
    async fn handle(&self, call: &Call<'_>, params: RotateParams) -> Result<RotatedToken, MethodError> {
        let change = TokenChange { device_id: params.device_id, role: params.role, scopes: params.scopes };
        let changed = change.apply(self, call, "device token rotation denied").await?;
        let is_own = call.connection()?.device.as_deref() == Some(changed.device_id.as_str());
        Ok(RotatedToken {
            device_id: changed.device_id,
            role: changed.role,
            scopes: changed.scopes,
            rotated_at_ms: changed.at_ms,
            token: is_own.then_some(changed.token),
            token_delivery: if is_own { "in-band" } else { "withheld-cross-device" },
        })
    }
}

impl Handle<DeviceTokenRevoke> for Hub {
    async fn handle(&self, call: &Call<'_>, params: RevokeParams) -> Result<RevokedToken, MethodError> {
        let change = TokenChange { device_id: params.device_id, role: params.role, scopes: None };
        let changed = change.apply(self, call, "device token revocation denied").await?;
        Ok(RevokedToken { device_id: changed.device_id, role: changed.role, revoked_at_ms: changed.at_ms })
    }
}

/// A request to change a token.
struct TokenChange {
    device_id: Text,
    role: Text,
    scopes: Option<Vec<String>>,
}

/// A token that was changed.
struct ChangedToken {
    device_id: String,
    role: String,
    scopes: Vec<String>,
    at_ms: i64,
    token: String,
}

impl TokenChange {
    /// Changes the token. If it is not changed, the reason is logged; the answer does not reveal whether the device
    /// exists.
    async fn apply(self, hub: &Hub, call: &Call<'_>, denied: &str) -> Result<ChangedToken, MethodError> {
        let (id, role) = (&*self.device_id, &*self.role);
        let refuse = |why: &str| {
            tracing::warn!(method = call.method, device = %id, role = %role, why, "a device token was not changed");
            MethodError::from(RpcError::invalid(denied))
        };
        let connection = call.connection()?;
        let is_admin = connection.has("operator.admin");
        if !is_admin && connection.device.as_deref().is_some_and(|own| own != id) {
            return Err(refuse("a device manages only itself"));
        }
        if !is_admin && role != "operator" {
            return Err(refuse("only an administrator manages other roles"));
        }
        let now = Timestamp::now();
        let rotated = hub.service().devices().rotate(id, role, self.scopes, now, &call.caller).await;
        let (device, token) = rotated.map_err(|kept| match kept {
            UnchangedReason::UnknownDeviceOrRole => refuse("no such device in this role"),
            UnchangedReason::BeyondItsScopes => refuse("more than the device was given"),
            UnchangedReason::BeyondTheCaller => refuse("more than the caller holds"),
            UnchangedReason::Store(error) => error.into(),
        })?;
        let scopes = device.token_scopes().to_vec();
        Ok(ChangedToken { device_id: device.device_id, role: device.role, scopes, at_ms: now.as_millisecond(), token })
    }
}
