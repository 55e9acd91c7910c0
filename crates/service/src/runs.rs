//! The methods about runs: list, show, export, verify, resume, cancel.

use crate::{
    Call, Handle, Lane, MethodError, Service, Terms, methods, plans::end, proof::Verified, registry,
    run_facts::RunCounts, service::blocking,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::{
    SessionMessage,
    authority::{Approver, Power},
    plan::RunReport,
    record::Settlement,
    store::{RunKind, RunRow},
    view,
};
use toolyard_protocol::{
    Confirmation, ErrorCode, ExecutionEvent, Failure, RunId, RunManifest, RunStatus, ToolCall, ToolResult,
};

/// The number of runs in a list, by default.
const DEFAULT_LIMIT: usize = 50;
/// The largest number of runs in a list.
const MAX_LIMIT: usize = 10_000;

methods! {
    /// Lists runs, newest first.
    RunsList = "runs.list", Terms::read().everywhere(), RunsListParams => RunList;
    /// Shows a run: its manifest, calls and results.
    RunsGet = "runs.get", Terms::read().everywhere(), RunParams => RunDetail;
    /// Shows a run with its calls, results and events, as in its four files.
    RunsExport = "runs.export", Terms::read().local(), RunParams => ExportedRun;
    /// Shows the calls and results of a run as messages.
    RunsTranscript = "runs.transcript", Terms::read().local(), RunParams => Transcript;
    /// Verifies one run, a receipt, or everything: records, chains, signatures, the ledger's tree and kept heads.
    RunsVerify = "runs.verify", Terms::read().everywhere(), VerifyParams => Verified;
    /// Resumes a run that is paused or was interrupted.
    RunsResume = "runs.resume", Terms::run().everywhere().may_use(&[Power::Approve]), ResumeParams => RunReport;
    /// Cancels a run.
    RunsCancel = "runs.cancel", Terms::write().everywhere().lane(Lane::Express), RunParams => CancelledRun;
    /// Cancels the run of a plan.
    PlansCancel = "plans.cancel", Terms::write().takes_session().lane(Lane::Express), RunParams => CancelledRun;
}

/// A run by id.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunParams {
    /// The run.
    pub run_id: RunId,
}

/// Which runs are listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RunsListParams {
    /// Only runs in one of these states.
    pub status: Vec<RunStatus>,
    /// Only plans, or only direct calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<RunKind>,
    /// Only runs of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Only runs that began before this one: `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<RunId>,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only runs of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only runs that called this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Only runs that came by this door: `cli`, `gateway`, `http`, `mcp`, `bridge`, `console` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// Only runs whose title or id contains this text, regardless of case. Of the newest 2,000 runs, also those whose tools,
    /// changed paths or subject contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Only runs that began at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only runs that began before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// Whether each run is listed with who began it and how many calls it made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
    /// Whether the answer says how many runs fit in all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub total: bool,
}

/// Runs, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// Where the next page begins: the `before` of it. Filters look at a limited number of runs, so a page may be short, or
    /// empty, and not be the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<RunId>,
    /// When the last run that was looked at began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched_to: Option<Timestamp>,
    /// How many runs fit in all, where that was asked for. Absent with a filter that needs each run looked at: `agent`,
    /// `door`, `tool` and `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// A run in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// The run.
    pub run_id: RunId,
    /// A plan, or a direct call.
    pub kind: RunKind,
    /// Its state.
    pub status: RunStatus,
    /// The plan's goal, or the tool.
    pub title: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Who began it and how many calls it made, where counts were asked for.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub counts: Option<RunCounts>,
}

impl From<RunRow> for RunSummary {
    fn from(row: RunRow) -> Self {
        let duration_ms = row.ended_at.map(|ended| ended.as_millisecond() - row.started_at.as_millisecond());
        Self {
            run_id: row.run_id,
            kind: row.kind,
            status: row.status,
            title: row.title,
            started_at: row.started_at,
            ended_at: row.ended_at,
            duration_ms,
            session: row.session,
            counts: None,
        }
    }
}

/// A run with its calls and results.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    /// Its manifest.
    pub run: RunManifest,
    /// Its calls.
    pub calls: Vec<ToolCall>,
    /// Their results.
    pub results: Vec<ToolResult>,
    /// Every approval of the run and of its calls, in order: who, by which door, shown what, when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Confirmation>,
}

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedRun {
    /// Its manifest.
    pub run: RunManifest,
    /// Its calls.
    pub calls: Vec<ToolCall>,
    /// Their results.
    pub results: Vec<ToolResult>,
    /// Its events.
    pub events: Vec<ExecutionEvent>,
    /// Every approval of the run and of its calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Confirmation>,
}

/// A run as a conversation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    /// The run.
    pub run_id: RunId,
    /// The messages, in the form that models' interfaces know.
    pub messages: Vec<SessionMessage>,
}

/// What is verified: one run, a receipt, or everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyParams {
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// A signed head that was kept elsewhere: everything is verified and compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// A receipt: it alone is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// A secret, as it was given: which arguments of the run held it. A value that is not a text is given as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// The parameters for resuming a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeParams {
    /// The run.
    pub run_id: RunId,
    /// What happened to a call whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Settlement>,
    /// Whether the person approves the plan.
    #[serde(default)]
    pub approve: bool,
}

/// A run that is being cancelled.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CancelledRun {
    /// The run.
    pub run_id: RunId,
    /// Always true.
    pub cancelled: bool,
}

impl Service {
    /// A run as it is on record.
    pub async fn export(&self, run_id: RunId) -> Result<view::RunExport, MethodError> {
        let store = self.engine().store().clone();
        blocking(move || {
            store.settle()?;
            Ok(view::export_run(&*store, run_id)?)
        })
        .await
    }

    async fn cancel_run(&self, call: &Call<'_>, run_id: RunId) -> Result<CancelledRun, MethodError> {
        if self.cancel_anywhere(&call.caller, run_id).await? {
            return Ok(CancelledRun { run_id, cancelled: true });
        }
        let store = self.engine().store().clone();
        let row = blocking(move || Ok::<_, MethodError>(store.run(run_id)?)).await?;
        let failure = match row {
            None => Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")),
            Some(row) if row.status.is_final() => {
                Failure::new(ErrorCode::PreconditionFailed, format!("the run has ended: {}", row.status.as_str()))
            }
            Some(_) => Failure::new(ErrorCode::PreconditionFailed, "the run is not under way in this process")
                .suggest("If its process has ended, end the run with `toolyard runs resume RUN --abort`."),
        };
        Err(failure.into())
    }
}

impl Handle<RunsList> for Service {
    async fn handle(&self, call: &Call<'_>, params: RunsListParams) -> Result<RunList, MethodError> {
        let limit = params.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let (service, caller) = (self.clone(), call.caller.clone());
        blocking(move || service.list_and_count(&caller, &params, limit)).await
    }
}

impl Handle<RunsGet> for Service {
    async fn handle(&self, _: &Call<'_>, params: RunParams) -> Result<RunDetail, MethodError> {
        let export = self.export(params.run_id).await?;
        let view::RunExport { manifest: run, calls, results, approvals, .. } = export;
        Ok(RunDetail { run, calls, results, approvals })
    }
}

impl Handle<RunsExport> for Service {
    async fn handle(&self, _: &Call<'_>, params: RunParams) -> Result<ExportedRun, MethodError> {
        let view::RunExport { manifest: run, calls, results, events, approvals } = self.export(params.run_id).await?;
        Ok(ExportedRun { run, calls, results, events, approvals })
    }
}

impl Handle<RunsTranscript> for Service {
    async fn handle(&self, _: &Call<'_>, params: RunParams) -> Result<Transcript, MethodError> {
        let export = self.export(params.run_id).await?;
        Ok(Transcript { run_id: export.manifest.run_id, messages: toolyard_engine::transcript(&export) })
    }
}

impl Handle<RunsResume> for Service {
    async fn handle(&self, call: &Call<'_>, params: ResumeParams) -> Result<RunReport, MethodError> {
        // Checked before anything is changed: a request for both must not settle the call and then be refused.
        let approver = match params.approve || params.settle.is_some() {
            true => {
                registry::decide_power(call, Power::Approve)?;
                Some(Approver::of(&call.caller)?)
            }
            false => None,
        };
        if let (Some(choice), Some(by)) = (params.settle, &approver) {
            self.engine().settle(params.run_id, choice, by).await?;
        }
        let watching = call.events.clone().map(|sink| self.watch(params.run_id, sink));
        let approved_by = approver.filter(|_| params.approve);
        let service = self.clone();
        let task = tokio::spawn(async move { service.engine().resume(params.run_id, approved_by).await });
        let report = task.await;
        end(watching).await;
        Ok(report.map_err(|_| Failure::new(ErrorCode::InternalError, "the run failed unexpectedly"))??)
    }
}

impl Handle<RunsCancel> for Service {
    async fn handle(&self, call: &Call<'_>, params: RunParams) -> Result<CancelledRun, MethodError> {
        self.cancel_run(call, params.run_id).await
    }
}

impl Handle<PlansCancel> for Service {
    async fn handle(&self, call: &Call<'_>, params: RunParams) -> Result<CancelledRun, MethodError> {
        self.cancel_run(call, params.run_id).await
    }
}
