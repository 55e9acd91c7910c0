//! One entry of the ledger in the store: some leaves of the tree, and the signature over the tree so far.
//!
//! Stores of earlier versions begin with entries that are chained and not part of a tree; the tree's first leaf holds the
//! end of that chain, so that they stay proven.

use super::tree::{Edge, Hash, leaf_hash};
use crate::{
    chain::{BadRecord, Signer, Verifier},
    fact_seal::FactChange,
    keys::{SIGNATURE_BYTES, note_body},
    store::{LedgerEntry, StoreError},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use toolyard_protocol::{RunId, canonical};

/// The tree's origin line.
pub const ORIGIN: &str = "toolyard/ledger";
/// The number of entries after which the edge of the tree is stored, so that it need not be computed from the
/// beginning.
pub(super) const EDGE_EVERY: u64 = 16;

/// The end of one run's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunHead {
    /// The run.
    #[serde(alias = "runId", rename = "run")]
    pub run_id: RunId,
    /// Its last record's number.
    pub seq: u64,
    /// Its chain value, hex.
    #[serde(alias = "hash", rename = "head")]
    pub hash: String,
}

impl RunHead {
    /// A head from the bytes of the chain value.
    pub fn new(run_id: RunId, seq: u64, chain: &[u8; 32]) -> Self {
        Self { run_id, seq, hash: canonical::hex(chain) }
    }
}

/// A leaf of the tree. Its text is this value as JSON; `at` is milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Leaf {
    /// A run ended, with this head.
    Run {
        /// The head.
        #[serde(flatten)]
        head: RunHead,
        /// When it was sealed.
        at: i64,
        /// It had ended in an earlier process and had no leaf when this one started: that process died before it sealed
        /// the run, or the leaf was removed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        found: bool,
    },
    /// A run that had not ended had come this far.
    Open {
        /// The head.
        #[serde(flatten)]
        head: RunHead,
        /// The time, in milliseconds since 1970.
        at: i64,
        /// Nothing proved its last records: a version that did not tag them wrote them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unsigned: bool,
    },
    /// A run that had ended was removed from the store on purpose.
    Pruned {
        /// The head that it had.
        #[serde(flatten)]
        head: RunHead,
        /// The time, in milliseconds since 1970.
        at: i64,
    },
    /// The end of the chained ledger that an earlier version wrote into this store.
    Chain {
        /// How many entries it has.
        entries: u64,
        /// The chain value of the last one, hex.
        head: String,
        /// The time, in milliseconds since 1970.
        at: i64,
    },
    /// The signing key is replaced. The entry that holds this leaf is the last one signed with the old key.
    Key {
        /// The old verifier key.
        old: String,
        /// The new verifier key.
        new: String,
        /// The time, in milliseconds since 1970.
        at: i64,
    },
    /// Facts that were set or removed since the entry before. The names are keyed hashes, so that a reader of the tree
    /// learns neither keys nor values.
    Facts {
        /// The newest change of each fact.
        changes: Vec<FactChange>,
        /// The time, in milliseconds since 1970.
        at: i64,
    },
    /// The first entry signed with a new key.
    KeyAccepted {
        /// The new verifier key.
        key: String,
        /// The time, in milliseconds since 1970.
        at: i64,
    },
}

impl Leaf {
    /// When it was made, milliseconds since 1970.
    pub fn at(&self) -> i64 {
        match self {
            Self::Run { at, .. }
            | Self::Open { at, .. }
            | Self::Pruned { at, .. }
            | Self::Chain { at, .. }
            | Self::Key { at, .. }
            | Self::Facts { at, .. }
            | Self::KeyAccepted { at, .. } => *at,
        }
    }

    /// The head of the run it is about.
    pub fn head(&self) -> Option<&RunHead> {
        match self {
            Self::Run { head, .. } | Self::Open { head, .. } | Self::Pruned { head, .. } => Some(head),
            _ => None,
        }
    }
}

/// An entry's payload. Written by [`make`] alone: an entry whose bytes are not what would be written is refused.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    v: u8,
    /// The number of its first leaf.
    first: u64,
    /// The entry that introduced the key which signed this one; 0 for the first key.
    key_from: u64,
    leaves: Vec<Box<RawValue>>,
    /// The edge of the tree after these leaves, in every [`EDGE_EVERY`]th entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    edge: Vec<String>,
    /// Key id and signature, as in a signed note.
    sig: String,
}

/// A tree entry, read and checked by itself.
pub(super) struct TreeEntry {
    pub(super) seq: u64,
    pub(super) first: u64,
    pub(super) key_from: u64,
    pub(super) leaves: Vec<(String, Leaf)>,
    pub(super) edge: Option<Edge>,
    pub(super) sig: Vec<u8>,
    pub(super) root: Hash,
}

impl TreeEntry {
    /// How many leaves the tree has with this entry.
    pub(super) fn size(&self) -> u64 {
        self.first + self.leaves.len() as u64
    }

    /// Adds its leaves to a tree.
    pub(super) fn extend(&self, edge: &mut Edge) {
        self.leaves.iter().for_each(|(text, _)| edge.push(leaf_hash(text.as_bytes())));
    }

    /// The signed text.
    pub(super) fn body(&self) -> String {
        note_body(ORIGIN, self.size(), &self.root)
    }

    /// The signed note, as other programs read it.
    pub(super) fn note(&self, name: &str) -> String {
        format!("{}\n\u{2014} {name} {}\n", self.body(), BASE64.encode(&self.sig))
    }

    /// When it was made, milliseconds since 1970.
    pub(super) fn at(&self) -> i64 {
        self.leaves.first().map_or(0, |(_, leaf)| leaf.at())
    }
}

/// Any entry.
pub(super) enum Opened {
    Tree(TreeEntry),
    Chained(Chained),
}

/// Makes an entry: the payload and the root.
pub(super) fn make(
    signer: &Signer,
    seq: u64,
    key_from: u64,
    edge: &mut Edge,
    leaves: &[Leaf],
) -> Result<(Vec<u8>, Hash), StoreError> {
    let first = edge.size();
    // Plain structs with string keys always serialise.
    let leaves: Vec<Box<RawValue>> =
        leaves.iter().filter_map(|leaf| serde_json::value::to_raw_value(leaf).ok()).collect();
    leaves.iter().for_each(|leaf| edge.push(leaf_hash(leaf.get().as_bytes())));
    let root = edge.root();
    let stored = if seq.is_multiple_of(EDGE_EVERY) { edge.nodes() } else { &[] };
    let payload = Payload {
        v: 1,
        first,
        key_from,
        leaves,
        edge: stored.iter().map(|node| BASE64.encode(node)).collect(),
        sig: BASE64.encode(signer.signature(&note_body(ORIGIN, edge.size(), &root))),
    };
    Ok((written(&payload)?, root))
}

fn written(payload: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(payload).map_err(|e| StoreError::failed(format!("a ledger entry cannot be written: {e}")))
}

/// Reads an entry. The caller, which knows the earlier entries, checks signatures and the place in the tree.
pub(super) fn open(entry: &LedgerEntry) -> Result<Opened, BadRecord> {
    let bad = |problem: &str| BadRecord { seq: entry.seq, problem: problem.to_owned() };
    let unreadable = || bad("the ledger entry cannot be read");
    if !entry.payload.starts_with(b"{\"v\":") {
        return Chained::open(entry).map(Opened::Chained);
    }
    let payload: Payload = serde_json::from_slice(&entry.payload).map_err(|_| unreadable())?;
    if payload.v != 1 {
        return Err(bad("the ledger entry was written by a newer version"));
    }
    if serde_json::to_vec(&payload).ok().as_deref() != Some(&*entry.payload) {
        return Err(unreadable());
    }
    let leaves: Vec<(String, Leaf)> = payload
        .leaves
        .iter()
        .map(|leaf| Ok((leaf.get().to_owned(), serde_json::from_str(leaf.get())?)))
        .collect::<Result<_, serde_json::Error>>()
        .map_err(|_| bad("a leaf of the ledger entry cannot be read"))?;
    let nodes: Option<Vec<Hash>> = payload.edge.iter().map(|node| BASE64.decode(node).ok()?.try_into().ok()).collect();
    let edge = match nodes {
        Some(nodes) if nodes.is_empty() => None,
        Some(nodes) => Some(Edge::new(payload.first + leaves.len() as u64, nodes).ok_or_else(unreadable)?),
        None => return Err(unreadable()),
    };
    let sig = BASE64.decode(&payload.sig).ok().filter(|sig| sig.len() == SIGNATURE_BYTES).ok_or_else(unreadable)?;
    let (first, key_from, root) = (payload.first, payload.key_from, entry.chain);
    Ok(Opened::Tree(TreeEntry { seq: entry.seq, first, key_from, leaves, edge, sig, root }))
}

/// An entry of the ledger that earlier versions wrote: the heads of runs, chained to the entry before and signed.
pub(super) struct Chained {
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    pub(super) runs: Vec<RunHead>,
    pub(super) found_at_start: bool,
    text: String,
    note: String,
}

#[derive(Serialize, Deserialize)]
struct ChainedPayload {
    /// The signed part, as text, so that checking it needs no canonical form.
    body: String,
    note: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChainedBody {
    at: Timestamp,
    runs: Vec<RunHead>,
    #[serde(default)]
    found_at_start: bool,
}

impl Chained {
    fn open(entry: &LedgerEntry) -> Result<Self, BadRecord> {
        let bad = |problem: &str| BadRecord { seq: entry.seq, problem: problem.to_owned() };
        let payload: ChainedPayload =
            serde_json::from_slice(&entry.payload).map_err(|_| bad("the ledger entry cannot be read"))?;
        if serde_json::to_vec(&payload).ok().as_deref() != Some(&*entry.payload) {
            return Err(bad("the ledger entry cannot be read"));
        }
        let body: ChainedBody =
            serde_json::from_str(&payload.body).map_err(|_| bad("the ledger entry's body cannot be read"))?;
        let ChainedPayload { body: text, note } = payload;
        let ChainedBody { at, runs, found_at_start } = body;
        Ok(Self { seq: entry.seq, at, runs, found_at_start, text, note })
    }

    /// Checks that it follows the entry before it and is signed.
    pub(super) fn check(&self, chain: &Hash, previous: &Hash, verifier: &Verifier) -> Result<(), BadRecord> {
        let bad = |problem: &str| BadRecord { seq: self.seq, problem: problem.to_owned() };
        if link(previous, &self.text) != *chain {
            return Err(bad("the ledger entry does not follow from the one before it"));
        }
        if !verifier.check(&self.note, ORIGIN, self.seq, chain) {
            return Err(bad("the ledger entry's signature is not valid"));
        }
        Ok(())
    }
}

fn link(previous: &Hash, body: &str) -> Hash {
    let mut h = Sha256::new();
    h.update(previous);
    h.update(body.as_bytes());
    h.finalize().into()
}

/// An entry as earlier versions made it, for tests of stores that they left.
#[doc(hidden)]
pub fn chained_entry(
    signer: &Signer,
    last: Option<&LedgerEntry>,
    runs: &[(RunId, u64, Hash)],
) -> Result<(Vec<u8>, Hash), StoreError> {
    let seq = last.map_or(1, |last| last.seq + 1);
    let runs: Vec<serde_json::Value> = runs
        .iter()
        .map(|(run, seq, hash)| serde_json::json!({"runId": run, "seq": seq, "hash": canonical::hex(hash)}))
        .collect();
    let body = serde_json::json!({"seq": seq, "at": Timestamp::now(), "runs": runs}).to_string();
    let chain = link(&last.map_or([0; 32], |last| last.chain), &body);
    let payload = ChainedPayload { note: signer.sign(ORIGIN, seq, &chain), body };
    Ok((written(&payload)?, chain))
}
