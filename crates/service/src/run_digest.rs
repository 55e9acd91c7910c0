//! Summarises what happened since a time: runs, changed files, failures, expired questions.

use crate::{
    Call, Handle, MethodError, Service, Terms, methods,
    run_pages::{ChangeKind, FileChange, changes},
    service::blocking,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::ControlFlow,
};
use toolyard_engine::{
    Caller, Door, Store,
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
    /// What each agent did, the one with the newest run first.
    pub agents: Vec<DigestAgent>,
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

/// What one agent did.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DigestAgent {
    /// The agent.
    pub agent: String,
    /// The title of its newest run.
    pub title: String,
    /// How many runs it began.
    pub runs: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Files and folders that it created. A file that it changed several times counts once, by its last change.
    pub created: u64,
    /// Files whose content it changed.
    pub modified: u64,
    /// Files and folders that it deleted.
    pub deleted: u64,
    /// Files and folders that it moved.
    pub renamed: u64,
    /// How many of its runs changed files.
    pub changing_runs: u64,
    /// The newest run that changed files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<RunId>,
}

impl DigestAgent {
    fn new(agent: String, title: String) -> Self {
        Self {
            agent,
            title,
            runs: 0,
            failed: 0,
            created: 0,
            modified: 0,
            deleted: 0,
            renamed: 0,
            changing_runs: 0,
            last_change: None,
        }
    }
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

/// What the record of a run says about it.
#[derive(Default)]
struct RunRecord {
    agent: String,
    door: String,
    error: Option<Failure>,
    changes: Vec<FileChange>,
}

impl RunRecord {
    fn read(store: &dyn Store, run_id: RunId) -> Result<Self, StoreError> {
        let mut read = Self::default();
        store.frames(run_id, 1, &mut |frame| {
            let outcome = match Record::decode(frame.kind, &frame.payload) {
                Ok(Record::RunStarted(started)) => {
                    let word = |name: &str| started.caller.get(name).and_then(Value::as_str).unwrap_or_default();
                    (read.agent, read.door) = (word("agent").to_owned(), word("door").to_owned());
                    None
                }
                Ok(Record::Result(result)) => Some(result.outcome),
                Ok(Record::Refused(refused)) => Some(refused.outcome),
                Ok(Record::Finished(finished)) => {
                    read.error = finished.error.or(read.error.take());
                    None
                }
                _ => None,
            };
            if let Some(outcome) = outcome {
                read.changes.extend(outcome.effects.as_ref().map(changes).unwrap_or_default());
                read.error = outcome.error.or(read.error.take());
            }
            ControlFlow::Continue(())
        })?;
        Ok(read)
    }
}

/// Builds a digest. Runs are added newest first.
struct DigestBuilder {
    digest: Digest,
    /// Where each file is in the digest; files that are left out have no place.
    files: HashMap<String, Option<usize>>,
    /// Files of each agent, by the agent's place: a file that an agent changed twice counts once.
    known: HashSet<(usize, String)>,
}

impl DigestBuilder {
    /// Adds a run. Reads by a paired browser are left out: opening a page of the console is not news.
    fn add(&mut self, row: &RunRow, run: RunRecord) {
        let is_failed = row.status == RunStatus::Failed;
        if run.door == Door::Console.as_str() && run.changes.is_empty() && !is_failed {
            return;
        }
        self.digest.total += 1;
        *self.digest.runs.entry(row.status.as_str().to_owned()).or_default() += 1;
        self.add_agent(row, &run, is_failed);
        for change in run.changes.into_iter().rev() {
            self.add_file(row.run_id, change);
        }
        if is_failed {
            match self.digest.failures.len() < MAX_DIGEST_ROWS {
                true => {
                    let (title, at) = (row.title.clone(), row.ended_at);
                    self.digest.failures.push(DigestFailure { run_id: row.run_id, title, at, error: run.error });
                }
                false => self.digest.truncated = true,
            }
        }
    }

    fn add_agent(&mut self, row: &RunRow, run: &RunRecord, is_failed: bool) {
        let agents = &mut self.digest.agents;
        let place = agents.iter().position(|known| known.agent == run.agent).unwrap_or_else(|| {
            agents.push(DigestAgent::new(run.agent.clone(), row.title.clone()));
            agents.len() - 1
        });
        let Some(agent) = agents.get_mut(place) else { return };
        agent.runs += 1;
        agent.failed += u64::from(is_failed);
        if !run.changes.is_empty() {
            agent.changing_runs += 1;
            agent.last_change = agent.last_change.or(Some(row.run_id));
        }
        for change in run.changes.iter().rev() {
            if self.known.insert((place, change.path.clone())) {
                match change.kind {
                    ChangeKind::Created => agent.created += 1,
                    ChangeKind::Modified => agent.modified += 1,
                    ChangeKind::Deleted => agent.deleted += 1,
                    ChangeKind::Renamed => agent.renamed += 1,
                }
            }
        }
    }

    fn add_file(&mut self, run_id: RunId, change: FileChange) {
        if let Some(place) = self.files.get(&change.path) {
            if let Some(file) = place.and_then(|place| self.digest.files.get_mut(place)) {
                file.times += 1;
            }
            return;
        }
        self.digest.files_total += 1;
        let place = (self.digest.files.len() < MAX_DIGEST_ROWS).then_some(self.digest.files.len());
        self.files.insert(change.path.clone(), place);
        match place {
            Some(_) => self.digest.files.push(DigestFile { change, run_id, times: 1 }),
            None => self.digest.truncated = true,
        }
    }
}

impl Service {
    fn digest(&self, caller: &Caller, params: &DigestParams) -> Result<Digest, MethodError> {
        let store = &**self.engine().store();
        store.settle()?;
        let digest = Digest {
            since: params.since,
            until: params.until.unwrap_or_else(|| self.engine().clock().now()),
            runs: BTreeMap::new(),
            total: 0,
            agents: Vec::new(),
            files: Vec::new(),
            files_total: 0,
            failures: Vec::new(),
            expired: self.expired_since(caller, params.since)?,
            truncated: false,
        };
        let mut making = DigestBuilder { digest, files: HashMap::new(), known: HashSet::new() };
        let (mut looked_at, mut before) = (0, None);
        'pages: loop {
            let workspace = Some(caller.workspace.clone());
            let rows = store.runs(&RunFilter { before, workspace, limit: RUNS_PER_PAGE, ..RunFilter::default() })?;
            let is_last = rows.len() < RUNS_PER_PAGE;
            for row in rows {
                before = Some(row.run_id);
                if row.started_at < params.since {
                    break 'pages;
                }
                if row.started_at >= making.digest.until {
                    continue;
                }
                if looked_at >= MAX_DIGEST_RUNS {
                    making.digest.truncated = true;
                    break 'pages;
                }
                looked_at += 1;
                making.add(&row, RunRecord::read(store, row.run_id)?);
            }
            if is_last {
                break;
            }
        }
        Ok(making.digest)
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
