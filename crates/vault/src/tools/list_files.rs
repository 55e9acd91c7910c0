//! `vault.listFiles`: lists files and folders.

use super::{Args, Run, Tool, answer, parse, reads, schema::PathArg};
use crate::{
    error::{VaultResult, validation},
    path::VaultPath,
    view::{Purpose, StopCondition, View, parse_folder_prefix, walk},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use toolyard_engine::Output;
use toolyard_protocol::EntryKind;

/// Default number of entries in one answer.
const DEFAULT_LIMIT: u64 = 1000;
/// Maximum number of entries in one answer.
const MAX_LIMIT: u64 = 10_000;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// A folder to look in, or the beginning of a path. Left out or empty: the whole vault.
    #[serde(default)]
    prefix: Option<PathArg>,
    /// Also what is in subfolders (default false).
    #[serde(default)]
    recursive: Option<bool>,
    /// Only files with these extensions, for example ["md"]; folders are then left out.
    #[serde(default)]
    extensions: Option<Vec<String>>,
    /// At most this many entries (default 1000, at most 10000).
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<u64>,
    /// Skip this many entries: pass nextOffset of the answer before.
    #[serde(default)]
    offset: Option<u64>,
    /// Also give the etag of each file; reads every file.
    #[serde(default)]
    with_etags: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileEntry {
    path: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
    /// When it was created, where the file system knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    ctime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Folder,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    /// In the order of their paths, folder by folder.
    items: Vec<FileEntry>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    truncated: bool,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.listFiles",
    define: || {
        reads::<Input, Data>(
            "List files",
            "Lists files and folders of the vault. Hidden files and folders are left out.",
        )
    },
    run: Run::Read(run),
};

fn run(view: &dyn View, args: Args, stop: &StopCondition) -> VaultResult<Output> {
    let input: Input = parse(args)?;
    let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(validation(format!("limit is 1 to {MAX_LIMIT}")));
    }
    let offset = input.offset.unwrap_or(0);
    let prefix = input.prefix.as_ref().map_or("", |p| p.0.as_str());
    let (folder, beginning) = split_prefix(view, prefix)?;
    let extensions: Option<Vec<String>> =
        input.extensions.map(|list| list.iter().map(|e| e.trim_start_matches('.').to_lowercase()).collect());
    let mut page = Page { skip: offset, limit, items: Vec::new(), more: false };
    let wanted = |path: &VaultPath, kind: EntryKind| {
        let fits = beginning.as_deref().is_none_or(|b| path.as_str().starts_with(b));
        let extension_fits = extensions.as_ref().is_none_or(|list| {
            kind == EntryKind::File && path.extension().is_some_and(|e| list.contains(&e.to_lowercase()))
        });
        fits && extension_fits
    };
    if input.recursive == Some(true) {
        walk(view, folder.as_ref(), stop, &mut |path, kind| {
            Ok(if wanted(path, kind) { page.take(path, kind) } else { ControlFlow::Continue(()) })
        })?;
    } else {
        for entry in view.list(folder.as_ref(), crate::view::Listing::Visible)? {
            let Ok(path) = VaultPath::child(folder.as_ref(), &entry.name) else { continue };
            let kind = if entry.kind == crate::root::NodeKind::Folder { EntryKind::Folder } else { EntryKind::File };
            if wanted(&path, kind) && page.take(&path, kind).is_break() {
                break;
            }
        }
    }
    let mut items = Vec::with_capacity(page.items.len());
    for (path, kind) in &page.items {
        stop.check()?;
        // Gone since it was listed: it is not there.
        let Ok(Some(stat)) = view.stat(path, Purpose::Read) else { continue };
        let is_file = *kind == EntryKind::File;
        let etag = if is_file && input.with_etags == Some(true) { view.etag(path)? } else { None };
        items.push(FileEntry {
            path: path.to_string(),
            kind: if is_file { Kind::File } else { Kind::Folder },
            size_bytes: is_file.then_some(stat.size),
            mtime_ms: Some(stat.mtime_ms),
            mtime: Some(stat.mtime_ms),
            ctime_ms: stat.btime_ms,
            etag,
        });
    }
    let message = match items.len() {
        0 if !prefix.is_empty() => format!("Nothing begins with {prefix:?}"),
        n => format!("{n} entries{}", if page.more { ", and there are more" } else { "" }),
    };
    let next_offset = page.more.then_some(offset + limit);
    answer(&Data { items, next_offset, truncated: page.more }, message)
}

struct Page {
    skip: u64,
    limit: u64,
    items: Vec<(VaultPath, EntryKind)>,
    more: bool,
}

impl Page {
    fn take(&mut self, path: &VaultPath, kind: EntryKind) -> ControlFlow<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return ControlFlow::Continue(());
        }
        if self.items.len() as u64 == self.limit {
            self.more = true;
            return ControlFlow::Break(());
        }
        self.items.push((path.clone(), kind));
        ControlFlow::Continue(())
    }
}

/// The folder to list, and the prefix of paths if `prefix` is not itself a folder.
fn split_prefix(view: &dyn View, prefix: &str) -> VaultResult<(Option<VaultPath>, Option<String>)> {
    let Some(path) = parse_folder_prefix(prefix)? else { return Ok((None, None)) };
    match view.stat(&path, Purpose::Read)? {
        Some(stat) if stat.kind == EntryKind::Folder => Ok((Some(path), None)),
        _ => {
            let parent = path.parent();
            let has_parent = match &parent {
                Some(parent) => view.stat(parent, Purpose::Read)?.is_some_and(|s| s.kind == EntryKind::Folder),
                None => true,
            };
            if has_parent { Ok((parent, Some(path.to_string()))) } else { Err(crate::error::not_found(&path)) }
        }
    }
}
