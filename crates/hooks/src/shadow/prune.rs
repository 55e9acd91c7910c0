//! Removes shadow repositories that are not used any more, or that take more room than is allowed. A snapshot is a cache:
//! what a call changed is kept with the call's record, so only a call that is running needs its repository.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// A repository that was used within this time may belong to a call that is running. Calls take at most ten minutes.
const IN_USE: Duration = Duration::from_secs(3600);

/// How much of the snapshots is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRetention {
    /// Repositories that were not used for this long are removed.
    pub unused_for: Option<Duration>,
    /// While all repositories together take more bytes, the one that was used least recently is removed.
    pub max_bytes: Option<u64>,
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrunedSnapshots {
    /// Projects whose snapshots were removed.
    pub projects: u64,
    /// The bytes that they took.
    pub bytes: u64,
}

/// A repository on the disk.
struct Repository {
    path: PathBuf,
    used: SystemTime,
    bytes: u64,
}

/// The repositories to remove, by what is on the disk now.
pub(super) fn chosen(folder: &Path, retention: SnapshotRetention, now: SystemTime) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut all = repositories(folder)?;
    all.sort_by_key(|repository| repository.used);
    let mut total: u64 = all.iter().map(|repository| repository.bytes).sum();
    let mut chosen = Vec::new();
    for Repository { path, used, bytes } in all {
        let unused = now.duration_since(used).unwrap_or_default();
        if unused < IN_USE {
            break;
        }
        let is_old = retention.unused_for.is_some_and(|age| unused >= age);
        let is_too_much = retention.max_bytes.is_some_and(|most| total > most);
        if is_old || is_too_much {
            total -= bytes;
            chosen.push((path, bytes));
        }
    }
    Ok(chosen)
}

fn repositories(folder: &Path) -> io::Result<Vec<Repository>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some((bytes, used)) = measured(&path)? else { continue };
        found.push(Repository { path, used, bytes });
    }
    Ok(found)
}

/// The bytes of a folder and when anything in it was last written. `None` for what is not a folder.
fn measured(path: &Path) -> io::Result<Option<(u64, SystemTime)>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(None);
    }
    let (mut bytes, mut used) = (0, metadata.modified()?);
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // A file that Git renames or removes meanwhile is not counted.
            let Ok(metadata) = entry.metadata() else { continue };
            used = used.max(metadata.modified()?);
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += metadata.len();
            }
        }
    }
    Ok(Some((bytes, used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unused_or_too_much_is_chosen_and_what_is_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("a", 1000), ("b", 1000), ("c", 1000)] {
            fs::create_dir_all(folder.path().join(name).join("objects")).unwrap();
            fs::write(folder.path().join(name).join("objects/x"), vec![0; bytes]).unwrap();
        }
        let count =
            |retention, after: Duration| chosen(folder.path(), retention, SystemTime::now() + after).unwrap().len();
        let day = Duration::from_secs(86_400);
        let old = SnapshotRetention { unused_for: Some(day), max_bytes: None };
        assert_eq!(count(old, Duration::ZERO), 0);
        assert_eq!(count(old, day / 2), 0);
        assert_eq!(count(old, day * 2), 3);
        let small = SnapshotRetention { unused_for: None, max_bytes: Some(2000) };
        assert_eq!(count(small, day), 1);
        // A running call needs its repository, however much room it takes.
        let none = SnapshotRetention { unused_for: Some(Duration::ZERO), max_bytes: Some(0) };
        assert_eq!(count(none, Duration::from_secs(60)), 0);
        assert!(chosen(&folder.path().join("missing"), none, SystemTime::now()).unwrap().is_empty());
    }
}
