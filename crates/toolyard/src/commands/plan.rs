//! `toolyard plan`: check, predict, run, replay, fork, take back.

use super::{Outcome, input};
use crate::{
    backend::Backend,
    cli::{Approval, Global, PlanCommand, PlanFile},
    output::{self, Paint},
    progress::PlanProgress,
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) async fn run(global: &Global, command: PlanCommand) -> Outcome {
    match command {
        PlanCommand::Check { file } => check(global, &file).await,
        PlanCommand::DryRun(file) => dry_run(global, file).await,
        PlanCommand::Run { plan, approval, detach, planner_version } => {
            run_plan(global, plan, approval, detach, planner_version).await
        }
        PlanCommand::Replay { run } => replay(global, &run).await,
        PlanCommand::Fork { run, from, edit, context, approval } => {
            let plan = edit.as_deref().map(input::plan).transpose()?;
            let params = json!({"runId": input::run_id(&run)?, "from": from, "plan": plan, "context": input::context(&context)?});
            with_approval(global, "plans.fork", params, &approval, 0).await
        }
        PlanCommand::Undo { run, dry_run, partial, approval } => undo(global, &run, dry_run, partial, approval).await,
    }
}

async fn check(global: &Global, file: &str) -> Outcome {
    let plan = input::plan(file)?;
    let mut backend = Backend::open(global, Needs::Catalog).await?;
    let report = backend.call("plans.check", json!({"plan": plan}), None).await;
    backend.close().await;
    let report = report?;
    let ok = report["ok"] == true;
    if global.json {
        output::json(&report);
    } else {
        let paint = Paint::stdout();
        for (label, key) in [(paint.red("error"), "errors"), (paint.yellow("warning"), "warnings")] {
            for issue in report[key].as_array().into_iter().flatten() {
                output::data(&format!(
                    "{label} {} {}",
                    issue["path"].as_str().unwrap_or_default(),
                    issue["message"].as_str().unwrap_or_default()
                ));
            }
        }
        let summary = &report["summary"];
        output::data(&format!(
            "{}: {} steps, risk {}, {}",
            if ok { paint.green("ok") } else { paint.red("cannot be run") },
            summary["estimatedSteps"],
            summary["riskLevel"].as_str().unwrap_or_default(),
            summary["toolsUsed"]
                .as_array()
                .map(|t| t.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
                .unwrap_or_default(),
        ));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

async fn dry_run(global: &Global, file: PlanFile) -> Outcome {
    let params = json!({"plan": input::plan(&file.file)?, "context": input::context(&file.context)?});
    let mut backend = Backend::open(global, Needs::Store).await?;
    let report = backend.call("plans.dryRun", params, None).await;
    backend.close().await;
    let report = report?;
    if global.json {
        output::json(&report);
    } else {
        show_steps(&report);
        let diff = report["diff"].as_str().unwrap_or_default();
        if !diff.is_empty() {
            output::data(diff.trim_end());
        }
        output::data(&format!("previewHash {}", report["previewHash"].as_str().unwrap_or_default()));
    }
    Ok(if report["status"] == "finished" { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

async fn run_plan(
    global: &Global,
    file: PlanFile,
    approval: Approval,
    detach: bool,
    planner_version: Option<String>,
) -> Outcome {
    let plan = input::plan(&file.file)?;
    let steps = plan["steps"].as_array().map_or(0, Vec::len);
    let context = input::context(&file.context)?;
    let params = json!({"plan": plan, "context": context, "detach": detach, "plannerVersion": planner_version});
    with_approval(global, "plans.run", params, &approval, steps).await
}

/// Runs something that may need a person's approval: with `--yes` at once, on a terminal after showing the preview.
async fn with_approval(global: &Global, method: &str, mut params: Value, approval: &Approval, steps: usize) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    if params["detach"] == true && !backend.is_remote() {
        return Err(Failure::new(ErrorCode::PreconditionFailed, "--detach needs a running Toolyard")
            .suggest("Start one with `toolyard up`."));
    }
    params["consent"] = json!({"approved": approval.yes, "previewHash": approval.preview_hash});
    let progress = PlanProgress::new(global, steps);
    let interrupted = std::sync::atomic::AtomicBool::new(false);
    let mut answer = call_interruptibly(&mut backend, method, params.clone(), &progress, &interrupted).await;
    if let Err(failure) = &answer
        && failure.code == ErrorCode::ConfirmationRequired
        && !approval.yes
        && input::can_ask()
    {
        progress.finish();
        let preview = match method {
            "plans.run" => backend
                .call("plans.dryRun", json!({"plan": params["plan"], "context": params["context"]}), None)
                .await
                .ok(),
            _ => None,
        };
        if let Some(preview) = &preview {
            show_steps(preview);
            output::note(preview["diff"].as_str().unwrap_or_default());
        }
        if input::ask("Run this plan?") {
            let hash = |key: &str| preview.as_ref().map_or(Value::Null, |p| p[key].clone());
            params["consent"] = json!({"approved": true, "planHash": hash("planHash"), "policyHash": hash("policyHash"), "previewHash": hash("previewHash")});
            answer = call_interruptibly(&mut backend, method, params, &progress, &interrupted).await;
        }
    }
    progress.finish();
    backend.close().await;
    let interrupted = interrupted.load(std::sync::atomic::Ordering::Relaxed);
    match answer {
        Ok(report) => {
            finish_run(global, &report).map(|code| if interrupted { ExitCode::from(output::INTERRUPTED) } else { code })
        }
        Err(failure) if interrupted => {
            output::failure(global, &failure);
            Ok(ExitCode::from(output::INTERRUPTED))
        }
        Err(failure) => Err(failure),
    }
}

/// The first Ctrl-C stops the run and waits for its record; a second one ends the program.
async fn call_interruptibly(
    backend: &mut Backend,
    method: &str,
    params: Value,
    progress: &PlanProgress,
    interrupted: &std::sync::atomic::AtomicBool,
) -> Result<Value, Failure> {
    let engine = match backend {
        Backend::Here(yard) => Some(yard.service.engine().clone()),
        Backend::There(_) => None,
    };
    let call = backend.call(method, params, progress.sink());
    tokio::pin!(call);
    let mut interrupts = 0;
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            _ = tokio::signal::ctrl_c() => {
                interrupts += 1;
                interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
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

pub(super) fn finish_run(global: &Global, report: &Value) -> Outcome {
    let status = report["status"].as_str().unwrap_or_default();
    if global.json {
        output::json(report);
    } else {
        show_steps(report);
        let paint = Paint::stdout();
        output::data(&format!("{} run {}", paint.status(status), report["runId"].as_str().unwrap_or("-")));
        if let Some(message) = report["message"].as_str() {
            output::data(message);
        }
        show_effects(&report["effects"], &report["outputs"]);
        if let Some(deviation) = report.get("deviation").filter(|d| !d.is_null()) {
            output::note(&format!("what happened differs from the preview: {deviation}"));
        }
        if let Ok(failure) = serde_json::from_value::<Failure>(report["error"].clone()) {
            output::failure(global, &failure);
        }
    }
    Ok(match status {
        "finished" => ExitCode::SUCCESS,
        "running" => ExitCode::SUCCESS,
        "paused" => ExitCode::from(output::PAUSED),
        _ => ExitCode::from(output::FAILED),
    })
}

fn show_steps(report: &Value) {
    let paint = Paint::stdout();
    for step in report["steps"].as_array().into_iter().flatten() {
        let status = step["status"].as_str().unwrap_or("-");
        let message = step["error"]["message"].as_str().or(step["userMessage"].as_str()).unwrap_or_default();
        output::data(&format!(
            "{} {} {} {}",
            paint.status(status),
            step["id"].as_str().unwrap_or_default(),
            step["tool"].as_str().unwrap_or_default(),
            paint.dim(message)
        ));
    }
}

/// What the plan wants listed at its end; everything unless it says otherwise.
fn show_effects(effects: &Value, outputs: &Value) {
    let wanted = |key: &str| outputs[key] != false;
    let each = |key: &str| effects[key].as_array().cloned().unwrap_or_default();
    for (word, key, shown) in [
        ("created", "created", wanted("showCreatedFiles")),
        ("modified", "modified", wanted("showModifiedFiles")),
        ("deleted", "deleted", wanted("showModifiedFiles")),
    ] {
        if !shown {
            continue;
        }
        for change in each(key).iter().take(50) {
            output::data(&format!("  {word} {}", change["path"].as_str().unwrap_or_default()));
        }
    }
    for change in each("renamed").iter().take(50).filter(|_| wanted("showModifiedFiles")) {
        output::data(&format!(
            "  renamed {} -> {}",
            change["from"].as_str().unwrap_or_default(),
            change["to"].as_str().unwrap_or_default()
        ));
    }
}

async fn replay(global: &Global, run: &str) -> Outcome {
    let mut backend = Backend::open(global, Needs::Store).await?;
    let report = backend.call("plans.replay", json!({"runId": input::run_id(run)?}), None).await;
    backend.close().await;
    let report = report?;
    let ok = report["ok"] == true;
    if global.json {
        output::json(&report);
    } else if ok {
        output::data(&format!("{} calls resolve to the recorded arguments", report["callsChecked"]));
    } else if let Ok(failure) = serde_json::from_value::<Failure>(report["error"].clone()) {
        return Ok(output::failure(global, &failure));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

async fn undo(global: &Global, run: &str, dry_run: bool, partial: bool, approval: Approval) -> Outcome {
    let params = json!({"runId": input::run_id(run)?, "dryRun": dry_run, "partial": partial});
    if !dry_run {
        return with_approval(global, "plans.undo", params, &approval, 0).await;
    }
    let mut backend = Backend::open(global, Needs::Store).await?;
    let answer = backend.call("plans.undo", params, None).await;
    backend.close().await;
    let answer = answer?;
    if global.json {
        output::json(&answer);
    } else {
        for step in answer["plan"]["steps"].as_array().into_iter().flatten() {
            output::data(step["preview"].as_str().unwrap_or_default());
        }
        for call in answer["notUndoable"].as_array().into_iter().flatten() {
            output::data(&format!(
                "cannot be taken back: step {}: {}",
                call["stepId"].as_str().unwrap_or_default(),
                call["reason"].as_str().unwrap_or_default()
            ));
        }
        let diff = answer["preview"]["diff"].as_str().unwrap_or_default();
        if !diff.is_empty() {
            output::data(diff.trim_end());
        }
        if let Some(message) = answer["message"].as_str() {
            output::data(message);
        }
    }
    let would_work = answer["preview"].is_null() || answer["preview"]["status"] == "finished";
    Ok(if would_work { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}
