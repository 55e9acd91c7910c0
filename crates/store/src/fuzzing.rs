//! Access to private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the public interface.

use crate::{journal::format, queue::Blobs};

/// The complete entries at the beginning of a journal, each encoded again. Empty for a damaged journal.
pub fn journal_entries(entries: &[u8]) -> Vec<Vec<u8>> {
    let write_again = |(place, append): (format::EntryPosition, crate::queue::Append)| {
        let mut out = Vec::new();
        if let Blobs::Ready(blobs) = &append.blobs {
            format::encode(&mut out, place, 0, &append, blobs);
        }
        out
    };
    let mut file = format::file_header(uuid::Uuid::nil(), 0);
    file.extend_from_slice(entries);
    let found = format::entries(&file, None).unwrap_or_default();
    found.new.into_iter().map(write_again).collect()
}

/// A frame's kind and payload as they were recorded, from their form in the database. For tests that edit the database.
pub fn unpacked(kind: i64, payload: &[u8]) -> (i64, Vec<u8>) {
    (kind & 0xff, crate::packing::unpack(kind, payload).unwrap_or_else(|_| payload.to_vec()))
}

/// The first entry of a journal, with this body and valid checksums.
pub fn journal_entry(body: &[u8]) -> Vec<u8> {
    format::frame(format::EntryPosition { generation: 1, number: 0 }, body)
}
