//! The journal: appends entries to a preallocated file, and recovers them after a crash.
//!
//! A commit of the database touches several pages and two locks; an entry here is one write. Changes that must be
//! durable at once are written here, and the database receives them a little later, many at a time. Each process has
//! its own journal, which it locks while it runs. An unlocked journal belongs to a dead process; the next process that
//! opens the store or claims a run moves its remaining entries into the database.
//!
//! The same transaction records how far the database has come (table `journals`), so no entry is moved twice. A file is
//! used again or removed only after that transaction is synced. A file that cannot be read to its end, or whose entries
//! are damaged, is left unchanged, and the process that wanted to move it fails.

pub(crate) mod format;

use crate::{
    apply::{self, ApplyError, RunNumbers},
    failed, limits,
    queue::Op,
    schema::{self, sync_dir},
};
use format::EntryPosition;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use toolyard_engine::store::StoreError;
use toolyard_faults::Operation;

const PREFIX: &str = "toolyard.jnl-";
/// The name of a file that is being created; if it is not locked, its creator has died.
const UNFINISHED: &str = ".tmp";
/// The journal of an owner that was fenced, alive or not.
const FENCED: &str = ".fenced";
/// What versions of the store before 3 called their journals.
const OLD_PREFIX: &str = "toolyard.journal-";
const TAKING_UP: &str = "cannot read the journal of a dead process";

/// This process's journal.
pub(crate) struct Journal {
    pub(crate) name: String,
    path: PathBuf,
    file: File,
    /// The last generation used in it.
    pub(crate) generation: u64,
}

/// Why a group of entries is not durable.
pub(crate) enum Refusal {
    /// A write or sync failed. Whether any of the group is on the disk is unknown.
    Disk(std::io::Error),
    /// Another process fenced this one and took its journal.
    Fenced,
}

impl Journal {
    /// Writes whole entries and waits until they are on the disk.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Refusal> {
        toolyard_faults::write_all_at(&self.file, bytes, offset).map_err(Refusal::Disk)?;
        toolyard_faults::sync_data(&self.file).map_err(Refusal::Disk)?;
        // A process that fences this one first renames the file and then reads it, so if the name still exists, these
        // entries will be read. The name is looked up without asking for the file's times: once somebody has read them,
        // Linux (since 6.13) changes them again at the next write, and the next sync writes the inode as well.
        match rustix::fs::access(&self.path, rustix::fs::Access::EXISTS) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::NOENT) => Err(Refusal::Fenced),
            Err(error) => Err(Refusal::Disk(error.into())),
        }
    }

    /// Records that everything up to a position is synced in the database. This only makes the next start faster.
    pub(crate) fn retire(&self, upto: EntryPosition) {
        if let Err(error) = toolyard_faults::write_all_at(&self.file, &format::retired(upto), format::RETIRED_AT as u64)
        {
            tracing::warn!(%error, "the journal could not be marked as moved; the next start reads it");
        }
    }
}

/// Records how far the database has come, in the transaction that moves the entries.
pub(crate) fn mark(db: &Connection, name: &str, place: EntryPosition) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO journals (name, generation, number) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET generation = excluded.generation, number = excluded.number",
    )?
    .execute(params![name, place.generation.cast_signed(), place.number])?;
    Ok(())
}

fn marked(db: &Connection, name: &str) -> rusqlite::Result<Option<EntryPosition>> {
    db.prepare_cached("SELECT generation, number FROM journals WHERE name = ?1")?
        .query_row([name], |row| {
            Ok(EntryPosition { generation: row.get::<_, i64>(0)?.cast_unsigned(), number: row.get(1)? })
        })
        .optional()
}

/// Whether a dead process may have left entries in its journal.
pub(crate) fn is_any_left(dir: &Path) -> std::io::Result<bool> {
    for path in candidates(dir, PREFIX)? {
        if has_ending(&path, UNFINISHED) {
            continue;
        }
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        let mut beginning = vec![0; format::ENTRIES_AT + format::ENTRY_HEADER];
        let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        if !is_held && (file.read_exact_at(&mut beginning, 0).is_err() || !format::is_retired(&beginning)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn candidates(dir: &Path, prefix: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.as_os_str().to_string_lossy().ends_with(ending)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(FENCED).unwrap_or(&name).to_owned()
}

/// Locks the journal of a dead process. `None` if its process is alive or another process has locked it.
fn take(path: &Path) -> std::io::Result<Option<File>> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // A fenced journal has no owner any more, although its process may still hold its lock.
    if !has_ending(path, FENCED) {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    // Between opening and locking, another process may have moved all entries and removed the file.
    Ok(is_at(path, &file).then_some(file))
}

/// Moves the entries of dead processes' journals into the database. With `keep`, the first of these journals is
/// returned for this process to reuse; the others are removed.
pub(crate) fn adopt(dir: &Path, db: &mut Connection, keep: bool) -> Result<Option<Journal>, StoreError> {
    let mut adopted = None;
    for path in candidates(dir, PREFIX).map_err(|e| failed(TAKING_UP, e))? {
        let at = |e: std::io::Error| failed(&format!("{TAKING_UP} ({})", path.display()), e);
        let Some(file) = take(&path).map_err(at)? else { continue };
        if has_ending(&path, UNFINISHED) {
            std::fs::remove_file(&path).map_err(at)?;
            continue;
        }
        let name = name_of(&path);
        let last = replay(&path, &file, &name, db, None)?;
        let usable = keep && adopted.is_none() && !has_ending(&path, FENCED) && has_header(&file);
        if usable && file.metadata().map_err(at)?.len() == limits::JOURNAL_BYTES {
            if !detach(&path, &file, &name, db)? {
                continue;
            }
            let journal = Journal { name, path, file, generation: last.generation };
            journal.retire(last);
            adopted = Some(journal);
        } else {
            discard(&path, &name, db)?;
        }
    }
    Ok(adopted)
}

/// Whether a file begins as a journal does. One that does not would be refused after the next crash.
fn has_header(file: &File) -> bool {
    let mut beginning = vec![0; format::ENTRIES_AT];
    file.read_exact_at(&mut beginning, 0).is_ok() && format::has_header(&beginning)
}

/// Takes a journal off the dead owner that used it, so that fencing that owner later does not take the journal away from
/// its new one. `false` when somebody fenced the dead owner first; the file is theirs then.
fn detach(path: &Path, file: &File, name: &str, db: &mut Connection) -> Result<bool, StoreError> {
    let at = |e: rusqlite::Error| failed(TAKING_UP, e);
    // `fence` reads the name and renames the file in such a transaction too: one of the two comes first.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(at)?;
    transaction.execute("UPDATE owners SET journal = NULL WHERE journal = ?1", [name]).map_err(at)?;
    let is_ours = is_at(path, file);
    transaction.commit().map_err(at)?;
    Ok(is_ours)
}

/// Whether an open file still has this name.
fn is_at(path: &Path, file: &File) -> bool {
    path.symlink_metadata().is_ok_and(|there| file.metadata().is_ok_and(|open| open.ino() == there.ino()))
}

/// Removes a journal that the database holds all of.
fn discard(path: &Path, name: &str, db: &Connection) -> Result<(), StoreError> {
    std::fs::remove_file(path).map_err(|e| failed(TAKING_UP, e))?;
    db.execute("DELETE FROM journals WHERE name = ?1", [name]).map_err(|e| failed(TAKING_UP, e))?;
    Ok(())
}

/// Takes the journal of an owner, alive or not, and removes the owner in the transaction that moves its last durable
/// entries.
pub(crate) fn fence(dir: &Path, db: &mut Connection, epoch: i64) -> Result<(), StoreError> {
    let doing = "cannot fence another owner";
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| failed(doing, e))?;
    let name: Option<Option<String>> = transaction
        .query_row("SELECT journal FROM owners WHERE epoch = ?1", [epoch], |row| row.get(0))
        .optional()
        .map_err(|e| failed(doing, e))?;
    let Some(name) = name else { return Ok(()) };
    let fenced = name.as_ref().map(|name| dir.join(format!("{name}{FENCED}")));
    if let (Some(name), Some(fenced)) = (&name, &fenced) {
        // Inside the transaction: a process that uses a dead owner's journal again takes the name off it in one.
        match toolyard_faults::rename(&dir.join(name), fenced) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            renamed => renamed.and_then(|()| sync_dir(dir)).map_err(|e| failed(doing, e))?,
        }
        transaction.commit().map_err(|e| failed(doing, e))?;
        if let Some(file) = take(fenced).map_err(|e| failed(doing, e))? {
            replay(fenced, &file, name, db, Some(epoch))?;
            return discard(fenced, name, db);
        }
    } else {
        transaction.commit().map_err(|e| failed(doing, e))?;
    }
    db.execute("DELETE FROM owners WHERE epoch = ?1", [epoch]).map_err(|e| failed(doing, e))?;
    Ok(())
}

/// Moves one journal's entries and syncs the database; returns the last position used in it.
fn replay(
    path: &Path,
    file: &File,
    name: &str,
    db: &mut Connection,
    fenced: Option<i64>,
) -> Result<EntryPosition, StoreError> {
    let doing = format!("{TAKING_UP} ({})", path.display());
    let mut bytes = Vec::new();
    (&mut &*file).take(limits::JOURNAL_BYTES).read_to_end(&mut bytes).map_err(|e| failed(&doing, e))?;
    let done = marked(db, name).map_err(|e| failed(&doing, e))?;
    if fenced.is_none() && format::is_retired(&bytes) {
        return Ok(done.unwrap_or_default());
    }
    schema::set_sync(db, true).map_err(|e| failed(&doing, e))?;
    let last = move_entries(&bytes, name, db, fenced, path);
    schema::set_sync(db, false).map_err(|e| failed(&doing, e))?;
    last
}

fn move_entries(
    bytes: &[u8],
    name: &str,
    db: &mut Connection,
    fenced: Option<i64>,
    path: &Path,
) -> Result<EntryPosition, StoreError> {
    let doing = format!("{TAKING_UP} ({})", path.display());
    let at = |e: rusqlite::Error| failed(&doing, e);
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(at)?;
    // Read again inside the transaction: its owner may have moved some meanwhile.
    let done = marked(&transaction, name).map_err(at)?;
    let entries = format::entries(bytes, done).map_err(|damage| {
        StoreError::failed(format!(
            "the journal {} is damaged: {damage}. Nothing was changed. Keep the file, compare with a backup, and move it \
             away to start without what it holds",
            path.display()
        ))
    })?;
    let (moved, last) = (entries.new.len(), entries.last);
    let mut numbers = RunNumbers::default();
    for (_, append) in entries.new {
        let run_id = append.run_id;
        match apply::apply(&transaction, &mut numbers, &Op::Append(append), None) {
            Ok(_) => {}
            Err(ApplyError::Database(error)) => return Err(at(error)),
            Err(ApplyError::Rejected(error)) => {
                return Err(failed(&format!("{doing}: the database refuses an entry of run {run_id}"), error));
            }
        }
    }
    if moved > 0 {
        mark(&transaction, name, last).map_err(at)?;
        tracing::info!(entries = moved, "moved the journal of a dead process into the database");
    }
    if let Some(epoch) = fenced {
        transaction.execute("DELETE FROM owners WHERE epoch = ?1", [epoch]).map_err(at)?;
    }
    // Also if nothing was moved: the file is removed now, and entries that were moved earlier may not have been synced.
    schema::touch(&transaction).map_err(at)?;
    path.parent().map_or(Ok(()), schema::before_commit).map_err(at)?;
    transaction.commit().map_err(at)?;
    Ok(last)
}

/// Makes a new journal for this process. It has its name only once it is whole.
pub(crate) fn create(dir: &Path) -> std::io::Result<Journal> {
    let id = uuid::Uuid::new_v4();
    let name = format!("{PREFIX}{}", id.simple());
    let (path, unfinished) = (dir.join(&name), dir.join(format!("{name}{UNFINISHED}")));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.try_lock().map_err(|_| ErrorKind::WouldBlock)?;
    let filled = (|| {
        toolyard_faults::write_all(&mut file, &format::file_header(id, limits::JOURNAL_BYTES))?;
        toolyard_faults::check_file(Operation::Allocate, &file)?;
        let zeros = vec![0; 64 << 10];
        let mut left = limits::JOURNAL_BYTES as usize - format::ENTRIES_AT;
        while left > 0 {
            let some = left.min(zeros.len());
            file.write_all(&zeros[..some])?;
            left -= some;
        }
        toolyard_faults::sync_all(&file)?;
        toolyard_faults::rename(&unfinished, &path)?;
        sync_dir(dir)
    })();
    if let Err(error) = filled {
        for path in [&unfinished, &path] {
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(%error, "an unfinished journal could not be removed");
            }
        }
        return Err(error);
    }
    Ok(Journal { name, path, file, generation: 0 })
}

/// The state of a journal, for read-only checks.
pub(crate) enum JournalState {
    Whole,
    Damaged(String),
}

/// Looks at every journal there is, also at those in use: their last group may be half written.
pub(crate) fn look(dir: &Path, db: &Connection) -> Result<Vec<(PathBuf, JournalState)>, StoreError> {
    let mut found = Vec::new();
    for path in candidates(dir, PREFIX).map_err(|e| failed("cannot look for journals", e))? {
        if has_ending(&path, UNFINISHED) {
            continue;
        }
        let done = marked(db, &name_of(&path)).map_err(|e| failed("cannot look at journals", e))?;
        let state = match std::fs::read(&path) {
            Err(error) => JournalState::Damaged(error.to_string()),
            Ok(bytes) => match format::entries(&bytes, done) {
                Ok(_) => JournalState::Whole,
                Err(damage) => JournalState::Damaged(damage.to_string()),
            },
        };
        found.push((path, state));
    }
    Ok(found)
}

/// Bytes of all journals.
pub(crate) fn bytes(dir: &Path) -> Result<u64, StoreError> {
    let paths = candidates(dir, PREFIX).map_err(|e| failed("cannot look for journals", e))?;
    Ok(paths.iter().filter_map(|path| path.metadata().ok()).map(|file| file.len()).sum())
}

/// Fails if there are journals of earlier versions, which this version does not read.
pub(crate) fn check_old(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let old = candidates(dir, OLD_PREFIX).map_err(|e| failed("cannot look for journals", e))?;
    for path in &old {
        let mut beginning = [0; 24];
        let file = File::open(path).map_err(|e| failed(&format!("cannot read {}", path.display()), e))?;
        let is_empty = file.read_exact_at(&mut beginning, 0).is_ok() && beginning == [0; 24];
        if file.try_lock_shared().is_err() || !is_empty {
            return Err(StoreError::failed(format!(
                "{} belongs to an earlier version of this program that still runs or did not end cleanly: start and stop \
                 that version once, then this one",
                path.display()
            )));
        }
    }
    Ok(old)
}
