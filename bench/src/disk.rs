//! The bare disk: the minimum cost of an append-only log.

use anyhow::Result;
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

/// A preallocated file with one sync after each appended record.
pub(crate) struct BareLog {
    file: File,
    record: Vec<u8>,
    at: u64,
    end: u64,
}

impl BareLog {
    /// Preallocates this many records by writing zeros, so that no sync has to extend the file.
    pub(crate) fn create(path: &Path, record_bytes: usize, records: usize) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        let end = (record_bytes * records) as u64;
        file.write_all_at(&vec![0; end as usize], 0)?;
        file.sync_all()?;
        Ok(Self { file, record: vec![b'x'; record_bytes], at: 0, end })
    }

    /// Appends one record, syncs, and returns the time taken.
    pub(crate) fn append(&mut self) -> Result<Duration> {
        anyhow::ensure!(self.at < self.end, "the bare log is full");
        let started = Instant::now();
        self.file.write_all_at(&self.record, self.at)?;
        self.file.sync_data()?;
        self.at += self.record.len() as u64;
        Ok(started.elapsed())
    }
}
