//! Applies a unified diff strictly: every context and removed line must match at the position in the hunk header, or at
//! exactly one other place. No fuzz.

use crate::{
    error::{VaultResult, validation},
    text::{dominant_eol, with_eol},
};
use toolyard_protocol::{ErrorCode, Failure};

/// A diff has at most this many hunks.
const MAX_HUNKS: usize = 1000;

struct Hunk<'a> {
    /// One-based line in the old text; 0 for an empty old side.
    old_start: usize,
    /// Kind (` `, `-`, `+`) and text without line ending.
    lines: Vec<(u8, &'a str)>,
    /// `\ No newline at end of file` after an old or a new line.
    old_ends_bare: bool,
    new_ends_bare: bool,
}

/// The new text and how many hunks were applied.
pub(crate) fn apply(text: &str, diff: &str) -> VaultResult<(String, usize)> {
    let unix_diff = with_eol(diff, "\n");
    let hunks = parse(&unix_diff)?;
    let eol = dominant_eol(text);
    let unix = with_eol(text, "\n");
    // Only lines that all end the same way can be put back byte for byte.
    if with_eol(&unix, eol) != text {
        return Err(Failure::new(
            ErrorCode::PreconditionFailed,
            "the file mixes line endings, so a diff cannot be applied safely",
        )
        .suggest("Use operations or replaceRange instead."));
    }
    let old: Vec<&str> = unix.split_inclusive('\n').collect();
    let mut out = String::with_capacity(text.len() + diff.len());
    let mut at = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let place = find(&old, at, hunk).ok_or_else(|| mismatch(&old, hunk, number))?;
        old[at..place].iter().for_each(|line| out.push_str(line));
        at = place;
        let last_new = hunk.lines.iter().rposition(|(kind, _)| *kind != b'-');
        for (index, (kind, line)) in hunk.lines.iter().enumerate() {
            if *kind != b'+' {
                at += 1;
            }
            if *kind != b'-' {
                out.push_str(line);
                if !(hunk.new_ends_bare && Some(index) == last_new) {
                    out.push('\n');
                }
            }
        }
    }
    old[at..].iter().for_each(|line| out.push_str(line));
    Ok((with_eol(&out, eol).into_owned(), hunks.len()))
}

fn parse(diff: &str) -> VaultResult<Vec<Hunk<'_>>> {
    let bad = |line: usize, problem: &str| validation(format!("line {line} of the diff: {problem}"));
    let mut hunks: Vec<Hunk<'_>> = Vec::new();
    let (mut old_left, mut new_left) = (0usize, 0usize);
    let mut files = 0;
    for (index, line) in diff.strip_suffix('\n').unwrap_or(diff).split('\n').enumerate() {
        let number = index + 1;
        if old_left > 0 || new_left > 0 {
            let Some(hunk) = hunks.last_mut() else { return Err(bad(number, "no hunk is open")) };
            // A blank context line is often sent without its leading space.
            let (kind, rest) =
                if line.is_empty() { (b' ', "") } else { (line.as_bytes()[0], line.get(1..).unwrap_or_default()) };
            match kind {
                b' ' if old_left > 0 && new_left > 0 => (old_left, new_left) = (old_left - 1, new_left - 1),
                b'-' if old_left > 0 => old_left -= 1,
                b'+' if new_left > 0 => new_left -= 1,
                b'\\' => {
                    mark_bare(hunk);
                    continue;
                }
                _ => return Err(bad(number, "the hunk does not have as many lines as its header says")),
            }
            hunk.lines.push((kind, rest));
            continue;
        }
        if let Some(header) = line.strip_prefix("@@ ") {
            let (old_start, old_count, new_count) = parse_header(header)
                .ok_or_else(|| bad(number, "a hunk header is `@@ -start,count +start,count @@`"))?;
            (old_left, new_left) = (old_count, new_count);
            hunks.push(Hunk { old_start, lines: Vec::new(), old_ends_bare: false, new_ends_bare: false });
            if hunks.len() > MAX_HUNKS {
                return Err(bad(number, "more than 1000 hunks"));
            }
        } else if line.starts_with('\\') {
            if let Some(hunk) = hunks.last_mut() {
                mark_bare(hunk);
            }
        } else if line.starts_with("--- ") {
            files += 1;
            if files > 1 {
                return Err(bad(number, "a patch changes one file only"));
            }
        }
    }
    if old_left > 0 || new_left > 0 {
        return Err(validation("the diff ends in the middle of a hunk"));
    }
    if hunks.is_empty() {
        return Err(validation("the diff has no hunk (`@@ -1,3 +1,4 @@`)"));
    }
    Ok(hunks)
}

fn mark_bare(hunk: &mut Hunk<'_>) {
    match hunk.lines.last() {
        Some((b'-', _)) => hunk.old_ends_bare = true,
        Some((b'+', _)) => hunk.new_ends_bare = true,
        _ => (hunk.old_ends_bare, hunk.new_ends_bare) = (true, true),
    }
}

fn parse_header(header: &str) -> Option<(usize, usize, usize)> {
    let (ranges, _) = header.split_once(" @@")?;
    let (old, new) = ranges.split_once(' ')?;
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let (old_start, old_count) = range(old.strip_prefix('-')?)?;
    let (_, new_count) = range(new.strip_prefix('+')?)?;
    Some((old_start, old_count, new_count))
}

fn fits(old: &[&str], at: usize, hunk: &Hunk<'_>) -> bool {
    let mut last_bare = None;
    for (line, (_, expected)) in (at..).zip(hunk.lines.iter().filter(|(kind, _)| *kind != b'+')) {
        let Some(found) = old.get(line) else { return false };
        if found.strip_suffix('\n').unwrap_or(found) != *expected {
            return false;
        }
        last_bare = Some(!found.ends_with('\n'));
    }
    // A last line without newline must be declared, or the text after it would be glued on.
    last_bare.is_none_or(|bare| bare == hunk.old_ends_bare)
}

/// The position in the hunk header, or the only position from there on where the hunk matches.
fn find(old: &[&str], from: usize, hunk: &Hunk<'_>) -> Option<usize> {
    let has_old = hunk.lines.iter().any(|(kind, _)| *kind != b'+');
    // `-0,0` and `-5,0` mean "after that line".
    let stated = if has_old { hunk.old_start.saturating_sub(1) } else { hunk.old_start };
    if stated >= from && stated <= old.len() && fits(old, stated, hunk) {
        return Some(stated);
    }
    if !has_old {
        return None;
    }
    let mut places = (from..old.len()).filter(|&at| fits(old, at, hunk));
    let first = places.next()?;
    places.next().is_none().then_some(first)
}

fn mismatch(old: &[&str], hunk: &Hunk<'_>, number: usize) -> Failure {
    let at = hunk.old_start.saturating_sub(1);
    let found: String = old.iter().skip(at).take(5).copied().collect();
    let expected: Vec<&str> = hunk.lines.iter().filter(|(k, _)| *k != b'+').map(|(_, l)| *l).take(5).collect();
    Failure::new(
        ErrorCode::Conflict,
        format!("hunk {} does not fit at line {}, nor at exactly one other place", number + 1, hunk.old_start),
    )
    .suggest("Read the file again and make the diff from its current content, with exact context lines.")
    .detail("hunk", number)
    .detail("expected", expected.join("\n"))
    .detail("found", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolyard_engine::diff::{DiffNames, unified};

    #[test]
    fn a_diff_from_the_same_library_applies() {
        for (a, b) in [
            ("a\nb\nc\n", "a\nx\nc\n"),
            ("a\nb", "a\nb\n"),
            ("", "new\n"),
            ("a\n", ""),
            ("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\nxii"),
        ] {
            let diff = unified(a, b, DiffNames { old: "a", new: "b" }, 3);
            assert_eq!(apply(a, &diff).unwrap().0, b, "{diff}");
        }
        assert_eq!(apply("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n").unwrap().0, "a\r\nc\r\n");
    }

    #[test]
    fn shifted_hunks_need_one_place() {
        assert_eq!(apply("0\n0\na\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n").unwrap().0, "0\n0\na\nc\n");
        assert_eq!(apply("x\na\nb\na\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n").unwrap_err().code, ErrorCode::Conflict);
        assert_eq!(apply("a\nB\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n").unwrap_err().code, ErrorCode::Conflict);
    }

    #[test]
    fn malformed_diffs_are_refused() {
        for bad in [
            "",
            "no hunks",
            "@@ -1 +1 @@\n",
            "@@ -x +1 @@\n-a\n+b\n",
            "@@ -1,2 +1 @@\n-a\n+b\n+c\n",
            "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n--- c\n+++ d\n",
        ] {
            assert_eq!(apply("a\n", bad).unwrap_err().code, ErrorCode::ValidationError, "{bad:?}");
        }
    }
}
