//! `node.list` and `node.describe`: machines and programs that have connected in the role of a node, and what they say they
//! can do. `node.invoke.result`: what came of a command that a node was asked to run.

use super::{
    Ask, RpcError,
    offers::{refused, took},
};
use crate::{
    hub::Connection,
    ws::params::{Field, Kind, check, flag, text},
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
    let found = nodes.iter().find(|node| node.node_id() == id).ok_or_else(|| RpcError::invalid("unknown nodeId"))?;
    let mut value = shown(found);
    value["ts"] = now.into();
    Ok(value)
}

const RESULT: &[Field] = &[
    Field::required("id", Kind::Text),
    Field::required("nodeId", Kind::Text),
    Field::required("ok", Kind::Flag),
    Field::optional("payload", Kind::Any),
    Field::optional("payloadJSON", Kind::TextOrNull),
    Field::optional("error", Kind::ObjectOrNull),
];

/// Takes a node's answer. One that nobody waits for any more is no mistake of the node's.
pub(super) fn result(ask: &Ask<'_>, params: Option<Value>) -> Result<Value, RpcError> {
    let mut params = check(ask.method, params, RESULT)?;
    if text(&params, "nodeId") != Some(ask.connection.node_id()) {
        return Err(RpcError::invalid("nodeId mismatch"));
    }
    let id = text(&params, "id").unwrap_or_default().to_owned();
    let outcome = if flag(&params, "ok") {
        let written = params.get("payloadJSON").and_then(Value::as_str).map(serde_json::from_str::<Value>);
        match written {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => return Err(RpcError::invalid("payloadJSON is not JSON")),
            None => Ok(params.remove("payload").unwrap_or_default()),
        }
    } else {
        Err(refused(params.get("error"), "the node gave no reason"))
    };
    Ok(took(ask, &id, outcome))
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
        ("nodeId".to_owned(), Value::from(node.node_id())),
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
