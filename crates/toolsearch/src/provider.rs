//! [`ToolSearch`]: runs the control tools.

use crate::{
    arguments::{self, Asker, Query, Wanted},
    code,
    config::{Mode, Settings},
    controls::{self, CALL, CODE, DESCRIBE, DISPATCH, SEARCH},
    effective::{EffectiveCatalog, Effectives},
    entries, lookup,
    surface::{Surface, SurfaceRequest},
    telemetry::{Called, Counters, Telemetry},
};
use serde_json::{Map, Value, json};
use std::sync::{Arc, atomic::Ordering};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{SourceKind, ToolEntry, search::MeaningModel};
use toolyard_engine::{
    BoxFuture, CallContext, Caller, Door, Engine, Failed, NestedAnswer, NestedCalls, Output, Prepared, Provider,
};
use toolyard_protocol::{ErrorCode, Failure, StepId, ToolCall, ToolResult};
use toolyard_sandbox::ScriptRunner;

/// Characters of a batch's answer.
const MAX_BATCH_ANSWER_CHARS: usize = 4_000;
/// Lengths of descriptions tried, longest first, before candidates are left out.
const BATCH_DESCRIPTIONS: [usize; 4] = [160, 80, 40, 0];

/// How long a batch's answer may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Room {
    /// As long as it is.
    Any,
    /// At most so many characters.
    Chars(usize),
}

/// The answer to a batch.
pub(crate) struct Batch {
    pub(crate) results: Vec<Value>,
    pub(crate) truncated: bool,
    /// Tools in it.
    pub(crate) count: usize,
}

impl Batch {
    /// Its length as JSON.
    fn chars(&self) -> usize {
        self.results.iter().map(|result| result.to_string().chars().count() + 1).sum()
    }
}

/// Runs the control tools.
pub struct ToolSearch {
    pub(crate) settings: Settings,
    pub(crate) effectives: Effectives,
    pub(crate) runner: ScriptRunner,
    pub(crate) counters: Arc<Counters>,
    /// Whether scripts can be isolated here; found out once, at the first need.
    isolation: tokio::sync::OnceCell<Result<(), String>>,
}

impl ToolSearch {
    /// `model` adds meaning to the ranking, where there is one; usually [`crate::StaticMeaning`].
    pub fn new(settings: Settings, runner: ScriptRunner, model: Option<Arc<dyn MeaningModel>>) -> Self {
        Self {
            settings,
            effectives: Effectives::new(model),
            runner,
            counters: Arc::default(),
            isolation: tokio::sync::OnceCell::new(),
        }
    }

    /// Registers the control tools, run by `this`.
    pub fn register(this: &Arc<Self>, engine: &Engine) -> Result<(), toolyard_catalog::RegistryError> {
        engine.register(controls::entries()?, this.clone())
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the control tools did since the start.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The mode that holds: `code` becomes `tools`, with a notice, where scripts cannot be isolated.
    pub async fn mode(&self, wanted: Mode) -> (Mode, Option<String>) {
        if wanted != Mode::Code {
            return (wanted, None);
        }
        match self.isolation().await {
            Ok(()) => (Mode::Code, None),
            Err(reason) => (Mode::Tools, Some(format!("code mode is off, tools mode is used instead: {reason}"))),
        }
    }

    /// Whether scripts can be isolated here, and if not, what is missing.
    pub async fn isolation(&self) -> Result<(), String> {
        self.isolation.get_or_init(|| self.runner.probe()).await.clone()
    }

    /// The tools a caller may use.
    pub fn catalog(&self, engine: &Engine, caller: &Caller) -> Arc<EffectiveCatalog> {
        self.effectives.of(&engine.tools().snapshot, &engine.policy_for(caller), &caller.scopes)
    }

    /// What a model that acts for this caller is shown, and a notice if it is not what was configured.
    pub async fn surface(
        &self,
        engine: &Engine,
        caller: &Caller,
        request: &SurfaceRequest<'_>,
    ) -> Result<(Surface, Option<String>), Failure> {
        let (mode, notice) = self.mode(self.settings.mode).await;
        let catalog = self.catalog(engine, caller);
        let surface = Surface::of(&catalog, &self.settings, mode, request)?;
        self.counters.catalog_tools.store(catalog.len() as u64, Ordering::Relaxed);
        self.counters.direct_bytes.store(catalog.direct_bytes() as u64, Ordering::Relaxed);
        self.counters.compact_bytes.store(surface.bytes as u64, Ordering::Relaxed);
        Ok((surface, notice))
    }

    /// The catalog that nested calls of this call see.
    pub(crate) async fn nested_catalog(&self, calls: &NestedCalls) -> Result<Arc<EffectiveCatalog>, Failure> {
        let (Some((snapshot, policy)), Some(caller)) = (calls.catalog(), calls.caller()) else {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                "Tool Search catalog is unavailable for this run.",
            )
            .suggest("Call the tool itself: control tools cannot be called through control tools.")
            .retryable(false));
        };
        let catalog = self.effectives.of(&snapshot, &policy, &caller.scopes);
        if !catalog.is_indexed() {
            // Indexing thousands of tools takes long enough to hold other calls up.
            let warm = catalog.clone();
            let _ = tokio::task::spawn_blocking(move || warm.warm()).await;
        }
        Ok(catalog)
    }

    /// The bytes of this mode's surface, for telemetry.
    pub(crate) fn compact_bytes(&self, catalog: &EffectiveCatalog, mode: Mode) -> usize {
        let settings = Settings { enabled: true, ..self.settings };
        Surface::of(catalog, &settings, mode, &SurfaceRequest::default()).map_or(0, |surface| surface.bytes)
    }

    async fn run(&self, context: &CallContext, call: &ToolCall) -> Result<Output, Failure> {
        if call.step_id != StepId::direct() {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                format!("{} cannot be a step of a plan", call.tool),
            )
            .suggest("Name the tool itself in the plan: what a plan does must be known before it runs.")
            .retryable(false));
        }
        match call.tool.as_str() {
            SEARCH => self.search(context, &call.args).await,
            DESCRIBE => self.describe(context, &call.args).await,
            CALL | DISPATCH => self.call(context, &call.args).await,
            CODE => code::run(self, context, &call.args).await,
            other => Err(Failure::new(ErrorCode::InternalError, format!("{other} is no control tool"))),
        }
    }

    async fn search(&self, context: &CallContext, args: &Map<String, Value>) -> Result<Output, Failure> {
        let catalog = self.nested_catalog(&context.calls).await?;
        let wanted = arguments::search(args, self.settings.default_limit, self.settings.max_limit, Asker::Model)?;
        let explain = args.get("explain") == Some(&Value::Bool(true));
        let (mut data, count) = match &wanted {
            Wanted::One(query) => {
                let found = self.hits(&catalog, &query.text, query.limit, explain);
                let count = found.len();
                (Map::from_iter([("tools".to_owned(), Value::Array(found))]), count)
            }
            Wanted::Batch(queries) => {
                // Reasons are for people, who may read as much as they asked for.
                let room = if explain { Room::Any } else { Room::Chars(MAX_BATCH_ANSWER_CHARS) };
                let batch = self.batch(&catalog, queries, room, explain);
                let mut data = Map::from_iter([("results".to_owned(), Value::Array(batch.results))]);
                if batch.truncated {
                    data.insert("truncated".to_owned(), true.into());
                }
                (data, batch.count)
            }
        };
        if let Some(mode) = args.get("mode").and_then(Value::as_str) {
            data.insert("surface".to_owned(), self.described_surface(&catalog, Mode::from_word(mode)).await?);
        }
        let mut telemetry = Telemetry::new(&catalog, self.compact_bytes(&catalog, Mode::Tools));
        telemetry.search_count = 1;
        report(context, &telemetry);
        Ok(Output { user_message: Some(format!("{count} of {} tools", catalog.len())), ..Output::data(data) })
    }

    /// What a model would be shown in a mode, in figures.
    async fn described_surface(&self, catalog: &EffectiveCatalog, mode: Mode) -> Result<Value, Failure> {
        let (mode, notice) = self.mode(mode).await;
        let settings = Settings { enabled: true, ..self.settings };
        let surface = Surface::of(catalog, &settings, mode, &SurfaceRequest::default())?;
        let names: Vec<&str> = surface.tools.iter().map(|tool| tool.name.as_str()).collect();
        Ok(json!({
            "mode": mode, "notice": notice, "tools": names, "bytes": surface.bytes,
            "directBytes": catalog.direct_bytes(), "catalogSize": catalog.len(), "directory": surface.directory,
        }))
    }

    /// One query's tools, as they are told.
    pub(crate) fn hits(&self, catalog: &EffectiveCatalog, query: &str, limit: usize, explain: bool) -> Vec<Value> {
        Counters::add(&self.counters.searches);
        let tell = |hit: toolyard_catalog::search::Hit| {
            let mut map = entries::found(&hit.entry);
            if explain {
                map.insert("score".to_owned(), f64::from(hit.score).into());
                map.insert("exact".to_owned(), hit.exact.into());
                map.insert("explain".to_owned(), serde_json::to_value(&hit.explain).unwrap_or_default());
            }
            Value::Object(map)
        };
        catalog.search(query, limit, explain).into_iter().map(tell).collect()
    }

    /// A batch's answers. Where room is short, descriptions shrink first, and then the last candidates of each query
    /// are left out, evenly.
    pub(crate) fn batch(&self, catalog: &EffectiveCatalog, queries: &[Query], room: Room, explain: bool) -> Batch {
        let found: Vec<Vec<Value>> =
            queries.iter().map(|query| self.hits(catalog, &query.text, query.limit, explain)).collect();
        let most = found.iter().map(Vec::len).max().unwrap_or(0);
        let whole = answer(queries, &found, most, usize::MAX);
        let Room::Chars(room) = room else { return whole };
        if whole.chars() <= room {
            return whole;
        }
        // With one candidate each and no descriptions the answer fits, unless ids are monstrous; then it is as short
        // as it can be.
        let attempts = BATCH_DESCRIPTIONS.into_iter().map(|chars| (most, chars));
        let fewer = (1..most).rev().map(|kept| (kept, 0));
        let mut shortest = whole;
        for (kept, chars) in attempts.chain(fewer) {
            shortest = answer(queries, &found, kept, chars);
            shortest.truncated = true;
            if shortest.chars() <= room {
                break;
            }
        }
        shortest
    }

    async fn describe(&self, context: &CallContext, args: &Map<String, Value>) -> Result<Output, Failure> {
        let wanted = arguments::selector(args)?;
        let catalog = self.nested_catalog(&context.calls).await?;
        let entry = lookup::find(&catalog, &wanted)?;
        Counters::add(&self.counters.describes);
        let mut telemetry = Telemetry::new(&catalog, self.compact_bytes(&catalog, Mode::Tools));
        telemetry.describe_count = 1;
        telemetry.select(&entry);
        report(context, &telemetry);
        Ok(Output::data(entries::described(&entry)))
    }

    async fn call(&self, context: &CallContext, args: &Map<String, Value>) -> Result<Output, Failure> {
        let (wanted, args) = arguments::call(args)?;
        let catalog = self.nested_catalog(&context.calls).await?;
        let entry = lookup::find(&catalog, &wanted)?;
        let answer = self.dispatch(&context.calls, &entry, args, &context.cancel).await?;
        let mut telemetry = Telemetry::new(&catalog, self.compact_bytes(&catalog, Mode::Tools));
        telemetry.call_count = 1;
        telemetry.select(&entry);
        telemetry.called(called(&entry, &answer));
        report(context, &telemetry);
        told(&entry, &answer)
            .map(|data| Output { user_message: answer.result.user_message.clone(), ..Output::data(data) })
    }

    /// Calls a tool of the catalog down the one road.
    pub(crate) async fn dispatch(
        &self,
        calls: &NestedCalls,
        entry: &ToolEntry,
        args: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Result<NestedAnswer, Failure> {
        Counters::add(&self.counters.calls);
        let answer = calls.call(entry.id(), args, cancel).await?;
        if !answer.result.ok {
            Counters::add(&self.counters.failed_calls);
        }
        Ok(answer)
    }
}

impl Provider for ToolSearch {
    fn makes_calls(&self) -> bool {
        true
    }

    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move { self.run(context, call).await.map_err(Failed::from) })
    }
}

/// A batch's answer with so many candidates for each query and descriptions of so many characters. Short ones leave out
/// all but what a tool is chosen and called by.
fn answer(queries: &[Query], found: &[Vec<Value>], kept: usize, description: usize) -> Batch {
    let mut batch = Batch { results: Vec::with_capacity(queries.len()), truncated: false, count: 0 };
    for (query, hits) in queries.iter().zip(found) {
        let mut candidates: Vec<Value> = hits.iter().take(kept).cloned().collect();
        if description != usize::MAX {
            candidates.iter_mut().for_each(|hit| entries::shorten(hit, description));
        }
        batch.count += candidates.len();
        let mut result = json!({"query": query.text, "candidates": candidates});
        if hits.len() > kept {
            result["truncated"] = true.into();
            batch.truncated = true;
        }
        batch.results.push(result);
    }
    batch
}

/// Tells the run's watchers.
pub(crate) fn report(context: &CallContext, telemetry: &Telemetry) {
    if let Ok(Value::Object(payload)) = serde_json::to_value(telemetry) {
        context.progress.report("tool search", Some(payload));
    }
}

/// A call as telemetry lists it.
pub(crate) fn called(entry: &ToolEntry, answer: &NestedAnswer) -> Called {
    Called {
        nested_id: answer.nested_id.clone(),
        call_id: answer.result.call_id.to_string(),
        id: entry.id().to_owned(),
        source: entry.source().catalog_source(),
        ok: answer.result.ok,
        code: answer.result.error.as_ref().map(|error| error.code.as_str().to_owned()),
    }
}

/// A call's answer: `{tool, result: {content, details}}`. A call that was blocked or failed is told as that failure.
pub(crate) fn told(entry: &ToolEntry, answer: &NestedAnswer) -> Result<Map<String, Value>, Failure> {
    let result: &ToolResult = &answer.result;
    let Some(data) = result.data.clone() else {
        let why = result.user_message.clone().unwrap_or_else(|| "it did not run".to_owned());
        let failure = result.error.clone().unwrap_or_else(|| Failure::new(ErrorCode::PreconditionFailed, why));
        return Err(failure.detail("tool", entry.id()).detail("callId", result.call_id.to_string()));
    };
    // A tool that speaks MCP's form says its own content; anything else is told as its JSON.
    let own = data.get("content").filter(|content| content.is_array() && entry.source().kind == SourceKind::Mcp);
    let content = own
        .cloned()
        .unwrap_or_else(|| json!([{"type": "text", "text": serde_json::to_string_pretty(&data).unwrap_or_default()}]));
    let result = json!({"content": content, "details": data, "callId": result.call_id});
    Ok(Map::from_iter([("tool".to_owned(), Value::Object(entries::compact(entry))), ("result".to_owned(), result)]))
}

/// The door that scripts are.
pub(crate) const SCRIPT_DOOR: Door = Door::Script;
