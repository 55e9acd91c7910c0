//! The console's door: every statement of SECURITY.md about it, as a browser and as an attacker would try it.

use crate::harness::{PATIENCE, Server, TOKEN, Ws, connect_params};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use toolyard_engine::Caller;
use toolyard_gateway::Settings;
use toolyard_protocol::canonical;
use toolyard_service::console::Rights;

/// A browser: a key that stays in it, and the cookies it was given.
pub(crate) struct Browser {
    key: SigningKey,
    pub(crate) cookie: Option<String>,
    origin: String,
}

impl Browser {
    pub(crate) fn at(server: &Server, seed: u8) -> Self {
        let origin = format!("http://{}", server.address);
        Self { key: SigningKey::from_bytes(&[seed; 32]), cookie: None, origin }
    }

    fn public_key(&self) -> String {
        BASE64URL.encode(self.key.verifying_key().as_bytes())
    }

    fn id(&self) -> String {
        canonical::sha256_hex(self.key.verifying_key().as_bytes())
    }

    fn sign(&self, lines: [&str; 4]) -> String {
        BASE64URL.encode(self.key.sign(lines.join("\n").as_bytes()).to_bytes())
    }

    fn form(&self, field: &str, secret: &str) -> Value {
        let key = self.public_key();
        let signature = self.sign(["toolyard-console-pair-v1", &self.origin, &key, secret]);
        json!({field: secret, "publicKey": key, "signature": signature, "name": "Test browser"})
    }

    fn headers(&self) -> String {
        let cookie = self.cookie.as_ref().map(|cookie| format!("\r\nCookie: {cookie}")).unwrap_or_default();
        format!("\r\nOrigin: {}\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/json{cookie}", self.origin)
    }

    async fn post(&mut self, server: &Server, path: &str, body: &str) -> (u16, Value) {
        let request = format!("POST {path} HTTP/1.1{}", self.headers());
        let (status, head, body) = server.exchange(&request, body).await;
        let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        if let Some(set) = set {
            self.cookie = Some(set.split(';').next().unwrap().to_owned());
        }
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    pub(crate) async fn pair(&mut self, server: &Server, rights: Rights) -> Value {
        let code =
            server.service.console().make_code(rights, false, &toolyard_engine::Caller::cli("ada")).await.unwrap().code;
        let (status, body) = self.post(server, "/pair", &self.form("code", &code).to_string()).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn open(&self, server: &Server) -> Result<Ws, String> {
        let cookie = self.cookie.clone().unwrap_or_default();
        server.open_with("/console/socket", &[("origin", &self.origin), ("cookie", &cookie)]).await
    }

    /// A socket that has said who it is.
    async fn greet(&self, server: &Server) -> (Ws, Value) {
        let mut ws = self.open(server).await.unwrap();
        let challenge = ws.challenge().await;
        let nonce = challenge["payload"]["nonce"].as_str().unwrap();
        let signature = self.sign(["toolyard-console-connect-v1", &self.origin, &self.id(), nonce]);
        let hello = ws.call("connect", json!({"deviceId": self.id(), "signature": signature})).await;
        (ws, hello)
    }

    pub(crate) async fn connect(&self, server: &Server) -> Ws {
        let (ws, hello) = self.greet(server).await;
        assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
        ws
    }
}

async fn paired(server: &Server, rights: Rights) -> Browser {
    let mut browser = Browser::at(server, rights as u8 + 1);
    browser.pair(server, rights).await;
    browser
}

#[tokio::test]
async fn a_code_pairs_one_browser_once_and_the_socket_acts_as_a_person() {
    let server = Server::start().await;
    let mut browser = Browser::at(&server, 1);
    let code = server
        .service
        .console()
        .make_code(Rights::Owner, false, &toolyard_engine::Caller::cli("ada"))
        .await
        .unwrap()
        .code;
    assert!(code.len() >= 22, "128 bits");
    let request = format!("POST /pair HTTP/1.1{}", browser.headers());
    let (status, head, body) = server.exchange(&request, &browser.form("code", &code).to_string()).await;
    assert_eq!(status, 200, "{body}");
    let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains("Secure") && !set.contains("__Host-"), "plain HTTP on this machine: {set}");
    browser.cookie = Some(set.split(';').next().unwrap().to_owned());
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["device"]["rights"], "owner");
    assert_eq!(body["device"]["id"], browser.id());

    let (mut ws, hello) = browser.greet(&server).await;
    assert_eq!(hello["payload"]["device"]["name"], "Test browser");
    assert!(hello["payload"]["methods"].as_array().unwrap().contains(&json!("keys.rotate")), "an owner's method");
    let runs = ws.call("runs.list", json!({})).await;
    assert_eq!(runs["ok"], true, "{runs}");

    let mut second = Browser::at(&server, 9);
    let (status, body) = second.post(&server, "/pair", &second.form("code", &code).to_string()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (403, Some("CODE_USED")), "{body}");
    assert_eq!(second.cookie, None);
}

#[tokio::test]
async fn an_expired_or_invented_code_and_a_wrong_signature_pair_nothing() {
    let server = Server::start().await;
    let mut browser = Browser::at(&server, 1);
    let (status, body) =
        browser.post(&server, "/pair", &browser.form("code", "AAAAAAAAAAAAAAAAAAAAAA").to_string()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (403, Some("CODE_UNKNOWN")), "{body}");

    let made =
        server.service.console().make_code(Rights::Owner, false, &toolyard_engine::Caller::cli("ada")).await.unwrap();
    let mut forged = browser.form("code", &made.code);
    forged["signature"] = Browser::at(&server, 2).form("code", &made.code)["signature"].clone();
    let (status, body) = browser.post(&server, "/pair", &forged.to_string()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (400, Some("BAD_SIGNATURE")), "{body}");
    let (status, _) = browser.post(&server, "/pair", &browser.form("code", &made.code).to_string()).await;
    assert_eq!(status, 200, "a wrong signature does not use the code up");
}

#[tokio::test]
async fn codes_are_kept_hashed_and_end_in_two_minutes_or_five_for_a_phone() {
    let server = Server::start().await;
    let before = jiff::Timestamp::now();
    let quick =
        server.service.console().make_code(Rights::Owner, false, &toolyard_engine::Caller::cli("ada")).await.unwrap();
    let phone =
        server.service.console().make_code(Rights::Owner, true, &toolyard_engine::Caller::cli("ada")).await.unwrap();
    let life = |at: jiff::Timestamp| (at.as_second() - before.as_second()).abs();
    assert!((118..=125).contains(&life(quick.expires_at)), "{}", quick.expires_at);
    assert!((298..=305).contains(&life(phone.expires_at)), "{}", phone.expires_at);
    for (key, value) in server.engine.store().list("consoleCodes").unwrap() {
        let kept = format!("{key} {}", String::from_utf8_lossy(&value));
        assert!(!kept.contains(&quick.code) && !kept.contains(&phone.code), "{kept}");
    }
    // The clock of the store is the system's, so the code's end is moved instead.
    let (key, value) = server.engine.store().list("consoleCodes").unwrap().remove(0);
    let mut kept: Value = serde_json::from_slice(&value).unwrap();
    kept["expiresAtMs"] = json!(before.as_millisecond() - 1);
    server.engine.store().put("consoleCodes", &key, serde_json::to_vec(&kept).unwrap(), None).unwrap();
    let code = if canonical::sha256_hex(quick.code.as_bytes()) == key { quick.code } else { phone.code };
    let mut browser = Browser::at(&server, 1);
    let (status, body) = browser.post(&server, "/pair", &browser.form("code", &code).to_string()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (403, Some("CODE_EXPIRED")), "{body}");
}

#[tokio::test]
async fn pages_of_others_cannot_pair_log_out_or_connect() {
    let server = Server::start().await;
    let browser = paired(&server, Rights::Owner).await;
    let cookie = browser.cookie.clone().unwrap();
    let own = browser.origin.clone();
    for (origin, site) in [
        (Some("https://evil.example"), "cross-site"),
        (Some("http://127.0.0.1:1"), "same-site"),
        (Some(own.as_str()), "cross-site"),
        (Some(own.as_str()), "none"),
        (Some("null"), "same-origin"),
        (None, "same-origin"),
    ] {
        for path in ["/pair", "/logout"] {
            let origin = origin.map(|origin| format!("\r\nOrigin: {origin}")).unwrap_or_default();
            let request = format!(
                "POST {path} HTTP/1.1{origin}\r\nSec-Fetch-Site: {site}\r\nContent-Type: application/json\r\nCookie: {cookie}"
            );
            let (status, _, body) = server.exchange(&request, &browser.form("code", "x").to_string()).await;
            assert_eq!(status, 403, "{path} {origin} {site}: {body}");
        }
    }
    let without = format!("POST /logout HTTP/1.1\r\nOrigin: {own}\r\nCookie: {cookie}");
    assert_eq!(server.http(&without, "").await.0, 403, "Sec-Fetch-Site is missing");
    for origin in ["https://evil.example", "http://127.0.0.1:1", "null"] {
        let refused = server.open_with("/console/socket", &[("origin", origin), ("cookie", &cookie)]).await;
        assert!(refused.is_err(), "{origin}");
    }
    assert!(server.open_with("/console/socket", &[("cookie", &cookie)]).await.is_err(), "no origin");
    browser.connect(&server).await;
}

#[tokio::test]
async fn a_page_of_another_origin_that_the_gateway_allows_is_still_not_the_console() {
    let allowed = "https://console.example".to_owned();
    let server = Server::start_with(Settings { allowed_origins: vec![allowed.clone()], ..Settings::new(TOKEN) }).await;
    let browser = paired(&server, Rights::Owner).await;
    let cookie = browser.cookie.clone().unwrap();
    let refused = server.open_with("/console/socket", &[("origin", &allowed), ("cookie", &cookie)]).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_foreign_host_is_refused_on_every_path_of_the_console() {
    let server = Server::start().await;
    for path in ["/", "/pair", "/runs", "/console/session", "/console/socket", "/download/x"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.example");
        let (status, _, body) = server.exchange(&request, "").await;
        assert!(matches!(status, 400 | 403), "{path}: {status} {body}");
    }
}

#[tokio::test]
async fn a_stolen_cookie_without_the_key_opens_nothing() {
    let server = Server::start().await;
    let owner = paired(&server, Rights::Owner).await;
    let thief = Browser { cookie: owner.cookie.clone(), ..Browser::at(&server, 77) };
    // With the owner's device id and the thief's key.
    let mut ws = thief.open(&server).await.unwrap();
    let challenge = ws.challenge().await;
    let nonce = challenge["payload"]["nonce"].as_str().unwrap();
    let signature = thief.sign(["toolyard-console-connect-v1", &thief.origin, &owner.id(), nonce]);
    let refused = ws.call("connect", json!({"deviceId": owner.id(), "signature": signature})).await;
    assert_eq!(refused["error"]["details"]["code"], "CONSOLE_BAD_SIGNATURE", "{refused}");
    assert_eq!(ws.until_closed(PATIENCE).await.0, 4401);
    // With the thief's own device id.
    let (_, refused) = thief.greet(&server).await;
    assert_eq!(refused["error"]["details"]["code"], "CONSOLE_NOT_PAIRED", "{refused}");
    // A signature over another connection's nonce.
    let mut ws = owner.open(&server).await.unwrap();
    ws.challenge().await;
    let signature = owner.sign(["toolyard-console-connect-v1", &owner.origin, &owner.id(), nonce]);
    let refused = ws.call("connect", json!({"deviceId": owner.id(), "signature": signature})).await;
    assert_eq!(refused["error"]["details"]["code"], "CONSOLE_BAD_SIGNATURE", "{refused}");
    // The cookie alone does not open the ordinary door, and the key alone not the console.
    let mut plain = server.open_with("/", &[("cookie", owner.cookie.as_deref().unwrap())]).await.unwrap();
    let mut params = connect_params(&["operator.admin"], &[]);
    params["auth"] = json!({});
    assert_eq!(plain.connect(params).await["ok"], false);
    let bare = Browser { cookie: None, ..Browser::at(&server, Rights::Owner as u8 + 1) };
    let (_, refused) = bare.greet(&server).await;
    assert_eq!(refused["error"]["details"]["code"], "CONSOLE_NOT_PAIRED", "{refused}");
}

#[tokio::test]
async fn a_viewer_reads_an_approver_answers_and_neither_does_more_whatever_they_declare() {
    let server = Server::start().await;
    let viewer = paired(&server, Rights::Viewer).await;
    let mut ws = viewer.open(&server).await.unwrap();
    let challenge = ws.challenge().await;
    let nonce = challenge["payload"]["nonce"].as_str().unwrap();
    let signature = viewer.sign(["toolyard-console-connect-v1", &viewer.origin, &viewer.id(), nonce]);
    let declared = json!({"deviceId": viewer.id(), "signature": signature, "scopes": ["operator.admin"]});
    let refused = ws.call("connect", declared).await;
    assert_eq!(refused["ok"], false, "scopes are not a parameter: {refused}");

    let writes = [
        ("tools.invoke", json!({"name": "bench_echo", "args": {"text": "x"}})),
        ("tools.call", json!({"name": "bench_echo", "args": {"text": "x"}})),
        ("runs.cancel", json!({"runId": "0190b8f0-0000-7000-8000-000000000000"})),
        ("device.pair.list", json!({})),
        ("devices.revoke", json!({"id": viewer.id()})),
        ("console.code", json!({})),
        ("keys.rotate", json!({})),
    ];
    let mut ws = viewer.connect(&server).await;
    assert_eq!(ws.call("runs.list", json!({})).await["ok"], true);
    let approvals = [("plugin.approval.list", json!({})), ("approval.resolve", json!({"id": "x", "decision": "deny"}))];
    for (method, params) in writes.iter().chain(&approvals) {
        let answer = ws.call(method, params.clone()).await;
        assert_eq!(answer["error"]["details"]["code"], "MISSING_SCOPE", "viewer {method}: {answer}");
    }
    let approver = paired(&server, Rights::Approver).await;
    let mut ws = approver.connect(&server).await;
    assert_eq!(ws.call("plugin.approval.list", json!({})).await["ok"], true);
    for (method, params) in &writes {
        let answer = ws.call(method, params.clone()).await;
        assert_eq!(answer["error"]["details"]["code"], "MISSING_SCOPE", "approver {method}: {answer}");
    }
}

#[tokio::test]
async fn a_revoked_or_logged_out_browser_is_closed_and_stays_out() {
    let server = Server::start().await;
    let browser = paired(&server, Rights::Viewer).await;
    let mut ws = browser.connect(&server).await;
    let owner = Caller::cli("ada");
    server.service.devices().revoke(&browser.id(), &owner, None).await.unwrap();
    assert_eq!(ws.until_closed(PATIENCE).await.0, 1008);
    let (_, refused) = browser.greet(&server).await;
    assert_eq!(refused["error"]["details"]["code"], "CONSOLE_NOT_PAIRED");

    let mut browser = paired(&server, Rights::Owner).await;
    let mut ws = browser.connect(&server).await;
    let kept = browser.cookie.clone();
    let (status, _) = browser.post(&server, "/logout", "").await;
    assert_eq!(status, 204);
    assert!(browser.cookie.as_deref().unwrap().ends_with('='), "the cookie is cleared");
    assert_eq!(ws.until_closed(PATIENCE).await.0, 1008);
    browser.cookie = kept;
    let (_, refused) = browser.greet(&server).await;
    assert_eq!(refused["error"]["details"]["code"], "CONSOLE_NOT_PAIRED", "the old cookie is worth nothing");
}

#[tokio::test]
async fn wrong_codes_lock_the_address_out() {
    let server = Server::start().await;
    let mut browser = Browser::at(&server, 1);
    let mut last = 0;
    for _ in 0..11 {
        last = browser.post(&server, "/pair", &browser.form("code", "wrong").to_string()).await.0;
    }
    assert_eq!(last, 429);
    let code = server
        .service
        .console()
        .make_code(Rights::Owner, false, &toolyard_engine::Caller::cli("ada"))
        .await
        .unwrap()
        .code;
    let (status, body) = browser.post(&server, "/pair", &browser.form("code", &code).to_string()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (429, Some("RATE_LIMITED")), "even with a right one");
}

#[tokio::test]
async fn the_gateways_token_makes_a_viewer_and_never_a_person() {
    let server = Server::start().await;
    let mut browser = Browser::at(&server, 1);
    let (status, body) = browser.post(&server, "/pair", &browser.form("token", "not the token").to_string()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (403, Some("TOKEN_WRONG")));
    let (status, body) = browser.post(&server, "/pair", &browser.form("token", TOKEN).to_string()).await;
    assert_eq!((status, body["device"]["rights"].as_str()), (200, Some("viewer")), "{body}");
}

#[tokio::test]
async fn pages_carry_the_policy_and_parameters_in_the_address_mean_nothing() {
    let server = Server::start().await;
    const POLICY: &str = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";
    let (status, plain, body) = server.exchange("GET / HTTP/1.1", "").await;
    assert_eq!(status, 200);
    for line in [
        POLICY,
        "x-frame-options: DENY",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-opener-policy: same-origin",
        "cross-origin-resource-policy: same-origin",
        "content-type: text/html; charset=utf-8",
        "cache-control: no-cache",
    ] {
        assert!(plain.lines().any(|have| have == line), "{line} is missing:\n{plain}");
    }
    for path in
        ["/?gatewayUrl=wss://evil.example&token=x", "/runs", "/runs/x?token=x", "/approve/x", "/pair?gatewayUrl=x"]
    {
        let (status, head, other) = server.exchange(&format!("GET {path} HTTP/1.1"), "").await;
        assert_eq!((status, other == body), (200, true), "{path}");
        assert!(!head.contains("set-cookie:") && !head.contains("\nlocation:"), "{path}: {head}");
    }
    let etag = plain.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let again = server.exchange(&format!("GET / HTTP/1.1\r\nIf-None-Match: {etag}"), "").await;
    assert_eq!((again.0, again.2.as_str()), (304, ""));
    let (status, _) = server.http("GET /console/socket?token=x HTTP/1.1", "").await;
    assert_eq!(status, 426);
    assert_eq!(server.http("GET /nothing HTTP/1.1", "").await.0, 404);
    assert_eq!(server.http("POST / HTTP/1.1", "").await.0, 404);
}

#[tokio::test]
async fn a_compressed_copy_is_sent_to_those_who_take_it() {
    let server = Server::start().await;
    let (_, head, _) = server.exchange("GET / HTTP/1.1\r\nAccept-Encoding: gzip, br", "").await;
    assert!(head.lines().any(|line| line == "content-encoding: br"), "{head}");
    let (_, head, _) = server.exchange("HEAD / HTTP/1.1\r\nAccept-Encoding: gzip, br;q=0", "").await;
    assert!(head.lines().any(|line| line == "content-encoding: gzip"), "{head}");
    let (_, head, page) = server.exchange("GET / HTTP/1.1\r\nAccept-Encoding: br;q=0", "").await;
    assert!(!head.contains("content-encoding") && page.contains("<html"), "{head}");
}

#[tokio::test]
async fn plain_http_beyond_this_machine_pairs_nobody_and_says_how_to_get_tls() {
    let proxy = "127.0.0.1".parse().unwrap();
    let server =
        Server::start_with(Settings { trusted_proxies: vec![proxy], loopback_only: false, ..Settings::new(TOKEN) })
            .await;
    let far = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto";
    let (status, body) = server.http(&format!("GET /console/session HTTP/1.1\r\n{far}: http"), "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body["canPair"].as_bool()), (200, Some(false)), "{body}");
    assert_eq!(body["why"]["code"], "TLS_REQUIRED");
    assert!(body["why"]["suggestion"].as_str().unwrap().contains("gateway.tls.certFile"));
    let mut browser = Browser::at(&server, 1);
    let code = server
        .service
        .console()
        .make_code(Rights::Owner, false, &toolyard_engine::Caller::cli("ada"))
        .await
        .unwrap()
        .code;
    let request = format!("POST /pair HTTP/1.1{}\r\n{far}: http", browser.headers());
    let (status, body) = server.http(&request, &browser.form("code", &code).to_string()).await;
    assert_eq!(status, 403);
    assert!(body.contains("TLS_REQUIRED"), "{body}");
    // Behind a proxy with a certificate, the cookie is bound to the host and to TLS.
    browser.origin = browser.origin.replace("http:", "https:");
    let request = format!("POST /pair HTTP/1.1{}\r\n{far}: https", browser.headers());
    let (status, head, body) = server.exchange(&request, &browser.form("code", &code).to_string()).await;
    assert_eq!(status, 200, "{body}");
    let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(set.starts_with("__Host-") && set.contains("; Secure"), "{set}");
}

#[tokio::test]
async fn a_download_works_once_and_only_for_the_browser_that_asked() {
    let server = Server::start().await;
    let browser = paired(&server, Rights::Viewer).await;
    let run = server
        .client(&["operator.write"], &[])
        .await
        .call("tools.invoke", json!({"name": "bench_echo", "args": {"text": "x"}}))
        .await;
    assert_eq!(run["ok"], true, "{run}");
    let mut ws = browser.connect(&server).await;
    let runs = ws.call("runs.list", json!({"counts": true})).await;
    let run_id = runs["payload"]["runs"][0]["runId"].as_str().unwrap().to_owned();
    let ticket = ws.call("downloads.ticket", json!({"runId": run_id, "form": "export"})).await;
    let path = ticket["payload"]["path"].as_str().unwrap();
    let other = paired(&server, Rights::Owner).await;
    for cookie in [String::new(), format!("\r\nCookie: {}", other.cookie.as_ref().unwrap())] {
        assert_eq!(server.http(&format!("GET {path} HTTP/1.1{cookie}"), "").await.0, 404);
    }
    let with_cookie = format!("GET {path} HTTP/1.1\r\nCookie: {}", browser.cookie.as_ref().unwrap());
    let (status, head, body) = server.exchange(&with_cookie, "").await;
    assert_eq!(status, 200, "{body}");
    assert!(head.contains("content-disposition: attachment; filename=\"run-"), "{head}");
    assert!(body.contains(&run_id));
    assert_eq!(server.http(&with_cookie, "").await.0, 404, "a second time");
}

#[tokio::test]
async fn the_feed_tells_runs_in_order_and_goes_on_where_a_connection_was_lost() {
    let server = Server::start().await;
    let browser = paired(&server, Rights::Viewer).await;
    let mut agent = server.client(&["operator.write"], &[]).await;
    let mut ws = browser.connect(&server).await;
    let begun = ws.call("console.subscribe", json!({})).await;
    assert_eq!(begun["payload"]["resumed"], false, "{begun}");
    let boot = begun["payload"]["bootId"].clone();
    agent.call("tools.invoke", json!({"name": "bench_echo", "args": {"text": "x"}})).await;
    let mut last = begun["payload"]["seq"].as_u64().unwrap();
    loop {
        let item = ws.event("feed").await["payload"].clone();
        let Some(seq) = item["seq"].as_u64() else { continue };
        assert_eq!(seq, last + 1, "{item}");
        last = seq;
        if item["event"] == "run.finished" {
            assert_eq!(item["run"]["calls"], 1, "{item}");
            assert_eq!(item["run"]["door"], "gateway");
            break;
        }
    }
    drop(ws);
    agent.call("tools.invoke", json!({"name": "bench_echo", "args": {"text": "x"}})).await;
    let mut ws = browser.connect(&server).await;
    let after = json!({"after": {"bootId": boot, "seq": last}});
    let resumed = ws.call("console.subscribe", after).await;
    assert_eq!(resumed["payload"]["resumed"], true, "{resumed}");
    assert_eq!(ws.event("feed").await["payload"]["seq"], last + 1, "what was missed comes first");
    let other = ws.call("console.subscribe", json!({"after": {"bootId": "another", "seq": 1}})).await;
    assert_eq!(other["payload"]["resumed"], false);
}

#[tokio::test]
async fn an_owner_in_the_browser_is_a_person_and_names_no_path_of_this_machine() {
    let server = Server::start().await;
    let owner = paired(&server, Rights::Owner).await;
    let mut ws = owner.connect(&server).await;
    let tiles = ws.call("runs.tiles", json!({"out": "/tmp/tiles-of-a-browser"})).await;
    assert_eq!(tiles["error"]["details"]["code"], "PERSON_REQUIRED", "{tiles}");
    let keys = ws.call("keys.list", json!({})).await;
    assert_eq!(keys["ok"], true, "{keys}");
    let frame = ws.frame_within(Duration::from_millis(1)).await;
    assert!(frame.is_none_or(|frame| frame["type"] == "event"));
    let store: Arc<_> = server.engine.store().clone();
    let runs = store.runs(&toolyard_engine::store::RunFilter::default()).unwrap();
    assert!(runs.is_empty());
    let called = ws.call("tools.call", json!({"name": "bench_echo", "args": {"text": "x"}})).await;
    assert_eq!(called["ok"], true, "{called}");
    let listed = ws.call("runs.list", json!({"door": "console", "counts": true})).await;
    assert_eq!(listed["payload"]["runs"][0]["principal"], format!("console:{}", owner.id()), "{listed}");
    let none = ws.call("runs.list", json!({"door": "mcp"})).await;
    assert_eq!(none["payload"]["runs"], json!([]), "{none}");
}
