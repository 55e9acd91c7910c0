//! Every method that the program adds to the built-in ones (which `crates/gateway/tests/it/workspaces.rs` tries): whatever
//! belongs to one workspace does not exist for another one.

use crate::harness::Place;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use toolyard::wiring::{App, RequiredParts};
use toolyard_engine::Caller;
use toolyard_protocol::WorkspaceId;
use toolyard_service::Methods;

/// How a method is tried by somebody of another workspace.
enum Try {
    /// With `$session`, a session of the other workspace: the answer is the same as for a session that nobody has, and has
    /// nothing of the other workspace.
    Session(Value),
    /// Nothing of the other workspace is in the answer.
    List(Value),
    /// It is about the installation as a whole, and refused.
    Refused(Value),
}

fn tries(method: &str) -> Option<Try> {
    use Try::{List, Refused, Session};
    let run = json!({"session_id": "s1", "cwd": "/", "hook_event_name": "Stop"});
    Some(match method {
        "openviking.feature.gates" | "mcp.servers" | "plugins.list" | "plugins.doctor" => List(json!({})),
        "plugins.info" => List(json!({"id": "none"})),
        "tools.search" => List(json!({"query": "Where is the bicycle?"})),
        "recall.why" => List(json!({"corpus": "memory", "query": "Where is the bobs-text?", "expect": "bobs-text"})),
        "hooks.event" => List(json!({"client": "claude", "payload": run})),
        "context.request" => List(json!({"method": "GET", "path": "/api/v1/fs/ls?uri=viking://&recursive=true"})),
        "context.add" => List(json!({"source": "/not/there", "to": "viking://resources/bobs"})),
        "context.command" => Session(json!({"text": "/ov-recall-trace --turn all", "session": "$session"})),
        "context.capture" => Session(json!({"messages": [{"content": "hello"}], "session": "$session"})),
        "context.assemble" => Session(json!({"prompt": "Where is the bicycle?", "session": "$session"})),
        "context.compact" => Session(json!({"session": "$session"})),
        "tools.savings" | "notify.status" | "notify.push" | "notify.unsubscribe" | "config.versions"
        | "config.version" | "store.check" | "store.stats" | "store.prune" | "config.push" => Refused(json!({})),
        "notify.test" => Refused(json!({"channel": "none"})),
        "notify.subscribe" => {
            Refused(json!({"endpoint": "https://push.example.org/1", "keys": {"p256dh": "", "auth": ""}}))
        }
        "store.backup" => Refused(json!({"out": "/not/there"})),
        "config.patch" => Refused(json!({"patch": {}})),
        "config.rollback" => Refused(json!({"version": 1})),
        "mcp.start" | "mcp.stop" | "mcp.test" | "mcp.forget" | "mcp.remove" | "mcp.log" => {
            Refused(json!({"server": "none"}))
        }
        "mcp.add" => Refused(json!({"name": "none"})),
        "mcp.approve" => Refused(json!({"server": "none"})),
        "plugins.install" => Refused(json!({"source": "/not/there"})),
        "plugins.update" | "plugins.enable" | "plugins.disable" | "plugins.remove" => Refused(json!({"id": "none"})),
        _ => return None,
    })
}

fn person(workspace: &str) -> Arc<Caller> {
    Arc::new(Caller::cli("ada").in_workspace(WorkspaceId::parse(workspace).unwrap()))
}

async fn ask(app: &App, workspace: &str, method: &str, params: Value) -> Value {
    match app.service.call(person(workspace), method, params, None).await {
        Ok(answer) => json!({"ok": serde_json::from_str::<Value>(answer.get()).unwrap()}),
        Err(failure) => json!({"error": failure}),
    }
}

fn open(place: &Place) -> App {
    let global = toolyard::cli::Global {
        home: Some(place.home.clone()),
        vault: Some(place.vault.clone()),
        json: true,
        quiet: true,
        in_process: true,
        workspace: None,
    };
    App::open(toolyard::config::resolve(&global).unwrap(), RequiredParts::Store).unwrap()
}

/// An answer without what differs from answer to answer: numbers, times and ids, and the session that was asked for.
fn normal(answer: &Value, session: &str) -> Value {
    match answer {
        Value::Number(_) => Value::from(0),
        Value::Array(items) => items.iter().map(|item| normal(item, session)).collect(),
        Value::Object(map) => {
            let made_anew = ["ovSessionId", "taskId", "createdAt", "archiveUri"];
            let kept = map.iter().filter(|(name, _)| !made_anew.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), normal(value, session))).collect())
        }
        Value::String(text) => text.replace(session, "SESSION").into(),
        other => other.clone(),
    }
}

/// The session of bob's that everything is kept under.
const THEIRS: &str = "@bob:agent:main:secret";
const NOBODYS: &str = "@bob:agent:main:nobody";

/// Fills the workspace `bob`.
async fn fill(app: &App) {
    for name in ["bob", "eve"] {
        let added = ask(app, "default", "workspaces.add", json!({"name": name})).await;
        assert!(added["error"].is_null(), "{added}");
    }
    let memory = json!({"name": "memory_store", "args": {"text": "The bicycle of bobs-text stands in the shed."}});
    let stored = ask(app, "bob", "tools.call", memory).await;
    assert_eq!(stored["ok"]["result"]["status"], "ok", "{stored}");
    let resource =
        json!({"method": "POST", "path": "/api/v1/fs/mkdir", "body": {"uri": "viking://resources/bobs-text"}});
    let made = ask(app, "bob", "context.request", resource).await;
    assert!(made["error"].is_null(), "{made}");
    let turn = json!({"messages": [{"content": "I said bobs-text."}], "session": "agent:main:secret"});
    let captured = ask(app, "bob", "context.capture", turn).await;
    assert!(captured["error"].is_null(), "{captured}");
}

#[tokio::test]
async fn no_method_of_the_program_reaches_into_another_workspace() {
    let place = Place::new();
    place.config("[context]\ntraceRecall = true\n");
    let app = open(&place);
    fill(&app).await;
    let (built_in, methods) = (Methods::built_in(), app.service.methods());
    let built_in: BTreeSet<&str> = built_in.iter().map(|entry| entry.name).collect();
    let mut tried = 0;
    for name in ["eve", "default"] {
        for entry in methods.iter().filter(|entry| !built_in.contains(entry.name)) {
            let how = tries(entry.name)
                .unwrap_or_else(|| panic!("{}: say in `tries` how it is tried from another workspace", entry.name));
            tried += 1;
            match how {
                Try::Refused(_) if name == "default" => {}
                Try::Refused(params) => {
                    let answer = ask(&app, name, entry.name, params).await;
                    let message = answer["error"]["message"].as_str().unwrap_or_default();
                    assert_eq!(message, "missing scope: operator.admin", "{}: {answer}", entry.name);
                }
                Try::List(params) => {
                    let answer = ask(&app, name, entry.name, params.clone()).await;
                    let text = answer["ok"].to_string() + &answer["error"]["details"].to_string();
                    let hides = entry.name == "recall.why" || !text.contains("bobs");
                    assert!(hides && !text.contains("in the shed"), "{} in {name}: {answer}", entry.name);
                    assert!(!text.contains("operator.admin"), "{} in {name}: {answer}", entry.name);
                }
                Try::Session(params) => {
                    let with =
                        |session: &str| serde_json::from_str(&params.to_string().replace("$session", session)).unwrap();
                    let foreign = ask(&app, name, entry.name, with(THEIRS)).await;
                    let missing = ask(&app, name, entry.name, with(NOBODYS)).await;
                    assert_eq!(normal(&foreign, THEIRS), normal(&missing, NOBODYS), "{} in {name}", entry.name);
                    assert!(!foreign.to_string().contains("bobs-text"), "{} in {name}: {foreign}", entry.name);
                }
            }
        }
    }
    let own = methods.iter().filter(|entry| !built_in.contains(entry.name)).count();
    assert!(own > 30 && tried == 2 * own, "{tried} of {own}");
    app.close().await;
}

#[tokio::test]
async fn a_session_of_another_workspace_is_neither_read_nor_written_by_naming_it() {
    let place = Place::new();
    let app = open(&place);
    fill(&app).await;
    let assembled = async |workspace: &str, session: &str| {
        ask(&app, workspace, "context.assemble", json!({"session": session})).await.to_string()
    };
    let own = assembled("bob", "agent:main:secret").await;
    assert!(own.contains("I said bobs-text."), "{own}");
    assert_eq!(assembled("bob", THEIRS).await, own, "a session is also called as it is shown");
    for workspace in ["eve", "default"] {
        for session in [THEIRS, "agent:main:secret"] {
            let answer = assembled(workspace, session).await;
            assert!(!answer.contains("bobs-text"), "{workspace}: {answer}");
        }
        let mark = format!("written by {workspace}");
        let turn = json!({"messages": [{"content": mark}], "session": THEIRS});
        // It is the caller's own session that is meant, and a person at the command line has none.
        let captured = ask(&app, workspace, "context.capture", turn).await;
        assert_eq!(captured["error"].is_null(), workspace == "eve", "{captured}");
        for command in ["context.compact", "context.assemble"] {
            let answer = ask(&app, workspace, command, json!({"session": THEIRS})).await;
            assert!(!answer.to_string().contains("bobs-text"), "{answer}");
        }
    }
    let own = assembled("bob", "agent:main:secret").await;
    assert!(own.contains("I said bobs-text.") && !own.contains("written by"), "{own}");
    app.close().await;
}
