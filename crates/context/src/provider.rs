//! [`ContextProvider`]: exposes the tools to the engine.

use crate::{
    service::ContextStore,
    store::host_paths::HostPaths,
    wire::tools::{self, Session},
};
use std::sync::Arc;
use toolyard_engine::{BoxFuture, CallContext, Caller, Failed, Output, Prepared, Provider};
use toolyard_protocol::{ErrorCode, Failure, ToolCall, WorkspaceId};

/// Looks up the id of a session by its key.
pub type SessionIds = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Runs the tools of [`crate::definitions`].
pub struct ContextProvider {
    store: Arc<ContextStore>,
    ids: SessionIds,
}

impl ContextProvider {
    /// Creates a provider for this store.
    pub fn new(store: Arc<ContextStore>, ids: SessionIds) -> Self {
        Self { store, ids }
    }
}

/// The account of a workspace; the configured one for the default workspace. Nobody can name such an account: the ids in
/// requests that begin with `@` are refused.
pub fn account_of(workspace: &WorkspaceId) -> Option<String> {
    (!workspace.is_default()).then(|| format!("{}{workspace}", crate::store::uri::WORKSPACE_ACCOUNT))
}

/// The session of a caller.
pub fn session_of(caller: &Caller, ids: &SessionIds) -> Session {
    Session {
        id: caller.session.as_deref().and_then(|key| ids(key)),
        key: caller.session.clone(),
        account: account_of(&caller.workspace),
        agent: Some(caller.agent.clone()),
        sender: Some(caller.principal.clone()),
        host_paths: if caller.names_host_paths() { HostPaths::All } else { HostPaths::Granted },
        ..Session::default()
    }
}

impl Provider for ContextProvider {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            let (store, ids, caller) = (self.store.clone(), self.ids.clone(), context.caller.clone());
            let (name, args) = (call.tool.to_string(), call.args.clone());
            let cancel = context.cancel.clone();
            let work = tokio::task::spawn_blocking(move || {
                let session = Session { cancel, ..session_of(&caller, &ids) };
                tools::run(&store, &session, &name, &args)
            });
            let outcome = tokio::select! {
                outcome = work => outcome,
                () = context.cancel.cancelled() => {
                    return Err(Failed::new(ErrorCode::Cancelled, "stopped before it was done"));
                }
            };
            match outcome {
                Ok(Ok(answer)) => Ok(Output::data(answer.into_data())),
                Ok(Err(thrown)) => {
                    Err(Failure::new(thrown.code, thrown.message).with_causes(thrown.causes).retryable(false).into())
                }
                Err(_) => Err(Failed::new(ErrorCode::InternalError, "the tool ended unexpectedly")),
            }
        })
    }
}
