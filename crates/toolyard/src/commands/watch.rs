//! What a person watches in a terminal: runs as they happen, their calls, what happened since a time, log lines, and an
//! overview that is refreshed. Runs are read again when an event says that one has changed; only log lines are
//! polled.

use super::{
    Outcome,
    watch_lines::{Shape, overview, run_line},
};
use crate::{
    backend::Backend,
    cli::{Global, LogsArgs},
    output::{self, Paint},
    terminal::{self, counted},
    wiring::RequiredParts,
};
use std::{collections::HashMap, process::ExitCode, sync::Arc, time::Duration};
use tokio::{signal::unix::SignalKind, sync::Notify as Signal, task::JoinHandle};
use toolyard_protocol::{ErrorCode, Failure, RunId};
use toolyard_service::{
    EventSink, LogsTail, TailParams,
    approvals::people::{ApprovalsList, ListParams},
    follow::{FollowParams, MAX_WAIT, RunsFollow},
    local::{YardStatus, YardStatusParams},
    params::Count,
    run_digest::{DigestAgent, DigestParams, RunsDigest},
    run_pages::{CallRow, CallsParams, RunsCalls},
    runs::{RunSummary, RunsList, RunsListParams},
};

/// The interval between two polls for log lines.
const EVERY: Duration = Duration::from_secs(1);
/// How long events are gathered before the list is read again.
const GATHERED: Duration = Duration::from_millis(100);
/// How many of the newest runs are read each time.
const WATCHED: usize = 100;
/// Runs in the overview.
const SHOWN: usize = 20;
/// Lines of log asked for at a time.
const LOG_LINES: u64 = 500;

/// Prints the calls of a run.
pub(super) async fn calls(global: &Global, backend: &mut Backend, params: &CallsParams) -> Outcome {
    let page = backend.call::<RunsCalls>(params, None).await?;
    if global.json {
        output::json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    let row = |call: &CallRow| {
        let took = call.took_us.map_or_else(|| "running".to_owned(), |us| format!("{} ms", us / 1000));
        let why = call.error.as_ref().map(|error| output::plain(&error.message)).unwrap_or_default();
        let status = call.status.map_or("", |status| status.as_str()).to_owned();
        vec![call.seq.to_string(), status, call.step_id.to_string(), call.tool.to_string(), took, why]
    };
    output::data(&output::table(&page.calls.iter().map(row).collect::<Vec<_>>()));
    if !global.quiet {
        output::note(&format!("{}, {} failed", counted(page.total, "call"), page.failed));
        if let Some(next) = page.next {
            output::note(&format!("there are more: --after {next}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what happened since a time.
pub(super) async fn digest(global: &Global, backend: &mut Backend, params: &DigestParams) -> Outcome {
    let digest = backend.call::<RunsDigest>(params, None).await?;
    if global.json {
        output::json(&digest);
        return Ok(ExitCode::SUCCESS);
    }
    let states: Vec<String> = digest.runs.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    output::data(&format!("{}{states}", counted(digest.total, "run")));
    let agent = |agent: &DigestAgent| {
        let files = [
            (agent.created, "created"),
            (agent.modified, "changed"),
            (agent.renamed, "renamed"),
            (agent.deleted, "deleted"),
        ];
        let files: Vec<String> =
            files.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
        let files = if files.is_empty() { "no file changed".to_owned() } else { files.join(", ") };
        let (runs, failed) = (counted(agent.runs, "run"), format!("{} failed", agent.failed));
        vec!["  agent".to_owned(), output::plain(&agent.agent), runs, failed, files]
    };
    output::data(&output::table(&digest.agents.iter().map(agent).collect::<Vec<_>>()));
    for file in &digest.files {
        let path = output::plain(&file.change.path);
        let times = if file.times == 1 { String::new() } else { format!("{} times, ", file.times) };
        output::data(&format!("  {:<9} {path}  ({times}run {})", output::word(&file.change.kind), file.run_id));
    }
    for failed in &digest.failures {
        let why = failed.error.as_ref().map_or("", |error| error.message.as_str());
        output::data(&format!(
            "  failed    {}: {} (run {})",
            output::plain(&failed.title),
            output::plain(why),
            failed.run_id
        ));
    }
    for question in &digest.expired {
        output::data(&format!("  expired   {} ({})", output::plain(&question.title), question.id));
    }
    Ok(ExitCode::SUCCESS)
}

fn needs_a_server(backend: &Backend) -> Result<(), Failure> {
    if backend.is_remote() {
        return Ok(());
    }
    Err(Failure::new(ErrorCode::Unavailable, "no Toolyard runs for this home")
        .suggest("Start one with `toolyard up` in another terminal."))
}

async fn newest(backend: &mut Backend, limit: usize) -> Result<Vec<RunSummary>, Failure> {
    let params = RunsListParams { limit: Some(limit), counts: true, ..RunsListParams::default() };
    Ok(backend.call::<RunsList>(&params, None).await?.runs)
}

/// Prints runs as they change, the oldest first.
pub(super) async fn runs(global: &Global, backend: &mut Backend) -> Outcome {
    needs_a_server(backend)?;
    let mut seen: HashMap<RunId, (toolyard_protocol::RunStatus, u64)> = HashMap::new();
    let mut is_first = true;
    let mut feed = Feed::open(global).await?;
    loop {
        for run in newest(backend, WATCHED).await?.into_iter().rev() {
            let state = (run.status, run.counts.as_ref().map_or(0, |counts| counts.calls));
            let is_news = seen.insert(run.run_id, state) != Some(state);
            // A run that had ended before the watch began is not printed.
            if is_news && !(is_first && run.status.is_final()) {
                if global.json {
                    output::json(&run);
                } else {
                    output::data(&run_line(&run, Shape::Watch, terminal::size(), Paint::stdout()));
                }
            }
        }
        is_first = false;
        feed.changed().await?;
    }
}

/// Says when something has happened to a run. Its connection is its own, because a request that waits occupies one.
struct Feed {
    /// One pending signal is enough: the next read of the list sees everything that happened until then.
    news: Arc<Signal>,
    /// Why no more news will come.
    ended: JoinHandle<Failure>,
}

impl Feed {
    async fn open(global: &Global) -> Result<Self, Failure> {
        let mut backend = Backend::open(global, RequiredParts::Store).await?;
        let news = Arc::new(Signal::new());
        let told = news.clone();
        let params = FollowParams { wait_ms: Some(Count(MAX_WAIT.as_millis() as u64)) };
        let ended = tokio::spawn(async move {
            loop {
                let by_event = told.clone();
                let sink: EventSink = Arc::new(move |_| by_event.notify_one());
                match backend.call::<RunsFollow>(&params, Some(sink)).await {
                    // Between two requests nobody listens, so the list is read once more.
                    Ok(_) => told.notify_one(),
                    Err(failure) => return failure,
                }
            }
        });
        Ok(Self { news, ended })
    }

    /// Waits until something has happened, and a moment longer: events come in groups.
    async fn changed(&mut self) -> Result<(), Failure> {
        tokio::select! {
            () = self.news.notified() => {
                tokio::time::sleep(GATHERED).await;
                Ok(())
            }
            ended = &mut self.ended => Err(ended.unwrap_or_else(|_| {
                Failure::new(ErrorCode::InternalError, "watching the runs ended unexpectedly")
            })),
        }
    }
}

/// Prints log lines.
pub(super) async fn logs(global: &Global, args: &LogsArgs) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = tail(global, &mut backend, args).await;
    backend.close().await;
    outcome
}

async fn tail(global: &Global, backend: &mut Backend, args: &LogsArgs) -> Outcome {
    needs_a_server(backend)?;
    let mut params = TailParams { limit: Some(Count(args.lines.max(1))), ..TailParams::default() };
    loop {
        let tail = backend.call::<LogsTail>(&params, None).await?;
        if global.json {
            tail.lines.iter().for_each(output::json);
        } else {
            tail.lines.iter().for_each(|line| output::data(&output::plain(line)));
        }
        if params.cursor.is_none() && tail.lines.is_empty() && !global.json && !global.quiet {
            output::note("no log line yet; `log.level` in config.toml says what is logged");
        }
        if !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        params = TailParams { cursor: Some(Count(tail.cursor)), limit: Some(Count(LOG_LINES)), max_bytes: None };
        tokio::time::sleep(EVERY).await;
    }
}

/// Shows what the running Toolyard is doing, refreshed until interrupted.
pub(super) async fn top(global: &Global) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = refresh(global, &mut backend).await;
    backend.close().await;
    outcome
}

async fn refresh(global: &Global, backend: &mut Backend) -> Outcome {
    needs_a_server(backend)?;
    let mut feed = Feed::open(global).await?;
    let mut resized = tokio::signal::unix::signal(SignalKind::window_change()).map_err(|error| {
        Failure::new(ErrorCode::InternalError, format!("cannot watch the terminal's size: {error}"))
    })?;
    loop {
        let state = backend.call::<YardStatus>(&YardStatusParams { full: true }, None).await?;
        let runs = newest(backend, SHOWN).await?;
        let size = terminal::size();
        if global.json {
            output::json(&state);
        } else {
            let questions = backend.call::<ApprovalsList>(&ListParams::default(), None).await?.approvals;
            let lines = overview(&state, &questions, &runs, size);
            match size {
                // Each line ends by clearing its rest and the last one what is below: the screen does not flicker.
                Some(_) => output::screen(&format!("\u{1b}[H{}\u{1b}[K\u{1b}[J", lines.join("\u{1b}[K\r\n"))),
                None => output::data(&lines.join("\n")),
            }
        }
        // Without a terminal, the overview is printed once.
        if size.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            news = feed.changed() => news?,
            _ = resized.recv() => {}
        }
    }
}
