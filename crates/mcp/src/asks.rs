//! [`ClientRoutes`]: how the code that runs a call reaches the client that made it: to ask (elicitation, sampling,
//! roots) or to notify (log messages).
//!
//! The server registers a route for each call, by the call's run, and an upstream server's request looks it up. A
//! nested call has the same run, so it reaches the same client. If there is no route, the request fails at once.

use crate::{
    jsonrpc::{METHOD_NOT_FOUND, RpcError},
    revision::ClientCapabilities,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{mpsc, oneshot};
use toolyard_protocol::RunId;

/// The largest number of queued messages for one call's client; beyond that, notifications are dropped and questions
/// wait.
const ROUTE_BUFFER: usize = 64;

/// A message for the client of a call.
#[derive(Debug)]
pub enum ClientBound {
    /// Wants an answer.
    Ask(Ask),
    /// A notification, which has no answer.
    Notification {
        /// The method.
        method: String,
        /// The parameters of the notification.
        params: Value,
    },
}

/// A question to a client.
#[derive(Debug)]
pub struct Ask {
    /// A name the asker gave it, unique within the call.
    pub key: Option<String>,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: String,
    /// The parameters.
    pub params: Value,
    /// How many questions of the same caller follow at once and can be combined.
    pub more: usize,
    /// Receives the answer. If it is dropped, nobody answered.
    pub answer: oneshot::Sender<Result<Value, RpcError>>,
}

struct ClientRoute {
    sender: mpsc::Sender<ClientBound>,
    capabilities: Arc<ClientCapabilities>,
    session: Option<String>,
}

/// The open routes, by run. Cheap to clone.
#[derive(Clone, Default)]
pub struct ClientRoutes(Arc<Mutex<HashMap<RunId, ClientRoute>>>);

/// A route that stays open until this value is dropped.
pub struct OpenRoute {
    asks: ClientRoutes,
    run_id: RunId,
    /// The messages for the client.
    pub bound: mpsc::Receiver<ClientBound>,
}

impl Drop for OpenRoute {
    fn drop(&mut self) {
        self.asks.lock().remove(&self.run_id);
    }
}

impl ClientRoutes {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, ClientRoute>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the route to the client of a run.
    pub fn open(&self, run_id: RunId, capabilities: Arc<ClientCapabilities>, session: Option<String>) -> OpenRoute {
        let (sender, bound) = mpsc::channel(ROUTE_BUFFER);
        self.lock().insert(run_id, ClientRoute { sender, capabilities, session });
        OpenRoute { asks: self.clone(), run_id, bound }
    }

    /// The capabilities of a run's client; none if there is no route to it.
    pub fn capabilities(&self, run_id: RunId) -> Arc<ClientCapabilities> {
        self.lock().get(&run_id).map(|route| route.capabilities.clone()).unwrap_or_default()
    }

    /// The run whose client to ask: the only one, or any if all belong to one session. Otherwise it is not known whose
    /// question it is.
    pub fn only_client(&self, runs: &[RunId]) -> Option<RunId> {
        let routes = self.lock();
        let mut open = runs.iter().filter_map(|run| Some((run, &routes.get(run)?.session)));
        let (first, session) = open.next()?;
        let same = open.all(|(_, other)| session.is_some() && other == session);
        same.then_some(*first)
    }

    /// Asks the client of a run and waits for its answer.
    pub async fn ask(&self, run_id: RunId, method: &str, params: Value) -> Result<Value, RpcError> {
        let mut answers = self.ask_all(run_id, vec![(None, method.to_owned(), params)]).await?;
        answers.pop().unwrap_or_else(|| Err(cannot(method)))
    }

    /// Asks several things at once: key, method and parameters of each. The answers come in the same order.
    pub async fn ask_all(
        &self,
        run_id: RunId,
        questions: Vec<(Option<String>, String, Value)>,
    ) -> Result<Vec<Result<Value, RpcError>>, RpcError> {
        let (sender, capabilities) = {
            let routes = self.lock();
            let route = routes.get(&run_id).ok_or_else(|| cannot("questions"))?;
            (route.sender.clone(), route.capabilities.clone())
        };
        if let Some((_, method, _)) = questions.iter().find(|(_, method, _)| !capabilities.answers(method)) {
            return Err(cannot(method));
        }
        let mut more = questions.len();
        let mut waiting = Vec::with_capacity(more);
        for (key, method, params) in questions {
            more -= 1;
            let (answer, answered) = oneshot::channel();
            let ask = Ask { key, method, params, more, answer };
            sender.send(ClientBound::Ask(ask)).await.map_err(|_| cannot("questions"))?;
            waiting.push(answered);
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for answered in waiting {
            let silence = || Err(RpcError::new(METHOD_NOT_FOUND, "the client did not answer"));
            answers.push(answered.await.unwrap_or_else(|_| silence()));
        }
        Ok(answers)
    }

    /// Sends a notification to the client of a run, if it listens and its queue has room.
    pub fn tell(&self, run_id: RunId, method: &str, params: Value) {
        let sender = self.lock().get(&run_id).map(|route| route.sender.clone());
        if let Some(sender) = sender {
            let notification = ClientBound::Notification { method: method.to_owned(), params };
            if sender.try_send(notification).is_err() {
                tracing::debug!(method, "a notification was dropped: the client of the call is slow or gone");
            }
        }
    }
}

fn cannot(what: &str) -> RpcError {
    RpcError::new(METHOD_NOT_FOUND, format!("the client cannot answer {what}"))
}
