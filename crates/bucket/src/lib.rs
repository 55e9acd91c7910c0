//! Large blobs of a cluster in an S3-compatible bucket. A blob is an object named by its SHA-256, so that writing it
//! twice is harmless, and what is read can be checked.
//!
//! Knows objects and bytes. Does not know runs, records or facts, and keeps no list of what is in the bucket: the rows of
//! the store name the blobs.
//!
//! Order of writes: an object is written before the row that names it is durable. A crash in between leaves an object
//! that nobody names. [`Bucket::remove`] only removes objects that were written more than [`REMOVE_AFTER`] ago, and
//! [`Bucket::put`] writes an object again that was written more than [`REFRESH_AFTER`] ago. So a node that removes what
//! no row names cannot remove what another node is about to name.

mod bucket;
mod http;
mod worker;

pub use bucket::{Answer, Bucket, REFRESH_AFTER, REMOVE_AFTER};

/// Why a bucket does not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The address or the environment cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The server answers, and has no such bucket.
    #[error("there is no bucket {0}: create it, or correct store.bucket")]
    Missing(String),
    /// The server refuses the credentials.
    #[error(
        "{0} refuses these credentials: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY and what they permit ({1})"
    )]
    Refused(String, String),
    /// An object does not have the bytes that its name promises.
    #[error("the object {0} in the bucket is damaged: its SHA-256 is not its name")]
    Damaged(String),
    /// The server cannot be reached, or fails.
    #[error("the bucket {0} cannot be used: {1}")]
    Unavailable(String, String),
}
