//! Spellings of tool names that models accept, and which known word an unknown one may have meant.

use toolyard_protocol::{ToolName, canonical};

/// Models accept names of at most this many bytes.
pub const MAX_SAFE_NAME_BYTES: usize = 64;
/// Hex digits of the hash that keeps shortened names apart.
const HASH_DIGITS: usize = 8;
/// Longer words are compared by their first characters only: nobody mistypes a whole page.
const MAX_COMPARED_CHARS: usize = 64;

/// The name in the alphabet models accept (`[a-zA-Z0-9_-]{1,64}`): other characters become `_`, and a name that is too
/// long is cut and ends in a hash of the whole. [`super::Snapshot::safe_name`] also keeps two names of one catalog
/// apart that would be spelled alike.
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

/// Of `known`, the word that `wanted` most likely meant, when one is close: equal but for case and punctuation, or
/// within a third of its length in single-character edits.
pub(super) fn closest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .filter_map(|word| Some((closeness(wanted, word)?, word)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, w)| w)
}

/// How far apart two words are, when close enough to be worth a suggestion.
pub(super) fn closeness(wanted: &str, word: &str) -> Option<usize> {
    let (a, b) = (folded(wanted), folded(word));
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let limit = (a.len().max(b.len()) / 3).max(1);
    let distance = edit_distance(&a, &b);
    // One-letter words are one edit away from everything.
    (distance == 0 || (distance <= limit && a.len().min(b.len()) > 1)).then_some(distance)
}

fn folded(word: &str) -> Vec<char> {
    word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(MAX_COMPARED_CHARS).collect()
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, &cb) in b.iter().enumerate() {
            row[j + 1] = (last[j] + usize::from(ca != cb)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn a_mistyped_word_is_recognised_and_a_different_one_is_not() {
        let known = ["path", "content", "expectedEtag", "x"];
        assert_eq!(closest("paht", known.into_iter()), Some("path"));
        assert_eq!(closest("expected_etag", known.into_iter()), Some("expectedEtag"));
        assert_eq!(closest("contents", known.into_iter()), Some("content"));
        assert_eq!(closest("colour", known.into_iter()), None);
        assert_eq!(closest("q", known.into_iter()), None);
        assert_eq!(closest("", known.into_iter()), None);
    }

    proptest! {
        #[test]
        fn distance_is_symmetric_and_zero_only_for_equals(a in "[abc]{0,8}", b in "[abc]{0,8}") {
            let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            prop_assert_eq!(edit_distance(&x, &y), edit_distance(&y, &x));
            prop_assert_eq!(edit_distance(&x, &y) == 0, a == b);
        }
    }
}
