//! The envelope of a request from node to node, and the frames of its answer: what is signed, and how it is checked.
//!
//! All nodes of a cluster know one secret. Every request carries an HMAC-SHA-256 over an envelope that names the sender
//! and the receiver with their current epochs, the path, the hash of the body, a number, and the time within which the
//! answer is wanted. Every part of the answer carries an HMAC that is bound to the request. There is nothing here that
//! reads a clock or a socket.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toolyard_engine::{derive_shared, store::Owner};
use toolyard_protocol::canonical;

/// The header with the envelope: base64url of its JSON.
pub const ENVELOPE_HEADER: &str = "toolyard-envelope";
/// The header with the HMAC of the envelope, in hex.
pub const MAC_HEADER: &str = "toolyard-mac";
/// The path of the node door.
pub const NODE_PATH: &str = "/node";

/// What the key is derived for.
const PURPOSE: &str = "node to node requests";
const VERSION: u8 = 1;
/// How far the clocks of two nodes may be apart, in milliseconds. A request that was held back longer is refused.
const MAX_SKEW_MS: i64 = 300_000;
/// The numbers of a sender that are remembered: as many requests may overtake one another.
const WINDOW: u64 = 4096;
/// The longest envelope, in bytes.
const MAX_ENVELOPE: usize = 4096;
/// The longest frame of an answer, in bytes.
pub(crate) const MAX_FRAME: usize = 32 << 20;
/// Kind, length and HMAC of a frame.
const FRAME_HEAD: usize = 1 + 4 + 32;

/// Hex digits of the HMAC in a session's id.
const SESSION_MAC: usize = 32;

/// A node during one run of its process: its name and its epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeLife {
    /// Its name.
    pub node: String,
    /// Which of its lives.
    pub epoch: u64,
}

impl From<&Owner> for NodeLife {
    fn from(owner: &Owner) -> Self {
        Self { node: owner.node.clone(), epoch: owner.epoch }
    }
}

impl NodeLife {
    /// The same, as the store names it.
    pub fn owner(&self) -> Owner {
        Owner { node: self.node.clone(), epoch: self.epoch }
    }
}

/// What is signed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    version: u8,
    /// Who asks.
    pub from: NodeLife,
    to: NodeLife,
    /// Grows with every request of the sender's life.
    number: u64,
    method: String,
    path: String,
    body_sha256: String,
    /// By the sender's clock, milliseconds since 1970.
    sent_at_ms: i64,
    /// The answer is wanted within this time.
    pub within_ms: u64,
}

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub struct SignedRequest {
    /// The value of [`ENVELOPE_HEADER`].
    pub envelope: String,
    /// The value of [`MAC_HEADER`].
    pub mac: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Why a request is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEnvelope {
    /// It carries no envelope, or one that cannot be read.
    Unreadable,
    /// It was not signed with the cluster's key.
    Forged,
    /// It is meant for another node, for an earlier life of this one, or for another path.
    NotForThisNode,
    /// It was sent too long ago, or the clocks of the two nodes are too far apart.
    Stale,
    /// It came before.
    Repeated,
    /// The body is not the one that was signed.
    OtherBody,
}

impl BadEnvelope {
    /// The message for the sender.
    pub fn message(self) -> &'static str {
        match self {
            Self::Unreadable => "the request carries no readable node envelope",
            Self::Forged => "the envelope is not signed by a node of this cluster",
            Self::NotForThisNode => "the request is meant for another node, or for an earlier life of this one",
            Self::Stale => "the request was sent more than five minutes ago by this node's clock; compare the clocks",
            Self::Repeated => "the request was sent before",
            Self::OtherBody => "the body is not the one that was signed",
        }
    }
}

/// The key of a cluster for requests from node to node.
#[derive(Clone)]
pub struct NodeKey([u8; 32]);

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(..)")
    }
}

/// The parts of a request, before it is signed.
pub(crate) struct Unsigned<'a> {
    pub(crate) from: &'a Owner,
    pub(crate) to: &'a Owner,
    pub(crate) number: u64,
    pub(crate) sent_at_ms: i64,
    pub(crate) within_ms: u64,
    pub(crate) body: Vec<u8>,
}

impl NodeKey {
    /// The key of the cluster with this secret.
    pub fn derive(secret: &[u8; 32]) -> Self {
        Self(derive_shared(secret, PURPOSE))
    }

    fn mac(&self, text: &str) -> [u8; 32] {
        derive_shared(&self.0, text)
    }

    /// Signs a request.
    pub(crate) fn sign(&self, request: Unsigned<'_>) -> Result<SignedRequest, serde_json::Error> {
        let Unsigned { from, to, number, sent_at_ms, within_ms, body } = request;
        let envelope = Envelope {
            version: VERSION,
            from: from.into(),
            to: to.into(),
            number,
            method: "POST".to_owned(),
            path: NODE_PATH.to_owned(),
            body_sha256: canonical::hex(&Sha256::digest(&body)),
            sent_at_ms,
            within_ms,
        };
        let envelope = BASE64.encode(serde_json::to_vec(&envelope)?);
        let mac = canonical::hex(&self.mac(&envelope));
        Ok(SignedRequest { envelope, mac, body })
    }

    /// Checks everything but the body, which has not been read then, and the number.
    pub(crate) fn open(&self, envelope: &str, mac: &str, me: &Owner, now_ms: i64) -> Result<Envelope, BadEnvelope> {
        if envelope.len() > MAX_ENVELOPE {
            return Err(BadEnvelope::Unreadable);
        }
        let made = canonical::hex(&self.mac(envelope));
        if !bool::from(made.as_bytes().ct_eq(mac.as_bytes())) {
            return Err(BadEnvelope::Forged);
        }
        let json = BASE64.decode(envelope).map_err(|_| BadEnvelope::Unreadable)?;
        let envelope: Envelope = serde_json::from_slice(&json).map_err(|_| BadEnvelope::Unreadable)?;
        let is_for_us = envelope.version == VERSION
            && envelope.to == NodeLife::from(me)
            && envelope.method == "POST"
            && envelope.path == NODE_PATH;
        if !is_for_us {
            return Err(BadEnvelope::NotForThisNode);
        }
        if now_ms.saturating_sub(envelope.sent_at_ms).abs() > MAX_SKEW_MS {
            return Err(BadEnvelope::Stale);
        }
        Ok(envelope)
    }

    /// The id of a session that a node has: it names the node, so that every other node finds it.
    pub(crate) fn session_id(&self, plain: &str, owner: &Owner) -> String {
        let node = BASE64.encode(&owner.node);
        let named = format!("{plain}.{node}.{}", owner.epoch);
        let mac = canonical::hex(&self.mac(&format!("session {named}")));
        format!("{named}.{}", &mac[..SESSION_MAC])
    }

    /// The node that has a session, if a node of this cluster made the id.
    pub(crate) fn session_owner(&self, id: &str) -> Option<Owner> {
        let (named, mac) = id.rsplit_once('.')?;
        let made = canonical::hex(&self.mac(&format!("session {named}")));
        if !bool::from(made.as_bytes()[..SESSION_MAC].ct_eq(mac.as_bytes())) {
            return None;
        }
        let mut parts = named.rsplitn(3, '.');
        let epoch = parts.next()?.parse().ok()?;
        let node = String::from_utf8(BASE64.decode(parts.next()?).ok()?).ok()?;
        Some(Owner { node, epoch })
    }

    /// One frame of an answer.
    pub fn frame(&self, request_mac: &str, index: u64, chunk: &[u8], is_last: bool) -> Vec<u8> {
        let mut frame = Vec::with_capacity(FRAME_HEAD + chunk.len());
        frame.push(u8::from(is_last));
        frame.extend_from_slice(&u32::try_from(chunk.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend_from_slice(&self.mac(&frame_text(request_mac, index, chunk, is_last)));
        frame.extend_from_slice(chunk);
        frame
    }
}

impl Envelope {
    /// Checks the body.
    pub(crate) fn check_body(&self, body: &[u8]) -> Result<(), BadEnvelope> {
        match canonical::hex(&Sha256::digest(body)) == self.body_sha256 {
            true => Ok(()),
            false => Err(BadEnvelope::OtherBody),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

fn frame_text(request_mac: &str, index: u64, chunk: &[u8], is_last: bool) -> String {
    let digest = canonical::hex(&Sha256::digest(chunk));
    format!("answer {request_mac} {index} {} {digest}", u8::from(is_last))
}

/// Reads the frames of an answer.
pub(crate) struct Frames {
    key: NodeKey,
    request_mac: String,
    index: u64,
    buffer: Vec<u8>,
    is_over: bool,
}

/// Why an answer is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadAnswer;

impl Frames {
    pub(crate) fn new(key: NodeKey, request_mac: String) -> Self {
        Self { key, request_mac, index: 0, buffer: Vec::new(), is_over: false }
    }

    /// Whether the last frame has come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes bytes as they come, and answers the chunks that are complete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BadAnswer> {
        self.buffer.extend_from_slice(bytes);
        let mut chunks = Vec::new();
        while self.buffer.len() >= FRAME_HEAD && !self.is_over {
            let is_last = match self.buffer[0] {
                0 => false,
                1 => true,
                _ => return Err(BadAnswer),
            };
            let length = self.buffer[1..5].iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
            if length > MAX_FRAME {
                return Err(BadAnswer);
            }
            if self.buffer.len() < FRAME_HEAD + length {
                break;
            }
            let chunk = self.buffer[FRAME_HEAD..FRAME_HEAD + length].to_vec();
            let made = self.key.mac(&frame_text(&self.request_mac, self.index, &chunk, is_last));
            if !bool::from(made.ct_eq(&self.buffer[5..FRAME_HEAD])) {
                return Err(BadAnswer);
            }
            self.buffer.drain(..FRAME_HEAD + length);
            self.index += 1;
            self.is_over = is_last;
            chunks.push(chunk);
        }
        if self.is_over && !self.buffer.is_empty() {
            return Err(BadAnswer);
        }
        Ok(chunks)
    }
}

/// The numbers that came from one life of a sender. Each is accepted once, in any order within the window.
pub(crate) struct Numbers {
    highest: u64,
    seen: Box<[u64]>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { highest: 0, seen: vec![0; (WINDOW / 64) as usize].into() }
    }
}

impl Numbers {
    /// Whether a number came for the first time. One that is older than the window counts as repeated.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        if number == 0 || number.saturating_add(WINDOW) <= self.highest {
            return false;
        }
        if number > self.highest {
            // The places between are those of numbers that have left the window.
            let first = (self.highest + 1).max(number.saturating_sub(WINDOW - 1));
            (first..=number).for_each(|at| self.clear(at));
            self.highest = number;
        }
        let (word, bit) = place(number);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.seen[word] &= !bit;
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(node: &str, epoch: u64) -> Owner {
        Owner { node: node.to_owned(), epoch }
    }

    fn signed(key: &NodeKey, to: &Owner) -> SignedRequest {
        let from = owner("a", 1);
        let body = b"{}".to_vec();
        key.sign(Unsigned { from: &from, to, number: 1, sent_at_ms: 1_000_000, within_ms: 500, body }).unwrap()
    }

    #[test]
    fn an_envelope_opens_for_its_receiver_and_nobody_else() {
        let key = NodeKey::derive(&[1; 32]);
        let (b, later) = (owner("b", 2), owner("b", 3));
        let request = signed(&key, &b);
        let open = |key: &NodeKey, me: &Owner, now| key.open(&request.envelope, &request.mac, me, now);
        let envelope = open(&key, &b, 1_000_500).unwrap();
        assert_eq!((envelope.from.owner(), envelope.within_ms), (owner("a", 1), 500));
        envelope.check_body(b"{}").unwrap();
        assert_eq!(envelope.check_body(b"{ }"), Err(BadEnvelope::OtherBody));
        assert_eq!(open(&key, &later, 1_000_500).unwrap_err(), BadEnvelope::NotForThisNode);
        assert_eq!(open(&NodeKey::derive(&[2; 32]), &b, 1_000_500).unwrap_err(), BadEnvelope::Forged);
        assert_eq!(open(&key, &b, 1_000_000 + MAX_SKEW_MS + 1).unwrap_err(), BadEnvelope::Stale);
        assert_eq!(open(&key, &b, 1_000_000 - MAX_SKEW_MS - 1).unwrap_err(), BadEnvelope::Stale);
    }

    #[test]
    fn every_changed_byte_of_an_envelope_is_found() {
        let key = NodeKey::derive(&[1; 32]);
        let b = owner("b", 2);
        let request = signed(&key, &b);
        for at in 0..request.envelope.len() {
            let mut changed = request.envelope.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(key.open(&changed, &request.mac, &b, 1_000_000).unwrap_err(), BadEnvelope::Forged);
        }
    }

    #[test]
    fn a_sessions_id_names_its_node_and_cannot_be_made_up() {
        let key = NodeKey::derive(&[1; 32]);
        let owner = owner("node.with dots", 7);
        let id = key.session_id("abc", &owner);
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "a header carries it: {id}");
        assert_eq!(key.session_owner(&id), Some(owner));
        assert_eq!(key.session_owner(&id.replace(".7.", ".8.")), None);
        assert_eq!(NodeKey::derive(&[2; 32]).session_owner(&id), None);
        for other in ["", ".", "abc", "a.b.c", "a.b.c.d"] {
            assert_eq!(key.session_owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_number_counts_once_in_any_order_within_the_window() {
        let mut numbers = Numbers::default();
        assert!(!numbers.take(0));
        assert!(numbers.take(5) && numbers.take(3) && numbers.take(4));
        assert!(!numbers.take(5) && !numbers.take(3));
        assert!(numbers.take(5 + WINDOW), "far ahead");
        assert!(!numbers.take(5), "it has left the window");
        assert!(numbers.take(6), "the last place of the window, and it has not come before");
        assert!(!numbers.take(6));
        assert!(numbers.take(3 + WINDOW), "the place of a number that left the window is free again");
        assert!(numbers.take(u64::MAX) && !numbers.take(u64::MAX));
    }

    #[test]
    fn frames_are_read_however_they_are_cut_and_not_in_another_order() {
        let key = NodeKey::derive(&[1; 32]);
        let frames = [key.frame("m", 0, b"one", false), key.frame("m", 1, b"", false), key.frame("m", 2, b"two", true)];
        let mut reader = Frames::new(key.clone(), "m".to_owned());
        let mut chunks = Vec::new();
        for byte in frames.concat() {
            chunks.extend(reader.take(&[byte]).unwrap());
        }
        assert!(reader.is_over());
        assert_eq!(chunks, [b"one".to_vec(), Vec::new(), b"two".to_vec()]);
        assert_eq!(reader.take(b"x"), Err(BadAnswer), "nothing follows the last frame");
        let turned = [&frames[2][..], &frames[0]].concat();
        assert_eq!(Frames::new(key.clone(), "m".to_owned()).take(&turned), Err(BadAnswer));
        assert_eq!(Frames::new(key, "other".to_owned()).take(&frames[0]), Err(BadAnswer), "of another request");
    }
}
