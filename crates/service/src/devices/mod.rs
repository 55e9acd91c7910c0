//! Devices: their keys, the scopes that an operator gave them, and pairing requests that wait for an operator.
//!
//! A device proves itself by an Ed25519 signature over the connection's nonce; its token lets it in without the shared
//! credential. Tokens are derived from a secret in the store and are not stored themselves; revoking a token increments
//! a counter.

mod shown;
mod signature;

pub use shown::{DevicesAnswer, PendingDevice, ShownDevice, ShownToken};
pub(crate) use shown::{PairingEvent, PairingOutcome};
pub use signature::{SignatureProblem, Signed};

use crate::console::ConsoleDevice;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, broadcast};
use toolyard_engine::{
    Caller, Clock, Store,
    authority::{self, holds},
    store::StoreError,
};
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};

const DEVICES: &str = "devices";
const REQUESTS: &str = "pairing";
const SECRETS: &str = "gateway";
const SECRET_KEY: &str = "deviceSecret";
/// How long a pairing request waits.
const REQUEST_LIFE: SignedDuration = SignedDuration::from_mins(10);
/// Pairing requests that may wait at once.
const MAX_REQUESTS: usize = 100;

/// A paired device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
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
    /// Incremented when the token is revoked.
    pub generation: u64,
    /// What the token alone may be used for, when it was rotated for less than the device was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowed: Option<Vec<String>>,
    /// What makes it a person's browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<ConsoleDevice>,
    /// The workspace of the credential with which it was paired.
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    pub workspace: WorkspaceId,
}

impl Device {
    /// The scopes that the device's token gives.
    pub fn token_scopes(&self) -> &[String] {
        self.narrowed.as_deref().unwrap_or(&self.scopes)
    }
}

/// Why a device's token is not changed. The reason is logged and not sent, because the caller might be probing.
pub enum UnchangedReason {
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
    /// The request.
    pub request_id: String,
    /// The device, as it would be.
    #[serde(flatten)]
    pub device: Device,
    /// Where it comes from.
    pub remote_ip: String,
    /// When it asked.
    pub ts: i64,
}

/// An event about devices.
#[derive(Debug, Clone)]
pub(crate) enum DeviceEvent {
    /// A device asks to be paired.
    Requested(Box<PairingRequest>),
    /// An operator decided.
    Resolved { request_id: String, device_id: String, decision: &'static str, workspace: WorkspaceId },
    /// A browser was paired.
    Paired { device_id: String, workspace: WorkspaceId },
    /// A token was revoked.
    Revoked { device_id: String, workspace: WorkspaceId },
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
    /// Held while a device is read, checked and written, so that the checked state is the one that is changed.
    changing: Mutex<()>,
}

impl Devices {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, secret: OnceLock::new(), events: broadcast::channel(64).0, changing: Mutex::new(()) }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<DeviceEvent> {
        self.events.subscribe()
    }

    /// A paired device.
    pub fn get(&self, device_id: &str) -> Result<Option<Device>, StoreError> {
        Ok(self.store.get(DEVICES, device_id)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub(crate) fn list(&self) -> Result<Vec<Device>, StoreError> {
        let all = self.store.list(DEVICES)?;
        Ok(all.into_iter().filter_map(|(_, bytes)| serde_json::from_slice(&bytes).ok()).collect())
    }

    pub(crate) fn requests(&self) -> Result<Vec<PairingRequest>, StoreError> {
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
                // The first writer decides; its value is visible to `get` at once.
                self.store.put_if_absent(SECRETS, SECRET_KEY, made.to_vec(), None)?;
                let kept = self.store.get(SECRETS, SECRET_KEY)?.unwrap_or_else(|| made.to_vec());
                let kept: [u8; 32] =
                    kept.try_into().map_err(|_| StoreError::failed("the device secret is damaged".to_owned()))?;
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

    /// Pairs a device. It keeps the scopes that it already had.
    pub async fn pair(&self, device: Device) -> Result<Device, StoreError> {
        let _held = self.changing.lock().await;
        self.merge(device).await
    }

    async fn merge(&self, mut device: Device) -> Result<Device, StoreError> {
        let known = self.get(&device.device_id)?;
        if let Some(moved) = known.as_ref().filter(|known| known.workspace != device.workspace) {
            // It shows the credential of another workspace: nothing that it had is carried over, and its connections end.
            self.tell(DeviceEvent::Revoked { device_id: moved.device_id.clone(), workspace: moved.workspace.clone() });
        }
        if let Some(known) = known.filter(|known| known.workspace == device.workspace) {
            device.created_at_ms = known.created_at_ms;
            device.generation = known.generation;
            device.issued_at_ms = known.issued_at_ms;
            // A narrowed token stays narrowed until the device connects with the shared credential and asks for more.
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
        let bytes = serde_json::to_vec(device).map_err(|e| StoreError::failed(e.to_string()))?;
        let position = self.store.put(DEVICES, &device.device_id, bytes, None)?;
        self.store.durable(position).await
    }

    /// Pairs a person's browser with exactly the rights of its code.
    pub(crate) async fn pair_console(&self, device: &Device) -> Result<(), StoreError> {
        let _held = self.changing.lock().await;
        self.save(device).await?;
        let (device_id, workspace) = (device.device_id.clone(), device.workspace.clone());
        self.tell(DeviceEvent::Paired { device_id, workspace });
        Ok(())
    }

    /// Notes when a browser was connected.
    pub(crate) async fn seen_console(&self, device_id: &str, now_ms: i64) -> Result<(), StoreError> {
        let _held = self.changing.lock().await;
        let Some(mut device) = self.get(device_id)? else { return Ok(()) };
        if let Some(console) = &mut device.console {
            console.seen_at_ms = Some(now_ms);
            self.save(&device).await?;
        }
        Ok(())
    }

    /// Stores a pairing request. A device that asks again keeps its request.
    pub async fn request(&self, device: Device, remote_ip: String) -> Result<PairingRequest, Failure> {
        let mut waiting = self.requests()?;
        waiting.retain(|request| request.device.workspace == device.workspace);
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
        self.tell(DeviceEvent::Requested(Box::new(request.clone())));
        Ok(request)
    }

    /// The pairing request with this id, in the caller's workspace.
    pub fn request_with_id(&self, by: &Caller, request_id: &str) -> Result<PairingRequest, Failure> {
        let found = self.requests_for(by)?.into_iter().find(|request| request.request_id == request_id);
        found.ok_or_else(no_request)
    }

    /// The pairing request that a person means: by its id, by the device's id, or by a beginning of the device's id
    /// that no other request shares.
    pub fn request_named(&self, by: &Caller, name: &str) -> Result<PairingRequest, Failure> {
        let requests = self.requests_for(by)?;
        if let Some(found) = requests.iter().find(|request| request.request_id == name) {
            return Ok(found.clone());
        }
        one_named(requests, name, |request| &request.device.device_id)?.ok_or_else(no_request)
    }

    /// The paired device that a person means: by its id, or by a beginning of it that no other device shares.
    pub fn device_named(&self, by: &Caller, name: &str) -> Result<Device, Failure> {
        one_named(self.list_for(by)?, name, |device| &device.device_id)?.ok_or_else(no_device)
    }

    /// Approves a pairing request, with at most the scopes that the approving caller holds.
    pub async fn approve(&self, request: &PairingRequest, by: &Caller) -> Result<Device, Failure> {
        let _held = self.changing.lock().await;
        // Pairing also changes what the device already has: its role, and a narrowed token.
        if !authority::sees(by, &request.device.workspace) {
            return Err(no_request());
        }
        let known = self.get(&request.device.device_id)?.filter(|known| authority::sees(by, &known.workspace));
        let known = known.map(|device| device.scopes).unwrap_or_default();
        authority::covers(by, request.device.scopes.iter().chain(&known))?;
        self.take_request(by, request).await?;
        let device = self.merge(Device { approved_by: by.principal.clone(), ..request.device.clone() }).await?;
        self.resolved(request, "approved");
        Ok(device)
    }

    /// Rejects a pairing request that asks for no more scopes than the caller holds.
    pub async fn reject(&self, request: &PairingRequest, by: &Caller) -> Result<(), Failure> {
        let _held = self.changing.lock().await;
        authority::covers(by, &request.device.scopes)?;
        self.take_request(by, request).await?;
        self.resolved(request, "rejected");
        Ok(())
    }

    fn tell(&self, event: DeviceEvent) {
        // It is no failure if nobody listens: events are for connected clients.
        drop(self.events.send(event));
    }

    fn resolved(&self, request: &PairingRequest, decision: &'static str) {
        let (request_id, device_id) = (request.request_id.clone(), request.device.device_id.clone());
        let workspace = request.device.workspace.clone();
        self.tell(DeviceEvent::Resolved { request_id, device_id, decision, workspace });
    }

    /// Removes a request from the list; fails if another caller has removed it first.
    async fn take_request(&self, by: &Caller, request: &PairingRequest) -> Result<(), Failure> {
        self.request_with_id(by, &request.request_id)?;
        let position = self.store.remove(REQUESTS, &request.request_id)?;
        Ok(self.store.durable(position).await?)
    }

    /// Removes a device: its token becomes invalid and its connections are closed. `own` is the caller's own device,
    /// which it may always remove; any other device must hold no more scopes than the caller.
    pub async fn revoke(&self, device_id: &str, by: &Caller, own: Option<&str>) -> Result<Device, Failure> {
        let _held = self.changing.lock().await;
        let device = self.get(device_id)?.filter(|device| authority::sees(by, &device.workspace));
        let device = device.ok_or_else(no_device)?;
        if own != Some(device_id) {
            authority::covers(by, &device.scopes)?;
        }
        let position = self.store.remove(DEVICES, &device.device_id)?;
        self.store.durable(position).await?;
        self.tell_revoked(&device);
        Ok(device)
    }

    /// Issues a new token for a device, with all of its scopes or fewer, and closes its connections.
    pub async fn rotate(
        &self,
        device_id: &str,
        role: &str,
        scopes: Option<Vec<String>>,
        now: Timestamp,
        by: &Caller,
    ) -> Result<(Device, String), UnchangedReason> {
        let _held = self.changing.lock().await;
        let is_it = |device: &Device| device.role == role && authority::sees(by, &device.workspace);
        let known = self.get(device_id).map_err(UnchangedReason::Store)?.filter(is_it);
        let mut device = known.ok_or(UnchangedReason::UnknownDeviceOrRole)?;
        let touched = device.token_scopes().iter().chain(scopes.iter().flatten());
        authority::covers(by, touched).map_err(|_| UnchangedReason::BeyondTheCaller)?;
        if let Some(scopes) = scopes {
            if scopes.iter().any(|scope| !holds(&device.scopes, scope)) {
                return Err(UnchangedReason::BeyondItsScopes);
            }
            device.narrowed = Some(scopes);
        }
        device.generation += 1;
        device.issued_at_ms = now.as_millisecond();
        self.save(&device).await.map_err(UnchangedReason::Store)?;
        self.tell_revoked(&device);
        let token = self.token(&device).map_err(UnchangedReason::Store)?;
        Ok((device, token))
    }

    fn tell_revoked(&self, device: &Device) {
        let (device_id, workspace) = (device.device_id.clone(), device.workspace.clone());
        self.tell(DeviceEvent::Revoked { device_id, workspace });
    }

    fn list_for(&self, by: &Caller) -> Result<Vec<Device>, StoreError> {
        let mut own = self.list()?;
        own.retain(|device| authority::sees(by, &device.workspace));
        Ok(own)
    }

    fn requests_for(&self, by: &Caller) -> Result<Vec<PairingRequest>, StoreError> {
        let mut own = self.requests()?;
        own.retain(|request| authority::sees(by, &request.device.workspace));
        Ok(own)
    }

    /// Removes every device and pairing request of a workspace, which is removed itself.
    pub(crate) async fn remove_workspace(&self, workspace: &WorkspaceId) -> Result<(), StoreError> {
        let _held = self.changing.lock().await;
        for request in self.requests()?.iter().filter(|request| request.device.workspace == *workspace) {
            self.store.remove(REQUESTS, &request.request_id)?;
        }
        for device in self.list()?.iter().filter(|device| device.workspace == *workspace) {
            let position = self.store.remove(DEVICES, &device.device_id)?;
            self.store.durable(position).await?;
            self.tell_revoked(device);
        }
        Ok(())
    }

    /// Devices and requests of the caller's workspace, as doors show them.
    pub(crate) fn overview(&self, by: &Caller) -> Result<DevicesAnswer, StoreError> {
        let paired = self.list_for(by)?.into_iter().map(ShownDevice::from).collect();
        let pending = self.requests_for(by)?.into_iter().map(PendingDevice::from).collect();
        Ok(DevicesAnswer { pending, paired })
    }
}

/// Compares two secrets in constant time.
pub fn same_secret(a: &str, b: &str) -> bool {
    use subtle::ConstantTimeEq;
    let digest = |text: &str| Sha256::digest(text.as_bytes());
    digest(a).ct_eq(&digest(b)).into()
}

fn fresh_secret() -> Result<[u8; 32], StoreError> {
    let mut bytes = [0u8; 32];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Fills bytes from the system's source of randomness.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), StoreError> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| StoreError::failed(format!("the system has no randomness: {e}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::{memory_store::MemoryStore, system_clock};

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
            console: None,
            workspace: WorkspaceId::default(),
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
            Err(UnchangedReason::BeyondItsScopes)
        ));
        let node = devices.rotate(&again.device_id, "node", None, now, &owner).await;
        assert!(matches!(node, Err(UnchangedReason::UnknownDeviceOrRole)));
        let back = devices.pair(Device { scopes: vec!["operator.write".into()], ..rotated.clone() }).await.unwrap();
        assert_eq!(back.narrowed, None, "the shared credential gives back what the device was given");
        let named = devices.device_named(&owner, &rotated.device_id[..10]).unwrap();
        devices.revoke(&named.device_id, &owner, None).await.unwrap();
        assert!(devices.get(&rotated.device_id).unwrap().is_none());
    }
}
