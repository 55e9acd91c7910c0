//! Scans the whole vault: which notes are new, and whether the index is stale.

use super::Knowledge;
use crate::{
    index::FileRow,
    scope::Scope,
    search::{Library, fingerprint},
};
use jiff::Timestamp;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use toolyard_vault::SurveyEntry;

/// How long the result of a scan is valid. A server scans more often than this, so that no query of a server waits for
/// a scan.
const SCAN_VALID_FOR: Duration = Duration::from_secs(60);

/// The result of a scan of the whole vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultScan {
    /// Modification time of the newest note; 0 without notes.
    pub newest_mtime_ms: i64,
    /// Number of notes that would be indexed or reported as unreadable.
    pub notes: u64,
    /// Hash of the names, sizes and times of all notes, to be compared with that of an index.
    pub fingerprint: u64,
}

impl Knowledge {
    /// Scans the whole vault.
    pub async fn scan(&self) -> Option<VaultScan> {
        let scan = self.survey(|_, _, _| {}).await?;
        self.with_cache(|cache| cache.scan = Some((Instant::now(), scan)));
        Some(scan)
    }

    async fn survey(&self, mut visit: impl FnMut(&str, u64, i64) + Send + 'static) -> Option<VaultScan> {
        let (vault, config) = (self.vault.clone(), self.config.clone());
        let surveyed = tokio::task::spawn_blocking(move || {
            let scope = Scope::read(vault.root(), &config.indexing);
            let mut scan = VaultScan { newest_mtime_ms: 0, notes: 0, fingerprint: 0 };
            let mut count = |path: &str, size: u64, mtime_ms: i64| {
                scan.notes += 1;
                scan.newest_mtime_ms = scan.newest_mtime_ms.max(mtime_ms);
                scan.fingerprint = scan.fingerprint.wrapping_add(fingerprint(path, size, mtime_ms));
            };
            let done = vault.survey(&CancellationToken::new(), &mut |f| scope.enters(f), &mut |found| match found {
                SurveyEntry::File { path, size, mtime_ms } if scope.takes(&path) => {
                    count(path.as_str(), size, mtime_ms);
                    visit(path.as_str(), size, mtime_ms);
                }
                // The indexer has a record for these too, without size and time.
                SurveyEntry::Unreadable { path, .. } if scope.takes_name(&path) => count(&path, 0, 0),
                SurveyEntry::UnreadableFolder { path, .. } if scope.enters_name(&path) => count(&path, 0, 0),
                _ => {}
            });
            (vault.is_readable() && done.is_ok()).then_some(scan)
        });
        surveyed.await.ok().flatten()
    }

    /// Number of notes that are new or have changed since they were indexed.
    pub async fn unindexed(&self, files: &[FileRow]) -> Option<u64> {
        let known: HashMap<String, (u64, i64)> =
            files.iter().map(|file| (file.path.clone(), (file.size, file.mtime_ms))).collect();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let scan = self
            .survey(move |path, size, mtime_ms| {
                if known.get(path) != Some(&(size, mtime_ms)) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            })
            .await?;
        self.with_cache(|cache| cache.scan = Some((Instant::now(), scan)));
        Some(count.load(Ordering::Relaxed))
    }

    /// Whether the vault has exactly the files of the loaded version, with the same sizes and times.
    pub(crate) async fn equals_vault(&self) -> bool {
        let Some(library) = self.library.load_full() else { return false };
        self.scan().await.is_some_and(|scan| scan.fingerprint == library.totals.fingerprint)
    }

    /// Whether the last sync is old and the vault has changed since. The vault is scanned only if the sync is old and
    /// there was no recent scan.
    pub(super) async fn is_stale(&self, last_sync: Option<Timestamp>, library: Option<&Library>) -> bool {
        let Some(library) = library else { return false };
        let last = last_sync.unwrap_or(library.info().completed_at);
        let age = Timestamp::now().duration_since(last).as_secs();
        if age <= i64::try_from(self.config.search.stale_after_secs).unwrap_or(i64::MAX) {
            return false;
        }
        let known = self.with_cache(|cache| cache.scan).filter(|(at, _)| at.elapsed() < SCAN_VALID_FOR);
        let scan = match known {
            Some((_, scan)) => Some(scan),
            None => self.scan().await,
        };
        scan.is_some_and(|scan| scan.fingerprint != library.totals.fingerprint)
    }
}
