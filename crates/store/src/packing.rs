//! Payloads of frames as they lie in the database: plain, or compressed where that is shorter.
//!
//! Compression happens on the writer's thread, on the way into the database: nobody waits for it, and the chain is over
//! the payload as it was recorded.

use crate::{blob_files, limits};
use std::borrow::Cow;
use toolyard_engine::store::StoreError;

/// Added to a frame's kind when its payload is zstd. The first four bytes are then its real length.
pub(crate) const ZSTD: i64 = 256;

/// A frame's kind and payload as they are written.
pub(crate) fn pack(kind: i64, payload: &[u8]) -> (i64, Cow<'_, [u8]>) {
    if payload.len() > limits::COMPRESS_FRAME_TO {
        return (kind, Cow::Borrowed(payload));
    }
    match blob_files::compress(payload) {
        None => (kind, Cow::Borrowed(payload)),
        Some(packed) => {
            let mut stored = Vec::with_capacity(packed.len() + 4);
            // Lossless: what is compressed is far below four gigabytes.
            stored.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            stored.extend_from_slice(&packed);
            (kind | ZSTD, Cow::Owned(stored))
        }
    }
}

/// The payload as it was recorded.
pub(crate) fn unpack(flagged: i64, stored: &[u8]) -> Result<Vec<u8>, StoreError> {
    if flagged & ZSTD == 0 {
        return Ok(stored.to_vec());
    }
    let (len, packed) = stored
        .split_first_chunk::<4>()
        .ok_or_else(|| StoreError::failed("the store holds a damaged frame: it is cut short"))?;
    blob_files::expand(packed, u32::from_le_bytes(*len) as usize)
}
