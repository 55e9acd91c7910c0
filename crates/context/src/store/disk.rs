//! Durable file operations. Small changes are synced one by one. Many files are staged outside the tree, synced
//! together and moved in with one rename.

use crate::store::touched::touch;
use rustix::fs::{Mode, OFlags, RenameFlags};
use std::{
    fs::{self, File},
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use toolyard_faults::Operation;

/// Up to this many files are synced one by one; syncing the whole file system would also wait for the writes of other
/// programs.
const SYNCED_ONE_BY_ONE: usize = 64;
/// Prefix of temporary files, which are never visible to callers.
pub(crate) const STAGED: &str = ".ty-staged-";

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    toolyard_faults::sync_all(&File::open(path)?)
}

/// Creates a folder and its missing parents durably.
pub(crate) fn make_folders(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    if parent != path {
        make_folders(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => sync_folder(parent),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a write must survive a power failure, or can be recreated from other files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Durable,
    Derived,
}

/// Replaces a file atomically: readers see the old content or the new content.
pub(crate) fn write(path: &Path, bytes: &[u8], keep: Durability) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let staged = folder.join(format!("{STAGED}{}", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = File::create_new(&staged)?;
        toolyard_faults::write_all(&mut file, bytes)?;
        if keep == Durability::Durable {
            toolyard_faults::sync_data(&file)?;
        }
        toolyard_faults::rename(&staged, path)
    })();
    if let Err(error) = written {
        discard(&staged);
        return Err(error);
    }
    touch(path);
    if keep == Durability::Durable { sync_folder(folder) } else { Ok(()) }
}

/// Writes a file that must not exist; returns `false` when it does.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let staged = folder.join(format!("{STAGED}{}", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = File::create_new(&staged)?;
        toolyard_faults::write_all(&mut file, bytes)?;
        toolyard_faults::sync_data(&file)?;
        let flags = RenameFlags::NOREPLACE;
        toolyard_faults::check(Operation::Rename, path)?;
        match rustix::fs::renameat_with(rustix::fs::CWD, &staged, rustix::fs::CWD, path, flags) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => {
                fs::remove_file(&staged)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    })();
    touch(path);
    match written {
        Ok(true) => sync_folder(folder).map(|()| true),
        Ok(false) => Ok(false),
        Err(error) => {
            discard(&staged);
            Err(error)
        }
    }
}

/// Appends to a file durably. If a crash truncated the last line, a line break is added first, so that the next line
/// stays intact.
pub(crate) fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = fs::OpenOptions::new().create(true).append(true).read(true).open(path)?;
    if !is_new && !ends_with_newline(&mut file)? {
        toolyard_faults::write_all(&mut file, b"\n")?;
    }
    touch(path);
    toolyard_faults::write_all(&mut file, bytes)?;
    toolyard_faults::sync_data(&file)?;
    match (is_new, path.parent()) {
        (true, Some(folder)) => sync_folder(folder),
        _ => Ok(()),
    }
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    use std::io::{Seek, SeekFrom};
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Reads a regular file, never through a symbolic link.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let fd: OwnedFd = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut file = File::from(fd);
    let length = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file as text; invalid UTF-8 is replaced.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read(path)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Reads a file as text; `None` when it does not exist.
pub(crate) fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Renames a file or folder.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    touch(from);
    touch(to);
    toolyard_faults::rename(from, to)
}

/// Removes one file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    touch(path);
    fs::remove_file(path)
}

/// Removes a file or folder atomically and durably; its content is deleted afterwards.
pub(crate) fn remove(path: &Path, trash: &Path) -> io::Result<()> {
    make_folders(trash)?;
    let gone = trash.join(uuid::Uuid::new_v4().simple().to_string());
    toolyard_faults::rename(path, &gone)?;
    touch(path);
    if let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    discard(&gone);
    Ok(())
}

/// Deletes files that nothing refers to any more.
pub(crate) fn discard(path: &Path) {
    touch(path);
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return,
    };
    if let Err(error) = removed {
        tracing::warn!(%error, "a file removed from the context store could not be deleted from disk");
    }
}

/// Makes a staged folder durable: file by file, or with one sync of the file system when there are many.
pub(crate) fn sync_staged(staged: &Path, files: usize) -> io::Result<()> {
    if files > SYNCED_ONE_BY_ONE {
        let folder = File::open(staged)?;
        toolyard_faults::check_file(Operation::Sync, &folder)?;
        return Ok(rustix::fs::syncfs(folder)?);
    }
    for entry in fs::read_dir(staged)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_staged(&entry.path(), 0)?;
        } else {
            toolyard_faults::sync_data(&File::open(entry.path())?)?;
        }
    }
    sync_folder(staged)
}

/// Moves a staged and synced folder into place atomically. Returns the path of the previous content, which the caller
/// discards.
pub(crate) fn install(staged: &Path, target: &Path) -> io::Result<Option<PathBuf>> {
    let folder = target.parent().unwrap_or(Path::new("."));
    make_folders(folder)?;
    touch(target);
    let at = rustix::fs::CWD;
    toolyard_faults::check(Operation::Rename, target)?;
    match rustix::fs::renameat_with(at, staged, at, target, RenameFlags::NOREPLACE) {
        Ok(()) => {
            sync_folder(folder)?;
            Ok(None)
        }
        Err(rustix::io::Errno::EXIST) => {
            rustix::fs::renameat_with(at, staged, at, target, RenameFlags::EXCHANGE)?;
            sync_folder(folder)?;
            Ok(Some(staged.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// A file or folder in a listing.
#[derive(Debug, Clone)]
pub(crate) struct FolderEntry {
    pub(crate) name: String,
    pub(crate) is_folder: bool,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) modified: jiff::Timestamp,
}

impl FolderEntry {
    pub(crate) fn is_hidden(&self) -> bool {
        self.name.starts_with('.')
    }
}

/// Looks up one path. Symbolic links and special files count as missing.
pub(crate) fn look(path: &Path) -> io::Result<Option<FolderEntry>> {
    use std::os::unix::fs::PermissionsExt;
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !meta.is_dir() && !meta.is_file() {
        return Ok(None);
    }
    let modified = meta.modified().ok().and_then(|t| jiff::Timestamp::try_from(t).ok()).unwrap_or_default();
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    let mode = meta.permissions().mode() & 0o777;
    Ok(Some(FolderEntry { name, is_folder: meta.is_dir(), size: meta.len(), mode, modified }))
}

/// The entries of a folder: folders first, each sorted by name. Temporary files are left out.
pub(crate) fn list(path: &Path) -> io::Result<Vec<FolderEntry>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name.starts_with(STAGED) {
            continue;
        }
        all.extend(look(&entry.path())?);
    }
    all.sort_by(|a, b| b.is_folder.cmp(&a.is_folder).then_with(|| a.name.cmp(&b.name)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_that_was_cut_short_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        append(&path, b"{\"a\":1}\n").unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"b\"").unwrap();
        append(&path, b"{\"c\":3}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\"\n{\"c\":3}\n");
    }

    #[test]
    fn a_staged_folder_replaces_as_a_whole_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (staged, target) = (dir.path().join("s"), dir.path().join("t"));
        for text in ["one", "two"] {
            fs::create_dir(&staged).unwrap();
            fs::write(staged.join("f"), text).unwrap();
            sync_staged(&staged, 1).unwrap();
            if let Some(old) = install(&staged, &target).unwrap() {
                discard(&old);
            }
            assert_eq!(fs::read_to_string(target.join("f")).unwrap(), text);
            assert!(!staged.exists());
        }
        std::os::unix::fs::symlink("/etc/hostname", target.join("link")).unwrap();
        assert!(look(&target.join("link")).unwrap().is_none());
        assert!(read(&target.join("link")).is_err());
        assert!(create(&target.join("f"), b"x").is_ok_and(|made| !made));
    }
}
