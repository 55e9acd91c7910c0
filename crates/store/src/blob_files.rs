//! Reading and writing blobs: compression, and files for blobs that are too large for the database.
//!
//! A file is written under a temporary name, synced and renamed before the transaction that refers to it begins, so
//! that a row never refers to a missing file. A crash in between leaves an unreferenced file, which the next batch with
//! the same content reuses.

use crate::{failed, limits, schema::sync_dir};
use std::{
    fs::{DirBuilder, OpenOptions},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};
use toolyard_engine::{Blob, store::StoreError};

const LEVEL: i32 = 1;
static TEMPORARIES: AtomicU64 = AtomicU64::new(0);

/// A blob ready to be written down.
pub(crate) struct StoredBlob {
    pub(crate) sha256: [u8; 32],
    pub(crate) len: usize,
    pub(crate) is_zstd: bool,
    /// `None` if the bytes are in a file.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Parses a hash: exactly 64 lowercase hexadecimal digits, because it becomes part of a path.
pub(crate) use toolyard_protocol::canonical::unhex as parse_hash;

/// The compressed bytes, if that saves an eighth.
pub(crate) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < limits::COMPRESS_FROM {
        return None;
    }
    let packed = zstd::bulk::compress(bytes, LEVEL).ok()?;
    (packed.len() <= bytes.len() - bytes.len() / 8).then_some(packed)
}

/// The bytes of which these are the compressed ones.
pub(crate) fn expand(packed: &[u8], len: usize) -> Result<Vec<u8>, StoreError> {
    let bytes = zstd::bulk::decompress(packed, len).map_err(|e| failed("the store holds damaged data", e))?;
    if bytes.len() != len {
        return Err(StoreError::failed(format!(
            "the store holds damaged data: {} bytes where {len} should be",
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// Compresses a blob and, if it is large, writes it to its file.
pub(crate) fn prepare(dir: &Path, blob: &Blob) -> Result<StoredBlob, StoreError> {
    let Some(sha256) = parse_hash(&blob.sha256) else {
        return Err(StoreError::failed(format!("{:?} is no SHA-256 in lowercase hexadecimal", blob.sha256)));
    };
    let len = blob.bytes.len();
    let packed = compress(&blob.bytes);
    let is_zstd = packed.is_some();
    if len <= limits::BLOB_FILE_BYTES {
        return Ok(StoredBlob { sha256, len, is_zstd, bytes: Some(packed.unwrap_or_else(|| blob.bytes.to_vec())) });
    }
    let path = file_path(dir, &blob.sha256, is_zstd);
    write_file(&path, packed.as_deref().unwrap_or(&blob.bytes))
        .map_err(|e| crate::failed_io(&format!("cannot write {}", path.display()), &e))?;
    Ok(StoredBlob { sha256, len, is_zstd, bytes: None })
}

/// The path of a large blob.
pub(crate) fn file_path(dir: &Path, sha256: &str, is_zstd: bool) -> PathBuf {
    let shelf = sha256.get(..2).unwrap_or("00");
    dir.join("blobs").join(shelf).join(if is_zstd { format!("{sha256}.zst") } else { sha256.to_owned() })
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let shelf = path.parent().unwrap_or(path);
    let shelves = shelf.parent().unwrap_or(shelf);
    if !shelf.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(shelf)?;
        sync_dir(shelves)?;
        sync_dir(shelves.parent().unwrap_or(shelves))?;
    }
    if path.metadata().is_ok_and(|file| file.len() == bytes.len() as u64) {
        // The process that wrote the file may have died before it synced the folder.
        return sync_dir(shelf);
    }
    let number = TEMPORARIES.fetch_add(1, Ordering::Relaxed);
    let temporary = shelf.join(format!(".{}.{number}.tmp", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        toolyard_faults::write_all(&mut file, bytes)?;
        toolyard_faults::sync_all(&file)?;
        toolyard_faults::rename(&temporary, path)
    })();
    if written.is_err() {
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %temporary.display(), "an unfinished blob could not be removed");
            }
            _ => {}
        }
    }
    written?;
    sync_dir(shelf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lowercase_hashes_pass() {
        assert_eq!(parse_hash(&"0f".repeat(32)), Some([15; 32]));
        for bad in ["", "0f", &"0F".repeat(32), &"../".repeat(22)[..64], &"é".repeat(32)] {
            assert_eq!(parse_hash(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let bytes = b"the same again ".repeat(1000);
        let packed = compress(&bytes).unwrap();
        assert!(packed.len() < bytes.len() / 10);
        assert_eq!(expand(&packed, bytes.len()).unwrap(), bytes);
        assert!(expand(&packed, bytes.len() - 1).is_err());
        assert!(expand(&packed, bytes.len() + 1).is_err());
        assert_eq!(compress(b"short"), None);
    }
}
