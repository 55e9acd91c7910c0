//! Functions that several write tools share: etag checks, creating parent folders, writing content, choosing a name in
//! the trash.

use crate::{
    change::{Change, MoveRole},
    error::{VaultResult, etag_conflict, in_the_way},
    etag::{etag, normalise},
    path::{TRASH, VaultPath},
    view::{Content, Purpose, View},
};
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

/// The most numbered names that are tried before giving up.
const MAX_NUMBERED: u32 = 10_000;

/// `CONFLICT` unless the file has the content that was expected.
pub(super) fn check_etag(path: &VaultPath, expected: Option<&str>, current: &str) -> VaultResult<()> {
    match expected.map(normalise) {
        Some(expected) if expected != current => Err(etag_conflict(path, expected, current)),
        _ => Ok(()),
    }
}

/// An etag was given for a file that is not there.
pub(super) fn check_no_etag(path: &VaultPath, expected: Option<&str>) -> VaultResult<()> {
    match expected {
        Some(expected) => Err(etag_conflict(path, normalise(expected), "absent")),
        None => Ok(()),
    }
}

/// Folders first, then the file.
pub(super) fn put_new(path: &VaultPath, missing: Vec<VaultPath>, content: Vec<u8>) -> Vec<Change> {
    let mut changes: Vec<Change> = missing.into_iter().map(Change::MakeFolder).collect();
    changes.push(Change::Put { path: path.clone(), before: None, content, mode: None });
    changes
}

/// Nothing when the bytes are the same.
pub(super) fn put_over(path: &VaultPath, old: &Content, content: Vec<u8>) -> Vec<Change> {
    if *old.bytes == content[..] {
        return Vec::new();
    }
    vec![Change::Put { path: path.clone(), before: Some(old.bytes.clone()), content, mode: old.stat.mode }]
}

/// Says so when more than half of a note would be gone.
pub(super) fn shrink_warning(old: usize, new: usize) -> String {
    if new * 2 < old { format!(" Warning: the note shrinks from {old} to {new} bytes.") } else { String::new() }
}

/// Folders that must be created before something can be restored to its place. Old names need not follow the rules for
/// new ones.
pub(super) fn missing_folders(view: &dyn View, path: &VaultPath) -> VaultResult<Vec<VaultPath>> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        match view.stat(&ancestor, Purpose::Write)? {
            Some(stat) if stat.kind == EntryKind::Folder => {}
            Some(_) => return Err(in_the_way(&ancestor, path)),
            None => missing.push(ancestor),
        }
    }
    Ok(missing)
}

/// The first numbered name that is free, also without regard to letter case.
pub(super) fn free_name(view: &dyn View, path: &VaultPath) -> VaultResult<VaultPath> {
    for number in 2..MAX_NUMBERED {
        let candidate = path.numbered(number)?;
        if view.stat(&candidate, Purpose::Write)?.is_none() && crate::view::twins(view, &candidate)?.is_empty() {
            return Ok(candidate);
        }
    }
    Err(Failure::new(ErrorCode::Conflict, format!("there are already {MAX_NUMBERED} files named like {path}")))
}

/// The move of something to the trash, with the folders that it needs there, and its new path.
pub(super) fn trash(
    view: &dyn View,
    path: &VaultPath,
    etag: Option<String>,
    count: u64,
) -> VaultResult<(Vec<Change>, VaultPath)> {
    let Some(stat) = view.stat(path, Purpose::Write)? else { return Err(crate::error::not_found(path)) };
    let (to, folders) = place_in_trash(view, path)?;
    let mut changes: Vec<Change> = folders.into_iter().map(Change::MakeFolder).collect();
    changes.push(Change::Move {
        from: path.clone(),
        to: to.clone(),
        kind: stat.kind,
        role: MoveRole::Trash,
        inode: stat.inode,
        etag,
        count,
    });
    Ok((changes, to))
}

/// The mirrored path in the trash, with the folders that have to be made there. A folder that was itself trashed is not
/// entered: what is put into it would come back with it when it is restored.
fn place_in_trash(view: &dyn View, path: &VaultPath) -> VaultResult<(VaultPath, Vec<VaultPath>)> {
    let mut at = VaultPath::parse_internal(TRASH)?;
    let mut missing = Vec::new();
    match view.stat(&at, Purpose::Write)? {
        Some(stat) if stat.kind == EntryKind::Folder => {}
        Some(_) => {
            return Err(
                Failure::new(ErrorCode::Conflict, "a file stands where the trash should be").detail("path", TRASH)
            );
        }
        None => missing.push(at.clone()),
    }
    let parents = path.parent();
    for segment in parents.iter().flat_map(|parents| parents.segments()) {
        let wanted = VaultPath::child(Some(&at), segment)?;
        let mut candidate = wanted.clone();
        for number in 2..MAX_NUMBERED {
            // Below a folder that is still to be made there is nothing to look at.
            let there = if missing.is_empty() { view.stat(&candidate, Purpose::Write)? } else { None };
            match there {
                None => {
                    missing.push(candidate.clone());
                    break;
                }
                Some(stat) if stat.is_trash_mirror() => break,
                Some(_) => candidate = wanted.numbered(number)?,
            }
        }
        at = candidate;
    }
    let to = VaultPath::child(Some(&at), path.name())?;
    let is_taken = missing.is_empty() && view.stat(&to, Purpose::Write)?.is_some();
    Ok((if is_taken { free_name(view, &to)? } else { to }, missing))
}

/// The etag of content that a plan will write.
pub(super) fn etag_of(content: &[u8]) -> Option<String> {
    Some(etag(content))
}
