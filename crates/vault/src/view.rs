//! [`View`]: the interface through which tools read files. The real folder and the overlay of a dry run implement it,
//! so that each tool is written once.

use crate::{
    error::{VaultResult, in_the_way},
    path::{PathError, VaultPath, fold},
    root::NodeKind,
};
use std::{ops::ControlFlow, sync::Arc, time::Instant};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

/// A file that is read into memory is at most this large.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// The purpose of a read: writes never follow a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// Which entries of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Files and folders that tools may touch.
    Visible,
    /// Everything that makes the folder not empty.
    Everything,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) kind: EntryKind,
    pub(crate) size: u64,
    pub(crate) mtime_ms: i64,
    pub(crate) btime_ms: Option<i64>,
    /// 0 in an overlay.
    pub(crate) inode: u64,
    /// Permission bits; `None` in an overlay.
    pub(crate) mode: Option<u32>,
}

/// The sticky bit marks folders that the trash made itself to mirror a path, as against folders that were trashed.
pub(crate) const TRASH_MIRROR_BIT: u32 = 0o1000;

impl Stat {
    pub(crate) fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    pub(crate) fn is_trash_mirror(&self) -> bool {
        self.kind == EntryKind::Folder && self.mode.is_some_and(|mode| mode & TRASH_MIRROR_BIT != 0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: NodeKind,
}

/// A file's content and metadata.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) stat: Stat,
}

pub(crate) trait View: Send + Sync {
    /// The metadata; `None` if nothing exists there.
    fn stat(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Stat>>;
    /// The whole file, up to [`MAX_FILE_BYTES`]; `None` when nothing is there.
    fn read(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Content>>;
    /// The entries of a folder (`None` is the root) by name.
    fn list(&self, folder: Option<&VaultPath>, listing: Listing) -> VaultResult<Vec<Entry>>;
    /// The etag of a file of any size.
    fn etag(&self, path: &VaultPath) -> VaultResult<Option<String>>;
}

/// When to give up.
#[derive(Clone)]
pub(crate) struct StopCondition {
    pub(crate) cancel: CancellationToken,
    pub(crate) deadline: Option<Instant>,
}

impl StopCondition {
    pub(crate) fn check(&self) -> VaultResult<()> {
        if self.cancel.is_cancelled() {
            return Err(Failure::new(ErrorCode::Cancelled, "stopped before it was done; nothing was changed"));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Failure::new(ErrorCode::Timeout, "it did not finish in time; nothing was changed"));
        }
        Ok(())
    }
}

/// Visits files and folders below a folder, each folder before its content, in the order of their names, until the
/// visitor breaks.
pub(crate) fn walk(
    view: &dyn View,
    folder: Option<&VaultPath>,
    stop: &StopCondition,
    visit: &mut dyn FnMut(&VaultPath, EntryKind) -> VaultResult<ControlFlow<()>>,
) -> VaultResult<()> {
    walk_until(view, folder, stop, visit).map(|_| ())
}

/// [`walk`] that also returns whether the visitor broke, for callers with a loop around it.
pub(crate) fn walk_until(
    view: &dyn View,
    folder: Option<&VaultPath>,
    stop: &StopCondition,
    visit: &mut dyn FnMut(&VaultPath, EntryKind) -> VaultResult<ControlFlow<()>>,
) -> VaultResult<ControlFlow<()>> {
    stop.check()?;
    let entries = match view.list(folder, Listing::Visible) {
        Ok(entries) => entries,
        // Gone since its parent was listed.
        Err(failure) if folder.is_some() && failure.code == ErrorCode::NotFound => {
            return Ok(ControlFlow::Continue(()));
        }
        Err(failure) => return Err(failure),
    };
    for entry in entries {
        // Names that no path can spell (a backslash, a control character) cannot be addressed by any tool.
        let Ok(path) = VaultPath::child(folder, &entry.name) else { continue };
        let kind = if entry.kind == NodeKind::Folder { EntryKind::Folder } else { EntryKind::File };
        if visit(&path, kind)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if kind == EntryKind::Folder && walk_until(view, Some(&path), stop, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Names in the same folder that differ only in letter case or Unicode form.
pub(crate) fn twins(view: &dyn View, path: &VaultPath) -> VaultResult<Vec<VaultPath>> {
    let parent = path.parent();
    let wanted = fold(path.name());
    let entries = match view.list(parent.as_ref(), Listing::Everything) {
        Err(failure) if matches!(failure.code, ErrorCode::NotFound | ErrorCode::Conflict) => return Ok(Vec::new()),
        other => other?,
    };
    let found = entries.into_iter().filter(|e| e.name != path.name() && fold(&e.name) == wanted);
    Ok(found.filter_map(|e| VaultPath::child(parent.as_ref(), &e.name).ok()).collect())
}

/// Checks that a file or folder may be made here and answers which folders have to be made first, top down.
/// `ignore` is a path that is about to go away (a case-only rename).
pub(crate) fn check_creatable(
    view: &dyn View,
    path: &VaultPath,
    ignore: Option<&VaultPath>,
) -> VaultResult<Vec<VaultPath>> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        if !missing.is_empty() {
            ancestor.check_new_name()?;
            missing.push(ancestor);
            continue;
        }
        match view.stat(&ancestor, Purpose::Write)? {
            Some(stat) if stat.kind == EntryKind::Folder => {}
            Some(_) => return Err(in_the_way(&ancestor, path)),
            None => {
                ancestor.check_new_name()?;
                refuse_twin(view, &ancestor, ignore)?;
                missing.push(ancestor);
            }
        }
    }
    path.check_new_name()?;
    if missing.is_empty() {
        refuse_twin(view, path, ignore)?;
    }
    Ok(missing)
}

fn refuse_twin(view: &dyn View, path: &VaultPath, ignore: Option<&VaultPath>) -> VaultResult<()> {
    match twins(view, path)?.into_iter().find(|other| Some(other) != ignore) {
        Some(other) => Err(Failure::new(
            ErrorCode::Conflict,
            format!("{path} would differ from {other} only in letter case or Unicode form"),
        )
        .suggest(format!("Use {other}, or choose another name: some systems cannot tell the two apart."))
        .detail("path", path.as_str())
        .detail("existing", other.as_str())),
        None => Ok(()),
    }
}

/// `NOT_FOUND` that names a file the caller may have meant.
pub(crate) fn missing(view: &dyn View, path: &VaultPath) -> Failure {
    let failure = crate::error::not_found(path);
    match twins(view, path).unwrap_or_default().first() {
        Some(other) => {
            let question = toolyard_catalog::did_you_mean(&[other.as_str()]).unwrap_or_default();
            failure.suggest(question).detail("similar", other.as_str())
        }
        None => failure,
    }
}

/// A folder given as a filter: empty or `/` is the root, a slash at the end is allowed.
pub(crate) fn parse_folder_prefix(text: &str) -> Result<Option<VaultPath>, PathError> {
    if text.is_empty() || text == "/" {
        return Ok(None);
    }
    VaultPath::parse(text.strip_suffix('/').unwrap_or(text)).map(Some)
}
