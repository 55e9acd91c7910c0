//! Resolves a link to a file as Obsidian does: the exact path, otherwise the shortest path that ends with it. Also
//! computes how a link must be rewritten when its target moved.

use crate::{
    markdown::{
        links::{Link, LinkForm, encode, links},
        scan::Scan,
    },
    path::{VaultPath, fold},
};
use std::collections::HashMap;

/// All files of a vault, found by path and by name, without regard to letter case.
#[derive(Default)]
pub(crate) struct FileIndex {
    by_path: HashMap<String, Vec<VaultPath>>,
    by_name: HashMap<String, Vec<VaultPath>>,
}

/// How a link names its file; a rewritten link keeps the manner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkStyle {
    /// `./x`, `../x`, or in a Markdown link any path from the note's own folder.
    Relative,
    /// A path from the root: `/x`.
    FromRoot,
    /// The whole path.
    Path,
    /// The name, or the end of the path.
    Name,
}

impl FileIndex {
    pub(crate) fn new(paths: impl IntoIterator<Item = VaultPath>) -> Self {
        let mut index = Self::default();
        for path in paths {
            index.by_name.entry(fold(path.name())).or_default().push(path.clone());
            index.by_path.entry(path.folded()).or_default().push(path);
        }
        index
    }

    /// The file at this path; where several differ only in letter case, the one spelled just so.
    fn exact(&self, path: &str) -> Option<&VaultPath> {
        let at = |path: &str| {
            let hits = self.by_path.get(&fold(path))?;
            hits.iter().find(|hit| hit.as_str() == path).or_else(|| hits.first())
        };
        at(path).or_else(|| at(&format!("{path}.md")))
    }

    /// The best file whose path ends with `end`: in the same folder, otherwise with the fewest folders, otherwise the
    /// first by name.
    fn by_end(&self, end: &str, source: &VaultPath) -> Option<&VaultPath> {
        let hits = |end: &str| -> Option<&VaultPath> {
            let folded_end = fold(end);
            let fits = |path: &&VaultPath| {
                let folded = path.folded();
                folded == folded_end || folded.strip_suffix(&folded_end).is_some_and(|rest| rest.ends_with('/'))
            };
            let name = folded_end.rsplit('/').next().unwrap_or_default();
            self.by_name.get(name)?.iter().filter(fits).min_by_key(|path| {
                let spelled_otherwise = !path.as_str().ends_with(end);
                (spelled_otherwise, path.parent() != source.parent(), path.segments().count(), path.as_str().to_owned())
            })
        };
        hits(end).or_else(|| hits(&format!("{end}.md")))
    }

    fn resolve(&self, form: LinkForm, target: &str, source: &VaultPath) -> Option<(&VaultPath, LinkStyle)> {
        if let Some(absolute) = target.strip_prefix('/') {
            return self.exact(absolute).map(|p| (p, LinkStyle::FromRoot));
        }
        let relative =
            || from_folder(source, target).and_then(|path| self.exact(&path)).map(|p| (p, LinkStyle::Relative));
        if target.starts_with("./") || target.starts_with("../") {
            return relative();
        }
        let in_folder = match form {
            LinkForm::Wiki => None,
            LinkForm::Markdown | LinkForm::Angle => relative(),
        };
        in_folder
            .or_else(|| {
                self.exact(target).map(|p| (p, if target.contains('/') { LinkStyle::Path } else { LinkStyle::Name }))
            })
            .or_else(|| self.by_end(target, source).map(|p| (p, LinkStyle::Name)))
    }
}

/// `target` seen from the folder of `source`, or `None` when it leads out of the vault.
fn from_folder(source: &VaultPath, target: &str) -> Option<String> {
    let mut segments: Vec<&str> = source.segments().collect();
    segments.pop();
    for segment in target.split('/') {
        match segment {
            "." | "" => {}
            ".." => {
                segments.pop()?;
            }
            name => segments.push(name),
        }
    }
    Some(segments.join("/"))
}

/// The way from the folder of `source` to `target`.
fn relative_path(source: &VaultPath, target: &VaultPath) -> String {
    let mut from: Vec<&str> = source.segments().collect();
    from.pop();
    let to: Vec<&str> = target.segments().collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count().min(to.len() - 1);
    let mut out: Vec<&str> = vec![".."; from.len() - common];
    out.extend(&to[common..]);
    out.join("/")
}

/// A move of one or many files, as links see it.
pub(crate) struct LinkMove<'a> {
    pub(crate) before: &'a FileIndex,
    pub(crate) after: &'a FileIndex,
    /// Old path to new path.
    pub(crate) moved: &'a HashMap<VaultPath, VaultPath>,
}

impl LinkMove<'_> {
    /// The note's new text, or `None` if every link still leads to the same file. A link is changed only if it led to a
    /// moved file, or is in one, and would now lead elsewhere.
    pub(crate) fn rewrite(&self, source: &VaultPath, text: &str) -> Option<String> {
        let scan = Scan::new(text);
        let new_source = self.moved.get(source).unwrap_or(source);
        let source_moves = new_source != source;
        let mut out = String::new();
        let mut at = 0;
        for link in links(&scan) {
            let Some((old_target, manner)) = self.before.resolve(link.form, &link.target, source) else { continue };
            let new_target = self.moved.get(old_target);
            if new_target.is_none() && !source_moves {
                continue;
            }
            let wanted = new_target.unwrap_or(old_target);
            // A path from the note's own folder must stay one: other programs know no search by name.
            let still_leads =
                self.after.resolve(link.form, &link.target, new_source).is_some_and(|(path, new_manner)| {
                    path == wanted && (manner != LinkStyle::Relative || new_manner == LinkStyle::Relative)
                });
            if still_leads {
                continue;
            }
            let new_text = quoted(&scan, &link, self.spell(&link, manner, new_source, wanted));
            out.push_str(&text[at..link.range.start]);
            out.push_str(&new_text);
            at = link.range.end;
        }
        (at > 0).then(|| {
            out.push_str(&text[at..]);
            out
        })
    }

    fn spell(&self, link: &Link, manner: LinkStyle, source: &VaultPath, target: &VaultPath) -> String {
        let keeps_extension = !target.is_note()
            || link
                .target
                .rsplit_once('.')
                .is_some_and(|(_, e)| e.eq_ignore_ascii_case("md") || e.eq_ignore_ascii_case("markdown"));
        let trimmed = |path: &str| -> String {
            match path.rsplit_once('.') {
                Some((stem, "md")) if !keeps_extension => stem.to_owned(),
                _ => path.to_owned(),
            }
        };
        let relative = || {
            let path = relative_path(source, target);
            let dotted = link.target.starts_with("./") || link.form == LinkForm::Wiki;
            if dotted && !path.starts_with("../") { format!("./{path}") } else { path }
        };
        let whole = target.as_str().to_owned();
        let candidates = match manner {
            LinkStyle::Relative => vec![relative()],
            LinkStyle::FromRoot => vec![format!("/{whole}")],
            LinkStyle::Path => vec![whole.clone()],
            LinkStyle::Name => vec![target.name().to_owned()],
        };
        let leads_there = |path: &str| self.after.resolve(link.form, path, source).is_some_and(|(p, _)| p == target);
        let chosen = candidates
            .into_iter()
            .chain([whole.clone(), format!("/{whole}")])
            .map(|path| trimmed(&path))
            .find(|path| leads_there(path))
            .unwrap_or(whole);
        encode(link.form, &chosen)
    }
}

/// Inside single quotes in front matter an apostrophe is written twice.
fn quoted(scan: &Scan<'_>, link: &Link, new: String) -> String {
    let in_front_matter = scan.front_matter.as_ref().is_some_and(|range| range.contains(&link.range.start));
    if !in_front_matter || !new.contains('\'') {
        return new;
    }
    let line = scan.lines[scan.line_number(link.range.start) - 1];
    let before = &scan.text[line.start..link.range.start];
    match before.find(['"', '\'']) {
        Some(i) if before.as_bytes()[i] == b'\'' => new.replace('\'', "''"),
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VaultPath {
        VaultPath::parse(text).unwrap()
    }

    fn rewrite(files: &[&str], moves: &[(&str, &str)], source: &str, text: &str) -> String {
        let moved: HashMap<VaultPath, VaultPath> = moves.iter().map(|(a, b)| (path(a), path(b))).collect();
        let before = FileIndex::new(files.iter().map(|f| path(f)));
        let after = FileIndex::new(files.iter().map(|f| moved.get(&path(f)).cloned().unwrap_or_else(|| path(f))));
        let change = LinkMove { before: &before, after: &after, moved: &moved };
        change.rewrite(&path(source), text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn a_rename_follows_every_form() {
        let files = ["Old.md", "S.md", "sub/T.md"];
        let moves = [("Old.md", "New Name.md")];
        assert_eq!(
            rewrite(
                &files,
                &moves,
                "S.md",
                "[[Old]] [[old#h|a]] ![[Old#^b]] [x](Old.md#h) [y](<Old.md>) [[Old.md]] [[Other]]"
            ),
            "[[New Name]] [[New Name#h|a]] ![[New Name#^b]] [x](New%20Name.md#h) [y](<New Name.md>) [[New Name.md]] [[Other]]"
        );
        assert_eq!(
            rewrite(&files, &moves, "sub/T.md", "[x](../Old.md) [[/Old]]"),
            "[x](../New%20Name.md) [[/New Name]]"
        );
        assert_eq!(
            rewrite(&files, &[("Old.md", "It's.md")], "S.md", "---\na: '[[Old]]'\nb: \"[[Old]]\"\n---\n"),
            "---\na: '[[It''s]]'\nb: \"[[It's]]\"\n---\n"
        );
    }

    #[test]
    fn a_move_leaves_names_that_still_lead_there() {
        let files = ["a/N.md", "S.md", "b/X.md"];
        let moves = [("a/N.md", "b/N.md")];
        assert_eq!(rewrite(&files, &moves, "S.md", "[[N]] [[a/N]] [x](a/N.md)"), "[[N]] [[b/N]] [x](b/N.md)");
        let files = ["a/N.md", "b/N.md", "S.md", "c/X.md"];
        assert_eq!(rewrite(&files, &[("a/N.md", "c/d/N.md")], "S.md", "[[N]] [[b/N]]"), "[[c/d/N]] [[b/N]]");
    }

    #[test]
    fn of_two_spellings_the_exact_one_is_meant() {
        let files = ["A.md", "a.md", "d/B.md", "e/b.md", "S.md"];
        assert_eq!(rewrite(&files, &[("a.md", "z.md")], "S.md", "[[A]] [[a]]"), "[[A]] [[z]]");
        assert_eq!(rewrite(&files, &[("e/b.md", "z.md")], "S.md", "[[B]] [[b]]"), "[[B]] [[z]]");
    }

    #[test]
    fn relative_links_inside_a_moved_note_are_kept_alive() {
        let files = ["a/N.md", "a/M.md", "img/p.png"];
        let moves = [("a/N.md", "x/y/N.md")];
        assert_eq!(
            rewrite(&files, &moves, "a/N.md", "[m](M.md) ![i](../img/p.png) [[M]] [self](N.md)"),
            "[m](../../a/M.md) ![i](../../img/p.png) [[M]] [self](N.md)"
        );
    }
}
