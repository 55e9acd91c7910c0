//! Changes modes and times of files for a sandboxed program, below the folders that it may write.
//!
//! Landlock does not restrict these calls, and seccomp cannot see paths, so the program must not make them itself. The
//! supervisor opens the file, checks its location, and changes exactly that file, so that the program cannot exchange
//! it for another one.

use super::sys::{PendingCall, Reply, still_waits};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps},
    io::Errno,
};
use std::{
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
};

/// The longest path that the kernel takes.
const MAX_PATH: usize = 4096;
/// Modes that may be set. Set-user-id and set-group-id would lend the user's rights to others.
const MODES: u32 = 0o1777;

/// The folders that may be written, without links.
pub(super) fn roots(write: &[PathBuf]) -> Vec<PathBuf> {
    write.iter().filter_map(|path| path.canonicalize().ok()).collect()
}

enum Change {
    Mode(Mode),
    Times(Timestamps),
}

/// Makes the change that a waiting call asks for.
pub(super) fn change(listener: &OwnedFd, asked: &PendingCall, roots: &[PathBuf]) -> Reply {
    match attempt(listener, asked, roots) {
        Ok(()) => Reply::Done,
        Err(errno) => Reply::Failed(errno.raw_os_error()),
    }
}

fn attempt(listener: &OwnedFd, asked: &PendingCall, roots: &[PathBuf]) -> Result<(), Errno> {
    let a = &asked.arguments;
    let mode = |bits: u64| {
        let bits = bits as u32 & 0o7777;
        if bits & !MODES == 0 { Ok(Change::Mode(Mode::from_raw_mode(bits))) } else { Err(Errno::PERM) }
    };
    let (target, change) = match asked.call {
        libc::SYS_fchmod => (by_descriptor(asked, a[0])?, mode(a[1])?),
        libc::SYS_fchmodat => (by_path(asked, Some(a[0]), a[1], true)?, mode(a[2])?),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (by_path(asked, None, a[0], true)?, mode(a[1])?),
        libc::SYS_utimensat => {
            let follow = a[3] as u32 & libc::AT_SYMLINK_NOFOLLOW as u32 == 0;
            let target =
                if a[1] == 0 { by_descriptor(asked, a[0])? } else { by_path(asked, Some(a[0]), a[1], follow)? };
            (target, Change::Times(times(asked, a[2])?))
        }
        _ => return Err(Errno::PERM),
    };
    // What was read belongs to the process that waits, and not to one that got its number later.
    if !still_waits(listener, asked.id) {
        return Err(Errno::SRCH);
    }
    let this = format!("/proc/self/fd/{}", target.as_raw_fd());
    let lies = std::fs::read_link(&this).map_err(|_| Errno::PERM)?;
    if !roots.iter().any(|root| lies.starts_with(root)) {
        return Err(Errno::PERM);
    }
    match change {
        Change::Mode(mode) => rustix::fs::chmod(this.as_str(), mode),
        Change::Times(times) => rustix::fs::utimensat(CWD, this.as_str(), &times, AtFlags::empty()),
    }
}

/// The file behind a descriptor of the program.
fn by_descriptor(asked: &PendingCall, fd: u64) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{}/fd/{}", asked.thread, fd as i32);
    rustix::fs::open(path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|_| Errno::BADF)
}

/// The file at a path as the program sees it.
fn by_path(asked: &PendingCall, folder: Option<u64>, address: u64, follow: bool) -> Result<OwnedFd, Errno> {
    let path = read_path(asked, address)?;
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT);
    }
    let base = match folder.map(|fd| fd as i32) {
        _ if path.is_absolute() => "/".to_owned(),
        None | Some(libc::AT_FDCWD) => format!("/proc/{}/cwd", asked.thread),
        Some(fd) => format!("/proc/{}/fd/{fd}", asked.thread),
    };
    let base = rustix::fs::open(base.as_str(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let links = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::CLOEXEC | links;
    rustix::fs::openat2(base, &path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

fn memory(asked: &PendingCall) -> Result<File, Errno> {
    File::open(format!("/proc/{}/mem", asked.thread)).map_err(|_| Errno::PERM)
}

fn read_path(asked: &PendingCall, address: u64) -> Result<PathBuf, Errno> {
    let memory = memory(asked)?;
    let mut text = Vec::new();
    // Up to the end of a page at a time: the next page may not be there.
    const PAGE: u64 = 4096;
    while text.len() < MAX_PATH {
        let at = address.checked_add(text.len() as u64).ok_or(Errno::FAULT)?;
        let mut part = vec![0u8; (PAGE - at % PAGE) as usize];
        let read = memory.read_at(&mut part, at).map_err(|_| Errno::FAULT)?;
        if read == 0 {
            return Err(Errno::FAULT);
        }
        if let Some(end) = part[..read].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&part[..end]);
            return Ok(Path::new(std::ffi::OsStr::from_bytes(&text)).to_owned());
        }
        text.extend_from_slice(&part[..read]);
    }
    Err(Errno::NAMETOOLONG)
}

/// Access and modification time; both now without an address.
fn times(asked: &PendingCall, address: u64) -> Result<Timestamps, Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    if address == 0 {
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let mut bytes = [0u8; 32];
    memory(asked)?.read_exact_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
    let number = |at: usize| {
        let mut word = [0u8; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        i64::from_ne_bytes(word)
    };
    let time = |at: usize| Timespec { tv_sec: number(at), tv_nsec: number(at + 8) };
    Ok(Timestamps { last_access: time(0), last_modification: time(16) })
}
