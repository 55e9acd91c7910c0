//! Devices: pairing here and from elsewhere, tokens, replayed and stale signatures, forgetting.

use crate::harness::{PATIENCE, Server, TOKEN, Ws};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Value, json};
use toolyard_gateway::Settings;
use toolyard_protocol::canonical::sha256_hex;

pub(crate) struct Signing {
    key: SigningKey,
    version: &'static str,
    signed_at: i64,
}

impl Signing {
    pub(crate) fn new(seed: u8) -> Self {
        Self {
            key: SigningKey::from_bytes(&[seed; 32]),
            version: "v3",
            signed_at: jiff::Timestamp::now().as_millisecond(),
        }
    }

    pub(crate) fn id(&self) -> String {
        sha256_hex(&self.key.verifying_key().to_bytes())
    }

    fn params(&self, nonce: &str, token: &str, scopes: &[&str]) -> Value {
        let id = self.id();
        let mut payload =
            format!("{}|{id}|cli|cli|operator|{}|{}|{token}|{nonce}", self.version, scopes.join(","), self.signed_at);
        if self.version == "v3" {
            payload.push_str("|linux|");
        }
        json!({
            "minProtocol": 4, "maxProtocol": 4,
            "client": {"id": "cli", "version": "1.0.0", "platform": "Linux", "mode": "cli"},
            "role": "operator", "scopes": scopes, "caps": [], "auth": {"token": token},
            "device": {
                "id": id, "publicKey": BASE64URL.encode(self.key.verifying_key().to_bytes()),
                "signature": BASE64URL.encode(self.key.sign(payload.as_bytes()).to_bytes()),
                "signedAt": self.signed_at, "nonce": nonce,
            },
        })
    }
}

async fn nonce(ws: &mut Ws) -> String {
    ws.challenge().await["payload"]["nonce"].as_str().unwrap().to_owned()
}

pub(crate) async fn connect(ws: &mut Ws, signing: &Signing, token: &str, scopes: &[&str]) -> Value {
    let nonce = nonce(ws).await;
    ws.call("connect", signing.params(&nonce, token, scopes)).await
}

const RW: [&str; 2] = ["operator.read", "operator.write"];

#[tokio::test]
async fn on_this_machine_a_device_is_paired_and_gets_a_token_for_its_scopes() {
    let server = Server::start().await;
    for version in ["v2", "v3"] {
        let signing = Signing { version, ..Signing::new(3) };
        let hello = connect(&mut server.open().await, &signing, TOKEN, &RW).await;
        assert_eq!(hello["payload"]["auth"]["method"], "token", "{hello}");
        let token = hello["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
        assert_eq!(token.len(), 43);
        assert!(hello["payload"]["auth"]["issuedAtMs"].is_u64());
        let again = connect(&mut server.open().await, &signing, TOKEN, &RW).await;
        assert_eq!(again["payload"]["auth"]["deviceToken"], token.as_str(), "it stays the same");
        let own = connect(&mut server.open().await, &signing, &token, &RW).await;
        assert_eq!(own["payload"]["auth"]["method"], "device-token");
        let mut ws = server.open().await;
        let more = connect(&mut ws, &signing, &token, &["operator.admin"]).await;
        assert_eq!(more["error"]["details"]["code"], "AUTH_SCOPE_MISMATCH");
        assert_eq!(ws.until_closed(PATIENCE).await.0, 1008);
        let thief = connect(&mut server.open().await, &Signing::new(4), &token, &RW).await;
        assert_eq!(thief["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH", "a token is its device's alone");
    }
}

#[tokio::test]
async fn replayed_stale_and_forged_signatures_are_refused() {
    let server = Server::start().await;
    let refused = |answer: &Value| answer["error"]["details"]["code"].as_str().unwrap_or_default().to_owned();
    let signing = Signing::new(5);
    let mut first = server.open().await;
    let old = nonce(&mut first).await;
    assert_eq!(first.call("connect", signing.params(&old, TOKEN, &RW)).await["ok"], true);
    let mut second = server.open().await;
    nonce(&mut second).await;
    let replayed = second.call("connect", signing.params(&old, TOKEN, &RW)).await;
    assert_eq!(refused(&replayed), "DEVICE_AUTH_NONCE_MISMATCH");
    assert_eq!(second.until_closed(PATIENCE).await.0, 1008);
    let stale = Signing { signed_at: signing.signed_at - 3_600_000, ..Signing::new(5) };
    assert_eq!(refused(&connect(&mut server.open().await, &stale, TOKEN, &RW).await), "DEVICE_AUTH_SIGNATURE_EXPIRED");
    let mut ws = server.open().await;
    let nonce = nonce(&mut ws).await;
    let mut params = signing.params(&nonce, TOKEN, &RW);
    params["scopes"] = json!(["operator.admin"]);
    assert_eq!(refused(&ws.call("connect", params).await), "DEVICE_AUTH_SIGNATURE_INVALID", "scopes are signed too");
}

#[tokio::test]
async fn from_elsewhere_an_operator_lets_a_device_in_and_can_forget_it() {
    let settings = Settings { trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..Settings::new(TOKEN) };
    let server = Server::start_with(settings).await;
    let far = [("x-forwarded-for", "203.0.113.9")];
    let mut bare = server.open_with("/", &far).await.unwrap();
    let refused = bare.connect(crate::harness::connect_params(&RW, &[])).await;
    assert_eq!(refused["error"]["details"]["code"], "DEVICE_IDENTITY_REQUIRED", "a token alone is not enough");

    let mut operator = server.client(&["operator.admin"], &[]).await;
    let signing = Signing::new(6);
    let mut ws = server.open_with("/", &far).await.unwrap();
    let waiting = connect(&mut ws, &signing, TOKEN, &RW).await;
    assert_eq!(
        (&waiting["error"]["code"], &waiting["error"]["details"]["code"]),
        (&json!("NOT_PAIRED"), &json!("PAIRING_REQUIRED"))
    );
    let request = operator.event("device.pair.requested").await["payload"]["requestId"].clone();
    assert_eq!(waiting["error"]["details"]["requestId"], request);
    let mut weak = server.client(&["operator.pairing"], &[]).await;
    let beyond = weak.call("device.pair.approve", json!({"requestId": request})).await;
    assert_eq!(beyond["error"]["code"], "FORBIDDEN", "nobody gives what they do not have");
    let approved = operator.call("device.pair.approve", json!({"requestId": request})).await;
    assert_eq!(approved["payload"]["device"]["deviceId"], signing.id());
    let mut inside = server.open_with("/", &far).await.unwrap();
    let hello = connect(&mut inside, &signing, TOKEN, &RW).await;
    assert_eq!(hello["ok"], true, "{hello}");
    let listed = operator.call("device.pair.list", json!({})).await;
    assert_eq!(listed["payload"]["paired"].as_array().unwrap().len(), 1);
    assert!(!listed.to_string().contains(hello["payload"]["auth"]["deviceToken"].as_str().unwrap()));
    operator.call("device.pair.remove", json!({"deviceId": signing.id()})).await;
    assert_eq!(inside.until_closed(PATIENCE).await.0, 1008, "its connections are closed");
    let token = hello["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
    let gone = connect(&mut server.open_with("/", &far).await.unwrap(), &signing, &token, &RW).await;
    assert_eq!(gone["ok"], false);
}
