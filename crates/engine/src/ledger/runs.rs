//! Checks one run: its records against their chain, their tags, the ledger, its row and its blobs.

use super::{point::LedgerPoint, walk::Sealed};
use crate::{
    Store,
    chain::{BadRecord, ChainWalker, UnsignedRecords, Verifier},
    record::RecordKind,
    secrets::ProvenSecret,
    store::{Frame, RunKind, RunRow},
};
use jiff::Timestamp;
use memchr::memmem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::ControlFlow};
use toolyard_protocol::{ConfirmationId, RunId, RunStatus};

/// A title in a row is cut to this many characters.
pub(crate) const TITLE_CHARS: usize = 200;

const UNPROVEN: &str = "from this record on neither a tag, nor a signature, nor the ledger proves what the record says: it \
     was written by somebody without the key";

/// What verifying a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_entry: Option<u64>,
    /// Records that nothing proved when the run was taken up by a later version, or that an earlier version wrote after
    /// the end of the run. Nothing contradicts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsigned: Vec<UnsignedRecords>,
    /// Approvals in the record. The arguments of each call that names an approval of its own are those that the approval
    /// was given for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub approvals: u64,
    /// The first record that fails a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<BadRecord>,
    /// The arguments that held the secret that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_arguments: Option<Vec<ProvenSecret>>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What the records say about the run's row, and the approvals that calls name.
#[derive(Default)]
struct Facts {
    started: Option<StartedFacts>,
    finished: Option<FinishedFacts>,
    approvals: HashMap<ConfirmationId, ApprovalFacts>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalFacts {
    confirmation_id: ConfirmationId,
    plan_hash: String,
    scope: String,
}

#[derive(Deserialize)]
struct ApprovedCall {
    #[serde(rename = "h")]
    args_hash: String,
    #[serde(rename = "ok", default)]
    confirmation_id: Option<ConfirmationId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartedFacts {
    run_id: RunId,
    kind: RunKind,
    started_at: Timestamp,
    #[serde(default)]
    plan: Option<PlanFacts>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    caller: CallerFacts,
    #[serde(default)]
    policy_blob: Option<String>,
    #[serde(default)]
    ledger: Option<LedgerPoint>,
}

#[derive(Deserialize)]
struct PlanFacts {
    goal: String,
}

#[derive(Default, Deserialize)]
struct CallerFacts {
    #[serde(default)]
    session: Option<String>,
}

#[derive(Deserialize)]
struct FinishedFacts {
    at: Timestamp,
    status: RunStatus,
}

#[derive(Deserialize)]
struct CallBlobs {
    #[serde(rename = "ab", default)]
    args: Option<String>,
    #[serde(rename = "in", default)]
    intent: Option<IntentBlobs>,
}

#[derive(Deserialize)]
struct IntentBlobs {
    targets: Vec<TargetBlob>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetBlob {
    #[serde(default)]
    before_blob: Option<String>,
}

#[derive(Deserialize)]
struct ResultBlobs {
    #[serde(rename = "o")]
    outcome: OutcomeBlobs,
}

#[derive(Deserialize)]
struct OutcomeBlobs {
    #[serde(rename = "db", default)]
    data: Option<String>,
}

/// A run's records, walked to the end or to the first bad one.
pub(super) struct RunWalk {
    pub(super) records: u64,
    pub(super) chain: [u8; 32],
    pub(super) signed_seq: u64,
    pub(super) unsigned: Vec<UnsignedRecords>,
    pub(super) approvals: u64,
    /// Where the ledger stood when the run began.
    pub(super) began_at: Option<LedgerPoint>,
    pub(super) first_bad: Option<BadRecord>,
}

/// Says whether the store has a blob, with its content intact.
pub(super) type HasBlob<'a> = &'a dyn Fn(&str) -> bool;

/// Walks a run. It may have grown since it was sealed (a late answer is noted after the end), but must contain the
/// sealed heads, and what it has grown by must be proven.
pub(super) fn walk_run(
    store: &dyn Store,
    run_id: RunId,
    row: Option<&RunRow>,
    verifier: &Verifier,
    sealed: Option<&Sealed>,
    has_blob: HasBlob<'_>,
) -> RunWalk {
    let mut walker = ChainWalker::new(run_id, Some(verifier));
    let mut facts = Facts::default();
    let mut first_bad = None;
    let read = store.frames(run_id, 1, &mut |frame| {
        first_bad = walker
            .step(&frame)
            .err()
            .or_else(|| sealed.and_then(|sealed| against_heads(&frame, sealed)))
            .or_else(|| facts.take(run_id, &frame).err())
            .or_else(|| missing_blob(&frame, &facts, has_blob));
        if first_bad.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let (records, chain) = walker.head();
    let bad = |seq: u64, problem: String| Some(BadRecord { seq, problem });
    if let (Err(error), None) = (read, &first_bad) {
        first_bad = bad(records + 1, format!("it cannot be read: {error}"));
    }
    if let Some((seq, ..)) = sealed.and_then(|s| s.heads.iter().find(|(seq, ..)| first_bad.is_none() && records < *seq))
    {
        let problem = format!("missing: the ledger says that the run had {seq} records");
        first_bad = bad(records + 1, problem);
    }
    let mut unsigned = walker.found_unsigned().to_vec();
    if first_bad.is_none() {
        match unproven(&walker, verifier, sealed) {
            Unproven::None => {}
            Unproven::Earlier(records) => unsigned.push(records),
            Unproven::Bad(seq) => first_bad = bad(seq, UNPROVEN.to_owned()),
        }
    }
    if first_bad.is_none() && row.is_some() && records == 0 {
        first_bad = bad(1, "missing: the run has a row and no record".to_owned());
    }
    if let (None, Some(row)) = (&first_bad, row) {
        first_bad = facts.against(row).and_then(|problem| bad(if records == 0 { 1 } else { records }, problem));
    }
    let approvals = facts.approvals.len() as u64;
    let began_at = facts.started.and_then(|started| started.ledger);
    RunWalk { records, chain, signed_seq: walker.signed_seq(), unsigned, approvals, began_at, first_bad }
}

fn against_heads(frame: &Frame, sealed: &Sealed) -> Option<BadRecord> {
    let differs = |(seq, hash, _): &&(u64, [u8; 32], u64)| *seq == frame.seq && *hash != frame.chain;
    sealed.heads.iter().find(differs).map(|_| BadRecord {
        seq: frame.seq,
        problem: "its chain value is not the one sealed in the ledger".to_owned(),
    })
}

enum Unproven {
    None,
    /// Written by a version that did not tag every batch.
    Earlier(UnsignedRecords),
    Bad(u64),
}

fn unproven(walker: &ChainWalker<'_>, verifier: &Verifier, sealed: Option<&Sealed>) -> Unproven {
    let Some(mut tail) = walker.unproven_tail() else { return Unproven::None };
    tail.from = tail.from.max(sealed.map_or(0, Sealed::proven) + 1);
    if tail.from > tail.to {
        return Unproven::None;
    }
    match sealed {
        Some(sealed) if sealed.untagged => Unproven::Earlier(tail),
        // Without the key for tags, only the signed part of an open run can be verified.
        _ if verifier.knows_tags() || walker.is_finished() => Unproven::Bad(tail.from),
        _ => Unproven::None,
    }
}

impl Facts {
    fn take(&mut self, run_id: RunId, frame: &Frame) -> Result<(), BadRecord> {
        let unreadable = |_| BadRecord { seq: frame.seq, problem: "its payload cannot be read".to_owned() };
        match RecordKind::from_u8(frame.kind) {
            Some(RecordKind::RunStarted) => {
                let started: StartedFacts = serde_json::from_slice(&frame.payload).map_err(unreadable)?;
                if started.run_id != run_id {
                    let problem = "it is the start of another run".to_owned();
                    return Err(BadRecord { seq: frame.seq, problem });
                }
                self.started = Some(started);
            }
            Some(RecordKind::Finished) => {
                self.finished = Some(serde_json::from_slice(&frame.payload).map_err(unreadable)?);
            }
            Some(RecordKind::Confirmed) => {
                let payload = crate::end_tag::without_tag(&frame.payload);
                let given: ApprovalFacts = serde_json::from_slice(&payload).map_err(unreadable)?;
                self.approvals.insert(given.confirmation_id, given);
            }
            Some(RecordKind::Call) if memmem::find(&frame.payload, b"\"ok\":\"").is_some() => {
                let call: ApprovedCall = serde_json::from_slice(&frame.payload).map_err(unreadable)?;
                self.check_approval(&call).map_err(|problem| BadRecord { seq: frame.seq, problem })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the approval of a call was given for its arguments. The approval of a plan is for all of its calls.
    fn check_approval(&self, call: &ApprovedCall) -> Result<(), String> {
        let given = call.confirmation_id.and_then(|id| self.approvals.get(&id));
        match given.filter(|given| given.scope == crate::pipeline::CALL_SCOPE) {
            Some(given) if given.plan_hash.trim_start_matches("sha256:") != call.args_hash => {
                Err("the approval that it names was given for other arguments".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Why the row is not the one of these records.
    fn against(&self, row: &RunRow) -> Option<String> {
        let differs = |what: &str| Some(format!("the run's row says another {what} than its records"));
        match &self.finished {
            Some(finished) if row.status != finished.status => return differs("state"),
            Some(finished) if row.ended_at != Some(finished.at) => return differs("time of its end"),
            None if row.status.is_final() => {
                return Some("the run's row says that it has ended, and no record does".into());
            }
            None if row.ended_at.is_some() => return differs("time of its end"),
            _ => {}
        }
        let started = self.started.as_ref()?;
        let title = started.plan.as_ref().map(|plan| &plan.goal).or(started.title.as_ref());
        if row.kind != started.kind {
            return differs("kind");
        }
        if row.started_at != started.started_at {
            return differs("time of its start");
        }
        if row.session != started.caller.session {
            return differs("session");
        }
        if title.is_some_and(|title| row.title != title.chars().take(TITLE_CHARS).collect::<String>()) {
            return differs("title");
        }
        None
    }
}

/// The first blob that a record names and the store does not have.
fn missing_blob(frame: &Frame, facts: &Facts, has_blob: HasBlob<'_>) -> Option<BadRecord> {
    let names = |pattern: &str| memmem::find(&frame.payload, pattern.as_bytes()).is_some();
    let named: Vec<String> = match RecordKind::from_u8(frame.kind)? {
        RecordKind::RunStarted => facts.started.as_ref()?.policy_blob.clone().into_iter().collect(),
        RecordKind::Call if names("\"ab\":\"") || names("beforeBlob\":\"") => {
            let call: CallBlobs = serde_json::from_slice(&frame.payload).ok()?;
            let targets = call.intent.map_or_else(Vec::new, |intent| intent.targets);
            call.args.into_iter().chain(targets.into_iter().filter_map(|target| target.before_blob)).collect()
        }
        RecordKind::Result | RecordKind::Refused if names("\"db\":\"") => {
            serde_json::from_slice::<ResultBlobs>(&frame.payload).ok()?.outcome.data.into_iter().collect()
        }
        _ => return None,
    };
    named.iter().find(|blob| !has_blob(blob)).map(|blob| BadRecord {
        seq: frame.seq,
        problem: format!("the value {blob} that it names is missing from the store or damaged"),
    })
}
