//! [`Knowledge`]: the searchable notes of one vault. Holds the version that searches use, the results of the probes,
//! the jobs and the facts; the tools are thin wrappers.

mod embedding;
mod vault_scan;

use embedding::fits;
pub use embedding::vector_weight;
pub use vault_scan::VaultScan;

use crate::{
    config::{EmbedderKind, KnowledgeConfig},
    embed::{EmbedError, Embedder, EmbedderInfo, OllamaProbe},
    envelope::{Health, Meta, Problem},
    facts::FactStore,
    health::{HealthProbes, IndexState},
    index::{FileRow, FileState, IndexError, NoteIndex},
    indexer::{IndexingContext, Job, JobMode, JobStart, JobState, Jobs, MAX_AUTOMATIC_ATTEMPTS},
    search::Library,
    sensitive::Guard,
};
use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use toolyard_catalog::PathFilter;
use toolyard_protocol::Sandbox;
use toolyard_vault::Vault;

/// How long the result of a probe of the embedder is valid.
const EMBEDDER_KNOWN_FOR: Duration = Duration::from_secs(30);
/// How often to check at most whether another process made a new version.
const VERSION_KNOWN_FOR: Duration = Duration::from_millis(500);
/// How long a stopping server waits for a job before it cancels it; the next start continues where it stopped.
const CLOSE_GRACE: Duration = Duration::from_secs(10);
/// Number of chunks with which an embedder is adapted.
const SAMPLES: usize = 2_000;
/// Default weight of vectors from the static table, as measured; see docs/guide/notes.md.
const STATIC_VECTOR_WEIGHT: f32 = 0.41;
/// Default weight of vectors from sentence models. It is below one half, so that the best match by words is never tied
/// with a chunk that only the vectors found.
const MODEL_VECTOR_WEIGHT: f32 = 0.45;

/// The parts of [`Knowledge`].
pub struct KnowledgeParts {
    /// The vault.
    pub vault: Arc<Vault>,
    /// The index.
    pub index: Arc<dyn NoteIndex>,
    /// The embedder; `None` for full text only.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// A built-in embedder, for an index that was built with it before the configuration changed.
    pub fallback: Option<Arc<dyn Embedder>>,
    /// Why the configured embedder cannot be used, if so.
    pub embedder_problem: Option<EmbedError>,
    /// The configuration.
    pub config: KnowledgeConfig,
    /// Toolyard's folder for facts, the record of jobs, and the lock.
    pub folder: PathBuf,
}

/// The searchable notes of one vault.
pub struct Knowledge {
    pub(crate) vault: Arc<Vault>,
    pub(crate) index: Arc<dyn NoteIndex>,
    embedder: Option<Arc<dyn Embedder>>,
    fallback: Option<Arc<dyn Embedder>>,
    embedder_problem: Option<EmbedError>,
    pub(crate) config: Arc<KnowledgeConfig>,
    pub(crate) guard: Arc<Guard>,
    /// Facts that agents stored.
    pub facts: FactStore,
    /// The indexing jobs.
    pub jobs: Arc<Jobs>,
    ollama: OllamaProbe,
    library: ArcSwapOption<Library>,
    /// Serialises the loading of versions.
    loading: tokio::sync::Mutex<()>,
    cache: Mutex<Cache>,
}

/// Which files of which version a sandbox allows; `None` for all of them.
type AllowedFiles = (u64, Sandbox, Option<Arc<Vec<bool>>>);

#[derive(Default)]
struct Cache {
    version_checked: Option<Instant>,
    embedder: Option<(Instant, Result<EmbedderInfo, EmbedError>)>,
    /// The error of a reader, until reading works again or there is a new version.
    broken: Option<IndexError>,
    scan: Option<(Instant, VaultScan)>,
    allowed: Option<AllowedFiles>,
    health: Option<Health>,
    attuned: Option<TunedEmbedder>,
    filter: Option<(Sandbox, Arc<PathFilter>)>,
    serving: bool,
}

/// An embedder that was adapted to an index of this many chunks.
struct TunedEmbedder {
    embedder: String,
    chunks: u64,
    to: Arc<dyn Embedder>,
}

/// The vector of a query, or why there is none.
pub(crate) struct Embedded {
    pub(crate) vector: Option<Vec<f32>>,
    pub(crate) problem: Option<Problem>,
}

impl Knowledge {
    /// Creates the service without accessing anything.
    pub fn new(parts: KnowledgeParts) -> Self {
        let config = Arc::new(parts.config);
        let guard = Arc::new(Guard::new(config.sensitive.matching, &config.sensitive.sections));
        let workshop = IndexingContext {
            vault: parts.vault.clone(),
            index: parts.index.clone(),
            embedder: parts.embedder.clone(),
            embedder_problem: parts.embedder_problem.clone(),
            config: config.clone(),
            guard: guard.clone(),
            folder: parts.folder.clone(),
        };
        Self {
            vault: parts.vault,
            index: parts.index,
            embedder: parts.embedder,
            fallback: parts.fallback,
            embedder_problem: parts.embedder_problem,
            guard,
            facts: FactStore::new(parts.folder.join("facts.jsonl")),
            jobs: Arc::new(Jobs::new(workshop)),
            ollama: OllamaProbe::new(&config.embedding),
            library: ArcSwapOption::empty(),
            loading: tokio::sync::Mutex::new(()),
            cache: Mutex::default(),
            config,
        }
    }

    fn with_cache<T>(&self, scan: impl FnOnce(&mut Cache) -> T) -> T {
        scan(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn budget(&self) -> u64 {
        self.config.index.vector_memory_mb << 20
    }

    /// The version that searches use: the newest complete one. The old one serves while a new one is loaded.
    pub async fn library(&self) -> Result<Arc<Library>, Problem> {
        let (fresh, broken) = self.with_cache(|cache| {
            let fresh = cache.version_checked.is_some_and(|at| at.elapsed() < VERSION_KNOWN_FOR);
            (fresh, cache.broken.clone())
        });
        match (fresh, broken, self.library.load_full()) {
            (true, Some(error), _) => Err(Problem::of_index(&error)),
            (true, None, Some(library)) => Ok(library),
            _ => self.newest(false).await,
        }
    }

    /// Looks for a newer version and loads it.
    pub async fn refresh(&self) -> Result<Arc<Library>, Problem> {
        self.newest(false).await
    }

    /// Loads the newest version. With `to_search`, the embedder is adapted during the load. A version that could not be
    /// read before is tried again, because it may have been repaired.
    async fn newest(&self, to_search: bool) -> Result<Arc<Library>, Problem> {
        let newest = match self.index.generation().await {
            Ok(newest) => newest,
            Err(error) => return self.loaded_or(error),
        };
        let current = self.library.load_full();
        let broken = self.with_cache(|cache| {
            cache.version_checked = Some(Instant::now());
            cache.broken.clone()
        });
        match (newest, &current, &broken) {
            (None, ..) => {
                self.library.store(None);
                self.with_cache(|cache| cache.broken = None);
                return Err(Problem::no_index());
            }
            (Some(generation), Some(library), None) if library.info().generation == generation => {
                return Ok(library.clone());
            }
            _ => {}
        }
        // While a version is loaded, requests use the previous one.
        let guard = match (self.loading.try_lock(), current, broken) {
            (Ok(guard), ..) => guard,
            (Err(_), _, Some(error)) => return Err(Problem::of_index(&error)),
            (Err(_), Some(library), None) => return Ok(library),
            (Err(_), None, None) => self.loading.lock().await,
        };
        // Data read before the index broke is not reused.
        let was_broken = self.with_cache(|cache| cache.broken.is_some());
        let before = self.library.load_full().filter(|_| !was_broken);
        if let Some(library) = before.as_ref().filter(|library| Some(library.info().generation) == newest) {
            return Ok(library.clone());
        }
        let reader = match self.index.current().await {
            Ok(Some(reader)) => reader,
            Ok(None) => return Err(Problem::no_index()),
            Err(error) => return self.loaded_or(error),
        };
        if was_broken {
            // Opening the newest version may not touch the damaged part, so more of it is read.
            reader.sample(SAMPLES).await.map_err(|error| self.broken(error))?;
        }
        // The embedder is probed again while the version is loaded, and not once more after that.
        self.with_cache(|cache| cache.embedder = None);
        let ahead = async {
            if to_search {
                self.attune_ahead(&reader).await;
            }
        };
        let (loaded, ()) = tokio::join!(Library::load(reader.clone(), before.as_deref(), self.budget()), ahead);
        let loaded = Arc::new(loaded.map_err(|error| self.broken(error))?);
        self.library.store(Some(loaded.clone()));
        self.with_cache(|cache| cache.broken = None);
        drop(guard);
        Ok(loaded)
    }

    /// The loaded version, if the location of a newer one does not answer; damage is reported.
    fn loaded_or(&self, error: IndexError) -> Result<Arc<Library>, Problem> {
        match (&error, self.library.load_full()) {
            (IndexError::Unavailable(_) | IndexError::Program(_), Some(library)) => {
                tracing::warn!(%error, "a newer version cannot be loaded; the loaded version stays in use");
                Ok(library)
            }
            _ => Err(self.broken(error)),
        }
    }

    /// Stores that the index cannot be read, and returns the problem.
    pub(crate) fn broken(&self, error: IndexError) -> Problem {
        tracing::warn!(%error, "the index cannot be read");
        let problem = Problem::of_index(&error);
        if matches!(error, IndexError::Corrupted(_)) {
            self.with_cache(|cache| cache.broken = Some(error));
        }
        problem
    }

    /// Interprets a failed read: as damage, unless the whole index was deleted since the last check.
    pub(crate) async fn unreadable(&self, error: IndexError) -> Problem {
        if matches!(error, IndexError::Program(_)) {
            return self.broken(error);
        }
        if matches!(self.index.generation().await, Ok(None)) {
            self.library.store(None);
            return Problem::no_index();
        }
        self.broken(error)
    }

    /// The library, or why nothing can be searched.
    pub(crate) async fn searchable(&self) -> Result<Arc<Library>, Problem> {
        let library = match self.library.load_full() {
            None => self.newest(true).await,
            Some(_) => self.library().await,
        };
        match library {
            Ok(library) if library.info().chunks == 0 => Err(Problem::empty_vault()),
            Err(problem) if problem.code == crate::envelope::ProblemCode::IndexNotFound => {
                if self.jobs.active().is_some() {
                    return Err(problem);
                }
                // A missing index program is named first: it is why the last job failed.
                Err(self.program_problem().or_else(|| self.jobs.problem()).unwrap_or(problem))
            }
            other => other,
        }
    }

    /// The path rules of a sandbox, cached because building them costs more than using them.
    pub(crate) fn paths_of(&self, sandbox: &Sandbox) -> Arc<PathFilter> {
        self.with_cache(|cache| match &cache.filter {
            Some((known, filter)) if known == sandbox => filter.clone(),
            _ => {
                let filter = Arc::new(PathFilter::new(sandbox));
                cache.filter = Some((sandbox.clone(), filter.clone()));
                filter
            }
        })
    }

    /// Which files of the library a sandbox allows. The result is cached, because nearly every call uses the same
    /// sandbox.
    pub(crate) fn allowed(&self, library: &Library, sandbox: &Sandbox) -> Option<Arc<Vec<bool>>> {
        let generation = library.info().generation;
        let known = self.with_cache(|cache| match &cache.allowed {
            Some((of, known, allowed)) if *of == generation && known == sandbox => Some(allowed.clone()),
            _ => None,
        });
        known.unwrap_or_else(|| {
            let allowed = {
                let paths = self.paths_of(sandbox);
                library.allowed(|path| paths.allows(path)).map(Arc::new)
            };
            self.with_cache(|cache| cache.allowed = Some((generation, sandbox.clone(), allowed.clone())));
            allowed
        })
    }

    /// Probes everything periodically. An unused index is not probed, because that would start its program or prevent
    /// it from being stopped. The next query detects changes to its files.
    pub(crate) async fn probe(&self) -> HealthProbes {
        let library = self.library.load_full().filter(|_| self.index.is_resting());
        let Some(library) = library else { return self.observe().await };
        self.scan().await;
        self.judge(Ok(library)).await
    }

    /// Probes everything and returns the state.
    pub async fn observe(&self) -> HealthProbes {
        let library = self.reopened().await;
        self.scan().await;
        self.judge(library).await
    }

    /// The library after opening the index again, because changes to the files of a version in use would not be noticed
    /// otherwise.
    pub(crate) async fn reopened(&self) -> Result<Arc<Library>, Problem> {
        match self.index.current().await {
            Err(error) => Err(self.broken(error)),
            Ok(_) => self.refresh().await,
        }
    }

    /// The state, with a new probe of the embedder.
    pub(crate) async fn judge(&self, library: Result<Arc<Library>, Problem>) -> HealthProbes {
        if let (Some(embedder), None) = (&self.embedder, &self.embedder_problem) {
            // The result is cached, and `observed` reads it from there.
            drop(self.ask_embedder(&**embedder).await);
        }
        self.observed(library).await
    }

    /// The state, from the earlier probes.
    pub(crate) async fn observed(&self, library: Result<Arc<Library>, Problem>) -> HealthProbes {
        let vault = self.vault.clone();
        let vault = tokio::task::spawn_blocking(move || vault.is_readable()).await.unwrap_or(false);
        let record = self.jobs.record();
        let stale = self.is_stale(record.last_sync, library.as_deref().ok()).await;
        let embedder = match (self.embedder_info().await, &library) {
            (Some(Err(error)), _) => Some(Problem::of_embedder(&error)),
            (Some(Ok(info)), Ok(library)) if !fits(&info, &library.info().spec) => {
                Some(Problem::other_embedder(self.jobs.active().is_some()))
            }
            _ => None,
        };
        let index = match library {
            Ok(library) if library.info().chunks == 0 => IndexState::Missing(Problem::empty_vault()),
            Ok(_) => IndexState::Ready,
            Err(problem) if problem.code == crate::envelope::ProblemCode::IndexNotFound => IndexState::Missing(problem),
            Err(problem) => IndexState::Broken(problem),
        };
        let indexer = if self.jobs.active().is_some() { None } else { self.jobs.problem() };
        let observed = HealthProbes { vault, index, program: self.program_problem(), embedder, indexer, stale };
        let health = observed.health().0;
        let before = self.with_cache(|cache| cache.health.replace(health));
        if before != Some(health) {
            observed.log(health);
        }
        observed
    }

    /// Why the in-memory index is used instead of the index program, if it is.
    fn program_problem(&self) -> Option<Problem> {
        self.index.program_problem().map(|error| Problem::of_program(&error))
    }

    /// Whether Ollama responds, whether or not it is the configured embedder.
    pub async fn ollama_is_up(&self) -> bool {
        self.ollama.is_up().await
    }

    /// When the vault's folder last changed; 1970 if it cannot be reached.
    fn folder_time(&self) -> Timestamp {
        let modified = std::fs::metadata(self.vault.root()).and_then(|folder| folder.modified());
        modified.ok().and_then(|time| Timestamp::try_from(time).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The metadata of a response.
    pub(crate) fn meta(&self, started: Instant, library: Option<&Library>, scanned: u64) -> Meta {
        let newest = self
            .with_cache(|cache| cache.scan)
            .map(|(_, scan)| scan.newest_mtime_ms)
            .max(library.map(|library| library.totals.newest_mtime_ms))
            .filter(|ms| *ms > 0)
            .and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Meta {
            query_time_ms: (started.elapsed().as_secs_f64() * 1e5).round() / 100.0,
            chunks_scanned: scanned,
            index_version: library.map(|library| library.info().version.clone()).unwrap_or_default(),
            vault_mtime: newest.unwrap_or_else(|| self.folder_time()).to_string(),
        }
    }

    /// The files of a version.
    pub(crate) async fn files(&self, library: &Library) -> Result<Vec<FileRow>, Problem> {
        match library.reader.files().await {
            Ok(files) => Ok(files),
            Err(error) => Err(self.unreadable(error).await),
        }
    }

    /// Starts a job.
    pub fn start(&self, mode: JobMode) -> Result<JobStart, Problem> {
        self.jobs.start(mode, 0)
    }

    /// Resumes a job whose process was killed, unless that was tried before.
    pub fn resume(&self) -> Option<Job> {
        let last = self.jobs.record().last?;
        if last.state != JobState::Interrupted || last.attempt >= MAX_AUTOMATIC_ATTEMPTS {
            return None;
        }
        // The written batches are kept, so even a reindex job continues where it stopped.
        let mode = if last.mode == JobMode::Sync { JobMode::Sync } else { JobMode::Full };
        self.jobs.start(mode, last.attempt + 1).ok().map(|started| started.job().clone())
    }

    /// Makes the previous version current again.
    pub async fn rollback(&self) -> Result<crate::index::VersionInfo, Problem> {
        let Some(_lock) = self.jobs.exclusively()? else { return Err(Problem::of_index(&IndexError::Busy)) };
        let info = self.index.rollback().await.map_err(|error| Problem::of_index(&error))?;
        self.jobs.went_back_to(info.completed_at);
        self.with_cache(|cache| cache.broken = None);
        if let Err(problem) = self.refresh().await {
            tracing::warn!(problem = problem.message, "the restored version of the index could not be loaded");
        }
        Ok(info)
    }

    /// The mode of the job that repairs the index, if the configured embedder does not fit the index or chunks wait for
    /// vectors. A sync starts from scratch if the embedder is another one, and continues a job that was stopped.
    pub async fn mending(&self) -> Option<JobMode> {
        if self.jobs.rests() {
            return None;
        }
        let library = self.library.load_full()?;
        // The index program was installed meanwhile: a sync writes the notes of the stand-in to it.
        if self.index.wants_move().await {
            return Some(JobMode::Sync);
        }
        match self.embedder_info().await {
            Some(Ok(info)) if !fits(&info, &library.info().spec) => Some(JobMode::Sync),
            Some(Ok(_)) if library.totals.unembedded > 0 => Some(JobMode::Sync),
            None if !library.info().spec.embedder.is_empty() && self.config.embedding.kind == EmbedderKind::None => {
                Some(JobMode::Sync)
            }
            _ => None,
        }
    }

    /// Declares that this process is a server: closing then does not wait for long jobs.
    pub(crate) fn set_serving(&self) {
        self.index.set_serving();
        self.with_cache(|cache| cache.serving = true);
    }

    /// Waits for the running job, but not forever: the next start continues where it stopped.
    pub async fn close(&self) {
        let serving = self.with_cache(|cache| cache.serving);
        if serving && tokio::time::timeout(CLOSE_GRACE, self.jobs.idle()).await.is_err() {
            self.jobs.cancel();
        }
        self.jobs.idle().await;
        self.index.close().await;
    }

    /// The files in a state, for the status.
    pub(crate) fn in_state(files: &[FileRow], state: Option<FileState>) -> Vec<&FileRow> {
        files.iter().filter(|file| state.is_none_or(|state| file.state == state)).collect()
    }
}
