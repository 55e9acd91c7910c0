//! The staging journal: a list of the staged files of this process, so that they can be removed if it dies.
//!
//! A staged file holds new content under a hidden name next to its target. Normally it becomes the target or is removed
//! within milliseconds. If the process is killed in between, its journal, a list of names in the lock folder, lets the
//! next process remove the file without scanning the vault. Only files with *new* content are listed: hidden names that
//! hold the user's own file during a move are never removed, only moved on.

use crate::{
    path::VaultPath,
    process::{is_running, process_mark},
    vault::{STAGED_PREFIX, Vault},
};
use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const JOURNAL: &str = "staged.";

pub(crate) struct StagingJournal {
    folder: PathBuf,
    file: Mutex<Option<File>>,
}

impl StagingJournal {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), file: Mutex::new(None) }
    }

    /// Notes a file that is about to be staged. Written before the file is made; a crash leaves one name too many at worst.
    pub(crate) fn note(&self, path: &VaultPath) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().create(true).append(true).open(self.own())?),
        };
        // One write, so that a killed process leaves whole lines.
        toolyard_faults::write_all(file, format!("{path}\n").as_bytes())
    }

    fn own(&self) -> PathBuf {
        self.folder.join(format!("{JOURNAL}{}", process_mark()))
    }

    /// Journals of processes that no longer run.
    fn orphans(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        entries
            .flatten()
            .filter(|e| {
                e.file_name().to_str().and_then(|n| n.strip_prefix(JOURNAL)).is_some_and(|mark| !is_running(mark))
            })
            .map(|e| e.path())
            .collect()
    }
}

impl Drop for StagingJournal {
    /// A clean end: every staged file became its target or was removed by its owner.
    fn drop(&mut self) {
        if self.file.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            let file = self.own();
            if let Err(error) = std::fs::remove_file(&file) {
                tracing::warn!(%error, file = %file.display(), "the list of staged files could not be removed");
            }
        }
    }
}

impl Vault {
    /// Whether a process that is gone may have left staged files.
    pub fn has_leftovers(&self) -> bool {
        !self.staging.orphans().is_empty()
    }

    /// Removes the staged files of dead processes; returns their number. Call it only after every interrupted call has
    /// been reconciled, because until then a staged file may be needed.
    pub fn sweep_leftovers(&self) -> usize {
        let mut removed = 0;
        for journal in self.staging.orphans() {
            let Ok(text) = std::fs::read_to_string(&journal) else { continue };
            for path in text.lines().filter_map(|line| VaultPath::parse_internal(line).ok()) {
                if path.name().starts_with(STAGED_PREFIX) && self.dir.remove_file(&path).is_ok() {
                    removed += 1;
                }
            }
            if let Err(error) = std::fs::remove_file(&journal) {
                tracing::warn!(%error, file = %journal.display(), "a list of staged files could not be removed");
            }
        }
        if removed > 0 {
            tracing::info!(removed, "removed staged files that an interrupted process left behind");
        }
        removed
    }
}
