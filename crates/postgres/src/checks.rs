//! What is refused before it is queued.

use crate::limits;
use toolyard_engine::store::{Batch, StoreError};
use toolyard_protocol::canonical;

/// The overhead of a queued change, in bytes.
const OP_BYTES: usize = 256;

pub(crate) fn too_large(what: &str, bytes: usize, most: usize) -> StoreError {
    StoreError::failed(format!("{what} of {bytes} bytes is too large for the store: {most} is the most"))
}

pub(crate) fn check_fact(space: &str, key: &str, value: Option<&[u8]>) -> Result<usize, StoreError> {
    let name = space.len().max(key.len());
    if name > limits::MAX_FACT_NAME_BYTES {
        return Err(too_large("a fact's name", name, limits::MAX_FACT_NAME_BYTES));
    }
    let bytes = value.map_or(0, <[u8]>::len);
    if bytes > limits::MAX_FACT_BYTES {
        return Err(too_large("a fact", bytes, limits::MAX_FACT_BYTES));
    }
    Ok(OP_BYTES + space.len() + key.len() + 2 * bytes)
}

/// Checks a batch before it is queued, and returns its size.
pub(crate) fn check_batch(batch: &Batch) -> Result<usize, StoreError> {
    let run_id = batch.run_id;
    let mut bytes = OP_BYTES;
    for frame in &batch.frames {
        if frame.seq == 0 || i64::try_from(frame.seq).is_err() {
            return Err(StoreError::failed(format!("run {run_id}: frames are counted from 1, not {}", frame.seq)));
        }
        if frame.payload.len() > limits::MAX_FRAME_BYTES {
            return Err(too_large("a frame", frame.payload.len(), limits::MAX_FRAME_BYTES));
        }
        bytes += frame.payload.len() + 96;
    }
    for blob in &batch.blobs {
        if blob.bytes.len() > limits::MAX_BLOB_BYTES {
            return Err(too_large("a blob", blob.bytes.len(), limits::MAX_BLOB_BYTES));
        }
        if canonical::unhex(&blob.sha256).is_none() {
            return Err(StoreError::failed(format!("{:?} is no SHA-256 in lowercase hexadecimal", blob.sha256)));
        }
        bytes += blob.bytes.len();
    }
    if let Some(row) = &batch.row {
        if row.run_id != run_id {
            return Err(StoreError::failed(format!("a batch of run {run_id} carries the row of run {}", row.run_id)));
        }
        bytes += row.title.len();
    }
    Ok(bytes)
}
