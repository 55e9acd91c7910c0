//! Claude's end, line by line.

use crate::network::{identity, message};
use serde_json::{Value, json};
use toolyard_bridge::{
    frames::{self, FromServer},
    plugin::{Output, Plugin},
};

fn lines(out: &[Output]) -> Vec<Value> {
    out.iter()
        .filter_map(|o| if let Output::Line(l) = o { Some(serde_json::from_str(l).unwrap()) } else { None })
        .collect()
}
fn sent(out: &[Output]) -> Vec<Value> {
    out.iter()
        .filter_map(|o| if let Output::Frame(f) = o { Some(serde_json::from_str(f).unwrap()) } else { None })
        .collect()
}

fn request(plugin: &mut Plugin, id: u64, method: &str, params: Value) -> Vec<Output> {
    plugin.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(), 0)
}

/// The handshake of a client whose bridge does not answer at once.
fn initialize(plugin: &mut Plugin) -> Value {
    let out = request(plugin, 1, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    assert!(out.is_empty(), "the bridge is just being joined");
    let out = plugin.tick(5_000);
    plugin.line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 0);
    lines(&out).remove(0)
}

fn ack(tools: Value) -> String {
    json!({"type": "hello_ack", "tools": tools, "session_meta": {"heartbeat_ms": 30000}}).to_string()
}

fn ready() -> Plugin {
    let mut plugin = Plugin::new(identity(), 1);
    initialize(&mut plugin);
    plugin.up(0);
    plugin.frame(&ack(json!([{"name": "echo", "inputSchema": {"type": "object"}}])), 0);
    plugin
}

#[test]
fn it_says_that_it_is_a_channel() {
    let mut plugin = Plugin::new(identity(), 1);
    let hello = initialize(&mut plugin);
    let offered = &hello["result"]["capabilities"];
    assert_eq!(offered["experimental"], json!({"claude/channel": {}, "claude/channel/permission": {}}));
    assert!(offered["tools"].is_object() && hello["result"]["instructions"].as_str().unwrap().contains("reply"));
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    let unknown = lines(&request(&mut plugin, 2, "server/discover", json!({})));
    assert_eq!(unknown[0]["error"]["code"], -32601, "so that newer clients fall back to initialize");
    assert_eq!(lines(&request(&mut plugin, 3, "ping", json!({})))[0]["result"], json!({}));
    for (bad, code) in [("nonsense", -32700), ("[]", -32600), (r#"{"id":4}"#, -32600), (r#"{"jsonrpc":"2.0"}"#, -32600)]
    {
        assert_eq!(lines(&plugin.line(bad, 0))[0]["error"]["code"], code, "{bad}");
    }
    assert!(plugin.line("", 0).is_empty() && plugin.line(r#"{"id":1,"result":{}}"#, 0).is_empty());
}

#[toolyard_shows::shows("004-1-08")]
#[test]
fn its_hello_is_the_seeds() {
    let mut plugin = Plugin::new(identity(), 1);
    let hello = &sent(&plugin.up(0))[0];
    assert_eq!(
        (&hello["type"], &hello["openclaw_session"], &hello["claude_session"], &hello["pid"]),
        (&json!("hello"), &json!("agent:main:claude"), &json!("claude-1"), &json!(42))
    );
    assert!(hello["token"].is_string() && hello["acks"] == true);
}

#[test]
fn tools_are_those_of_the_bridge_and_its_own() {
    let mut plugin = Plugin::new(identity(), 1);
    initialize(&mut plugin);
    assert!(request(&mut plugin, 2, "tools/list", json!({})).is_empty(), "the bridge is just being joined");
    plugin.up(0);
    let out = plugin.frame(&ack(json!([{"name": "echo"}, {"name": "reply"}, {"name": "approve"}])), 0);
    let names = |list: &Value| -> Vec<String> {
        list["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&lines(&out)[0]), ["reply", "approve", "echo"]);
    let changed = plugin.frame(&json!({"type": "tools_changed", "tools": [{"name": "other"}]}).to_string(), 0);
    assert_eq!(lines(&changed)[0]["method"], "notifications/tools/list_changed");
    assert!(plugin.frame(&json!({"type": "tools_changed", "tools": [{"name": "other"}]}).to_string(), 0).is_empty());
    plugin.down(None, "gone");
    let down = request(&mut plugin, 3, "tools/list", json!({}));
    assert_eq!(names(&lines(&down)[0]), ["reply", "approve", "other"], "what was known stays listed");
    let mut alone = Plugin::new(identity(), 1);
    assert!(request(&mut alone, 1, "tools/list", json!({})).is_empty());
    assert_eq!(names(&lines(&alone.tick(6_000))[0]), ["reply", "approve"], "it does not wait for ever");
    let mut refused = Plugin::new(identity(), 1);
    request(&mut refused, 1, "tools/list", json!({}));
    assert_eq!(names(&lines(&refused.down(None, "refused"))[0]), ["reply", "approve"]);
    assert_eq!(lines(&request(&mut refused, 2, "tools/list", json!({}))).len(), 1);
}

#[toolyard_shows::shows("004-2-07")]
#[test]
fn a_message_is_told_once_and_then_confirmed() {
    let mut plugin = ready();
    let frame = frames::write(&FromServer::InboundMessage(message("m1")));
    let out = plugin.frame(&frame, 0);
    assert!(matches!((&out[0], &out[1]), (Output::Line(_), Output::Frame(_))), "first the line: {out:?}");
    let line = &lines(&out)[0];
    assert_eq!(line["method"], "notifications/claude/channel");
    assert_eq!(line["params"], json!({"content": "text of m1", "meta": {"chat_id": "c", "user_id": "u1"}}));
    assert_eq!(sent(&out), [json!({"type": "ack", "request_id": "m1"})]);
    plugin.down(None, "gone");
    plugin.up(0);
    let again = plugin.frame(&frame, 0);
    assert!(lines(&again).is_empty() && sent(&again).len() == 1, "told before: only confirmed");
}

#[test]
fn messages_wait_until_claude_code_is_ready() {
    let mut plugin = Plugin::new(identity(), 1);
    plugin.up(0);
    plugin.frame(&ack(json!([])), 0);
    let frame = frames::write(&FromServer::InboundMessage(message("m1")));
    assert!(plugin.frame(&frame, 0).is_empty());
    assert!(plugin.frame(&frame, 0).is_empty(), "neither told nor confirmed");
    let out = plugin.line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 0);
    assert_eq!((lines(&out).len(), sent(&out).len()), (1, 1));
}

#[toolyard_shows::shows("004-4-01")]
#[test]
fn calls_are_forwarded_and_failures_are_results() {
    let mut plugin = ready();
    let out = request(&mut plugin, 7, "tools/call", json!({"name": "echo", "arguments": {"a": 1}}));
    let call = &sent(&out)[0];
    assert_eq!((&call["type"], &call["tool"], &call["args"]), (&json!("tool_call"), &json!("echo"), &json!({"a": 1})));
    let done = json!({"type": "tool_result", "call_id": call["call_id"], "ok": true, "result": {"x": 1}}).to_string();
    let answer = &lines(&plugin.frame(&done, 0))[0];
    assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["x"]), (&json!(7), &json!(1)));
    assert!(plugin.frame(&done, 0).is_empty(), "one answer a call");
    let out = request(&mut plugin, 8, "tools/call", json!({"name": "echo"}));
    let failed = json!({"type": "tool_result", "call_id": sent(&out)[0]["call_id"], "ok": false, "error": "no"});
    let answer = &lines(&plugin.frame(&failed.to_string(), 0))[0];
    assert_eq!((&answer["result"]["isError"], &answer["result"]["content"][0]["text"]), (&json!(true), &json!("no")));
    for params in [json!({}), json!({"name": "echo", "arguments": []}), json!(null)] {
        assert_eq!(lines(&request(&mut plugin, 9, "tools/call", params))[0]["error"]["code"], -32602);
    }
    request(&mut plugin, 10, "tools/call", json!({"name": "echo"}));
    let out = plugin.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}"#, 0);
    assert_eq!(sent(&out)[0]["type"], "tool_cancel");
    assert!(lines(&out).is_empty());
}

#[test]
fn while_the_bridge_is_down_calls_say_so_and_those_under_way_fail() {
    let mut plugin = ready();
    request(&mut plugin, 7, "tools/call", json!({"name": "echo"}));
    let out = plugin.down(None, "the server went away");
    let lost = &lines(&out)[0];
    assert_eq!((&lost["id"], &lost["result"]["isError"]), (&json!(7), &json!(true)));
    assert!(lost["result"]["content"][0]["text"].as_str().unwrap().contains("may have been done or not"));
    assert!(matches!(out.last(), Some(Output::Dial { after_ms }) if *after_ms <= 1_000));
    let refused = &lines(&request(&mut plugin, 8, "tools/call", json!({"name": "echo"})))[0];
    let text = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("ws://127.0.0.1:1/bridge") && text.contains("the server went away"), "{text}");
}

#[test]
fn a_refusal_ends_the_attempts_and_a_rival_slows_them() {
    for code in [4001, 4002] {
        let mut plugin = ready();
        let out = plugin.down(Some(code), "no");
        assert!(!out.iter().any(|o| matches!(o, Output::Dial { .. })), "{code}: {out:?}");
        assert!(plugin.refused().is_some());
        let text = lines(&request(&mut plugin, 1, "tools/call", json!({"name": "echo"})))[0].to_string();
        assert!(text.contains("is closed"), "{text}");
    }
    let mut plugin = ready();
    let out = plugin.down(Some(4005), "superseded");
    assert!(matches!(out.last(), Some(Output::Dial { after_ms }) if *after_ms > 20_000), "{out:?}");
}

#[test]
fn a_silent_bridge_is_given_up() {
    let mut plugin = ready();
    assert!(plugin.tick(75_000).is_empty());
    let out = plugin.tick(75_001);
    assert!(matches!(&out[..], [Output::Hangup, Output::Dial { .. }]), "{out:?}");
    let mut alive = ready();
    let pong = alive.frame(r#"{"type":"ping","ts":5}"#, 70_000);
    assert_eq!(sent(&pong), [json!({"type": "pong", "ts": 5})]);
    assert!(alive.tick(140_000).is_empty());
}

#[toolyard_shows::shows("004-5-01")]
#[test]
fn permission_questions_go_out_and_the_first_answer_comes_back() {
    let mut plugin = ready();
    let ask = |plugin: &mut Plugin, id: &str, preview: &str| {
        let params = json!({"request_id": id, "tool_name": "Bash", "description": "why", "input_preview": preview});
        let line =
            json!({"jsonrpc": "2.0", "method": "notifications/claude/channel/permission_request", "params": params});
        plugin.line(&line.to_string(), 0)
    };
    let out = ask(&mut plugin, "abxyz", r#"{"command":"ls"}"#);
    assert_eq!(
        sent(&out)[0],
        json!({"type": "permission_request", "request_id": "abxyz", "tool": "Bash", "args": {"command": "ls"},
            "rationale": "why", "input_preview": "{\"command\":\"ls\"}"})
    );
    let cut = ask(&mut plugin, "bcdef", r#"{"command":"l"#);
    assert_eq!((&sent(&cut)[0]["args"], &sent(&cut)[0]["input_preview"]), (&json!({}), &json!(r#"{"command":"l"#)));
    assert!(ask(&mut plugin, "hello", "{}").is_empty(), "an l is in no id");
    let reply = r#"{"type":"permission_reply","request_id":"abxyz","behavior":"deny"}"#;
    let told = &lines(&plugin.frame(reply, 0))[0];
    assert_eq!(told["method"], "notifications/claude/channel/permission");
    assert_eq!(told["params"], json!({"request_id": "abxyz", "behavior": "deny"}));
    assert!(plugin.frame(reply, 0).is_empty(), "once");
    plugin.down(None, "gone");
    plugin.up(0);
    assert!(plugin.frame(&reply.replace("abxyz", "bcdef"), 0).is_empty(), "it went with its connection");
}

#[toolyard_shows::shows("004-4-02")]
#[test]
fn the_reply_tool_is_the_plugins_own() {
    let mut plugin = ready();
    let good = json!({"name": "reply", "arguments": {"chat_id": "c", "text": "hi", "reply_to": "m", "files": ["/f"]}});
    let out = sent(&request(&mut plugin, 5, "tools/call", good));
    assert_eq!(out[0]["type"], "outbound_message");
    assert_eq!((&out[0]["chat_id"], &out[0]["files"]), (&json!("c"), &json!(["/f"])));
    for arguments in [
        json!({"chat_id": "c"}),
        json!({"chat_id": 5, "text": "x"}),
        json!({"chat_id": "c", "text": "x", "files": "f"}),
        json!({"chat_id": "c", "text": "x", "to": "y"}),
    ] {
        let out = request(&mut plugin, 6, "tools/call", json!({"name": "reply", "arguments": arguments}));
        assert_eq!(lines(&out)[0]["result"]["isError"], true, "{out:?}");
        assert!(sent(&out).is_empty());
    }
    let late = plugin.tick(30_001);
    assert_eq!(lines(&late)[0]["id"], 5, "a server that knows no replies does not hang Claude: {late:?}");
}

#[test]
fn broken_and_unknown_frames_are_ignored() {
    let mut plugin = ready();
    for text in [
        "",
        "{",
        "[]",
        r#"{"type":"later"}"#,
        r#"{"type":"inbound_message"}"#,
        r#"{"type":"tool_result","call_id":"x","ok":true}"#,
    ] {
        assert!(plugin.frame(text, 0).is_empty(), "{text}");
    }
    assert!(plugin.is_up());
}

#[test]
fn what_the_server_wants_read_is_part_of_the_handshake() {
    let mut plugin = Plugin::new(identity(), 1);
    assert!(request(&mut plugin, 1, "initialize", json!({})).is_empty());
    plugin.up(0);
    let meta = json!({"heartbeat_ms": 30000, "instructions": "A directory of tools."});
    let out = plugin.frame(&json!({"type": "hello_ack", "tools": [], "session_meta": meta}).to_string(), 0);
    let told = lines(&out)[0]["result"]["instructions"].as_str().unwrap().to_owned();
    assert!(told.contains("`reply`") && told.ends_with("A directory of tools."), "{told}");
}

#[test]
fn a_failure_that_the_server_has_rendered_stays_as_it_is() {
    let mut plugin = ready();
    let call = request(&mut plugin, 5, "tools/call", json!({"name": "echo", "arguments": {}}));
    let result = json!({"content": [{"type": "text", "text": "CONFLICT: no"}], "isError": true, "_meta": {"a": 1}});
    let frame = json!({"type": "tool_result", "call_id": sent(&call)[0]["call_id"], "ok": false, "error": "no", "result": result});
    assert_eq!(lines(&plugin.frame(&frame.to_string(), 0))[0]["result"], result);
}

fn approve(plugin: &mut Plugin, id: u64) -> Vec<Output> {
    let input = json!({"command": "ls", "description": "list files"});
    request(plugin, id, "tools/call", json!({"name": "approve", "arguments": {"tool_name": "Bash", "input": input}}))
}

fn verdict(out: &[Output]) -> Value {
    serde_json::from_str(lines(out)[0]["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[test]
fn permission_questions_by_the_tool_are_answered_by_people_alone() {
    let mut plugin = ready();
    for behavior in ["allow", "deny"] {
        let asked = sent(&approve(&mut plugin, 9)).remove(0);
        assert_eq!(
            (&asked["type"], &asked["tool"], &asked["args"]["command"]),
            (&json!("permission_request"), &json!("Bash"), &json!("ls"))
        );
        assert_eq!(asked["rationale"], "list files");
        assert!(toolyard_bridge::verdict::is_request_id(asked["request_id"].as_str().unwrap()));
        let reply = json!({"type": "permission_reply", "request_id": asked["request_id"], "behavior": behavior});
        let told = verdict(&plugin.frame(&reply.to_string(), 0));
        assert_eq!(told["behavior"], behavior, "{told}");
        assert_eq!(told["updatedInput"]["command"].as_str(), (behavior == "allow").then_some("ls"));
        assert!(plugin.frame(&reply.to_string(), 0).is_empty(), "once");
    }
    let asked = sent(&approve(&mut plugin, 10)).remove(0);
    plugin.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}"#, 0);
    let reply = json!({"type": "permission_reply", "request_id": asked["request_id"], "behavior": "allow"});
    assert!(plugin.frame(&reply.to_string(), 0).is_empty(), "taken back");
    approve(&mut plugin, 11);
    let lost = plugin.down(None, "gone");
    assert_eq!(verdict(&lost)["behavior"], "deny", "nobody can be asked any more: {lost:?}");
    assert_eq!(verdict(&approve(&mut plugin, 12))["behavior"], "deny", "nor now");
    let mut plugin = ready();
    approve(&mut plugin, 13);
    let mut late = Vec::new();
    for minute in 0..12 {
        plugin.frame(r#"{"type":"ping","ts":1}"#, minute * 60_000);
        late.extend(plugin.tick(minute * 60_000).into_iter().filter(|o| matches!(o, Output::Line(_))));
    }
    assert_eq!(verdict(&late)["behavior"], "deny", "nobody answered");
}
