//! [`Job`]: one indexing job, as it is polled and as it is stored. The stored record shows the next process that a job
//! was killed.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use toolyard_engine::redact::redactor;
use toolyard_vault::process::start_time;

/// Maximum number of problems with single files that a job lists; the others are counted and recorded in the files' own
/// status.
pub(crate) const MAX_LISTED_ERRORS: usize = 50;
/// Maximum number of ended jobs, besides the last one, that can be queried by id.
const MAX_ENDED: usize = 8;

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobMode {
    /// Reads the content of every note.
    Full,
    /// Reads notes whose modification time or size changed.
    Sync,
    /// Builds a new index from nothing.
    Reindex,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job is running.
    Running,
    /// The job is done; its notes can be searched.
    Done,
    /// The job was cancelled; the next job continues where it stopped.
    Cancelled,
    /// The job failed; the next job continues where it stopped.
    Failed,
    /// The process was killed; the next job continues where it stopped.
    Interrupted,
}

impl JobState {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A problem with one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileProblem {
    /// The file.
    pub file: String,
    /// What is wrong with the file, without its content.
    pub message: String,
}

/// One run of the indexer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// The id of the job.
    pub id: String,
    /// The kind of the job.
    pub mode: JobMode,
    /// The state of the job.
    pub state: JobState,
    /// Number of files to examine.
    pub total_files: u64,
    /// Number of files processed.
    pub done_files: u64,
    /// Number of files indexed because they were new or had changed.
    pub indexed_files: u64,
    /// Number of files removed from the index.
    pub removed_files: u64,
    /// Number of chunks written.
    pub written_chunks: u64,
    /// Number of chunks embedded; the others were known.
    pub embedded_chunks: u64,
    /// Number of chunks in the index when the job was done.
    pub total_chunks: u64,
    /// The first problems with single files.
    pub errors: Vec<FileProblem>,
    /// Number of files with problems.
    pub error_count: u64,
    /// Why the job failed, or what was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the job started.
    pub started_at: Timestamp,
    /// When the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Duration so far, in milliseconds.
    pub duration_ms: u64,
    /// How many times in a row an interrupted job was resumed automatically.
    pub attempt: u32,
    /// The process id of the job.
    pub pid: u32,
    /// When that process started, because process ids are reused.
    pub process_started: u64,
}

impl Job {
    /// A job that starts now.
    pub fn new(mode: JobMode, attempt: u32) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            mode,
            state: JobState::Running,
            total_files: 0,
            done_files: 0,
            indexed_files: 0,
            removed_files: 0,
            written_chunks: 0,
            embedded_chunks: 0,
            total_chunks: 0,
            errors: Vec::new(),
            error_count: 0,
            message: None,
            started_at: Timestamp::now(),
            ended_at: None,
            duration_ms: 0,
            attempt,
            pid: std::process::id(),
            process_started: start_time(std::process::id()).unwrap_or(0),
        }
    }

    /// Progress, 0 to 1.
    pub fn progress(&self) -> f64 {
        match (self.state, self.total_files) {
            (JobState::Done, _) => 1.0,
            (_, 0) => 0.0,
            (_, total) => (self.done_files as f64 / total as f64).min(1.0),
        }
    }

    /// Records a problem with a file.
    pub fn problem(&mut self, file: &str, message: &str) {
        self.error_count += 1;
        if self.errors.len() < MAX_LISTED_ERRORS {
            let message = redactor().text(message).into_owned();
            self.errors.push(FileProblem { file: file.to_owned(), message });
        }
    }

    /// Marks a running job as interrupted.
    fn interrupt(&mut self) {
        if self.state == JobState::Running {
            self.state = JobState::Interrupted;
            self.message = Some("The process that indexed ended before it was done.".to_owned());
        }
    }

    /// Whether the process of the job still exists.
    fn is_alive(&self) -> bool {
        start_time(self.pid).is_some_and(|started| started == self.process_started)
    }
}

/// The stored jobs: the last one, a few before it, and the time of the last successful sync.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JobRecord {
    /// The last job, finished or not.
    pub last: Option<Job>,
    /// Earlier jobs, newest first, so that a caller can query the result of its job although another one is already
    /// running.
    #[serde(default)]
    pub ended: Vec<Job>,
    /// When a job last brought the index up to date with the vault, or found it so.
    pub last_sync: Option<Timestamp>,
}

impl JobRecord {
    /// Starts another job. The previous one has ended, even if that could not be recorded.
    pub fn begin(&mut self, job: Job) {
        if let Some(mut before) = self.last.replace(job) {
            before.interrupt();
            self.ended.insert(0, before);
            self.ended.truncate(MAX_ENDED);
        }
    }

    /// The job with this id, if it is still known.
    pub fn find(&self, id: &str) -> Option<&Job> {
        self.last.iter().chain(&self.ended).find(|job| job.id == id)
    }

    /// The running job.
    pub fn running(&self) -> Option<&Job> {
        self.last.as_ref().filter(|job| job.state == JobState::Running)
    }

    /// The last job that ended, successful or not.
    pub fn last_ended(&self) -> Option<&Job> {
        self.last.iter().chain(&self.ended).find(|job| job.state != JobState::Running)
    }
}

/// The file in which jobs are stored.
#[derive(Debug, Clone)]
pub struct JobFile(PathBuf);

impl JobFile {
    /// The job file in this folder.
    pub fn new(folder: &Path) -> Self {
        Self(folder.join("job.json"))
    }

    /// The stored record. A job whose process is gone is interrupted. An unreadable file counts as empty.
    pub fn read(&self) -> JobRecord {
        let mut record = self.stored().unwrap_or_else(|error| {
            tracing::warn!(%error, "the record of the last indexing job cannot be read; it counts as empty");
            JobRecord::default()
        });
        if let Some(job) = &mut record.last
            && !job.is_alive()
        {
            job.interrupt();
        }
        record
    }

    fn stored(&self) -> std::io::Result<JobRecord> {
        match std::fs::read(&self.0) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(JobRecord::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the record atomically, readable only by the user.
    pub fn write(&self, record: &JobRecord) -> std::io::Result<()> {
        let staged = self.0.with_extension(format!("tmp-{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&staged)?;
        toolyard_faults::write_all(&mut file, &serde_json::to_vec(record)?)?;
        toolyard_faults::sync_data(&file)?;
        toolyard_faults::rename(&staged, &self.0)
    }
}

/// A file that requests the cancellation of a job. It is the only way to reach a job of another process.
#[derive(Debug, Clone)]
pub(super) struct CancelFile(PathBuf);

impl CancelFile {
    /// The cancellation file in this folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.join("job.cancel"))
    }

    /// Requests the cancellation of a job.
    pub(super) fn ask(&self, id: &str) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&self.0)?;
        toolyard_faults::write_all(&mut file, id.as_bytes())
    }

    /// Whether the cancellation of this job was requested. A request for another job does not count.
    pub(super) fn asks_for(&self, id: &str) -> bool {
        std::fs::read(&self.0).is_ok_and(|said| said == id.as_bytes())
    }

    /// Removes the request.
    pub(super) fn clear(&self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %self.0.display(), "a cancellation request could not be removed");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_a_dead_process_is_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let file = JobFile::new(dir.path());
        assert!(file.read().last.is_none());
        let mut job = Job::new(JobMode::Full, 0);
        file.write(&JobRecord { last: Some(job.clone()), ..JobRecord::default() }).unwrap();
        assert_eq!(file.read().last.unwrap().state, JobState::Running);
        job.process_started += 1;
        file.write(&JobRecord { last: Some(job), ..JobRecord::default() }).unwrap();
        assert_eq!(file.read().last.unwrap().state, JobState::Interrupted);
        std::fs::write(dir.path().join("job.json"), b"{half").unwrap();
        assert!(file.read().last.is_none());
    }

    #[test]
    fn the_last_few_jobs_are_found_by_their_ids() {
        let mut record = JobRecord::default();
        let mut jobs: Vec<Job> = (0..MAX_ENDED + 3).map(|_| Job::new(JobMode::Sync, 0)).collect();
        for job in &mut jobs {
            record.begin(job.clone());
            assert_eq!(record.running().map(|job| &job.id), Some(&job.id));
            job.state = JobState::Done;
            record.last = Some(job.clone());
            assert_eq!(record.last_ended().map(|job| &job.id), Some(&job.id));
        }
        record.begin(Job::new(JobMode::Full, 0));
        record.begin(Job::new(JobMode::Full, 0));
        assert!(record.ended.iter().all(|job| job.state != JobState::Running), "one runs at a time");
        record.ended.remove(0);
        assert_eq!(record.last_ended().map(|job| &job.id), jobs.last().map(|job| &job.id));
        assert!(record.find(&jobs[jobs.len() - MAX_ENDED + 1].id).is_some());
        assert!(record.find(&jobs[0].id).is_none(), "not all of them for ever");
    }

    /// A record written by an earlier version is still readable.
    #[test]
    fn a_record_without_earlier_jobs_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut old =
            serde_json::to_value(JobRecord { last: Some(Job::new(JobMode::Full, 0)), ..JobRecord::default() }).unwrap();
        old.as_object_mut().unwrap().remove("ended");
        std::fs::write(dir.path().join("job.json"), old.to_string()).unwrap();
        assert!(JobFile::new(dir.path()).read().running().is_some());
    }
}
