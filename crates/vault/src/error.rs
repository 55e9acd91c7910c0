//! Turns file errors into a [`Failure`] that an agent can act on.

use crate::path::VaultPath;
use rustix::io::Errno;
use std::path::PathBuf;
use toolyard_protocol::{ErrorCode, Failure};

/// Work on the vault that ends in a failure an agent can read.
pub(crate) type VaultResult<T> = Result<T, Failure>;

/// Why a vault cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The root is missing, not a folder, or not readable.
    #[error("the vault folder {path:?} cannot be opened: {source}")]
    Root {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The lock folder cannot be made or used.
    #[error("the lock folder {path:?} cannot be used: {source}")]
    Locks {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// A system error on a path.
pub(crate) fn system(action: &str, path: &str, errno: Errno) -> Failure {
    let cause = std::io::Error::from(errno);
    let failure = |code, why: &str| {
        Failure::new(code, format!("cannot {action} {path:?}: {why}")).detail("path", path).caused_by(&cause)
    };
    match errno {
        Errno::NOENT => failure(ErrorCode::NotFound, "it does not exist"),
        Errno::EXIST => failure(ErrorCode::Conflict, "something is already there"),
        Errno::NOTDIR => failure(ErrorCode::Conflict, "a file stands where a folder is needed"),
        Errno::ISDIR => failure(ErrorCode::Conflict, "it is a folder"),
        Errno::NOTEMPTY => failure(ErrorCode::Conflict, "the folder is not empty"),
        Errno::LOOP | Errno::XDEV => {
            failure(ErrorCode::PolicyDenied, "it leads through a symbolic link or out of the vault")
                .suggest("Use the path of the file itself; the vault does not follow links that could lead elsewhere.")
                .retryable(false)
        }
        Errno::NAMETOOLONG => failure(ErrorCode::ValidationError, "the name is too long"),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => failure(ErrorCode::PreconditionFailed, "permission denied")
            .suggest("Check the owner and the permissions of the file and its folder."),
        Errno::NOSPC | Errno::DQUOT => {
            failure(ErrorCode::PreconditionFailed, "the disk is full").suggest("Free some space, then call again.")
        }
        Errno::MFILE | Errno::NFILE => failure(ErrorCode::Unavailable, "too many open files").retryable(true),
        _ => failure(ErrorCode::InternalError, &cause.to_string()),
    }
}

pub(crate) fn not_found(path: &VaultPath) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("{path} does not exist"))
        .suggest("Check the path with vault.listFiles.")
        .detail("path", path.as_str())
}

pub(crate) fn validation(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::ValidationError, message)
}

/// The conflict when the file has another content than expected.
pub(crate) fn etag_conflict(path: &VaultPath, expected: &str, current: &str) -> Failure {
    Failure::new(ErrorCode::Conflict, format!("{path} has changed: expected etag {expected}, found {current}"))
        .suggest("Read the file again and decide with its current etag.")
        .detail("path", path.as_str())
        .detail("expectedEtag", expected)
        .detail("currentEtag", current)
}

pub(crate) fn is_folder(path: &VaultPath) -> Failure {
    Failure::new(ErrorCode::Conflict, format!("{path} is a folder, not a file")).detail("path", path.as_str())
}

/// The conflict when a file exists where a folder is needed.
pub(crate) fn in_the_way(file: &VaultPath, path: &VaultPath) -> Failure {
    Failure::new(ErrorCode::Conflict, format!("{file} is a file, so {path} cannot lie below it"))
        .detail("path", file.as_str())
}

pub(crate) fn too_large(path: &VaultPath, size: u64, limit: u64) -> Failure {
    Failure::new(
        ErrorCode::LimitExceeded,
        format!("{path} has {size} bytes, more than the {limit} that are handled in memory"),
    )
    .suggest("Only files up to that size can be read or edited; larger ones can still be renamed and deleted.")
    .detail("path", path.as_str())
    .detail("sizeBytes", size)
    .detail("maxBytes", limit)
}
