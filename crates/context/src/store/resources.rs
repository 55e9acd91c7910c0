//! Imports documents: an upload, a local path or a URL becomes a folder of readable files, which is staged, synced,
//! moved in atomically, described and indexed.

use crate::{
    error::{ApiError, Code, Result},
    service::{Commit, ContextStore},
    sessions::{self, NewMessage, archive::Retain},
    store::{
        account::{Account, lock},
        disk::{self, Durability},
        fs, layers,
        origin::{self, Origin},
        parse::{self, ConvertedSource, Source},
        uri::{Identity, Kind, StorePath},
        watches::Watch,
    },
};
use jiff::Timestamp;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// Maximum number of pending uploads per account; the oldest are dropped first.
const MAX_UPLOADS: usize = 1000;
/// Maximum number of resources with the same name, which are distinguished by a numeric suffix.
const MAX_NUMBERED: usize = 10_000;
/// Maximum number of tags of a resource.
const MAX_TAGS: usize = 64;
const MAX_TAG_CHARS: usize = 128;
/// The session that records the reasons of imports.
const REASONS: &str = "__openviking_resource_reason__";

/// An import request.
#[derive(Debug, Clone, Default)]
pub struct NewResource {
    /// A URL, or a local path where that is allowed.
    pub path: Option<String>,
    /// The id of an upload.
    pub upload: Option<String>,
    /// The original name of the upload.
    pub source_name: Option<String>,
    /// The exact target.
    pub to: Option<String>,
    /// The parent folder of the target.
    pub parent: Option<String>,
    /// The reason of the import.
    pub reason: Option<String>,
    /// Instructions for its use, stored with the origin.
    pub instruction: Option<String>,
    /// Whether a file that cannot be read fails the whole import.
    pub strict: bool,
    /// Only files that match these globs.
    pub include: Vec<String>,
    /// Skips files that match these globs.
    pub exclude: Vec<String>,
    /// Names of folders to skip.
    pub ignore_dirs: Vec<String>,
    /// Tags for searches.
    pub tags: Vec<String>,
    /// How existing tags are treated.
    pub tag_mode: TagMode,
    /// Whether `parent` must exist.
    pub parent_exists: bool,
    /// Import again at this interval, in minutes.
    pub watch_minutes: Option<f64>,
    /// Create the watch paused.
    pub watch_paused: bool,
    /// Whether a single file stays a file, `…/spec.md`, instead of becoming a folder that contains it.
    pub plain_file: bool,
    /// Whether abstracts and overviews are built at once.
    pub describe: bool,
    /// Whether `path` may be a local path.
    pub host_paths: bool,
    /// Cancels the import.
    pub cancel: CancellationToken,
}

/// How existing tags are treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TagMode {
    /// New tags replace existing ones, if there are any.
    #[default]
    Replace,
    /// Existing tags stay, except those with the same key as a new one.
    Append,
    /// Existing tags are removed.
    Clear,
}

impl TagMode {
    /// The name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Clear => "clear",
        }
    }

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

/// Sets the tags of a resource folder and returns the resulting tags.
pub(crate) fn set_tags(account: &Account, place: &StorePath, tags: &[String], mode: TagMode) -> Result<Vec<String>> {
    check_tags(tags)?;
    fs::folder(account, place)?;
    if place.kind() != Kind::Resource || place.is_fixed() {
        return Err(ApiError::argument(format!("{place} is no folder of a resource; only those have tags")));
    }
    let path = account.path(place);
    let labels = {
        let _held = account.change(place);
        let mut origin = Origin::read(&path).unwrap_or_default();
        origin.tags = mode.apply(origin.tags, tags);
        origin.write(&path, Durability::Durable)?;
        origin.tags
    };
    account.library.label(place, labels.clone());
    Ok(labels)
}

fn check_tags(tags: &[String]) -> Result<()> {
    let bad = |tag: &String| tag.trim().is_empty() || tag.chars().count() > MAX_TAG_CHARS;
    if tags.len() > MAX_TAGS || tags.iter().any(bad) {
        return Err(ApiError::argument(format!("tags: at most {MAX_TAGS}, of 1 to {MAX_TAG_CHARS} characters each")));
    }
    Ok(())
}

/// Stores an upload until it is imported.
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
    disk::write(&folder.join(&id), bytes, Durability::Derived)?;
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    if !name.is_empty() {
        names.insert(id.clone(), fs::cut(name, 255));
    }
    Ok(id)
}

/// Deletes an upload.
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

/// Uses an upload and deletes it on success.
pub(crate) fn with_upload<T>(account: &Account, id: &str, use_it: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let used = look_into_upload(account, id, use_it);
    if used.is_ok() {
        discard_upload(account, id);
    }
    used
}

/// Uses an upload and keeps it. A zip archive is unpacked first.
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

/// URI prefix of files that the gateway received.
pub(crate) const INBOUND: &str = "media://inbound/";

/// Prefixes that are not local paths: remote URLs, and files that the gateway received.
pub(crate) const NOT_HOST_PATHS: [&str; 6] = ["http://", "https://", "git@", "ssh://", "git://", INBOUND];

/// Prefixes of remote URLs.
pub(crate) const REMOTE: [&str; 5] = ["http://", "https://", "git@", "ssh://", "git://"];

pub(crate) fn is_remote(path: &str) -> bool {
    REMOTE.iter().any(|prefix| path.starts_with(prefix))
}

/// The result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The target.
    pub root: StorePath,
    /// The name of the source.
    pub source: String,
    /// The name of the resource.
    pub name: String,
    /// Whether the source is a folder or an archive.
    pub is_folder: bool,
    /// Converted source files and their parsers.
    pub processed: Vec<(String, String)>,
    /// Failed source files and the reasons.
    pub failed: Vec<(String, String)>,
    /// Source files of unsupported formats.
    pub unsupported: Vec<String>,
    /// Source files skipped by the options.
    pub skipped: Vec<String>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// Number of files written.
    pub files: usize,
    /// Number of folders described.
    pub folders: usize,
    /// Tokens of all files.
    pub tokens: u64,
    /// Duration of the import.
    pub took: Duration,
    /// The commit that records the reason.
    pub reason: Option<Commit>,
    /// The watch that repeats the import.
    pub watch: Option<Watch>,
}

/// A resolved source: its name, kind and URI.
struct ResolvedSource {
    source: Source,
    name: String,
    kind: origin::Kind,
    uri: String,
}

fn named(account: &Account, new: &NewResource) -> Result<ResolvedSource> {
    let (source, name, kind, uri) = match (&new.path, &new.upload) {
        (_, Some(id)) => {
            let path = upload_path(account, id)?;
            let sent_as = || lock(&account.upload_names).get(id).cloned();
            let name = new.source_name.clone().or_else(sent_as).unwrap_or_else(|| id.clone());
            (Source::Upload { path, name: name.clone() }, name.clone(), origin::Kind::Local, name)
        }
        (Some(path), None) if is_remote(path) => {
            (Source::Remote(path.clone()), path.clone(), origin::Kind::Url, path.clone())
        }
        (Some(path), None) if new.host_paths => {
            let local = PathBuf::from(path);
            let name = local.file_name().and_then(|n| n.to_str()).unwrap_or("resource").to_owned();
            (Source::Local(local), name, origin::Kind::Local, path.clone())
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
    Ok(ResolvedSource { source, name, kind, uri })
}

impl ContextStore {
    /// Imports a resource. When this returns, it is durable, described and indexed.
    pub fn import(self: &Arc<Self>, account: &Account, who: &Identity, new: &NewResource) -> Result<Imported> {
        if new.to.is_some() && new.parent.is_some() {
            return Err(ApiError::argument("Cannot specify both 'to' and 'parent' at the same time."));
        }
        check_tags(&new.tags)?;
        if let Some(parent) = new.parent.as_ref().filter(|_| new.parent_exists) {
            fs::folder(account, &StorePath::parse(parent, who)?)?;
        }
        let started = Instant::now();
        let named = named(account, new)?;
        let wanted = parse::ImportSelection {
            include: &new.include,
            exclude: &new.exclude,
            ignore: &new.ignore_dirs,
            hosts: &self.importer.allowed_hosts,
        };
        let parsed = parse::parse(&named.source, &wanted, &new.cancel)?;
        if parsed.files.is_empty() || (new.strict && !parsed.failed.is_empty()) {
            let why = parsed.failed.first().map_or_else(
                || format!("{} holds nothing that can be read as text", named.name),
                |(path, why)| format!("{path} cannot be read: {why}"),
            );
            return Err(ApiError::new(Code::ProcessingError, why));
        }
        let root = match single_file(account, who, new, &parsed)? {
            Some((place, text)) => install_file(account, new, place, text, &named)?,
            None => self.install(account, who, new, &parsed, &named)?,
        };
        if let Some(id) = &new.upload {
            discard_upload(account, id);
        }
        let folders = if new.describe { describe_below(account, &root)? } else { 0 };
        let reason = match new.reason.as_deref().filter(|reason| !reason.trim().is_empty()) {
            Some(reason) => Some(self.remember_reason(account, who, &root, reason)?),
            None => None,
        };
        let watch = match (new.watch_minutes, &new.path) {
            (Some(minutes), Some(path)) => Some(self.keep_watch(account, who, new, path, &root, minutes)?),
            _ => None,
        };
        Ok(Imported {
            root,
            source: named.name,
            files: parsed.files.len(),
            folders,
            tokens: parsed.files.iter().map(|(_, text)| sessions::tokens(text).ceil() as u64).sum(),
            took: started.elapsed(),
            name: parsed.name,
            is_folder: parsed.is_folder,
            processed: parsed.processed,
            failed: parsed.failed,
            unsupported: parsed.unsupported,
            skipped: parsed.skipped,
            warnings: parsed.warnings,
            reason,
            watch,
        })
    }

    fn install(
        &self,
        account: &Account,
        who: &Identity,
        new: &NewResource,
        parsed: &ConvertedSource,
        source: &ResolvedSource,
    ) -> Result<StorePath> {
        let uri = source.uri.as_str();
        let shared = StorePath::parse("viking://resources", who)?;
        let named = |base: &StorePath| base.child(&parsed.name);
        let target = match (&new.to, &new.parent) {
            (Some(to), _) => StorePath::parse(to, who)?,
            (None, Some(parent)) => named(&StorePath::parse(parent, who)?),
            (None, None) => named(&shared),
        };
        check_target(&target)?;
        let staged = account.staging()?;
        let before = if new.to.is_some() { target.clone() } else { free_place(account, target.clone(), uri)? };
        let tags = new.tag_mode.apply(Origin::tags_at(&account.path(&before)), &new.tags);
        let origin = origin_of(new, source, tags);
        let written = (|| -> Result<()> {
            origin.write(&staged, Durability::Derived)?;
            for (path, text) in &parsed.files {
                let file = staged.join(path);
                if let Some(folder) = file.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                toolyard_faults::write(&file, text)?;
            }
            Ok(disk::sync_staged(&staged, parsed.files.len())?)
        })();
        if let Err(error) = written {
            disk::discard(&staged);
            return Err(error);
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
        let files: Vec<(StorePath, String)> =
            parsed.files.iter().map(|(path, text)| (place.below(path), text.clone())).collect();
        account.library.learn_all(files);
        account.library.label(&place, origin.tags);
        account.library.outdated(&place.child("new"));
        Ok(place)
    }

    /// Stores the reason of an import as if the user had said it, so that memories are extracted from it.
    fn remember_reason(
        self: &Arc<Self>,
        account: &Account,
        who: &Identity,
        root: &StorePath,
        reason: &str,
    ) -> Result<Commit> {
        let message = NewMessage::said(format!("{root} was added. Reason: {reason}"));
        sessions::add_message(account, who, REASONS, &message)?;
        self.commit(who, REASONS, Retain::default(), false)
    }
}

fn check_target(target: &StorePath) -> Result<()> {
    if target.kind() == Kind::Resource && !target.is_fixed() && target.names().first().is_none_or(|n| n != "agent") {
        return Ok(());
    }
    Err(ApiError::argument(format!(
        "Resources belong below viking://resources or viking://~/resources, not at {target}"
    )))
}

fn origin_of(new: &NewResource, source: &ResolvedSource, tags: Vec<String>) -> Origin {
    Origin {
        kind: source.kind,
        uri: source.uri.clone(),
        imported_at: Some(Timestamp::now().to_string()),
        reason: new.reason.clone(),
        instruction: new.instruction.clone(),
        tags,
        ..Origin::default()
    }
}

/// The target and text of an import that stays a single file. An exact target means the file itself only if it has the
/// file's extension.
fn single_file<'a>(
    account: &Account,
    who: &Identity,
    new: &NewResource,
    parsed: &'a ConvertedSource,
) -> Result<Option<(StorePath, &'a str)>> {
    let [(name, text)] = parsed.files.as_slice() else { return Ok(None) };
    if !new.plain_file || parsed.is_folder || name.contains('/') {
        return Ok(None);
    }
    let extension = |name: &str| name.rsplit_once('.').map(|(_, extension)| extension.to_lowercase());
    let place = match (&new.to, &new.parent) {
        (Some(to), _) => StorePath::parse(to, who)?,
        (None, Some(parent)) => StorePath::parse(parent, who)?.child(name),
        (None, None) => StorePath::parse("viking://resources", who)?.child(name),
    };
    let is_folder = disk::look(&account.path(&place))?.is_some_and(|found| found.is_folder);
    Ok((!is_folder && extension(place.name()) == extension(name)).then_some((place, text)))
}

/// The file that stores the origin of a single file.
fn note_of(account: &Account, place: &StorePath) -> PathBuf {
    account.path(place).with_file_name(format!(".{}{}", place.name(), origin::FILE))
}

fn install_file(
    account: &Account,
    new: &NewResource,
    target: StorePath,
    text: &str,
    source: &ResolvedSource,
) -> Result<StorePath> {
    check_target(&target)?;
    let place = if new.to.is_some() { target } else { free_file(account, &target, &source.uri)? };
    let note = serde_json::to_vec(&origin_of(new, source, Vec::new()))?;
    account.put(&place, text)?;
    disk::write(&note_of(account, &place), &note, Durability::Durable)?;
    Ok(place)
}

/// A file that does not exist yet, or that was imported from the same source.
fn free_file(account: &Account, target: &StorePath, uri: &str) -> Result<StorePath> {
    let above = target.parent().unwrap_or_else(|| target.clone());
    let (stem, extension) = target.name().rsplit_once('.').unwrap_or((target.name(), ""));
    for n in 0..MAX_NUMBERED {
        let place = if n == 0 { target.clone() } else { above.child(&format!("{stem}_{n}.{extension}")) };
        let own = || Origin::read_file(&note_of(account, &place)).is_some_and(|origin| origin.uri == uri);
        if disk::look(&account.path(&place))?.is_none() || own() {
            return Ok(place);
        }
    }
    Err(ApiError::new(Code::AlreadyExists, format!("{target} is taken")))
}

/// A place that is free, or that was imported from the same source.
fn free_place(account: &Account, target: StorePath, uri: &str) -> Result<StorePath> {
    let above = target.parent().unwrap_or_else(|| target.clone());
    for n in 0..MAX_NUMBERED {
        let place = if n == 0 { target.clone() } else { above.child(&format!("{}_{n}", target.name())) };
        let path = account.path(&place);
        if disk::look(&path)?.is_none() {
            return Ok(place);
        }
        if Origin::read(&path).is_some_and(|origin| origin.uri == uri) {
            return Ok(place);
        }
    }
    Err(ApiError::new(Code::AlreadyExists, format!("{target} is taken")))
}

/// Builds the descriptions of a folder and all its subfolders, and returns the number of folders.
fn describe_below(account: &Account, place: &StorePath) -> Result<usize> {
    if disk::look(&account.path(place))?.is_some_and(|found| !found.is_folder) {
        return Ok(0);
    }
    let mut folders = 1;
    for found in disk::list(&account.path(place))?.into_iter().filter(|found| found.is_folder) {
        folders += describe_below(account, &place.child(&found.name))?;
    }
    fs::layers_of(account, place)?;
    Ok(folders)
}
