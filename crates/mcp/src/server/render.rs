//! MCP's words for other doors: a bridged session is shown its tools, and gets its results, exactly as an MCP client does.

use super::{McpServer, tools};
use crate::RpcError;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolyard_engine::{CallRequest, Caller};
use toolyard_protocol::Failure;

impl McpServer {
    /// The tools a caller is shown, as `tools/list` lists them, and what a model should read beside them.
    pub async fn shown_to(&self, caller: &Caller) -> Result<(Vec<Value>, Option<String>), Failure> {
        let list = self.inner.tool_list(caller).await?;
        let mut tools: Vec<Value> = Vec::new();
        for page in &list.pages {
            tools.extend(serde_json::from_str::<Vec<Value>>(page).unwrap_or_default());
        }
        Ok((tools, list.instructions.clone()))
    }

    /// Calls a tool down the engine's road. The answer is a `CallToolResult`, also where an MCP client would be answered
    /// with an error: whoever asks here has no such thing.
    pub async fn call_rendered(&self, caller: Arc<Caller>, request: CallRequest) -> Map<String, Value> {
        let name = request.tool.clone();
        let engine = &self.inner.engine;
        let result = engine.call(caller.clone(), request).await.result;
        tools::call_result(engine, &caller, &name, result).unwrap_or_else(|error| refused(&error))
    }
}

fn refused(error: &RpcError) -> Map<String, Value> {
    let mut text = error.message.clone();
    if let Some(suggestion) = error.data.as_ref().and_then(|data| data.get("suggestion")).and_then(Value::as_str) {
        text.push('\n');
        text.push_str(suggestion);
    }
    Map::from_iter([
        ("content".to_owned(), json!([{"type": "text", "text": text}])),
        ("isError".to_owned(), Value::Bool(true)),
    ])
}
