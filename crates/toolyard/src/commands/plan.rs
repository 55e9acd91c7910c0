//! `toolyard plan`: check, dry run, run, replay, fork and undo.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::{Approval, Global, PlanCommand, PlanFile},
    output::{self, Paint},
    progress::PlanProgress,
    terminal::counted,
    wiring::RequiredParts,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};
use toolyard_engine::plan::{DryRunReport, StepReport};
use toolyard_protocol::{Effects, ErrorCode, Failure, PlanOutputs, RunStatus, StepId};
use toolyard_service::{
    Method,
    plans::{
        ConsentParams, ForkParams, PlanParams, PlanRun, PlansCheck, PlansDryRun, PlansFork, PlansReplay, PlansRun,
        PlansUndo, UndoAnswer, UndoParams, UndoPreview,
    },
    runs::RunParams,
};

/// How many changes of one kind are listed at the end of a run.
const SHOWN_CHANGES: usize = 50;

pub(super) async fn run(global: &Global, command: PlanCommand) -> Outcome {
    match command {
        PlanCommand::Check { file } => check(global, &file).await,
        PlanCommand::DryRun(file) => dry_run(global, file).await,
        PlanCommand::Run { plan, approval, detach, planner_version } => {
            run_plan(global, plan, approval, detach, planner_version).await
        }
        PlanCommand::Replay { run } => replay(global, &run).await,
        PlanCommand::Fork { run, from, edit, context, approval } => {
            let params = ForkParams {
                run_id: input::run_id(&run)?,
                from: StepId::parse(&from).map_err(|e| Failure::new(ErrorCode::UsageError, e.to_string()))?,
                plan: edit.as_deref().map(input::plan).transpose()?,
                context: input::context(&context)?,
                consent: ConsentParams::default(),
            };
            let answer = with_approval::<PlansFork>(global, params, &approval, 0).await?;
            answer.end(global, |run| finish_run(global, run))
        }
        PlanCommand::Undo { run, dry_run, partial, approval } => undo(global, &run, dry_run, partial, approval).await,
    }
}

async fn check(global: &Global, file: &str) -> Outcome {
    let plan = input::plan(file)?;
    let mut backend = Backend::open(global, RequiredParts::Catalog).await?;
    let report = backend.call::<PlansCheck>(&PlanParams { plan, ..PlanParams::default() }, None).await;
    backend.close().await;
    let report = report?;
    if global.json {
        output::json(&report);
    } else {
        let paint = Paint::stdout();
        for (label, issues) in [(paint.red("error"), &report.errors), (paint.yellow("warning"), &report.warnings)] {
            for issue in issues {
                output::data(&format!("{label} {} {}", issue.path, issue.message));
            }
        }
        output::data(&format!(
            "{}: {}, risk {}, {}",
            if report.ok { paint.green("ok") } else { paint.red("cannot be run") },
            counted(report.summary.estimated_steps, "step"),
            output::word(&report.summary.risk_level),
            report.summary.tools_used.join(", "),
        ));
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

async fn dry_run(global: &Global, file: PlanFile) -> Outcome {
    let params =
        PlanParams { plan: input::plan(&file.file)?, context: input::context(&file.context)?, ..PlanParams::default() };
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let report = backend.call::<PlansDryRun>(&params, None).await;
    backend.close().await;
    let report = report?;
    if global.json {
        output::json(&report);
    } else {
        show_steps(&report.steps);
        show_diff(&report);
        output::data(&format!("previewHash {}", report.preview_hash));
    }
    Ok(if report.status == RunStatus::Finished { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

fn show_diff(report: &DryRunReport) {
    if !report.diff.is_empty() {
        output::data(report.diff.trim_end());
    }
}

async fn run_plan(
    global: &Global,
    file: PlanFile,
    approval: Approval,
    detach: bool,
    planner_version: Option<String>,
) -> Outcome {
    let plan = input::plan(&file.file)?;
    let steps = plan.get("steps").and_then(serde_json::Value::as_array).map_or(0, Vec::len);
    let context = input::context(&file.context)?;
    let params = PlanParams { plan, context, detach, planner_version, consent: ConsentParams::default() };
    let answer = with_approval::<PlansRun>(global, params, &approval, steps).await?;
    answer.end(global, |run| finish_run(global, run))
}

/// Parameters of a method that may need a person's approval.
trait Approvable: Clone + Serialize {
    /// Where the approval goes.
    fn consent(&mut self) -> &mut ConsentParams;
    /// The plan that can be shown before a person is asked.
    fn preview(&self) -> Option<PlanParams> {
        None
    }
    /// Whether the answer comes as soon as the run has begun.
    fn is_detached(&self) -> bool {
        false
    }
}

impl Approvable for PlanParams {
    fn consent(&mut self) -> &mut ConsentParams {
        &mut self.consent
    }
    fn preview(&self) -> Option<PlanParams> {
        Some(PlanParams { plan: self.plan.clone(), context: self.context.clone(), ..PlanParams::default() })
    }
    fn is_detached(&self) -> bool {
        self.detach
    }
}

impl Approvable for ForkParams {
    fn consent(&mut self) -> &mut ConsentParams {
        &mut self.consent
    }
}

impl Approvable for UndoParams {
    fn consent(&mut self) -> &mut ConsentParams {
        &mut self.consent
    }
}

/// The result of a call that a person may interrupt, and whether it was interrupted.
struct Interruptible<T> {
    answer: Result<T, Failure>,
    was_interrupted: bool,
}

impl<T> Interruptible<T> {
    fn end(self, global: &Global, finish: impl FnOnce(&T) -> Outcome) -> Outcome {
        let interrupted = ExitCode::from(output::INTERRUPTED);
        match self.answer {
            Ok(answer) => finish(&answer).map(|code| if self.was_interrupted { interrupted } else { code }),
            Err(failure) if self.was_interrupted => {
                output::failure(global, &failure);
                Ok(interrupted)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Runs something that may need a person's approval: with `--yes` at once, on a terminal after showing the preview.
async fn with_approval<M: Method>(
    global: &Global,
    mut params: M::Params,
    approval: &Approval,
    steps: usize,
) -> Result<Interruptible<M::Answer>, Failure>
where
    M::Params: Approvable,
    M::Answer: DeserializeOwned,
{
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    if params.is_detached() && !backend.is_remote() {
        return Err(Failure::new(ErrorCode::PreconditionFailed, "--detach needs a running Toolyard")
            .suggest("Start one with `toolyard up`."));
    }
    *params.consent() = ConsentParams {
        approved: approval.yes,
        preview_hash: approval.preview_hash.clone(),
        ..ConsentParams::default()
    };
    let progress = PlanProgress::new(global, steps);
    let interrupted = AtomicBool::new(false);
    let mut answer = call_interruptibly::<M>(&mut backend, &params, &progress, &interrupted).await;
    if let Err(failure) = &answer
        && failure.code == ErrorCode::ConfirmationRequired
        && !approval.yes
        && input::can_ask()
    {
        progress.finish();
        let preview = match params.preview() {
            Some(preview) => backend.call::<PlansDryRun>(&preview, None).await.ok(),
            None => None,
        };
        if let Some(preview) = &preview {
            show_steps(&preview.steps);
            output::note(&preview.diff);
        }
        if input::ask("Run this plan?") {
            let preview = preview.as_ref();
            *params.consent() = ConsentParams {
                approved: true,
                ask: false,
                plan_hash: preview.map(|preview| preview.plan_hash.clone()),
                policy_hash: preview.map(|preview| preview.policy_hash.clone()),
                preview_hash: preview.map(|preview| preview.preview_hash.clone()),
            };
            answer = call_interruptibly::<M>(&mut backend, &params, &progress, &interrupted).await;
        }
    }
    progress.finish();
    backend.close().await;
    Ok(Interruptible { answer, was_interrupted: interrupted.load(Ordering::Relaxed) })
}

/// The first Ctrl-C stops the run and waits for its record; a second one ends the program.
async fn call_interruptibly<M: Method>(
    backend: &mut Backend,
    params: &M::Params,
    progress: &PlanProgress,
    interrupted: &AtomicBool,
) -> Result<M::Answer, Failure>
where
    M::Params: Serialize,
    M::Answer: DeserializeOwned,
{
    let engine = match backend {
        Backend::Here(app) => Some(app.service.engine().clone()),
        Backend::There(_) => None,
    };
    let call = backend.call::<M>(params, progress.sink());
    tokio::pin!(call);
    let mut interrupts = 0;
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            _ = tokio::signal::ctrl_c() => {
                interrupts += 1;
                interrupted.store(true, Ordering::Relaxed);
                match &engine {
                    Some(engine) if interrupts == 1 => {
                        output::note("stopping; once more to give up waiting");
                        for run in engine.active_runs() {
                            engine.cancel_run(run);
                        }
                    }
                    _ => return Err(Failure::new(ErrorCode::Cancelled, "interrupted").suggest("See what became of it with `toolyard runs list`.")),
                }
            }
        }
    }
}

pub(super) fn finish_run(global: &Global, run: &PlanRun) -> Outcome {
    if global.json {
        output::json(run);
    }
    let (run_id, status) = match run {
        PlanRun::Report(report) => (report.run_id, report.status),
        PlanRun::Begun(begun) => (begun.run_id, begun.status),
    };
    if !global.json {
        if let PlanRun::Report(report) = run {
            show_steps(&report.steps);
        }
        let paint = Paint::stdout();
        output::data(&format!("{} run {run_id}", paint.status(status.as_str())));
        if let PlanRun::Report(report) = run {
            show_effects(&report.effects, &report.outputs);
            if let Some(deviation) = &report.deviation {
                output::note(&format!(
                    "what happened differs from the preview: missing {:?}, unexpected {:?}",
                    deviation.missing, deviation.unexpected
                ));
            }
            if let Some(failure) = &report.error {
                output::failure(global, failure);
            }
        }
    }
    Ok(match status {
        RunStatus::Finished | RunStatus::Running => ExitCode::SUCCESS,
        RunStatus::Paused => ExitCode::from(output::PAUSED),
        _ => ExitCode::from(output::FAILED),
    })
}

fn show_steps(steps: &[StepReport]) {
    let paint = Paint::stdout();
    for step in steps {
        let status = step.status.map_or("-", |status| status.as_str());
        let message = step.error.as_ref().map(|error| &error.message).or(step.user_message.as_ref());
        let message = message.map(String::as_str).unwrap_or_default();
        output::data(&format!("{} {} {} {}", paint.status(status), step.id, step.tool, paint.dim(message)));
    }
}

/// Prints the effects that the plan's `outputs` select; all of them by default.
fn show_effects(effects: &Effects, outputs: &PlanOutputs) {
    if outputs.show_created_files {
        for change in effects.created.iter().take(SHOWN_CHANGES) {
            output::data(&format!("  created {}", change.path));
        }
    }
    if !outputs.show_modified_files {
        return;
    }
    for change in effects.modified.iter().take(SHOWN_CHANGES) {
        output::data(&format!("  modified {}", change.path));
    }
    for change in effects.deleted.iter().take(SHOWN_CHANGES) {
        output::data(&format!("  deleted {}", change.path));
    }
    for change in effects.renamed.iter().take(SHOWN_CHANGES) {
        output::data(&format!("  renamed {} -> {}", change.from, change.to));
    }
}

async fn replay(global: &Global, run: &str) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let report = backend.call::<PlansReplay>(&RunParams { run_id: input::run_id(run)? }, None).await;
    backend.close().await;
    let report = report?;
    if global.json {
        output::json(&report);
    } else if report.ok {
        output::data(&format!("{} calls resolve to the recorded arguments", report.calls_checked));
    } else if let Some(failure) = &report.error {
        return Ok(output::failure(global, failure));
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

async fn undo(global: &Global, run: &str, dry_run: bool, partial: bool, approval: Approval) -> Outcome {
    let consent = ConsentParams::default();
    let params = UndoParams { run_id: input::run_id(run)?, dry_run, partial, only: None, consent };
    if !dry_run {
        let answer = with_approval::<PlansUndo>(global, params, &approval, 0).await?;
        return answer.end(global, |answer| finish_undo(global, answer));
    }
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let answer = backend.call::<PlansUndo>(&params, None).await;
    backend.close().await;
    finish_undo(global, &answer?)
}

fn finish_undo(global: &Global, answer: &UndoAnswer) -> Outcome {
    match answer {
        UndoAnswer::Report(report) => finish_run(global, &PlanRun::Report(report.clone())),
        UndoAnswer::Nothing(nothing) if global.json => {
            output::json(nothing);
            Ok(ExitCode::SUCCESS)
        }
        UndoAnswer::Nothing(nothing) => {
            output::data(&format!("{} run -", Paint::stdout().status(nothing.status.as_str())));
            output::data(&nothing.message);
            Ok(ExitCode::SUCCESS)
        }
        UndoAnswer::Preview(preview) => {
            if global.json {
                output::json(preview)
            } else {
                show_undo(preview)
            }
            let would_work = preview.preview.status == RunStatus::Finished;
            Ok(if would_work { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
        }
    }
}

fn show_undo(undo: &UndoPreview) {
    for step in &undo.plan.steps {
        output::data(step.preview.as_deref().unwrap_or_default());
    }
    for call in &undo.not_undoable {
        output::data(&format!("cannot be undone: step {}: {}", call.step_id, call.reason));
    }
    show_diff(&undo.preview);
}
