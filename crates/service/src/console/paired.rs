//! Browsers that were paired: how they become devices, and how they are recognised.

use super::{CodeProblem, Console, Rights, hash_of, is_secret, new_secret};
use crate::{
    devices::{Device, ShownDevice},
    workspaces,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signature, VerifyingKey};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::store::StoreError;
use toolyard_protocol::{WorkspaceId, canonical};

/// The id of the console among clients, and what it is used as.
pub const CLIENT_ID: &str = "toolyard-console";
const CLIENT_MODE: &str = "console";
/// How long a browser stays paired.
pub(super) const PAIRED_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Random bytes of a cookie.
const COOKIE_BYTES: usize = 32;
/// A browser's name for people has at most this many characters.
const MAX_NAME: usize = 64;
/// When a device was last seen is written at most this often.
const SEEN_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// The first line of the text that a browser signs when it is paired and when it connects.
const PAIR: &str = "toolyard-console-pair-v1";
const CONNECT: &str = "toolyard-console-connect-v1";

/// The part of a device that makes it a person's browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleDevice {
    /// What it may do.
    pub rights: Rights,
    /// The SHA-256 of its cookie.
    pub cookie_hash: String,
    /// Until when it is paired.
    pub expires_at_ms: i64,
    /// When it was last connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_at_ms: Option<i64>,
}

/// A paired browser as the console shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownConsole {
    /// The device: the SHA-256 of its key.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    /// When it was paired.
    pub paired_at: Timestamp,
    /// Until when it is paired.
    pub expires_at: Timestamp,
    /// The workspace that it shows; absent for the default one.
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    pub workspace: WorkspaceId,
}

impl ShownConsole {
    /// A device as the console shows it, if it is a browser.
    pub fn of(device: &Device) -> Option<Self> {
        let console = device.console.as_ref()?;
        Some(Self {
            id: device.device_id.clone(),
            name: device.display_name.clone().unwrap_or_else(|| "Browser".to_owned()),
            rights: console.rights,
            paired_at: Timestamp::from_millisecond(device.created_at_ms).unwrap_or_default(),
            expires_at: Timestamp::from_millisecond(console.expires_at_ms).unwrap_or_default(),
            workspace: device.workspace.clone(),
        })
    }
}

/// What a browser sends to be paired.
#[derive(Debug, Clone, Copy)]
pub struct Pairing<'a> {
    /// Its key, in base64url.
    pub public_key: &'a str,
    /// Its signature, in base64url.
    pub signature: &'a str,
    /// The origin of the page.
    pub origin: &'a str,
    /// Its name for people.
    pub name: Option<&'a str>,
}

/// The four lines that are signed.
fn signed_text(purpose: &str, origin: &str, third: &str, fourth: &str) -> String {
    format!("{purpose}\n{origin}\n{third}\n{fourth}")
}

fn read_key(public_key: &str) -> Option<VerifyingKey> {
    let key: [u8; 32] = BASE64URL.decode(public_key).ok()?.try_into().ok()?;
    VerifyingKey::from_bytes(&key).ok()
}

fn is_signed(key: &VerifyingKey, signature: &str, text: &str) -> bool {
    let signature = BASE64URL.decode(signature).ok().and_then(|bytes| Signature::from_slice(&bytes).ok());
    signature.is_some_and(|signature| key.verify_strict(text.as_bytes(), &signature).is_ok())
}

impl Pairing<'_> {
    /// Whether the key of this browser signed this code, or this token, on this origin.
    pub fn is_signed(&self, secret: &str) -> bool {
        let text = signed_text(PAIR, self.origin, self.public_key, secret);
        read_key(self.public_key).is_some_and(|key| is_signed(&key, self.signature, &text))
    }
}

impl Console {
    /// Pairs a browser with a code and answers its device and the value of its cookie. The signature must have been
    /// checked: a code that comes with a wrong one is not used up.
    pub async fn pair(&self, code: &str, pairing: &Pairing<'_>) -> Result<(Device, String), CodeProblem> {
        let kept = self.use_code(code)?;
        Ok(self.keep(pairing, kept.rights, &kept.by, kept.workspace).await?)
    }

    /// Pairs a browser whose user knew the token of a workspace. Agents know it as well, so it gives no right to decide.
    pub async fn pair_viewer(
        &self,
        pairing: &Pairing<'_>,
        workspace: WorkspaceId,
    ) -> Result<(Device, String), StoreError> {
        self.keep(pairing, Rights::Viewer, "the gateway's token", workspace).await
    }

    async fn keep(
        &self,
        pairing: &Pairing<'_>,
        rights: Rights,
        by: &str,
        workspace: WorkspaceId,
    ) -> Result<(Device, String), StoreError> {
        let now = self.now();
        let key = BASE64URL.decode(pairing.public_key).map_err(|e| StoreError::failed(e.to_string()))?;
        let secret = new_secret::<COOKIE_BYTES>()?;
        let expires_at = now.saturating_add(PAIRED_FOR).map_err(|e| StoreError::failed(e.to_string()))?;
        let name = pairing.name.map(|name| name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect::<String>());
        let device = Device {
            device_id: canonical::sha256_hex(&key),
            public_key: pairing.public_key.to_owned(),
            client_id: CLIENT_ID.to_owned(),
            client_mode: CLIENT_MODE.to_owned(),
            platform: "browser".to_owned(),
            display_name: name.filter(|name| !name.trim().is_empty()),
            role: "operator".to_owned(),
            scopes: workspaces::held_scopes(&workspace, rights.scopes()),
            approved_by: by.to_owned(),
            created_at_ms: now.as_millisecond(),
            issued_at_ms: now.as_millisecond(),
            generation: now.as_microsecond().unsigned_abs(),
            narrowed: None,
            console: Some(ConsoleDevice {
                rights,
                cookie_hash: hash_of(&secret),
                expires_at_ms: expires_at.as_millisecond(),
                seen_at_ms: None,
            }),
            workspace,
        };
        self.devices.pair_console(&device).await?;
        let cookie = format!("{}.{secret}", device.device_id);
        Ok((device, cookie))
    }

    /// The browser whose cookie this is, whether or not its time is over.
    pub fn browser_with(&self, cookie: &str) -> Result<Option<Device>, StoreError> {
        let Some((id, secret)) = cookie.split_once('.') else { return Ok(None) };
        let Some(device) = self.devices.get(id)? else { return Ok(None) };
        let is_its_own = device.console.as_ref().is_some_and(|console| is_secret(&console.cookie_hash, secret));
        Ok(is_its_own.then_some(device))
    }

    /// Whether a browser's time is over.
    pub fn is_expired(&self, device: &Device) -> bool {
        let now = self.now().as_millisecond();
        device.console.as_ref().is_none_or(|console| console.expires_at_ms <= now)
    }

    /// Whether a browser's key signed this connection's nonce on this origin.
    pub fn is_nonce_signed(device: &Device, origin: &str, nonce: &str, signature: &str) -> bool {
        let text = signed_text(CONNECT, origin, &device.device_id, nonce);
        read_key(&device.public_key).is_some_and(|key| is_signed(&key, signature, &text))
    }

    /// Notes that a browser is connected.
    pub async fn seen(&self, device: &Device) {
        let now = self.now().as_millisecond();
        let seen = device.console.as_ref().and_then(|console| console.seen_at_ms);
        if seen.is_some_and(|seen| now - seen < SEEN_EVERY.as_millis() as i64) {
            return;
        }
        if let Err(error) = self.devices.seen_console(&device.device_id, now).await {
            tracing::debug!(%error, "when a browser was connected could not be noted");
        }
    }
}

impl ShownDevice {
    /// What makes a device a person's browser, as lists show it.
    pub(crate) fn console_of(device: &Device) -> Option<PairedBrowser> {
        let console = device.console.as_ref()?;
        let time = |ms: i64| Timestamp::from_millisecond(ms).ok();
        Some(PairedBrowser {
            rights: console.rights,
            expires_at: time(console.expires_at_ms).unwrap_or_default(),
            last_seen_at: console.seen_at_ms.and_then(time),
        })
    }
}

/// What makes a device a person's browser, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PairedBrowser {
    /// What it may do.
    pub rights: Rights,
    /// Until when it is paired.
    pub expires_at: Timestamp,
    /// When it was last connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
}
