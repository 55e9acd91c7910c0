//! What a model is shown of the catalog: decided elsewhere ([`ModelView`]), only passed on by the doors.

use serde_json::{Map, Value};
use toolyard_engine::{BoxFuture, Caller, Engine};
use toolyard_protocol::Failure;

/// Decides what a model is shown, and counts what came of it.
pub trait ModelView: Send + Sync {
    /// What a model that acts for this caller is shown now.
    fn show<'a>(
        &'a self,
        engine: &'a Engine,
        caller: &'a Caller,
        turn: Turn<'a>,
    ) -> BoxFuture<'a, Result<Shown, Failure>>;

    /// Counters in Prometheus' text form, for `/metrics`.
    fn metrics(&self) -> String;
}

/// What is known of the turn the tools are for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn<'a> {
    /// What the model is asked to do.
    pub prompt: Option<&'a str>,
    /// Tokens of the model's context.
    pub context_tokens: Option<usize>,
    /// Names of tools the turn cannot do without.
    pub required: &'a [String],
}

/// What a model is shown.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// The tools, in order.
    pub tools: Vec<ShownTool>,
    /// How they were chosen: mode, directory text, bytes, size of the catalog. Handed on as it is.
    pub summary: Map<String, Value>,
    /// What an operator should know, where it is not what was configured.
    pub notice: Option<String>,
}

/// A tool as a model is shown it.
#[derive(Debug, Clone)]
pub struct ShownTool {
    /// The name the model calls it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Map<String, Value>,
    /// Its id in the catalog; none for a control tool.
    pub id: Option<String>,
}
