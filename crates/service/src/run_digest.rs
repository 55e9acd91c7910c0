//! Summarises what happened since a time: runs, changed files, failures, expired questions.

use crate::{
    Call, Handle, MethodError, Service, Terms, methods,
    run_pages::{FileChange, changes},
    service::blocking,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};
use toolyard_engine::{
    Caller, Store,
    approvals::Approval,
    record::Record,
    store::{RunFilter, RunRow, StoreError},
};
use toolyard_protocol::{Failure, RunId, RunStatus};

/// Runs that a digest looks at.
const MAX_DIGEST_RUNS: usize = 2000;
/// Files and failures that a digest names.
const MAX_DIGEST_ROWS: usize = 200;
/// Runs read from the store at a time.
const RUNS_PER_PAGE: usize = 500;

methods! {
    /// Summarises what happened since a time: runs, changed files, failures, expired questions.
    RunsDigest = "runs.digest", Terms::read().everywhere(), DigestParams => Digest;
}

/// Since when, and until when.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DigestParams {
    /// The beginning.
    pub since: Timestamp,
    /// The end; now by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What happened in a time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Digest {
    /// The beginning.
    pub since: Timestamp,
    /// The end.
    pub until: Timestamp,
    /// Runs that began in that time, by their state.
    pub runs: BTreeMap<String, u64>,
    /// How many runs began.
    pub total: u64,
    /// Files that were changed, those changed last first.
    pub files: Vec<DigestFile>,
    /// How many files were changed.
    pub files_total: u64,
    /// Runs that failed, the newest first.
    pub failures: Vec<DigestFailure>,
    /// Questions that nobody answered in time.
    pub expired: Vec<DigestQuestion>,
    /// Whether some results were left out.
    pub truncated: bool,
}

/// A file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DigestFile {
    /// What happened to it last.
    #[serde(flatten)]
    pub change: FileChange,
    /// The run that changed it last.
    pub run_id: RunId,
    /// How many calls changed it.
    pub times: u64,
}

/// A run that failed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DigestFailure {
    /// The run.
    pub run_id: RunId,
    /// The plan's goal, or the tool.
    pub title: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The reason, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// A question that nobody answered in time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DigestQuestion {
    /// The question.
    pub id: String,
    /// A short title.
    pub title: String,
    /// The tool that should have been called.
    pub tool: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// The run that waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// Adds a run to a digest. Runs come newest first.
fn add_run(
    store: &dyn Store,
    row: &RunRow,
    digest: &mut Digest,
    files: &mut HashMap<String, usize>,
) -> Result<(), StoreError> {
    let mut error = None;
    let mut changed: Vec<FileChange> = Vec::new();
    store.frames(row.run_id, 1, &mut |frame| {
        let outcome = match Record::decode(frame.kind, &frame.payload) {
            Ok(Record::Result(result)) => Some(result.outcome),
            Ok(Record::Refused(refused)) => Some(refused.outcome),
            Ok(Record::Finished(finished)) => {
                error = finished.error.or(error.take());
                None
            }
            _ => None,
        };
        if let Some(outcome) = outcome {
            changed.extend(outcome.effects.as_ref().map(changes).unwrap_or_default());
            error = outcome.error.or(error.take());
        }
        ControlFlow::Continue(())
    })?;
    for change in changed.into_iter().rev() {
        match files.get(&change.path) {
            Some(place) => {
                if let Some(file) = digest.files.get_mut(*place) {
                    file.times += 1;
                }
            }
            None => {
                digest.files_total += 1;
                if digest.files.len() < MAX_DIGEST_ROWS {
                    files.insert(change.path.clone(), digest.files.len());
                    digest.files.push(DigestFile { change, run_id: row.run_id, times: 1 });
                } else {
                    files.insert(change.path, usize::MAX);
                    digest.truncated = true;
                }
            }
        }
    }
    if row.status == RunStatus::Failed {
        match digest.failures.len() < MAX_DIGEST_ROWS {
            true => {
                let (title, at) = (row.title.clone(), row.ended_at);
                digest.failures.push(DigestFailure { run_id: row.run_id, title, at, error });
            }
            false => digest.truncated = true,
        }
    }
    Ok(())
}

impl Service {
    fn digest(&self, caller: &Caller, params: &DigestParams) -> Result<Digest, MethodError> {
        let store = &**self.engine().store();
        store.settle()?;
        let mut digest = Digest {
            since: params.since,
            until: params.until.unwrap_or_else(|| self.engine().clock().now()),
            runs: BTreeMap::new(),
            total: 0,
            files: Vec::new(),
            files_total: 0,
            failures: Vec::new(),
            expired: self.expired_since(caller, params.since)?,
            truncated: false,
        };
        let (mut files, mut before) = (HashMap::new(), None);
        'pages: loop {
            let workspace = Some(caller.workspace.clone());
            let rows = store.runs(&RunFilter { before, workspace, limit: RUNS_PER_PAGE, ..RunFilter::default() })?;
            let is_last = rows.len() < RUNS_PER_PAGE;
            for row in rows {
                before = Some(row.run_id);
                if row.started_at < params.since {
                    break 'pages;
                }
                if row.started_at >= digest.until {
                    continue;
                }
                if digest.total as usize >= MAX_DIGEST_RUNS {
                    digest.truncated = true;
                    break 'pages;
                }
                digest.total += 1;
                *digest.runs.entry(row.status.as_str().to_owned()).or_default() += 1;
                add_run(store, &row, &mut digest, &mut files)?;
            }
            if is_last {
                break;
            }
        }
        Ok(digest)
    }

    /// Questions that nobody answered in time.
    fn expired_since(&self, caller: &Caller, since: Timestamp) -> Result<Vec<DigestQuestion>, MethodError> {
        let question = |approval: Approval| DigestQuestion {
            id: approval.request.id,
            title: approval.request.title,
            tool: approval.request.tool,
            asked_at: approval.request.created_at,
            run_id: approval.request.run_id,
        };
        let is_expired = |approval: &Approval| {
            approval.resolved_by.is_none()
                && approval.resolved_at.is_some_and(|at| at >= since && at >= approval.request.expires_at)
        };
        let history = self.engine().approvals().history(caller)?;
        Ok(history.into_iter().filter(is_expired).take(MAX_DIGEST_ROWS).map(question).collect())
    }
}

impl Handle<RunsDigest> for Service {
    async fn handle(&self, call: &Call<'_>, params: DigestParams) -> Result<Digest, MethodError> {
        let (service, caller) = (self.clone(), call.caller.clone());
        blocking(move || service.digest(&caller, &params)).await
    }
}
