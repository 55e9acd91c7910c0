//! Receipts: the proof that a run, or one call of it, is in the ledger, for somebody who has only the public key.
//!
//! A receipt holds the leaf, the inclusion proof and the signed checkpoint (C2SP: `signed_note` and `tlog_tiles` read
//! them), and the same proof as a COSE receipt (RFC 9942). The receipt of a call holds the records from that call to the
//! end of the run as well, because the run's head is a chain over them.

use super::{
    Leaf, ORIGIN,
    log::Log,
    tree::{Hash, leaf_hash, root_of_inclusion},
};
use crate::{
    Store,
    chain::{Signer, Verifier, genesis, link},
    record::{Record, RecordKind},
    store::{Frame, StoreError},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId, canonical};

/// The form of a receipt.
const FORM: &str = "toolyard-receipt/1";
/// The DER prefix of an Ed25519 public key in a PEM file (RFC 8410).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The proof that a run is in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// `toolyard-receipt/1`.
    pub form: String,
    /// The run.
    pub run_id: RunId,
    /// The call, when the receipt is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The leaf, exactly as it was hashed.
    pub leaf: String,
    /// The leaf's place in the tree, counted from 0.
    pub index: u64,
    /// The inclusion proof (RFC 6962), base64.
    pub proof: Vec<String>,
    /// The signed head of the tree: a C2SP checkpoint.
    pub checkpoint: String,
    /// The verifier key of the checkpoint. Compare it with one that you got elsewhere.
    pub key: String,
    /// The same key in PEM.
    pub key_pem: String,
    /// The same proof as a COSE receipt, base64.
    pub cose: String,
    /// The chain value before the first of `records`, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The records from the call to the end of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<ReceiptRecord>,
}

/// One record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptRecord {
    /// Its number.
    pub seq: u64,
    /// Its kind.
    pub kind: u8,
    /// Its payload, exactly as it was hashed.
    pub payload: String,
}

/// What verifying a receipt found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptReport {
    /// True if the receipt is valid.
    pub ok: bool,
    /// The run.
    pub run_id: RunId,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// How many leaves the tree had when the receipt was made.
    pub size: u64,
    /// Records that the receipt proves beside the run's head.
    pub records: u64,
    /// The first problem, if the receipt is not valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<ReceiptProblem>,
}

/// Why a receipt proves nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptProblem {
    /// The record, 0 for the receipt as a whole.
    pub seq: u64,
    /// What is wrong.
    pub problem: String,
}

impl Receipt {
    /// Makes the receipt of a run, or of one call of it. May block.
    pub fn make(store: &dyn Store, signer: &Signer, run_id: RunId, call_id: Option<CallId>) -> Result<Self, Failure> {
        let log = Log(store);
        let leaves = log.all_leaves_of(run_id).map_err(StoreError::from)?;
        let placed = leaves.tree.into_iter().find(|placed| matches!(placed.leaf, Leaf::Run { .. }));
        let Some(placed) = placed else { return Err(not_sealed(store, run_id, !leaves.chained.is_empty())?) };
        let last = log.last_seq()?;
        let entry = log.tree_entry(last).map_err(StoreError::from)?;
        let entry = entry.ok_or_else(|| StoreError::failed("the ledger has no tree".to_owned()))?;
        let proof = log.inclusion(placed.index, entry.size()).map_err(StoreError::from)?;
        let verifier = signer.verifier();
        if !verifier.check_signature(&entry.body(), &entry.sig) {
            let problem = "the newest entry of the ledger is signed with the key before this one";
            return Err(Failure::new(ErrorCode::PreconditionFailed, problem).suggest("Make a call, then try again."));
        }
        let mut receipt = Self {
            form: FORM.to_owned(),
            run_id,
            call_id,
            leaf: placed.text,
            index: placed.index,
            proof: proof.iter().map(|hash| BASE64.encode(hash)).collect(),
            checkpoint: entry.note(verifier.name()),
            key: verifier.to_text(),
            key_pem: pem(&verifier),
            cose: BASE64
                .encode(Cose::new(&verifier, run_id, (entry.size(), &entry.root), placed.index, &proof).sign(signer)),
            previous: None,
            records: Vec::new(),
        };
        if let (Some(call_id), Some(head)) = (call_id, placed.leaf.head()) {
            receipt.add_records(store, call_id, head.seq)?;
        }
        Ok(receipt)
    }

    fn add_records(&mut self, store: &dyn Store, call_id: CallId, end: u64) -> Result<(), Failure> {
        let mut previous = genesis(self.run_id);
        let mut unreadable = None;
        store.frames(self.run_id, 1, &mut |frame| {
            if self.records.is_empty() && !is_call(&frame, call_id) {
                previous = frame.chain;
                return ControlFlow::Continue(());
            }
            let Frame { seq, kind, payload, .. } = frame;
            match String::from_utf8(payload) {
                Ok(payload) => self.records.push(ReceiptRecord { seq, kind, payload }),
                Err(_) => unreadable = Some(seq),
            }
            if seq < end && unreadable.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if let Some(seq) = unreadable {
            return Err(Failure::new(ErrorCode::RecordCorrupted, format!("record {seq} cannot be read")));
        }
        if self.records.is_empty() {
            return Err(Failure::new(ErrorCode::NotFound, format!("run {} has no call {call_id}", self.run_id)));
        }
        self.previous = Some(canonical::hex(&previous));
        Ok(())
    }
}

fn not_sealed(store: &dyn Store, run_id: RunId, is_chained: bool) -> Result<Failure, StoreError> {
    Ok(match store.run(run_id)? {
        None => Failure::new(ErrorCode::NotFound, format!("there is no run {run_id}")),
        Some(row) if !row.status.is_final() => {
            Failure::new(ErrorCode::PreconditionFailed, "the run has not ended, and only ended runs are in the ledger")
        }
        Some(_) if is_chained => Failure::new(
            ErrorCode::PreconditionFailed,
            "an earlier version sealed the run into a chained ledger, which has no inclusion proofs",
        )
        .suggest("Check it with `toolyard runs verify RUN`."),
        Some(_) => Failure::new(ErrorCode::RecordCorrupted, "the run has ended and is not in the ledger")
            .suggest("Check it with `toolyard runs verify RUN`."),
    })
}

fn is_call(frame: &Frame, call_id: CallId) -> bool {
    match RecordKind::from_u8(frame.kind) {
        Some(RecordKind::Call | RecordKind::Refused) => match Record::decode(frame.kind, &frame.payload) {
            Ok(Record::Call(call)) => call.call_id == call_id,
            Ok(Record::Refused(refused)) => refused.call_id == call_id,
            _ => false,
        },
        _ => false,
    }
}

/// Checks a receipt with nothing but a public key.
pub fn verify_receipt(receipt: &Receipt, keys: &[Verifier]) -> ReceiptReport {
    let (size, problem) = match check(receipt, keys) {
        Ok(size) => (size, None),
        Err((size, seq, problem)) => (size, Some(ReceiptProblem { seq, problem: problem.to_owned() })),
    };
    ReceiptReport {
        ok: problem.is_none(),
        run_id: receipt.run_id,
        call_id: receipt.call_id,
        size,
        records: if problem.is_none() { receipt.records.len() as u64 } else { 0 },
        first_bad: problem,
    }
}

type ReceiptFailure = (u64, u64, &'static str);

fn check(receipt: &Receipt, keys: &[Verifier]) -> Result<u64, ReceiptFailure> {
    if receipt.form != FORM {
        return Err((0, 0, "it is not a receipt that this version knows"));
    }
    let heads = super::read_heads("the checkpoint", &receipt.checkpoint).unwrap_or_default();
    let Some(head) = heads.first() else { return Err((0, 0, "its checkpoint cannot be read")) };
    let wrong = |seq: u64, problem: &'static str| Err((head.size, seq, problem));
    let Some(key) = keys.iter().find(|key| key.check(&receipt.checkpoint, ORIGIN, head.size, &head.root)) else {
        return wrong(0, "its checkpoint is not signed with a key that is known here");
    };
    let proof: Option<Vec<Hash>> = receipt.proof.iter().map(|hash| BASE64.decode(hash).ok()?.try_into().ok()).collect();
    let leaf = leaf_hash(receipt.leaf.as_bytes());
    let root = proof.as_ref().and_then(|proof| root_of_inclusion(leaf, receipt.index, head.size, proof));
    let Some(proof) = proof.filter(|_| root == Some(head.root)) else {
        return wrong(0, "its proof does not lead from the leaf to the signed root");
    };
    let sealed = match serde_json::from_str(&receipt.leaf) {
        Ok(Leaf::Run { head, .. }) if head.run_id == receipt.run_id => head,
        _ => return wrong(0, "its leaf is not the end of the run that it names"),
    };
    if receipt.key != key.to_text() || receipt.key_pem != pem(key) {
        return wrong(0, "the key that it names is not the one that signed its checkpoint");
    }
    let cose = Cose::new(key, receipt.run_id, (head.size, &head.root), receipt.index, &proof);
    if !BASE64.decode(&receipt.cose).is_ok_and(|message| cose.holds(&message, key)) {
        return wrong(0, "its COSE receipt is not a signed one of the same proof");
    }
    let Some(call_id) = receipt.call_id else {
        let is_bare = receipt.previous.is_none() && receipt.records.is_empty();
        return if is_bare { Ok(head.size) } else { wrong(0, "it holds records and names no call") };
    };
    let Some(mut chain) = receipt.previous.as_deref().and_then(canonical::unhex) else {
        return wrong(0, "the chain value before its records is missing");
    };
    let Some(first) = receipt.records.first() else { return wrong(0, "the records of its call are missing") };
    let mut last = first.seq;
    for (i, record) in receipt.records.iter().enumerate() {
        if first.seq.checked_add(i as u64) != Some(record.seq) {
            return wrong(last, "the record after this one is missing");
        }
        last = record.seq;
        chain = link(&chain, last, record.kind, record.payload.as_bytes());
    }
    if last != sealed.seq || canonical::hex(&chain) != sealed.hash {
        return wrong(last, "its records do not lead to the head in the ledger");
    }
    let payload = first.payload.clone().into_bytes();
    if !is_call(&Frame { seq: first.seq, kind: first.kind, payload, chain: [0; 32] }, call_id) {
        return wrong(first.seq, "the first record is not the call that it names");
    }
    Ok(head.size)
}

fn pem(key: &Verifier) -> String {
    let der = [SPKI.as_slice(), key.public_key()].concat();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(der))
}

/// A COSE receipt (RFC 9942) with one inclusion proof: a COSE_Sign1 over the root, which is left out of the message
/// because the reader computes it from the leaf.
struct Cose {
    /// What is signed.
    signed: Vec<u8>,
    /// The message up to the signature, which is its last part.
    message: Cbor,
}

impl Cose {
    fn new(verifier: &Verifier, run_id: RunId, head: (u64, &Hash), index: u64, proof: &[Hash]) -> Self {
        let (size, root) = head;
        let mut protected = Cbor::default();
        // alg: EdDSA; kid; CWT claims: issuer and subject; the verifiable data structure: RFC9162_SHA256.
        protected.map(4).uint(1).negative(8);
        protected.uint(4).bytes(verifier.id().as_bytes());
        protected.uint(15).map(2).uint(1).text(ORIGIN).uint(2).text(&format!("run {run_id}"));
        protected.uint(395).uint(1);
        let mut signed = Cbor::default();
        signed.array(4).text("Signature1").bytes(&protected.0).bytes(&[]).bytes(root);
        let mut path = Cbor::default();
        path.array(3).uint(size).uint(index).array(proof.len() as u64);
        for hash in proof {
            path.bytes(hash);
        }
        let mut message = Cbor::default();
        message.tag(18).array(4).bytes(&protected.0);
        message.map(1).uint(396).map(1).negative(1).array(1).bytes(&path.0);
        message.null();
        Self { signed: signed.0, message }
    }

    fn sign(mut self, signer: &Signer) -> Vec<u8> {
        let signature = signer.sign_bytes(&self.signed);
        self.message.bytes(&signature);
        self.message.0
    }

    /// Whether a message is this one with a valid signature.
    fn holds(mut self, message: &[u8], verifier: &Verifier) -> bool {
        let Some((_, signature)) = message.split_last_chunk::<64>() else { return false };
        self.message.bytes(signature);
        self.message.0 == message && verifier.check_bytes(&self.signed, signature)
    }
}

/// The few things of CBOR (RFC 8949, deterministic encoding) that a receipt is made of.
#[derive(Default)]
struct Cbor(Vec<u8>);

impl Cbor {
    fn head(&mut self, major: u8, value: u64) -> &mut Self {
        let major = major << 5;
        match value {
            0..=23 => self.0.push(major | value as u8),
            24..=0xff => self.0.extend([major | 24, value as u8]),
            0x100..=0xffff => {
                self.0.push(major | 25);
                self.0.extend((value as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                self.0.push(major | 26);
                self.0.extend((value as u32).to_be_bytes());
            }
            _ => {
                self.0.push(major | 27);
                self.0.extend(value.to_be_bytes());
            }
        }
        self
    }
    fn uint(&mut self, value: u64) -> &mut Self {
        self.head(0, value)
    }
    /// A negative number by its absolute value, which is at least 1.
    fn negative(&mut self, absolute: u64) -> &mut Self {
        self.head(1, absolute - 1)
    }
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.head(2, bytes.len() as u64).0.extend_from_slice(bytes);
        self
    }
    fn text(&mut self, text: &str) -> &mut Self {
        self.head(3, text.len() as u64).0.extend_from_slice(text.as_bytes());
        self
    }
    fn array(&mut self, items: u64) -> &mut Self {
        self.head(4, items)
    }
    fn map(&mut self, pairs: u64) -> &mut Self {
        self.head(5, pairs)
    }
    fn tag(&mut self, tag: u64) -> &mut Self {
        self.head(6, tag)
    }
    fn null(&mut self) -> &mut Self {
        self.0.push(0xf6);
        self
    }
}
