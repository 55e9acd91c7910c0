//! Facts about a run in addition to its row: who began it, which tools it called, how many calls failed, how many files
//! it changed. They are read from the record and cached in memory, so that each record of a run is read once.

use crate::{
    MethodError, Service,
    hub::lock,
    runs::{RunList, RunSummary, RunsListParams},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
/// Runs read from the store at a time.
const PAGE: usize = 500;
/// Runs that one request with filters looks at; the next page goes on from there.
const MAX_LOOKED_AT: usize = 5000;
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
}

/// The facts of one run, up to a record.
#[derive(Debug, Clone, Default)]
struct RunFacts {
    seq: u64,
    tools: Vec<String>,
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
                self.counts.calls += 1;
                self.use_tool(call.tool.as_str());
            }
            Record::Result(result) => self.end(&result.outcome),
            Record::Refused(refused) if !refused.never_ran => {
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
        self.counts.changed += outcome.effects.as_ref().map_or(0, changes_of);
    }
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

    /// One page of the matching runs. May block.
    pub(crate) fn list_runs(
        &self,
        caller: &Caller,
        params: &RunsListParams,
        limit: usize,
    ) -> Result<RunList, MethodError> {
        let store = self.engine().store();
        store.settle()?;
        let needs_record = params.agent.is_some() || params.door.is_some() || params.tool.is_some();
        let is_filtered = needs_record || params.text.is_some() || params.from.is_some() || params.to.is_some();
        let session = params.session.as_ref().map(|session| caller.workspace.key(session).into_owned());
        let text = params.text.as_ref().map(|text| text.to_lowercase());
        let (mut runs, mut looked_at, mut read) = (Vec::new(), 0, 0);
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
                    return Ok(RunList { runs, next: None, searched_to });
                }
                (before, searched_to) = (Some(run_id), Some(started_at));
                looked_at += 1;
                if !fits_row(params, text.as_deref(), &row) {
                    continue;
                }
                if needs_record || params.counts {
                    let facts = self.run_facts().read(&**store, run_id)?;
                    read += 1;
                    if fits_facts(params, &facts) {
                        let run = self.with_counts(row, facts);
                        runs.push(if params.counts { run } else { RunSummary { counts: None, ..run } });
                    }
                } else {
                    runs.push(RunSummary::from(row));
                }
                let is_enough = looked_at >= MAX_LOOKED_AT || (needs_record && read >= MAX_READ);
                if runs.len() >= limit || (is_filtered && is_enough) {
                    return Ok(RunList { runs, next: before, searched_to: searched_to.filter(|_| is_filtered) });
                }
            }
            if is_last {
                return Ok(RunList { runs, next: None, searched_to: searched_to.filter(|_| is_filtered) });
            }
        }
    }
}

/// The smallest id that a run which began at this time can have: ids begin with the milliseconds since 1970.
fn first_id_after(time: Timestamp) -> Option<RunId> {
    let ms = u128::try_from(time.as_millisecond().checked_add(1)?).ok()?;
    Some(RunId::from_uuid(uuid::Uuid::from_u128((ms << 80) | (7 << 76))))
}

fn fits_row(params: &RunsListParams, text: Option<&str>, row: &RunRow) -> bool {
    let is_in_time = params.to.is_none_or(|to| row.started_at < to);
    is_in_time
        && text.is_none_or(|text| row.title.to_lowercase().contains(text) || row.run_id.to_string().starts_with(text))
}

fn fits_facts(params: &RunsListParams, facts: &RunFacts) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    is(&params.agent, &facts.counts.agent)
        && is(&params.door, &facts.counts.door)
        && params.tool.as_ref().is_none_or(|tool| facts.tools.contains(tool))
}
