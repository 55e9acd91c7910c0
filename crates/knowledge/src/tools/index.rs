//! `obsidian_rag_index`: brings the index up to date, in the background.
// Comments on these types become descriptions in a schema that models read, so not every field has one.
#![allow(missing_docs)]

use super::{Args, Call, NotesTool, Tool, answer, parse, writes};
use crate::{
    envelope::{Health, Problem, ProblemCode},
    indexer::{FileProblem, Job, JobMode, JobStart, JobState},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use std::time::Duration;
use toolyard_engine::Output;
use toolyard_protocol::Failure;

/// Maximum time that a call waits for its job.
const MAX_WAIT_MS: u64 = 300_000;
/// Interval of progress reports while a call waits.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// A waiting call responds this long before its deadline.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for a cancelled job to stop, which takes as long as the current write.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Builds the first index; later, reads the content of every note.
    Full,
    /// Indexes only changes (default).
    Sync,
    /// Builds a new index from nothing; the old one is searched until it is done.
    Reindex,
    /// Returns to the previous complete version.
    Rollback,
    /// Cancels the running job; the next one continues where it stopped.
    Cancel,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// "full" for the first index, "sync" for changes since then, "reindex" to rebuild it, "rollback" to return to the
    /// previous version, "cancel" to cancel the running job.
    pub mode: Mode,
    /// Wait up to this many milliseconds for the job, limited by the call's timeout; without it the call returns at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 300_000))]
    pub wait_ms: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Data {
    /// Poll obsidian_rag_status with this job_id until the state of its job is not running.
    pub job_id: Option<String>,
    /// running, done, cancelled, failed or interrupted; "rolled-back" after a rollback.
    pub state: String,
    /// Whether this call started the job; false when another one was already running.
    pub started: bool,
    /// Number of notes indexed so far.
    pub indexed_files: u64,
    /// Number of notes removed from the index.
    pub removed_files: u64,
    /// Number of chunks in the index when done.
    pub total_chunks: u64,
    /// Number of chunks that had to be embedded.
    pub embedded_chunks: u64,
    /// Duration so far, in milliseconds.
    pub duration_ms: u64,
    /// Problems with single notes; the others are still indexed.
    pub errors: Vec<FileProblem>,
    /// Number of notes with problems.
    pub error_count: u64,
}

/// The tool `obsidian_rag_index`.
pub struct Index;

impl NotesTool for Index {
    const NAME: &'static str = "obsidian_rag_index";
    type Input = Input;
    type Data = Data;
}

pub(super) const TOOL: Tool = Tool {
    name: Index::NAME,
    define: || {
        writes::<Input, Data>("Index notes", "Brings the index of the user's notes up to date. Runs in the background: the answer comes at once with a \
                  job_id, and obsidian_rag_status tells how far it is. Use mode sync, or full when there is no index yet; \
                  reindex only when the index is damaged or the embedding model changed. Notes are never changed.", &["index.write"]).permissions(&["vault:read", "index:write"])
    },
    run: |call, args| Box::pin(run(call, args)),
};

async fn run(call: Call<'_>, args: Args) -> Result<Output, Failure> {
    let input: Input = parse(args)?;
    let mode = match input.mode {
        Mode::Full => JobMode::Full,
        Mode::Sync => JobMode::Sync,
        Mode::Reindex => JobMode::Reindex,
        Mode::Rollback => return rollback(call).await,
        Mode::Cancel => return cancel(call).await,
    };
    let started = match call.knowledge.start(mode) {
        Ok(started) => started,
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    let job = wait_for(&call, started.job().clone(), input.wait_ms.unwrap_or(0)).await;
    tell(&call, job, matches!(started, JobStart::New(_))).await
}

/// Waits for a job to end and reports progress, as long as the deadline allows.
pub(super) async fn wait_for(call: &Call<'_>, mut job: Job, wait_ms: u64) -> Job {
    let jobs = &call.knowledge.jobs;
    let wait = Duration::from_millis(wait_ms.min(MAX_WAIT_MS)).min(time_left(call));
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        job = jobs.record().find(&job.id).cloned().unwrap_or(job);
        let now = tokio::time::Instant::now();
        if job.state != JobState::Running || now >= deadline || call.context.cancel.is_cancelled() {
            return job;
        }
        let payload = json!({"done": job.done_files, "total": job.total_files, "chunks": job.written_chunks});
        let payload: Option<Map<_, _>> = payload.as_object().cloned();
        call.context.progress.report("indexing", payload);
        tokio::time::sleep((deadline - now).min(TELL_EVERY)).await;
    }
}

/// How long a call may wait and still respond before its deadline.
fn time_left(call: &Call<'_>) -> Duration {
    let Some(deadline) = call.call.deadline_at else { return Duration::MAX };
    let left = deadline.duration_since(jiff::Timestamp::now());
    Duration::try_from(left).unwrap_or_default().saturating_sub(ANSWER_WITHIN)
}

async fn tell(call: &Call<'_>, job: Job, started: bool) -> Result<Output, Failure> {
    let knowledge = call.knowledge;
    if job.state == JobState::Done
        && let Err(problem) = knowledge.refresh().await
    {
        tracing::warn!(problem = problem.message, "the new version of the index could not be loaded");
    }
    let library = knowledge.library().await;
    let total = library.as_ref().map_or(job.written_chunks, |library| library.info().chunks);
    let meta = knowledge.meta(call.started, library.as_deref().ok(), 0);
    let problem = match job.state {
        JobState::Failed | JobState::Interrupted => Some(
            knowledge
                .jobs
                .problem()
                .unwrap_or_else(|| Problem::indexer("The indexer stopped before it was done.", true)),
        ),
        _ => None,
    };
    let (status, problem) = match problem {
        // By the error matrix a failed indexer is unavailable, even if the last version can still be searched.
        Some(problem) => (problem.status(), Some(problem)),
        None if job.state == JobState::Running => (Health::Healthy, None),
        None => {
            let (health, problem) = knowledge.observed(library).await.health();
            (health, problem)
        }
    };
    let message = match job.state {
        JobState::Running => format!("Indexing: {} of {} notes", job.done_files, job.total_files),
        JobState::Done => format!("Indexed {} notes, {total} chunks in all", job.indexed_files),
        _ => "The indexer stopped".to_owned(),
    };
    answer(status, Some(data(&job, total, started)), problem, meta, message)
}

fn data(job: &Job, total_chunks: u64, started: bool) -> Data {
    Data {
        job_id: Some(job.id.clone()),
        state: job.state.as_str().to_owned(),
        started,
        indexed_files: job.indexed_files,
        removed_files: job.removed_files,
        total_chunks,
        embedded_chunks: job.embedded_chunks,
        duration_ms: job.duration_ms,
        errors: job.errors.clone(),
        error_count: job.error_count,
    }
}

async fn rollback(call: Call<'_>) -> Result<Output, Failure> {
    let info = match call.knowledge.rollback().await {
        Ok(info) => info,
        Err(problem) if problem.code == ProblemCode::IndexNotFound => return nothing_earlier(call, problem).await,
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    let library = call.knowledge.library().await;
    let meta = call.knowledge.meta(call.started, library.as_deref().ok(), 0);
    let (health, problem) = call.knowledge.observed(library).await.health();
    let data = Data {
        job_id: None,
        state: "rolled-back".to_owned(),
        started: false,
        indexed_files: 0,
        removed_files: 0,
        total_chunks: info.chunks,
        embedded_chunks: 0,
        duration_ms: call.started.elapsed().as_millis() as u64,
        errors: Vec::new(),
        error_count: 0,
    };
    answer(health, Some(data), problem, meta, format!("Back at the version of {}", info.completed_at))
}

/// There is no earlier version. This does not concern the current index: the health does not change.
async fn nothing_earlier(call: Call<'_>, problem: Problem) -> Result<Output, Failure> {
    let library = call.knowledge.library().await;
    let meta = call.knowledge.meta(call.started, library.as_deref().ok(), 0);
    match call.knowledge.observed(library).await.health() {
        (Health::Unavailable, Some(why)) => answer::<Data>(Health::Unavailable, None, Some(why), meta, ""),
        (health, _) => answer::<Data>(health, None, Some(problem), meta, ""),
    }
}

async fn cancel(call: Call<'_>) -> Result<Output, Failure> {
    let jobs = &call.knowledge.jobs;
    let asked = match jobs.cancel() {
        Some(job) => Ok(Some(job)),
        None => jobs.cancel_elsewhere(),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    match asked {
        Some(job) => {
            let wait = u64::try_from(STOP_WITHIN.as_millis()).unwrap_or(MAX_WAIT_MS);
            let job = wait_for(&call, job, wait).await;
            tell(&call, job, false).await
        }
        None => {
            let library = call.knowledge.library().await;
            let meta = call.knowledge.meta(call.started, library.as_deref().ok(), 0);
            let (health, problem) = call.knowledge.observed(library).await.health();
            match jobs.record().last_ended() {
                Some(job) => {
                    let total = job.total_chunks;
                    answer(health, Some(data(job, total, false)), problem, meta, "No job was running")
                }
                None => answer::<Data>(health, None, problem, meta, "No job was running"),
            }
        }
    }
}
