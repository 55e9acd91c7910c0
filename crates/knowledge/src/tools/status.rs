//! `obsidian_rag_status`: the health of the index and the state of each note.
// Comments on these types become descriptions in a schema that models read, so not every field has one.
#![allow(missing_docs)]

use super::{Args, Call, NotesTool, Tool, answer, index::wait_for, parse, reads};
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

/// Default number of files in a response.
const DEFAULT_FILES: usize = 100;
/// Maximum number of files in a response.
const MAX_FILES: usize = 1_000;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    /// Also list files in this state, with the reason: "indexed", "empty", "skipped", "failed", or "all".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FileFilter>,
    /// Maximum number of files (default 100).
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Number of files to skip, for paging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Also report this job, running or recent: the job_id of obsidian_rag_index.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Wait up to this many milliseconds for the end of that job, limited by the call's timeout.
    #[schemars(range(min = 0, max = 300_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileFilter {
    Indexed,
    Empty,
    Skipped,
    Failed,
    All,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Data {
    pub plugin_health: Health,
    /// Number of searchable notes.
    pub total_docs: u64,
    /// Number of their chunks.
    pub total_chunks: u64,
    /// When the index was last up to date with the vault (ISO 8601).
    pub last_sync: Option<String>,
    /// Number of notes that are new or changed since.
    pub unindexed_files: u64,
    /// Whether an Ollama server responds, whether or not it is used.
    pub ollama_status: String,
    /// The running job.
    pub active_job: Option<ActiveJob>,
    /// The last job that ended.
    pub last_job: Option<Job>,
    /// The job with job_id; null without job_id, and when the job is no longer known.
    pub job: Option<Job>,
    pub index: Option<IndexData>,
    pub embedder: EmbedderData,
    /// Number of files by state.
    pub files: FileCounts,
    /// Number of stored facts.
    pub facts: u64,
    /// The requested files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_list: Option<FileList>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ActiveJob {
    pub id: String,
    pub mode: JobMode,
    /// 0 to 1.
    pub progress: f64,
    pub done_files: u64,
    pub total_files: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct IndexData {
    /// The table's version.
    pub version: String,
    /// Number of the complete version.
    pub generation: u64,
    pub completed_at: String,
    /// Number of complete versions kept, including the current one.
    pub versions_kept: u64,
    pub embedder: String,
    pub dimensions: usize,
    /// Whether all vectors are in memory and searched exactly.
    pub vectors_in_memory: bool,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct EmbedderData {
    /// The configured embedder; empty for full text only, or when it cannot be determined.
    pub id: String,
    /// up, down, or none for full text only.
    pub status: String,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FileCounts {
    pub indexed: u64,
    pub empty: u64,
    pub skipped: u64,
    pub failed: u64,
    /// Number of chunks without a vector.
    pub unembedded_chunks: u64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FileList {
    pub total: usize,
    pub offset: usize,
    pub files: Vec<FileData>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FileData {
    pub path: String,
    pub state: String,
    /// Why the file was skipped, or what is missing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub chunks: u32,
}

/// The tool `obsidian_rag_status`.
pub struct Status;

impl NotesTool for Status {
    const NAME: &'static str = "obsidian_rag_status";
    type Input = Input;
    type Data = Data;
}

pub(super) const TOOL: Tool = Tool {
    name: Status::NAME,
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
    // One scan of the vault serves both.
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
        None => EmbedderData { id: String::new(), status: "none".to_owned() },
        Some(Ok(info)) => EmbedderData { id: info.id, status: "up".to_owned() },
        Some(Err(_)) => EmbedderData { id: String::new(), status: "down".to_owned() },
    };
    let meta = knowledge.meta(call.started, library.as_deref(), 0);
    let data = Data {
        plugin_health: health,
        total_docs: totals.indexed,
        total_chunks: library.as_ref().map_or(0, |library| library.info().chunks),
        last_sync: last_sync(record.last_sync, library.as_ref().map(|l| l.info().completed_at)),
        unindexed_files: unindexed,
        ollama_status: (if ollama_up { "up" } else { "down" }).to_owned(),
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
        state: file.state.as_str().to_owned(),
        reason: file.reason.clone(),
        chunks: file.chunks,
    });
    FileList { total: found.len(), offset, files: page.collect() }
}
