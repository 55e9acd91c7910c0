//! The content of the vault: notes, and files and folders that cannot be read.

use super::prepare::{blank_file, is_unfinished};
use crate::{
    config::KnowledgeConfig,
    index::{FileRow, FileState},
    scope::Scope,
};
use std::collections::{HashMap, HashSet};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::Failure;
use toolyard_vault::{SurveyEntry, Vault, VaultPath};

/// A file found by the survey.
pub(super) struct NoteFile {
    pub(super) path: VaultPath,
    pub(super) size: u64,
    pub(super) mtime_ms: i64,
}

/// The content of the vault.
#[derive(Default)]
pub(super) struct VaultListing {
    pub(super) seen: Vec<NoteFile>,
    /// Notes that cannot be read, and folders that cannot be listed.
    pub(super) unreadable: Vec<FileRow>,
    /// The folders that cannot be listed: their content is unknown.
    unlisted: Vec<String>,
}

impl VaultListing {
    /// Scans the whole vault. Blocks.
    pub(super) fn of(vault: &Vault, config: &KnowledgeConfig, cancel: &CancellationToken) -> Result<Self, Failure> {
        let scope = Scope::read(vault.root(), &config.indexing);
        let mut survey = Self::default();
        vault.survey(cancel, &mut |folder| scope.enters(folder), &mut |found| match found {
            SurveyEntry::File { path, size, mtime_ms } if scope.takes(&path) => {
                survey.seen.push(NoteFile { path, size, mtime_ms });
            }
            SurveyEntry::Unreadable { path, reason } if scope.takes_name(&path) => {
                survey.unreadable.push(blank_file(path, FileState::Failed, reason));
            }
            SurveyEntry::UnreadableFolder { path, reason } if scope.enters_name(&path) => {
                survey.unlisted.push(format!("{path}/"));
                survey.unreadable.push(blank_file(path, FileState::Failed, reason));
            }
            _ => {}
        })?;
        Ok(survey)
    }

    /// The indexed files that no longer exist, in order. Files inside a folder that cannot be listed are kept, unless
    /// they were never completely indexed.
    pub(super) fn gone(&self, known: &HashMap<String, FileRow>) -> Vec<String> {
        let seen = self.seen.iter().map(|seen| seen.path.as_str());
        let present: HashSet<&str> = seen.chain(self.unreadable.iter().map(|file| file.path.as_str())).collect();
        let is_hidden = |path: &str| self.unlisted.iter().any(|folder| path.starts_with(folder.as_str()));
        let is_gone =
            |file: &FileRow| !present.contains(file.path.as_str()) && (is_unfinished(file) || !is_hidden(&file.path));
        let mut gone: Vec<String> = known.values().filter(|file| is_gone(file)).map(|file| file.path.clone()).collect();
        gone.sort_unstable();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::{super::prepare::unfinished, *};

    #[test]
    fn what_was_known_below_a_folder_that_cannot_be_listed_stays() {
        let file = |path: &str| blank_file(path.to_owned(), FileState::Indexed, String::new());
        let known =
            [file("a.md"), file("Shut/b.md"), file("Shut/deep/c.md"), file("Shutter/d.md"), unfinished("Shut/e.md")];
        let known: HashMap<String, FileRow> = known.into_iter().map(|file| (file.path.clone(), file)).collect();
        let survey = VaultListing {
            unreadable: vec![blank_file("Shut".to_owned(), FileState::Failed, "cannot list".to_owned())],
            unlisted: vec!["Shut/".to_owned()],
            ..VaultListing::default()
        };
        assert_eq!(survey.gone(&known), ["Shut/e.md", "Shutter/d.md", "a.md"]);
        assert_eq!(VaultListing::default().gone(&known).len(), 5);
    }
}
