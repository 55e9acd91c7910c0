//! `vault.restoreFile`: restores a before-image or a file from the trash. Undo uses it.

use super::{
    Args, PlanContext, Run, Tool, parse,
    schema::PathArg,
    support::{check_etag, check_no_etag, etag_of, missing_folders, put_new, put_over},
    to_map, writes,
};
use crate::{
    change::{Change, MoveRole, WritePlan},
    error::{VaultResult, is_folder, validation},
    etag::etag,
    locks::LockScope,
    path::VaultPath,
    view::{Purpose, missing},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{ErrorCode, Failure};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// Where to put it.
    path: PathArg,
    /// SHA-256 (64 hex digits) of the content to put back. Give this or trashPath.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    blob: Option<String>,
    /// Where it lies in the trash, as vault.delete reported it: ".trash/…". Give this or blob.
    #[serde(default)]
    trash_path: Option<String>,
    /// The etag of the file that is there now and may be replaced.
    #[serde(default)]
    expected_etag: Option<String>,
    /// Nothing may be there now.
    #[serde(default)]
    expect_absent: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.restoreFile",
    define: || {
        writes::<Input, Data>(
            "Restore",
            "Puts an earlier content of a file back (by its hash), or a file or folder from the vault's trash. Replaces \
             an existing file only with its expectedEtag.",
            &["create-file", "create-folder", "modify-file"],
        )
    },
    run: Run::Write { scope, plan },
};

fn scope(args: Args) -> VaultResult<LockScope> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    // What comes out of the trash may be a folder.
    Ok(if input.trash_path.is_some() { LockScope::Vault } else { LockScope::Paths(vec![path]) })
}

fn plan(context: &PlanContext<'_>, args: Args) -> VaultResult<WritePlan> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    if input.expect_absent == Some(true) && input.expected_etag.is_some() {
        return Err(validation("expectAbsent and expectedEtag contradict each other"));
    }
    match (&input.blob, &input.trash_path) {
        (Some(blob), None) => from_blob(context, &input, path, blob),
        (None, Some(trash_path)) => from_trash(context, &input, path, trash_path),
        _ => Err(validation("give exactly one of blob and trashPath")),
    }
}

fn from_blob(context: &PlanContext<'_>, input: &Input, path: VaultPath, blob: &str) -> VaultResult<WritePlan> {
    let is_hash = blob.len() == 64 && blob.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hash {
        return Err(validation("blob is the SHA-256 of the content, 64 lowercase hex digits"));
    }
    let content = context.blobs.read_blob(blob)?.ok_or_else(|| {
        Failure::new(ErrorCode::NotFound, format!("no content with hash {blob} is kept (any more)"))
            .suggest("Look at the run that changed the file; its before-images may have been erased.")
    })?;
    let message = format!("Restored {path}");
    let data = Data { path: path.to_string(), etag: etag_of(&content), mtime_ms: None, mtime: None };
    let changes = match context.view.stat(&path, Purpose::Write)? {
        None => {
            check_no_etag(&path, input.expected_etag.as_deref())?;
            put_new(&path, missing_folders(context.view, &path)?, content)
        }
        Some(stat) if !stat.is_file() => return Err(is_folder(&path)),
        Some(_) => {
            let Some(old) = context.view.read(&path, Purpose::Write)? else {
                return Err(crate::error::not_found(&path));
            };
            let current = etag(&old.bytes);
            if input.expected_etag.is_none() {
                return Err(occupied(&path).detail("currentEtag", current));
            }
            check_etag(&path, input.expected_etag.as_deref(), &current)?;
            put_over(&path, &old, content)
        }
    };
    Ok(WritePlan { changes, data: to_map(&data)?, stat: Some(path), message })
}

fn from_trash(context: &PlanContext<'_>, input: &Input, path: VaultPath, trash_path: &str) -> VaultResult<WritePlan> {
    let from = VaultPath::parse_trash(trash_path)?;
    // The path rules apply to the path that the file had: deleting a file does not lift them.
    let original = trash_path.split_once('/').map_or(trash_path, |(_, rest)| rest);
    if !context.paths.allows(original) {
        return Err(Failure::new(
            ErrorCode::PolicyDenied,
            format!("the path {original:?} is off limits, in the trash too"),
        )
        .detail("path", original)
        .retryable(false));
    }
    let Some(stat) = context.view.stat(&from, Purpose::Write)? else { return Err(missing(context.view, &from)) };
    check_no_etag(&path, input.expected_etag.as_deref())?;
    if context.view.stat(&path, Purpose::Write)?.is_some() {
        return Err(occupied(&path));
    }
    let content_etag = if stat.is_file() { context.view.etag(&from)? } else { None };
    let mut changes: Vec<Change> = missing_folders(context.view, &path)?.into_iter().map(Change::MakeFolder).collect();
    changes.push(Change::Move {
        from,
        to: path.clone(),
        kind: stat.kind,
        role: MoveRole::Restore,
        inode: stat.inode,
        etag: content_etag.clone(),
        count: 1,
    });
    let data = Data { path: path.to_string(), etag: content_etag, mtime_ms: None, mtime: None };
    let message = format!("Restored {path} from the trash");
    Ok(WritePlan { changes, data: to_map(&data)?, stat: stat.is_file().then_some(path), message })
}

fn occupied(path: &VaultPath) -> Failure {
    Failure::new(ErrorCode::Conflict, format!("{path} exists, so nothing was restored over it"))
        .suggest("Pass its etag as expectedEtag to replace it, or move it away first.")
        .detail("path", path.as_str())
}
