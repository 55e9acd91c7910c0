//! Resumes runs: after a crash, after a restart, or after a person decided about a call in doubt.

use super::{
    consent,
    executor::{Executor, Mode},
    memo::Memo,
    report::RunReport,
    runs::{Consent, StartedRun, caller_of},
};
use crate::scope::RunScope;
use crate::{
    Engine, Recorder, Store,
    authority::Approver,
    chain::UnsignedRecords,
    facts::{self, UnsignedFacts},
    pipeline::{self, Reconciliation},
    record::{NoteRecord, Record, SettledRecord, Settlement},
    store::{Batch, Durability, LeftBehind, RunFilter, RunKind, RunRow, StoreError},
};
use std::{collections::HashSet, ops::ControlFlow, sync::Arc};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{CallId, ErrorCode, EventLevel, Failure, Idempotency, ResultStatus, RunId, RunStatus};

/// What recovery found and did.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Plans that go on; drive them.
    pub resumed: Vec<RunId>,
    /// Direct calls that were completed.
    pub settled_calls: Vec<RunId>,
    /// Runs that wait for a person.
    pub paused: Vec<RunId>,
    /// Runs that could not be read, and why.
    pub failed: Vec<(RunId, Failure)>,
}

/// Runs looked at by one sweep.
const SWEEP_RUNS: usize = 10_000;

/// What a sweep has tried already in this process: a run that cannot be read, or that waits for a person, is not tried
/// again every half second.
#[derive(Debug, Default)]
pub struct SweepHistory(HashSet<RunId>);

impl Recovered {
    /// Whether there was anything to do.
    pub fn is_empty(&self) -> bool {
        self.resumed.is_empty() && self.settled_calls.is_empty() && self.paused.is_empty() && self.failed.is_empty()
    }
}

impl Engine {
    /// Recovers the runs of dead processes, at start. Plans are driven in the background; direct calls are settled.
    pub async fn recover(&self) -> Result<Recovered, Failure> {
        self.seal_left_behind().await?;
        // Questions are restored before the runs are resumed, because resumed runs ask their questions again and must
        // find these.
        self.approvals().restore().await?;
        let held = self.held_without_a_beginning().await?;
        let mut recovered = self.take_up_left_behind(&mut SweepHistory::default()).await?;
        for left in held {
            self.take_up_one(left, &mut recovered).await;
        }
        Ok(recovered)
    }

    /// As [`Engine::recover`], again and again in a process that runs: resumes the runs of processes that died since,
    /// and runs of this process whose end could not be recorded while the store could not write.
    pub async fn sweep(&self, swept: &mut SweepHistory) -> Result<Recovered, Failure> {
        if self.shutdown_token().is_cancelled() || self.is_draining() || self.store().writable().is_err() {
            return Ok(Recovered::default());
        }
        self.approvals().expire().await?;
        let mut recovered = self.take_up_left_behind(swept).await?;
        for run_id in self.take_interrupted() {
            let Some(row) = self.read(move |store| store.run(run_id)).await? else { continue };
            if !row.status.is_final() {
                let holder = Some(self.store().owner());
                self.take_up_one(LeftBehind { row, holder }, &mut recovered).await;
            }
        }
        if !recovered.is_empty() {
            self.seal_left_behind().await?;
        }
        Ok(recovered)
    }

    /// Runs that this process seems to hold although it has begun none: somebody edited the store. They are resumed
    /// like the others, because no other process would resume them.
    async fn held_without_a_beginning(&self) -> Result<Vec<LeftBehind>, Failure> {
        let open = self
            .read(|store| {
                let statuses = vec![RunStatus::Pending, RunStatus::Running];
                let rows = store.runs(&RunFilter { statuses, limit: SWEEP_RUNS, ..RunFilter::default() })?;
                let mine = store.owner();
                let mut held = Vec::new();
                for row in rows {
                    if store.holder(row.run_id)?.as_ref() == Some(&mine) {
                        held.push(LeftBehind { row, holder: Some(mine.clone()) });
                    }
                }
                Ok(held)
            })
            .await?;
        let active = self.active_runs();
        Ok(open.into_iter().filter(|left| !active.contains(&left.row.run_id)).collect())
    }

    async fn take_up_left_behind(&self, swept: &mut SweepHistory) -> Result<Recovered, Failure> {
        let mut recovered = Recovered::default();
        for left in self.read(|store| store.left_behind(SWEEP_RUNS)).await? {
            if !swept.0.contains(&left.row.run_id) {
                self.take_up_one(left, &mut recovered).await;
            }
        }
        // A failure that may be temporary is retried.
        let is_final = |failure: &Failure| !matches!(failure.code, ErrorCode::Conflict | ErrorCode::StoreUnavailable);
        swept.0.extend(&recovered.paused);
        swept.0.extend(recovered.failed.iter().filter(|(_, failure)| is_final(failure)).map(|(run_id, _)| *run_id));
        Ok(recovered)
    }

    async fn take_up_one(&self, left: LeftBehind, recovered: &mut Recovered) {
        let run_id = left.row.run_id;
        let outcome = match left.row.kind {
            RunKind::Call => self.settle_direct(left).await.map(|()| recovered.settled_calls.push(run_id)),
            RunKind::Plan => match self.take_up(left, None).await {
                // Only its row was behind: the record says that the run has ended.
                Ok(None) => Ok(()),
                Ok(Some(run)) => {
                    recovered.resumed.push(run_id);
                    tokio::spawn(async move {
                        if let Err(error) = run.drive().await {
                            tracing::error!(%error, %run_id, "a resumed run failed");
                        }
                    });
                    Ok(())
                }
                Err(failure) if failure.code == ErrorCode::ConfirmationRequired => {
                    recovered.paused.push(run_id);
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
        };
        if let Err(failure) = outcome {
            recovered.failed.push((run_id, failure));
        }
    }

    /// Reads the store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        let store = self.store().clone();
        let answer = tokio::task::spawn_blocking(move || read(&*store)).await;
        Ok(answer.map_err(|_| Failure::new(ErrorCode::InternalError, "reading the store failed unexpectedly"))??)
    }

    /// Takes a run up and drives it to its end. `approved_by` answers for a policy that changed since it was approved.
    pub async fn resume(&self, run_id: RunId, approved_by: Option<Approver>) -> Result<RunReport, Failure> {
        self.check_not_draining()?;
        let row = self.read(move |store| store.run(run_id)).await?;
        let row = row.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")))?;
        if row.status.is_final() {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                format!("the run has ended: {}", row.status.as_str()),
            )
            .suggest("Fork it from a step with `toolyard plan fork`, or run the plan again."));
        }
        let (holder, is_held) = self
            .read(move |store| {
                let holder = store.holder(run_id)?;
                let is_held = holder.as_ref().map_or(Ok(false), |holder| store.is_alive(holder))?;
                Ok((holder, is_held))
            })
            .await?;
        if is_held {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "another process works on this run"));
        }
        let left = LeftBehind { row, holder };
        if left.row.kind == RunKind::Call {
            self.settle_direct(left).await?;
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                "a direct call cannot be resumed; its outcome was recorded",
            )
            .suggest("See it with `toolyard runs show`."));
        }
        match self.take_up(left, approved_by).await? {
            Some(run) => run.drive().await,
            None => Err(Failure::new(ErrorCode::PreconditionFailed, "the run has ended")),
        }
    }

    /// Records how a person settles a call in doubt. The run still has to be resumed.
    pub async fn settle(&self, run_id: RunId, choice: Settlement, by: &Approver) -> Result<Vec<CallId>, Failure> {
        let (row, holder) = self.read(move |store| Ok((store.run(run_id)?, store.holder(run_id)?))).await?;
        let row = row.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")))?;
        let memo = self.load_memo(run_id).await?;
        let pending: HashSet<CallId> = memo.pending.values().map(|c| c.call_id).collect();
        let open = |id: &CallId| pending.contains(id) && !memo.settlements.contains_key(id);
        let doubtful: Vec<CallId> = memo.paused_for.iter().copied().filter(open).collect();
        // A run that is not paused has an owner that writes its record; no other process may write it.
        if row.status != RunStatus::Paused || doubtful.is_empty() {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "no call of this run is in doubt"));
        }
        let left = LeftBehind { row, holder };
        let recorder = self.reopen(&memo, &left).await?;
        let at = self.clock().now();
        for call_id in &doubtful {
            recorder.push(&Record::Settled(SettledRecord { at, call_id: *call_id, choice, by: by.name().to_owned() }));
        }
        recorder.set_row(left.row);
        recorder.release();
        recorder.sync().await?;
        Ok(doubtful)
    }

    /// Claims a run from the owner that held it when its row was read, and continues its record.
    async fn reopen(&self, memo: &Memo, left: &LeftBehind) -> Result<Recorder, Failure> {
        let LeftBehind { row, holder } = left;
        let (holder, run_id) = (holder.clone(), row.run_id);
        if let Some(bad) = &memo.broken {
            return Err(Failure::new(ErrorCode::RecordCorrupted, bad.problem.clone()).detail("seq", bad.seq));
        }
        let known = memo.at.seq;
        let claim = move |store: &dyn Store| {
            if !store.claim(run_id, holder.as_ref())? {
                return Ok(false);
            }
            // Another process may have resumed and ended the run since its record was read; then this process must not
            // continue it.
            let mut grown = false;
            store.settle()?;
            store.frames(run_id, known + 1, &mut |_| {
                grown = true;
                ControlFlow::Break(())
            })?;
            if grown {
                let (frames, blobs, epoch) = (Vec::new(), Vec::new(), store.epoch());
                let durability = Durability::Deferred;
                store.append(Batch { run_id, frames, blobs, row: None, epoch, release: true, durability })?;
            }
            Ok(!grown)
        };
        if !self.read(claim).await? {
            return Err(Failure::new(ErrorCode::Conflict, "another process resumed this run"));
        }
        let mut view = crate::view::RunView::new(run_id);
        view.continue_from(&memo.view);
        let recorder = Recorder::resume(
            run_id,
            row.session.clone(),
            self.store().clone(),
            self.bus().clone(),
            self.signer().clone(),
            view,
            memo.at,
        );
        if memo.finished.is_none()
            && let Some(unsigned) = memo.unsigned
        {
            recorder.push(&Record::Note(self.note_of_unsigned(unsigned)));
        }
        Ok(recorder)
    }

    /// A note that lists the records that this process found and did not write. The next signature of the run covers
    /// them too, and the note prevents it from being taken as their proof.
    fn note_of_unsigned(&self, unsigned: UnsignedRecords) -> NoteRecord {
        let UnsignedRecords { from, to } = unsigned;
        NoteRecord {
            at: self.clock().now(),
            level: EventLevel::Warn,
            message: format!("Records {from} to {to} carried no signature when the run was taken up again."),
            call_id: None,
            step_id: None,
            payload: facts::payload(&UnsignedFacts { unsigned_records: unsigned }),
        }
    }

    /// `None` when the record says that the run has ended; its row is put right.
    async fn take_up(&self, left: LeftBehind, approved_by: Option<Approver>) -> Result<Option<StartedRun>, Failure> {
        let run_id = left.row.run_id;
        let memo = self.load_memo(run_id).await?;
        if let Some(finished) = &memo.finished {
            let recorder = self.reopen(&memo, &left).await?;
            recorder.set_row(RunRow { status: finished.status, ended_at: Some(finished.at), ..left.row });
            recorder.sync().await?;
            self.seal_found_end(run_id).await?;
            return Ok(None);
        }
        let Some(plan) = memo.started.plan.clone() else {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "the run has no plan"));
        };
        let caller = caller_of(&memo);
        let policy = self.policy_for(&caller);
        let (report, compiled) = self.compile(&plan, &policy);
        let Some(compiled) = compiled else {
            return Err(report
                .to_failure()
                .unwrap_or_else(|| Failure::new(ErrorCode::ValidationError, "the plan cannot be read any more")));
        };
        let side_effects = compiled.steps.iter().any(|s| s.side_effects);
        let same_policy = memo.started.policy_hash == policy.hash();
        let confirmed = memo.confirmation.is_some() || !(side_effects && policy.snapshot().confirmations_required);
        // A plan that was waiting for approval continues to wait: its question is still open, or has been answered.
        let was_asking = !confirmed && approved_by.is_none() && left.row.status == RunStatus::Pending;
        let asks = was_asking && self.approvals().keeps_questions();
        if (!same_policy || !confirmed) && side_effects && approved_by.is_none() && !asks {
            let why =
                if confirmed { "the policy changed since the run was approved" } else { "the run was never approved" };
            return Err(Failure::new(ErrorCode::ConfirmationRequired, why)
                .suggest("Look at the run with `toolyard runs show`, then `toolyard runs resume RUN --yes`.")
                .retryable(false));
        }
        let recorder = self.reopen(&memo, &left).await?;
        let row = left.row;
        let scope = self.scope_with(run_id, caller, policy, CancellationToken::new(), None, recorder);
        let scope = Arc::new(RunScope { planner_version: memo.started.planner_version.clone(), ..scope });
        let (bytes, deletes) = memo.used();
        scope.usage.restore(bytes, deletes);
        if let Some(confirmation) = &memo.confirmation {
            // The scope is new: nobody else has set it.
            scope.confirmation.get_or_init(|| confirmation.confirmation_id);
        }
        if let Some(by) = approved_by.filter(|_| !same_policy || !confirmed) {
            consent::record(self, &scope, &compiled.plan_hash, consent::own_act(&by, self.clock().now()), None);
        }
        scope.recorder.set_row(self.row(&scope, RunKind::Plan, &plan.goal, row.started_at, RunStatus::Running, None));
        if memo.cancelled {
            scope.cancel.cancel();
        }
        let started_at = memo.started.started_at;
        let mut executor = Executor::new(self.clone(), scope, Arc::new(compiled), Mode::Live, started_at);
        executor.context = memo.started.context.clone();
        executor.memo = Some(Arc::new(memo));
        let consent = if asks { Consent::Ask } else { Consent::None };
        Ok(Some(StartedRun::resumed(self.clone(), executor, plan.goal.clone(), started_at, consent)))
    }

    /// No caller waits for a direct call any more: a call that may not have happened is not made again.
    async fn settle_direct(&self, left: LeftBehind) -> Result<(), Failure> {
        let run_id = left.row.run_id;
        let memo = self.load_memo(run_id).await?;
        let caller = caller_of(&memo);
        let recorder = self.reopen(&memo, &left).await?;
        let row = left.row;
        let policy = self.policy_for(&caller);
        let scope = self.scope_with(run_id, caller, policy, CancellationToken::new(), None, recorder);
        let mut ok = memo.results.values().any(|r| r.outcome.status == ResultStatus::Ok);
        for call in memo.pending.values() {
            let idempotency =
                scope.tools.snapshot.get(call.lookup()).map_or(Idempotency::None, |e| e.definition().idempotency);
            let settled = match idempotency {
                Idempotency::Etag => match pipeline::reconcile(self, &scope, &memo.view, call).await? {
                    Reconciliation::Settled(settled) => settled,
                    Reconciliation::NotDone => pipeline::interrupted(self, &scope, call),
                    Reconciliation::Unknown => pipeline::left_in_doubt(self, &scope, call),
                },
                Idempotency::Pure => pipeline::interrupted(self, &scope, call),
                Idempotency::Idempotent | Idempotency::Key | Idempotency::None => {
                    pipeline::left_in_doubt(self, &scope, call)
                }
            };
            ok |= settled.result.ok;
        }
        let status = if ok { RunStatus::Finished } else { RunStatus::Failed };
        self.finish_run(
            &scope,
            RunKind::Call,
            &row.title,
            row.started_at,
            status,
            None,
            "settled after a restart".to_owned(),
        )?;
        scope.recorder.sync().await?;
        Ok(())
    }
}
