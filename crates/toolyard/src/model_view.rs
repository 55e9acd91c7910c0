//! Joins Tool Search to the gateway: what a model is shown over the network, and its counters on `/metrics`.

use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolyard_engine::{BoxFuture, Caller, Engine};
use toolyard_protocol::Failure;
use toolyard_service::{ModelView, Shown, ShownTool, Turn};
use toolyard_toolsearch::{SurfaceRequest, ToolSearch};

/// Tool Search as the gateway sees it.
pub struct SearchView(pub Arc<ToolSearch>);

impl ModelView for SearchView {
    fn show<'a>(
        &'a self,
        engine: &'a Engine,
        caller: &'a Caller,
        turn: Turn<'a>,
    ) -> BoxFuture<'a, Result<Shown, Failure>> {
        Box::pin(async move {
            let required: Vec<&str> = turn.required.iter().map(String::as_str).collect();
            let (prompt, context_tokens) = (turn.prompt, turn.context_tokens);
            let request = SurfaceRequest { prompt, context_tokens, required: &required };
            let (surface, notice) = self.0.surface(engine, caller, &request).await?;
            let catalog = self.0.catalog(engine, caller);
            let mut summary = Map::new();
            summary.insert("mode".to_owned(), surface.mode.map_or(Value::from("direct"), |mode| mode.as_str().into()));
            summary.insert("catalogSize".to_owned(), catalog.len().into());
            summary.insert("sources".to_owned(), serde_json::to_value(catalog.sources()).unwrap_or_default());
            let bytes = json!({"direct": catalog.direct_bytes(), "shown": surface.bytes});
            summary.insert("bytes".to_owned(), bytes);
            summary.insert("schemasShown".to_owned(), surface.tools.len().into());
            summary.extend(surface.directory.map(|text| ("directory".to_owned(), text.into())));
            let tools = surface.tools.into_iter().map(|tool| ShownTool {
                name: tool.name,
                description: tool.description,
                input_schema: tool.input_schema,
                id: tool.id,
            });
            Ok(Shown { tools: tools.collect(), summary, notice })
        })
    }

    fn metrics(&self) -> String {
        self.0.counters().to_prometheus()
    }
}
