//! Etags: the first 16 hex digits of the SHA-256 of a file's content. The modification time is not used.

use sha2::{Digest, Sha256};
use toolyard_protocol::canonical;

/// Hex digits in an etag.
pub const ETAG_DIGITS: usize = 16;

/// The etag of these bytes.
pub fn etag(bytes: &[u8]) -> String {
    let mut hex = canonical::sha256_hex(bytes);
    hex.truncate(ETAG_DIGITS);
    hex
}

/// An etag as a caller may write it: with or without the quotes HTTP puts around it.
pub(crate) fn normalise(given: &str) -> &str {
    given.trim().trim_matches('"')
}

/// Hashes content that is not held in memory.
#[derive(Default)]
pub(crate) struct EtagHasher(Sha256);

impl EtagHasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    pub(crate) fn finish(self) -> String {
        let mut hex = canonical::hex(&self.0.finalize());
        hex.truncate(ETAG_DIGITS);
        hex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_a_prefix_of_sha256_and_read_with_quotes() {
        assert_eq!(etag(b""), "e3b0c44298fc1c14");
        assert_eq!(normalise("\"e3b0c44298fc1c14\""), etag(b""));
        let mut hasher = EtagHasher::default();
        hasher.update(b"ab");
        hasher.update(b"c");
        assert_eq!(hasher.finish(), etag(b"abc"));
    }
}
