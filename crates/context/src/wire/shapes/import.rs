//! Responses about imports and skills.

use super::sessions::CommitShape;
use crate::{
    store::{
        fs,
        resources::Imported,
        skills::{About, Installed, SkillContent, SkillEntry},
        uri::{Identity, StorePath},
    },
    wire::compat::{Compat, Import},
};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
struct ProcessedFile {
    path: String,
    parser: String,
}

#[derive(Serialize, JsonSchema)]
struct FailedFile {
    path: String,
    error: String,
}

#[derive(Serialize, JsonSchema)]
struct FolderMeta {
    file_count: usize,
    dir_name: String,
    total_processable: usize,
    processed_files: Vec<ProcessedFile>,
    failed_files: Vec<FailedFile>,
    unsupported_files: Vec<String>,
    skipped_files: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum ImportMeta {
    Folder(FolderMeta),
    /// No metadata is reported for a single file.
    File {},
}

#[derive(Serialize, JsonSchema)]
struct MemoryLink {
    status: &'static str,
    session_id: String,
    commit_task_id: Option<String>,
    archive_uri: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct WatchLink {
    task_id: String,
    to_uri: String,
    interval_minutes: f64,
}

/// `POST /resources`.
#[derive(Serialize, JsonSchema)]
pub struct ImportShape {
    status: &'static str,
    errors: Vec<String>,
    source_path: String,
    meta: ImportMeta,
    root_uri: String,
    context_count: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_linking: Option<MemoryLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<WatchLink>,
    #[serde(flatten)]
    compat: Compat,
}

impl ImportShape {
    /// The response to an import.
    pub fn new(imported: Imported, who: &Identity) -> Self {
        let contexts = imported.files + 2 * imported.folders;
        let compat = Compat::import(&Import {
            user: &who.user,
            name: &imported.name,
            described: imported.folders,
            indexed: contexts,
            duration_ms: (imported.took.as_secs_f64() * 1e6).round() / 1000.0,
            watched: imported.watch.is_some(),
            tokens: (!imported.is_folder).then_some(imported.tokens),
        });
        let errors = imported.failed.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        let meta = if imported.is_folder {
            let processed = imported.processed.into_iter().map(|(path, parser)| ProcessedFile { path, parser });
            let processed_files: Vec<ProcessedFile> = processed.collect();
            let failed = imported.failed.into_iter().map(|(path, error)| FailedFile { path, error });
            let failed_files: Vec<FailedFile> = failed.collect();
            ImportMeta::Folder(FolderMeta {
                file_count: processed_files.len(),
                dir_name: imported.source.clone(),
                total_processable: processed_files.len() + failed_files.len(),
                processed_files,
                failed_files,
                unsupported_files: imported.unsupported,
                skipped_files: imported.skipped,
            })
        } else {
            ImportMeta::File {}
        };
        Self {
            status: "success",
            errors,
            source_path: imported.source,
            meta,
            root_uri: imported.root.to_string(),
            context_count: contexts,
            warnings: imported.warnings,
            memory_linking: imported.reason.map(|commit| {
                let shape = CommitShape::new(commit, false, false);
                MemoryLink {
                    status: shape.status,
                    session_id: shape.session_id,
                    commit_task_id: shape.task_id,
                    archive_uri: shape.archive_uri,
                }
            }),
            watch: imported.watch.map(|watch| WatchLink {
                task_id: watch.task_id,
                to_uri: watch.to_uri,
                interval_minutes: watch.interval_minutes,
            }),
            compat,
        }
    }
}

/// `POST /skills`.
#[derive(Serialize)]
pub(crate) struct InstalledShape {
    status: &'static str,
    root_uri: String,
    uri: String,
    name: String,
    auxiliary_files: usize,
    task_id: String,
    #[serde(flatten)]
    compat: Compat,
}

impl InstalledShape {
    pub(crate) fn new(skill: Installed, task_id: String) -> Self {
        Self {
            status: "success",
            root_uri: skill.uri.clone(),
            uri: skill.uri,
            name: skill.name,
            auxiliary_files: skill.auxiliary_files,
            task_id,
            compat: Compat::skill(skill.indexed),
        }
    }
}

/// The skills that an upload contains.
#[derive(Serialize)]
pub(crate) struct InspectedShape {
    pub(crate) skills: [About; 1],
    pub(crate) total: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedSkill {
    #[serde(flatten)]
    about: About,
    uri: String,
    mod_time: String,
}

/// `GET /skills`.
#[derive(Serialize)]
pub(crate) struct SkillsShape {
    root_uris: Vec<String>,
    skills: Vec<ListedSkill>,
    total: usize,
}

impl SkillsShape {
    pub(crate) fn new(roots: &[StorePath], skills: Vec<SkillEntry>) -> Self {
        Self {
            root_uris: roots.iter().map(StorePath::to_string).collect(),
            total: skills.len(),
            skills: skills
                .into_iter()
                .map(|skill| ListedSkill { about: skill.about, uri: skill.uri, mod_time: fs::millis(skill.modified) })
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct SkillFile {
    path: String,
    uri: String,
    is_dir: bool,
    kind: &'static str,
    name: String,
}

/// `GET /skills/{name}`.
#[derive(Serialize)]
pub(crate) struct SkillShape {
    #[serde(flatten)]
    about: About,
    #[serde(rename = "type")]
    kind: &'static str,
    uri: String,
    root_uri: String,
    skill_md_uri: String,
    #[serde(rename = "abstract")]
    abstract_: String,
    overview: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<SkillFile>>,
}

impl SkillShape {
    pub(crate) fn new(skill: SkillContent, with_content: bool, with_files: bool) -> Self {
        let files = skill.files.into_iter().map(|(name, is_dir)| SkillFile {
            path: name.clone(),
            uri: skill.place.child(&name).to_string(),
            is_dir,
            kind: match name.as_str() {
                _ if is_dir => "directory",
                "SKILL.md" => "definition",
                name if name.starts_with('.') => "summary",
                _ => "auxiliary",
            },
            name,
        });
        Self {
            about: skill.about,
            kind: "skill",
            uri: skill.place.to_string(),
            root_uri: skill.place.to_string(),
            skill_md_uri: skill.place.child("SKILL.md").to_string(),
            abstract_: skill.abstract_,
            overview: skill.overview,
            content_sha256: with_content.then(|| toolyard_protocol::canonical::sha256_hex(skill.text.as_bytes())),
            content: with_content.then_some(skill.text),
            files: with_files.then(|| files.collect()),
        }
    }
}
