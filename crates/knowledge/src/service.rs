//! [`Knowledge`]: the notes of one vault, ready to be asked. Holds the version that searches use, the probes' findings,
//! the jobs and the facts; the tools are thin around it.

mod embedding;
mod look;

use embedding::fits;
pub use embedding::vector_weight;
pub use look::VaultLook;

use crate::{
    config::{EmbedderKind, KnowledgeConfig},
    embed::{EmbedError, Embedder, EmbedderInfo, OllamaProbe},
    envelope::{Health, Meta, Problem},
    facts::FactStore,
    health::{IndexState, Observed},
    index::{FileRow, FileState, IndexError, NoteIndex},
    indexer::{Job, JobMode, JobState, Jobs, MAX_AUTOMATIC_ATTEMPTS, Started, Workshop},
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

/// What was found out about the embedder holds this long.
const EMBEDDER_KNOWN_FOR: Duration = Duration::from_secs(30);
/// Whether another process made a new version is looked at this often at most.
const VERSION_KNOWN_FOR: Duration = Duration::from_millis(500);
/// How long a stopping server waits for a job before it cancels it; the next start goes on where it stopped.
const CLOSE_GRACE: Duration = Duration::from_secs(10);
/// Chunks that an embedder is attuned with.
const SAMPLES: usize = 2_000;
/// How much vectors count when the configuration does not say. Measured with the static table; see docs/knowledge.md.
const STATIC_VECTOR_WEIGHT: f32 = 0.41;
/// The same for the vectors of sentence models. Below a half, so that the best match by words is never tied with a chunk
/// that only the vectors found.
const MODEL_VECTOR_WEIGHT: f32 = 0.45;

/// What [`Knowledge`] is made of.
pub struct KnowledgeParts {
    /// The notes.
    pub vault: Arc<Vault>,
    /// Where they are indexed.
    pub index: Arc<dyn NoteIndex>,
    /// What makes vectors; `None` for full text only.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// An embedder that is always there, for an index that was made with it before the configuration changed.
    pub fallback: Option<Arc<dyn Embedder>>,
    /// What keeps the configured embedder from being used at all, if anything does.
    pub embedder_problem: Option<EmbedError>,
    /// The settings.
    pub config: KnowledgeConfig,
    /// A folder of our own, for facts, the job's record and the lock.
    pub folder: PathBuf,
}

/// The notes of one vault, ready to be asked.
pub struct Knowledge {
    pub(crate) vault: Arc<Vault>,
    pub(crate) index: Arc<dyn NoteIndex>,
    embedder: Option<Arc<dyn Embedder>>,
    fallback: Option<Arc<dyn Embedder>>,
    embedder_problem: Option<EmbedError>,
    pub(crate) config: Arc<KnowledgeConfig>,
    pub(crate) guard: Arc<Guard>,
    /// What agents were asked to remember.
    pub facts: FactStore,
    /// Indexing.
    pub jobs: Arc<Jobs>,
    ollama: OllamaProbe,
    library: ArcSwapOption<Library>,
    /// One version is loaded at a time.
    loading: tokio::sync::Mutex<()>,
    noted: Mutex<Noted>,
}

/// Which chunks of which version a sandbox lets through; `None` for all of them.
type Allowed = (u64, Sandbox, Option<Arc<Vec<bool>>>);

#[derive(Default)]
struct Noted {
    version_checked: Option<Instant>,
    embedder: Option<(Instant, Result<EmbedderInfo, EmbedError>)>,
    /// What a reader said when it could not read, until it can or a new version is there.
    broken: Option<IndexError>,
    look: Option<(Instant, VaultLook)>,
    allowed: Option<Allowed>,
    health: Option<Health>,
    attuned: Option<Attuned>,
    filter: Option<(Sandbox, Arc<PathFilter>)>,
    serving: bool,
}

/// An embedder that was attuned to an index of so many chunks.
struct Attuned {
    embedder: String,
    chunks: u64,
    to: Arc<dyn Embedder>,
}

/// A question's vector, or why there is none.
pub(crate) struct Embedded {
    pub(crate) vector: Option<Vec<f32>>,
    pub(crate) problem: Option<Problem>,
}

impl Knowledge {
    /// Puts the parts together. Touches nothing yet.
    pub fn new(parts: KnowledgeParts) -> Self {
        let config = Arc::new(parts.config);
        let guard = Arc::new(Guard::new(config.sensitive.matching, &config.sensitive.sections));
        let workshop = Workshop {
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
            noted: Mutex::default(),
            config,
        }
    }

    fn noted<T>(&self, look: impl FnOnce(&mut Noted) -> T) -> T {
        look(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn budget(&self) -> u64 {
        self.config.index.vector_memory_mb << 20
    }

    /// The version that searches use: the newest complete one. The old one serves while a new one is loaded.
    pub async fn library(&self) -> Result<Arc<Library>, Problem> {
        let (fresh, broken) = self.noted(|noted| {
            let fresh = noted.version_checked.is_some_and(|at| at.elapsed() < VERSION_KNOWN_FOR);
            (fresh, noted.broken.clone())
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

    /// The newest version. Where it is to be searched, the embedder is attuned while it is loaded. One that could not be
    /// read is tried again: what was damaged may be restored.
    async fn newest(&self, to_search: bool) -> Result<Arc<Library>, Problem> {
        let newest = match self.index.generation().await {
            Ok(newest) => newest,
            Err(error) => return self.loaded_or(error),
        };
        let current = self.library.load_full();
        let broken = self.noted(|noted| {
            noted.version_checked = Some(Instant::now());
            noted.broken.clone()
        });
        match (newest, &current, &broken) {
            (None, ..) => {
                self.library.store(None);
                self.noted(|noted| noted.broken = None);
                return Err(Problem::no_index());
            }
            (Some(generation), Some(library), None) if library.info().generation == generation => {
                return Ok(library.clone());
            }
            _ => {}
        }
        // Whoever comes while a version is loaded is served by the one before.
        let guard = match (self.loading.try_lock(), current, broken) {
            (Ok(guard), ..) => guard,
            (Err(_), _, Some(error)) => return Err(Problem::of_index(&error)),
            (Err(_), Some(library), None) => return Ok(library),
            (Err(_), None, None) => self.loading.lock().await,
        };
        // What was read before the index broke is not built upon.
        let was_broken = self.noted(|noted| noted.broken.is_some());
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
            // A look at the newest files need not see what a question stumbled over.
            reader.sample(SAMPLES).await.map_err(|error| self.broken(error))?;
        }
        // Asked anew while the version is loaded, and not once more after that.
        self.noted(|noted| noted.embedder = None);
        let ahead = async {
            if to_search {
                self.attune_ahead(&reader).await;
            }
        };
        let (loaded, ()) = tokio::join!(Library::load(reader.clone(), before.as_deref(), self.budget()), ahead);
        let loaded = Arc::new(loaded.map_err(|error| self.broken(error))?);
        self.library.store(Some(loaded.clone()));
        self.noted(|noted| noted.broken = None);
        drop(guard);
        Ok(loaded)
    }

    /// The version that is loaded, while the place of a newer one does not answer; damage is told.
    fn loaded_or(&self, error: IndexError) -> Result<Arc<Library>, Problem> {
        match (&error, self.library.load_full()) {
            (IndexError::Unavailable(_) | IndexError::Program(_), Some(library)) => {
                tracing::warn!(%error, "the version that is loaded is searched on");
                Ok(library)
            }
            _ => Err(self.broken(error)),
        }
    }

    /// Remembers that the index cannot be read and says so.
    pub(crate) fn broken(&self, error: IndexError) -> Problem {
        tracing::warn!(%error, "the index cannot be read");
        let problem = Problem::of_index(&error);
        if matches!(error, IndexError::Corrupted(_)) {
            self.noted(|noted| noted.broken = Some(error));
        }
        problem
    }

    /// What a failed read means: damage, unless the whole index was taken away since it was last looked for.
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

    /// The library, or why there is nothing to search.
    pub(crate) async fn searchable(&self) -> Result<Arc<Library>, Problem> {
        let library = match self.library.load_full() {
            None => self.newest(true).await,
            Some(_) => self.library().await,
        };
        match library {
            Ok(library) if library.info().chunks == 0 => Err(Problem::empty_vault()),
            Err(problem) if problem.code == crate::envelope::ProblemCode::IndexNotFound => {
                // Where indexing was tried and failed, that is the news; else that the index program is missing.
                if self.jobs.active().is_some() {
                    return Err(problem);
                }
                Err(self.jobs.problem().or_else(|| self.program_problem()).unwrap_or(problem))
            }
            other => other,
        }
    }

    /// The path rules of a sandbox: building them costs more than using them.
    pub(crate) fn paths_of(&self, sandbox: &Sandbox) -> Arc<PathFilter> {
        self.noted(|noted| match &noted.filter {
            Some((known, filter)) if known == sandbox => filter.clone(),
            _ => {
                let filter = Arc::new(PathFilter::new(sandbox));
                noted.filter = Some((sandbox.clone(), filter.clone()));
                filter
            }
        })
    }

    /// Which files of the library a sandbox allows. Nearly every call has the same one.
    pub(crate) fn allowed(&self, library: &Library, sandbox: &Sandbox) -> Option<Arc<Vec<bool>>> {
        let generation = library.info().generation;
        let known = self.noted(|noted| match &noted.allowed {
            Some((of, known, allowed)) if *of == generation && known == sandbox => Some(allowed.clone()),
            _ => None,
        });
        known.unwrap_or_else(|| {
            let allowed = {
                let paths = self.paths_of(sandbox);
                library.allowed(|path| paths.allows(path)).map(Arc::new)
            };
            self.noted(|noted| noted.allowed = Some((generation, sandbox.clone(), allowed.clone())));
            allowed
        })
    }

    /// Probes everything by itself, now and then. An index that nobody uses is left alone: a probe would start its program,
    /// or keep it from being stopped. What happened to its files meanwhile is seen by the next question.
    pub(crate) async fn probe(&self) -> Observed {
        let library = self.library.load_full().filter(|_| self.index.is_resting());
        let Some(library) = library else { return self.observe().await };
        self.look().await;
        self.judge(Ok(library)).await
    }

    /// Probes everything and says how it stands.
    pub async fn observe(&self) -> Observed {
        let library = self.reopened().await;
        self.look().await;
        self.judge(library).await
    }

    /// The library, after opening the index again: what happened to the files of a version that is in use would go unseen
    /// otherwise.
    pub(crate) async fn reopened(&self) -> Result<Arc<Library>, Problem> {
        match self.index.current().await {
            Err(error) => Err(self.broken(error)),
            Ok(_) => self.refresh().await,
        }
    }

    /// How it stands, with the embedder asked again.
    pub(crate) async fn judge(&self, library: Result<Arc<Library>, Problem>) -> Observed {
        if let (Some(embedder), None) = (&self.embedder, &self.embedder_problem) {
            // Its answer is kept, and `observed` reads it.
            drop(self.ask_embedder(&**embedder).await);
        }
        self.observed(library).await
    }

    /// How it stands, as far as was seen already.
    pub(crate) async fn observed(&self, library: Result<Arc<Library>, Problem>) -> Observed {
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
        let observed = Observed { vault, index, program: self.program_problem(), embedder, indexer, stale };
        let health = observed.health().0;
        let before = self.noted(|noted| noted.health.replace(health));
        if before != Some(health) {
            tracing::info!(health = health.as_str(), "the notes' health");
        }
        observed
    }

    /// That something else answers in the place of the index program, and why.
    fn program_problem(&self) -> Option<Problem> {
        self.index.program_problem().map(|error| Problem::of_program(&error))
    }

    /// Whether Ollama answers, used or not.
    pub async fn ollama_is_up(&self) -> bool {
        self.ollama.is_up().await
    }

    /// When the vault's folder itself last changed; the beginning of time where it cannot be reached.
    fn folder_time(&self) -> Timestamp {
        let modified = std::fs::metadata(self.vault.root()).and_then(|folder| folder.modified());
        modified.ok().and_then(|time| Timestamp::try_from(time).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Facts about an answer.
    pub(crate) fn meta(&self, started: Instant, library: Option<&Library>, scanned: u64) -> Meta {
        let newest = self
            .noted(|noted| noted.look)
            .map(|(_, look)| look.newest_mtime_ms)
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

    /// The newest version's files.
    pub(crate) async fn files(&self, library: &Library) -> Result<Vec<FileRow>, Problem> {
        match library.reader.files().await {
            Ok(files) => Ok(files),
            Err(error) => Err(self.unreadable(error).await),
        }
    }

    /// Starts a job.
    pub fn start(&self, mode: JobMode) -> Result<Started, Problem> {
        self.jobs.start(mode, 0)
    }

    /// Takes up a job whose process was killed, unless that was tried before.
    pub fn resume(&self) -> Option<Job> {
        let last = self.jobs.record().last?;
        if last.state != JobState::Interrupted || last.attempt >= MAX_AUTOMATIC_ATTEMPTS {
            return None;
        }
        // What was written is still there: even a job from nothing goes on where it stopped.
        let mode = if last.mode == JobMode::Sync { JobMode::Sync } else { JobMode::Full };
        self.jobs.start(mode, last.attempt + 1).ok().map(|started| started.job().clone())
    }

    /// Makes the version before the current one current again.
    pub async fn rollback(&self) -> Result<crate::index::VersionInfo, Problem> {
        let Some(_lock) = self.jobs.exclusively()? else { return Err(Problem::of_index(&IndexError::Busy)) };
        let info = self.index.rollback().await.map_err(|error| Problem::of_index(&error))?;
        self.jobs.went_back_to(info.completed_at);
        self.noted(|noted| noted.broken = None);
        if let Err(problem) = self.refresh().await {
            tracing::warn!(
                problem = problem.message,
                "the version of the index that was gone back to could not be loaded"
            );
        }
        Ok(info)
    }

    /// Whether the configured embedder and the index do not fit each other, or chunks wait for vectors: the mode of the
    /// job that mends it. A sync begins anew where the embedder is another one, and goes on where one before was stopped.
    pub async fn mending(&self) -> Option<JobMode> {
        if self.jobs.rests() {
            return None;
        }
        let library = self.library.load_full()?;
        // The index program was installed meanwhile: what stood in for it is written to it.
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

    /// Says that a server runs: stopping will not wait for long jobs.
    pub(crate) fn set_serving(&self) {
        self.index.set_serving();
        self.noted(|noted| noted.serving = true);
    }

    /// Waits for the job under way. A server does not wait for ever: the next start goes on where it stopped.
    pub async fn close(&self) {
        let serving = self.noted(|noted| noted.serving);
        if serving && tokio::time::timeout(CLOSE_GRACE, self.jobs.idle()).await.is_err() {
            self.jobs.cancel();
        }
        self.jobs.idle().await;
        self.index.close().await;
    }

    /// Files in a state, for status.
    pub(crate) fn in_state(files: &[FileRow], state: Option<FileState>) -> Vec<&FileRow> {
        files.iter().filter(|file| state.is_none_or(|state| file.state == state)).collect()
    }
}
