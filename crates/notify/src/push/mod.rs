//! Web Push: messages to browsers through the push service of their vendor. Encryption is RFC 8291, identification of this
//! server is RFC 8292 (VAPID), delivery is RFC 8030. The push service sees when a message is sent and how long it is, and
//! cannot read it.

mod encrypt;
mod vapid;

pub use encrypt::{EncryptError, Encrypted, encrypt};
pub use vapid::{VapidError, VapidKey};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of an uncompressed point of P-256.
pub const POINT_BYTES: usize = 65;
/// Bytes of the secret that a browser shares with this server.
pub const AUTH_BYTES: usize = 16;
/// The longest address of a push service that is accepted.
const MAX_ENDPOINT: usize = 2048;

/// A browser's subscription, as `PushSubscription.toJSON()` writes it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PushSubscription {
    /// The paired device it belongs to.
    pub device: String,
    /// The address of the push service for this browser. Anybody who knows it can send to it with the right key.
    pub endpoint: String,
    /// The browser's keys.
    pub keys: SubscriptionKeys,
}

impl std::fmt::Debug for PushSubscription {
    /// Without the address and the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushSubscription").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The keys of a browser's subscription, in base64url.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscriptionKeys {
    /// The browser's public key: an uncompressed point of P-256.
    pub p256dh: String,
    /// The secret that the browser shares with this server.
    pub auth: String,
}

impl std::fmt::Debug for SubscriptionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionKeys").finish_non_exhaustive()
    }
}

impl SubscriptionKeys {
    /// The key and the secret as bytes; `None` where they are not what they should be.
    pub fn decode(&self) -> Option<([u8; POINT_BYTES], [u8; AUTH_BYTES])> {
        let read = |text: &str| BASE64URL.decode(text.trim_end_matches('=')).ok();
        let key: [u8; POINT_BYTES] = read(&self.p256dh)?.try_into().ok()?;
        let auth: [u8; AUTH_BYTES] = read(&self.auth)?.try_into().ok()?;
        (key[0] == 4).then_some((key, auth))
    }
}

impl PushSubscription {
    /// Describes the problem without quoting the subscription.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.endpoint.len() > MAX_ENDPOINT {
            return Err(format!("the endpoint is longer than {MAX_ENDPOINT} characters"));
        }
        match self.keys.decode() {
            Some(_) => Ok(()),
            None => Err("keys.p256dh must be a point of P-256 and keys.auth 16 bytes, both in base64url".to_owned()),
        }
    }
}
