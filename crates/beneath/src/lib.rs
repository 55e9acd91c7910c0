//! [`Folder`]: a folder as an open descriptor, and files opened beneath it.
//!
//! A path is resolved by the kernel relative to the descriptor (`openat2` with `RESOLVE_BENEATH` and
//! `RESOLVE_NO_MAGICLINKS`), so neither `..` nor a symbolic link leads out, however the tree changes in the meantime. Where
//! `openat2` is missing, the path is walked segment by segment without following any link. The vault opens its notes this
//! way, and every file of a package that somebody else wrote (manifests, skills, lockfiles) is read this way.
//!
//! Knows nothing of vaults, packages or tools.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// A resolution that races with a rename elsewhere is repeated this often.
const MAX_RESOLVE_TRIES: usize = 16;

/// What to do with symbolic links on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// A link anywhere in the path is an error (`LOOP`).
    Refuse,
    /// Links that stay beneath the folder are followed; others are an error.
    FollowInside,
}

/// What an entry of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A device, a socket or a pipe.
    Other,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is. A link is not followed.
    pub kind: Kind,
}

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// Set once the kernel said that it has no `openat2`, or by choice.
    portable: AtomicBool,
}

impl Folder {
    /// Opens a folder. Links in `path` itself are followed: the caller chose it.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let fd = fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { fd, portable: AtomicBool::new(false) })
    }

    /// The same, resolving paths without `openat2`.
    pub fn open_portable(path: &Path) -> Result<Self, Errno> {
        let folder = Self::open(path)?;
        folder.portable.store(true, Ordering::Relaxed);
        Ok(folder)
    }

    /// A folder beneath this one; `.` opens this one again.
    pub fn folder(&self, path: &str, links: Links) -> Result<Self, Errno> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, links)?;
        Ok(Self { fd, portable: AtomicBool::new(self.portable.load(Ordering::Relaxed)) })
    }

    /// Opens what a relative path leads to. A path that is absolute or has a `..` is refused with `XDEV`.
    pub fn resolve(&self, path: &str, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        if path.starts_with('/') || path.split('/').any(|segment| segment == "..") {
            return Err(Errno::XDEV);
        }
        let flags = flags | OFlags::CLOEXEC;
        if self.portable.load(Ordering::Relaxed) {
            return self.walk(path, flags);
        }
        let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if links == Links::Refuse {
            how |= ResolveFlags::NO_SYMLINKS;
        }
        for _ in 0..MAX_RESOLVE_TRIES {
            match fs::openat2(&self.fd, path, flags, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS) => {
                    self.portable.store(true, Ordering::Relaxed);
                    return self.walk(path, flags);
                }
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Segment by segment, never through a link.
    fn walk(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut segments = path.split('/').filter(|s| !s.is_empty() && *s != ".").peekable();
        if segments.peek().is_none() {
            return if path.is_empty() { Err(Errno::NOENT) } else { fs::openat(&self.fd, ".", flags, Mode::empty()) };
        }
        let mut current: Option<OwnedFd> = None;
        while let Some(segment) = segments.next() {
            let last = segments.peek().is_none();
            let wanted = if last {
                flags | OFlags::NOFOLLOW
            } else {
                OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
            };
            let at = current.as_ref().map_or(self.fd.as_fd(), |fd| fd.as_fd());
            let opened = fs::openat(at, segment, wanted, Mode::empty());
            let is_link = |result: &Result<OwnedFd, Errno>| match result {
                Err(Errno::NOTDIR) => fs::statat(at, segment, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink),
                Ok(fd) => fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink),
                Err(_) => false,
            };
            if is_link(&opened) {
                return Err(Errno::LOOP);
            }
            current = Some(opened?);
        }
        current.ok_or(Errno::NOENT)
    }

    /// Opens a regular file for reading. Never waits on a pipe or a device; those are refused with `ACCESS`.
    pub fn open_file(&self, path: &str, links: Links) -> Result<File, Errno> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, links)?;
        match FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => Ok(File::from(fd)),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::ACCESS),
        }
    }

    /// Reads a regular file of at most `limit` bytes. The error says in words what is wrong, without the path.
    pub fn read(&self, path: &str, links: Links, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open_file(path, links).map_err(explained)?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {limit} bytes")));
        }
        Ok(bytes)
    }

    /// The entries of this folder in no particular order, without `.` and `..`.
    pub fn entries(&self) -> Result<Vec<Entry>, Errno> {
        // A descriptor of its own: reading moves the position.
        let fd = fs::openat(&self.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    FileType::from_raw_mode(fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
                }
                known => known,
            };
            entries.push(Entry { name: std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned(), kind: kind_of(kind) });
        }
        Ok(entries)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

/// The error with a message for people: "Too many levels of symbolic links" does not say that one is too many.
pub fn explained(errno: Errno) -> io::Error {
    let why = match errno {
        Errno::LOOP => "it is a symbolic link or lies behind one",
        Errno::XDEV => "the path leads out of the folder",
        Errno::ACCESS => "it cannot be read, or it is not a regular file",
        other => return other.into(),
    };
    io::Error::new(io::Error::from(errno).kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Both ways of resolving refuse the same paths.
    #[test]
    fn neither_links_nor_dots_lead_out_with_or_without_openat2() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::fs::write(dir.path().join("real/a"), "text").unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("leak")).unwrap();
        symlink("real", dir.path().join("alias")).unwrap();
        symlink("/proc/self/root", dir.path().join("magic")).unwrap();
        let secret = outside.path().join("secret").display().to_string();
        for folder in [Folder::open(dir.path()).unwrap(), Folder::open_portable(dir.path()).unwrap()] {
            for bad in ["out/secret", "leak", "alias/a", "magic/etc/passwd"] {
                assert_eq!(folder.open_file(bad, Links::Refuse).map(drop), Err(Errno::LOOP), "{bad}");
            }
            for bad in ["../secret", "real/../real/a", &secret, ".."] {
                assert_eq!(folder.open_file(bad, Links::FollowInside).map(drop), Err(Errno::XDEV), "{bad}");
            }
            for bad in ["out/secret", "leak", "magic/etc/passwd"] {
                assert!(folder.open_file(bad, Links::FollowInside).is_err(), "{bad}");
            }
            assert_eq!(folder.read("real/a", Links::Refuse, 4).unwrap(), b"text");
            assert_eq!(folder.read("./real//a", Links::Refuse, 4).unwrap(), b"text");
            assert_eq!(folder.read("real/a", Links::Refuse, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
            assert_eq!(folder.read("none", Links::Refuse, 3).unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(folder.open_file("real", Links::Refuse).map(drop), Err(Errno::ISDIR));
            let inner = folder.folder("real", Links::Refuse).unwrap();
            assert_eq!(inner.entries().unwrap(), [Entry { name: "a".into(), kind: Kind::File }]);
            assert_eq!(inner.entries().unwrap().len(), 1, "reading the entries twice");
            assert!(folder.folder("out", Links::Refuse).is_err());
            assert_eq!(folder.folder(".", Links::Refuse).unwrap().entries().unwrap().len(), 5);
        }
        let followed = Folder::open(dir.path()).unwrap();
        assert_eq!(followed.read("alias/a", Links::FollowInside, 4).unwrap(), b"text");
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        fs::mknodat(fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.open_file("pipe", Links::Refuse).map(drop), Err(Errno::ACCESS));
        assert_eq!(folder.entries().unwrap()[0].kind, Kind::Other);
    }
}
