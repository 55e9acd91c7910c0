//! Stopword lists that [`crate::terms::Rules`] combines.

/// English function words that no collection counts.
pub const GLUE: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
];

/// Further function words, question words, and conversational fillers.
pub const TALK: [&str; 121] = [
    "about", "after", "ain't", "all", "also", "am", "any", "aren't", "because", "been", "before", "being", "between",
    "both", "can", "can't", "could", "couldn't", "did", "didn't", "do", "does", "doesn't", "doing", "don't", "during",
    "each", "few", "from", "get", "got", "had", "has", "have", "having", "he", "he's", "her", "here", "hers", "hey",
    "hi", "him", "his", "how", "i", "i'd", "i'll", "i'm", "i've", "isn't", "it's", "its", "just", "let", "let's",
    "like", "may", "me", "might", "mine", "more", "most", "much", "my", "nor", "off", "oh", "other", "our", "ours",
    "out", "over", "own", "really", "same", "shall", "she", "she's", "should", "so", "some", "than", "that's",
    "theirs", "them", "they're", "they've", "those", "through", "too", "under", "up", "us", "very", "wasn't", "we",
    "we're", "we've", "were", "what", "what's", "when", "where", "which", "while", "who", "whom", "whose", "why",
    "would", "wow", "yeah", "yes", "you", "you'd", "you'll", "you're", "you've", "your", "yours",
];

/// Words that people use to ask for a tool and that most tool descriptions contain.
pub const ASKING: [&str; 93] = [
    "able",
    "above",
    "additionally",
    "again",
    "api",
    "apis",
    "aren",
    "below",
    "cannot",
    "could've",
    "couldn",
    "curious",
    "currently",
    "d",
    "didn",
    "doesn",
    "don",
    "down",
    "etc",
    "function",
    "functions",
    "further",
    "furthermore",
    "give",
    "given",
    "gives",
    "going",
    "hadn",
    "hasn",
    "haven",
    "hello",
    "help",
    "helping",
    "helps",
    "herself",
    "himself",
    "however",
    "interested",
    "isn",
    "itself",
    "kindly",
    "know",
    "lets",
    "ll",
    "looking",
    "m",
    "maybe",
    "moreover",
    "myself",
    "need",
    "needed",
    "needs",
    "now",
    "once",
    "only",
    "ourselves",
    "please",
    "provide",
    "provided",
    "provides",
    "providing",
    "re",
    "s",
    "shan",
    "shouldn",
    "show",
    "t",
    "tell",
    "thank",
    "thanks",
    "themselves",
    "tool",
    "tools",
    "trying",
    "until",
    "use",
    "used",
    "uses",
    "using",
    "ve",
    "via",
    "want",
    "wanted",
    "wants",
    "wasn",
    "weren",
    "won",
    "wonder",
    "wondering",
    "would'd",
    "wouldn",
    "yourself",
    "yourselves",
];

/// Whether a lower-case word is in [`GLUE`] or [`TALK`].
pub fn is_talk(word: &str) -> bool {
    GLUE.binary_search(&word).is_ok() || TALK.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_no_word_stands_in_two() {
        for list in [&GLUE[..], &TALK, &ASKING] {
            assert!(list.is_sorted());
        }
        assert!(TALK.iter().chain(&ASKING).all(|word| !GLUE.contains(word)));
        assert!(ASKING.iter().all(|word| !TALK.contains(word)));
    }
}
