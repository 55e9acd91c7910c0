//! Rendering for other doors: a bridge session is shown its tools, and gets its results, exactly as an MCP client does.

use super::{McpServer, tools};
use crate::{
    RpcError,
    wire::{
        self, Payload,
        answers::{CallToolResult, Content, SuggestionDetails},
    },
};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use toolyard_engine::{CallRequest, Caller};
use toolyard_protocol::{ErrorCode, Failure};

impl McpServer {
    /// The tools that a caller is shown, as in `tools/list`, and the text for its model.
    pub async fn shown_to(&self, caller: &Caller) -> Result<(Vec<Value>, Option<String>), Failure> {
        let list = self.inner.tool_list(caller).await?;
        let mut tools: Vec<Value> = Vec::new();
        for page in &list.pages {
            let page: Vec<Value> = serde_json::from_str(page).map_err(|error| {
                Failure::new(ErrorCode::InternalError, format!("the list of tools cannot be read back: {error}"))
            })?;
            tools.extend(page);
        }
        Ok((tools, list.instructions.clone()))
    }

    /// Calls a tool through the engine's pipeline. The answer is a `CallToolResult`, also where an MCP client would get
    /// an error response, which the caller here does not have.
    pub async fn call_rendered(&self, caller: Arc<Caller>, request: CallRequest) -> Payload {
        let name = request.tool.clone();
        let engine = &self.inner.engine;
        let result = engine.call(caller.clone(), request).await.result;
        let result = tools::call_result(engine, &caller, &name, result).unwrap_or_else(|error| refused(&error));
        wire::object(&result).unwrap_or_else(|error| {
            tracing::error!(error = error.message, tool = name, "a result cannot be written");
            Payload::new()
        })
    }
}

fn refused(error: &RpcError) -> CallToolResult {
    let mut text = error.message.clone();
    if let Some(Ok(SuggestionDetails { suggestion })) = error.data.as_ref().map(SuggestionDetails::deserialize) {
        text.push('\n');
        text.push_str(suggestion);
    }
    CallToolResult::failed(Content::text(text))
}
