//! Resumes runs: after a crash, after a restart, or after a person decided about a call in doubt.

use super::{
    check,
    executor::{Executor, Mode},
    memo::Memo,
    report::RunReport,
    runs::{StartedRun, caller_of},
};
use crate::scope::RunScope;
use crate::{
    Engine, Recorder,
    authority::Approver,
    chain::UnsignedRecords,
    facts::{self, UnsignedFacts},
    pipeline::{self, Reconciliation},
    record::{Confirmed, NoteRecord, Record, SettledRecord, Settlement},
    store::{Batch, Durability, Lease, RunFilter, RunKind, RunRow, StoreError},
};
use std::{collections::HashSet, ops::ControlFlow, sync::Arc};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{
    ApprovedVia, CallId, Confirmation, ConfirmationDecision, ConfirmationId, ErrorCode, EventLevel, Failure,
    Idempotency, ResultStatus, RunId, RunStatus,
};

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

impl Engine {
    /// Resumes the runs of dead processes. Plans run in the background; direct calls are completed.
    pub async fn recover(&self, is_alive: impl Fn(&Lease) -> bool) -> Result<Recovered, Failure> {
        self.seal_left_behind().await?;
        let mut recovered = Recovered::default();
        let filter =
            RunFilter { statuses: vec![RunStatus::Running, RunStatus::Pending], limit: 10_000, ..RunFilter::default() };
        let store = self.store().clone();
        let rows = tokio::task::spawn_blocking(move || store.runs(&filter))
            .await
            .map_err(|_| Failure::new(ErrorCode::InternalError, "listing runs failed unexpectedly"))??;
        for row in rows {
            if row.lease.as_ref().is_some_and(|lease| self.is_held(lease, &is_alive)) {
                continue;
            }
            let run_id = row.run_id;
            let outcome = match row.kind {
                RunKind::Call => self.settle_direct(row).await.map(|()| recovered.settled_calls.push(run_id)),
                RunKind::Plan => match self.take_up(row, None).await {
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
        self.approvals().close_orphans().await?;
        Ok(recovered)
    }

    /// Takes a run up and drives it to its end. `approved_by` answers for a policy that changed since it was approved.
    pub async fn resume(
        &self,
        run_id: RunId,
        approved_by: Option<Approver>,
        is_alive: impl Fn(&Lease) -> bool,
    ) -> Result<RunReport, Failure> {
        let store = self.store().clone();
        let row = tokio::task::spawn_blocking(move || store.run(run_id))
            .await
            .map_err(|_| Failure::new(ErrorCode::InternalError, "reading the run failed unexpectedly"))??;
        let row = row.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")))?;
        if row.status.is_final() {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                format!("the run has ended: {}", row.status.as_str()),
            )
            .suggest("Fork it from a step with `toolyard plan fork`, or run the plan again."));
        }
        if row.lease.as_ref().is_some_and(|lease| self.is_held(lease, &is_alive)) {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "another process works on this run"));
        }
        if row.kind == RunKind::Call {
            self.settle_direct(row).await?;
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                "a direct call cannot be taken up; its outcome was settled",
            )
            .suggest("See it with `toolyard runs show`."));
        }
        match self.take_up(row, approved_by).await? {
            Some(run) => run.drive().await,
            None => Err(Failure::new(ErrorCode::PreconditionFailed, "the run has ended")),
        }
    }

    /// Whether the process that holds a lease is there to work on the run. This one always is.
    fn is_held(&self, lease: &Lease, is_alive: &impl Fn(&Lease) -> bool) -> bool {
        lease == self.lease() || is_alive(lease)
    }

    /// Records how a person settles a call in doubt. The run still has to be resumed.
    pub async fn settle(&self, run_id: RunId, choice: Settlement, by: &Approver) -> Result<Vec<CallId>, Failure> {
        let store = self.store().clone();
        let row = tokio::task::spawn_blocking(move || store.run(run_id))
            .await
            .map_err(|_| Failure::new(ErrorCode::InternalError, "reading the run failed unexpectedly"))??;
        let row = row.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")))?;
        let memo = self.load_memo(run_id).await?;
        let pending: HashSet<CallId> = memo.pending.values().map(|c| c.call_id).collect();
        let open = |id: &CallId| pending.contains(id) && !memo.settlements.contains_key(id);
        let doubtful: Vec<CallId> = memo.paused_for.iter().copied().filter(open).collect();
        // A run that is not paused has somebody who writes its record: nobody else may.
        if row.status != RunStatus::Paused || doubtful.is_empty() {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "no call of this run is in doubt"));
        }
        let recorder = self.reopen(&memo, &row).await?;
        let at = self.clock().now();
        for call_id in &doubtful {
            recorder.push(&Record::Settled(SettledRecord { at, call_id: *call_id, choice, by: by.name().to_owned() }));
        }
        recorder.set_row(RunRow { lease: None, ..row });
        recorder.sync().await?;
        Ok(doubtful)
    }

    /// Claims a run from the holder in its row, and continues its record.
    async fn reopen(&self, memo: &Memo, row: &RunRow) -> Result<Recorder, Failure> {
        let (store, held, lease, run_id) = (self.store().clone(), row.lease.clone(), self.lease().clone(), row.run_id);
        if let Some(bad) = &memo.broken {
            return Err(Failure::new(ErrorCode::RecordCorrupted, bad.problem.clone()).detail("seq", bad.seq));
        }
        let known = memo.at.seq;
        let claimed = tokio::task::spawn_blocking(move || {
            if !store.claim(run_id, held.as_ref(), &lease)? {
                return Ok::<_, StoreError>(false);
            }
            // Somebody may have taken the run up and ended it since its record was read; then it is not ours to go on with.
            let mut grown = false;
            store.settle()?;
            store.frames(run_id, known + 1, &mut |_| {
                grown = true;
                ControlFlow::Break(())
            })?;
            if grown && let Some(now) = store.run(run_id)? {
                let row = Some(RunRow { lease: held, ..now });
                let (frames, blobs) = (Vec::new(), Vec::new());
                store.append(Batch { run_id, frames, blobs, row, durability: Durability::Ride })?;
            }
            Ok(!grown)
        })
        .await
        .map_err(|_| Failure::new(ErrorCode::InternalError, "claiming the run failed unexpectedly"))??;
        if !claimed {
            return Err(Failure::new(ErrorCode::Conflict, "somebody else took this run up"));
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

    /// Resumes one run. `None` if the record says that the run has ended; its row is then corrected.
    async fn take_up(&self, row: RunRow, approved_by: Option<Approver>) -> Result<Option<StartedRun>, Failure> {
        let run_id = row.run_id;
        let memo = self.load_memo(run_id).await?;
        if let Some(finished) = &memo.finished {
            let recorder = self.reopen(&memo, &row).await?;
            recorder.set_row(RunRow { status: finished.status, ended_at: Some(finished.at), lease: None, ..row });
            recorder.sync().await?;
            self.seal_found_end(run_id).await?;
            return Ok(None);
        }
        let Some(plan) = memo.started.plan.clone() else {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "the run has no plan"));
        };
        let caller = caller_of(&memo);
        let policy = self.policy_for(&caller);
        let (report, compiled) = check::check(&plan, &self.tools().snapshot, &policy);
        let Some(compiled) = compiled else {
            return Err(report
                .to_failure()
                .unwrap_or_else(|| Failure::new(ErrorCode::ValidationError, "the plan cannot be read any more")));
        };
        let side_effects = compiled.steps.iter().any(|s| s.side_effects);
        let same_policy = memo.started.policy_hash == policy.hash();
        let confirmed = memo.confirmation.is_some() || !(side_effects && policy.snapshot().confirmations_required);
        if (!same_policy || !confirmed) && side_effects && approved_by.is_none() {
            let why =
                if confirmed { "the policy changed since the run was approved" } else { "the run was never approved" };
            return Err(Failure::new(ErrorCode::ConfirmationRequired, why)
                .suggest("Look at the run with `toolyard runs show`, then `toolyard runs resume RUN --yes`.")
                .retryable(false));
        }
        let recorder = self.reopen(&memo, &row).await?;
        let scope = self.scope_with(run_id, caller, policy, CancellationToken::new(), None, recorder);
        let scope = Arc::new(RunScope { planner_version: memo.started.planner_version.clone(), ..scope });
        let (bytes, deletes) = memo.used();
        scope.usage.restore(bytes, deletes);
        if let Some(confirmation) = &memo.confirmation {
            // The scope is new: nobody else has set it.
            scope.confirmation.get_or_init(|| confirmation.confirmation_id);
        }
        if let Some(by) = approved_by.filter(|_| !same_policy || !confirmed) {
            let id = *scope.confirmation.get_or_init(|| ConfirmationId::from_uuid(self.clock().new_id()));
            scope.recorder.push(&Record::Confirmed(Confirmed(Confirmation {
                confirmation_id: id,
                plan_hash: compiled.plan_hash.clone(),
                policy_hash: scope.policy.hash().to_owned(),
                preview_hash: None,
                decision: ConfirmationDecision::Approved,
                by: by.into_name(),
                via: ApprovedVia::Operator,
                at: self.clock().now(),
                expires_at: None,
                scope: "run".to_owned(),
            })));
        }
        scope.recorder.set_row(self.row(&scope, RunKind::Plan, &plan.goal, row.started_at, RunStatus::Running, None));
        if memo.cancelled {
            scope.cancel.cancel();
        }
        let started_at = memo.started.started_at;
        let mut executor = Executor::new(self.clone(), scope, Arc::new(compiled), Mode::Live, started_at);
        executor.context = memo.started.context.clone();
        executor.memo = Some(Arc::new(memo));
        Ok(Some(StartedRun::resumed(self.clone(), executor, plan.goal.clone(), started_at)))
    }

    /// Completes an interrupted direct call. Nobody waits for it, so a call that is not known to have happened is not
    /// made.
    async fn settle_direct(&self, row: RunRow) -> Result<(), Failure> {
        let run_id = row.run_id;
        let memo = self.load_memo(run_id).await?;
        let caller = caller_of(&memo);
        let recorder = self.reopen(&memo, &row).await?;
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
