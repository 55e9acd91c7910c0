//! Runs by method: listed, shown, exported, verified, taken up again, stopped.

use super::{EventSink, Service, blocking, plans::end, to_value};
use crate::registry;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{
    Caller,
    authority::{Approver, Power},
    ledger,
    record::Settlement,
    store::{RunFilter, RunKind, RunRow},
    view,
};
use toolyard_protocol::{ErrorCode, Failure, RunId, RunStatus};

impl Service {
    pub(super) async fn runs_list(&self, params: RunsList) -> Result<Value, Failure> {
        let filter = RunFilter {
            statuses: params.status,
            kind: params.kind,
            session: params.session,
            before: params.before,
            limit: params.limit.unwrap_or(50).clamp(1, 10_000),
        };
        let store = self.engine().store().clone();
        let rows = blocking(move || {
            store.settle()?;
            Ok(store.runs(&filter)?)
        })
        .await?;
        let rows: Vec<Value> = rows.iter().map(row_json).collect();
        Ok(json!({"runs": rows}))
    }

    pub(super) async fn runs_get(&self, params: RunParams) -> Result<Value, Failure> {
        let store = self.engine().store().clone();
        let export = blocking(move || {
            store.settle()?;
            view::export_run(&*store, params.run_id)
        })
        .await?;
        Ok(json!({"run": export.manifest, "calls": export.calls, "results": export.results}))
    }

    pub(super) async fn runs_export(&self, params: RunParams) -> Result<Value, Failure> {
        let store = self.engine().store().clone();
        let export = blocking(move || {
            store.settle()?;
            view::export_run(&*store, params.run_id)
        })
        .await?;
        Ok(json!({"run": export.manifest, "calls": export.calls, "results": export.results, "events": export.events}))
    }

    pub(super) async fn runs_transcript(&self, params: RunParams) -> Result<Value, Failure> {
        let store = self.engine().store().clone();
        let export = blocking(move || {
            store.settle()?;
            view::export_run(&*store, params.run_id)
        })
        .await?;
        Ok(json!({"runId": export.manifest.run_id, "messages": toolyard_engine::transcript(&export)}))
    }

    pub(super) async fn runs_verify(&self, params: VerifyParams) -> Result<Value, Failure> {
        self.engine().seal().await?;
        let store = self.engine().store().clone();
        let verifier = self.inner.verifier.clone();
        blocking(move || {
            store.settle()?;
            match params.run_id {
                Some(run_id) => to_value(ledger::verify_run(&*store, run_id, &verifier)?),
                None => to_value(ledger::verify_ledger(&*store, &verifier)?),
            }
        })
        .await
    }

    pub(super) async fn runs_resume(
        &self,
        caller: Arc<Caller>,
        params: ResumeParams,
        events: Option<EventSink>,
    ) -> Result<Value, Failure> {
        // Decided before anything happens: a request for both must not settle the call and then be refused.
        let approver = match params.approve || params.settle.is_some() {
            true => {
                registry::decide_power(&caller, "runs.resume", Power::Approve)?;
                Some(Approver::of(&caller)?)
            }
            false => None,
        };
        if let (Some(choice), Some(by)) = (params.settle, &approver) {
            self.engine().settle(params.run_id, choice, by).await?;
        }
        let watching = events.map(|sink| self.watch(params.run_id, sink));
        let approved_by = approver.filter(|_| params.approve);
        let service = self.clone();
        let task = tokio::spawn(async move {
            service.engine().resume(params.run_id, approved_by, |lease| (service.inner.is_alive)(lease)).await
        });
        let report = task.await;
        end(watching).await;
        to_value(report.map_err(|_| Failure::new(ErrorCode::InternalError, "the run failed unexpectedly"))??)
    }

    pub(super) fn runs_cancel(&self, params: RunParams) -> Result<Value, Failure> {
        if self.engine().cancel_run(params.run_id) {
            return Ok(json!({"runId": params.run_id, "cancelled": true}));
        }
        match self.engine().store().run(params.run_id)? {
            None => Err(Failure::new(ErrorCode::NotFound, format!("there is no run {}", params.run_id))),
            Some(row) if row.status.is_final() => {
                Err(Failure::new(ErrorCode::PreconditionFailed, format!("the run has ended: {}", row.status.as_str())))
            }
            Some(_) => Err(Failure::new(ErrorCode::PreconditionFailed, "the run is not under way in this process")
                .suggest("If its process is gone, end it with `toolyard runs resume RUN --abort`.")),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RunParams {
    pub(super) run_id: RunId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VerifyParams {
    #[serde(default)]
    run_id: Option<RunId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResumeParams {
    run_id: RunId,
    #[serde(default)]
    settle: Option<Settlement>,
    #[serde(default)]
    approve: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RunsList {
    status: Vec<RunStatus>,
    kind: Option<RunKind>,
    session: Option<String>,
    before: Option<RunId>,
    limit: Option<usize>,
}

/// A row as doors show it.
fn row_json(row: &RunRow) -> Value {
    let mut value = json!({
        "runId": row.run_id, "kind": row.kind, "status": row.status, "title": row.title, "startedAt": row.started_at,
    });
    if let Some(ended) = row.ended_at {
        value["endedAt"] = ended.to_string().into();
        value["durationMs"] = (ended.as_millisecond() - row.started_at.as_millisecond()).into();
    }
    if let Some(session) = &row.session {
        value["session"] = session.as_str().into();
    }
    value
}
