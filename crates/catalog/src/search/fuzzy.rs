//! Finds similar terms for words that the catalog does not contain, by shared character n-grams.

/// A term must share at least this part of its n-grams (Dice coefficient).
const LEAST_SIMILARITY: f32 = 0.65;
/// Terms taken for one unknown word.
const MAX_MATCHES: usize = 3;
/// Minimum length of a word. Shorter words have too few n-grams for a comparison.
const LEAST_CHARS: usize = 4;

/// Finds terms by their character n-grams.
#[derive(Debug, Default)]
pub(super) struct FuzzyTerms {
    /// N-grams with the terms that contain them, sorted: one allocation, where a map of lists would need thousands.
    grams: Vec<(u64, u32)>,
    /// N-grams of each term, by term number.
    counts: Vec<u16>,
}

impl FuzzyTerms {
    /// Indexes the vocabulary, numbered in order.
    pub(super) fn new<'a>(vocabulary: impl Iterator<Item = &'a str>) -> Self {
        let mut fuzzy = Self::default();
        for (number, term) in vocabulary.enumerate() {
            let before = fuzzy.grams.len();
            each_gram(term, |gram| fuzzy.grams.push((gram, number as u32)));
            fuzzy.counts.push((fuzzy.grams.len() - before).min(usize::from(u16::MAX)) as u16);
        }
        fuzzy.grams.sort_unstable();
        fuzzy
    }

    /// The terms most like a word, with their similarity, best first.
    pub(super) fn like(&self, word: &str) -> Vec<(u32, f32)> {
        let mut wanted = 0u16;
        let mut shared = vec![0u16; self.counts.len()];
        let mut touched: Vec<u32> = Vec::new();
        each_gram(word, |gram| {
            wanted += 1;
            let from = self.grams.partition_point(|(known, _)| *known < gram);
            for (_, term) in self.grams[from..].iter().take_while(|(known, _)| *known == gram) {
                if let Some(count) = shared.get_mut(*term as usize) {
                    if *count == 0 {
                        touched.push(*term);
                    }
                    *count += 1;
                }
            }
        });
        let similarity = |term: u32| {
            let count = self.counts.get(term as usize).copied().unwrap_or_default();
            // A repeated n-gram is met more than once; no two words share more n-grams than the shorter one has.
            let shared = shared.get(term as usize).copied().unwrap_or_default().min(count).min(wanted);
            let dice = 2.0 * f32::from(shared) / (f32::from(count) + f32::from(wanted));
            (dice >= LEAST_SIMILARITY).then_some((term, dice))
        };
        let mut found: Vec<(u32, f32)> = touched.into_iter().filter_map(similarity).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.truncate(MAX_MATCHES);
        found
    }
}

/// Two characters at a time, with the word's ends marked, packed into a number; none for short words and numbers.
/// Pairs, not triples: a swap of neighbours breaks three pairs of a word, but four triples, most of a short one.
fn each_gram(word: &str, mut emit: impl FnMut(u64)) {
    if word.chars().count() < LEAST_CHARS || word.chars().any(char::is_numeric) {
        return;
    }
    let mut previous = '^';
    for c in word.chars().chain(std::iter::once('$')) {
        emit(u64::from(previous) << 32 | u64::from(c));
        previous = c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_leads_to_the_known_one() {
        let terms = ["weather", "leather", "translat", "मौसम", "42"];
        let fuzzy = FuzzyTerms::new(terms.into_iter());
        let best = |word| fuzzy.like(word).first().map(|(term, _)| terms[*term as usize]);
        assert_eq!(best("wheather"), Some("weather"));
        assert_eq!(best("weathr"), Some("weather"));
        assert_eq!(best("transalt"), Some("translat"));
        assert_eq!(best("मौसमी"), Some("मौसम"));
        assert_eq!(best("banana"), None);
        assert_eq!(best("4242"), None);
        assert_eq!(best("nananananananana"), None);
        assert_eq!(best(""), None);
    }
}
