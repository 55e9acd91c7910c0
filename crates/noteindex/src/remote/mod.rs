//! [`RemoteIndex`]: the index traits over a pipe to the index program.
//!
//! A read that is interrupted by the end of the program is retried once on a restarted program; a reader finds its
//! version there again by its version information. A write is not retried: the indexing job starts again from what was
//! written. Every other failure of the program becomes an [`IndexError::Program`].

mod connection;
mod launch;
mod supervise;

pub use launch::{Launch, ProgramLocator, RunningProgram};
pub use supervise::IDLE_STOP;

use crate::{
    BoxFuture, ChunkFilter, ChunkRow, FileRow, IndexError, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex,
    ProgramError, RowScore, VectorColumns, VectorRow, VectorSink, VersionInfo, WriteBatch, WriterStart,
    search::{SearchQuery, SearchResult},
    wire::{EditRequest, Handle, OpenIndex, ReadRequest, Reply, Request},
};
use connection::Connection;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use supervise::Supervisor;

/// Suffixes of table names: of LanceDB, and of the in-memory index.
const TABLE_ENDS: [&str; 2] = [".lance", ".memory"];

/// An index that is managed by another program.
pub struct RemoteIndex {
    supervisor: Arc<Supervisor>,
    /// The folder of the index, if it is local.
    folder: Option<PathBuf>,
}

impl RemoteIndex {
    /// Creates the index without starting the program.
    pub fn new(launch: impl Launch, open: OpenIndex, idle: Duration) -> Self {
        Self { supervisor: Arc::new(Supervisor::new(Box::new(launch), open, idle)), folder: None }
    }

    /// Sets the local folder of the index. While the folder has no table, the program is not started just to report
    /// that.
    pub fn in_folder(self, folder: PathBuf) -> Self {
        Self { folder: Some(folder), ..self }
    }

    fn has_nothing(&self) -> bool {
        let Some(folder) = self.folder.as_ref().filter(|_| !self.supervisor.is_running()) else { return false };
        let is_table = |entry: std::fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|name| TABLE_ENDS.iter().any(|end| name.ends_with(end)))
        };
        match std::fs::read_dir(folder) {
            Ok(entries) => !entries.flatten().any(is_table),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Checks that the program is installed, without starting it.
    pub fn find(&self) -> Result<(), ProgramError> {
        self.supervisor.find()
    }

    /// Sends a read-only request, with one retry if the program ends.
    async fn look(&self, request: Request) -> IndexResult<Reply> {
        let connection = self.supervisor.connection().await?;
        match connection.call(&request).await {
            Err(IndexError::Program(ProgramError::Ended(_))) => {
                self.supervisor.connection().await?.call(&request).await
            }
            answered => answered,
        }
    }

    async fn reader(&self) -> IndexResult<Option<Arc<dyn IndexReader>>> {
        for is_last in [false, true] {
            let connection = self.supervisor.connection().await?;
            match connection.call(&Request::Current).await {
                Err(IndexError::Program(ProgramError::Ended(_))) if !is_last => {}
                Err(error) => return Err(error),
                Ok(Reply::Reader(None)) => return Ok(None),
                Ok(Reply::Reader(Some((handle, info)))) => {
                    let bound = Mutex::new(BoundReader { connection, handle });
                    let reader =
                        RemoteReader { supervisor: self.supervisor.clone(), info, bound, budget: Mutex::default() };
                    return Ok(Some(Arc::new(reader)));
                }
                Ok(other) => return Err(unexpected(&other)),
            }
        }
        Ok(None)
    }
}

fn unexpected(reply: &Reply) -> IndexError {
    let name = format!("{reply:?}");
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    ProgramError::Protocol(format!("an unexpected answer: {name}")).into()
}

/// Unwraps the expected kind of reply.
macro_rules! expect {
    ($reply:expr, $kind:path) => {
        match $reply {
            $kind(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    };
}

impl NoteIndex for RemoteIndex {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        Box::pin(async { if self.has_nothing() { Ok(None) } else { self.reader().await } })
    }

    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        Box::pin(async {
            if self.has_nothing() {
                return Ok(None);
            }
            expect!(self.look(Request::Generation).await?, Reply::Generation)
        })
    }

    fn write<'a>(
        &'a self,
        spec: &'a IndexSpec,
        start: WriterStart,
    ) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        Box::pin(async move {
            let connection = self.supervisor.connection().await?;
            match connection.call(&Request::Write(spec.clone(), start)).await? {
                Reply::Writer(handle, is_changed) => {
                    connection.writer_opened();
                    Ok(Box::new(RemoteWriter { connection, handle, is_changed }) as Box<dyn IndexWriter>)
                }
                other => Err(unexpected(&other)),
            }
        })
    }

    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>> {
        Box::pin(async { expect!(self.look(Request::Versions).await?, Reply::Versions) })
    }

    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>> {
        Box::pin(async {
            let connection = self.supervisor.connection().await?;
            expect!(connection.call(&Request::Rollback).await?, Reply::Version)
        })
    }

    fn is_resting(&self) -> bool {
        self.supervisor.is_resting()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.supervisor.stop() })
    }
}

/// A reader handle and the connection it belongs to.
struct BoundReader {
    connection: Arc<Connection>,
    handle: Handle,
}

/// A complete version, read through whichever program instance is running.
struct RemoteReader {
    supervisor: Arc<Supervisor>,
    info: VersionInfo,
    bound: Mutex<BoundReader>,
    /// The budget of the last `prepare`, to prepare a restarted program again.
    budget: Mutex<Option<u64>>,
}

impl RemoteReader {
    fn bound(&self) -> (Arc<Connection>, Handle) {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        (bound.connection.clone(), bound.handle)
    }

    /// The current connection and this reader's handle on it.
    async fn bind(&self) -> IndexResult<(Arc<Connection>, Handle)> {
        let connection = self.supervisor.connection().await?;
        let (known, handle) = self.bound();
        if known.epoch == connection.epoch {
            return Ok((connection, handle));
        }
        let handle = match connection.call(&Request::Current).await? {
            Reply::Reader(Some((handle, info))) if info == self.info => handle,
            Reply::Reader(other) => {
                if let Some((handle, _)) = other {
                    connection.send_only(&Request::CloseReader(handle));
                }
                let why = format!("version {} is no longer the newest one", self.info.version);
                return Err(ProgramError::Replaced(why).into());
            }
            other => return Err(unexpected(&other)),
        };
        let budget = *self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(budget) = budget {
            connection.call(&Request::Read(handle, ReadRequest::Prepare(budget))).await?;
        }
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        *bound = BoundReader { connection: connection.clone(), handle };
        Ok((connection, handle))
    }

    /// Sends a request and passes every part of the response to `take`. Retries once if the program ends before the
    /// first part.
    async fn parts(&self, request: ReadRequest, mut take: impl FnMut(Reply) -> IndexResult<()>) -> IndexResult<()> {
        let mut tries = 0;
        'again: loop {
            tries += 1;
            let asked = async {
                let (connection, handle) = self.bind().await?;
                let parts = connection.ask(&Request::Read(handle, request.clone())).await?;
                Ok((connection, parts))
            };
            let (connection, mut parts) = match asked.await {
                Err(IndexError::Program(ProgramError::Ended(_))) if tries == 1 => continue 'again,
                asked => asked?,
            };
            let mut is_first = true;
            loop {
                let (reply, is_last) = match connection.next_part(&mut parts).await {
                    Err(IndexError::Program(ProgramError::Ended(_))) if is_first && tries == 1 => continue 'again,
                    part => part?,
                };
                is_first = false;
                take(reply)?;
                if is_last {
                    return Ok(());
                }
            }
        }
    }

    async fn read(&self, request: ReadRequest) -> IndexResult<Reply> {
        let mut answer = None;
        self.parts(request, |reply| {
            answer = Some(reply);
            Ok(())
        })
        .await?;
        answer.ok_or_else(|| ProgramError::Protocol("an answer without parts".to_owned()).into())
    }
}

impl Drop for RemoteReader {
    fn drop(&mut self) {
        let (connection, handle) = self.bound();
        if connection.is_alive() {
            connection.send_only(&Request::CloseReader(handle));
        }
    }
}

/// Collects the rows of a multi-part response.
macro_rules! rows {
    ($parts:expr, $kind:path) => {{
        let mut all = Vec::new();
        $parts(&mut |reply| {
            all.extend(expect!(reply, $kind)?);
            Ok(())
        })
        .await?;
        Ok(all)
    }};
}

impl IndexReader for RemoteReader {
    fn info(&self) -> &VersionInfo {
        &self.info
    }

    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        Box::pin(async { rows!(|take| self.parts(ReadRequest::Files, take), Reply::Files) })
    }

    fn full_text<'a>(
        &'a self,
        terms: &'a [String],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        let request = ReadRequest::FullText(terms.to_vec(), filter.clone(), limit as u64);
        Box::pin(async { expect!(self.read(request).await?, Reply::Found) })
    }

    fn files_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<u64>>> {
        Box::pin(async { expect!(self.read(ReadRequest::FilesOf(rows.to_vec())).await?, Reply::Ids) })
    }

    fn nearest<'a>(
        &'a self,
        vector: &'a [f32],
        filter: &'a ChunkFilter,
        limit: usize,
    ) -> BoxFuture<'a, IndexResult<Vec<RowScore>>> {
        let request = ReadRequest::Nearest(vector.to_vec(), filter.clone(), limit as u64);
        Box::pin(async { expect!(self.read(request).await?, Reply::Found) })
    }

    fn vectors<'a>(&'a self, columns: VectorColumns, sink: VectorSink<'a>) -> BoxFuture<'a, IndexResult<()>> {
        Box::pin(async move {
            self.parts(ReadRequest::Vectors(columns), |reply| {
                for sent in expect!(reply, Reply::VectorRows)? {
                    sink(VectorRow { row: sent.row, file: sent.file, hash: sent.hash, vector: sent.vector.as_deref() });
                }
                Ok(())
            })
            .await
        })
    }

    fn vectors_of<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<Option<Vec<f32>>>>> {
        Box::pin(async { expect!(self.read(ReadRequest::VectorsOf(rows.to_vec())).await?, Reply::Vectors) })
    }

    fn sample(&self, count: usize) -> BoxFuture<'_, IndexResult<Vec<String>>> {
        Box::pin(async move { rows!(|take| self.parts(ReadRequest::Sample(count as u64), take), Reply::Texts) })
    }

    fn fetch<'a>(&'a self, rows: &'a [u64]) -> BoxFuture<'a, IndexResult<Vec<ChunkRow>>> {
        Box::pin(async { expect!(self.read(ReadRequest::Fetch(rows.to_vec())).await?, Reply::Chunks) })
    }

    fn prepare(&self, budget: u64) -> Option<BoxFuture<'_, IndexResult<()>>> {
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner) = Some(budget);
        Some(Box::pin(async move { self.read(ReadRequest::Prepare(budget)).await.map(drop) }))
    }

    fn ask<'a>(&'a self, question: &'a SearchQuery) -> Option<BoxFuture<'a, IndexResult<SearchResult>>> {
        Some(Box::pin(async { expect!(self.read(ReadRequest::Ask(question.clone())).await?, Reply::Answer) }))
    }
}

/// A writer of one program instance. It becomes unusable when that instance ends.
struct RemoteWriter {
    connection: Arc<Connection>,
    handle: Handle,
    is_changed: bool,
}

impl RemoteWriter {
    async fn edit(&self, request: EditRequest) -> IndexResult<Reply> {
        self.connection.call(&Request::Edit(self.handle, request)).await
    }

    async fn parts(
        &self,
        request: EditRequest,
        take: &mut (dyn FnMut(Reply) -> IndexResult<()> + Send),
    ) -> IndexResult<()> {
        let mut parts = self.connection.ask(&Request::Edit(self.handle, request)).await?;
        loop {
            let (reply, is_last) = self.connection.next_part(&mut parts).await?;
            take(reply)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        self.connection.writer_closed();
        if self.connection.is_alive() {
            self.connection.send_only(&Request::CloseWriter(self.handle));
        }
    }
}

impl IndexWriter for RemoteWriter {
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        Box::pin(async { rows!(|take| self.parts(EditRequest::Files, take), Reply::Files) })
    }

    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>> {
        Box::pin(async {
            let all: IndexResult<Vec<(u64, Vec<f32>)>> =
                rows!(|take| self.parts(EditRequest::KnownVectors(hashes.to_vec()), take), Reply::Known);
            Ok(all?.into_iter().collect())
        })
    }

    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>> {
        Box::pin(async {
            match self.edit(EditRequest::Put(batch)).await? {
                Reply::Writer(_, is_changed) => {
                    self.is_changed = is_changed;
                    Ok(())
                }
                other => Err(unexpected(&other)),
            }
        })
    }

    fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>> {
        Box::pin(async move { expect!(self.edit(EditRequest::Complete).await?, Reply::Version) })
    }
}
