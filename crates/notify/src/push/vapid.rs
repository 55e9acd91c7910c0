//! How this server identifies itself to push services: a signed statement with each message, RFC 8292.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde::Serialize;

/// How long a statement is valid. RFC 8292 allows a day; half of one leaves room for clocks that differ.
const VALID_FOR: SignedDuration = SignedDuration::from_hours(12);

/// Why this server cannot identify itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VapidError {
    /// The key is not one of P-256 in PKCS #8.
    #[error("the key of Web Push cannot be read")]
    Unreadable,
    /// The system gives no random numbers.
    #[error("no key of Web Push can be made on this system")]
    NoRandom,
}

/// The key with which this server identifies itself to push services. Browsers subscribe for it: with another key their
/// subscriptions are worthless.
pub struct VapidKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VapidKey").field("public", &self.public()).finish_non_exhaustive()
    }
}

/// The header of every statement: `{"typ":"JWT","alg":"ES256"}`.
#[derive(Serialize)]
struct Header {
    typ: &'static str,
    alg: &'static str,
}

#[derive(Serialize)]
struct Claims<'a> {
    aud: String,
    exp: i64,
    sub: &'a str,
}

impl VapidKey {
    /// Makes a key, in PKCS #8.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate() -> Result<Vec<u8>, VapidError> {
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map(|key| key.as_ref().to_vec())
            .map_err(|_| VapidError::NoRandom)
    }

    /// Reads a key that [`VapidKey::generate`] made.
    ///
    /// # Errors
    /// It is another kind of key.
    pub fn read(pkcs8: &[u8]) -> Result<Self, VapidError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|_| VapidError::Unreadable)?;
        Ok(Self { pair, random })
    }

    /// The public key in base64url, which browsers know as `applicationServerKey`.
    pub fn public(&self) -> String {
        BASE64URL.encode(self.pair.public_key().as_ref())
    }

    /// The value of `Authorization` for a message to a push service.
    ///
    /// # Errors
    /// The statement cannot be signed.
    pub fn authorization(&self, endpoint: &Url, contact: &str, now: Timestamp) -> Result<String, VapidError> {
        let exp = now.saturating_add(VALID_FOR).unwrap_or(Timestamp::MAX).as_second();
        let claims = Claims { aud: endpoint.origin().ascii_serialization(), exp, sub: contact };
        let encoded = |json: Result<Vec<u8>, serde_json::Error>| json.map(|json| BASE64URL.encode(json));
        let header = encoded(serde_json::to_vec(&Header { typ: "JWT", alg: "ES256" }));
        let claims = encoded(serde_json::to_vec(&claims));
        let (Ok(header), Ok(claims)) = (header, claims) else { return Err(VapidError::Unreadable) };
        let signed = format!("{header}.{claims}");
        let signature = self.pair.sign(&self.random, signed.as_bytes()).map_err(|_| VapidError::NoRandom)?;
        Ok(format!("vapid t={signed}.{}, k={}", BASE64URL.encode(signature.as_ref()), self.public()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::{Value, json};

    /// Reads a header as a push service does: the claims, if the signature fits the key beside it.
    fn verify(header: &str) -> Option<Value> {
        let (token, key) = header.strip_prefix("vapid t=")?.split_once(", k=")?;
        let (signed, signature) = token.rsplit_once('.')?;
        let key = BASE64URL.decode(key).ok()?;
        let signature = BASE64URL.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(signed.as_bytes(), &signature).ok()?;
        let (head, claims) = signed.split_once('.')?;
        let read = |part: &str| serde_json::from_slice::<Value>(&BASE64URL.decode(part).ok()?).ok();
        (read(head)? == json!({"typ": "JWT", "alg": "ES256"})).then(|| read(claims))?
    }

    /// RFC 8292, section 2.4.
    const EXAMPLE: &str = "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";

    #[test]
    fn what_reads_the_example_of_rfc_8292_reads_our_statement() {
        let claims = verify(EXAMPLE).unwrap();
        assert_eq!(claims["aud"], "https://push.example.net");
        let key = VapidKey::read(&VapidKey::generate().unwrap()).unwrap();
        let endpoint = Url::parse("https://push.example.net:8443/p/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV?x=1").unwrap();
        let now = Timestamp::from_second(1_453_480_568).unwrap();
        let header = key.authorization(&endpoint, "mailto:push@example.com", now).unwrap();
        let ours = verify(&header).unwrap();
        let expected =
            json!({"aud": "https://push.example.net:8443", "exp": 1_453_523_768, "sub": "mailto:push@example.com"});
        assert_eq!(ours, expected);
        assert!(header.ends_with(&format!(", k={}", key.public())));
        assert!(verify(&header.replacen("eyJ0", "eyJ1", 1)).is_none(), "a changed statement does not verify");
    }

    #[test]
    fn a_key_of_another_kind_is_refused() {
        assert_eq!(VapidKey::read(b"not a key").err(), Some(VapidError::Unreadable));
    }
}
