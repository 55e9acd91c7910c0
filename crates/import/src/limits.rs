//! Every number that bounds an import, in one place.

use serde::{Deserialize, Serialize};

/// What one import may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// Files of a folder, archive or repository that are read.
    pub files: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files together.
    pub total_bytes: u64,
    /// Bytes an archive may unpack to.
    pub unpacked_bytes: u64,
    /// Bytes of text that one document may become.
    pub text_bytes: usize,
    /// Milliseconds that parsing one document may take.
    pub parse_ms: u64,
    /// Bytes fetched from a URL.
    pub fetch_bytes: u64,
    /// Milliseconds that fetching a URL may take, redirects included.
    pub fetch_ms: u64,
    /// Redirects followed.
    pub redirects: usize,
    /// Milliseconds that cloning a repository may take.
    pub clone_ms: u64,
    /// Bytes a clone may take on disk.
    pub clone_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 10_000,
            file_bytes: 32 << 20,
            total_bytes: 512 << 20,
            unpacked_bytes: 512 << 20,
            text_bytes: 16 << 20,
            parse_ms: 30_000,
            fetch_bytes: 32 << 20,
            fetch_ms: 30_000,
            redirects: 5,
            clone_ms: 120_000,
            clone_bytes: 512 << 20,
        }
    }
}

/// Folders nested deeper than this are not entered.
pub(crate) const MAX_DEPTH: usize = 32;
