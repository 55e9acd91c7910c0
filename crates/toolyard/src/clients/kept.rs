//! What a client's file held before Toolyard changed it, so that it can be put back byte for byte.

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
pub(crate) struct KeptFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its text before; absent where there was no file.
    pub(crate) before: Option<String>,
    /// SHA-256 of what was written.
    pub(crate) after: String,
}

/// The files that one installation changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Each of them.
    pub(crate) files: Vec<KeptFile>,
    /// Whether the installation also put the client's hooks in.
    #[serde(default)]
    pub(crate) hooks: bool,
}

/// Where it is kept: `clients/` in Toolyard's home, one file for each installation.
pub(crate) struct Keeper {
    record: PathBuf,
}

impl Keeper {
    /// The record of an installation, such as `claude-hooks`.
    pub(crate) fn new(home: &Path, name: &str) -> Self {
        Self { record: home.join("clients").join(format!("{name}.json")) }
    }

    /// The record's own file, which is the backup.
    pub(crate) fn path(&self) -> &Path {
        &self.record
    }

    /// What is kept, if this installation was made.
    pub(crate) fn load(&self) -> Result<Option<Kept>, Failure> {
        match fs::read_to_string(&self.record) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| unusable(&self.record, error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&self.record, error)),
        }
    }

    /// Changes a file: its text before is durable before the change. `before` is what the file would hold without us.
    pub(crate) fn change(&self, path: &Path, before: Option<String>, after: &str) -> Result<(), Failure> {
        let mut kept = self.load()?.unwrap_or_default();
        let now = read(path)?;
        let was_ours = |file: &KeptFile| now.as_deref().map(hash).as_deref() == Some(file.after.as_str());
        match kept.files.iter_mut().find(|file| file.path == path) {
            // Nobody changed it since: what is kept is still what was there before us.
            Some(file) if was_ours(file) => file.after = hash(after),
            Some(file) => *file = KeptFile { path: path.to_owned(), before, after: hash(after) },
            None => kept.files.push(KeptFile { path: path.to_owned(), before, after: hash(after) }),
        }
        self.save(&kept)?;
        write(path, after)
    }

    /// Notes that the installation also put the client's hooks in.
    pub(crate) fn mark_hooks(&self) -> Result<(), Failure> {
        self.save(&Kept { hooks: true, ..self.load()?.unwrap_or_default() })
    }

    fn save(&self, kept: &Kept) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(kept).map_err(|error| unusable(&self.record, error))?;
        write(&self.record, &text)
    }

    /// Puts every file back. One that somebody changed since keeps those changes: `strip` takes out what is ours.
    pub(crate) fn put_back(
        &self,
        strip: impl Fn(&KeptFile, &str) -> Result<String, Failure>,
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
