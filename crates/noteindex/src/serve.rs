//! The index program's side of the pipe: it reads requests, calls the index and writes replies. Every request runs in
//! its own task, so a search does not wait for a batch that is being written.
//!
//! It holds the vectors of the version that is searched. It knows no LanceDB: the caller of [`serve`] opens the index.

use crate::{
    IndexError, IndexReader, IndexResult, IndexWriter, NoteIndex, ProgramError, VectorColumns,
    search::{self, Library},
    wire::{
        self, EditRequest, Handle, Hello, OpenIndex, Part, ROWS_PER_FRAME, ReadRequest, Reply, Request, SentVector,
    },
};
use std::{
    collections::HashMap,
    io::{Read, Write},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{runtime, sync::OnceCell};

/// Opens the index of a connection.
pub type Opener = Box<dyn Fn(OpenIndex) -> IndexResult<Arc<dyn NoteIndex>> + Send + Sync>;

/// Serves one connection until the other side closes it. The function blocks; requests run on the runtime.
pub fn serve(
    mut requests: impl Read,
    replies: impl Write + Send + 'static,
    runtime: &runtime::Handle,
    open: Opener,
) -> Result<(), ProgramError> {
    serve_as(&Hello::own(), &mut requests, replies, runtime, open)
}

/// Like [`serve`], but with any program version, for tests.
pub fn serve_as(
    own: &Hello,
    requests: &mut impl Read,
    replies: impl Write + Send + 'static,
    runtime: &runtime::Handle,
    open: Opener,
) -> Result<(), ProgramError> {
    let broken = |e: std::io::Error| ProgramError::Protocol(e.to_string());
    let out = OutputPipe(Arc::new(Mutex::new(Box::new(replies))));
    // Both sides send their greeting first, so that each can name the other's version when it refuses the connection.
    out.write(&own.frame());
    let Some(hello) = wire::read_body(requests).map_err(broken)? else { return Ok(()) };
    own.accept(&Hello::parse(&hello)?, wire::PROGRAM, "toolyard")?;
    let served = Arc::new(ServedIndex {
        index: OnceLock::new(),
        open,
        readers: Mutex::default(),
        writers: Mutex::default(),
        newest: Mutex::default(),
        next: AtomicU64::new(1),
    });
    while let Some(body) = wire::read_body(requests).map_err(broken)? {
        let (number, request): (u64, Request) = wire::parse(&body)?;
        drop(body);
        let reply = Replier { out: out.clone(), number, is_done: false };
        // These requests are handled in order, on this thread: they change the set of handles and are quick.
        match request {
            Request::Open(options) => reply.finish(served.open(options)),
            Request::CloseReader(handle) => {
                locked(&served.readers).remove(&handle);
                reply.finish(Ok(Reply::Done));
            }
            // After closing a writer, a client may open the next one at once.
            Request::CloseWriter(handle) if served.close_at_once(handle) => reply.finish(Ok(Reply::Done)),
            request => {
                let served = served.clone();
                runtime.spawn(async move { served.answer(request, reply).await });
            }
        }
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The output pipe. A frame is written atomically with respect to other frames.
#[derive(Clone)]
struct OutputPipe(Arc<Mutex<Box<dyn Write + Send>>>);

impl OutputPipe {
    /// A write error is only logged: when the other side is gone, the request loop ends too.
    fn write(&self, frame: &[u8]) {
        let mut out = locked(&self.0);
        if let Err(error) = out.write_all(frame).and_then(|()| out.flush()) {
            tracing::debug!(%error, "a reply could not be written; the client has closed the pipe");
        }
    }
}

/// Replies to one request. If the task panics or is dropped before it replies, the drop sends an error.
struct Replier {
    out: OutputPipe,
    number: u64,
    is_done: bool,
}

impl Replier {
    fn part(&self, reply: IndexResult<Reply>, is_last: bool) {
        match wire::frame(self.number, &Part { is_last, reply }) {
            Ok(frame) => self.out.write(&frame),
            Err(error) => {
                let part = Part { is_last: true, reply: Err(error.into()) };
                if let Ok(frame) = wire::frame(self.number, &part) {
                    self.out.write(&frame);
                }
            }
        }
    }

    fn finish(mut self, reply: IndexResult<Reply>) {
        self.is_done = true;
        self.part(reply, true);
    }

    /// Sends many rows in several frames.
    fn finish_rows<T>(mut self, rows: IndexResult<Vec<T>>, reply: impl Fn(Vec<T>) -> Reply) {
        self.is_done = true;
        match rows {
            Err(error) => self.part(Err(error), true),
            Ok(mut rows) => {
                while rows.len() > ROWS_PER_FRAME {
                    let rest = rows.split_off(ROWS_PER_FRAME);
                    self.part(Ok(reply(rows)), false);
                    rows = rest;
                }
                self.part(Ok(reply(rows)), true);
            }
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if !self.is_done {
            self.part(Err(IndexError::Corrupted("reading it failed badly".to_owned())), true);
        }
    }
}

/// An open reader, with the library that the first query loads.
struct OpenReader {
    reader: Arc<dyn IndexReader>,
    library: OnceCell<Arc<Library>>,
    budget: AtomicU64,
}

type OpenWriter = Arc<tokio::sync::Mutex<Option<Box<dyn IndexWriter>>>>;

struct ServedIndex {
    index: OnceLock<Arc<dyn NoteIndex>>,
    open: Opener,
    readers: Mutex<HashMap<Handle, Arc<OpenReader>>>,
    writers: Mutex<HashMap<Handle, OpenWriter>>,
    /// The library that was loaded last: readers of the same version share it, and the next version reuses its vectors.
    newest: Mutex<Option<Arc<Library>>>,
    next: AtomicU64,
}

impl ServedIndex {
    fn open(&self, options: OpenIndex) -> IndexResult<Reply> {
        let opened = (self.open)(options)?;
        self.index.set(opened).map_err(|_| protocol("the index is open already"))?;
        Ok(Reply::Done)
    }

    fn index(&self) -> IndexResult<&Arc<dyn NoteIndex>> {
        self.index.get().ok_or_else(|| protocol("no index is open"))
    }

    /// Closes a writer that is not busy; returns whether it is closed.
    fn close_at_once(&self, handle: Handle) -> bool {
        let mut writers = locked(&self.writers);
        let is_closed = writers.get(&handle).is_none_or(|writer| match writer.try_lock() {
            Ok(mut slot) => {
                drop(slot.take());
                true
            }
            Err(_) => false,
        });
        if is_closed {
            writers.remove(&handle);
        }
        is_closed
    }

    fn handle(&self) -> Handle {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn answer(&self, request: Request, reply: Replier) {
        match request {
            Request::Read(handle, request) => {
                let reader = locked(&self.readers).get(&handle).cloned();
                match reader {
                    Some(reader) => self.read(&reader, request, reply).await,
                    None => reply.finish(Err(protocol("no such reader"))),
                }
            }
            Request::Edit(handle, request) => {
                let writer = locked(&self.writers).get(&handle).cloned();
                match writer {
                    Some(writer) => self.edit(handle, &writer, request, reply).await,
                    None => reply.finish(Err(protocol("no such writer"))),
                }
            }
            Request::CloseWriter(handle) => {
                let writer = locked(&self.writers).remove(&handle);
                if let Some(writer) = writer {
                    drop(writer.lock().await.take());
                }
                reply.finish(Ok(Reply::Done));
            }
            other => {
                let answered = self.of_index(other).await;
                reply.finish(answered);
            }
        }
    }

    async fn of_index(&self, request: Request) -> IndexResult<Reply> {
        let index = self.index()?;
        Ok(match request {
            Request::Generation => Reply::Generation(index.generation().await?),
            Request::Versions => Reply::Versions(index.versions().await?),
            Request::Rollback => Reply::Version(index.rollback().await?),
            Request::Current => Reply::Reader(index.current().await?.map(|reader| {
                let info = reader.info().clone();
                let handle = self.handle();
                let open = OpenReader { reader, library: OnceCell::new(), budget: AtomicU64::new(0) };
                locked(&self.readers).insert(handle, Arc::new(open));
                (handle, info)
            })),
            Request::Write(spec, start) => {
                let writer = index.write(&spec, start).await?;
                let (handle, is_changed) = (self.handle(), writer.is_changed());
                locked(&self.writers).insert(handle, Arc::new(tokio::sync::Mutex::new(Some(writer))));
                Reply::Writer(handle, is_changed)
            }
            _ => return Err(protocol("this request is not about an index")),
        })
    }

    async fn read(&self, open: &OpenReader, request: ReadRequest, reply: Replier) {
        let reader = &open.reader;
        let size = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        match request {
            ReadRequest::Files => return reply.finish_rows(reader.files().await, Reply::Files),
            ReadRequest::Vectors(columns) => return send_vectors(&**reader, columns, reply).await,
            ReadRequest::Sample(count) => {
                return reply.finish_rows(reader.sample(size(count)).await, Reply::Texts);
            }
            _ => {}
        }
        let answered = match request {
            ReadRequest::FullText(terms, filter, limit) => {
                reader.full_text(&terms, &filter, size(limit)).await.map(Reply::Found)
            }
            ReadRequest::FilesOf(rows) => reader.files_of(&rows).await.map(Reply::Ids),
            ReadRequest::Nearest(vector, filter, limit) => {
                reader.nearest(&vector, &filter, size(limit)).await.map(Reply::Found)
            }
            ReadRequest::VectorsOf(rows) => reader.vectors_of(&rows).await.map(Reply::Vectors),
            ReadRequest::Fetch(rows) => reader.fetch(&rows).await.map(Reply::Chunks),
            ReadRequest::Prepare(budget) => {
                open.budget.store(budget, Ordering::Relaxed);
                self.library(open).await.map(|_| Reply::Done)
            }
            ReadRequest::Ask(question) => match self.library(open).await {
                Ok(library) => search::answer(&library, &question).await.map(Reply::Answer),
                Err(error) => Err(error),
            },
            ReadRequest::Files | ReadRequest::Vectors(_) | ReadRequest::Sample(_) => Ok(Reply::Done),
        };
        reply.finish(answered);
    }

    /// The library of a reader, loaded on first use.
    async fn library(&self, open: &OpenReader) -> IndexResult<Arc<Library>> {
        let load = || async {
            let before = locked(&self.newest).clone();
            if let Some(same) = before.as_ref().filter(|library| library.info() == open.reader.info()) {
                return Ok(same.clone());
            }
            let budget = open.budget.load(Ordering::Relaxed);
            let library = Arc::new(Library::load(open.reader.clone(), before.as_deref(), budget).await?);
            *locked(&self.newest) = Some(library.clone());
            Ok(library)
        };
        open.library.get_or_try_init(load).await.cloned()
    }

    async fn edit(&self, handle: Handle, writer: &OpenWriter, request: EditRequest, reply: Replier) {
        let mut slot = writer.lock().await;
        let Some(writer) = slot.as_mut() else { return reply.finish(Err(protocol("the writer is closed"))) };
        match request {
            // The lock is released before the reply is sent, because the client may close the writer as soon as it
            // receives the reply.
            EditRequest::Files => {
                let files = writer.files().await;
                drop(slot);
                reply.finish_rows(files, Reply::Files);
            }
            EditRequest::KnownVectors(hashes) => {
                let known = writer.known_vectors(&hashes).await.map(|known| known.into_iter().collect());
                drop(slot);
                reply.finish_rows(known, Reply::Known);
            }
            EditRequest::Put(batch) => {
                let written = writer.put(batch).await;
                let is_changed = writer.is_changed();
                drop(slot);
                reply.finish(written.map(|()| Reply::Writer(handle, is_changed)));
            }
            EditRequest::Complete => {
                let Some(writer) = slot.take() else { return reply.finish(Err(protocol("the writer is closed"))) };
                locked(&self.writers).remove(&handle);
                drop(slot);
                reply.finish(writer.complete().await.map(Reply::Version));
            }
        }
    }
}

/// Sends vectors while they are read, so that they are never all in memory at once.
async fn send_vectors(reader: &dyn IndexReader, columns: VectorColumns, reply: Replier) {
    let mut rows: Vec<SentVector> = Vec::new();
    let mut sink = |row: crate::VectorRow<'_>| {
        let vector = row.vector.map(<[f32]>::to_vec);
        rows.push(SentVector { row: row.row, file: row.file, hash: row.hash, vector });
        if rows.len() >= ROWS_PER_FRAME {
            reply.part(Ok(Reply::VectorRows(std::mem::take(&mut rows))), false);
        }
    };
    let read = reader.vectors(columns, &mut sink).await;
    reply.finish(read.map(|()| Reply::VectorRows(rows)));
}

fn protocol(why: &str) -> IndexError {
    ProgramError::Protocol(why.to_owned()).into()
}
