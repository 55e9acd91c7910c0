//! The part of a chunk that shows why it matched.

use super::term_set;
use toolyard_text::scripts::is_unspaced;

/// A word, or one character of a script without spaces. Positions are counted in characters.
struct Unit {
    start: usize,
    end: usize,
    /// Indexes of the query terms that it contains.
    terms: Vec<usize>,
}

/// The range of about `length` characters with the most distinct query terms, on one line; the start of the text when
/// no term occurs.
pub fn snippet(text: &str, terms: &[String], length: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (from, kept, to) = match best_stretch(&units(&chars, terms), terms.len(), length) {
        Some((first, last)) => {
            // The remaining length is distributed around the match.
            let from = first.saturating_sub(length.saturating_sub(last - first) / 3);
            (after_space(&chars, from, first), last, (from + length).min(chars.len()))
        }
        None => (0, 0, length.min(chars.len())),
    };
    let to = if to == chars.len() { to } else { before_space(&chars, from.max(kept), to) };
    let mut out = String::new();
    if from > 0 {
        out.push('…');
    }
    let shown: String = chars[from..to].iter().collect();
    for (number, word) in shown.split_whitespace().enumerate() {
        if number > 0 {
            out.push(' ');
        }
        out.push_str(word);
    }
    if to < chars.len() {
        out.push('…');
    }
    out
}

/// Start and end of the best range, in characters.
fn best_stretch(units: &[Unit], terms: usize, length: usize) -> Option<(usize, usize)> {
    let mut counts = vec![0usize; terms];
    let (mut distinct, mut next) = (0, 0);
    let mut best = (0, 0, 0);
    for (first, unit) in units.iter().enumerate() {
        // A word that is longer than the limit is shown in part.
        while next <= first || next < units.len() && units[next].end - unit.start <= length {
            for &term in &units[next].terms {
                counts[term] += 1;
                distinct += usize::from(counts[term] == 1);
            }
            next += 1;
        }
        if distinct > best.0 && !unit.terms.is_empty() {
            best = (distinct, unit.start, units[next - 1].end.min(unit.start + length));
        }
        for &term in &unit.terms {
            counts[term] -= 1;
            distinct -= usize::from(counts[term] == 0);
        }
    }
    (best.0 > 0).then_some((best.1, best.2))
}

fn units(chars: &[char], terms: &[String]) -> Vec<Unit> {
    let mut found = Vec::new();
    let mut at = 0;
    for run in chars.chunk_by(|a, b| !a.is_whitespace() && !b.is_whitespace() && is_unspaced(*a) == is_unspaced(*b)) {
        let end = at + run.len();
        if run.first().is_some_and(|c| is_unspaced(*c)) {
            // Such scripts are indexed by pairs of characters.
            for start in at..end {
                found.push(unit(chars, start..start + 1, start..(start + 2).min(end), terms));
            }
        } else if run.first().is_some_and(|c| !c.is_whitespace()) {
            found.push(unit(chars, at..end, at..end, terms));
        }
        at = end;
    }
    found
}

fn unit(chars: &[char], place: std::ops::Range<usize>, read: std::ops::Range<usize>, terms: &[String]) -> Unit {
    let own = term_set(&chars[read].iter().collect::<String>());
    let terms = terms.iter().enumerate().filter(|(_, term)| own.contains(*term)).map(|(number, _)| number);
    Unit { start: place.start, end: place.end, terms: terms.collect() }
}

/// The first start of a word from `from` on, but not after `limit`.
fn after_space(chars: &[char], from: usize, limit: usize) -> usize {
    if from == 0 || chars[from - 1].is_whitespace() {
        return from;
    }
    chars[from..limit].iter().position(|c| c.is_whitespace()).map_or(from, |space| from + space)
}

/// The last end of a word between `from` and `to`; `to` itself if there is none.
fn before_space(chars: &[char], from: usize, to: usize) -> usize {
    if chars[to].is_whitespace() {
        return to;
    }
    chars[from..to].iter().rposition(|c| c.is_whitespace()).map_or(to, |space| from + space)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::query_terms;
    use proptest::prelude::*;

    #[test]
    fn the_best_part_is_shown() {
        let filler = "word ".repeat(60);
        let text = format!("{filler}the blue bicycle was sold {filler}");
        let shown = snippet(&text, &query_terms("blue bicycle"), 60);
        assert!(shown.contains("blue bicycle") && shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        assert_eq!(snippet("short\n\ntext", &query_terms("none"), 100), "short text");
    }

    #[test]
    fn scripts_without_spaces_are_shown_where_the_words_are() {
        for (filler, wanted) in [
            ("今日は天気がいいです。", "私は黒い猫が好きだ"),
            ("ภาษาไทยไม่มีช่องว่าง", "แมวสีดำ"),
            ("오늘은날씨가좋습니다", "검은고양이"),
        ] {
            let text = format!("{}{wanted}{}", filler.repeat(40), filler.repeat(40));
            let shown = snippet(&text, &query_terms(wanted), 60);
            assert!(shown.contains(wanted) && shown.chars().count() <= 62, "{shown}");
        }
        let text = format!("{}猫{}", "あ".repeat(500), "い".repeat(500));
        assert!(snippet(&text, &query_terms("猫"), 60).contains('猫'), "one character is a question too");
    }

    #[test]
    fn long_words_and_long_texts_are_shown_where_they_match() {
        // There are more distinct words before the match than a query may have.
        let many: String = (0..500).map(|number| format!("w{number} ")).collect();
        let shown = snippet(&format!("{many}submarine"), &query_terms("submarine"), 80);
        assert!(shown.ends_with("submarine"), "{shown}");
        let url = format!("https://example.org/{}/bicycle", "x".repeat(400));
        let shown = snippet(&format!("{many}{url} {many}"), &query_terms("bicycle"), 80);
        assert!(shown.contains("https://example.org/") && shown.chars().count() <= 82, "{shown}");
    }

    proptest! {
        #[test]
        fn any_text_can_be_shown(text in "\\PC{0,200}", question in "\\PC{0,20}", length in 1usize..120) {
            let shown = snippet(&text, &query_terms(&question), length);
            prop_assert!(shown.chars().count() <= text.chars().count() + 2);
            prop_assert!(shown.chars().count() <= length + 2);
        }
    }
}
