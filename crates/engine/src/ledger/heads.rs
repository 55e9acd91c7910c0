//! Signed heads of the tree. Kept somewhere else, they reveal a rollback of the whole store.

use super::{ORIGIN, entry::TreeEntry, tree::Hash};
use crate::chain::Verifier;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::canonical;

/// The signed head of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignedHead {
    /// How many leaves the tree has.
    pub size: u64,
    /// Its root, hex.
    pub root: String,
    /// When the newest leaf was made, milliseconds since 1970.
    pub at: i64,
    /// The checkpoint: a C2SP signed note, which other programs can check.
    pub note: String,
    /// The verifier key that it is signed with.
    pub key: String,
}

impl SignedHead {
    pub(super) fn of(entry: &TreeEntry, key: &Verifier) -> Self {
        Self {
            size: entry.size(),
            root: canonical::hex(&entry.root),
            at: entry.at(),
            note: entry.note(key.name()),
            key: key.to_text(),
        }
    }
}

/// A head that was kept outside the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedHead {
    /// Where it was kept, for messages.
    pub source: String,
    /// Its place there, counted from 1.
    pub number: u64,
    /// How many leaves the tree had.
    pub size: u64,
    /// Its root.
    pub root: Hash,
    /// The signed note.
    pub note: String,
}

/// The one field that is read of a head in JSON: the rest follows from it.
#[derive(Deserialize)]
struct Note {
    note: String,
}

/// Reads kept heads: a signed note, a head as `toolyard runs head --json` prints it, or one such head a line. The
/// signatures are not checked here.
pub fn read_heads(source: &str, text: &str) -> Result<Vec<SavedHead>, String> {
    if !text.trim_start().starts_with('{') {
        return head(source, 1, text).map(|head| vec![head]);
    }
    let notes = match serde_json::from_str::<Note>(text) {
        Ok(note) => vec![note.note],
        Err(_) => text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .enumerate()
            .map(|(i, line)| {
                let note = serde_json::from_str::<Note>(line);
                note.map(|note| note.note).map_err(|_| format!("{source}: line {} is not a signed head", i + 1))
            })
            .collect::<Result<_, _>>()?,
    };
    notes.iter().zip(1..).map(|(note, number)| head(source, number, note)).collect()
}

fn head(source: &str, number: u64, note: &str) -> Result<SavedHead, String> {
    let read = || {
        let mut lines = note.lines();
        let (origin, size, root) = (lines.next()?, lines.next()?, lines.next()?);
        let root: Hash = BASE64.decode(root).ok()?.try_into().ok()?;
        (origin == ORIGIN).then_some((size.parse().ok()?, root))
    };
    let (size, root) = read().ok_or_else(|| format!("{source}: head {number} is not a signed head of a ledger"))?;
    Ok(SavedHead { source: source.to_owned(), number, size, root, note: note.to_owned() })
}
