//! The tag on the last record of a batch: proof, for this program alone, that this program wrote the batch.
//!
//! A run's end is sealed into the ledger within half a second. Until then, and while the run goes on, somebody who can
//! write the database could change records and recompute the chain. An Ed25519 signature for each batch would take as
//! long as a whole direct call, so the last record of each batch carries an HMAC-SHA-256 under a key derived from the
//! signing key. A batch reaches the store whole or not at all: a record that no tag covers was not written by Toolyard.
//! A verifier with only the public key cannot check a tag and relies on the ledger.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use toolyard_protocol::{RunId, canonical};

const BLOCK: usize = 64;
const KEY_LABEL: &[u8] = b"toolyard run end tag v1";
const SECRET_LABEL: &[u8] = b"toolyard secret argument v1";
const FACT_LABEL: &[u8] = b"toolyard fact v1";
const FIELD: &[u8] = b",\"tag\":\"";
const CLOSE: &[u8] = b"\"}";
/// Hex digits of a tag: 128 bits.
const DIGITS: usize = 32;
/// Hex digits of the tags that earlier versions wrote, on the last record of a run.
const EARLIER_DIGITS: usize = 64;

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
    /// The key for tags that belongs to a signing key.
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self::new(&Self::new(secret).hmac(&[KEY_LABEL]))
    }

    /// The key for the placeholders that replace secret arguments in the record.
    pub(crate) fn derive_for_secrets(secret: &[u8; 32]) -> Self {
        Self::new(&Self::new(secret).hmac(&[SECRET_LABEL]))
    }

    /// The key that seals facts. Derived from the secret itself: what is derived from the key for secret arguments could be
    /// asked for with an argument.
    pub(crate) fn derive_for_facts(secret: &[u8; 32]) -> Self {
        Self::new(&Self::new(secret).hmac(&[FACT_LABEL]))
    }

    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let pad = |byte: u8| {
            let mut block = [byte; BLOCK];
            block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
            Sha256::new_with_prefix(block)
        };
        Self { inner: pad(0x36), outer: pad(0x5c) }
    }

    /// HMAC-SHA-256 of the parts, one after another.
    pub(crate) fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut inner = self.inner.clone();
        parts.iter().for_each(|part| inner.update(part));
        let mut outer = self.outer.clone();
        outer.update(inner.finalize());
        outer.finalize().into()
    }

    fn tag(&self, place: &RecordLocation<'_>, payload: &[&[u8]]) -> String {
        let seq = place.seq.to_be_bytes();
        let mut parts: Vec<&[u8]> = vec![place.run_id.as_uuid().as_bytes(), &seq, place.previous];
        parts.extend(payload);
        canonical::hex(&self.hmac(&parts))
    }

    /// Adds the tag to the payload of a record, a JSON object with at least one field.
    pub(crate) fn add(&self, place: &RecordLocation<'_>, payload: &mut Vec<u8>) {
        let tag = self.tag(place, &[payload]);
        payload.pop();
        payload.extend_from_slice(FIELD);
        payload.extend_from_slice(&tag.as_bytes()[..DIGITS]);
        payload.extend_from_slice(CLOSE);
    }

    /// Whether a record at this place carries a tag made with this key.
    pub(crate) fn check(&self, place: &RecordLocation<'_>, payload: &[u8]) -> bool {
        let Some((body, digits)) = tag_of(payload) else { return false };
        let tag = self.tag(place, &[body, b"}"]);
        tag.as_bytes().get(..digits.len()) == Some(digits)
    }
}

/// Where a record lies.
pub(crate) struct RecordLocation<'a> {
    pub(crate) run_id: RunId,
    pub(crate) seq: u64,
    /// The chain value before the record.
    pub(crate) previous: &'a [u8; 32],
}

/// The payload before its tag, without the closing brace, and the tag's digits.
fn tag_of(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = payload.strip_suffix(CLOSE)?;
    [DIGITS, EARLIER_DIGITS].into_iter().find_map(|n| {
        let (before, digits) = open.split_at_checked(open.len().checked_sub(n)?)?;
        Some((before.strip_suffix(FIELD)?, digits))
    })
}

/// A payload as it was before it was tagged, for records that take no other fields than their own.
pub(crate) fn without_tag(payload: &[u8]) -> Cow<'_, [u8]> {
    match tag_of(payload) {
        Some((body, _)) => Cow::Owned([body, b"}"].concat()),
        None => Cow::Borrowed(payload),
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
        let run_id = RunId::from_uuid(Uuid::from_u128(1));
        let (one, two) = ([1; 32], [2; 32]);
        let at = |run_id, seq, previous| RecordLocation { run_id, seq, previous };
        let mut payload = b"{\"status\":\"finished\"}".to_vec();
        key.add(&at(run_id, 3, &one), &mut payload);
        assert!(serde_json::from_slice::<serde_json::Value>(&payload).is_ok());
        assert!(key.check(&at(run_id, 3, &one), &payload));
        assert!(!key.check(&at(RunId::from_uuid(Uuid::from_u128(2)), 3, &one), &payload));
        assert!(!key.check(&at(run_id, 4, &one), &payload));
        assert!(!key.check(&at(run_id, 3, &two), &payload));
        assert!(!EndTagKey::derive(&[8; 32]).check(&at(run_id, 3, &one), &payload));
        for i in 0..payload.len() {
            let mut edited = payload.clone();
            edited[i] ^= 1;
            assert!(!key.check(&at(run_id, 3, &one), &edited), "byte {i}");
            assert!(!key.check(&at(run_id, 3, &one), &payload[..i]), "cut at {i}");
        }
    }

    #[test]
    fn the_longer_tags_of_earlier_versions_still_hold() {
        let key = EndTagKey::derive(&[7; 32]);
        let run_id = RunId::from_uuid(Uuid::from_u128(1));
        let place = RecordLocation { run_id, seq: 3, previous: &[1; 32] };
        let tag = key.tag(&place, &[b"{\"status\":\"finished\"}"]);
        assert_eq!(tag.len(), EARLIER_DIGITS);
        assert!(key.check(&place, format!("{{\"status\":\"finished\",\"tag\":\"{tag}\"}}").as_bytes()));
    }
}
