//! Requests to a client: the request is sent as an event, and the client answers with a request of its own.

use super::{Connection, EventBody, Hub, lock};
use crate::Object;
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::oneshot;
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};

/// The largest number of unanswered requests, over all clients.
const MAX_WAITING: usize = 1_000;

/// The reason for which a client did not carry out a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// No connected client offers the command.
    Nobody,
    /// The client disconnected; whether it did anything is unknown.
    Gone,
    /// It did not answer in time.
    TimedOut,
    /// The client refused.
    Refused {
        /// The client's error code.
        code: String,
        /// The client's message for people.
        message: String,
    },
    /// Too many requests are unanswered.
    Busy,
}

impl RequestError {
    /// The failure for the caller of the tool; `who` names the client.
    pub fn failure(self, who: &str, tool: &str) -> Failure {
        match self {
            Self::Refused { code, message } => {
                // A client may use Toolyard's error codes; every other code means that it refused.
                let known = ErrorCode::parse(&code).unwrap_or(ErrorCode::PreconditionFailed);
                Failure::new(known, format!("{tool}: {message}")).detail("clientCode", code)
            }
            Self::TimedOut => {
                Failure::new(ErrorCode::Timeout, format!("{who} did not answer {tool} in time")).retryable(false)
            }
            Self::Busy => Failure::new(ErrorCode::Unavailable, "too many requests to clients are unanswered"),
            Self::Nobody => Failure::new(ErrorCode::Unavailable, format!("{who} is not connected any more")),
            Self::Gone => Failure::new(ErrorCode::Unavailable, format!("{who} disconnected before it answered {tool}"))
                .retryable(false)
                .suggest("Check whether the effect happened before you call the tool again."),
        }
    }
}

type Outcome = Result<Value, RequestError>;

struct Waiter {
    connection: String,
    answer: oneshot::Sender<Outcome>,
}

/// Questions that wait for their answers.
#[derive(Default)]
pub(crate) struct Questions(Mutex<HashMap<String, Waiter>>);

impl Questions {
    /// Accepts an answer. Returns false if nobody waits for it or another client was asked.
    pub(crate) fn answered(&self, connection: &Connection, id: &str, outcome: Outcome) -> bool {
        let mut all = lock(&self.0);
        if all.get(id).is_none_or(|waiting| waiting.connection != connection.id) {
            return false;
        }
        all.remove(id).is_some_and(|waiting| waiting.answer.send(outcome).is_ok())
    }

    /// Fails the requests that wait for a disconnected client.
    pub(super) fn gone(&self, connection: &Connection) {
        lock(&self.0).retain(|_, waiting| waiting.connection != connection.id);
    }
}

/// An unanswered request, which is removed when this value is dropped.
struct PendingRequest<'a> {
    questions: &'a Questions,
    id: String,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        lock(&self.questions.0).remove(&self.id);
    }
}

/// The event by which a node is asked to run a command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeQuestion<'a> {
    id: &'a str,
    node_id: &'a str,
    command: &'a str,
    #[serde(rename = "paramsJSON")]
    params_json: &'a str,
    timeout_ms: u64,
}

impl Hub {
    /// Asks a node of a workspace to run a command: of the nodes that offer it, the one that connected last.
    pub async fn ask_node(
        &self,
        workspace: &WorkspaceId,
        command: &str,
        params: &Object,
        timeout: Duration,
    ) -> Outcome {
        let can = |node: &Arc<Connection>| {
            node.node.as_ref().is_some_and(|surface| surface.commands.iter().any(|known| known == command))
        };
        let node = self.nodes(workspace).into_iter().rfind(can).ok_or(RequestError::Nobody)?;
        let text = serde_json::to_string(params).map_err(|error| RequestError::Refused {
            code: ErrorCode::InternalError.as_str().to_owned(),
            message: format!("the arguments cannot be serialised: {error}"),
        })?;
        let question = |id: &str| {
            let (node_id, timeout_ms) = (node.node_id(), timeout.as_millis() as u64);
            let question = NodeQuestion { id, node_id, command, params_json: &text, timeout_ms };
            EventBody::new("node.invoke.request", &question)
        };
        self.ask(&node, question, timeout).await
    }

    /// Sends a request to one client and waits for its answer until this future is dropped.
    pub(super) async fn ask(
        &self,
        connection: &Connection,
        question: impl FnOnce(&str) -> EventBody,
        timeout: Duration,
    ) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let id = uuid::Uuid::now_v7().to_string();
        {
            let mut all = lock(&self.inner.questions.0);
            if all.len() >= MAX_WAITING {
                return Err(RequestError::Busy);
            }
            all.insert(id.clone(), Waiter { connection: connection.id.clone(), answer });
        }
        let asked = PendingRequest { questions: &self.inner.questions, id };
        connection.outbox.event(&Arc::new(question(&asked.id)));
        if connection.stop.is_cancelled() {
            // The client disconnected after it was selected; its requests had been removed before this one was added.
            return Err(RequestError::Gone);
        }
        match tokio::time::timeout(timeout, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(RequestError::Gone),
            Err(_) => Err(RequestError::TimedOut),
        }
    }
}
