//! Workspaces over real sockets: whatever belongs to one workspace does not exist for another one, and an id of another
//! workspace is answered like an id that nobody has.

use crate::{
    devices::{Signing, connect},
    harness::{Server, TOKEN, Ws, connect_params},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use toolyard_engine::{Caller, authority::Scope};
use toolyard_gateway::Settings;
use toolyard_protocol::WorkspaceId;

const ALL: [&str; 4] = ["operator.read", "operator.write", "operator.approvals", "operator.pairing"];

/// How a method is tried by somebody of another workspace.
enum Try {
    /// With an id of the other workspace: the answer is the same as for an id that nobody has.
    Id(Value),
    /// Without one: nothing of the other workspace is in the answer.
    List(Value),
    /// It is about the installation as a whole, and refused.
    Refused,
}

/// Everything that belongs to the workspace `bob`.
struct Theirs {
    run: String,
    call: String,
    question: String,
    grant: String,
    device: String,
    subscription: String,
}

/// How every built-in method is tried. `$run`, `$call`, `$question`, `$session`, `$grant`, `$device` and `$subscription`
/// stand for ids of the other workspace.
fn tries(method: &str) -> Option<Try> {
    use Try::{Id, List, Refused};
    let run = || json!({"runId": "$run"});
    let id = |params: Value| Some(Id(params));
    let list = |params: Value| Some(List(params));
    match method {
        "health"
        | "status"
        | "system-presence"
        | "sessions.list"
        | "plugin.approval.list"
        | "exec.approval.list"
        | "approval.history"
        | "node.list"
        | "device.pair.list"
        | "runs.list"
        | "bridge.status"
        | "approvals.list"
        | "grants.list"
        | "runs.head"
        | "keys.list"
        | "keys.chain"
        | "yard.status"
        | "tools.list"
        | "runs.follow"
        | "devices.list"
        | "console.subscribe"
        | "tools.catalog"
        | "console.code" => list(json!({})),
        "runs.digest" => list(json!({"since": "2020-01-01T00:00:00Z"})),
        "tools.describe" => list(json!({"name": "bench_echo"})),
        "tools.call" => list(json!({"name": "bench_echo", "args": {"text": "x"}, "idempotencyKey": "bobs-key"})),
        "tools.invoke" => list(json!({"name": "bench_echo", "args": {"text": "x"}, "idempotencyKey": "bobs-key"})),
        "policy.explain" => list(json!({"tool": "bench_echo", "session": "$session"})),
        "plans.check" | "plans.dryRun" | "plans.run" => list(json!({"plan": {"version": "1.0", "goal": "g",
            "riskLevel": "read-only", "steps": [{"id": "a", "tool": "bench_echo", "args": {"text": "x"}}]}})),
        "plugin.approval.request" => list(json!({"title": "t", "description": "d", "timeoutMs": 1})),
        "exec.approval.request" => list(json!({"command": "mine", "timeoutMs": 1})),
        "tools.result" => id(json!({"id": "$question", "ok": true})),
        "node.invoke.result" => id(json!({"id": "$question", "nodeId": "$device", "ok": true})),
        "node.describe" => id(json!({"nodeId": "$device"})),
        "tools.effective" => id(json!({"sessionKey": "$session"})),
        "tools.cancel" => id(json!({"callId": "$call"})),
        "tools.offer" => id(json!({"sessionKey": "$session", "tools": []})),
        "sessions.create" | "sessions.get" | "sessions.patch" | "sessions.delete" => id(json!({"key": "$session"})),
        "plugin.approval.waitDecision"
        | "exec.approval.waitDecision"
        | "exec.approval.get"
        | "approval.get"
        | "approvals.show" => id(json!({"id": "$question"})),
        "plugin.approval.resolve" | "exec.approval.resolve" | "approval.resolve" | "approvals.answer" => {
            id(json!({"id": "$question", "decision": "deny"}))
        }
        "grants.revoke" => id(json!({"id": "$grant"})),
        "device.pair.approve" | "device.pair.reject" => id(json!({"requestId": "$question"})),
        "devices.approve" | "devices.reject" | "devices.revoke" => id(json!({"id": "$device"})),
        "device.pair.remove" => id(json!({"deviceId": "$device"})),
        "device.token.rotate" | "device.token.revoke" => id(json!({"deviceId": "$device", "role": "operator"})),
        "plans.cancel" | "plans.replay" | "runs.get" | "runs.events" | "runs.verify" | "runs.resume"
        | "runs.cancel" | "runs.subscribe" | "plans.undo" | "runs.export" | "runs.transcript" | "runs.calls"
        | "runs.record" => id(run()),
        "plans.fork" => id(json!({"runId": "$run", "from": "a"})),
        "runs.call" => id(json!({"runId": "$run", "callId": "$call"})),
        "runs.prove" => id(json!({"id": "$run"})),
        "downloads.ticket" => id(json!({"runId": "$run", "form": "export"})),
        "runs.unsubscribe" => id(json!({"subscriptionId": "$subscription"})),
        "bridge.open" | "bridge.close" | "bridge.outbound" => id(json!({"sessionKey": "$session"})),
        "bridge.inbound" => id(json!({"sessionKey": "$session", "content": "hello"})),
        "bridge.permission.reply" => {
            id(json!({"sessionKey": "$session", "request_id": "$question", "behavior": "deny"}))
        }
        "config.get" | "logs.tail" | "logs.subscribe" | "runs.tiles" | "keys.rotate" | "workspaces.list"
        | "workspaces.add" | "workspaces.remove" | "workspaces.rotate" => Some(Refused),
        _ => None,
    }
}

fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId::parse(name).unwrap()
}

fn person(name: &str) -> Arc<Caller> {
    Arc::new(Caller::cli("ada").in_workspace(workspace(name)))
}

async fn local(server: &Server, caller: &Arc<Caller>, method: &str, params: Value) -> Value {
    match server.service.call(caller.clone(), method, params, None).await {
        Ok(answer) => json!({"ok": true, "payload": serde_json::from_str::<Value>(answer.get()).unwrap()}),
        Err(failure) => json!({"ok": false, "error": failure}),
    }
}

async fn token(server: &Server, name: &str) -> String {
    let made = local(server, &person("default"), "workspaces.add", json!({"name": name})).await;
    made["payload"]["token"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
}

async fn client(server: &Server, token: &str, scopes: &[&str]) -> Ws {
    let mut ws = server.open().await;
    let mut params = connect_params(scopes, &["approvals"]);
    params["auth"]["token"] = token.into();
    let hello = ws.connect(params).await;
    assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    ws
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Fills the workspace `bob` with one of everything.
async fn fill(server: &Server, token: &str) -> (Theirs, Ws) {
    let mut bob = client(server, token, &ALL).await;
    let made = bob.call("sessions.create", json!({"key": "secret", "label": "bobs-label"})).await;
    assert_eq!(made["payload"]["key"], "@bob:agent:main:secret", "{made}");
    let echo = json!({"name": "bench_echo", "args": {"text": "bobs-text"}, "idempotencyKey": "bobs-key"});
    let called = bob.call("tools.invoke", echo).await;
    assert_eq!(called["payload"]["ok"], true, "{called}");
    let call = text(&called["payload"]["output"]["details"]["id"]);
    let runs = bob.call("runs.list", json!({})).await;
    let run = text(&runs["payload"]["runs"][0]["runId"]);
    assert_eq!(bob.call("bridge.open", json!({"sessionKey": "secret"})).await["ok"], true);
    let watched = bob.call("runs.subscribe", json!({"sessionKey": "secret"})).await;
    let subscription = text(&watched["payload"]["subscriptionId"]);
    let signing = Signing::new(77);
    let hello = connect(&mut server.open().await, &signing, token, &["operator.read"]).await;
    assert_eq!(hello["ok"], true, "{hello}");
    // A lasting permission, and a question that stays open.
    let asks = |id: &str| {
        json!({"id": id, "command": "bobs-command", "twoPhase": true, "timeoutMs": 600_000,
        "requireDeliveryRoute": false})
    };
    bob.request("exec.approval.request", asks("first")).await;
    let answered = loop {
        let answer = json!({"id": "@bob:first", "decision": "allow-always"});
        let answered = local(server, &person("bob"), "approvals.answer", answer).await;
        if answered["ok"] == true {
            break answered;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let grant = text(&answered["payload"]["approval"]["answer"]["grantId"]);
    let mut other = asks("second");
    other["command"] = "bobs-other-command".into();
    bob.request("exec.approval.request", other).await;
    loop {
        let open = local(server, &person("bob"), "approvals.list", json!({})).await;
        if open["payload"]["approvals"].as_array().is_some_and(|open| !open.is_empty()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let question = "@bob:second".to_owned();
    (Theirs { run, call, question, grant, device: signing.id(), subscription }, bob)
}

/// The parameters with the ids of the other workspace.
fn with_ids(params: &Value, theirs: &Theirs) -> String {
    let pairs = [
        ("$run", theirs.run.as_str()),
        ("$call", &theirs.call),
        ("$question", &theirs.question),
        ("$session", "@bob:agent:main:secret"),
        ("$grant", &theirs.grant),
        ("$device", &theirs.device),
        ("$subscription", &theirs.subscription),
    ];
    pairs.iter().fold(params.to_string(), |text, (name, id)| text.replace(name, id))
}

/// The same with ids of the same form that nobody has.
fn nobody() -> Theirs {
    let uuid = || uuid::Uuid::now_v7().to_string();
    Theirs {
        run: uuid(),
        call: uuid(),
        question: "@bob:nobody".to_owned(),
        grant: uuid(),
        device: "0".repeat(64),
        subscription: uuid(),
    }
}

/// An answer without the ids that were asked for, and without what differs from answer to answer: numbers, such as times,
/// and what is made anew for each answer.
fn normal(answer: &Value, asked: &Theirs, session: &str) -> Value {
    match answer {
        Value::Number(_) => Value::from(0),
        Value::Array(items) => items.iter().map(|item| normal(item, asked, session)).collect(),
        Value::Object(map) => {
            let made_anew =
                ["id", "sessionId", "lifecycleRevision", "subscriptionId", "claudeSession", "env", "mcpConfig"];
            let kept = map.iter().filter(|(name, _)| !made_anew.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), normal(value, asked, session))).collect())
        }
        Value::String(text) => {
            let ids = [&asked.run, &asked.call, &asked.question, &asked.grant, &asked.device, &asked.subscription];
            let text = ids.iter().fold(text.replace(session, "SESSION"), |text, id| text.replace(id.as_str(), "ID"));
            text.into()
        }
        other => other.clone(),
    }
}

#[tokio::test]
async fn no_method_reaches_into_another_workspace() {
    let bridge_url = Some("ws://127.0.0.1:1/bridge".to_owned());
    let server = Server::start_with(Settings { bridge_url, ..Settings::new(TOKEN) }).await;
    let (bobs, eves) = (token(&server, "bob").await, token(&server, "eve").await);
    let (theirs, _bob) = fill(&server, &bobs).await;
    // A name that begins with the workspace; what eve made while trying names it further in.
    let marks = ["bobs-label", "bobs-text", "bobs-command", "bobs-other-command", "\"@bob:"];
    let methods = server.service.methods();
    let mut tried = BTreeSet::new();
    for (name, shown) in [("eve", eves.as_str()), ("default", TOKEN)] {
        for entry in methods.iter() {
            let how = tries(entry.name).unwrap_or_else(|| {
                panic!("{}: say in `tries` how it is tried with an id of another workspace", entry.name)
            });
            tried.insert(entry.name);
            let is_on_gateway = entry.terms.is_on_gateway();
            let ask = async |params: Value| match is_on_gateway {
                true => client(&server, shown, &ALL).await.call(entry.name, params).await,
                false => local(&server, &person(name), entry.name, params).await,
            };
            match how {
                Try::Refused if name == "default" => {}
                Try::Refused => {
                    let answer = ask(json!({})).await;
                    assert_eq!(answer["ok"], false, "{} in {name}: {answer}", entry.name);
                    assert!(answer.to_string().contains(Scope::Admin.as_str()), "{} {answer}", entry.name);
                }
                Try::List(params) => {
                    let answer = ask(serde_json::from_str(&with_ids(&params, &nobody())).unwrap()).await;
                    let said = answer.to_string();
                    let ids = [&theirs.run, &theirs.question, &theirs.grant, &theirs.device, &theirs.call];
                    for mark in marks.into_iter().chain(ids.map(String::as_str)) {
                        assert!(!said.contains(mark), "{} in {name} shows {mark}: {answer}", entry.name);
                    }
                }
                Try::Id(params) => {
                    let foreign = ask(serde_json::from_str(&with_ids(&params, &theirs)).unwrap()).await;
                    let nobody = nobody();
                    let missing = with_ids(&params, &nobody).replace(":secret", ":nobody");
                    let missing = ask(serde_json::from_str(&missing).unwrap()).await;
                    assert_eq!(
                        normal(&foreign, &theirs, "@bob:agent:main:secret"),
                        normal(&missing, &nobody, "@bob:agent:main:nobody"),
                        "{} in {name} tells an id of another workspace from one that nobody has",
                        entry.name
                    );
                    for mark in ["bobs-label", "bobs-text", "bobs-command"] {
                        assert!(!foreign.to_string().contains(mark), "{} in {name}: {foreign}", entry.name);
                    }
                }
            }
        }
    }
    assert_eq!(tried.len(), methods.iter().count());
    // Everything is still there for its own workspace.
    let mut bob = client(&server, &bobs, &ALL).await;
    assert_eq!(bob.call("runs.get", json!({"runId": theirs.run})).await["ok"], true);
    assert_eq!(bob.call("sessions.get", json!({"key": "secret"})).await["payload"]["entry"]["label"], "bobs-label");
    let open = local(&server, &person("bob"), "approvals.list", json!({})).await;
    assert_eq!(open["payload"]["approvals"][0]["id"], "@bob:second", "{open}");
    let grants = local(&server, &person("bob"), "grants.list", json!({})).await;
    assert_eq!(grants["payload"]["grants"][0]["id"], theirs.grant, "{grants}");
    let devices = local(&server, &person("bob"), "devices.list", json!({})).await;
    assert_eq!(devices["payload"]["paired"][0]["deviceId"], theirs.device, "{devices}");
}

#[tokio::test]
async fn every_parameter_that_is_a_run_is_the_one_that_is_checked() {
    let server = Server::start().await;
    for entry in server.service.methods().iter() {
        let schema = entry.types().expect("a debug build has the schemas of types").params();
        let Some(properties) = schema["properties"].as_object() else { continue };
        for (name, property) in properties {
            let is_run = property.to_string().contains("RunId");
            // `runs.prove` takes a run or a call, and `runs.list` the end of a page.
            let is_other =
                (entry.name == "runs.prove" && name == "id") || (entry.name == "runs.list" && name == "before");
            assert!(!is_run || name == "runId" || is_other, "{} {name}", entry.name);
        }
    }
}

#[tokio::test]
async fn a_token_names_its_workspace_at_every_door_and_ends_when_it_is_rotated() {
    let server = Server::start().await;
    let bobs = token(&server, "bob").await;
    let mut bob = client(&server, &bobs, &["operator.admin"]).await;
    let config = bob.call("config.get", json!({})).await;
    assert_eq!(config["error"]["message"], "missing scope: operator.admin", "no administrator: {config}");
    // HTTP: the same token, the same key, another workspace.
    let body = r#"{"tool":"bench_echo","args":{"text":"x"},"idempotencyKey":"k"}"#;
    let ask = |token: &str| {
        format!("POST /tools/invoke HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json")
    };
    for (token, deduplicated) in [(TOKEN, false), (bobs.as_str(), false), (bobs.as_str(), true)] {
        let (status, answer) = server.http(&ask(token), body).await;
        assert_eq!((status, answer.contains("\"deduplicated\":true")), (200, deduplicated), "{answer}");
    }
    let run = text(&bob.call("runs.list", json!({})).await["payload"]["runs"][0]["runId"]);
    for (token, status) in [(TOKEN, 404), ("wrong", 401)] {
        let request = format!("GET /runs/{run}/events HTTP/1.1\r\nAuthorization: Bearer {token}");
        assert_eq!(server.http(&request, "").await.0, status);
    }
    assert_eq!(server.http(&format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {bobs}"), "").await.0, 404);
    // The session key that a client names is one of its own workspace, whatever it says.
    let created = bob.call("sessions.create", json!({"key": "@eve:agent:main:main"})).await;
    assert_eq!(created["payload"]["key"], "@bob:agent:main:@eve:agent:main:main", "{created}");
    let rotated = local(&server, &person("default"), "workspaces.rotate", json!({"name": "bob"})).await;
    assert_eq!(rotated["ok"], true, "{rotated}");
    while bob.frame().await.is_some() {}
    assert_eq!(bob.closed.map(|(code, _)| code), Some(1008), "its connection is closed");
    assert_eq!(server.http(&ask(&bobs), body).await.0, 401);
}

#[tokio::test]
async fn events_questions_and_presence_stay_in_their_workspace() {
    let server = Server::start().await;
    let (bobs, eves) = (token(&server, "bob").await, token(&server, "eve").await);
    let mut eve = client(&server, &eves, &ALL).await;
    let mut owner = client(&server, TOKEN, &["operator.admin"]).await;
    let mut bob = client(&server, &bobs, &ALL).await;
    for ws in [&mut eve, &mut owner, &mut bob] {
        assert_eq!(ws.call("runs.subscribe", json!({"sessionKey": "main"})).await["ok"], true);
    }
    assert_eq!(bob.call("tools.invoke", json!({"name": "bench_echo", "args": {"text": "x"}})).await["ok"], true);
    bob.event("run.finished").await;
    // Nobody of bob's workspace can answer, although an administrator of another one is connected.
    let asked = bob.call("tools.invoke", json!({"name": "bench_ask", "args": {}, "confirm": true})).await;
    assert_eq!(asked["payload"]["requiresApproval"], true, "{asked}");
    for (name, ws) in [("eve", &mut eve), ("owner", &mut owner)] {
        // An answer to a later request shows that what was sent before has arrived.
        let present = ws.call("system-presence", json!({})).await;
        assert!(!present.to_string().contains("@bob"), "{present}");
        let heard: Vec<&Value> = ws.events.iter().map(|event| &event["event"]).collect();
        let is_foreign = |event: &&&Value| {
            let name = event.as_str().unwrap_or_default();
            name.starts_with("run.") || name.starts_with("step.") || name.contains("approval")
        };
        assert_eq!(heard.iter().filter(is_foreign).count(), 0, "{name} heard {heard:?}");
    }
}

#[tokio::test]
async fn clients_of_two_workspaces_offer_tools_of_one_name() {
    let server = Server::start().await;
    let (bobs, eves) = (token(&server, "bob").await, token(&server, "eve").await);
    let tool = |what: &str| {
        let tools = [json!({"name": "pick.file", "description": format!("Asks {what}."), "readOnly": true})];
        json!({"sessionKey": "main", "tools": tools})
    };
    let mut clients = [
        ("owner", client(&server, TOKEN, &ALL).await, "client:client:pick.file"),
        ("bob", client(&server, &bobs, &ALL).await, "client:client@bob:pick.file"),
        ("eve", client(&server, &eves, &ALL).await, "client:client@eve:pick.file"),
    ];
    for (name, ws, id) in &mut clients {
        let offered = ws.call("tools.offer", tool(name)).await;
        assert_eq!(offered["payload"]["tools"], json!([id]), "{name}: {offered}");
    }
    for (name, ws, id) in &mut clients {
        let shown = ws.call("tools.effective", json!({"sessionKey": "main"})).await["payload"].to_string();
        for other in ["owner", "bob", "eve"] {
            assert_eq!(shown.contains(&format!("Asks {other}.")), *name == other, "{name}: {shown}");
        }
        // By name, by the spelling that models see, and by its id: each is answered by the client of the workspace.
        for called in ["pick.file", "pick_file", *id] {
            let asked = ws.request("tools.invoke", json!({"name": called, "sessionKey": "main", "args": {}})).await;
            let question = ws.event("tools.call").await["payload"].clone();
            let answer = json!({"id": question["id"], "ok": true, "output": {"file": *name}});
            assert_eq!(ws.call("tools.result", answer).await["ok"], true);
            let done = ws.response(&asked).await["payload"].clone();
            assert_eq!(done["output"]["details"]["file"], *name, "{called}: {done}");
        }
    }
    // The id of another workspace's tool is one that nobody has.
    for foreign in ["client:client@eve:pick.file", "client:client@eve:none.file"] {
        let (_, bob, _) = &mut clients[1];
        let refused = bob.call("tools.invoke", json!({"name": foreign, "sessionKey": "main", "args": {}})).await;
        assert_eq!(refused["payload"]["error"]["code"], "not_found", "{refused}");
        assert!(!refused.to_string().contains("Asks eve"), "{refused}");
    }
    // A workspace whose client goes loses its tool, and no other one does.
    let [(_, owner, _), (_, mut bob, _), (_, eve, _)] = clients;
    drop((owner, eve));
    let explained = async |name: &str| {
        let asked = local(&server, &person(name), "policy.explain", json!({"tool": "pick.file"})).await;
        asked["ok"] == true
    };
    for gone in ["eve", "default"] {
        while explained(gone).await {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    assert!(explained("bob").await);
    let asked = bob.request("tools.invoke", json!({"name": "pick.file", "sessionKey": "main", "args": {}})).await;
    let question = bob.event("tools.call").await["payload"].clone();
    bob.call("tools.result", json!({"id": question["id"], "ok": true, "output": {"file": "still"}})).await;
    assert_eq!(bob.response(&asked).await["payload"]["output"]["details"]["file"], "still");
}
