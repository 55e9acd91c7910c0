//! Blobs that are too large to be stored with the records: in a separate table, or where [`LargeBlobs`] stores them.

use crate::server::Pool;
use std::sync::Arc;
use tokio_postgres::types::Type;
use toolyard_engine::{BoxFuture, store::StoreError};
use toolyard_protocol::canonical;

/// Keeps large blobs by their SHA-256 (lowercase hexadecimal). A blob is put before the record that names it is written, so
/// one that no record names may be left over; it is removed with the next retention.
pub trait LargeBlobs: Send + Sync + 'static {
    /// Keeps a blob; durable when this answers. Keeping the same one again changes nothing.
    fn put(&self, sha256: &str, bytes: Arc<[u8]>) -> BoxFuture<'static, Result<(), StoreError>>;

    /// The blob's bytes.
    fn get(&self, sha256: &str) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>>;

    /// Removes a blob, if it is there.
    fn remove(&self, sha256: &str) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Large blobs in the database.
pub(crate) struct InDatabase(pub(crate) Arc<Pool>);

fn hash(sha256: &str) -> Vec<u8> {
    canonical::unhex(sha256).map(Vec::from).unwrap_or_default()
}

impl LargeBlobs for InDatabase {
    fn put(&self, sha256: &str, bytes: Arc<[u8]>) -> BoxFuture<'static, Result<(), StoreError>> {
        let (pool, hash) = (self.0.clone(), hash(sha256));
        Box::pin(async move {
            let sql = "INSERT INTO toolyard.large_blobs (sha256, bytes) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            pool.retry(sql, &[(&hash, Type::BYTEA), (&&*bytes, Type::BYTEA)]).await.map(drop)
        })
    }

    fn get(&self, sha256: &str) -> BoxFuture<'static, Result<Option<Vec<u8>>, StoreError>> {
        let (pool, hash) = (self.0.clone(), hash(sha256));
        Box::pin(async move {
            let sql = "SELECT bytes FROM toolyard.large_blobs WHERE sha256 = $1";
            let rows = pool.retry(sql, &[(&hash, Type::BYTEA)]).await?;
            rows.first().map(|row| crate::rows::column(row, 0)).transpose()
        })
    }

    fn remove(&self, sha256: &str) -> BoxFuture<'static, Result<(), StoreError>> {
        let (pool, hash) = (self.0.clone(), hash(sha256));
        Box::pin(async move {
            let sql = "DELETE FROM toolyard.large_blobs WHERE sha256 = $1";
            pool.retry(sql, &[(&hash, Type::BYTEA)]).await.map(drop)
        })
    }
}
