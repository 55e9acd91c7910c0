//! No caller exceeds its rights: consent, and devices.

use crate::{
    bench_tools,
    devices::{Signing, connect},
    harness::{Server, TOKEN, Ws, connect_params},
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};
use toolyard_catalog::{Policy, PolicyConfig};
use toolyard_engine::{
    Caller, Door, Engine, EngineOptions, EngineParts, Store,
    approvals::ApprovalDecision,
    authority,
    chain::Signer,
    memory_store::MemoryStore,
    plan::{Consent, PlanRequest},
    system_clock,
};
use toolyard_gateway::Settings;
use toolyard_protocol::RunId;
use toolyard_service::{Entry, Role};

fn missing(answer: &Value) -> (&str, &str) {
    let error = &answer["error"];
    (error["code"].as_str().unwrap_or_default(), error["message"].as_str().unwrap_or_default())
}

/// A plan with side effects that an agent began, nobody approved, and whose process has died.
async fn unapproved_run(store: &Arc<MemoryStore>) -> RunId {
    let gone = Arc::new(store.another());
    let engine = Engine::new(EngineParts {
        store: gone.clone(),
        signer: Signer::from_secret("test", &[1; 32]),
        policy: Policy::compile(&PolicyConfig { deny: vec!["bench_denied".into()], ..PolicyConfig::default() })
            .unwrap(),
        clock: system_clock(),
        options: EngineOptions::default(),
    });
    bench_tools::register(&engine);
    bench_tools::register_write(&engine);
    let plan = serde_json::from_value(json!({
        "version": "1.0", "goal": "write", "riskLevel": "writes",
        "steps": [{"id": "w", "tool": "bench_write", "args": {}}],
    }))
    .unwrap();
    let agent = Caller { door: Door::Gateway, is_person: false, ..Caller::cli("agent") };
    let request = PlanRequest { consent: Consent::Ask, ..PlanRequest::default() };
    let run_id = engine.start_plan(Arc::new(agent), &plan, request, HashMap::new()).await.unwrap().run_id();
    store.fence(&gone.owner()).unwrap();
    run_id
}

#[tokio::test]
async fn row_5_a_plan_is_approved_and_settled_with_the_scope_for_it_alone() {
    let store = Arc::new(MemoryStore::new());
    let run = unapproved_run(&store).await;
    let server = Server::start_on(store, Settings::new(TOKEN)).await;
    bench_tools::register_write(&server.engine);
    for scopes in [&["operator.write"][..], &["operator.read", "operator.write", "operator.pairing"]] {
        let mut agent = server.client(scopes, &[]).await;
        for params in [
            json!({"runId": run, "approve": true}),
            json!({"runId": run, "settle": "assume-done"}),
            json!({"runId": run, "settle": "rerun", "approve": true}),
        ] {
            let answer = agent.call("runs.resume", params.clone()).await;
            assert_eq!(missing(&answer), ("FORBIDDEN", "missing scope: operator.approvals"), "{params} {answer}");
            assert_eq!(answer["error"]["details"]["code"], "MISSING_SCOPE");
        }
        let plain = agent.call("runs.resume", json!({"runId": run})).await;
        assert_eq!(plain["error"]["details"]["code"], "CONFIRMATION_REQUIRED", "{plain}");
    }
    let mut approver = server.client(&["operator.write", "operator.approvals"], &[]).await;
    let answer = approver.call("runs.resume", json!({"runId": run, "approve": true})).await;
    assert_eq!(answer["payload"]["status"], "finished", "{answer}");
}

/// A device on another machine that waits for approval; returns the id of its request.
async fn waiting(server: &Server, seed: u8, scopes: &[&str]) -> (Signing, String) {
    let signing = Signing::new(seed);
    let mut ws = far(server).await;
    let answer = connect(&mut ws, &signing, TOKEN, scopes).await;
    let request = answer["error"]["details"]["requestId"].as_str();
    (signing, request.unwrap_or_else(|| panic!("{answer}")).to_owned())
}

async fn far(server: &Server) -> Ws {
    server.open_with("/", &[("x-forwarded-for", "203.0.113.9")]).await.unwrap()
}

async fn behind_a_proxy() -> Server {
    Server::start_with(Settings { trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..Settings::new(TOKEN) }).await
}

const PAIRING: [&str; 2] = ["operator.pairing", "operator.write"];

#[tokio::test]
async fn row_6_a_request_is_named_by_its_id_alone_and_gets_no_more_than_the_approver_has() {
    let server = behind_a_proxy().await;
    let (device, request) = waiting(&server, 21, &["operator.admin"]).await;
    let mut pairing = server.client(&PAIRING, &[]).await;
    for name in [request.as_str(), &device.id(), &device.id()[..8], &device.id()[..32]] {
        for method in ["device.pair.approve", "device.pair.reject"] {
            let answer = pairing.call(method, json!({"requestId": name})).await;
            assert_eq!(answer["ok"], false, "{method} {name}: {answer}");
        }
    }
    let answer = pairing.call("device.pair.approve", json!({"requestId": request})).await;
    assert_eq!(missing(&answer), ("FORBIDDEN", "missing scope: operator.admin"));
    let mut owner = server.client(&["operator.admin"], &[]).await;
    let listed = owner.call("device.pair.list", json!({})).await;
    assert_eq!(listed["payload"]["paired"], json!([]), "{listed}");
    assert_eq!(listed["payload"]["pending"].as_array().map(Vec::len), Some(1), "the request still waits");
    assert_eq!(owner.call("device.pair.approve", json!({"requestId": request})).await["ok"], true);
    let (_, other) = waiting(&server, 22, &["operator.read"]).await;
    let answer = pairing.call("device.pair.approve", json!({"requestId": other})).await;
    assert_eq!(answer["ok"], true, "what the approver has, it may give: {answer}");
}

#[tokio::test]
async fn row_6_a_device_with_more_is_not_removed_rotated_or_narrowed() {
    let server = behind_a_proxy().await;
    let (admin, request) = waiting(&server, 23, &["operator.admin"]).await;
    let mut owner = server.client(&["operator.admin"], &[]).await;
    owner.call("device.pair.approve", json!({"requestId": request})).await;
    let hello = connect(&mut far(&server).await, &admin, TOKEN, &["operator.admin"]).await;
    let token = hello["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
    let (other, request) = waiting(&server, 24, &PAIRING).await;
    owner.call("device.pair.approve", json!({"requestId": request})).await;
    let mut by_device = far(&server).await;
    assert_eq!(connect(&mut by_device, &other, TOKEN, &PAIRING).await["ok"], true);
    let by_token = server.client(&PAIRING, &[]).await;
    for mut caller in [by_device, by_token] {
        for (method, params) in [
            ("device.pair.remove", json!({"deviceId": admin.id()})),
            ("device.pair.remove", json!({"deviceId": &admin.id()[..16]})),
            ("device.token.rotate", json!({"deviceId": admin.id(), "role": "operator"})),
            ("device.token.rotate", json!({"deviceId": admin.id(), "role": "operator", "scopes": ["operator.write"]})),
            ("device.token.rotate", json!({"deviceId": admin.id(), "role": "operator", "scopes": []})),
            ("device.token.revoke", json!({"deviceId": admin.id(), "role": "operator"})),
        ] {
            let answer = caller.call(method, params.clone()).await;
            assert_eq!(answer["ok"], false, "{method} {params}: {answer}");
        }
    }
    let again = connect(&mut far(&server).await, &admin, &token, &["operator.admin"]).await;
    assert_eq!(again["ok"], true, "its token is what it was: {again}");
    let mut itself = far(&server).await;
    assert_eq!(connect(&mut itself, &other, TOKEN, &PAIRING).await["ok"], true);
    let left = itself.call("device.pair.remove", json!({"deviceId": other.id()})).await;
    assert_eq!(left["ok"], true, "a device may give itself up: {left}");
}

/// The sets of scopes that a credential is tried with.
const SETS: [&[&str]; 10] = [
    &[],
    &["operator.read"],
    &["operator.write"],
    &["operator.approvals"],
    &["operator.pairing"],
    &["operator.admin"],
    &["operator.read", "operator.write"],
    &["operator.write", "operator.pairing"],
    &["operator.read", "operator.approvals"],
    &["operator.read", "operator.write", "operator.approvals", "operator.pairing"],
];

fn agent(scopes: &[&str]) -> Caller {
    let scopes = scopes.iter().map(|s| (*s).to_owned()).collect();
    Caller { door: Door::Gateway, scopes, is_person: false, ..Caller::cli("agent") }
}

#[tokio::test]
async fn every_method_with_every_scope_is_refused_or_answered_as_it_declares() {
    let server = Server::start().await;
    for scopes in SETS {
        let mut client = server.client(scopes, &[]).await;
        let undeclared = ["plans.approve", "plugins.grant", "no.such.method"].map(|name| (name, None));
        let methods = server.service.methods();
        let declared = methods.iter().map(|method| (method.name, Some(method)));
        for (name, method) in declared.chain(undeclared) {
            if method.is_some_and(|method| method.terms.role == Role::Node) {
                continue;
            }
            let answer = client.call(name, json!({})).await;
            let Some(known) = method.filter(|method| method.terms.is_on_gateway()) else {
                let said = answer["error"]["message"].as_str().unwrap_or_default();
                assert_eq!(said, format!("unknown method: {name}"), "whatever the scopes: {scopes:?}");
                continue;
            };
            match authority::decide(&agent(scopes), &known.terms.demand) {
                Err(refusal) => {
                    assert_eq!(missing(&answer), ("FORBIDDEN", refusal.message().as_str()), "{name} {scopes:?}");
                    assert_eq!(answer["error"]["details"], Value::Object(refusal.details()), "{name} {scopes:?}");
                }
                Ok(()) => {
                    let said = answer["error"]["message"].as_str().unwrap_or_default();
                    assert!(!said.starts_with("missing scope"), "{name} {scopes:?}: {answer}");
                    assert!(!said.starts_with("unknown method"), "{name} {scopes:?}: {answer}");
                }
            }
        }
    }
}

/// Requests that ask for a consent, with everything a caller could say for itself.
fn asks_for_consent(run: RunId) -> Vec<(&'static str, Value)> {
    let plan = json!({
        "version": "1.0", "goal": "write", "riskLevel": "writes",
        "steps": [{"id": "w", "tool": "bench_write", "args": {}}],
    });
    let consent = json!({"approved": true, "ask": false});
    vec![
        ("plans.run", json!({"plan": plan, "consent": consent})),
        ("plans.run", json!({"plan": plan, "consent": consent, "sessionKey": "agent:main:cli"})),
        ("plans.fork", json!({"runId": run, "from": "w", "consent": consent})),
        ("plans.undo", json!({"runId": run, "consent": consent})),
        ("runs.resume", json!({"runId": run, "approve": true})),
        ("runs.resume", json!({"runId": run, "settle": "rerun"})),
        ("approval.resolve", json!({"id": "policy:1", "decision": "allow-always"})),
        ("plugin.approval.resolve", json!({"id": "plugin:1", "decision": "allow-once"})),
        ("exec.approval.resolve", json!({"id": "1", "decision": "allow-once"})),
        ("bridge.permission.reply", json!({"sessionKey": "main", "request_id": "abcde", "behavior": "allow"})),
        ("tools.invoke", json!({"name": "bench_write", "sessionKey": "main", "args": {}, "confirm": true})),
        ("tools.invoke", json!({"name": "bench_write", "sessionKey": "main", "args": {}})),
    ]
}

#[tokio::test]
async fn no_credential_without_the_scope_for_it_comes_to_a_consent() {
    let store = Arc::new(MemoryStore::new());
    let run = unapproved_run(&store).await;
    let server = Server::start_on(store, Settings::new(TOKEN)).await;
    bench_tools::register_write(&server.engine);
    for scopes in SETS {
        if scopes.contains(&"operator.approvals") || scopes.contains(&"operator.admin") {
            continue;
        }
        let mut client = server.client(scopes, &[]).await;
        for (method, params) in asks_for_consent(run) {
            let answer = client.call(method, params.clone()).await;
            let done = answer["payload"]["status"] == "finished" || answer["payload"]["ok"] == true;
            assert!(!done, "{scopes:?} {method} {params}: {answer}");
        }
    }
    let allowed = server.engine.approvals().history(&toolyard_engine::Caller::cli("ada")).unwrap();
    let allowed = allowed.iter().filter(|a| a.decision.as_ref().is_some_and(|d| *d != ApprovalDecision::Deny));
    assert_eq!(allowed.count(), 0);
    let mut owner = server.client(&["operator.admin"], &[]).await;
    let shown = owner.call("runs.get", json!({"runId": run})).await;
    assert_eq!(shown["payload"]["calls"], json!([]), "the plan that nobody approved did not run: {shown}");
}

/// Whether the authority refused a request, rather than the method its parameters.
fn is_refusal<T>(answer: &Result<T, toolyard_protocol::Failure>) -> bool {
    let codes = ["MISSING_SCOPE", "PERSON_REQUIRED", "UNDECLARED_POWER", "HOST_PATH_DENIED"];
    let details = answer.as_ref().err().and_then(|failure| failure.details.as_ref());
    details.and_then(|d| d.get("code")).and_then(Value::as_str).is_some_and(|code| codes.contains(&code))
}

#[tokio::test]
async fn a_node_calls_the_methods_of_nodes_alone_and_nobody_else_calls_them() {
    let server = Server::start().await;
    let mut node = server.open().await;
    let mut params = connect_params(&[], &[]);
    (params["role"], params["client"]["mode"]) = ("node".into(), "node".into());
    assert_eq!(node.connect(params).await["ok"], true);
    let mut admin = server.client(&["operator.admin"], &[]).await;
    let of_nodes = |method: &&Entry| method.terms.role == Role::Node;
    let methods = server.service.methods();
    for method in methods.iter().filter(of_nodes) {
        assert_eq!(admin.call(method.name, json!({})).await["ok"], false, "{} by an operator", method.name);
    }
    for method in methods.iter().filter(|method| method.terms.is_on_gateway() && !of_nodes(method)) {
        // A connection is closed after some wrong calls; each method is tried on one that is new.
        let mut node = server.open().await;
        let mut params = connect_params(&["operator.admin"], &[]);
        (params["role"], params["client"]["mode"]) = ("node".into(), "node".into());
        node.connect(params).await;
        let answer = node.call(method.name, json!({})).await;
        let is_open = method.terms.demand.scope.is_none() && method.terms.demand.effect == authority::Effect::None;
        assert!(answer["ok"] == false || is_open, "{} by a node: {answer}", method.name);
    }
}

#[tokio::test]
async fn a_local_method_is_decided_by_the_same_table() {
    let server = Server::start().await;
    let service = &server.service;
    for method in service.methods().iter().filter(|method| method.terms.is_local()) {
        for scopes in SETS {
            let caller = agent(scopes);
            let answer = service.call(Arc::new(caller.clone()), method.name, json!({}), None).await;
            match authority::decide(&caller, &method.terms.demand) {
                Err(refusal) => {
                    let failure = answer.expect_err(method.name);
                    assert_eq!(failure.message, refusal.message(), "{} {scopes:?}", method.name);
                }
                Ok(()) => assert!(!is_refusal(&answer), "{} {scopes:?}: {answer:?}", method.name),
            }
        }
        // No request of the person at this machine is refused because of a missing scope.
        let answer = service.call(Arc::new(Caller::cli("ada")), method.name, json!({}), None).await;
        assert!(!is_refusal(&answer), "{}: {answer:?}", method.name);
        // A script that a person started has none of that person's powers, and neither has any other door of agents.
        for door in [Door::Http, Door::Mcp, Door::Bridge, Door::Script, Door::Internal] {
            let caller = Caller { door, is_person: false, ..Caller::cli("ada") };
            if authority::decide(&caller, &method.terms.demand).is_err() {
                let answer = service.call(Arc::new(caller), method.name, json!({}), None).await;
                assert!(is_refusal(&answer), "{} {door:?}: {answer:?}", method.name);
            }
        }
    }
    for name in ["tools.invoke", "approval.resolve", "device.pair.approve", "no.such.method"] {
        let answer = service.call(Arc::new(Caller::cli("ada")), name, json!({}), None).await;
        let message = answer.expect_err(name).message;
        assert!(message.starts_with("there is no method"), "{name} is not carried by this door: {message}");
    }
}
