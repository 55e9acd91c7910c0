//! The ledger: a Merkle tree over the heads of all ended runs, signed.
//!
//! A run's own chain proves that nothing inside it was changed. The ledger proves that the run itself is still there:
//! each ended run is a leaf of a tree in the form of C2SP tlog-tiles, whose root is signed as a C2SP checkpoint. Leaves
//! are added in the background, many to an entry, so that a single call does not need a signature of its own.
//!
//! Only a run whose end carries a signature or a valid tag is sealed. A start that finds another one in the database
//! does not sign it: `verify` names it.
//!
//! | module | holds |
//! |---|---|
//! | `tree` | hashes and proofs |
//! | `entry` | leaves, and an entry's bytes |
//! | `log` | reading: where things lie in the ledger, keys, proofs |
//! | `walk` | checking the whole tree |
//! | `runs` | checking one run's records |
//! | `facts` | checking facts against what the ledger names |
//! | `verify` | checking everything |
//! | `heads` | signed heads that are kept elsewhere |
//! | `receipt` | proofs for others |
//! | `tiles` | the tree as files |

mod changes;
mod entry;
mod facts;
mod heads;
mod log;
mod receipt;
mod runs;
mod tiles;
pub mod tree;
mod verify;
mod walk;

pub use changes::{KeyChange, SignedInclusion, key_changes};
pub use entry::{Leaf, ORIGIN, RunHead, chained_entry};
pub(crate) use facts::{last_entry_at, named_versions, names_facts};
pub use heads::{SavedHead, SignedHead, read_heads};
pub use receipt::{Receipt, ReceiptProblem, ReceiptRecord, ReceiptReport, verify_receipt};
pub(crate) use runs::TITLE_CHARS;
pub use runs::VerifyReport;
pub use tiles::{WrittenTiles, write_tiles};
pub use verify::{
    BadRun, FirstBad, LedgerReport, ProblemLocation, UnsignedRun, VerifyOptions, verify_ledger, verify_run,
};

use crate::{
    SealedStore, Store,
    chain::{ChainWalker, Signer, Verifier},
    fact_seal::FactChanges,
    store::{LedgerEntry, RunFilter, StoreError},
};
use arc_swap::ArcSwapOption;
use entry::Opened;
use jiff::{SignedDuration, Timestamp};
use log::{Log, LogError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use toolyard_protocol::{RunId, RunStatus};
use tree::{Edge, Hash};

/// Leaves in one entry at most.
const LEAVES_PER_ENTRY: usize = 4096;
/// Changes of facts in one entry at most.
const FACTS_PER_ENTRY: usize = 2048;
/// At a start, this many of the newest ended runs are looked at for ones that were not sealed.
const MAX_UNSEALED: usize = 10_000;
/// A run is sealed within this time of its end, or not before the next start.
const SEAL_MARGIN: SignedDuration = SignedDuration::from_mins(2);

/// A listener that receives every new signed head. It must return at once.
pub type HeadListener = Box<dyn Fn(&SignedHead) + Send + Sync>;

/// Collects heads and seals them into the ledger.
pub struct Sealer {
    store: Arc<dyn Store>,
    signer: Arc<Signer>,
    waiting: Mutex<Vec<Waiting>>,
    tip: Mutex<Option<Tip>>,
    /// Changes of facts that the next entry names.
    facts: Arc<FactChanges>,
    /// Held while an entry is appended.
    appending: Mutex<()>,
    /// Whether the store is known to have no chained ledger that the tree must begin with.
    has_tree: AtomicBool,
    listener: ArcSwapOption<HeadListener>,
}

/// A head that waits for the next entry.
enum Waiting {
    Ended(RunHead),
    Open(RunHead),
}

impl Waiting {
    fn leaf(&self, at: i64) -> Leaf {
        match self {
            Self::Ended(head) => Leaf::Run { head: head.clone(), at, found: false },
            Self::Open(head) => Leaf::Open { head: head.clone(), at, unsigned: false },
        }
    }
}

/// The tree after the last entry that this process knows.
#[derive(Clone)]
struct Tip {
    seq: u64,
    root: Hash,
    key_from: u64,
    edge: Edge,
}

/// What [`Sealer::seal_found`] did with the runs that had ended without an entry.
#[derive(Debug, Default)]
pub struct SealReport {
    /// Sealed: their end was written by this program.
    pub sealed: usize,
    /// Not sealed: nothing proves how they ended.
    pub unsigned: Vec<RunId>,
}

impl Sealer {
    /// A sealer for one store.
    pub fn new(store: Arc<dyn Store>, signer: Arc<Signer>) -> Self {
        Self {
            store,
            signer,
            waiting: Mutex::default(),
            tip: Mutex::default(),
            facts: Arc::default(),
            appending: Mutex::default(),
            has_tree: AtomicBool::new(false),
            listener: ArcSwapOption::empty(),
        }
    }

    /// Names the facts that change through a store of sealed facts.
    #[must_use]
    pub fn naming_facts_of(self, store: &SealedStore) -> Self {
        Self { facts: store.changes(), ..self }
    }

    /// Sets the listener that is called for each new head.
    pub fn on_head(&self, listener: HeadListener) {
        self.listener.store(Some(Arc::new(listener)));
    }

    /// Notes that a run has ended.
    pub fn run_ended(&self, run_id: RunId, seq: u64, chain: &[u8; 32]) {
        self.waiting().push(Waiting::Ended(RunHead::new(run_id, seq, chain)));
    }

    /// Records the progress of a run that waits for a person, because it may wait for long.
    pub fn run_paused(&self, run_id: RunId, seq: u64, chain: &[u8; 32]) {
        self.waiting().push(Waiting::Open(RunHead::new(run_id, seq, chain)));
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds runs that ended shortly before a crash and are not in the ledger, provided that this program wrote their
    /// end. Call this before anything else is added, because a new entry moves the time window. May block.
    pub fn seal_found(&self) -> Result<SealReport, StoreError> {
        let (sealed, since) = recently_sealed(&*self.store)?;
        self.adopt_chain()?;
        let filter = RunFilter {
            statuses: vec![RunStatus::Finished, RunStatus::Failed, RunStatus::Cancelled],
            limit: MAX_UNSEALED,
            ..RunFilter::default()
        };
        let verifier = self.signer.verifier();
        let mut found = SealReport::default();
        let mut heads = Vec::new();
        for row in self.store.runs(&filter)? {
            let recent = row.ended_at.is_some_and(|at| since.is_none_or(|since| at >= since));
            if !recent || sealed.contains(&row.run_id) {
                continue;
            }
            match proven_end(&*self.store, row.run_id, &verifier)? {
                Some(head) => heads.push(head),
                None => found.unsigned.push(row.run_id),
            }
        }
        found.sealed = heads.len();
        let at = Timestamp::now().as_millisecond();
        let leaves: Vec<Leaf> = heads.into_iter().map(|head| Leaf::Run { head, at, found: true }).collect();
        for leaves in leaves.chunks(LEAVES_PER_ENTRY) {
            self.append(leaves)?;
        }
        Ok(found)
    }

    /// Begins the tree of a store whose ledger is a chain: with the end of that chain, and with the runs that were open,
    /// whose records earlier versions did not tag.
    fn adopt_chain(&self) -> Result<(), StoreError> {
        if self.has_tree.load(Ordering::Acquire) {
            return Ok(());
        }
        let last = match Log(&*self.store).last()? {
            Some(last) if matches!(entry::open(&last), Ok(Opened::Chained(_))) => last,
            _ => {
                self.has_tree.store(true, Ordering::Release);
                return Ok(());
            }
        };
        let leaves = self.open_leaves(&[self.signer.verifier()])?;
        for leaves in leaves.chunks(LEAVES_PER_ENTRY - 1) {
            self.append(leaves)?;
        }
        if leaves.is_empty() {
            self.append(&[])?; // the end of the chain is a leaf by itself
        }
        self.has_tree.store(true, Ordering::Release);
        tracing::info!(entries = last.seq, "the ledger of an earlier version was taken into the tree");
        Ok(())
    }

    /// A leaf for each run that has not ended, with whether one of the keys proves its last record.
    fn open_leaves(&self, verifiers: &[Verifier]) -> Result<Vec<Leaf>, StoreError> {
        let statuses = vec![RunStatus::Pending, RunStatus::Running, RunStatus::Paused];
        let filter = RunFilter { statuses, limit: MAX_UNSEALED, ..RunFilter::default() };
        let at = Timestamp::now().as_millisecond();
        let mut leaves = Vec::new();
        for row in self.store.runs(&filter)? {
            let mut head = None;
            let mut unsigned = true;
            for verifier in verifiers {
                if let Some(walker) = walk_sound(&*self.store, row.run_id, verifier)? {
                    unsigned &= walker.unproven_tail().is_some();
                    head = Some(walker.head());
                }
            }
            if let Some((seq, chain)) = head.filter(|(seq, _)| *seq > 0) {
                leaves.push(Leaf::Open { head: RunHead::new(row.run_id, seq, &chain), at, unsigned });
            }
        }
        Ok(leaves)
    }

    /// Replaces the signing key: an entry signed with the old key names the new one, `keep` makes the new key the one
    /// that the next start reads, and an entry signed with the new key follows. May block.
    pub fn rotate(
        &self,
        secret: &[u8; 32],
        keep: &dyn Fn() -> Result<(), StoreError>,
    ) -> Result<SignedHead, StoreError> {
        self.seal()?;
        let old = self.signer.verifier();
        let new = Signer::from_secret(old.name(), secret).verifier();
        let at = Timestamp::now().as_millisecond();
        self.append(&[Leaf::Key { old: old.to_text(), new: new.to_text(), at }])?;
        keep()?;
        self.signer.replace(secret);
        let new = self.signer.verifier();
        let mut leaves = vec![Leaf::KeyAccepted { key: new.to_text(), at }];
        leaves.extend(self.open_leaves(&[old, new])?.into_iter().take(LEAVES_PER_ENTRY - 1));
        self.append(&leaves)
    }

    /// Records in the ledger that runs are removed from the store on purpose. Must be called before they are removed.
    /// May block.
    pub fn prune(&self, heads: Vec<RunHead>) -> Result<(), StoreError> {
        let at = Timestamp::now().as_millisecond();
        let leaves: Vec<Leaf> = heads.into_iter().map(|head| Leaf::Pruned { head, at }).collect();
        leaves.chunks(LEAVES_PER_ENTRY).try_for_each(|leaves| self.append(leaves).map(drop))
    }

    /// Notes the end of a run that another process recorded, if that process is known to have written it. May block.
    pub(crate) fn note_found_end(&self, run_id: RunId) -> Result<(), StoreError> {
        if let Some(head) = proven_end(&*self.store, run_id, &self.signer.verifier())? {
            self.waiting().push(Waiting::Ended(head));
        }
        Ok(())
    }

    /// Whether there is nothing to seal.
    pub fn is_idle(&self) -> bool {
        self.waiting().is_empty() && self.facts.is_idle()
    }

    /// Seals everything noted so far. May block. What could not be sealed is kept for the next attempt.
    pub fn seal(&self) -> Result<(), StoreError> {
        loop {
            let heads: Vec<Waiting> = {
                let mut waiting = self.waiting();
                let n = waiting.len().min(LEAVES_PER_ENTRY);
                waiting.drain(..n).collect()
            };
            // A change that is not due waits for company.
            let changes = if heads.is_empty() && self.facts.is_idle() { Vec::new() } else { self.facts.take() };
            if heads.is_empty() && changes.is_empty() {
                return Ok(());
            }
            let at = Timestamp::now().as_millisecond();
            let mut leaves: Vec<Leaf> = heads.iter().map(|head| head.leaf(at)).collect();
            let (now, later) = changes.split_at(changes.len().min(FACTS_PER_ENTRY));
            if !now.is_empty() {
                leaves.push(Leaf::Facts { changes: now.to_vec(), at });
            }
            if let Err(error) = self.adopt_chain().and_then(|()| self.append(&leaves)) {
                self.waiting().extend(heads);
                self.facts.put_back(changes);
                return Err(error);
            }
            self.facts.put_back(later.to_vec());
        }
    }

    /// The newest signed head, `None` before anything was sealed. May block.
    pub fn head(&self) -> Result<Option<SignedHead>, StoreError> {
        let log = Log(&*self.store);
        let entry = match log.last_seq()? {
            0 => None,
            last => log.tree_entry(last)?,
        };
        Ok(entry.map(|entry| SignedHead::of(&entry, &self.signer.verifier())))
    }

    /// Whether only one head of the tree was ever signed. May block.
    pub fn has_one_head(&self) -> Result<bool, StoreError> {
        let log = Log(&*self.store);
        let last = log.last_seq()?;
        Ok(last > 0 && log.tree_entry(last)?.is_some_and(|entry| entry.first == 0))
    }

    fn append(&self, leaves: &[Leaf]) -> Result<SignedHead, StoreError> {
        // One at a time: the store may write two entries in one transaction, and the second would be made from the first
        // before that can be read.
        let _one = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = None;
        let appended = self.store.ledger_append(&mut |last| {
            let (mut tip, chain) = self.tip_after(last)?;
            tip.seq += 1;
            let chain = chain.map(|(entries, head)| {
                let at = Timestamp::now().as_millisecond();
                Leaf::Chain { entries, head: toolyard_protocol::canonical::hex(&head), at }
            });
            let all: Vec<Leaf> = chain.into_iter().chain(leaves.iter().cloned()).collect();
            let (payload, root) = entry::make(&self.signer, tip.seq, tip.key_from, &mut tip.edge, &all)?;
            tip.root = root;
            made = Some(tip);
            Ok((payload, root))
        })?;
        *self.tip.lock().unwrap_or_else(PoisonError::into_inner) = made;
        let Opened::Tree(entry) = entry::open(&appended).map_err(LogError::from)? else {
            return Err(StoreError::failed("the ledger entry is not what was made".to_owned()));
        };
        let head = SignedHead::of(&entry, &self.signer.verifier());
        if let Some(listener) = &*self.listener.load() {
            listener(&head);
        }
        Ok(head)
    }

    /// The tree after the last entry; and the number and chain value of that entry where it is the last of a chain.
    fn tip_after(&self, last: Option<&LedgerEntry>) -> Result<(Tip, Option<(u64, Hash)>), StoreError> {
        let empty = |seq| Tip { seq, root: [0; 32], key_from: 0, edge: Edge::default() };
        let Some(last) = last else { return Ok((empty(0), None)) };
        let known = self.tip.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let entry = match entry::open(last).map_err(LogError::from)? {
            Opened::Chained(_) => return Ok((empty(last.seq), Some((last.seq, last.chain)))),
            Opened::Tree(entry) => entry,
        };
        let ours = self.signer.verifier();
        let replaced = entry.leaves.iter().find_map(|(_, leaf)| match leaf {
            Leaf::Key { new, .. } => Some(new),
            _ => None,
        });
        let signed_here = entry.sig.get(..4).map(toolyard_protocol::canonical::hex) == Some(ours.id());
        let key_from = match replaced {
            Some(new) if *new == ours.to_text() => entry.seq,
            None if signed_here => entry.key_from,
            _ => {
                return Err(StoreError::failed(
                    "the signing key was replaced by another process: start this one again".to_owned(),
                ));
            }
        };
        let edge = match known.filter(|known| known.seq == last.seq && known.root == last.chain) {
            Some(known) => known.edge,
            None => Log(&*self.store).edge_after(last.seq)?,
        };
        Ok((Tip { seq: last.seq, root: last.chain, key_from, edge }, None))
    }
}

/// Walks a run's records; nothing when its chain is broken.
fn walk_sound<'a>(
    store: &dyn Store,
    run_id: RunId,
    verifier: &'a Verifier,
) -> Result<Option<ChainWalker<'a>>, StoreError> {
    let mut walker = ChainWalker::new(run_id, Some(verifier));
    let mut sound = true;
    store.frames(run_id, 1, &mut |frame| {
        sound = walker.step(&frame).is_ok();
        if sound { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(sound.then_some(walker))
}

/// The head up to which the record of an ended run is proven, or nothing when its chain is broken or its end unproven.
fn proven_end(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<Option<RunHead>, StoreError> {
    let walker = walk_sound(store, run_id, verifier)?;
    let end = walker.and_then(|walker| walker.proven_end().filter(|_| walker.unproven_tail().is_none()));
    Ok(end.map(|(seq, chain)| RunHead::new(run_id, seq, &chain)))
}

/// Whether the last entry of the ledger names this key as the next one: a process died while it replaced the key.
pub fn announces(store: &dyn Store, key: &Verifier) -> Result<bool, StoreError> {
    let log = Log(store);
    let last = match log.last_seq()? {
        0 => None,
        last => log.tree_entry(last)?,
    };
    let names = |leaf: &Leaf| matches!(leaf, Leaf::Key { new, .. } if *new == key.to_text());
    Ok(last.is_some_and(|entry| entry.leaves.iter().any(|(_, leaf)| names(leaf))))
}

/// A key, and the entries of the ledger that it signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeySpan {
    /// The verifier key (C2SP signed-note): name, id and public key.
    pub key: String,
    /// The first entry that it signed.
    pub from: u64,
    /// The last one; absent for the key in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// The keys that signed the ledger, the one in use last. May block.
pub fn keys(store: &dyn Store, present: &Verifier) -> Result<Vec<KeySpan>, StoreError> {
    let keys = Log(store).keys(present)?;
    let next = keys.iter().skip(1).map(|(from, _)| Some(from - 1)).chain([None]);
    Ok(keys
        .iter()
        .zip(next)
        .map(|((from, key), to)| KeySpan { key: key.to_text(), from: (*from).max(1), to })
        .collect())
}

/// The proof that the tree of `new` leaves extends the one of `old` leaves (RFC 6962). May block.
pub fn prove_consistency(store: &dyn Store, old: u64, new: u64) -> Result<Vec<Hash>, StoreError> {
    Ok(Log(store).consistency(old, new)?)
}

/// How far the ledger says that a run had come while it was open, and whether nothing else proves that.
pub(crate) fn open_head(store: &dyn Store, run_id: RunId) -> Result<Option<(RunHead, bool)>, StoreError> {
    let leaves = Log(store).leaves_of(run_id)?;
    Ok(leaves.tree.into_iter().rev().find_map(|placed| match placed.leaf {
        Leaf::Open { head, unsigned, .. } => Some((head, unsigned)),
        _ => None,
    }))
}

/// The runs named in the last minutes of the ledger, and where those minutes begin: whatever ended before is sealed.
fn recently_sealed(store: &dyn Store) -> Result<(HashSet<RunId>, Option<Timestamp>), StoreError> {
    let log = Log(store);
    let mut seq = log.last_seq()?;
    let mut sealed = HashSet::new();
    let mut since = None;
    while seq > 0
        && let Some(entry) = log.entry(seq)?
        && let Ok(opened) = entry::open(&entry)
    {
        let (at, runs) = match opened {
            Opened::Tree(entry) => {
                let at = Timestamp::from_millisecond(entry.at()).unwrap_or_default();
                let ended = entry.leaves.into_iter().filter_map(|(_, leaf)| match leaf {
                    Leaf::Run { head, .. } => Some(head),
                    _ => None,
                });
                (at, ended.collect::<Vec<_>>())
            }
            Opened::Chained(entry) => (entry.at, entry.runs),
        };
        let begin = *since.get_or_insert(at - SEAL_MARGIN);
        if at < begin {
            break;
        }
        sealed.extend(runs.into_iter().map(|head| head.run_id));
        seq -= 1;
    }
    Ok((sealed, since))
}
