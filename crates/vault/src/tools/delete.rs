//! `vault.delete`: moves to the trash, or deletes permanently if the arguments say so.

use super::{
    Args, PlanContext, Run, Tool, parse,
    schema::PathArg,
    support::{check_etag, trash},
    to_map, writes,
};
use crate::{
    change::{Change, DeletedContent, WritePlan},
    error::{VaultResult, not_found, validation},
    locks::LockScope,
    path::VaultPath,
    root::NodeKind,
    view::{Listing, MAX_FILE_BYTES, Purpose, Stat, View, missing},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

/// Maximum amount of permanently deleted content that one call keeps for undo.
const MAX_KEPT_BYTES: u64 = MAX_FILE_BYTES;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The file or folder.
    path: PathArg,
    /// Move it to the vault's trash (default true); false deletes it permanently. An empty folder is just removed.
    #[serde(default)]
    trash: Option<bool>,
    /// Fail when it does not exist (default true).
    #[serde(default)]
    require_exists: Option<bool>,
    /// Delete a folder with everything in it.
    #[serde(default)]
    recursive: Option<bool>,
    /// Leave a folder that is not empty alone, without an error.
    #[serde(default)]
    if_empty: Option<bool>,
    /// The etag the file must have now. Not for folders.
    #[serde(default)]
    expected_etag: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    path: String,
    deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trashed: Option<bool>,
    /// Where it is now; vault.restoreFile brings it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    trash_path: Option<String>,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.delete",
    define: || {
        writes::<Input, Data>(
            "Delete",
            "Moves a file to the vault's trash, or removes it for good with trash: false. A folder that is not empty \
             needs recursive: true.",
            &["trash", "delete"],
        )
        .permissions(&["vault:write", "vault:delete"])
    },
    run: Run::Write { scope, plan },
};

/// A folder takes everything below it along; whether the path is one is only known once it is locked.
fn scope(args: Args) -> VaultResult<LockScope> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    Ok(if input.recursive == Some(true) { LockScope::Vault } else { LockScope::Paths(vec![path]) })
}

fn plan(context: &PlanContext<'_>, args: Args) -> VaultResult<WritePlan> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    let view = context.view;
    let to_trash = input.trash.unwrap_or(true);
    let Some(stat) = view.stat(&path, Purpose::Write)? else {
        if input.require_exists.unwrap_or(true) {
            return Err(missing(view, &path));
        }
        return nothing(&path, format!("{path} was not there"));
    };
    if stat.is_file() {
        let current = view.etag(&path)?.ok_or_else(|| not_found(&path))?;
        check_etag(&path, input.expected_etag.as_deref(), &current)?;
        if to_trash {
            return trashed(view, &path, Some(current), 1);
        }
        let keep = match stat.size {
            size if size <= MAX_KEPT_BYTES => view
                .read(&path, Purpose::Write)?
                .map(|content| DeletedContent { files: vec![(path.clone(), content.bytes)], folders: Vec::new() }),
            _ => None,
        };
        return removed(&path, &stat, Some(current), 1, false, keep);
    }
    if input.expected_etag.is_some() {
        return Err(validation("a folder has no etag"));
    }
    let entries = view.list(Some(&path), Listing::Everything)?;
    if entries.is_empty() {
        let keep = DeletedContent { files: Vec::new(), folders: vec![path.clone()] };
        return removed(&path, &stat, None, 1, true, Some(keep));
    }
    if input.if_empty == Some(true) {
        return nothing(&path, format!("{path} is not empty and was left alone"));
    }
    if input.recursive != Some(true) {
        return Err(Failure::new(ErrorCode::Conflict, format!("{path} is a folder with {} entries", entries.len()))
            .suggest("Pass recursive: true to delete it with everything in it.")
            .detail("path", path.as_str())
            .detail("entries", entries.len()));
    }
    let content = content_of(context, &path)?;
    if to_trash {
        trashed(view, &path, None, content.count)
    } else {
        removed(&path, &stat, None, content.count, false, content.keep)
    }
}

struct FolderContent {
    count: u64,
    keep: Option<DeletedContent>,
}

/// Counts what is below a folder and keeps it for undo if that is not too much. Links and devices cannot be kept.
fn content_of(context: &PlanContext<'_>, folder: &VaultPath) -> VaultResult<FolderContent> {
    let mut count = 1;
    let mut bytes = 0;
    let mut keep = Some(DeletedContent { files: Vec::new(), folders: vec![folder.clone()] });
    let mut open = vec![folder.clone()];
    while let Some(folder) = open.pop() {
        context.stop.check()?;
        for entry in context.view.list(Some(&folder), Listing::Everything)? {
            count += 1;
            let Ok(path) = VaultPath::child(Some(&folder), &entry.name) else {
                keep = None;
                continue;
            };
            if entry.kind == NodeKind::Folder {
                if let Some(kept) = &mut keep {
                    kept.folders.push(path.clone());
                }
                open.push(path);
                continue;
            }
            let size = context.view.stat(&path, Purpose::Write).ok().flatten().map_or(u64::MAX, |s| s.size);
            bytes = u64::saturating_add(bytes, size);
            if entry.kind != NodeKind::File || bytes > MAX_KEPT_BYTES {
                keep = None;
            }
            if let Some(kept) = &mut keep
                && let Some(content) = context.view.read(&path, Purpose::Write)?
            {
                kept.files.push((path, content.bytes));
            }
        }
    }
    Ok(FolderContent { count, keep })
}

fn trashed(view: &dyn View, path: &VaultPath, etag: Option<String>, count: u64) -> VaultResult<WritePlan> {
    let (changes, to) = trash(view, path, etag, count)?;
    let data = Data { path: path.to_string(), deleted: true, trashed: Some(true), trash_path: Some(to.to_string()) };
    Ok(WritePlan { changes, data: to_map(&data)?, stat: None, message: format!("Moved {path} to the trash") })
}

fn removed(
    path: &VaultPath,
    stat: &Stat,
    etag: Option<String>,
    count: u64,
    only_empty: bool,
    keep: Option<DeletedContent>,
) -> VaultResult<WritePlan> {
    let data = Data { path: path.to_string(), deleted: true, trashed: Some(false), trash_path: None };
    let what =
        if stat.kind == EntryKind::Folder && only_empty { "Removed the empty folder" } else { "Removed for good:" };
    Ok(WritePlan {
        changes: vec![Change::Remove {
            path: path.clone(),
            kind: stat.kind,
            etag,
            inode: stat.inode,
            count,
            only_empty,
            keep,
        }],
        data: to_map(&data)?,
        stat: None,
        message: format!("{what} {path}"),
    })
}

fn nothing(path: &VaultPath, message: String) -> VaultResult<WritePlan> {
    let data = Data { path: path.to_string(), deleted: false, trashed: None, trash_path: None };
    Ok(WritePlan { changes: Vec::new(), data: to_map(&data)?, stat: None, message })
}
