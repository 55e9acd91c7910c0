//! The methods about Tool Search for people: what a model finds and why, and what was saved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use toolyard_engine::{Caller, Door, Engine, authority::Scope};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, Terms, methods};
use toolyard_toolsearch::{ExplainedSearch, MAX_DAYS, SavingsHistory, ToolSearch};

/// Days in an answer, where nothing is said.
const DEFAULT_DAYS: u32 = 30;
/// The longest query, in characters.
const MAX_QUERY: usize = 1000;

methods! {
    /// Searches tools as a model does, and explains each score and what the policy decides about the tool.
    ToolsSearch = "tools.search", Terms::read().local(), SearchParams => ExplainedSearch;
    /// Shows the bytes and tokens that Tool Search saved, by day and door.
    ToolsSavings = "tools.savings", Terms::read().local().of_installation(), SavingsParams => SavingsHistory;
}

/// Declares the methods; without an engine they cannot be called.
pub(crate) fn declare(methods: &mut Methods, tools: Option<&ToolMethods>) {
    methods.add::<ToolsSearch, _>(tools);
    methods.add::<ToolsSavings, _>(tools);
}

/// Answers the methods.
#[derive(Clone)]
pub(crate) struct ToolMethods {
    pub(crate) search: Arc<ToolSearch>,
    pub(crate) engine: Engine,
}

/// What is searched, and as whom.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SearchParams {
    /// What the tool should do.
    pub query: String,
    /// How many tools; `tools.toolSearch.searchDefaultLimit` where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The agent; `main` where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The door by which the model's calls come; `mcp` where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
}

/// How many days are shown.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SavingsParams {
    /// Days, today included; 1 to 400, 30 where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 400))]
    pub days: Option<u32>,
}

fn read_door(word: Option<&str>) -> Result<Door, Failure> {
    let word = word.unwrap_or("mcp");
    serde_json::from_value(word.into()).map_err(|_| {
        Failure::new(ErrorCode::ValidationError, format!("there is no door {word:?}"))
            .suggest("Doors are cli, gateway, http, mcp, bridge, script, console, hooks and internal.")
    })
}

impl Handle<ToolsSearch> for ToolMethods {
    async fn handle(&self, call: &Call<'_>, params: SearchParams) -> Result<ExplainedSearch, MethodError> {
        let query = params.query.trim();
        if query.is_empty() || query.chars().count() > MAX_QUERY {
            let what = format!("query must have 1 to {MAX_QUERY} characters");
            return Err(Failure::new(ErrorCode::ValidationError, what).into());
        }
        let caller = Caller {
            door: read_door(params.door.as_deref())?,
            agent: params.agent.unwrap_or_else(|| "main".to_owned()),
            scopes: vec![Scope::Write.as_str().to_owned()],
            is_person: false,
            ..Caller::cli("tools.search")
        };
        let caller = caller.in_workspace(call.caller.workspace.clone());
        Ok(self.search.explained(&self.engine, &caller, query, params.limit).await?)
    }
}

impl Handle<ToolsSavings> for ToolMethods {
    async fn handle(&self, _: &Call<'_>, params: SavingsParams) -> Result<SavingsHistory, MethodError> {
        let days = params.days.unwrap_or(DEFAULT_DAYS).clamp(1, MAX_DAYS);
        let (savings, store, now) =
            (self.search.savings().clone(), self.engine.store().clone(), self.engine.clock().now());
        let read = tokio::task::spawn_blocking(move || savings.history(&*store, days, now)).await;
        match read {
            Ok(history) => Ok(history?),
            Err(_) => Err(Failure::new(ErrorCode::InternalError, "reading the savings failed unexpectedly").into()),
        }
    }
}
