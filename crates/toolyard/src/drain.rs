//! How a node of a cluster stops: it says so, waits until balancers stop sending, finishes its work, and releases the rest.
//!
//! 1. `/ready` answers 503 and the store lists the node as draining. Work that still arrives is done.
//! 2. After [`NOTICE`] nothing new begins. Connected clients receive the addresses of the nodes that go on.
//! 3. Runs under way have [`WITHIN`] to end. What is left then is released, and other nodes take it up.
//!
//! A second signal ends the waiting. A single machine stops at once, as it always has.

use crate::output;
use std::{collections::HashSet, sync::Arc, time::Duration};
use toolyard_engine::{
    Engine, Store,
    store::{NodeState, Owner, StoreError},
};

/// How long a node that is not ready any more still takes work: a balancer that looks every second has noticed.
pub(crate) const NOTICE: Duration = Duration::from_secs(3);
/// How long runs under way may take to end.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);
/// How often a node looks whether it was asked to drain.
const LOOK: Duration = Duration::from_millis(500);
/// How often a draining node looks whether its runs have ended.
const RUNS_LOOK: Duration = Duration::from_millis(50);
/// The space of requests to drain, by node.
const SPACE: &str = "drain";

/// Returns when somebody has asked this node to drain; never on a single machine.
pub(crate) async fn asked(engine: &Engine) {
    let store = engine.store().clone();
    if !store.is_shared() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let store = store.clone();
        match tokio::task::spawn_blocking(move || is_asked(&*store)).await {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot look whether this node is to drain"),
            Err(error) => tracing::error!(%error, "looking whether this node is to drain ended unexpectedly"),
        }
    }
}

/// Asks a node to drain, in the life that it has now.
pub(crate) fn ask(store: &dyn Store, owner: &Owner) -> Result<(), StoreError> {
    store.put(SPACE, &owner.node, owner.epoch.to_string().into_bytes(), None)?;
    store.settle()
}

fn is_asked(store: &dyn Store) -> Result<bool, StoreError> {
    let own = store.owner();
    Ok(store.get(SPACE, &own.node)?.is_some_and(|epoch| epoch == own.epoch.to_string().into_bytes()))
}

/// Steps 1 and 2: what happens before clients are told. Returns the addresses of the nodes that go on.
pub(crate) async fn announce(engine: &Engine, is_quiet: bool) -> Vec<String> {
    if !is_quiet {
        output::note("draining: no new work is taken after a few seconds; stop again to stop at once");
    }
    engine.announce_drain();
    let store = engine.store().clone();
    let told = tokio::task::spawn_blocking(move || {
        store.set_draining()?;
        others(&store)
    });
    let elsewhere = match told.await {
        Ok(Ok(elsewhere)) => elsewhere,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store does not know that this node is draining");
            Vec::new()
        }
        Err(error) => {
            tracing::error!(%error, "announcing the drain ended unexpectedly");
            Vec::new()
        }
    };
    tokio::time::sleep(NOTICE).await;
    engine.refuse_new_runs();
    elsewhere
}

fn others(store: &Arc<dyn Store>) -> Result<Vec<String>, StoreError> {
    let own = store.owner();
    let nodes = store.nodes()?.into_iter();
    Ok(nodes
        .filter(|node| node.owner != own && node.state == NodeState::Live)
        .filter_map(|node| node.address)
        .collect())
}

/// Step 3: waits until what is under way has ended, for a bounded time.
pub(crate) async fn finish(engine: &Engine) {
    let began = tokio::time::Instant::now();
    loop {
        let left: HashSet<_> = engine.active_runs().into_iter().collect();
        if left.is_empty() {
            return;
        }
        if began.elapsed() >= WITHIN {
            tracing::info!(runs = left.len(), "runs that have not ended are handed over to other nodes");
            return;
        }
        tokio::time::sleep(RUNS_LOOK).await;
    }
}
