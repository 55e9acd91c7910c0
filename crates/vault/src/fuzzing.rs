//! Access to private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the public interface.

use crate::patch::{self, Patch};
use toolyard_protocol::Failure;

/// Applies a patch, given as JSON, to a text: the new text and how many operations were applied. `None` when the JSON
/// is not a patch.
pub fn apply_patch(text: &str, patch: &[u8]) -> Option<Result<(String, usize), Failure>> {
    let patch: Patch = serde_json::from_slice(patch).ok()?;
    Some(patch::apply(text, &patch))
}
