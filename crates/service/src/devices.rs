//! Devices: who signs with which key, which scopes an operator gave them, and requests that wait for one.
//!
//! A device proves itself by an Ed25519 signature over the connection's nonce; its token lets it in without the shared
//! credential. Tokens are derived from a secret in the store and never kept themselves; revoking moves a counter.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signature, VerifyingKey};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, broadcast};
use toolyard_engine::{
    Caller, Clock, Store,
    authority::{self, holds},
    store::StoreError,
};
use toolyard_protocol::{ErrorCode, Failure, canonical};

const DEVICES: &str = "devices";
const REQUESTS: &str = "pairing";
const SECRETS: &str = "gateway";
const SECRET_KEY: &str = "deviceSecret";
/// A pairing request waits this long.
const REQUEST_LIFE: SignedDuration = SignedDuration::from_mins(10);
/// Pairing requests that may wait at once.
const MAX_REQUESTS: usize = 100;

/// What a device signed, as it stands in a connect frame.
#[derive(Debug, Clone)]
pub struct Signed<'a> {
    pub device_id: &'a str,
    pub public_key: &'a str,
    pub signature: &'a str,
    pub signed_at_ms: i64,
    pub nonce: &'a str,
    pub client_id: &'a str,
    pub client_mode: &'a str,
    pub role: &'a str,
    pub scopes: &'a [String],
    pub token: &'a str,
    pub platform: &'a str,
    pub device_family: &'a str,
}

/// Why a device is not believed: `(details.code, details.reason, message)`.
pub type Disbelief = (&'static str, &'static str, &'static str);

impl Signed<'_> {
    /// Whether the key is the device's, the nonce ours, the time now and the signature right.
    pub fn verify(&self, nonce: &str, now_ms: i64, skew_ms: i64) -> Result<(), Disbelief> {
        const BAD_KEY: Disbelief = ("DEVICE_AUTH_PUBLIC_KEY_INVALID", "device-public-key", "device public key invalid");
        const BAD_SIGNATURE: Disbelief =
            ("DEVICE_AUTH_SIGNATURE_INVALID", "device-signature", "device signature invalid");
        let key = BASE64URL.decode(self.public_key.trim_end_matches('=')).map_err(|_| BAD_KEY)?;
        let key: [u8; 32] = key.try_into().map_err(|_| BAD_KEY)?;
        if canonical::sha256_hex(&key) != self.device_id {
            return Err(("DEVICE_AUTH_DEVICE_ID_MISMATCH", "device-id-mismatch", "device identity mismatch"));
        }
        if (now_ms - self.signed_at_ms).abs() > skew_ms {
            return Err(("DEVICE_AUTH_SIGNATURE_EXPIRED", "device-signature-stale", "device signature expired"));
        }
        if self.nonce.is_empty() {
            return Err(("DEVICE_AUTH_NONCE_REQUIRED", "device-nonce-missing", "device nonce required"));
        }
        if self.nonce != nonce {
            return Err(("DEVICE_AUTH_NONCE_MISMATCH", "device-nonce-mismatch", "device nonce mismatch"));
        }
        let key = VerifyingKey::from_bytes(&key).map_err(|_| BAD_KEY)?;
        let signature = BASE64URL.decode(self.signature.trim_end_matches('=')).map_err(|_| BAD_SIGNATURE)?;
        let signature = Signature::from_slice(&signature).map_err(|_| BAD_SIGNATURE)?;
        let fits = |text: String| key.verify_strict(text.as_bytes(), &signature).is_ok();
        if fits(self.payload_v3()) || fits(self.payload_v2()) { Ok(()) } else { Err(BAD_SIGNATURE) }
    }

    fn payload_v2(&self) -> String {
        self.payload("v2")
    }

    pub fn payload_v3(&self) -> String {
        let plain = |text: &str| text.trim().to_lowercase();
        format!("{}|{}|{}", self.payload("v3"), plain(self.platform), plain(self.device_family))
    }

    fn payload(&self, version: &str) -> String {
        format!(
            "{version}|{}|{}|{}|{}|{}|{}|{}|{}",
            self.device_id,
            self.client_id,
            self.client_mode,
            self.role,
            self.scopes.join(","),
            self.signed_at_ms,
            self.token,
            self.nonce
        )
    }
}

/// A paired device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    pub device_id: String,
    pub public_key: String,
    pub client_id: String,
    pub client_mode: String,
    pub platform: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub role: String,
    pub scopes: Vec<String>,
    pub approved_by: String,
    pub created_at_ms: i64,
    pub issued_at_ms: i64,
    /// Moves when the token is revoked.
    pub generation: u64,
    /// What the token alone may be used for, when it was rotated for less than the device was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowed: Option<Vec<String>>,
}

impl Device {
    /// The scopes that the device's token gives.
    pub fn token_scopes(&self) -> &[String] {
        self.narrowed.as_deref().unwrap_or(&self.scopes)
    }
}

/// Why a device's token is not changed; told to the log, and to nobody who might be probing.
pub enum Kept {
    /// There is no such device, or not in this role.
    UnknownDeviceOrRole,
    /// More than an operator gave the device.
    BeyondItsScopes,
    /// The token has, or would get, a scope that the caller does not hold.
    BeyondTheCaller,
    /// The store did not answer.
    Store(StoreError),
}

/// A device that waits to be let in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PairingRequest {
    pub request_id: String,
    #[serde(flatten)]
    pub device: Device,
    pub remote_ip: String,
    pub ts: i64,
}

/// What watchers of devices hear.
#[derive(Debug, Clone)]
pub enum DeviceEvent {
    Requested(Box<PairingRequest>),
    Resolved { request_id: String, device_id: String, decision: &'static str },
    Revoked { device_id: String },
}

/// A person may abbreviate a device's id to this many characters.
const MIN_ABBREVIATION: usize = 8;

/// The object whose device id is this, or, if none is, the only one whose device id begins with it.
fn one_named<T>(all: Vec<T>, name: &str, device_id: impl Fn(&T) -> &str) -> Result<Option<T>, Failure> {
    let is_exact = all.iter().any(|object| device_id(object) == name);
    let fits = |object: &T| match is_exact {
        true => device_id(object) == name,
        false => name.len() >= MIN_ABBREVIATION && device_id(object).starts_with(name),
    };
    let mut found: Vec<T> = all.into_iter().filter(|object| fits(object)).collect();
    if found.len() > 1 {
        return Err(Failure::new(ErrorCode::ValidationError, format!("{name:?} means more than one"))
            .suggest("Give the whole id; `toolyard devices list` shows it."));
    }
    Ok(found.pop())
}

fn no_request() -> Failure {
    Failure::new(ErrorCode::NotFound, "unknown or expired pairing request")
        .suggest("List them with `toolyard devices list`.")
}

fn no_device() -> Failure {
    Failure::new(ErrorCode::NotFound, "there is no such device").suggest("List them with `toolyard devices list`.")
}

/// Devices and pairing requests.
pub struct Devices {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    secret: OnceLock<[u8; 32]>,
    events: broadcast::Sender<DeviceEvent>,
    /// Held while a device is read, decided on and written: what was decided on is what is changed.
    changing: Mutex<()>,
}

impl Devices {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, secret: OnceLock::new(), events: broadcast::channel(64).0, changing: Mutex::new(()) }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<DeviceEvent> {
        self.events.subscribe()
    }

    pub fn get(&self, device_id: &str) -> Result<Option<Device>, StoreError> {
        Ok(self.store.get(DEVICES, device_id)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub fn list(&self) -> Result<Vec<Device>, StoreError> {
        let all = self.store.list(DEVICES)?;
        Ok(all.into_iter().filter_map(|(_, bytes)| serde_json::from_slice(&bytes).ok()).collect())
    }

    pub fn requests(&self) -> Result<Vec<PairingRequest>, StoreError> {
        let all = self.store.list(REQUESTS)?;
        let mut all: Vec<PairingRequest> =
            all.into_iter().filter_map(|(_, bytes)| serde_json::from_slice(&bytes).ok()).collect();
        all.sort_by_key(|r| r.ts);
        Ok(all)
    }

    /// The token a device may show instead of the shared credential.
    pub fn token(&self, device: &Device) -> Result<String, StoreError> {
        let secret = match self.secret.get() {
            Some(secret) => *secret,
            None => {
                let made = fresh_secret()?;
                // Whoever comes first decides; the value is visible to `get` at once.
                self.store.put_if_absent(SECRETS, SECRET_KEY, made.to_vec(), None)?;
                let kept = self.store.get(SECRETS, SECRET_KEY)?.unwrap_or_else(|| made.to_vec());
                let kept: [u8; 32] =
                    kept.try_into().map_err(|_| StoreError("the device secret is damaged".to_owned()))?;
                *self.secret.get_or_init(|| kept)
            }
        };
        let mut hash = Sha256::new();
        hash.update(secret);
        hash.update(b"toolyard device token v1\0");
        hash.update(device.device_id.as_bytes());
        hash.update([0]);
        hash.update(device.role.as_bytes());
        hash.update([0]);
        hash.update(device.generation.to_be_bytes());
        Ok(BASE64URL.encode(hash.finalize()))
    }

    /// Whether this is the device's token.
    pub fn is_token(&self, device: &Device, shown: &str) -> Result<bool, StoreError> {
        Ok(same_secret(&self.token(device)?, shown))
    }

    /// Lets a device in. Scopes it had already stay.
    pub async fn pair(&self, device: Device) -> Result<Device, StoreError> {
        let _held = self.changing.lock().await;
        self.merge(device).await
    }

    async fn merge(&self, mut device: Device) -> Result<Device, StoreError> {
        if let Some(known) = self.get(&device.device_id)? {
            device.created_at_ms = known.created_at_ms;
            device.generation = known.generation;
            device.issued_at_ms = known.issued_at_ms;
            // A token for less stays one, until the device comes with the shared credential and wants more.
            let wider = |narrow: &Vec<String>| device.scopes.iter().any(|scope| !holds(narrow, scope));
            device.narrowed = known.narrowed.filter(|narrow| known.role == device.role && !wider(narrow));
            for scope in known.scopes {
                if known.role == device.role && !device.scopes.contains(&scope) {
                    device.scopes.push(scope);
                }
            }
        }
        self.save(&device).await?;
        Ok(device)
    }

    async fn save(&self, device: &Device) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(device).map_err(|e| StoreError(e.to_string()))?;
        let position = self.store.put(DEVICES, &device.device_id, bytes, None)?;
        self.store.durable(position).await
    }

    /// Notes that a device wants in. The same device asking again keeps its request.
    pub async fn request(&self, device: Device, remote_ip: String) -> Result<PairingRequest, Failure> {
        let waiting = self.requests()?;
        if let Some(known) =
            waiting.iter().find(|r| r.device.device_id == device.device_id && r.device.scopes == device.scopes)
        {
            return Ok(known.clone());
        }
        if waiting.len() >= MAX_REQUESTS {
            return Err(Failure::new(ErrorCode::LimitExceeded, "too many devices wait to be paired"));
        }
        let now = self.clock.now();
        let request =
            PairingRequest { request_id: self.clock.new_id().to_string(), device, remote_ip, ts: now.as_millisecond() };
        let bytes = serde_json::to_vec(&request).map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
        let position = self.store.put(REQUESTS, &request.request_id, bytes, now.checked_add(REQUEST_LIFE).ok())?;
        self.store.durable(position).await?;
        let _ = self.events.send(DeviceEvent::Requested(Box::new(request.clone())));
        Ok(request)
    }

    /// The pairing request with this id.
    pub fn request_with_id(&self, request_id: &str) -> Result<PairingRequest, Failure> {
        let found = self.requests()?.into_iter().find(|request| request.request_id == request_id);
        found.ok_or_else(no_request)
    }

    /// The pairing request that a person means: by its id, by the device's id, or by a beginning of the device's id
    /// that no other request shares.
    pub fn request_named(&self, name: &str) -> Result<PairingRequest, Failure> {
        let requests = self.requests()?;
        if let Some(found) = requests.iter().find(|request| request.request_id == name) {
            return Ok(found.clone());
        }
        one_named(requests, name, |request| &request.device.device_id)?.ok_or_else(no_request)
    }

    /// The paired device that a person means: by its id, or by a beginning of it that no other device shares.
    pub fn device_named(&self, name: &str) -> Result<Device, Failure> {
        one_named(self.list()?, name, |device| &device.device_id)?.ok_or_else(no_device)
    }

    /// Lets a device in, up to what the approving caller holds.
    pub async fn approve(&self, request: &PairingRequest, by: &Caller) -> Result<Device, Failure> {
        let _held = self.changing.lock().await;
        // Pairing changes what the device has already, too: its role, and a token that was narrowed.
        let known = self.get(&request.device.device_id)?.map(|device| device.scopes).unwrap_or_default();
        authority::covers(by, request.device.scopes.iter().chain(&known))?;
        self.take_request(request).await?;
        let device = self.merge(Device { approved_by: by.principal.clone(), ..request.device.clone() }).await?;
        self.resolved(request, "approved");
        Ok(device)
    }

    /// Turns a device away that asks for no more than the caller holds.
    pub async fn reject(&self, request: &PairingRequest, by: &Caller) -> Result<(), Failure> {
        let _held = self.changing.lock().await;
        authority::covers(by, &request.device.scopes)?;
        self.take_request(request).await?;
        self.resolved(request, "rejected");
        Ok(())
    }

    fn resolved(&self, request: &PairingRequest, decision: &'static str) {
        let (request_id, device_id) = (request.request_id.clone(), request.device.device_id.clone());
        // Nobody listening is no failure: events are for whoever is connected.
        let _ = self.events.send(DeviceEvent::Resolved { request_id, device_id, decision });
    }

    /// Takes a request off the list; fails when somebody else did so first.
    async fn take_request(&self, request: &PairingRequest) -> Result<(), Failure> {
        self.request_with_id(&request.request_id)?;
        let position = self.store.remove(REQUESTS, &request.request_id)?;
        Ok(self.store.durable(position).await?)
    }

    /// Forgets a device: its token is worth nothing from now on and its connections are closed. `own` is the caller's
    /// own device, which it may always give up; any other must have no more than the caller holds.
    pub async fn revoke(&self, device_id: &str, by: &Caller, own: Option<&str>) -> Result<Device, Failure> {
        let _held = self.changing.lock().await;
        let device = self.get(device_id)?.ok_or_else(no_device)?;
        if own != Some(device_id) {
            authority::covers(by, &device.scopes)?;
        }
        let position = self.store.remove(DEVICES, &device.device_id)?;
        self.store.durable(position).await?;
        let _ = self.events.send(DeviceEvent::Revoked { device_id: device.device_id.clone() });
        Ok(device)
    }

    /// Gives a device a new token, for all it was given or for less, and closes its connections.
    pub async fn rotate(
        &self,
        device_id: &str,
        role: &str,
        scopes: Option<Vec<String>>,
        now: Timestamp,
        by: &Caller,
    ) -> Result<(Device, String), Kept> {
        let _held = self.changing.lock().await;
        let known = self.get(device_id).map_err(Kept::Store)?.filter(|device| device.role == role);
        let mut device = known.ok_or(Kept::UnknownDeviceOrRole)?;
        let touched = device.token_scopes().iter().chain(scopes.iter().flatten());
        authority::covers(by, touched).map_err(|_| Kept::BeyondTheCaller)?;
        if let Some(scopes) = scopes {
            if scopes.iter().any(|scope| !holds(&device.scopes, scope)) {
                return Err(Kept::BeyondItsScopes);
            }
            device.narrowed = Some(scopes);
        }
        device.generation += 1;
        device.issued_at_ms = now.as_millisecond();
        self.save(&device).await.map_err(Kept::Store)?;
        let _ = self.events.send(DeviceEvent::Revoked { device_id: device.device_id.clone() });
        let token = self.token(&device).map_err(Kept::Store)?;
        Ok((device, token))
    }

    /// Devices and requests as doors show them.
    pub(crate) fn overview(&self) -> Result<DevicesAnswer, StoreError> {
        let paired = self.list()?.into_iter().map(ShownDevice::from).collect();
        let pending = self.requests()?.into_iter().map(PendingDevice::from).collect();
        Ok(DevicesAnswer { pending, paired })
    }
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub fn same_secret(a: &str, b: &str) -> bool {
    use subtle::ConstantTimeEq;
    let digest = |text: &str| Sha256::digest(text.as_bytes());
    digest(a).ct_eq(&digest(b)).into()
}

/// Paired devices and those that wait.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicesAnswer {
    /// Devices that wait to be let in.
    pub pending: Vec<PendingDevice>,
    /// Devices that are in.
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
    /// What the program is used as.
    pub client_mode: String,
    /// Its operating system.
    pub platform: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// `operator` or `node`.
    pub role: String,
    /// What it was given.
    pub scopes: Vec<String>,
    /// Who let it in.
    pub approved_by: String,
    /// When it first came.
    pub created_at_ms: i64,
    /// When its token was issued.
    pub issued_at_ms: i64,
    /// Its tokens, without their secrets.
    pub tokens: Vec<ShownToken>,
}

/// A device's token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownToken {
    /// The role it is for.
    pub role: String,
    /// What it gives.
    pub scopes: Vec<String>,
    /// When the device first came.
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

/// A device that waits to be let in, as doors show it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingDevice {
    /// The device, as it would be.
    #[serde(flatten)]
    pub device: ShownDevice,
    /// The request.
    pub request_id: String,
    /// Where it comes from.
    pub remote_ip: String,
    /// When it asked.
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
pub(crate) struct PairingNews<'a> {
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

impl<'a> From<&'a PairingRequest> for PairingNews<'a> {
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

fn fresh_secret() -> Result<[u8; 32], StoreError> {
    let mut bytes = [0u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| StoreError(format!("the system has no randomness: {e}")))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};
    use toolyard_engine::{memory_store::MemoryStore, system_clock};

    #[test]
    fn a_recorded_signature_is_verified() {
        // From `connect-cli-device-v3.jsonl`.
        let scopes = vec!["operator.read".to_owned(), "operator.write".to_owned()];
        let signed = Signed {
            device_id: "16ca802cd3856c3ff5b5241cc538f684f2c3c1f1171d4004bef892477306aea2",
            public_key: "eS99ixWVrdrvqbeoj4PiGRPrNV-N1ZCl0w6tIKxeeO4",
            signature: "GeJ0QQITk4dC-zFX3zCDFbrSlAXhigj7c5xAdEZKaV5E4lS7sQSMS-9oLILjZmD-k6oUyc6y4lXTnTR6UCnmDQ",
            signed_at_ms: 1_794_769_607_015,
            nonce: "05fa919f-522a-41fe-9693-d985cea69156",
            client_id: "cli",
            client_mode: "cli",
            role: "operator",
            scopes: &scopes,
            token: "test-token-abc123",
            platform: "linux",
            device_family: "",
        };
        let nonce = signed.nonce;
        assert_eq!(signed.verify(nonce, 1_794_769_607_100, 120_000), Ok(()));
        assert_eq!(signed.verify(nonce, 1_794_769_907_100, 120_000).unwrap_err().0, "DEVICE_AUTH_SIGNATURE_EXPIRED");
        assert_eq!(signed.verify("other", 1_794_769_607_100, 120_000).unwrap_err().0, "DEVICE_AUTH_NONCE_MISMATCH");
        let forged = Signed { token: "other", ..signed.clone() };
        assert_eq!(forged.verify(nonce, 1_794_769_607_100, 120_000).unwrap_err().0, "DEVICE_AUTH_SIGNATURE_INVALID");
        let other = Signed { device_id: "00", ..signed };
        assert_eq!(other.verify(nonce, 1_794_769_607_100, 120_000).unwrap_err().0, "DEVICE_AUTH_DEVICE_ID_MISMATCH");
    }

    #[test]
    fn the_older_payload_is_verified_too() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let public = key.verifying_key().to_bytes();
        let (id, public_key) = (canonical::sha256_hex(&public), BASE64URL.encode(public));
        let mut signed = Signed {
            device_id: &id,
            public_key: &public_key,
            signature: "",
            signed_at_ms: 1000,
            nonce: "n",
            client_id: "cli",
            client_mode: "cli",
            role: "operator",
            scopes: &[],
            token: "",
            platform: " MacOS ",
            device_family: "Mac",
        };
        let signature = BASE64URL.encode(key.sign(signed.payload_v2().as_bytes()).to_bytes());
        signed.signature = &signature;
        assert_eq!(signed.verify("n", 1000, 0), Ok(()));
        assert!(signed.payload_v3().ends_with("|n|macos|mac"));
    }

    #[tokio::test]
    async fn a_device_is_paired_keeps_its_token_and_loses_it_when_rotated() {
        let devices = Devices::new(Arc::new(MemoryStore::new()), system_clock());
        let device = Device {
            device_id: "a".repeat(64),
            public_key: "k".into(),
            client_id: "cli".into(),
            client_mode: "cli".into(),
            platform: "linux".into(),
            display_name: None,
            role: "operator".into(),
            scopes: vec!["operator.read".into()],
            approved_by: "x".into(),
            created_at_ms: 1,
            issued_at_ms: 1,
            generation: 0,
            narrowed: None,
        };
        let paired = devices.pair(device.clone()).await.unwrap();
        let token = devices.token(&paired).unwrap();
        assert_eq!(token.len(), 43);
        let again =
            devices.pair(Device { scopes: vec!["operator.write".into()], created_at_ms: 9, ..device }).await.unwrap();
        assert_eq!(devices.token(&again).unwrap(), token);
        assert_eq!((again.scopes.len(), again.created_at_ms), (2, 1));
        let (now, owner) = (Timestamp::now(), Caller::cli("ada"));
        let narrow = Some(vec!["operator.read".to_owned()]);
        let rotated = devices.rotate(&again.device_id, "operator", narrow, now, &owner).await;
        let Ok((rotated, new)) = rotated else { panic!("it was refused") };
        assert!(new != token && !devices.is_token(&rotated, &token).unwrap());
        assert_eq!(rotated.token_scopes(), ["operator.read"]);
        let more = Some(vec!["operator.admin".to_owned()]);
        assert!(matches!(
            devices.rotate(&again.device_id, "operator", more, now, &owner).await,
            Err(Kept::BeyondItsScopes)
        ));
        let node = devices.rotate(&again.device_id, "node", None, now, &owner).await;
        assert!(matches!(node, Err(Kept::UnknownDeviceOrRole)));
        let back = devices.pair(Device { scopes: vec!["operator.write".into()], ..rotated.clone() }).await.unwrap();
        assert_eq!(back.narrowed, None, "the shared credential gives back what the device was given");
        let named = devices.device_named(&rotated.device_id[..10]).unwrap();
        devices.revoke(&named.device_id, &owner, None).await.unwrap();
        assert!(devices.get(&rotated.device_id).unwrap().is_none());
    }
}
