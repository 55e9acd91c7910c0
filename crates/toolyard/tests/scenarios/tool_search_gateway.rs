//! Tool Search through a running gateway: a client over its WebSocket acts as the model's harness, and a fake plugin
//! provides the catalog. Both lanes of the specification's end-to-end check, and its table of failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use crate::tool_search::{Blocks, FIND_AND_CALL, PLUGIN, TestEngine, tool};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_client::{Client, Connect, Credential};
use toolyard_engine::{Caller, Subscription};
use toolyard_gateway::{Gateway, Settings, listen};
use toolyard_sandbox::ScriptRunner;
use toolyard_service::{ProcessInfo, Service};

const TOKEN: &str = "tool-search-e2e-token";
const EXPECTED: &str = "FAKE_PLUGIN_OK fake_plugin_tool_17 {\"marker\":\"qa\"}";

/// A gateway on a free port, and a connected client.
struct Lane {
    host: TestEngine,
    service: Service,
    client: Client,
    address: std::net::SocketAddr,
    stop: CancellationToken,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Lane {
    async fn open(count: usize, policy: Value, settings: Value) -> Self {
        Self::over(TestEngine::new(count, policy, settings)).await
    }

    async fn over(host: TestEngine) -> Self {
        let service = Service::new(host.engine.clone(), ProcessInfo::default());
        service.show_models(host.search.clone());
        let stop = CancellationToken::new();
        let gateway = Gateway::new(service.clone(), Settings::new(TOKEN), stop.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listen::serve(listener, gateway, stop.clone()));
        let connect = Connect {
            url: format!("ws://{address}"),
            ca_file: None,
            credential: Credential::Shared(TOKEN.to_owned()),
            identity: None,
            scopes: ["operator.read", "operator.write"].map(str::to_owned).to_vec(),
            mode: "cli".to_owned(),
            timeout: Duration::from_secs(120),
        };
        let mut client = Client::connect(&connect).await.unwrap();
        client.call("sessions.create", json!({"key": "agent:main:main"})).await.unwrap();
        Self { host, service, client, address, stop }
    }

    async fn invoke(&mut self, name: &str, args: Value) -> Value {
        let params = json!({"name": name, "args": args, "sessionKey": "main"});
        self.client.call("tools.invoke", params).await.unwrap()
    }

    /// What the harness would declare to the model: the answer, and the tools in it.
    async fn declared(&mut self) -> (Value, Vec<Value>) {
        let params = json!({"sessionKey": "main", "forModel": true});
        let answer = self.client.call("tools.effective", params).await.unwrap();
        let tools = groups(&answer);
        (answer, tools)
    }

    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn method(&self, method: &str, params: Value) -> Value {
        serde_json::from_str(self.service.call(Arc::new(Caller::cli("ann")), method, params, None).await.unwrap().get())
            .unwrap()
    }
}

fn groups(answer: &Value) -> Vec<Value> {
    let groups = answer["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["tools"].as_array().unwrap().clone()).collect()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["id"].as_str().unwrap()).collect()
}

#[toolyard_shows::shows(
    "001-1-02", "001-2-06", "001-4-01", "001-6-16", "001-7-01", "001-8-01", "001-8-04", "001-8-06", "001-8-08",
    "001-8-09", "001-9-01", "001-9-02", "001-9-03", "001-9-04", "001-9-05", "001-9-06"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_lanes_reach_the_same_tool_and_the_compact_one_declares_less() {
    for count in [36, 2_000] {
        let mut normal = Lane::open(count, json!({}), json!(false)).await;
        let (answer, direct) = normal.declared().await;
        assert_eq!(direct.len(), count + 1, "every tool of the plugin");
        assert!(direct.iter().all(|tool| tool["inputSchema"]["required"] == json!(["marker"])));
        assert_eq!(answer["toolSearch"]["mode"], "direct");
        let called = normal.invoke("fake_plugin_tool_17", json!({"marker": "qa"})).await;
        assert!(called["ok"] == true && called.to_string().contains("FAKE_PLUGIN_OK fake_plugin_tool_17"), "{called}");

        let mut compact = Lane::open(count, json!({}), json!(true)).await;
        let session = Some("agent:main:main".to_owned());
        let mut heard = compact.host.engine.bus().subscribe(Subscription { session, ..Subscription::default() });
        let (answer, declared) = compact.declared().await;
        assert_eq!(names(&declared), ["tool_search_code"]);
        let bytes = |tools: &[Value]| serde_json::to_string(tools).unwrap().len();
        assert!(bytes(&declared) < bytes(&direct), "{} < {}", bytes(&declared), bytes(&direct));
        assert_eq!(answer["toolSearch"]["catalogSize"], count + 1);
        let counted = &answer["toolSearch"]["bytes"];
        assert!(counted["shown"].as_u64() < counted["direct"].as_u64(), "{counted}");
        let called = compact.invoke("tool_search_code", json!({"code": FIND_AND_CALL})).await;
        assert_eq!(called["output"]["details"]["value"], EXPECTED, "{called}");

        // A person still sees the whole session.
        let everything = compact.client.call("tools.effective", json!({"sessionKey": "main"})).await.unwrap();
        assert!(groups(&everything).len() > count);

        // The session's record shows the call, what it called, and the telemetry.
        let runs = compact.method("runs.list", json!({"session": "agent:main:main"})).await;
        let run = runs["runs"][0]["runId"].clone();
        let shown = compact.method("runs.get", json!({"runId": run})).await;
        let tools: Vec<&str> = shown["calls"].as_array().unwrap().iter().map(|c| c["tool"].as_str().unwrap()).collect();
        assert_eq!(tools, ["tool_search_code", "fake_plugin_tool_17"]);
        let telemetry = &called["output"]["details"]["telemetry"];
        let counts = ["searchCount", "describeCount", "callCount"].map(|key| telemetry[key].as_u64().unwrap());
        assert_eq!(counts, [1, 1, 1]);
        assert_eq!(telemetry["finalCall"]["id"], format!("openclaw:{PLUGIN}:fake_plugin_tool_17"));
        assert_eq!(telemetry["finalCall"]["source"], "openclaw");

        // As messages: the parent's pair, then the pair of what it called.
        let told = compact.method("runs.transcript", json!({"runId": run})).await;
        let messages = told["messages"].as_array().unwrap();
        let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["assistant", "toolResult", "assistant", "toolResult"]);
        assert_eq!(messages[1]["toolName"], "tool_search_code");
        let nested = &messages[2]["content"][0];
        assert_eq!((&nested["name"], &nested["arguments"]), (&json!("fake_plugin_tool_17"), &json!({"marker": "qa"})));
        assert_eq!(messages[3]["toolCallId"], nested["id"]);
        assert_eq!((&messages[3]["isError"], &messages[3]["details"]["text"]), (&json!(false), &json!(EXPECTED)));

        // Subscribers of the session received events during the call; operators can read the totals.
        let events = std::iter::from_fn(|| heard.try_next());
        let told =
            events.map(|event| serde_json::to_value(&*event).unwrap()).find(|e| !e["payload"]["catalogSize"].is_null());
        let told = told.expect("progress with telemetry")["payload"].clone();
        assert_eq!((&told["callCount"], &told["catalogSize"]), (&json!(1), &json!(count + 1)));
        let metrics = compact.get("/metrics").await;
        for line in ["searches_total 1", "describes_total 1", "calls_total 1", "scripts_total 1"] {
            assert!(metrics.contains(&format!("\ntoolyard_tool_search_{line}\n")), "{line}: {metrics}");
        }
        assert!(metrics.contains(&format!("\ntoolyard_tool_search_catalog_tools {}\n", count + 1)));
    }
}

#[toolyard_shows::shows("001-3-05", "001-3-09")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_mode_lists_names_and_hydrates_what_the_turn_needs() {
    let mut lane = Lane::open(36, json!({}), json!({"mode": "directory"})).await;
    let params = json!({
        "sessionKey": "main", "forModel": true, "prompt": "write the quarterly report", "contextTokens": 200_000,
        "requiredTools": ["fake_plugin_tool_03"],
    });
    let answer = lane.client.call("tools.effective", params).await.unwrap();
    let tools = groups(&answer);
    let names = names(&tools);
    for name in ["tool_search", "tool_describe", "tool_call", "fake_plugin_tool_03", "write_report"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(names.len() <= 3 + 4, "{names:?}");
    let directory = answer["toolSearch"]["directory"].as_str().unwrap();
    assert!(directory.contains("- fake_plugin_tool_17 ("), "{directory}");
    // A name that is only listed can be called outright.
    let called = lane.invoke("fake_plugin_tool_17", json!({"marker": "qa"})).await;
    assert_eq!(called["output"]["details"]["text"], EXPECTED, "{called}");
}

#[toolyard_shows::shows("001-2-04")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_own_tools_are_found_in_its_session_only() {
    let offer = json!({"sessionKey": "main", "tools": [{"name": "pick_colour", "description": "Asks for a colour."}]});
    let search = |session: &str| json!({"name": "tool_search", "args": {"query": "colour"}, "sessionKey": session});
    // In tools mode it is one of those that are found,
    let mut lane = Lane::open(36, json!({}), json!({"mode": "tools"})).await;
    lane.client.call("sessions.create", json!({"key": "agent:main:other"})).await.unwrap();
    let before = lane.declared().await.0["toolSearch"]["catalogSize"].as_u64().unwrap();
    lane.client.call("tools.offer", offer.clone()).await.unwrap();
    let (answer, tools) = lane.declared().await;
    assert_eq!(answer["toolSearch"]["catalogSize"], before + 1);
    assert!(!names(&tools).contains(&"pick_colour"), "hidden behind the search: {tools:?}");
    let found = lane.client.call("tools.invoke", search("main")).await.unwrap();
    assert_eq!(found["output"]["details"]["tools"][0]["id"], "client:client:pick_colour", "{found}");
    assert_eq!(found["output"]["details"]["tools"][0]["source"], "client");
    let elsewhere = lane.client.call("tools.invoke", search("agent:main:other")).await.unwrap();
    assert!(!elsewhere.to_string().contains("pick_colour"), "{elsewhere}");
    // in directory mode one of those that stay visible.
    let mut lane = Lane::open(36, json!({}), json!({"mode": "directory"})).await;
    lane.client.call("tools.offer", offer).await.unwrap();
    let (answer, tools) = lane.declared().await;
    assert!(names(&tools).contains(&"pick_colour"), "{tools:?}");
    assert!(!answer["toolSearch"]["directory"].to_string().contains("pick_colour"), "its words are not the prompt's");
}

#[toolyard_shows::shows("001-5-08")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_name_that_is_taken_is_refused_when_it_is_offered_in_every_mode() {
    for settings in [json!(false), json!(true), json!({"mode": "tools"}), json!({"mode": "directory"})] {
        let mut lane = Lane::open(36, json!({}), settings.clone()).await;
        for names in [&["Fake_Plugin_Tool_17"][..], &["fake.plugin.tool.17", "mine"], &["tool_call"], &["a.b", "a_b"]] {
            let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            let refused = lane.client.call("tools.offer", json!({"sessionKey": "main", "tools": tools})).await;
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(&format!("client tool name conflict: {}", names[0])), "{settings}: {refused}");
            assert!(!refused.contains("mine"), "only what is taken is named: {refused}");
        }
        let offer = json!({"sessionKey": "main", "tools": [{"name": "mine"}, {"name": "mine.too"}]});
        lane.client.call("tools.offer", offer.clone()).await.unwrap();
        lane.client.call("tools.offer", offer).await.unwrap();
        // A plugin that brings the name later breaks no list.
        let late = ToolEntry::new(tool("mine", "Of a plugin.", false), ToolSource::plugin("late")).unwrap();
        lane.host.engine.register(vec![late], lane.host.fake.clone()).unwrap();
        let (_, shown) = lane.declared().await;
        assert!(!shown.is_empty(), "{settings}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runs_record_says_what_the_model_saw_and_what_it_did() {
    let id = format!("openclaw:{PLUGIN}:fake_plugin_tool_17");
    for (settings, mode, schemas) in [
        (json!(true), "code", 1),
        (json!({"mode": "tools"}), "tools", 3),
        (json!({"mode": "directory"}), "directory", 3),
    ] {
        let mut lane = Lane::open(36, json!({}), settings).await;
        let (shown, _) = lane.declared().await;
        if mode == "code" {
            lane.invoke("tool_search_code", json!({"code": FIND_AND_CALL})).await;
        } else {
            lane.invoke("tool_search", json!({"query": "fake_plugin_tool_17", "limit": 1})).await;
            lane.invoke("tool_describe", json!({"id": id})).await;
            lane.invoke("tool_call", json!({"id": id, "args": {"marker": "qa"}})).await;
        }
        let runs = lane.method("runs.list", json!({"session": "agent:main:main"})).await;
        let mut counts = [0, 0, 0];
        for run in runs["runs"].as_array().unwrap() {
            let params = json!({"runId": run["runId"]});
            let events = lane.client.call("runs.events", params).await.unwrap()["events"].clone();
            let kept = events.as_array().unwrap().iter().find(|event| event["message"] == "tool search");
            let telemetry = &kept.unwrap_or_else(|| panic!("no telemetry in {events}"))["payload"];
            assert_eq!((&telemetry["mode"], &telemetry["schemasShown"]), (&json!(mode), &json!(schemas)));
            assert_eq!(telemetry["catalogSize"], 37);
            assert_eq!(telemetry["sources"], json!({"openclaw": 37, "mcp": 0, "client": 0}));
            assert_eq!(telemetry["bytes"]["compact"], shown["toolSearch"]["bytes"]["shown"]);
            assert_eq!(telemetry["bytes"]["direct"], shown["toolSearch"]["bytes"]["direct"]);
            for (count, key) in counts.iter_mut().zip(["searchCount", "describeCount", "callCount"]) {
                *count += telemetry[key].as_u64().unwrap();
            }
            if telemetry["callCount"] == 1 {
                assert_eq!(telemetry["selected"], json!([{"id": id, "source": "openclaw"}]));
                assert_eq!((&telemetry["finalCall"]["id"], &telemetry["finalCall"]["ok"]), (&json!(id), &json!(true)));
            }
        }
        assert_eq!(counts, [1, 1, 1], "{mode}");
    }
}

#[toolyard_shows::shows("001-10-02")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_1_a_tool_outside_the_policy_is_never_returned() {
    let mut lane = Lane::open(36, json!({"deny": ["fake_plugin_tool_17"]}), json!({"mode": "tools"})).await;
    let found = lane.invoke("tool_search", json!({"query": "fake_plugin_tool_17", "limit": 20})).await;
    assert!(found["ok"] == true && !found.to_string().contains("fake_plugin_tool_17\""), "{found}");
    let called = lane.invoke("tool_call", json!({"id": "fake_plugin_tool_17", "args": {"marker": "x"}})).await;
    assert_eq!((&called["ok"], &called["error"]["code"]), (&json!(false), &json!("not_found")), "{called}");
}

#[toolyard_shows::shows("001-10-03")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_2_a_tool_that_has_gone_fails() {
    let mut lane = Lane::open(36, json!({}), json!({"mode": "tools"})).await;
    let found = lane.invoke("tool_search", json!({"query": "fake_plugin_tool_05", "limit": 1})).await;
    let id = found["output"]["details"]["tools"][0]["id"].as_str().unwrap().to_owned();
    lane.host.engine.unregister(&ToolSource::plugin(PLUGIN));
    let called = lane.invoke("tool_call", json!({"id": id, "args": {"marker": "x"}})).await;
    assert_eq!((&called["ok"], &called["error"]["code"]), (&json!(false), &json!("not_found")), "{called}");
}

#[toolyard_shows::shows("001-10-04")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_3_a_block_is_reported_and_not_bypassed() {
    let mut lane = Lane::open(36, json!({}), json!(true)).await;
    lane.host.engine.add_hook(Arc::new(Blocks));
    let called = lane.invoke("tool_call", json!({"id": "fake_plugin_tool_01", "args": {"marker": "blocked"}})).await;
    assert_eq!((&called["ok"], &called["error"]["message"]), (&json!(false), &json!("not this marker")), "{called}");
    // If nobody can be asked, a call that needs approval is not made either.
    let script = "try { await openclaw.tools.call('write_report', {marker: 'x'}) } catch (e) { return e.code }";
    let asked = lane.invoke("tool_search_code", json!({"code": script})).await;
    assert_eq!(asked["output"]["details"]["value"], "CONFIRMATION_REQUIRED", "{asked}");
    assert_eq!(lane.host.fake.calls.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[toolyard_shows::shows("001-10-05")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_4_without_isolation_models_get_the_three_tools_and_operators_a_notice() {
    let runner = ScriptRunner::with_program("/bin/false");
    let mut lane = Lane::over(TestEngine::with_runner(36, json!({}), json!(true), runner)).await;
    let (answer, declared) = lane.declared().await;
    assert_eq!(names(&declared), ["tool_search", "tool_describe", "tool_call"]);
    assert_eq!(answer["toolSearch"]["mode"], "tools");
    assert!(answer["notices"][0]["message"].as_str().unwrap().contains("tools mode"), "{answer}");
    let refused = lane.invoke("tool_search_code", json!({"code": "return 1"})).await;
    assert_eq!(refused["ok"], false, "nothing runs unconfined: {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_a_model_is_bounded_and_its_answer_fits() {
    let mut lane = Lane::open(2_000, json!({}), json!({"mode": "tools"})).await;
    let queries: Vec<Value> = (1..=16).map(|n| json!(format!("fixture number {n}"))).collect();
    let found = lane.invoke("tool_search", json!({"queries": queries})).await;
    let details = &found["output"]["details"];
    let results = details["results"].as_array().unwrap();
    assert_eq!(results.len(), 16);
    assert!(results.iter().all(|result| !result["candidates"].as_array().unwrap().is_empty()), "each has an answer");
    assert_eq!(details["truncated"], true);
    let chars = results.iter().map(|result| result.to_string().chars().count() + 1).sum::<usize>();
    assert!(chars <= 4_000, "{chars}");
    let long = lane.invoke("tool_search", json!({"queries": ["x".repeat(300), "y".repeat(300)]})).await;
    assert!(long["error"]["message"].as_str().unwrap().contains("at most 512"), "{long}");
    let few = lane.invoke("tool_search", json!({"queries": [{"query": "quarterly report", "limit": 2}]})).await;
    let first = &few["output"]["details"]["results"][0]["candidates"][0];
    assert!(
        first["description"].is_string() && first["input"].is_string(),
        "nothing is cut where there is room: {few}"
    );
}
