//! [`EditorClients`]: the connected editors, as far as the tools need them. A door handles the connection.

use serde_json::{Map, Value};
use std::time::Duration;
use toolyard_engine::{BoxFuture, Caller, Failed};
use toolyard_protocol::{ErrorCode, Failure};

/// Passes a call to a connected editor and returns its answer.
pub trait EditorClients: Send + Sync {
    /// The editor's answer, which must fit the tool's output schema. `args` fit its input schema. The caller stops
    /// waiting after `timeout`.
    fn request<'a>(
        &'a self,
        caller: &'a Caller,
        tool: &'a str,
        args: &'a Map<String, Value>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Map<String, Value>, Failed>>;
}

/// No editor at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEditors;

impl EditorClients for NoEditors {
    fn request<'a>(
        &'a self,
        _: &'a Caller,
        tool: &'a str,
        _: &'a Map<String, Value>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Map<String, Value>, Failed>> {
        Box::pin(async move {
            let failure = Failure::new(
                ErrorCode::PreconditionFailed,
                format!("{tool} needs a connected editor that answers it, and there is none"),
            )
            .suggest("Connect the editor as a node (see docs/guide/editors.md), or use the vault.* tools, which work on the files themselves.");
            Err(failure.into())
        })
    }
}
