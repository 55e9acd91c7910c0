//! The viking:// store and its tools through the real binary: the table WS-RPC of seed 003 with the viking tools, the
//! seed's own shell commands, the HTTP interface with the gateway's credential, and `toolyard ctx`.

use crate::harness::{Place, Ran, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};

const TOKEN: &str = "test-token-of-16-chars";

fn call(place: &Place, server: &Server, method: &str, params: Value) -> Ran {
    let url = server.ready["url"].as_str().unwrap();
    let params = params.to_string();
    place.run_bare(&["gateway", "call", method, "--params", &params, "--url", url, "--token", TOKEN, "--json"])
}

fn invoke(place: &Place, server: &Server, name: &str, args: Value) -> Value {
    call(place, server, "tools.invoke", json!({"name": name, "sessionKey": "agent:main:main", "args": args})).json()
}

/// A gateway with a document in its store.
fn served() -> (Place, Server) {
    let place = Place::new();
    let docs = place.home.parent().unwrap().join("openclaw-plugin-config");
    std::fs::create_dir_all(&docs).unwrap();
    std::fs::write(docs.join("config.md"), "# OpenClaw plugin config\n\nThe plugin is configured in openclaw.json.\n")
        .unwrap();
    let server = place.up();
    let added = place.run(&["ctx", "add", docs.to_str().unwrap(), "--json"]);
    assert_eq!(added.json()["root_uri"], "viking://resources/openclaw-plugin-config", "{added:?}");
    (place, server)
}

const TOOLS: [&str; 14] = [
    "add_skill",
    "memory_forget",
    "memory_recall",
    "memory_store",
    "openviking_tool_result_list",
    "openviking_tool_result_read",
    "openviking_tool_result_search",
    "ov_archive_expand",
    "ov_archive_search",
    "ov_list",
    "ov_multi_read",
    "ov_read",
    "ov_recall_trace",
    "ov_search",
];

#[toolyard_shows::shows(
    "003-2-04",
    "003-11-07",
    "003-12-04",
    "003-12-05",
    "003-12-06",
    "003-12-07",
    "003-12-08",
    "003-12-09"
)]
#[test]
fn ws_rpc_04_to_09_catalog_effective_search_read_recall_archives() {
    let (place, server) = served();
    // WS-RPC-04
    let catalog = call(&place, &server, "tools.catalog", json!({"agentId": "main"})).json();
    let groups = catalog["groups"].as_array().unwrap();
    let group = groups.iter().find(|g| g["pluginId"] == "openviking").unwrap();
    let names: Vec<&str> = group["tools"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap()).collect();
    assert!(TOOLS.iter().all(|tool| names.contains(tool)) && names.len() == TOOLS.len(), "{names:?}");
    // WS-RPC-05
    call(&place, &server, "sessions.create", json!({"key": "agent:main:main"}));
    let effective = call(&place, &server, "tools.effective", json!({"sessionKey": "agent:main:main"})).json();
    assert_eq!((&effective["agentId"], &effective["profile"]), (&json!("main"), &json!("full")));
    let plugin = effective["groups"].as_array().unwrap().iter().find(|g| g["source"] == "plugin").unwrap();
    for tool in TOOLS {
        let shown = plugin["tools"].as_array().unwrap().iter().find(|t| t["id"] == tool);
        assert_eq!(
            shown.map(|t| (&t["source"], &t["pluginId"])),
            Some((&json!("plugin"), &json!("openviking"))),
            "{tool}"
        );
    }
    // WS-RPC-06
    let found = invoke(&place, &server, "ov_search", json!({"query": "openclaw plugin config", "limit": 2}));
    assert_eq!(
        (&found["ok"], &found["toolName"], &found["source"]),
        (&json!(true), &json!("ov_search"), &json!("plugin")),
        "{found}"
    );
    assert!(
        found["output"]["content"][0]["text"].as_str().unwrap().contains("viking://resources/openclaw-plugin-config"),
        "{found}"
    );
    // WS-RPC-07
    let read =
        invoke(&place, &server, "ov_read", json!({"uri": "viking://resources/openclaw-plugin-config/.abstract.md"}));
    assert!(
        read["output"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("--- START OF viking://resources/openclaw-plugin-config/.abstract.md ---"),
        "{read}"
    );
    // WS-RPC-08
    let recalled = invoke(
        &place,
        &server,
        "memory_recall",
        json!({"query": "openclaw plugin config", "limit": 2, "resourceTypes": ["resource"]}),
    );
    assert!(recalled["ok"] == true && recalled["output"]["details"]["count"].as_u64().unwrap() >= 1, "{recalled}");
    // WS-RPC-09
    let url = server.ready["url"].as_str().unwrap();
    let session = call(&place, &server, "sessions.get", json!({"key": "agent:main:main"})).json();
    let _ = url;
    let captured = call(
        &place,
        &server,
        "context.capture",
        json!({"sessionKey": "agent:main:main", "messages": [{"role": "user", "text": "Please run tcpdump on port 443."}]}),
    );
    assert_eq!(captured.code, 0, "{captured:?} {session}");
    let compacted = call(&place, &server, "context.compact", json!({"sessionKey": "agent:main:main"})).json();
    assert_eq!(compacted["compacted"], true, "{compacted}");
    let archive = invoke(&place, &server, "ov_archive_search", json!({"query": "tcpdump"}));
    assert_eq!(archive["output"]["details"], json!({"query": "tcpdump", "matchCount": 1}), "{archive}");
    let expanded = invoke(&place, &server, "ov_archive_expand", json!({"archiveId": "archive_001"}));
    assert_eq!(
        (&expanded["output"]["details"]["action"], &expanded["output"]["details"]["messageCount"]),
        (&json!("expanded"), &json!(1)),
        "{expanded}"
    );
    let none = invoke(&place, &server, "ov_archive_expand", json!({"archiveId": "archive_003"}));
    assert!(none["ok"] == true && none["output"]["details"]["error"].as_str().unwrap().contains("NOT_FOUND"), "{none}");
    server.stop();
}

#[toolyard_shows::shows(
    "003-2-07",
    "003-8-01",
    "003-8-02",
    "003-8-03",
    "003-8-05",
    "003-8-07",
    "003-8-11",
    "003-8-13",
    "003-8-14",
    "003-12-10",
    "003-12-11",
    "003-12-12",
    "003-12-13",
    "003-12-14",
    "003-12-15",
    "003-12-16",
    "003-12-17",
    "003-12-18",
    "003-13-04",
    "003-13-05",
    "003-13-06"
)]
#[test]
fn ws_rpc_10_to_18_recall_traces() {
    let (place, server) = served();
    let trace = |args: Value| invoke(&place, &server, "ov_recall_trace", args)["output"]["details"].clone();
    // WS-RPC-10, while there is none
    let none = trace(json!({"turn": "latest", "limit": 5}));
    assert_eq!((&none["count"], &none["entries"]), (&json!(0), &json!([])), "{none}");
    invoke(&place, &server, "ov_search", json!({"query": "openclaw plugin config"}));
    invoke(&place, &server, "memory_recall", json!({"query": "what do I like"}));
    let latest = trace(json!({"turn": "latest", "limit": 5}));
    assert_eq!(
        (&latest["action"], &latest["count"], &latest["lookupLayer"]),
        (&json!("queried"), &json!(1), &json!("memory")),
        "{latest}"
    );
    assert_eq!(latest["entries"][0]["source"], "memory_recall");
    // WS-RPC-11
    let searches = trace(json!({"turn": "all", "source": "ov_search", "limit": 10}));
    assert_eq!((&searches["count"], &searches["entries"][0]["source"]), (&json!(1), &json!("ov_search")));
    let id = searches["entries"][0]["traceId"].as_str().unwrap().to_owned();
    // WS-RPC-12
    assert_eq!(trace(json!({"traceId": id, "limit": 1}))["entries"][0]["traceId"], id.as_str());
    // WS-RPC-13
    let with = trace(json!({"traceId": id, "includeContent": true, "limit": 1}));
    assert!(with["entries"][0]["selected"][0]["contentPreview"].is_string(), "{with}");
    // WS-RPC-14
    assert_eq!(trace(json!({"turn": "all", "sessionKey": "agent:main:main", "limit": 20}))["count"], 2);
    // WS-RPC-15 to WS-RPC-17
    for empty in [
        json!({"traceId": "not-exist-trace-20260605", "limit": 1}),
        json!({"turn": "all", "sessionKey": "agent:main:no-trace-session-20260605", "limit": 5}),
        json!({"turn": "all", "source": "not_a_source", "limit": 5}),
    ] {
        let answer = invoke(&place, &server, "ov_recall_trace", empty.clone());
        assert_eq!(answer["ok"], true, "{answer}");
        assert_eq!(
            (&answer["output"]["details"]["count"], &answer["output"]["details"]["entries"]),
            (&json!(0), &json!([])),
            "{empty}"
        );
    }
    // WS-RPC-18
    assert_eq!(trace(json!({"turn": "all", "limit": 0}))["count"], 1);
    // Traces outlive the process.
    server.stop();
    let server = place.up();
    let later = invoke(&place, &server, "ov_recall_trace", json!({"traceId": id}))["output"]["details"].clone();
    assert_eq!((&later["count"], &later["lookupLayer"]), (&json!(1), &json!("persistent")), "{later}");
    server.stop();
}

#[toolyard_shows::shows("003-6-14", "003-6-15", "003-12-22", "003-12-23")]
#[test]
fn ws_rpc_19_to_23_what_is_wrong_is_said_and_the_gateway_stands() {
    let (place, server) = served();
    // WS-RPC-19
    let unknown = call(&place, &server, "does.not.exist", json!({}));
    assert!(unknown.stdout.contains("unknown method"), "{unknown:?}");
    // WS-RPC-20
    let session = call(&place, &server, "tools.effective", json!({"sessionKey": "agent:main:nobody"}));
    assert!(session.stdout.contains("unknown session key"), "{session:?}");
    // WS-RPC-21
    assert_eq!(invoke(&place, &server, "not_a_tool", json!({}))["error"]["code"], "not_found");
    // WS-RPC-22
    let missing = invoke(&place, &server, "ov_search", json!({"limit": 2}));
    assert_eq!(
        (&missing["ok"], &missing["error"]["code"], &missing["error"]["message"]),
        (&json!(false), &json!("validation_error"), &json!("query is required")),
        "{missing}"
    );
    // WS-RPC-23
    let bad = invoke(&place, &server, "ov_read", json!({"uri": "not-viking"}));
    assert_eq!((&bad["ok"], &bad["error"]["code"]), (&json!(false), &json!("validation_error")), "{bad}");
    // add_resource is hidden until it is enabled; a person's command works, an agent's does not.
    assert_eq!(
        invoke(&place, &server, "add_resource", json!({"source": "/nonexistent"}))["error"]["code"],
        "not_found"
    );
    let command =
        call(&place, &server, "context.command", json!({"sessionKey": "main", "text": "/add-resource /nonexistent"}))
            .json();
    assert!(command["text"].as_str().unwrap().contains("there is no tool called"), "{command}");
    let command = place.run(&["ctx", "command", "/add-resource /nonexistent", "--json"]).json();
    assert_eq!(
        command["text"],
        "OpenViking add resource failed: ENOENT: no such file or directory, stat '/nonexistent'"
    );
    assert_eq!(invoke(&place, &server, "ov_search", json!({"query": "plugin"}))["ok"], true);
    server.stop();
}

#[test]
fn what_is_stored_over_rpc_is_remembered_after_a_restart() {
    let (place, server) = served();
    let stored = invoke(
        &place,
        &server,
        "memory_store",
        json!({"text": "用户偏好使用 TypeScript 编写 OpenClaw 插件。", "role": "user"}),
    );
    assert_eq!((&stored["ok"], &stored["output"]["details"]["action"]), (&json!(true), &json!("stored")), "{stored}");
    let skill = invoke(
        &place,
        &server,
        "add_skill",
        json!({"data": "---\nname: greet-user\ndescription: Greets a user politely by name\n---\n\nSay hello.\n", "wait": true}),
    );
    assert_eq!(skill["output"]["details"]["uri"], "viking://user/default/skills/greet-user", "{skill}");
    server.stop();
    let server = place.up();
    let recalled = invoke(&place, &server, "memory_recall", json!({"query": "TypeScript 插件"}));
    assert!(recalled["output"]["content"][0]["text"].as_str().unwrap().contains("TypeScript"), "{recalled}");
    let found = invoke(&place, &server, "ov_search", json!({"query": "greet somebody politely"}));
    assert!(found["output"]["details"]["skills"].to_string().contains("greet-user"), "{found}");
    server.stop();
}

fn http(server: &Server, request: &str, headers: &str, body: &str) -> (u16, Value) {
    let url = server.ready["url"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn the_http_interface_wants_the_gateways_credential() {
    let (_place, server) = served();
    let find = r#"{"query":"openclaw plugin config","limit":2}"#;
    let (status, refused) = http(&server, "POST /api/v1/search/find", "", find);
    assert_eq!((status, &refused["error"]["code"]), (401, &json!("UNAUTHENTICATED")), "{refused}");
    for credential in [format!("X-API-Key: {TOKEN}\r\n"), format!("Authorization: Bearer {TOKEN}\r\n")] {
        for base in ["", "/openviking"] {
            let (status, found) = http(&server, &format!("POST {base}/api/v1/search/find"), &credential, find);
            assert!(status == 200 && found["result"]["total"].as_u64().unwrap() >= 1, "{found}");
        }
    }
    let (status, health) = http(&server, "GET /openviking/health", "", "");
    assert_eq!((status, &health["status"], &health["healthy"]), (200, &json!("ok"), &json!(true)));
    let (status, traces) =
        http(&server, "GET /api/openviking/recall-traces?limit=5", &format!("X-API-Key: {TOKEN}\r\n"), "");
    assert_eq!((status, &traces["ok"]), (200, &json!(true)), "{traces}");
    let (status, wrong) = http(&server, "POST /api/openviking/recall-traces", &format!("X-API-Key: {TOKEN}\r\n"), "");
    assert_eq!((status, &wrong["error"]["code"]), (405, &json!("method_not_allowed")));
    server.stop();
}

#[test]
fn ctx_works_with_and_without_a_running_toolyard() {
    let (place, server) = served();
    let all = |place: &Place| {
        let listed = place.run(&["ctx", "ls", "viking://resources", "-r", "--json"]).json();
        assert!(listed.to_string().contains("openclaw-plugin-config"), "{listed}");
        let tree = place.run(&["ctx", "tree", "viking://"]);
        assert!(tree.code == 0 && tree.stdout.contains("openclaw-plugin-config/"), "{tree:?}");
        let found = place.run(&["ctx", "find", "plugin configured", "--json"]).json();
        let uri = found["resources"][0]["uri"].as_str().unwrap().to_owned();
        assert!(place.run(&["ctx", "read", &uri]).stdout.contains("plugin"), "{uri}");
        let grep = place.run(&["ctx", "grep", "OPENCLAW\\.json", "-i", "--json"]).json();
        assert_eq!(grep["count"], 1, "{grep}");
        assert_eq!(place.run(&["ctx", "sessions", "--json"]).code, 0);
        assert_eq!(place.run(&["ctx", "trace", "--json"]).json()["ok"], true);
        let command = place.run(&["ctx", "command", "/ov-query-config get"]);
        assert!(command.stdout.contains("\"recallLimit\": 6"), "{command:?}");
    };
    all(&place);
    server.stop();
    all(&place);
    assert_eq!(
        place.run(&["ctx", "rm", "viking://resources/openclaw-plugin-config", "-r", "--json"]).json()["estimated_deleted_count"],
        1
    );
    assert_eq!(place.run(&["ctx", "read", "viking://resources/none.md", "--json"]).error_code(), "NOT_FOUND");
}

#[test]
fn slash_commands_take_the_same_road_as_tools() {
    let place = Place::new();
    place.config("[policy]\ndeny = [\"add_skill\"]\n[context]\ndisabledTools = [\"ov_recall_trace\"]\n");
    let server = place.up();
    let command = |text: &str| {
        call(&place, &server, "context.command", json!({"sessionKey": "main", "text": text})).json()["text"].clone()
    };
    let refused = command("/add-skill /nonexistent");
    assert!(refused.as_str().unwrap().starts_with("OpenViking add skill failed:"), "{refused}");
    assert!(refused.as_str().unwrap().contains("denied"), "the policy is asked before the tool: {refused}");
    let off = command("/ov-recall-trace --limit 1");
    assert!(off.as_str().unwrap().contains("there is no tool called"), "what is switched off is off: {off}");
    let before = place.run(&["runs", "list", "--json"]).json()["runs"].as_array().unwrap().len();
    command("/ov-search \"anything\"");
    let after = place.run(&["runs", "list", "--json"]).json()["runs"].as_array().unwrap().len();
    assert_eq!(after, before + 1, "a command's call is in the record");
    server.stop();
}

#[test]
fn rows_3_and_4_agents_name_no_path_of_this_machine() {
    let place = Place::new();
    let granted = place.home.parent().unwrap().join("granted");
    let secret = place.home.parent().unwrap().join("secret");
    for (folder, name) in [(&granted, "open-skill"), (&secret, "secret-skill")] {
        std::fs::create_dir_all(folder).unwrap();
        let skill = format!("---\nname: {name}\ndescription: canary {name}\n---\n\nText of {name}.\n");
        std::fs::write(folder.join("SKILL.md"), skill).unwrap();
    }
    std::fs::write(place.vault.join("SKILL.md"), "---\nname: of-vault\ndescription: a note\n---\nx\n").unwrap();
    let text = |path: &std::path::Path| path.display().to_string();
    let refused = |server: &Server, paths: &[String]| {
        for path in paths {
            for tool in ["add_skill", "add_resource"] {
                let answer = invoke(&place, server, tool, json!({"source": path}));
                assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!("forbidden")), "{answer}");
            }
            for command in ["/add-resource", "/add-skill"] {
                let params = json!({"sessionKey": "main", "text": format!("{command} {path}")});
                let answer = call(&place, server, "context.command", params).json();
                let told = answer["text"].as_str().unwrap();
                assert!(told.contains("agents may not name paths of this machine"), "{command} {path}: {told}");
            }
        }
        let found = invoke(&place, server, "ov_search", json!({"query": "canary secret-skill"}));
        assert!(
            !found.to_string().contains("secret-skill.\\n") && !found.to_string().contains("Text of secret"),
            "{found}"
        );
    };
    let paths = [text(&granted), text(&secret.join("SKILL.md")), "/etc".to_owned(), "file:///etc/hostname".to_owned()];
    place.config("[context]\nenableAddResourceTool = true\n");
    let server = place.up();
    refused(&server, &paths);
    let person = place.run(&["ctx", "command", &format!("/add-skill {}", text(&granted)), "--json"]).json();
    assert!(person["text"].as_str().unwrap().starts_with("Imported OpenViking skill (open-skill)"), "{person}");
    server.stop();

    // A granted folder allows files in it, and none beside it, in the vault, or in Toolyard's own folder.
    let around = text(place.home.parent().unwrap());
    place.config(&format!("[context]\nenableAddResourceTool = true\nimportRoots = [\"{around}\"]\n"));
    let server = place.up();
    let answer = invoke(&place, &server, "add_skill", json!({"source": text(&granted)}));
    assert_eq!(answer["ok"], true, "{answer}");
    refused(
        &server,
        &[around, text(&place.vault), text(&place.vault.join("SKILL.md")), text(&place.home.join("state"))],
    );
    server.stop();
}

#[test]
fn row_3_the_slash_command_of_a_hidden_tool_is_a_persons_alone() {
    let (place, server) = served();
    let secret = place.home.parent().unwrap().join("secret.md");
    std::fs::write(&secret, "# Canary\n\nthe-canary-of-row-three\n").unwrap();
    let before = place.run(&["runs", "list", "--json"]).json()["runs"].as_array().unwrap().len();
    let params = json!({"sessionKey": "main", "text": format!("/add-resource {}", secret.display())});
    let answer = call(&place, &server, "context.command", params).json();
    assert!(answer["text"].as_str().unwrap().contains("there is no tool called"), "{answer}");
    let found = invoke(&place, &server, "ov_search", json!({"query": "the-canary-of-row-three"}));
    assert!(!found.to_string().contains("secret.md"), "nothing was read: {found}");
    let after = place.run(&["runs", "list", "--json"]).json()["runs"].as_array().unwrap().len();
    assert_eq!(after, before + 2, "the refused call and the search are in the record");
    let person = place.run(&["ctx", "command", &format!("/add-resource {}", secret.display()), "--json"]).json();
    assert!(person["text"].as_str().unwrap().starts_with("Imported OpenViking resource."), "{person}");
    server.stop();
}
