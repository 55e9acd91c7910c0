//! The seal on a fact: who may have written it, which version it is, and when it ends.
//!
//! Facts are small values outside the records of runs: grants, answers to questions, devices, idempotency keys. Somebody
//! who can write the database but has no key must not be able to forge one. Each value is stored behind a header with an
//! HMAC over its space, key, version, end and bytes. A fact that was moved to another key, given another end, or made up
//! does not open.
//!
//! A seal alone does not show that a fact was removed or that an older version was put back. For the spaces in
//! [`NAMED_SPACES`], the ledger names the newest version of each fact ([`FactChange`]).

use crate::end_tag::EndTagKey;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The first bytes of a sealed fact. No JSON text begins with them.
const MAGIC: [u8; 4] = *b"\xf5Tf1";
const FLAGS: usize = MAGIC.len();
const VERSION: usize = FLAGS + 1;
const UNTIL: usize = VERSION + 8;
const TAG: usize = UNTIL + 8;
const HEADER: usize = TAG + TAG_BYTES;
const TAG_BYTES: usize = 16;
/// The fact was removed; what is stored says so until its end.
const REMOVED: u8 = 1;
/// Stands for a fact that never ends.
const NEVER: i64 = i64::MAX;

/// Spaces whose facts are named by the ledger, so that removing one or putting an older version back is found: what
/// gives permissions, what authenticates clients, and what callers were promised. The facts of other spaces (sessions,
/// messages on their way, catalogs) are sealed and not named.
const NAMED_SPACES: [&str; 12] = [
    "approvals",
    "config",
    "consoleCodes",
    "devices",
    "facts",
    "gateway",
    "grant",
    "grants",
    "idempotency",
    "mcp-pins",
    "pairing",
    "workspaces",
];

/// Whether the ledger names the facts of a space.
pub(crate) fn is_named(space: &str) -> bool {
    NAMED_SPACES.contains(&space)
}

/// The named spaces with few facts: a process remembers the newest version of each, and a start looks through them. There is
/// an idempotency key for each call that has one, which is too many for both.
pub(crate) fn small_spaces() -> impl Iterator<Item = &'static str> {
    NAMED_SPACES.into_iter().filter(|space| is_small(space))
}

/// Whether a space is one of [`small_spaces`].
pub(crate) fn is_small(space: &str) -> bool {
    is_named(space) && space != "idempotency"
}

/// Whether a fact of this space gives a permission or authenticates a client. An older version of such a fact must not be used,
/// so a process asks the ledger for the newest version before it uses one that it has not seen.
pub(crate) fn is_permission(space: &str) -> bool {
    PERMISSION_SPACES.contains(&space)
}

/// The spaces of [`is_permission`]. A subset of the small spaces.
pub(crate) const PERMISSION_SPACES: [&str; 4] = ["devices", "grant", "grants", "workspaces"];

/// How the ledger names a fact: a keyed hash of its space and its key.
pub(crate) type FactName = [u8; 16];

/// A change of a fact, as the ledger names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FactChange {
    /// A keyed hash of the fact's space and key, base64url.
    pub fact: String,
    /// Its version. Versions of a fact grow.
    pub version: u64,
    /// When the store forgets it, microseconds since 1970; never where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

impl FactChange {
    pub(crate) fn name(&self) -> Option<FactName> {
        BASE64.decode(&self.fact).ok()?.try_into().ok()
    }
}

/// What a sealed fact says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SealedFact<'a> {
    pub(crate) version: u64,
    /// Microseconds since 1970.
    pub(crate) until: Option<i64>,
    /// `None` for a fact that was removed.
    pub(crate) value: Option<&'a [u8]>,
}

/// Why stored bytes are not a fact of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealError {
    /// They carry no seal: an earlier version wrote them, or somebody else.
    Missing,
    /// They carry one that was not made for this fact with this key.
    Forged,
}

impl std::fmt::Display for SealError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Missing => "it carries no seal: this program did not write it",
            Self::Forged => "its seal is not valid: it was changed, or moved from another fact",
        })
    }
}

/// Seals facts and opens them.
#[derive(Debug, Clone)]
pub(crate) struct FactKey(EndTagKey);

impl FactKey {
    pub(crate) fn derive(secret: &[u8; 32]) -> Self {
        Self(EndTagKey::derive_for_facts(secret))
    }

    /// How the ledger names a fact.
    pub(crate) fn name(&self, space: &str, key: &str) -> FactName {
        let space_len = (space.len() as u64).to_be_bytes();
        let hash = self.0.hmac(&[b"name", &space_len, space.as_bytes(), key.as_bytes()]);
        let mut name = FactName::default();
        name.copy_from_slice(&hash[..16]);
        name
    }

    /// A change of a fact, for the ledger.
    pub(crate) fn change(&self, space: &str, key: &str, fact: &SealedFact<'_>) -> (FactName, FactChange) {
        let name = self.name(space, key);
        (name, FactChange { fact: BASE64.encode(name), version: fact.version, until: fact.until })
    }

    pub(crate) fn seal(&self, space: &str, key: &str, fact: &SealedFact<'_>) -> Vec<u8> {
        let value = fact.value.unwrap_or_default();
        let mut sealed = Vec::with_capacity(HEADER + value.len());
        sealed.extend_from_slice(&MAGIC);
        sealed.push(if fact.value.is_none() { REMOVED } else { 0 });
        sealed.extend_from_slice(&fact.version.to_be_bytes());
        sealed.extend_from_slice(&fact.until.unwrap_or(NEVER).to_be_bytes());
        let tag = self.tag(space, key, &sealed, value);
        sealed.extend_from_slice(&tag);
        sealed.extend_from_slice(value);
        sealed
    }

    pub(crate) fn open<'a>(&self, space: &str, key: &str, stored: &'a [u8]) -> Result<SealedFact<'a>, SealError> {
        if !stored.starts_with(&MAGIC) {
            return Err(SealError::Missing);
        }
        let (header, value) = stored.split_at_checked(HEADER).ok_or(SealError::Forged)?;
        if self.tag(space, key, &header[..TAG], value) != header[TAG..] {
            return Err(SealError::Forged);
        }
        let number = |at: usize| <[u8; 8]>::try_from(&header[at..at + 8]).map_err(|_| SealError::Forged);
        let until = i64::from_be_bytes(number(UNTIL)?);
        Ok(SealedFact {
            version: u64::from_be_bytes(number(VERSION)?),
            until: (until != NEVER).then_some(until),
            value: (header[FLAGS] & REMOVED == 0).then_some(value),
        })
    }

    fn tag(&self, space: &str, key: &str, header: &[u8], value: &[u8]) -> [u8; TAG_BYTES] {
        let lengths = [(space.len() as u64).to_be_bytes(), (key.len() as u64).to_be_bytes()].concat();
        let hash = self.0.hmac(&[b"value", &lengths, space.as_bytes(), key.as_bytes(), header, value]);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hash[..TAG_BYTES]);
        tag
    }
}

/// Changes of facts that wait for the next entry of the ledger.
#[derive(Default)]
pub(crate) struct FactChanges(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    changes: HashMap<FactName, FactChange>,
    /// One of them is not to wait until a run ends.
    is_due: bool,
}

impl FactChanges {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a change. An older change of the same fact is replaced by a newer one.
    pub(crate) fn note(&self, (name, change): (FactName, FactChange), is_due: bool) {
        let mut waiting = self.lock();
        waiting.is_due |= is_due;
        let newest = waiting.changes.entry(name).or_insert_with(|| change.clone());
        if newest.version < change.version {
            *newest = change;
        }
    }

    /// Whether there is something that is to be named soon.
    pub(crate) fn is_idle(&self) -> bool {
        !self.lock().is_due
    }

    /// Takes every change, the ones with the smallest names first.
    pub(crate) fn take(&self) -> Vec<FactChange> {
        let Waiting { changes, .. } = std::mem::take(&mut *self.lock());
        let mut changes: Vec<FactChange> = changes.into_values().collect();
        changes.sort_by(|a, b| a.fact.cmp(&b.fact));
        changes
    }

    /// Puts changes back that could not be named.
    pub(crate) fn put_back(&self, changes: Vec<FactChange>) {
        changes
            .into_iter()
            .filter_map(|change| Some((change.name()?, change)))
            .for_each(|named| self.note(named, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_for_one_fact_end_version_and_value() {
        let key = FactKey::derive(&[7; 32]);
        let fact = SealedFact { version: 5, until: Some(9), value: Some(b"granted") };
        let sealed = key.seal("grant", "a", &fact);
        assert_eq!(key.open("grant", "a", &sealed), Ok(fact));
        assert_eq!(key.open("grant", "b", &sealed), Err(SealError::Forged));
        assert_eq!(key.open("gran", "ta", &sealed), Err(SealError::Forged), "space and key are kept apart");
        assert_eq!(FactKey::derive(&[8; 32]).open("grant", "a", &sealed), Err(SealError::Forged));
        for at in 0..sealed.len() {
            let mut edited = sealed.clone();
            edited[at] ^= 1;
            assert!(key.open("grant", "a", &edited).is_err(), "byte {at}");
            assert!(key.open("grant", "a", &sealed[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(key.open("grant", "a", b"{\"plain\":1}"), Err(SealError::Missing));
        let removed = SealedFact { version: 6, until: None, value: None };
        assert_eq!(key.open("grant", "a", &key.seal("grant", "a", &removed)), Ok(removed));
    }

    #[test]
    fn only_the_newest_change_of_a_fact_waits() {
        let (key, changes) = (FactKey::derive(&[7; 32]), FactChanges::default());
        let at = |version| SealedFact { version, until: None, value: Some(b"v") };
        changes.note(key.change("grant", "a", &at(2)), false);
        assert!(changes.is_idle(), "nothing is due");
        changes.note(key.change("grant", "a", &at(1)), true);
        changes.note(key.change("grant", "b", &at(3)), true);
        assert!(!changes.is_idle());
        let taken = changes.take();
        let mut versions: Vec<u64> = taken.iter().map(|change| change.version).collect();
        versions.sort_unstable();
        assert_eq!(versions, [2, 3]);
        assert!(changes.is_idle() && changes.take().is_empty());
        changes.put_back(taken);
        assert_eq!(changes.take().len(), 2);
    }
}
