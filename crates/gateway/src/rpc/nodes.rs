//! `node.list` and `node.describe`: machines that have connected in the role of a node, and what they say they can do.
//! They are shown; nothing is asked of them.

use super::{Ask, RpcError};
use crate::{
    hub::Connection,
    ws::params::{Field, Kind, check, text},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

const NOTHING: &[Field] = &[];
const ONE: &[Field] = &[Field::required("nodeId", Kind::Text)];

pub(super) fn answer(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let nodes = ask.gateway.nodes();
    let now = Timestamp::now().as_millisecond();
    if ask.method == "node.list" {
        check(ask.method, params, NOTHING)?;
        let nodes: Vec<Value> = nodes.iter().map(|node| shown(node)).collect();
        return Ok(json!({"ts": now, "nodes": nodes}));
    }
    let params = check(ask.method, params, ONE)?;
    let id = text(&params, "nodeId").unwrap_or_default();
    let found = nodes.iter().find(|node| node_id(node) == id).ok_or_else(|| RpcError::invalid("unknown nodeId"))?;
    let mut value = shown(found);
    value["ts"] = now.into();
    Ok(value)
}

/// A node is known by its device; one without is known only as long as it is connected.
fn node_id(node: &Connection) -> &str {
    node.device.as_deref().unwrap_or(&node.id)
}

fn shown(node: &Connection) -> Value {
    let client = &node.client;
    let surface = node.node.as_deref().cloned().unwrap_or_default();
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list.dedup();
        list
    };
    let mut value = Map::from_iter([
        ("nodeId".to_owned(), Value::from(node_id(node))),
        ("platform".to_owned(), client.platform.as_str().into()),
        ("version".to_owned(), client.version.as_str().into()),
        ("clientId".to_owned(), client.id.as_str().into()),
        ("clientMode".to_owned(), client.mode.as_str().into()),
        ("remoteIp".to_owned(), node.address.to_string().into()),
        ("caps".to_owned(), sorted(&node.caps).into()),
        ("commands".to_owned(), sorted(&surface.commands).into()),
        ("permissions".to_owned(), Value::Object(surface.permissions)),
        ("paired".to_owned(), node.device.is_some().into()),
        ("connected".to_owned(), true.into()),
        ("connectedAtMs".to_owned(), node.online_since.into()),
    ]);
    for (name, given) in [
        ("displayName", &client.display_name),
        ("deviceFamily", &client.device_family),
        ("modelIdentifier", &client.model_identifier),
        ("pathEnv", &surface.path_env),
    ] {
        if let Some(given) = given {
            value.insert(name.to_owned(), given.as_str().into());
        }
    }
    Value::Object(value)
}
