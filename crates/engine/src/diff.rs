//! The difference of two texts by line, as a unified diff. Every diff that a person is shown is made here, so that one
//! limit of time holds for all of them and the algorithm is compiled once.

use similar::TextDiff;
use std::time::Duration;

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
    let diff = TextDiff::configure().timeout(TIME_LIMIT).diff_lines(old, new);
    diff.unified_diff().context_radius(context).header(names.old, names.new).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
