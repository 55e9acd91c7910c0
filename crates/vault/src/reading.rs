//! Reads the vault for an indexer, outside of tool calls. The same rules for paths, links and sizes apply, so that
//! nothing is read that a tool could not read.

use crate::{
    error::VaultResult,
    markdown::{headings, links, scan::Scan},
    path::VaultPath,
    root::{MetadataMode, NodeKind},
    vault::{ListedEntry, Vault},
    view::{Listing, Purpose, View},
};
use std::{ops::Range, sync::Arc};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ErrorCode, Failure};

/// One entry that a survey of the vault found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurveyEntry {
    /// A file.
    File {
        /// The path.
        path: VaultPath,
        /// The size in bytes.
        size: u64,
        /// When it was last written, in milliseconds since 1970.
        mtime_ms: i64,
    },
    /// A file that cannot be read.
    Unreadable {
        /// Where, as well as it can be spelled.
        path: String,
        /// Why, without the content of anything.
        reason: String,
    },
    /// A folder that cannot be listed; its content is unknown.
    UnreadableFolder {
        /// Where, as well as it can be spelled.
        path: String,
        /// The reason.
        reason: String,
    },
}

/// A file's content.
#[derive(Debug, Clone)]
pub struct NoteContent {
    /// The complete body.
    pub bytes: Arc<[u8]>,
    /// When it was last written, in milliseconds since 1970.
    pub mtime_ms: i64,
}

impl Vault {
    /// Visits every file below the root in the order of names. A folder for which `enter` returns false is skipped. An
    /// entry that cannot be read does not end the survey; a root that cannot be listed does.
    pub fn survey(
        &self,
        cancel: &CancellationToken,
        enter: &mut dyn FnMut(&VaultPath) -> bool,
        visit: &mut dyn FnMut(SurveyEntry),
    ) -> Result<(), Failure> {
        self.survey_folder(None, cancel, enter, visit)
    }

    fn survey_folder(
        &self,
        folder: Option<&VaultPath>,
        cancel: &CancellationToken,
        enter: &mut dyn FnMut(&VaultPath) -> bool,
        visit: &mut dyn FnMut(SurveyEntry),
    ) -> VaultResult<()> {
        if cancel.is_cancelled() {
            return Err(Failure::new(ErrorCode::Cancelled, "stopped before it was done; nothing was changed"));
        }
        let entries = match (self.listed(folder, Listing::Visible, MetadataMode::OfFiles), folder) {
            (Ok(entries), _) => entries,
            (Err(failure), Some(_)) if failure.code == ErrorCode::NotFound => return Ok(()),
            (Err(failure), Some(folder)) => {
                visit(SurveyEntry::UnreadableFolder { path: folder.to_string(), reason: failure.message });
                return Ok(());
            }
            (Err(failure), None) => return Err(failure),
        };
        for ListedEntry { entry, meta, is_utf8 } in entries {
            let path = if is_utf8 {
                VaultPath::child(folder, &entry.name).map_err(|error| problem(&error))
            } else {
                Err("it is not UTF-8; rename it")
            };
            let path = match path {
                Ok(path) => path,
                Err(problem) => {
                    let spelled = folder.map_or_else(|| entry.name.clone(), |f| format!("{f}/{}", entry.name));
                    let reason = format!("its name cannot be a vault path: {problem}");
                    visit(match entry.kind {
                        NodeKind::Folder => SurveyEntry::UnreadableFolder { path: spelled, reason },
                        _ => SurveyEntry::Unreadable { path: spelled, reason },
                    });
                    continue;
                }
            };
            if entry.kind == NodeKind::Folder {
                if enter(&path) {
                    self.survey_folder(Some(&path), cancel, enter, visit)?;
                }
                continue;
            }
            // It was looked at with its folder, unless it is a link or went away.
            if let Some(meta) = meta.filter(|meta| meta.kind == NodeKind::File) {
                visit(SurveyEntry::File { path, size: meta.size, mtime_ms: meta.mtime_ms });
                continue;
            }
            match self.stat(&path, Purpose::Read) {
                Ok(Some(stat)) => visit(SurveyEntry::File { path, size: stat.size, mtime_ms: stat.mtime_ms }),
                Ok(None) => {}
                Err(failure) => visit(SurveyEntry::Unreadable { path: path.to_string(), reason: failure.message }),
            }
        }
        Ok(())
    }

    /// A whole file; `None` when nothing is there.
    pub fn read_note(&self, path: &VaultPath) -> Result<Option<NoteContent>, Failure> {
        let content = self.read(path, Purpose::Read)?;
        Ok(content.map(|content| NoteContent { bytes: content.bytes, mtime_ms: content.stat.mtime_ms }))
    }

    /// Whether a file or folder is there and can be reached without leaving the vault.
    pub fn reaches(&self, path: &VaultPath) -> Result<bool, Failure> {
        Ok(self.stat(path, Purpose::Read)?.is_some())
    }

    /// Whether the root can still be listed.
    pub fn is_readable(&self) -> bool {
        // A descriptor outlives the folder it was opened on, so the path is looked at as well.
        self.root().is_dir() && self.list(None, Listing::Visible).is_ok()
    }
}

fn problem(error: &crate::path::PathError) -> &'static str {
    match error {
        crate::path::PathError::Malformed { problem, .. } | crate::path::PathError::Blocked { problem, .. } => problem,
    }
}

/// The structure of a note, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The front matter with both its fences.
    pub front_matter: Option<Range<usize>>,
    /// Where the text after front matter (and byte order mark) begins.
    pub body: usize,
    /// The lines of the body, without their endings.
    pub lines: Vec<Range<usize>>,
    /// Headings in order.
    pub headings: Vec<HeadingAt>,
    /// Code and comments, in order, not overlapping.
    pub opaque: Vec<Range<usize>>,
    /// The targets of a note's links: the path part of each link, including links in the front matter.
    pub links: Vec<String>,
}

/// A heading with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadingAt {
    /// 1 to 6.
    pub level: u8,
    /// The text of the heading.
    pub text: String,
    /// Where it begins.
    pub start: usize,
    /// Where the text below the heading begins.
    pub body: usize,
    /// The headings above it, outermost first, as places in [`Outline::headings`].
    pub parents: Vec<usize>,
}

/// Finds the outline of a note.
pub fn outline(text: &str) -> Outline {
    let scan = Scan::new(text);
    let all = headings::headings(&scan);
    let found = all.iter().map(|h| HeadingAt {
        level: h.level,
        text: h.text.clone(),
        start: h.start,
        body: h.body,
        parents: h.parents.clone(),
    });
    let body = scan.body_start();
    Outline {
        headings: found.collect(),
        body,
        lines: scan.lines.iter().filter(|l| l.start >= body).map(|l| l.start..l.end).collect(),
        links: links::links(&scan).into_iter().map(|link| link.target).collect(),
        front_matter: scan.front_matter.clone(),
        opaque: scan.into_opaque(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VaultOptions;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_survey_goes_on_past_what_it_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("v");
        std::fs::create_dir_all(root.join("a/skipped")).unwrap();
        std::fs::create_dir_all(root.join("a/fol\\der")).unwrap();
        std::fs::create_dir_all(root.join(".obsidian")).unwrap();
        for (path, text) in
            [("z.md", "z"), ("a/n.md", "nn"), ("a/skipped/x.md", "x"), (".obsidian/c.md", "c"), ("b\\ad.md", "b")]
        {
            std::fs::write(root.join(path), text).unwrap();
        }
        let not_utf8 = std::ffi::OsStr::from_bytes(b"caf\xe9.md");
        std::fs::write(root.join(not_utf8), "latin1").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        let vault = Vault::open(&root, VaultOptions::new(dir.path().join("locks"))).unwrap();
        let (mut files, mut bad, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
        let cancel = CancellationToken::new();
        vault
            .survey(&cancel, &mut |folder| folder.name() != "skipped", &mut |found| match found {
                SurveyEntry::File { path, size, .. } => files.push((path.to_string(), size)),
                SurveyEntry::Unreadable { path, .. } => bad.push(path),
                SurveyEntry::UnreadableFolder { path, .. } => unlisted.push(path),
            })
            .unwrap();
        assert_eq!(files, [("a/n.md".to_owned(), 2), ("z.md".to_owned(), 1)]);
        assert_eq!(bad, ["b\\ad.md", "caf\u{fffd}.md"]);
        assert_eq!(unlisted, ["a/fol\\der"]);
        assert!(vault.list(None, Listing::Visible).unwrap().iter().all(|entry| !entry.name.starts_with("caf")));
        cancel.cancel();
        assert!(vault.survey(&cancel, &mut |_| true, &mut |_| {}).is_err());
        assert!(vault.is_readable());
        std::fs::remove_dir_all(&root).unwrap();
        assert!(!vault.is_readable());
    }
}
