//! Reads and splits files on a blocking thread, as far as there is room in the batch. A file that is larger than a
//! batch is passed on in pieces, and its rows are created only when there is room.

use super::{
    batch::{Batch, Piece, PiecePosition},
    prepare::{PartLimits, Prepared, SplitNote, Stat, blank_file},
    survey::NoteFile,
};
use crate::{
    config::KnowledgeConfig,
    index::{FileRow, FileState, hash64},
    note::{Note, day_of_millis},
    sensitive::Guard,
};
use std::{sync::Arc, vec};
use tokio_util::sync::CancellationToken;
use toolyard_vault::Vault;

/// Number of files that are processed between two progress reports.
const LOOK_AT: u64 = 256;
/// A NUL byte this early marks a file as binary.
const BINARY_PROBE: usize = 8_192;

/// Reads the files of a job.
pub(super) struct Reader {
    pub(super) vault: Arc<Vault>,
    pub(super) config: Arc<KnowledgeConfig>,
    /// The check that prevents chunks from being embedded on another machine.
    pub(super) guard: Option<Arc<Guard>>,
    pub(super) recipe: u64,
    pub(super) can_embed: bool,
    pub(super) cancel: CancellationToken,
    /// Files to read, with their current rows in the index.
    pub(super) work: vec::IntoIter<(NoteFile, Option<FileRow>)>,
    /// The file whose rows are not complete yet.
    pub(super) open: Option<Open>,
}

/// A file whose rows are not complete yet.
pub(super) struct Open {
    cut: Box<SplitNote>,
    old: Option<FileRow>,
    is_begun: bool,
}

/// The result of reading a file.
enum ReadOutcome {
    SplitNote(Box<SplitNote>, Option<FileRow>),
    /// There is nothing to split; the row contains the reason.
    WithoutChunks(FileRow, Option<FileRow>),
    /// The content has not changed.
    Unchanged {
        now: FileRow,
        old: FileRow,
    },
    /// The file was removed in the meantime.
    Missing(String),
}

impl Reader {
    /// Whether all files were processed.
    pub(super) fn is_done(&self) -> bool {
        self.open.is_none() && self.work.len() == 0
    }

    /// Reads files until the batch is full, or until the next progress report is due.
    pub(super) fn fill(&mut self, batch: &mut Batch, room: PartLimits) {
        let enough = batch.looked + LOOK_AT;
        while !batch.is_full(room) && batch.looked < enough && !self.cancel.is_cancelled() {
            if let Some(open) = self.open.take() {
                self.cut(open, batch, room);
                continue;
            }
            let Some((seen, old)) = self.work.next() else { return };
            match self.read(&seen, old) {
                ReadOutcome::SplitNote(cut, old) => self.cut(Open { cut, old, is_begun: false }, batch, room),
                ReadOutcome::WithoutChunks(file, old) => {
                    let piece = Piece { prepared: Prepared::without_chunks(file), place: PiecePosition::Whole, old };
                    batch.push(piece, room);
                    batch.looked += 1;
                }
                ReadOutcome::Unchanged { now, old } => {
                    if now != old {
                        batch.touched.push(now);
                    }
                    batch.looked += 1;
                }
                ReadOutcome::Missing(path) => {
                    batch.removed.push(path);
                    batch.looked += 1;
                }
            }
        }
    }

    /// A file may use as much room as an empty batch has, so only larger files are split into pieces.
    fn cut(&mut self, mut open: Open, batch: &mut Batch, room: PartLimits) {
        let (prepared, is_last) = open.cut.part(self.guard.as_deref(), room);
        let place = match (open.is_begun, is_last) {
            (false, true) => PiecePosition::Whole,
            (false, false) => PiecePosition::First,
            (true, false) => PiecePosition::Middle,
            (true, true) => PiecePosition::Last,
        };
        batch.push(Piece { prepared, place, old: open.old.clone() }, room);
        if is_last {
            batch.looked += 1;
        } else {
            self.open = Some(Open { is_begun: true, ..open });
        }
    }

    fn read(&self, seen: &NoteFile, old: Option<FileRow>) -> ReadOutcome {
        let path = seen.path.to_string();
        let without_chunks = |state: FileState, reason: String| FileRow {
            size: seen.size,
            mtime_ms: seen.mtime_ms,
            recipe: self.recipe,
            day: day_of_millis(seen.mtime_ms),
            ..blank_file(path.clone(), state, reason)
        };
        let most = self.config.indexing.max_file_bytes;
        let too_large = || without_chunks(FileState::Skipped, format!("larger than the {most} bytes that are indexed"));
        if seen.size > most {
            return ReadOutcome::WithoutChunks(too_large(), old);
        }
        let content = match self.vault.read_note(&seen.path) {
            // The file may have grown since the survey.
            Ok(Some(content)) if content.bytes.len() as u64 > most => {
                return ReadOutcome::WithoutChunks(too_large(), old);
            }
            Ok(Some(content)) => content,
            Ok(None) => return ReadOutcome::Missing(path),
            Err(failure) => return ReadOutcome::WithoutChunks(without_chunks(FileState::Failed, failure.message), old),
        };
        let stat = Stat {
            hash: hash64(&[&content.bytes]),
            size: content.bytes.len() as u64,
            mtime_ms: content.mtime_ms,
            recipe: self.recipe,
        };
        let unchanged = old.as_ref().filter(|old| {
            old.hash == stat.hash
                && old.recipe == self.recipe
                && old.state != FileState::Failed
                && !(self.can_embed && old.unembedded > 0)
        });
        let unchanged =
            unchanged.map(|old| (FileRow { size: stat.size, mtime_ms: stat.mtime_ms, ..old.clone() }, old.clone()));
        if let Some((now, old)) = &unchanged
            && (old.mtime_ms == now.mtime_ms || old.day == day_of_millis(now.mtime_ms))
        {
            return ReadOutcome::Unchanged { now: now.clone(), old: old.clone() };
        }
        if memchr::memchr(0, &content.bytes[..content.bytes.len().min(BINARY_PROBE)]).is_some() {
            return ReadOutcome::WithoutChunks(without_chunks(FileState::Skipped, "not text".to_owned()), old);
        }
        let Ok(text) = std::str::from_utf8(&content.bytes) else {
            return ReadOutcome::WithoutChunks(without_chunks(FileState::Skipped, "not UTF-8".to_owned()), old);
        };
        // A defect in the parser must affect only one note, not the whole index.
        let sizes = self.config.indexing.sizes();
        let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Note::parse(&path, text, sizes)));
        let Ok(note) = parsed else {
            return ReadOutcome::WithoutChunks(
                without_chunks(FileState::Failed, "it could not be parsed".to_owned()),
                old,
            );
        };
        let cut = Box::new(SplitNote::new(&path, note, stat));
        match unchanged {
            // For a note without a date, the day comes from the modification time, which may be the only change.
            Some((now, old)) if cut.file().day == old.day => ReadOutcome::Unchanged { now, old },
            _ => ReadOutcome::SplitNote(cut, old),
        }
    }
}
