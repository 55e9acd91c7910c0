//! What is stored about installed plugins: source, whether enabled, grants. One small file, written as a whole.

use crate::settings::Grant;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io::Write, path::Path};
use toolyard_protocol::{ErrorCode, Failure};

/// The file, in the folder of plugins.
const FILE: &str = "installed.json";

/// One installed plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The source as it was typed.
    pub(crate) source: String,
    /// The plugin's folder within its place.
    pub(crate) root: String,
    pub(crate) version: String,
    pub(crate) installed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) enabled: Option<bool>,
    #[serde(default)]
    pub(crate) grant: Grant,
}

/// All installed plugins, by id.
pub(crate) type State = BTreeMap<String, Record>;

/// Reads it; nothing there means none.
pub(crate) fn read(folder: &Path) -> Result<State, Failure> {
    let file = folder.join(FILE);
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| {
            Failure::new(ErrorCode::StoreUnavailable, format!("{} cannot be read: {e}", file.display()))
                .suggest("Correct or remove the file; plugins can be installed again.")
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(State::new()),
        Err(e) => Err(Failure::new(ErrorCode::StoreUnavailable, format!("{}: {e}", file.display()))),
    }
}

/// Writes the file atomically.
pub(crate) fn write(folder: &Path, state: &State) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let staged = folder.join(format!(".{FILE}.{}", uuid::Uuid::new_v4().simple()));
        let mut file = std::fs::File::create(&staged)?;
        file.write_all(&serde_json::to_vec_pretty(state)?)?;
        file.sync_all()?;
        std::fs::rename(&staged, folder.join(FILE))
    };
    write().map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("{}: {e}", folder.join(FILE).display())))
}
