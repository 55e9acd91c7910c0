//! Keeps the text of a client's file from before Toolyard changed it, so that it can be restored byte for byte.

use super::unusable;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use toolyard_protocol::{Failure, canonical};

/// New files of clients are for their owner alone: others hold credentials.
const NEW_FILE_MODE: u32 = 0o600;

/// A changed file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangedFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its text before; absent where there was no file.
    pub(crate) before: Option<String>,
    /// SHA-256 of what was written.
    pub(crate) after: String,
}

/// The files that one installation changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct InstallRecord {
    /// Each of them.
    pub(crate) files: Vec<ChangedFile>,
    /// Whether the installation also put the client's hooks in.
    #[serde(default)]
    pub(crate) hooks: bool,
}

/// Where it is kept: `clients/` in Toolyard's home, one file for each installation.
pub(crate) struct InstallStore {
    record: PathBuf,
}

impl InstallStore {
    /// The record of an installation, such as `claude-hooks`.
    pub(crate) fn new(home: &Path, name: &str) -> Self {
        Self { record: home.join("clients").join(format!("{name}.json")) }
    }

    /// The record's own file, which is the backup.
    pub(crate) fn path(&self) -> &Path {
        &self.record
    }

    /// What is kept, if this installation was made.
    pub(crate) fn load(&self) -> Result<Option<InstallRecord>, Failure> {
        match fs::read_to_string(&self.record) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| unusable(&self.record, error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&self.record, error)),
        }
    }

    /// Changes a file: its text before is durable before the change. `before` is the file's text without Toolyard's
    /// entries.
    pub(crate) fn change(&self, path: &Path, before: Option<String>, after: &str) -> Result<(), Failure> {
        let mut kept = self.load()?.unwrap_or_default();
        let now = read(path)?;
        let was_ours = |file: &ChangedFile| now.as_deref().map(hash).as_deref() == Some(file.after.as_str());
        match kept.files.iter_mut().find(|file| file.path == path) {
            // The file has not changed since Toolyard wrote it, so the kept text is still the one from before Toolyard.
            Some(file) if was_ours(file) => file.after = hash(after),
            Some(file) => *file = ChangedFile { path: path.to_owned(), before, after: hash(after) },
            None => kept.files.push(ChangedFile { path: path.to_owned(), before, after: hash(after) }),
        }
        self.save(&kept)?;
        write(path, after)
    }

    /// Notes that the installation also put the client's hooks in.
    pub(crate) fn mark_hooks(&self) -> Result<(), Failure> {
        self.save(&InstallRecord { hooks: true, ..self.load()?.unwrap_or_default() })
    }

    fn save(&self, kept: &InstallRecord) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(kept).map_err(|error| unusable(&self.record, error))?;
        write(&self.record, &text)
    }

    /// Puts every file back. A file that was changed since keeps those changes: `strip` removes Toolyard's entries
    /// alone.
    pub(crate) fn put_back(
        &self,
        strip: impl Fn(&ChangedFile, &str) -> Result<String, Failure>,
    ) -> Result<Vec<PathBuf>, Failure> {
        let Some(kept) = self.load()? else { return Ok(Vec::new()) };
        let mut changed = Vec::new();
        for file in &kept.files {
            let Some(now) = read(&file.path)? else { continue };
            match &file.before {
                Some(before) if hash(&now) == file.after => write(&file.path, before)?,
                None if hash(&now) == file.after => {
                    let path = target(&file.path);
                    fs::remove_file(&path).map_err(|error| unusable(&path, error))?;
                }
                _ => write(&file.path, &strip(file, &now)?)?,
            }
            changed.push(file.path.clone());
        }
        fs::remove_file(&self.record).map_err(|error| unusable(&self.record, error))?;
        Ok(changed)
    }
}

fn hash(text: &str) -> String {
    canonical::sha256_hex(text.as_bytes())
}

/// A file's text; `None` where there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, error)),
    }
}

/// A link is followed: people keep these files elsewhere and link to them.
fn target(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Writes a file whole or not at all, with the permissions it had.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let path = target(path);
    let failed = |error: std::io::Error| unusable(&path, format!("it cannot be written: {error}"));
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    let mode = fs::metadata(&path).map_or(NEW_FILE_MODE, |metadata| metadata.permissions().mode());
    let staged = folder.join(format!(".toolyard-{}", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create(&staged)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&staged, &path)
    })();
    if written.is_err() && staged.exists() {
        fs::remove_file(&staged).map_err(failed)?;
    }
    written.map_err(failed)
}
