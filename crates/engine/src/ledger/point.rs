//! Where the ledger stood when a run began. The first record of each run names it, under the tag of its batch, so that
//! every run is a head that was kept outside the ledger: a ledger that was removed, cut or begun anew together with the
//! file of heads does not have the tree that later runs name.

use super::{
    log::{Log, LogError},
    tree::Hash,
};
use crate::{chain::BadRecord, store::StoreError};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use toolyard_protocol::canonical;

/// Bytes of the root that are named: enough that nobody finds another tree with them.
const ROOT_BYTES: usize = 16;

/// The size of the tree and the beginning of its root, as the text `SIZE:HEX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LedgerPoint {
    /// How many leaves the tree has. At least one.
    pub size: u64,
    root: [u8; ROOT_BYTES],
}

impl LedgerPoint {
    pub(super) fn new(size: u64, root: &Hash) -> Self {
        let mut first = [0; ROOT_BYTES];
        first.copy_from_slice(&root[..ROOT_BYTES]);
        Self { size, root: first }
    }

    /// Whether the tree had this root when it had this many leaves.
    pub(super) fn is_of(&self, root: &Hash) -> bool {
        root.starts_with(&self.root)
    }

    /// The newest point of a ledger; `None` while it has no tree.
    pub(super) fn newest(log: Log<'_>) -> Result<Option<Self>, StoreError> {
        let last = match log.last_seq()? {
            0 => None,
            last => log.tree_entry(last)?,
        };
        Ok(last.map(|entry| Self::new(entry.size(), &entry.root)))
    }

    /// Why a ledger is not the one that a run which began at this point saw.
    pub(super) fn against(&self, log: Log<'_>) -> Result<(), LogError> {
        let entry = match log.entry_of_leaf(self.size - 1) {
            Ok(entry) => Some(entry),
            Err(LogError::Bad(_)) => None,
            Err(error) => return Err(error),
        };
        match entry {
            Some(entry) if entry.size() == self.size && self.is_of(&entry.root) => Ok(()),
            entry => Err(BadRecord { seq: entry.map_or(0, |entry| entry.seq), problem: self.problem() }.into()),
        }
    }

    pub(super) fn problem(&self) -> String {
        format!(
            "a run names the tree of {} leaves that the ledger had when the run began, and the ledger does not have it: entries \
             were removed or replaced",
            self.size
        )
    }
}

impl fmt::Display for LedgerPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.size, canonical::hex(&self.root))
    }
}

impl From<LedgerPoint> for String {
    fn from(point: LedgerPoint) -> Self {
        point.to_string()
    }
}

impl FromStr for LedgerPoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "a place in the ledger is SIZE:HEX";
        let (size, root) = text.split_once(':').ok_or(BAD)?;
        let size = size.parse().ok().filter(|size| *size > 0).ok_or(BAD)?;
        let digits =
            || root.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        let root = digits().collect::<Option<Vec<u8>>>().and_then(|root| root.try_into().ok()).ok_or(BAD)?;
        Ok(Self { size, root })
    }
}

impl TryFrom<String> for LedgerPoint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_read_as_it_was_written_and_nothing_else_is() {
        let point = LedgerPoint::new(27, &[0xab; 32]);
        assert_eq!(point.to_string(), format!("27:{}", "ab".repeat(16)));
        assert_eq!(point.to_string().parse(), Ok(point));
        for bad in [
            "",
            "27",
            "0:abababababababababababababababab",
            "x:ab",
            "27:ab",
            "27:é",
            "-1:abababababababababababababababab",
        ] {
            assert!(bad.parse::<LedgerPoint>().is_err(), "{bad}");
        }
    }
}
