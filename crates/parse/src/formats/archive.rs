//! Zip archives, read entry by entry under limits: how many, how large, how much larger than packed, and no path that
//! climbs. Entries that are links or encrypted are passed over.

use super::{Limits, MAX_RATIO, ParseFailure, RATIO_FREE_BYTES, text};
use std::io::{Cursor, Read};
use toolyard_import::names::safe_path;
use zip::ZipArchive;

/// An archive that is read by the names of its parts.
pub(super) struct Package<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    left: u64,
}

impl<'a> Package<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: &Limits) -> Result<Self, ParseFailure> {
        let archive = ZipArchive::new(Cursor::new(bytes))
            .map_err(|e| ParseFailure::new(format!("it is no readable zip archive: {e}")))?;
        Ok(Self { archive, left: limits.unpacked_bytes })
    }

    /// A part's text; `None` when there is no such part.
    pub(super) fn part(&mut self, name: &str) -> Result<Option<String>, ParseFailure> {
        let Some(at) = self.archive.index_for_name(name) else { return Ok(None) };
        let bytes = read_entry(&mut self.archive, at, &mut self.left)?;
        Ok(text::decode(&bytes))
    }

    /// A part that has to be there.
    pub(super) fn required(&mut self, name: &str) -> Result<String, ParseFailure> {
        self.part(name)?.ok_or_else(|| ParseFailure::new(format!("it has no {name}")))
    }
}

/// Something of an archive, as it comes.
pub(crate) enum Unpacked {
    /// A file with its bytes.
    File(String, Vec<u8>),
    /// A file that was passed over, and why.
    Skipped(String, String),
}

/// Reads an archive's files in order. Stops with an error when it grows beyond its limits; an entry that is merely
/// broken is passed over.
pub(crate) fn unpack(bytes: &[u8], limits: &Limits, mut take: impl FnMut(Unpacked)) -> Result<(), ParseFailure> {
    let package = Package::open(bytes, limits)?;
    let (mut archive, mut left) = (package.archive, package.left);
    if archive.len() > limits.files.saturating_mul(2) {
        return Err(ParseFailure::new(format!("it has more than {} entries", limits.files * 2)));
    }
    let mut files = 0;
    for at in 0..archive.len() {
        let Ok(entry) = archive.by_index_raw(at) else { continue };
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let (folder, link, encrypted, size) = (entry.is_dir(), entry.is_symlink(), entry.encrypted(), entry.size());
        drop(entry);
        if folder {
            continue;
        }
        let Some(path) = safe_path(&name) else {
            take(Unpacked::Skipped(name, "its path leads out of the archive".to_owned()));
            continue;
        };
        if link || encrypted {
            take(Unpacked::Skipped(path, if link { "it is a link" } else { "it is encrypted" }.to_owned()));
            continue;
        }
        if size > limits.file_bytes {
            take(Unpacked::Skipped(path, format!("it is larger than {} bytes", limits.file_bytes)));
            continue;
        }
        files += 1;
        if files > limits.files {
            return Err(ParseFailure::new(format!("it has more than {} files", limits.files)));
        }
        match read_entry(&mut archive, at, &mut left) {
            Ok(bytes) => take(Unpacked::File(path, bytes)),
            Err(failure) if left == 0 => return Err(failure),
            Err(failure) => take(Unpacked::Skipped(path, failure.0)),
        }
    }
    Ok(())
}

/// Reads an entry, never more than is left and never far more than its packed size lets expect: what an archive says of
/// its sizes is not believed.
fn read_entry(archive: &mut ZipArchive<Cursor<&[u8]>>, at: usize, left: &mut u64) -> Result<Vec<u8>, ParseFailure> {
    let entry = archive.by_index(at).map_err(|e| ParseFailure::new(format!("a part cannot be read: {e}")))?;
    let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
    let by_ratio = entry.compressed_size().saturating_mul(MAX_RATIO).max(RATIO_FREE_BYTES);
    let most = by_ratio.min(*left);
    let mut bytes = Vec::new();
    let read = entry.take(most.saturating_add(1)).read_to_end(&mut bytes);
    if bytes.len() as u64 > most {
        *left = 0;
        return Err(ParseFailure::new(format!("{name} unpacks to far more than it should (a zip bomb?)")));
    }
    read.map_err(|e| ParseFailure::new(format!("{name} cannot be unpacked: {e}")))?;
    *left = left.saturating_sub(bytes.len() as u64);
    Ok(bytes)
}
