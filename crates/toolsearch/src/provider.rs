//! [`ToolSearch`]: runs the control tools.

use crate::{
    arguments::{self, Query, Requester, SearchRequest},
    code,
    config::Settings,
    controls,
    entries::{DescribedTool, SearchEntry},
    lookup,
    savings::SavingsCounter,
    telemetry::{CompletedCall, Counters, Telemetry},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::{Arc, atomic::Ordering};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{
    SourceKind, ToolEntry,
    search::MeaningModel,
    surface::{
        CALL, CODE, DESCRIBE, DISPATCH, EffectiveCatalog, EffectiveCatalogCache, Mode, SEARCH, Surface,
        SurfaceSettings, Turn,
    },
};
use toolyard_engine::{
    BoxFuture, CallContext, Caller, Door, Engine, Failed, ModelView, NestedAnswer, NestedCalls, Output, Prepared,
    Provider, Shown,
};
use toolyard_protocol::{CallId, ErrorCode, Failure, StepId, ToolCall, ToolResult};
use toolyard_sandbox::ScriptRunner;

/// Characters of a batch's answer.
const MAX_BATCH_ANSWER_CHARS: usize = 4_000;
/// Lengths of descriptions tried, longest first, before candidates are left out.
const BATCH_DESCRIPTIONS: [usize; 4] = [160, 80, 40, 0];

/// The maximum size of a batch's answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResponseSize {
    /// No limit.
    Any,
    /// Maximum number of characters.
    Chars(usize),
}

/// The answer to one query.
#[derive(Serialize)]
struct SearchAnswer {
    tools: Vec<SearchEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    surface: Option<DescribedSurface>,
}

/// The answer to a batch.
#[derive(Serialize)]
pub(crate) struct Batch {
    pub(crate) results: Vec<BatchResult>,
    #[serde(skip_serializing_if = "is_false")]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    surface: Option<DescribedSurface>,
}

/// The answer to one query of a batch.
#[derive(Serialize)]
pub(crate) struct BatchResult {
    query: String,
    candidates: Vec<SearchEntry>,
    #[serde(skip_serializing_if = "is_false")]
    truncated: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Batch {
    /// Its length as JSON.
    fn chars(&self) -> usize {
        let chars = |result| serde_json::to_string(result).map_or(usize::MAX, |json| json.chars().count() + 1);
        self.results.iter().map(chars).fold(0, usize::saturating_add)
    }

    /// Tools in it.
    fn count(&self) -> usize {
        self.results.iter().map(|result| result.candidates.len()).sum()
    }
}

/// What a model would be shown in a mode, in figures.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DescribedSurface {
    mode: Mode,
    notice: Option<String>,
    tools: Vec<String>,
    bytes: usize,
    direct_bytes: usize,
    catalog_size: usize,
    directory: Option<String>,
}

/// A call's answer: the tool and its result.
#[derive(Serialize)]
pub(crate) struct ToolAnswer {
    tool: SearchEntry,
    result: ToolAnswerResult,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolAnswerResult {
    content: Value,
    details: Map<String, Value>,
    call_id: CallId,
}

#[derive(Serialize)]
struct TextPart {
    r#type: &'static str,
    text: String,
}

/// Runs the control tools.
pub struct ToolSearch {
    pub(crate) settings: Settings,
    pub(crate) effectives: EffectiveCatalogCache,
    pub(crate) runner: ScriptRunner,
    pub(crate) counters: Arc<Counters>,
    savings: Arc<SavingsCounter>,
    /// Whether scripts can be isolated on this machine; determined once, when first needed.
    isolation: tokio::sync::OnceCell<Result<(), String>>,
}

impl ToolSearch {
    /// `model` adds meaning to the ranking, if given; usually [`crate::StaticMeaning`].
    pub fn new(settings: Settings, runner: ScriptRunner, model: Option<Arc<dyn MeaningModel>>) -> Self {
        Self {
            settings,
            effectives: EffectiveCatalogCache::new(model),
            runner,
            counters: Arc::default(),
            savings: Arc::default(),
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

    /// The bytes that Tool Search saved, by day and door.
    pub fn savings(&self) -> &Arc<SavingsCounter> {
        &self.savings
    }

    /// Counts one list for a model, and writes from time to time what was counted, in the background.
    fn count(&self, engine: &Engine, caller: &Caller, direct_bytes: usize, shown_bytes: usize) {
        if !self.savings.add(caller.door, direct_bytes, shown_bytes, engine.clock().now()) {
            return;
        }
        let (savings, store) = (self.savings.clone(), engine.store().clone());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = savings.write(&*store) {
                tracing::debug!(%error, "what Tool Search saved is written later");
            }
        });
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

    /// What is shown of a catalog in a mode.
    fn surface_of(&self, catalog: &Arc<EffectiveCatalog>, mode: Mode, turn: &Turn<'_>) -> Surface {
        let settings = SurfaceSettings { mode, always_visible: self.settings.surface.always_visible.clone() };
        Surface::of(catalog, &settings, turn)
    }

    /// What a model that uses a control tool of this mode is shown at first. Directory mode has the same tools as
    /// `tools`.
    pub(crate) fn first_surface(&self, catalog: &Arc<EffectiveCatalog>, mode: Mode) -> Surface {
        let configured = self.settings.surface.mode;
        let mode = if mode == Mode::Tools && configured == Mode::Directory { configured } else { mode };
        self.surface_of(catalog, mode, &Turn::default())
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
            tokio::task::spawn_blocking(move || warm.warm()).await.map_err(|error| {
                Failure::new(ErrorCode::InternalError, format!("the tools could not be indexed: {error}"))
            })?;
        }
        Ok(catalog)
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
        let wanted = arguments::search(args, self.settings.default_limit, self.settings.max_limit, Requester::Model)?;
        let explain = args.get("explain") == Some(&Value::Bool(true));
        let surface = match args.get("mode").and_then(Value::as_str) {
            Some(mode) => Some(self.described_surface(&catalog, mode).await?),
            None => None,
        };
        let (output, count) = match &wanted {
            SearchRequest::One(query) => {
                let tools = self.hits(&catalog, &query.text, query.limit, explain);
                let count = tools.len();
                (Output::of(&SearchAnswer { tools, surface })?, count)
            }
            SearchRequest::Batch(queries) => {
                // Reasons are for people, who may read as much as they asked for.
                let room = if explain { ResponseSize::Any } else { ResponseSize::Chars(MAX_BATCH_ANSWER_CHARS) };
                let batch = Batch { surface, ..self.batch(&catalog, queries, room, explain) };
                (Output::of(&batch)?, batch.count())
            }
        };
        let mut telemetry = Telemetry::new(&self.first_surface(&catalog, Mode::Tools));
        telemetry.search_count = 1;
        report(context, &telemetry)?;
        Ok(Output { user_message: Some(format!("{count} of {} tools", catalog.len())), ..output })
    }

    /// What a model would be shown in a mode, in figures.
    async fn described_surface(
        &self,
        catalog: &Arc<EffectiveCatalog>,
        word: &str,
    ) -> Result<DescribedSurface, Failure> {
        let wanted = Mode::searching(word).ok_or_else(|| {
            let known = Mode::SEARCHING.map(Mode::as_str).join(", ");
            Failure::new(ErrorCode::ValidationError, format!("mode must be one of {known}.")).retryable(false)
        })?;
        let (mode, notice) = self.mode(wanted).await;
        let surface = self.surface_of(catalog, mode, &Turn::default());
        Ok(DescribedSurface {
            mode: surface.mode,
            notice,
            tools: surface.tools.iter().map(|tool| tool.name.clone()).collect(),
            bytes: surface.bytes(),
            direct_bytes: catalog.direct_bytes(),
            catalog_size: catalog.len(),
            directory: surface.directory,
        })
    }

    /// The tools found for one query.
    pub(crate) fn hits(
        &self,
        catalog: &EffectiveCatalog,
        query: &str,
        limit: usize,
        explain: bool,
    ) -> Vec<SearchEntry> {
        Counters::add(&self.counters.searches);
        catalog.search(query, limit, explain).into_iter().map(|hit| SearchEntry::found(hit, explain)).collect()
    }

    /// A batch's answers. Where room is short, descriptions shrink first, and then the last candidates of each query
    /// are left out, evenly.
    pub(crate) fn batch(
        &self,
        catalog: &EffectiveCatalog,
        queries: &[Query],
        room: ResponseSize,
        explain: bool,
    ) -> Batch {
        let found: Vec<Vec<SearchEntry>> =
            queries.iter().map(|query| self.hits(catalog, &query.text, query.limit, explain)).collect();
        let most = found.iter().map(Vec::len).max().unwrap_or(0);
        let whole = answer(queries, &found, most, usize::MAX);
        let ResponseSize::Chars(room) = room else { return whole };
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
        let mut telemetry = Telemetry::new(&self.first_surface(&catalog, Mode::Tools));
        telemetry.describe_count = 1;
        telemetry.select(&entry);
        report(context, &telemetry)?;
        Output::of(&DescribedTool::of(&entry))
    }

    async fn call(&self, context: &CallContext, args: &Map<String, Value>) -> Result<Output, Failure> {
        let (wanted, args) = arguments::call(args)?;
        let catalog = self.nested_catalog(&context.calls).await?;
        let entry = lookup::find(&catalog, &wanted)?;
        let answer = self.dispatch(&context.calls, &entry, args, &context.cancel).await?;
        let mut telemetry = Telemetry::new(&self.first_surface(&catalog, Mode::Tools));
        telemetry.call_count = 1;
        telemetry.select(&entry);
        telemetry.called(called(&entry, &answer));
        report(context, &telemetry)?;
        let tool_answer = tool_answer(&entry, &answer)?;
        Ok(Output { user_message: answer.result.user_message.clone(), ..Output::of(&tool_answer)? })
    }

    /// Calls a tool of the catalog through the pipeline.
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

impl ModelView for ToolSearch {
    fn show<'a>(
        &'a self,
        engine: &'a Engine,
        caller: &'a Caller,
        turn: Turn<'a>,
    ) -> BoxFuture<'a, Result<Shown, Failure>> {
        Box::pin(async move {
            let (wanted, mut notice) = self.mode(self.settings.surface.mode).await;
            let catalog = self.catalog(engine, caller);
            let surface = self.surface_of(&catalog, wanted, &turn);
            if surface.mode != wanted {
                let (shown, wanted) = (surface.mode.as_str(), wanted.as_str());
                notice = Some(format!(
                    "the policy denies the control tools of {wanted} mode; tools are shown by {shown} mode"
                ));
            } else if !surface.required_left_out.is_empty() {
                let names = surface.required_left_out.join(", ");
                notice = Some(format!("required tools that are not shown with their schemas: {names}"));
            }
            if catalog.is_new() && surface.mode != Mode::Direct {
                let what = if surface.mode == Mode::Directory { "directory" } else { "prompt" };
                tracing::info!("tool-search: cataloged {} tools behind compact {what} surface", catalog.len());
            }
            self.counters.catalog_tools.store(catalog.len() as u64, Ordering::Relaxed);
            self.counters.direct_bytes.store(catalog.direct_bytes() as u64, Ordering::Relaxed);
            self.counters.compact_bytes.store(surface.bytes() as u64, Ordering::Relaxed);
            self.count(engine, caller, catalog.direct_bytes(), surface.bytes());
            Ok(Shown { surface, notice })
        })
    }

    fn metrics(&self) -> String {
        self.counters.to_prometheus()
    }
}

/// The answer to a batch, with this many candidates for each query and descriptions of this many characters. Short
/// answers contain only what is needed to choose and call a tool.
fn answer(queries: &[Query], found: &[Vec<SearchEntry>], kept: usize, description: usize) -> Batch {
    let results: Vec<BatchResult> = queries
        .iter()
        .zip(found)
        .map(|(query, hits)| BatchResult {
            query: query.text.clone(),
            candidates: hits
                .iter()
                .take(kept)
                .map(|hit| if description == usize::MAX { hit.clone() } else { hit.shortened(description) })
                .collect(),
            truncated: hits.len() > kept,
        })
        .collect();
    let truncated = results.iter().any(|result| result.truncated);
    Batch { results, truncated, surface: None }
}

/// Adds the telemetry to the run's record and notifies subscribers.
pub(crate) fn report(context: &CallContext, telemetry: &Telemetry) -> Result<(), Failure> {
    context.progress.keep("tool search", Output::of(telemetry)?.data);
    Ok(())
}

/// A call as telemetry lists it.
pub(crate) fn called(entry: &ToolEntry, answer: &NestedAnswer) -> CompletedCall {
    CompletedCall {
        nested_id: answer.nested_id.clone(),
        call_id: answer.result.call_id.to_string(),
        id: entry.id().to_owned(),
        source: entry.source().catalog_source(),
        ok: answer.result.ok,
        code: answer.result.error.as_ref().map(|error| error.code.as_str().to_owned()),
    }
}

/// A call's answer: `{tool, result: {content, details}}`. A call that was blocked or failed returns that failure.
pub(crate) fn tool_answer(entry: &ToolEntry, answer: &NestedAnswer) -> Result<ToolAnswer, Failure> {
    let result: &ToolResult = &answer.result;
    let Some(details) = result.data.clone() else {
        let why = result.user_message.clone().unwrap_or_else(|| "it did not run".to_owned());
        let failure = result.error.clone().unwrap_or_else(|| Failure::new(ErrorCode::PreconditionFailed, why));
        return Err(failure.detail("tool", entry.id()).detail("callId", result.call_id.to_string()));
    };
    // A tool with a result in MCP's form provides its own content; any other result is shown as JSON.
    let own = details.get("content").filter(|content| content.is_array() && entry.source().kind == SourceKind::Mcp);
    let content = match own {
        Some(own) => own.clone(),
        None => {
            let text = serde_json::to_string_pretty(&details).map_err(unwritable)?;
            serde_json::to_value([TextPart { r#type: "text", text }]).map_err(unwritable)?
        }
    };
    let result = ToolAnswerResult { content, details, call_id: result.call_id };
    Ok(ToolAnswer { tool: SearchEntry::compact(entry), result })
}

/// The failure for JSON that cannot be written, which is a defect.
pub(crate) fn unwritable(error: serde_json::Error) -> Failure {
    Failure::new(ErrorCode::InternalError, format!("the answer cannot be written: {error}")).retryable(false)
}

/// The door that scripts are.
pub(crate) const SCRIPT_DOOR: Door = Door::Script;
