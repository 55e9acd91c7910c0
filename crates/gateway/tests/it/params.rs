//! Every parameter has an effect: each test sets one and checks its effect.

use crate::harness::{Server, TOKEN, connect_params};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};

const RW: [&str; 2] = ["operator.read", "operator.write"];

/// Connect parameters of a device with a key of this seed.
pub(crate) fn signed(seed: u8, nonce: &str, mut params: Value) -> Value {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
    use sha2::Digest;
    let key = SigningKey::from_bytes(&[seed; 32]);
    let public = key.verifying_key().to_bytes();
    let id: String = sha2::Sha256::digest(public).iter().map(|b| format!("{b:02x}")).collect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let scopes: Vec<String> = params["scopes"].as_array().unwrap().iter().map(word).collect();
    let text = format!(
        "v2|{id}|{}|{}|{}|{}|{now}|{}|{nonce}",
        word(&params["client"]["id"]),
        word(&params["client"]["mode"]),
        word(&params["role"]),
        scopes.join(","),
        word(&params["auth"]["token"]),
    );
    params["device"] = json!({
        "id": id, "publicKey": BASE64URL.encode(public), "signedAt": now, "nonce": nonce,
        "signature": BASE64URL.encode(key.sign(text.as_bytes()).to_bytes()),
    });
    params
}

/// A connected device, and its `hello-ok`.
async fn device(server: &Server, seed: u8, scopes: &[&str], caps: &[&str], token: &str) -> (crate::harness::Ws, Value) {
    let mut ws = server.open().await;
    let nonce = ws.challenge().await["payload"]["nonce"].as_str().unwrap().to_owned();
    let mut params = connect_params(scopes, caps);
    params["auth"]["token"] = token.into();
    let hello = ws.call("connect", signed(seed, &nonce, params)).await;
    (ws, hello)
}

fn device_id(seed: u8) -> String {
    signed(seed, "n", connect_params(&[], &[]))["device"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_node_is_shown_with_what_it_says_it_can_do() {
    let server = Server::start().await;
    let mut node = server.open().await;
    let mut params = connect_params(&[], &["camera"]);
    params["role"] = "node".into();
    params["client"]["mode"] = "node".into();
    params["commands"] = json!(["system.run", "camera.snap"]);
    params["permissions"] = json!({"camera": true});
    params["pathEnv"] = "/usr/bin:/bin".into();
    assert_eq!(node.connect(params.clone()).await["ok"], true);
    let mut ws = server.client(&["operator.read"], &[]).await;
    let listed = ws.call("node.list", json!({})).await["payload"]["nodes"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "operators are no nodes: {listed}");
    let shown = &listed[0];
    assert_eq!(shown["commands"], json!(["camera.snap", "system.run"]));
    assert_eq!((&shown["permissions"], &shown["pathEnv"]), (&json!({"camera": true}), &json!("/usr/bin:/bin")));
    let described = ws.call("node.describe", json!({"nodeId": shown["nodeId"]})).await;
    assert_eq!(described["payload"]["caps"], json!(["camera"]));
    assert_eq!(ws.call("node.describe", json!({"nodeId": "x"})).await["error"]["message"], "unknown nodeId");
    assert_eq!(node.call("status", json!({})).await["error"]["message"], "unauthorized role: node");
    params["permissions"] = json!({"camera": "yes"});
    let refused = server.open().await.connect(params).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("/permissions"), "{refused}");
}

#[tokio::test]
async fn health_is_kept_for_a_while_and_a_probe_looks_again() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    let first = ws.call("health", json!({})).await["payload"]["ts"].clone();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(ws.call("health", json!({})).await["payload"]["ts"], first);
    let probed = ws.call("health", json!({"probe": true})).await["payload"].clone();
    assert!(probed["ts"].as_i64() > first.as_i64(), "{probed}");
    ws.call("sessions.create", json!({"key": "agent:main:x"})).await;
    let after = ws.call("health", json!({})).await["payload"].clone();
    assert_eq!(after["sessions"]["count"], 2, "a change is seen at once, beside the main session");
    for key in ["channels", "heartbeatSeconds", "agents", "modelRuntime", "configReload"] {
        assert!(after.get(key).is_none(), "{key} does not exist here");
    }
}

#[tokio::test]
async fn sessions_are_sorted_by_their_last_use() {
    let server = Server::start().await;
    let mut ws = server.client(&RW, &[]).await;
    for key in ["a", "b", "c"] {
        ws.call("sessions.create", json!({"key": format!("agent:main:{key}")})).await;
    }
    for key in ["b", "a"] {
        let call = json!({"name": "bench_echo", "args": {"text": "x"}, "sessionKey": format!("agent:main:{key}")});
        assert_eq!(ws.call("tools.invoke", call).await["payload"]["ok"], true);
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    let keys = |answer: Value| -> Vec<String> {
        let rows = answer["payload"]["sessions"].as_array().unwrap().clone();
        rows.iter().map(|r| r["key"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()).collect()
    };
    let used = ws.call("sessions.list", json!({"sortBy": "lastInteractionAt"})).await;
    assert!(used["payload"]["sessions"][0]["lastInteractionAt"].is_i64(), "{used}");
    assert_eq!(keys(used), ["a", "b", "c", "main"]);
    let needed = ws.call("sessions.list", json!({"requireLastInteraction": true})).await;
    assert_eq!((needed["payload"]["totalCount"].as_u64(), keys(needed).len()), (Some(2), 2));
    let page = ws.call("sessions.list", json!({"sortBy": "lastInteractionAt", "limit": 1, "offset": 1})).await;
    assert_eq!(keys(page), ["b"]);
    let bad = ws.call("sessions.list", json!({"archived": "some"})).await;
    assert_eq!(bad["error"]["message"], "invalid sessions.list params: at /archived: must be boolean or \"all\"");
}

#[tokio::test]
async fn only_the_answers_that_were_offered_are_taken() {
    let server = Server::start().await;
    let admin = ["operator.admin", "operator.approvals"];
    let mut reviewer = server.client(&admin, &["approvals"]).await;
    let mut asker = server.client(&["operator.approvals"], &[]).await;

    // exec: the command is to be asked about each time.
    let once =
        json!({"command": "rm x", "unavailableDecisions": ["allow-always"], "env": {"SECRET": "v"}, "twoPhase": true});
    let id = asker.request("exec.approval.request", once.clone()).await;
    let asked = reviewer.event("exec.approval.requested").await["payload"].clone();
    assert_eq!(asked["request"]["allowedDecisions"], json!(["allow-once", "deny"]));
    assert_eq!((&asked["request"]["envKeys"], asked.to_string().contains("\"v\"")), (&json!(["SECRET"]), false));
    assert_eq!(asker.response(&id).await["payload"]["status"], "accepted");
    let got = reviewer.call("exec.approval.get", json!({"id": asked["id"]})).await;
    assert_eq!(
        (&got["payload"]["commandText"], &got["payload"]["allowedDecisions"][1]),
        (&json!("rm x"), &json!("deny"))
    );
    let always = json!({"id": asked["id"], "decision": "allow-always"});
    let refused = reviewer.call("exec.approval.resolve", always).await;
    assert_eq!(refused["error"]["details"]["reason"], "APPROVAL_ALLOW_ALWAYS_UNAVAILABLE", "{refused}");
    reviewer.call("exec.approval.resolve", json!({"id": asked["id"], "decision": "allow-once"})).await;
    assert_eq!(asker.response(&id).await["payload"]["decision"], "allow-once");

    // plugin: the question names its answers; an answer that was not offered counts as a denial.
    let narrow = json!({"title": "T", "description": "D", "allowedDecisions": ["allow-once"]});
    let id = asker.request("plugin.approval.request", narrow).await;
    let asked = reviewer.event("plugin.approval.requested").await["payload"].clone();
    assert_eq!(asked["request"]["allowedDecisions"], json!(["allow-once", "deny"]));
    assert_eq!(asked["request"]["severity"], Value::Null);
    let refused =
        reviewer.call("plugin.approval.resolve", json!({"id": asked["id"], "decision": "allow-always"})).await;
    assert_eq!(refused["error"]["details"]["allowedDecisions"], json!(["allow-once", "deny"]));
    let forced = json!({"id": asked["id"], "kind": "plugin", "decision": "allow-always"});
    let done = reviewer.call("approval.resolve", forced).await["payload"].clone();
    assert_eq!((&done["applied"], &done["approval"]["reason"]), (&json!(true), &json!("malformed-verdict")), "{done}");
    assert_eq!(asker.response(&id).await["payload"]["decision"], "deny");
    for wrong in [json!([]), json!(["maybe"]), json!("deny")] {
        let params = json!({"title": "T", "description": "D", "allowedDecisions": wrong});
        assert_eq!(asker.call("plugin.approval.request", params).await["error"]["code"], "INVALID_REQUEST");
    }
    // A channel that answers for a person behind it: Toolyard has no channels.
    let behind = json!({"channel": "telegram", "accountId": "a", "senderId": "s"});
    let vouched = json!({"id": asked["id"], "kind": "plugin", "decision": "deny", "reviewer": behind});
    assert_eq!(reviewer.call("approval.resolve", vouched).await["error"]["message"], "approval not found");
    let node = asker.call("exec.approval.request", json!({"command": "x", "host": "node"})).await;
    assert_eq!(node["error"]["message"], "nodeId is required for host=node");
}

#[tokio::test]
async fn a_named_device_may_review_and_another_may_not() {
    let server = Server::start().await;
    let scopes = ["operator.approvals"];
    let (mut named, hello) = device(&server, 1, &scopes, &["approvals"], TOKEN).await;
    assert_eq!(hello["ok"], true, "{hello}");
    let (mut other, _) = device(&server, 2, &scopes, &["approvals"], TOKEN).await;
    let mut asker = server.client(&scopes, &[]).await;
    let ask = json!({"command": "ls", "approvalReviewerDeviceIds": [device_id(1)], "twoPhase": true});
    let id = asker.request("exec.approval.request", ask).await;
    assert_eq!(asker.response(&id).await["payload"]["deliveryRoute"], "approval-client");
    let asked = named.event("exec.approval.requested").await["payload"]["id"].clone();
    assert_eq!(other.call("exec.approval.list", json!({})).await["payload"], json!([]));
    let tried = other.call("exec.approval.resolve", json!({"id": asked, "decision": "allow-once"})).await;
    assert_eq!(tried["error"]["details"]["reason"], "APPROVAL_NOT_FOUND");
    assert_eq!(named.call("exec.approval.resolve", json!({"id": asked, "decision": "deny"})).await["ok"], true);
    assert_eq!(asker.response(&id).await["payload"]["decision"], "deny");
    let absent = json!({"command": "ls", "approvalReviewerDeviceIds": ["nobody"]});
    assert_eq!(
        asker.call("exec.approval.request", absent).await["payload"]["decision"],
        Value::Null,
        "nobody hears it"
    );
    let later = json!({"command": "ls -l", "requireDeliveryRoute": false, "timeoutMs": 100, "twoPhase": true});
    let id = asker.request("exec.approval.request", later).await;
    assert_eq!(asker.response(&id).await["payload"]["deliveryRoute"], "none", "it waits for somebody to come");
    assert_eq!(asker.response(&id).await["payload"]["decision"], Value::Null);
}

#[tokio::test]
async fn a_token_is_rotated_for_a_role_and_for_no_more_than_was_given() {
    let server = Server::start().await;
    let (_ws, hello) = device(&server, 3, &["operator.read", "operator.write"], &[], TOKEN).await;
    let first = hello["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
    let id = device_id(3);
    let mut admin = server.client(&["operator.admin"], &[]).await;
    let rotate = |role: &str, scopes: Value| json!({"deviceId": id, "role": role, "scopes": scopes});
    for (params, why) in [
        (rotate("node", json!([])), "it is no node"),
        (rotate("operator", json!(["operator.admin"])), "more than it was given"),
        (json!({"deviceId": "none", "role": "operator"}), "no such device"),
    ] {
        let refused = admin.call("device.token.rotate", params).await;
        assert_eq!(refused["error"]["message"], "device token rotation denied", "{why}: {refused}");
    }
    let mut weak = server.client(&["operator.pairing"], &[]).await;
    let refused = weak.call("device.token.rotate", rotate("operator", json!(["operator.read"]))).await;
    assert_eq!(refused["error"]["message"], "device token rotation denied", "nobody gives what they do not have");
    let rotated = admin.call("device.token.rotate", rotate("operator", json!(["operator.read"]))).await;
    assert_eq!(rotated["payload"]["scopes"], json!(["operator.read"]));
    assert_eq!(rotated["payload"]["tokenDelivery"], "withheld-cross-device");
    let (_, old) = device(&server, 3, &["operator.read"], &[], &first).await;
    assert_eq!(old["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH", "the old one is worth nothing");
    // The device connects with the shared credential and receives its token, which has only the requested scopes.
    let (_, again) = device(&server, 3, &["operator.read"], &[], TOKEN).await;
    let narrow = again["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
    let (_, fits) = device(&server, 3, &["operator.read"], &[], &narrow).await;
    assert_eq!(fits["ok"], true, "{fits}");
    let (_, more) = device(&server, 3, &["operator.write"], &[], &narrow).await;
    assert_eq!(more["error"]["details"]["code"], "AUTH_SCOPE_MISMATCH");
    let listed = admin.call("device.pair.list", json!({})).await["payload"]["paired"][0].clone();
    assert_eq!(listed["tokens"][0]["scopes"], json!(["operator.read"]), "{listed}");
    let revoked = admin.call("device.token.revoke", json!({"deviceId": id, "role": "operator"})).await;
    assert!(revoked["payload"]["revokedAtMs"].is_i64(), "{revoked}");
    let (_, gone) = device(&server, 3, &["operator.read"], &[], &narrow).await;
    assert_eq!(gone["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH");
}

#[tokio::test]
async fn administrative_writes_are_limited_per_method() {
    let server = Server::start().await;
    let mut admin = server.client(&["operator.admin"], &[]).await;
    for _ in 0..30 {
        let answer = admin.call("device.pair.reject", json!({"requestId": "none"})).await;
        assert_ne!(answer["error"]["code"], "UNAVAILABLE");
    }
    let limited = admin.call("device.pair.reject", json!({"requestId": "none"})).await["error"].clone();
    assert_eq!((&limited["code"], &limited["retryable"]), (&json!("UNAVAILABLE"), &json!(true)), "{limited}");
    assert!(limited["retryAfterMs"].as_u64().unwrap() > 1000);
    assert_eq!(limited["details"], json!({"method": "device.pair.reject", "limit": "30 per 60s"}));
    let other = admin.call("device.pair.remove", json!({"deviceId": "none"})).await;
    assert_ne!(other["error"]["code"], "UNAVAILABLE", "each method has its own");
}

#[tokio::test]
async fn an_action_beside_the_arguments_reaches_a_tool_that_has_one() {
    let server = Server::start().await;
    let post = format!("POST /tools/invoke HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    let said = |body: &str| serde_json::from_str::<Value>(body).unwrap()["result"]["details"]["p"].clone();
    let (_, body) = server.http(&post, r#"{"tool":"bench_action","action":"list"}"#).await;
    assert_eq!(said(&body), json!({"action": "list"}), "{body}");
    let (_, body) = server.http(&post, r#"{"tool":"bench_action","action":"list","args":{"action":"mine"}}"#).await;
    assert_eq!(said(&body), json!({"action": "mine"}));
    let (_, body) = server.http(&post, r#"{"tool":"bench_rewrite","action":"list"}"#).await;
    assert_eq!(said(&body), json!({"x": "rewritten"}), "a tool without one never sees it");
}

#[tokio::test]
async fn a_traceparent_is_taken_and_a_broken_one_ignored() {
    let server = Server::start().await;
    let mut ws = server.client(&["operator.read"], &[]).await;
    for (id, trace) in [("a", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("b", "nonsense")] {
        let frame = json!({"type": "req", "id": id, "method": "health", "traceparent": trace});
        ws.send(frame.to_string()).await;
        assert_eq!(ws.response(id).await["ok"], true);
    }
    let frame = json!({"type": "req", "id": "c", "method": "health", "traceparent": "x".repeat(200)});
    ws.send(frame.to_string()).await;
    assert_eq!(ws.response("c").await["error"]["code"], "INVALID_REQUEST");
}

#[tokio::test]
async fn a_setup_code_is_refused_by_name() {
    let server = Server::start().await;
    let mut ws = server.open().await;
    let nonce = ws.challenge().await["payload"]["nonce"].as_str().unwrap().to_owned();
    let mut params = connect_params(&["operator.read"], &[]);
    params["auth"] = json!({"bootstrapToken": "x"});
    let refused = ws.call("connect", signed(4, &nonce, params)).await;
    assert_eq!(refused["error"]["details"]["code"], "AUTH_BOOTSTRAP_TOKEN_INVALID", "{refused}");
}

/// A key that cannot be read must not turn a call into one of the main session.
#[tokio::test]
async fn a_session_key_that_is_no_text_is_refused() {
    let server = crate::harness::Server::start().await;
    let mut client = server.client(&["operator.read", "operator.write"], &[]).await;
    for (name, value) in [("sessionKey", serde_json::json!(5)), ("agentId", serde_json::json!(["main"]))] {
        let params = serde_json::json!({name: value, "runId": "01a1ec89-a7db-71c3-8e75-6757b98dced8"});
        let refused = client.call("plans.cancel", params).await;
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("{name} must be string")), "{refused}");
    }
}
