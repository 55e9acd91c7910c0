//! Words the catalog does not know: which known terms share most of their character n-grams.

use std::collections::HashMap;

/// A term must share at least this part of its n-grams (Dice coefficient).
const LEAST_SIMILARITY: f32 = 0.55;
/// Terms taken for one unknown word.
const MAX_MATCHES: usize = 3;
/// Shorter words have too few n-grams to tell anything.
const LEAST_CHARS: usize = 4;

/// Finds terms by their character n-grams.
#[derive(Debug, Default)]
pub(super) struct FuzzyTerms {
    by_gram: HashMap<[char; 3], Vec<u32>>,
    /// N-grams of each term, by term number; 0 for terms that are not looked for.
    counts: Vec<u16>,
}

impl FuzzyTerms {
    /// Indexes the vocabulary, numbered in order.
    pub(super) fn new<'a>(vocabulary: impl Iterator<Item = &'a str>) -> Self {
        let mut fuzzy = Self::default();
        for (number, term) in vocabulary.enumerate() {
            let grams = grams(term);
            fuzzy.counts.push(grams.len().min(usize::from(u16::MAX)) as u16);
            for gram in grams {
                fuzzy.by_gram.entry(gram).or_default().push(number as u32);
            }
        }
        fuzzy
    }

    /// The terms most like a word, with their similarity, best first.
    pub(super) fn like(&self, word: &str) -> Vec<(u32, f32)> {
        let wanted = grams(word);
        let mut shared: HashMap<u32, u16> = HashMap::new();
        for gram in &wanted {
            for &term in self.by_gram.get(gram).map(Vec::as_slice).unwrap_or_default() {
                *shared.entry(term).or_default() += 1;
            }
        }
        let similarity = |(term, shared): (u32, u16)| {
            let count = self.counts.get(term as usize).copied().unwrap_or_default();
            let dice = 2.0 * f32::from(shared) / (f32::from(count) + wanted.len() as f32);
            (dice >= LEAST_SIMILARITY).then_some((term, dice))
        };
        let mut found: Vec<(u32, f32)> = shared.into_iter().filter_map(similarity).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.truncate(MAX_MATCHES);
        found
    }
}

/// Three characters at a time, with the word's ends marked; none for short words and numbers.
fn grams(word: &str) -> Vec<[char; 3]> {
    let chars: Vec<char> = word.chars().collect();
    if chars.len() < LEAST_CHARS || chars.iter().any(|c| c.is_numeric()) {
        return Vec::new();
    }
    let marked: Vec<char> = std::iter::once('^').chain(chars).chain(std::iter::once('$')).collect();
    let mut grams: Vec<[char; 3]> = marked.windows(3).map(|w| [w[0], w[1], w[2]]).collect();
    grams.sort_unstable();
    grams.dedup();
    grams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_leads_to_the_known_one() {
        let terms = ["weather", "whether", "leather", "translat", "मौसम", "42"];
        let fuzzy = FuzzyTerms::new(terms.into_iter());
        let best = |word| fuzzy.like(word).first().map(|(term, _)| terms[*term as usize]);
        assert_eq!(best("wheather"), Some("whether"));
        assert_eq!(best("weathr"), Some("weather"));
        assert_eq!(best("transalt"), None); // a swap breaks too many n-grams of a short word
        assert_eq!(best("मौसमी"), Some("मौसम"));
        assert_eq!(best("banana"), None);
        assert_eq!(best("4242"), None);
    }
}
