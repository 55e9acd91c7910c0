//! The hash chain over the records of a run, and the signatures over it.
//!
//! `chain(n) = SHA-256(chain(n-1) ‖ seq ‖ kind ‖ payload)`, beginning with a hash of the run id. Editing, removing or
//! moving a record changes every value after it. A checkpoint signs the value reached so far with Ed25519, in the form
//! of a signed note (C2SP tlog-checkpoint: origin, size, base64 root hash, then a signature line), so that a reader who
//! holds the public key needs nothing else from us. What a local key cannot prove is said in SECURITY.md.

use crate::{end_tag::EndTagKey, record::RecordKind, store::Frame};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
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

/// Signs checkpoints. Every note contains the name, so that the notes of two machines can be distinguished.
pub struct Signer {
    name: String,
    key: SigningKey,
    end_tags: EndTagKey,
}

impl Signer {
    /// From a 32-byte secret.
    pub fn from_secret(name: impl Into<String>, secret: &[u8; 32]) -> Self {
        Self { name: name.into(), key: SigningKey::from_bytes(secret), end_tags: EndTagKey::derive(secret) }
    }

    /// What a verifier needs. This one can check the tags of run ends as well, which the public key alone cannot.
    pub fn verifier(&self) -> Verifier {
        Verifier { name: self.name.clone(), key: self.key.verifying_key(), end_tags: Some(self.end_tags.clone()) }
    }

    /// Adds the tag to the payload of a run's `Finished` record; see [`crate::end_tag`].
    pub(crate) fn tag_end(&self, run_id: RunId, seq: u64, previous: &[u8; 32], payload: &mut Vec<u8>) {
        self.end_tags.add(run_id, seq, previous, payload);
    }

    /// Signs a tree head: `origin` identifies the log, `size` is the number of records, `hash` is the chain value.
    pub fn sign(&self, origin: &str, size: u64, hash: &[u8; 32]) -> String {
        let body = note_body(origin, size, hash);
        let signature = self.key.sign(body.as_bytes());
        let mut blob = key_hash(&self.name, &self.key.verifying_key()).to_vec();
        blob.extend_from_slice(&signature.to_bytes());
        format!("{body}\n\u{2014} {} {}\n", self.name, BASE64.encode(blob))
    }

    /// A checkpoint of a run.
    pub fn checkpoint(&self, run_id: RunId, seq: u64, chain: &[u8; 32]) -> Checkpoint {
        Checkpoint { seq, note: self.sign(&run_origin(run_id), seq, chain) }
    }
}

/// Verifies signatures.
#[derive(Debug, Clone)]
pub struct Verifier {
    name: String,
    key: VerifyingKey,
    /// Only the holder of the signing key has it.
    end_tags: Option<EndTagKey>,
}

impl Verifier {
    /// Reads `name+base64(key)`, the form [`Verifier::to_text`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, key) = text.trim().rsplit_once('+')?;
        let bytes: [u8; 32] = BASE64.decode(key).ok()?.try_into().ok()?;
        Some(Self { name: name.to_owned(), key: VerifyingKey::from_bytes(&bytes).ok()?, end_tags: None })
    }

    /// The key as text: `name+base64(key)`.
    pub fn to_text(&self) -> String {
        format!("{}+{}", self.name, BASE64.encode(self.key.as_bytes()))
    }

    /// Whether a note is signed with this key and contains exactly these values.
    pub fn check(&self, note: &str, origin: &str, size: u64, hash: &[u8; 32]) -> bool {
        let body = note_body(origin, size, hash);
        let Some(rest) = note.strip_prefix(&body).and_then(|r| r.strip_prefix('\n')) else { return false };
        rest.lines().any(|line| {
            let Some((name, blob)) = line.strip_prefix("\u{2014} ").and_then(|l| l.rsplit_once(' ')) else {
                return false;
            };
            let Ok(blob) = BASE64.decode(blob) else { return false };
            let Some((id, signature)) = blob.split_first_chunk::<4>() else { return false };
            let Ok(signature) = Signature::from_slice(signature) else { return false };
            name == self.name
                && id == &key_hash(&self.name, &self.key)
                && self.key.verify_strict(body.as_bytes(), &signature).is_ok()
        })
    }

    /// Whether a run's checkpoint is ours and covers this chain value.
    pub fn check_run(&self, checkpoint: &Checkpoint, run_id: RunId, chain: &[u8; 32]) -> bool {
        self.check(&checkpoint.note, &run_origin(run_id), checkpoint.seq, chain)
    }
}

fn run_origin(run_id: RunId) -> String {
    format!("toolyard/run/{run_id}")
}

fn note_body(origin: &str, size: u64, hash: &[u8; 32]) -> String {
    format!("{origin}\n{size}\n{}\n", BASE64.encode(hash))
}

/// The signed note's key id: the first four bytes of SHA-256(name ‖ "\n" ‖ 0x01 ‖ key); 0x01 means Ed25519.
fn key_hash(name: &str, key: &VerifyingKey) -> [u8; 4] {
    let mut h = Sha256::new();
    h.update(name.as_bytes());
    h.update(b"\n\x01");
    h.update(key.as_bytes());
    let digest: [u8; 32] = h.finalize().into();
    [digest[0], digest[1], digest[2], digest[3]]
}

/// The first record that does not prove what it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[error("record {seq}: {problem}")]
pub struct BadRecord {
    /// The number of the record.
    pub seq: u64,
    /// What is wrong.
    pub problem: String,
}

/// Records that no signature covered when a start found them. What they say may be true; nothing proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsignedRecords {
    /// The first of them.
    pub from: u64,
    /// The last of them.
    pub to: u64,
}

/// The part of a note's payload that names unsigned records.
#[derive(Deserialize)]
struct NoteOfUnsigned {
    payload: Option<UnsignedPayload>,
}

/// As a process that takes a run up writes it: [`UnsignedFacts`](crate::facts::UnsignedFacts).
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
    finished: bool,
    proven: Option<(u64, [u8; 32])>,
    unsigned: Vec<UnsignedRecords>,
}

impl<'a> ChainWalker<'a> {
    /// Begins before the first record. Without a verifier only the chain is checked, not the signatures.
    pub fn new(run_id: RunId, verifier: Option<&'a Verifier>) -> Self {
        let chain = genesis(run_id);
        Self { run_id, verifier, seq: 0, chain, signed_seq: 0, finished: false, proven: None, unsigned: Vec::new() }
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
            Some(RecordKind::Finished) => self.take_end(frame, chain),
            Some(RecordKind::Note) => self.take_note(frame),
            _ => {}
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

    fn take_end(&mut self, frame: &Frame, chain: [u8; 32]) {
        self.finished = true;
        let tags = self.verifier.and_then(|v| v.end_tags.as_ref());
        if tags.is_some_and(|tags| tags.check(self.run_id, frame.seq, &self.chain, &frame.payload)) {
            self.proven = Some((frame.seq, chain));
        } else {
            // Whatever was proven before the end does not prove the end.
            self.proven = None;
        }
    }

    fn take_note(&mut self, frame: &Frame) {
        let note = serde_json::from_slice::<NoteOfUnsigned>(&frame.payload).ok();
        if let Some(unsigned) = note.and_then(|note| note.payload).and_then(|payload| payload.unsigned) {
            // A later start found what an earlier one had found, and more.
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
        self.finished
    }

    /// Number and chain value of the last record up to which a signature or the tag of the run's end proves that
    /// Toolyard wrote the record. After the run's end, only what covers that end counts.
    pub fn proven(&self) -> Option<(u64, [u8; 32])> {
        self.proven
    }

    /// The records at the end of what was walked that nothing proves.
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

        // Somebody without the key rewrites everything, chain included: the first checkpoint gives them away.
        let forged = frames(9, &Signer::from_secret("test", &[8; 32]));
        assert_eq!(walk(&forged, &signer.verifier()).unwrap_err().seq, 4);
    }

    #[test]
    fn a_verifier_survives_its_text_form() {
        let verifier = Signer::from_secret("host+x", &[1; 32]).verifier();
        assert_eq!(Verifier::parse(&verifier.to_text()).unwrap().to_text(), verifier.to_text());
        assert!(Verifier::parse("nonsense").is_none());
    }
}
