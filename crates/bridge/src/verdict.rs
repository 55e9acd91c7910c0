//! A person's answer in words: `yes abxyz`, `n abxyz`. Any other text is chat.

use crate::frames::Behavior;

/// Letters of a question's id.
const ID_LETTERS: usize = 5;

/// Whether a text can be a question's id: five letters out of `a` to `z` without `l`.
pub fn is_request_id(text: &str) -> bool {
    text.len() == ID_LETTERS && text.bytes().all(|b| b.is_ascii_lowercase() && b != b'l')
}

/// The answer and the question it names, if the whole text is one.
pub fn read(text: &str) -> Option<(Behavior, String)> {
    // A longer text cannot be an answer and is not parsed.
    const MAX_TEXT: usize = 256;
    if text.len() > MAX_TEXT {
        return None;
    }
    let mut words = text.split_whitespace();
    let (word, id, None) = (words.next()?, words.next()?.to_ascii_lowercase(), words.next()) else { return None };
    let behavior = match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => Behavior::Allow,
        "n" | "no" => Behavior::Deny,
        _ => return None,
    };
    is_request_id(&id).then_some((behavior, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[toolyard_shows::shows("004-5-02")]
    #[test]
    fn only_a_whole_text_of_word_and_id_is_a_verdict() {
        for (text, behavior) in [
            ("yes abxyz", Behavior::Allow),
            ("  Y ABXYZ\n", Behavior::Allow),
            ("no\tabxyz", Behavior::Deny),
            ("n abxyz", Behavior::Deny),
        ] {
            assert_eq!(read(text), Some((behavior, "abxyz".to_owned())), "{text:?}");
        }
        for text in [
            "",
            "yes",
            "abxyz",
            "yes abxy",
            "yes abxyzz",
            "yes ablyz",
            "yes ab1yz",
            "oh yes abxyz",
            "yes abxyz now",
            "yesabxyz",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(read(&format!("yes {} abxyz", " ".repeat(1000))), None);
    }
}
