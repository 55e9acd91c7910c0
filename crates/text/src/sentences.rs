//! Splits a text into sentences, as slices of the text.

/// Splits a text into sentences: at full stops, question marks and exclamation marks followed by a space, at the full
/// stops of scripts without spaces, and at line ends. Only the white space around sentences is dropped.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let end = at + c.len_utf8();
        let next = rest.peek().map(|(_, next)| *next);
        let over = match c {
            '\n' => true,
            '。' | '！' | '？' | '…' | '؟' | '।' => !matches!(next, Some('”' | '」' | '"')),
            '.' => next.is_none_or(char::is_whitespace) && !is_abbreviation(&text[start..at]),
            '!' | '?' => next.is_none_or(|next| next.is_whitespace() || crate::scripts::is_unspaced(next)),
            _ => false,
        };
        if over {
            push(&mut found, &text[start..end]);
            start = end;
        }
    }
    push(&mut found, &text[start..]);
    found
}

fn push<'a>(found: &mut Vec<&'a str>, sentence: &'a str) {
    let sentence = sentence.trim();
    if sentence.chars().any(char::is_alphanumeric) {
        found.push(sentence);
    }
}

/// A full stop after one of these words does not end a sentence.
fn is_abbreviation(before: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    matches!(word, "Mr" | "Mrs" | "Ms" | "Dr" | "Prof" | "St" | "vs" | "e.g" | "i.e" | "etc" | "approx" | "No" | "Fig")
        || (word.chars().count() == 1 && word.chars().all(char::is_uppercase) && word != "I")
}

/// Truncates a text to at most `most` characters, at the end of a word where possible, and appends an ellipsis when
/// something was removed.
pub fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let Some((end, _)) = text.char_indices().nth(most.saturating_sub(1)) else { return String::new() };
    let cut = &text[..end];
    let at_word = cut.rfind(char::is_whitespace).filter(|at| *at * 3 > cut.len() * 2).map_or(cut, |at| &cut[..at]);
    let mut clipped =
        at_word.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '-')).to_owned();
    clipped.push('…');
    clipped
}

/// Replaces every run of white space by one space.
pub fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sentences_end_where_they_end() {
        assert_eq!(
            sentences("Hi Mr. Smith! It is 3.5 m. Is it?\nYes"),
            ["Hi Mr. Smith!", "It is 3.5 m.", "Is it?", "Yes"]
        );
        assert_eq!(sentences("我喜欢猫。你呢？好"), ["我喜欢猫。", "你呢？", "好"]);
    }

    proptest! {
        #[test]
        fn clipping_never_grows_or_panics(text in any::<String>(), most in 1usize..40) {
            prop_assert!(clip(&text, most).chars().count() <= most.max(text.chars().count().min(most)));
            let _ = sentences(&text);
        }
    }
}
