//! `obsidian_rag_status`: the health of the index and the state of each note.

use super::{Args, Call, Tool, answer, index::wait_for, parse, reads};
use crate::{
    envelope::Health,
    index::FileState,
    indexer::{Job, JobMode},
    search::Totals,
    service::Knowledge,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::Output;
use toolyard_protocol::Failure;

/// Files in one answer unless asked otherwise,
const DEFAULT_FILES: usize = 100;
/// and at most.
const MAX_FILES: usize = 1_000;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Input {
    /// List files in this state too, with the reason: "indexed", "empty", "skipped", "failed", or "all".
    files: Option<FileFilter>,
    /// At most this many files (default 100).
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
    /// Leave out this many files first: the next page.
    offset: Option<usize>,
    /// Tell about this job too, the one that runs or one of the last: the job_id of obsidian_rag_index.
    #[schemars(length(max = 64))]
    job_id: Option<String>,
    /// Wait up to this many milliseconds for the end of that job, and not longer than the call's timeout allows.
    #[schemars(range(min = 0, max = 300_000))]
    wait_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FileFilter {
    Indexed,
    Empty,
    Skipped,
    Failed,
    All,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Data {
    plugin_health: Health,
    /// Notes that can be found.
    total_docs: u64,
    /// Their chunks.
    total_chunks: u64,
    /// When the index last equalled the vault (ISO 8601).
    last_sync: Option<String>,
    /// Notes that are new or changed since.
    unindexed_files: u64,
    /// Whether an Ollama server answers, used or not.
    ollama_status: &'static str,
    /// The job that runs.
    active_job: Option<ActiveJob>,
    /// The last job that ended, and how.
    last_job: Option<Job>,
    /// The job of job_id; null without one, and when it is not known any more.
    job: Option<Job>,
    index: Option<IndexData>,
    embedder: EmbedderData,
    /// Files by what became of them.
    files: FileCounts,
    /// Number of stored facts.
    facts: u64,
    /// The files that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_list: Option<FileList>,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ActiveJob {
    id: String,
    mode: JobMode,
    /// 0 to 1.
    progress: f64,
    done_files: u64,
    total_files: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct IndexData {
    /// The table's version.
    version: String,
    /// Counts complete versions.
    generation: u64,
    completed_at: String,
    /// Complete versions that are kept, the current one included.
    versions_kept: u64,
    embedder: String,
    dimensions: usize,
    /// Whether all vectors are in memory and searched exactly.
    vectors_in_memory: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EmbedderData {
    /// What is configured; empty for full text only, or when it cannot be asked.
    id: String,
    /// up, down, or none for full text only.
    status: &'static str,
}

#[derive(Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileCounts {
    indexed: u64,
    empty: u64,
    skipped: u64,
    failed: u64,
    /// Chunks that wait for a vector.
    unembedded_chunks: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileList {
    total: usize,
    offset: usize,
    files: Vec<FileData>,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileData {
    path: String,
    state: &'static str,
    /// Why it was left out, or what is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    chunks: u32,
}

pub(super) const TOOL: Tool = Tool {
    name: "obsidian_rag_status",
    define: || {
        reads::<Input, Data>(
            "Notes status",
            "Tells whether the user's notes can be searched, how fresh the index is, how far a running job is, and what \
                  became of each note. If unindexed_files is not 0 or the status is not healthy, suggest \
                  obsidian_rag_index.",
        )
    },
    run: |call, args| Box::pin(run(call, args)),
};

async fn run(call: Call<'_>, args: Args) -> Result<Output, Failure> {
    let input: Input = parse(args)?;
    let knowledge = call.knowledge;
    let ollama_up = knowledge.ollama_is_up().await;
    // Read before the index, so that a job reported as done is visible in the index.
    let asked_for = match &input.job_id {
        Some(id) => knowledge.jobs.record().find(id).cloned(),
        None => None,
    };
    let job = match asked_for {
        Some(job) => Some(wait_for(&call, job, input.wait_ms.unwrap_or(0)).await),
        None => None,
    };
    let record = knowledge.jobs.record();
    let library = knowledge.reopened().await;
    let files = match &library {
        Ok(library) => knowledge.files(library).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    // One look at the vault is enough for both.
    let unindexed = knowledge.unindexed(&files).await.unwrap_or(0);
    let (health, problem) = knowledge.judge(library.clone()).await.health();
    let library = library.ok();
    let totals: Totals = library.as_ref().map(|library| library.totals).unwrap_or_default();
    let active_job = record.running().map(|job| ActiveJob {
        id: job.id.clone(),
        mode: job.mode,
        progress: (job.progress() * 1e4).round() / 1e4,
        done_files: job.done_files,
        total_files: job.total_files,
    });
    let index = match &library {
        Some(library) => {
            let info = library.info();
            Some(IndexData {
                version: info.version.clone(),
                generation: info.generation,
                completed_at: info.completed_at.to_string(),
                versions_kept: knowledge.index.versions().await.map_or(1, |versions| versions.len() as u64),
                embedder: info.spec.embedder.clone(),
                dimensions: info.spec.dimensions,
                vectors_in_memory: library.vectors.is_some(),
            })
        }
        None => None,
    };
    let embedder = match knowledge.embedder_info().await {
        None => EmbedderData { id: String::new(), status: "none" },
        Some(Ok(info)) => EmbedderData { id: info.id, status: "up" },
        Some(Err(_)) => EmbedderData { id: String::new(), status: "down" },
    };
    let meta = knowledge.meta(call.started, library.as_deref(), 0);
    let data = Data {
        plugin_health: health,
        total_docs: totals.indexed,
        total_chunks: library.as_ref().map_or(0, |library| library.info().chunks),
        last_sync: last_sync(record.last_sync, library.as_ref().map(|l| l.info().completed_at)),
        unindexed_files: unindexed,
        ollama_status: if ollama_up { "up" } else { "down" },
        active_job,
        last_job: record.last_ended().cloned(),
        job,
        index,
        embedder,
        files: FileCounts {
            indexed: totals.indexed,
            empty: totals.empty,
            skipped: totals.skipped,
            failed: totals.failed,
            unembedded_chunks: totals.unembedded,
        },
        facts: knowledge.facts.len().unwrap_or(0) as u64,
        file_list: input.files.map(|wanted| list(&call, &files, wanted, &input)),
    };
    let message = format!("{}: {} notes, {unindexed} to be indexed", health.as_str(), data.total_docs);
    answer(health, Some(data), problem, meta, message)
}

fn last_sync(recorded: Option<Timestamp>, completed: Option<Timestamp>) -> Option<String> {
    recorded.max(completed).map(|time| time.to_string())
}

/// Only files that the caller may see are listed.
fn list(call: &Call<'_>, files: &[crate::index::FileRow], wanted: FileFilter, input: &Input) -> FileList {
    let state = match wanted {
        FileFilter::Indexed => Some(FileState::Indexed),
        FileFilter::Empty => Some(FileState::Empty),
        FileFilter::Skipped => Some(FileState::Skipped),
        FileFilter::Failed => Some(FileState::Failed),
        FileFilter::All => None,
    };
    let filter = call.knowledge.paths_of(&call.call.policy.sandbox);
    let mut found: Vec<_> = Knowledge::in_state(files, state);
    found.retain(|file| filter.allows(&file.path));
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let offset = input.offset.unwrap_or(0).min(found.len());
    let limit = input.limit.unwrap_or(DEFAULT_FILES).min(MAX_FILES);
    let page = found.iter().skip(offset).take(limit).map(|file| FileData {
        path: file.path.clone(),
        state: file.state.as_str(),
        reason: file.reason.clone(),
        chunks: file.chunks,
    });
    FileList { total: found.len(), offset, files: page.collect() }
}
