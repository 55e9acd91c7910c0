//! Devices and pairing requests as doors show them.

use super::{Device, PairingRequest};
use crate::console::PairedBrowser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Paired devices and pairing requests.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicesAnswer {
    /// Devices that wait for approval.
    pub pending: Vec<PendingDevice>,
    /// Paired devices.
    pub paired: Vec<ShownDevice>,
}

/// A device as doors show it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownDevice {
    /// The device: the SHA-256 of its key.
    pub device_id: String,
    /// Its key.
    pub public_key: String,
    /// The program that runs on it.
    pub client_id: String,
    /// The mode of the program, such as `cli` or `ui`.
    pub client_mode: String,
    /// Its operating system.
    pub platform: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// `operator` or `node`.
    pub role: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// Who approved it.
    pub approved_by: String,
    /// When it was first paired.
    pub created_at_ms: i64,
    /// When its token was issued.
    pub issued_at_ms: i64,
    /// Its tokens, without their secrets.
    pub tokens: Vec<ShownToken>,
    /// Its rights as a person's browser, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<PairedBrowser>,
}

/// A device's token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownToken {
    /// The role it is for.
    pub role: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// When the device was first paired.
    pub created_at_ms: i64,
    /// When it was issued last.
    pub rotated_at_ms: i64,
}

impl From<Device> for ShownDevice {
    fn from(device: Device) -> Self {
        let token = ShownToken {
            role: device.role.clone(),
            scopes: device.token_scopes().to_vec(),
            created_at_ms: device.created_at_ms,
            rotated_at_ms: device.issued_at_ms,
        };
        Self {
            console: Self::console_of(&device),
            device_id: device.device_id,
            public_key: device.public_key,
            client_id: device.client_id,
            client_mode: device.client_mode,
            platform: device.platform,
            display_name: device.display_name,
            role: device.role,
            scopes: device.scopes,
            approved_by: device.approved_by,
            created_at_ms: device.created_at_ms,
            issued_at_ms: device.issued_at_ms,
            tokens: vec![token],
        }
    }
}

/// A device that waits for approval, as doors show it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingDevice {
    /// The device as it would be paired.
    #[serde(flatten)]
    pub device: ShownDevice,
    /// The request.
    pub request_id: String,
    /// The address that it connects from.
    pub remote_ip: String,
    /// When the request was made.
    pub ts: i64,
}

impl From<PairingRequest> for PendingDevice {
    fn from(request: PairingRequest) -> Self {
        let PairingRequest { request_id, device, remote_ip, ts } = request;
        Self { device: device.into(), request_id, remote_ip, ts }
    }
}

/// The event `device.pair.requested`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PairingEvent<'a> {
    request_id: &'a str,
    device_id: &'a str,
    public_key: &'a str,
    platform: &'a str,
    client_id: &'a str,
    client_mode: &'a str,
    role: &'a str,
    scopes: &'a [String],
    remote_ip: &'a str,
    ts: i64,
}

impl<'a> From<&'a PairingRequest> for PairingEvent<'a> {
    fn from(request: &'a PairingRequest) -> Self {
        let device = &request.device;
        Self {
            request_id: &request.request_id,
            device_id: &device.device_id,
            public_key: &device.public_key,
            platform: &device.platform,
            client_id: &device.client_id,
            client_mode: &device.client_mode,
            role: &device.role,
            scopes: &device.scopes,
            remote_ip: &request.remote_ip,
            ts: request.ts,
        }
    }
}

/// The event `device.pair.resolved`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PairingOutcome {
    pub(crate) request_id: String,
    pub(crate) device_id: String,
    pub(crate) decision: &'static str,
    pub(crate) ts: i64,
}
