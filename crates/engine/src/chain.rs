//! The hash chain over the records of a run, and the signatures over it.
//!
//! `chain(n) = SHA-256(chain(n-1) ‖ seq ‖ kind ‖ payload)`, beginning with a hash of the run id. Editing, removing or
//! moving a record changes every value after it. The last record of each batch carries a tag ([`crate::end_tag`]), and a
//! checkpoint signs the value reached so far with Ed25519, in the form of a signed note (C2SP tlog-checkpoint: origin,
//! size, base64 root hash, then a signature line). What a local key cannot prove is said in SECURITY.md.

pub use crate::keys::{Signer, Verifier};

use crate::{end_tag::RecordLocation, record::RecordKind, store::Frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolyard_protocol::RunId;

/// The value before the first record.
pub fn genesis(run_id: RunId) -> [u8; 32] {
    let mut h = Sha256::new();
    h.update(b"toolyard run record v1\0");
    h.update(run_id.as_uuid().as_bytes());
    h.finalize().into()
}

/// The value after a record.
pub fn link(previous: &[u8; 32], seq: u64, kind: u8, payload: &[u8]) -> [u8; 32] {
    let mut h = Sha256::new();
    h.update(previous);
    h.update(seq.to_be_bytes());
    h.update([kind]);
    h.update(payload);
    h.finalize().into()
}

/// A signature over the chain so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The last record it covers.
    pub seq: u64,
    /// The signed note, text.
    pub note: String,
}

/// The first record whose chain value, tag or signature is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[error("record {seq}: {problem}")]
pub struct BadRecord {
    /// The number of the record.
    pub seq: u64,
    /// What is wrong.
    pub problem: String,
}

/// Records that no tag, signature or leaf covers. Their content may still be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsignedRecords {
    /// The first of them.
    pub from: u64,
    /// The last of them.
    pub to: u64,
}

/// The part of a note's payload that names unsigned records.
#[derive(Deserialize)]
struct UnsignedNote {
    payload: Option<UnsignedPayload>,
}

/// Written by a process that resumes a run: [`UnsignedFacts`](crate::facts::UnsignedFacts).
#[derive(Deserialize)]
struct UnsignedPayload {
    #[serde(rename = "unsignedRecords")]
    unsigned: Option<UnsignedRecords>,
}

/// Walks a run's frames in order and checks numbering, chain and checkpoints as it goes.
pub struct ChainWalker<'a> {
    run_id: RunId,
    verifier: Option<&'a Verifier>,
    seq: u64,
    chain: [u8; 32],
    signed_seq: u64,
    finished: Option<u64>,
    proven: Option<(u64, [u8; 32])>,
    unsigned: Vec<UnsignedRecords>,
}

impl<'a> ChainWalker<'a> {
    /// Begins before the first record. Without a verifier only the chain is checked, not the signatures.
    pub fn new(run_id: RunId, verifier: Option<&'a Verifier>) -> Self {
        let chain = genesis(run_id);
        Self { run_id, verifier, seq: 0, chain, signed_seq: 0, finished: None, proven: None, unsigned: Vec::new() }
    }

    /// Takes the next frame.
    pub fn step(&mut self, frame: &Frame) -> Result<(), BadRecord> {
        let expected = self.seq + 1;
        if frame.seq != expected {
            return Err(BadRecord {
                seq: expected,
                problem: format!("missing: the next record found is number {}", frame.seq),
            });
        }
        let chain = link(&self.chain, frame.seq, frame.kind, &frame.payload);
        if chain != frame.chain {
            return Err(BadRecord {
                seq: frame.seq,
                problem: "its content does not match its chain value: it was edited, or a record before it was moved"
                    .into(),
            });
        }
        match RecordKind::from_u8(frame.kind) {
            Some(RecordKind::Checkpoint) => self.take_checkpoint(frame, chain)?,
            Some(RecordKind::Finished) => self.finished = Some(frame.seq),
            Some(RecordKind::Note) => self.take_note(frame),
            _ => {}
        }
        let place = RecordLocation { run_id: self.run_id, seq: frame.seq, previous: &self.chain };
        if self.verifier.is_some_and(|verifier| verifier.check_tag(&place, &frame.payload)) {
            self.proven = Some((frame.seq, chain));
        }
        self.seq = frame.seq;
        self.chain = chain;
        Ok(())
    }

    fn take_checkpoint(&mut self, frame: &Frame, chain: [u8; 32]) -> Result<(), BadRecord> {
        let bad = |problem: String| BadRecord { seq: frame.seq, problem };
        let checkpoint: Checkpoint =
            serde_json::from_slice(&frame.payload).map_err(|e| bad(format!("not a checkpoint: {e}")))?;
        if checkpoint.seq != self.seq {
            return Err(bad("the checkpoint is for another place in the record".into()));
        }
        if let Some(verifier) = self.verifier {
            if !verifier.check_run(&checkpoint, self.run_id, &self.chain) {
                return Err(bad("the checkpoint's signature is not valid".into()));
            }
            self.signed_seq = checkpoint.seq;
            self.proven = Some((frame.seq, chain));
        }
        Ok(())
    }

    fn take_note(&mut self, frame: &Frame) {
        let note = serde_json::from_slice::<UnsignedNote>(&frame.payload).ok();
        if let Some(unsigned) = note.and_then(|note| note.payload).and_then(|payload| payload.unsigned) {
            // A later start found the same records as an earlier one, and more.
            self.unsigned.retain(|known| known.from < unsigned.from || known.to > unsigned.to);
            self.unsigned.push(unsigned);
        }
    }

    /// Number and chain value of the last record taken.
    pub fn head(&self) -> (u64, [u8; 32]) {
        (self.seq, self.chain)
    }

    /// The last record covered by a valid signature.
    pub fn signed_seq(&self) -> u64 {
        self.signed_seq
    }

    /// Whether the run's record has an end.
    pub fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// Number and chain value of the last record up to which a signature or a tag proves that Toolyard wrote the record.
    pub fn proven(&self) -> Option<(u64, [u8; 32])> {
        self.proven
    }

    /// The same, if it covers the run's end.
    pub fn proven_end(&self) -> Option<(u64, [u8; 32])> {
        let end = self.finished?;
        self.proven.filter(|(seq, _)| *seq >= end)
    }

    /// The last records of the walk that no signature and no tag proves.
    pub fn unproven_tail(&self) -> Option<UnsignedRecords> {
        let from = self.proven.map_or(0, |(seq, _)| seq).max(self.signed_seq) + 1;
        (from <= self.seq).then_some(UnsignedRecords { from, to: self.seq })
    }

    /// Records that were found unsigned when a process took the run up again, as that process noted.
    pub fn found_unsigned(&self) -> &[UnsignedRecords] {
        &self.unsigned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn run() -> RunId {
        RunId::from_uuid(Uuid::from_u128(7))
    }

    fn frames(n: u64, signer: &Signer) -> Vec<Frame> {
        let mut out: Vec<Frame> = Vec::new();
        let mut chain = genesis(run());
        for seq in 1..=n {
            let (kind, payload) = if seq % 4 == 0 {
                (13, serde_json::to_vec(&signer.checkpoint(run(), seq - 1, &chain)).unwrap())
            } else {
                (8, format!("{{\"n\":{seq}}}").into_bytes())
            };
            chain = link(&chain, seq, kind, &payload);
            out.push(Frame { seq, kind, payload, chain });
        }
        out
    }

    fn walk(frames: &[Frame], verifier: &Verifier) -> Result<u64, BadRecord> {
        let mut walker = ChainWalker::new(run(), Some(verifier));
        frames.iter().try_for_each(|f| walker.step(f))?;
        Ok(walker.signed_seq())
    }

    #[toolyard_shows::shows("002-1-08")]
    #[test]
    fn edits_removals_moves_and_forged_checkpoints_are_named() {
        let signer = Signer::from_secret("test", &[7; 32]);
        let good = frames(9, &signer);
        assert_eq!(walk(&good, &signer.verifier()), Ok(7));

        let mut edited = good.clone();
        edited[2].payload = b"{\"n\":99}".to_vec();
        assert_eq!(walk(&edited, &signer.verifier()).unwrap_err().seq, 3);

        let mut removed = good.clone();
        removed.remove(4);
        assert_eq!(walk(&removed, &signer.verifier()).unwrap_err().seq, 5);

        let mut moved = good.clone();
        moved.swap(1, 2);
        assert_eq!(walk(&moved, &signer.verifier()).unwrap_err().seq, 2);

        // An attacker without the key rewrites everything, including the chain: the first checkpoint reveals it.
        let forged = frames(9, &Signer::from_secret("test", &[8; 32]));
        assert_eq!(walk(&forged, &signer.verifier()).unwrap_err().seq, 4);
    }
}
