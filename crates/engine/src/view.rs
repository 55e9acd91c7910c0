//! Turns records into the envelopes and events of the specification.
//!
//! One function converts a record, both for live subscribers and for exports, so that an `events.jsonl` written later
//! is identical to what a subscriber received.

use crate::{
    facts::{
        AskedFacts, CallFacts, CancelFacts, ConfirmedFacts, FinishedFacts, OutcomeFacts, PausedFacts, Retry,
        RetryFacts, RunFacts, SettledFacts, payload,
    },
    record::{CallRecord, OutcomeRecord, Record, RunStarted},
    store::{Store, StoreError},
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::{collections::HashMap, ops::ControlFlow, sync::Arc};
use toolyard_protocol::{
    CallId, Confirmation, ErrorCode, EventLevel, EventType, ExecutionEvent, Failure, LogHead, PolicySnapshot,
    ResultStatus, RunId, RunManifest, RunStatus, StepId, ToolCall, ToolCallParts, ToolName, ToolResult,
    ToolResultParts, canonical,
};

/// Turns records of one run, in order, into envelopes and events.
pub struct RunView {
    run_id: RunId,
    started: Option<Arc<RunStarted>>,
    policy: Option<Arc<PolicySnapshot>>,
    calls: HashMap<CallId, CallKey>,
    events: u64,
}

/// What a result takes from its call.
#[derive(Debug, Clone)]
struct CallKey {
    step_id: StepId,
    tool: ToolName,
    attempt: u32,
    index: Option<u64>,
}

impl RunView {
    /// Begins before the first record.
    pub fn new(run_id: RunId) -> Self {
        Self { run_id, started: None, policy: None, calls: HashMap::new(), events: 0 }
    }

    /// Takes notice of a record; must be called for every record in order before the other functions are.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::RunStarted(started) => self.started = Some(Arc::new(started.clone())),
            Record::Call(call) => {
                self.calls.insert(
                    call.call_id,
                    CallKey {
                        step_id: call.step_id.clone(),
                        tool: call.tool.clone(),
                        attempt: call.attempt,
                        index: call.iteration.as_ref().map(|i| i.index),
                    },
                );
            }
            _ => {}
        }
    }

    /// Reads the policy from the blob store if the record only names it.
    pub fn load_policy(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let Some(started) = &self.started else { return Ok(()) };
        let policy = match (&started.policy, &started.policy_blob) {
            (Some(policy), _) => policy.clone(),
            (None, Some(blob)) => {
                let bytes = store
                    .blob(blob)?
                    .ok_or_else(|| StoreError::failed(format!("the policy {blob} is missing from the store")))?;
                serde_json::from_slice(&bytes)
                    .map_err(|e| StoreError::failed(format!("the policy {blob} cannot be read: {e}")))?
            }
            (None, None) => PolicySnapshot::default(),
        };
        self.policy = Some(Arc::new(policy));
        Ok(())
    }

    /// The policy, once it is loaded.
    pub(crate) fn policy(&self) -> Arc<PolicySnapshot> {
        self.policy.clone().unwrap_or_default()
    }

    /// The ToolCall of a call record.
    pub fn tool_call(&self, record: &CallRecord, args: Map<String, Value>) -> Result<ToolCall, StoreError> {
        let started = self.started.as_ref().ok_or_else(|| StoreError::failed("a call before the run started"))?;
        let created_at = micros(record.at);
        let loop_id = record.iteration.as_ref().map(|_| loop_id(self.run_id, &record.step_id));
        let deadline_at =
            record.timeout_ms.and_then(|ms| created_at.checked_add(std::time::Duration::from_millis(ms)).ok());
        ToolCall::new(ToolCallParts {
            call_id: record.call_id,
            run_id: self.run_id,
            step_id: record.step_id.clone(),
            tool: record.tool.clone(),
            attempt: record.attempt,
            args: args.into(),
            args_hash: Some(format!("sha256:{}", record.args_hash)),
            timeout_ms: record.timeout_ms,
            deadline_at,
            cancellable: !record.not_cancellable,
            iteration: record.iteration.clone(),
            loop_id,
            created_at,
            planner_version: started.planner_version.clone(),
            executor_version: started.executor_version.clone(),
            tool_registry_version: started.registry_version.clone(),
            preview: record.preview.clone(),
            risk_level: record.risk,
            category: record.category.clone(),
            policy: self.policy.clone().unwrap_or_default(),
            confirmation_id: record.confirmation_id,
        })
        .map_err(|e| StoreError::failed(e.to_string()))
    }

    /// The ToolResult of an outcome.
    pub fn tool_result(
        &self,
        call_id: CallId,
        step_id: StepId,
        tool: ToolName,
        attempt: u32,
        outcome: &OutcomeRecord,
        data: Option<Map<String, Value>>,
    ) -> Result<ToolResult, StoreError> {
        let started_at = micros(outcome.started);
        let ended_at = micros(outcome.started + outcome.took_us);
        ToolResult::new(ToolResultParts {
            call_id,
            run_id: self.run_id,
            step_id,
            tool,
            attempt: attempt.max(1), // earlier versions recorded 0 where a step never came to a call
            status: outcome.status,
            ok: outcome.status == ResultStatus::Ok,
            data_hash: match (&outcome.data_blob, &data) {
                (Some(_), Some(data)) => canonical::hash(data).ok(),
                _ => None,
            },
            data,
            error: outcome.error.clone(),
            started_at,
            ended_at,
            duration_ms: (outcome.took_us.max(0) as u64).div_ceil(1000),
            effects: outcome.effects.clone(),
            user_message: outcome.user_message.clone(),
            debug_message: outcome.debug_message.clone(),
        })
        .map_err(|e| StoreError::failed(e.to_string()))
    }

    /// The events of a record. Call [`RunView::note`] first.
    pub fn events(&mut self, record: &Record) -> Vec<ExecutionEvent> {
        let mut out = match record {
            Record::Call(c) => self.call_events(c),
            Record::Result(_) | Record::Refused(_) | Record::Retry(_) | Record::Note(_) | Record::Settled(_) => {
                self.step_event(record).into_iter().collect()
            }
            _ => self.run_event(record).into_iter().collect(),
        };
        for event in &mut out {
            self.events += 1;
            event.seq = self.events;
        }
        out
    }

    fn event(&self, event_type: EventType, at: Timestamp, level: EventLevel, message: String) -> ExecutionEvent {
        ExecutionEvent {
            seq: 0,
            run_id: self.run_id,
            event_type,
            timestamp: at,
            level,
            message,
            call_id: None,
            step_id: None,
            tool: None,
            payload: None,
        }
    }

    /// The run's own events.
    fn run_event(&self, record: &Record) -> Option<ExecutionEvent> {
        use EventLevel::{Error, Info, Warn};
        let (event, facts) = match record {
            Record::RunStarted(r) => {
                let title = r.plan.as_ref().map_or("direct call", |p| p.goal.as_str());
                let facts = payload(&RunFacts {
                    plan_hash: r.plan_hash.as_deref(),
                    policy_hash: &r.policy_hash,
                    parent_run_id: r.parent_run_id,
                    steps: r.plan.as_ref().map(|p| p.steps.len()),
                });
                (self.event(EventType::RunStarted, r.started_at, Info, format!("Started: {title}")), facts)
            }
            Record::ConfirmationRequested(r) => {
                let event = self.event(EventType::RunConfirmationRequested, r.at, Info, r.message.clone());
                let Some(approval_id) = r.approval_id.as_deref() else { return Some(event) };
                (event, payload(&AskedFacts { approval_id, shown: r.shown.as_deref() }))
            }
            Record::Confirmed(c) => {
                let facts = payload(&ConfirmedFacts {
                    confirmation_id: &c.0.confirmation_id,
                    decision: &c.0.decision,
                    plan_hash: &c.0.plan_hash,
                    policy_hash: &c.0.policy_hash,
                    preview_hash: c.0.preview_hash.as_deref(),
                    approval_id: c.0.approval_id.as_deref(),
                    shown: c.0.shown.as_deref(),
                    door: c.0.door.as_deref(),
                    grant_id: c.0.grant_id.as_deref(),
                });
                (self.event(EventType::RunConfirmed, c.0.at, Info, format!("Approved by {}", c.0.by)), facts)
            }
            Record::Cancel(c) => {
                let message = format!("Stopped by {}: {}", c.by, c.reason);
                let facts = payload(&CancelFacts { by: &c.by, reason: &c.reason });
                (self.event(EventType::RunCancelled, c.at, Warn, message), facts)
            }
            Record::Paused(p) => {
                let mut event = self.event(EventType::StepProgress, p.at, Warn, p.message.clone());
                event.call_id = p.call_ids.first().copied();
                (event, payload(&PausedFacts { paused: true, in_doubt: &p.call_ids }))
            }
            Record::Finished(f) => {
                let level = if f.status == RunStatus::Finished { Info } else { Error };
                let facts = payload(&FinishedFacts { status: f.status, error: f.error.as_ref() });
                (self.event(EventType::RunFinished, f.at, level, f.message.clone()), facts)
            }
            _ => return None,
        };
        Some(ExecutionEvent { payload: Some(facts), ..event })
    }

    /// Both from one record, so that no other call's events come between them or turn them round.
    fn call_events(&self, call: &CallRecord) -> Vec<ExecutionEvent> {
        let label = call.preview.clone().unwrap_or_else(|| call.tool.to_string());
        let facts = payload(&CallFacts {
            attempt: call.attempt,
            iteration: call.iteration.as_ref().map(|i| i.index),
            args_hash: format!("sha256:{}", call.args_hash),
        });
        let event = |event_type, message| ExecutionEvent {
            call_id: Some(call.call_id),
            step_id: Some(call.step_id.clone()),
            tool: Some(call.tool.clone()),
            payload: Some(facts.clone()),
            ..self.event(event_type, micros(call.at), EventLevel::Info, message)
        };
        let mut out = Vec::with_capacity(2);
        if call.scheduled {
            out.push(event(EventType::StepScheduled, format!("Scheduled: {label}")));
        }
        out.push(event(EventType::StepStarted, label));
        out
    }

    /// The event of a step's start, progress or end.
    fn step_event(&self, record: &Record) -> Option<ExecutionEvent> {
        use EventLevel::{Info, Warn};
        Some(match record {
            Record::Result(r) => self.outcome_event(r.call_id, self.calls.get(&r.call_id)?, &r.outcome),
            Record::Refused(r) => {
                let key = CallKey {
                    step_id: r.step_id.clone(),
                    tool: r.tool.clone(),
                    attempt: r.attempt.max(1),
                    index: r.index,
                };
                self.outcome_event(r.call_id, &key, &r.outcome)
            }
            Record::Retry(r) => {
                let message = format!("Trying again (attempt {}) at {}", r.attempt, r.due);
                let retry = Retry { attempt: r.attempt, at: r.due };
                ExecutionEvent {
                    step_id: Some(r.step_id.clone()),
                    payload: Some(payload(&RetryFacts { retry, iteration: r.index })),
                    ..self.event(EventType::StepProgress, r.at, Warn, message)
                }
            }
            Record::Note(n) => ExecutionEvent {
                call_id: n.call_id,
                step_id: n.step_id.clone(),
                payload: Some(n.payload.clone()),
                ..self.event(EventType::StepProgress, n.at, n.level, n.message.clone())
            },
            Record::Settled(s) => ExecutionEvent {
                call_id: Some(s.call_id),
                payload: Some(payload(&SettledFacts { settled: s.choice, by: &s.by })),
                ..self.event(EventType::StepProgress, s.at, Info, format!("Settled by {}", s.by))
            },
            _ => return None,
        })
    }

    fn outcome_event(&self, call_id: CallId, key: &CallKey, outcome: &OutcomeRecord) -> ExecutionEvent {
        let (event_type, level) = match outcome.status {
            ResultStatus::Ok => (EventType::StepFinished, EventLevel::Info),
            ResultStatus::Skipped => (EventType::StepFinished, EventLevel::Warn),
            _ => (EventType::StepFailed, EventLevel::Error),
        };
        let message = match (&outcome.user_message, &outcome.error) {
            (_, Some(error)) => error.to_string(),
            (Some(message), None) => message.clone(),
            (None, None) => format!("{} {}", key.tool, outcome.status.as_str()),
        };
        ExecutionEvent {
            call_id: Some(call_id),
            step_id: Some(key.step_id.clone()),
            tool: Some(key.tool.clone()),
            payload: Some(payload(&OutcomeFacts {
                attempt: key.attempt,
                iteration: key.index,
                status: outcome.status,
                error: outcome.error.as_ref(),
                effects: outcome.effects.as_ref(),
                duration_ms: (outcome.took_us.max(0) as u64).div_ceil(1000),
            })),
            ..self.event(event_type, micros(outcome.started + outcome.took_us), level, message)
        }
    }

    /// Skips a record's events, keeping their numbers.
    pub(crate) fn skip_events(&mut self, record: &Record) {
        self.events += record.event_count();
    }

    /// Continues the numbering of events of another view.
    pub(crate) fn continue_from(&mut self, other: &RunView) {
        self.started = other.started.clone();
        self.policy = other.policy.clone();
        self.calls = other.calls.clone();
        self.events = other.events;
    }

    /// A call that has its result needs no remembering while a run is live.
    pub(crate) fn forget(&mut self, call_id: CallId) {
        self.calls.remove(&call_id);
    }

    /// The number of the last event.
    pub(crate) fn last_event(&self) -> u64 {
        self.events
    }
}

/// A whole run, as the four files of the specification hold it.
#[derive(Debug, Clone)]
pub struct RunExport {
    /// The content of `run.json`.
    pub manifest: RunManifest,
    /// The lines of `calls.jsonl`.
    pub calls: Vec<ToolCall>,
    /// The lines of `results.jsonl`.
    pub results: Vec<ToolResult>,
    /// The lines of `events.jsonl`.
    pub events: Vec<ExecutionEvent>,
    /// Every approval of the run and of its calls, in order. `run.json` has only the one that the run was made under.
    pub approvals: Vec<Confirmation>,
}

/// Reads a run's records and turns them into the four files. May block.
pub fn export_run(store: &dyn Store, run_id: RunId) -> Result<RunExport, Failure> {
    let mut view = RunView::new(run_id);
    let (mut calls, mut results, mut events) = (Vec::new(), Vec::new(), Vec::new());
    let mut approvals = Vec::new();
    let mut manifest: Option<RunManifest> = None;
    let mut problem: Option<Failure> = None;
    let mut head = LogHead::default();
    store.frames(run_id, 1, &mut |frame| {
        head = LogHead { seq: frame.seq, hash: canonical::hex(&frame.chain) };
        match take(store, &mut view, &mut manifest, &frame, &mut calls, &mut results, &mut events) {
            Ok(given) => {
                approvals.extend(given);
                ControlFlow::Continue(())
            }
            Err(failure) => {
                problem = Some(failure.detail("seq", frame.seq));
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(failure) = problem {
        return Err(failure);
    }
    let mut manifest =
        manifest.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")))?;
    manifest.head = head;
    Ok(RunExport { manifest, calls, results, events, approvals })
}

/// The last result of a run as its caller got it: an output that is too large stays a reference. May block.
pub(crate) fn last_result(store: &dyn Store, run_id: RunId, max_output: u64) -> Result<Option<ToolResult>, Failure> {
    let mut blob = None;
    store.frames(run_id, 1, &mut |frame| {
        if let Ok(Record::Result(r)) = Record::decode(frame.kind, &frame.payload) {
            blob = r.outcome.data_blob;
        }
        ControlFlow::Continue(())
    })?;
    let mut result = export_run(store, run_id)?.results.pop();
    if let Some(result) = &mut result {
        crate::pipeline::hand_over_by_reference(result, blob.as_deref(), max_output);
    }
    Ok(result)
}

fn take(
    store: &dyn Store,
    view: &mut RunView,
    manifest: &mut Option<RunManifest>,
    frame: &crate::store::Frame,
    calls: &mut Vec<ToolCall>,
    results: &mut Vec<ToolResult>,
    events: &mut Vec<ExecutionEvent>,
) -> Result<Option<Confirmation>, Failure> {
    let corrupted = |e: String| Failure::new(ErrorCode::RecordCorrupted, e);
    let record = Record::decode(frame.kind, &frame.payload).map_err(|e| corrupted(e.0))?;
    view.note(&record);
    match &record {
        Record::RunStarted(started) => {
            view.load_policy(store)?;
            *manifest = Some(RunManifest {
                run_id: started.run_id,
                plan_hash: started.plan_hash.clone(),
                plan: started.plan.clone(),
                policy: view.policy.as_deref().cloned().unwrap_or_default(),
                policy_hash: started.policy_hash.clone(),
                registry_version: started.registry_version.clone(),
                executor_version: started.executor_version.clone(),
                caller: started.caller.clone(),
                context: started.context.clone(),
                started_at: started.started_at,
                ended_at: None,
                status: RunStatus::Running,
                confirmation: None,
                parent_run_id: started.parent_run_id,
                replay_of: None,
                head: LogHead::default(),
            });
        }
        Record::Confirmed(c) => {
            // The approval of one call inside a plan is not the approval of the plan.
            if let Some(m) = manifest.as_mut().filter(|m| m.plan.is_none() || c.0.scope != crate::pipeline::CALL_SCOPE)
            {
                m.confirmation = Some(c.0.clone());
            }
        }
        Record::Call(c) if !c.recovered => {
            let args = call_args(store, c)?;
            calls.push(view.tool_call(c, args)?);
        }
        Record::Result(r) => {
            let key =
                view.calls.get(&r.call_id).cloned().ok_or_else(|| corrupted("a result without its call".into()))?;
            let data = outcome_data(store, &r.outcome)?;
            results.push(view.tool_result(r.call_id, key.step_id, key.tool, key.attempt, &r.outcome, data)?);
        }
        Record::Refused(r) => {
            let data = outcome_data(store, &r.outcome)?;
            results.push(view.tool_result(
                r.call_id,
                r.step_id.clone(),
                r.tool.clone(),
                r.attempt,
                &r.outcome,
                data,
            )?);
        }
        Record::Paused(_) => set_status(manifest, RunStatus::Paused, None),
        Record::Settled(_) => set_status(manifest, RunStatus::Running, None),
        Record::Finished(f) => set_status(manifest, f.status, Some(f.at)),
        _ => {}
    }
    events.extend(view.events(&record));
    Ok(match record {
        Record::Confirmed(confirmed) => Some(confirmed.0),
        _ => None,
    })
}

fn set_status(manifest: &mut Option<RunManifest>, status: RunStatus, ended_at: Option<Timestamp>) {
    if let Some(m) = manifest {
        m.status = status;
        m.ended_at = ended_at;
    }
}

/// A call's arguments, from the record or the blob store.
pub fn call_args(store: &dyn Store, call: &CallRecord) -> Result<Map<String, Value>, Failure> {
    match (&call.args, &call.args_blob) {
        (Some(args), _) => Ok(args.as_ref().clone()),
        (None, Some(blob)) => read_object(store, blob),
        (None, None) => Ok(Map::new()),
    }
}

/// An outcome's data, from the record or the blob store.
pub fn outcome_data(store: &dyn Store, outcome: &OutcomeRecord) -> Result<Option<Map<String, Value>>, Failure> {
    match (&outcome.data, &outcome.data_blob) {
        (Some(data), _) => Ok(Some(data.clone())),
        (None, Some(blob)) => read_object(store, blob).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_object(store: &dyn Store, blob: &str) -> Result<Map<String, Value>, Failure> {
    let bytes = store.blob(blob)?.ok_or_else(|| {
        Failure::new(ErrorCode::RecordCorrupted, format!("the value {blob} is missing from the store"))
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Failure::new(ErrorCode::RecordCorrupted, format!("the value {blob} cannot be read: {e}")))
}

/// A foreach expansion's stable id.
pub(crate) fn loop_id(run_id: RunId, step_id: &StepId) -> String {
    canonical::sha256_hex(format!("{run_id}/{step_id}").as_bytes())[..32].to_owned()
}

pub(crate) fn micros(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
}
