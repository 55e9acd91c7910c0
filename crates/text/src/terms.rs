//! Splits text into the terms that full-text search counts in notes, memories and tools, independent of the index that
//! stores them.
//!
//! Documents and queries are tokenized the same way. A word is a run of letters, digits and combining marks, including
//! inner apostrophes. Words are folded ([`crate::scripts::fold`]), stopwords are dropped, and English words are
//! stemmed. Scripts without spaces give pairs of neighbouring characters. A compound name (`createFile`) gives the
//! whole name and its parts.
//!
//! [`Rules`] has an option only where a measurement requires one: which stopwords are dropped, and how words are
//! stemmed. The constants [`NOTES`], [`MEMORIES`] and [`TOOLS`] state the figures. Everything else is the same for all
//! collections: splitting compound names, for example, raises nDCG@10 on SciFact by .010 and changes nothing for
//! memories.

use crate::{
    scripts::{fold, is_unspaced, normalise},
    stems, stopwords,
};
use unicode_normalization::char::is_combining_mark;

/// Longer words are truncated, because nobody searches for them.
const MAX_TERM_CHARS: usize = 40;

/// Short words that French and Italian contract with the next word, so that `école` finds `l'école`.
const ELIDED: [&str; 22] = [
    "l", "d", "qu", "c", "s", "n", "m", "t", "j", "jusqu", "lorsqu", "puisqu", "quelqu", "quoiqu", "un", "dell", "all",
    "nell", "sull", "dall", "quest", "bell",
];

/// How the forms of an English word become one term. Irregular forms are replaced by their base form first: `went` and
/// `go` are one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stem {
    /// Snowball's English stemmer.
    Snowball,
    /// Removes plural, tense and the most common derivational endings: `calculator` and `calculation` are one term.
    Light,
}

/// Which side of a search the terms are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A document. In scripts without spaces it also gives single characters, so that a one-character query finds it.
    Document,
    /// A query. In scripts without spaces it gives only pairs, unless the run is a single character.
    Question,
}

/// How the texts of one kind of collection are tokenized.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Stopword lists, each sorted.
    stopwords: &'static [&'static [&'static str]],
    /// How words are stemmed.
    stem: Stem,
}

/// Notes and imported passages. [`Stem::Light`] would leave SciFact's nDCG@10 unchanged; dropping the words of
/// [`stopwords::ASKING`] would lower it by .004.
pub const NOTES: Rules = Rules { stopwords: &[&stopwords::GLUE, &stopwords::TALK], stem: Stem::Snowball };

/// Memories and conversation turns. [`Stem::Light`] would lower recall@10 on LoCoMo by .004; dropping the words of
/// [`stopwords::ASKING`] would lower it by .005.
pub const MEMORIES: Rules = NOTES;

/// Names, descriptions and parameters of tools. [`Stem::Snowball`] would lower nDCG@10 by .003 on BFCL and on
/// StableToolBench; counting the words of [`stopwords::ASKING`] would lower it by .004 on MetaTool and .003 on
/// StableToolBench.
pub const TOOLS: Rules =
    Rules { stopwords: &[&stopwords::GLUE, &stopwords::TALK, &stopwords::ASKING], stem: Stem::Light };

impl Rules {
    /// Calls `emit` with each term of a text and the folded, unstemmed word it comes from, in order.
    pub fn terms(&self, text: &str, side: Side, mut emit: impl FnMut(&str, &str)) {
        written_words(text, |word| self.word_terms(word, side, &mut emit));
    }

    /// Calls `emit` with the terms of one word of the original text, each with its folded word.
    pub fn word_terms(&self, word: &str, side: Side, emit: &mut impl FnMut(&str, &str)) {
        if word.is_ascii() {
            return self.spaced_terms(word, emit);
        }
        each_run(word, |run| match run.chars().next().is_some_and(is_unspaced) {
            true => unspaced_terms(run, side, emit),
            false => self.spaced_terms(run, emit),
        });
    }

    /// The stem of a folded word.
    pub fn stem_of(&self, word: &str) -> String {
        match self.stem {
            Stem::Snowball => stems::snowball(stems::base_form(word)).into_owned(),
            Stem::Light => stems::light(stems::base_form(word)),
        }
    }

    fn spaced_terms(&self, word: &str, emit: &mut impl FnMut(&str, &str)) {
        let word = word.trim_end_matches(['\'', '’']);
        let word = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word);
        let mut folded = String::with_capacity(word.len());
        fold(word, &mut folded);
        self.folded_term(&folded, emit);
        if let Some((short, rest)) = folded.split_once('\'')
            && ELIDED.contains(&short)
        {
            self.folded_term(rest, emit);
        }
        each_part(word, |part| {
            folded.clear();
            fold(part, &mut folded);
            self.folded_term(&folded, emit);
        });
    }

    fn folded_term(&self, word: &str, emit: &mut impl FnMut(&str, &str)) {
        if word.is_empty() || self.stopwords.iter().any(|list| list.binary_search(&word).is_ok()) {
            return;
        }
        let word = word.char_indices().nth(MAX_TERM_CHARS).map_or(word, |(end, _)| &word[..end]);
        emit(&self.stem_of(word), word);
    }
}

/// Calls `emit` with each folded word of a text, including stopwords. A run of characters of a script without spaces
/// counts as one word.
pub fn words(text: &str, mut emit: impl FnMut(&str)) {
    let mut folded = String::new();
    written_words(text, |word| {
        each_run(word, |run| {
            folded.clear();
            fold(run, &mut folded);
            if !folded.is_empty() {
                emit(&folded);
            }
        });
    });
}

/// Calls `emit` with each word of a text as written, in order.
pub fn written_words(text: &str, mut emit: impl FnMut(&str)) {
    let text = normalise(text);
    let mut start: Option<usize> = None;
    for (at, c) in text.char_indices() {
        let inside = c.is_alphanumeric() || (!c.is_ascii() && is_combining_mark(c)) || is_apostrophe(&text, at, c);
        match start {
            None if inside && !matches!(c, '\'' | '’') => start = Some(at),
            Some(from) if !inside => {
                emit(&text[from..at]);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        emit(&text[from..]);
    }
}

/// An apostrophe inside a word belongs to it: "don't", "l'été".
fn is_apostrophe(text: &str, at: usize, c: char) -> bool {
    matches!(c, '\'' | '’') && text[at + c.len_utf8()..].chars().next().is_some_and(char::is_alphabetic)
}

/// Calls `each` with the maximal runs of a word that belong, or do not belong, to a script without spaces.
fn each_run(word: &str, mut each: impl FnMut(&str)) {
    if word.is_ascii() {
        return each(word);
    }
    let mut start = 0;
    let mut before: Option<bool> = None;
    for (at, c) in word.char_indices() {
        let unspaced = is_unspaced(c);
        if before.is_some_and(|before| before != unspaced) {
            each(&word[start..at]);
            start = at;
        }
        before = Some(unspaced);
    }
    if start < word.len() {
        each(&word[start..]);
    }
}

/// Calls `each` with the parts of a compound name as written (`getHTTPResponse2`: get, HTTP, Response, 2). A word of
/// one part gives none.
fn each_part(word: &str, mut each: impl FnMut(&str)) {
    let may_have_parts = |c: char| c.is_uppercase() || c.is_numeric();
    if !word.starts_with(char::is_numeric) && !word.chars().skip(1).any(may_have_parts) {
        return;
    }
    let mut cuts = vec![0];
    let mut before: Option<char> = None;
    let mut rest = word.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let after = rest.peek().map(|(_, after)| *after);
        let starts = before.is_some_and(|before| {
            (c.is_uppercase() && before.is_lowercase())
                || (c.is_uppercase() && before.is_uppercase() && after.is_some_and(char::is_lowercase))
                || (c.is_numeric() != before.is_numeric() && !is_combining_mark(c))
        });
        if starts {
            cuts.push(at);
        }
        before = Some(c);
    }
    cuts.push(word.len());
    if cuts.len() > 2 {
        cuts.windows(2).for_each(|cut| each(&word[cut[0]..cut[1]]));
    }
}

/// Emits pairs of neighbouring characters. Single characters are emitted for documents and for one-character runs.
fn unspaced_terms(run: &str, side: Side, emit: &mut impl FnMut(&str, &str)) {
    let ends: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    if side == Side::Document || ends.len() == 2 {
        ends.windows(2).for_each(|one| emit(&run[one[0]..one[1]], &run[one[0]..one[1]]));
    }
    ends.windows(3).for_each(|two| emit(&run[two[0]..two[2]], &run[two[0]..two[2]]));
}

#[cfg(test)]
mod tests;
