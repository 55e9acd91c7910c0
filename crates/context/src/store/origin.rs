//! [`Origin`]: where a folder's content came from, noted in a file beside it.

use crate::{
    error::Result,
    store::disk::{self, Keep},
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name.
pub(crate) const FILE: &str = ".source.json";

/// How content came in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// It was handed over.
    #[default]
    Data,
    /// From an address.
    Url,
    /// From a Git repository.
    Git,
    /// From a file or folder of this machine, or an upload.
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

/// Where content came from, and what was said about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub(crate) kind: Kind,
    /// The address, the path or the name of the upload; empty for what was handed over.
    pub(crate) uri: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) imported_at: Option<String>,
    /// Why it was brought in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// What is to be kept in mind with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instruction: Option<String>,
    /// Labels of the folder, and so of everything below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
}

impl Origin {
    /// What is noted in a folder, if anything is.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        Self::read_file(&folder.join(FILE))
    }

    pub(crate) fn read_file(file: &Path) -> Option<Self> {
        let text = disk::read_text(file).ok()?;
        serde_json::from_str(&text)
            .inspect_err(|error| tracing::warn!(%error, file = %file.display(), "the origin of content cannot be read"))
            .ok()
    }

    /// Notes it in a folder.
    pub(crate) fn write(&self, folder: &Path, keep: Keep) -> Result<()> {
        Ok(disk::write(&folder.join(FILE), &serde_json::to_vec(self)?, keep)?)
    }

    /// The labels of a folder.
    pub(crate) fn tags_at(folder: &Path) -> Vec<String> {
        Self::read(folder).map(|origin| origin.tags).unwrap_or_default()
    }
}
