//! The tag on the last record of a run. It proves to this program that this program wrote the end of the run.
//!
//! A run is sealed into the ledger within half a second of its end. When the process dies before that, the next start
//! has to know whether the end that it finds was written by Toolyard or by somebody who could write the database.
//! An Ed25519 signature would cost as much as a whole direct call, so the `Finished` record carries an HMAC-SHA-256
//! under a key derived from the signing key. Whoever has only the public key cannot check it and relies on the ledger.

use sha2::{Digest, Sha256};
use toolyard_protocol::{RunId, canonical};

const BLOCK: usize = 64;
const KEY_LABEL: &[u8] = b"toolyard run end tag v1";
const FIELD: &str = ",\"tag\":\"";
/// `,"tag":"` + 64 hex digits + `"}`.
const SUFFIX_BYTES: usize = FIELD.len() + 64 + 2;

/// The key, as the two hash states that HMAC begins with.
#[derive(Clone)]
pub(crate) struct EndTagKey {
    inner: Sha256,
    outer: Sha256,
}

impl std::fmt::Debug for EndTagKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndTagKey(..)")
    }
}

impl EndTagKey {
    /// The key for run ends that belongs to a signing key.
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self::new(&Self::new(secret).hmac(&[KEY_LABEL]))
    }

    fn new(key: &[u8; 32]) -> Self {
        let pad = |byte: u8| {
            let mut block = [byte; BLOCK];
            block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
            Sha256::new_with_prefix(block)
        };
        Self { inner: pad(0x36), outer: pad(0x5c) }
    }

    fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut inner = self.inner.clone();
        parts.iter().for_each(|part| inner.update(part));
        let mut outer = self.outer.clone();
        outer.update(inner.finalize());
        outer.finalize().into()
    }

    fn tag(&self, run_id: RunId, seq: u64, previous: &[u8; 32], payload: &[u8]) -> String {
        canonical::hex(&self.hmac(&[run_id.as_uuid().as_bytes(), &seq.to_be_bytes(), previous, payload]))
    }

    /// Adds the tag to the payload of a `Finished` record, a JSON object with at least one field.
    pub(crate) fn add(&self, run_id: RunId, seq: u64, previous: &[u8; 32], payload: &mut Vec<u8>) {
        let tag = self.tag(run_id, seq, previous, payload);
        payload.pop();
        payload.extend_from_slice(FIELD.as_bytes());
        payload.extend_from_slice(tag.as_bytes());
        payload.extend_from_slice(b"\"}");
    }

    /// Whether a `Finished` record at this place carries a tag made with this key.
    pub(crate) fn check(&self, run_id: RunId, seq: u64, previous: &[u8; 32], payload: &[u8]) -> bool {
        let Some((body, suffix)) = payload.len().checked_sub(SUFFIX_BYTES).and_then(|n| payload.split_at_checked(n))
        else {
            return false;
        };
        let untagged = [body, b"}"].concat();
        let tag = self.tag(run_id, seq, previous, &untagged);
        suffix == format!("{FIELD}{tag}\"}}").as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        // Test case 1: 20 bytes of 0x0b, padded with zeros as HMAC does with a short key.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let mac = EndTagKey::new(&key).hmac(&[b"Hi ", b"There"]);
        assert_eq!(canonical::hex(&mac), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn a_tag_holds_for_one_run_place_history_and_content() {
        let key = EndTagKey::derive(&[7; 32]);
        let run = RunId::from_uuid(Uuid::from_u128(1));
        let mut payload = b"{\"status\":\"finished\"}".to_vec();
        key.add(run, 3, &[1; 32], &mut payload);
        assert!(serde_json::from_slice::<serde_json::Value>(&payload).is_ok());
        assert!(key.check(run, 3, &[1; 32], &payload));
        assert!(!key.check(RunId::from_uuid(Uuid::from_u128(2)), 3, &[1; 32], &payload));
        assert!(!key.check(run, 4, &[1; 32], &payload));
        assert!(!key.check(run, 3, &[2; 32], &payload));
        assert!(!EndTagKey::derive(&[8; 32]).check(run, 3, &[1; 32], &payload));
        for at in 0..payload.len() {
            let mut edited = payload.clone();
            edited[at] ^= 1;
            assert!(!key.check(run, 3, &[1; 32], &edited), "byte {at}");
            assert!(!key.check(run, 3, &[1; 32], &payload[..at]), "cut at {at}");
        }
    }
}
