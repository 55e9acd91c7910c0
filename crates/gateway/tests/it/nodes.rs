//! Nodes are asked to run their commands, and answer.

use crate::harness::{Server, Ws, connect_params};
use serde_json::{Map, Value, json};
use std::time::Duration;
use toolyard_protocol::WorkspaceId;
use toolyard_service::{Hub, RequestError};

const TIME: Duration = Duration::from_secs(60);

async fn node(server: &Server, commands: &[&str]) -> Ws {
    let mut node = server.open().await;
    let mut params = connect_params(&[], &[]);
    params["role"] = "node".into();
    params["client"]["mode"] = "node".into();
    params["commands"] = json!(commands);
    assert_eq!(node.connect(params).await["ok"], true);
    node
}

fn ask(hub: &Hub, command: &str, time: Duration) -> tokio::task::JoinHandle<Result<Value, RequestError>> {
    let (hub, command) = (hub.clone(), command.to_owned());
    let params = Map::from_iter([("text".to_owned(), "é".into())]);
    tokio::spawn(async move { hub.ask_node(&WorkspaceId::default(), &command, &params, time).await })
}

#[tokio::test]
async fn a_command_goes_to_the_node_that_has_it_and_its_answer_comes_back() {
    let server = Server::start().await;
    assert_eq!(ask(server.gateway.hub(), "editor.x", TIME).await.unwrap(), Err(RequestError::Nobody));
    let _older = node(&server, &["editor.x"]).await;
    let mut editor = node(&server, &["editor.x", "editor.y"]).await;
    let _other = node(&server, &["camera.snap"]).await;
    let operator = server.client(&["operator.read"], &[]).await;
    for (answer, expected) in [
        (json!({"ok": true, "payload": {"a": 1}}), Ok(json!({"a": 1}))),
        (json!({"ok": true, "payloadJSON": "{\"b\":[2]}"}), Ok(json!({"b": [2]}))),
        (json!({"ok": true, "payloadJSON": null}), Ok(Value::Null)),
        (
            json!({"ok": false, "error": {"code": "NOT_FOUND", "message": "no such file"}}),
            Err(RequestError::Refused { code: "NOT_FOUND".to_owned(), message: "no such file".to_owned() }),
        ),
        (
            json!({"ok": false}),
            Err(RequestError::Refused {
                code: "UNAVAILABLE".to_owned(),
                message: "the node gave no reason".to_owned(),
            }),
        ),
    ] {
        let asked = ask(server.gateway.hub(), "editor.x", TIME);
        let question = editor.event("node.invoke.request").await["payload"].clone();
        assert_eq!((&question["command"], &question["paramsJSON"]), (&json!("editor.x"), &json!("{\"text\":\"é\"}")));
        assert_eq!(question["timeoutMs"], TIME.as_millis() as u64);
        let mut params = answer.clone();
        params["id"] = question["id"].clone();
        params["nodeId"] = question["nodeId"].clone();
        assert_eq!(editor.call("node.invoke.result", params.clone()).await["payload"], json!({"ok": true}));
        assert_eq!(asked.await.unwrap(), expected, "{answer}");
        let again = editor.call("node.invoke.result", params).await;
        assert_eq!(again["payload"], json!({"ok": true, "ignored": true}), "nobody waits any more");
    }
    drop(operator);
}

#[tokio::test]
async fn only_the_node_that_was_asked_may_answer() {
    let server = Server::start().await;
    let mut other = node(&server, &["camera.snap"]).await;
    let mut editor = node(&server, &["editor.x"]).await;
    let mut operator = server.client(&["operator.admin"], &[]).await;
    let asked = ask(server.gateway.hub(), "editor.x", TIME);
    let question = editor.event("node.invoke.request").await["payload"].clone();
    let params = json!({"id": question["id"], "nodeId": question["nodeId"], "ok": true, "payload": {"forged": true}});
    let refused = operator.call("node.invoke.result", params.clone()).await;
    assert_eq!(refused["error"]["message"], "unauthorized role: operator");
    assert_eq!(other.call("node.invoke.result", params.clone()).await["error"]["message"], "nodeId mismatch");
    let nodes = operator.call("node.list", json!({})).await["payload"]["nodes"].clone();
    let own = nodes.as_array().unwrap().iter().find(|n| n["commands"] == json!(["camera.snap"])).unwrap();
    let mut forged = params.clone();
    forged["nodeId"] = own["nodeId"].clone();
    assert_eq!(other.call("node.invoke.result", forged).await["payload"]["ignored"], true);
    let bad = editor.call("node.invoke.result", json!({"id": question["id"], "ok": "yes"})).await;
    assert!(bad["error"]["message"].as_str().unwrap().starts_with("invalid node.invoke.result params"), "{bad}");
    let mut good = params;
    good["payload"] = json!({"forged": false});
    editor.call("node.invoke.result", good).await;
    assert_eq!(asked.await.unwrap(), Ok(json!({"forged": false})));
}

#[tokio::test]
async fn a_node_that_goes_or_says_nothing_is_told() {
    let server = Server::start().await;
    let mut editor = node(&server, &["editor.x"]).await;
    let asked = ask(server.gateway.hub(), "editor.x", Duration::from_millis(50));
    editor.event("node.invoke.request").await;
    assert_eq!(asked.await.unwrap(), Err(RequestError::TimedOut));
    let asked = ask(server.gateway.hub(), "editor.x", TIME);
    editor.event("node.invoke.request").await;
    drop(editor);
    assert_eq!(asked.await.unwrap(), Err(RequestError::Gone));
}

const SESSION: &str = "agent:main:mine";

async fn with_session(server: &Server, key: &str) -> Ws {
    let mut client = server.client(&["operator.read", "operator.write"], &[]).await;
    assert_eq!(client.call("sessions.create", json!({"key": key})).await["ok"], true);
    client
}

fn pick() -> Value {
    let input = json!({"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]});
    let output = json!({"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]});
    json!({"name": "pick_file", "description": "Asks the user for a file.", "readOnly": true,
           "inputSchema": input, "outputSchema": output})
}

async fn effective(client: &mut Ws, session: &str) -> String {
    client.call("tools.effective", json!({"sessionKey": session})).await["payload"]["groups"].to_string()
}

#[toolyard_shows::shows("001-2-04")]
#[tokio::test]
async fn a_client_answers_the_tools_it_offers_in_its_session() {
    let server = Server::start().await;
    let mut client = with_session(&server, SESSION).await;
    let mut caller = with_session(&server, "agent:main:other").await;
    let offered = client.call("tools.offer", json!({"sessionKey": SESSION, "tools": [pick()]})).await;
    assert_eq!(offered["payload"], json!({"sessionKey": SESSION, "tools": ["client:client:pick_file"]}), "{offered}");

    // In its session the tool is available to every caller; in other sessions it is not, and no catalog lists it.
    assert!(effective(&mut caller, SESSION).await.contains("pick_file"));
    assert!(!effective(&mut caller, "agent:main:other").await.contains("pick_file"));
    assert!(!caller.call("tools.catalog", json!({})).await["payload"].to_string().contains("pick_file"));
    let elsewhere = json!({"name": "pick_file", "sessionKey": "agent:main:other", "args": {"kind": "image"}});
    let elsewhere = caller.call("tools.invoke", elsewhere).await["payload"].clone();
    assert_eq!(elsewhere["error"]["code"], "not_found", "as if it were not there: {elsewhere}");

    let invoke = |args: Value| json!({"name": "pick_file", "sessionKey": SESSION, "args": args});
    let bad = caller.call("tools.invoke", invoke(json!({}))).await["payload"].clone();
    assert_eq!(bad["error"]["code"], "validation_error", "the one road checks it: {bad}");
    for (answer, file) in [
        (json!({"ok": true, "output": {"file": "a.png"}}), Some("a.png")),
        (json!({"ok": true, "output": {"file": 5}}), None),
        (json!({"ok": false, "error": {"code": "CANCELLED", "message": "the user closed the dialog"}}), None),
    ] {
        let id = caller.request("tools.invoke", invoke(json!({"kind": "image"}))).await;
        let question = client.event("tools.call").await["payload"].clone();
        assert_eq!((&question["tool"], &question["args"]), (&json!("pick_file"), &json!({"kind": "image"})));
        assert_eq!(question["sessionKey"], SESSION);
        let mut result = answer.clone();
        result["id"] = question["id"].clone();
        let forged = caller.call("tools.result", result.clone()).await;
        assert_eq!(forged["payload"]["ignored"], true, "only the client that was asked may answer");
        assert_eq!(client.call("tools.result", result).await["payload"], json!({"ok": true}));
        let done = caller.response(&id).await["payload"].clone();
        assert_eq!(done["ok"], file.is_some(), "{answer}: {done}");
        if let Some(file) = file {
            assert_eq!(done["output"]["details"]["file"], file, "{done}");
        }
    }

    // The tool is removed when the client disconnects.
    drop(client);
    for _ in 0..6_000 {
        if !effective(&mut caller, SESSION).await.contains("pick_file") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the tool stayed");
}

#[tokio::test]
async fn offers_replace_one_another_and_are_refused_with_the_reason() {
    let server = Server::start().await;
    let mut client = with_session(&server, SESSION).await;
    let mut other = with_session(&server, SESSION).await;
    let named = |name: &str| json!({"sessionKey": SESSION, "tools": [{"name": name}]});
    assert_eq!(client.call("tools.offer", named("first")).await["ok"], true);
    assert_eq!(client.call("tools.offer", named("second")).await["ok"], true);
    let shown = effective(&mut other, SESSION).await;
    assert!(shown.contains("second") && !shown.contains("first"), "{shown}");
    let core = server.engine.tools().snapshot.iter().next().unwrap().name().to_string();
    for (params, reason) in [
        (named("second"), "client tool name conflict: second"),
        (named(&core), "client tool name conflict"),
        (json!({"sessionKey": "agent:main:none", "tools": []}), "unknown session key"),
        (json!({"sessionKey": SESSION, "tools": {}}), "must be array"),
        (json!({"sessionKey": SESSION, "tools": [{"name": "a", "sure": 1}]}), "unexpected property 'sure'"),
        (json!({"sessionKey": SESSION, "tools": [{"name": "no spaces"}]}), "at /tools/0"),
        (json!({"sessionKey": SESSION, "tools": [{"name": "x", "inputSchema": {"type": 5}}]}), "invalid tools.offer"),
        (json!({"sessionKey": SESSION, "tools": vec![json!({"name": "x"}); 65]}), "more than 64 items"),
        (json!({"sessionKey": SESSION, "tools": [{"name": "x"}, {"name": "x"}]}), "client tool name conflict: x"),
    ] {
        let refused = other.call("tools.offer", params.clone()).await;
        assert!(refused["error"]["message"].as_str().is_some_and(|m| m.contains(reason)), "{params}: {refused}");
    }
    assert!(effective(&mut other, SESSION).await.contains("second"), "what was refused changed nothing");
    let reader = json!({"sessionKey": SESSION, "tools": []});
    let refused = server.client(&["operator.read"], &[]).await.call("tools.offer", reader.clone()).await;
    assert_eq!(refused["error"]["message"], "missing scope: operator.write");
    assert_eq!(client.call("tools.offer", reader).await["payload"]["tools"], json!([]));
    assert!(!effective(&mut other, SESSION).await.contains("second"));
}
