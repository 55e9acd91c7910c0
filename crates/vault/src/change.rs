//! [`Change`] and [`WritePlan`]: the intended changes of a write tool, as data. The real vault stages and commits them,
//! an overlay applies them in memory; the tool does not know which.

use crate::path::VaultPath;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolyard_protocol::{Effects, EntryKind};

/// Why something moves; decides how the move is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MoveRole {
    Rename,
    Trash,
    Restore,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    MakeFolder(VaultPath),
    /// Writes this content to a file; `before` is its current content, `None` if it must not exist.
    Put {
        path: VaultPath,
        before: Option<Arc<[u8]>>,
        content: Vec<u8>,
        mode: Option<u32>,
    },
    Move {
        from: VaultPath,
        to: VaultPath,
        kind: EntryKind,
        role: MoveRole,
        inode: u64,
        /// Content hash of a file; folders have none.
        etag: Option<String>,
        /// Files and folders that move with it, itself included.
        count: u64,
    },
    /// Deletes permanently.
    Remove {
        path: VaultPath,
        kind: EntryKind,
        etag: Option<String>,
        inode: u64,
        /// Files and folders that go with it, itself included.
        count: u64,
        /// A folder is removed only if it is empty at that moment.
        only_empty: bool,
        /// What is needed to restore it: every file with its bytes, and every folder. `None` if that is too much.
        keep: Option<DeletedContent>,
    },
}

/// The content of something that is deleted permanently.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeletedContent {
    pub(crate) files: Vec<(VaultPath, Arc<[u8]>)>,
    pub(crate) folders: Vec<VaultPath>,
}

/// Everything a write call will do and say.
#[derive(Debug, Default)]
pub(crate) struct WritePlan {
    /// In the order to do them. Empty when there is nothing to do.
    pub(crate) changes: Vec<Change>,
    /// The output; modification times are filled in afterwards.
    pub(crate) data: Map<String, Value>,
    /// The file whose modification time is part of the output.
    pub(crate) stat: Option<VaultPath>,
    pub(crate) message: String,
}

impl Change {
    /// Adds the effects of this change to `effects`.
    pub(crate) fn report(&self, effects: &mut Effects) {
        match self {
            Change::MakeFolder(path) => report_folder(effects, path),
            Change::Put { path, before, content, .. } => {
                report_put(effects, path, before.as_deref().map(crate::etag::etag), crate::etag::etag(content));
            }
            Change::Move { from, to, kind, role, .. } => report_move(effects, from, to, *kind, *role),
            Change::Remove { path, kind, .. } => effects.deleted(path.as_str(), *kind, false),
        }
    }
}

/// Reports a created folder, except in the trash, which is not part of what the user sees.
pub(crate) fn report_folder(effects: &mut Effects, path: &VaultPath) {
    if !path.is_trash() {
        effects.created(path.as_str(), EntryKind::Folder);
    }
}

pub(crate) fn report_put(effects: &mut Effects, path: &VaultPath, before: Option<String>, after: String) {
    match before {
        Some(before) => effects.modified(path.as_str(), Some(before), Some(after)),
        None => effects.created(path.as_str(), EntryKind::File),
    }
}

pub(crate) fn report_move(effects: &mut Effects, from: &VaultPath, to: &VaultPath, kind: EntryKind, role: MoveRole) {
    match role {
        MoveRole::Rename => effects.renamed(from.as_str(), to.as_str()),
        MoveRole::Trash => effects.deleted(from.as_str(), kind, true),
        MoveRole::Restore => effects.created(to.as_str(), kind),
    }
}

/// Adds `mtimeMs`, and `mtime` for readers of the specification's own sample.
pub(crate) fn add_mtime(data: &mut Map<String, Value>, mtime_ms: i64) {
    data.insert("mtimeMs".to_owned(), mtime_ms.into());
    data.insert("mtime".to_owned(), mtime_ms.into());
}
