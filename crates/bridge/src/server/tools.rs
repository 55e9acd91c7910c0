//! [`Tools`]: what the bridge needs of whoever runs tools. The bridge itself validates, allows and renders nothing.

use serde_json::{Map, Value};
use std::{future::Future, pin::Pin};
use tokio::sync::watch;

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A call, as it goes down the one road.
#[derive(Debug, Clone)]
pub struct ToolRequest {
    /// The session on whose behalf.
    pub session: String,
    /// The same for the same call, however often it is sent: the recorded result is given again.
    pub once: String,
    /// The tool, in either spelling.
    pub tool: String,
    /// Its arguments.
    pub args: Map<String, Value>,
}

/// Lists a session's tools and runs them.
pub trait Tools: Send + Sync + 'static {
    /// The session's tools as MCP Tool objects.
    fn list<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Vec<Value>>;

    /// Runs a tool: a CallToolResult, or why there is none. `stop` fires when nobody wants the result any more.
    fn call(&self, request: ToolRequest, stop: watch::Receiver<bool>) -> BoxFuture<'_, Result<Value, String>>;

    /// Hears when the catalog changes.
    fn changes(&self) -> watch::Receiver<()>;
}
