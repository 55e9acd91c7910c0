//! Moves the files of a single machine into the store that nodes share, and back. Both must be idle meanwhile. Pieces
//! that the target has already are not copied again, so that an interrupted move continues where it stopped; at the end
//! every piece is read back and compared with its hash.

use super::{
    facts::{Entry, Facts, Lease, SharedParts},
    local::{self, CHUNK_BYTES, CollectedChange, OWN_FOLDERS, hash},
};
use crate::{
    config::ContextConfig,
    error::{ApiError, Code, Result},
    service::ContextStore,
    store::{account::Account, disk},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// What was moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Accounts.
    pub accounts: u64,
    /// Files of all accounts.
    pub files: u64,
    /// Files of them that were there already.
    pub there_already: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Copies the accounts in a folder into the shared store.
pub fn to_shared(root: &Path, config: ContextConfig, parts: &SharedParts) -> Result<Transferred> {
    let mut moved = Transferred::default();
    if !root.exists() {
        return Ok(moved);
    }
    // Opening it completes what a killed process left unfinished, and keeps other processes out.
    let _open = ContextStore::open(root.to_owned(), config)?;
    for found in disk::list(root)? {
        if found.is_folder && root.join(&found.name).join("_system/pending").is_dir() {
            put_account(&root.join(&found.name), &found.name, parts, &mut moved)?;
        }
    }
    Ok(moved)
}

fn put_account(folder: &Path, name: &str, parts: &SharedParts, moved: &mut Transferred) -> Result<()> {
    let facts = Facts::new(parts.clone(), name);
    let (raw, mut lease) = facts.lease()?;
    if facts.is_held_by_another(&lease)? {
        return Err(ApiError::new(Code::Unavailable, format!("a node works on the account {name:?}")));
    }
    facts.apply_left(&mut lease)?;
    moved.accounts += 1;
    let known = facts.entries()?;
    let mut wanted: BTreeMap<String, Entry> = BTreeMap::new();
    for path in paths(folder)? {
        // One file at a time: the pieces of all files may not fit into memory.
        let mut gathered = CollectedChange::default();
        gathered.add_alone(folder, &path, &known)?;
        let Some((name, Some(entry))) = gathered.change.files.into_iter().next() else { continue };
        moved.files += u64::from(!entry.is_folder);
        if known.get(&name) == Some(&entry) {
            moved.there_already += u64::from(!entry.is_folder);
        } else {
            facts.put_chunks(gathered.chunks.into_iter().collect())?;
            facts.put_entry(&name, &entry)?;
        }
        wanted.insert(name, entry);
    }
    for gone in known.keys().filter(|name| !wanted.contains_key(*name)) {
        facts.remove_entry(gone)?;
    }
    let used: BTreeSet<&String> = wanted.values().flat_map(|entry| &entry.chunks).collect();
    let unused = known.values().flat_map(|entry| &entry.chunks).filter(|chunk| !used.contains(chunk));
    facts.remove_chunks(&unused.cloned().collect::<Vec<_>>())?;
    // The account is known from now on, and a node that has a copy of it reads everything again.
    let next = Lease { holder: None, head: lease.head, applied: lease.head };
    if facts.swap_lease(raw.as_deref(), &next)?.is_none() {
        return Err(ApiError::new(Code::Unavailable, format!("a node works on the account {name:?}")));
    }
    let there = facts.entries()?;
    if there != wanted {
        return Err(ApiError::new(Code::Internal, format!("the files of {name:?} did not arrive as they are")));
    }
    for (path, entry) in &there {
        let content = content(&facts, path, entry)?;
        if !entry.is_folder && content != disk::read(&folder.join(path))? {
            return Err(ApiError::new(Code::Internal, format!("{path} of {name:?} did not arrive as it is")));
        }
        moved.bytes += content.len() as u64;
    }
    Ok(())
}

/// Everything below an account's folder that nodes share, folders before what is in them.
fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    fn walk(folder: &Path, below: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
        for found in disk::list(&folder.join(below))? {
            let path = below.join(&found.name);
            if !local::is_shared(&path) {
                continue;
            }
            into.push(path.clone());
            if found.is_folder {
                walk(folder, &path, into)?;
            }
        }
        Ok(())
    }
    let mut all = Vec::new();
    walk(folder, Path::new(""), &mut all)?;
    Ok(all)
}

/// The bytes of a file, each piece compared with its hash.
fn content(facts: &Facts, path: &str, entry: &Entry) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in &entry.chunks {
        let piece = facts.chunk(chunk)?;
        if hash(&piece) != *chunk {
            return Err(ApiError::new(Code::Internal, format!("a piece of {path} is damaged")));
        }
        bytes.extend(piece);
    }
    Ok(bytes)
}

/// Makes the accounts in a folder what the shared store has.
pub fn from_shared(root: &Path, parts: &SharedParts) -> Result<Transferred> {
    let mut moved = Transferred::default();
    for name in Facts::accounts(&*parts.store)? {
        let facts = Facts::new(parts.clone(), &name);
        let (_, mut lease) = facts.lease()?;
        if facts.is_held_by_another(&lease)? {
            return Err(ApiError::new(Code::Unavailable, format!("a node works on the account {name:?}")));
        }
        facts.apply_left(&mut lease)?;
        moved.accounts += 1;
        let account = Account::open(root, &name)?;
        let entries = facts.entries()?;
        for path in paths(&account.folder)?.iter().rev() {
            // Folders that every account has are not always in the store.
            if !entries.contains_key(&local::name_of(path)) && !is_own_folder(&account.folder, path) {
                disk::discard(&account.folder.join(path));
            }
        }
        for (path, entry) in &entries {
            moved.files += u64::from(!entry.is_folder);
            if !entry.is_folder && is_there(&account.folder.join(path), entry)? {
                moved.there_already += 1;
            } else {
                local::install(&facts, &account.folder, path, Some(entry))?;
            }
        }
        for (path, entry) in entries.iter().filter(|(_, entry)| !entry.is_folder) {
            let path = account.folder.join(path);
            if !is_there(&path, entry)? {
                return Err(ApiError::new(Code::Internal, format!("{} did not arrive as it is", path.display())));
            }
            moved.bytes += std::fs::metadata(&path)?.len();
        }
    }
    Ok(moved)
}

/// Whether a path is a folder: an empty one that only this disk has does no harm.
fn is_own_folder(folder: &Path, path: &Path) -> bool {
    let first = path.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
    let is_empty = || std::fs::read_dir(folder.join(path)).is_ok_and(|mut inside| inside.next().is_none());
    OWN_FOLDERS.contains(&first) || (folder.join(path).is_dir() && is_empty())
}

/// Whether a file has the content of an entry.
fn is_there(path: &Path, entry: &Entry) -> Result<bool> {
    let Some(found) = disk::look(path)?.filter(|found| !found.is_folder) else { return Ok(false) };
    if found.modified.as_millisecond() != entry.modified {
        return Ok(false);
    }
    let bytes = disk::read(path)?;
    Ok(bytes.chunks(CHUNK_BYTES).map(hash).eq(entry.chunks.iter().cloned()))
}
