//! Standard input and output.

use crate::harness::{Lab, entry, meta};
use serde_json::{Value, json};

#[tokio::test]
async fn every_revision_lists_and_calls() {
    let lab = Lab::new();
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut wire = lab.opened(revision, json!({})).await;
        let tools = wire.ask("tools/list", json!({})).await;
        let names: Vec<&str> =
            tools["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"test_echo") && !names.contains(&"test_denied"), "{names:?}");
        assert!(tools["result"].get("resultType").is_none(), "only the newest revision has it");
        for name in ["test_echo", "test.echo"] {
            let called = wire.ask("tools/call", json!({"name": name, "arguments": {"text": "hi"}})).await;
            assert_eq!(called["result"]["structuredContent"], json!({"said": "hi"}), "{called}");
            assert_eq!(called["result"]["content"][0]["type"], "text");
        }
        wire.close().await;
    }
    let mut wire = lab.stdio();
    let found = wire.ask("server/discover", json!({"_meta": meta(json!({}))})).await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28", "2025-11-25", "2025-06-18"]));
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "toolyard");
    let tools = wire.ask("tools/list", json!({"_meta": meta(json!({}))})).await;
    assert_eq!(tools["result"]["resultType"], "complete");
    assert_eq!(tools["result"]["cacheScope"], "private");
    let called = wire
        .ask("tools/call", json!({"_meta": meta(json!({})), "name": "test_echo", "arguments": {"text": "x"}}))
        .await;
    assert_eq!(called["result"]["structuredContent"]["said"], "x");
    assert_eq!(called["result"]["resultType"], "complete");
}

#[tokio::test]
async fn tools_say_what_they_are() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    let tools = wire.ask("tools/list", json!({})).await;
    let tool =
        |name: &str| tools["result"]["tools"].as_array().unwrap().iter().find(|t| t["name"] == name).unwrap().clone();
    let echo = tool("test_echo");
    assert_eq!(echo["annotations"]["readOnlyHint"], true);
    assert_eq!(echo["outputSchema"]["required"], json!(["said"]));
    assert_eq!(tool("test_write")["annotations"]["destructiveHint"], true);
}

#[tokio::test]
async fn what_comes_before_the_handshake_or_is_no_message_is_answered_with_an_error() {
    let lab = Lab::new();
    let mut wire = lab.stdio();
    let early = wire.ask("tools/list", json!({})).await;
    assert_eq!(early["error"]["code"], -32600);
    assert_eq!(wire.ask("ping", json!({})).await["result"], json!({}));
    assert_eq!(wire.ask("server/discover", json!({})).await["error"]["code"], -32601, "a probe falls back");
    for (line, code) in [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600)] {
        wire.raw(line).await;
        assert_eq!(wire.read().await["error"]["code"], code, "{line}");
    }
    let unsupported = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01",
        "io.modelcontextprotocol/clientCapabilities": {}}});
    let refused = wire.ask("tools/list", unsupported).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["requested"], "2031-01-01");
    let bare = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    assert_eq!(wire.ask("tools/list", bare).await["error"]["code"], -32602);
}

#[tokio::test]
async fn failures_are_results_and_unknown_tools_are_errors() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    let failed = wire.ask("tools/call", json!({"name": "test_fail"})).await;
    assert_eq!(failed["result"]["isError"], true);
    assert_eq!(failed["result"]["_meta"]["dev.toolyard/error"]["code"], "CONFLICT");
    let wrong = wire.ask("tools/call", json!({"name": "test_echo", "arguments": {"text": 5}})).await;
    assert_eq!(wrong["result"]["isError"], true);
    assert!(wrong["result"]["content"][0]["text"].as_str().unwrap().starts_with("VALIDATION_ERROR"), "{wrong}");
    for name in ["test_nothing", "test_denied"] {
        let unknown = wire.ask("tools/call", json!({"name": name})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        assert_eq!(unknown["error"]["message"], format!("Unknown tool: {name}"));
    }
    assert_eq!(wire.ask("tools/call", json!({"name": "test_echo", "arguments": []})).await["error"]["code"], -32602);
    assert_eq!(wire.ask("no/such", json!({})).await["error"]["code"], -32601);
    assert_eq!(wire.ask("tools/list", json!({"cursor": "@@"})).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_request_can_be_taken_back_and_the_rest_goes_on() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    let id = wire.begin("tools/call", json!({"name": "test_forever"})).await;
    let meanwhile = wire.ask("tools/call", json!({"name": "test_echo", "arguments": {"text": "a"}})).await;
    assert_eq!(meanwhile["result"]["structuredContent"]["said"], "a");
    wire.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    while !lab.engine.active_runs().is_empty() {
        tokio::task::yield_now().await;
    }
    let after = wire.ask("ping", json!({})).await;
    assert_eq!(after["result"], json!({}));
    assert!(wire.others.iter().all(|m| m["id"] != id), "no answer to what was taken back: {:?}", wire.others);
}

#[tokio::test]
async fn progress_is_told_before_the_result() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    let called = wire.ask("tools/call", json!({"name": "test_steps", "_meta": {"progressToken": "p"}})).await;
    assert!(called["result"]["isError"].is_null(), "{called}");
    let told: Vec<&Value> = wire.others.iter().filter(|m| m["method"] == "notifications/progress").collect();
    let steps: Vec<i64> = told.iter().map(|m| m["params"]["progress"].as_i64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3]);
    assert!(told.iter().all(|m| m["params"]["progressToken"] == "p" && m["params"]["total"] == 3));
}

#[tokio::test]
async fn a_question_goes_to_the_client_that_called() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({"elicitation": {}})).await;
    let id = wire.begin("tools/call", json!({"name": "test_ask"})).await;
    let question = wire.heard("elicitation/create").await;
    assert_eq!(question["params"]["message"], "Your name?");
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    wire.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": answer})).await;
    let called = wire.answer(id).await;
    assert_eq!(called["result"]["structuredContent"]["answer"]["content"]["name"], "Ada");
    let mut mute = lab.opened("2025-11-25", json!({})).await;
    let refused = mute.ask("tools/call", json!({"name": "test_ask"})).await;
    assert_eq!(refused["result"]["isError"], true);
    assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("cannot answer"), "{refused}");
}

#[tokio::test]
async fn without_a_handshake_a_question_ends_the_request_and_the_next_one_answers_it() {
    let lab = Lab::new();
    let mut wire = lab.stdio();
    let meta = meta(json!({"elicitation": {}}));
    let first = wire.ask("tools/call", json!({"_meta": meta, "name": "test_ask"})).await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let requests = first["result"]["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    let state = first["result"]["requestState"].clone();
    let other = json!({"_meta": meta, "name": "test_ask", "arguments": {"x": 1}, "requestState": state});
    assert_eq!(wire.ask("tools/call", other).await["error"]["code"], -32602, "a state belongs to its request");
    let incomplete = json!({"_meta": meta, "name": "test_ask", "requestState": state, "inputResponses": {}});
    let again = wire.ask("tools/call", incomplete).await;
    assert_eq!(again["result"]["resultType"], "input_required", "asked again: {again}");
    let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}, "unknown": {"a": 1}});
    let whole = json!({"_meta": meta, "name": "test_ask", "requestState": again["result"]["requestState"], "inputResponses": answers});
    let done = wire.ask("tools/call", whole.clone()).await;
    assert_eq!(done["result"]["structuredContent"]["answer"]["content"]["name"], "Ada", "{done}");
    assert_eq!(wire.ask("tools/call", whole).await["error"]["code"], -32602, "a state is used once");
    let malformed = json!({"_meta": meta, "name": "test_ask", "inputResponses": {key: 5}});
    assert_eq!(wire.ask("tools/call", malformed).await["error"]["code"], -32602);
}

#[tokio::test]
async fn changes_are_told_in_both_eras() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    let mut stateless = lab.stdio();
    let listen = json!({"_meta": meta(json!({})), "notifications": {"toolsListChanged": true}});
    let id = stateless.begin("subscriptions/listen", listen).await;
    let acknowledged = stateless.heard("notifications/subscriptions/acknowledged").await;
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
    let provider = std::sync::Arc::new(crate::harness::TestTools { asks: Default::default() });
    lab.engine.register(vec![entry("test.new", "read-only", &json!({"type": "object"}), None)], provider).unwrap();
    wire.heard("notifications/tools/list_changed").await;
    let told = stateless.heard("notifications/tools/list_changed").await;
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    let tools = wire.ask("tools/list", json!({})).await;
    assert!(tools.to_string().contains("test_new"));
    stateless.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    assert_eq!(stateless.answer(id).await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn skills_are_prompts() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-06-18", json!({})).await;
    let prompts = wire.ask("prompts/list", json!({})).await;
    assert_eq!(prompts["result"]["prompts"][0]["name"], "review");
    let got = wire.ask("prompts/get", json!({"name": "review", "arguments": {"arguments": "May"}})).await;
    let text = got["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("Review May now."), "{text}");
    assert!(text.contains(lab.skills.path().to_str().unwrap()));
    assert_eq!(wire.ask("prompts/get", json!({"name": "nope"})).await["error"]["code"], -32602);
    let missing = wire.ask("resources/read", json!({"uri": "vault:///nope.md"})).await;
    assert_eq!(missing["error"]["code"], -32002, "{missing}");
}

#[tokio::test]
async fn hanging_up_stops_what_is_under_way() {
    let lab = Lab::new();
    let mut wire = lab.opened("2025-11-25", json!({})).await;
    wire.begin("tools/call", json!({"name": "test_forever"})).await;
    while lab.engine.active_runs().is_empty() {
        tokio::task::yield_now().await;
    }
    wire.close().await;
    assert!(lab.engine.active_runs().is_empty());
}
