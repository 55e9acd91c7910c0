//! Writes `runs/<runId>/{run.json,calls.jsonl,results.jsonl,events.jsonl}` in the background, from the store.
//!
//! The store is authoritative and these files are copies, so nothing waits for them and nothing is synced. Single calls
//! are written at a bounded rate: under load a thousand calls a second would otherwise spend more on their four small
//! files than on themselves. What is skipped then can be written at any time with `toolyard runs export`.

use crate::config::{RecordConfig, RunFilesMode};
use std::{
    collections::VecDeque,
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use toolyard_engine::{Store, store::RunKind, view};
use toolyard_protocol::{Failure, RunId, RunStatus};

/// The largest number of runs that wait to be written; further runs are skipped.
const QUEUE: usize = 4096;
/// Folders of single calls written in one second at most, while the process goes on.
const CALLS_PER_SECOND: u32 = 50;

/// The background writer.
pub struct RunFiles {
    sender: SyncSender<Job>,
    thread: JoinHandle<()>,
    mode: RunFilesMode,
}

enum Job {
    Write(RunId, RunKind),
    Finish,
}

impl RunFiles {
    /// Starts the writer.
    pub fn start(dir: PathBuf, store: Arc<dyn Store>, config: &RecordConfig) -> io::Result<Self> {
        let (sender, jobs) = sync_channel(QUEUE);
        let mut writer = Writer {
            dir,
            store,
            keep: config.keep_call_folders,
            calls: None,
            budget: CALLS_PER_SECOND,
            since: Instant::now(),
            skipped: 0,
        };
        let thread = std::thread::Builder::new().name("run-files".to_owned()).spawn(move || writer.run(&jobs))?;
        Ok(Self { sender, thread, mode: config.files })
    }

    /// The listener to which the engine reports ended runs.
    pub fn listener(&self) -> toolyard_engine::RunEndListener {
        let (sender, mode) = (self.sender.clone(), self.mode);
        Box::new(move |run_id, kind, _status: RunStatus| {
            if mode == RunFilesMode::All || kind == RunKind::Plan {
                // The files are copies of the record: `toolyard runs export` writes those of a skipped run.
                if sender.try_send(Job::Write(run_id, kind)).is_err() {
                    tracing::warn!(%run_id, "the files of a run are not written: too many runs are waiting for theirs");
                }
            }
        })
    }

    /// Writes the waiting runs, then ends. May block.
    pub fn finish(self) {
        if self.sender.send(Job::Finish).is_err() || self.thread.join().is_err() {
            tracing::error!("the writer of run files ended unexpectedly");
        }
    }
}

struct Writer {
    dir: PathBuf,
    store: Arc<dyn Store>,
    keep: usize,
    /// Folders of single calls, oldest first; read from disk at first use.
    calls: Option<VecDeque<PathBuf>>,
    budget: u32,
    since: Instant,
    skipped: u64,
}

impl Writer {
    fn run(&mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Finish => break,
                Job::Write(run_id, kind) => {
                    if kind == RunKind::Call && !self.may_write() {
                        self.skipped += 1;
                        continue;
                    }
                    if let Err(error) = self.write(run_id, kind) {
                        tracing::warn!(%error, %run_id, "the files of a run could not be written");
                    }
                }
            }
        }
        if self.skipped > 0 {
            tracing::info!(
                skipped = self.skipped,
                "single calls without files; write them with `toolyard runs export`"
            );
        }
    }

    fn may_write(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            self.since = Instant::now();
            self.budget = CALLS_PER_SECOND;
        }
        self.budget = self.budget.saturating_sub(1);
        self.budget > 0
    }

    fn write(&mut self, run_id: RunId, kind: RunKind) -> Result<(), Failure> {
        self.store.settle()?;
        let export = view::export_run(&*self.store, run_id)?;
        let target = self.dir.join(run_id.to_string());
        write_export(&export, &target).map_err(|e| {
            Failure::new(toolyard_protocol::ErrorCode::StoreUnavailable, format!("{}: {e}", target.display()))
        })?;
        if kind == RunKind::Call {
            self.prune(target);
        }
        Ok(())
    }

    fn prune(&mut self, newest: PathBuf) {
        let dir = &self.dir;
        let calls = self.calls.get_or_insert_with(|| existing_calls(dir));
        if calls.back() != Some(&newest) {
            calls.push_back(newest);
        }
        while calls.len() > self.keep {
            if let Some(oldest) = calls.pop_front() {
                removed(&oldest);
            }
        }
    }
}

/// Folders of single calls: their run.json has no plan. Run ids sort by time.
fn existing_calls(dir: &Path) -> VecDeque<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return VecDeque::new() };
    let mut calls: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| fs::read_to_string(p.join("run.json")).is_ok_and(|text| !text.contains("\"planHash\"")))
        .collect();
    calls.sort();
    calls.into()
}

/// Writes the four files into a folder: made under another name and then renamed, so that a reader never sees
/// incomplete files.
pub fn write_export(export: &view::RunExport, target: &Path) -> io::Result<()> {
    let parent = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let name = target.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let staging = parent.join(format!(".{name}.{}", std::process::id()));
    removed(&staging);
    fs::create_dir(&staging)?;
    let written = write_files(export, &staging).and_then(|()| {
        if target.exists() {
            // The run was paused and has been continued: its files replace the earlier ones, which were copies too.
            for file in FILES {
                fs::rename(staging.join(file), target.join(file))?;
            }
            fs::remove_dir(&staging)
        } else {
            fs::rename(&staging, target)
        }
    });
    if written.is_err() {
        removed(&staging);
    }
    written
}

/// Removes a folder, if it is there.
fn removed(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "a folder of run files could not be removed");
    }
}

/// The names the specification gives them.
pub const FILES: [&str; 4] = ["run.json", "calls.jsonl", "results.jsonl", "events.jsonl"];

fn write_files(export: &view::RunExport, dir: &Path) -> io::Result<()> {
    let mut manifest = serde_json::to_vec_pretty(&export.manifest)?;
    manifest.push(b'\n');
    fs::write(dir.join(FILES[0]), manifest)?;
    lines(&dir.join(FILES[1]), &export.calls)?;
    lines(&dir.join(FILES[2]), &export.results)?;
    lines(&dir.join(FILES[3]), &export.events)
}

fn lines<T: serde::Serialize>(path: &Path, items: &[T]) -> io::Result<()> {
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    for item in items {
        serde_json::to_writer(&mut file, item)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}
