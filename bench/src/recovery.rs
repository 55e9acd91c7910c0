//! Recovery: restarting from a large store after a crash.

use crate::{
    Setup,
    report::{Good, Report},
    rig::{Rig, caller},
    tools::{ECHO, RANGE},
    workloads,
};
use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::{
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use toolyard_engine::{
    Blob, EXECUTOR_VERSION, Recorder, Store,
    record::{CallRecord, FinishedRecord, OutcomeRecord, Record, ResultRecord, RunStarted},
    store::{Durability, RunKind, RunRow},
};
use toolyard_protocol::{
    ActionPlan, CallId, Iteration, ResultStatus, RiskLevel, RunId, RunStatus, StepId, ToolName, canonical,
};
use uuid::Uuid;

/// Number of records in the store.
const RECORDS: u64 = 1_000_000;
/// Completed iterations of the unfinished run; each has two records.
const DONE: u64 = 100_000;
/// Remaining iterations of the unfinished run.
const LEFT: u64 = 1000;
/// Steps of each finished run.
const FINISHED_STEPS: u64 = 50;
/// Records between two flushes to the store.
const FLUSH_EVERY: u64 = 500;
/// Timeout of resuming the run.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time from opening the store of a crashed process to the first new call of the run that was interrupted.
pub(crate) fn recovery(setup: &Setup) -> Result<Report> {
    let dir = TempDir::with_prefix_in("toolyard-bench-", &setup.dir)?;
    let filling = Instant::now();
    // Runs in a separate process that exits without closing anything, so that the log is left as after a crash.
    let status = Command::new(std::env::current_exe()?).args(["fill-and-die", "--dir"]).arg(dir.path()).status()?;
    ensure!(status.success(), "filling the store ended with {status}");
    let filling = filling.elapsed();

    let started = Instant::now();
    let rig = Rig::open(dir.path())?;
    let opened = started.elapsed();
    let engine = rig.engine.clone();
    let recovered = rig
        .runtime
        .block_on(rig.runtime.spawn(async move { engine.recover().await }))?
        .map_err(|failure| anyhow::anyhow!("{failure}"))?;
    let returned = started.elapsed();
    ensure!(recovered.failed.is_empty(), "a run could not be read: {:?}", recovered.failed);
    let [run_id] = recovered.resumed[..] else { bail!("{} runs were taken up instead of 1", recovered.resumed.len()) };
    while rig.tools.echoes() == 0 {
        ensure!(started.elapsed() < PATIENCE, "the run was not taken up");
        std::thread::sleep(Duration::from_millis(1));
    }
    let taken_up = started.elapsed();
    // The run must also finish, with each iteration executed once.
    while rig.store.run(run_id)?.is_none_or(|row| !row.status.is_final()) {
        ensure!(started.elapsed() < PATIENCE, "the run did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = started.elapsed();
    ensure!(rig.store.run(run_id)?.is_some_and(|row| row.status == RunStatus::Finished), "the run did not finish");
    ensure!(rig.tools.echoes() == LEFT, "{} iterations were made instead of {LEFT}", rig.tools.echoes());
    rig.close();
    Ok(Report::new("recovery", "seconds", Good::Below, 5.0)
        .figure("seconds", taken_up.as_secs_f64())
        .figure("openSeconds", opened.as_secs_f64())
        .figure("recoverSeconds", (returned - opened).as_secs_f64())
        .figure("endSeconds", ended.as_secs_f64())
        .figure("records", RECORDS as f64)
        .figure("recordsOfTheRun", (2 * DONE) as f64)
        .figure("fillSeconds", filling.as_secs_f64()))
}

/// Fills a store with many finished runs and one unfinished run, then exits without closing anything.
pub(crate) fn fill_and_die(setup: &Setup) -> Result<Report> {
    let rig = Rig::open(&setup.dir)?;
    let mut records = 0;
    let looped = workloads::echo_loop((DONE + LEFT) as usize)?;
    let unfinished = 2 * DONE;
    let finished_plan = workloads::echo_loop(FINISHED_STEPS as usize)?;
    while records + unfinished < RECORDS / 2 {
        records += fill(&rig, &finished_plan, FINISHED_STEPS, FINISHED_STEPS)?;
    }
    records += fill(&rig, &looped, DONE + LEFT, DONE)?;
    while records < RECORDS {
        records += fill(&rig, &finished_plan, FINISHED_STEPS, FINISHED_STEPS)?;
    }
    rig.store.settle()?;
    std::process::exit(0)
}

/// Records a run of a list and a loop over it, with `done` completed iterations. Returns the number of records.
fn fill(rig: &Rig, plan: &ActionPlan, items: u64, done: u64) -> Result<u64> {
    let caller = caller();
    let policy = rig.engine.policy_for(&caller);
    let run_id = RunId::from_uuid(Uuid::now_v7());
    let recorder =
        Recorder::begin(run_id, None, rig.store.clone(), rig.engine.bus().clone(), rig.engine.signer().clone());
    let started_at = Timestamp::now();
    let mut row = RunRow {
        run_id,
        kind: RunKind::Plan,
        status: RunStatus::Running,
        title: plan.goal.clone(),
        session: None,
        started_at,
        ended_at: None,
    };
    recorder.push(&Record::RunStarted(RunStarted {
        run_id,
        kind: RunKind::Plan,
        plan: Some(plan.clone()),
        plan_hash: Some(canonical::hash(plan)?),
        policy_hash: policy.hash().to_owned(),
        policy: Some((**policy.snapshot()).clone()),
        policy_blob: None,
        registry_version: rig.engine.tools().snapshot.version().to_owned(),
        executor_version: EXECUTOR_VERSION.to_owned(),
        planner_version: None,
        caller: caller.to_map(),
        context: Map::new(),
        started_at,
        parent_run_id: None,
        imported_steps: Vec::new(),
        preview_hash: None,
        title: None,
        ledger: None,
    }));
    recorder.set_row(row.clone());

    let list: Vec<u64> = (0..items).collect();
    let data = object(json!({"items": list}))?;
    let bytes = serde_json::to_vec(&data)?;
    let blob = (bytes.len() > toolyard_engine::record::INLINE_BYTES).then(|| Blob::new(bytes));
    recorder.push_blobs(blob.clone());
    let call = call("list", RANGE, object(json!({"count": items}))?, None)?;
    let outcome = match blob {
        Some(blob) => OutcomeRecord { data_blob: Some(blob.sha256), ..outcome(None) },
        None => outcome(Some(data)),
    };
    push_call(&recorder, call, outcome);
    for n in 0..done {
        let args = object(json!({"text": format!("item number {n}"), "n": n}))?;
        let iteration = Iteration { index: n, item_name: "item".to_owned(), item_value: Value::from(n) };
        push_call(&recorder, call_of_loop(args.clone(), iteration)?, outcome_of(args));
        if n % FLUSH_EVERY == 0 {
            recorder.flush(Durability::Deferred)?;
        }
    }
    if done == items {
        let at = Timestamp::now();
        let message = "finished".to_owned();
        recorder.push(&Record::Finished(FinishedRecord { at, status: RunStatus::Finished, error: None, message }));
        recorder.checkpoint();
        row = RunRow { status: RunStatus::Finished, ended_at: Some(at), ..row };
        recorder.set_row(row);
    }
    recorder.flush(Durability::Deferred)?;
    Ok(recorder.head().0)
}

fn push_call(recorder: &Recorder, call: CallRecord, outcome: OutcomeRecord) {
    let call_id = call.call_id;
    recorder.push(&Record::Call(call));
    recorder.push(&Record::Result(ResultRecord { call_id, outcome }));
}

fn call_of_loop(args: Map<String, Value>, iteration: Iteration) -> Result<CallRecord> {
    call("each", ECHO, args, Some(iteration))
}

fn call(step: &str, tool: &str, args: Map<String, Value>, iteration: Option<Iteration>) -> Result<CallRecord> {
    Ok(CallRecord {
        call_id: CallId::from_uuid(Uuid::now_v7()),
        step_id: StepId::parse(step)?,
        tool: ToolName::parse(tool)?,
        attempt: 1,
        args_hash: canonical::hash(&args)?.trim_start_matches("sha256:").to_owned(),
        args: Some(args.into()),
        args_blob: None,
        asked_hash: None,
        tool_id: None,
        timeout_ms: Some(30_000),
        at: Timestamp::now().as_microsecond(),
        not_cancellable: false,
        iteration,
        preview: None,
        risk: RiskLevel::ReadOnly,
        category: Some("bench".to_owned()),
        confirmation_id: None,
        scheduled: true,
        intent: None,
        recovered: false,
        secrets: Vec::new(),
    })
}

fn outcome_of(data: Map<String, Value>) -> OutcomeRecord {
    outcome(Some(data))
}

fn outcome(data: Option<Map<String, Value>>) -> OutcomeRecord {
    OutcomeRecord {
        status: ResultStatus::Ok,
        data,
        data_blob: None,
        error: None,
        started: Timestamp::now().as_microsecond(),
        took_us: 12,
        effects: None,
        user_message: None,
        debug_message: None,
    }
}

fn object(value: Value) -> Result<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(anyhow::anyhow!("{other} is no object")).context("a benchmark's record"),
    }
}
