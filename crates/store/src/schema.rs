//! The files of a store: creation, version, and migration of an older version.
//!
//! A store is opened for writing under a file lock, so that two processes that start at the same time do not both
//! create the database.

use crate::{
    failed,
    journal::{self, Journal},
    limits,
};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_engine::store::StoreError;

/// The database file in a store's directory.
pub(crate) const DATABASE: &str = "toolyard.db";
const OPEN_LOCK: &str = "toolyard.lock";

/// Schema changes in order: the first makes version 1 of nothing. Never edited once released, only added to.
///
/// - A frame's key is `run number << 32 | seq`: one integer instead of a UUID and a number, so that the frames of a run
///   are adjacent, pages fill up, and a payload of nearly a page needs no overflow page.
/// - `frames.kind` has 256 added when the payload is zstd (the first four bytes are then its real length).
/// - A run that has frames but no row yet has `kind IS NULL`.
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
];

/// The version this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// What the writer needs: the connection, the log file to sync, and the journal, unless there can be none.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) log: File,
    pub(crate) journal: Option<Arc<Journal>>,
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
    let connection = open(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    configure(&connection, true).map_err(|e| failed(&format!("cannot open {}", path.display()), e))?;
    let mut opened = migrate(connection, &path, is_new, dir)?;
    opened.journal = match journal::adopt(dir, &mut opened.connection, &opened.log, true)? {
        Some(journal) => Some(Arc::new(journal)),
        // Without one everything goes to the database, which is slower and promises the same.
        None => journal::create(dir)
            .inspect_err(|error| tracing::warn!(%error, "the store cannot have a journal"))
            .ok()
            .map(Arc::new),
    };
    Ok(opened)
}

fn migrate(mut connection: Connection, path: &Path, is_new: bool, dir: &Path) -> Result<Opened, StoreError> {
    let doing = format!("cannot prepare {}", path.display());
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| failed(&doing, e))?;
    let version = version(&transaction, path)?;
    fill_log(&log_path(path)).map_err(|e| failed(&doing, e))?;
    if version < VERSION {
        for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
            transaction.execute_batch(step).map_err(|e| failed(&doing, e))?;
        }
        transaction.pragma_update(None, "user_version", VERSION).map_err(|e| failed(&doing, e))?;
    }
    transaction.commit().map_err(|e| failed(&doing, e))?;
    let log = File::open(log_path(path)).map_err(|e| failed(&doing, e))?;
    if version < VERSION {
        log.sync_all().map_err(|e| failed(&doing, e))?;
    }
    if is_new {
        sync_dir(dir).map_err(|e| failed(&doing, e))?;
    }
    Ok(Opened { connection, log, journal: None })
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
        return Err(StoreError(format!(
            "{} has version {version} and this program reads version {VERSION}: open it for writing once to bring it up to date",
            path.display()
        )));
    }
    Ok(())
}

fn version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|e| failed(&format!("cannot read {}", path.display()), e))?;
    if version > VERSION {
        return Err(StoreError(format!(
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
    // Closing would otherwise empty the log and delete the file that was filled beforehand; the writer does the first
    // itself when it ends.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if writes {
        journal_mode_wal(connection)?;
        // The writer syncs the log itself, after the commit and outside the write lock: this is what FULL does, except
        // that FULL holds up other processes meanwhile and cannot be asked for after the fact. Checkpoints still sync
        // the log before and the database after, as NORMAL does.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "cache_size", -1024)?;
    } else {
        connection.pragma_update(None, "cache_size", -512)?;
    }
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// The first change to WAL mode needs the file to itself and does not wait by itself for a reader to go away.
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

fn log_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Fills the log up with zeros: commits then overwrite blocks that exist instead of growing the file, which a sync would
/// have to write down as well. SQLite takes zeros for the end of the log.
///
/// Call this inside a write transaction that has written nothing, so that nobody else adds to the log. Before the
/// database is in WAL mode it would have no effect, because SQLite deletes a log that it finds beside an empty
/// database.
fn fill_log(log: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(log)?;
    let missing = limits::WAL_BYTES.saturating_sub(file.metadata()?.len());
    if missing == 0 {
        return Ok(());
    }
    std::io::copy(&mut std::io::repeat(0).take(missing), &mut file)?;
    file.sync_all()
}

/// Makes new names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
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
    fn the_log_of_a_new_store_is_filled_beforehand_and_stays_so() {
        let home = tempfile::tempdir().unwrap();
        let log = log_path(&home.path().join(DATABASE));
        for _ in 0..2 {
            let opened = open_writer(home.path()).unwrap();
            opened
                .connection
                .execute("INSERT INTO facts (space, key, value) VALUES ('s', hex(randomblob(8)), x'00')", [])
                .unwrap();
            assert_eq!(std::fs::metadata(&log).unwrap().len(), limits::WAL_BYTES);
        }
        let facts: i64 =
            open_reader(home.path()).unwrap().query_row("SELECT count(*) FROM facts", [], |row| row.get(0)).unwrap();
        assert_eq!(facts, 2, "zeros at its end take nothing away from the log");
        std::fs::remove_file(&log).unwrap();
        open_writer(home.path()).unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), limits::WAL_BYTES);
    }

    #[test]
    fn a_newer_database_is_refused_untouched() {
        let home = tempfile::tempdir().unwrap();
        open_writer(home.path()).unwrap();
        let path = home.path().join(DATABASE);
        Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
        let error = open_writer(home.path()).err().unwrap();
        assert!(error.0.contains("newer"), "{error}");
        let version: i64 =
            Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, VERSION + 1);
    }
}
