//! The keys that sign the record: Ed25519 signatures in signed notes (C2SP signed-note), and the tags derived from them.
//!
//! A key may be replaced while the program runs ([`Signer::replace`]); the ledger records which key signed what.

use crate::{
    chain::Checkpoint,
    end_tag::{EndTagKey, RecordLocation},
    fact_seal::FactKey,
};
use arc_swap::ArcSwap;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};
use toolyard_protocol::{RunId, canonical};

/// Ed25519, in a signed note's key id and in a verifier key.
const ED25519: u8 = 1;
/// A key id and a signature, as a note's signature line has them.
pub(crate) const SIGNATURE_BYTES: usize = 4 + 64;

/// Derives a key for one purpose from the secret of a cluster ([`crate::Store::shared_secret`]): HMAC-SHA-256 of the
/// purpose under the secret. Keys for different purposes say nothing about each other.
pub fn derive_shared(secret: &[u8; 32], purpose: &str) -> [u8; 32] {
    EndTagKey::new(secret).hmac(&[b"toolyard cluster v1\0", purpose.as_bytes()])
}

/// Signs notes and tags records. The name is part of every note, so that the notes of two machines can be
/// distinguished.
pub struct Signer {
    name: String,
    keys: ArcSwap<KeyPair>,
    /// Makes the HMACs of secret arguments. Stays when the signing key is replaced, so that old records stay provable.
    secrets: EndTagKey,
    /// Seals facts. Stays as well, so that a rotation need not write every fact anew.
    facts: FactKey,
}

struct KeyPair {
    key: SigningKey,
    end_tags: EndTagKey,
}

impl KeyPair {
    fn new(secret: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(secret), end_tags: EndTagKey::derive(secret) }
    }
}

impl Signer {
    /// From a 32-byte secret. The key for secret arguments is derived from it as well.
    pub fn from_secret(name: impl Into<String>, secret: &[u8; 32]) -> Self {
        let keys = ArcSwap::from_pointee(KeyPair::new(secret));
        let (secrets, facts) = (EndTagKey::derive_for_secrets(secret), FactKey::derive(secret));
        Self { name: name.into(), keys, secrets, facts }
    }

    /// With a key of its own for secret arguments and for facts, which stays when the signing key is replaced.
    #[must_use]
    pub fn with_secrets_key(self, secret: &[u8; 32]) -> Self {
        Self { secrets: EndTagKey::derive_for_secrets(secret), facts: FactKey::derive(secret), ..self }
    }

    /// Signs with another key from now on. To be called after the ledger has named that key.
    pub fn replace(&self, secret: &[u8; 32]) {
        self.keys.store(std::sync::Arc::new(KeyPair::new(secret)));
    }

    /// What a verifier needs. This one can check tags as well, which the public key alone cannot.
    pub fn verifier(&self) -> Verifier {
        let keys = self.keys.load();
        Verifier {
            name: self.name.clone(),
            key: keys.key.verifying_key(),
            end_tags: Some(keys.end_tags.clone()),
            secrets: Some(self.secrets.clone()),
            facts: Some(self.facts.clone()),
        }
    }

    /// Adds the tag to the payload of a record; see [`crate::end_tag`].
    pub fn tag(&self, run_id: RunId, seq: u64, previous: &[u8; 32], payload: &mut Vec<u8>) {
        self.keys.load().end_tags.add(&RecordLocation { run_id, seq, previous }, payload);
    }

    /// The key that seals facts.
    pub(crate) fn facts(&self) -> &FactKey {
        &self.facts
    }

    /// What is kept of a secret argument; see [`crate::secrets`].
    pub(crate) fn secret_hmac(&self, value: &[u8]) -> [u8; 32] {
        self.secrets.hmac(&[value])
    }

    /// Signs a tree head: `origin` says which log, `size` how many records, `hash` the chain value or the root.
    pub fn sign(&self, origin: &str, size: u64, hash: &[u8; 32]) -> String {
        let body = note_body(origin, size, hash);
        let signature = BASE64.encode(self.signature(&body));
        format!("{body}\n\u{2014} {} {signature}\n", self.name)
    }

    /// The key id and the signature of a note's text.
    pub(crate) fn signature(&self, body: &str) -> [u8; SIGNATURE_BYTES] {
        let keys = self.keys.load();
        let mut blob = [0; SIGNATURE_BYTES];
        blob[..4].copy_from_slice(&key_hash(&self.name, &keys.key.verifying_key()));
        blob[4..].copy_from_slice(&keys.key.sign(body.as_bytes()).to_bytes());
        blob
    }

    /// A plain Ed25519 signature, for formats that are not notes.
    pub(crate) fn sign_bytes(&self, bytes: &[u8]) -> [u8; 64] {
        self.keys.load().key.sign(bytes).to_bytes()
    }

    /// A checkpoint of a run.
    pub fn checkpoint(&self, run_id: RunId, seq: u64, chain: &[u8; 32]) -> Checkpoint {
        Checkpoint { seq, note: self.sign(&run_origin(run_id), seq, chain) }
    }
}

/// Checks signatures.
#[derive(Debug, Clone)]
pub struct Verifier {
    name: String,
    key: VerifyingKey,
    /// Only the holder of the signing key has it.
    end_tags: Option<EndTagKey>,
    /// The same for secret arguments.
    secrets: Option<EndTagKey>,
    /// The same for facts.
    facts: Option<FactKey>,
}

impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.key == other.key
    }
}

impl Verifier {
    /// Reads a verifier key, `name+id+base64(type and key)`, the form [`Verifier::to_text`] writes; and
    /// `name+base64(key)`, which earlier versions wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.trim().split_once('+')?;
        let (key, id) = match rest.split_once('+') {
            Some((id, key)) if id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit()) => {
                (BASE64.decode(key).ok()?.strip_prefix(&[ED25519])?.to_vec(), Some(id))
            }
            _ => (BASE64.decode(rest).ok()?, None),
        };
        let key = VerifyingKey::from_bytes(&key.try_into().ok()?).ok()?;
        let verifier = Self { name: name.to_owned(), key, end_tags: None, secrets: None, facts: None };
        (!name.is_empty() && id.is_none_or(|id| id == verifier.id())).then_some(verifier)
    }

    /// The verifier key of C2SP's signed notes: `name+id+base64(type and key)`.
    pub fn to_text(&self) -> String {
        let key = [&[ED25519], self.key.as_bytes().as_slice()].concat();
        format!("{}+{}+{}", self.name, self.id(), BASE64.encode(key))
    }

    /// The key's id, eight hex digits.
    pub fn id(&self) -> String {
        canonical::hex(&key_hash(&self.name, &self.key))
    }

    /// The public key.
    pub fn public_key(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The name in the signature lines.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a key id and signature over this text are this key's.
    pub(crate) fn check_signature(&self, body: &str, blob: &[u8]) -> bool {
        let Some((id, signature)) = blob.split_first_chunk::<4>() else { return false };
        let Ok(signature) = Signature::from_slice(signature) else { return false };
        id == &key_hash(&self.name, &self.key) && self.key.verify_strict(body.as_bytes(), &signature).is_ok()
    }

    /// Whether a plain Ed25519 signature over these bytes is this key's.
    pub(crate) fn check_bytes(&self, bytes: &[u8], signature: &[u8; 64]) -> bool {
        self.key.verify_strict(bytes, &Signature::from_bytes(signature)).is_ok()
    }

    /// Whether a note is signed by this key and has exactly this content. Signature lines of others (witnesses) are
    /// ignored.
    pub fn check(&self, note: &str, origin: &str, size: u64, hash: &[u8; 32]) -> bool {
        let body = note_body(origin, size, hash);
        let Some(rest) = note.strip_prefix(&body).and_then(|r| r.strip_prefix('\n')) else { return false };
        rest.lines().any(|line| {
            let Some((name, blob)) = line.strip_prefix("\u{2014} ").and_then(|l| l.rsplit_once(' ')) else {
                return false;
            };
            let Ok(blob) = BASE64.decode(blob) else { return false };
            name == self.name && self.check_signature(&body, &blob)
        })
    }

    /// Whether a run's checkpoint is signed by this key and covers this chain value.
    pub fn check_run(&self, checkpoint: &Checkpoint, run_id: RunId, chain: &[u8; 32]) -> bool {
        self.check(&checkpoint.note, &run_origin(run_id), checkpoint.seq, chain)
    }

    /// Whether a record at this place carries a valid tag. Always false for a verifier with only the public key.
    pub(crate) fn check_tag(&self, place: &RecordLocation<'_>, payload: &[u8]) -> bool {
        self.end_tags.as_ref().is_some_and(|tags| tags.check(place, payload))
    }

    /// What is kept of a secret argument. `None` for a verifier with only the public key.
    pub(crate) fn secret_hmac(&self, value: &[u8]) -> Option<[u8; 32]> {
        self.secrets.as_ref().map(|key| key.hmac(&[value]))
    }

    /// The key that seals facts. `None` if only the public key is known.
    pub(crate) fn facts(&self) -> Option<&FactKey> {
        self.facts.as_ref()
    }

    /// Whether tags can be checked, which needs the secret key.
    pub(crate) fn knows_tags(&self) -> bool {
        self.end_tags.is_some()
    }
}

fn run_origin(run_id: RunId) -> String {
    format!("toolyard/run/{run_id}")
}

/// The signed text of a tree head.
pub(crate) fn note_body(origin: &str, size: u64, hash: &[u8; 32]) -> String {
    format!("{origin}\n{size}\n{}\n", BASE64.encode(hash))
}

/// The signed note's key id: the first four bytes of SHA-256(name ‖ "\n" ‖ 0x01 ‖ key); 0x01 stands for Ed25519.
fn key_hash(name: &str, key: &VerifyingKey) -> [u8; 4] {
    let mut h = Sha256::new();
    h.update(name.as_bytes());
    h.update([b'\n', ED25519]);
    h.update(key.as_bytes());
    let digest: [u8; 32] = h.finalize().into();
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_survives_its_text_form_and_the_earlier_one() {
        for n in 0..40 {
            let verifier = Signer::from_secret("host", &[n; 32]).verifier();
            assert_eq!(Verifier::parse(&verifier.to_text()).unwrap(), verifier);
            let earlier = format!("host+{}", BASE64.encode(verifier.public_key()));
            assert_eq!(Verifier::parse(&earlier).unwrap(), verifier);
        }
        assert!(Verifier::parse("nonsense").is_none());
        let text = Signer::from_secret("host", &[1; 32]).verifier().to_text();
        assert!(Verifier::parse(&text.replacen("host", "other", 1)).is_none(), "the id names the name as well");
    }

    #[test]
    fn a_note_may_carry_the_lines_of_witnesses() {
        let signer = Signer::from_secret("host", &[1; 32]);
        let note = signer.sign("log", 3, &[7; 32]);
        let witnessed = Signer::from_secret("witness", &[2; 32]).sign("log", 3, &[7; 32]);
        let line = witnessed.lines().last().unwrap();
        let both = note.replacen("\n\n", &format!("\n\n{line}\n"), 1);
        assert!(signer.verifier().check(&both, "log", 3, &[7; 32]));
        assert!(!signer.verifier().check(&witnessed, "log", 3, &[7; 32]));
    }
}
