//! A device identity: a key that signs requests, so that a remote gateway can recognise the device.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signer as _, SigningKey};
use jiff::Timestamp;
use serde::Serialize;
use toolyard_protocol::canonical;
use toolyard_service::devices::Signed;

/// A device's signing key.
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
    device_id: String,
}

impl std::fmt::Debug for Identity {
    /// Prints the device id without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("device_id", &self.device_id).finish_non_exhaustive()
    }
}

/// The signed fields besides the device itself.
pub(super) struct SignedClaim<'a> {
    pub(super) client_id: &'a str,
    pub(super) client_mode: &'a str,
    pub(super) role: &'a str,
    pub(super) scopes: &'a [String],
    pub(super) token: &'a str,
    pub(super) nonce: &'a str,
    pub(super) platform: &'a str,
}

impl Identity {
    /// Creates an identity from the key's 32 secret bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(secret);
        let device_id = canonical::sha256_hex(key.verifying_key().as_bytes());
        Self { key, device_id }
    }

    /// The id by which a gateway identifies the device.
    pub fn device_id(&self) -> &str {
        &self.device_id
    }

    /// The `device` of a connect frame.
    pub(super) fn sign<'a>(&'a self, claim: &SignedClaim<'a>) -> SignedDevice<'a> {
        let public_key = BASE64URL.encode(self.key.verifying_key().as_bytes());
        let signed_at_ms = Timestamp::now().as_millisecond();
        let signed = Signed {
            device_id: &self.device_id,
            public_key: &public_key,
            signature: "",
            signed_at_ms,
            nonce: claim.nonce,
            client_id: claim.client_id,
            client_mode: claim.client_mode,
            role: claim.role,
            scopes: claim.scopes,
            token: claim.token,
            platform: claim.platform,
            device_family: "",
        };
        let signature = BASE64URL.encode(self.key.sign(signed.payload_v3().as_bytes()).to_bytes());
        SignedDevice { id: &self.device_id, public_key, signature, signed_at: signed_at_ms, nonce: claim.nonce }
    }
}

/// The `device` of a connect frame.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SignedDevice<'a> {
    id: &'a str,
    public_key: String,
    signature: String,
    signed_at: i64,
    nonce: &'a str,
}
