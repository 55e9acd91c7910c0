//! The text that a device signs when it connects, and the check of its signature.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signature, VerifyingKey};
use toolyard_protocol::canonical;

/// The signed fields of a connect frame.
#[derive(Debug, Clone)]
pub struct Signed<'a> {
    /// The device: the SHA-256 of its key.
    pub device_id: &'a str,
    /// Its key, in base64url.
    pub public_key: &'a str,
    /// The signature, in base64url.
    pub signature: &'a str,
    /// When it signed.
    pub signed_at_ms: i64,
    /// The nonce it was given.
    pub nonce: &'a str,
    /// The program that runs on it.
    pub client_id: &'a str,
    /// What the program is used as.
    pub client_mode: &'a str,
    /// The role it asks for.
    pub role: &'a str,
    /// The scopes it asks for.
    pub scopes: &'a [String],
    /// The token it shows.
    pub token: &'a str,
    /// Its operating system.
    pub platform: &'a str,
    /// The kind of machine.
    pub device_family: &'a str,
}

/// Why a device's signature is refused: `(details.code, details.reason, message)`.
pub type SignatureProblem = (&'static str, &'static str, &'static str);

impl Signed<'_> {
    /// Checks that the key belongs to the device, the nonce is this connection's, the time is within the skew, and the
    /// signature is valid.
    pub fn verify(&self, nonce: &str, now_ms: i64, skew_ms: i64) -> Result<(), SignatureProblem> {
        const BAD_KEY: SignatureProblem =
            ("DEVICE_AUTH_PUBLIC_KEY_INVALID", "device-public-key", "device public key invalid");
        const BAD_SIGNATURE: SignatureProblem =
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

    /// The text that is signed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};

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
}
