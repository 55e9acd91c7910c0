//! `toolyard notify`: how notifications are doing, and a try.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{Global, NotifyCommand},
    notify::{NotifyState, NotifyTest, TestParams},
    output::{self, Paint},
    wiring::RequiredParts,
};
use std::process::ExitCode;
use toolyard_notify::{ChannelStatus, NotifyStatus};
use toolyard_service::NoParams;

pub(super) async fn run(global: &Global, command: NotifyCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = match command {
        NotifyCommand::Status => backend.call::<NotifyState>(&NoParams {}, None).await.map(|status| {
            if global.json {
                output::json(&status)
            } else {
                show(&status)
            }
            ExitCode::SUCCESS
        }),
        NotifyCommand::Test { channel } => test(global, &mut backend, channel).await,
    };
    backend.close().await;
    outcome
}

async fn test(global: &Global, backend: &mut Backend, channel: Option<String>) -> Outcome {
    let tested = backend.call::<NotifyTest>(&TestParams { channel }, None).await?;
    let is_well = tested.results.iter().all(|result| result.ok);
    if global.json {
        output::json(&tested);
    } else {
        let paint = Paint::stdout();
        for result in &tested.results {
            let mark = if result.ok { paint.green("sent") } else { paint.red("failed") };
            output::data(&format!("{mark}  {:<12} {} ms", result.channel, result.took_ms));
            if let Some(error) = &result.error {
                output::data(&format!("        {}", output::plain(&error.message)));
                if let Some(suggestion) = &error.suggestion {
                    output::data(&format!("        {suggestion}"));
                }
            }
        }
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(output::FAILED) })
}

fn show(status: &NotifyStatus) {
    let row = |channel: &ChannelStatus| {
        let trouble = channel.problem.as_deref().or(channel.last_error.as_ref().map(|error| error.message.as_str()));
        vec![
            channel.name.clone(),
            output::word(&channel.kind),
            channel.to.clone(),
            format!("{}+", output::word(&channel.min_severity)),
            format!("{} sent", channel.sent),
            format!("{} failed", channel.failed),
            format!("{} waiting", channel.waiting),
            output::plain(trouble.unwrap_or_default()),
        ]
    };
    output::data(&output::table(&status.channels.iter().map(row).collect::<Vec<_>>()));
    if let Some(quiet) = &status.quiet {
        let zone = quiet.time_zone.as_deref().unwrap_or("local time");
        let now = if quiet.now { ", now" } else { "" };
        output::data(&format!("quiet from {} to {} ({zone}{now})", quiet.from, quiet.to));
    }
    if !status.running {
        output::note("nothing is sent: no Toolyard runs for this home. Start one with `toolyard up`.");
    }
}
