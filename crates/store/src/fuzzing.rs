//! Access to private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the public interface.

use crate::{journal, queue::Blobs};

/// The whole entries at the beginning of a journal, each written again as it was read.
pub fn journal_entries(bytes: &[u8]) -> Vec<Vec<u8>> {
    let write_again = |(place, append): (journal::Place, crate::queue::Append)| {
        let mut out = Vec::new();
        if let Blobs::Ready(blobs) = &append.blobs {
            journal::encode(&mut out, place, &append, blobs);
        }
        out
    };
    journal::entries(bytes).into_iter().map(write_again).collect()
}

/// A journal entry with this body and a right checksum, the first of its journal.
pub fn journal_entry(body: &[u8]) -> Vec<u8> {
    journal::frame(journal::Place { generation: 1, number: 0 }, body)
}
