//! The changes that a call made, as observed. Intended changes are not listed here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes that a tool observed itself make, in the shape of the specification's `effects`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Effects {
    /// Short kinds, for example `create-file` or `trash-file`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub side_effects_observed: Vec<String>,
    /// Files and folders that did not exist before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub created: Vec<Created>,
    /// Files whose content changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modified: Vec<Modified>,
    /// Files and folders that were removed from their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<Deleted>,
    /// Files and folders that moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
}

/// A file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
}

/// Always `file`: only files have content to modify.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    #[default]
    File,
}

/// A new file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Created {
    /// Vault-relative path, forward slashes.
    pub path: String,
    /// File or folder.
    pub kind: EntryKind,
}

/// A file whose content changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Modified {
    /// Vault-relative path, forward slashes.
    pub path: String,
    /// Always `file`.
    pub kind: FileKind,
    /// Content etag before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_etag: Option<String>,
    /// Content etag after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_etag: Option<String>,
}

/// A file or folder that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deleted {
    /// Vault-relative path, forward slashes.
    pub path: String,
    /// File or folder.
    pub kind: EntryKind,
    /// True when it was moved to the trash rather than removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trashed: Option<bool>,
}

/// A renamed or moved file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Renamed {
    /// Where it was.
    pub from: String,
    /// Where it is now.
    pub to: String,
}

impl Effects {
    /// True when nothing was observed.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    /// Appends everything another call observed; kinds are kept once each.
    pub fn merge(&mut self, other: &Effects) {
        for kind in &other.side_effects_observed {
            self.observe(kind);
        }
        self.created.extend(other.created.iter().cloned());
        self.modified.extend(other.modified.iter().cloned());
        self.deleted.extend(other.deleted.iter().cloned());
        self.renamed.extend(other.renamed.iter().cloned());
    }

    /// Notes a kind of side effect once.
    pub fn observe(&mut self, kind: &str) {
        if !self.side_effects_observed.iter().any(|k| k == kind) {
            self.side_effects_observed.push(kind.to_owned());
        }
    }

    /// Notes a created file or folder.
    pub fn created(&mut self, path: impl Into<String>, kind: EntryKind) {
        self.observe(match kind {
            EntryKind::File => "create-file",
            EntryKind::Folder => "create-folder",
        });
        self.created.push(Created { path: path.into(), kind });
    }

    /// Notes a modified file.
    pub fn modified(&mut self, path: impl Into<String>, before_etag: Option<String>, after_etag: Option<String>) {
        self.observe("modify-file");
        self.modified.push(Modified { path: path.into(), kind: FileKind::File, before_etag, after_etag });
    }

    /// Notes a deletion.
    pub fn deleted(&mut self, path: impl Into<String>, kind: EntryKind, trashed: bool) {
        self.observe(if trashed { "trash" } else { "delete" });
        self.deleted.push(Deleted { path: path.into(), kind, trashed: Some(trashed) });
    }

    /// Notes a move.
    pub fn renamed(&mut self, from: impl Into<String>, to: impl Into<String>) {
        self.observe("rename");
        self.renamed.push(Renamed { from: from.into(), to: to.into() });
    }
}
