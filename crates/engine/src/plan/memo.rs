//! What the record of a run contains so far. Resume, replay and fork run a plan against such a memo.

use crate::{
    Store,
    chain::{BadRecord, ChainWalker, UnsignedRecords, Verifier},
    ledger::{self, RunHead},
    record::{CallRecord, FinishedRecord, OutcomeRecord, Record, RunStarted, Settlement},
    recorder::Resumed,
    view::{self, RunView},
};
use jiff::Timestamp;
use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
};
use toolyard_protocol::{
    CallId, Confirmation, ErrorCode, Failure, PolicySnapshot, ResultStatus, RunId, StepId, ToolName, ToolResult,
};

/// Which call: step, iteration, try.
pub(crate) type CallKey = (StepId, Option<u64>, u32);

/// A result as recorded.
pub(crate) struct Recorded {
    pub(crate) call_id: CallId,
    pub(crate) tool: ToolName,
    pub(crate) attempt: u32,
    pub(crate) args_hash: Option<String>,
    pub(crate) outcome: OutcomeRecord,
    pub(crate) call: Option<CallRecord>,
}

/// A run's record, folded.
pub(crate) struct Memo {
    pub(crate) started: Arc<RunStarted>,
    pub(crate) policy: Arc<PolicySnapshot>,
    pub(crate) confirmation: Option<Confirmation>,
    pub(crate) results: HashMap<CallKey, Recorded>,
    pub(crate) pending: HashMap<CallKey, CallRecord>,
    pub(crate) settlements: HashMap<CallId, (Settlement, String)>,
    pub(crate) retries: HashMap<CallKey, Timestamp>,
    pub(crate) skipped: HashSet<StepId>,
    pub(crate) cancelled: bool,
    /// The calls the run was last paused for.
    pub(crate) paused_for: Vec<CallId>,
    pub(crate) finished: Option<FinishedRecord>,
    pub(crate) at: Resumed,
    /// The records at the end that nothing proves because an earlier version wrote them.
    pub(crate) unsigned: Option<UnsignedRecords>,
    /// The first record that breaks the chain, carries a wrong signature or is not proven by anything. Such a run can be replayed and forked, and
    /// is not continued.
    pub(crate) broken: Option<BadRecord>,
    pub(crate) view: RunView,
}

impl Memo {
    /// Reads a run and checks its chain and signatures on the way. May block.
    pub(crate) fn load(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<Self, Failure> {
        let mut walker = ChainWalker::new(run_id, Some(verifier));
        let mut broken = None;
        let mut view = RunView::new(run_id);
        let mut fold: Option<Memo> = None;
        let mut problem: Option<Failure> = None;
        let mut calls: HashMap<CallId, CallRecord> = HashMap::new();
        store.frames(run_id, 1, &mut |frame| {
            if broken.is_none() {
                broken = walker.step(&frame).err();
            }
            let record = match Record::decode(frame.kind, &frame.payload) {
                Ok(record) => record,
                Err(e) => {
                    problem = Some(Failure::new(ErrorCode::RecordCorrupted, e.0).detail("seq", frame.seq));
                    return ControlFlow::Break(());
                }
            };
            view.note(&record);
            view.skip_events(&record);
            match (&mut fold, record) {
                (None, Record::RunStarted(started)) => {
                    fold = Some(Memo {
                        started: Arc::new(started),
                        policy: Arc::default(),
                        confirmation: None,
                        results: HashMap::new(),
                        pending: HashMap::new(),
                        settlements: HashMap::new(),
                        retries: HashMap::new(),
                        skipped: HashSet::new(),
                        cancelled: false,
                        paused_for: Vec::new(),
                        finished: None,
                        at: Resumed { seq: 0, chain: [0; 32] },
                        unsigned: None,
                        broken: None,
                        view: RunView::new(run_id),
                    });
                }
                (None, _) => {
                    problem = Some(
                        Failure::new(ErrorCode::RecordCorrupted, "the run's first record is missing")
                            .detail("seq", frame.seq),
                    );
                    return ControlFlow::Break(());
                }
                (Some(memo), record) => memo.take(record, &mut calls),
            }
            if let Some(memo) = &mut fold {
                memo.at = Resumed { seq: frame.seq, chain: frame.chain };
            }
            ControlFlow::Continue(())
        })?;
        if let Some(failure) = problem {
            return Err(failure);
        }
        let mut memo = fold.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")))?;
        for call in calls.into_values() {
            memo.pending.insert(key_of(&call), call);
        }
        view.load_policy(store)?;
        memo.policy = view.policy();
        memo.broken = broken;
        memo.find_unproven(store, run_id, &walker)?;
        memo.view = view;
        Ok(memo)
    }

    /// A batch is stored whole, and its last record proves it: unproven records at the end were not written by
    /// Toolyard, unless the ledger says that an earlier version left them so.
    fn find_unproven(&mut self, store: &dyn Store, run_id: RunId, walker: &ChainWalker<'_>) -> Result<(), Failure> {
        let Some(tail) = walker.unproven_tail() else { return Ok(()) };
        let (seq, chain) = walker.head();
        match ledger::open_head(store, run_id)? {
            Some((head, unsigned)) if head == RunHead::new(run_id, seq, &chain) => {
                self.unsigned = unsigned.then_some(tail);
            }
            _ if self.broken.is_none() => {
                let problem = "nothing proves what the run's record says from here on".to_owned();
                self.broken = Some(BadRecord { seq: tail.from, problem });
            }
            _ => {}
        }
        Ok(())
    }

    fn take(&mut self, record: Record, calls: &mut HashMap<CallId, CallRecord>) {
        match record {
            // The approval of one call is not the approval of the run.
            Record::Confirmed(c) if c.0.scope == crate::pipeline::CALL_SCOPE => {}
            Record::Confirmed(c) => self.confirmation = Some(c.0),
            Record::Call(call) => {
                calls.insert(call.call_id, call);
            }
            Record::Result(r) => {
                if let Some(call) = calls.remove(&r.call_id) {
                    let recorded = Recorded {
                        call_id: r.call_id,
                        tool: call.tool.clone(),
                        attempt: call.attempt,
                        args_hash: Some(call.asked_hash.clone().unwrap_or_else(|| call.args_hash.clone())),
                        outcome: r.outcome,
                        call: Some(call),
                    };
                    if let Some(call) = &recorded.call {
                        self.results.insert(key_of(call), recorded);
                    }
                }
            }
            Record::Refused(r) => {
                // A recorded call that was not made again after all has its result in this.
                calls.remove(&r.call_id);
                if r.outcome.status == ResultStatus::Skipped && (r.never_ran || r.attempt == 0) {
                    // Not among the results: a fork may run the step after all.
                    self.skipped.insert(r.step_id);
                    return;
                }
                let attempt = r.attempt.max(1);
                let recorded = Recorded {
                    call_id: r.call_id,
                    tool: r.tool,
                    attempt,
                    args_hash: None,
                    outcome: r.outcome,
                    call: None,
                };
                self.results.insert((r.step_id, r.index, attempt), recorded);
            }
            Record::Retry(r) => drop(self.retries.insert((r.step_id, r.index, r.attempt), r.due)),
            Record::Settled(s) => drop(self.settlements.insert(s.call_id, (s.choice, s.by))),
            Record::Cancel(_) => self.cancelled = true,
            Record::Paused(p) => self.paused_for = p.call_ids,
            Record::Finished(f) => self.finished = Some(f),
            Record::RunStarted(_) | Record::ConfirmationRequested(_) | Record::Note(_) | Record::Checkpoint(_) => {}
        }
    }

    /// What the run has used of its limits: bytes written, deletions.
    pub(crate) fn used(&self) -> (u64, u64) {
        let intents = self.results.values().filter_map(|r| r.call.as_ref()?.intent.as_ref());
        intents.fold((0, 0), |(bytes, deletes), i| {
            (u64::saturating_add(bytes, i.bytes_written), u64::saturating_add(deletes, i.deletes))
        })
    }

    /// The envelope of a recorded result. May block.
    pub(crate) fn result(
        &self,
        store: &dyn Store,
        step_id: &StepId,
        recorded: &Recorded,
    ) -> Result<ToolResult, Failure> {
        let data = view::outcome_data(store, &recorded.outcome)?;
        Ok(self.view.tool_result(
            recorded.call_id,
            step_id.clone(),
            recorded.tool.clone(),
            recorded.attempt,
            &recorded.outcome,
            data,
        )?)
    }
}

fn key_of(call: &CallRecord) -> CallKey {
    (call.step_id.clone(), call.iteration.as_ref().map(|i| i.index), call.attempt)
}
