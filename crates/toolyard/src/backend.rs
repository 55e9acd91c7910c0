//! Where a command's methods are answered: by a running Toolyard, or in this process.

use crate::{
    cli::Global,
    config::{self, Resolved},
    home, stores,
    wiring::{App, RequiredParts},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::sync::Arc;
use toolyard_client::local::{LocalClient, unread};
use toolyard_engine::Caller;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{
    EventSink, Method,
    local::{YardStatus, YardStatusParams},
};

/// How long a command waits for upstream servers and plugins that have no cached tools.
const MEET_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Where a command's methods are executed.
pub enum Backend {
    /// In this process, which has opened the store.
    Here(Box<App>),
    /// In a running Toolyard.
    There(LocalClient),
}

impl Backend {
    /// Connects to a running Toolyard that serves the same home and vault; otherwise opens the store in this process.
    pub async fn open(global: &Global, needs: RequiredParts) -> Result<Self, Failure> {
        let resolved = config::resolve(global)?;
        if !global.in_process
            && let Some(client) = running(&resolved, global).await?
        {
            return Ok(Self::There(client));
        }
        // The tools of plugins and upstream servers are cached in the store and nowhere else. The policy and the servers of a
        // cluster are in its store, too.
        let others = !resolved.config.mcp.servers.is_empty()
            || !resolved.config.plugins.paths.is_empty()
            || resolved.home.plugins().join("installed.json").exists();
        let is_cluster = stores::url(&resolved).is_some();
        let needs = if others || is_cluster || global.workspace.is_some() { RequiredParts::Store } else { needs };
        let mut app = App::open(resolved, needs)?;
        if let Some(name) = &global.workspace {
            app.workspace = app.service.workspaces().named(name)?;
        }
        let others = others || !app.mcp.servers.is_empty();
        if others {
            // Cached tools are available at once. Servers and plugins without a cache get `MEET_WITHIN` to register
            // theirs.
            if tokio::time::timeout(MEET_WITHIN, app.connect().done()).await.is_err() {
                tracing::info!(
                    "not all upstream servers and plugins have answered; the command continues without their tools"
                );
            }
        }
        Ok(Self::Here(Box::new(app)))
    }

    /// Calls a method.
    pub async fn call<M: Method>(&mut self, params: &M::Params, events: Option<EventSink>) -> Result<M::Answer, Failure>
    where
        M::Params: Serialize,
        M::Answer: DeserializeOwned,
    {
        let answer = self.call_raw::<M>(params, events).await?;
        serde_json::from_str(answer.get()).map_err(|error| unread(M::NAME, &error))
    }

    /// Calls a method whose answer has another system's format, of which the command reads a part.
    pub async fn call_raw<M: Method>(
        &mut self,
        params: &M::Params,
        events: Option<EventSink>,
    ) -> Result<Box<RawValue>, Failure>
    where
        M::Params: Serialize,
    {
        let params = serde_json::to_value(params)
            .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the request cannot be written: {e}")))?;
        match self {
            Self::Here(app) => {
                let caller = Arc::new(Caller::cli(home::user_name()).in_workspace(app.workspace.clone()));
                app.service.call(caller, M::NAME, params, events).await
            }
            Self::There(client) => client.call_by_name(M::NAME, params, events).await,
        }
    }

    /// Whether the work is done by another process.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// Closes the connection or the store.
    pub async fn close(self) {
        if let Self::Here(app) = self {
            app.close().await;
        }
    }
}

/// Connects to the running Toolyard of this home and vault; `None` if none runs. If one runs but the secret of its
/// local socket cannot be read or is refused, that is a failure: doing the work in this process would hide it.
pub(crate) async fn running(resolved: &Resolved, global: &Global) -> Result<Option<LocalClient>, Failure> {
    let Some(mut client) = LocalClient::connect(&resolved.home.socket()).await? else { return Ok(None) };
    let status = match client.call::<YardStatus>(&YardStatusParams::default(), None).await {
        Ok(status) => status,
        Err(failure) if failure.code == ErrorCode::PolicyDenied => return Err(failure),
        Err(_) => return Ok(None),
    };
    let served = status.process.vault;
    if resolved.vault_was_given && served != resolved.vault.display().to_string() {
        if !global.quiet {
            crate::output::note(&format!(
                "the running Toolyard serves another vault ({served}); working in this process instead"
            ));
        }
        return Ok(None);
    }
    Ok(Some(client.in_workspace(global.workspace.clone())))
}
