//! Walks the whole ledger: every leaf, every signature, every key, and every kept head.

use super::{
    Leaf, RunHead,
    entry::{Opened, TreeEntry, open},
    heads::SavedHead,
    log::{Log, LogError},
    tree::{Edge, Hash, leaf_hash},
    verify::FirstBad,
};
use crate::{
    Store,
    chain::{BadRecord, Verifier},
    fact_seal::{FactChange, FactName},
    store::LedgerEntry,
};
use std::{collections::HashMap, sync::atomic::AtomicBool};
use toolyard_protocol::{Failure, RunId, canonical};

/// Entries read at a time.
const ENTRIES_PER_PAGE: usize = 512;
/// From this many signatures on a page is checked by several threads.
const PARALLEL_FROM: usize = 16;

/// What the ledger says about one run.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    /// The heads it must contain: number, chain value, and the ledger entry.
    pub(super) heads: Vec<(u64, Hash, u64)>,
    /// It has ended, by the ledger.
    pub(super) ended: bool,
    /// The records at its end that an earlier version had not tagged.
    pub(super) untagged: bool,
    /// It was removed on purpose.
    pub(super) pruned: bool,
    /// The store has it.
    pub(super) seen: AtomicBool,
}

impl Sealed {
    /// The largest number that the ledger proves.
    pub(super) fn proven(&self) -> u64 {
        self.heads.iter().map(|(seq, ..)| *seq).max().unwrap_or(0)
    }
}

/// What the ledger says about one fact.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NamedFact {
    /// The newest version that it names.
    pub(super) version: u64,
    /// When that version expires, microseconds since 1970.
    pub(super) until: Option<i64>,
    /// The entry that names it.
    pub(super) entry: u64,
}

/// What the walk found.
#[derive(Default)]
pub(super) struct WalkResult {
    pub(super) entries: u64,
    pub(super) tree_entries: u64,
    /// Leaves in the first entry of the tree.
    pub(super) first_size: u64,
    pub(super) size: u64,
    pub(super) root: Hash,
    /// Leaves, and entries' heads of chained ledgers, that are about ended runs.
    pub(super) runs: u64,
    pub(super) pruned: u64,
    pub(super) found_at_start: u64,
    pub(super) heads: u64,
    pub(super) keys: u64,
    pub(super) sealed: HashMap<RunId, Sealed>,
    /// The newest version of each fact that the ledger names.
    pub(super) facts: HashMap<FactName, NamedFact>,
    /// Whether the ledger names facts; a ledger of an earlier version does not.
    pub(super) names_facts: bool,
    pub(super) first_bad: Option<FirstBad>,
}

struct Walk<'a> {
    keys: Vec<(u64, Verifier)>,
    heads: Vec<&'a SavedHead>,
    /// How many of the heads were met.
    met: usize,
    edge: Edge,
    previous: Hash,
    in_tree: bool,
    key_from: u64,
    walked: WalkResult,
}

/// A signature that is still to be checked.
struct Job {
    seq: u64,
    body: String,
    sig: Vec<u8>,
    key: usize,
}

/// Walks the ledger. The first problem ends the walk. May block.
pub(super) fn walk(store: &dyn Store, present: &Verifier, heads: &[SavedHead]) -> Result<WalkResult, Failure> {
    let log = Log(store);
    let bad_log = |error: LogError| match error {
        LogError::Bad(bad) => Ok(WalkResult { first_bad: Some(FirstBad::ledger(bad)), ..WalkResult::default() }),
        LogError::Store(error) => {
            Ok(WalkResult { first_bad: Some(FirstBad::unreadable(&error)), ..WalkResult::default() })
        }
    };
    let keys = match log.keys(present) {
        Ok(keys) => keys,
        Err(error) => return bad_log(error),
    };
    let mut heads: Vec<&SavedHead> = heads.iter().collect();
    heads.sort_by_key(|head| head.size);
    let walked = WalkResult { keys: keys.len() as u64, ..WalkResult::default() };
    let (edge, previous) = (Edge::default(), [0; 32]);
    let mut walk = Walk { keys, heads, met: 0, edge, previous, in_tree: false, key_from: 0, walked };
    loop {
        let entries = match store.ledger(walk.walked.entries + 1, ENTRIES_PER_PAGE) {
            Ok(entries) => entries,
            Err(error) => return bad_log(error.into()),
        };
        if entries.is_empty() {
            return Ok(walk.end());
        }
        let mut jobs = Vec::new();
        let bad = entries.iter().find_map(|entry| walk.take(entry, &mut jobs).err());
        // A signature before the bad entry comes first.
        let bad = check_signatures(&walk.keys, &jobs).map(FirstBad::ledger).or(bad);
        if bad.is_some() {
            walk.walked.first_bad = bad;
            return Ok(walk.walked);
        }
    }
}

fn check_signatures(keys: &[(u64, Verifier)], jobs: &[Job]) -> Option<BadRecord> {
    let check = |jobs: &[Job]| {
        let bad = jobs.iter().find(|job| !keys[job.key].1.check_signature(&job.body, &job.sig));
        bad.map(|job| BadRecord {
            seq: job.seq,
            problem: "the ledger entry's signature is not valid: it was not made with the key that was in force".into(),
        })
    };
    if jobs.len() < PARALLEL_FROM {
        return check(jobs);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            jobs.chunks(jobs.len().div_ceil(threads)).map(|part| scope.spawn(move || check(part))).collect();
        // The result of a panicked thread counts as unchecked.
        let failed = || Some(BadRecord { seq: 0, problem: "checking the signatures failed unexpectedly".into() });
        parts.into_iter().find_map(|part| part.join().unwrap_or_else(|_| failed()))
    })
}

impl Walk<'_> {
    fn take(&mut self, entry: &LedgerEntry, jobs: &mut Vec<Job>) -> Result<(), FirstBad> {
        let expected = self.walked.entries + 1;
        let bad = |problem: &str| FirstBad::ledger(BadRecord { seq: expected, problem: problem.to_owned() });
        if entry.seq != expected {
            return Err(bad("a ledger entry is missing"));
        }
        match open(entry).map_err(FirstBad::ledger)? {
            Opened::Chained(_) if self.in_tree => return Err(bad("the ledger entry is out of place")),
            Opened::Chained(chained) => {
                // A chained ledger was signed with the first key.
                chained.check(&entry.chain, &self.previous, &self.keys[0].1).map_err(FirstBad::ledger)?;
                self.walked.found_at_start += if chained.found_at_start { chained.runs.len() as u64 } else { 0 };
                for head in chained.runs {
                    self.seal(&head, entry.seq, |sealed| {
                        sealed.ended = true;
                        sealed.untagged = true;
                    })?;
                    self.walked.runs += 1;
                }
            }
            Opened::Tree(tree) => {
                self.take_tree(&tree)?;
                let key = self.keys.iter().rposition(|(from, _)| *from <= tree.seq).unwrap_or(0);
                jobs.push(Job { seq: tree.seq, body: tree.body(), sig: tree.sig, key });
            }
        }
        self.previous = entry.chain;
        self.walked.entries = entry.seq;
        Ok(())
    }

    fn take_tree(&mut self, entry: &TreeEntry) -> Result<(), FirstBad> {
        let bad = |problem: &str| FirstBad::ledger(BadRecord { seq: entry.seq, problem: problem.to_owned() });
        let follows_chain = !self.in_tree && entry.seq > 1;
        self.in_tree = true;
        self.walked.tree_entries += 1;
        if entry.first == 0 {
            self.walked.first_size = entry.size();
        }
        if entry.first != self.edge.size() || entry.leaves.is_empty() || entry.key_from != self.key_from {
            return Err(bad("the ledger entry does not follow from the one before it"));
        }
        for (i, (text, leaf)) in entry.leaves.iter().enumerate() {
            self.edge.push(leaf_hash(text.as_bytes()));
            self.meet_heads()?;
            match leaf {
                Leaf::Chain { entries, head, .. } => {
                    let holds = follows_chain && i == 0 && *entries + 1 == entry.seq;
                    if !holds || *head != canonical::hex(&self.previous) {
                        return Err(bad("the ledger entry does not follow from the chained ledger before it"));
                    }
                }
                _ if follows_chain && i == 0 => {
                    return Err(bad("the ledger entry does not follow from the chained ledger before it"));
                }
                Leaf::Run { head, found, .. } => {
                    self.walked.runs += 1;
                    self.walked.found_at_start += u64::from(*found);
                    self.seal(head, entry.seq, |sealed| {
                        sealed.ended = true;
                        sealed.untagged = false;
                    })?;
                }
                Leaf::Open { head, unsigned, .. } => {
                    self.seal(head, entry.seq, |sealed| sealed.untagged = *unsigned)?;
                }
                Leaf::Pruned { head, .. } => {
                    self.walked.pruned += 1;
                    self.seal(head, entry.seq, |sealed| sealed.pruned = true)?;
                }
                Leaf::Key { new, .. } => {
                    // The last entry may name a key that was not used: the process died before it was.
                    if self.keys.iter().any(|(from, key)| *from == entry.seq + 1 && key.to_text() == *new) {
                        self.key_from = entry.seq;
                    }
                }
                Leaf::Facts { changes, .. } => {
                    self.walked.names_facts = true;
                    changes.iter().try_for_each(|change| self.take_fact(change, entry.seq))?;
                }
                Leaf::KeyAccepted { .. } => {}
            }
        }
        if self.edge.root() != entry.root {
            return Err(bad("the ledger entry's root is not that of its tree"));
        }
        if entry.edge.as_ref().is_some_and(|edge| *edge != self.edge) {
            return Err(bad("the ledger entry's edge is not that of its tree"));
        }
        Ok(())
    }

    fn seal(&mut self, head: &RunHead, entry: u64, mark: impl FnOnce(&mut Sealed)) -> Result<(), FirstBad> {
        let hash = canonical::unhex(&head.hash).ok_or_else(|| {
            FirstBad::ledger(BadRecord { seq: entry, problem: "the ledger entry holds a head that is none".to_owned() })
        })?;
        let sealed = self.walked.sealed.entry(head.run_id).or_default();
        sealed.heads.push((head.seq, hash, entry));
        mark(sealed);
        Ok(())
    }

    fn take_fact(&mut self, change: &FactChange, entry: u64) -> Result<(), FirstBad> {
        let name = change.name().ok_or_else(|| {
            let problem = "the ledger entry names a fact in a form that is none".to_owned();
            FirstBad::ledger(BadRecord { seq: entry, problem })
        })?;
        let newest = self.walked.facts.entry(name).or_default();
        if change.version >= newest.version {
            *newest = NamedFact { version: change.version, until: change.until, entry };
        }
        Ok(())
    }

    /// Compares the tree with the heads that were kept of this size.
    fn meet_heads(&mut self) -> Result<(), FirstBad> {
        while let Some(head) = self.heads.get(self.met).filter(|head| head.size <= self.edge.size()) {
            let problem = if head.size == self.edge.size() && head.root == self.edge.root() {
                self.met += 1;
                continue;
            } else {
                format!("the ledger's first {} leaves are not those that this head was signed for", head.size)
            };
            return Err(FirstBad::head(head, problem));
        }
        Ok(())
    }

    fn end(mut self) -> WalkResult {
        if let Some(head) = self.heads.get(self.met) {
            let problem = format!(
                "the ledger had {} leaves when this head was signed and has {} now: the store was rolled back",
                head.size,
                self.edge.size()
            );
            self.walked.first_bad = Some(FirstBad::head(head, problem));
        } else if let Some(head) = self.heads.iter().find(|head| {
            let signed = |(_, key): &(u64, Verifier)| key.check(&head.note, super::ORIGIN, head.size, &head.root);
            !self.keys.iter().any(signed)
        }) {
            let problem = "the head's signature is not valid: no key of this store made it".to_owned();
            self.walked.first_bad = Some(FirstBad::head(head, problem));
        }
        self.walked.heads = self.heads.len() as u64;
        self.walked.size = self.edge.size();
        self.walked.root = self.edge.root();
        self.walked
    }
}
