//! Stages and commits planned changes to the disk.
//!
//! `stage` writes and syncs every new content under a hidden name next to its target. The description of the changes
//! ([`Commit`]) becomes part of the durable intent. `run` then only creates folders, renames and syncs.
//! [`crate::reconcile`] handles a crash.
//!
//! Between the last check of a target and the rename that replaces it, another program can still write: a window of
//! microseconds that no file system call closes. The content is hashed again afterwards, so that at least nothing wrong
//! is reported as done.
//!
//! A replaced file keeps its permissions. It is a new inode: hard links to the old one, extended attributes and another
//! owner are lost.

use crate::{
    change::{Change, MoveRole, WritePlan, add_mtime, report_folder, report_move, report_put},
    error::{VaultResult, etag_conflict, system, too_large},
    etag::etag,
    path::VaultPath,
    process::process_mark,
    root::Links,
    vault::{STAGED_PREFIX, Vault},
    view::{MAX_FILE_BYTES, Purpose, View},
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolyard_engine::{Blob, Failed, Intent, IntentTarget, Output};
use toolyard_protocol::{Effects, EntryKind, ErrorCode, Failure};

/// The form of the record in `Intent.state`.
const COMMIT_VERSION: u32 = 1;

/// One action, as it is recorded in the intent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Step {
    MakeFolder {
        path: VaultPath,
    },
    Put {
        path: VaultPath,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        after: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before_blob: Option<String>,
        /// Where the new content waits.
        tmp: VaultPath,
    },
    Move {
        from: VaultPath,
        to: VaultPath,
        kind: EntryKind,
        role: MoveRole,
        /// A move keeps the inode: that is how it is recognised afterwards, whatever its size.
        inode: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        etag: Option<String>,
        /// An intermediate name for a case-only rename on a file system that ignores letter case.
        via: VaultPath,
    },
    Remove {
        path: VaultPath,
        kind: EntryKind,
        inode: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        etag: Option<String>,
        only_empty: bool,
        /// The removed content, for undo; `None` if it was too much to keep.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<DeletedRecord>,
        /// A folder is first moved here, so that it goes all at once.
        doomed: VaultPath,
    },
}

/// Removed files with their blobs, and removed folders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeletedRecord {
    pub(crate) files: Vec<(VaultPath, String)>,
    pub(crate) folders: Vec<VaultPath>,
}

/// The record of a write call: what `execute` does, and its output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Commit {
    version: u32,
    pub(crate) steps: Vec<Step>,
    data: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stat: Option<VaultPath>,
    message: String,
}

/// Staged files on disk; dropping it unused removes them.
pub(crate) struct StagedFiles {
    vault: Arc<Vault>,
    commit: Commit,
}

impl Commit {
    /// Reads the record back from an intent.
    pub(crate) fn from_intent(intent: &Intent) -> VaultResult<Self> {
        let commit: Commit = serde_json::from_value(Value::Object(intent.state.clone())).map_err(|e| {
            Failure::new(ErrorCode::RecordCorrupted, format!("the intent of this call cannot be read: {e}"))
        })?;
        if commit.version != COMMIT_VERSION {
            return Err(Failure::new(
                ErrorCode::RecordCorrupted,
                format!("the intent of this call has version {}, this program reads {COMMIT_VERSION}", commit.version),
            ));
        }
        Ok(commit)
    }

    pub(crate) fn output(&self, vault: &Vault, effects: Effects) -> Output {
        let mut data = self.data.clone();
        if let Some(stat) = self.stat.as_ref().and_then(|path| vault.stat(path, Purpose::Write).ok().flatten()) {
            add_mtime(&mut data, stat.mtime_ms);
        }
        Output { data, effects, user_message: Some(self.message.clone()), ..Output::default() }
    }

    pub(crate) fn remove_leftovers(&self, vault: &Vault) {
        for step in &self.steps {
            let leftover = match step {
                Step::Put { tmp, .. } => tmp,
                Step::Remove { doomed, .. } => doomed,
                Step::MakeFolder { .. } | Step::Move { .. } => continue,
            };
            if let Err(errno) = vault.dir.remove_tree(leftover) {
                tracing::warn!(path = %leftover, %errno, "a staged file could not be removed");
            }
        }
    }
}

/// Writes and syncs the new contents under hidden names, and describes what is going to happen.
pub(crate) fn stage(vault: &Arc<Vault>, plan: WritePlan, tag: &str) -> VaultResult<(StagedFiles, Intent, Vec<Blob>)> {
    let mut intent = Intent::default();
    let mut blobs = Vec::new();
    let mut keep = |bytes: &Arc<[u8]>| {
        let blob = Blob::new(bytes.clone());
        let sha256 = blob.sha256.clone();
        blobs.push(blob);
        sha256
    };
    let commit =
        Commit { version: COMMIT_VERSION, steps: Vec::new(), data: plan.data, stat: plan.stat, message: plan.message };
    let mut staged = StagedFiles { vault: vault.clone(), commit };
    for (number, change) in plan.changes.into_iter().enumerate() {
        let hidden = |near: &VaultPath| hidden_name(vault, near, tag, number);
        let target =
            |path: &VaultPath, before: &Option<String>, after: &Option<String>, before_blob: &Option<String>| {
                IntentTarget {
                    path: path.to_string(),
                    before: before.clone(),
                    after: after.clone(),
                    before_blob: before_blob.clone(),
                }
            };
        let step = match change {
            Change::MakeFolder(path) => Step::MakeFolder { path },
            Change::Put { path, before, content, mode } => {
                check_size(&path, content.len())?;
                let tmp = hidden(&path)?;
                vault.staging.note(&tmp).map_err(|e| {
                    Failure::new(ErrorCode::StoreUnavailable, format!("the staging journal cannot be written: {e}"))
                })?;
                vault.dir.write_new(&tmp, &content, mode).map_err(|e| system("write", path.as_str(), e))?;
                intent.bytes_written += content.len() as u64;
                let before_blob = before.as_ref().map(&mut keep);
                let (before, after) = (before.as_deref().map(etag), etag(&content));
                intent.targets.push(target(&path, &before, &Some(after.clone()), &before_blob));
                Step::Put { path, before, after, before_blob, tmp }
            }
            Change::Move { from, to, kind, role, inode, etag, count } => {
                intent.targets.push(target(&from, &etag, &None, &None));
                if role == MoveRole::Trash {
                    intent.deletes += count;
                } else {
                    intent.targets.push(target(&to, &None, &etag, &None));
                }
                let via = hidden(&from)?;
                Step::Move { from, to, kind, role, inode, etag, via }
            }
            Change::Remove { path, kind, etag, inode, count, only_empty, keep: content } => {
                let kept = content.map(|content| DeletedRecord {
                    files: content.files.iter().map(|(path, bytes)| (path.clone(), keep(bytes))).collect(),
                    folders: content.folders,
                });
                let before_blob = kept
                    .as_ref()
                    .and_then(|k| k.files.iter().find(|(p, _)| *p == path))
                    .map(|(_, sha256)| sha256.clone());
                intent.targets.push(target(&path, &etag, &None, &before_blob));
                intent.deletes += count;
                let doomed = hidden(&path)?;
                Step::Remove { path, kind, inode, etag, only_empty, kept, doomed }
            }
        };
        staged.commit.steps.push(step);
    }
    if let Value::Object(state) = serde_json::to_value(&staged.commit)
        .map_err(|e| Failure::new(ErrorCode::InternalError, format!("the intent cannot be written: {e}")))?
    {
        intent.state = state;
    }
    Ok((staged, intent, blobs))
}

/// What is written must be readable again, to be verified.
pub(crate) fn check_size(path: &VaultPath, size: usize) -> VaultResult<()> {
    match size as u64 {
        size if size > MAX_FILE_BYTES => Err(too_large(path, size, MAX_FILE_BYTES)),
        _ => Ok(()),
    }
}

/// A hidden name in the nearest folder that exists: usually the target's own.
fn hidden_name(vault: &Vault, near: &VaultPath, tag: &str, number: usize) -> VaultResult<VaultPath> {
    let mut folder = near.parent();
    while let Some(candidate) = &folder {
        match vault.stat(candidate, Purpose::Write)? {
            Some(stat) if stat.kind == EntryKind::Folder => break,
            _ => folder = candidate.parent(),
        }
    }
    Ok(VaultPath::child(folder.as_ref(), &format!("{STAGED_PREFIX}{}-{tag}-{number}", process_mark()))?)
}

impl StagedFiles {
    /// Performs the steps in order and reports the observed effects, also if a step fails.
    pub(crate) fn run(self) -> Result<Output, Failed> {
        let mut effects = Effects::default();
        if let Err(failure) = self.commit.steps.iter().try_for_each(|step| run_step(&self.vault, step, &mut effects)) {
            return Err(Failed::after(failure, effects));
        }
        if let Err(failure) = self.settle() {
            return Err(Failed::after(failure, effects));
        }
        Ok(self.commit.output(&self.vault, effects))
    }

    /// Some editor plugins replace the content of a new note with a template shortly after it appears.
    fn settle(&self) -> VaultResult<()> {
        let created = |step: &&Step| matches!(step, Step::Put { before: None, .. });
        if self.vault.options.settle.is_zero() || !self.commit.steps.iter().any(|s| created(&s)) {
            return Ok(());
        }
        std::thread::sleep(self.vault.options.settle);
        for step in self.commit.steps.iter().filter(created) {
            if let Step::Put { path, after, .. } = step {
                let current = self.vault.etag(path)?.unwrap_or_else(|| "absent".to_owned());
                if current != *after {
                    return Err(etag_conflict(path, after, &current)
                        .suggest("Something else rewrote the note right after it was made (a template plugin?). Read it and add what is missing."));
                }
            }
        }
        Ok(())
    }
}

impl Drop for StagedFiles {
    fn drop(&mut self) {
        self.commit.remove_leftovers(&self.vault);
    }
}

pub(crate) fn run_step(vault: &Vault, step: &Step, effects: &mut Effects) -> VaultResult<()> {
    match step {
        Step::MakeFolder { path } => match vault.dir.make_folder(path) {
            Ok(()) => report_folder(effects, path),
            Err(Errno::EXIST) if is_kind(vault, path, EntryKind::Folder)? => {}
            Err(errno) => return Err(system("make the folder", path.as_str(), errno)),
        },
        Step::Put { path, before, after, tmp, .. } => {
            let current = current_etag(vault, path)?;
            match (before, &current) {
                (None, Some(current)) => {
                    return Err(Failure::new(ErrorCode::Conflict, format!("{path} has come into being meanwhile"))
                        .detail("path", path.as_str())
                        .detail("currentEtag", current.as_str()));
                }
                (Some(before), current) if current.as_ref() != Some(before) => {
                    return Err(etag_conflict(path, before, current.as_deref().unwrap_or("absent")));
                }
                _ => {}
            }
            let fail = |errno| match errno {
                Errno::NOENT => {
                    Failure::new(ErrorCode::Conflict, format!("the staged content of {path} or its folder is gone"))
                        .detail("path", path.as_str())
                }
                Errno::XDEV => other_file_system(path),
                other => system("write", path.as_str(), other),
            };
            match before {
                None => vault.dir.rename_new(tmp, path).map_err(fail)?,
                Some(_) => vault.dir.rename_over(tmp, path).map_err(fail)?,
            }
            report_put(effects, path, before.clone(), after.clone());
            let written = vault.read(path, Purpose::Write)?.map(|content| etag(&content.bytes));
            if written.as_ref() != Some(after) {
                return Err(etag_conflict(path, after, written.as_deref().unwrap_or("absent"))
                    .suggest("Something else wrote the file in the same moment; read it and decide again."));
            }
        }
        Step::Move { from, to, kind, role, inode, via, .. } => {
            run_move(vault, from, to, via, *inode)?;
            report_move(effects, from, to, *kind, *role);
        }
        Step::Remove { path, kind, inode, doomed, etag: expected, only_empty, .. } => {
            check_inode(vault, path, *inode)?;
            let fail = |errno| system("remove", path.as_str(), errno);
            match kind {
                EntryKind::File => {
                    let current = current_etag(vault, path)?;
                    if let Some(expected) = expected.as_ref().filter(|e| current.as_ref() != Some(e)) {
                        return Err(etag_conflict(path, expected, current.as_deref().unwrap_or("absent")));
                    }
                    vault.dir.remove_file(path).map_err(fail)?;
                    effects.deleted(path.as_str(), *kind, false);
                }
                EntryKind::Folder if *only_empty => {
                    vault.dir.remove_folder(path).map_err(fail)?;
                    effects.deleted(path.as_str(), *kind, false);
                }
                EntryKind::Folder => {
                    vault.dir.rename_new(path, doomed).map_err(fail)?;
                    effects.deleted(path.as_str(), *kind, false);
                    vault.dir.remove_tree(doomed).map_err(fail)?;
                }
            }
        }
    }
    Ok(())
}

fn run_move(vault: &Vault, from: &VaultPath, to: &VaultPath, via: &VaultPath, inode: u64) -> VaultResult<()> {
    let fail = |errno| match errno {
        Errno::EXIST => {
            Failure::new(ErrorCode::Conflict, format!("{to} already exists, so {from} was not moved onto it"))
                .detail("path", to.as_str())
        }
        other => system("move", from.as_str(), other),
    };
    // A crash between the two halves of a case-only rename leaves the file at `via`.
    if inode_at(vault, via)? == Some(inode) {
        return vault.dir.rename_new(via, to).map_err(fail);
    }
    check_inode(vault, from, inode)?;
    match vault.dir.rename_new(from, to) {
        Err(Errno::EXIST) if is_same_entry(vault, from, to, inode)? => {
            rename_by_way_of(vault, from, via, to).map_err(fail)
        }
        other => other.map_err(fail),
    }
}

/// Only a rename is atomic, and a rename cannot leave its file system.
fn other_file_system(path: &VaultPath) -> Failure {
    Failure::new(ErrorCode::PreconditionFailed, format!("{path} lies on another file system than where it comes from"))
        .suggest("Another disk is mounted inside the vault; create the file there and delete the old one instead.")
        .detail("path", path.as_str())
}

/// A case-only rename on a file system that treats both names as one: first to an intermediate name, then to the new
/// name.
fn rename_by_way_of(vault: &Vault, from: &VaultPath, via: &VaultPath, to: &VaultPath) -> Result<(), Errno> {
    vault.dir.rename_new(from, via)?;
    vault.dir.rename_new(via, to).inspect_err(|_| {
        // Rather the old name than a hidden one.
        if let Err(error) = vault.dir.rename_new(via, from) {
            tracing::error!(%error, file = %via, "a renamed file has kept its hidden name");
        }
    })
}

/// Both names lead to the file, and the folder holds it only once: not two hard links.
fn is_same_entry(vault: &Vault, from: &VaultPath, to: &VaultPath, inode: u64) -> VaultResult<bool> {
    if from.folded() != to.folded() || from.parent() != to.parent() || inode_at(vault, to)? != Some(inode) {
        return Ok(false);
    }
    let names =
        vault.dir.entries(from.parent().as_ref(), Links::Refuse).map_err(|e| system("list", from.as_str(), e))?;
    Ok(names.iter().filter(|e| e.name == from.name() || e.name == to.name()).count() == 1)
}

pub(crate) fn inode_at(vault: &Vault, path: &VaultPath) -> VaultResult<Option<u64>> {
    match vault.dir.meta(path, Links::Refuse) {
        Ok(meta) => Ok(meta.map(|m| m.inode)),
        Err(Errno::LOOP) => Ok(None),
        Err(errno) => Err(system("look at", path.as_str(), errno)),
    }
}

fn check_inode(vault: &Vault, path: &VaultPath, inode: u64) -> VaultResult<()> {
    match inode_at(vault, path)? {
        Some(found) if found == inode => Ok(()),
        Some(_) => Err(Failure::new(ErrorCode::Conflict, format!("{path} was replaced by another file meanwhile"))
            .detail("path", path.as_str())),
        None => Err(Failure::new(ErrorCode::Conflict, format!("{path} is gone")).detail("path", path.as_str())),
    }
}

fn is_kind(vault: &Vault, path: &VaultPath, kind: EntryKind) -> VaultResult<bool> {
    Ok(vault.stat(path, Purpose::Write)?.is_some_and(|s| s.kind == kind))
}

/// The etag of the file at a path. Links are refused, and a folder is a conflict.
pub(crate) fn current_etag(vault: &Vault, path: &VaultPath) -> VaultResult<Option<String>> {
    match vault.stat(path, Purpose::Write)? {
        None => Ok(None),
        Some(_) => vault.etag(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VaultOptions;

    #[test]
    fn the_way_round_renames_and_survives_a_taken_target() {
        let dir = tempfile::tempdir().unwrap();
        let locks = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("note.md"), "x").unwrap();
        let vault = Vault::open(dir.path(), VaultOptions::new(locks.path())).unwrap();
        let path = |text: &str| VaultPath::parse_internal(text).unwrap();
        rename_by_way_of(&vault, &path("note.md"), &path(".toolyard-tmp-x"), &path("Note.md")).unwrap();
        assert!(dir.path().join("Note.md").exists() && !dir.path().join("note.md").exists());
        std::fs::write(dir.path().join("other.md"), "y").unwrap();
        let taken = rename_by_way_of(&vault, &path("Note.md"), &path(".toolyard-tmp-x"), &path("other.md"));
        assert_eq!(taken, Err(Errno::EXIST));
        assert_eq!(std::fs::read_to_string(dir.path().join("Note.md")).unwrap(), "x");
        assert_eq!(std::fs::read_to_string(dir.path().join("other.md")).unwrap(), "y");
    }
}
