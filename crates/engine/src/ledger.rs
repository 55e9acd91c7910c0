//! The ledger: the heads of all ended runs, chained and signed store-wide.
//!
//! A run's own chain proves that nothing inside it was changed. The ledger proves that the run itself is still there:
//! each entry lists the heads of runs that ended since the last, and is chained to it and signed. Entries are made in
//! the background, many runs to an entry, so that a single call does not pay for a signature of its own.

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
use toolyard_protocol::{ErrorCode, Failure, RunId, RunStatus, canonical};

const ORIGIN: &str = "toolyard/ledger";
/// Heads in one entry at most.
const HEADS_PER_ENTRY: usize = 4096;
/// At a start, this many of the newest ended runs are looked at for ones that were not sealed.
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

    /// Notes runs that ended so shortly before a crash that nobody sealed them. May block.
    pub fn note_unsealed(&self) -> Result<(), StoreError> {
        let (sealed, since) = recently_sealed(&*self.store)?;
        let filter = RunFilter {
            statuses: vec![RunStatus::Finished, RunStatus::Failed, RunStatus::Cancelled],
            limit: MAX_UNSEALED,
            ..RunFilter::default()
        };
        for row in self.store.runs(&filter)? {
            let recent = row.ended_at.is_some_and(|at| since.is_none_or(|since| at >= since));
            if !recent || sealed.contains(&row.run_id) {
                continue;
            }
            let mut head = None;
            self.store.frames(row.run_id, 1, &mut |frame| {
                head = Some((frame.seq, frame.chain));
                ControlFlow::Continue(())
            })?;
            if let Some((seq, chain)) = head {
                self.run_ended(row.run_id, seq, &chain);
            }
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
            let at = Timestamp::now();
            let made = self.store.ledger_append(&mut |last| self.entry(last, at, runs.clone()));
            if let Err(error) = made {
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(runs);
                return Err(error);
            }
        }
    }

    fn entry(&self, last: Option<&LedgerEntry>, at: Timestamp, runs: Vec<RunHead>) -> (Vec<u8>, [u8; 32]) {
        let (seq, previous) = last.map_or((1, [0; 32]), |e| (e.seq + 1, e.chain));
        let body = serde_json::to_string(&Body { seq, at, runs }).unwrap_or_default();
        let chain = link(&previous, &body);
        let payload = Payload { note: self.signer.sign(ORIGIN, seq, &chain), body };
        (serde_json::to_vec(&payload).unwrap_or_default(), chain)
    }
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

/// What verifying a run found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The run.
    pub run_id: RunId,
    /// True when everything holds.
    pub ok: bool,
    /// Records checked.
    pub records: u64,
    /// Chain value of the last record, hex.
    pub head: String,
    /// The last record covered by a signature inside the run.
    pub signed_seq: u64,
    /// The ledger entry that holds this run's head, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_entry: Option<u64>,
    /// The first record that does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<BadRecord>,
}

/// Checks one run: numbering, chain, checkpoints, and its head against the ledger. May block.
pub fn verify_run(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<VerifyReport, Failure> {
    let row = store.run(run_id)?;
    let mut walker = ChainWalker::new(run_id, Some(verifier));
    let mut first_bad = None;
    store.frames(run_id, 1, &mut |frame| match walker.step(&frame) {
        Ok(()) => ControlFlow::Continue(()),
        Err(bad) => {
            first_bad = Some(bad);
            ControlFlow::Break(())
        }
    })?;
    let (records, chain) = walker.head();
    if row.is_none() && records == 0 && first_bad.is_none() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")));
    }
    let mut ledger_entry = None;
    if first_bad.is_none() {
        match find_in_ledger(store, run_id, born(run_id), verifier)? {
            Some(Ok((entry, head))) => {
                ledger_entry = Some(entry);
                first_bad = head_mismatch(store, run_id, &head, records)?;
            }
            Some(Err(bad)) => first_bad = Some(bad),
            None => {}
        }
    }
    Ok(VerifyReport {
        run_id,
        ok: first_bad.is_none(),
        records,
        head: canonical::hex(&chain),
        signed_seq: walker.signed_seq(),
        ledger_entry,
        first_bad,
    })
}

/// The run may have grown since it was sealed (a late answer is noted after the end), but must contain the sealed head.
fn head_mismatch(store: &dyn Store, run_id: RunId, head: &RunHead, records: u64) -> Result<Option<BadRecord>, Failure> {
    if records < head.seq {
        let problem = format!("missing: the ledger says the run had {} records when it ended", head.seq);
        return Ok(Some(BadRecord { seq: records + 1, problem }));
    }
    let mut found = None;
    store.frames(run_id, head.seq, &mut |frame| {
        found = Some(canonical::hex(&frame.chain));
        ControlFlow::Break(())
    })?;
    Ok((found.as_deref() != Some(head.hash.as_str())).then(|| BadRecord {
        seq: head.seq,
        problem: "its chain value is not the one sealed in the ledger when the run ended".to_owned(),
    }))
}

/// When a run's id was made. The row says when the run ended, but whoever shortens a record can edit its row as well;
/// the id is what the ledger knows the run by.
fn born(run_id: RunId) -> Option<Timestamp> {
    let (seconds, nanos) = run_id.as_uuid().get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

type Found = Option<Result<(u64, RunHead), BadRecord>>;

/// Entries carry the time they were made, which never decreases: a binary search finds where to begin.
fn find_in_ledger(
    store: &dyn Store,
    run_id: RunId,
    since: Option<Timestamp>,
    verifier: &Verifier,
) -> Result<Found, Failure> {
    let entry_at =
        |seq: u64| -> Result<Option<LedgerEntry>, StoreError> { Ok(store.ledger(seq, 1)?.into_iter().next()) };
    let (mut low, mut high) = (1u64, 1u64);
    while entry_at(high)?.is_some() {
        high *= 2;
    }
    if let Some(since) = since {
        let since = since - SignedDuration::from_secs(60); // clocks of two processes may differ a little
        while low < high {
            let middle = low.midpoint(high);
            let before = match entry_at(middle)? {
                Some(e) => serde_json::from_slice::<Payload>(&e.payload)
                    .ok()
                    .and_then(|p| serde_json::from_str::<Body>(&p.body).ok())
                    .is_some_and(|b| b.at < since),
                None => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    let mut seq = low;
    let mut previous = if seq > 1 { entry_at(seq - 1)?.map(|e| e.chain) } else { Some([0; 32]) };
    loop {
        let entries = store.ledger(seq, 64)?;
        if entries.is_empty() {
            return Ok(None);
        }
        for entry in entries {
            match open(&entry, previous.as_ref(), verifier) {
                Err(bad) => return Ok(Some(Err(bad))),
                Ok(body) => {
                    if let Some(head) = body.runs.into_iter().find(|h| h.run_id == run_id) {
                        return Ok(Some(Ok((entry.seq, head))));
                    }
                }
            }
            previous = Some(entry.chain);
            seq = entry.seq + 1;
        }
    }
}

/// What verifying the whole store found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerReport {
    /// True when everything holds.
    pub ok: bool,
    /// Entries checked.
    pub entries: u64,
    /// Runs they name.
    pub runs: u64,
    /// The first entry that does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<BadRecord>,
    /// Runs that the ledger names and the store no longer has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_runs: Vec<RunId>,
}

/// Checks the whole ledger, and that every run it names is still there. May block.
pub fn verify_ledger(store: &dyn Store, verifier: &Verifier) -> Result<LedgerReport, Failure> {
    let mut report = LedgerReport::default();
    let mut previous = [0; 32];
    loop {
        let entries = store.ledger(report.entries + 1, 256)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            let expected = report.entries + 1;
            let opened = if entry.seq == expected {
                open(&entry, Some(&previous), verifier)
            } else {
                Err(BadRecord { seq: expected, problem: "a ledger entry is missing".to_owned() })
            };
            let body = match opened {
                Ok(body) => body,
                Err(bad) => {
                    report.first_bad = Some(bad);
                    return Ok(report);
                }
            };
            for head in body.runs {
                report.runs += 1;
                if store.run(head.run_id)?.is_none() {
                    report.missing_runs.push(head.run_id);
                }
            }
            previous = entry.chain;
            report.entries = entry.seq;
        }
    }
    report.ok = report.missing_runs.is_empty();
    Ok(report)
}
