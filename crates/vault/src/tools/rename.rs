//! `vault.rename`: moves a file or folder, never over another one, and updates links.

use super::{
    Args, PlanContext, Run, Tool, parse,
    schema::PathArg,
    support::{check_etag, free_name, trash},
    to_map, writes,
};
use crate::{
    change::{Change, MoveRole, WritePlan},
    error::{VaultResult, validation},
    etag::etag,
    locks::LockScope,
    path::VaultPath,
    resolve::{FileIndex, LinkMove},
    view::{Purpose, Stat, check_creatable, missing, walk},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::ControlFlow};
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The file or folder.
    from_path: PathArg,
    /// Its new path, name included. Missing folders are made.
    to_path: PathArg,
    /// When something is already there: "error" (default), "create-unique" for a free name, or "overwrite", which
    /// moves the file that is in the way to the trash.
    #[serde(default)]
    collision_strategy: Option<CollisionStrategy>,
    /// Rewrite links that would no longer lead to what moved (default true).
    #[serde(default)]
    update_links: Option<bool>,
    /// The etag the file must have now. Not for folders.
    #[serde(default)]
    expected_etag: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum CollisionStrategy {
    Error,
    CreateUnique,
    Overwrite,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    from_path: String,
    /// Where it really went: differs from what was asked with "create-unique".
    to_path: String,
    /// Notes whose links were rewritten.
    updated_notes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.rename",
    define: || {
        writes::<Input, Data>(
            "Rename or move",
            "Renames or moves a file or folder and rewrites the wikilinks, embeds and Markdown links that led to it. \
             Never replaces an existing file unless collisionStrategy says so.",
            &["rename", "modify-file", "create-folder", "trash"],
        )
    },
    run: Run::Write { scope, plan },
};

/// Any note may hold a link to what moves.
fn scope(args: Args) -> VaultResult<LockScope> {
    parse::<Input>(args)?;
    Ok(LockScope::Vault)
}

fn plan(context: &PlanContext<'_>, args: Args) -> VaultResult<WritePlan> {
    let input: Input = parse(args)?;
    let (from, mut to) = (VaultPath::parse(&input.from_path.0)?, VaultPath::parse(&input.to_path.0)?);
    let view = context.view;
    let Some(stat) = view.stat(&from, Purpose::Write)? else { return Err(missing(view, &from)) };
    let content_etag = if stat.is_file() { view.etag(&from)? } else { None };
    match (&content_etag, input.expected_etag.as_deref()) {
        (Some(current), expected) => check_etag(&from, expected, current)?,
        (None, Some(_)) => return Err(validation("a folder has no etag")),
        (None, None) => {}
    }
    if from == to {
        let data = to_map(&data(&from, &to, 0, content_etag))?;
        let message = format!("{from} already has this name");
        return Ok(WritePlan { changes: Vec::new(), data, stat: stat.is_file().then_some(to), message });
    }
    if to.is_below(&from) {
        return Err(validation(format!("{from} cannot be moved into itself ({to})")));
    }
    let mut changes = Vec::new();
    let mut replaced = None;
    if let Some(other) = in_the_way(context, &from, &to, &stat)? {
        match input.collision_strategy.unwrap_or(CollisionStrategy::Error) {
            CollisionStrategy::CreateUnique => to = free_name(view, &to)?,
            CollisionStrategy::Overwrite if other.is_file() && stat.is_file() => {
                let there = view.etag(&to)?;
                changes.extend(trash(view, &to, there, 1)?.0);
                replaced = Some(to.clone());
            }
            CollisionStrategy::Error | CollisionStrategy::Overwrite => return Err(taken(context, &to, &other)?),
        }
    }
    // The folder may be gone again in the view of a collision; new names are checked in any case.
    let is_case_only = from.folded() == to.folded();
    let folders =
        if changes.is_empty() { check_creatable(view, &to, is_case_only.then_some(&from))? } else { Vec::new() };
    changes.extend(folders.into_iter().map(Change::MakeFolder));
    let moved = moved_files(context, &from, &to, &stat)?;
    changes.push(Change::Move {
        from: from.clone(),
        to: to.clone(),
        kind: stat.kind,
        role: MoveRole::Rename,
        inode: stat.inode,
        etag: content_etag.clone(),
        count: 1,
    });
    let mut final_etag = content_etag;
    let (mut updated, mut unread) = (0, 0);
    if input.update_links.unwrap_or(true) {
        let rewrites = rewrites(context, &moved, replaced.as_ref())?;
        updated = rewrites.changes.len() as u64;
        unread = rewrites.unread;
        for change in &rewrites.changes {
            if let Change::Put { path, content, .. } = change
                && *path == to
            {
                final_etag = Some(etag(content));
            }
        }
        changes.extend(rewrites.changes);
    }
    let links = match updated {
        0 => String::new(),
        1 => " and updated links in 1 note".to_owned(),
        n => format!(" and updated links in {n} notes"),
    };
    let warning = match unread {
        0 => String::new(),
        n => format!(". Warning: {n} notes could not be read, so links in them were not looked at"),
    };
    Ok(WritePlan {
        changes,
        data: to_map(&data(&from, &to, updated, final_etag))?,
        message: format!("Moved {from} to {to}{links}{warning}"),
        stat: stat.is_file().then_some(to),
    })
}

fn data(from: &VaultPath, to: &VaultPath, updated_notes: u64, etag: Option<String>) -> Data {
    Data { from_path: from.to_string(), to_path: to.to_string(), updated_notes, etag, mtime_ms: None, mtime: None }
}

/// Whether something else exists at the target. The same file under another spelling (on case-insensitive systems) does
/// not count.
fn in_the_way(context: &PlanContext<'_>, from: &VaultPath, to: &VaultPath, stat: &Stat) -> VaultResult<Option<Stat>> {
    let other = context.view.stat(to, Purpose::Write)?;
    Ok(other.filter(|other| {
        let is_same_file = other.inode == stat.inode && other.inode != 0 && from.folded() == to.folded();
        !is_same_file || lists_both(context, from, to)
    }))
}

/// Two hard links to one file are two entries; one file with two spellings is one.
fn lists_both(context: &PlanContext<'_>, from: &VaultPath, to: &VaultPath) -> bool {
    let names = context.view.list(from.parent().as_ref(), crate::view::Listing::Everything).unwrap_or_default();
    names.iter().filter(|e| e.name == from.name() || e.name == to.name()).count() == 2
}

fn taken(context: &PlanContext<'_>, to: &VaultPath, other: &Stat) -> VaultResult<Failure> {
    let failure = Failure::new(ErrorCode::Conflict, format!("{to} already exists"))
        .suggest("Choose another path, or collisionStrategy \"create-unique\".")
        .detail("path", to.as_str());
    Ok(match if other.is_file() { context.view.etag(to)? } else { None } {
        Some(current) => failure.detail("currentEtag", current),
        None => failure,
    })
}

/// Every file that changes its path, old to new.
fn moved_files(
    context: &PlanContext<'_>,
    from: &VaultPath,
    to: &VaultPath,
    stat: &Stat,
) -> VaultResult<HashMap<VaultPath, VaultPath>> {
    let mut moved = HashMap::new();
    if stat.is_file() {
        moved.insert(from.clone(), to.clone());
        return Ok(moved);
    }
    let mut failed = None;
    walk(context.view, Some(from), context.stop, &mut |path, kind| {
        if kind == EntryKind::File {
            match path.rebase(from, to) {
                Ok(new) => {
                    moved.insert(path.clone(), new);
                }
                Err(error) => failed = Some(error),
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(moved),
    }
}

struct Rewrites {
    changes: Vec<Change>,
    /// Notes that could not be read (permissions, size); links in them may be broken.
    unread: usize,
}

/// The notes whose links must change, with their future paths. `replaced` goes to the trash unchanged.
fn rewrites(
    context: &PlanContext<'_>,
    moved: &HashMap<VaultPath, VaultPath>,
    replaced: Option<&VaultPath>,
) -> VaultResult<Rewrites> {
    let mut files = Vec::new();
    walk(context.view, None, context.stop, &mut |path, kind| {
        if kind == EntryKind::File {
            files.push(path.clone());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let before = FileIndex::new(files.iter().cloned());
    files.retain(|path| Some(path) != replaced);
    let after = FileIndex::new(files.iter().map(|path| moved.get(path).unwrap_or(path).clone()));
    let link_move = LinkMove { before: &before, after: &after, moved };
    let (mut changes, mut unread) = (Vec::new(), 0);
    // Links in notes that the policy keeps from this call stay as they are.
    for path in files.iter().filter(|path| path.is_note() && context.paths.allows(path.as_str())) {
        context.stop.check()?;
        let content = match context.view.read(path, Purpose::Write) {
            Ok(Some(content)) => content,
            Ok(None) => continue,
            Err(_) => {
                unread += 1;
                continue;
            }
        };
        // What is not text has no links.
        let Ok(text) = std::str::from_utf8(&content.bytes) else { continue };
        if let Some(new) = link_move.rewrite(path, text) {
            changes.push(Change::Put {
                path: moved.get(path).unwrap_or(path).clone(),
                before: Some(content.bytes.clone()),
                content: new.into_bytes(),
                mode: content.stat.mode,
            });
        }
    }
    Ok(Rewrites { changes, unread })
}
