//! `toolyard report`: what every agent did in a span of time.

mod page;

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, ReportArgs},
    output, upkeep,
    wiring::RequiredParts,
};
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};
use toolyard_protocol::{ErrorCode, Failure, RunId, RunStatus};
use toolyard_service::runs::{RunDetail, RunParams, RunSummary, RunsGet, RunsList, RunsListParams};

/// Runs in one page of the list.
const PAGE: usize = 200;
/// Runs that a report looks at.
const MAX_RUNS: usize = 5000;
/// Files that are named for each agent; more are counted.
const MAX_FILES: usize = 200;

/// What every agent did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// From when on.
    pub(crate) since: Timestamp,
    /// Until when.
    pub(crate) until: Timestamp,
    /// Whether there were more runs than a report looks at.
    pub(crate) is_cut: bool,
    /// Over all agents.
    pub(crate) totals: Totals,
    /// Each agent, by door and name.
    pub(crate) agents: Vec<AgentReport>,
}

/// The number of runs and calls, by outcome.
#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Totals {
    /// Runs: calls, plans.
    pub(crate) runs: usize,
    /// Runs that failed or were refused.
    pub(crate) failed: usize,
    /// Calls that were refused before they ran.
    pub(crate) refused: usize,
    /// Files that were changed.
    pub(crate) files_changed: usize,
}

/// What one agent did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentReport {
    /// The agent.
    pub(crate) agent: String,
    /// The door it came in by.
    pub(crate) door: String,
    /// The number of runs and calls, by outcome.
    pub(crate) totals: Totals,
    /// Its sessions.
    pub(crate) sessions: Vec<String>,
    /// How often it called each tool.
    pub(crate) tools: BTreeMap<String, usize>,
    /// Files it changed, the first ones by name.
    pub(crate) files: Vec<String>,
    /// What was refused or failed, the newest first.
    pub(crate) troubles: Vec<ReportProblem>,
}

/// Something that did not run, or did not work.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportProblem {
    /// The run.
    pub(crate) run_id: RunId,
    /// The time at which the run began.
    pub(crate) at: Timestamp,
    /// The run's title.
    pub(crate) title: String,
    /// The reason.
    pub(crate) reason: String,
}

pub(super) async fn run(global: &Global, args: ReportArgs) -> Outcome {
    let now = Timestamp::now();
    let since = moment(&args.since, now)?;
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let made = make(&mut backend, since, now).await;
    backend.close().await;
    let report = made?;
    if global.json {
        output::json(&report);
    } else if args.html {
        output::data(page::html(&report).trim_end());
    } else {
        output::data(page::markdown(&report).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// A moment in words: `today`, `yesterday`, an age such as `24h` or `7d`, a date, or a time with its zone.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let zone = TimeZone::system();
    let midnight = |date: Date| date.to_zoned(zone.clone()).map(|zoned| zoned.timestamp());
    let today = now.to_zoned(zone.clone()).date();
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::new(ErrorCode::UsageError, format!("--since {text}: {why}"))
            .suggest("Write today, yesterday, an age (24h, 7d), a date (2026-11-18) or a time (2026-11-18T09:00:00Z).")
    };
    match text {
        "today" => midnight(today).map_err(|error| wrong(&error)),
        "yesterday" => today.checked_sub(1.day()).and_then(midnight).map_err(|error| wrong(&error)),
        _ => {
            if let Ok(at) = text.parse::<Timestamp>() {
                return Ok(at);
            }
            if let Ok(date) = text.parse::<Date>() {
                return midnight(date).map_err(|error| wrong(&error));
            }
            let age = upkeep::parse_age(text).map_err(|failure| wrong(&failure.message))?;
            now.checked_sub(age).map_err(|error| wrong(&error))
        }
    }
}

async fn make(backend: &mut Backend, since: Timestamp, until: Timestamp) -> Result<Report, Failure> {
    let mut agents: BTreeMap<(String, String), AgentTotals> = BTreeMap::new();
    let mut before = None;
    let (mut looked_at, mut is_cut) = (0, false);
    'pages: loop {
        let params = RunsListParams { before, limit: Some(PAGE), ..RunsListParams::default() };
        let page = backend.call::<RunsList>(&params, None).await?.runs;
        before = page.last().map(|run| run.run_id);
        let is_last = page.len() < PAGE;
        for run in page {
            if run.started_at < since {
                break 'pages;
            }
            if looked_at == MAX_RUNS {
                is_cut = true;
                break 'pages;
            }
            looked_at += 1;
            let detail = backend.call::<RunsGet>(&RunParams { run_id: run.run_id }, None).await?;
            let said = |key: &str| detail.run.caller.get(key).and_then(Value::as_str).unwrap_or("unknown").to_owned();
            agents.entry((said("door"), said("agent"))).or_default().take(&run, &detail);
        }
        if is_last {
            break;
        }
    }
    let agents: Vec<AgentReport> =
        agents.into_iter().map(|((door, agent), gathered)| gathered.into_report(agent, door)).collect();
    let mut totals = Totals::default();
    for AgentReport { totals: one, .. } in &agents {
        totals.runs += one.runs;
        totals.failed += one.failed;
        totals.refused += one.refused;
        totals.files_changed += one.files_changed;
    }
    Ok(Report { since, until, is_cut, totals, agents })
}

#[derive(Default)]
struct AgentTotals {
    totals: Totals,
    sessions: BTreeSet<String>,
    tools: BTreeMap<String, usize>,
    files: BTreeSet<String>,
    troubles: Vec<ReportProblem>,
}

impl AgentTotals {
    fn take(&mut self, run: &RunSummary, detail: &RunDetail) {
        self.totals.runs += 1;
        self.sessions.extend(run.session.clone());
        let ran: BTreeSet<_> = detail.calls.iter().map(|call| call.call_id).collect();
        for result in &detail.results {
            *self.tools.entry(result.tool.to_string()).or_default() += 1;
            if !ran.contains(&result.call_id) {
                self.totals.refused += 1;
            }
            let Some(effects) = &result.effects else { continue };
            self.files.extend(effects.created.iter().map(|file| file.path.clone()));
            self.files.extend(effects.modified.iter().map(|file| file.path.clone()));
            self.files.extend(effects.deleted.iter().map(|file| file.path.clone()));
            self.files.extend(effects.renamed.iter().map(|file| file.to.clone()));
        }
        if run.status == RunStatus::Failed {
            self.totals.failed += 1;
            let error = detail.results.iter().rev().find_map(|result| result.error.as_ref());
            let reason = error.map_or_else(|| "failed".to_owned(), |error| error.message.clone());
            self.troubles.push(ReportProblem {
                run_id: run.run_id,
                at: run.started_at,
                title: run.title.clone(),
                reason,
            });
        }
    }

    fn into_report(mut self, agent: String, door: String) -> AgentReport {
        self.totals.files_changed = self.files.len();
        AgentReport {
            agent,
            door,
            totals: self.totals,
            sessions: self.sessions.into_iter().collect(),
            tools: self.tools,
            files: self.files.into_iter().take(MAX_FILES).collect(),
            troubles: self.troubles,
        }
    }
}
