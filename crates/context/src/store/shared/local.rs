//! The files of a shared account on this node's disk: a copy that can be made again from the facts.

use super::facts::{Change, Entry, Facts};
use crate::{
    error::{ApiError, Code, Result},
    store::{
        disk::{self, Durability},
        layers::{ABSTRACT, OVERVIEW},
    },
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::File,
    path::{Component, Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Size of the pieces into which files are cut. Appending to a file sends its last piece only.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Longest path: it is the key of a fact.
const MAX_PATH_BYTES: usize = 1000;
/// Folders that hold what no other node needs.
pub(crate) const OWN_FOLDERS: [&str; 2] = ["_staging", "_trash"];

/// Whether nodes share a path: not what is on its way, and not descriptions that every node builds for itself. The
/// descriptions in archives of sessions are content.
pub(crate) fn is_shared(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    if names.len() != path.iter().count() || names.first().is_none_or(|first| OWN_FOLDERS.contains(first)) {
        return false;
    }
    let last = names.last().copied().unwrap_or_default();
    let is_in_session = names.first() == Some(&"user") && names.get(2) == Some(&"sessions");
    !last.starts_with(disk::STAGED) && (is_in_session || (last != ABSTRACT && last != OVERVIEW))
}

/// A path as facts name it.
pub(crate) fn name_of(path: &Path) -> String {
    path.iter().filter_map(|name| name.to_str()).collect::<Vec<_>>().join("/")
}

/// The path of a name, which must lead nowhere else.
fn path_of(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if name.is_empty() || !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(ApiError::new(Code::Internal, format!("a shared file has the name {name:?}")));
    }
    Ok(folder.join(path))
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is to be sent for one changed path.
#[derive(Default)]
pub(crate) struct CollectedChange {
    pub(crate) change: Change,
    pub(crate) chunks: BTreeMap<String, Vec<u8>>,
}

impl CollectedChange {
    /// Reads a changed path. `known` is what the other nodes have.
    pub(crate) fn add(&mut self, folder: &Path, path: &Path, known: &BTreeMap<String, Entry>) -> Result<()> {
        if !is_shared(path) {
            return Ok(());
        }
        let (name, found) = (name_of(path), disk::look(&folder.join(path))?);
        if name.len() > MAX_PATH_BYTES {
            return Err(ApiError::argument(format!("in a cluster a path has at most {MAX_PATH_BYTES} bytes")));
        }
        match found {
            None => {
                let below = format!("{name}/");
                let is_known = known.contains_key(&name)
                    || known.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below));
                if is_known {
                    self.change.files.insert(name, None);
                }
            }
            Some(found) if found.is_folder => {
                self.add_folder(name, found.modified.as_millisecond());
                for child in disk::list(&folder.join(path))? {
                    self.add(folder, &path.join(child.name), known)?;
                }
                self.remove_gone(folder, path, known);
            }
            Some(found) => {
                let bytes = disk::read(&folder.join(path))?;
                self.add_file(name, found.modified.as_millisecond(), &bytes, known);
            }
        }
        Ok(())
    }

    fn add_folder(&mut self, name: String, modified: i64) {
        self.change.files.insert(name, Some(Entry { is_folder: true, modified, chunks: Vec::new() }));
    }

    fn add_file(&mut self, name: String, modified: i64, bytes: &[u8], known: &BTreeMap<String, Entry>) {
        let mut chunks = Vec::new();
        for piece in bytes.chunks(CHUNK_BYTES) {
            let hash = hash(piece);
            if !known.get(&name).is_some_and(|entry| entry.chunks.contains(&hash)) {
                self.chunks.insert(hash.clone(), piece.to_vec());
            }
            chunks.push(hash);
        }
        self.change.files.insert(name, Some(Entry { is_folder: false, modified, chunks }));
    }

    /// Reads one path and nothing below it.
    pub(crate) fn add_alone(&mut self, folder: &Path, path: &Path, known: &BTreeMap<String, Entry>) -> Result<()> {
        let name = name_of(path);
        if name.len() > MAX_PATH_BYTES {
            return Err(ApiError::argument(format!("in a cluster a path has at most {MAX_PATH_BYTES} bytes: {name}")));
        }
        match disk::look(&folder.join(path))? {
            Some(found) if found.is_folder => self.add_folder(name, found.modified.as_millisecond()),
            Some(found) => {
                let bytes = disk::read(&folder.join(path))?;
                self.add_file(name, found.modified.as_millisecond(), &bytes, known);
            }
            None => {}
        }
        Ok(())
    }

    /// A folder that was replaced as a whole: what the other nodes have in it and this one has not.
    fn remove_gone(&mut self, folder: &Path, path: &Path, known: &BTreeMap<String, Entry>) {
        let below = format!("{}/", name_of(path));
        for (name, _) in known.range(below.clone()..).take_while(|(name, _)| name.starts_with(&below)) {
            if !self.change.files.contains_key(name) && !folder.join(name).exists() {
                self.change.files.insert(name.clone(), None);
            }
        }
    }
}

/// Makes a path on this disk what another node made it. Answers its text, for a file.
pub(crate) fn install(facts: &Facts, folder: &Path, name: &str, entry: Option<&Entry>) -> Result<Option<String>> {
    let path = path_of(folder, name)?;
    let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let Some(entry) = entry else {
        disk::discard(&path);
        return Ok(None);
    };
    if entry.is_folder != is_folder {
        disk::discard(&path);
    }
    if entry.is_folder {
        std::fs::create_dir_all(&path)?;
        return Ok(None);
    }
    let mut bytes = Vec::new();
    for chunk in &entry.chunks {
        let piece = facts.chunk(chunk)?;
        if hash(&piece) != *chunk {
            return Err(ApiError::new(Code::Internal, format!("a piece of the shared file {name} is damaged")));
        }
        bytes.extend(piece);
    }
    std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
    disk::write(&path, &bytes, Durability::Derived)?;
    let since = Duration::from_millis(u64::try_from(entry.modified).unwrap_or_default());
    File::options().write(true).open(&path)?.set_modified(SystemTime::UNIX_EPOCH + since)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Removes every shared file from this disk, before it is filled again.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    for found in disk::list(folder)? {
        if !OWN_FOLDERS.contains(&found.name.as_str()) {
            disk::discard(&folder.join(found.name));
        }
    }
    Ok(())
}
