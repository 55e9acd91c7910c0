//! Tools that a connected client executes itself. They belong to the client's session and are removed when the client
//! disconnects. A call passes the engine's pipeline like any other; only its execution is a request to the client.

use super::{Connection, EventBody, Hub, RequestError, WeakHub, lock};
use crate::cluster::OfferedCall;
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};
use toolyard_catalog::{RegistryError, SourceKind, ToolEntry, ToolSource, surface::taken_names};
use toolyard_engine::{BoxFuture, CallContext, Failed, Output, Prepared, Provider, ToolExchange};
use toolyard_protocol::{CallId, DEFAULT_TIMEOUT_MS, ErrorCode, Failure, RunId, ToolCall, ToolDefinition, ToolName};

/// The offered tools, by name.
#[derive(Default)]
pub(crate) struct Offers(Mutex<HashMap<String, Offer>>);

struct Offer {
    connection: Weak<Connection>,
    id: Arc<str>,
}

impl Offer {
    fn is_of(&self, connection: &Arc<Connection>) -> bool {
        self.connection.as_ptr() == Arc::as_ptr(connection)
    }
}

/// Why offered tools are refused.
pub(crate) enum OfferError {
    /// These names are equal to other tools' names, or to each other, in the spelling that models use.
    Conflict(Vec<String>),
    /// A definition cannot be used.
    Refused(RegistryError),
}

impl From<RegistryError> for OfferError {
    fn from(error: RegistryError) -> Self {
        Self::Refused(error)
    }
}

impl Hub {
    /// Registers a client's tools and replaces those that it offered before. Returns their ids, in order.
    pub(crate) fn offer(
        &self,
        connection: &Arc<Connection>,
        session: &str,
        tools: Vec<ToolDefinition>,
    ) -> Result<Vec<String>, OfferError> {
        let engine = self.service().engine();
        let mut offers = lock(&self.inner.offers.0);
        if connection.stop.is_cancelled() && !tools.is_empty() {
            // The client has disconnected already and its tools were removed: tools that are added now would never be
            // removed.
            return Ok(Vec::new());
        }
        // Names are checked in every mode of Tool Search, so that a later list cannot fail because of a name that was
        // accepted here.
        let names: Vec<ToolName> = tools.iter().map(|tool| tool.name.clone()).collect();
        let conflicts = taken_names(&engine.tools().snapshot, &names, |entry| {
            entry.source().kind == SourceKind::Client
                && offers.get(entry.name().as_str()).is_some_and(|offer| offer.is_of(connection))
        });
        if !conflicts.is_empty() {
            return Err(OfferError::Conflict(conflicts));
        }
        let entries = tools
            .into_iter()
            .map(|tool| Ok(ToolEntry::new(tool, ToolSource::client())?.with_session(session)))
            .collect::<Result<Vec<_>, RegistryError>>()?;
        let came: Vec<(String, Arc<str>)> =
            entries.iter().map(|entry| (entry.name().to_string(), entry.shared_id().clone())).collect();
        let out = offers.values().filter(|offer| offer.is_of(connection)).map(|offer| offer.id.clone()).collect();
        let provider = Arc::new(ClientTools(self.downgrade()));
        engine.exchange(vec![ToolExchange { out, entries, provider }])?;
        offers.retain(|_, offer| !offer.is_of(connection));
        let ids = came.iter().map(|(_, id)| id.to_string()).collect();
        let connection = Arc::downgrade(connection);
        offers.extend(came.into_iter().map(|(name, id)| (name, Offer { connection: connection.clone(), id })));
        self.inner.remote.changed();
        Ok(ids)
    }

    /// Removes the tools of a client that disconnects.
    pub(super) fn withdraw(&self, connection: &Arc<Connection>) {
        let has_some = lock(&self.inner.offers.0).values().any(|offer| offer.is_of(connection));
        if has_some && let Err(OfferError::Refused(error)) = self.offer(connection, "", Vec::new()) {
            tracing::error!(%error, "the tools of a client that went away could not be removed");
        }
    }

    /// The tools that clients of this node offer: connection and the tool's id.
    pub(super) fn offered_ids(&self) -> Vec<(String, Arc<str>)> {
        let offers = lock(&self.inner.offers.0);
        let alive =
            offers.values().filter_map(|offer| Some((offer.connection.upgrade()?.id.clone(), offer.id.clone())));
        alive.collect()
    }

    /// Asks a client to run one of its tools.
    pub(super) async fn ask_client(
        &self,
        client: &Connection,
        session: Option<&str>,
        call: OfferedCall,
    ) -> Result<Value, RequestError> {
        let timeout = Duration::from_millis(call.timeout_ms);
        let question = |id: &str| {
            let question = ToolQuestion {
                id,
                tool: &call.tool,
                args: &call.args,
                session_key: session,
                call_id: call.call_id,
                run_id: call.run_id,
                timeout_ms: call.timeout_ms,
            };
            EventBody::new("tools.call", &question)
        };
        self.ask(client, question, timeout).await
    }

    pub(super) fn offered_by(&self, tool: &str) -> Option<Arc<Connection>> {
        lock(&self.inner.offers.0).get(tool)?.connection.upgrade()
    }
}

/// The event by which a client is asked to run one of its tools.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolQuestion<'a> {
    id: &'a str,
    tool: &'a ToolName,
    args: &'a Map<String, Value>,
    session_key: Option<&'a str>,
    call_id: CallId,
    run_id: RunId,
    timeout_ms: u64,
}

/// Runs tools by asking the clients that offered them.
struct ClientTools(WeakHub);

impl ClientTools {
    async fn ask(&self, context: &CallContext, call: &ToolCall) -> Result<Value, RequestError> {
        let hub = self.0.upgrade().ok_or(RequestError::Nobody)?;
        let client = hub.offered_by(call.tool.as_str()).ok_or(RequestError::Nobody)?;
        let call = OfferedCall {
            tool: call.tool.clone(),
            args: call.args.as_ref().clone(),
            call_id: call.call_id,
            run_id: call.run_id,
            timeout_ms: call.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS),
        };
        hub.ask_client(&client, context.caller.session.as_deref(), call).await
    }
}

impl Provider for ClientTools {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            match self.ask(context, call).await {
                Ok(Value::Object(data)) => Ok(Output::data(data)),
                Ok(_) => Err(Failure::new(ErrorCode::InternalError, "the client's output is no object").into()),
                Err(why) => Err(why.failure("the client", call.tool.as_str()).into()),
            }
        })
    }
}
