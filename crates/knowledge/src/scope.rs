//! [`Scope`]: which files of a vault are notes to be indexed.

use crate::{config::IndexingConfig, text::nfc};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::path::Path;
use toolyard_vault::VaultPath;

/// A larger ignore file is not read.
const MAX_IGNORE_BYTES: u64 = 1 << 20;

/// Which files of a vault are notes to be indexed.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    extensions: Vec<String>,
    allow: Vec<String>,
    deny: Vec<String>,
    ignored: Gitignore,
}

impl Scope {
    /// Reads the ignore file of a vault. Invalid lines are skipped.
    pub(crate) fn read(root: &Path, config: &IndexingConfig) -> Self {
        let mut builder = GitignoreBuilder::new("");
        let path = root.join(&config.ignore_file);
        let small = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MAX_IGNORE_BYTES);
        if small && let Ok(text) = std::fs::read_to_string(&path) {
            for line in text.lines() {
                if let Err(error) = builder.add_line(None, &nfc(line)) {
                    tracing::warn!(%error, line, "a line of the ignore file is not a valid pattern and is skipped");
                }
            }
        }
        let folders = |list: &[String]| list.iter().map(|f| nfc(f.trim_matches('/')).into_owned()).collect();
        Self {
            extensions: config.extensions.iter().map(|e| e.trim_start_matches('.').to_lowercase()).collect(),
            allow: folders(&config.allow_folders),
            deny: folders(&config.deny_folders),
            ignored: builder.build().unwrap_or_else(|_| Gitignore::empty()),
        }
    }

    /// Whether a folder and all its parents may contain notes that are indexed.
    pub(crate) fn reaches(&self, folder: &VaultPath) -> bool {
        self.enters(folder) && folder.parent().is_none_or(|parent| self.reaches(&parent))
    }

    /// Whether a folder may contain notes that are indexed. Its parents are not checked.
    pub(crate) fn enters(&self, folder: &VaultPath) -> bool {
        self.enters_name(folder.as_str())
    }

    /// The same for a folder whose name may not be a vault path.
    pub(crate) fn enters_name(&self, path: &str) -> bool {
        // Names are compared in NFC, however the disk and the settings spell them.
        let path = &*nfc(path);
        !self.is_denied(path)
            && !self.ignored.matched(path, true).is_ignore()
            && (self.allow.is_empty() || self.allow.iter().any(|a| is_within(path, a) || is_within(a, path)))
    }

    /// Whether a file is a note that is indexed. Its folders are checked too.
    pub(crate) fn takes(&self, file: &VaultPath) -> bool {
        self.takes_name(file.as_str())
    }

    /// The same for a file whose name may not be a vault path.
    pub(crate) fn takes_name(&self, path: &str) -> bool {
        let path = &*nfc(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, e)| e.to_lowercase());
        extension.is_some_and(|e| self.extensions.contains(&e))
            && !self.is_denied(path)
            && !self.ignored.matched_path_or_any_parents(path, false).is_ignore()
            && (self.allow.is_empty() || self.allow.iter().any(|a| is_within(path, a)))
    }

    /// A denied name without a slash is denied at any depth.
    fn is_denied(&self, path: &str) -> bool {
        self.deny.iter().any(|denied| {
            if denied.contains('/') { is_within(path, denied) } else { path.split('/').any(|part| part == denied) }
        })
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(config: &IndexingConfig, ignore: &str) -> Scope {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(&config.ignore_file), ignore).unwrap();
        Scope::read(dir.path(), config)
    }
    fn path(text: &str) -> VaultPath {
        VaultPath::parse(text).unwrap()
    }

    #[test]
    fn notes_are_told_from_other_files_and_denied_folders() {
        let scope = scope(&IndexingConfig::default(), "Templates/\n*.draft.md\n!keep.draft.md\n/top.md\n");
        for taken in ["a.md", "x/A.MD", "b.markdown", "c.txt", "keep.draft.md", "x/top.md", "zzz-Archived/a.md"] {
            assert!(scope.takes(&path(taken)), "{taken}");
        }
        for left in
            ["a.png", "noext", "zzz-Archive/a.md", "x/zzz-Archive/a.md", "Templates/a.md", "a.draft.md", "top.md"]
        {
            assert!(!scope.takes(&path(left)), "{left}");
        }
        assert!(!scope.enters(&path("Templates")) && scope.enters(&path("Temp")));
        assert!(!scope.reaches(&path("Templates/x")) && !scope.reaches(&path("zzz-Archive/x/y")));
        assert!(scope.reaches(&path("Temp/x")));
    }

    #[test]
    fn attachments_with_unreadable_names_are_not_missed() {
        let scope = scope(&IndexingConfig::default(), "");
        assert!(scope.takes_name("x/caf\u{fffd}.MD") && scope.enters_name("caf\u{fffd}"));
        assert!(!scope.takes_name("caf\u{fffd}.png") && !scope.takes_name("zzz-Archive/caf\u{fffd}.md"));
    }

    #[test]
    fn both_spellings_of_a_letter_are_one_name() {
        let config = IndexingConfig { allow_folders: vec!["Caf\u{e9}".to_owned()], ..IndexingConfig::default() };
        let scope = scope(&config, "*.entwu\u{308}rfe.md\n");
        assert!(scope.enters(&path("Cafe\u{301}")) && scope.takes(&path("Cafe\u{301}/a.md")));
        assert!(!scope.takes(&path("Cafe\u{301}/x.entw\u{fc}rfe.md")));
    }

    #[test]
    fn named_folders_exclude_all_others() {
        let config = IndexingConfig { allow_folders: vec!["Notes/Work/".to_owned()], ..IndexingConfig::default() };
        let scope = scope(&config, "");
        assert!(scope.enters(&path("Notes")) && scope.enters(&path("Notes/Work/x")) && !scope.enters(&path("Other")));
        assert!(scope.takes(&path("Notes/Work/a.md")));
        assert!(!scope.takes(&path("Notes/a.md")) && !scope.takes(&path("Notes/Working/a.md")));
    }
}
