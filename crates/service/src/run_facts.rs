//! Facts about a run in addition to its row: who began it, which tools it called, how many calls failed, how many files
//! it changed. They are read from the record and cached in memory, so that each record of a run is read once.

use crate::{
    MethodError, Service,
    hub::lock,
    run_pages::changes,
    runs::{RunList, RunSummary, RunsListParams},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::HashMap, ops::ControlFlow, sync::Mutex};
use toolyard_engine::{
    Caller, Store,
    record::{OutcomeRecord, Record},
    store::{RunFilter, RunRow, StoreError},
};
use toolyard_protocol::{Effects, ResultStatus, RunId};

/// Runs whose facts are kept; beyond that, some are dropped and read again when needed.
const MAX_KEPT: usize = 20_000;
/// Tools named in a row.
const SHOWN_TOOLS: usize = 5;
/// Different tools remembered of one run, for filters.
const MAX_TOOLS: usize = 200;
/// Arguments that say what a call is about, the most telling first.
const SUBJECTS: [&str; 12] =
    ["path", "fromPath", "uri", "query", "url", "command", "title", "name", "goal", "pattern", "text", "content"];
/// The newest runs whose tools, paths and subject a text is looked for in.
const MAX_SEARCHED: u64 = 2000;
/// Characters of what a call is about.
const MAX_SUBJECT: usize = 120;
/// Changed paths remembered of one run, for filters.
const MAX_PATHS: usize = 50;
/// Runs read from the store at a time.
const PAGE: usize = 500;
/// Runs that one request with filters looks at; the next page goes on from there.
const MAX_LOOKED_AT: u64 = 5000;
/// The same, where the records of each run must be read.
const MAX_READ: usize = 1000;

/// Who began a run and what it did, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// The agent on whose behalf it runs.
    pub agent: String,
    /// The door by which it came.
    pub door: String,
    /// The user, device or token that began it.
    pub principal: String,
    /// The first tools that it called.
    pub tools: Vec<String>,
    /// How many calls it made.
    pub calls: u64,
    /// How many of them failed or were refused.
    pub failed: u64,
    /// How many files and folders it created, changed, moved or removed.
    pub changed: u64,
    /// How many of its questions are open.
    pub waiting: u64,
    /// What its first call was about: a path, a query, a title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// The facts of one run, up to a record.
#[derive(Debug, Clone, Default)]
struct RunFacts {
    seq: u64,
    tools: Vec<String>,
    paths: Vec<String>,
    counts: RunCounts,
}

/// The facts of runs that were asked for.
#[derive(Default)]
pub(crate) struct RunFactsCache(Mutex<HashMap<RunId, RunFacts>>);

impl RunFacts {
    fn take(&mut self, record: &Record) {
        match record {
            Record::RunStarted(started) => {
                let word = |name: &str| started.caller.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                self.counts.agent = word("agent");
                self.counts.door = word("door");
                self.counts.principal = word("principal");
            }
            Record::Call(call) if !call.recovered => {
                if self.counts.calls == 0 {
                    self.counts.subject = call.args.as_deref().and_then(subject_of);
                }
                self.counts.calls += 1;
                self.use_tool(call.tool.as_str());
            }
            Record::Result(result) => self.end(&result.outcome),
            Record::Refused(refused) if !refused.never_ran => {
                if self.counts.calls == 0 {
                    self.counts.subject = refused.args.as_ref().and_then(Value::as_object).and_then(subject_of);
                }
                self.counts.calls += 1;
                self.use_tool(refused.tool.as_str());
                self.end(&refused.outcome);
            }
            _ => {}
        }
    }

    fn use_tool(&mut self, tool: &str) {
        if self.tools.len() < MAX_TOOLS && !self.tools.iter().any(|known| known == tool) {
            self.tools.push(tool.to_owned());
        }
    }

    fn end(&mut self, outcome: &OutcomeRecord) {
        self.counts.failed += u64::from(!matches!(outcome.status, ResultStatus::Ok | ResultStatus::Skipped));
        let Some(effects) = &outcome.effects else { return };
        self.counts.changed += changes_of(effects);
        let paths = changes(effects).into_iter().map(|change| change.path);
        self.paths.extend(paths.take(MAX_PATHS.saturating_sub(self.paths.len())));
    }

    /// Whether a tool, a changed path or the subject contains a text in lower case.
    fn contain(&self, text: &str) -> bool {
        let mut words = self.tools.iter().chain(&self.paths).chain(&self.counts.subject);
        words.any(|word| word.to_lowercase().contains(text))
    }
}

/// The first argument that says what a call is about, on one line. Secret arguments are not in the record.
fn subject_of(args: &Map<String, Value>) -> Option<String> {
    let text =
        SUBJECTS.iter().find_map(|name| args.get(*name).and_then(Value::as_str).filter(|t| !t.trim().is_empty()))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    Some(match line.char_indices().nth(MAX_SUBJECT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    })
}

/// How many files and folders changed.
fn changes_of(effects: &Effects) -> u64 {
    (effects.created.len() + effects.modified.len() + effects.deleted.len() + effects.renamed.len()) as u64
}

impl RunFactsCache {
    /// The facts of a run up to the end of its record. May block.
    fn read(&self, store: &dyn Store, run_id: RunId) -> Result<RunFacts, StoreError> {
        let mut facts = lock(&self.0).get(&run_id).cloned().unwrap_or_default();
        let before = facts.seq;
        store.frames(run_id, facts.seq + 1, &mut |frame| {
            facts.seq = frame.seq;
            // `runs.verify` reports records that cannot be read.
            if let Ok(record) = Record::decode(frame.kind, &frame.payload) {
                facts.take(&record);
            }
            ControlFlow::Continue(())
        })?;
        if facts.seq > before {
            let mut kept = lock(&self.0);
            if kept.len() >= MAX_KEPT && !kept.contains_key(&run_id) {
                let some: Vec<RunId> = kept.keys().take(MAX_KEPT / 10).copied().collect();
                for run in some {
                    kept.remove(&run);
                }
            }
            kept.insert(run_id, facts.clone());
        }
        Ok(facts)
    }
}

impl Service {
    /// A run's row with its counts. May block.
    pub(crate) fn counted(&self, row: RunRow) -> Result<RunSummary, StoreError> {
        let facts = self.run_facts().read(&**self.engine().store(), row.run_id)?;
        Ok(self.with_counts(row, facts))
    }

    fn with_counts(&self, row: RunRow, facts: RunFacts) -> RunSummary {
        let pending = self.engine().approvals().pending();
        let waiting = pending.iter().filter(|open| open.request.run_id == Some(row.run_id)).count() as u64;
        let tools = facts.tools.into_iter().take(SHOWN_TOOLS).collect();
        let counts = RunCounts { tools, waiting, ..facts.counts };
        RunSummary { counts: Some(counts), ..RunSummary::from(row) }
    }

    /// One page of the matching runs and, if it was asked for, how many there are. May block.
    pub(crate) fn list_and_count(
        &self,
        caller: &Caller,
        params: &RunsListParams,
        limit: usize,
    ) -> Result<RunList, MethodError> {
        let list = self.list_runs(caller, params, limit)?;
        let looks_at_each =
            params.agent.is_some() || params.door.is_some() || params.tool.is_some() || params.text.is_some();
        let total = match params.total && !looks_at_each {
            true => Some(self.engine().store().count_runs(&RunFilter {
                statuses: params.status.clone(),
                kind: params.kind,
                session: params.session.as_ref().map(|session| caller.workspace.key(session).into_owned()),
                workspace: Some(caller.workspace.clone()),
                before: params.to.and_then(first_id_at),
                after: params.from.and_then(last_id_before),
                limit: 0,
            })?),
            false => None,
        };
        Ok(RunList { total, ..list })
    }

    /// One page of the matching runs.
    fn list_runs(&self, caller: &Caller, params: &RunsListParams, limit: usize) -> Result<RunList, MethodError> {
        let store = self.engine().store();
        store.settle()?;
        let needs_record = params.agent.is_some() || params.door.is_some() || params.tool.is_some();
        let is_filtered = needs_record || params.text.is_some() || params.from.is_some() || params.to.is_some();
        let session = params.session.as_ref().map(|session| caller.workspace.key(session).into_owned());
        let text = params.text.as_ref().map(|text| text.to_lowercase());
        let (mut runs, mut looked_at, mut read) = (Vec::new(), 0, 0);
        // Titles are in the rows; the rest must be read from records, which takes too long for every run of a large store.
        let newer = match (&text, params.before) {
            (Some(_), Some(before)) => {
                let workspace = Some(caller.workspace.clone());
                store.count_runs(&RunFilter { after: Some(before), workspace, ..RunFilter::default() })?
            }
            _ => 0,
        };
        let mut before = params.before.into_iter().chain(params.to.and_then(first_id_after)).min();
        let mut searched_to = None;
        loop {
            let wanted = if is_filtered { PAGE } else { limit };
            let rows = store.runs(&RunFilter {
                statuses: params.status.clone(),
                kind: params.kind,
                session: session.clone(),
                workspace: Some(caller.workspace.clone()),
                before,
                limit: wanted,
                after: None,
            })?;
            let is_last = rows.len() < wanted;
            for row in rows {
                let (run_id, started_at) = (row.run_id, row.started_at);
                if params.from.is_some_and(|from| started_at < from) {
                    return Ok(RunList { runs, next: None, searched_to, total: None });
                }
                (before, searched_to) = (Some(run_id), Some(started_at));
                looked_at += 1;
                let is_in_time = params.to.is_none_or(|to| started_at < to);
                let by_row = text.as_deref().is_none_or(|text| fits_row(text, &row));
                let is_recent = newer + looked_at <= MAX_SEARCHED;
                if is_in_time && (by_row || is_recent) && (needs_record || params.counts || !by_row) {
                    let facts = self.run_facts().read(&**store, run_id)?;
                    read += 1;
                    let by_text = by_row || text.as_deref().is_some_and(|text| facts.contain(text));
                    if by_text && fits_facts(params, &facts) {
                        let run = self.with_counts(row, facts);
                        runs.push(if params.counts { run } else { RunSummary { counts: None, ..run } });
                    }
                } else if is_in_time && by_row {
                    runs.push(RunSummary::from(row));
                }
                let is_enough = looked_at >= MAX_LOOKED_AT || read >= MAX_READ;
                if runs.len() >= limit || (is_filtered && is_enough) {
                    let searched_to = searched_to.filter(|_| is_filtered);
                    return Ok(RunList { runs, next: before, searched_to, total: None });
                }
            }
            if is_last {
                let searched_to = searched_to.filter(|_| is_filtered);
                return Ok(RunList { runs, next: None, searched_to, total: None });
            }
        }
    }
}

/// The smallest number that the id of a run can be which began at this millisecond: ids begin with the milliseconds since
/// 1970.
fn first_number_at(ms: i64) -> Option<u128> {
    Some((u128::try_from(ms).ok()? << 80) | (7 << 76))
}

/// The smallest id that a run which began at this time can have.
fn first_id_at(time: Timestamp) -> Option<RunId> {
    first_number_at(time.as_millisecond()).map(uuid::Uuid::from_u128).map(RunId::from_uuid)
}

/// An id that is smaller than that of every run which began at this time or later.
fn last_id_before(time: Timestamp) -> Option<RunId> {
    Some(RunId::from_uuid(uuid::Uuid::from_u128(first_number_at(time.as_millisecond())?.checked_sub(1)?)))
}

/// An id that is larger than that of every run which began before this time.
fn first_id_after(time: Timestamp) -> Option<RunId> {
    first_number_at(time.as_millisecond().checked_add(1)?).map(uuid::Uuid::from_u128).map(RunId::from_uuid)
}

fn fits_row(text: &str, row: &RunRow) -> bool {
    row.title.to_lowercase().contains(text) || row.run_id.to_string().starts_with(text)
}

fn fits_facts(params: &RunsListParams, facts: &RunFacts) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    is(&params.agent, &facts.counts.agent)
        && is(&params.door, &facts.counts.door)
        && params.tool.as_ref().is_none_or(|tool| facts.tools.contains(tool))
}
