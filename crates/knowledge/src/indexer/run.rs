//! The work of one job: look at the vault, find what is new, changed or gone, and write it batch by batch. Memory is
//! bounded by the batch, whatever the size of the vault. One bad file never stops the rest.

use super::{
    Job, JobMode,
    prepare::{Prepared, Stat, blank_file},
};
use crate::{
    config::KnowledgeConfig,
    embed::{EmbedError, Embedder, EmbedderInfo, Purpose},
    index::{
        FileRow, FileState, IndexError, IndexSpec, IndexWriter, NoteIndex, Start, VersionInfo, WriteBatch, hash64,
    },
    note::{ChunkSizes, Note, day_of_millis},
    scope::Scope,
    sensitive::Guard,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::Failure;
use toolyard_vault::{Surveyed, Vault, VaultPath};

/// A batch is written when it has this many chunks,
const BATCH_CHUNKS: usize = 4_096;
/// or this many bytes of text,
const BATCH_BYTES: usize = 8 << 20;
/// or this many files.
const BATCH_FILES: usize = 2_000;
/// Files that are read and cut in one go on a blocking thread.
const READ_AHEAD: usize = 64;
/// A NUL byte this early marks a file as binary.
const BINARY_PROBE: usize = 8_192;
/// Changes when notes are cut or read in another way, so that they are indexed again.
const RECIPE_VERSION: u32 = 2;

/// How a job ended, other than well.
#[derive(Debug)]
pub enum JobError {
    /// It was told to stop.
    Cancelled,
    /// The index.
    Index(IndexError),
    /// The vault.
    Vault(Failure),
    /// The vectors have another length than they had at the beginning.
    DimensionsChanged,
    /// A thread went down.
    Crashed,
}

impl From<IndexError> for JobError {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

/// What a finished job brought.
pub struct Outcome {
    /// The version, if there is a new one.
    pub version: Option<VersionInfo>,
    /// Why some chunks have no vectors, if so.
    pub embedder: Option<EmbedError>,
}

/// What a job works with.
pub struct Worker {
    pub(super) vault: Arc<Vault>,
    pub(super) index: Arc<dyn NoteIndex>,
    pub(super) embedder: Option<Arc<dyn Embedder>>,
    pub(super) config: Arc<KnowledgeConfig>,
    pub(super) guard: Arc<Guard>,
    pub(super) job: Arc<Mutex<Job>>,
    pub(super) cancel: CancellationToken,
    /// Called after every batch, to keep the job's record.
    pub(super) checkpoint: Box<dyn Fn(&Job) + Send + Sync>,
}

/// A file as the survey saw it.
struct Seen {
    path: VaultPath,
    size: u64,
    mtime_ms: i64,
}

/// What came of reading a file.
enum Read {
    Prepared(Box<Prepared>),
    /// Only its time changed.
    Touched(Box<FileRow>),
    /// It went away meanwhile.
    Gone(String),
}

impl Worker {
    fn note(&self, change: impl FnOnce(&mut Job)) {
        change(&mut self.job.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// How notes are cut under this configuration.
    pub fn recipe(config: &KnowledgeConfig) -> String {
        let ChunkSizes { chars, overlap } = config.indexing.sizes();
        format!("v{RECIPE_VERSION}/{chars}/{overlap}")
    }

    /// Does the whole job.
    pub async fn run(&self, mode: JobMode) -> Result<Outcome, JobError> {
        let (info, mut down) = match &self.embedder {
            None => (None, None),
            Some(embedder) => match embedder.describe().await {
                Ok(info) => (Some(info), None),
                Err(error) => (None, Some(error)),
            },
        };
        let spec = self.spec(info.as_ref(), down.is_some()).await?;
        let start = if mode == JobMode::Reindex { Start::Fresh } else { Start::Continue };
        let mut writer = self.index.write(&spec, start).await?;
        let known: HashMap<String, FileRow> =
            writer.files().await?.into_iter().map(|file| (file.path.clone(), file)).collect();
        let (seen, unreadable) = self.survey().await?;
        let recipe = hash64(&[spec.recipe.as_bytes()]);
        let can_embed = info.is_some();
        let stale = |seen: &Seen| {
            known.get(seen.path.as_str()).is_none_or(|file| {
                mode != JobMode::Sync
                    || file.size != seen.size
                    || file.mtime_ms != seen.mtime_ms
                    || file.recipe != recipe
                    || (can_embed && file.unembedded > 0)
                    // What could not be read may be readable now, without any trace on the file.
                    || file.state == FileState::Failed
            })
        };
        let mut removed: Vec<String> = {
            let present: std::collections::HashSet<&str> =
                seen.iter().map(|s| s.path.as_str()).chain(unreadable.iter().map(|f| f.path.as_str())).collect();
            known.keys().filter(|path| !present.contains(path.as_str())).cloned().collect()
        };
        removed.sort_unstable();
        let work: Vec<Seen> = seen.into_iter().filter(stale).collect();
        self.note(|job| job.total_files = work.len() as u64);

        let mut batch = Batch { files: Vec::new(), removed, touched: Vec::new(), chunks: 0, bytes: 0 };
        for file in unreadable {
            self.note(|job| job.problem(&file.path, &file.reason));
            if known.get(&file.path) != Some(&file) {
                batch.files.push(Prepared::without_chunks(file));
            }
        }
        let mut work = work.into_iter().peekable();
        while work.peek().is_some() {
            self.check()?;
            let part: Vec<(Seen, Option<FileRow>)> = work
                .by_ref()
                .take(READ_AHEAD)
                .map(|seen| {
                    let old = known.get(seen.path.as_str()).cloned();
                    (seen, old)
                })
                .collect();
            let count = part.len() as u64;
            for read in self.read(part, recipe, can_embed).await? {
                match read {
                    Read::Gone(path) => batch.removed.push(path),
                    Read::Touched(file) => batch.touched.push(*file),
                    Read::Prepared(prepared) => {
                        if matches!(prepared.file.state, FileState::Failed | FileState::Skipped) {
                            self.note(|job| job.problem(&prepared.file.path, &prepared.file.reason));
                        }
                        if prepared.chunks.is_empty() && known.get(&prepared.file.path) == Some(&prepared.file) {
                            continue;
                        }
                        batch.chunks += prepared.chunks.len();
                        batch.bytes += prepared
                            .chunks
                            .iter()
                            .map(|c| c.text.len() + c.terms.len() + c.opaque.len())
                            .sum::<usize>();
                        batch.files.push(*prepared);
                    }
                }
            }
            self.note(|job| job.done_files += count);
            if batch.is_full() {
                self.flush(&mut *writer, &mut batch, &spec, &mut down).await?;
            }
        }
        self.check()?;
        self.flush(&mut *writer, &mut batch, &spec, &mut down).await?;
        let version = if writer.is_changed() { Some(writer.complete().await?) } else { None };
        Ok(Outcome { version, embedder: down })
    }

    fn check(&self) -> Result<(), JobError> {
        if self.cancel.is_cancelled() { Err(JobError::Cancelled) } else { Ok(()) }
    }

    /// What the index is made with. While the embedder cannot be asked, an index that has vectors keeps them.
    async fn spec(&self, info: Option<&EmbedderInfo>, is_down: bool) -> Result<IndexSpec, JobError> {
        let recipe = Self::recipe(&self.config);
        if let Some(info) = info {
            return Ok(IndexSpec { embedder: info.id.clone(), dimensions: info.dimensions, recipe });
        }
        if is_down && let Ok(Some(reader)) = self.index.current().await {
            return Ok(IndexSpec { recipe, ..reader.info().spec.clone() });
        }
        Ok(IndexSpec { embedder: String::new(), dimensions: 0, recipe })
    }

    async fn survey(&self) -> Result<(Vec<Seen>, Vec<FileRow>), JobError> {
        let (vault, config, cancel) = (self.vault.clone(), self.config.clone(), self.cancel.clone());
        let surveyed = tokio::task::spawn_blocking(move || {
            let scope = Scope::read(vault.root(), &config.indexing);
            let (mut seen, mut unreadable) = (Vec::new(), Vec::new());
            vault.survey(&cancel, &mut |folder| scope.enters(folder), &mut |found| match found {
                Surveyed::File { path, size, mtime_ms } if scope.takes(&path) => {
                    seen.push(Seen { path, size, mtime_ms });
                }
                Surveyed::File { .. } => {}
                Surveyed::Unreadable { path, reason } if scope.misses(&path) => {
                    unreadable.push(blank_file(path, FileState::Failed, reason));
                }
                Surveyed::Unreadable { .. } => {}
            })?;
            Ok::<_, Failure>((seen, unreadable))
        });
        match surveyed.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) if self.cancel.is_cancelled() => Err(JobError::Cancelled),
            Ok(Err(failure)) => Err(JobError::Vault(failure)),
            Err(_) => Err(JobError::Crashed),
        }
    }

    /// Reads and cuts a few files on a blocking thread.
    async fn read(
        &self,
        part: Vec<(Seen, Option<FileRow>)>,
        recipe: u64,
        can_embed: bool,
    ) -> Result<Vec<Read>, JobError> {
        let (vault, config, guard) = (self.vault.clone(), self.config.clone(), self.guard.clone());
        let is_remote = self.embedder.as_ref().is_some_and(|embedder| !embedder.is_local());
        let read = tokio::task::spawn_blocking(move || {
            let guard = is_remote.then_some(&*guard);
            part.into_iter()
                .map(|(seen, old)| read_file(&vault, &config, guard, seen, old, recipe, can_embed))
                .collect()
        });
        read.await.map_err(|_| JobError::Crashed)
    }

    async fn flush(
        &self,
        writer: &mut dyn IndexWriter,
        batch: &mut Batch,
        spec: &IndexSpec,
        down: &mut Option<EmbedError>,
    ) -> Result<(), JobError> {
        let taken = std::mem::take(batch);
        if taken.is_empty() {
            return Ok(());
        }
        let mut files = taken.files;
        if spec.dimensions > 0 {
            self.add_vectors(writer, &mut files, spec, down).await?;
        }
        let mut write = WriteBatch { removed: taken.removed, touched: taken.touched, ..WriteBatch::default() };
        let (mut indexed, removed) = (0, write.removed.len() as u64);
        for prepared in files {
            indexed += u64::from(prepared.file.state == FileState::Indexed);
            write.files.push(prepared.file);
            write.chunks.extend(prepared.chunks);
        }
        let chunks = write.chunks.len() as u64;
        self.check()?;
        writer.put(write).await?;
        let job = {
            let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
            job.indexed_files += indexed;
            job.removed_files += removed;
            job.written_chunks += chunks;
            job.clone()
        };
        (self.checkpoint)(&job);
        Ok(())
    }

    /// Gives every chunk its vector: one that is known already, or a new one.
    async fn add_vectors(
        &self,
        writer: &dyn IndexWriter,
        files: &mut [Prepared],
        spec: &IndexSpec,
        down: &mut Option<EmbedError>,
    ) -> Result<(), JobError> {
        let mut hashes: Vec<u64> = files.iter().flat_map(|f| &f.chunks).map(|c| c.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let mut known = writer.known_vectors(&hashes).await?;
        let mut wanted: Vec<(u64, String)> = Vec::new();
        for prepared in files.iter_mut() {
            for (chunk, input) in prepared.chunks.iter().zip(&mut prepared.inputs) {
                if !known.contains_key(&chunk.hash)
                    && let Some(input) = input.take()
                {
                    known.insert(chunk.hash, Vec::new());
                    wanted.push((chunk.hash, input));
                }
            }
        }
        if let (Some(embedder), None) = (&self.embedder, &*down) {
            for part in wanted.chunks(256) {
                self.check()?;
                let texts: Vec<String> = part.iter().map(|(_, text)| text.clone()).collect();
                match embedder.embed(&texts, Purpose::Passage).await {
                    Ok(vectors) => {
                        for ((hash, _), vector) in part.iter().zip(vectors) {
                            match vector {
                                Some(vector) if vector.len() != spec.dimensions => {
                                    return Err(JobError::DimensionsChanged);
                                }
                                Some(vector) => drop(known.insert(*hash, vector)),
                                // Asked and answered: there is none, now or later.
                                None => drop(known.remove(hash)),
                            }
                        }
                        self.note(|job| job.embedded_chunks += part.len() as u64);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "chunks are indexed without vectors");
                        *down = Some(error);
                        break;
                    }
                }
            }
        }
        for prepared in files {
            let mut waiting = 0;
            for chunk in &mut prepared.chunks {
                match known.get(&chunk.hash) {
                    Some(vector) if vector.is_empty() => waiting += 1,
                    Some(vector) => chunk.vector = Some(vector.clone()),
                    None => {}
                }
            }
            prepared.file.unembedded = waiting;
            if waiting > 0 {
                prepared.file.reason = format!("{waiting} chunks wait for the embedding server");
            }
        }
        Ok(())
    }
}

/// What waits to be written.
#[derive(Default)]
struct Batch {
    files: Vec<Prepared>,
    touched: Vec<FileRow>,
    removed: Vec<String>,
    chunks: usize,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.chunks >= BATCH_CHUNKS || self.bytes >= BATCH_BYTES || self.files.len() >= BATCH_FILES
    }
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.touched.is_empty() && self.removed.is_empty()
    }
}

fn read_file(
    vault: &Vault,
    config: &KnowledgeConfig,
    guard: Option<&Guard>,
    seen: Seen,
    old: Option<FileRow>,
    recipe: u64,
    can_embed: bool,
) -> Read {
    let path = seen.path.to_string();
    let told = |state: FileState, reason: String| {
        let file = FileRow {
            size: seen.size,
            mtime_ms: seen.mtime_ms,
            recipe,
            day: day_of_millis(seen.mtime_ms),
            ..blank_file(path.clone(), state, reason)
        };
        Read::Prepared(Box::new(Prepared::without_chunks(file)))
    };
    if seen.size > config.indexing.max_file_bytes {
        let reason = format!("larger than the {} bytes that are indexed", config.indexing.max_file_bytes);
        return told(FileState::Skipped, reason);
    }
    let content = match vault.read_note(&seen.path) {
        Ok(Some(content)) => content,
        Ok(None) => return Read::Gone(path),
        Err(failure) => return told(FileState::Failed, failure.message),
    };
    let hash = hash64(&[&content.bytes]);
    if let Some(old) = old
        && old.hash == hash
        && old.recipe == recipe
        && old.state != FileState::Failed
        && !(can_embed && old.unembedded > 0)
    {
        return Read::Touched(Box::new(FileRow { size: seen.size, mtime_ms: content.mtime_ms, ..old }));
    }
    if memchr::memchr(0, &content.bytes[..content.bytes.len().min(BINARY_PROBE)]).is_some() {
        return told(FileState::Skipped, "not text".to_owned());
    }
    let Ok(text) = std::str::from_utf8(&content.bytes) else {
        return told(FileState::Skipped, "not UTF-8".to_owned());
    };
    // A defect in the parser must cost one note, not the whole index.
    let parsed =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Note::parse(&path, text, config.indexing.sizes())));
    let Ok(note) = parsed else { return told(FileState::Failed, "it could not be parsed".to_owned()) };
    let stat = Stat { hash, size: content.bytes.len() as u64, mtime_ms: content.mtime_ms, recipe };
    Read::Prepared(Box::new(Prepared::new(&path, &note, stat, guard)))
}
