//! File operations on places: list, stat, read, write, create, move, copy, remove.

use crate::{
    error::{ApiError, Code, Details, Result},
    find::library::Library,
    store::{
        account::Account,
        disk::{self, FolderEntry},
        layers::{self, ABSTRACT, Layers, OVERVIEW},
        memory::{self, Fields},
        origin::Origin,
        touched::touch,
        uri::{Identity, Kind, StorePath},
    },
};

/// Maximum size of a file written through the interface.
pub const MAX_WRITE_BYTES: usize = 16 << 20;
/// Maximum size of a file read as text.
pub const MAX_READ_BYTES: u64 = 64 << 20;

/// Options of a listing.
#[derive(Debug, Clone)]
pub struct Listing {
    /// List all nested entries, not only direct ones.
    pub recursive: bool,
    /// Maximum length of folder abstracts; `None`: no abstracts.
    pub abstracts: Option<usize>,
    /// Include hidden files.
    pub hidden: bool,
    /// Maximum number of entries.
    pub node_limit: usize,
    /// Number of entries to skip.
    pub offset: usize,
    /// Maximum depth.
    pub level_limit: usize,
}

impl Default for Listing {
    fn default() -> Self {
        Self {
            recursive: false,
            abstracts: Some(layers::MAX_ABSTRACT),
            hidden: false,
            node_limit: 1000,
            offset: 0,
            level_limit: usize::MAX,
        }
    }
}

/// Upper limit of the depth, regardless of the request.
const MAX_DEPTH: usize = 64;

/// The descriptions of a folder. They are built while nothing is removed, and kept only if nothing changed meanwhile.
pub(crate) fn layers_of(account: &Account, place: &StorePath) -> Result<Layers> {
    account.describing(place, || layers::of(account, place))
}

pub(crate) fn folder(account: &Account, place: &StorePath) -> Result<()> {
    match disk::look(&account.path(place))? {
        Some(found) if found.is_folder => Ok(()),
        _ => Err(ApiError::no_directory(&place.to_string())),
    }
}

/// A file or folder in a listing.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The URI.
    pub uri: String,
    /// The name.
    pub name: String,
    /// The path relative to the listed folder.
    pub path: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits of the file system.
    pub mode: u32,
    /// Time of the last change.
    pub modified: jiff::Timestamp,
    /// The abstract of a folder, if requested.
    pub abstract_: String,
}

/// Lists a folder, and tells whether there are more entries.
pub fn list(account: &Account, who: &Identity, place: &StorePath, how: &Listing) -> Result<(Vec<Entry>, bool)> {
    folder(account, place)?;
    let mut walk = Walk { account, who, how, left_out: how.offset, rows: Vec::new(), more: false };
    walk.folder(place, "", 1)?;
    Ok((walk.rows, walk.more))
}

struct Walk<'a> {
    account: &'a Account,
    who: &'a Identity,
    how: &'a Listing,
    left_out: usize,
    rows: Vec<Entry>,
    more: bool,
}

impl Walk<'_> {
    fn folder(&mut self, place: &StorePath, above: &str, depth: usize) -> Result<()> {
        for found in disk::list(&self.account.path(place))? {
            if self.more {
                return Ok(());
            }
            let child = place.child(&found.name);
            let own = place.is_root() && !crate::store::uri::SHOWN_SCOPES.contains(&found.name.as_str());
            if own || (found.is_hidden() && !self.how.hidden) || !child.visible_to(self.who) {
                continue;
            }
            let path = if above.is_empty() { found.name.clone() } else { format!("{above}/{}", found.name) };
            let is_folder = found.is_folder;
            self.row(&child, found, &path)?;
            if is_folder && self.how.recursive && depth < self.how.level_limit.min(MAX_DEPTH) {
                self.folder(&child, &path, depth + 1)?;
            }
        }
        Ok(())
    }

    fn row(&mut self, child: &StorePath, found: FolderEntry, path: &str) -> Result<()> {
        if self.left_out > 0 {
            self.left_out -= 1;
            return Ok(());
        }
        if self.rows.len() >= self.how.node_limit {
            self.more = true;
            return Ok(());
        }
        let abstract_ = match self.how.abstracts {
            Some(most) if found.is_folder => cut(&layers_of(self.account, child)?.abstract_, most),
            _ => String::new(),
        };
        self.rows.push(Entry {
            uri: child.to_string(),
            path: path.to_owned(),
            is_folder: found.is_folder,
            size: found.size,
            mode: found.mode,
            modified: found.modified,
            abstract_,
            name: found.name,
        });
        Ok(())
    }
}

/// Truncates a text to this many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most).collect() }
}

pub(crate) fn millis(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
pub(crate) fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Information about a file or folder.
#[derive(Debug, Clone)]
pub struct Stat {
    /// The URI.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits of the file system.
    pub mode: u32,
    /// Time of the last change.
    pub modified: jiff::Timestamp,
    /// Number of entries of a folder; `None` for a file.
    pub entries: Option<usize>,
}

/// Returns information about a file or folder.
pub fn stat(account: &Account, place: &StorePath) -> Result<Stat> {
    let path = account.path(place);
    let Some(found) = disk::look(&path)? else { return Err(ApiError::no_file(&place.to_string())) };
    Ok(Stat {
        uri: place.to_string(),
        name: place.name().to_owned(),
        size: found.size,
        mode: found.mode,
        modified: found.modified,
        entries: if found.is_folder { Some(disk::list(&path)?.len()) } else { None },
    })
}

/// Reads a file. Folder descriptions are built on demand.
pub fn read(account: &Account, place: &StorePath) -> Result<String> {
    let uri = place.to_string();
    if matches!(place.name(), ABSTRACT | OVERVIEW)
        && let Some(above) = place.parent()
        && disk::look(&account.path(&above))?.is_some_and(|found| found.is_folder)
    {
        layers_of(account, &above)?;
    }
    let path = account.path(place);
    match disk::look(&path)? {
        None => memory::profile(account, place)?.ok_or_else(|| ApiError::no_file(&uri)),
        Some(found) if found.is_folder => Err(not_a_file(&uri)),
        Some(found) if found.size > MAX_READ_BYTES => {
            Err(ApiError::new(Code::ResourceExhausted, format!("{uri} is longer than {MAX_READ_BYTES} bytes")))
        }
        Some(_) => Ok(Library::readable(place, &whole(account, place)?).to_owned()),
    }
}

/// A file as it is stored, with the metadata of a memory.
fn whole(account: &Account, place: &StorePath) -> Result<String> {
    match disk::read_text(&account.path(place)) {
        Ok(text) => Ok(text),
        // The file was removed between the lookup and the read.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(ApiError::no_file(&place.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// The text of a memory, and where it comes from. The checks are those of [`read`].
pub(crate) fn read_memory(account: &Account, place: &StorePath) -> Result<(String, Fields)> {
    let text = read(account, place)?;
    let is_file = disk::look(&account.path(place))?.is_some();
    let fields = if is_file { Fields::split(&whole(account, place)?).1 } else { Fields::default() };
    Ok((text, fields))
}

fn not_a_file(uri: &str) -> ApiError {
    ApiError::argument(format!("Directory URI is not readable as a file: {uri}. List it first, then read a file URI."))
        .with(mismatch(uri, "file", "directory"))
}

fn mismatch(uri: &str, expected: &'static str, actual: &'static str) -> Details {
    Details { resource: Some(uri.to_owned()), expected: Some(expected), actual: Some(actual), ..Details::default() }
}

/// `limit` lines from line `offset` on; a negative limit means all.
pub fn lines(text: &str, offset: usize, limit: i64) -> String {
    if offset == 0 && limit < 0 {
        return text.to_owned();
    }
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    text.split_inclusive('\n').skip(offset).take(most).collect()
}

/// A folder's abstract and overview.
pub fn described(account: &Account, place: &StorePath) -> Result<(String, String)> {
    match disk::look(&account.path(place))? {
        Some(found) if found.is_folder => {
            let layers = layers_of(account, place)?;
            Ok((layers.abstract_, layers.overview))
        }
        Some(_) => Err(ApiError::argument(format!("File URI has no abstract or overview: {place}")).with(mismatch(
            &place.to_string(),
            "directory",
            "file",
        ))),
        None => Err(ApiError::no_directory(&place.to_string())),
    }
}

/// How a write treats an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Replaces a file that must exist.
    Replace,
    /// Appends to a file that must exist.
    Append,
    /// Creates a file that must not exist.
    Create,
}

/// Writes a file and returns its new size in bytes.
pub fn write(account: &Account, place: &StorePath, content: &str, mode: Mode) -> Result<usize> {
    let uri = place.to_string();
    let Some(above) = place.parent().filter(|above| !place.is_fixed() && !above.is_root()) else {
        return Err(ApiError::argument(format!("{uri} is not a place for a file")));
    };
    if place.kind() == Kind::Session {
        return Err(ApiError::new(Code::PermissionDenied, format!("{uri} is written by sessions only")));
    }
    if place.name().starts_with('.') {
        return Err(ApiError::argument(format!("{uri}: names that begin with a dot are made by the store")));
    }
    if content.len() > MAX_WRITE_BYTES {
        return Err(ApiError::new(Code::ResourceExhausted, format!("content is longer than {MAX_WRITE_BYTES} bytes")));
    }
    let _remember = (place.kind() == Kind::Memory).then(|| account.remember(place.names().get(1).map_or("", |u| u)));
    let path = account.path(place);
    let there = disk::look(&path)?;
    if there.as_ref().is_some_and(|found| found.is_folder) {
        return Err(not_a_file(&uri));
    }
    let before = match (mode, &there) {
        (Mode::Create, Some(_)) => {
            return Err(ApiError::exists(&uri));
        }
        (Mode::Replace | Mode::Append, None) => return Err(ApiError::no_file(&uri)),
        (Mode::Create, None) => None,
        _ => Some(disk::read_text(&path)?),
    };
    let text = if place.kind() == Kind::Memory {
        let now = jiff::Timestamp::now().to_string();
        let (old, mut fields) = before.as_deref().map(Fields::split).unwrap_or_default();
        fields.category = place.category().unwrap_or_default().to_owned();
        if fields.created_at.is_empty() {
            fields.created_at.clone_from(&now);
        }
        fields.updated_at = now;
        let whole = if mode == Mode::Append { format!("{old}{content}") } else { content.to_owned() };
        fields.join(&whole)?
    } else if mode == Mode::Append {
        format!("{}{content}", before.unwrap_or_default())
    } else {
        content.to_owned()
    };
    if mode == Mode::Create {
        {
            let _held = account.change(&above);
            disk::make_folders(&account.path(&above))?;
            if !disk::create(&path, text.as_bytes())? {
                return Err(ApiError::exists(&uri));
            }
        }
        account.changed(place, Some(&text));
    } else {
        account.put(place, &text)?;
    }
    Ok(text.len())
}

/// Creates a folder. `about` describes its purpose.
pub fn mkdir(account: &Account, place: &StorePath, about: Option<&str>) -> Result<()> {
    let uri = place.to_string();
    let path = account.path(place);
    if place.kind() == Kind::Session || place.names().len() < 2 || place.name().starts_with('.') {
        return Err(ApiError::new(Code::PermissionDenied, format!("{uri} is not a place for a folder")));
    }
    if disk::look(&path)?.is_some() {
        return Err(ApiError::new(Code::AlreadyExists, format!("Directory already exists: {uri}")).about(uri));
    }
    {
        let _held = account.change(&place.parent().unwrap_or_else(|| place.clone()));
        disk::make_folders(&path)?;
        touch(&path);
        if let Some(about) = about {
            let note = Origin { description: Some(about.to_owned()), ..Origin::default() };
            note.write(&path, disk::Durability::Durable)?;
        }
    }
    layers::invalidate(account, place);
    account.library.outdated(&place.child("new"));
    Ok(())
}

/// Moves a file or folder.
pub fn mv(account: &Account, from: &StorePath, to: &StorePath) -> Result<()> {
    let (old, new) = (account.path(from), account.path(to));
    for place in [from, to] {
        if place.is_fixed() || place.kind() == Kind::Session || place.names().len() < 2 {
            return Err(ApiError::new(Code::PermissionDenied, format!("{place} cannot be moved")));
        }
    }
    if from.kind() != to.kind() {
        return Err(ApiError::argument(format!("{from} and {to} hold different kinds of content")));
    }
    if to.is_within(from) {
        return Err(ApiError::argument(format!("{to} lies inside {from}")));
    }
    {
        let _held = account.restructure();
        let Some(found) = disk::look(&old)? else { return Err(ApiError::no_file(&from.to_string())) };
        if disk::look(&new)?.is_some() {
            return Err(ApiError::exists(&to.to_string()));
        }
        let above = to.parent().unwrap_or_else(|| to.clone());
        disk::make_folders(&account.path(&above))?;
        layers::invalidate(account, from);
        layers::invalidate(account, to);
        disk::rename(&old, &new)?;
        for path in [&old, &new] {
            if let Some(folder) = path.parent() {
                disk::sync_folder(folder)?;
            }
        }
        if found.is_folder {
            // Descriptions contain the name of their folder, so those of a moved folder are deleted.
            drop_descriptions(&new)?;
        }
    }
    account.library.forget(from);
    learn_below(account, to)?;
    Ok(())
}

/// The result of a copy.
#[derive(Debug, Clone, Copy)]
pub struct CopyResult {
    /// Number of files.
    pub files: usize,
    /// Number of indexed files.
    pub indexed: usize,
}

/// Copies a file or folder to a new place, atomically.
pub fn cp(account: &Account, from: &StorePath, to: &StorePath, recursive: bool) -> Result<CopyResult> {
    let (old, new) = (account.path(from), account.path(to));
    for place in [from, to] {
        if place.is_fixed() || place.kind() == Kind::Session || place.names().len() < 2 || place.name().starts_with('.')
        {
            return Err(ApiError::new(Code::PermissionDenied, format!("{place} cannot be copied")));
        }
    }
    if from.kind() != to.kind() {
        return Err(ApiError::argument(format!("{from} and {to} hold different kinds of content")));
    }
    if to.is_within(from) || from.is_within(to) {
        return Err(ApiError::argument(format!("{to} and {from} lie inside each other")));
    }
    let Some(found) = disk::look(&old)? else { return Err(ApiError::no_file(&from.to_string())) };
    if found.is_folder && !recursive {
        return Err(ApiError::argument("Cannot copy directory without --recursive").about(from.to_string()));
    }
    folder(account, &to.parent().unwrap_or_else(|| to.clone()))?;
    let staged = account.staging()?;
    let mut count = 0;
    let copied = if found.is_folder {
        copy_below(&old, &staged, &mut count).and_then(|()| Ok(disk::sync_staged(&staged, count)?))
    } else {
        count = 1;
        toolyard_faults::copy(&old, &staged.join("file"))
            .and_then(|_| disk::sync_staged(&staged, 1))
            .map_err(ApiError::from)
    };
    let placed = copied.and_then(|()| {
        let _held = account.restructure();
        if disk::look(&new)?.is_some() {
            return Err(ApiError::exists(&to.to_string()));
        }
        layers::invalidate(account, to);
        disk::rename(&if found.is_folder { staged.clone() } else { staged.join("file") }, &new)?;
        Ok(new.parent().map_or(Ok(()), disk::sync_folder)?)
    });
    disk::discard(&staged);
    placed?;
    Ok(CopyResult { files: count, indexed: learn_below(account, to)? })
}

fn copy_below(from: &std::path::Path, to: &std::path::Path, count: &mut usize) -> Result<()> {
    for found in disk::list(from)? {
        let (source, target) = (from.join(&found.name), to.join(&found.name));
        if found.is_folder {
            std::fs::create_dir(&target)?;
            copy_below(&source, &target, count)?;
        } else if !matches!(found.name.as_str(), ABSTRACT | OVERVIEW) {
            // Descriptions contain the name of their folder, so they are not copied; those of the copy are built on
            // demand.
            toolyard_faults::copy(&source, &target)?;
            *count += usize::from(!found.is_hidden());
        }
    }
    Ok(())
}

fn drop_descriptions(path: &std::path::Path) -> Result<()> {
    for name in [ABSTRACT, OVERVIEW] {
        match std::fs::remove_file(path.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    for found in disk::list(path)?.iter().filter(|found| found.is_folder) {
        drop_descriptions(&path.join(&found.name))?;
    }
    Ok(())
}

/// Indexes a file, or everything inside a folder.
pub(crate) fn learn_below(account: &Account, place: &StorePath) -> Result<usize> {
    let mut files = Vec::new();
    collect(account, place, &mut files)?;
    let count = files.len();
    account.library.learn_all(files);
    account.library.outdated(&place.child("new"));
    Ok(count)
}

fn collect(account: &Account, place: &StorePath, files: &mut Vec<(StorePath, String)>) -> Result<()> {
    let path = account.path(place);
    match disk::look(&path)? {
        Some(found) if found.is_folder => {
            let labels = Origin::tags_at(&path);
            if !labels.is_empty() {
                account.library.label(place, labels);
            }
            for found in disk::list(&path)? {
                if !found.is_hidden() {
                    collect(account, &place.child(&found.name), files)?;
                }
            }
        }
        Some(_) => files.push((place.clone(), disk::read_text(&path)?)),
        None => {}
    }
    Ok(())
}

/// Removes a file, or a folder with its content, and returns the number of files.
pub fn remove(account: &Account, place: &StorePath, recursive: bool) -> Result<usize> {
    if place.is_fixed() {
        let error = ApiError::new(Code::PermissionDenied, format!("{place} cannot be removed"));
        return Err(error.about(place.to_string()));
    }
    let _remember = (place.kind() == Kind::Memory).then(|| account.remember(place.names().get(1).map_or("", |u| u)));
    let path = account.path(place);
    let count = match disk::look(&path)? {
        None => return Ok(0),
        Some(found) if found.is_folder && !recursive => {
            let error = ApiError::argument("Cannot remove directory without --recursive");
            return Err(error.about(place.to_string()));
        }
        Some(found) if found.is_folder => count_files(&path)?,
        Some(_) => 1,
    };
    match account.take_away(place) {
        // Another request removed it first.
        Err(_) if disk::look(&path)?.is_none() => Ok(0),
        done => done.map(|()| count),
    }
}

fn count_files(path: &std::path::Path) -> Result<usize> {
    let mut count = 0;
    for found in disk::list(path)? {
        count += if found.is_folder { count_files(&path.join(&found.name))? } else { usize::from(!found.is_hidden()) };
    }
    Ok(count)
}
