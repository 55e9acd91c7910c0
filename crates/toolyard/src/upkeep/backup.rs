//! Copies a home into a folder while Toolyard runs, and puts such a copy into an empty home.
//!
//! A marker in the folder that is written says that the copy is not complete. It is removed last. A command that was killed
//! is therefore seen, and the same command begins anew; nothing is restored from a folder with a marker, and no command
//! works in a home with one.

use super::{BackupParams, BackupReport};
use crate::home::{self, Home};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};
use toolyard_protocol::{ErrorCode, Failure, canonical};
use toolyard_store::{SqliteStore, copy_file};

/// The manifest of a backup.
const MANIFEST: &str = "backup.json";
/// The version of the backup format that this program writes and reads.
const FORM: u32 = 1;
/// In the folder of a backup that is not complete. A process that writes the backup holds a lock on it.
const UNFINISHED_BACKUP: &str = "backup.unfinished";
/// Parts of a backup.
const STORE: &str = "store";
const CONTEXT: &str = "context";
const CONFIG: &str = "config.toml";
const KEYS: &str = "keys";
const HEADS: &str = "heads.jsonl";
/// Folders of the home that are copied as they are.
const FOLDERS: [&str; 3] = [CONTEXT, "skills", "media"];
/// The parts of a home that `restore` writes.
const RESTORED: [&str; 5] = ["state", CONTEXT, "skills", "media", CONFIG];
/// The secret files in the state folder. They allow their holder to sign, connect and log in as this home.
const SECRETS: &[&str] = &[
    "signing.key",
    "secrets.key",
    "signing.key.next",
    "signing.pub",
    "config.key",
    "push.key",
    "device.key",
    "device-tokens.json",
    "token",
    "mcp-tokens",
    "mcp-secrets",
    "keys",
];
/// The keys that must be those of the copied store.
const RECORD_KEYS: [&str; 2] = ["signing.key", "secrets.key"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    form: u32,
    version: String,
    at: Timestamp,
    /// SHA-256 of each file, by its path in the backup.
    files: BTreeMap<String, String>,
}

/// A folder that is written by this process alone, marked as not complete until [`Marked::complete`].
struct Marked {
    marker: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Marked {
    /// Marks a folder that is new, empty, or left by the same command that was interrupted; empties it of `parts`.
    fn begin(folder: &Path, marker: &str, parts: &[&str], not_empty: &str) -> Result<Self, Failure> {
        let path = folder.join(marker);
        if !path.exists() {
            empty_folder(folder, not_empty)?;
        }
        let lock = File::options().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(|e| failed("write", &path, &e))?;
        if lock.try_lock().is_err() {
            let problem = format!("another process is writing {}", folder.display());
            return Err(Failure::new(ErrorCode::Conflict, problem).suggest("Wait until it has ended."));
        }
        sync_folder(folder)?;
        for part in parts {
            let part = folder.join(part);
            let removed = match part.symlink_metadata() {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&part),
                Ok(_) => fs::remove_file(&part),
                Err(_) => Ok(()),
            };
            removed.map_err(|e| failed("remove", &part, &e))?;
        }
        Ok(Self { marker: path, _lock: lock })
    }

    fn complete(self, folder: &Path) -> Result<(), Failure> {
        sync_folder(folder)?;
        fs::remove_file(&self.marker).map_err(|e| failed("remove", &self.marker, &e))?;
        sync_folder(folder)
    }
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::new(ErrorCode::StoreUnavailable, format!("cannot {doing} {}: {error}", path.display()));
    failure.suggest("Check the disk, the path and its permissions, then give the same command again.")
}

fn sync_folder(folder: &Path) -> Result<(), Failure> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| failed("sync", folder, &e))
}

/// A folder that is new or empty.
fn empty_folder(path: &Path, not_empty: &str) -> Result<(), Failure> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::new(ErrorCode::PreconditionFailed, format!("{} is not empty", path.display()))
                .suggest(not_empty)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| failed("create", path, &e))
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            Err(Failure::new(ErrorCode::ValidationError, format!("{} is not a folder", path.display()))
                .suggest(not_empty))
        }
        Err(error) => Err(failed("read", path, &error)),
    }
}

/// Refuses a folder within what is copied: the backup would contain itself, and later backups would contain its keys.
fn check_outside(out: &Path, home: &Home) -> Result<(), Failure> {
    // The folder may not exist yet: its nearest ancestor that does is where links lead.
    let real =
        out.ancestors().find_map(|folder| Some(folder.canonicalize().ok()?.join(out.strip_prefix(folder).ok()?)));
    let real = real.as_deref().unwrap_or(out);
    let copied = FOLDERS.iter().map(|name| home.path().join(name)).chain([home.state()]);
    for folder in copied {
        if real.starts_with(folder.canonicalize().as_deref().unwrap_or(&folder)) {
            let problem = format!("{} is in {}, which is copied", out.display(), folder.display());
            return Err(Failure::new(ErrorCode::ValidationError, problem)
                .suggest("Name a folder outside the home, best on another disk."));
        }
    }
    Ok(())
}

pub(super) fn backup(store: &SqliteStore, home: &Home, params: &BackupParams) -> Result<BackupReport, Failure> {
    let out = std::path::absolute(&params.out).map_err(|e| failed("find", &params.out, &e))?;
    check_outside(&out, home)?;
    let parts: Vec<&str> = FOLDERS.into_iter().chain([STORE, CONFIG, KEYS, HEADS, MANIFEST]).collect();
    let marked = Marked::begin(&out, UNFINISHED_BACKUP, &parts, "Name a folder that is not there yet with --out.")?;
    let at = Timestamp::now();
    // Heads are copied before the store: a head that is newer than the store would look like a rollback.
    copy_tree(&home.heads(), &out.join(HEADS))?;
    for name in SECRETS.iter().filter(|_| !params.without_keys) {
        copy_tree(&home.state().join(name), &out.join(KEYS).join(name))?;
    }
    let keys = record_keys(home);
    let copied = store.copy_to(&out.join(STORE))?;
    if record_keys(home) != keys {
        let problem = "the signing key was replaced while the backup was made";
        return Err(Failure::new(ErrorCode::Conflict, problem).suggest("Give the same command again."));
    }
    for name in FOLDERS {
        copy_tree(&home.path().join(name), &out.join(name))?;
    }
    if home.config().exists() {
        copy_one(&home.config(), &out.join(CONFIG))?;
    }
    let mut files = BTreeMap::new();
    let mut bytes = 0;
    hash_tree(&out, &out, &mut files, &mut bytes)?;
    let count = files.len() as u64;
    let manifest = Manifest { form: FORM, version: env!("CARGO_PKG_VERSION").to_owned(), at, files };
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the manifest cannot be written: {e}")))?;
    let path = out.join(MANIFEST);
    fs::write(&path, text).and_then(|()| File::open(&path)?.sync_all()).map_err(|e| failed("write", &path, &e))?;
    marked.complete(&out)?;
    Ok(BackupReport { path: out, at, store: copied, files: count, bytes, keys: !params.without_keys })
}

/// The bytes of the keys that sign and seal. One that is missing compares as such.
fn record_keys(home: &Home) -> [Option<Vec<u8>>; 2] {
    RECORD_KEYS.map(|name| fs::read(home.state().join(name)).ok())
}

fn copy_one(from: &Path, to: &Path) -> Result<(), Failure> {
    copy_file(from, to).map(drop).map_err(|e| failed("copy", from, &e))
}

/// Copies files and folders as they are; files that disappear meanwhile are left out.
fn copy_tree(from: &Path, to: &Path) -> Result<(), Failure> {
    let metadata = match from.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
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
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop).map_err(|e| failed("copy", from, &e)),
    }
}

/// Hashes every file of a backup. Anything but files and folders is refused: a backup has no links.
fn hash_tree(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>, bytes: &mut u64) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(|e| failed("read", folder, &e))? {
        let path = entry.map_err(|e| failed("read", folder, &e))?.path();
        let kind = path.symlink_metadata().map_err(|e| failed("read", &path, &e))?.file_type();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if kind.is_dir() {
            hash_tree(root, &path, files, bytes)?;
        } else if !kind.is_file() {
            return Err(Failure::new(ErrorCode::RecordCorrupted, format!("{name} of the backup is not a file"))
                .suggest("Use another backup, or put the file back that was copied."));
        } else if name != UNFINISHED_BACKUP {
            let (hash, length) = hash_file(&path).map_err(|e| failed("read", &path, &e))?;
            *bytes += length;
            files.insert(name, hash);
        }
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

/// Reads the manifest of a backup that is complete.
fn manifest_of(from: &Path) -> Result<Manifest, Failure> {
    let path = from.join(MANIFEST);
    let corrupted = |problem: String| {
        Failure::new(ErrorCode::RecordCorrupted, problem).suggest("Use another backup: this one was damaged.")
    };
    let unfinished = |problem: String| {
        Failure::new(ErrorCode::PreconditionFailed, problem)
            .suggest("Name the folder of a backup that `toolyard backup` completed.")
    };
    if from.join(UNFINISHED_BACKUP).exists() {
        return Err(unfinished(format!("the backup in {} was not completed", from.display())));
    }
    let bytes = match fs::read(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let problem = format!("{} is not a backup: it has no file {MANIFEST}", from.display());
            return Err(Failure::new(ErrorCode::NotFound, problem)
                .suggest("Name the folder that `toolyard backup --out` wrote."));
        }
        bytes => bytes.map_err(|e| failed("read", &path, &e))?,
    };
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|e| corrupted(format!("{} cannot be read: {e}", path.display())))?;
    if manifest.form != FORM {
        return Err(Failure::new(
            ErrorCode::PreconditionFailed,
            format!("the backup has form {}; this program knows form {FORM}", manifest.form),
        )
        .suggest("Restore it with the version of Toolyard that made it."));
    }
    let (mut found, mut bytes) = (BTreeMap::new(), 0);
    hash_tree(from, from, &mut found, &mut bytes)?;
    found.remove(MANIFEST);
    if let Some((name, _)) = manifest.files.iter().find(|(name, hash)| found.get(*name) != Some(hash)) {
        return Err(corrupted(format!("{name} is missing from the backup or was changed since")));
    }
    if let Some(name) = found.keys().find(|name| !manifest.files.contains_key(*name)) {
        return Err(corrupted(format!("{name} is not part of the backup")));
    }
    Ok(manifest)
}

/// Puts a backup into an empty home, after every file's hash was compared.
pub(crate) fn restore(from: &Path, home: &Home) -> Result<RestoreReport, Failure> {
    let manifest = manifest_of(from)?;
    let not_empty = "Name a home that is not there yet, or an empty one, with --home.";
    let marked = Marked::begin(home.path(), home::UNFINISHED_RESTORE, &RESTORED, not_empty)?;
    let state = home.state();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(|e| failed("create", &state, &e))?;
    copy_tree(&from.join(STORE), &state)?;
    for name in FOLDERS {
        copy_tree(&from.join(name), &home.path().join(name))?;
    }
    copy_tree(&from.join(CONFIG), &home.config())?;
    copy_tree(&from.join(KEYS), &state)?;
    copy_tree(&from.join(HEADS), &home.heads())?;
    SqliteStore::become_another_node(&state)?;
    sync_folder(&state)?;
    marked.complete(home.path())?;
    let keys = manifest.files.keys().any(|name| name.starts_with(KEYS));
    let home = home.path().to_owned();
    Ok(RestoreReport { home, at: manifest.at, files: manifest.files.len() as u64, keys })
}
