//! The files of a store: creation, version, and migration of an older version.
//!
//! A store is opened for writing under a file lock, so that two processes that start at the same time do not both
//! create the database.

use crate::{
    failed, failed_read,
    journal::{self, Journal},
    limits,
    owners::{self, OwnerLock},
};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_engine::store::{Owner, StoreError};
use toolyard_faults::Operation;

/// The database file in a store's directory.
pub(crate) const DATABASE: &str = "toolyard.db";
const OPEN_LOCK: &str = "toolyard.lock";

/// Schema changes in order: the first makes version 1 of nothing. Never edited once released, only added to.
///
/// - A frame's key is `run number << 32 | seq`: one integer instead of a UUID and a number, so that a run's frames lie
///   side by side, pages fill up, and a payload of nearly a page needs no overflow page.
/// - `frames.kind` has 256 added when the payload is zstd, and 512 when that needs the dictionary (`packing`).
/// - A run that has frames but no row yet has `kind IS NULL`.
/// - `runs.owner` is the epoch that holds the run. Nothing but a claim, a release and the run's end changes it.
/// - Times are nanoseconds since 1970.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE runs (
        no            INTEGER PRIMARY KEY,
        run_id        BLOB NOT NULL UNIQUE,
        kind          INTEGER,
        status        INTEGER,
        title         TEXT,
        session       TEXT,
        started_at    TEXT,
        ended_at      TEXT,
        lease_boot    TEXT,
        lease_pid     INTEGER,
        lease_started INTEGER
    ) STRICT;
    CREATE INDEX runs_open ON runs (status, run_id) WHERE status < 3;
    CREATE INDEX runs_session ON runs (session, run_id) WHERE session IS NOT NULL;
    CREATE TABLE frames (
        id      INTEGER PRIMARY KEY,
        kind    INTEGER NOT NULL,
        payload BLOB NOT NULL,
        chain   BLOB NOT NULL
    ) STRICT;
    CREATE TABLE blobs (
        id     INTEGER PRIMARY KEY,
        sha256 BLOB NOT NULL UNIQUE,
        len    INTEGER NOT NULL,
        zstd   INTEGER NOT NULL,
        bytes  BLOB
    ) STRICT;
    CREATE TABLE facts (
        space      TEXT NOT NULL,
        key        TEXT NOT NULL,
        value      BLOB NOT NULL,
        expires_at INTEGER,
        PRIMARY KEY (space, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX facts_expiry ON facts (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE ledger (
        seq     INTEGER PRIMARY KEY,
        payload BLOB NOT NULL,
        chain   BLOB NOT NULL
    ) STRICT;
",
    "
    CREATE TABLE journals (
        name       TEXT PRIMARY KEY,
        generation INTEGER NOT NULL,
        number     INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    CREATE TABLE meta (
        key   TEXT PRIMARY KEY,
        value ANY NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO meta VALUES ('node', lower(hex(randomblob(8)))), ('syncs', 0);
    CREATE TABLE owners (
        epoch   INTEGER PRIMARY KEY AUTOINCREMENT,
        journal TEXT
    ) STRICT;
    CREATE TABLE new_runs (
        no         INTEGER PRIMARY KEY,
        run_id     BLOB NOT NULL UNIQUE,
        kind       INTEGER,
        status     INTEGER,
        title      TEXT,
        session    TEXT,
        started_at INTEGER,
        ended_at   INTEGER,
        owner      INTEGER
    ) STRICT;
    INSERT INTO new_runs SELECT no, run_id, kind, status, title, session,
        CAST(strftime('%s', substr(started_at, 1, 19)) AS INTEGER) * 1000000000 + CASE WHEN instr(started_at, '.') > 0
            THEN CAST(substr(rtrim(substr(started_at, 21), 'Z') || '000000000', 1, 9) AS INTEGER) ELSE 0 END,
        CAST(strftime('%s', substr(ended_at, 1, 19)) AS INTEGER) * 1000000000 + CASE WHEN instr(ended_at, '.') > 0
            THEN CAST(substr(rtrim(substr(ended_at, 21), 'Z') || '000000000', 1, 9) AS INTEGER) ELSE 0 END,
        NULL FROM runs;
    DROP TABLE runs;
    ALTER TABLE new_runs RENAME TO runs;
    CREATE INDEX runs_open ON runs (status, run_id) WHERE status < 3;
    CREATE INDEX runs_session ON runs (session, run_id) WHERE session IS NOT NULL;
    DELETE FROM journals;
",
];

/// The version this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The writer's resources: the connection, the journal (if one can be created), and the identity of this process.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) owner: Owner,
    /// Locked while this process may work on runs.
    pub(crate) life: Option<OwnerLock>,
}

/// Opens for writing; creates and migrates as needed.
pub(crate) fn open_writer(dir: &Path) -> Result<Opened, StoreError> {
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| failed(&format!("cannot create {}", dir.display()), e))?;
    let _lock = lock(dir)?;
    let path = dir.join(DATABASE);
    let is_new = create_private(&path)?;
    let mut connection = open(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    configure(&connection, true).map_err(|e| failed_read(&format!("cannot open {}", path.display()), &e))?;
    migrate(&mut connection, &path, is_new, dir)?;
    let journal = match journal::adopt(dir, &mut connection, true)? {
        Some(journal) => Some(Arc::new(journal)),
        // Without one everything goes to the database, which is slower and promises the same.
        None => journal::create(dir)
            .inspect_err(|error| tracing::warn!(%error, "the store cannot have a journal"))
            .ok()
            .map(Arc::new),
    };
    let (owner, life) = owners::begin(dir, &connection, journal.as_ref().map(|journal| journal.name.as_str()))?;
    Ok(Opened { connection, journal, owner, life: Some(life) })
}

fn migrate(connection: &mut Connection, path: &Path, is_new: bool, dir: &Path) -> Result<(), StoreError> {
    let doing = format!("cannot prepare {}", path.display());
    if version(connection, path)? == VERSION {
        return Ok(());
    }
    let old_journals = journal::check_old(dir)?;
    set_sync(connection, true).map_err(|e| failed(&doing, e))?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| failed(&doing, e))?;
    // Read again, because another process may have migrated the database while this one waited.
    let version = version(&transaction, path)?;
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(|e| failed(&doing, e))?;
    }
    transaction.pragma_update(None, "user_version", VERSION).map_err(|e| failed(&doing, e))?;
    before_commit(dir).map_err(|e| failed(&doing, e))?;
    transaction.commit().map_err(|e| failed(&doing, e))?;
    set_sync(connection, false).map_err(|e| failed(&doing, e))?;
    for path in old_journals {
        std::fs::remove_file(&path).map_err(|e| failed(&format!("cannot remove {}", path.display()), e))?;
    }
    if is_new {
        sync_dir(dir).map_err(|e| failed(&doing, e))?;
    }
    Ok(())
}

/// Has SQLite sync its log with each commit (`FULL`), or only before a checkpoint (`NORMAL`). A commit under `FULL` makes
/// every commit before it durable as well: SQLite syncs the whole log.
pub(crate) fn set_sync(connection: &Connection, with_each_commit: bool) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", if with_each_commit { "FULL" } else { "NORMAL" })
}

/// Makes a change, so that SQLite syncs the commit of the transaction.
pub(crate) fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE meta SET value = value + 1 WHERE key = 'syncs'")?.execute([]).map(drop)
}

/// A read-only connection to an existing store.
pub(crate) fn open_reader(dir: &Path) -> Result<Connection, StoreError> {
    let path = dir.join(DATABASE);
    let connection = open(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    configure(&connection, false).map_err(|e| failed(&format!("cannot read {}", path.display()), e))?;
    Ok(connection)
}

/// Checks that a store which will only be read is one this program can read.
pub(crate) fn check_readable(connection: &Connection, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(DATABASE);
    let version = version(connection, &path)?;
    if version < VERSION {
        return Err(StoreError::failed(format!(
            "{} has version {version} and this program reads version {VERSION}: open it for writing once to bring it up to date",
            path.display()
        )));
    }
    Ok(())
}

fn version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|e| failed_read(&format!("cannot read {}", path.display()), &e))?;
    if version > VERSION {
        return Err(StoreError::failed(format!(
            "{} has version {version}, written by a newer program; this one knows versions up to {VERSION}. Nothing was changed",
            path.display()
        )));
    }
    Ok(version)
}

fn open(path: &Path, mode: OpenFlags) -> Result<Connection, StoreError> {
    Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|e| failed(&format!("cannot open {}", path.display()), e))
}

fn configure(connection: &Connection, writes: bool) -> rusqlite::Result<()> {
    connection.busy_timeout(limits::BUSY_TIMEOUT)?;
    // Closing would otherwise move the log into the database and delete it, while other processes wait. The writer does the
    // first itself when it ends, and a log that stays needs no new blocks.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if writes {
        journal_mode_wal(connection)?;
        // The writer sets FULL when a caller waits for the disk.
        set_sync(connection, false)?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "cache_size", -1024)?;
    } else {
        connection.pragma_update(None, "cache_size", -512)?;
    }
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// The first change to WAL mode needs exclusive access, and SQLite does not wait for readers to finish.
fn journal_mode_wal(connection: &Connection) -> rusqlite::Result<()> {
    let started = Instant::now();
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && started.elapsed() < limits::BUSY_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result.map(|_| ()),
        }
    }
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(OPEN_LOCK);
    let doing = || format!("cannot lock {}", path.display());
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|e| failed(&doing(), e))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if started.elapsed() < limits::OPEN_PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(failed(&doing(), error)),
        }
    }
}

fn create_private(path: &Path) -> Result<bool, StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(&format!("cannot create {}", path.display()), error)),
    }
}

/// Makes new names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    toolyard_faults::sync_all(&File::open(dir)?)
}

/// Represents the writes and syncs of SQLite in a commit, so that a test can make them fail. See `toolyard_faults`.
pub(crate) fn before_commit(dir: &Path) -> rusqlite::Result<()> {
    toolyard_faults::check(Operation::Write, &dir.join(DATABASE)).map_err(|error| {
        let is_full = error.kind() == ErrorKind::StorageFull;
        let code = if is_full { rusqlite::ffi::SQLITE_FULL } else { rusqlite::ffi::SQLITE_IOERR };
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_private() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("a/state");
        let opened = open_writer(&dir).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        for name in [DATABASE, "toolyard.db-wal", "toolyard.db-shm", OPEN_LOCK] {
            assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
        }
        drop(opened);
        let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{left:?}");
    }

    #[test]
    fn a_newer_database_is_refused_untouched() {
        let home = tempfile::tempdir().unwrap();
        open_writer(home.path()).unwrap();
        let path = home.path().join(DATABASE);
        Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
        let error = open_writer(home.path()).err().unwrap();
        assert!(error.to_string().contains("newer"), "{error}");
        let version: i64 =
            Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, VERSION + 1);
    }
}
