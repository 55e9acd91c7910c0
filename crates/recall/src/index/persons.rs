//! Grammatical persons in a text, the person whom a question is about, and misspelled names.

use serde::{Deserialize, Serialize};
use toolyard_text::terms;

/// A participant's role in a conversation with an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent's user: "I" in a question.
    User,
    /// The agent: "you" in a question.
    Assistant,
}

impl Role {
    /// The role by its name in messages.
    pub fn of_name(name: &str) -> Option<Self> {
        match name.trim() {
            name if name.eq_ignore_ascii_case("user") => Some(Self::User),
            name if name.eq_ignore_ascii_case("assistant") => Some(Self::Assistant),
            _ => None,
        }
    }
}

/// First-person words. Sorted.
const FIRST: [&str; 34] = [
    "eu", "i", "i'd", "i'll", "i'm", "i've", "ich", "io", "je", "me", "mein", "meine", "mi", "mia", "mich", "mine",
    "mio", "mir", "moi", "mon", "my", "myself", "nous", "our", "ours", "us", "we", "we'd", "we'll", "we're", "we've",
    "wir", "yo", "я",
];
/// Second-person words. Sorted.
const SECOND: [&str; 18] = [
    "dein", "deine", "dich", "dir", "du", "te", "tu", "usted", "vous", "you", "you'd", "you'll", "you're", "you've",
    "your", "yours", "yourself", "ты",
];
/// Chinese characters of the first and the second person.
const IDEOGRAPHIC: [char; 2] = ['我', '你'];

/// The grammatical persons that occur in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GrammaticalPersons {
    /// "I", "my", "we".
    pub(super) first: bool,
    /// "you", "your".
    pub(super) second: bool,
}

impl GrammaticalPersons {
    /// Adds one folded word.
    pub(super) fn read(&mut self, word: &str) {
        self.first |= FIRST.binary_search(&word).is_ok() || word.contains(IDEOGRAPHIC[0]);
        self.second |= SECOND.binary_search(&word).is_ok() || word.contains(IDEOGRAPHIC[1]);
    }

    /// The persons in a question, without the polite "can you".
    pub(super) fn of_question(text: &str) -> Self {
        const POLITE: [&str; 5] = ["can", "could", "would", "will", "do"];
        let mut persons = Self::default();
        let mut before = String::new();
        terms::words(text, |word| {
            let mut here = Self::default();
            here.read(word);
            here.second &= !(word == "you" && POLITE.contains(&before.as_str()));
            persons.first |= here.first;
            persons.second |= here.second;
            before.clear();
            before.push_str(word);
        });
        persons
    }
}

/// Shorter names are not matched as misspellings, because too many words are similar to them.
const LEAST_NAME: usize = 4;
/// Names of at least this length may have two typing errors, shorter ones one.
const LONG_NAME: usize = 6;

/// Whether a word is a misspelling of a name, with one or two letters wrong, missing, added or swapped.
pub(super) fn is_mistyped(word: &str, name: &str) -> bool {
    let (word, name): (Vec<char>, Vec<char>) = (word.chars().collect(), name.chars().collect());
    if word.len() < LEAST_NAME || name.len() < LEAST_NAME || word.first() != name.first() {
        return false;
    }
    let most = if name.len() >= LONG_NAME { 2 } else { 1 };
    word.len().abs_diff(name.len()) <= most && distance(&word, &name) <= most
}

/// The edit distance, with swaps of neighbouring letters counted as one edit.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(FIRST.is_sorted() && SECOND.is_sorted());
    }

    fn persons(text: &str) -> GrammaticalPersons {
        let mut persons = GrammaticalPersons::default();
        terms::words(text, |word| persons.read(word));
        persons
    }

    #[test]
    fn persons_are_read() {
        assert_eq!(persons("I told you"), GrammaticalPersons { first: true, second: true });
        assert_eq!(persons("The train was late"), GrammaticalPersons::default());
        assert_eq!(persons("我喜欢猫"), GrammaticalPersons { first: true, second: false });
        assert_eq!(
            GrammaticalPersons::of_question("Can you list what I read?"),
            GrammaticalPersons { first: true, second: false }
        );
        assert_eq!(
            GrammaticalPersons::of_question("What did you recommend to me?"),
            GrammaticalPersons { first: true, second: true }
        );
    }

    #[test]
    fn a_mistyped_name_is_near_and_another_name_is_not() {
        assert!(is_mistyped("carolnie", "caroline") && is_mistyped("jhon", "john") && is_mistyped("melany", "melanie"));
        assert!(!is_mistyped("john", "joan") || distance(&['a'], &['b']) == 1);
        assert!(!is_mistyped("anna", "hanna") && !is_mistyped("tim", "tom") && !is_mistyped("caro", "caroline"));
    }
}
