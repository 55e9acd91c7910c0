//! Reads the ledger of a store: the position of entries and leaves, the edge of the tree at any position, proofs.

use super::{
    entry::{Leaf, Opened, RunHead, TreeEntry, open},
    tree::{self, Edge, Hash, Node, leaf_hash},
};
use crate::{
    Store,
    chain::{BadRecord, Verifier},
    store::{LedgerEntry, StoreError},
};
use jiff::{SignedDuration, Timestamp};
use toolyard_protocol::RunId;

/// Clocks of two processes that share a store may differ by this much.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(60);

/// Why something cannot be read from the ledger.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LogError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("the ledger does not hold: {0}")]
    Bad(#[from] BadRecord),
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Store(error) => error,
            LogError::Bad(bad) => StoreError::failed(format!("the ledger cannot be verified: {bad}")),
        }
    }
}

/// A leaf with its place.
pub(super) struct PlacedLeaf {
    pub(super) entry: u64,
    pub(super) index: u64,
    pub(super) text: String,
    pub(super) leaf: Leaf,
}

/// The ledger of one store.
#[derive(Clone, Copy)]
pub(super) struct Log<'a>(pub(super) &'a dyn Store);

impl Log<'_> {
    pub(super) fn entry(self, seq: u64) -> Result<Option<LedgerEntry>, StoreError> {
        Ok(self.0.ledger(seq, 1)?.into_iter().next().filter(|entry| entry.seq == seq))
    }

    /// The number of the last entry, 0 when there is none.
    pub(super) fn last_seq(self) -> Result<u64, StoreError> {
        let there = |seq: u64| -> Result<bool, StoreError> { Ok(!self.0.ledger(seq, 1)?.is_empty()) };
        let mut high = 1;
        while there(high)? {
            high *= 2;
        }
        let mut low = high / 2; // 0, or an entry that is there
        while low + 1 < high {
            let middle = low.midpoint(high);
            if there(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(super) fn last(self) -> Result<Option<LedgerEntry>, StoreError> {
        match self.last_seq()? {
            0 => Ok(None),
            seq => self.entry(seq),
        }
    }

    /// The entry, if it is part of the tree.
    pub(super) fn tree_entry(self, seq: u64) -> Result<Option<TreeEntry>, LogError> {
        let Some(entry) = self.entry(seq)? else { return Ok(None) };
        match open(&entry)? {
            Opened::Tree(entry) => Ok(Some(entry)),
            Opened::Chained(_) => Ok(None),
        }
    }

    /// The edge of the tree after an entry: from the last stored edge on.
    pub(super) fn edge_after(self, seq: u64) -> Result<Edge, LogError> {
        let mut later = Vec::new();
        let mut at = seq;
        let mut edge = loop {
            let missing = || BadRecord { seq: at, problem: "the ledger entry is missing".to_owned() };
            match open(&self.entry(at)?.ok_or_else(missing)?)? {
                Opened::Chained(_) => break Edge::default(),
                Opened::Tree(TreeEntry { edge: Some(edge), .. }) => break edge,
                Opened::Tree(entry) => {
                    let is_first = entry.first == 0;
                    later.push(entry);
                    if is_first {
                        break Edge::default();
                    }
                    at -= 1;
                }
            }
        };
        for entry in later.iter().rev() {
            if entry.first != edge.size() {
                return Err(BadRecord { seq: entry.seq, problem: "the ledger entry is out of place".to_owned() }.into());
            }
            entry.extend(&mut edge);
        }
        Ok(edge)
    }

    /// The entry that holds a leaf.
    pub(super) fn entry_of_leaf(self, index: u64) -> Result<TreeEntry, LogError> {
        let (mut low, mut high) = (1, self.last_seq()?);
        while low < high {
            let middle = low.midpoint(high);
            match self.tree_entry(middle)? {
                Some(entry) if entry.size() > index => high = middle,
                _ => low = middle + 1,
            }
        }
        let found = self.tree_entry(low)?.filter(|entry| entry.first <= index && index < entry.size());
        Ok(found.ok_or_else(|| BadRecord { seq: low, problem: format!("the ledger has no leaf {index}") })?)
    }

    /// The root of a complete subtree.
    fn node(self, node: Node) -> Result<Hash, LogError> {
        let last = node.last_leaf();
        let entry = self.entry_of_leaf(last)?;
        let mut edge = if entry.first == 0 { Edge::default() } else { self.edge_after(entry.seq - 1)? };
        let mut root = None;
        for (text, _) in entry.leaves.iter().take((last - entry.first + 1) as usize) {
            root = edge.push_and_catch(leaf_hash(text.as_bytes()), node.level);
        }
        Ok(root.ok_or_else(|| BadRecord { seq: entry.seq, problem: "the ledger entry is out of place".to_owned() })?)
    }

    fn parts(self, parts: Option<Vec<Vec<Node>>>) -> Result<Vec<Hash>, LogError> {
        let outside = || StoreError::failed("the ledger has no such tree".to_owned());
        let parts = parts.ok_or_else(outside)?;
        let hash = |part: &Vec<Node>| -> Result<Hash, LogError> {
            let nodes = part.iter().map(|node| self.node(*node)).collect::<Result<Vec<_>, _>>()?;
            Ok(tree::part_hash(&nodes).ok_or_else(outside)?)
        };
        parts.iter().map(hash).collect()
    }

    /// The proof that a leaf is in the tree of this many leaves.
    pub(super) fn inclusion(self, index: u64, size: u64) -> Result<Vec<Hash>, LogError> {
        self.parts(tree::inclusion_parts(index, size))
    }

    /// The proof that the tree of `new` leaves extends that of `old`.
    pub(super) fn consistency(self, old: u64, new: u64) -> Result<Vec<Hash>, LogError> {
        self.parts(tree::consistency_parts(old, new))
    }

    /// The keys that signed the tree, the present one last, each with the first entry that it signed. This follows the
    /// entries from key to key, so that the keys are known before the walk; the walk verifies them.
    pub(super) fn keys(self, present: &Verifier) -> Result<Vec<(u64, Verifier)>, LogError> {
        let mut keys = Vec::new();
        let mut key = present.clone();
        let mut from = match self.last_seq()? {
            0 => 0,
            last => self.tree_entry(last)?.map_or(0, |entry| entry.key_from),
        };
        while from > 0 {
            keys.push((from + 1, key.clone()));
            let bad = |problem: &str| BadRecord { seq: from, problem: problem.to_owned() };
            let entry = self.tree_entry(from)?.ok_or_else(|| bad("the ledger entry of a key change is missing"))?;
            let old = entry.leaves.iter().find_map(|(_, leaf)| match leaf {
                Leaf::Key { old, new, .. } if *new == key.to_text() => Verifier::parse(old),
                _ => None,
            });
            key =
                old.ok_or_else(|| bad("the ledger entry does not introduce the key that signed the entries after it"))?;
            if entry.key_from >= from {
                return Err(bad("the ledger entry is out of place").into());
            }
            from = entry.key_from;
        }
        keys.push((0, key));
        keys.reverse();
        Ok(keys)
    }

    /// The first entry that may hold a leaf of a run, by the time in the run's id: leaves carry the time they were made,
    /// which does not decrease unless the clock is set back.
    fn first_entry_for(self, run_id: RunId) -> Result<u64, LogError> {
        let Some(born) = born(run_id) else { return Ok(1) };
        let since = born - CLOCK_SLACK;
        let (mut low, mut high) = (1, self.last_seq()? + 1);
        while low < high {
            let middle = low.midpoint(high);
            let before = match self.entry(middle)? {
                Some(entry) => match open(&entry)? {
                    Opened::Tree(entry) => entry.at() < since.as_millisecond(),
                    Opened::Chained(entry) => entry.at < since,
                },
                None => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// What the ledger says about a run, up to its end. If the clock was set back meanwhile, the leaves may be before those
    /// with the run's time: use [`Log::all_leaves_of`] where this would be a false alarm.
    pub(super) fn leaves_of(self, run_id: RunId) -> Result<RunLeaves, LogError> {
        self.leaves_from(self.first_entry_for(run_id)?, run_id)
    }

    /// As [`Log::leaves_of`], but reads the whole ledger before it says that the run's end is not there.
    pub(super) fn all_leaves_of(self, run_id: RunId) -> Result<RunLeaves, LogError> {
        let found = self.leaves_of(run_id)?;
        if found.has_end() { Ok(found) } else { self.leaves_from(1, run_id) }
    }

    fn leaves_from(self, mut seq: u64, run_id: RunId) -> Result<RunLeaves, LogError> {
        let mut found = RunLeaves::default();
        loop {
            let entries = self.0.ledger(seq, 64)?;
            let Some(last) = entries.last().filter(|_| !found.has_end()) else { return Ok(found) };
            seq = last.seq + 1;
            for entry in &entries {
                match open(entry)? {
                    Opened::Tree(tree) => {
                        let (entry, first) = (tree.seq, tree.first);
                        for (i, (text, leaf)) in tree.leaves.into_iter().enumerate() {
                            if leaf.head().is_some_and(|head| head.run_id == run_id) {
                                found.tree.push(PlacedLeaf { entry, index: first + i as u64, text, leaf });
                            }
                        }
                    }
                    Opened::Chained(chained) => {
                        let heads = chained.runs.into_iter().filter(|head| head.run_id == run_id);
                        found.chained.extend(heads.map(|head| (chained.seq, head)));
                    }
                }
            }
        }
    }
}

/// Everything the ledger says about one run.
#[derive(Default)]
pub(super) struct RunLeaves {
    pub(super) tree: Vec<PlacedLeaf>,
    pub(super) chained: Vec<(u64, RunHead)>,
}

impl RunLeaves {
    fn has_end(&self) -> bool {
        !self.chained.is_empty() || self.tree.iter().any(|placed| matches!(placed.leaf, Leaf::Run { .. }))
    }
}

/// When a run's id was made. The row has the time at which the run ended, but an attacker who shortens a record can
/// edit its row as well; the ledger identifies the run by its id.
fn born(run_id: RunId) -> Option<Timestamp> {
    let (seconds, nanos) = run_id.as_uuid().get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}
