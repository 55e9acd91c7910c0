//! Maintenance of a home: backup, restore, retention, checks and figures. If a Toolyard is running, it does the work,
//! because it knows which records are not on disk yet.

mod backup;

pub(crate) use backup::restore;

use crate::{config::RetentionConfig, home::Home};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fs, path::PathBuf, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{Engine, PrunedRuns, Retention, store::StoreError};
use toolyard_hooks::{NativeProvider, PrunedSnapshots, SnapshotRetention};
use toolyard_postgres::PostgresStore;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, Terms, methods};
use toolyard_store::{Checked, Copied, SqliteStore, StoreStats};

/// How often retention is applied while Toolyard runs.
const RETENTION_EVERY: Duration = Duration::from_secs(3600);
methods! {
    /// Copies the store, the context store, the configuration and the keys into a folder, while Toolyard runs.
    StoreBackup = "store.backup", Terms::administer(), BackupParams => BackupReport;
    /// Removes ended runs that are older than an age, and the oldest ones while the store exceeds a size.
    StorePrune = "store.prune", Terms::administer(), PruneParams => PruneReport;
    /// Checks the store: structure of the database, frames, blobs, journals.
    StoreCheck = "store.check", Terms::administer(), NoParams => Checked;
    /// Reports the size of the store and the numbers of its entries.
    StoreStatsMethod = "store.stats", Terms::administer(), NoParams => StoreStats;
}

/// Declares the methods; without a store they cannot be called.
pub(crate) fn declare(methods: &mut Methods, upkeep: Option<&Upkeep>) {
    methods.add::<StoreBackup, _>(upkeep);
    methods.add::<StorePrune, _>(upkeep);
    methods.add::<StoreCheck, _>(upkeep);
    methods.add::<StoreStatsMethod, _>(upkeep);
}

/// Answers the methods. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Upkeep(Arc<Inner>);

/// The snapshots of projects, and how long they are kept.
type Snapshots = (Arc<NativeProvider>, SnapshotRetention);

struct Inner {
    /// The store on this machine's disk; `None` when state is in a database that several nodes share.
    store: Option<Arc<SqliteStore>>,
    /// The store in such a database.
    shared: Option<Arc<PostgresStore>>,
    engine: Engine,
    home: Home,
    retention: RetentionConfig,
    snapshots: Option<Snapshots>,
    /// A backup and a removal do not run at the same time: a backup copies files that a removal would take away.
    turn: tokio::sync::Mutex<()>,
}

/// The parameters of a backup.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupParams {
    /// A folder on this machine that does not exist or is empty.
    pub out: PathBuf,
    /// Whether keys and tokens are left out.
    #[serde(default)]
    pub without_keys: bool,
}

/// What was copied.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    /// The folder.
    pub path: PathBuf,
    /// The time of the copied state.
    pub at: Timestamp,
    /// The store.
    #[serde(flatten)]
    pub store: Copied,
    /// The number of files without the manifest.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Whether keys and tokens are in it, in a folder of their own.
    pub keys: bool,
}

/// Which runs are removed. Without either, the configuration decides.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PruneParams {
    /// Runs that ended longer ago than this, such as `30d` or `12h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
    /// The oldest runs while the store uses more than so many megabytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_megabytes: Option<u64>,
}

/// What was removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneReport {
    /// Runs that ended before this were removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_before: Option<Timestamp>,
    /// Runs and blobs.
    #[serde(flatten)]
    pub removed: PrunedRuns,
    /// Snapshots of projects in which coding agents ran commands.
    #[serde(default)]
    pub snapshots: PrunedSnapshots,
}

impl Upkeep {
    pub(crate) fn new(
        (store, shared): (Option<Arc<SqliteStore>>, Option<Arc<PostgresStore>>),
        engine: Engine,
        home: Home,
        retention: RetentionConfig,
        snapshots: Option<Snapshots>,
    ) -> Self {
        let turn = tokio::sync::Mutex::default();
        Self(Arc::new(Inner { store, shared, engine, home, retention, snapshots, turn }))
    }

    /// The store on this machine's disk.
    fn on_disk(&self) -> Result<Arc<SqliteStore>, Failure> {
        self.0.store.clone().ok_or_else(|| {
            Failure::new(ErrorCode::PreconditionFailed, "the state is in a database that several nodes share").suggest(
                "Back up the database with PostgreSQL's own means, the bucket with versions, and of each home \
                     config.toml and state/; see \"Backup and restore\" in docs/guide/cluster.md.",
            )
        })
    }

    /// Applies the configured retention every `RETENTION_EVERY`, until stopped.
    pub(crate) async fn keep_within(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(RETENTION_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => return,
            }
            if self.0.retention == RetentionConfig::default() {
                if let Err(failure) = self.prune_snapshots().await {
                    tracing::warn!(error = %failure.message, "old snapshots could not be removed");
                }
                continue;
            }
            match self.prune(PruneParams::default()).await {
                Ok(report) if report.removed.runs > 0 => {
                    tracing::info!(runs = report.removed.runs, "removed runs that are older than is kept");
                }
                Ok(_) => {}
                Err(failure) => tracing::warn!(error = %failure.message, "old runs could not be removed"),
            }
        }
    }

    async fn prune(&self, params: PruneParams) -> Result<PruneReport, Failure> {
        let _turn = self.0.turn.lock().await;
        let (older_than, max_megabytes) = match (params.older_than, params.max_megabytes) {
            (None, None) => (self.0.retention.older_than.clone(), self.0.retention.max_megabytes),
            given => given,
        };
        let age = older_than.as_deref().map(parse_age).transpose()?;
        let ended_before = age.map(|age| Timestamp::now() - age);
        let max_bytes = max_megabytes.map(|megabytes| megabytes.saturating_mul(1_000_000));
        let removed = self.0.engine.prune(Retention { ended_before, max_bytes }).await?;
        for run_id in &removed.run_ids {
            let folder = self.0.home.runs().join(run_id.to_string());
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, folder = %folder.display(), "the files of a removed run are left");
                }
                _ => {}
            }
        }
        let snapshots = self.prune_snapshots().await?;
        Ok(PruneReport { ended_before, removed, snapshots })
    }

    /// Removes snapshots of projects that are not used any more, or take too much room.
    async fn prune_snapshots(&self) -> Result<PrunedSnapshots, Failure> {
        match &self.0.snapshots {
            Some((native, retention)) => native.prune(*retention).await,
            None => Ok(PrunedSnapshots::default()),
        }
    }
}

/// Reads `30d`, `12h`, `45m` or `2w`.
pub(crate) fn parse_age(text: &str) -> Result<SignedDuration, Failure> {
    let bad = || {
        Failure::new(ErrorCode::ValidationError, format!("{text:?} is not an age"))
            .suggest("Write a number and a unit: 45m, 12h, 30d or 2w.")
    };
    let unit = text.chars().last().ok_or_else(bad)?;
    let hours_in = match unit {
        'm' => None,
        'h' => Some(1),
        'd' => Some(24),
        'w' => Some(24 * 7),
        _ => return Err(bad()),
    };
    let number: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| bad())?;
    let minutes = number.checked_mul(hours_in.map_or(1, |hours| 60 * hours)).filter(|m| (0..=52_560_000).contains(m));
    Ok(SignedDuration::from_mins(minutes.ok_or_else(bad)?))
}

impl Handle<StoreBackup> for Upkeep {
    async fn handle(&self, _: &Call<'_>, params: BackupParams) -> Result<BackupReport, MethodError> {
        let _turn = self.0.turn.lock().await;
        let (inner, store) = (self.0.clone(), self.on_disk()?);
        let copied = tokio::task::spawn_blocking(move || backup::backup(&store, &inner.home, &params)).await;
        Ok(copied.map_err(|_| Failure::new(ErrorCode::InternalError, "the backup failed unexpectedly"))??)
    }
}

impl Handle<StorePrune> for Upkeep {
    async fn handle(&self, _: &Call<'_>, params: PruneParams) -> Result<PruneReport, MethodError> {
        Ok(self.prune(params).await?)
    }
}

impl Handle<StoreCheck> for Upkeep {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<Checked, MethodError> {
        let shared = self.0.shared.clone();
        let on_disk = if shared.is_none() { Some(self.on_disk()?) } else { None };
        let checked = tokio::task::spawn_blocking(move || match (on_disk, shared) {
            (Some(store), _) => store.check(),
            (None, Some(store)) => store.check().map(shared_check),
            (None, None) => Err(StoreError::failed("there is no store")),
        })
        .await;
        Ok(checked.map_err(|_| Failure::new(ErrorCode::InternalError, "the check failed unexpectedly"))??)
    }
}

impl Handle<StoreStatsMethod> for Upkeep {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<StoreStats, MethodError> {
        let shared = self.0.shared.clone();
        let on_disk = if shared.is_none() { Some(self.on_disk()?) } else { None };
        let stats = tokio::task::spawn_blocking(move || match (on_disk, shared) {
            (Some(store), _) => store.stats(),
            (None, Some(store)) => store.stats().map(shared_stats),
            (None, None) => Err(StoreError::failed("there is no store")),
        })
        .await;
        Ok(stats.map_err(|_| Failure::new(ErrorCode::InternalError, "the store could not be looked at"))??)
    }
}

/// The check of a database in the words of the check of a disk. A database has no journals of ours.
fn shared_check(check: toolyard_postgres::Check) -> Checked {
    let toolyard_postgres::Check { version, runs, frames, blobs, problems, problem_count } = check;
    Checked { ok: problem_count == 0, version, runs, frames, blobs, journals: 0, problems, problem_count }
}

/// The figures of a database in the words of those of a disk.
fn shared_stats(stats: toolyard_postgres::Stats) -> StoreStats {
    StoreStats {
        version: stats.version,
        runs: stats.runs,
        open_runs: stats.open_runs,
        frames: stats.frames,
        facts: stats.facts,
        ledger_entries: stats.ledger_entries,
        blobs: stats.blobs,
        processes: stats.processes,
        database_bytes: stats.database_bytes,
        free_bytes: 0,
        log_bytes: 0,
        blob_file_bytes: stats.large_blob_bytes,
        journal_bytes: 0,
        used_bytes: stats.database_bytes,
        oldest_run: stats.oldest_run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_as_people_write_them() {
        assert_eq!(parse_age("30d").unwrap(), SignedDuration::from_hours(720));
        assert_eq!(parse_age("0m").unwrap(), SignedDuration::ZERO);
        assert_eq!(parse_age("2w").unwrap(), SignedDuration::from_hours(336));
        for bad in ["", "30", "d", "-1d", "1y", "1.5h", "999999999999d", "1é"] {
            assert!(parse_age(bad).is_err(), "{bad:?}");
        }
    }
}
