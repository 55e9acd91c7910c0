//! Responses about files and folders.

use crate::{
    error::Result,
    store::{
        account::Account,
        fs::{self, Entry, Stat},
        memory::Fields,
        uri::{Kind, StorePath},
    },
    wire::compat::Compat,
};
use serde::Serialize;
use toolyard_recall::index::Role;

/// A row of `ls` and `tree`.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Row {
    /// `simple`: only the URI.
    Uri(String),
    /// `output=agent`.
    #[serde(rename_all = "camelCase")]
    Agent {
        uri: String,
        size: u64,
        is_dir: bool,
        mod_time: String,
        #[serde(rename = "rel_path", skip_serializing_if = "Option::is_none")]
        rel_path: Option<String>,
        #[serde(rename = "abstract")]
        abstract_: String,
    },
    /// `output=original`.
    #[serde(rename_all = "camelCase")]
    Original {
        name: String,
        size: u64,
        mode: u32,
        mod_time: String,
        is_dir: bool,
        #[serde(rename = "rel_path", skip_serializing_if = "Option::is_none")]
        rel_path: Option<String>,
        uri: String,
    },
}

/// The format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowStyle {
    Simple,
    Agent,
    Original,
}

impl Row {
    pub(crate) fn new(entry: Entry, style: RowStyle, with_path: bool) -> Self {
        let rel_path = with_path.then_some(entry.path);
        match style {
            RowStyle::Simple => Self::Uri(entry.uri),
            RowStyle::Agent => Self::Agent {
                uri: entry.uri,
                size: if entry.is_folder { 0 } else { entry.size },
                is_dir: entry.is_folder,
                mod_time: fs::millis(entry.modified),
                rel_path,
                abstract_: entry.abstract_,
            },
            RowStyle::Original => Self::Original {
                name: entry.name,
                size: entry.size,
                mode: entry.mode,
                mod_time: fs::seconds(entry.modified),
                is_dir: entry.is_folder,
                rel_path,
                uri: entry.uri,
            },
        }
    }
}

/// `GET /fs/stat`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatShape {
    name: String,
    size: u64,
    mode: u32,
    mod_time: String,
    is_dir: bool,
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    #[serde(flatten)]
    compat: Compat,
}

impl From<Stat> for StatShape {
    fn from(stat: Stat) -> Self {
        Self {
            is_dir: stat.entries.is_some(),
            name: stat.name,
            size: stat.size,
            mode: stat.mode,
            mod_time: fs::seconds(stat.modified),
            uri: stat.uri,
            count: stat.entries,
            compat: Compat::stat(),
        }
    }
}

/// `GET /content/memory`: a memory with its origin. No client of the other system asks for it.
#[derive(Serialize)]
pub(crate) struct MemoryShape {
    uri: String,
    text: String,
    category: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    speaker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    created_at: String,
    updated_at: String,
    stated: bool,
    mentions: u32,
}

impl MemoryShape {
    pub(crate) fn read(account: &Account, place: &StorePath) -> Result<Self> {
        let (text, fields) = fs::read_memory(account, place)?;
        let Fields { category, speaker, role, time, source, created_at, updated_at, stated, mentions, .. } = fields;
        let uri = place.to_string();
        Ok(Self { uri, text, category, speaker, role, time, source, created_at, updated_at, stated, mentions })
    }
}

/// `POST /content/write`.
#[derive(Serialize)]
pub(crate) struct WrittenShape {
    uri: String,
    root_uri: Option<String>,
    context_type: &'static str,
    mode: &'static str,
    written_bytes: usize,
    content_updated: bool,
    #[serde(flatten)]
    compat: Compat,
}

impl WrittenShape {
    pub(crate) fn new(place: &StorePath, mode: &'static str, written_bytes: usize) -> Self {
        Self {
            uri: place.to_string(),
            root_uri: place.parent().map(|above| above.to_string()),
            context_type: place.kind().as_str(),
            mode,
            written_bytes,
            content_updated: true,
            compat: Compat::written(),
        }
    }
}

/// `POST /fs/cp`.
#[derive(Serialize)]
pub(crate) struct CopiedShape {
    operation: &'static str,
    from: String,
    to: String,
    recursive: bool,
    phase: &'static str,
    files_created: usize,
    semantic_root_uri: Option<String>,
    #[serde(flatten)]
    compat: Compat,
}

impl CopiedShape {
    pub(crate) fn new(from: &StorePath, to: &StorePath, recursive: bool, copied: fs::CopyResult) -> Self {
        Self {
            operation: "copy",
            from: from.to_string(),
            to: to.to_string(),
            recursive,
            phase: "completed",
            files_created: copied.files,
            semantic_root_uri: to.parent().map(|above| above.to_string()),
            compat: Compat::copied(copied.indexed),
        }
    }
}

/// `POST /fs/attrs/set_tags`.
#[derive(Serialize)]
pub(crate) struct TaggedShape {
    uri: String,
    updated_uris: [String; 1],
    root_uri: String,
    context_type: &'static str,
    tags: Vec<String>,
    mode: &'static str,
    success_count: u64,
    skipped_count: u64,
    failed_count: u64,
    tags_updated: bool,
}

impl TaggedShape {
    pub(crate) fn new(place: &StorePath, tags: Vec<String>, mode: &'static str) -> Self {
        let uri = place.to_string();
        Self {
            updated_uris: [uri.clone()],
            root_uri: uri.clone(),
            uri,
            context_type: Kind::Resource.as_str(),
            tags,
            mode,
            success_count: 1,
            skipped_count: 0,
            failed_count: 0,
            tags_updated: true,
        }
    }
}

/// A removed resource.
#[derive(Serialize)]
pub(crate) struct RemovedShape {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root_uri: Option<String>,
    pub(crate) estimated_deleted_count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_id: Option<String>,
}
