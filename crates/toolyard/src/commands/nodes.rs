//! `toolyard nodes`: the nodes of a cluster.

use super::Outcome;
use crate::{
    cli::{Global, NodesCommand},
    config, drain, output,
    shared_config::{self, NodeSettings},
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
    /// The version of the cluster's configuration that it works with.
    #[serde(rename = "configVersion", skip_serializing_if = "Option::is_none")]
    config_version: Option<u64>,
    /// Settings of that version that it uses after a restart.
    #[serde(rename = "needsRestart", skip_serializing_if = "Vec::is_empty")]
    needs_restart: Vec<String>,
    /// Why it does not use a newer version.
    #[serde(rename = "configProblem", skip_serializing_if = "Option::is_none")]
    config_problem: Option<String>,
}

impl From<NodeRow> for Node {
    fn from(row: NodeRow) -> Self {
        Self {
            name: row.owner.node,
            epoch: row.owner.epoch,
            address: row.address,
            state: row.state,
            config_version: None,
            needs_restart: Vec::new(),
            config_problem: None,
        }
    }
}

impl Node {
    /// With what the node itself tells about the configuration it works with.
    fn told(mut self, in_use: &[(String, NodeSettings)]) -> Self {
        let own = in_use.iter().find(|(node, in_use)| *node == self.name && in_use.epoch == self.epoch);
        if let Some((_, in_use)) = own {
            self.config_version = Some(in_use.version);
            self.needs_restart = in_use.needs_restart.clone();
            self.config_problem = in_use.problem.clone();
        }
        self
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
    resolved.home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    let store = stores::open_shared(&resolved, &url, false)?;
    match command {
        NodesCommand::List => {
            let rows = store.nodes()?;
            // A database that no node has used must not get this home's keys just because somebody looked at it.
            let facts = if rows.is_empty() { None } else { stores::open(&resolved)?.facts };
            let in_use = facts.map_or_else(|| Ok(Vec::new()), |facts| shared_config::of_nodes(&*facts))?;
            let nodes = rows.into_iter().map(|row| Node::from(row).told(&in_use));
            print(global, &Nodes { nodes: nodes.collect() });
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
        let config = match (node.config_version, &node.config_problem, node.needs_restart.is_empty()) {
            (None, ..) => String::new(),
            (Some(version), Some(problem), _) => format!("configuration {version}, no newer one: {problem}"),
            (Some(version), None, true) => format!("configuration {version}"),
            (Some(version), None, false) => {
                format!("configuration {version}, after a restart: {}", node.needs_restart.join(", "))
            }
        };
        vec![node.name.clone(), node.epoch.to_string(), state.to_owned(), address, config]
    });
    output::data(&output::table(&rows.collect::<Vec<_>>()));
}
