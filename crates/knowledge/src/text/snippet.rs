//! The part of a chunk that shows why it was found.

use super::query_terms;

/// The stretch of about `length` characters with the most different terms of the question, on one line. The beginning
/// where no term is found.
pub fn snippet(text: &str, terms: &[String], length: usize) -> String {
    let words: Vec<(usize, usize)> = words(text);
    let mut best = (0usize, 0usize, 0usize); // distinct terms, first word, last word (exclusive)
    let hits: Vec<Vec<usize>> = words
        .iter()
        .map(|&(start, end)| {
            let own = query_terms(&text[start..end]);
            terms.iter().enumerate().filter(|(_, t)| own.contains(t)).map(|(i, _)| i).collect()
        })
        .collect();
    for first in (0..words.len()).filter(|&i| !hits[i].is_empty()) {
        let mut seen = vec![false; terms.len()];
        let mut last = first;
        while last < words.len() && words[last].1 - words[first].0 <= length {
            hits[last].iter().for_each(|&i| seen[i] = true);
            last += 1;
        }
        let distinct = seen.iter().filter(|s| **s).count();
        if distinct > best.0 {
            best = (distinct, first, last);
        }
    }
    let (from, to) = match (words.get(best.1), words.get(best.2.saturating_sub(1))) {
        (Some(first), Some(last)) if best.0 > 0 => {
            // The rest of the room goes around what was found.
            let spare = length.saturating_sub(last.1 - first.0) / 3;
            (floor(text, first.0.saturating_sub(spare)), first.0 + length)
        }
        _ => (0, length),
    };
    let from = if from == 0 { 0 } else { text[from..].find(char::is_whitespace).map_or(from, |i| from + i) };
    let to = floor(text, to.max(from).min(text.len()));
    let to = if to == text.len() { to } else { text[from..to].rfind(char::is_whitespace).map_or(to, |i| from + i) };
    let mut out = String::new();
    if from > 0 {
        out.push('…');
    }
    for word in text[from..to].split_whitespace() {
        if !out.is_empty() && out != "…" {
            out.push(' ');
        }
        out.push_str(word);
    }
    if to < text.len() {
        out.push('…');
    }
    out
}

fn words(text: &str) -> Vec<(usize, usize)> {
    text.split_whitespace()
        .map(|word| {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            (start, start + word.len())
        })
        .collect()
}

fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_best_part_is_shown() {
        let filler = "word ".repeat(60);
        let text = format!("{filler}the blue bicycle was sold {filler}");
        let shown = snippet(&text, &query_terms("blue bicycle"), 60);
        assert!(shown.contains("blue bicycle") && shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        assert_eq!(snippet("short\n\ntext", &query_terms("none"), 100), "short text");
    }

    proptest! {
        #[test]
        fn any_text_can_be_shown(text in "\\PC{0,200}", question in "\\PC{0,20}", length in 1usize..120) {
            let shown = snippet(&text, &query_terms(&question), length);
            prop_assert!(shown.chars().count() <= text.chars().count() + 2);
        }
    }
}
