//! [`KnowledgeProvider`]: the tools as an engine provider.

use crate::{
    service::Knowledge,
    tools::{self, Call},
};
use serde_json::Value;
use std::{sync::Arc, time::Instant};
use toolyard_engine::{BoxFuture, CallContext, Failed, Output, Prepared, Provider};
use toolyard_protocol::{ErrorCode, ToolCall};

/// Runs the tools of [`crate::definitions`].
pub struct KnowledgeProvider(Arc<Knowledge>);

impl KnowledgeProvider {
    /// Creates a provider for these notes.
    pub fn new(knowledge: Arc<Knowledge>) -> Self {
        Self(knowledge)
    }
}

impl Provider for KnowledgeProvider {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            let Some(tool) = tools::find(call.tool.as_str()) else {
                return Err(Failed::new(ErrorCode::NotFound, format!("the notes have no tool {}", call.tool)));
            };
            let asked = Call { knowledge: &self.0, context, call, started: Instant::now() };
            let args = call.args.as_ref();
            if let Some(problem) = tools::misfit(tool.name, &Value::Object(args.clone())) {
                return Ok(asked.refused::<Value>(problem).await?);
            }
            tokio::select! {
                answer = (tool.run)(asked, args.clone()) => answer.map_err(Failed::from),
                () = context.cancel.cancelled() => Err(Failed::new(ErrorCode::Cancelled, "stopped before it was done")),
            }
        })
    }
}
