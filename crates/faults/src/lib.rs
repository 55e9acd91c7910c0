//! The seam between the program and its files. Store, journal, vault, context store and index write, sync, rename and
//! allocate through these functions, so that a test can make any single operation fail: [`arm`] names a folder, the number
//! of the operation below it, and how it fails.
//!
//! A program that never calls [`arm`] pays one relaxed load and a branch for each operation. Nothing outside the process can
//! arm it: there is no variable, file or option for it. What SQLite does with its own files does not pass here; the store
//! asks at each commit instead ([`check`]), and `make faults` fails SQLite's system calls as well.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// No room on the device.
const ENOSPC: i32 = 28;
/// The device failed.
const EIO: i32 = 5;

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Bytes are written.
    Write,
    /// What was written is made durable.
    Sync,
    /// A name is given or changed.
    Rename,
    /// Room is taken for later.
    Allocate,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There is no room; nothing was done.
    NoSpace,
    /// The device failed; nothing was done.
    Io,
    /// There was room for half of the bytes. Operations that write no bytes fail as with [`Failure::NoSpace`].
    Short,
}

impl Failure {
    /// Every way to fail.
    pub const ALL: [Self; 3] = [Self::NoSpace, Self::Io, Self::Short];

    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::NoSpace | Self::Short => ENOSPC,
            Self::Io => EIO,
        })
    }
}

/// How many folders are armed. Zero in every program that is not a test.
static ARMED: AtomicUsize = AtomicUsize::new(0);
static SCOPES: Mutex<Vec<Arc<Scope>>> = Mutex::new(Vec::new());

struct Scope {
    folder: PathBuf,
    fault: Option<(u64, Failure)>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    operations: u64,
    failed: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Operations below a folder are counted, and one of them may fail, until this is dropped.
#[must_use]
pub struct Armed(Arc<Scope>);

impl Armed {
    /// Operations seen so far.
    pub fn operations(&self) -> u64 {
        lock(&self.0.seen).operations
    }

    /// The operation that failed: what it was, and on which file.
    pub fn failed(&self) -> Option<String> {
        lock(&self.0.seen).failed.clone()
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        ARMED.fetch_sub(1, Ordering::AcqRel);
        lock(&SCOPES).retain(|scope| !Arc::ptr_eq(scope, &self.0));
    }
}

/// Counts the operations below a folder, and makes the one with this number (from 1) fail once. For tests.
pub fn arm(folder: &Path, fault: Option<(u64, Failure)>) -> Armed {
    // File descriptors are told apart by their real paths.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let scope = Arc::new(Scope { folder, fault, seen: Mutex::default() });
    lock(&SCOPES).push(scope.clone());
    ARMED.fetch_add(1, Ordering::AcqRel);
    Armed(scope)
}

fn is_armed() -> bool {
    ARMED.load(Ordering::Relaxed) != 0
}

/// Whether this operation is to fail.
#[cold]
fn strike(operation: Operation, path: &Path) -> Option<Failure> {
    let scopes = lock(&SCOPES);
    let scope = scopes.iter().find(|scope| path.starts_with(&scope.folder))?;
    let mut seen = lock(&scope.seen);
    seen.operations += 1;
    let (_, failure) = scope.fault.filter(|(number, _)| *number == seen.operations)?;
    seen.failed = Some(format!("{operation:?} {}", path.display()));
    Some(failure)
}

#[cold]
fn strike_file(operation: Operation, file: &impl AsFd) -> Option<Failure> {
    let number = file.as_fd().as_raw_fd();
    strike(operation, &std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?)
}

fn result(failure: Option<Failure>) -> io::Result<()> {
    failure.map_or(Ok(()), |failure| Err(failure.error()))
}

/// Fails if an operation on this path is to fail. To be called right before an operation that this crate does not do.
pub fn check(operation: Operation, path: &Path) -> io::Result<()> {
    if is_armed() { result(strike(operation, path)) } else { Ok(()) }
}

/// The same for an open file or folder.
pub fn check_file(operation: Operation, file: &impl AsFd) -> io::Result<()> {
    if is_armed() { result(strike_file(operation, file)) } else { Ok(()) }
}

/// Writes all bytes.
pub fn write_all(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if is_armed()
        && let Some(failure) = strike_file(Operation::Write, file)
    {
        if failure == Failure::Short {
            file.write_all(&bytes[..bytes.len() / 2])?;
        }
        return Err(failure.error());
    }
    file.write_all(bytes)
}

/// Writes all bytes at an offset.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    if is_armed()
        && let Some(failure) = strike_file(Operation::Write, file)
    {
        if failure == Failure::Short {
            file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
        }
        return Err(failure.error());
    }
    file.write_all_at(bytes, offset)
}

/// Makes a file's bytes durable.
pub fn sync_data(file: &File) -> io::Result<()> {
    check_file(Operation::Sync, file)?;
    file.sync_data()
}

/// Makes a file and what is known about it durable; for a folder, its names.
pub fn sync_all(file: &File) -> io::Result<()> {
    check_file(Operation::Sync, file)?;
    file.sync_all()
}

/// Renames a file or a folder.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    check(Operation::Rename, to)?;
    std::fs::rename(from, to)
}

/// Writes a whole file, replacing one that is there.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = File::create(path)?;
    write_all(&mut file, bytes.as_ref())
}

/// Copies a file with its permissions.
pub fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    check(Operation::Write, to)?;
    std::fs::copy(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_fails_below_the_armed_folder_and_nowhere_else() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let work = |dir: &Path| -> io::Result<()> {
            write(&dir.join("a.new"), b"whole")?;
            sync_all(&File::open(dir)?)?;
            rename(&dir.join("a.new"), &dir.join("a"))
        };
        let counted = arm(dir.path(), None);
        work(dir.path()).unwrap();
        work(other.path()).unwrap();
        assert_eq!((counted.operations(), counted.failed()), (3, None));
        drop(counted);
        for number in 1..=3 {
            for failure in Failure::ALL {
                let armed = arm(dir.path(), Some((number, failure)));
                let error = work(dir.path()).unwrap_err();
                work(other.path()).unwrap();
                assert_eq!(error.raw_os_error(), Some(if failure == Failure::Io { EIO } else { ENOSPC }));
                assert!(armed.failed().is_some());
                work(dir.path()).unwrap();
            }
        }
        let armed = arm(dir.path(), Some((1, Failure::Short)));
        assert!(write(&dir.path().join("b"), b"1234").is_err());
        assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), b"12", "half of it was written");
        drop(armed);
        assert!(!is_armed() || lock(&SCOPES).iter().all(|scope| scope.folder != dir.path()));
    }
}
