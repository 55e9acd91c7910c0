//! `toolyard status`, and `toolyard` without a command: the status and what to do next. Starts and creates nothing.

use super::{Outcome, vault};
use crate::{
    backend,
    cli::Global,
    config::{self, Resolved},
    notes, output,
    terminal::counted,
};
use serde::Serialize;
use std::process::ExitCode;
use toolyard_client::local::LocalClient;
use toolyard_knowledge::{
    envelope::{Envelope, Health},
    tools::status::{self, Status},
};
use toolyard_protocol::{Failure, WorkspaceId};
use toolyard_service::{
    local::{ToolsCall, YardStatus, YardStatusParams},
    sessions::main_key,
};

/// The status, as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusReport {
    running: bool,
    /// The address of the running Toolyard.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u64>,
    version: &'static str,
    home: String,
    vault: String,
    index: Index,
    /// The session that a script names in `tools.invoke` and `tools.effective`: the one in use, else the main one.
    session_key: String,
    /// Calls that wait for a person's answer. Unknown while nothing runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_questions: Option<u64>,
    /// What to do next, the most useful first.
    next: Vec<String>,
}

/// The state of the notes' index.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    state: IndexState,
    /// `healthy`, `degraded` or `unavailable`, as the running Toolyard reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<Health>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<u64>,
    /// Notes done and in all, while they are being indexed.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum IndexState {
    /// Notes are not indexed: `knowledge.enabled` is false.
    Off,
    Missing,
    Indexing,
    Built,
}

pub(super) async fn run(global: &Global) -> Outcome {
    let resolved = config::resolve(global)?;
    let standing = match backend::running(&resolved, global).await? {
        Some(client) => of_running(&resolved, client).await?,
        None => at_rest(&resolved),
    };
    if global.json {
        output::json(&standing);
    } else {
        show(&standing);
    }
    Ok(ExitCode::SUCCESS)
}

async fn of_running(resolved: &Resolved, mut client: LocalClient) -> Result<StatusReport, Failure> {
    let status = client.call::<YardStatus>(&YardStatusParams { full: true }, None).await?;
    let index = if resolved.config.knowledge.enabled {
        let params = vault::request::<Status>(&status::Input::default())?;
        match vault::read::<Status>(client.call::<ToolsCall>(&params, None).await?.result) {
            Ok(envelope) => Index::read(envelope),
            // A failure here concerns one row; the other rows are still shown.
            Err(failure) => {
                tracing::warn!(%failure, "the status of the notes' index could not be read");
                Index::of(IndexState::Missing)
            }
        }
    } else {
        Index::of(IndexState::Off)
    };
    let open_questions = status.open_questions;
    Ok(StatusReport {
        running: true,
        url: resolved.home.announced().map(|instance| instance.url),
        pid: Some(status.process.pid.into()),
        version: env!("CARGO_PKG_VERSION"),
        home: resolved.home.path().display().to_string(),
        vault: status.process.vault,
        session_key: status.session_key.unwrap_or_else(|| main_key(&WorkspaceId::default())),
        next: next(true, index.state, open_questions.unwrap_or_default()),
        index,
        open_questions,
    })
}

fn at_rest(resolved: &Resolved) -> StatusReport {
    let state = match (resolved.config.knowledge.enabled, notes::has_index(&resolved.config.knowledge, resolved)) {
        (false, _) => IndexState::Off,
        (true, true) => IndexState::Built,
        (true, false) => IndexState::Missing,
    };
    StatusReport {
        running: false,
        url: None,
        pid: None,
        version: env!("CARGO_PKG_VERSION"),
        home: resolved.home.path().display().to_string(),
        vault: resolved.vault.display().to_string(),
        index: Index::of(state),
        session_key: main_key(&WorkspaceId::default()),
        open_questions: None,
        next: next(false, state, 0),
    }
}

impl Index {
    fn of(state: IndexState) -> Self {
        Self { state, health: None, notes: None, chunks: None, progress: None }
    }

    fn read(envelope: Envelope<status::Data>) -> Self {
        let health = Some(envelope.status);
        let Some(data) = envelope.data else { return Self { health, ..Self::of(IndexState::Missing) } };
        let state = match (&data.active_job, &data.index) {
            (Some(_), _) => IndexState::Indexing,
            (None, None) => IndexState::Missing,
            (None, Some(_)) => IndexState::Built,
        };
        Self {
            state,
            health,
            notes: Some(data.files.indexed),
            chunks: Some(data.total_chunks),
            progress: data.active_job.map(|job| (job.done_files, job.total_files)),
        }
    }

    fn words(&self) -> String {
        let counts = match (self.notes, self.chunks) {
            (Some(notes), Some(chunks)) => format!("{}, {}", counted(notes, "note"), counted(chunks, "chunk")),
            _ => "there".to_owned(),
        };
        match (self.state, self.progress) {
            (IndexState::Off, _) => "off: knowledge.enabled is false".to_owned(),
            (IndexState::Missing, _) => "none yet".to_owned(),
            (IndexState::Indexing, Some((done, all))) => format!("being made: {done} of {}", counted(all, "note")),
            (IndexState::Indexing, None) => "being made".to_owned(),
            (IndexState::Built, _) => match &self.health {
                Some(health) => format!("{counts}, {}", health.as_str()),
                None => counts,
            },
        }
    }
}

fn next(running: bool, index: IndexState, questions: u64) -> Vec<String> {
    let mut steps = Vec::new();
    if questions > 0 {
        steps.push("answer the open questions: toolyard approvals list".to_owned());
    }
    if !running {
        steps.push("toolyard up".to_owned());
    }
    if running && index == IndexState::Missing {
        steps.push("toolyard vault index".to_owned());
    }
    if index == IndexState::Built {
        steps.push("toolyard vault search WORDS".to_owned());
    }
    steps.push("toolyard tools list".to_owned());
    steps
}

fn show(standing: &StatusReport) {
    let running = match (&standing.url, standing.pid) {
        (Some(url), Some(pid)) => format!("yes, at {url} (process {pid})"),
        _ if standing.running => "yes".to_owned(),
        _ => "no".to_owned(),
    };
    let questions = match standing.open_questions {
        None => "none known".to_owned(),
        Some(0) => "none".to_owned(),
        Some(open) => open.to_string(),
    };
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    output::data(&output::table(&[
        row("running", running),
        row("home", standing.home.clone()),
        row("vault", standing.vault.clone()),
        row("index", standing.index.words()),
        row("session", standing.session_key.clone()),
        row("questions", questions),
        row("next", standing.next.join("; ")),
    ]));
}
