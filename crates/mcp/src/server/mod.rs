//! Toolyard as an MCP server: one method table for standard input and output ([`stdio`]) and streamable HTTP
//! ([`http`]), in three revisions.
//!
//! To follow a request, read three files: the transport, `dispatch.rs`, and for calls `call.rs`.

mod approve;
pub mod authority;
mod call;
mod dispatch;
pub mod http;
mod notes;
mod render;
mod session;
mod skills;
mod sources;
pub mod stdio;
mod tools;

use crate::{
    ClientRoutes,
    revision::{ClientCapabilities, Revision},
    wire::{Empty, Implementation, answers::ChangeNotification, requests::CallOrigin},
};
use serde_json::Value;
use session::{ClientOutput, Session, lock};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use toolyard_engine::{Caller, Door, Engine, ModelView, Subscription};
use toolyard_protocol::{EventType, WorkspaceId};

pub use approve::{ClientApprovals, HttpClientApprovals};
pub use notes::{VaultNotes, note_uri};
pub use skills::Skills;
pub use sources::{
    CompletionFuture, ListedPrompt, ListedTemplate, Page, PromptSource, ReadContents, Requester, ResourceSource,
    ToolExtras,
};

/// Number of changes that a client may miss before it is notified of a changed list instead.
const CHANGE_BUFFER: usize = 256;

/// The parts of an MCP server.
pub struct ServerParts {
    /// Runs calls.
    pub engine: Engine,
    /// Chooses the tools that are shown.
    pub view: Arc<dyn ModelView>,
    /// Provides additional information about upstream servers' tools.
    pub extras: Option<Arc<dyn ToolExtras>>,
    /// Bring resources, in the order they are listed.
    pub resources: Vec<Arc<dyn ResourceSource>>,
    /// Bring prompts, in the order they are listed.
    pub prompts: Vec<Arc<dyn PromptSource>>,
    /// Ways from calls to their clients.
    pub asks: ClientRoutes,
    /// Who we are.
    pub info: Implementation,
    /// The agent on whose behalf clients act.
    pub agent: String,
}

/// A change that clients may be notified of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// One resource changed.
    Resource(String),
}

/// The client at the other end, as identified by the transport.
#[derive(Debug, Clone)]
pub struct Client {
    /// A user, device or token name.
    pub principal: String,
    /// What the credential allows.
    pub scopes: Vec<String>,
    /// Whether its user may approve its calls.
    pub approvals: ClientApprovals,
    /// The workspace that the credential names.
    pub workspace: WorkspaceId,
}

impl Client {
    /// The owner, who started the server or presented the token. Its user cannot approve unless
    /// [`Self::with_approvals`] is used.
    pub fn owner(principal: impl Into<String>) -> Self {
        let scopes = vec!["operator.admin".to_owned()];
        let workspace = WorkspaceId::default();
        Self { principal: principal.into(), scopes, approvals: ClientApprovals::Off, workspace }
    }

    /// Somebody who presented the token of a workspace, with the scopes that it gives there. Its name is the workspace's,
    /// so that nothing that is kept for it is found by others.
    pub fn of_workspace(self, workspace: WorkspaceId, scopes: Vec<String>) -> Self {
        Self { principal: workspace.key(&self.principal).into_owned(), scopes, workspace, ..self }
    }

    /// The same with the owner's setting for approvals.
    pub fn with_approvals(self, approvals: impl Into<ClientApprovals>) -> Self {
        Self { approvals: approvals.into(), ..self }
    }
}

/// Toolyard as an MCP server. Cheap to clone.
#[derive(Clone)]
pub struct McpServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) view: Arc<dyn ModelView>,
    pub(crate) extras: Option<Arc<dyn ToolExtras>>,
    pub(crate) resources: Vec<Arc<dyn ResourceSource>>,
    pub(crate) prompts: Vec<Arc<dyn PromptSource>>,
    pub(crate) asks: ClientRoutes,
    pub(crate) info: Implementation,
    pub(crate) agent: String,
    pub(crate) lists: Mutex<tools::ToolLists>,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) suspended: call::Suspensions,
    watches_notes: AtomicBool,
}

impl McpServer {
    /// Creates a server. Must be called inside a tokio runtime.
    pub fn new(parts: ServerParts) -> Self {
        let ServerParts { engine, view, extras, resources, prompts, asks, info, agent } = parts;
        let (changes, _) = broadcast::channel(CHANGE_BUFFER);
        let mut tools = engine.watch_tools();
        let mut version = engine.tools().snapshot.version().to_owned();
        let inner = Inner {
            engine,
            view,
            extras,
            resources,
            prompts,
            asks,
            info,
            agent,
            lists: Mutex::default(),
            changes,
            suspended: call::Suspensions::default(),
            watches_notes: AtomicBool::new(false),
        };
        let inner = Arc::new(inner);
        let watching = Arc::downgrade(&inner);
        tokio::spawn(async move {
            loop {
                let change = tokio::time::timeout(tools::LIST_KEPT_FOR, tools.changed()).await;
                let Some(inner) = watching.upgrade() else { return };
                match change {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        lock(&inner.lists).forget_unused();
                        continue;
                    }
                }
                // Additional information of upstream servers may have changed, with the catalog or without.
                lock(&inner.lists).clear();
                let now = inner.engine.tools().snapshot.version().to_owned();
                if now != version {
                    version = now;
                    tell_all(&inner.changes, Change::Tools);
                }
            }
        });
        Self { inner }
    }

    /// Notifies clients of a change that the engine does not know of.
    pub fn changed(&self, change: Change) {
        tell_all(&self.inner.changes, change);
    }

    /// A sender of change notifications that does not keep the server alive.
    pub fn teller(&self) -> broadcast::Sender<Change> {
        self.inner.changes.clone()
    }
}

impl Inner {
    fn caller(&self, client: &Client, session: Option<String>) -> Arc<Caller> {
        let caller = Caller {
            door: Door::Mcp,
            principal: client.principal.clone(),
            agent: self.agent.clone(),
            session,
            scopes: client.scopes.clone(),
            is_person: false,
            workspace: WorkspaceId::default(),
        };
        Arc::new(caller.in_workspace(client.workspace.clone()))
    }

    /// Starts observing the changes that calls make, when a client subscribes.
    fn watch_notes(self: &Arc<Self>) {
        if self.watches_notes.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut events = self.engine.bus().subscribe(Subscription::default());
        let changes = self.changes.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if event.event_type != EventType::StepFinished {
                    continue;
                }
                let effects = event.payload.as_ref().and_then(|p| p.get("effects"));
                for path in effects.into_iter().flat_map(touched) {
                    tell_all(&changes, Change::Resource(note_uri(path)));
                }
            }
        });
    }
}

/// Notifies all listeners of a change.
pub(crate) fn tell_all(changes: &broadcast::Sender<Change>, change: Change) {
    if changes.send(change).is_err() {
        tracing::trace!("nobody listens for changes");
    }
}

/// Every path in a call's effects.
fn touched(effects: &Value) -> Vec<&str> {
    let lists = effects.as_object().into_iter().flat_map(|map| map.values().filter_map(Value::as_array));
    let entries = lists.flatten();
    entries.flat_map(|entry| ["path", "from", "to"].into_iter().filter_map(move |k| entry.get(k)?.as_str())).collect()
}

/// The context of one request.
pub(crate) struct Exchange {
    pub(crate) revision: Revision,
    pub(crate) capabilities: Arc<ClientCapabilities>,
    pub(crate) caller: Arc<Caller>,
    /// Whether the client's user may approve the client's calls.
    pub(crate) approvals: ClientApprovals,
    pub(crate) outlet: ClientOutput,
    /// Fires when the client cancels the request.
    pub(crate) cancel: CancellationToken,
    /// The session, for revisions that have one.
    pub(crate) session: Option<Arc<Session>>,
    /// The lowest level of log messages that are sent; `None` for none.
    pub(crate) log_level: Option<usize>,
    /// The token for progress notifications, if the client wants them.
    pub(crate) progress_token: Option<Value>,
    /// What a coding agent says of its call.
    pub(crate) origin: CallOrigin,
    /// The request's id, by which a subscription is known.
    pub(crate) id: Value,
}

/// Notifies a session's client of changes, until the session or the server ends.
pub(crate) async fn forward_changes(inner: Arc<Inner>, session: Arc<Session>) {
    let mut changes = inner.changes.subscribe();
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = session.ended.cancelled() => return,
        };
        match change {
            Ok(Change::Resource(uri)) => {
                if session.is_subscribed(&uri) {
                    session.tell(
                        "notifications/resources/updated",
                        Some(&ChangeNotification { meta: None, uri: Some(&uri) }),
                    );
                }
            }
            Ok(change) => session.tell(notice(&change), None::<&Empty>),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                for change in [Change::Tools, Change::Prompts, Change::Resources] {
                    session.tell(notice(&change), None::<&Empty>);
                }
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

pub(crate) fn notice(change: &Change) -> &'static str {
    match change {
        Change::Tools => "notifications/tools/list_changed",
        Change::Prompts => "notifications/prompts/list_changed",
        Change::Resources => "notifications/resources/list_changed",
        Change::Resource(_) => "notifications/resources/updated",
    }
}

/// Sets where a session's client receives messages without a request.
pub(crate) fn listen(session: &Session, outlet: ClientOutput) {
    *lock(&session.listener) = Some(outlet);
}
