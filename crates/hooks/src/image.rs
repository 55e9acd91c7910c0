//! The state of a file before a call (its before-image), and how a file is restored from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};
use toolyard_engine::Blob;
use toolyard_protocol::canonical;

/// A larger file is not kept.
pub(crate) const MAX_FILE_BYTES: u64 = 32 << 20;
/// The bits of a mode that are kept.
const MODE_BITS: u32 = 0o7777;

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum FileState {
    /// The path does not exist.
    Absent,
    /// A file.
    File {
        /// SHA-256 of its bytes, in hex; the name of the blob that holds them.
        sha256: String,
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points.
        target: String,
    },
    /// A folder.
    Folder,
    /// Something whose state is not kept.
    Unkept {
        /// The reason.
        reason: String,
    },
}

impl FileState {
    /// Whether the path has the same content, whatever its permissions.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { sha256: this, .. }, Self::File { sha256: other, .. }) => this == other,
            (this, other) => this == other,
        }
    }

    /// The content's hash, for records.
    pub(crate) fn etag(&self) -> Option<String> {
        match self {
            Self::File { sha256, .. } => Some(format!("sha256:{sha256}")),
            _ => None,
        }
    }
}

/// The state of a path now, and the bytes of a file.
pub(crate) fn take(path: &Path) -> (FileState, Option<Blob>) {
    match look(path) {
        Ok(taken) => taken,
        Err(error) => (FileState::Unkept { reason: format!("it cannot be read: {error}") }, None),
    }
}

fn look(path: &Path) -> io::Result<(FileState, Option<Blob>)> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok((FileState::Absent, None));
        }
        Err(error) => return Err(error),
    };
    if metadata.is_symlink() {
        let target = fs::read_link(path)?;
        let Some(target) = target.to_str() else {
            return Ok((FileState::Unkept { reason: "the link's target is not UTF-8".to_owned() }, None));
        };
        return Ok((FileState::Symlink { target: target.to_owned() }, None));
    }
    if metadata.is_dir() {
        return Ok((FileState::Folder, None));
    }
    if !metadata.is_file() {
        return Ok((FileState::Unkept { reason: "it is neither file, folder nor link".to_owned() }, None));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Ok((FileState::Unkept { reason: format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20) }, None));
    }
    let blob = Blob::new(bytes);
    Ok((FileState::File { sha256: blob.sha256.clone(), mode: metadata.mode() & MODE_BITS }, Some(blob)))
}

/// Gives a path a state. `content` holds the bytes of a file.
pub(crate) fn put(path: &Path, image: &FileState, content: Option<&[u8]>) -> io::Result<()> {
    let other = |message: &str| Err(io::Error::other(message.to_owned()));
    let Some(folder) = path.parent() else { return other("the root has no state to restore") };
    match image {
        FileState::Absent => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        FileState::File { sha256, mode } => {
            let Some(bytes) = content.filter(|bytes| canonical::sha256_hex(bytes) == *sha256) else {
                return other("the bytes that were kept are gone");
            };
            fs::create_dir_all(folder)?;
            let mut staged = tempfile::Builder::new().prefix(".toolyard-").tempfile_in(folder)?;
            staged.write_all(bytes)?;
            staged.as_file().set_permissions(fs::Permissions::from_mode(*mode))?;
            staged.as_file().sync_all()?;
            staged.persist(path).map(drop).map_err(|error| error.error)
        }
        FileState::Symlink { target } => {
            fs::create_dir_all(folder)?;
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            std::os::unix::fs::symlink(target, path)
        }
        FileState::Folder => fs::create_dir_all(path),
        FileState::Unkept { reason } => other(&format!("its state before was not kept: {reason}")),
    }
}
