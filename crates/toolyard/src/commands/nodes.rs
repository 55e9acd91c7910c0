//! `toolyard nodes`: the nodes of a cluster.

use super::Outcome;
use crate::{
    cli::{Global, NodesCommand},
    config, drain, output,
    stores::{self, Opened},
};
use serde::Serialize;
use std::{process::ExitCode, sync::Arc};
use toolyard_engine::{
    SealedStore, Store,
    store::{NodeRow, NodeState},
};
use toolyard_protocol::{ErrorCode, Failure};

/// What `nodes list` prints.
#[derive(Serialize)]
struct Nodes {
    nodes: Vec<Node>,
}

/// A node of the cluster.
#[derive(Serialize)]
struct Node {
    name: String,
    epoch: u64,
    address: Option<String>,
    state: NodeState,
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        Self { name: row.owner.node, epoch: row.owner.epoch, address: row.address, state: row.state }
    }
}

pub(super) async fn run(global: &Global, command: NodesCommand) -> Outcome {
    let global = global.clone();
    tokio::task::spawn_blocking(move || run_blocking(&global, &command))
        .await
        .map_err(|_| Failure::new(ErrorCode::InternalError, "the database was not asked"))?
}

fn run_blocking(global: &Global, command: &NodesCommand) -> Outcome {
    let resolved = config::resolve(global)?;
    let Some(url) = stores::url(&resolved) else {
        return Err(Failure::new(
            ErrorCode::PreconditionFailed,
            "this home keeps its state on its own disk: it is not part of a cluster",
        )
        .suggest("Set store.url, or move the state with `toolyard migrate --to postgres://…`."));
    };
    let store = stores::open_shared(&resolved, &url, false)?;
    match command {
        NodesCommand::List => {
            let nodes: Vec<Node> = store.nodes()?.into_iter().map(Node::from).collect();
            print(global, &Nodes { nodes });
        }
        NodesCommand::Drain { name } => {
            let found = named(&store, name)?;
            drop(store);
            // As the nodes read it: sealed.
            let Opened { store, signer, .. } = stores::open(&resolved)?;
            let sealed = SealedStore::new(store, Arc::new(signer));
            for node in &found {
                drain::ask(&sealed, &node.owner)?;
            }
            print(global, &Nodes { nodes: found.into_iter().map(Node::from).collect() });
        }
        NodesCommand::Fence { name } => {
            let found = named(&store, name)?;
            for node in &found {
                store.fence(&node.owner)?;
            }
            let fenced = found.into_iter().map(|node| Node { state: NodeState::Dead, ..node.into() });
            print(global, &Nodes { nodes: fenced.collect() });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn named(store: &dyn Store, name: &str) -> Result<Vec<NodeRow>, Failure> {
    let found: Vec<NodeRow> = store.nodes()?.into_iter().filter(|node| node.owner.node == *name).collect();
    if found.is_empty() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no node {name}"))
            .suggest("`toolyard nodes list` names them."));
    }
    Ok(found)
}

fn print(global: &Global, nodes: &Nodes) {
    if global.json {
        output::json(nodes);
        return;
    }
    let rows = nodes.nodes.iter().map(|node| {
        let state = match node.state {
            NodeState::Live => "live",
            NodeState::Draining => "draining",
            NodeState::Dead => "dead",
        };
        let address = node.address.clone().unwrap_or_else(|| "-".to_owned());
        vec![node.name.clone(), node.epoch.to_string(), state.to_owned(), address]
    });
    output::data(&output::table(&rows.collect::<Vec<_>>()));
}
