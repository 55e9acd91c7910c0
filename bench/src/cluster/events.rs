//! How late the nodes of a cluster hear what one of them records.

use super::{Node, load_average, new_database, server};
use crate::{
    Setup,
    report::{Good, Report},
    stats::{median, most, quantile},
    workloads,
};
use anyhow::{Result, ensure};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use toolyard_engine::{Events, Subscription};
use toolyard_protocol::{EventType, RunId};

/// Nodes of the cluster, all of which listen. They are engines of this process, each with a store of its own.
const NODES: usize = 10;
/// Plans per round, their steps, and the pause between two plans.
const PLANS: usize = 40;
const STEPS: usize = 3;
const PAUSE: Duration = Duration::from_millis(40);
/// Events that are on their way when the last plan has ended are waited for.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// When each event was heard at one node, by run and number.
type Heard = HashMap<(RunId, u64), Instant>;

/// Hears events until it is told to stop; also how many were lost.
async fn hear(mut events: Events, mut stop: watch::Receiver<bool>) -> (Heard, usize) {
    let mut heard = Heard::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = stop.changed() => None,
        };
        let Some(event) = event else { return (heard, events.take_lost()) };
        // Progress is not recorded, and is heard only at the node that runs the call.
        if event.event_type != EventType::StepProgress {
            heard.entry((event.run_id, event.seq)).or_insert_with(Instant::now);
        }
    }
}

/// The time from an event at the node that records it to the same event at each of the others.
pub(crate) fn events(setup: &Setup) -> Result<Report> {
    let report = || Report::new("cluster-events", "lagP99Ms", Good::Below, 50.0).also("missed", Good::AtMost, 0.0);
    let server = match server(setup, report()) {
        Ok(server) => server,
        Err(skipped) => return Ok(skipped),
    };
    let workers = toolyard_gateway::listen::worker_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    let url = runtime.block_on(new_database(&server))?;
    let nodes: Vec<Node> =
        (0..NODES).map(|n| Node::open(&url, &format!("node{n}"), &runtime)).collect::<Result<_>>()?;
    let (stopped, stop) = watch::channel(false);
    let mut ears = Vec::new();
    for node in &nodes {
        let engine = node.engine.clone();
        let events = runtime.block_on(async move { engine.watch_events(Subscription::default()).await });
        ears.push(runtime.spawn(hear(events, stop.clone())));
    }
    // Nodes learn with their beats that somebody watches.
    std::thread::sleep(super::BEATS);
    let plan = Arc::new(workloads::writes(STEPS)?);
    for _ in 0..setup.rounds * PLANS {
        nodes[0].run(&plan, &runtime)?;
        std::thread::sleep(PAUSE);
    }
    std::thread::sleep(LAST_EVENTS);
    stopped.send_replace(true);
    let mut heard = Vec::new();
    for ear in ears {
        let (at, lost) = runtime.block_on(ear)?;
        ensure!(lost == 0, "a listener was too slow and lost {lost} events");
        heard.push(at);
    }
    let own = heard.remove(0);
    let (mut lags, mut missed) = (Vec::new(), 0.0);
    for other in &heard {
        for (event, at) in &own {
            match other.get(event) {
                Some(then) => lags.push(then.saturating_duration_since(*at).as_secs_f64() * 1e3),
                None => missed += 1.0,
            }
        }
    }
    for node in &nodes {
        runtime.block_on(node.engine.shutdown());
    }
    drop(nodes);
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(report()
        .figure("lagP50Ms", median(&lags))
        .figure("lagP99Ms", quantile(&lags, 0.99))
        .figure("lagMaxMs", most(&lags))
        .figure("missed", missed)
        .figure("events", lags.len() as f64)
        .figure("nodes", NODES as f64)
        .figure("load", load_average()))
}
