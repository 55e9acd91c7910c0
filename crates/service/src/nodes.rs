//! `node.list` and `node.describe`: machines and programs that have connected in the role of a node, and what they say they
//! can do. `node.invoke.result`: what came of a command that a node was asked to run.

use crate::{
    AnyJson, Call, Handle, Hub, Lane, MethodError, NoParams, Object, Role, RpcError, Terms,
    hub::Connection,
    methods,
    offers::{RefusalReason, ResultReceipt},
    params::Text,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::authority::Effect;

/// A node may answer requests of the gateway and change nothing else.
const ANSWER: Terms = Terms::new(None, Effect::State).role(Role::Node).lane(Lane::Express);

methods! {
    /// Lists the connected nodes.
    NodeList = "node.list", Terms::read(), NoParams => Nodes;
    /// Shows one node and what it announced.
    NodeDescribe = "node.describe", Terms::read(), NodeParams => DescribedNode;
    /// Accepts a node's answer to a command.
    NodeInvokeResult = "node.invoke.result", ANSWER, NodeResultParams => ResultReceipt;
}

/// A node by id.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeParams {
    node_id: Text,
}

/// Nodes that are connected.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Nodes {
    ts: i64,
    nodes: Vec<ShownNode>,
}

/// A node, and the time of the answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DescribedNode {
    #[serde(flatten)]
    node: ShownNode,
    ts: i64,
}

/// A node as doors show it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownNode {
    node_id: String,
    platform: String,
    version: String,
    client_id: String,
    client_mode: String,
    remote_ip: String,
    caps: Vec<String>,
    commands: Vec<String>,
    permissions: Object,
    paired: bool,
    connected: bool,
    connected_at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_identifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_env: Option<String>,
}

impl From<&Connection> for ShownNode {
    fn from(node: &Connection) -> Self {
        let client = node.client.clone();
        let surface = node.node.as_deref().cloned().unwrap_or_default();
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list.dedup();
            list
        };
        Self {
            node_id: node.node_id().to_owned(),
            platform: client.platform,
            version: client.version,
            client_id: client.id,
            client_mode: client.mode,
            remote_ip: node.address.to_string(),
            caps: sorted(node.caps.clone()),
            commands: sorted(surface.commands),
            permissions: surface.permissions,
            paired: node.device.is_some(),
            connected: true,
            connected_at_ms: node.online_since,
            display_name: client.display_name,
            device_family: client.device_family,
            model_identifier: client.model_identifier,
            path_env: surface.path_env,
        }
    }
}

impl Handle<NodeList> for Hub {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<Nodes, MethodError> {
        let nodes = self.nodes(&call.caller.workspace).iter().map(|node| ShownNode::from(&**node)).collect();
        Ok(Nodes { ts: Timestamp::now().as_millisecond(), nodes })
    }
}

impl Handle<NodeDescribe> for Hub {
    async fn handle(&self, call: &Call<'_>, params: NodeParams) -> Result<DescribedNode, MethodError> {
        let found = self.nodes(&call.caller.workspace).into_iter().find(|node| node.node_id() == &*params.node_id);
        let found = found.ok_or_else(|| RpcError::invalid("unknown nodeId"))?;
        Ok(DescribedNode { node: ShownNode::from(&*found), ts: Timestamp::now().as_millisecond() })
    }
}

/// A node's answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeResultParams {
    id: Text,
    node_id: Text,
    ok: bool,
    #[serde(default)]
    payload: AnyJson,
    #[serde(default, rename = "payloadJSON")]
    #[schemars(extend("nullable" = true))]
    payload_json: Option<Text>,
    #[serde(default)]
    #[schemars(extend("nullable" = true))]
    error: Option<RefusalReason>,
}

impl Handle<NodeInvokeResult> for Hub {
    /// An answer for which nobody waits any more is accepted: it is not the node's error.
    async fn handle(&self, call: &Call<'_>, params: NodeResultParams) -> Result<ResultReceipt, MethodError> {
        let node = call.connection()?;
        if &*params.node_id != node.node_id() {
            return Err(RpcError::invalid("nodeId mismatch").into());
        }
        let outcome = if params.ok {
            match params.payload_json.map(|text| serde_json::from_str::<AnyJson>(&text)) {
                Some(Ok(value)) => Ok(value),
                Some(Err(_)) => return Err(RpcError::invalid("payloadJSON is not JSON").into()),
                None => Ok(params.payload),
            }
        } else {
            Err(RefusalReason::read(params.error, "the node gave no reason"))
        };
        Ok(self.take_answer(node, &params.id, outcome))
    }
}
