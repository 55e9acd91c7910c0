//! What nodes share of an account, as facts of the store:
//!
//! | key | value |
//! |---|---|
//! | `lease/ACCOUNT` | [`Lease`]: which node works on the account, and the number of its last change |
//! | `log/ACCOUNT/NUMBER` | [`Change`]: the files that one request changed, together |
//! | `file/ACCOUNT/PATH` | [`Entry`]: the file as of the last applied change |
//! | `chunk/ACCOUNT/SHA-256` | a piece of a file, unless it lies in the bucket |
//!
//! A change is committed by the lease that names its number. Its entries are written afterwards; if the node dies in
//! between, the next holder of the lease writes them.

use super::local::CHUNK_BYTES;
use crate::error::{ApiError, Code, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, sync::Arc};
use toolyard_engine::{
    Store,
    store::{NewFact, Owner, Position, StoreError, Swap},
};

/// The space of all these facts.
const SPACE: &str = "context";
/// Facts read at a time.
const PAGE: usize = 200;
/// Changes that are kept for nodes that were away. A node that missed more reads everything again.
const KEPT_CHANGES: u64 = 1024;
/// How often old changes are removed, counted in changes.
const TRIM_EVERY: u64 = 64;

/// Who works on an account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// Nobody, if empty.
    pub(crate) holder: Option<Holder>,
    /// The number of the last committed change; 0 if there is none.
    pub(crate) head: u64,
    /// The last change whose entries are written.
    pub(crate) applied: u64,
}

/// A node during one run of its process: its name and its epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Holder {
    node: String,
    epoch: u64,
}

impl From<Owner> for Holder {
    fn from(owner: Owner) -> Self {
        Self { node: owner.node, epoch: owner.epoch }
    }
}

impl Holder {
    fn owner(&self) -> Owner {
        Owner { node: self.node.clone(), epoch: self.epoch }
    }
}

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// A folder has no content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_folder: bool,
    /// When it was written, in milliseconds since 1970.
    pub(crate) modified: i64,
    /// The SHA-256 of its pieces, in order.
    pub(crate) chunks: Vec<String>,
}

/// What one request changed, by path. `None` removes the path and everything below it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) files: BTreeMap<String, Option<Entry>>,
}

impl Change {
    /// Combines several changes into one.
    pub(crate) fn merged(changes: Vec<Self>) -> Self {
        let mut all = Self::default();
        for (name, entry) in changes.into_iter().flat_map(|change| change.files) {
            if entry.is_none() {
                let below = format!("{name}/");
                all.files.retain(|other, _| !other.starts_with(&below));
            }
            all.files.insert(name, entry);
        }
        all
    }
}

/// Keeps pieces of files apart from the store: in a bucket. Methods block.
pub trait PieceStore: Send + Sync + 'static {
    /// Writes pieces of an account, by SHA-256. They are durable when this returns.
    fn put(&self, account: &str, pieces: Vec<(String, Vec<u8>)>) -> Result<(), String>;

    /// Reads a piece.
    fn get(&self, account: &str, sha256: &str) -> Result<Option<Vec<u8>>, String>;

    /// The hashes of pieces that come after one (empty for the first), in order, at most `limit`.
    fn hashes(&self, account: &str, after: &str, limit: usize) -> Result<Vec<String>, String>;

    /// Removes a piece that no file uses, unless it was written lately. Answers whether it did.
    fn remove(&self, account: &str, sha256: &str) -> Result<bool, String>;
}

/// Where an account's facts and pieces are kept.
#[derive(Clone)]
pub struct SharedParts {
    /// The store that the nodes share.
    pub store: Arc<dyn Store>,
    /// The bucket; `None` if pieces are facts, too.
    pub pieces: Option<Arc<dyn PieceStore>>,
}

/// The facts of one account.
pub(crate) struct Facts {
    store: Arc<dyn Store>,
    pieces: Option<Arc<dyn PieceStore>>,
    account: String,
}

fn unkept(why: String) -> ApiError {
    ApiError::new(Code::Unavailable, format!("the bucket cannot be used: {why}"))
}

fn failed(error: StoreError) -> ApiError {
    ApiError::new(Code::Unavailable, format!("the shared store cannot be used: {error}"))
}

fn parse<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::new(Code::Internal, format!("the shared fact {key} is damaged: {error}")))
}

impl Facts {
    pub(crate) fn new(parts: SharedParts, account: &str) -> Self {
        Self { store: parts.store, pieces: parts.pieces, account: account.to_owned() }
    }

    /// The accounts that have a lease, by name.
    pub(crate) fn accounts(store: &dyn Store) -> Result<Vec<String>> {
        let (prefix, mut after, mut all) = ("lease/", None::<String>, Vec::new());
        loop {
            let page = store.list_page(SPACE, prefix, after.as_deref(), PAGE).map_err(failed)?;
            all.extend(page.iter().filter_map(|(key, _)| key.strip_prefix(prefix)).map(str::to_owned));
            let Some((key, _)) = page.into_iter().next_back() else { return Ok(all) };
            after = Some(key);
        }
    }

    fn key(&self, kind: &str, rest: &str) -> String {
        format!("{kind}/{}/{rest}", self.account)
    }

    fn log_key(&self, number: u64) -> String {
        self.key("log", &format!("{number:016x}"))
    }

    fn lease_key(&self) -> String {
        format!("lease/{}", self.account)
    }

    /// The lease, with its bytes for a later [`Facts::swap_lease`].
    pub(crate) fn lease(&self) -> Result<(Option<Vec<u8>>, Lease)> {
        let key = self.lease_key();
        let raw = self.store.get(SPACE, &key).map_err(failed)?;
        let lease = raw.as_deref().map(|bytes| parse(&key, bytes)).transpose()?.unwrap_or_default();
        Ok((raw, lease))
    }

    /// Replaces the lease if it is still the expected one. Answers its new bytes.
    pub(crate) fn swap_lease(&self, expected: Option<&[u8]>, lease: &Lease) -> Result<Option<Vec<u8>>> {
        let bytes = serde_json::to_vec(lease)?;
        let swap = self.store.compare_and_set(SPACE, &self.lease_key(), expected, Some((bytes.clone(), None)));
        Ok((swap.map_err(failed)? == Swap::Done).then_some(bytes))
    }

    pub(crate) fn own(&self) -> Holder {
        self.store.owner().into()
    }

    /// Whether another node works on the account. One that died is fenced first, so that nothing it still writes counts.
    pub(crate) fn is_held_by_another(&self, lease: &Lease) -> Result<bool> {
        let Some(holder) = lease.holder.as_ref().filter(|holder| **holder != self.own()) else { return Ok(false) };
        if self.store.is_alive(&holder.owner()).map_err(failed)? {
            return Ok(true);
        }
        self.store.fence(&holder.owner()).map_err(failed)?;
        Ok(false)
    }

    /// Writes the pieces of files. They are durable when this returns. With a bucket, whole pieces go there; what is
    /// smaller is cheaper beside the other facts.
    pub(crate) fn put_chunks(&self, chunks: Vec<(String, Vec<u8>)>) -> Result<()> {
        let mut last = None;
        let (large, small): (Vec<_>, Vec<_>) =
            chunks.into_iter().partition(|(_, bytes)| self.pieces.is_some() && bytes.len() >= CHUNK_BYTES);
        if let Some(pieces) = self.pieces.as_ref().filter(|_| !large.is_empty()) {
            pieces.put(&self.account, large).map_err(unkept)?;
        }
        for (hash, bytes) in small {
            last = Some(self.store.put(SPACE, &self.key("chunk", &hash), bytes, None).map_err(failed)?);
        }
        self.wait(last)
    }

    pub(crate) fn chunk(&self, hash: &str) -> Result<Vec<u8>> {
        let mut found = self.store.get(SPACE, &self.key("chunk", hash)).map_err(failed)?;
        if let (None, Some(pieces)) = (&found, &self.pieces) {
            found = pieces.get(&self.account, hash).map_err(unkept)?;
        }
        found.ok_or_else(|| ApiError::new(Code::Internal, format!("a piece of a shared file is missing: {hash}")))
    }

    /// Writes a change down. It counts once the lease names its number.
    pub(crate) fn put_change(&self, number: u64, change: &Change) -> Result<()> {
        let key = self.log_key(number);
        let bytes = serde_json::to_vec(change)?;
        // A node that died before it committed may have left a change with this number.
        loop {
            let found = self.store.get(SPACE, &key).map_err(failed)?;
            let wanted: NewFact = Some((bytes.clone(), None));
            if self.store.compare_and_set(SPACE, &key, found.as_deref(), wanted).map_err(failed)? == Swap::Done {
                return Ok(());
            }
        }
    }

    /// The changes after one, up to another. `None` if some of them are no longer kept.
    pub(crate) fn changes(&self, after: u64, to: u64) -> Result<Option<Vec<Change>>> {
        let (prefix, mut from, mut all) = (self.key("log", ""), after, Vec::new());
        while from < to {
            let page = self.store.list_page(SPACE, &prefix, Some(&self.log_key(from)), PAGE).map_err(failed)?;
            for (key, bytes) in &page {
                if from == to {
                    break;
                }
                if *key != self.log_key(from + 1) {
                    return Ok(None);
                }
                all.push(parse(key, bytes)?);
                from += 1;
            }
            if page.is_empty() && from < to {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    /// Writes the entries of a committed change, and removes changes that nobody needs.
    pub(crate) fn apply(&self, number: u64, change: &Change) -> Result<()> {
        let mut last = None;
        for (path, entry) in &change.files {
            let key = self.key("file", path);
            last = Some(match entry {
                Some(entry) => self.store.put(SPACE, &key, serde_json::to_vec(entry)?, None).map_err(failed)?,
                None => {
                    self.remove_below(path)?;
                    self.store.remove(SPACE, &key).map_err(failed)?
                }
            });
        }
        if number.is_multiple_of(TRIM_EVERY) {
            let old = self.store.list_page(SPACE, &self.key("log", ""), None, PAGE).map_err(failed)?;
            let keep_from = self.log_key(number.saturating_sub(KEPT_CHANGES));
            for (key, _) in old.into_iter().filter(|(key, _)| *key < keep_from) {
                last = Some(self.store.remove(SPACE, &key).map_err(failed)?);
            }
        }
        self.wait(last)
    }

    fn remove_below(&self, path: &str) -> Result<()> {
        let prefix = self.key("file", &format!("{path}/"));
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list_page(SPACE, &prefix, after.as_deref(), PAGE).map_err(failed)?;
            for (key, _) in &page {
                self.store.remove(SPACE, key).map_err(failed)?;
            }
            let Some((key, _)) = page.into_iter().next_back() else { return Ok(()) };
            after = Some(key);
        }
    }

    /// Removes pieces from the bucket that no file uses. The caller must hold the lease. Pieces that were written
    /// lately stay until a later call: a node that was replaced may be about to name them.
    pub(crate) fn sweep(&self, is_used: impl Fn(&str) -> bool) -> Result<u64> {
        let Some(pieces) = &self.pieces else { return Ok(0) };
        let (mut after, mut removed) = (String::new(), 0);
        loop {
            let page = pieces.hashes(&self.account, &after, PAGE).map_err(unkept)?;
            let Some(last) = page.last() else { return Ok(removed) };
            after = last.clone();
            for hash in page.iter().filter(|hash| !is_used(hash)) {
                removed += u64::from(pieces.remove(&self.account, hash).map_err(unkept)?);
            }
        }
    }

    /// Writes a file's entry, without a change that names it: for an account that no node works on.
    pub(crate) fn put_entry(&self, path: &str, entry: &Entry) -> Result<()> {
        let last = self.store.put(SPACE, &self.key("file", path), serde_json::to_vec(entry)?, None).map_err(failed)?;
        self.wait(Some(last))
    }

    /// Removes a file's entry, as [`Facts::put_entry`] writes it.
    pub(crate) fn remove_entry(&self, path: &str) -> Result<()> {
        let last = self.store.remove(SPACE, &self.key("file", path)).map_err(failed)?;
        self.wait(Some(last))
    }

    /// Writes the entries of changes whose node died before it did.
    pub(crate) fn apply_left(&self, lease: &mut Lease) -> Result<()> {
        let (head, applied) = (lease.head, lease.applied);
        if applied < head {
            let Some(left) = self.changes(applied, head)? else {
                return Err(ApiError::new(Code::Internal, "committed changes of the context store are missing"));
            };
            for (number, change) in (applied + 1..).zip(&left) {
                self.apply(number, change)?;
            }
            lease.applied = head;
        }
        Ok(())
    }

    pub(crate) fn remove_chunks(&self, hashes: &[String]) -> Result<()> {
        for hash in hashes {
            self.store.remove(SPACE, &self.key("chunk", hash)).map_err(failed)?;
        }
        Ok(())
    }

    /// Every file and folder, by path.
    pub(crate) fn entries(&self) -> Result<BTreeMap<String, Entry>> {
        let (prefix, mut after, mut all) = (self.key("file", ""), None::<String>, BTreeMap::new());
        loop {
            let page = self.store.list_page(SPACE, &prefix, after.as_deref(), PAGE).map_err(failed)?;
            for (key, bytes) in &page {
                let path = key.strip_prefix(&prefix).unwrap_or_default().to_owned();
                all.insert(path, parse(key, bytes)?);
            }
            let Some((key, _)) = page.into_iter().next_back() else { return Ok(all) };
            after = Some(key);
        }
    }

    /// Blocks until what was put is durable. Callers are on blocking threads.
    fn wait(&self, position: Option<Position>) -> Result<()> {
        let Some(position) = position else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.store.durable(position)).map_err(failed)
    }
}
