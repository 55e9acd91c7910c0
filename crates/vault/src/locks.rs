//! Locks on paths: two calls never work on the same note at the same time, in this process or in another.
//!
//! A path belongs to one of 64 stripes. A stripe is an async mutex (for calls of this process) and a lock file held
//! with `flock` (for other processes). Stripes are always taken in ascending order, which prevents deadlocks. The
//! kernel drops `flock` locks when a process dies.

use crate::{
    error::{VaultError, VaultResult},
    path::VaultPath,
};
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ErrorCode, Failure};

/// How many stripes there are. Part of the agreement between processes that share a vault.
pub const STRIPES: usize = 64;
/// The first delay before a lock of another process is tried again; each further delay is twice as long.
const FIRST_WAIT: Duration = Duration::from_micros(500);
/// The longest delay before a lock of another process is tried again.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// Which stripes a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockScope {
    /// Only these paths.
    Paths(Vec<VaultPath>),
    /// Everything: folders move, or any note may be rewritten.
    Vault,
}

pub(crate) struct Locks {
    folder: PathBuf,
    stripes: Vec<Arc<Mutex<()>>>,
}

/// Held locks; dropping it lets go.
pub(crate) struct LockGuard {
    /// Declared first, so that files are unlocked before the next call of this process proceeds.
    _files: Vec<OwnedFd>,
    _stripes: Vec<OwnedMutexGuard<()>>,
}

impl Locks {
    /// Lock files are in a separate folder for each vault, identified by device and inode of its root.
    pub(crate) fn open(lock_dir: &Path, (device, inode): (u64, u64)) -> Result<Self, VaultError> {
        let folder = lock_dir.join(format!("vault-{device:x}-{inode:x}"));
        std::fs::create_dir_all(&folder).map_err(|source| VaultError::Locks { path: folder.clone(), source })?;
        Ok(Self { folder, stripes: (0..STRIPES).map(|_| Arc::default()).collect() })
    }

    /// The folder of this vault's lock files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) async fn acquire(&self, scope: &LockScope, cancel: &CancellationToken) -> VaultResult<LockGuard> {
        let wanted: BTreeSet<usize> = match scope {
            LockScope::Vault => (0..STRIPES).collect(),
            LockScope::Paths(paths) => paths.iter().map(stripe_of).collect(),
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                Err(Failure::new(ErrorCode::Cancelled, "stopped while waiting for another call to finish with the same note"))
            }
            guard = self.acquire_in_order(&wanted) => guard,
        }
    }

    async fn acquire_in_order(&self, wanted: &BTreeSet<usize>) -> VaultResult<LockGuard> {
        let mut guard = LockGuard { _files: Vec::new(), _stripes: Vec::new() };
        for &stripe in wanted {
            guard._stripes.push(self.stripes[stripe].clone().lock_owned().await);
        }
        for &stripe in wanted {
            let failed = |errno: Errno| {
                Failure::new(
                    ErrorCode::Unavailable,
                    format!("lock file {stripe} cannot be used: {}", std::io::Error::from(errno)),
                )
                .suggest("Check that the lock folder is writable.")
            };
            let name = self.folder.join(format!("{stripe:02}.lock"));
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::open(name, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
            let mut wait = FIRST_WAIT;
            loop {
                match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break,
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        tokio::time::sleep(wait).await;
                        wait = (wait * 2).min(LONGEST_WAIT);
                    }
                    Err(other) => return Err(failed(other)),
                }
            }
            guard._files.push(file);
        }
        Ok(guard)
    }
}

/// By the folded path, so that names that cannot coexist share a stripe. FNV-1a: every process must agree on it.
fn stripe_of(path: &VaultPath) -> usize {
    let hash =
        path.folded().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    ((hash ^ (hash >> 32)) % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> LockScope {
        LockScope::Paths(vec![VaultPath::parse(text).unwrap()])
    }

    #[tokio::test]
    async fn the_same_note_waits_and_another_vault_object_waits_too() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (Locks::open(dir.path(), (1, 2)).unwrap(), Locks::open(dir.path(), (1, 2)).unwrap());
        let cancel = CancellationToken::new();
        let held = one.acquire(&scope("Note.md"), &cancel).await.unwrap();
        for locks in [&one, &two] {
            let waiting =
                tokio::time::timeout(Duration::from_millis(40), locks.acquire(&scope("NOTE.md"), &cancel)).await;
            assert!(waiting.is_err(), "must wait");
        }
        drop(held);
        two.acquire(&LockScope::Vault, &cancel).await.unwrap();
    }

    #[tokio::test]
    async fn waiting_can_be_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::open(dir.path(), (1, 2)).unwrap();
        let cancel = CancellationToken::new();
        let _held = locks.acquire(&LockScope::Vault, &cancel).await.unwrap();
        cancel.cancel();
        let failure = locks.acquire(&scope("a"), &cancel).await.err().unwrap();
        assert_eq!(failure.code, ErrorCode::Cancelled);
    }
}
