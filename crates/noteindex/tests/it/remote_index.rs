//! The contract suite over a pipe, and the handling of misbehaving index programs.

use crate::index_suite::{self, note, spec};
use std::{
    io::Write,
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use toolyard_noteindex::{
    ChunkFilter, IndexError, IndexResult, NoteIndex, ProgramError, WriterStart,
    memory::MemoryIndex,
    remote::{IDLE_STOP, Launch, RemoteIndex, RunningProgram},
    search::{Detail, Library, Ranked, SearchQuery, SearchResult, Weights, answer},
    serve::serve_as,
    wire::{Hello, OpenIndex},
};

const X: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
const Y: [f32; 4] = [0.0, 1.0, 0.0, 0.0];
/// A timeout that is longer than any step here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the fake program behaves.
#[derive(Clone)]
enum Manner {
    /// Correctly.
    Good,
    /// As a program of another version.
    Other(Hello),
    /// Ends after receiving this many bytes, on the first `starts` starts.
    Ends { after: usize, starts: usize },
    /// Sends these bytes instead of the protocol.
    Nonsense(Vec<u8>),
    /// Is not installed.
    Missing,
}

/// A fake program that runs as a thread with two sockets. Its index is persisted in a folder, so that the next start
/// finds it.
pub(crate) struct Threads {
    folder: PathBuf,
    manner: Mutex<Manner>,
    pub(crate) starts: AtomicUsize,
    ends: Arc<AtomicUsize>,
    live: Mutex<Vec<UnixStream>>,
}

impl Threads {
    pub(crate) fn new(folder: &Path) -> Arc<Self> {
        let (folder, manner) = (folder.to_owned(), Mutex::new(Manner::Good));
        Arc::new(Self { folder, manner, starts: AtomicUsize::default(), ends: Arc::default(), live: Mutex::default() })
    }

    fn behaving(folder: &Path, manner: Manner) -> Arc<Self> {
        let threads = Self::new(folder);
        *threads.manner.lock().unwrap() = manner;
        threads
    }

    pub(crate) fn uninstall(&self) {
        *self.manner.lock().unwrap() = Manner::Missing;
    }

    pub(crate) fn install(&self) {
        *self.manner.lock().unwrap() = Manner::Good;
    }

    /// Simulates `kill -9`: the pipes are closed in the middle of whatever the program does.
    fn kill(&self) {
        for stream in self.live.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub(crate) struct Starter(pub(crate) Arc<Threads>);

impl Launch for Starter {
    fn find(&self) -> Result<(), ProgramError> {
        match *self.0.manner.lock().unwrap() {
            Manner::Missing => Err(ProgramError::Missing("it was taken away".to_owned())),
            _ => Ok(()),
        }
    }

    fn start(&self) -> Result<RunningProgram, ProgramError> {
        let number = self.0.starts.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.0.live.lock().unwrap().push(theirs.try_clone().unwrap());
        let (manner, folder) = (self.0.manner.lock().unwrap().clone(), self.0.folder.clone());
        let runtime = tokio::runtime::Handle::current();
        let ends = self.0.ends.clone();
        std::thread::spawn(move || {
            let open = Box::new(move |_| Ok(Arc::new(MemoryIndex::kept_in(&folder)) as Arc<dyn NoteIndex>));
            let replies = theirs.try_clone().unwrap();
            match manner {
                Manner::Ends { after, starts } if number < starts => {
                    let mut cut = std::io::Read::take(theirs.try_clone().unwrap(), after as u64);
                    let _ = serve_as(&Hello::own(), &mut cut, replies, &runtime, open);
                }
                Manner::Other(hello) => {
                    let _ = serve_as(&hello, &mut theirs.try_clone().unwrap(), replies, &runtime, open);
                }
                Manner::Nonsense(bytes) => (&theirs).write_all(&bytes).unwrap(),
                _ => {
                    let _ = serve_as(&Hello::own(), &mut theirs.try_clone().unwrap(), replies, &runtime, open);
                }
            }
            let _ = theirs.shutdown(Shutdown::Both);
            ends.fetch_add(1, Ordering::SeqCst);
        });
        ours.set_nonblocking(true).unwrap();
        let (replies, requests) = tokio::net::UnixStream::from_std(ours).unwrap().into_split();
        Ok(RunningProgram::over(replies, requests))
    }
}

pub(crate) fn remote(threads: &Arc<Threads>, idle: Duration) -> RemoteIndex {
    RemoteIndex::new(Starter(threads.clone()), OpenIndex::new("unused"), idle)
}

fn good() -> (TempDir, Arc<Threads>, RemoteIndex) {
    let dir = tempfile::tempdir().unwrap();
    let threads = Threads::new(dir.path());
    let index = remote(&threads, IDLE_STOP);
    (dir, threads, index)
}

index_suite::every_check!(|| async {
    let (dir, _, index) = good();
    (dir, Arc::new(index) as Arc<dyn NoteIndex>)
});

pub(crate) async fn complete(index: &dyn NoteIndex, path: &str, text: &str) -> IndexResult<()> {
    let mut writer = index.write(&spec(), WriterStart::Continue).await?;
    writer.put(note(path, &[(text, X), ("banana bread", Y)])).await?;
    writer.complete().await.map(drop)
}

fn question(term: &str, vector: Option<[f32; 4]>) -> SearchQuery {
    SearchQuery {
        terms: vec![term.to_owned()],
        vector: vector.map(|vector| vector.to_vec()),
        filter: ChunkFilter::default(),
        allowed: None,
        limit: 10,
        weights: Weights { vector: 0.5, links: 0.02 },
        detail: Detail::Chunks,
    }
}

const BUDGET: u64 = 1 << 20;

async fn library(index: &dyn NoteIndex) -> Library {
    Library::load(index.current().await.unwrap().unwrap(), None, BUDGET).await.unwrap()
}

/// The same query over the same rows gives the same result on both sides of the pipe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_as_it_is_without_a_pipe() {
    let (_dir, _, far) = good();
    let near = MemoryIndex::new();
    for index in [&far as &dyn NoteIndex, &near] {
        for (path, text) in [("b.md", "apple pie"), ("a.md", "apple apple tart"), ("c.md", "cherry")] {
            complete(index, path, text).await.unwrap();
        }
    }
    let (far, near) = (library(&far).await, library(&near).await);
    assert!(far.vectors.is_none() && near.vectors.is_some(), "the vectors are kept where the index is");
    let allowed = Some(Arc::new(vec![false, true, true]));
    for asked in [
        question("apple", Some(X)),
        question("banana", None),
        question("unheard", Some(Y)),
        SearchQuery { allowed, ..question("apple", Some(X)) },
        SearchQuery { detail: Detail::Scores, ..question("apple", Some(X)) },
        SearchQuery {
            filter: ChunkFilter { folders: vec!["c.md".to_owned()], ..ChunkFilter::default() },
            ..question("cherry", Some(X))
        },
    ] {
        let (there, here) = (answer(&far, &asked).await.unwrap(), answer(&near, &asked).await.unwrap());
        assert_eq!(there, here, "{asked:?}");
        assert!(!here.hits.is_empty());
    }
}

/// When vectors do not fit into memory, the index runs the vector search and rows are mapped to files by runs.
#[tokio::test]
async fn a_question_is_answered_alike_whether_or_not_vectors_fit_the_memory() {
    let index = MemoryIndex::new();
    for (path, text) in [("b.md", "apple pie"), ("a.md", "apple apple tart"), ("c.md", "cherry")] {
        complete(&index, path, text).await.unwrap();
    }
    let fits = library(&index).await;
    let tight = Library::load(index.current().await.unwrap().unwrap(), None, 0).await.unwrap();
    assert!(fits.vectors.is_some() && tight.vectors.is_none());
    let rows: Vec<u64> = (0..6).collect();
    assert_eq!(tight.files_of(&rows).await.unwrap(), fits.files_of(&rows).await.unwrap());
    let allowed = Some(Arc::new(vec![false, true, true]));
    for asked in [
        question("apple", Some(X)),
        question("unheard", Some(Y)),
        question("banana", None),
        SearchQuery { allowed, ..question("apple", Some(X)) },
    ] {
        let (with, without) = (answer(&fits, &asked).await.unwrap(), answer(&tight, &asked).await.unwrap());
        let places =
            |answer: &SearchResult| answer.hits.iter().map(|hit| (hit.fused.row, hit.fused.file)).collect::<Vec<_>>();
        assert_eq!(places(&with), places(&without), "{asked:?}");
        for (one, other) in with.hits.iter().zip(&without.hits) {
            let like = |hit: &Ranked| hit.fused.likeness.unwrap_or(-1.0);
            assert!((like(one) - like(other)).abs() < 0.02, "{one:?} {other:?}");
            assert_eq!(one.chunk, other.chunk);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version_of_the_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let other = Hello { protocol: 9, version: "9.9.9".to_owned() };
    let index = remote(&Threads::behaving(dir.path(), Manner::Other(other)), IDLE_STOP);
    let error = index.generation().await.unwrap_err();
    let IndexError::Program(ProgramError::OtherVersion(why)) = error else { panic!("{error:?}") };
    assert!(why.contains("9.9.9") && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_program_is_found_as_soon_as_it_is_installed() {
    let (_dir, threads, index) = good();
    threads.uninstall();
    assert!(matches!(index.generation().await, Err(IndexError::Program(ProgramError::Missing(_)))));
    threads.install();
    assert_eq!(index.generation().await, Ok(None));
}

/// Invalid output is an error, whether or not it looks like a frame, and never a hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_talks_nonsense_is_an_error() {
    let greeting = Hello::own().frame();
    let huge = [greeting.clone(), u32::MAX.to_le_bytes().to_vec()].concat();
    let odd = [greeting.clone(), 12u32.to_le_bytes().to_vec(), vec![0xff; 12]].concat();
    for bytes in [Vec::new(), b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), greeting, huge, odd] {
        let dir = tempfile::tempdir().unwrap();
        let index = remote(&Threads::behaving(dir.path(), Manner::Nonsense(bytes.clone())), IDLE_STOP);
        let asked = tokio::time::timeout(PATIENCE, index.generation()).await.expect("an answer");
        assert!(matches!(asked, Err(IndexError::Program(_))), "{bytes:?}: {asked:?}");
    }
}

/// The program ends at every point of a read: it is restarted, and the result is correct.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_while_it_is_read_is_asked_once_more() {
    let dir = tempfile::tempdir().unwrap();
    complete(&remote(&Threads::new(dir.path()), IDLE_STOP), "a.md", "apple pie").await.unwrap();
    let mut ended = 0;
    for after in (0..600).step_by(7) {
        let threads = Threads::behaving(dir.path(), Manner::Ends { after, starts: 1 });
        let index = remote(&threads, IDLE_STOP);
        let read = async {
            let Some(reader) = index.current().await? else { panic!("there is a version") };
            let library = Library::load(reader, None, BUDGET).await?;
            answer(&library, &question("apple", Some(X))).await
        };
        match tokio::time::timeout(PATIENCE, read).await.expect("an answer") {
            Ok(found) => assert_eq!(found.hits.len(), 2, "{after}"),
            // A failed start is not retried automatically: the caller gets an error and may retry.
            Err(IndexError::Program(
                ProgramError::NotStarted(_) | ProgramError::Ended(_) | ProgramError::Protocol(_),
            )) => {
                ended += 1;
            }
            Err(other) => panic!("{after}: {other:?}"),
        }
        let again = index.current().await.unwrap().unwrap();
        assert_eq!(again.info().files, 1, "{after}");
    }
    assert!(ended < 40, "most ends go unnoticed: {ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_outlives_its_program_and_a_writer_does_not() {
    let (_dir, threads, index) = good();
    complete(&index, "a.md", "apple pie").await.unwrap();
    let library = library(&index).await;
    let mut writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    writer.put(note("b.md", &[("cherry", X)])).await.unwrap();
    threads.kill();
    let put = writer.put(note("c.md", &[("cherry", X)])).await;
    assert!(matches!(put, Err(IndexError::Program(ProgramError::Ended(_)))), "{put:?}");
    drop(writer);
    assert_eq!(answer(&library, &question("apple", Some(X))).await.unwrap().hits.len(), 2);
    complete(&index, "b.md", "cherry").await.unwrap();
    assert_eq!(index.current().await.unwrap().unwrap().info().files, 2);
    threads.kill();
    // The library's version is no longer the newest, and a restarted program cannot open it.
    let stale = answer(&library, &question("apple", Some(X))).await;
    assert!(matches!(stale, Err(IndexError::Program(ProgramError::Replaced(_)))), "{stale:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_nobody_uses_is_stopped_and_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let threads = Threads::new(dir.path());
    let index = remote(&threads, Duration::from_millis(400));
    assert!(index.is_resting(), "nothing is started before it is used");
    let writer = index.write(&spec(), WriterStart::Continue).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(!index.is_resting(), "an open writer is use");
    drop(writer);
    complete(&index, "a.md", "apple pie").await.unwrap();
    let library = library(&index).await;
    let rests = async {
        while threads.ends.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, rests).await.expect("it is stopped, though a reader is open");
    assert!(index.is_resting());
    // On a busy machine the program may already have been stopped between two uses.
    let starts = threads.starts.load(Ordering::SeqCst);
    assert_eq!(answer(&library, &question("apple", Some(X))).await.unwrap().hits.len(), 2);
    assert_eq!(threads.starts.load(Ordering::SeqCst), starts + 1);
}

/// Many concurrent queries while the program is killed repeatedly: each gets a result or an error, and none hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_questions_at_once_are_all_answered_whatever_happens() {
    let (_dir, threads, index) = good();
    complete(&index, "a.md", "apple pie").await.unwrap();
    let library = Arc::new(library(&index).await);
    let mut asking = Vec::new();
    for _ in 0..16 {
        let library = library.clone();
        asking.push(tokio::spawn(async move {
            for _ in 0..40 {
                match answer(&library, &question("apple", Some(X))).await {
                    Ok(found) => assert_eq!(found.hits.len(), 2),
                    Err(IndexError::Program(_)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        }));
    }
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        threads.kill();
    }
    for task in asking {
        tokio::time::timeout(PATIENCE, task).await.expect("no question waits for ever").unwrap();
    }
}
