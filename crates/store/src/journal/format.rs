//! The journal's bytes: file header, entries, and how a torn end is distinguished from damage. Pure;
//! `docs/reference/journal-format.md` is the page about it.

use crate::{
    blob_files::StoredBlob,
    queue::{Append, Blobs, StoredFrame},
    rows,
};
use jiff::Timestamp;
use toolyard_engine::store::RunRow;
use toolyard_protocol::RunId;

const FILE_MAGIC: &[u8; 8] = b"TOOLYJNL";
const ENTRY_MAGIC: &[u8; 4] = b"TYJE";
const RETIRED_MAGIC: &[u8; 8] = b"RETIRED\n";
/// The version this program writes and the only one it reads.
pub(crate) const VERSION: u32 = 1;
/// The offset of the first entry: a separate block, so that writing an entry never touches the header.
pub(crate) const ENTRIES_AT: usize = 4096;
/// The offset of the mark that a clean close writes.
pub(crate) const RETIRED_AT: usize = 512;
const FILE_HEADER: usize = 44;
const RETIRED_BYTES: usize = 24;
pub(crate) const ENTRY_HEADER: usize = 32;

/// The position of an entry: its generation, and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct EntryPosition {
    pub(crate) generation: u64,
    pub(crate) number: u32,
}

/// Why a journal cannot be read. None of its entries was applied to the database.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error("it has no journal header")]
    NoHeader,
    #[error("its header is damaged")]
    Header,
    #[error("it has version {0}, written by a newer program; this one knows version {VERSION}")]
    Newer(u32),
    #[error("only {0} bytes of it are there")]
    Short(u64),
    #[error("entry {0} is damaged, and a later entry shows that it had reached the disk")]
    Entry(u32),
    #[error("entry {0} is whole and cannot be understood")]
    Undecodable(u32),
}

/// The header block of a new file.
pub(crate) fn file_header(id: uuid::Uuid, file_bytes: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENTRIES_AT);
    out.extend_from_slice(FILE_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(ENTRIES_AT as u32).to_le_bytes());
    out.extend_from_slice(&file_bytes.to_le_bytes());
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.resize(ENTRIES_AT, 0);
    out
}

/// Checks the header block of a whole file. A file has its full length before its first entry is written, so a shorter one
/// has lost something.
fn check_header(bytes: &[u8]) -> Result<(), Damage> {
    let header = bytes.get(..FILE_HEADER).ok_or(Damage::NoHeader)?;
    if &header[..8] != FILE_MAGIC {
        return Err(Damage::NoHeader);
    }
    if crc32fast::hash(&header[..FILE_HEADER - 4]) != word(header, FILE_HEADER - 4) {
        return Err(Damage::Header);
    }
    match word(header, 8) {
        VERSION if (bytes.len() as u64) < long(header, 16) => Err(Damage::Short(bytes.len() as u64)),
        VERSION => Ok(()),
        other => Err(Damage::Newer(other)),
    }
}

/// Whether the header block is whole and of this version.
pub(crate) fn has_header(beginning: &[u8]) -> bool {
    matches!(check_header(beginning), Ok(()) | Err(Damage::Short(_)))
}

/// What is written at [`RETIRED_AT`] when everything up to a place is in the database.
pub(crate) fn retired(upto: EntryPosition) -> [u8; RETIRED_BYTES] {
    let mut out = [0; RETIRED_BYTES];
    out[..8].copy_from_slice(RETIRED_MAGIC);
    out[8..16].copy_from_slice(&upto.generation.to_le_bytes());
    out[16..20].copy_from_slice(&upto.number.to_le_bytes());
    let sum = crc32fast::hash(&out[..20]);
    out[20..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Whether the beginning of a file shows that nothing in it is missing from the database: it was retired and nothing was
/// written since, or nothing was ever written.
pub(crate) fn is_retired(beginning: &[u8]) -> bool {
    let (Some(mark), Some(first)) =
        (beginning.get(RETIRED_AT..RETIRED_AT + RETIRED_BYTES), beginning.get(ENTRIES_AT..ENTRIES_AT + ENTRY_HEADER))
    else {
        return false;
    };
    if first.iter().all(|byte| *byte == 0) && mark.iter().all(|byte| *byte == 0) {
        return true;
    }
    let is_whole = &mark[..8] == RETIRED_MAGIC && crc32fast::hash(&mark[..20]) == word(mark, 20);
    is_whole && Header::read(first).is_some_and(|header| header.place.generation == long(mark, 8))
}

/// Adds one entry to a buffer. `group_first` is the number of the first entry that is synced together with it.
pub(crate) fn encode(out: &mut Vec<u8>, place: EntryPosition, group_first: u32, append: &Append, blobs: &[StoredBlob]) {
    let start = out.len();
    out.extend_from_slice(&[0; ENTRY_HEADER]);
    out.extend_from_slice(append.run_id.as_uuid().as_bytes());
    out.push(u8::from(append.release));
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
    seal(out, start, place, group_first);
}

/// An entry around a body that is written already.
pub(crate) fn frame(place: EntryPosition, body: &[u8]) -> Vec<u8> {
    let mut out = [[0; ENTRY_HEADER].as_slice(), body].concat();
    seal(&mut out, 0, place, 0);
    out
}

/// Fills in the header of the entry that begins at `start` and ends with the buffer.
fn seal(out: &mut [u8], start: usize, place: EntryPosition, group_first: u32) {
    let body = start + ENTRY_HEADER;
    let (length, sum) = ((out.len() - body) as u32, crc32fast::hash(&out[body..]));
    let header = &mut out[start..body];
    header[..4].copy_from_slice(ENTRY_MAGIC);
    header[4..8].copy_from_slice(&place.number.to_le_bytes());
    header[8..16].copy_from_slice(&place.generation.to_le_bytes());
    header[16..20].copy_from_slice(&group_first.to_le_bytes());
    header[20..24].copy_from_slice(&length.to_le_bytes());
    header[24..28].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32fast::hash(&header[..28]);
    header[28..].copy_from_slice(&sum.to_le_bytes());
}

struct Header {
    place: EntryPosition,
    group_first: u32,
    length: usize,
    sum: u32,
}

impl Header {
    /// `None` unless the bytes are a whole header.
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..ENTRY_HEADER)?;
        if &bytes[..4] != ENTRY_MAGIC || crc32fast::hash(&bytes[..28]) != word(bytes, 28) {
            return None;
        }
        Some(Self {
            place: EntryPosition { generation: long(bytes, 8), number: word(bytes, 4) },
            group_first: word(bytes, 16),
            length: word(bytes, 20) as usize,
            sum: word(bytes, 24),
        })
    }
}

/// A whole entry at the beginning of these bytes, and where it ends.
fn whole(bytes: &[u8]) -> Option<(Header, &[u8], usize)> {
    let header = Header::read(bytes)?;
    let end = ENTRY_HEADER.checked_add(header.length)?;
    let body = bytes.get(ENTRY_HEADER..end)?;
    (crc32fast::hash(body) == header.sum).then_some((header, body, end))
}

/// The result of reading a journal.
#[derive(Default)]
pub(crate) struct Entries {
    /// The entries that the database has not applied, in order.
    pub(crate) new: Vec<(EntryPosition, Append)>,
    /// The last place that was used, as far as it can be read.
    pub(crate) last: EntryPosition,
}

/// Reads a whole file. `done` is how far the database has come.
///
/// Entries are written in groups, and a group is written only when the one before it is on the disk. The last group may
/// therefore be torn by a crash: entries of it are missing or cut, no caller was told that they are durable, and
/// reading ends there. Any other missing entry is damage: an entry of a later group is complete.
pub(crate) fn entries(bytes: &[u8], done: Option<EntryPosition>) -> Result<Entries, Damage> {
    check_header(bytes)?;
    let bytes = bytes.get(ENTRIES_AT..).unwrap_or_default();
    let mut found = Entries { last: done.unwrap_or_default(), ..Entries::default() };
    let is_new = |place: EntryPosition| done.is_none_or(|done| place > done);
    let mut at = 0;
    // The generation that is read, and the number that comes next in it.
    let mut generation: Option<u64> = None;
    let mut next = 0;
    // The first entry that is missing. What follows it is only looked at for proof that it had reached the disk.
    let mut torn_at: Option<u32> = None;
    while let Some((start, header, body, length)) = next_whole(bytes, at, generation, done) {
        let place = header.place;
        // The first number that is missing before this entry and not in the database yet.
        let missing = match done {
            Some(done) if done.generation == place.generation => next.max(done.number.saturating_add(1)),
            _ => next,
        };
        if place.number < next {
            // Entries of an older generation after the last entry of this one.
            at = start + 1;
            continue;
        }
        let missing = torn_at.unwrap_or(missing);
        if torn_at.is_some() || place.number > missing {
            if header.group_first > missing {
                return Err(Damage::Entry(missing));
            }
            torn_at = Some(missing);
            generation = Some(place.generation);
            at = start + length;
            continue;
        }
        generation = Some(place.generation);
        found.last = found.last.max(place);
        if is_new(place) {
            found.new.push((place, decode(body).ok_or(Damage::Undecodable(place.number))?));
        }
        next = place.number.saturating_add(1);
        at = start + length;
    }
    Ok(found)
}

/// The next whole entry of the generation that is read, or of the first one that the database does not have all of.
fn next_whole(
    bytes: &[u8],
    from: usize,
    generation: Option<u64>,
    done: Option<EntryPosition>,
) -> Option<(usize, Header, &[u8], usize)> {
    let is_wanted = |found: u64| match generation {
        Some(generation) => found == generation,
        None => found != 0 && done.is_none_or(|done| found >= done.generation),
    };
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        if let Some((header, body, length)) = whole(rest)
            && is_wanted(header.place.generation)
        {
            return Some((at, header, body, length));
        }
        at += 1 + rest.get(1..)?.windows(ENTRY_MAGIC.len()).position(|four| four == ENTRY_MAGIC)?;
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
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

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&rows::nanos(time).to_le_bytes());
}

fn put_row(out: &mut Vec<u8>, row: &RunRow) {
    out.push(rows::kind_code(row.kind) as u8);
    out.push(rows::status_code(row.status) as u8);
    put_text(out, &row.title);
    put_option(out, row.session.as_deref(), put_text);
    put_time(out, row.started_at);
    put_option(out, row.ended_at, put_time);
}

/// Reads the output of `encode`. `None` for bytes that `encode` cannot have written.
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

    fn flag(&mut self) -> Option<bool> {
        match self.array::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        self.take(length).map(<[u8]>::to_vec)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn time(&mut self) -> Option<Timestamp> {
        rows::time_of(i64::from_le_bytes(self.array()?)).ok()
    }
}

fn decode(body: &[u8]) -> Option<Append> {
    let mut from = Cursor(body);
    let run_id = RunId::from_uuid(uuid::Uuid::from_bytes(from.array()?));
    let release = from.flag()?;
    let mut frames = Vec::new();
    for _ in 0..from.u32()? {
        let (seq, kind, chain) = (from.u32()?, i64::from_le_bytes(from.array()?), from.array()?);
        frames.push(StoredFrame { seq, kind, payload: from.bytes()?, chain });
    }
    let mut blobs = Vec::new();
    for _ in 0..from.u32()? {
        let (sha256, len) = (from.array()?, usize::try_from(u64::from_le_bytes(from.array()?)).ok()?);
        let is_zstd = from.flag()?;
        blobs.push(StoredBlob { sha256, len, is_zstd, bytes: from.option(Cursor::bytes)? });
    }
    let row = from.option(|from| {
        let (kind, status) = (from.array::<1>()?[0].into(), from.array::<1>()?[0].into());
        Some(RunRow {
            run_id,
            kind: rows::kind_of(kind).ok()?,
            status: rows::status_of(status).ok()?,
            title: from.text()?,
            session: from.option(Cursor::text)?,
            started_at: from.time()?,
            ended_at: from.option(Cursor::time)?,
        })
    })?;
    from.0.is_empty().then_some(Append { run_id, frames, blobs: Blobs::Ready(blobs), row, release })
}

#[cfg(test)]
mod tests;
