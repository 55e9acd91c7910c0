//! The ledger: the last chain values (heads) of all ended runs, chained and signed for the whole store.
//!
//! A run's own chain proves that nothing inside the run was changed. The ledger proves that the run still exists: each
//! entry lists the heads of runs that ended since the previous entry, is chained to it, and is signed. Entries are made
//! in the background, many runs in one entry, so that a single call does not pay for a signature.
//!
//! Only a run whose end has a signature or a valid tag is added. If a start finds another ended run in the database, it
//! does not sign it; `verify` names it.

mod verify;

pub use verify::{BadRun, LedgerReport, UnsignedRun, VerifyReport, verify_ledger, verify_run};

use crate::{
    Store,
    chain::{BadRecord, ChainWalker, Signer, Verifier},
    store::{LedgerEntry, RunFilter, StoreError},
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};
use toolyard_protocol::{RunId, RunStatus, canonical};

const ORIGIN: &str = "toolyard/ledger";
/// Heads in one entry at most.
const HEADS_PER_ENTRY: usize = 4096;
/// Number of the newest ended runs that are checked at a start for missing ledger entries.
const MAX_UNSEALED: usize = 10_000;
/// A run is sealed within this time of its end, or not before the next start.
const SEAL_MARGIN: SignedDuration = SignedDuration::from_mins(2);

/// The end of one run's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunHead {
    /// The run.
    pub run_id: RunId,
    /// Its last record's number.
    pub seq: u64,
    /// Its chain value, hex.
    pub hash: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    seq: u64,
    at: Timestamp,
    runs: Vec<RunHead>,
    /// The runs had ended in an earlier process and had no entry when this one started: that process died before it
    /// sealed them, or their entry was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    found_at_start: bool,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    /// The signed part, as text, so that checking it needs no canonical form.
    body: String,
    note: String,
}

/// Collects heads and seals them into the ledger.
pub struct Sealer {
    store: Arc<dyn Store>,
    signer: Arc<Signer>,
    waiting: Mutex<Vec<RunHead>>,
}

/// What [`Sealer::seal_found`] did with the runs that had ended without an entry.
#[derive(Debug, Default)]
pub struct FoundRuns {
    /// Sealed: their end was written by this program.
    pub sealed: usize,
    /// Not sealed: nothing proves how they ended.
    pub unsigned: Vec<RunId>,
}

impl Sealer {
    /// A sealer for one store.
    pub fn new(store: Arc<dyn Store>, signer: Arc<Signer>) -> Self {
        Self { store, signer, waiting: Mutex::default() }
    }

    /// Notes that a run has ended.
    pub fn run_ended(&self, run_id: RunId, seq: u64, chain: &[u8; 32]) {
        let head = RunHead { run_id, seq, hash: canonical::hex(chain) };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(head);
    }

    /// Adds runs that ended shortly before a crash and are not in the ledger, provided that this program wrote their
    /// end. Call this before anything else is added, because a new entry moves the time window. May block.
    pub fn seal_found(&self) -> Result<FoundRuns, StoreError> {
        let (sealed, since) = recently_sealed(&*self.store)?;
        let filter = RunFilter {
            statuses: vec![RunStatus::Finished, RunStatus::Failed, RunStatus::Cancelled],
            limit: MAX_UNSEALED,
            ..RunFilter::default()
        };
        let verifier = self.signer.verifier();
        let mut found = FoundRuns::default();
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
        for runs in heads.chunks(HEADS_PER_ENTRY) {
            self.append(Timestamp::now(), runs, true)?;
        }
        Ok(found)
    }

    /// Notes the end of a run that another process recorded, if that process is known to have written it. May block.
    pub(crate) fn note_found_end(&self, run_id: RunId) -> Result<(), StoreError> {
        if let Some(head) = proven_end(&*self.store, run_id, &self.signer.verifier())? {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        }
        Ok(())
    }

    /// Whether there is nothing to seal.
    pub fn is_idle(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Seals everything noted so far. May block. What could not be sealed stays noted.
    pub fn seal(&self) -> Result<(), StoreError> {
        loop {
            let runs: Vec<RunHead> = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let n = waiting.len().min(HEADS_PER_ENTRY);
                waiting.drain(..n).collect()
            };
            if runs.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.append(Timestamp::now(), &runs, false) {
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(runs);
                return Err(error);
            }
        }
    }

    fn append(&self, at: Timestamp, runs: &[RunHead], found_at_start: bool) -> Result<(), StoreError> {
        let body = |seq| Body { seq, at, runs: runs.to_vec(), found_at_start };
        // The store asks for the entry while it holds the ledger, when it is too late for a failure.
        serde_json::to_string(&body(0)).map_err(|e| StoreError(format!("a ledger entry cannot be written: {e}")))?;
        self.store.ledger_append(&mut |last| self.entry(last, &body(last.map_or(1, |e| e.seq + 1))))?;
        Ok(())
    }

    fn entry(&self, last: Option<&LedgerEntry>, body: &Body) -> (Vec<u8>, [u8; 32]) {
        let previous = last.map_or([0; 32], |e| e.chain);
        let seq = body.seq;
        // `append` has written the same body once; only its number differs. A payload is two texts.
        let body = serde_json::to_string(body).unwrap_or_default();
        let chain = link(&previous, &body);
        let payload = Payload { note: self.signer.sign(ORIGIN, seq, &chain), body };
        (serde_json::to_vec(&payload).unwrap_or_default(), chain)
    }
}

/// The head up to which the record of an ended run is proven, or nothing when its chain is broken or its end unsigned.
fn proven_end(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<Option<RunHead>, StoreError> {
    let mut walker = ChainWalker::new(run_id, Some(verifier));
    let mut sound = true;
    store.frames(run_id, 1, &mut |frame| {
        sound = walker.step(&frame).is_ok();
        if sound { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let end = walker.proven().filter(|_| sound && walker.is_finished());
    Ok(end.map(|(seq, chain)| RunHead { run_id, seq, hash: canonical::hex(&chain) }))
}

/// The runs named in the last minutes of the ledger, and where those minutes begin: whatever ended before is sealed.
fn recently_sealed(store: &dyn Store) -> Result<(HashSet<RunId>, Option<Timestamp>), StoreError> {
    let body_at = |seq: u64| -> Result<Option<Body>, StoreError> {
        let entry = store.ledger(seq, 1)?.into_iter().next();
        Ok(entry
            .and_then(|e| serde_json::from_slice::<Payload>(&e.payload).ok())
            .and_then(|p| serde_json::from_str(&p.body).ok()))
    };
    let mut seq = last_seq(store)?;
    let mut sealed = HashSet::new();
    let mut since = None;
    while seq > 0
        && let Some(body) = body_at(seq)?
    {
        let begin = *since.get_or_insert(body.at - SEAL_MARGIN);
        if body.at < begin {
            break;
        }
        sealed.extend(body.runs.into_iter().map(|head| head.run_id));
        seq -= 1;
    }
    Ok((sealed, since))
}

/// The number of the last entry, 0 when there is none.
fn last_seq(store: &dyn Store) -> Result<u64, StoreError> {
    let there = |seq: u64| -> Result<bool, StoreError> { Ok(!store.ledger(seq, 1)?.is_empty()) };
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

fn link(previous: &[u8; 32], body: &str) -> [u8; 32] {
    let mut h = Sha256::new();
    h.update(previous);
    h.update(body.as_bytes());
    h.finalize().into()
}

fn open(entry: &LedgerEntry, previous: Option<&[u8; 32]>, verifier: &Verifier) -> Result<Body, BadRecord> {
    let bad = |problem: &str| BadRecord { seq: entry.seq, problem: problem.to_owned() };
    let payload: Payload =
        serde_json::from_slice(&entry.payload).map_err(|_| bad("the ledger entry cannot be read"))?;
    if previous.is_some_and(|p| link(p, &payload.body) != entry.chain) {
        return Err(bad("the ledger entry does not follow from the one before it"));
    }
    if !verifier.check(&payload.note, ORIGIN, entry.seq, &entry.chain) {
        return Err(bad("the ledger entry's signature is not valid"));
    }
    serde_json::from_str(&payload.body).map_err(|_| bad("the ledger entry's body cannot be read"))
}
