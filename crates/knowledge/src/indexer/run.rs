//! The work of one job: scan the vault, find new, changed and removed notes, and write them batch by batch. A file that
//! fails does not stop the others.
//!
//! Memory holds the list of files, one batch of rows, and the note that is being split, so memory use depends on the
//! largest note and not on the size of the vault. Written batches are kept when the job is stopped; the next job
//! continues from there.

use super::{
    Job, JobMode,
    batch::{Batch, BatchSizer, Piece, PiecePosition},
    prepare::{Prepared, unfinished},
    read::Reader,
    survey::{NoteFile, VaultListing},
};
use crate::{
    config::KnowledgeConfig,
    embed::{EmbedError, Embedder, EmbedderInfo},
    index::{
        FileRow, FileState, IndexError, IndexSpec, IndexWriter, NoteIndex, VersionInfo, WriteBatch, WriterStart, hash64,
    },
    note::ChunkSizes,
    sensitive::Guard,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::Failure;
use toolyard_vault::Vault;

/// Increased when notes are parsed or split differently, so that they are indexed again.
const RECIPE_VERSION: u32 = 3;

/// Why a job ended without success.
#[derive(Debug)]
pub enum JobError {
    /// The job was cancelled.
    Cancelled,
    /// The index failed.
    Index(IndexError),
    /// The vault failed.
    Vault(Failure),
    /// The length of the vectors changed during the job.
    DimensionsChanged,
    /// A thread panicked.
    Crashed,
}

impl From<IndexError> for JobError {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

/// The result of a finished job.
pub struct Outcome {
    /// The version, if there is a new one.
    pub version: Option<VersionInfo>,
    /// Number of chunks in the index, whether or not there is a new version.
    pub total_chunks: u64,
    /// Why some chunks have no vectors, if so.
    pub embedder: Option<EmbedError>,
}

/// The context of a job.
pub struct Worker {
    pub(super) vault: Arc<Vault>,
    pub(super) index: Arc<dyn NoteIndex>,
    pub(super) embedder: Option<Arc<dyn Embedder>>,
    /// Why there is no embedder although one is configured.
    pub(super) embedder_problem: Option<EmbedError>,
    pub(super) config: Arc<KnowledgeConfig>,
    pub(super) guard: Arc<Guard>,
    pub(super) job: Arc<Mutex<Job>>,
    pub(super) cancel: CancellationToken,
    /// Whether a writer was opened: its writes are kept, and a restarted job continues from them.
    pub(super) begun: AtomicBool,
    /// Called after every batch to store the job's record.
    pub(super) checkpoint: Box<dyn Fn(&Job) + Send + Sync>,
}

/// The progress of one run.
pub(super) struct Progress {
    pub(super) spec: IndexSpec,
    pub(super) pace: BatchSizer,
    /// Why no more chunks are embedded.
    pub(super) down: Option<EmbedError>,
    /// Number of chunks without vectors in the file that is being written in pieces.
    pub(super) waiting: u32,
}

impl Worker {
    pub(super) fn note(&self, change: impl FnOnce(&mut Job)) {
        change(&mut self.job.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The recipe by which this configuration splits notes.
    pub fn recipe(config: &KnowledgeConfig) -> String {
        let ChunkSizes { chars, overlap } = config.indexing.sizes();
        format!("v{RECIPE_VERSION}/{chars}/{overlap}")
    }

    /// Runs the whole job.
    pub async fn run(&self, mode: JobMode) -> Result<Outcome, JobError> {
        let (info, down) = match (&self.embedder, &self.embedder_problem) {
            (_, Some(problem)) => (None, Some(problem.clone())),
            (None, None) => (None, None),
            (Some(embedder), None) => match self.unless_cancelled(embedder.describe()).await? {
                Ok(info) => (Some(info), None),
                Err(error) => (None, Some(error)),
            },
        };
        let spec = self.spec(mode, info.as_ref(), down.is_some()).await?;
        let start = if mode == JobMode::Reindex { WriterStart::Fresh } else { WriterStart::Continue };
        let mut writer = self.index.write(&spec, start).await?;
        self.begun.store(true, Ordering::Relaxed);
        let known: HashMap<String, FileRow> =
            writer.files().await?.into_iter().map(|file| (file.path.clone(), file)).collect();
        let survey = self.survey().await?;
        let mut progress = Progress { pace: BatchSizer::new(spec.dimensions), spec, down, waiting: 0 };
        let recipe = hash64(&[progress.spec.recipe.as_bytes()]);
        let (mut batch, work) = plan(survey, known, mode, recipe, info.is_some(), &progress);
        self.note(|job| {
            // A restarted run counts from the beginning.
            *job = Job {
                total_files: work.len() as u64,
                done_files: 0,
                indexed_files: 0,
                removed_files: 0,
                written_chunks: 0,
                errors: Vec::new(),
                error_count: 0,
                ..job.clone()
            }
        });
        let is_remote = self.embedder.as_ref().is_some_and(|embedder| !embedder.is_local());
        let mut reader = Reader {
            vault: self.vault.clone(),
            config: self.config.clone(),
            guard: is_remote.then(|| self.guard.clone()),
            recipe,
            can_embed: info.is_some(),
            cancel: self.cancel.clone(),
            work: work.into_iter(),
            open: None,
        };
        while !reader.is_done() {
            let room = progress.pace.room();
            let filled = tokio::task::spawn_blocking(move || {
                reader.fill(&mut batch, room);
                (reader, batch)
            });
            (reader, batch) = filled.await.map_err(|_| JobError::Crashed)?;
            self.check()?;
            if batch.is_full(room) || batch.is_empty() {
                self.flush(&mut *writer, std::mem::take(&mut batch), &mut progress).await?;
            }
        }
        self.flush(&mut *writer, batch, &mut progress).await?;
        self.check()?;
        let version = if writer.is_changed() { Some(writer.complete().await?) } else { None };
        let total_chunks = match &version {
            Some(version) => version.chunks,
            None => self.index.current().await.ok().flatten().map_or(0, |reader| reader.info().chunks),
        };
        Ok(Outcome { version, total_chunks, embedder: progress.down })
    }

    fn check(&self) -> Result<(), JobError> {
        if self.cancel.is_cancelled() { Err(JobError::Cancelled) } else { Ok(()) }
    }

    /// Waits for a possibly slow operation, such as an embedding request, and stops waiting when the job is cancelled.
    pub(super) async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, JobError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(JobError::Cancelled),
            done = work => Ok(done),
        }
    }

    /// The specification of the index. While the embedder cannot be reached, an index with vectors keeps them.
    async fn spec(&self, mode: JobMode, info: Option<&EmbedderInfo>, is_down: bool) -> Result<IndexSpec, JobError> {
        let recipe = Self::recipe(&self.config);
        if let Some(info) = info {
            return Ok(IndexSpec { embedder: info.id.clone(), dimensions: info.dimensions, recipe });
        }
        if is_down {
            match self.index.current().await {
                Ok(Some(reader)) => return Ok(IndexSpec { recipe, ..reader.info().spec.clone() }),
                Ok(None) => {}
                // The index may have vectors, so only an explicit reindex may discard them.
                Err(error) if mode != JobMode::Reindex => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(IndexSpec { embedder: String::new(), dimensions: 0, recipe })
    }

    async fn survey(&self) -> Result<VaultListing, JobError> {
        let (vault, config, cancel) = (self.vault.clone(), self.config.clone(), self.cancel.clone());
        let surveyed = tokio::task::spawn_blocking(move || VaultListing::of(&vault, &config, &cancel));
        match surveyed.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) if self.cancel.is_cancelled() => Err(JobError::Cancelled),
            Ok(Err(failure)) => Err(JobError::Vault(failure)),
            Err(_) => Err(JobError::Crashed),
        }
    }

    /// Embeds and writes a batch. Files count as done when they are written, not when they are read.
    async fn flush(&self, writer: &mut dyn IndexWriter, batch: Batch, progress: &mut Progress) -> Result<(), JobError> {
        let looked = batch.looked;
        let mut pieces = batch.pieces;
        if progress.spec.dimensions > 0 && !pieces.is_empty() {
            self.add_vectors(writer, &mut pieces, progress).await?;
        }
        let mut write = WriteBatch { removed: batch.removed, touched: batch.touched, ..WriteBatch::default() };
        let removed = write.removed.len() as u64;
        let (mut indexed, mut troubled) = (0, Vec::new());
        for Piece { prepared: Prepared { file, chunks, .. }, place, old } in pieces {
            if matches!(file.state, FileState::Failed | FileState::Skipped) {
                troubled.push((file.path.clone(), file.reason.clone()));
            }
            // An identical file is not written again, because that would create a new version with the same content.
            if place == PiecePosition::Whole && old.as_ref() == Some(&file) {
                continue;
            }
            indexed += u64::from(
                file.state == FileState::Indexed && matches!(place, PiecePosition::Whole | PiecePosition::Last),
            );
            match place {
                PiecePosition::Whole => write.files.push(file),
                // Until its last piece is written, the file is recorded as unfinished.
                PiecePosition::First => write.files.push(unfinished(&file.path)),
                PiecePosition::Middle => {}
                PiecePosition::Last => write.touched.push(file),
            }
            write.chunks.extend(chunks);
        }
        let written = write.chunks.len() as u64;
        if !write.is_empty() {
            self.check()?;
            writer.put(write).await?;
        }
        let job = {
            let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
            troubled.iter().for_each(|(file, reason)| job.problem(file, reason));
            job.done_files += looked;
            job.indexed_files += indexed;
            job.removed_files += removed;
            job.written_chunks += written;
            job.clone()
        };
        (self.checkpoint)(&job);
        Ok(())
    }
}

/// The changes that do not depend on the notes' content, and the files that must be read.
fn plan(
    survey: VaultListing,
    mut known: HashMap<String, FileRow>,
    mode: JobMode,
    recipe: u64,
    can_embed: bool,
    progress: &Progress,
) -> (Batch, Vec<(NoteFile, Option<FileRow>)>) {
    let mut batch = Batch::default();
    batch.removed = survey.gone(&known);
    for file in survey.unreadable {
        let old = known.remove(&file.path);
        let piece = Piece { prepared: Prepared::without_chunks(file), place: PiecePosition::Whole, old };
        batch.push(piece, progress.pace.room());
    }
    let is_stale = |seen: &NoteFile, old: Option<&FileRow>| {
        old.is_none_or(|file| {
            mode != JobMode::Sync
                || file.size != seen.size
                || file.mtime_ms != seen.mtime_ms
                || file.recipe != recipe
                || (can_embed && file.unembedded > 0)
                // A file that could not be read before may be readable now, without a change of its size or time.
                || file.state == FileState::Failed
        })
    };
    let work = survey.seen.into_iter().filter_map(|seen| {
        let old = known.remove(seen.path.as_str());
        is_stale(&seen, old.as_ref()).then_some((seen, old))
    });
    let work = work.collect();
    (batch, work)
}
