//! Reads zip archives entry by entry, with limits on the number and size of entries and on the compression ratio, and
//! without paths that leave the root. Links and encrypted entries are skipped.

use super::{Limits, MAX_RATIO, ParseFailure, RATIO_FREE_BYTES, text};
use std::io::{Cursor, Read};
use toolyard_import::names::safe_path;
use zip::ZipArchive;

/// An archive whose entries are read by name.
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

    /// The text of an entry; `None` when it does not exist.
    pub(super) fn part(&mut self, name: &str) -> Result<Option<String>, ParseFailure> {
        let Some(at) = self.archive.index_for_name(name) else { return Ok(None) };
        let bytes = read_entry(&mut self.archive, at, &mut self.left)?;
        Ok(text::decode(&bytes))
    }

    /// The text of an entry that must exist.
    pub(super) fn required(&mut self, name: &str) -> Result<String, ParseFailure> {
        self.part(name)?.ok_or_else(|| ParseFailure::new(format!("it has no {name}")))
    }
}

/// One entry of an archive.
pub(crate) enum Unpacked {
    /// A file and its content.
    File(String, Vec<u8>),
    /// A skipped file and the reason.
    Skipped(String, String),
}

/// Reads the files of an archive in order. An archive that exceeds its limits is an error; a single broken entry is
/// skipped.
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

/// Reads an entry, limited by the remaining total size and by the maximum compression ratio. The sizes that the archive
/// declares are not trusted.
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
