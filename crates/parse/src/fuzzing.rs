//! Access to private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the public interface.

use crate::formats::{Unpacked, unpack};
use toolyard_import::{Limits, ParseFailure, parser::Archive};

/// Reads a zip archive in this process, as the confined child does.
pub fn unpack_zip(bytes: &[u8], limits: &Limits) -> (Archive, Result<(), ParseFailure>) {
    let mut archive = Archive::default();
    let outcome = unpack(bytes, limits, |unpacked| match unpacked {
        Unpacked::File(path, bytes) => archive.files.push((path, bytes)),
        Unpacked::Skipped(path, why) => archive.skipped.push((path, why)),
    });
    (archive, outcome)
}
