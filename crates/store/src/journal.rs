//! The journal file: entries appended to a preallocated file, and their recovery after a crash.
//!
//! A commit of the database changes several pages and takes two locks; an entry of the journal is one write. Data that
//! must be durable at once is therefore written to the journal, and the database takes it over a little later, in
//! groups. Each process has its own journal, which it locks. An unlocked journal belongs to a dead process; the next
//! process that opens the store or claims a run moves its entries into the database.
//!
//! An entry contains its generation and its number in the generation. When the database is synced, the journal starts
//! again with the next generation, so that old entries behind the last new one are ignored. The position that the
//! database has reached is written in the same transaction (table `journals`), so that nothing is moved twice.

use crate::{
    apply::{self, RunNumbers, Trouble},
    blob_files::StoredBlob,
    failed, limits,
    queue::{Append, Blobs, Op, StoredFrame},
    rows,
    schema::sync_dir,
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use toolyard_engine::store::{Lease, RunRow, StoreError};
use toolyard_protocol::RunId;

const PREFIX: &str = "toolyard.journal-";
const HEADER: usize = 24;

/// The position of an entry: its generation and its number in the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub(crate) generation: u64,
    pub(crate) number: u32,
}

/// This process's journal.
pub(crate) struct Journal {
    pub(crate) name: String,
    pub(crate) file: File,
    /// The last generation used in it.
    pub(crate) generation: u64,
}

impl Journal {
    /// Writes whole entries and waits until they are on the disk.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        self.file.sync_data()
    }
}

/// Adds one entry to a buffer.
pub(crate) fn encode(out: &mut Vec<u8>, place: Place, append: &Append, blobs: &[StoredBlob]) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    out.extend_from_slice(append.run_id.as_uuid().as_bytes());
    put_len(out, append.frames.len());
    for frame in &append.frames {
        out.extend_from_slice(&frame.seq.to_le_bytes());
        out.extend_from_slice(&frame.kind.to_le_bytes());
        out.extend_from_slice(&frame.chain);
        put_bytes(out, &frame.payload);
    }
    put_len(out, blobs.len());
    for blob in blobs {
        out.extend_from_slice(&blob.sha256);
        out.extend_from_slice(&(blob.len as u64).to_le_bytes());
        out.push(u8::from(blob.is_zstd));
        put_option(out, blob.bytes.as_deref(), put_bytes);
    }
    put_option(out, append.row.as_ref(), put_row);
    seal(out, start, place);
}

/// An entry around a body that is written already.
pub(crate) fn frame(place: Place, body: &[u8]) -> Vec<u8> {
    let mut out = [[0; HEADER].as_slice(), body].concat();
    seal(&mut out, 0, place);
    out
}

/// Fills in the header of the entry that begins at `start` and ends with the buffer.
fn seal(out: &mut [u8], start: usize, place: Place) {
    let length = (out.len() - start - HEADER) as u32;
    let header = &mut out[start..start + HEADER];
    header[..8].copy_from_slice(&place.generation.to_le_bytes());
    header[8..12].copy_from_slice(&place.number.to_le_bytes());
    header[12..16].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&out[start..start + 16], &out[start + HEADER..]);
    out[start + 16..start + 20].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    hasher.finalize()
}

fn put_len(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&(length as u32).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_row(out: &mut Vec<u8>, row: &RunRow) {
    out.push(rows::kind_code(row.kind) as u8);
    out.push(rows::status_code(row.status) as u8);
    put_text(out, &row.title);
    put_option(out, row.session.as_deref(), put_text);
    put_text(out, &row.started_at.to_string());
    put_option(out, row.ended_at, |out, at| put_text(out, &at.to_string()));
    put_option(out, row.lease.as_ref(), |out, lease| {
        put_text(out, &lease.boot_id);
        out.extend_from_slice(&lease.pid.to_le_bytes());
        out.extend_from_slice(&lease.started.to_le_bytes());
    });
}

/// The entries of a file in order, up to the first that is not whole.
pub(crate) fn entries(bytes: &[u8]) -> Vec<(Place, Append)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    let mut expected: Option<Place> = None;
    while rest.len() >= HEADER {
        let (header, after) = rest.split_at(HEADER);
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let place = Place { generation: u64::from(word(0)) | u64::from(word(4)) << 32, number: word(8) };
        let length = word(12) as usize;
        if place.generation == 0 || expected.unwrap_or(Place { number: 0, ..place }) != place || length > after.len() {
            break;
        }
        let (body, next) = after.split_at(length);
        if word(16) != checksum(&header[..16], body) {
            break;
        }
        let Some(append) = decode(body) else { break };
        found.push((place, append));
        expected = Some(Place { number: place.number.wrapping_add(1), ..place });
        rest = next;
    }
    found
}

/// Reads what `encode` wrote. `None` if the bytes are invalid.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        self.take(length).map(<[u8]>::to_vec)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.array::<1>()? {
            [0] => Some(None),
            [1] => read(self).map(Some),
            _ => None,
        }
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.text()?.parse().ok()
    }
}

fn decode(body: &[u8]) -> Option<Append> {
    let mut from = Cursor(body);
    let run_id = RunId::from_uuid(uuid::Uuid::from_bytes(from.array()?));
    let mut frames = Vec::new();
    for _ in 0..from.u32()? {
        let (seq, kind, chain) = (from.u32()?, i64::from_le_bytes(from.array()?), from.array()?);
        frames.push(StoredFrame { seq, kind, payload: from.bytes()?, chain });
    }
    let mut blobs = Vec::new();
    for _ in 0..from.u32()? {
        let (sha256, len, is_zstd) = (from.array()?, usize::try_from(from.u64()?).ok()?, from.array()? == [1]);
        blobs.push(StoredBlob { sha256, len, is_zstd, bytes: from.option(Cursor::bytes)? });
    }
    let row = from.option(|from| {
        let (kind, status) = (rows::kind_of(from.array::<1>()?[0].into()).ok()?, from.array::<1>()?[0].into());
        Some(RunRow {
            run_id,
            kind,
            status: rows::status_of(status).ok()?,
            title: from.text()?,
            session: from.option(Cursor::text)?,
            started_at: from.time()?,
            ended_at: from.option(Cursor::time)?,
            lease: from.option(|from| Some(Lease { boot_id: from.text()?, pid: from.u32()?, started: from.u64()? }))?,
        })
    })?;
    from.0.is_empty().then_some(Append { run_id, frames, blobs: Blobs::Ready(blobs), row })
}

/// Stores the position that the database has reached, in the same transaction.
pub(crate) fn mark(db: &Connection, name: &str, place: Place) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO journals (name, generation, number) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET generation = excluded.generation, number = excluded.number",
    )?
    .execute(params![name, place.generation.cast_signed(), place.number])?;
    Ok(())
}

fn marked(db: &Connection, name: &str) -> rusqlite::Result<Option<Place>> {
    db.prepare_cached("SELECT generation, number FROM journals WHERE name = ?1")?
        .query_row([name], |row| Ok(Place { generation: row.get::<_, i64>(0)?.cast_unsigned(), number: row.get(1)? }))
        .optional()
}

/// Marks the journal of a store that closes in good order: everything in it is in the database. Nothing depends on it
/// but the time the next start takes, so it is neither synced nor missed when it fails.
pub(crate) fn retire(file: &File) {
    if let Err(error) = file.write_all_at(&[0; HEADER], 0) {
        tracing::warn!(%error, "a journal could not be retired; the next start reads it again");
    }
}

/// Whether a process that is gone may have left something in its journal.
pub(crate) fn is_any_left(dir: &Path) -> bool {
    let left = |path: &PathBuf| {
        let Ok(file) = File::open(path) else { return false };
        file.try_lock_shared().is_ok() && !is_retired(&file)
    };
    candidates(dir).is_ok_and(|paths| paths.iter().any(left))
}

fn is_retired(file: &File) -> bool {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).is_ok() && header == [0; HEADER]
}

fn candidates(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Moves the entries of dead processes' journals into the database, and returns the first of these journals for reuse.
/// `log` is synced before a journal is reused or removed.
pub(crate) fn adopt(dir: &Path, db: &mut Connection, log: &File, keep: bool) -> Result<Option<Journal>, StoreError> {
    let doing = "cannot take up the journal of a process that is gone";
    let mut adopted = None;
    for path in candidates(dir).map_err(|e| failed(doing, e))? {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        // Its process lives: what is in it is that one's to move.
        if file.try_lock().is_err() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let last = replay(&file, &name, db).map_err(|e| failed(doing, e))?;
        log.sync_data().map_err(|e| failed(doing, e))?;
        let usable = file.metadata().is_ok_and(|data| data.len() == limits::JOURNAL_BYTES);
        if keep && usable && adopted.is_none() {
            adopted = Some(Journal { name, file, generation: last.generation });
        } else {
            std::fs::remove_file(&path).map_err(|e| failed(doing, e))?;
            db.execute("DELETE FROM journals WHERE name = ?1", [&name]).map_err(|e| failed(doing, e))?;
        }
    }
    Ok(adopted)
}

/// Moves one journal's entries; answers the last place used in it.
fn replay(file: &File, name: &str, db: &mut Connection) -> rusqlite::Result<Place> {
    let mut bytes = Vec::new();
    if is_retired(file) {
        return Ok(marked(db, name)?.unwrap_or_default());
    }
    // A journal that cannot be read to its end is read as far as it goes: its last entry says so by its checksum.
    if let Err(error) = (&mut &*file).take(limits::JOURNAL_BYTES).read_to_end(&mut bytes) {
        tracing::warn!(%error, "a journal could not be read to its end");
    }
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = marked(&transaction, name)?;
    let mut numbers = RunNumbers::default();
    let mut last = done.unwrap_or_default();
    let mut moved = 0_usize;
    for (place, append) in entries(&bytes) {
        last = last.max(place);
        if done.is_some_and(|done| place <= done) {
            continue;
        }
        moved += 1;
        let run_id = append.run_id;
        transaction.execute_batch("SAVEPOINT one")?;
        match apply::apply(&transaction, &mut numbers, &Op::Append(append)) {
            Ok(_) => transaction.execute_batch("RELEASE one")?,
            Err(Trouble::Database(error)) => return Err(error),
            Err(Trouble::Rejected(error)) => {
                tracing::error!(%run_id, %error, "a journal entry is refused by the database");
                transaction.execute_batch("ROLLBACK TO one; RELEASE one")?;
                numbers.forget();
            }
        }
    }
    if moved > 0 {
        mark(&transaction, name, last)?;
        tracing::info!(entries = moved, "took up the journal of a process that is gone");
    }
    transaction.commit()?;
    Ok(last)
}

/// Makes a new journal for this process.
pub(crate) fn create(dir: &Path) -> std::io::Result<Journal> {
    let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
    let path = dir.join(&name);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    file.try_lock().map_err(|_| std::io::ErrorKind::WouldBlock)?;
    let zeros = vec![0; 64 << 10];
    for _ in 0..limits::JOURNAL_BYTES / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    sync_dir(dir)?;
    Ok(Journal { name, file, generation: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::store::RunKind;
    use toolyard_protocol::RunStatus;

    fn append(seq: u32) -> Append {
        let run_id = RunId::from_uuid(uuid::Uuid::from_u128(7));
        let row = RunRow {
            run_id,
            kind: RunKind::Plan,
            status: RunStatus::Running,
            title: "тест".into(),
            session: Some("s".into()),
            started_at: "2026-01-02T03:04:05.123456789Z".parse().unwrap(),
            ended_at: None,
            lease: Some(Lease { boot_id: "b".into(), pid: 3, started: u64::MAX }),
        };
        let blob = StoredBlob { sha256: [1; 32], len: 3, is_zstd: false, bytes: Some(b"abc".to_vec()) };
        let file = StoredBlob { sha256: [2; 32], len: 1 << 21, is_zstd: true, bytes: None };
        let frame = StoredFrame { seq, kind: 257, payload: vec![b'x'; 100], chain: [9; 32] };
        Append { run_id, frames: vec![frame], blobs: Blobs::Ready(vec![blob, file]), row: Some(row) }
    }

    fn written(places: &[(u64, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (generation, number) in places {
            let append = append(number + 1);
            let Blobs::Ready(blobs) = &append.blobs else { unreachable!() };
            encode(&mut bytes, Place { generation: *generation, number: *number }, &append, blobs);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<(u64, u32)> {
        entries(bytes).iter().map(|(place, _)| (place.generation, place.number)).collect()
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let mut bytes = written(&[(3, 0)]);
        bytes.extend_from_slice(&[0; 4096]);
        let found = entries(&bytes);
        let (expected, back) = (append(1), &found[0].1);
        assert_eq!(found.len(), 1);
        assert_eq!((back.run_id, &back.row), (expected.run_id, &expected.row));
        let (Blobs::Ready(one), Blobs::Ready(two)) = (&back.blobs, &expected.blobs) else { unreachable!() };
        let plain = |blobs: &[StoredBlob]| -> Vec<_> {
            blobs.iter().map(|b| (b.sha256, b.len, b.is_zstd, b.bytes.clone())).collect()
        };
        assert_eq!(plain(one), plain(two));
        let frame = &back.frames[0];
        assert_eq!((frame.seq, frame.kind, frame.payload.len(), frame.chain), (1, 257, 100, [9; 32]));
    }

    #[test]
    fn what_an_older_generation_left_is_not_taken_up() {
        let mut bytes = written(&[(5, 0), (5, 1)]);
        bytes.extend_from_slice(&written(&[(4, 2), (4, 3)]));
        assert_eq!(read(&bytes), [(5, 0), (5, 1)]);
        assert_eq!(read(&written(&[(4, 1), (4, 2)])), [], "a generation begins with its first entry");
        assert_eq!(read(&[0; 8192]), [], "zeros are no entries");
    }

    #[test]
    fn no_damage_is_taken_for_an_entry() {
        let whole = written(&[(1, 0), (1, 1), (1, 2)]);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            let in_padding = at % (whole.len() / 3) >= 20 && at % (whole.len() / 3) < HEADER;
            assert!(in_padding || read(&damaged).len() < 3, "byte {at}");
            assert!(read(&whole[..at]).len() < 3);
        }
    }
}
