//! [`Origin`]: where a folder's content came from, stored in a file in the folder.

use crate::{
    error::Result,
    store::disk::{self, Durability},
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the file.
pub(crate) const FILE: &str = ".source.json";

/// How content was imported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The content was passed in the request.
    #[default]
    Data,
    /// From a URL.
    Url,
    /// From a Git repository.
    Git,
    /// From a local file or folder, or an upload.
    #[serde(other)]
    Local,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Url => "url",
            Self::Git => "git",
            Self::Local => "local",
        }
    }
}

/// The origin of content, and the metadata provided with it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub(crate) kind: Kind,
    /// The URL, the path or the name of the upload; empty for content passed in the request.
    pub(crate) uri: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) imported_at: Option<String>,
    /// Why it was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Instructions for its use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instruction: Option<String>,
    /// Tags of the folder; they apply to everything inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
}

impl Origin {
    /// Reads the origin of a folder, if it has one.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        Self::read_file(&folder.join(FILE))
    }

    pub(crate) fn read_file(file: &Path) -> Option<Self> {
        let text = disk::read_text(file).ok()?;
        serde_json::from_str(&text)
            .inspect_err(|error| tracing::warn!(%error, file = %file.display(), "the origin of content cannot be read"))
            .ok()
    }

    /// Stores the origin in a folder.
    pub(crate) fn write(&self, folder: &Path, keep: Durability) -> Result<()> {
        Ok(disk::write(&folder.join(FILE), &serde_json::to_vec(self)?, keep)?)
    }

    /// The tags of a folder.
    pub(crate) fn tags_at(folder: &Path) -> Vec<String> {
        Self::read(folder).map(|origin| origin.tags).unwrap_or_default()
    }
}
