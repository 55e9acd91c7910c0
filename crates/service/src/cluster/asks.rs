//! The requests that nodes send to one another, and the answers of this node.

use super::{Cluster, envelope::NodeLife, gone};
use crate::{Hub, Method, Service, runs::RunsCancel, tools::ToolsCancel};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use toolyard_engine::{
    Caller,
    authority::{self, Demand},
    store::Owner,
};
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId, ToolName};

/// How long a node may take to cancel a run.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// A request of one node to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRequest {
    /// The original caller. The receiving node applies this caller's rights, and no others.
    pub caller: Caller,
    /// What is wanted.
    pub ask: Ask,
}

/// What a node wants of another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Ask {
    /// Cancel a run that is under way there.
    CancelRun {
        /// The run.
        run_id: RunId,
    },
    /// Cancel a call that is under way there.
    CancelCall {
        /// The call.
        call_id: CallId,
    },
    /// Run a tool that a client connected there offers.
    CallOffered(OfferedCall),
    /// Answer a method for a session that is there.
    Method {
        /// The method.
        method: String,
        /// Its parameters.
        params: Value,
    },
    /// Hand a bridged session over to a node that its plugin has connected to.
    HandOverBridge {
        /// The session.
        session: String,
        /// The SHA-256 of the secret that the plugin has shown.
        token_sha256: String,
        /// The node that has it from then on.
        to: NodeLife,
    },
    /// Send an event of a bridged session to the clients there.
    Tell {
        /// The event's name.
        event: String,
        /// What it says.
        payload: Value,
        /// The scope that a client must hold to receive it.
        scope: String,
    },
    /// Answer an HTTP request for a session that is there.
    Http(ForwardedRequest),
}

/// A call of a tool that a client offers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedCall {
    /// The tool.
    pub tool: ToolName,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The call.
    pub call_id: CallId,
    /// Its run.
    pub run_id: RunId,
    /// How long the client has to answer, in milliseconds.
    pub timeout_ms: u64,
}

/// An HTTP request that another node received and admitted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForwardedRequest {
    /// The path.
    pub path: String,
    /// The method.
    pub method: String,
    /// The headers that the endpoint reads.
    pub headers: Vec<(String, String)>,
    /// The body, base64.
    body: String,
}

impl ForwardedRequest {
    /// A request to pass on.
    pub fn new(path: &str, method: &str, headers: Vec<(String, String)>, body: &[u8]) -> Self {
        Self { path: path.to_owned(), method: method.to_owned(), headers, body: BASE64.encode(body) }
    }

    /// The body.
    pub fn body(&self) -> Result<Vec<u8>, Failure> {
        BASE64.decode(&self.body).map_err(|_| Failure::new(ErrorCode::ValidationError, "the body is not base64"))
    }
}

/// The first chunk of the answer to a [`ForwardedRequest`]; the others are its body.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ForwardedHead {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// Why it could not be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<Failure>>,
}

/// What a node answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply<T> {
    /// The answer.
    Ok(T),
    /// The refusal.
    Error(Box<Failure>),
}

impl<T: Serialize> Reply<T> {
    /// The answer as it is sent.
    pub fn write(outcome: Result<T, Failure>) -> Vec<u8> {
        let reply = match outcome {
            Ok(answer) => Self::Ok(answer),
            Err(failure) => Self::Error(Box::new(failure)),
        };
        serde_json::to_vec(&reply).unwrap_or_else(|error| {
            tracing::error!(%error, "an answer to another node cannot be written");
            br#"{"error":{"code":"INTERNAL_ERROR","message":"the answer cannot be written"}}"#.to_vec()
        })
    }
}

impl Hub {
    /// Answers a request of another node.
    pub async fn answer_node(&self, request: NodeRequest) -> Vec<u8> {
        let NodeRequest { caller, ask } = request;
        match ask {
            Ask::CancelRun { run_id } => Reply::write(decided(&caller, RunsCancel::TERMS.demand, || {
                self.service().engine().cancel_run_for(&caller, run_id)
            })),
            Ask::CancelCall { call_id } => Reply::write(decided(&caller, ToolsCancel::TERMS.demand, || {
                self.service().engine().cancel_call_for(&caller, call_id)
            })),
            Ask::CallOffered(call) => Reply::write(self.call_offered(&caller, call).await),
            Ask::Method { method, params } => Reply::write(self.answer_method(&caller, &method, params).await),
            Ask::HandOverBridge { session, token_sha256, to } => {
                Reply::write(self.hand_over_bridge(&session, &token_sha256, &to).await)
            }
            Ask::Tell { event, payload, scope } => {
                Reply::write(self.take_news(&caller.workspace, event, &payload, &scope))
            }
            // The door passes these on itself.
            Ask::Http(_) => {
                Reply::<()>::write(Err(Failure::new(ErrorCode::ValidationError, "this is not a request of a node")))
            }
        }
    }
}

/// Does what is asked if the caller may.
fn decided<T>(caller: &Caller, demand: Demand, act: impl FnOnce() -> T) -> Result<T, Failure> {
    authority::decide(caller, &demand)?;
    Ok(act())
}

impl Service {
    /// Cancels a run, wherever it is under way. `false` if it is not under way anywhere.
    pub(crate) async fn cancel_anywhere(&self, caller: &Caller, run_id: RunId) -> Result<bool, Failure> {
        if self.engine().cancel_run_for(caller, run_id) {
            return Ok(true);
        }
        let Some(cluster) = self.cluster() else { return Ok(false) };
        match cluster.holder(run_id).await? {
            Some((owner, true)) => cluster.ask(&owner, caller, Ask::CancelRun { run_id }, CANCEL_WITHIN).await,
            // Another node takes it over; until then it is under way nowhere.
            Some((owner, false)) => Err(gone(&owner)),
            // A run that began just now is not stored yet.
            None => self.ask_all(cluster, caller, Ask::CancelRun { run_id }).await,
        }
    }

    /// Cancels a call, wherever it is under way. Nothing says which node has it, so that all are asked.
    pub(crate) async fn cancel_call_anywhere(&self, caller: &Caller, call_id: CallId) -> Result<bool, Failure> {
        if self.engine().cancel_call_for(caller, call_id) {
            return Ok(true);
        }
        match self.cluster() {
            Some(cluster) => self.ask_all(cluster, caller, Ask::CancelCall { call_id }).await,
            None => Ok(false),
        }
    }

    /// Asks all other nodes at once. True as soon as one says so.
    async fn ask_all(&self, cluster: &Arc<Cluster>, caller: &Caller, ask: Ask) -> Result<bool, Failure> {
        let mut asked = tokio::task::JoinSet::new();
        for node in cluster.others().await? {
            let (cluster, caller, ask) = (cluster.clone(), caller.clone(), ask.clone());
            asked.spawn(async move { cluster.ask::<bool>(&node.owner, &caller, ask, CANCEL_WITHIN).await });
        }
        let mut problem = None;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(true)) => return Ok(true),
                Ok(Ok(false)) => {}
                Ok(Err(failure)) => problem = Some(failure),
                Err(error) => tracing::error!(%error, "asking another node failed unexpectedly"),
            }
        }
        problem.map_or(Ok(false), Err)
    }
}

impl Cluster {
    /// Which other node holds a run, and whether it is alive.
    pub(crate) async fn holder(self: &Arc<Self>, run_id: RunId) -> Result<Option<(Owner, bool)>, Failure> {
        let cluster = self.clone();
        let holder = move || -> Result<Option<(Owner, bool)>, Failure> {
            let Some(holder) = cluster.store.holder(run_id)?.filter(|holder| *holder != cluster.me) else {
                return Ok(None);
            };
            let alive = cluster.store.is_alive(&holder)?;
            Ok(Some((holder, alive)))
        };
        tokio::task::spawn_blocking(holder).await.map_err(|_| super::unanswered())?
    }
}
