//! Checks one run, or everything in a store: ledger, heads, blobs and the records of every run; reports the first
//! problem and the unproven records.

use super::{
    facts::check_facts,
    heads::SavedHead,
    log::{Log, LogError},
    runs::{RunWalk, VerifyReport, walk_run},
    tree::Edge,
    walk::{Sealed, WalkResult, walk},
};
use crate::{
    Store,
    chain::{BadRecord, UnsignedRecords, Verifier},
    store::{RunFilter, RunRow, StoreError},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError, atomic::Ordering},
};
use toolyard_protocol::{ErrorCode, Failure, RunId, canonical};

/// A report names at most this many runs of each sort; the counts are complete.
const MAX_NAMED: usize = 1000;
/// Rows read at a time while every run is checked.
const ROWS_PER_PAGE: usize = 500;
/// Names of blobs read at a time.
const BLOBS_PER_PAGE: usize = 256;

/// The kind of object in which the first problem was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProblemLocation {
    /// An entry of the ledger.
    Ledger,
    /// A record of a run, or the run's row.
    Run,
    /// A head that was kept.
    Head,
    /// A blob.
    Blob,
    /// A fact: a grant, a device, an idempotency key, an answer to a question.
    Fact,
    /// The store cannot be read.
    Store,
}

/// The first problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstBad {
    /// The kind of object that failed.
    pub place: ProblemLocation,
    /// The run, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The file of heads, the blob, or the fact (its space and its key).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of the record, of the ledger entry, or of the head.
    pub seq: u64,
    /// What is wrong.
    pub problem: String,
}

impl std::fmt::Display for FirstBad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, run_id, name, seq, problem } = self;
        let name = name.as_deref().unwrap_or_default();
        match (place, run_id) {
            (ProblemLocation::Ledger, _) => write!(f, "ledger entry {seq}: {problem}"),
            (ProblemLocation::Head, _) => write!(f, "{name}, head {seq}: {problem}"),
            (ProblemLocation::Blob, _) => write!(f, "blob {name}: {problem}"),
            (ProblemLocation::Fact, _) if name.is_empty() => write!(f, "ledger entry {seq}: {problem}"),
            (ProblemLocation::Fact, _) => write!(f, "fact {name}: {problem}"),
            (ProblemLocation::Run, Some(run_id)) => write!(f, "run {run_id}, record {seq}: {problem}"),
            _ => write!(f, "{problem}"),
        }
    }
}

impl FirstBad {
    pub(super) fn ledger(bad: BadRecord) -> Self {
        Self { place: ProblemLocation::Ledger, run_id: None, name: None, seq: bad.seq, problem: bad.problem }
    }

    pub(super) fn head(head: &SavedHead, problem: String) -> Self {
        let name = Some(head.source.clone());
        Self { place: ProblemLocation::Head, run_id: None, name, seq: head.number, problem }
    }

    pub(super) fn unreadable(error: &StoreError) -> Self {
        let problem = format!("the store cannot be read: {error}");
        Self { place: ProblemLocation::Store, run_id: None, name: None, seq: 0, problem }
    }

    fn run(run_id: RunId, bad: BadRecord) -> Self {
        Self { place: ProblemLocation::Run, run_id: Some(run_id), name: None, seq: bad.seq, problem: bad.problem }
    }

    /// Something about a file of heads as a whole.
    pub fn heads_file(name: &str, problem: String) -> Self {
        Self { place: ProblemLocation::Head, run_id: None, name: Some(name.to_owned()), seq: 0, problem }
    }
}

/// Checks one run: numbering, chain, tags, signatures, its row, its blobs, and its heads in the ledger. May block.
pub fn verify_run(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<VerifyReport, Failure> {
    let row = store.run(run_id)?;
    let (sealed, entry, bad_entry) = match sealed_of(store, run_id, verifier) {
        Ok((sealed, entry)) => (sealed, entry, None),
        Err(LogError::Bad(bad)) => (None, None, Some(bad)),
        Err(LogError::Store(error)) => return Err(error.into()),
    };
    let has_blob = |blob: &str| matches!(store.blob(blob), Ok(Some(_)));
    let walk = walk_run(store, run_id, row.as_ref(), verifier, sealed.as_ref(), &has_blob);
    if row.is_none() && walk.records == 0 && sealed.is_none() && bad_entry.is_none() {
        return Err(Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")));
    }
    if sealed.as_ref().is_some_and(|sealed| sealed.pruned) && walk.records == 0 {
        return Err(Failure::new(
            ErrorCode::NotFound,
            format!("run {run_id} was removed; the ledger proves that it existed"),
        ));
    }
    let without_row = || {
        let problem = "the run's row is missing".to_owned();
        row.is_none().then_some(BadRecord { seq: 1, problem })
    };
    let first_bad = walk.first_bad.clone().or(bad_entry).or_else(without_row);
    Ok(VerifyReport {
        run_id,
        secret_arguments: None,
        ok: first_bad.is_none(),
        records: walk.records,
        head: canonical::hex(&walk.chain),
        signed_seq: walk.signed_seq,
        ledger_entry: entry.filter(|_| walk.first_bad.is_none()),
        unsigned: walk.unsigned,
        approvals: walk.approvals,
        first_bad,
    })
}

/// What the ledger says about one run, and the entry that holds its end. Checks the entries that say so.
fn sealed_of(store: &dyn Store, run_id: RunId, verifier: &Verifier) -> Result<(Option<Sealed>, Option<u64>), LogError> {
    let log = Log(store);
    let leaves = log.leaves_of(run_id)?;
    let keys = log.keys(verifier)?;
    let mut sealed = Sealed::default();
    let mut end = None;
    for (seq, head) in &leaves.chained {
        let hash = canonical::unhex(&head.hash).unwrap_or_default();
        let entry = log.entry(*seq)?.ok_or_else(|| bad_entry(*seq, "a ledger entry is missing"))?;
        let previous = log.entry(seq - 1)?.map_or([0; 32], |entry| entry.chain);
        if let super::entry::Opened::Chained(chained) = super::entry::open(&entry)? {
            chained.check(&entry.chain, &previous, &keys[0].1)?;
        }
        sealed.heads.push((head.seq, hash, *seq));
        (sealed.ended, sealed.untagged) = (true, true);
        end = Some(*seq);
    }
    for placed in &leaves.tree {
        let Some(head) = placed.leaf.head() else { continue };
        check_entry(log, &keys, placed.entry)?;
        sealed.heads.push((head.seq, canonical::unhex(&head.hash).unwrap_or_default(), placed.entry));
        match placed.leaf {
            super::Leaf::Run { .. } => {
                (sealed.ended, sealed.untagged) = (true, false);
                end = Some(placed.entry);
            }
            super::Leaf::Open { unsigned, .. } => sealed.untagged = unsigned,
            super::Leaf::Pruned { .. } => sealed.pruned = true,
            _ => {}
        }
    }
    Ok(((!sealed.heads.is_empty()).then_some(sealed), end))
}

fn bad_entry(seq: u64, problem: &str) -> BadRecord {
    BadRecord { seq, problem: problem.to_owned() }
}

/// Checks that an entry's root is that of its tree and signed.
fn check_entry(log: Log<'_>, keys: &[(u64, Verifier)], seq: u64) -> Result<(), LogError> {
    let entry = log.tree_entry(seq)?.ok_or_else(|| bad_entry(seq, "a ledger entry is missing"))?;
    let mut edge = if entry.first == 0 { Edge::default() } else { log.edge_after(seq - 1)? };
    entry.extend(&mut edge);
    let key = keys.iter().rposition(|(from, _)| *from <= seq).unwrap_or(0);
    if edge.root() != entry.root || edge.size() != entry.size() {
        return Err(bad_entry(seq, "the ledger entry's root is not that of its tree").into());
    }
    if !keys[key].1.check_signature(&entry.body(), &entry.sig) {
        return Err(bad_entry(seq, "the ledger entry's signature is not valid").into());
    }
    Ok(())
}

/// A run whose verification failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BadRun {
    /// The run.
    pub run_id: RunId,
    /// Its first record that fails a check, and why.
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
    /// Ledger entries checked.
    pub entries: u64,
    /// Leaves of the tree.
    pub size: u64,
    /// The tree's root, hex.
    pub root: String,
    /// Ended runs that the ledger names.
    pub runs: u64,
    /// Runs that were removed on purpose, by the ledger.
    pub pruned: u64,
    /// Keys that signed the ledger, one after another.
    pub keys: u64,
    /// Kept heads that the tree was compared with.
    pub heads: u64,
    /// Records checked, of every run in the store.
    pub records: u64,
    /// Blobs checked.
    pub blobs: u64,
    /// Facts checked: grants, devices, idempotency keys, answers to questions and the like.
    #[serde(default)]
    pub facts: u64,
    /// The first check that failed. If it concerns an entry of the ledger or a head, runs are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<FirstBad>,
    /// Runs that the ledger names and the store no longer has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_runs: Vec<RunId>,
    /// How many runs do not hold.
    pub bad: u64,
    /// Those runs, with the first bad record of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_runs: Vec<BadRun>,
    /// How many runs have records that nothing proves.
    pub unsigned: u64,
    /// Those records. Nothing contradicts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsigned_runs: Vec<UnsignedRun>,
    /// Runs that had no entry when a later process started, and were sealed then because this program had written
    /// their end. A crash leaves a few.
    pub sealed_at_start: u64,
}

impl LedgerReport {
    fn take(&mut self, run_id: RunId, walk: RunWalk) {
        self.records += walk.records;
        if let Some(first_bad) = walk.first_bad {
            self.bad += 1;
            self.bad_runs.push(BadRun { run_id, first_bad });
        }
        self.unsigned += u64::from(!walk.unsigned.is_empty());
        let room = MAX_NAMED.saturating_sub(self.unsigned_runs.len());
        let unsigned = walk.unsigned.iter().take(room).map(|records| UnsignedRun { run_id, records: *records });
        self.unsigned_runs.extend(unsigned);
    }

    fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.bad += other.bad;
        self.bad_runs.extend(other.bad_runs);
        self.unsigned += other.unsigned;
        self.unsigned_runs.extend(other.unsigned_runs);
        self.first_bad = self.first_bad.take().or(other.first_bad);
    }

    /// Orders the findings of several threads, and reports the first.
    fn conclude(&mut self) {
        self.bad_runs.sort_by_key(|bad| bad.run_id);
        self.unsigned_runs.sort_by_key(|run| (run.run_id, run.records.from));
        self.missing_runs.sort();
        let bad_run = self.bad_runs.first().map(|bad| FirstBad::run(bad.run_id, bad.first_bad.clone()));
        let missing = self.missing_runs.first().map(|run_id| {
            let problem = "missing: the ledger names the run, and the store does not have it".to_owned();
            FirstBad::run(*run_id, BadRecord { seq: 1, problem })
        });
        self.first_bad = self.first_bad.take().or(bad_run).or(missing);
        self.bad_runs.truncate(MAX_NAMED);
        self.unsigned_runs.truncate(MAX_NAMED);
        self.ok = self.first_bad.is_none();
    }
}

/// What is compared in addition to the store itself.
#[derive(Debug, Default)]
pub struct VerifyOptions {
    /// Heads that were stored outside the database: beside the store, or elsewhere.
    pub heads: Vec<SavedHead>,
    /// How many of them, the first ones, the file beside the store has. It begins with the first head that was signed.
    pub kept: usize,
    /// The file's name, where there is one.
    pub name: Option<String>,
    /// A problem that was found before the store was checked, such as a missing file of heads.
    pub found: Option<FirstBad>,
}

impl VerifyOptions {
    /// What is wrong with the file of heads, given that the ledger has something that it should hold.
    fn problem(&self, walked: &WalkResult) -> Option<FirstBad> {
        if self.found.is_some() {
            return self.found.clone().filter(|_| walked.size > 0 || walked.first_bad.is_some());
        }
        let name = self.name.as_ref().filter(|_| walked.tree_entries > 1 && walked.first_bad.is_none())?;
        let first = self.heads.iter().take(self.kept).map(|head| head.size).min();
        (first != Some(walked.first_size)).then(|| {
            let problem = "the file of heads does not begin with the ledger: heads were removed from it".to_owned();
            FirstBad::heads_file(name, problem)
        })
    }
}

/// Checks everything in a store. May block, for about as long as reading the whole store takes.
pub fn verify_ledger(store: &dyn Store, verifier: &Verifier, options: &VerifyOptions) -> Result<LedgerReport, Failure> {
    let walked = walk(store, verifier, &options.heads)?;
    let mut report = LedgerReport {
        entries: walked.entries,
        size: walked.size,
        root: canonical::hex(&walked.root),
        runs: walked.runs,
        pruned: walked.pruned,
        keys: walked.keys,
        heads: walked.heads,
        first_bad: options.problem(&walked).or_else(|| walked.first_bad.clone()),
        sealed_at_start: walked.found_at_start,
        ..LedgerReport::default()
    };
    if report.first_bad.is_some() {
        return Ok(report);
    }
    let blobs = match check_blobs(store) {
        Ok(blobs) => blobs,
        Err(first_bad) => {
            report.first_bad = Some(first_bad);
            return Ok(report);
        }
    };
    report.blobs = blobs.len() as u64;
    match check_facts(store, verifier, &walked) {
        Ok(facts) => report.facts = facts,
        // Runs are checked all the same: a run's own records prove it without the ledger.
        Err(first_bad) => report.first_bad = Some(first_bad),
    }
    check_runs(store, verifier, &walked, &blobs, &mut report);
    check_unlisted(store, verifier, &walked, &mut report);
    let gone = |sealed: &Sealed| !sealed.seen.load(Ordering::Relaxed) && !sealed.pruned;
    report.missing_runs = walked.sealed.iter().filter(|(_, s)| gone(s)).map(|(run_id, _)| *run_id).collect();
    report.conclude();
    Ok(report)
}

/// Checks every blob's content against its name.
fn check_blobs(store: &dyn Store) -> Result<HashSet<[u8; 32]>, FirstBad> {
    let unreadable = |error: StoreError| FirstBad::unreadable(&error);
    let mut known = HashSet::new();
    let mut after = String::new();
    loop {
        let page = store.blob_hashes(&after, BLOBS_PER_PAGE).map_err(unreadable)?;
        let Some(last) = page.last() else { return Ok(known) };
        after.clone_from(last);
        for name in page {
            let problem = match store.blob(&name) {
                Ok(Some(_)) => None,
                Ok(None) => Some("its content is missing".to_owned()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                return Err(FirstBad { place: ProblemLocation::Blob, run_id: None, name: Some(name), seq: 0, problem });
            }
            known.extend(canonical::unhex(&name));
        }
    }
}

/// Checks every run that the store has a row of, on every core.
fn check_runs(
    store: &dyn Store,
    verifier: &Verifier,
    walked: &WalkResult,
    blobs: &HashSet<[u8; 32]>,
    report: &mut LedgerReport,
) {
    let next = Mutex::new(Some(None));
    let work = || {
        let has_blob = |name: &str| canonical::unhex(name).is_some_and(|hash| blobs.contains(&hash));
        let mut part = LedgerReport::default();
        loop {
            let rows = match next_page(store, &next) {
                Ok(rows) if rows.is_empty() => return part,
                Ok(rows) => rows,
                Err(error) => {
                    part.first_bad = Some(FirstBad::unreadable(&error));
                    return part;
                }
            };
            for row in &rows {
                let sealed = walked.sealed.get(&row.run_id);
                if let Some(sealed) = sealed {
                    sealed.seen.store(true, Ordering::Relaxed);
                }
                part.take(row.run_id, walk_run(store, row.run_id, Some(row), verifier, sealed, &has_blob));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => report.merge(part),
                Err(_) => {
                    let error = StoreError::failed("checking the runs failed unexpectedly".to_owned());
                    report.first_bad = Some(FirstBad::unreadable(&error));
                }
            }
        }
    });
}

/// Checks runs that have records and no row. A run gets its row with its first batch, so there are none as a rule.
fn check_unlisted(store: &dyn Store, verifier: &Verifier, walked: &WalkResult, report: &mut LedgerReport) {
    let has_blob = |blob: &str| matches!(store.blob(blob), Ok(Some(_)));
    match store.unlisted_runs(MAX_NAMED) {
        Ok(runs) => runs.into_iter().for_each(|run_id| {
            // Not marked as seen: one that the ledger names is missing from every list.
            let walk = walk_run(store, run_id, None, verifier, walked.sealed.get(&run_id), &has_blob);
            report.take(run_id, walk);
        }),
        Err(error) => report.first_bad = report.first_bad.take().or(Some(FirstBad::unreadable(&error))),
    }
}

/// The next rows that no worker has; `next` is the run before which they come, `None` at the end.
fn next_page(store: &dyn Store, next: &Mutex<Option<Option<RunId>>>) -> Result<Vec<RunRow>, StoreError> {
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(before) = *next else { return Ok(Vec::new()) };
    let rows = store.runs(&RunFilter { before, limit: ROWS_PER_PAGE, ..RunFilter::default() });
    *next = match &rows {
        Ok(rows) => rows.last().map(|row| Some(row.run_id)),
        Err(_) => None,
    };
    rows
}
