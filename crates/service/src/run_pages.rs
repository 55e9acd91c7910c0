//! A run page by page: its calls, one call in full, and the bytes of its record, with which others can verify it.

use crate::{Call, Handle, MethodError, Service, Terms, methods, service::blocking};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::ControlFlow};
use toolyard_engine::{
    Store, chain,
    ledger::{self, KeySpan},
    record::{CallRecord, OutcomeRecord, Record, RecordKind, RefusedRecord},
    store::{RunRow, StoreError},
    view,
};
use toolyard_protocol::{
    CallId, Effects, ErrorCode, Failure, ResultStatus, RunId, StepId, ToolCall, ToolName, ToolResult, canonical,
};

/// The number of calls in a page, by default and at most.
const DEFAULT_CALLS: usize = 200;
const MAX_CALLS: usize = 2000;
/// Records that are read beyond the last call of a page, to find the results of its calls.
const MAX_BEYOND: u64 = 20_000;
/// Arguments of more bytes than this are left out of a row; `runs.call` has them.
const MAX_ROW_ARGS: usize = 2000;
/// The number of records in a page of the record, by default and at most.
const DEFAULT_RECORDS: usize = 500;
const MAX_RECORDS: usize = 5000;
/// Bytes of payloads in a page of the record.
const MAX_RECORD_BYTES: usize = 4 << 20;

methods! {
    /// Lists the calls of a run, page by page.
    RunsCalls = "runs.calls", Terms::read().everywhere(), CallsParams => CallPage;
    /// Shows one call of a run in full.
    RunsCall = "runs.call", Terms::read().everywhere(), CallParams => CallDetail;
    /// Shows the records of a run as bytes, with their hashes and the keys that signed them, to be verified elsewhere.
    RunsRecord = "runs.record", Terms::read().everywhere(), RecordParams => RecordPage;
}

/// Which calls are listed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallsParams {
    /// The run.
    pub run_id: RunId,
    /// Only calls after this record: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only calls that failed or were refused.
    #[serde(default)]
    pub failed: bool,
    /// Only calls of this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// Calls of a run, in the order in which they were recorded.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallPage {
    /// The run.
    pub run_id: RunId,
    /// The calls.
    pub calls: Vec<CallRow>,
    /// The `after` of the next page, where there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// How many calls the run has made.
    pub total: u64,
    /// How many of them failed or were refused.
    pub failed: u64,
}

/// A call in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallRow {
    /// The number of its record.
    pub seq: u64,
    /// The call.
    pub call_id: CallId,
    /// The step.
    pub step_id: StepId,
    /// The tool.
    pub tool: ToolName,
    /// The number of the attempt.
    pub attempt: u32,
    /// The position in a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// When it was recorded.
    pub at: Timestamp,
    /// When the attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// How long it took, in microseconds; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<i64>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ResultStatus>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Its arguments, unless they are large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<crate::Object>,
    /// What it changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// Whether it was refused before anything was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Whether it was made again after a crash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
}

/// A file or folder that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// What happened to it.
    pub kind: ChangeKind,
    /// Its path in the vault, after the change.
    pub path: String,
    /// Where it was, if it moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// What happened to a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It did not exist before.
    Created,
    /// Its content changed.
    Modified,
    /// It was deleted.
    Deleted,
    /// It moved.
    Renamed,
}

/// The files and folders that effects name.
pub(crate) fn changes(effects: &Effects) -> Vec<FileChange> {
    let change = |kind, path: &str| FileChange { kind, path: path.to_owned(), from: None };
    let created = effects.created.iter().map(|file| change(ChangeKind::Created, &file.path));
    let modified = effects.modified.iter().map(|file| change(ChangeKind::Modified, &file.path));
    let deleted = effects.deleted.iter().map(|file| change(ChangeKind::Deleted, &file.path));
    let renamed = effects
        .renamed
        .iter()
        .map(|file| FileChange { from: Some(file.from.clone()), ..change(ChangeKind::Renamed, &file.to) });
    created.chain(modified).chain(deleted).chain(renamed).collect()
}

impl CallRow {
    fn of_call(seq: u64, call: &CallRecord) -> Self {
        let args = call.args.as_deref().filter(|args| is_small(args)).cloned();
        Self {
            seq,
            call_id: call.call_id,
            step_id: call.step_id.clone(),
            tool: call.tool.clone(),
            attempt: call.attempt,
            index: call.iteration.as_ref().map(|iteration| iteration.index),
            at: Timestamp::from_microsecond(call.at).unwrap_or_default(),
            started_at: None,
            took_us: None,
            status: None,
            error: None,
            args,
            changes: Vec::new(),
            refused: false,
            recovered: call.recovered,
        }
    }

    fn of_refusal(seq: u64, refused: &RefusedRecord) -> Self {
        let mut row = Self {
            seq,
            call_id: refused.call_id,
            step_id: refused.step_id.clone(),
            tool: refused.tool.clone(),
            attempt: refused.attempt,
            index: refused.index,
            at: Timestamp::from_microsecond(refused.outcome.started).unwrap_or_default(),
            started_at: None,
            took_us: None,
            status: None,
            error: None,
            args: refused.args.as_ref().and_then(|args| args.as_object()).filter(|args| is_small(args)).cloned(),
            changes: Vec::new(),
            refused: true,
            recovered: false,
        };
        row.end(&refused.outcome);
        row
    }

    fn end(&mut self, outcome: &OutcomeRecord) {
        self.started_at = Timestamp::from_microsecond(outcome.started).ok();
        self.took_us = Some(outcome.took_us);
        self.status = Some(outcome.status);
        self.error = outcome.error.clone();
        self.changes = outcome.effects.as_ref().map(changes).unwrap_or_default();
    }

    fn is_failed(&self) -> bool {
        self.status.is_some_and(|status| !matches!(status, ResultStatus::Ok | ResultStatus::Skipped))
    }
}

fn is_small(args: &crate::Object) -> bool {
    serde_json::to_vec(args).is_ok_and(|bytes| bytes.len() <= MAX_ROW_ARGS)
}

fn no_run(run_id: RunId) -> Failure {
    // The same words as for a run of another workspace.
    Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}"))
}

fn known_run(store: &dyn Store, run_id: RunId) -> Result<RunRow, MethodError> {
    store.settle()?;
    Ok(store.run(run_id)?.ok_or_else(|| no_run(run_id))?)
}

/// Calls from a record on, with their results as far as they are near. The second value is where the next page begins.
fn calls_after(store: &dyn Store, params: &CallsParams) -> Result<(Vec<CallRow>, Option<u64>), StoreError> {
    let limit = params.limit.unwrap_or(DEFAULT_CALLS).clamp(1, MAX_CALLS);
    let is_wanted = |tool: &ToolName| params.tool.as_deref().is_none_or(|wanted| wanted == tool.as_str());
    let (mut rows, mut places): (Vec<CallRow>, HashMap<CallId, usize>) = (Vec::new(), HashMap::new());
    let (mut last, mut open, mut next) = (0, 0usize, None);
    store.frames(params.run_id, params.after.unwrap_or_default() + 1, &mut |frame| {
        let is_full = rows.len() >= limit;
        match Record::decode(frame.kind, &frame.payload) {
            Ok(Record::Call(call)) if is_wanted(&call.tool) && !is_full => {
                places.insert(call.call_id, rows.len());
                rows.push(CallRow::of_call(frame.seq, &call));
                open += 1;
            }
            Ok(Record::Refused(refused)) if is_wanted(&refused.tool) && !is_full && !refused.never_ran => {
                rows.push(CallRow::of_refusal(frame.seq, &refused));
            }
            Ok(Record::Call(_) | Record::Refused(_)) if is_full => next = next.or(Some(last)),
            Ok(Record::Result(result)) => {
                if let Some(row) = places.remove(&result.call_id).and_then(|at| rows.get_mut(at)) {
                    row.end(&result.outcome);
                    open -= 1;
                }
            }
            _ => {}
        }
        if !is_full {
            last = frame.seq;
        }
        let is_done = next.is_some() && (open == 0 || frame.seq > last + MAX_BEYOND);
        if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if params.failed {
        rows.retain(CallRow::is_failed);
    }
    Ok((rows, next))
}

impl Handle<RunsCalls> for Service {
    async fn handle(&self, _: &Call<'_>, params: CallsParams) -> Result<CallPage, MethodError> {
        let service = self.clone();
        blocking(move || {
            let store = &**service.engine().store();
            let row = known_run(store, params.run_id)?;
            let (calls, next) = calls_after(store, &params)?;
            let counts = service.counted(row)?.counts.unwrap_or_default();
            Ok(CallPage { run_id: params.run_id, calls, next, total: counts.calls, failed: counts.failed })
        })
        .await
    }
}

/// A call of a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallParams {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
}

/// A call with its result.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallDetail {
    /// The call; absent where it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<ToolCall>,
    /// The result; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResult>,
}

/// Reads one call and its result from the record of a run.
fn one_call(store: &dyn Store, run_id: RunId, call_id: CallId) -> Result<CallDetail, Failure> {
    let mut run = view::RunView::new(run_id);
    let mut found = CallDetail { call: None, result: None };
    let mut asked: Option<CallRecord> = None;
    let mut problem = None;
    store.frames(run_id, 1, &mut |frame| {
        let taken = (|| -> Result<bool, Failure> {
            let corrupted = |e: String| Failure::new(ErrorCode::RecordCorrupted, e).detail("seq", frame.seq);
            let record = Record::decode(frame.kind, &frame.payload).map_err(|e| corrupted(e.0))?;
            run.note(&record);
            match record {
                Record::RunStarted(_) => run.load_policy(store)?,
                Record::Call(call) if call.call_id == call_id && found.call.is_none() => {
                    found.call = Some(run.tool_call(&call, view::call_args(store, &call)?)?);
                    asked = Some(call);
                }
                Record::Result(result) if result.call_id == call_id => {
                    let Some(call) = &asked else { return Err(corrupted("a result without its call".to_owned())) };
                    let (step, tool) = (call.step_id.clone(), call.tool.clone());
                    let data = view::outcome_data(store, &result.outcome)?;
                    found.result = Some(run.tool_result(call_id, step, tool, call.attempt, &result.outcome, data)?);
                    return Ok(true);
                }
                Record::Refused(refused) if refused.call_id == call_id => {
                    let data = view::outcome_data(store, &refused.outcome)?;
                    let RefusedRecord { step_id, tool, attempt, outcome, .. } = refused;
                    found.result = Some(run.tool_result(call_id, step_id, tool, attempt, &outcome, data)?);
                    return Ok(true);
                }
                _ => {}
            }
            Ok(false)
        })();
        match taken {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => ControlFlow::Break(()),
            Err(failure) => {
                problem = Some(failure);
                ControlFlow::Break(())
            }
        }
    })?;
    match problem {
        Some(failure) => Err(failure),
        None if found.call.is_none() && found.result.is_none() => {
            Err(Failure::new(ErrorCode::NotFound, format!("the run has no call {call_id}")))
        }
        None => Ok(found),
    }
}

impl Handle<RunsCall> for Service {
    async fn handle(&self, _: &Call<'_>, params: CallParams) -> Result<CallDetail, MethodError> {
        let store = self.engine().store().clone();
        blocking(move || {
            known_run(&*store, params.run_id)?;
            Ok(one_call(&*store, params.run_id, params.call_id)?)
        })
        .await
    }
}

/// Which records are shown.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordParams {
    /// The run.
    pub run_id: RunId,
    /// The first record; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Records of a run as they are stored.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordPage {
    /// The run.
    pub run_id: RunId,
    /// The hash before the first record, in hexadecimal.
    pub genesis: String,
    /// The records.
    pub frames: Vec<ShownFrame>,
    /// The number of the last record that there is.
    pub total: u64,
    /// The `from` of the next page, where there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The keys that signed the record, the present one last.
    pub keys: Vec<KeySpan>,
}

/// A record as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownFrame {
    /// Its number.
    pub seq: u64,
    /// Its kind, as it is hashed.
    pub kind: u8,
    /// The name of its kind.
    pub kind_name: String,
    /// Its payload, in base64.
    pub payload: String,
    /// The hash of the chain with it, in hexadecimal.
    pub chain: String,
}

/// The name of a record's kind, in camel case.
fn kind_name(kind: u8) -> String {
    let Some(kind) = RecordKind::from_u8(kind) else { return "unknown".to_owned() };
    let name = format!("{kind:?}");
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

impl Handle<RunsRecord> for Service {
    async fn handle(&self, _: &Call<'_>, params: RecordParams) -> Result<RecordPage, MethodError> {
        let (store, verifier) = (self.engine().store().clone(), self.verifier());
        blocking(move || {
            known_run(&*store, params.run_id)?;
            let limit = params.limit.unwrap_or(DEFAULT_RECORDS).clamp(1, MAX_RECORDS);
            let (mut frames, mut bytes, mut next) = (Vec::new(), 0, None);
            store.frames(params.run_id, params.from.unwrap_or(1).max(1), &mut |frame| {
                bytes += frame.payload.len();
                if frames.len() >= limit || (bytes > MAX_RECORD_BYTES && !frames.is_empty()) {
                    next = Some(frame.seq);
                    return ControlFlow::Break(());
                }
                frames.push(ShownFrame {
                    seq: frame.seq,
                    kind: frame.kind,
                    kind_name: kind_name(frame.kind),
                    payload: BASE64.encode(&frame.payload),
                    chain: canonical::hex(&frame.chain),
                });
                ControlFlow::Continue(())
            })?;
            Ok(RecordPage {
                run_id: params.run_id,
                genesis: canonical::hex(&chain::genesis(params.run_id)),
                frames,
                total: store.head(params.run_id)?.map_or(0, |head| head.seq),
                next,
                keys: ledger::keys(&*store, &verifier)?,
            })
        })
        .await
    }
}
