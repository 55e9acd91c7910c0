//! Keeps hidden paths out of granted folders.
//!
//! Landlock can only add rights: a rule for a folder applies to everything below it, and no rule removes a right. A
//! grant of a folder above a hidden path therefore becomes grants of the folder's other entries. Entries that are
//! created later are not part of the grant.

use std::{
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

/// What is hidden from every program that this process starts.
static EVERYWHERE: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Leaves files and folders out of every grant of a folder above them, the system's own folders included, for every program
/// that this process starts from now on. A grant that names a hidden path or one below it holds, so code that accepts
/// grants from others asks [`is_hidden`] first.
pub fn hide(paths: impl IntoIterator<Item = PathBuf>) {
    let mut all = EVERYWHERE.write().unwrap_or_else(PoisonError::into_inner);
    for path in paths {
        let path = real(&path);
        if !all.contains(&path) {
            all.push(path);
        }
    }
}

/// Whether a path was given to [`hide`], or is below one that was.
pub fn is_hidden(path: &Path) -> bool {
    let path = real(path);
    everywhere().iter().any(|hidden| path.starts_with(hidden))
}

pub(super) fn everywhere() -> Vec<PathBuf> {
    EVERYWHERE.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A path without links; the part of it that is not there stays as it is.
pub(super) fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// The paths that together cover `path`, except hidden paths. A path that is hidden itself, or is below a hidden one,
/// was granted by name and stays.
pub(super) fn around(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(real) = path.canonicalize() else { return vec![path.to_owned()] };
    let holds_hidden = hidden.iter().any(|hidden| hidden != &real && hidden.starts_with(&real));
    if !holds_hidden {
        // The path as it was given: `/proc/self` is another folder in the process that uses the rule.
        return vec![path.to_owned()];
    }
    let mut open = vec![real];
    let mut granted = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // A rule for a link would be one for its target, which the folder's own rule would not include.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link || hidden.contains(&path) {
                continue;
            }
            if hidden.iter().any(|hidden| hidden.starts_with(&path)) {
                open.push(path);
            } else {
                granted.push(path);
            }
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_above_a_hidden_path_becomes_its_other_entries() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["home/own/state", "home/own/vault", "home/notes"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("home/file"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("home/own"), root.join("home/link")).unwrap();
        let hidden = [root.join("home/own/state")];
        let mut granted = around(&root.join("home"), &hidden);
        granted.sort();
        assert_eq!(granted, ["home/file", "home/notes", "home/own/vault"].map(|path| root.join(path)));
        assert_eq!(around(&root.join("home/link"), &hidden), [root.join("home/own/vault")], "by a link");
        for whole in ["home/notes", "home/own/vault", "home/own/state", "missing"] {
            assert_eq!(around(&root.join(whole), &hidden), [root.join(whole)]);
        }
    }
}
