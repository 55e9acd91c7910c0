//! Token storage: one file for each server, readable by its owner only.

use super::registration::Client;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};
use toolyard_engine::redact::redactor;

/// How long a process waits for another one that renews the same token.
const LOCK_WITHIN: Duration = Duration::from_secs(20);
/// Interval between two attempts to get the lock.
const LOCK_EVERY: Duration = Duration::from_millis(50);

/// What is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(super) struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        redactor().learn(&text);
        Self(text)
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        secret.0
    }
}

impl Secret {
    pub(super) fn new(text: String) -> Self {
        text.into()
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A token and all that is needed to renew it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Grant {
    pub(super) issuer: String,
    pub(super) token_endpoint: String,
    pub(super) resource: String,
    pub(super) client: Client,
    pub(super) access: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// What was asked for.
    #[serde(default)]
    pub(super) requested: Vec<String>,
}

/// What the server requires before it accepts further requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LoginRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scopes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource_metadata: Option<String>,
    /// The operation that was refused because of missing scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<String>,
}

/// All that is kept of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    /// The server's address: the record is valid for this address only.
    pub(super) url: String,
    /// Clients that registered themselves, by issuer.
    pub(super) clients: BTreeMap<String, Client>,
    /// The issuer that the configured client is used with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) grant: Option<Grant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wanted: Option<LoginRequest>,
    /// How often more scopes were asked for, by operation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tries: BTreeMap<String, u32>,
}

/// Which version of the file was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileVersion(u64, i64, i64, u64);

/// The file of one server.
#[derive(Debug)]
pub(super) struct TokenFile {
    folder: PathBuf,
    path: PathBuf,
}

impl TokenFile {
    pub(super) fn new(folder: &Path, server: &str) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let name = if !server.is_empty() && server.bytes().all(plain) {
            server.to_owned()
        } else {
            toolyard_protocol::canonical::sha256_hex(server.as_bytes()).replace(':', "-")
        };
        Self { folder: folder.to_owned(), path: folder.join(format!("{name}.json")) }
    }

    /// The version that is there now; cheap.
    pub(super) fn stamp(&self) -> Option<FileVersion> {
        let found = fs::metadata(&self.path).ok()?;
        Some(FileVersion(found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    }

    /// Reads the record. A file that others can read is not trusted.
    pub(super) fn read(&self) -> Result<Record, String> {
        let broken = |e: &dyn fmt::Display| format!("{}: {e}", self.path.display());
        let found = match fs::metadata(&self.path) {
            Ok(found) => found,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            Err(e) => return Err(broken(&e)),
        };
        if found.mode() & 0o077 != 0 {
            let path = self.path.display();
            return Err(format!("{path} can be read by others; make it private with: chmod 600 {path}"));
        }
        let text = fs::read_to_string(&self.path).map_err(|e| broken(&e))?;
        // serde's message could contain a part of the file.
        serde_json::from_str(&text).map_err(|_| broken(&"it cannot be read; `toolyard mcp logout` removes it"))
    }

    /// Writes it whole or not at all.
    pub(super) fn write(&self, record: &Record) -> Result<(), String> {
        let broken = |e: io::Error| format!("{}: {e}", self.path.display());
        self.make_folder().map_err(broken)?;
        let text = serde_json::to_string_pretty(record).map_err(|e| e.to_string())?;
        let beside = self.path.with_extension(format!("tmp{}-{}", std::process::id(), uuid::Uuid::new_v4().simple()));
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err()
            && let Err(error) = fs::remove_file(&beside)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %beside.display(), %error, "a file with a token could not be removed");
        }
        written.map_err(broken)
    }

    /// Removes the record. False if there was none.
    pub(super) fn remove(&self) -> Result<bool, String> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(format!("{}: {e}", self.path.display())),
        }
    }

    /// Keeps other processes from renewing at the same time: a refresh token may count only once.
    pub(super) async fn lock(&self) -> Result<File, String> {
        let path = self.path.with_extension("lock");
        let broken = |e: io::Error| format!("{}: {e}", path.display());
        self.make_folder().map_err(broken)?;
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(broken)?;
        let give_up = tokio::time::Instant::now() + LOCK_WITHIN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::Error(e)) => return Err(broken(e)),
                Err(fs::TryLockError::WouldBlock) if tokio::time::Instant::now() > give_up => {
                    return Err("another process is renewing the token and does not finish".to_owned());
                }
                Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(LOCK_EVERY).await,
            }
        }
    }

    fn make_folder(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_private_and_a_file_that_is_not_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::new(&dir.path().join("auth"), "issues");
        assert_eq!(file.read().unwrap(), Record::default());
        assert_eq!(file.stamp(), None);
        let record = Record { url: "https://x.org/mcp".into(), ..Record::default() };
        file.write(&record).unwrap();
        assert_eq!(file.read().unwrap(), record);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file.path), mode(&file.folder)), (0o600, 0o700));
        let before = file.stamp();
        file.write(&Record { bound: Some("i".into()), ..record }).unwrap();
        assert_ne!(file.stamp(), before);
        assert_eq!(fs::read_dir(&file.folder).unwrap().count(), 1, "nothing is left lying about");
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(file.read().unwrap_err().contains("chmod 600"));
        assert!(file.remove().unwrap() && !file.remove().unwrap());
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_folder_and_secrets_are_not_shown() {
        let file = TokenFile::new(Path::new("/auth"), "../../etc/passwd");
        assert_eq!(file.path.parent(), Some(Path::new("/auth")));
        assert_eq!(format!("{:?}", Secret::new("hush".into())), "(hidden)");
    }

    #[tokio::test(start_paused = true)]
    async fn one_process_renews_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::new(dir.path(), "a");
        let held = file.lock().await.unwrap();
        assert!(file.lock().await.unwrap_err().contains("another process"));
        drop(held);
        assert!(file.lock().await.is_ok());
    }
}
