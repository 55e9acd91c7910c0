//! Removes old runs: first the removal is recorded in the ledger, then the runs are removed, then the blobs that only
//! they used.

use super::{Engine, lock};
use crate::{
    ledger::RunHead,
    store::{RunFilter, RunRow},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{Failure, RunId, RunStatus, canonical};
use uuid::Uuid;

/// Runs removed in one transaction.
const RUNS_AT_ONCE: usize = 200;

/// What is kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// Runs that ended before this are removed.
    pub ended_before: Option<Timestamp>,
    /// While the store uses more bytes than this, the oldest ended runs are removed.
    pub max_bytes: Option<u64>,
}

/// What was removed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrunedRuns {
    /// The runs.
    #[serde(skip)]
    pub run_ids: Vec<RunId>,
    /// How many runs.
    pub runs: u64,
    /// How many blobs that only they used.
    pub blobs: u64,
    /// The blobs' bytes.
    pub blob_bytes: u64,
    /// Bytes the store uses now, where it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
}

impl Engine {
    /// Removes runs that have ended and are not to be kept. A run that has not ended stays, however old it is.
    pub async fn prune(&self, retention: Retention) -> Result<PrunedRuns, Failure> {
        // Every run gets its own entry in the ledger before the entry about its removal.
        self.seal().await?;
        let mut pruned = PrunedRuns::default();
        if let Some(before) = retention.ended_before {
            self.prune_while(&mut pruned, |rows| {
                Ok(rows.iter().filter(|row| row.ended_at.is_some_and(|at| at < before)).map(|row| row.run_id).collect())
            })
            .await?;
        }
        if let Some(max) = retention.max_bytes {
            let store = self.store().clone();
            self.prune_while(&mut pruned, move |rows| {
                let is_too_much = store.used_bytes()?.is_some_and(|used| used > max);
                Ok(rows.iter().filter(|_| is_too_much).map(|row| row.run_id).collect())
            })
            .await?;
        }
        if pruned.runs > 0 {
            let keep: Vec<String> = {
                let mut stored = lock(&self.inner.stored_policies);
                // Runs from now on carry their policy again; runs under way may name one of these.
                stored.drain().map(|(_, sha256)| sha256).collect()
            };
            let removed = self.read(move |store| store.remove_unused_blobs(&keep)).await?;
            (pruned.blobs, pruned.blob_bytes) = (removed.blobs, removed.bytes);
        }
        pruned.used_bytes = self.read(|store| store.used_bytes()).await?;
        Ok(pruned)
    }

    /// Removes the oldest ended runs page by page, until a page has none to remove.
    async fn prune_while(
        &self,
        pruned: &mut PrunedRuns,
        old: impl Fn(&[RunRow]) -> Result<Vec<RunId>, Failure>,
    ) -> Result<(), Failure> {
        let mut after = RunId::from_uuid(Uuid::nil());
        loop {
            // A page at a time: a store may hold millions of runs.
            let filter = RunFilter {
                statuses: vec![RunStatus::Finished, RunStatus::Failed, RunStatus::Cancelled],
                after: Some(after),
                limit: RUNS_AT_ONCE,
                ..RunFilter::default()
            };
            let page = self.read(move |store| store.runs(&filter)).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.run_id;
            let old = old(&page)?;
            if old.is_empty() {
                return Ok(());
            }
            self.remove(old, pruned).await?;
        }
    }

    async fn remove(&self, runs: Vec<RunId>, pruned: &mut PrunedRuns) -> Result<(), Failure> {
        let sealer = self.inner.sealer.clone();
        let removed = self
            .read(move |store| {
                let mut heads = Vec::new();
                for run_id in &runs {
                    if let Some(head) = store.head(*run_id)? {
                        heads.push(RunHead { run_id: *run_id, seq: head.seq, hash: canonical::hex(&head.chain) });
                    }
                }
                sealer.prune(heads)?;
                store.remove_runs(&runs)?;
                Ok(runs)
            })
            .await?;
        pruned.runs += removed.len() as u64;
        pruned.run_ids.extend(removed);
        Ok(())
    }
}
