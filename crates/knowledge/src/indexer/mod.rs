//! Indexing jobs: one at a time, across processes; they can be polled, cancelled, and continued where they stopped.

mod backoff;
mod batch;
mod job;
mod prepare;
mod read;
mod run;
mod survey;
mod vectors;

pub(crate) use backoff::Backoff;

pub use job::{FileProblem, Job, JobFile, JobMode, JobRecord, JobState};
pub use prepare::{Prepared, Stat};
pub use run::{JobError, Outcome, Worker};
pub use toolyard_noteindex::names::private_folder;

use crate::{
    config::KnowledgeConfig,
    embed::{EmbedError, Embedder},
    envelope::Problem,
    index::{IndexError, NoteIndex, ProgramError},
    sensitive::Guard,
};
use jiff::Timestamp;
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolyard_vault::Vault;

/// How many times in a row an interrupted job is resumed automatically.
pub const MAX_AUTOMATIC_ATTEMPTS: u32 = 1;
/// Minimum interval between two writes of the record of a running job.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(500);
/// Interval at which a running job checks for a cancellation by another process.
const LOOK_FOR_CANCEL_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of times that the index program may end during one job before the job fails.
const MAX_PROGRAM_RESTARTS: u32 = 8;
/// Delay before the job continues; it grows with each restart.
const PROGRAM_PAUSE: Duration = Duration::from_millis(250);
/// Number of attempts to take a lock that no known job holds.
const LOCK_TRIES: u32 = 5;
/// Delay between these attempts: a process that has just recorded the end of a job releases the lock at once.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What every job of a vault needs.
pub struct IndexingContext {
    /// The vault.
    pub vault: Arc<Vault>,
    /// The index.
    pub index: Arc<dyn NoteIndex>,
    /// The embedder.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Why there is no embedder although one is configured. Existing vectors are kept.
    pub embedder_problem: Option<EmbedError>,
    /// The configuration.
    pub config: Arc<KnowledgeConfig>,
    /// Detects text that must not leave the machine.
    pub guard: Arc<Guard>,
    /// The folder for the job's record and lock.
    pub folder: PathBuf,
}

/// Starts jobs and reports their state.
pub struct Jobs {
    workshop: IndexingContext,
    file: JobFile,
    cancel_file: job::CancelFile,
    state: Mutex<State>,
    /// Number of jobs that ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    active: Option<Active>,
    /// The id of the last job of this process and its problem, if it failed.
    problem: Option<(String, Problem)>,
    /// The record that could not be written when the last job ended.
    unwritten: Option<JobRecord>,
    /// Whether the last job was cancelled on request.
    rests: bool,
}

struct Active {
    job: Arc<Mutex<Job>>,
    cancel: CancellationToken,
}

/// The result of a request to start a job.
#[derive(Debug, Clone)]
pub enum JobStart {
    /// The job was started.
    New(Job),
    /// Another job is already running.
    Running(Job),
}

impl JobStart {
    /// The running job.
    pub fn job(&self) -> &Job {
        match self {
            Self::New(job) | Self::Running(job) => job,
        }
    }
}

impl Jobs {
    /// Creates the job runner; no job is started.
    pub fn new(workshop: IndexingContext) -> Self {
        let file = JobFile::new(&workshop.folder);
        let cancel_file = job::CancelFile::new(&workshop.folder);
        Self { workshop, file, cancel_file, state: Mutex::default(), ended: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings jobs run with.
    pub fn workshop(&self) -> &IndexingContext {
        &self.workshop
    }

    /// The job running in this process.
    pub fn active(&self) -> Option<Job> {
        self.state().active.as_ref().map(|active| snapshot(&active.job))
    }

    /// The last jobs of all processes, and the time of the last sync.
    pub fn record(&self) -> JobRecord {
        self.record_with(&self.state())
    }

    fn record_with(&self, state: &State) -> JobRecord {
        let mut record = self.file.read();
        if let Some(active) = &state.active {
            record.last = Some(snapshot(&active.job));
        } else if let Some(unwritten) = &state.unwritten {
            // Unless another process has run a job since, the unwritten record is the newest one.
            let id = |record: &JobRecord| record.last.as_ref().map(|job| job.id.clone());
            if record.last.is_none() || id(&record) == id(unwritten) {
                return unwritten.clone();
            }
        }
        record
    }

    /// Whether the last job was cancelled: then nothing starts automatically until somebody requests a job or a note
    /// changes.
    pub fn rests(&self) -> bool {
        self.state().rests
    }

    /// Why the last job failed, if it did and no job in any process has succeeded since.
    pub fn problem(&self) -> Option<Problem> {
        let (last, problem) = {
            let state = self.state();
            (self.record_with(&state).last, state.problem.clone())
        };
        if let (Some(last), Some((id, problem))) = (&last, problem)
            && last.id == id
        {
            return Some(problem);
        }
        match last {
            Some(job) if job.state == JobState::Interrupted => Some(Problem::indexer(
                "The indexer was stopped before it was done.",
                job.attempt < MAX_AUTOMATIC_ATTEMPTS,
            )),
            Some(job) if job.state == JobState::Failed => Some(Problem::indexer(
                job.message.unwrap_or_else(|| "The indexer stopped before it was done.".to_owned()),
                true,
            )),
            _ => None,
        }
    }

    /// Records that the index was rolled back to the version of this time.
    pub(crate) fn went_back_to(&self, completed_at: Timestamp) {
        let record = JobRecord { last_sync: Some(completed_at), ..self.file.read() };
        if let Err(error) = self.file.write(&record) {
            tracing::warn!(%error, "the time of the restored index version could not be recorded");
        }
    }

    /// A receiver that is notified when a job ends.
    pub fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Starts a job unless one is running. Must be called inside a runtime.
    pub fn start(self: &Arc<Self>, mode: JobMode, attempt: u32) -> Result<JobStart, Problem> {
        let mut state = self.state();
        if let Some(active) = &state.active {
            return Ok(JobStart::Running(snapshot(&active.job)));
        }
        let folder = &self.workshop.folder;
        private_folder(folder).map_err(|_| Problem::of_index(&IndexError::Unavailable(String::new())))?;
        let unavailable = || Problem::of_index(&IndexError::Unavailable(String::new()));
        let mut tries = 0;
        let lock = loop {
            if let Some(lock) = take_lock(&folder.join("writer.lock")).map_err(|_| unavailable())? {
                break lock;
            }
            if let Some(job) = self.file.read().running() {
                return Ok(JobStart::Running(job.clone()));
            }
            tries += 1;
            if tries == LOCK_TRIES {
                return Err(Problem::of_index(&IndexError::Busy));
            }
            std::thread::sleep(LOCK_PAUSE);
        };
        let job = Job::new(mode, attempt);
        let mut record = self.record_with(&state);
        record.begin(job.clone());
        self.file.write(&record).map_err(|_| unavailable())?;
        self.cancel_file.clear();
        let active = Active { job: Arc::new(Mutex::new(job.clone())), cancel: CancellationToken::new() };
        let worker = self.worker(active.job.clone(), active.cancel.clone(), record.clone());
        let asked = tokio::spawn(asked_to_stop(self.cancel_file.clone(), job.id.clone(), active.cancel.clone()));
        *state = State { active: Some(active), ..State::default() };
        drop(state);
        let jobs = self.clone();
        tokio::spawn(async move {
            // A panic during the work must end the job, not leave it in the running state.
            let worked = tokio::spawn(async move { worker.work(mode).await }).await;
            asked.abort();
            jobs.finish(worked.unwrap_or(Err(JobError::Crashed)), record, lock);
            jobs.ended.send_modify(|count| *count += 1);
        });
        Ok(JobStart::New(job))
    }

    fn worker(&self, job: Arc<Mutex<Job>>, cancel: CancellationToken, record: JobRecord) -> Worker {
        let shop = &self.workshop;
        let file = self.file.clone();
        let written = Mutex::new(Instant::now());
        let checkpoint = Box::new(move |job: &Job| {
            let mut last = written.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= CHECKPOINT_EVERY {
                *last = Instant::now();
                if let Err(error) = file.write(&JobRecord { last: Some(job.clone()), ..record.clone() }) {
                    // The next checkpoint writes the record again. The progress is lost only if the process dies before
                    // that.
                    tracing::warn!(%error, "the progress of the indexing job could not be written");
                }
            }
        });
        Worker {
            vault: shop.vault.clone(),
            index: shop.index.clone(),
            embedder: shop.embedder.clone(),
            embedder_problem: shop.embedder_problem.clone(),
            config: shop.config.clone(),
            guard: shop.guard.clone(),
            job,
            cancel,
            begun: AtomicBool::default(),
            checkpoint,
        }
    }

    /// Ends the job. The lock is released after the end is recorded and before anybody in this process sees it.
    fn finish(&self, worked: Result<Outcome, JobError>, mut record: JobRecord, lock: File) {
        let mut state = self.state();
        let Some(active) = state.active.take() else { return };
        let mut job = snapshot(&active.job);
        job.ended_at = Some(Timestamp::now());
        match worked {
            Ok(outcome) => {
                job.state = JobState::Done;
                job.total_chunks = outcome.total_chunks;
                job.message = outcome.embedder.as_ref().map(ToString::to_string);
                record.last_sync = Some(Timestamp::now());
            }
            Err(JobError::Cancelled) => {
                job.state = JobState::Cancelled;
                job.message = Some("Stopped on request; the next job goes on where it stopped.".to_owned());
                state.rests = true;
            }
            Err(error) => {
                match &error {
                    // The response tells the caller what to install, so a message at the level info is enough.
                    JobError::Index(IndexError::Program(ProgramError::Missing(_))) => {
                        tracing::info!(?error, job = %job.id, "indexing failed");
                    }
                    _ => tracing::error!(?error, job = %job.id, "indexing failed"),
                }
                let problem = problem_of(&error);
                job.state = JobState::Failed;
                job.message = Some(problem.message.clone());
                state.problem = Some((job.id.clone(), problem));
            }
        }
        record.last = Some(job);
        self.cancel_file.clear();
        if let Err(error) = self.file.write(&record) {
            tracing::warn!(%error, "the record of the last job could not be written");
            state.unwritten = Some(record);
        }
        drop(lock);
    }

    /// Requests the cancellation of the job in this process and returns the job.
    pub fn cancel(&self) -> Option<Job> {
        let state = self.state();
        let active = state.active.as_ref()?;
        active.cancel.cancel();
        Some(snapshot(&active.job))
    }

    /// Requests the cancellation of a job in another process and returns the job. That process checks for the request a
    /// few times a second.
    pub fn cancel_elsewhere(&self) -> Result<Option<Job>, Problem> {
        let record = self.record();
        let Some(job) = record.running().filter(|_| self.active().is_none()) else { return Ok(None) };
        let unavailable = |_| Problem::of_index(&IndexError::Unavailable(String::new()));
        self.cancel_file.ask(&job.id).map_err(unavailable)?;
        Ok(Some(job.clone()))
    }

    /// Waits until no job is running in this process.
    pub async fn idle(&self) {
        let mut ended = self.ended();
        while self.active().is_some() {
            if ended.changed().await.is_err() {
                return;
            }
        }
    }

    /// Takes the writer lock for a change of the index; `None` when a job is running in this or another process.
    pub fn exclusively(&self) -> Result<Option<File>, Problem> {
        if self.active().is_some() {
            return Ok(None);
        }
        private_folder(&self.workshop.folder)
            .and_then(|()| take_lock(&self.workshop.folder.join("writer.lock")))
            .map_err(|_| Problem::of_index(&IndexError::Unavailable(String::new())))
    }
}

impl Worker {
    /// The work of the job; repeated from scratch if the length of the embedder's vectors changed in between.
    async fn work(&self, mode: JobMode) -> Result<Outcome, JobError> {
        match self.run_over_restarts(mode).await {
            Err(JobError::DimensionsChanged) => {
                tracing::warn!("the embedding model returns vectors of another length; the index is rebuilt");
                self.begun.store(false, Ordering::Relaxed);
                self.run_over_restarts(JobMode::Reindex).await
            }
            other => other,
        }
    }

    /// Runs the job, and continues from what was written when the index program ends during it.
    async fn run_over_restarts(&self, mode: JobMode) -> Result<Outcome, JobError> {
        let mut mode = mode;
        for restart in 1..=MAX_PROGRAM_RESTARTS {
            match self.run(mode).await {
                Err(JobError::Index(IndexError::Program(
                    error @ (ProgramError::Ended(_) | ProgramError::NotStarted(_)),
                ))) => {
                    tracing::warn!(%error, restart, "the index program ended during indexing; the job continues");
                    // A reindex job has already discarded the old table and continues with the new one.
                    if mode == JobMode::Reindex && self.begun.load(Ordering::Relaxed) {
                        mode = JobMode::Full;
                    }
                    self.unless_cancelled(tokio::time::sleep(PROGRAM_PAUSE * restart)).await?;
                }
                other => return other,
            }
        }
        self.run(mode).await
    }
}

/// Cancels the job when another process requests it.
async fn asked_to_stop(file: job::CancelFile, id: String, cancel: CancellationToken) {
    while !file.asks_for(&id) {
        tokio::time::sleep(LOOK_FOR_CANCEL_EVERY).await;
    }
    cancel.cancel();
}

fn snapshot(job: &Mutex<Job>) -> Job {
    let mut job = job.lock().unwrap_or_else(PoisonError::into_inner).clone();
    job.duration_ms = u64::try_from(Timestamp::now().duration_since(job.started_at).as_millis()).unwrap_or(0);
    job
}

fn problem_of(error: &JobError) -> Problem {
    match error {
        JobError::Index(IndexError::Corrupted(_)) => Problem::of_index(&IndexError::Corrupted(String::new())),
        JobError::Index(IndexError::Busy) => Problem::of_index(&IndexError::Busy),
        JobError::Index(IndexError::Program(error)) => Problem::of_program(error),
        JobError::Index(_) => Problem::indexer("The indexer stopped: the index could not be written.", true),
        JobError::Vault(_) => Problem::no_vault(),
        JobError::DimensionsChanged => {
            Problem::indexer("The indexer stopped: the embedding model gives vectors of changing length.", true)
        }
        JobError::Cancelled | JobError::Crashed => Problem::indexer("The indexer stopped unexpectedly.", true),
    }
}

/// The lock of the writer; `None` if another process holds it.
fn take_lock(path: &std::path::Path) -> std::io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}
