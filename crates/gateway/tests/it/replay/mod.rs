//! What was sent to a real gateway is sent again, and the answers must agree in type, ok, error code, details, close code,
//! and in the payload's keys and the types of their values; events too. What differs on purpose stands in
//! `differences.rs`, with the answer given here instead, and in docs/guide/gateway.md.

mod differences;
mod facts;
mod http;
mod player;

use crate::harness::{Server, TOKEN};
use facts::{Facts, Scenario};
use player::Player;
use std::{sync::Arc, time::Duration};
use toolyard_gateway::Settings;

/// Connections that were recorded, and HTTP exchanges. A number that shrinks is a fixture that was lost.
const RECORDINGS: usize = 41;
const EXCHANGES: usize = 23;

/// A gateway whose clocks run faster than the real one's, so that what comes every 30 seconds need not be waited for.
async fn server() -> Server {
    let settings = Settings {
        tick: Duration::from_millis(1200),
        health_every: Duration::from_millis(700),
        ..Settings::new(TOKEN)
    };
    Server::start_with(settings).await
}

/// Plays a scenario on a gateway of its own: some expect that no session exists yet.
async fn play(facts: &Facts, scenario: &Scenario) -> Vec<String> {
    let server = server().await;
    let mut player = Player::new(&server, facts);
    for step in &scenario.steps {
        player.step(&scenario.recordings[step.of], &step.act).await;
    }
    player.finish()
}

#[toolyard_shows::shows(
    "003-1-01",
    "003-1-02",
    "003-1-03",
    "003-1-05",
    "003-1-06",
    "003-1-07",
    "003-1-08",
    "003-1-09",
    "003-1-10",
    "003-1-11",
    "003-1-12",
    "003-1-13",
    "003-2-01",
    "003-2-02",
    "003-2-05",
    "003-2-06",
    "003-10-01",
    "003-10-02",
    "003-10-03",
    "003-10-04",
    "003-11-01"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recordings_are_answered_as_the_real_gateway_answered_them() {
    let facts = Arc::new(Facts::read());
    assert_eq!(facts.http.len(), EXCHANGES);
    assert_eq!(facts.scenarios.iter().map(|scenario| scenario.recordings.len()).sum::<usize>(), RECORDINGS);
    let own = facts.clone();
    let mut tasks = vec![tokio::spawn(async move { http::exchanges(&own).await })];
    for at in 0..facts.scenarios.len() {
        let own = facts.clone();
        tasks.push(tokio::spawn(async move { play(&own, &own.scenarios[at]).await }));
    }
    let mut wrong = Vec::new();
    for task in tasks {
        wrong.extend(task.await.unwrap());
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
