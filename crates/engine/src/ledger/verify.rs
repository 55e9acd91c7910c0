//! Verifies one run, or every run of a store against the ledger, and reports what does not match and what is unproven.

use super::{Body, Payload, RunHead, open};
use crate::{
    Store,
    chain::{BadRecord, ChainWalker, UnsignedRecords, Verifier},
    store::{LedgerEntry, RunFilter, RunRow, StoreError},
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, ops::ControlFlow};
use toolyard_protocol::{ErrorCode, Failure, RunId, canonical};

/// A report names at most this many runs of each sort; the counts are complete.
const MAX_NAMED: usize = 1000;
/// Rows read at a time while every run is checked.
const ROWS_PER_PAGE: usize = 1000;
/// Ledger entries read at a time.
const ENTRIES_PER_PAGE: usize = 256;

const UNSIGNED_END: &str = "the run has ended, and from this record on neither a signature nor the ledger proves what \
     its record says: it was written by somebody without the key, or its ledger entry was removed";

/// What verifying a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The run.
    pub run_id: RunId,
    /// True when everything holds.
    pub ok: bool,
    /// Number of records checked.
    pub records: u64,
    /// Chain value of the last record, hex.
    pub head: String,
    /// The last record covered by a signature inside the run.
    pub signed_seq: u64,
    /// The ledger entry that holds this run's head, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_entry: Option<u64>,
    /// Records that no signature covered when the run was resumed after a crash. Nothing contradicts them, and nothing
    /// proves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsigned: Vec<UnsignedRecords>,
    /// The first record that does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<BadRecord>,
}

/// Checks one run: numbering, chain, checkpoints, and its head against the ledger. May block.
pub fn verify_run(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<VerifyReport, Failure> {
    let row = store.run(run_id)?;
    let found = find_in_ledger(store, run_id, born(run_id), verifier)?;
    let (entry, bad_entry) = match found {
        Some(Ok(entry)) => (Some(entry), None),
        Some(Err(bad)) => (None, Some(bad)),
        None => (None, None),
    };
    let walk = walk(store, run_id, verifier, entry.as_ref().map(|(_, head)| head))?;
    let (records, chain) = walk.walker.head();
    if row.is_none() && records == 0 && walk.first_bad.is_none() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")));
    }
    let unsealed = entry.is_none();
    let first_bad = walk.first_bad.clone().or(bad_entry).or_else(|| walk.unproven_end(row.as_ref(), unsealed));
    Ok(VerifyReport {
        run_id,
        ok: first_bad.is_none(),
        records,
        head: canonical::hex(&chain),
        signed_seq: walk.walker.signed_seq(),
        ledger_entry: entry.filter(|_| walk.first_bad.is_none()).map(|(seq, _)| seq),
        unsigned: walk.walker.found_unsigned().to_vec(),
        first_bad,
    })
}

/// A run's frames, walked to the end or to the first bad one.
struct Walk<'a> {
    walker: ChainWalker<'a>,
    first_bad: Option<BadRecord>,
}

/// Walks a run. It may have grown since it was sealed (a late answer is noted after the end), but must contain the
/// sealed head.
fn walk<'a>(
    store: &dyn Store,
    run_id: RunId,
    verifier: &'a Verifier,
    sealed: Option<&RunHead>,
) -> Result<Walk<'a>, StoreError> {
    let mut walker = ChainWalker::new(run_id, Some(verifier));
    let mut first_bad = None;
    store.frames(run_id, 1, &mut |frame| {
        first_bad = walker.step(&frame).err().or_else(|| {
            let head = sealed.filter(|head| head.seq == frame.seq)?;
            let problem = "its chain value is not the one sealed in the ledger when the run ended".to_owned();
            (canonical::hex(&frame.chain) != head.hash).then_some(BadRecord { seq: frame.seq, problem })
        });
        if first_bad.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let (records, _) = walker.head();
    if let Some(head) = sealed.filter(|head| first_bad.is_none() && records < head.seq) {
        let problem = format!("missing: the ledger says the run had {} records when it ended", head.seq);
        first_bad = Some(BadRecord { seq: records + 1, problem });
    }
    Ok(Walk { walker, first_bad })
}

impl Walk<'_> {
    /// The first record that nothing proves, of a run that has ended and is not in the ledger.
    fn unproven_end(&self, row: Option<&RunRow>, unsealed: bool) -> Option<BadRecord> {
        let ended = self.walker.is_finished() || row.is_some_and(|row| row.status.is_final());
        let proven = self.walker.is_finished() && self.walker.proven().is_some();
        (self.first_bad.is_none() && unsealed && ended && !proven).then(|| BadRecord {
            seq: self.walker.unproven_tail().map_or(self.walker.head().0 + 1, |tail| tail.from),
            problem: UNSIGNED_END.to_owned(),
        })
    }
}

/// The time in a run's id. The row contains the time when the run ended, but somebody who shortens a record can edit
/// its row too; the ledger refers to the run by its id.
fn born(run_id: RunId) -> Option<Timestamp> {
    let (seconds, nanos) = run_id.as_uuid().get_timestamp()?.to_unix();
    Timestamp::new(i64::try_from(seconds).ok()?, i32::try_from(nanos).ok()?).ok()
}

type EntryOfRun = Option<Result<(u64, RunHead), BadRecord>>;
/// Entries carry the time they were made, which never decreases: a binary search finds where to begin.
fn find_in_ledger(
    store: &dyn Store,
    run_id: RunId,
    since: Option<Timestamp>,
    verifier: &Verifier,
) -> Result<EntryOfRun, Failure> {
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

/// A run that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BadRun {
    /// The run.
    pub run_id: RunId,
    /// Its first record that does not hold, and why.
    #[serde(flatten)]
    pub first_bad: BadRecord,
}

/// A run with records that nothing proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnsignedRun {
    /// The run.
    pub run_id: RunId,
    /// The range of records.
    #[serde(flatten)]
    pub records: UnsignedRecords,
}

/// What verifying the whole store found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerReport {
    /// True when everything holds.
    pub ok: bool,
    /// Number of entries checked.
    pub entries: u64,
    /// Runs they name.
    pub runs: u64,
    /// Records checked, of every run in the store.
    pub records: u64,
    /// The first entry that does not hold. Runs are not checked then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<BadRecord>,
    /// Runs that the ledger names and the store no longer has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_runs: Vec<RunId>,
    /// How many runs do not hold.
    pub bad: u64,
    /// Those runs, with the first bad record of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_runs: Vec<BadRun>,
    /// How many runs have records that were found unsigned after a crash.
    pub unsigned: u64,
    /// Those records. Nothing contradicts them, and nothing proves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsigned_runs: Vec<UnsignedRun>,
    /// Number of runs that had no entry when a later process started, and were added then because this program had
    /// written their end. A crash leaves a few; a large number means that somebody removed entries.
    pub sealed_at_start: u64,
}

impl LedgerReport {
    fn take(&mut self, run_id: RunId, walk: &Walk<'_>, row: &RunRow, unsealed: bool) {
        self.records += walk.walker.head().0;
        let first_bad = walk.first_bad.clone().or_else(|| walk.unproven_end(Some(row), unsealed));
        if let Some(first_bad) = first_bad {
            self.bad += 1;
            if self.bad_runs.len() < MAX_NAMED {
                self.bad_runs.push(BadRun { run_id, first_bad });
            }
        }
        let unsigned = walk.walker.found_unsigned();
        self.unsigned += u64::from(!unsigned.is_empty());
        let room = MAX_NAMED.saturating_sub(self.unsigned_runs.len());
        self.unsigned_runs.extend(unsigned.iter().take(room).map(|records| UnsignedRun { run_id, records: *records }));
    }
}

/// Checks the whole ledger, that every run it names is still there and ends as sealed, and the chain and signatures of
/// every run in the store. May block, for about as long as reading the whole store takes.
pub fn verify_ledger(store: &dyn Store, verifier: &Verifier) -> Result<LedgerReport, Failure> {
    let mut report = LedgerReport::default();
    let mut sealed: HashSet<RunId> = HashSet::new();
    let mut previous = [0; 32];
    loop {
        let entries = store.ledger(report.entries + 1, ENTRIES_PER_PAGE)?;
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
            report.sealed_at_start += if body.found_at_start { body.runs.len() as u64 } else { 0 };
            for head in body.runs {
                report.runs += 1;
                let Some(row) = store.run(head.run_id)? else {
                    report.missing_runs.push(head.run_id);
                    continue;
                };
                // Two processes may seal one run; its frames are walked once and the heads compared each time.
                let walk = walk(store, head.run_id, verifier, Some(&head))?;
                if sealed.insert(head.run_id) || walk.first_bad.is_some() {
                    report.take(head.run_id, &walk, &row, false);
                }
            }
            previous = entry.chain;
            report.entries = entry.seq;
        }
    }
    verify_unsealed(store, verifier, &sealed, &mut report)?;
    report.ok = report.missing_runs.is_empty() && report.bad == 0;
    Ok(report)
}

/// Checks the runs that are not in the ledger: those in flight, and those that ended and were not added.
fn verify_unsealed(
    store: &dyn Store,
    verifier: &Verifier,
    sealed: &HashSet<RunId>,
    report: &mut LedgerReport,
) -> Result<(), Failure> {
    let mut before = None;
    loop {
        let rows = store.runs(&RunFilter { before, limit: ROWS_PER_PAGE, ..RunFilter::default() })?;
        let Some(last) = rows.last() else { return Ok(()) };
        before = Some(last.run_id);
        for row in rows.iter().filter(|row| !sealed.contains(&row.run_id)) {
            report.take(row.run_id, &walk(store, row.run_id, verifier, None)?, row, true);
        }
    }
}
