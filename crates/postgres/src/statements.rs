//! Statements that do not wait for the group commit: a swapped fact, an entry of the ledger, this node's row.

use crate::{
    rows::column,
    schema,
    server::{Param, Trouble},
    store::PostgresStore,
};
use std::sync::Arc;
use tokio_postgres::types::Type;
use toolyard_engine::{
    derive_shared,
    store::{LedgerEntry, StoreError, Swap},
};

/// The key of the cluster's keys in the table `meta`.
const KEYS: &str = "keys";
/// The key of where the store was moved to, in the table `meta`.
pub(crate) const MOVED: &str = "moved";
/// Two keys of 32 bytes, and what shows that they were wrapped with the same secret.
const WRAPPED: usize = 96;

/// The keys that all nodes of a cluster use.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKeys {
    /// Signs runs and the ledger.
    pub signing: [u8; 32],
    /// Seals facts and hashes secret arguments.
    pub secrets: [u8; 32],
}

impl ClusterKeys {
    /// The keys, masked with what is derived from the cluster's secret. The mask is used for these keys alone.
    fn wrap(&self, secret: &[u8; 32]) -> Vec<u8> {
        let mask = [derive_shared(secret, "mask of the signing key"), derive_shared(secret, "mask of the secrets key")];
        let mut wrapped: Vec<u8> = [self.signing, self.secrets].concat();
        wrapped.iter_mut().zip(mask.concat()).for_each(|(byte, mask)| *byte ^= mask);
        let shown = toolyard_protocol::canonical::hex(&wrapped);
        wrapped.extend_from_slice(&derive_shared(secret, &format!("wrapped keys {shown}")));
        wrapped
    }

    fn unwrap(wrapped: &[u8], secret: &[u8; 32]) -> Option<Self> {
        let masked: &[u8; WRAPPED] = wrapped.try_into().ok()?;
        let mut keys = Self { signing: [0; 32], secrets: [0; 32] };
        keys.signing.copy_from_slice(&masked[..32]);
        keys.secrets.copy_from_slice(&masked[32..64]);
        // Masking twice gives the keys again.
        let plain = keys.wrap(secret);
        keys.signing.copy_from_slice(&plain[..32]);
        keys.secrets.copy_from_slice(&plain[32..64]);
        (keys.wrap(secret) == wrapped).then_some(keys)
    }
}

/// A fact that is set or removed if its current value is the expected one.
pub(crate) struct FactSwap {
    pub(crate) space: String,
    pub(crate) key: String,
    pub(crate) expected: Option<Vec<u8>>,
    pub(crate) wanted: Option<Vec<u8>>,
    pub(crate) until: Option<i64>,
}

impl PostgresStore {
    /// The cluster's keys. The first node that asks decides: with what `make` answers.
    pub fn keys(&self, make: impl FnOnce() -> Result<ClusterKeys, StoreError>) -> Result<ClusterKeys, StoreError> {
        let secret = self.secret;
        let known = self.meta(KEYS)?;
        let kept = match known {
            Some(kept) => kept,
            None => {
                let (pool, wrapped) = (self.pool.clone(), make()?.wrap(&secret));
                self.wait(async move {
                    let client = pool.server.connect().await?;
                    Ok(schema::meta_once(&client, KEYS, &wrapped).await?)
                })?
            }
        };
        ClusterKeys::unwrap(&kept, &secret).ok_or_else(|| {
            StoreError::failed("this node's store.secretFile does not belong to this cluster: its keys cannot be read")
        })
    }

    /// Notes where the store was moved to; nodes refuse to start from then on. `None` takes the note back.
    pub fn set_moved(&self, to: Option<&str>) -> Result<(), StoreError> {
        let (pool, to) = (self.pool.clone(), to.map(|to| to.as_bytes().to_vec()));
        self.wait(async move {
            let sql = "WITH gone AS (DELETE FROM toolyard.meta WHERE key = $1 AND $2 IS NULL)
                INSERT INTO toolyard.meta (key, value) SELECT $1, $2 WHERE $2 IS NOT NULL
                ON CONFLICT (key) DO UPDATE SET value = excluded.value";
            pool.retry(sql, &[(&MOVED, Type::TEXT), (&to, Type::BYTEA)]).await.map(drop)
        })
    }

    /// Where the store was moved to, if it was.
    pub fn moved(&self) -> Result<Option<String>, StoreError> {
        Ok(self.meta(MOVED)?.map(|to| String::from_utf8_lossy(&to).into_owned()))
    }

    fn meta(&self, key: &'static str) -> Result<Option<Vec<u8>>, StoreError> {
        let pool = self.pool.clone();
        self.wait(async move {
            let rows = pool.retry("SELECT value FROM toolyard.meta WHERE key = $1", &[(&key, Type::TEXT)]).await?;
            rows.first().map(|row| column(row, 0)).transpose()
        })
    }

    /// One try to swap a fact. `None`: this owner was fenced.
    pub(crate) fn try_swap(&self, swap: &Arc<FactSwap>) -> Result<Option<Swap>, Trouble> {
        let (pool, owner, swap) = (self.pool.clone(), self.owner.clone(), swap.clone());
        let answer = self.wait(async move {
            let epoch = owner.epoch.cast_signed();
            let (space, key) = (swap.space.as_bytes(), swap.key.as_bytes());
            let sql = "SELECT done, present FROM toolyard.swap_1($1, $2, $3, $4, $5, $6, $7)";
            let params: &[Param<'_>] = &[
                (&owner.node, Type::TEXT),
                (&epoch, Type::INT8),
                (&space, Type::BYTEA),
                (&key, Type::BYTEA),
                (&swap.expected, Type::BYTEA),
                (&swap.wanted, Type::BYTEA),
                (&swap.until, Type::INT8),
            ];
            Ok(pool.once(sql, params).await)
        });
        let rows = answer.map_err(|error| Trouble::Away(error.to_string()))??;
        let Some(row) = rows.first() else { return Ok(None) };
        let done: Option<bool> = row.try_get(0)?;
        Ok(match done {
            None => None,
            Some(true) => Some(Swap::Done),
            Some(false) => Some(Swap::Differs(row.try_get(1)?)),
        })
    }

    pub(crate) fn set_node(&self, sql: &'static str, value: &str) -> Result<(), StoreError> {
        let (pool, owner, value) = (self.pool.clone(), self.owner.clone(), value.to_owned());
        self.wait(async move {
            let epoch = owner.epoch.cast_signed();
            pool.retry(sql, &[(&owner.node, Type::TEXT), (&epoch, Type::INT8), (&value, Type::TEXT)]).await.map(drop)
        })
    }

    /// Writes the entry that follows the last one: 0 fenced, 1 done, 2 another one has its number.
    pub(crate) fn write_entry(&self, entry: LedgerEntry) -> Result<i32, StoreError> {
        let (pool, owner) = (self.pool.clone(), self.owner.clone());
        self.wait(async move {
            let (epoch, seq) = (owner.epoch.cast_signed(), entry.seq.cast_signed());
            let chain = entry.chain.as_slice();
            let rows = pool
                .retry(
                    "SELECT toolyard.ledger_1($1, $2, $3, $4, $5)",
                    &[
                        (&owner.node, Type::TEXT),
                        (&epoch, Type::INT8),
                        (&seq, Type::INT8),
                        (&entry.payload, Type::BYTEA),
                        (&chain, Type::BYTEA),
                    ],
                )
                .await?;
            rows.first().map_or(Ok(0), |row| column(row, 0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_keys_open_with_their_secret_alone() {
        let keys = ClusterKeys { signing: [1; 32], secrets: [2; 32] };
        let wrapped = keys.wrap(&[7; 32]);
        assert!(ClusterKeys::unwrap(&wrapped, &[7; 32]) == Some(keys));
        assert!(ClusterKeys::unwrap(&wrapped, &[8; 32]).is_none());
        let mut edited = wrapped;
        edited[3] ^= 1;
        assert!(ClusterKeys::unwrap(&edited, &[7; 32]).is_none());
    }
}
