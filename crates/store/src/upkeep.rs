//! Maintenance of a store: a copy while it is in use, a check of everything in it, and figures.

use crate::{
    SqliteStore, blob_files, failed, failed_io,
    journal::{self, JournalState},
    schema::{self, DATABASE, sync_dir},
};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::Read,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};
use toolyard_engine::{Store, store::StoreError};
use toolyard_protocol::canonical;

/// Problems listed by a check; more are counted.
const MAX_PROBLEMS: usize = 100;

/// What a copy holds.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Copied {
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Blobs in files of their own.
    pub blob_files: u64,
    /// Their bytes.
    pub blob_bytes: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The version of the store's format.
    pub version: i64,
    /// Runs looked at.
    pub runs: u64,
    /// Frames looked at.
    pub frames: u64,
    /// Blobs whose content was compared with their hash.
    pub blobs: u64,
    /// Journals that were read to their end.
    pub journals: u64,
    /// What is wrong, the first hundred.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub problem_count: u64,
}

impl Checked {
    fn problem(&mut self, what: String) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what);
        }
    }
}

/// The size of a store and the number of its rows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreStats {
    /// The version of the store's format.
    pub version: i64,
    /// The number of runs.
    pub runs: u64,
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Frames of all runs.
    pub frames: u64,
    /// The number of facts.
    pub facts: u64,
    /// Ledger entries.
    pub ledger_entries: u64,
    /// Blobs, in the database and in files.
    pub blobs: u64,
    /// Processes that have the store open.
    pub processes: u64,
    /// Bytes of the database file.
    pub database_bytes: u64,
    /// Bytes of it that are free and will be used again.
    pub free_bytes: u64,
    /// Bytes of SQLite's log.
    pub log_bytes: u64,
    /// Bytes of blobs in files of their own.
    pub blob_file_bytes: u64,
    /// Bytes of journals.
    pub journal_bytes: u64,
    /// What retention by size compares with its limit: the database without its free pages, and the blobs.
    pub used_bytes: u64,
    /// When the oldest run began.
    pub oldest_run: Option<jiff::Timestamp>,
}

impl SqliteStore {
    /// Copies the store as it is at one moment into a new directory, while it is used. What is acknowledged when this is
    /// called is in the copy. The copy is synced.
    pub fn copy_to(&self, target: &Path) -> Result<Copied, StoreError> {
        self.settle()?;
        let at = |e: std::io::Error| failed_io(&format!("cannot write {}", target.display()), &e);
        DirBuilder::new().recursive(true).mode(0o700).create(target).map_err(at)?;
        let database = target.join(DATABASE);
        let name = database.to_str().ok_or_else(|| StoreError::failed("the backup's path is not UTF-8"))?;
        // SQLite refuses a target that is not empty.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&database).map_err(at)?;
        let connection = schema::open_reader(self.dir())?;
        connection.execute("VACUUM INTO ?1", [name]).map_err(|e| failed("cannot copy the database", e))?;
        let file = File::open(&database).map_err(at)?;
        toolyard_faults::sync_all(&file).map_err(at)?;
        let mut copied = Copied { database_bytes: file.metadata().map_err(at)?.len(), ..Copied::default() };
        let copy = Connection::open(&database).map_err(|e| failed("cannot open the copy", e))?;
        let mut select = copy
            .prepare("SELECT sha256, zstd FROM blobs WHERE bytes IS NULL")
            .map_err(|e| failed("cannot read the copy", e))?;
        let mut found = select.query([]).map_err(|e| failed("cannot read the copy", e))?;
        while let Some(row) = found.next().map_err(|e| failed("cannot read the copy", e))? {
            let read = |e: rusqlite::Error| failed("cannot read the copy", e);
            let (hash, is_zstd): (Vec<u8>, bool) = (row.get(0).map_err(read)?, row.get(1).map_err(read)?);
            let hash = canonical::hex(&hash);
            let from = blob_files::file_path(self.dir(), &hash, is_zstd);
            copied.blob_bytes += copy_file(&from, &blob_files::file_path(target, &hash, is_zstd)).map_err(at)?;
            copied.blob_files += 1;
        }
        sync_dir(target).map_err(at)?;
        Ok(copied)
    }

    /// Looks at everything: the database's own structure, that frames belong to runs and can be read, every blob's hash,
    /// and journals. What the records prove is checked by `runs verify`.
    pub fn check(&self) -> Result<Checked, StoreError> {
        self.settle()?;
        let mut checked = Checked::default();
        let db = schema::open_reader(self.dir())?;
        let read = |e: rusqlite::Error| failed("cannot check the store", e);
        checked.version = db.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(read)?;
        let mut select = db.prepare("PRAGMA integrity_check").map_err(read)?;
        let lines = select.query_map([], |row| row.get::<_, String>(0)).map_err(read)?;
        for line in lines {
            match line.map_err(read)? {
                line if line == "ok" => {}
                line => checked.problem(format!("the database is damaged: {line}")),
            }
        }
        self.check_frames(&db, &mut checked)?;
        self.check_blobs(&db, &mut checked)?;
        for (path, state) in journal::look(self.dir(), &db)? {
            checked.journals += 1;
            if let JournalState::Damaged(why) = state {
                checked.problem(format!("the journal {} is damaged: {why}", path.display()));
            }
        }
        checked.ok = checked.problem_count == 0;
        Ok(checked)
    }

    fn check_frames(&self, db: &Connection, checked: &mut Checked) -> Result<(), StoreError> {
        let read = |e: rusqlite::Error| failed("cannot check the store", e);
        let runs: i64 = db.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).map_err(read)?;
        checked.runs = runs.cast_unsigned();
        let orphans: i64 = db
            .query_row("SELECT count(*) FROM frames WHERE id >> 32 NOT IN (SELECT no FROM runs)", [], |row| row.get(0))
            .map_err(read)?;
        if orphans > 0 {
            checked.problem(format!("{orphans} frames belong to no run"));
        }
        let mut select = db.prepare("SELECT id, kind, payload FROM frames").map_err(read)?;
        let mut found = select.query([]).map_err(read)?;
        while let Some(row) = found.next().map_err(read)? {
            checked.frames += 1;
            let (id, kind, payload): (i64, i64, Vec<u8>) =
                (row.get(0).map_err(read)?, row.get(1).map_err(read)?, row.get(2).map_err(read)?);
            if let Err(error) = crate::packing::unpack(kind, &payload) {
                checked.problem(format!(
                    "frame {} of run number {} cannot be read: {error}",
                    id & 0xffff_ffff,
                    id >> 32
                ));
            }
        }
        Ok(())
    }

    fn check_blobs(&self, db: &Connection, checked: &mut Checked) -> Result<(), StoreError> {
        let read = |e: rusqlite::Error| failed("cannot check the store", e);
        let mut select = db.prepare("SELECT sha256 FROM blobs").map_err(read)?;
        let mut found = select.query([]).map_err(read)?;
        while let Some(row) = found.next().map_err(read)? {
            checked.blobs += 1;
            let hash = canonical::hex(&row.get::<_, Vec<u8>>(0).map_err(read)?);
            if let Err(error) = self.blob(&hash) {
                checked.problem(error.to_string());
            }
        }
        Ok(())
    }

    /// The size of the store and the number of its rows.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        let db = schema::open_reader(self.dir())?;
        let number = |sql: &str| -> Result<u64, StoreError> {
            db.query_row(sql, [], |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
                .map_err(|e| failed("cannot look at the store", e))
        };
        let length = |name: &str| self.dir().join(name).metadata().map_or(0, |file| file.len());
        let free = number("PRAGMA freelist_count")? * number("PRAGMA page_size")?;
        let oldest: Option<i64> = db
            .query_row("SELECT min(started_at) FROM runs", [], |row| row.get(0))
            .map_err(|e| failed("cannot look at the store", e))?;
        let blob_file_bytes = number("SELECT coalesce(sum(len), 0) FROM blobs WHERE bytes IS NULL")?;
        Ok(StoreStats {
            version: schema::VERSION,
            runs: number("SELECT count(*) FROM runs")?,
            open_runs: number("SELECT count(*) FROM runs WHERE status < 3")?,
            frames: number("SELECT count(*) FROM frames")?,
            facts: number("SELECT count(*) FROM facts")?,
            ledger_entries: number("SELECT count(*) FROM ledger")?,
            blobs: number("SELECT count(*) FROM blobs")?,
            processes: number("SELECT count(*) FROM owners")?,
            database_bytes: length(DATABASE),
            free_bytes: free,
            log_bytes: length(&format!("{DATABASE}-wal")),
            blob_file_bytes,
            journal_bytes: journal::bytes(self.dir())?,
            used_bytes: self.used()?,
            oldest_run: oldest.map(crate::rows::time_of).transpose()?,
        })
    }

    /// Bytes of the database without its free pages, and of blobs in files.
    pub(crate) fn used(&self) -> Result<u64, StoreError> {
        let db = schema::open_reader(self.dir())?;
        let sql = "SELECT (page_count - freelist_count) * page_size
                       + coalesce((SELECT sum(len) FROM blobs WHERE bytes IS NULL), 0)
                   FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        db.query_row(sql, [], |row| row.get::<_, i64>(0))
            .map(i64::cast_unsigned)
            .map_err(|e| failed("cannot look at the store", e))
    }

    /// The same without the ledger, which the removal of runs does not make smaller.
    pub(crate) fn used_without_ledger(&self) -> Result<u64, StoreError> {
        let db = schema::open_reader(self.dir())?;
        let sql = "SELECT coalesce(sum(length(payload) + length(chain)), 0) FROM ledger";
        let ledger: i64 = db.query_row(sql, [], |row| row.get(0)).map_err(|e| failed("cannot look at the store", e))?;
        Ok(self.used()?.saturating_sub(ledger.cast_unsigned()))
    }

    /// Assigns a copied store to another node: the runs that its processes held count as left behind by dead processes.
    pub fn become_another_node(dir: &Path) -> Result<(), StoreError> {
        let doing = "cannot prepare the restored store";
        let db = Connection::open(dir.join(DATABASE)).map_err(|e| failed(doing, e))?;
        db.execute("UPDATE meta SET value = lower(hex(randomblob(8))) WHERE key = 'node'", [])
            .map_err(|e| failed(doing, e))?;
        Ok(())
    }
}

/// Copies one file, private and synced; returns its size.
pub fn copy_file(from: &Path, to: &Path) -> std::io::Result<u64> {
    if let Some(folder) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        toolyard_faults::write_all(&mut target, &buffer[..count])?;
        bytes += count as u64;
    }
    toolyard_faults::sync_all(&target)?;
    Ok(bytes)
}
