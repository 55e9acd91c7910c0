//! Every recording of the real gateway that one client made: what was sent is sent again, and the answers must agree in
//! type, ok, error code, details code, close code and the payload's keys. What differs on purpose is listed here and in
//! docs/gateway.md.

use crate::harness::{Server, TOKEN, Ws};
use futures_util::SinkExt;
use serde_json::Value;
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use tokio_websockets::Message;

/// Recordings that are driven elsewhere: two connections (`approvals.rs`), signatures over a nonce of that moment
/// (`devices.rs`), HTTP (`http.rs`), headers (`limits.rs`), and an empty file.
const ELSEWHERE: &[&str] =
    &["approval-", "connect-cli-device-v3", "connect-device-", "device-", "http", "origin-evil", "xff"];

/// Payload keys that the real gateway sends and we do not: what they describe does not exist here.
const ABSENT: &[&str] = &[
    // hello-ok
    "controlUiWidgetKinds",
    "controlUiLinkReaders",
    "pluginSurfaceUrls",
    // status
    "hostDesktop",
    "taskAudit",
    "workerPools",
    "shutdownBudget",
    // config.get
    "includedPaths",
    "includeProvenance",
    "agentRosterIncludeOwned",
    "bindingsIncludeOwned",
    "sourceConfig",
    "runtimeConfig",
    "resolved",
    "hash",
    "legacyIssues",
    "parsed",
    "config",
    "valid",
    "issues",
    "warnings",
    "appliedConfigHash",
    "configRevisionHash",
];

fn recordings() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // Beside the checkout; a worktree lies one folder deeper.
    ["../../../shared", "../../../../shared"]
        .iter()
        .map(|up| here.join(up).join("recorded/openclaw"))
        .find(|p| p.is_dir())
}

/// Differences on purpose: the recording, the request's id, and why.
fn intended(name: &str, id: &str) -> Option<&'static str> {
    match (name, id) {
        ("connect-seed003-client-verbatim", _) => Some("any client id and mode is taken"),
        ("rpc-basic", "r18" | "r19" | "r20" | "r23") => Some("tools of OpenClaw that are not here: not_found"),
        ("tools-invoke-plugin", "r4" | "r5" | "r6" | "r7") => Some("arguments are checked against the schema"),
        ("tools-invoke-plugin", "r12") => Some("an optional tool must be allowed by policy"),
        ("tools-invoke-plugin", "r17") => Some("an idempotency key deduplicates: other arguments conflict"),
        _ => None,
    }
}

fn codes(frame: &Value) -> (Value, Value, Value, Value) {
    let error = &frame["error"];
    (frame["type"].clone(), frame["ok"].clone(), error["code"].clone(), error["details"]["code"].clone())
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

async fn replay(server: &Server, name: &str, lines: &[Value]) -> Vec<String> {
    let mut ws = server.open().await;
    let mut differences = Vec::new();
    // Ids that the recorded gateway made up, and ours in their place.
    let mut ids: Vec<(String, String)> = Vec::new();
    for line in lines {
        match line["dir"].as_str().unwrap_or_default() {
            "send" => {
                if line.get("binary").is_some() {
                    let _ = ws.socket.send(Message::binary(vec![0u8, 1])).await;
                    continue;
                }
                let mut text = match line.get("frame") {
                    Some(frame) => frame.to_string(),
                    None => line["raw"].as_str().unwrap_or_default().to_owned(),
                };
                for (theirs, ours) in &ids {
                    text = text.replace(theirs, ours);
                }
                let length = line["rawLen"].as_u64().unwrap_or_default() as usize;
                if length > text.len() + 1000 {
                    // The recording keeps only the beginning of a very long text.
                    text = format!("{text}{}\"}}}}", "x".repeat(length - text.len()));
                }
                ws.send(text).await;
            }
            "recv" if line["frame"]["type"] == "res" => {
                let want = &line["frame"];
                let id = want["id"].as_str().unwrap_or("5");
                let got = response(&mut ws, &want["id"]).await;
                let reason = intended(name, id);
                let Some(got) = got else {
                    differences.push(format!("{id}: no answer, closed {:?}", ws.closed));
                    continue;
                };
                if reason.is_some() {
                    continue;
                }
                if let (Some(theirs), Some(ours)) = (want["payload"]["id"].as_str(), got["payload"]["id"].as_str()) {
                    ids.push((theirs.to_owned(), ours.to_owned()));
                }
                if codes(&got) != codes(want) {
                    differences.push(format!("{id}: want {:?}, got {:?}", codes(want), codes(&got)));
                }
                for key in keys(&want["payload"]).difference(&keys(&got["payload"])) {
                    if !ABSENT.contains(&key.as_str()) {
                        differences.push(format!("{id}: the payload lacks {key:?}: {}", got["payload"]));
                    }
                }
                if want["payload"]["error"]["code"] != got["payload"]["error"]["code"] {
                    differences.push(format!(
                        "{id}: payload error {} instead of {}",
                        got["payload"]["error"], want["payload"]["error"]
                    ));
                }
            }
            "close" if name != "connect-seed003-client-verbatim" => {
                if let Some(code) = line["code"].as_u64() {
                    let (got, reason) = ws.until_closed(Duration::from_secs(20)).await;
                    if u64::from(got) != code {
                        differences.push(format!("close {code}, got {got} {reason:?}"));
                    }
                }
            }
            "timeout" if name == "post-malformed-json" => {
                if let Some(frame) = ws.frame_within(Duration::from_millis(300)).await {
                    differences.push(format!("silence expected, got {frame}"));
                }
            }
            _ => {}
        }
    }
    differences
}

async fn response(ws: &mut Ws, id: &Value) -> Option<Value> {
    if let Some(at) = ws.events.iter().position(|f| f["type"] == "res" && f["id"] == *id) {
        return Some(ws.events.remove(at));
    }
    while let Some(frame) = ws.frame().await {
        if frame["type"] == "res" && frame["id"] == *id {
            return Some(frame);
        }
        ws.events.push(frame);
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recordings_are_answered_as_the_real_gateway_answered_them() {
    let Some(folder) = recordings() else {
        eprintln!("skipped: there is no shared/recorded/openclaw beside the checkout");
        return;
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut tasks = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ELSEWHERE.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(&line.replace("test-token-abc123", TOKEN)).unwrap()).collect();
        // Each on a gateway of its own: rpc-basic expects that no session exists yet.
        tasks.push(tokio::spawn(async move {
            let server = Server::start().await;
            let differences = replay(&server, &name, &lines).await;
            (name, differences)
        }));
    }
    let (mut matched, mut wrong) = (0, Vec::new());
    for task in tasks {
        let (name, differences) = task.await.unwrap();
        if differences.is_empty() {
            matched += 1;
        }
        wrong.extend(differences.into_iter().map(|d| format!("{name}: {d}")));
    }
    eprintln!("{matched} recordings match");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(matched >= 20, "only {matched} recordings were replayed");
}
