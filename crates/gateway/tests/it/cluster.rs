//! Two nodes of a cluster in one process, each with its own listener: what crosses from one to the other.

use crate::harness::{PATIENCE, Server, TOKEN};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use toolyard_engine::{Caller, Store, memory_store::MemoryStore, store::Owner};
use toolyard_gateway::Settings;
use toolyard_protocol::{ErrorCode, RunId};
use toolyard_service::cluster::{Ask, NodeTransport, envelope::SignedRequest};

const RW: [&str; 2] = ["operator.read", "operator.write"];

struct Node {
    server: Server,
    store: Arc<MemoryStore>,
}

impl Node {
    async fn start(store: MemoryStore) -> Self {
        let store = Arc::new(store);
        let bridge_url = Some("ws://127.0.0.1:1/bridge".to_owned());
        let server = Server::start_on(store.clone(), Settings { bridge_url, ..Settings::new(TOKEN) }).await;
        let address = format!("http://{}", server.address);
        server.service.cluster().unwrap().announce(address).await.unwrap();
        Self { server, store }
    }

    fn owner(&self) -> Owner {
        self.store.owner()
    }
}

async fn two_nodes() -> (Node, Node) {
    let first = MemoryStore::node("a");
    let second = first.another_node("b");
    (Node::start(first).await, Node::start(second).await)
}

async fn until(holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap();
}

#[tokio::test]
async fn a_run_of_another_node_is_watched_and_cancelled() {
    let (a, b) = two_nodes().await;
    let mut asker = a.server.client(&RW, &[]).await;
    let mut watcher = b.server.client(&RW, &[]).await;
    watcher.call("runs.subscribe", json!({"sessionKey": "main"})).await;
    let slow = json!({"name": "bench_slow", "args": {"ms": 3_600_000}});
    for by in ["callId", "runId"] {
        let id = asker.request("tools.invoke", slow.clone()).await;
        let started = watcher.event("step.started").await;
        let stopped = watcher.call("tools.cancel", json!({by: started["payload"][by]})).await;
        assert_eq!(stopped["payload"]["cancelled"], true, "{stopped}");
        assert_eq!(asker.response(&id).await["payload"]["error"]["code"], "cancelled");
        let finished = watcher.event("run.finished").await;
        assert_eq!(finished["payload"]["runId"], started["payload"]["runId"]);
    }
}

#[tokio::test]
async fn a_node_grants_what_the_caller_may_do_and_nothing_else() {
    let (a, b) = two_nodes().await;
    let mut asker = a.server.client(&RW, &[]).await;
    asker.request("tools.invoke", json!({"name": "bench_slow", "args": {"ms": 3_600_000}})).await;
    until(|| !a.server.engine.active_runs().is_empty()).await;
    let run_id = a.server.engine.active_runs()[0];
    let cluster = b.server.service.cluster().unwrap();
    let reader = Caller { scopes: vec!["operator.read".to_owned()], is_person: false, ..Caller::cli("device-2") };
    let ask = || Ask::CancelRun { run_id };
    let refused = cluster.ask::<bool>(&a.owner(), &reader, ask(), PATIENCE).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PolicyDenied, "{refused:?}");
    assert_eq!(a.server.engine.active_runs(), [run_id]);
    let writer = Caller { scopes: vec!["operator.write".to_owned()], ..reader };
    assert!(cluster.ask::<bool>(&a.owner(), &writer, ask(), PATIENCE).await.unwrap());
}

/// Keeps what is sent instead of sending it.
#[derive(Default)]
struct Caught(std::sync::Mutex<Vec<SignedRequest>>);

impl NodeTransport for Caught {
    fn send<'a>(
        &'a self,
        _: &'a str,
        request: SignedRequest,
    ) -> toolyard_engine::BoxFuture<'a, Result<toolyard_service::cluster::AnswerBytes, String>> {
        self.0.lock().unwrap().push(request);
        Box::pin(async { Err("caught".to_owned()) })
    }
}

/// A request of node `b` to node `a`, as it would be sent.
async fn caught(a: &Node, b: MemoryStore) -> SignedRequest {
    let store: Arc<MemoryStore> = Arc::new(b);
    let engine = toolyard_engine::Engine::new(toolyard_engine::EngineParts {
        store: store.clone(),
        signer: toolyard_engine::chain::Signer::from_secret("test", &[1; 32]),
        policy: toolyard_catalog::Policy::compile(&toolyard_catalog::PolicyConfig::default()).unwrap(),
        clock: toolyard_engine::system_clock(),
        options: toolyard_engine::EngineOptions::default(),
    });
    let service = toolyard_service::Service::new(engine, toolyard_service::ProcessInfo::default());
    let caught = Arc::new(Caught::default());
    let cluster = service.cluster().unwrap();
    cluster.connect(caught.clone());
    let run_id = RunId::from_uuid(uuid::Uuid::now_v7());
    let ask = Ask::CancelRun { run_id };
    let sent = cluster.ask::<bool>(&a.owner(), &Caller::cli("ada"), ask, PATIENCE).await.unwrap_err();
    assert_eq!(sent.code, ErrorCode::Unavailable);
    caught.0.lock().unwrap().pop().unwrap()
}

async fn post(to: &Node, request: &SignedRequest, body: &str) -> (u16, String) {
    let head =
        format!("POST /node HTTP/1.1\r\nToolyard-Envelope: {}\r\nToolyard-Mac: {}", request.envelope, request.mac);
    to.server.http(&head, body).await
}

#[tokio::test]
async fn an_envelope_counts_once_for_its_receiver_and_its_body() {
    let a = Node::start(MemoryStore::node("a")).await;
    let request = caught(&a, a.store.another_node("b")).await;
    let body = String::from_utf8(request.body.clone()).unwrap();
    let forged = SignedRequest { mac: "0".repeat(64), ..request.clone() };
    let (status, answer) = post(&a, &forged, &body).await;
    assert_eq!((status, answer.contains("not signed by a node of this cluster")), (403, true), "{answer}");
    let (status, answer) = post(&a, &request, &body).await;
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = post(&a, &request, &body).await;
    assert_eq!((status, answer.contains("was sent before")), (403, true), "{answer}");
    let other = caught(&a, a.store.another_node("c")).await;
    let (status, answer) = post(&a, &other, "{}").await;
    assert_eq!((status, answer.contains("not the one that was signed")), (403, true), "{answer}");
    let c = Node::start(a.store.another_node("d")).await;
    let (status, answer) = post(&c, &caught(&a, a.store.another_node("e")).await, &body).await;
    assert_eq!((status, answer.contains("meant for another node")), (403, true), "{answer}");
    let fenced = a.store.another_node("f");
    let owner = fenced.owner();
    let request = caught(&a, fenced).await;
    a.store.fence(&owner).unwrap();
    let (status, answer) = post(&a, &request, &String::from_utf8(request.body.clone()).unwrap()).await;
    assert_eq!((status, answer.contains("was fenced")), (403, true), "{answer}");
}

#[tokio::test]
async fn the_node_door_does_not_exist_where_a_machine_is_alone() {
    let server = Server::start().await;
    let (status, _) = server.http("POST /node HTTP/1.1", "{}").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_dead_owner_is_unavailable_at_once() {
    let (a, b) = two_nodes().await;
    let cluster = b.server.service.cluster().unwrap();
    let gone = a.owner();
    a.store.fence(&gone).unwrap();
    let run_id = RunId::from_uuid(uuid::Uuid::now_v7());
    // Within an hour: an answer means that nobody waited for the time to pass.
    let hour = Duration::from_secs(3600);
    let caller = Caller::cli("ada");
    let refused = cluster.ask::<bool>(&gone, &caller, Ask::CancelRun { run_id }, hour);
    let refused = tokio::time::timeout(PATIENCE, refused).await.unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert_eq!(refused.details.unwrap()["reason"], "NODE_GONE");
}

/// Never answers.
struct Silent;

impl NodeTransport for Silent {
    fn send<'a>(
        &'a self,
        _: &'a str,
        _: SignedRequest,
    ) -> toolyard_engine::BoxFuture<'a, Result<toolyard_service::cluster::AnswerBytes, String>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_owner_that_dies_while_it_is_asked_is_unavailable_at_once() {
    let a = Node::start(MemoryStore::node("a")).await;
    let second = Arc::new(a.store.another_node("b"));
    let engine = toolyard_engine::Engine::new(toolyard_engine::EngineParts {
        store: second.clone(),
        signer: toolyard_engine::chain::Signer::from_secret("test", &[1; 32]),
        policy: toolyard_catalog::Policy::compile(&toolyard_catalog::PolicyConfig::default()).unwrap(),
        clock: toolyard_engine::system_clock(),
        options: toolyard_engine::EngineOptions::default(),
    });
    let service = toolyard_service::Service::new(engine, toolyard_service::ProcessInfo::default());
    let cluster = service.cluster().unwrap().clone();
    cluster.connect(Arc::new(Silent));
    let (owner, run_id) = (a.owner(), RunId::from_uuid(uuid::Uuid::now_v7()));
    let asked = tokio::spawn(async move {
        let hour = Duration::from_secs(3600);
        cluster.ask::<bool>(&owner, &Caller::cli("ada"), Ask::CancelRun { run_id }, hour).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished());
    second.fence(&a.owner()).unwrap();
    let refused = tokio::time::timeout(PATIENCE, asked).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.details.unwrap()["reason"], "NODE_GONE");
}

const OFFER: &str = "pick_file";

/// A tool that is read-only, so that nobody is asked.
async fn offered(a: &Node, b: &Node) -> crate::harness::Ws {
    let mut client = a.server.client(&RW, &[]).await;
    let tool = json!({"name": OFFER, "readOnly": true, "timeoutMs": 600_000});
    let offer = client.call("tools.offer", json!({"sessionKey": "agent:main:main", "tools": [tool]})).await;
    assert_eq!(offer["ok"], true, "{offer}");
    until(|| b.server.engine.tools().snapshot.get(OFFER).is_some()).await;
    client
}

fn invoke() -> serde_json::Value {
    json!({"name": OFFER, "sessionKey": "agent:main:main", "args": {"kind": "image"}})
}

#[tokio::test]
async fn a_tool_offered_at_one_node_is_called_at_another() {
    let (a, b) = two_nodes().await;
    let mut client = offered(&a, &b).await;
    let mut caller = b.server.client(&RW, &[]).await;
    for (answer, expected) in [
        (json!({"ok": true, "output": {"file": "a.png"}}), json!({"file": "a.png"})),
        (json!({"ok": false, "error": {"code": "CANCELLED", "message": "the user closed it"}}), json!(null)),
    ] {
        let id = caller.request("tools.invoke", invoke()).await;
        let question = client.event("tools.call").await["payload"].clone();
        assert_eq!((&question["tool"], &question["args"]), (&json!(OFFER), &json!({"kind": "image"})));
        assert_eq!(question["sessionKey"], "agent:main:main");
        let mut result = answer;
        result["id"] = question["id"].clone();
        assert_eq!(client.call("tools.result", result).await["payload"]["ok"], true);
        let given = caller.response(&id).await["payload"].clone();
        assert_eq!(given["output"]["details"], expected, "{given}");
        if expected.is_null() {
            assert!(given["error"]["message"].as_str().unwrap().contains("the user closed it"), "{given}");
        }
    }
    drop(client);
    until(|| b.server.engine.tools().snapshot.get(OFFER).is_none()).await;
}

#[tokio::test]
async fn a_call_of_an_offered_tool_fails_when_its_node_is_lost() {
    let (a, b) = two_nodes().await;
    let mut client = offered(&a, &b).await;
    let mut caller = b.server.client(&RW, &[]).await;
    let id = caller.request("tools.invoke", invoke()).await;
    client.event("tools.call").await;
    // The client has ten minutes to answer, and the test waits for one: the fence ends the call.
    b.store.fence(&a.owner()).unwrap();
    let lost = caller.response(&id).await["payload"].clone();
    assert!(lost["error"]["message"].as_str().unwrap().contains("node a is gone"), "{lost}");
    until(|| b.server.engine.tools().snapshot.get(OFFER).is_none()).await;
}

#[tokio::test]
async fn a_caller_of_another_session_may_not_use_an_offered_tool_through_another_node() {
    let (a, b) = two_nodes().await;
    let _client = offered(&a, &b).await;
    let stranger = Caller {
        session: Some("agent:main:other".to_owned()),
        scopes: RW.map(str::to_owned).to_vec(),
        is_person: false,
        ..Caller::cli("device-2")
    };
    let ask = Ask::CallOffered(toolyard_service::cluster::OfferedCall {
        tool: toolyard_protocol::ToolName::parse(OFFER).unwrap(),
        args: Default::default(),
        call_id: toolyard_protocol::CallId::from_uuid(uuid::Uuid::now_v7()),
        run_id: RunId::from_uuid(uuid::Uuid::now_v7()),
        timeout_ms: 1000,
    });
    let cluster = b.server.service.cluster().unwrap();
    let refused = cluster.ask::<serde_json::Value>(&a.owner(), &stranger, ask, PATIENCE).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
}

#[tokio::test]
async fn presence_lists_the_clients_of_all_nodes() {
    let (a, b) = two_nodes().await;
    let mut params = crate::harness::connect_params(&RW, &[]);
    params["client"]["mode"] = json!("cli");
    params["client"]["displayName"] = json!("at node a");
    let mut ws = a.server.open().await;
    assert_eq!(ws.connect(params).await["payload"]["type"], "hello-ok");
    let mut reader = b.server.client(&RW, &[]).await;
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let presence = reader.call("system-presence", json!({})).await;
        if presence["payload"].to_string().contains("at node a") {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "{presence}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_approver_at_another_node_is_asked_and_answers() {
    let (a, b) = two_nodes().await;
    let mut approver = b.server.client(&["operator.admin"], &["approvals"]).await;
    let mut caller = a.server.client(&RW, &[]).await;
    let ask = json!({"name": "bench_ask", "args": {}, "confirm": true});
    // Whether somebody can be asked is known once the other node has told; until then the call is refused at once.
    let id = loop {
        let id = caller.request("tools.invoke", ask.clone()).await;
        match tokio::time::timeout(Duration::from_secs(3), caller.response(&id)).await {
            Ok(refused) => assert_eq!(refused["payload"]["ok"], false, "{refused}"),
            Err(_) => break id,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let asked = approver.event("plugin.approval.requested").await["payload"].clone();
    let listed = approver.call("plugin.approval.list", json!({})).await;
    assert_eq!(listed["payload"][0]["id"], asked["id"], "{listed}");
    let answer = json!({"id": asked["id"], "decision": "allow-once"});
    assert_eq!(approver.call("approval.resolve", answer.clone()).await["payload"]["applied"], true);
    assert_eq!(caller.response(&id).await["payload"]["ok"], true);
    assert_eq!(approver.event("plugin.approval.resolved").await["payload"]["id"], asked["id"]);
    let mut second = a.server.client(&["operator.admin"], &["approvals"]).await;
    assert_eq!(second.call("approval.resolve", answer).await["payload"]["applied"], false);
}

#[tokio::test]
async fn a_revoked_device_is_disconnected_at_every_node() {
    let (a, b) = two_nodes().await;
    let signing = crate::devices::Signing::new(9);
    let (mut here, mut there) = (a.server.open().await, b.server.open().await);
    for ws in [&mut here, &mut there] {
        let hello = crate::devices::connect(ws, &signing, TOKEN, &["operator.read"]).await;
        assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    }
    // Both nodes have looked at the store before.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut operator = a.server.client(&["operator.admin", "operator.pairing"], &[]).await;
    let removed = operator.call("device.pair.remove", json!({"deviceId": signing.id()})).await;
    assert_eq!(removed["ok"], true, "{removed}");
    assert_eq!(here.until_closed(PATIENCE).await.0, 1008);
    assert_eq!(there.until_closed(PATIENCE).await.0, 1008);
}

/// A session of Claude Code at a node: its operator and its plugin.
async fn claude_at(node: &Node) -> (crate::harness::Ws, crate::harness::Ws, String) {
    let mut operator = node.server.client(&["operator.read", "operator.write", "operator.approvals"], &[]).await;
    let opened = operator.call("bridge.open", json!({"sessionKey": "claude"})).await;
    assert_eq!(opened["ok"], true, "{opened}");
    let token = opened["payload"]["env"]["SYNTHESIS_BRIDGE_TOKEN"].as_str().unwrap().to_owned();
    let (plugin, _) = crate::bridge::join(&node.server, &token).await;
    (operator, plugin, token)
}

fn message(content: &str) -> serde_json::Value {
    json!({"sessionKey": "claude", "content": content})
}

#[tokio::test]
async fn a_message_at_one_node_reaches_the_plugin_at_another_and_its_answer_is_told_everywhere() {
    let (a, b) = two_nodes().await;
    let (_operator, mut plugin, _) = claude_at(&a).await;
    let mut other = b.server.client(&RW, &[]).await;
    let sent = other.call("bridge.inbound", message("by rpc")).await;
    assert_eq!(sent["payload"]["outcome"], "sent", "{sent}");
    assert_eq!(plugin.frame().await.unwrap()["content"], "by rpc");
    let bearer = format!("POST /bridge/inbound HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    let (status, body) = b.server.http(&bearer, &message("by http").to_string()).await;
    assert!(status == 200 && body.contains("\"sent\""), "{status} {body}");
    assert_eq!(plugin.frame().await.unwrap()["content"], "by http");
    let answer =
        json!({"type": "outbound_message", "call_id": "m1", "chat_id": "c1", "text": "hello there", "files": []});
    plugin.send(answer.to_string()).await;
    let told = other.event("bridge.outbound").await;
    assert_eq!(told["payload"]["text"], "hello there", "{told}");
    let listed = other.call("bridge.outbound", json!({"sessionKey": "claude"})).await;
    assert_eq!(listed["payload"]["messages"][0]["text"], "hello there", "{listed}");
    // A client without the scope does not get it through another node either.
    let reply = json!({"sessionKey": "claude", "requestId": "abcde", "behavior": "allow"});
    let refused = other.call("bridge.permission.reply", reply).await;
    assert_eq!(refused["ok"], false, "{refused}");
}

#[tokio::test]
async fn a_plugin_that_reconnects_to_another_node_brings_its_session_along() {
    let (a, b) = two_nodes().await;
    let (mut operator, mut plugin, token) = claude_at(&a).await;
    let mut stranger = b.server.open_with("/bridge", &[]).await.unwrap();
    stranger.send(crate::bridge::hello("wrong")).await;
    assert_eq!(stranger.until_closed(PATIENCE).await.0, 4001);
    let (mut moved, _) = crate::bridge::join(&b.server, &token).await;
    assert_eq!(plugin.until_closed(PATIENCE).await.0, 1001, "the first node lets go of it");
    let sent = operator.call("bridge.inbound", message("after the move")).await;
    assert_eq!(sent["payload"]["outcome"], "sent", "{sent}");
    assert_eq!(moved.frame().await.unwrap()["content"], "after the move");
}

#[tokio::test]
async fn the_session_of_a_lost_node_is_taken_over_with_its_messages() {
    let (a, b) = two_nodes().await;
    let (mut operator, plugin, token) = claude_at(&a).await;
    drop(plugin);
    let mut buffered = operator.call("bridge.inbound", message("waiting")).await;
    while buffered["payload"]["outcome"] != "buffered" {
        buffered = operator.call("bridge.inbound", message("waiting")).await;
    }
    b.store.fence(&a.owner()).unwrap();
    let (mut moved, _) = crate::bridge::join(&b.server, &token).await;
    assert_eq!(moved.frame().await.unwrap()["content"], "waiting");
    let mut other = b.server.client(&RW, &[]).await;
    let sent = other.call("bridge.inbound", message("more")).await;
    assert_eq!(sent["ok"], true, "{sent}");
}

#[tokio::test]
async fn nodes_with_other_policies_are_named() {
    let (a, b) = two_nodes().await;
    let differing = || b.server.service.cluster().unwrap().differing();
    until(|| a.server.engine.store().list("nodeClients").unwrap().len() == 2).await;
    assert_eq!(differing(), []);
    let config = toolyard_catalog::PolicyConfig { deny: vec!["bench_echo".into()], ..Default::default() };
    a.server.engine.set_policy(toolyard_catalog::Policy::compile(&config).unwrap());
    until(|| !differing().is_empty()).await;
    assert_eq!((differing()[0].node.as_str(), differing()[0].differs.as_slice()), ("a", &["policy".to_owned()][..]));
}
