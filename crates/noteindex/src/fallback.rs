//! [`FallbackIndex`] serves while the index program is not installed, for example while it is still being built. It holds an
//! in-memory index of at most [`MAX_CHUNKS`] chunks in a server process; the index is lost when the process ends. As
//! soon as the program is installed and has a complete version, the stand-in is dropped.

use crate::{
    BoxFuture, FileRow, IndexError, IndexReader, IndexResult, IndexSpec, IndexWriter, NoteIndex, ProgramError,
    VersionInfo, WriteBatch, WriterStart, memory::MemoryIndex, remote::RemoteIndex,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum number of chunks in memory: about 30 MB with their terms and vectors.
pub const MAX_CHUNKS: u64 = 5_000;

/// The index program, and an in-memory index until the program is available.
pub struct FallbackIndex {
    program: RemoteIndex,
    /// `None` once the program has taken over.
    memory: Mutex<Option<Arc<MemoryIndex>>>,
    is_serving: AtomicBool,
}

impl FallbackIndex {
    /// Creates a stand-in for this program.
    pub fn new(program: RemoteIndex) -> Self {
        Self {
            program,
            memory: Mutex::new(Some(Arc::new(MemoryIndex::standing_in()))),
            is_serving: AtomicBool::default(),
        }
    }

    fn memory(&self) -> Option<Arc<MemoryIndex>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The in-memory index, if it serves now; `None` when the program is installed and has a version.
    async fn reading(&self) -> IndexResult<Option<Arc<MemoryIndex>>> {
        let Some(memory) = self.memory() else { return Ok(None) };
        if self.program.find().is_err() {
            return Ok(Some(memory));
        }
        // While nothing has been written to memory, the program cannot be worse.
        let is_empty = memory.generation().await?.is_none();
        if is_empty || self.program.generation().await?.is_some() {
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(None);
        }
        Ok(Some(memory))
    }
}

impl NoteIndex for FallbackIndex {
    fn current(&self) -> BoxFuture<'_, IndexResult<Option<Arc<dyn IndexReader>>>> {
        Box::pin(async {
            match self.reading().await? {
                Some(memory) => memory.current().await,
                None => self.program.current().await,
            }
        })
    }

    fn generation(&self) -> BoxFuture<'_, IndexResult<Option<u64>>> {
        Box::pin(async {
            match self.reading().await? {
                Some(memory) => memory.generation().await,
                None => self.program.generation().await,
            }
        })
    }

    fn write<'a>(
        &'a self,
        spec: &'a IndexSpec,
        start: WriterStart,
    ) -> BoxFuture<'a, IndexResult<Box<dyn IndexWriter>>> {
        Box::pin(async move {
            match (self.program.find(), self.memory()) {
                (Err(_), Some(memory)) if self.is_serving.load(Ordering::Relaxed) => {
                    let writer = memory.write(spec, start).await?;
                    let files = writer.files().await?;
                    let counts = files.into_iter().map(|file| (file.path, u64::from(file.chunks))).collect();
                    Ok(Box::new(Bounded { writer, counts }) as Box<dyn IndexWriter>)
                }
                _ => self.program.write(spec, start).await,
            }
        })
    }

    fn versions(&self) -> BoxFuture<'_, IndexResult<Vec<VersionInfo>>> {
        Box::pin(async {
            match self.reading().await? {
                Some(memory) => memory.versions().await,
                None => self.program.versions().await,
            }
        })
    }

    fn rollback(&self) -> BoxFuture<'_, IndexResult<VersionInfo>> {
        Box::pin(async {
            match self.reading().await? {
                Some(memory) => memory.rollback().await,
                None => self.program.rollback().await,
            }
        })
    }

    fn is_resting(&self) -> bool {
        self.memory().is_none() && self.program.is_resting()
    }

    fn set_serving(&self) {
        self.is_serving.store(true, Ordering::Relaxed);
    }

    fn program_problem(&self) -> Option<ProgramError> {
        self.memory()?;
        self.program.find().err()
    }

    fn wants_move(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let Some(memory) = self.memory() else { return false };
            self.program.find().is_ok()
                && matches!(memory.generation().await, Ok(Some(_)))
                && matches!(self.program.generation().await, Ok(None))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.program.close()
    }
}

/// Writes to memory as long as the notes fit.
struct Bounded {
    writer: Box<dyn IndexWriter>,
    /// Number of chunks of each file.
    counts: HashMap<String, u64>,
}

impl IndexWriter for Bounded {
    fn files(&self) -> BoxFuture<'_, IndexResult<Vec<FileRow>>> {
        self.writer.files()
    }

    fn known_vectors<'a>(&'a self, hashes: &'a [u64]) -> BoxFuture<'a, IndexResult<HashMap<u64, Vec<f32>>>> {
        self.writer.known_vectors(hashes)
    }

    fn put(&mut self, batch: WriteBatch) -> BoxFuture<'_, IndexResult<()>> {
        for path in &batch.removed {
            self.counts.remove(path);
        }
        for file in &batch.files {
            self.counts.insert(file.path.clone(), 0);
        }
        for chunk in &batch.chunks {
            *self.counts.entry(chunk.source_file.clone()).or_default() += 1;
        }
        let total: u64 = self.counts.values().sum();
        if total > MAX_CHUNKS {
            let why = format!("at most {MAX_CHUNKS} chunks are held in memory");
            return Box::pin(async move { Err(IndexError::Program(ProgramError::TooMany(why))) });
        }
        self.writer.put(batch)
    }

    fn is_changed(&self) -> bool {
        self.writer.is_changed()
    }

    fn complete(self: Box<Self>) -> BoxFuture<'static, IndexResult<VersionInfo>> {
        self.writer.complete()
    }
}
