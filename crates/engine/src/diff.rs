//! The difference of two texts by line, as a unified diff. Every diff that a person is shown is made here, so that one
//! limit of time holds for all of them.
//!
//! The lines are compared with the algorithm of Myers ("An O(ND) difference algorithm and its variations", 1986) in its form
//! with linear memory. It works on the numbers of the lines, so that it is compiled once.

use std::{
    collections::HashMap,
    fmt::Write as _,
    ops::Range,
    time::{Duration, Instant},
};

/// Comparing two texts takes at most this long. After that the diff is coarser: it removes and adds more lines than needed.
const TIME_LIMIT: Duration = Duration::from_millis(500);

/// The names in the header of a diff.
#[derive(Debug, Clone, Copy)]
pub struct DiffNames<'a> {
    /// The old text's name, after `---`.
    pub old: &'a str,
    /// The new text's name, after `+++`.
    pub new: &'a str,
}

/// The unified diff of two texts, with `context` unchanged lines around each change. Empty when the texts are equal.
pub fn unified(old: &str, new: &str, names: DiffNames<'_>, context: usize) -> String {
    let texts = (lines(old), lines(new));
    let changes = changes(&texts.0, &texts.1, Instant::now() + TIME_LIMIT);
    let mut out = String::new();
    if !changes.is_empty() {
        push(&mut out, format_args!("--- {}\n+++ {}\n", names.old, names.new));
    }
    // Changes whose context meets are shown together.
    for group in changes.chunk_by(|a, b| b.old.start - a.old.end <= 2 * context) {
        write_group(&mut out, &texts, group, context);
    }
    out
}

/// Lines with their ends.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    _ = out.write_fmt(text);
}

fn write_group(out: &mut String, (old, new): &(Vec<&str>, Vec<&str>), group: &[Change], context: usize) {
    let [first, ..] = group else { return };
    let last = group.last().unwrap_or(first);
    let before = context.min(first.old.start);
    let after = context.min(old.len() - last.old.end);
    let of_old = first.old.start - before..last.old.end + after;
    let of_new = first.new.start - before..last.new.end + after;
    push(out, format_args!("@@ -{} +{} @@\n", range(&of_old), range(&of_new)));
    let mut shown = of_old.start;
    for change in group {
        write_lines(out, ' ', &old[shown..change.old.start]);
        write_lines(out, '-', &old[change.old.clone()]);
        write_lines(out, '+', &new[change.new.clone()]);
        shown = change.old.end;
    }
    write_lines(out, ' ', &old[shown..of_old.end]);
}

fn write_lines(out: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        out.push(mark);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// A range as the header of a group has it: counted from 1, without a length of 1; an empty range names the line before.
fn range(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        length => format!("{},{length}", lines.start + 1),
    }
}

/// Lines of the old text that lines of the new text replace. One of the two ranges may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    old: Range<usize>,
    new: Range<usize>,
}

/// The changes from one text to another, in order, with unchanged lines between them.
fn changes(old: &[&str], new: &[&str], deadline: Instant) -> Vec<Change> {
    let mut numbers = HashMap::new();
    let mut number = |line| {
        let next = numbers.len();
        *numbers.entry(line).or_insert(next)
    };
    let old: Vec<usize> = old.iter().map(|line| number(*line)).collect();
    let new: Vec<usize> = new.iter().map(|line| number(*line)).collect();
    let mut found: Vec<Change> = Vec::new();
    // The parts that are still to be compared; the last one is the first in the texts.
    let mut parts = vec![Change { old: 0..old.len(), new: 0..new.len() }];
    while let Some(part) = parts.pop() {
        let part = without_common_ends(&old, &new, part);
        if part.old.is_empty() && part.new.is_empty() {
            continue;
        }
        let middle = match part.old.is_empty() || part.new.is_empty() {
            true => None,
            false => middle(&old[part.old.clone()], &new[part.new.clone()], deadline),
        };
        if let Some((x, y)) = middle {
            let (x, y) = (part.old.start + x, part.new.start + y);
            parts.push(Change { old: x..part.old.end, new: y..part.new.end });
            parts.push(Change { old: part.old.start..x, new: part.new.start..y });
            continue;
        }
        match found.last_mut() {
            Some(last) if last.old.end == part.old.start && last.new.end == part.new.start => {
                (last.old.end, last.new.end) = (part.old.end, part.new.end);
            }
            _ => found.push(part),
        }
    }
    found
}

fn without_common_ends(old: &[usize], new: &[usize], mut part: Change) -> Change {
    while !part.old.is_empty() && !part.new.is_empty() && old[part.old.start] == new[part.new.start] {
        part.old.start += 1;
        part.new.start += 1;
    }
    while !part.old.is_empty() && !part.new.is_empty() && old[part.old.end - 1] == new[part.new.end - 1] {
        part.old.end -= 1;
        part.new.end -= 1;
    }
    part
}

/// How far paths of a number of steps come on each diagonal, from one end of both texts.
struct Paths {
    /// By the diagonal plus `middle`.
    reached: Vec<isize>,
    middle: isize,
}

impl Paths {
    fn new(steps: isize) -> Self {
        Self { reached: vec![0; 2 * steps as usize + 3], middle: steps + 1 }
    }

    fn on(&mut self, diagonal: isize) -> &mut isize {
        &mut self.reached[(self.middle + diagonal) as usize]
    }

    /// Where a path on a diagonal begins its last unchanged lines: one line further than a path with one step less.
    fn step(&mut self, diagonal: isize, steps: isize) -> isize {
        let comes_from_above =
            diagonal == -steps || (diagonal != steps && *self.on(diagonal - 1) < *self.on(diagonal + 1));
        if comes_from_above { *self.on(diagonal + 1) } else { *self.on(diagonal - 1) + 1 }
    }
}

/// A point on a shortest path through both texts, about halfway. `None` when there is no time left, or when the texts have
/// nothing in common.
fn middle(old: &[usize], new: &[usize], deadline: Instant) -> Option<(usize, usize)> {
    let (width, height) = (old.len() as isize, new.len() as isize);
    let delta = width - height;
    let is_odd = delta % 2 != 0;
    let most = (width + height + 1) / 2;
    let (mut forward, mut backward) = (Paths::new(most), Paths::new(most));
    let same = |x: isize, y: isize| x < width && y < height && y >= 0 && old[x as usize] == new[y as usize];
    let inside = |x: isize, y: isize| {
        let is_corner = (x, y) == (0, 0) || (x, y) == (width, height);
        let is_inside = (0..=width).contains(&x) && (0..=height).contains(&y);
        (is_inside && !is_corner).then_some((x as usize, y as usize))
    };
    for steps in 0..=most {
        if Instant::now() > deadline {
            return None;
        }
        for diagonal in (-steps..=steps).step_by(2) {
            let start = forward.step(diagonal, steps);
            let mut x = start;
            while same(x, x - diagonal) {
                x += 1;
            }
            *forward.on(diagonal) = x;
            if is_odd && (diagonal - delta).abs() < steps && x + *backward.on(delta - diagonal) >= width {
                return inside(start, start - diagonal);
            }
        }
        for diagonal in (-steps..=steps).step_by(2) {
            let start = backward.step(diagonal, steps);
            let mut x = start;
            while x < width && x - diagonal < height && same(width - x - 1, height - (x - diagonal) - 1) {
                x += 1;
            }
            *backward.on(diagonal) = x;
            if !is_odd && (diagonal - delta).abs() <= steps && x + *forward.on(delta - diagonal) >= width {
                return inside(width - x, height - (x - diagonal));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: DiffNames<'static> = DiffNames { old: "a/x", new: "b/x" };

    #[test]
    fn equal_texts_have_no_diff() {
        assert_eq!(unified("a\nb\n", "a\nb\n", NAMES, 3), "");
        assert_eq!(unified("", "", NAMES, 3), "");
    }

    #[test]
    fn changes_far_apart_are_groups_of_their_own() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n18\n", "\n");
        let expected = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n@@ -17,3 +17,2 @@\n 17\n-18\n 19\n";
        assert_eq!(unified(&old, &new, NAMES, 1), expected);
    }

    #[test]
    fn changes_whose_context_meets_are_one_group() {
        let diff = unified("1\n2\n3\n4\n", "one\n2\n3\nfour\n", NAMES, 1);
        assert_eq!(diff, "--- a/x\n+++ b/x\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n-4\n+four\n");
    }

    #[test]
    fn a_missing_last_line_end_is_shown() {
        let diff = unified("a\n", "a", NAMES, 3);
        assert_eq!(diff, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
    }

    #[test]
    fn a_text_that_begins_or_ends_has_an_empty_range() {
        assert_eq!(unified("", "a\nb\n", NAMES, 3), "--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(unified("a\n", "", NAMES, 3), "--- a/x\n+++ b/x\n@@ -1 +0,0 @@\n-a\n");
    }

    #[test]
    fn a_moved_line_is_removed_once_and_added_once() {
        let diff = unified("a\nb\nc\nd\n", "b\nc\na\nd\n", NAMES, 0);
        assert_eq!(diff.lines().filter(|line| line.starts_with('-')).count(), 2, "{diff}");
        assert_eq!(diff.lines().filter(|line| line.starts_with('+')).count(), 2, "{diff}");
    }

    #[test]
    fn without_time_the_diff_is_coarse_and_still_right() {
        let passed = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let (old, new) = (["a", "b", "c", "d"], ["x", "b", "y", "d"]);
        assert_eq!(changes(&old, &new, passed), [Change { old: 0..3, new: 0..3 }]);
    }

    /// The length of the longest common subsequence, by the plain table.
    fn common(old: &[&str], new: &[&str]) -> usize {
        let mut row = vec![0; new.len() + 1];
        for line in old {
            let mut corner = 0;
            for (at, other) in new.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if line == other { corner + 1 } else { above.max(row[at]) };
                corner = above;
            }
        }
        row[new.len()]
    }

    proptest! {
        #[test]
        fn changes_turn_the_old_text_into_the_new_one_and_are_as_few_as_possible(
            old in proptest::collection::vec(0..4usize, 0..40),
            new in proptest::collection::vec(0..4usize, 0..40),
        ) {
            let word = |n: &usize| ["a", "b", "c", "d"][*n];
            let (old, new): (Vec<&str>, Vec<&str>) = (old.iter().map(word).collect(), new.iter().map(word).collect());
            let (mut built, mut at, mut removed) = (Vec::new(), 0, 0);
            for change in changes(&old, &new, Instant::now() + Duration::from_secs(60)) {
                built.extend_from_slice(&old[at..change.old.start]);
                prop_assert_eq!(built.len(), change.new.start);
                built.extend_from_slice(&new[change.new.clone()]);
                removed += change.old.len();
                at = change.old.end;
            }
            built.extend_from_slice(&old[at..]);
            prop_assert_eq!(&built, &new);
            prop_assert_eq!(removed, old.len() - common(&old, &new));
        }
    }
}
