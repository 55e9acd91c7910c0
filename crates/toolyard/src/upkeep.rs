//! Maintenance of a home: backup, restore, retention, checks and figures. If a Toolyard is running, it does the work,
//! because it knows which records are not on disk yet.

use crate::{config::RetentionConfig, home::Home};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{Engine, PrunedRuns, Retention, store::StoreError};
use toolyard_hooks::{NativeProvider, PrunedSnapshots, SnapshotRetention};
use toolyard_postgres::PostgresStore;
use toolyard_protocol::{ErrorCode, Failure, canonical};
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, Terms, methods};
use toolyard_store::{Checked, Copied, SqliteStore, StoreStats, copy_file};

/// The manifest of a backup.
const MANIFEST: &str = "backup.json";
/// The version of the backup format that this program writes and reads.
const FORM: u32 = 1;
/// Parts of a backup.
const STORE: &str = "store";
const CONTEXT: &str = "context";
const CONFIG: &str = "config.toml";
const KEYS: &str = "keys";
const HEADS: &str = "heads.jsonl";
/// How often retention is applied while Toolyard runs.
const RETENTION_EVERY: Duration = Duration::from_secs(3600);
/// The secret files in the state folder. They allow their holder to sign, connect and log in as this home.
const SECRETS: &[&str] = &[
    "signing.key",
    "secrets.key",
    "signing.key.next",
    "signing.pub",
    "device.key",
    "device-tokens.json",
    "token",
    "mcp-tokens",
    "mcp-secrets",
    "keys",
];

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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    form: u32,
    version: String,
    at: Timestamp,
    /// SHA-256 of each file, by its path in the backup.
    files: BTreeMap<String, String>,
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
        let copied = tokio::task::spawn_blocking(move || backup(&store, &inner.home, &params)).await;
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

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(ErrorCode::StoreUnavailable, format!("cannot {doing} {}: {error}", path.display()))
}

/// A folder that is new or empty.
fn empty_folder(path: &Path) -> Result<(), Failure> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::new(ErrorCode::PreconditionFailed, format!("{} is not empty", path.display()))
                .suggest("Name a folder that is not there yet.")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            use std::os::unix::fs::DirBuilderExt;
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| failed("create", path, &e))
        }
        Err(error) => Err(failed("read", path, &error)),
    }
}

fn backup(store: &SqliteStore, home: &Home, params: &BackupParams) -> Result<BackupReport, Failure> {
    let out = std::path::absolute(&params.out).map_err(|e| failed("find", &params.out, &e))?;
    empty_folder(&out)?;
    let at = Timestamp::now();
    // Heads are copied before the store: a head that is newer than the store would look like a rollback.
    copy_tree(&home.heads(), &out.join(HEADS))?;
    for name in SECRETS.iter().filter(|_| !params.without_keys) {
        copy_tree(&home.state().join(name), &out.join(KEYS).join(name))?;
    }
    let copied = store.copy_to(&out.join(STORE))?;
    copy_tree(&home.context(), &out.join(CONTEXT))?;
    if home.config().exists() {
        copy_one(&home.config(), &out.join(CONFIG))?;
    }
    // The manifest comes last: a folder without one is not a backup.
    let mut files = BTreeMap::new();
    let mut bytes = 0;
    hash_tree(&out, &out, &mut files, &mut bytes)?;
    let count = files.len() as u64;
    let manifest = Manifest { form: FORM, version: env!("CARGO_PKG_VERSION").to_owned(), at, files };
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the manifest cannot be written: {e}")))?;
    let path = out.join(MANIFEST);
    fs::write(&path, text).and_then(|()| fs::File::open(&path)?.sync_all()).map_err(|e| failed("write", &path, &e))?;
    fs::File::open(&out).and_then(|folder| folder.sync_all()).map_err(|e| failed("sync", &out, &e))?;
    Ok(BackupReport { path: out, at, store: copied, files: count, bytes, keys: !params.without_keys })
}

fn copy_one(from: &Path, to: &Path) -> Result<(), Failure> {
    copy_file(from, to).map(drop).map_err(|e| failed("copy", from, &e))
}

/// Copies files and folders as they are; files that disappear meanwhile are left out.
fn copy_tree(from: &Path, to: &Path) -> Result<(), Failure> {
    let metadata = match from.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(|e| failed("read", from, &e))?,
    };
    if metadata.is_dir() {
        for entry in fs::read_dir(from).map_err(|e| failed("read", from, &e))? {
            let entry = entry.map_err(|e| failed("read", from, &e))?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    // Locks, sockets and links belong to the running process, not to its data.
    let is_lock = from.file_name().is_some_and(|name| name == "lock" || name == ".lock");
    if !metadata.is_file() || is_lock {
        return Ok(());
    }
    match copy_file(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop).map_err(|e| failed("copy", from, &e)),
    }
}

fn hash_tree(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>, bytes: &mut u64) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(|e| failed("read", folder, &e))? {
        let path = entry.map_err(|e| failed("read", folder, &e))?.path();
        if path.is_dir() {
            hash_tree(root, &path, files, bytes)?;
            continue;
        }
        let (hash, length) = hash_file(&path).map_err(|e| failed("read", &path, &e))?;
        *bytes += length;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        files.insert(name, hash);
    }
    Ok(())
}

fn hash_file(path: &Path) -> std::io::Result<(String, u64)> {
    use sha2::Digest;
    use std::io::Read;
    let mut file = fs::File::open(path)?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut length = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((canonical::hex(&hasher.finalize()), length));
        }
        hasher.update(&buffer[..count]);
        length += count as u64;
    }
}

/// The result of a restore.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoreReport {
    home: PathBuf,
    /// When the backup was made.
    at: Timestamp,
    files: u64,
    keys: bool,
}

impl RestoreReport {
    pub(crate) fn summary(&self) -> String {
        let keys = if self.keys { "" } else { ", without keys: a new signing key is made at the first start" };
        format!("restored {} files of {} into {}{keys}", self.files, self.at, self.home.display())
    }
}

/// Puts a backup into an empty home, after every file's hash was compared.
pub(crate) fn restore(from: &Path, home: &Home) -> Result<RestoreReport, Failure> {
    let path = from.join(MANIFEST);
    let text = fs::read_to_string(&path).map_err(|e| failed("read", &path, &e))?;
    let corrupted = |problem: String| Failure::new(ErrorCode::RecordCorrupted, problem);
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|e| corrupted(format!("{} cannot be read: {e}", path.display())))?;
    if manifest.form != FORM {
        return Err(corrupted(format!("the backup has form {}; this program knows form {FORM}", manifest.form)));
    }
    let (mut found, mut bytes) = (BTreeMap::new(), 0);
    hash_tree(from, from, &mut found, &mut bytes)?;
    found.remove(MANIFEST);
    if let Some(name) = manifest.files.iter().find(|(name, hash)| found.get(*name) != Some(hash)).map(|(name, _)| name)
    {
        return Err(corrupted(format!("{name} is missing from the backup or was changed since")));
    }
    if let Some(name) = found.keys().find(|name| !manifest.files.contains_key(*name)) {
        return Err(corrupted(format!("{name} is not part of the backup")));
    }
    empty_folder(home.path())?;
    home.create().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{e:#}")))?;
    copy_tree(&from.join(STORE), &home.state())?;
    copy_tree(&from.join(CONTEXT), &home.context())?;
    copy_tree(&from.join(CONFIG), &home.config())?;
    copy_tree(&from.join(KEYS), &home.state())?;
    copy_tree(&from.join(HEADS), &home.heads())?;
    SqliteStore::become_another_node(&home.state())?;
    for folder in [home.state(), home.path().to_owned()] {
        fs::File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|e| failed("sync", &folder, &e))?;
    }
    let keys = manifest.files.keys().any(|name| name.starts_with(KEYS));
    let home = home.path().to_owned();
    Ok(RestoreReport { home, at: manifest.at, files: manifest.files.len() as u64, keys })
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
