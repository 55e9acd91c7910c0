//! The limits of an import.

use serde::{Deserialize, Serialize};

/// Resource limits of one import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of files of a folder, archive or repository.
    pub files: usize,
    /// Maximum size of one file, in bytes.
    pub file_bytes: u64,
    /// Maximum total size of all files, in bytes.
    pub total_bytes: u64,
    /// Maximum unpacked size of an archive, in bytes.
    pub unpacked_bytes: u64,
    /// Maximum size of the text of one document, in bytes.
    pub text_bytes: usize,
    /// Timeout of parsing one document, in milliseconds.
    pub parse_ms: u64,
    /// Maximum size of a fetched resource, in bytes.
    pub fetch_bytes: u64,
    /// Timeout of a fetch including redirects, in milliseconds.
    pub fetch_ms: u64,
    /// Maximum number of redirects.
    pub redirects: usize,
    /// Timeout of cloning a repository, in milliseconds.
    pub clone_ms: u64,
    /// Maximum size of a clone on disk, in bytes.
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

/// Maximum depth of nested folders.
pub(crate) const MAX_DEPTH: usize = 32;
