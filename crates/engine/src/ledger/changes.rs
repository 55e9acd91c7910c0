//! Changes of the signing key, with the proof of each: for a verifier that pinned one key and must trust the keys that
//! followed it.

use super::{Leaf, log::Log};
use crate::{Store, chain::Verifier, store::StoreError};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One change of the signing key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyChange {
    /// The leaf of the ledger that names both keys, exactly as it was hashed.
    pub leaf: String,
    /// The leaf's place in the tree, counted from 0.
    pub index: u64,
    /// The leaf in the last tree that the old key signed: a verifier that trusts the old key may trust the new one.
    pub announced: SignedInclusion,
    /// The leaf in the first tree that the new key signed: a verifier that trusts the new key may trust the old one for
    /// the entries that it signed. Absent if a process died between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<SignedInclusion>,
}

/// A leaf's place in a tree, and the tree's signed head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedInclusion {
    /// The inclusion proof (RFC 6962), base64.
    pub proof: Vec<String>,
    /// The signed head of the tree: a C2SP checkpoint.
    pub checkpoint: String,
}

/// The changes of the key, the oldest first. May block.
pub fn key_changes(store: &dyn Store, present: &Verifier) -> Result<Vec<KeyChange>, StoreError> {
    let log = Log(store);
    let mut changes = Vec::new();
    // The first key was introduced by nothing.
    for (signed_from, key) in log.keys(present)?.into_iter().skip(1) {
        let seq = signed_from - 1;
        let missing = || StoreError::failed("the ledger entry of a key change is missing".to_owned());
        let entry = log.tree_entry(seq)?.ok_or_else(missing)?;
        let is_change = |leaf: &Leaf| matches!(leaf, Leaf::Key { new, .. } if *new == key.to_text());
        let at = entry.leaves.iter().position(|(_, leaf)| is_change(leaf)).ok_or_else(missing)?;
        let index = entry.first + at as u64;
        let inclusion = |size: u64, checkpoint: String| -> Result<SignedInclusion, StoreError> {
            let proof = log.inclusion(index, size)?;
            Ok(SignedInclusion { proof: proof.iter().map(|hash| BASE64.encode(hash)).collect(), checkpoint })
        };
        let accepted = match log.tree_entry(signed_from)? {
            Some(next) => Some(inclusion(next.size(), next.note(key.name()))?),
            None => None,
        };
        let announced = inclusion(entry.size(), entry.note(key.name()))?;
        changes.push(KeyChange { leaf: entry.leaves[at].0.clone(), index, announced, accepted });
    }
    Ok(changes)
}
