//! Which processes have the store open, and whether they are still running.
//!
//! A process registers when it opens the store (table `owners`) and locks a file of its own for as long as it may work on
//! runs. The kernel releases the lock when the process ends, however it ends. Removing the row fences the process: its
//! writer looks for the row in every transaction.

use crate::failed;
use rusqlite::{Connection, OptionalExtension};
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use toolyard_engine::store::{Owner, StoreError};

const PREFIX: &str = "toolyard.owner-";

/// The locked file of this process. Dropping it ends this process's ownership.
pub(crate) struct OwnerLock {
    path: PathBuf,
    _locked: File,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "a lock file could not be removed");
        }
    }
}

fn lock_file(dir: &Path, epoch: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{epoch}"))
}

/// Registers this process. To be called while the store is locked for opening.
pub(crate) fn begin(dir: &Path, db: &Connection, journal: Option<&str>) -> Result<(Owner, OwnerLock), StoreError> {
    let doing = "cannot register with the store";
    forget_dead(dir, db)?;
    // The lock is taken before the row is written, so that every process that sees the row finds the lock.
    let next: i64 = db
        .query_row("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'owners'), 0) + 1", [], |row| {
            row.get(0)
        })
        .map_err(|e| failed(doing, e))?;
    let epoch = next.cast_unsigned();
    let path = lock_file(dir, epoch);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let locked = options.open(&path).map_err(|e| failed(doing, e))?;
    locked.try_lock().map_err(|e| failed(doing, e))?;
    db.execute("INSERT INTO owners (epoch, journal) VALUES (?1, ?2)", (next, journal)).map_err(|e| failed(doing, e))?;
    Ok((Owner { node: node(db)?, epoch }, OwnerLock { path, _locked: locked }))
}

/// The id of this store's node.
pub(crate) fn node(db: &Connection) -> Result<String, StoreError> {
    db.query_row("SELECT value FROM meta WHERE key = 'node'", [], |row| row.get(0))
        .map_err(|e| failed("cannot read the store's node", e))
}

/// Whether a process of this node still has the store open and was not fenced.
pub(crate) fn is_alive(dir: &Path, db: &Connection, epoch: u64) -> Result<bool, StoreError> {
    let doing = "cannot tell whether a process still runs";
    let is_registered: Option<i64> = db
        .prepare_cached("SELECT 1 FROM owners WHERE epoch = ?1")
        .and_then(|mut select| select.query_row([epoch.cast_signed()], |row| row.get(0)).optional())
        .map_err(|e| failed(doing, e))?;
    if is_registered.is_none() {
        return Ok(false);
    }
    let file = match File::open(lock_file(dir, epoch)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        file => file.map_err(|e| failed(doing, e))?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(failed(doing, error)),
    }
}

/// Removes dead processes that hold no run. Their journals have been moved into the database.
fn forget_dead(dir: &Path, db: &Connection) -> Result<(), StoreError> {
    let doing = "cannot look at the processes that had the store open";
    let mut select = db
        .prepare("SELECT epoch FROM owners WHERE epoch NOT IN (SELECT owner FROM runs WHERE status < 3 AND owner IS NOT NULL)")
        .map_err(|e| failed(doing, e))?;
    let idle: Vec<i64> =
        select.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(|e| failed(doing, e))?;
    for epoch in idle {
        if !is_alive(dir, db, epoch.cast_unsigned())? {
            forget(dir, db, epoch)?;
        }
    }
    Ok(())
}

/// Removes a process that has ended from the list.
pub(crate) fn forget(dir: &Path, db: &Connection, epoch: i64) -> Result<(), StoreError> {
    let doing = "cannot remove a process from the store's list";
    db.execute("DELETE FROM owners WHERE epoch = ?1", [epoch]).map_err(|e| failed(doing, e))?;
    match std::fs::remove_file(lock_file(dir, epoch.cast_unsigned())) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(doing, error)),
        _ => Ok(()),
    }
}
