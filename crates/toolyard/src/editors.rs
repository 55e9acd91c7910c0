//! [`Editors`]: the tools that need an editor, answered by a node that is one. `docs/guide/editors.md` says how an editor
//! becomes one.

use serde_json::Value;
use std::{sync::OnceLock, time::Duration};
use toolyard_engine::{BoxFuture, Caller, Failed};
use toolyard_protocol::ErrorCode;
use toolyard_service::{Hub, Object, RequestError, WeakHub};
use toolyard_vault::{EditorClients, NoEditors};

/// The editors that are connected to the Gateway; none while no Gateway runs.
#[derive(Default)]
pub(crate) struct Editors(OnceLock<WeakHub>);

impl Editors {
    /// Uses the nodes of this Gateway from now on.
    pub(crate) fn connect(&self, hub: &Hub) {
        if self.0.set(hub.downgrade()).is_err() {
            tracing::warn!("editors stay connected to the first Gateway of this process");
        }
    }
}

impl EditorClients for Editors {
    fn request<'a>(
        &'a self,
        caller: &'a Caller,
        tool: &'a str,
        args: &'a Object,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Object, Failed>> {
        Box::pin(async move {
            let answer = match self.0.get().and_then(WeakHub::upgrade) {
                Some(hub) => hub.ask_node(&caller.workspace, tool, args, timeout).await,
                None => Err(RequestError::Nobody),
            };
            match answer {
                Ok(Value::Object(data)) => Ok(data),
                Ok(_) => Err(Failed::new(
                    ErrorCode::InternalError,
                    format!("the editor answered {tool} with something that is no object"),
                )),
                Err(RequestError::Nobody) => NoEditors.request(caller, tool, args, timeout).await,
                Err(why) => Err(why.failure("the editor", tool).into()),
            }
        })
    }
}
