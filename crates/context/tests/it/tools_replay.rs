//! Replays every recorded call of the original plugin's tools and commands. The kind of failure, the error text, the
//! first line of the text (except numbers and ids) and the keys of the details must match. [`DIFFERENCES`] lists
//! intended differences with their reasons.

use crate::{
    facts::Call,
    place::{Store, WIDGET, keys, lines, message, session},
};
use serde_json::{Value, json};
use toolyard_context::{
    ContextConfig,
    wire::{
        commands,
        tools::{self, Session},
        turns,
    },
};

/// The recording, the start of the text or error here, the keys of the details here, and the reason.
const DIFFERENCES: [(&str, &str, &[&str], &str); 8] = [
    (
        "005_add_resource_timeout_arg",
        "Imported OpenViking resource.",
        &[
            "action",
            "context_count",
            "errors",
            "meta",
            "queue_status",
            "root_uri",
            "source_path",
            "status",
            "telemetry",
            "temp_uri",
        ],
        "seed 003 gives add_resource a timeout; the recorded server refused it",
    ),
    (
        "029_memory_store_store",
        "Stored in OpenViking session memory-store-",
        &["action", "archived", "memoriesCount", "sessionId", "status", "stored", "traceId", "usedTempSession"],
        "memories are extracted without a model, and the answer says what was stored where",
    ),
    (
        "032_memory_recall_target_resources",
        "Found ",
        &["count", "memories", "recallMaxInjectedChars", "requestLimit", "scoreThreshold", "total"],
        "contract 7b: resources below a targetUri are recalled",
    ),
    ("038_memory_recall_noquery", "query is required", &[], "contract 7d: a clean error"),
    (
        "051_openviking_tool_result_read_canonical_ref_from_preview",
        "line 0 error code 0",
        &[
            "action",
            "has_more",
            "limit",
            "metadata",
            "next_offset",
            "offset",
            "returned_chars",
            "tool_output_ref",
            "tool_result_id",
            "total_chars",
        ],
        "contract 7a: the form that stubs print is accepted",
    ),
    (
        "070_ov_archive_expand_ok",
        "## archive_001",
        &["action", "archiveId", "messageCount", "ovSessionId", "sessionId"],
        "contract 7i: an archive can be read at once",
    ),
    (
        "077_ov_recall_trace_bad_trace",
        "No OpenViking recall traces found (lookupLayer=persistent).",
        &["action", "count", "entries", "lookupLayer", "warnings"],
        "as recorded; listed to compare the whole text",
    ),
    (
        "045_memory_forget_none",
        "No matching leaf memory candidates found. Try a more specific query.",
        &["action", "scoreThreshold"],
        "as recorded; listed to compare the whole text",
    ),
];

/// The first line without numbers, ids and the variable parts of URIs.
fn skeleton(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut out = String::new();
    for c in first.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !out.ends_with('#') {
            out.push(c);
        }
    }
    out.replace("resources/plugwidget", "R")
}

async fn prepared() -> (Store, tempfile::TempDir) {
    let store = Store::with(ContextConfig {
        enable_add_resource_tool: true,
        bypass_session_patterns: vec!["agent:*:cron:**".to_owned()],
        ..ContextConfig::default()
    });
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("widget.md"), WIDGET).unwrap();
    std::fs::write(source.path().join("notes.md"), "# Notes\n\ntcpdump on port 443 shows retransmits.\n").unwrap();
    for (uri, text) in [
        ("viking://~/memories/preferences/lang.md", "User prefers TypeScript for OpenClaw plugins."),
        ("viking://~/memories/events/trip.md", "User visited Kyoto in May 2026 and liked the temples."),
    ] {
        let (status, answer) =
            store.post("/api/v1/content/write", json!({"uri": uri, "content": text, "mode": "create"})).await;
        assert_eq!(status, 200, "{answer}");
    }
    let id = session().ov_id().unwrap();
    let path = format!("/api/v1/sessions/{id}/messages");
    store.post(&path, message("user", "Please run tcpdump and cat the log, I prefer TypeScript.")).await;
    let tool = json!({"type": "tool", "tool_id": "call_1", "tool_name": "RunCommand", "tool_input": {"cmd": "cat log"}, "tool_output": lines(), "tool_status": "completed"});
    store.post(&path, json!({"role": "assistant", "parts": [tool], "peer_id": "main"})).await;
    let (status, _) = store
        .post(&path, json!({"role": "assistant", "peer_id": "main", "content": "Done: tcpdump shows retransmits."}))
        .await;
    assert_eq!(status, 200);
    (store, source)
}

#[toolyard_shows::shows(
    "003-3-01", "003-3-02", "003-3-03", "003-3-04", "003-3-05", "003-3-06", "003-3-07", "003-3-08", "003-3-09",
    "003-4-01", "003-4-02", "003-4-03", "003-4-04", "003-4-05", "003-4-06", "003-4-07", "003-4-08", "003-4-09",
    "003-5-01", "003-5-02", "003-5-03", "003-5-04", "003-6-01", "003-6-02", "003-6-03", "003-6-04", "003-6-05",
    "003-6-06", "003-6-07", "003-6-08", "003-6-09", "003-6-10", "003-6-11", "003-6-12", "003-6-13", "003-7-01",
    "003-7-02", "003-7-03", "003-7-04", "003-7-05", "003-9-01", "003-9-02", "003-9-03", "003-9-04", "003-9-05",
    "003-9-06", "003-9-07", "003-9-08", "003-9-09", "003-9-10", "003-9-11", "003-9-12", "003-9-13"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_the_original_plugin_are_answered_alike() {
    let (store, source) = prepared().await;
    let mut wrong = Vec::new();
    for call in Call::all() {
        let name = call.name.as_str();
        if name.starts_with("064") {
            let commit = format!("/api/v1/sessions/{}/commit?wait=true", session().ov_id().unwrap());
            assert_eq!(store.post(&commit, json!({})).await.0, 200);
        }
        if name.starts_with("074") {
            let context = store.context.clone();
            let assembled = tokio::task::spawn_blocking(move || {
                turns::assemble(&context, &session(), Some("what language do I prefer for plugins?"), None)
            });
            let assembled = serde_json::to_value(assembled.await.unwrap().unwrap()).unwrap();
            assert!(
                assembled["prompt"]
                    .as_str()
                    .unwrap()
                    .starts_with("<relevant-memories>\nSource: openviking-auto-recall\n"),
                "{assembled}"
            );
        }
        let (text, details, thrown) = if let Some(line) = call.command.clone() {
            let context = store.context.clone();
            let told = tokio::task::spawn_blocking(move || {
                let call = |tool: &str, args| tools::run(&context, &session(), tool, &args).map_err(|t| t.message);
                commands::run(&context, &session(), &line, &call)
            })
            .await
            .unwrap()
            .unwrap();
            (told.text, told.details, None)
        } else {
            let session = call.session.as_ref().map_or_else(session, |other| Session {
                key: other.session_key.clone(),
                id: other.session_id.clone(),
                agent: other.agent_id.clone(),
                host_paths: toolyard_context::HostPaths::All,
                ..Session::default()
            });
            let mut args = call.args.clone();
            if args["source"] == "<folder>" {
                args["source"] = source.path().display().to_string().into();
            }
            match store.tool(&session, call.tool.as_deref().unwrap(), args).await {
                Ok(answer) => (answer.text, answer.details, None),
                Err(thrown) => (String::new(), Value::Null, Some(thrown.message)),
            }
        };
        if let Some((_, begins, expected, _)) = DIFFERENCES.iter().find(|(known, ..)| *known == name) {
            let said = thrown.unwrap_or(text);
            if !said.starts_with(begins) || keys(&details) != *expected {
                wrong.push(format!("{name}: {said} {:?}", keys(&details)));
            }
            continue;
        }
        if call.thrown != thrown {
            wrong.push(format!("{name}: threw {thrown:?}, not {:?}", call.thrown));
            continue;
        }
        if call.first_line != skeleton(&text) {
            wrong.push(format!("{name}: {:?}, not {:?}", skeleton(&text), call.first_line));
        }
        if call.details != keys(&details) {
            wrong.push(format!("{name}: keys {:?}, not {:?}", keys(&details), call.details));
        }
        if let Some(error) = &call.error
            && details["error"] != error.as_str()
        {
            wrong.push(format!("{name}: error {}, not {error}", details["error"]));
        }
        for (list, theirs) in &call.lists {
            let ours = keys(&details[list]);
            if !ours.is_empty() && *theirs != ours {
                wrong.push(format!("{name}: {list} has {ours:?}, not {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_table_has_the_originals_lines_and_columns() {
    let (store, source) = prepared().await;
    let args = json!({"source": source.path().display().to_string(), "to": "viking://resources/plugwidget"});
    store.tool(&session(), "add_resource", args).await.unwrap();
    let ours = store
        .tool(&session(), "ov_search", json!({"query": "rate limit of the widget api", "limit": 3}))
        .await
        .unwrap()
        .text;
    let table = Call::all().into_iter().find_map(|call| call.table).expect("one recording has a table");
    let ours: Vec<&str> = ours.lines().collect();
    assert_eq!((ours[1], ours[2]), (table.tip.as_str(), table.gap.as_str()));
    assert_eq!(ours.last(), Some(&table.note.as_str()));
    assert_eq!(ours[3].split_whitespace().collect::<Vec<_>>(), table.columns);
    assert!(ours[4].starts_with("1   resource  viking://resources/plugwidget/widget/widget.md"), "{ours:#?}");
}

#[toolyard_shows::shows(
    "003-5-05",
    "003-5-06",
    "003-5-07",
    "003-5-08",
    "003-5-10",
    "003-11-02",
    "003-11-03",
    "003-11-04"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contracts_edge_cases_hold() {
    let (store, _source) = prepared().await;
    let thrown = |outcome: Result<
        toolyard_context::wire::tools::Answer,
        toolyard_context::wire::tools::ToolFailure,
    >| { outcome.unwrap_err().message };
    let run = |tool: &'static str, args: Value| store.tool(Box::leak(Box::new(session())), tool, args);
    assert_eq!(thrown(run("ov_search", json!({"query": "  "})).await), "query is required");
    let none = run("ov_search", json!({"query": "x", "uri": "viking://resources/none"})).await.unwrap();
    assert_eq!(none.text, "No OpenViking resource or skill results found for \"x\" under viking://resources/none.");
    for (tool, args) in [
        ("ov_read", json!({"uri": "openviking://x"})),
        ("ov_list", json!({"uri": "/etc"})),
        ("ov_multi_read", json!({"uris": ["viking://resources/x", "y"]})),
    ] {
        assert_eq!(
            thrown(run(tool, args).await),
            format!(
                "{tool} only accepts OpenViking viking:// URIs, not local file paths or openviking:// display aliases"
            )
        );
    }
    assert!(
        thrown(run("ov_read", json!({"uri": "viking://resources/a…b"})).await)
            .starts_with("ov_read received a truncated display URI.")
    );
    assert_eq!(thrown(run("ov_multi_read", json!({})).await), "uris is required");
    let wide = run("memory_recall", json!({"query": "typescript plugins", "limit": 999})).await.unwrap();
    assert_eq!(wide.details["requestLimit"], 200);
    let gone = run("memory_forget", json!({"uri": "viking://~/memories/events/none.md"})).await.unwrap();
    assert_eq!(gone.details["action"], "none", "contract 7f: {}", gone.text);
    let other =
        run("openviking_tool_result_read", json!({"ref": "viking://session/other/tool-results/x"})).await.unwrap();
    assert_eq!(
        (&other.details["error"], &other.details["requestedSessionId"]),
        (&json!("session_mismatch"), &json!("other"))
    );
    let query = run(
        "openviking_tool_result_search",
        json!({"uri": format!("viking://session/{}/tool-results/x", session().ov_id().unwrap())}),
    )
    .await
    .unwrap();
    assert_eq!(query.details, json!({"error": "missing_param", "param": "query"}));
    let forget = run(
        "memory_forget",
        json!({"query": "User visited Kyoto in May 2026 and liked the temples.", "scoreThreshold": 0.85}),
    )
    .await
    .unwrap();
    assert_eq!(forget.text, "Forgotten: viking://user/default/memories/events/trip.md");
    let after = run("memory_recall", json!({"query": "Kyoto temples", "scoreThreshold": 0})).await.unwrap();
    assert!(!after.text.contains("Kyoto"), "{}", after.text);
    let roles = run("memory_store", json!({"text": "x y z", "role": "robot"})).await;
    assert!(thrown(roles).contains("[INVALID_ARGUMENT]"));
}
