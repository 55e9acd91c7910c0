//! `toolyard-index` as a process: the contract suite over its pipe, and the state after it is killed.

use crate::index_suite::{self, note, spec};
use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use toolyard_noteindex::{
    ChunkFilter, IndexError, IndexResult, NoteIndex, ProgramError, WriterStart,
    remote::{IDLE_STOP, Launch, RemoteIndex, RunningProgram},
    wire::{Hello, OpenIndex},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolyard-index");
const X: [f32; 4] = [1.0, 0.0, 0.0, 0.0];

/// Starts the program and records its process ids, so that a test can kill one.
#[derive(Clone, Default)]
struct Processes {
    ids: Arc<Mutex<Vec<u32>>>,
    starts: Arc<AtomicUsize>,
}

impl Processes {
    fn kill(&self) {
        if let Some(id) = self.ids.lock().unwrap().last() {
            let _ = Command::new("kill").arg("-9").arg(id.to_string()).stderr(Stdio::null()).status();
        }
    }
}

impl Launch for Processes {
    fn find(&self) -> Result<(), ProgramError> {
        Ok(())
    }

    fn start(&self) -> Result<RunningProgram, ProgramError> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let running = RunningProgram::spawn(tokio::process::Command::new(PROGRAM))?;
        self.ids.lock().unwrap().extend(running.id());
        Ok(running)
    }
}

fn open(dir: &Path, processes: &Processes) -> RemoteIndex {
    RemoteIndex::new(processes.clone(), OpenIndex::new(dir.display().to_string()), IDLE_STOP)
}

index_suite::every_check!(|| async {
    let dir = tempfile::tempdir().unwrap();
    let index = Arc::new(open(dir.path(), &Processes::default())) as Arc<dyn NoteIndex>;
    (dir, index)
});

#[test]
fn the_program_says_its_version_and_refuses_to_run_by_hand() {
    let version = Command::new(PROGRAM).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout), format!("toolyard-index {}\n", env!("CARGO_PKG_VERSION")));
    let by_hand = Command::new(PROGRAM).arg("serve").stdin(Stdio::null()).output().unwrap();
    assert_eq!(by_hand.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("started by toolyard"));
}

#[test]
fn the_program_refuses_another_version_of_toolyard() {
    use std::io::Write;
    let mut process =
        Command::new(PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let other = Hello { protocol: 77, version: "7.7.7".to_owned() };
    process.stdin.take().unwrap().write_all(&other.frame()).unwrap();
    let ended = process.wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && why.contains("toolyard is of version 7.7.7"), "{why}");
}

async fn job(index: &RemoteIndex, round: usize) -> IndexResult<()> {
    let mut writer = index.write(&spec(), WriterStart::Continue).await?;
    for number in 0..6 {
        writer.put(note(&format!("n{number}.md"), &[(&format!("apple round{round}"), X)])).await?;
    }
    writer.complete().await.map(drop)
}

/// The program is killed at points spread over a job: the last complete version stays intact, and the next job
/// completes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_writes_it_leaves_a_whole_index() {
    const POINTS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::default();
    let index = open(dir.path(), &processes);
    let started = Instant::now();
    job(&index, 0).await.unwrap();
    let usual = started.elapsed();
    let mut round = 0;
    for point in 0..POINTS {
        let killer = processes.clone();
        let after = usual.mul_f64((point as f64 + 0.5) / POINTS as f64);
        let kill = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            killer.kill();
        });
        match job(&index, round + 1).await {
            Ok(()) => round += 1,
            Err(IndexError::Program(ProgramError::Ended(_))) => {}
            Err(other) => panic!("{point}: {other:?}"),
        }
        kill.await.unwrap();
        let reader = loop {
            match index.current().await {
                Ok(reader) => break reader.expect("a complete version"),
                Err(IndexError::Program(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(other) => panic!("{point}: {other:?}"),
            }
        };
        let files = reader.files().await.unwrap();
        let found = reader.full_text(&["apple".to_owned()], &ChunkFilter::default(), 50).await.unwrap();
        assert_eq!((files.len(), found.len()), (6, 6), "{point}");
        // A kill between the tag and its reply leaves the new version, any other kill the old one, and never a mixture.
        let texts: std::collections::BTreeSet<String> = reader.sample(50).await.unwrap().into_iter().collect();
        assert_eq!(texts.len(), 1, "{point}: {texts:?}");
    }
    job(&index, round + 1).await.unwrap();
    assert!(processes.starts.load(Ordering::SeqCst) > 1, "it was killed at least once");
}
