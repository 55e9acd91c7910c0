//! [`RootDir`]: the vault's folder as an open descriptor, and every system call made below it.
//!
//! Paths are resolved by [`toolyard_beneath::Folder`], so that neither `..` nor a symlink leads out, even if the tree
//! changes at the same time. Does not know etags, tools or intents.

use crate::{path::VaultPath, view::TRASH_MIRROR_BIT};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags},
    io::Errno,
};
use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    fs::File,
    io::Read,
    path::Path,
};
use toolyard_beneath::Folder;
pub(crate) use toolyard_beneath::Links;
use toolyard_faults::Operation;

/// Maximum depth of a folder that is deleted permanently.
const MAX_REMOVE_DEPTH: usize = 512;

/// The kind of file that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File,
    Folder,
    Link,
    Other,
}

/// The metadata of a file or folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) kind: NodeKind,
    pub(crate) size: u64,
    pub(crate) mtime_ms: i64,
    /// When it was created, if the file system knows.
    pub(crate) btime_ms: Option<i64>,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
}

/// A directory entry.
#[derive(Debug, Clone)]
pub(crate) struct RawEntry {
    /// The name, with replacement characters where it is not UTF-8.
    pub(crate) name: String,
    pub(crate) kind: NodeKind,
    /// Whether the name is UTF-8, so that a path can lead there.
    pub(crate) is_utf8: bool,
    /// The metadata of a file, if it was requested.
    pub(crate) meta: Option<Meta>,
}

/// Whether metadata is read while a folder is listed, which is cheaper than a query for each path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataMode {
    None,
    OfFiles,
}

pub(crate) struct RootDir {
    folder: Folder,
}

impl RootDir {
    pub(crate) fn open(path: &Path, portable: bool) -> Result<Self, Errno> {
        let folder = if portable { Folder::open_portable(path)? } else { Folder::open(path)? };
        Ok(Self { folder })
    }

    /// Device and inode: which folder this is, whatever it is called.
    pub(crate) fn identity(&self) -> Result<(u64, u64), Errno> {
        let stat = fs::fstat(&self.folder)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// A folder to read or to work in; `None` is the root.
    fn folder(&self, folder: Option<&VaultPath>, links: Links) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match folder {
            Some(folder) => self.folder.resolve(folder.as_str(), flags, links),
            None => fs::openat(&self.folder, ".", flags | OFlags::CLOEXEC, Mode::empty()),
        }
    }

    fn parent(&self, path: &VaultPath) -> Result<OwnedFd, Errno> {
        self.folder(path.parent().as_ref(), Links::Refuse)
    }

    /// The metadata; `None` if nothing exists there.
    pub(crate) fn meta(&self, path: &VaultPath, links: Links) -> Result<Option<Meta>, Errno> {
        match self.folder.resolve(path.as_str(), OFlags::PATH, links) {
            Ok(fd) => meta_of(&fd).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// An open regular file; `None` when nothing is there. Never waits on a pipe or a device.
    pub(crate) fn open_file(&self, path: &VaultPath, links: Links) -> Result<Option<(File, Meta)>, Errno> {
        let fd = match self.folder.resolve(path.as_str(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, links) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(other) => return Err(other),
        };
        let meta = meta_of(&fd)?;
        match meta.kind {
            NodeKind::File => Ok(Some((File::from(fd), meta))),
            NodeKind::Folder => Err(Errno::ISDIR),
            NodeKind::Link | NodeKind::Other => Err(Errno::ACCESS),
        }
    }

    /// The entries of a folder in no particular order.
    pub(crate) fn entries(&self, folder: Option<&VaultPath>, links: Links) -> Result<Vec<RawEntry>, Errno> {
        self.entries_with(folder, links, MetadataMode::None)
    }

    /// The same, with the metadata of files.
    pub(crate) fn entries_with(
        &self,
        folder: Option<&VaultPath>,
        links: Links,
        metas: MetadataMode,
    ) -> Result<Vec<RawEntry>, Errno> {
        let fd = self.folder(folder, links)?;
        let mut out = Vec::new();
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            let is_utf8 = matches!(name, Cow::Borrowed(_));
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let Ok(path) = VaultPath::child(folder, &name) else { continue };
                    match self.meta(&path, Links::Refuse) {
                        Ok(Some(meta)) => meta.kind,
                        Ok(None) => continue,
                        Err(Errno::LOOP) => NodeKind::Link,
                        Err(other) => return Err(other),
                    }
                }
                known => kind_of(known),
            };
            let mut meta = None;
            if metas == MetadataMode::OfFiles && kind == NodeKind::File {
                // A name in an open folder, and not through a link: there is no other place it could lead to.
                meta = meta_at(fd.as_fd(), entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok();
            }
            out.push(RawEntry { name: name.into_owned(), kind, is_utf8, meta });
        }
        Ok(out)
    }

    /// Creates one folder whose parent exists.
    pub(crate) fn make_folder(&self, path: &VaultPath) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        let mark = if path.is_trash() { TRASH_MIRROR_BIT } else { 0 };
        fs::mkdirat(&parent, path.name(), Mode::from_raw_mode(0o777 | mark))?;
        sync_folder(&parent)
    }

    /// Writes a new file and syncs it. `mode` is that of the file that it will replace.
    pub(crate) fn write_new(&self, path: &VaultPath, content: &[u8], mode: Option<u32>) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create_mode = if mode.is_some() { 0o600 } else { 0o666 };
        let mut file = File::from(fs::openat(&parent, path.name(), flags, Mode::from_raw_mode(create_mode))?);
        let written = toolyard_faults::write_all(&mut file, content).map_err(errno).and_then(|()| {
            if let Some(mode) = mode {
                match fs::fchmod(&file, Mode::from_raw_mode(mode & 0o7777)) {
                    // Some file systems keep no permissions; then there are none to preserve.
                    Ok(()) | Err(Errno::PERM | Errno::OPNOTSUPP) => {}
                    Err(other) => return Err(other),
                }
            }
            seam(Operation::Sync, &file)?;
            fs::fsync(&file)
        });
        if written.is_err() {
            // What could not be written whole must not stay behind; the first error is the one to report.
            if let Err(error) = fs::unlinkat(&parent, path.name(), AtFlags::empty()) {
                tracing::warn!(%error, file = %path, "a file that was not written whole could not be removed");
            }
        }
        written
    }

    /// Moves without ever replacing anything.
    pub(crate) fn rename_new(&self, from: &VaultPath, to: &VaultPath) -> Result<(), Errno> {
        let (from_dir, to_dir) = (self.parent(from)?, self.parent(to)?);
        seam(Operation::Rename, &to_dir)?;
        match fs::renameat_with(&from_dir, from.name(), &to_dir, to.name(), RenameFlags::NOREPLACE) {
            // Some file systems know no NOREPLACE. A hard link refuses an existing name just as well, for files.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match fs::linkat(&from_dir, from.name(), &to_dir, to.name(), AtFlags::empty()) {
                    Ok(()) => fs::unlinkat(&from_dir, from.name(), AtFlags::empty())?,
                    Err(Errno::EXIST) => return Err(Errno::EXIST),
                    Err(_) => {
                        // Folders, and file systems without links: look, then rename. A window of microseconds stays.
                        if fs::statat(&to_dir, to.name(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                            return Err(Errno::EXIST);
                        }
                        fs::renameat(&from_dir, from.name(), &to_dir, to.name())?;
                    }
                }
            }
            other => other?,
        }
        sync_folder(&to_dir)?;
        if from.parent() != to.parent() { sync_folder(&from_dir) } else { Ok(()) }
    }

    /// Puts a staged file in the place of an existing one.
    pub(crate) fn rename_over(&self, from: &VaultPath, to: &VaultPath) -> Result<(), Errno> {
        let (from_dir, to_dir) = (self.parent(from)?, self.parent(to)?);
        seam(Operation::Rename, &to_dir)?;
        fs::renameat(&from_dir, from.name(), &to_dir, to.name())?;
        sync_folder(&to_dir)
    }

    pub(crate) fn remove_file(&self, path: &VaultPath) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        fs::unlinkat(&parent, path.name(), AtFlags::empty())?;
        sync_folder(&parent)
    }

    /// Removes a file, a link, or a folder with everything in it; nothing there is fine.
    pub(crate) fn remove_tree(&self, path: &VaultPath) -> Result<(), Errno> {
        let parent = match self.parent(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
        let name = CString::new(path.name()).map_err(|_| Errno::INVAL)?;
        if fs::statat(&parent, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Ok(());
        }
        remove_below(&parent, &name, MAX_REMOVE_DEPTH)?;
        sync_folder(&parent)
    }

    pub(crate) fn remove_folder(&self, path: &VaultPath) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR)?;
        sync_folder(&parent)
    }
}

/// Below an open folder, by raw names: what cannot be spelled as a path can still be removed. Links are not followed.
fn remove_below(parent: &OwnedFd, name: &CStr, depth: usize) -> Result<(), Errno> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(other) => return Err(other),
    }
    if depth == 0 {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(parent, name, flags, Mode::empty())?;
    let mut names: Vec<CString> = Vec::new();
    for entry in fs::Dir::read_from(&folder)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
    }
    names.iter().try_for_each(|name| remove_below(&folder, name, depth - 1))?;
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Where a test can make an operation fail.
fn seam(operation: Operation, file: &impl AsFd) -> Result<(), Errno> {
    toolyard_faults::check_file(operation, file).map_err(errno)
}

/// Makes names durable. Some file systems cannot sync a folder and say so; they have no other way either.
fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    seam(Operation::Sync, folder)?;
    match fs::fsync(folder) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// Reads at most `limit` bytes; `None` when there are more.
pub(crate) fn read_limited(file: &mut File, size: u64, limit: u64) -> Result<Option<Vec<u8>>, Errno> {
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes).map_err(errno)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn meta_of(fd: &OwnedFd) -> Result<Meta, Errno> {
    meta_at(fd.as_fd(), c"", AtFlags::EMPTY_PATH)
}

fn meta_at(fd: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<Meta, Errno> {
    let x = fs::statx(fd, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let millis = |t: fs::StatxTimestamp| t.tv_sec.saturating_mul(1000).saturating_add(i64::from(t.tv_nsec / 1_000_000));
    let has_btime = StatxFlags::from_bits_retain(x.stx_mask).contains(StatxFlags::BTIME);
    Ok(Meta {
        kind: kind_of(FileType::from_raw_mode(x.stx_mode.into())),
        size: x.stx_size,
        mtime_ms: millis(x.stx_mtime),
        btime_ms: has_btime.then(|| millis(x.stx_btime)),
        inode: x.stx_ino,
        mode: x.stx_mode.into(),
    })
}

fn kind_of(kind: FileType) -> NodeKind {
    match kind {
        FileType::RegularFile => NodeKind::File,
        FileType::Directory => NodeKind::Folder,
        FileType::Symlink => NodeKind::Link,
        _ => NodeKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> VaultPath {
        VaultPath::parse_internal(text).unwrap()
    }

    /// Both ways of resolving must refuse the same things.
    #[test]
    fn links_never_lead_out_with_or_without_openat2() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::fs::write(dir.path().join("real/note.md"), "n").unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("leak.md")).unwrap();
        symlink("real", dir.path().join("alias")).unwrap();
        symlink("real/note.md", dir.path().join("alias.md")).unwrap();
        for portable in [false, true] {
            let root = RootDir::open(dir.path(), portable).unwrap();
            for bad in ["out/secret", "leak.md", "alias/note.md", "alias.md"] {
                assert_eq!(root.open_file(&path(bad), Links::Refuse).map(|_| ()), Err(Errno::LOOP), "{bad} {portable}");
                assert_eq!(root.meta(&path(bad), Links::Refuse).map(|_| ()), Err(Errno::LOOP), "{bad} {portable}");
            }
            for bad in ["out/secret", "leak.md"] {
                assert!(root.open_file(&path(bad), Links::FollowInside).is_err(), "{bad} {portable}");
            }
            assert!(root.open_file(&path("real/note.md"), Links::Refuse).unwrap().is_some());
            assert!(root.open_file(&path("real/none.md"), Links::Refuse).unwrap().is_none());
            assert_eq!(root.write_new(&path("out/new"), b"x", None), Err(Errno::LOOP), "{portable}");
            assert_eq!(root.rename_new(&path("real/note.md"), &path("out/n.md")), Err(Errno::LOOP), "{portable}");
        }
        let root = RootDir::open(dir.path(), false).unwrap();
        assert!(root.open_file(&path("alias/note.md"), Links::FollowInside).unwrap().is_some());
        assert!(!outside.path().join("new").exists());
    }

    #[test]
    fn pipes_and_folders_are_not_files() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let root = RootDir::open(dir.path(), false).unwrap();
        assert_eq!(root.open_file(&path("pipe"), Links::Refuse).map(|_| ()), Err(Errno::ACCESS));
        assert_eq!(root.open_file(&path("d"), Links::Refuse).map(|_| ()), Err(Errno::ISDIR));
    }

    #[test]
    fn rename_new_never_replaces() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let root = RootDir::open(dir.path(), false).unwrap();
        assert_eq!(root.rename_new(&path("a"), &path("b")), Err(Errno::EXIST));
        assert_eq!(std::fs::read_to_string(dir.path().join("b")).unwrap(), "b");
    }
}
