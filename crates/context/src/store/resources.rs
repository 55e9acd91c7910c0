//! Bringing documents in: an upload, a path on this machine or an address becomes a folder of readable files, staged,
//! synced together and moved in as a whole, then described and indexed.

use crate::{
    error::{ApiError, Code, Result},
    service::ContextStore,
    sessions::{self, NewMessage, archive::Retain},
    store::{
        account::{Account, lock},
        disk::{self, Keep},
        fs, layers,
        parse::{self, Parsed, Source},
        uri::{Identity, Kind, Place},
    },
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Uploads that wait to be imported, for each account; the oldest go first.
const MAX_UPLOADS: usize = 1000;
/// Where it is noted what a folder was brought in from.
pub(crate) const SOURCE: &str = ".source.json";
/// Labels of one resource, and characters of a label.
const MAX_TAGS: usize = 64;
const MAX_TAG_CHARS: usize = 128;
/// The session that remembers why things were brought in.
const REASONS: &str = "__openviking_resource_reason__";

/// What is to be brought in.
#[derive(Debug, Clone, Default)]
pub struct NewResource {
    /// An address, or a path on this machine where that is allowed.
    pub path: Option<String>,
    /// An upload.
    pub upload: Option<String>,
    /// What the upload was called.
    pub source_name: Option<String>,
    /// Exactly here,
    pub to: Option<String>,
    /// or below here.
    pub parent: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// What is to be kept in mind; kept with the source.
    pub instruction: Option<String>,
    /// Whether a file that cannot be read fails the whole.
    pub strict: bool,
    /// Only these files, by glob.
    pub include: Vec<String>,
    /// Not these files.
    pub exclude: Vec<String>,
    /// Not these folders.
    pub ignore_dirs: Vec<String>,
    /// Labels, by which it can be searched.
    pub tags: Vec<String>,
    /// What becomes of labels that it has already.
    pub tag_mode: TagMode,
    /// Whether `parent` must be there already.
    pub parent_exists: bool,
    /// Looked at again every so many minutes,
    pub watch_minutes: Option<f64>,
    /// but not before somebody says so.
    pub watch_paused: bool,
    /// Whether abstracts and overviews are made at once.
    pub describe: bool,
    /// Whether `path` may be a path on this machine.
    pub host_paths: bool,
    /// Ends it before it is done.
    pub cancel: CancellationToken,
}

/// The labels of a folder that was brought in.
pub(crate) fn labels_at(folder: &Path) -> Vec<String> {
    let noted = disk::read_text(&folder.join(SOURCE)).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let labels = noted.as_ref().and_then(|noted| noted["tags"].as_array());
    labels.into_iter().flatten().filter_map(|label| label.as_str().map(str::to_owned)).collect()
}

/// What becomes of labels that a folder has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TagMode {
    /// They give way to new ones, if there are any.
    #[default]
    Replace,
    /// They stay, but for those whose key a new one has.
    Append,
    /// They go.
    Clear,
}

impl TagMode {
    fn apply(self, had: Vec<String>, new: &[String]) -> Vec<String> {
        let key = |tag: &str| tag.split_once('=').map(|(key, _)| key.trim().to_owned());
        let mut tags = match self {
            Self::Clear => return Vec::new(),
            Self::Replace if !new.is_empty() => Vec::new(),
            Self::Replace => return had,
            Self::Append => had,
        };
        for tag in new.iter().map(|tag| tag.trim()) {
            tags.retain(|known| known != tag && (key(tag).is_none() || key(known) != key(tag)));
            tags.push(tag.to_owned());
        }
        tags
    }
}

/// Puts labels on a folder of resources.
pub(crate) fn set_tags(account: &Account, place: &Place, tags: &[String], mode: TagMode) -> Result<Value> {
    check_tags(tags)?;
    fs::folder(account, place)?;
    if place.kind() != Kind::Resource || place.is_fixed() {
        return Err(ApiError::argument(format!("{place} is no folder of a resource; only those have tags")));
    }
    let path = account.path(place);
    let labels = {
        let _held = account.change(place);
        let noted = disk::read_text(&path.join(SOURCE)).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let mut noted = noted.filter(Value::is_object).unwrap_or_else(|| json!({"kind": "data", "uri": ""}));
        let labels = mode.apply(labels_at(&path), tags);
        noted["tags"] = labels.clone().into();
        disk::write(&path.join(SOURCE), noted.to_string().as_bytes(), Keep::Durable)?;
        labels
    };
    account.library.label(place, labels.clone());
    let uri = place.to_string();
    Ok(json!({
        "uri": uri, "updated_uris": [uri], "root_uri": uri, "context_type": "resource", "tags": labels,
        "mode": match mode { TagMode::Replace => "replace", TagMode::Append => "append", TagMode::Clear => "clear" },
        "success_count": 1, "skipped_count": 0, "failed_count": 0, "tags_updated": true,
    }))
}

fn check_tags(tags: &[String]) -> Result<()> {
    let bad = |tag: &String| tag.trim().is_empty() || tag.chars().count() > MAX_TAG_CHARS;
    if tags.len() > MAX_TAGS || tags.iter().any(bad) {
        return Err(ApiError::argument(format!("tags: at most {MAX_TAGS}, of 1 to {MAX_TAG_CHARS} characters each")));
    }
    Ok(())
}

/// Keeps an upload until it is imported.
pub(crate) fn keep_upload(account: &Account, name: &str, bytes: &[u8]) -> Result<String> {
    let folder = account.folder.join("_uploads");
    let mut waiting = disk::list(&folder)?;
    waiting.sort_by_key(|found| found.modified);
    let mut names = lock(&account.upload_names);
    for old in waiting.iter().take((waiting.len() + 1).saturating_sub(MAX_UPLOADS)) {
        disk::discard(&folder.join(&old.name));
        names.remove(&old.name);
    }
    let extension =
        name.rsplit_once('.').map(|(_, e)| e).filter(|e| e.len() <= 10 && e.chars().all(char::is_alphanumeric));
    let extension = extension.map(|e| format!(".{}", e.to_lowercase())).unwrap_or_default();
    let id = format!("upload_{}{extension}", uuid::Uuid::new_v4().simple());
    disk::write(&folder.join(&id), bytes, Keep::Derived)?;
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    if !name.is_empty() {
        names.insert(id.clone(), fs::cut(name, 255));
    }
    Ok(id)
}

/// An upload is not needed any more.
fn discard_upload(account: &Account, id: &str) {
    disk::discard(&account.folder.join("_uploads").join(id));
    lock(&account.upload_names).remove(id);
}

fn upload_path(account: &Account, id: &str) -> Result<PathBuf> {
    let missing = || ApiError::argument(format!("Temporary upload not found: {}", fs::cut(id, 80)));
    let fits = id.starts_with("upload_") && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    let path = account.folder.join("_uploads").join(id);
    if fits && disk::look(&path)?.is_some() { Ok(path) } else { Err(missing()) }
}

/// Does something with an upload; afterwards it is gone.
pub(crate) fn with_upload<T>(account: &Account, id: &str, use_it: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let used = look_into_upload(account, id, use_it);
    if used.is_ok() {
        discard_upload(account, id);
    }
    used
}

/// Does something with an upload, which stays. A zip is unpacked first.
pub(crate) fn look_into_upload<T>(account: &Account, id: &str, use_it: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let path = upload_path(account, id)?;
    if id.ends_with(".zip") {
        let staged = account.staging()?;
        let used = parse::unzip(&path, &staged).and_then(|()| use_it(&staged));
        disk::discard(&staged);
        used
    } else {
        use_it(&path)
    }
}

/// The prefixes of addresses that are fetched.
pub(crate) const REMOTE: [&str; 5] = ["http://", "https://", "git@", "ssh://", "git://"];

pub(crate) fn is_remote(path: &str) -> bool {
    REMOTE.iter().any(|prefix| path.starts_with(prefix))
}

impl ContextStore {
    /// Brings a resource in. When this returns, it is durable, described and indexed.
    pub fn import(self: &Arc<Self>, account: &Account, who: &Identity, new: &NewResource) -> Result<Value> {
        if new.to.is_some() && new.parent.is_some() {
            return Err(ApiError::argument("Cannot specify both 'to' and 'parent' at the same time."));
        }
        check_tags(&new.tags)?;
        if let Some(parent) = new.parent.as_ref().filter(|_| new.parent_exists) {
            fs::folder(account, &Place::parse(parent, who)?)?;
        }
        let started = Instant::now();
        let (source, told, kind, uri) = match (&new.path, &new.upload) {
            (_, Some(id)) => {
                let path = upload_path(account, id)?;
                let sent_as = || lock(&account.upload_names).get(id).cloned();
                let name = new.source_name.clone().or_else(sent_as).unwrap_or_else(|| id.clone());
                (Source::Upload { path, name: name.clone() }, name.clone(), "local", name)
            }
            (Some(path), None) if is_remote(path) => (Source::Remote(path.clone()), path.clone(), "url", path.clone()),
            (Some(path), None) if new.host_paths => {
                let local = PathBuf::from(path);
                let name = local.file_name().and_then(|n| n.to_str()).unwrap_or("resource").to_owned();
                (Source::Local(local), name, "local", path.clone())
            }
            (Some(path), None) => {
                return Err(ApiError::new(
                    Code::PermissionDenied,
                    format!(
                        "HTTP server does not accept host paths ({}); upload the file with temp_upload instead.",
                        fs::cut(path, 200)
                    ),
                ));
            }
            (None, None) => return Err(ApiError::argument("Either 'path' or 'temp_file_id' must be provided")),
        };
        let wanted = parse::Wanted {
            include: &new.include,
            exclude: &new.exclude,
            ignore: &new.ignore_dirs,
            hosts: &self.importer.allowed_hosts,
        };
        let parsed = parse::parse(&source, &wanted, &new.cancel)?;
        if parsed.files.is_empty() || (new.strict && !parsed.failed.is_empty()) {
            let why = parsed.failed.first().map_or_else(
                || format!("{told} holds nothing that can be read as text"),
                |(path, why)| format!("{path} cannot be read: {why}"),
            );
            return Err(ApiError::new(Code::ProcessingError, why));
        }
        let (root, files) = self.install(account, who, new, &parsed, kind, &uri)?;
        if let Some(id) = &new.upload {
            discard_upload(account, id);
        }
        let folders = if new.describe { describe_below(account, &root)? } else { 0 };
        let mut told = self.imported(new, &parsed, &root, &told, (files, folders), started, &who.user);
        if let Some(reason) = new.reason.as_ref().filter(|r| !r.trim().is_empty()) {
            told["memory_linking"] = self.remember_reason(account, who, &root, reason)?;
        }
        if let (Some(minutes), Some(path)) = (new.watch_minutes, &new.path) {
            told["watch"] = self.keep_watch(account, who, new, path, &root, minutes)?;
        }
        Ok(told)
    }

    fn install(
        &self,
        account: &Account,
        who: &Identity,
        new: &NewResource,
        parsed: &Parsed,
        kind: &str,
        uri: &str,
    ) -> Result<(Place, usize)> {
        let shared = Place::parse("viking://resources", who)?;
        let named = |base: &Place| base.child(&parsed.name);
        let target = match (&new.to, &new.parent) {
            (Some(to), _) => Place::parse(to, who)?,
            (None, Some(parent)) => named(&Place::parse(parent, who)?),
            (None, None) => named(&shared),
        };
        if target.kind() != Kind::Resource || target.is_fixed() || target.names().first().is_some_and(|n| n == "agent")
        {
            return Err(ApiError::argument(format!(
                "Resources belong below viking://resources or viking://~/resources, not at {target}"
            )));
        }
        let staged = account.staging()?;
        let before = if new.to.is_some() { target.clone() } else { free_place(account, target.clone(), uri)? };
        let tags = new.tag_mode.apply(labels_at(&account.path(&before)), &new.tags);
        let source = json!({
            "kind": kind, "uri": uri, "imported_at": Timestamp::now().to_string(), "reason": new.reason,
            "instruction": new.instruction, "tags": tags,
        });
        let written = (|| {
            disk::write(&staged.join(SOURCE), source.to_string().as_bytes(), Keep::Derived)?;
            for (path, text) in &parsed.files {
                let file = staged.join(path);
                if let Some(folder) = file.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                std::fs::write(file, text)?;
            }
            disk::sync_staged(&staged, parsed.files.len())
        })();
        if let Err(error) = written {
            disk::discard(&staged);
            return Err(error.into());
        }
        let place;
        {
            let _held = account.restructure();
            place = if new.to.is_some() { target } else { free_place(account, target, uri)? };
            layers::invalidate(account, &place);
            let old = disk::install(&staged, &account.path(&place));
            if let Some(old) = old.inspect_err(|_| disk::discard(&staged))? {
                disk::discard(&old);
            }
        }
        account.library.forget(&place);
        let files: Vec<(Place, String)> =
            parsed.files.iter().map(|(path, text)| (place.below(path), text.clone())).collect();
        let count = files.len();
        account.library.learn_all(files);
        account.library.label(&place, tags);
        account.library.outdated(&place.child("new"));
        Ok((place, count))
    }

    #[allow(clippy::too_many_arguments)] // the parts of one answer
    fn imported(
        &self,
        new: &NewResource,
        parsed: &Parsed,
        root: &Place,
        source: &str,
        (files, folders): (usize, usize),
        started: Instant,
        user: &str,
    ) -> Value {
        let ms = (started.elapsed().as_secs_f64() * 1e6).round() / 1000.0;
        let tokens: u64 = parsed.files.iter().map(|(_, text)| sessions::tokens(text).ceil() as u64).sum();
        let usage = json!({"tokens": {"total": tokens, "embedding": {"total": tokens}, "stages": {"embed_resource": {"embedding": {"total": tokens}}}}});
        let stamp = Timestamp::now().strftime("%m%d%H%M").to_string();
        let meta = if parsed.is_folder {
            json!({
                "file_count": parsed.processed.len(), "dir_name": source, "total_processable": parsed.processed.len() + parsed.failed.len(),
                "processed_files": parsed.processed.iter().map(|(path, parser)| json!({"path": path, "parser": parser})).collect::<Vec<_>>(),
                "failed_files": parsed.failed.iter().map(|(path, why)| json!({"path": path, "error": why})).collect::<Vec<_>>(),
                "unsupported_files": parsed.unsupported, "skipped_files": parsed.skipped,
            })
        } else {
            json!({})
        };
        let contexts = files + 2 * folders;
        let errors: Vec<String> = parsed.failed.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        let mut told = json!({
            "status": "success", "errors": errors, "source_path": source, "meta": meta, "root_uri": root.to_string(),
            "temp_uri": format!("viking://temp/{user}/{stamp}_{}/{}", crate::find::trace::base36(6), parsed.name),
            "queue_status": fs::queue_status(folders, contexts), "context_count": contexts,
            "telemetry": {"id": format!("tm_{}", uuid::Uuid::new_v4().simple()), "summary": {
                "operation": "add_resource_job", "status": "ok", "duration_ms": ms,
                "resource": {"total": {"duration_ms": ms}, "flags": {
                    "wait": false, "build_index": true, "summarize": new.describe, "watch_enabled": new.watch_minutes.is_some(),
                }},
            }},
        });
        if !parsed.is_folder {
            told["usage"] = usage;
        }
        if !parsed.warnings.is_empty() {
            told["warnings"] = parsed.warnings.clone().into();
        }
        told
    }

    /// Why something was brought in is remembered as if the user had said it.
    fn remember_reason(
        self: &Arc<Self>,
        account: &Account,
        who: &Identity,
        root: &Place,
        reason: &str,
    ) -> Result<Value> {
        let text = format!("{root} was added. Reason: {reason}");
        let message = NewMessage {
            role: "user".to_owned(),
            parts: vec![json!({"type": "text", "text": text})],
            ..NewMessage::default()
        };
        sessions::add_message(account, who, REASONS, &message)?;
        let committed = self.commit(who, REASONS, Retain::default(), false)?;
        Ok(json!({
            "status": committed["status"], "session_id": REASONS, "commit_task_id": committed["task_id"],
            "archive_uri": committed["archive_uri"],
        }))
    }
}

/// A place that is free, or holds what came from the same source before.
fn free_place(account: &Account, target: Place, uri: &str) -> Result<Place> {
    let above = target.parent().unwrap_or_else(|| target.clone());
    for n in 0..10_000 {
        let place = if n == 0 { target.clone() } else { above.child(&format!("{}_{n}", target.name())) };
        let path = account.path(&place);
        if disk::look(&path)?.is_none() {
            return Ok(place);
        }
        let source = disk::read_text(&path.join(SOURCE)).unwrap_or_default();
        let source: Value = serde_json::from_str(&source).unwrap_or_default();
        if source["uri"] == uri {
            return Ok(place);
        }
    }
    Err(ApiError::new(Code::AlreadyExists, format!("{target} is taken")))
}

/// Makes the descriptions of a folder and of all below it. Gives how many folders there are.
fn describe_below(account: &Account, place: &Place) -> Result<usize> {
    let mut folders = 1;
    for found in disk::list(&account.path(place))?.into_iter().filter(|found| found.is_folder) {
        folders += describe_below(account, &place.child(&found.name))?;
    }
    fs::layers_of(account, place)?;
    Ok(folders)
}
