//! Spellings of tool names that models accept.

use toolyard_protocol::{ToolName, canonical};

/// Models accept names of at most this many bytes.
pub const MAX_SAFE_NAME_BYTES: usize = 64;
/// Hex digits of the hash that makes shortened names unique.
const HASH_DIGITS: usize = 8;

/// The name in the alphabet that models accept (`[a-zA-Z0-9_-]{1,64}`): other characters become `_`, and a name that is
/// too long is cut and ends with a hash. [`super::Snapshot::safe_name`] also distinguishes two names of one catalog
/// that would become equal.
pub fn safe_name(name: &ToolName) -> String {
    let spelled = spell(name.as_str());
    if spelled.len() <= MAX_SAFE_NAME_BYTES { spelled } else { with_hash(name.as_str(), name.as_str()) }
}

/// The safe spelling of `name` with a hash of `key` at its end.
pub(super) fn with_hash(name: &str, key: &str) -> String {
    let hash = canonical::sha256_hex(key.as_bytes());
    let mut spelled = spell(name);
    spelled.truncate(MAX_SAFE_NAME_BYTES - HASH_DIGITS - 1); // ASCII by now: any cut is a character boundary
    format!("{spelled}_{}", &hash[..HASH_DIGITS])
}

fn spell(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_names_keep_to_the_alphabet_of_models() {
        let name = |text: &str| ToolName::parse(text).unwrap();
        assert_eq!(safe_name(&name("vault.createFile")), "vault_createFile");
        assert_eq!(safe_name(&name("ov_search")), "ov_search");
        let long = [name(&format!("a.{}x", "b".repeat(100))), name(&format!("a.{}y", "b".repeat(100)))];
        let [x, y] = long.map(|n| safe_name(&n));
        assert_eq!((x.len(), y.len()), (64, 64));
        assert_ne!(x, y);
    }
}
