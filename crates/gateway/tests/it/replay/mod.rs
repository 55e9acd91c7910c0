//! Every recording of the real gateway: what was sent is sent again, and the answers must agree in type, ok, error code,
//! details, close code, and in the payload's keys and the kinds of their values; events too. What differs on purpose
//! stands in `differences.rs`, with the answer given here instead, and in docs/gateway.md.

mod differences;
mod http;
mod player;

use crate::harness::{Server, TOKEN};
use player::Player;
use serde_json::Value;
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use toolyard_gateway::Settings;

/// Recordings that belong together: made by two clients at once, or by one after another.
const TOGETHER: [&[&str]; 3] = [
    &["approval-reviewer-allow-once", "approval-invoker-allow-once"],
    &["approval-reviewer-deny", "approval-invoker-deny"],
    &["approval-timeout-reviewer", "approval-timeout-invoker"],
];
const IN_TURN: [&[&str]; 1] = [&["connect-cli-device-v3", "device-reconnect", "device-scope-upgrade"]];
/// Plain HTTP, one exchange a line.
const HTTP: &str = "http";
/// An empty file: what it was to show was refused before a word was spoken (see `limits.rs`).
const EMPTY: &str = "xff";

fn folder() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // Beside the checkout; a worktree lies one folder deeper.
    ["../../../shared", "../../../../shared"]
        .iter()
        .map(|up| here.join(up).join("recorded/openclaw"))
        .find(|p| p.is_dir())
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().unwrap().join(format!("{name}.jsonl"))).unwrap();
    let text = text.replace("test-token-abc123", TOKEN);
    text.lines().filter(|l| !l.trim().is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A gateway whose clocks run faster than the real one's, so that what comes every 30 seconds need not be waited for.
async fn server() -> Server {
    let settings = Settings {
        tick: Duration::from_millis(1200),
        health_every: Duration::from_millis(700),
        ..Settings::new(TOKEN)
    };
    Server::start_with(settings).await
}

/// Plays recordings side by side: what was sent and received first comes first, whoever's it was.
async fn side_by_side(names: &[&str]) -> Vec<String> {
    let server = server().await;
    let mut player = Player::new(&server);
    let mut all: Vec<(usize, Value)> = Vec::new();
    for (who, name) in names.iter().enumerate() {
        all.extend(lines(name).into_iter().map(|line| (who, line)));
    }
    all.sort_by(|(_, a), (_, b)| a["t"].as_f64().unwrap_or_default().total_cmp(&b["t"].as_f64().unwrap_or_default()));
    for (who, line) in &all {
        player.line(names[*who], line).await;
    }
    player.finish()
}

/// Plays recordings one after another on the same gateway.
async fn in_turn(names: &[&str]) -> Vec<String> {
    let server = server().await;
    let mut player = Player::new(&server);
    for name in names {
        for line in lines(name) {
            player.line(name, &line).await;
        }
    }
    player.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recordings_are_answered_as_the_real_gateway_answered_them() {
    let Some(folder) = folder() else {
        eprintln!("skipped: there is no shared/recorded/openclaw beside the checkout");
        return;
    };
    let mut left: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let there = left.len();
    assert!(left.remove(EMPTY) && lines(EMPTY).is_empty());
    let mut tasks = Vec::new();
    assert!(left.remove(HTTP));
    tasks.push(tokio::spawn(async { (1, http::exchanges().await) }));
    for names in TOGETHER {
        names.iter().for_each(|name| assert!(left.remove(*name), "{name}"));
        tasks.push(tokio::spawn(async { (names.len(), side_by_side(names).await) }));
    }
    for names in IN_TURN {
        names.iter().for_each(|name| assert!(left.remove(*name), "{name}"));
        tasks.push(tokio::spawn(async { (names.len(), in_turn(names).await) }));
    }
    // Each of the rest on a gateway of its own: rpc-basic expects that no session exists yet.
    for name in left {
        tasks.push(tokio::spawn(async move { (1, in_turn(&[&name]).await) }));
    }
    let (mut played, mut wrong) = (0, Vec::new());
    for task in tasks {
        let (count, differences) = task.await.unwrap();
        played += count;
        wrong.extend(differences);
    }
    eprintln!("{played} recordings played, of {there} with one empty");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(played + 1, there);
}
