//! "Did you mean": finds the known word or tool that is most similar to an unknown one. All comparisons of similarity
//! (tools, arguments, values, files) are made here.

use crate::registry::ToolEntry;
use std::sync::Arc;

/// Tools suggested for an unknown one.
const MAX_SUGGESTIONS: usize = 3;
/// Longer words are compared by their first characters only.
const MAX_COMPARED_CHARS: usize = 64;
/// What a mistyped name scores at most; each edit takes one off.
const TYPO_SCORE: usize = 100;
/// What a name scores that contains the other.
const PART_SCORE: usize = 40;
/// The score for each word that both names have.
const WORD_SCORE: usize = 10;
/// The score of a tool whose title or description contains the text.
const MENTION_SCORE: usize = 8;
/// Shorter texts are part of nearly every name and description.
const MIN_PART_CHARS: usize = 3;

/// `Did you mean a, b?`, or nothing if there are no suggestions.
pub fn did_you_mean<S: AsRef<str>>(near: &[S]) -> Option<String> {
    let near: Vec<&str> = near.iter().map(AsRef::as_ref).collect();
    (!near.is_empty()).then(|| format!("Did you mean {}?", near.join(", ")))
}

/// Tools that an unknown name may have meant, the nearest first, at most three.
#[derive(Debug, Default)]
pub struct Suggestions<'a>(Vec<Suggestion<'a>>);

#[derive(Debug)]
struct Suggestion<'a> {
    entry: &'a Arc<ToolEntry>,
    /// Whether only this tool has the name.
    is_unique: bool,
}

impl<'a> Suggestions<'a> {
    /// The nearest of `tools`, each with whether its name is its alone.
    pub(crate) fn among(wanted: &str, tools: impl Iterator<Item = (&'a Arc<ToolEntry>, bool)>) -> Self {
        let wanted = UnknownName::new(wanted);
        let mut ranked: Vec<(usize, Suggestion<'a>)> = tools
            .map(|(entry, is_unique)| (wanted.score(entry), Suggestion { entry, is_unique }))
            .filter(|(score, _)| *score > 0)
            .collect();
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.entry.id().cmp(b.1.entry.id())));
        Self(ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, suggestion)| suggestion).collect())
    }

    /// Only those that `keep` accepts: a suggestion must not give away a tool that the caller may not see.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&ToolEntry) -> bool) -> Self {
        self.0.retain(|suggestion| keep(suggestion.entry));
        self
    }

    /// The names to suggest: the name if it is unique, otherwise the id.
    pub fn names(&self) -> Vec<String> {
        let spelled = |s: &Suggestion<'_>| if s.is_unique { s.entry.name().as_str() } else { s.entry.id() }.to_owned();
        self.0.iter().map(spelled).collect()
    }

    /// The ids of the suggestions.
    pub fn ids(&self) -> Vec<String> {
        self.0.iter().map(|suggestion| suggestion.entry.id().to_owned()).collect()
    }
}

/// An unknown name, taken apart once.
struct UnknownName {
    /// As given, in lower case.
    whole: String,
    /// The tool's part of an id: only that is likely to be mistyped.
    name: String,
    words: Vec<String>,
}

impl UnknownName {
    fn new(wanted: &str) -> Self {
        let name = wanted.splitn(3, ':').nth(2).unwrap_or(wanted);
        Self { whole: wanted.to_lowercase(), name: name.to_lowercase(), words: words_of(name) }
    }

    fn score(&self, entry: &ToolEntry) -> usize {
        let name = entry.name().as_str();
        let lower = name.to_lowercase();
        let typo = closeness(&self.name, name).map_or(0, |distance| TYPO_SCORE.saturating_sub(distance));
        let shared = words_of(name).iter().filter(|word| self.words.contains(word)).count();
        let is_long = |text: &str| text.chars().count() >= MIN_PART_CHARS;
        let is_part =
            (is_long(&self.name) && lower.contains(&self.name)) || (is_long(&lower) && self.whole.contains(&lower));
        let mentions = |text: &str| text.to_lowercase().contains(&self.name);
        let definition = entry.definition();
        let is_mentioned = is_long(&self.name) && (mentions(&definition.title) || mentions(&definition.description));
        typo + WORD_SCORE * shared + if is_part { PART_SCORE } else { 0 } + if is_mentioned { MENTION_SCORE } else { 0 }
    }
}

/// The words of a name, split at punctuation and at capitals, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous_lower = false;
    let mut open = false;
    for c in name.chars().take(256) {
        if !c.is_alphanumeric() {
            open = false;
        } else {
            if !open || (c.is_uppercase() && previous_lower) {
                words.push(String::new());
                open = true;
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        previous_lower = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| word.chars().count() > 1);
    words
}

/// Of `known`, the word that `wanted` most likely meant, when one is close: equal but for case and punctuation, or
/// within a third of its length in single-character edits.
pub(crate) fn closest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .filter_map(|word| Some((closeness(wanted, word)?, word)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, w)| w)
}

/// The distance of two words, if they are close enough for a suggestion.
fn closeness(wanted: &str, word: &str) -> Option<usize> {
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
    use crate::registry::ToolSource;
    use proptest::prelude::*;

    fn tool(name: &str, description: &str) -> Arc<ToolEntry> {
        let definition = serde_json::from_value(serde_json::json!({
            "name": name, "title": name, "description": description, "category": "x", "riskLevel": "read-only",
            "idempotency": "pure", "inputSchema": {"type": "object"},
        }))
        .unwrap();
        Arc::new(ToolEntry::new(definition, ToolSource::core()).unwrap())
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

    #[test]
    fn tools_are_suggested_by_typo_part_word_and_mention() {
        let tools = [
            tool("vault.readFile", "Reads a note."),
            tool("vault.deleteFile", "Removes a note."),
            tool("mail_send", "Sends a letter by e-mail."),
        ];
        let near = |wanted: &str| {
            Suggestions::among(wanted, tools.iter().map(|tool| (tool, tool.name().as_str() != "mail_send"))).names()
        };
        assert_eq!(near("vault.raedFile").first().map(String::as_str), Some("vault.readFile"));
        assert_eq!(near("openclaw:core:vault_readfile").first().map(String::as_str), Some("vault.readFile"));
        assert_eq!(near("readfile"), ["vault.readFile"]);
        assert_eq!(near("letter"), ["openclaw:core:mail_send"], "a name that is not unique is given as an id");
        assert!(near("zzz").is_empty() && near("").is_empty());
        assert_eq!(did_you_mean(&near("readfile")).as_deref(), Some("Did you mean vault.readFile?"));
        assert_eq!(did_you_mean::<String>(&[]), None);
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
