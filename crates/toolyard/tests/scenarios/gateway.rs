//! The Gateway's RPC through the real binary and its own client: the table WS-RPC of seed 003, as far as it needs no
//! viking tools, and devices.

use crate::harness::{Place, Ran, Server};
use serde_json::{Value, json};

const TOKEN: &str = "test-token-of-16-chars";

fn call(place: &Place, server: &Server, method: &str, params: Value) -> Ran {
    let url = server.ready["url"].as_str().unwrap();
    let params = params.to_string();
    place.run_bare(&["gateway", "call", method, "--params", &params, "--url", url, "--token", TOKEN, "--json"])
}

#[toolyard_shows::shows("003-12-01", "003-12-02", "003-12-03")]
#[test]
fn ws_rpc_01_to_05_health_status_presence_catalog_effective() {
    let place = Place::new();
    let server = place.up();
    // WS-RPC-01
    let health = call(&place, &server, "health", json!({})).json();
    assert_eq!((&health["ok"], &health["eventLoop"]["degraded"]), (&json!(true), &json!(false)), "{health}");
    assert!(health["runtimeVersion"].is_string());
    // WS-RPC-02
    let status = call(&place, &server, "status", json!({})).json();
    assert_eq!(
        (&status["heartbeat"]["defaultAgentId"], &status["mainHeartbeatEnabled"]),
        (&json!("main"), &json!(true))
    );
    assert_eq!(status["heartbeat"]["agents"][0]["enabled"], true, "{status}");
    assert!(status["heartbeat"]["agents"][0]["everyMs"].as_u64().unwrap() > 0, "the gateway's tick");
    assert_eq!(status["pid"], server.ready["pid"]);
    // The three error words of the document's table.
    let words = ["defaultAgentId", "mainHeartbeatEnabled", "eventLoopDegraded"].map(|word| &status[word]);
    assert_eq!(words, [&json!("main"), &json!(true), &json!(false)], "{status}");
    assert_eq!(status["eventLoop"]["degraded"], false);
    assert!(status["runtimeVersion"].is_string() && status["uptimeMs"].is_u64(), "the runtime: {status}");
    let sessions = &status["sessions"];
    assert_eq!((&sessions["count"], &status["sessionKey"]), (&json!(1), &json!("agent:main:main")), "{status}");
    assert_eq!(sessions["recent"][0]["key"], "agent:main:main", "the state of the sessions: {status}");
    // WS-RPC-03
    let presence = call(&place, &server, "system-presence", json!({})).json();
    let modes: Vec<&str> = presence.as_array().unwrap().iter().map(|p| p["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["gateway", "cli"], "the gateway and whoever asks");
    // WS-RPC-04
    let catalog = call(&place, &server, "tools.catalog", json!({"agentId": "main"})).json();
    let tools = catalog.to_string();
    assert!(tools.contains("vault.readFile") && catalog["groups"].as_array().unwrap().len() >= 3, "{tools}");
    // WS-RPC-05
    let effective = call(&place, &server, "tools.effective", json!({"sessionKey": "main"})).json();
    assert_eq!((&effective["agentId"], &effective["profile"]), (&json!("main"), &json!("full")));
    assert!(effective.to_string().contains("vault.createFile"), "{effective}");
    server.stop();
}

#[toolyard_shows::shows("003-2-03")]
#[test]
fn status_gives_scripts_the_key_of_the_session_in_use() {
    let place = Place::new();
    let server = place.up();
    let current = || call(&place, &server, "status", json!({})).json()["sessionKey"].clone();
    assert_eq!(current(), "agent:main:main", "the session that is there from the start");
    for key in ["first", "second"] {
        assert_eq!(call(&place, &server, "sessions.create", json!({"key": key})).code, 0);
    }
    assert_eq!(current(), "agent:main:second", "the newest");
    let used = json!({"name": "vault.listFiles", "sessionKey": "first", "args": {}});
    assert_eq!(call(&place, &server, "tools.invoke", used).code, 0);
    assert_eq!(current(), "agent:main:first", "the one that was called in last");
    let effective = call(&place, &server, "tools.effective", json!({"sessionKey": current()}));
    assert_eq!(effective.code, 0, "and it can be used: {effective:?}");
    let put_away = json!({"key": "first", "archived": true});
    assert_eq!(call(&place, &server, "sessions.patch", put_away).code, 0);
    assert_eq!(current(), "agent:main:second", "what is archived is not in use");
    server.stop();
}

#[toolyard_shows::shows("003-12-19", "003-12-20", "003-12-21")]
#[test]
fn ws_rpc_19_to_22_unknown_method_session_tool_and_bad_arguments() {
    let place = Place::new();
    place.note("a.md", "hello");
    let server = place.up();
    // WS-RPC-19
    let unknown = call(&place, &server, "does.not.exist", json!({}));
    assert_eq!((unknown.code, &unknown.json()["error"]["message"]), (1, &json!("unknown method: does.not.exist")));
    // WS-RPC-20
    let session = call(&place, &server, "tools.effective", json!({"sessionKey": "agent:main:nope"}));
    assert_eq!(session.json()["error"]["message"], "unknown session key \"agent:main:nope\"");
    // WS-RPC-21
    let tool = call(&place, &server, "tools.invoke", json!({"name": "not_a_tool", "sessionKey": "main"}));
    assert_eq!(
        (tool.code, &tool.json()["error"]["code"]),
        (0, &json!("not_found")),
        "a payload is no failure: {tool:?}"
    );
    // WS-RPC-22, with a tool that is here
    let bad = call(&place, &server, "tools.invoke", json!({"name": "vault.readFile", "args": {"limit": 2}})).json();
    assert_eq!((&bad["ok"], &bad["error"]["code"]), (&json!(false), &json!("validation_error")));
    let good =
        call(&place, &server, "tools.invoke", json!({"name": "vault.readFile", "args": {"path": "a.md"}})).json();
    assert_eq!(good["output"]["details"]["content"], "hello");
    server.stop();
}

#[test]
fn this_machine_signs_as_a_device_and_keeps_the_token_it_is_given() {
    let place = Place::new();
    let server = place.up();
    let url = server.ready["url"].as_str().unwrap();
    let health =
        |more: &[&str]| place.run_bare(&[&["gateway", "call", "health", "--url", url, "--device"], more].concat());
    let first = health(&["--token", TOKEN, "--json"]);
    assert_eq!(first.code, 0, "{first:?}");
    let kept = std::fs::read_to_string(place.home.join("state/device-tokens.json")).unwrap();
    assert!(kept.contains("ws://127.0.0.1"), "{kept}");
    let listed = place.run_bare(&["devices", "list", "--json"]).json();
    assert_eq!(listed["paired"].as_array().unwrap().len(), 1, "{listed}");
    // The token is not needed any more, until the device is removed.
    let again = health(&["--json"]);
    assert_eq!(again.code, 0, "{again:?}");
    let id = listed["paired"][0]["deviceId"].as_str().unwrap();
    assert_eq!(place.run_bare(&["devices", "revoke", id]).code, 0);
    let gone = health(&["--json"]);
    assert!(gone.code != 0 && gone.stdout.contains("AUTH_DEVICE_TOKEN_MISMATCH"), "{gone:?}");
    server.stop();
}

#[test]
fn probe_says_whether_a_gateway_answers_and_a_wrong_token_is_named() {
    let place = Place::new();
    let server = place.up();
    let url = server.ready["url"].as_str().unwrap();
    let probe = place.run_bare(&["gateway", "probe", "--url", url, "--token", TOKEN, "--json"]);
    assert_eq!((probe.code, &probe.json()["ok"]), (0, &json!(true)), "{probe:?}");
    let wrong = place.run_bare(&["gateway", "call", "health", "--url", url, "--token", "wrong", "--json"]);
    assert_eq!((wrong.code, wrong.error_code().as_str()), (1, "UNAVAILABLE"));
    assert!(wrong.stdout.contains("AUTH_TOKEN_MISMATCH"));
    let logs = call(&place, &server, "logs.tail", json!({})).json();
    assert!(logs.to_string().contains("wrong credential"), "{logs}");
    assert!(!logs.to_string().contains(TOKEN));
    let config = call(&place, &server, "config.get", json!({}));
    assert!(config.code == 0 && !config.stdout.contains(TOKEN), "{config:?}");
    server.stop();
    let gone = place.run_bare(&["gateway", "probe", "--url", "ws://127.0.0.1:1", "--token", TOKEN, "--json"]);
    assert_eq!(gone.error_code(), "UNAVAILABLE");
    let nonsense = place.run_bare(&["gateway", "call", "health", "--url", "no url", "--token", TOKEN, "--json"]);
    assert_ne!(nonsense.code, 0);
}

#[test]
fn sessions_and_decisions_survive_a_restart() {
    let place = Place::new();
    let server = place.up();
    call(&place, &server, "sessions.create", json!({"key": "kept", "label": "Kept"}));
    let asked = json!({"name": "vault.createFile", "args": {"path": "a.md", "content": "x"}, "confirm": true});
    let refused = call(&place, &server, "tools.invoke", asked).json();
    assert_eq!(refused["requiresApproval"], true, "{refused}");
    assert!(!place.exists("a.md"), "nothing runs without an answer");
    server.stop();
    let server = place.up();
    let kept = call(&place, &server, "sessions.get", json!({"key": "kept"})).json();
    assert_eq!(kept["entry"]["label"], "Kept");
    let history = call(&place, &server, "approval.history", json!({})).json();
    assert_eq!(history["items"][0]["reason"], "no-route", "{history}");
    server.stop();
}

#[test]
fn devices_are_listed_and_unknown_ones_are_named() {
    let place = Place::new();
    let server = place.up();
    assert_eq!(place.run(&["devices", "list", "--json"]).json(), json!({"pending": [], "paired": []}));
    assert_eq!(place.run(&["devices", "approve", "nope", "--json"]).error_code(), "NOT_FOUND");
    assert_eq!(place.run(&["devices", "revoke", "nope", "--json"]).error_code(), "NOT_FOUND");
    server.stop();
}
