//! The checks that every store makes before it queues a change, so that all stores refuse the same batches and facts
//! with the same messages.

use super::{Batch, StoreError};
use toolyard_protocol::canonical;

/// Largest payload of a frame.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
/// Largest blob.
pub const MAX_BLOB_BYTES: usize = 512 << 20;
/// Largest value of a fact.
pub const MAX_FACT_BYTES: usize = 16 << 20;
/// Largest ledger entry.
pub const MAX_LEDGER_BYTES: usize = 1 << 20;

/// Memory that a queued change takes besides its content.
pub const CHANGE_BYTES: usize = 256;
/// Memory that a queued frame takes besides its payload.
const FRAME_BYTES: usize = 96;

/// The limits in which stores differ.
#[derive(Debug, Clone, Copy)]
pub struct ChangeLimits {
    /// Largest number of a frame.
    pub max_seq: u64,
    /// Longest name of a space, and longest key in it.
    pub max_fact_name_bytes: usize,
}

impl ChangeLimits {
    /// Checks a batch and returns the memory that it takes while it is queued.
    pub fn check_batch(&self, batch: &Batch) -> Result<usize, StoreError> {
        let run_id = batch.run_id;
        let mut bytes = CHANGE_BYTES;
        for frame in &batch.frames {
            if frame.seq == 0 || frame.seq > self.max_seq {
                let most = self.max_seq;
                return Err(StoreError::failed(format!("run {run_id}: frame {} is outside 1 to {most}", frame.seq)));
            }
            check_size("a frame", frame.payload.len(), MAX_FRAME_BYTES)?;
            bytes += frame.payload.len() + FRAME_BYTES;
        }
        for blob in &batch.blobs {
            check_size("a blob", blob.bytes.len(), MAX_BLOB_BYTES)?;
            if canonical::unhex(&blob.sha256).is_none() {
                return Err(StoreError::failed(format!("{:?} is no SHA-256 in lowercase hexadecimal", blob.sha256)));
            }
            bytes += blob.bytes.len();
        }
        if let Some(row) = &batch.row {
            if row.run_id != run_id {
                let other = row.run_id;
                return Err(StoreError::failed(format!("a batch of run {run_id} carries the row of run {other}")));
            }
            bytes += row.title.len();
        }
        Ok(bytes)
    }

    /// Checks a fact (`None`: its removal) and returns the memory that it takes while it is queued.
    pub fn check_fact(&self, space: &str, key: &str, value: Option<&[u8]>) -> Result<usize, StoreError> {
        check_size("a fact's name", space.len().max(key.len()), self.max_fact_name_bytes)?;
        let bytes = value.map_or(0, <[u8]>::len);
        check_size("a fact", bytes, MAX_FACT_BYTES)?;
        // The queue holds the value twice: in the change, and for reads until the change is written.
        Ok(CHANGE_BYTES + space.len() + key.len() + 2 * bytes)
    }
}

/// Refuses what is larger than a store accepts.
pub fn check_size(what: &str, bytes: usize, most: usize) -> Result<(), StoreError> {
    if bytes > most {
        let text = format!("{what} of {bytes} bytes is too large for the store: {most} is the most");
        return Err(StoreError::failed(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Blob,
        store::{Durability, Frame},
    };
    use toolyard_protocol::RunId;

    const LIMITS: ChangeLimits = ChangeLimits { max_seq: 10, max_fact_name_bytes: 8 };

    fn batch(seq: u64, sha256: &str) -> Batch {
        let mut blob = Blob::new(b"content".to_vec());
        if !sha256.is_empty() {
            blob.sha256 = sha256.to_owned();
        }
        Batch {
            run_id: RunId::from_uuid(uuid::Uuid::nil()),
            frames: vec![Frame { seq, kind: 1, payload: b"{}".to_vec(), chain: [0; 32] }],
            blobs: vec![blob],
            row: None,
            epoch: 1,
            release: false,
            durability: Durability::Deferred,
        }
    }

    #[test]
    fn a_batch_is_refused_by_the_numbers_of_its_frames_and_the_names_of_its_blobs() {
        assert_eq!(LIMITS.check_batch(&batch(1, "")).unwrap(), CHANGE_BYTES + FRAME_BYTES + 2 + 7);
        assert!(LIMITS.check_batch(&batch(10, "")).is_ok());
        for (seq, sha256) in [(0, ""), (11, ""), (1, "abc"), (1, &"F".repeat(64))] {
            assert!(LIMITS.check_batch(&batch(seq, sha256)).is_err(), "{seq} {sha256}");
        }
    }

    #[test]
    fn a_fact_is_refused_by_the_lengths_of_its_names_and_its_value() {
        assert_eq!(LIMITS.check_fact("s", "key", Some(b"four")).unwrap(), CHANGE_BYTES + 1 + 3 + 8);
        assert_eq!(LIMITS.check_fact("s", "key", None).unwrap(), CHANGE_BYTES + 4);
        assert!(LIMITS.check_fact("s", "nine char", None).is_err());
        let error = LIMITS.check_fact("s", "key", Some(&vec![0; MAX_FACT_BYTES + 1])).unwrap_err().to_string();
        assert!(error.contains(&MAX_FACT_BYTES.to_string()), "{error}");
    }
}
