//! `vault.writeFile`: replaces the content of a file, or appends to it.

use super::{
    Args, PlanContext, Run, Tool, parse,
    schema::PathArg,
    support::{check_etag, check_no_etag, etag_of, put_new, put_over, shrink_warning},
    to_map, writes,
};
use crate::{
    change::WritePlan,
    error::{VaultResult, is_folder},
    etag::etag,
    locks::LockScope,
    path::VaultPath,
    text::{append, decode, keep_habits},
    view::{Purpose, check_creatable},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_protocol::{ErrorCode, Failure};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The file. One that does not exist is created, with its folders.
    path: PathArg,
    /// The new content, or what to add at the end.
    content: String,
    /// "overwrite" (default) replaces the whole content; "append" adds lines at the end.
    #[serde(default)]
    mode: Option<Mode>,
    /// The etag the file must have now. Needed to overwrite an existing file.
    #[serde(default)]
    expected_etag: Option<String>,
    /// "overwrite" replaces an existing file without knowing its etag.
    #[serde(default)]
    collision_strategy: Option<CollisionStrategy>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Overwrite,
    Append,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CollisionStrategy {
    Error,
    Overwrite,
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
    /// Size of the file as written; 0 when it already had this content.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_written: Option<u64>,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.writeFile",
    define: || {
        writes::<Input, Data>(
            "Write note",
            "Replaces the whole content of a file, or appends to it. To change part of a note use vault.patchFile. \
             Overwriting an existing file needs the etag from reading it (expectedEtag).",
            &["create-file", "create-folder", "modify-file"],
        )
    },
    run: Run::Write { scope, plan },
};

fn scope(args: Args) -> VaultResult<LockScope> {
    Ok(LockScope::Paths(vec![VaultPath::parse(&parse::<Input>(args)?.path.0)?]))
}

fn plan(context: &PlanContext<'_>, args: Args) -> VaultResult<WritePlan> {
    let input: Input = parse(args)?;
    let path = VaultPath::parse(&input.path.0)?;
    let expected = input.expected_etag.as_deref();
    let Some(stat) = context.view.stat(&path, Purpose::Write)? else {
        check_no_etag(&path, expected)?;
        let missing = check_creatable(context.view, &path, None)?;
        let content = input.content.into_bytes();
        let data = data(&path, &content, content.len());
        let message = format!("Created {path}");
        return Ok(WritePlan {
            changes: put_new(&path, missing, content),
            data: to_map(&data)?,
            stat: Some(path),
            message,
        });
    };
    if !stat.is_file() {
        return Err(is_folder(&path));
    }
    let Some(old) = context.view.read(&path, Purpose::Write)? else { return Err(crate::error::not_found(&path)) };
    let current = etag(&old.bytes);
    check_etag(&path, expected, &current)?;
    let (new, verb) = match input.mode.unwrap_or_default() {
        Mode::Append => (append(decode(&path, &old.bytes)?, &input.content), "Appended to"),
        Mode::Overwrite => {
            if expected.is_none() && input.collision_strategy != Some(CollisionStrategy::Overwrite) {
                return Err(Failure::new(ErrorCode::Conflict, format!("{path} already exists; overwriting it needs expectedEtag"))
                    .suggest(
                        "Read it and pass its etag as expectedEtag; or edit part of it with vault.patchFile; or add to it \
                         with mode \"append\"; or give collisionStrategy \"overwrite\" to replace it whatever it holds.",
                    )
                    .detail("path", path.as_str())
                    .detail("currentEtag", current));
            }
            (keep_habits(&old.bytes, &input.content), "Wrote")
        }
    };
    let new = new.into_bytes();
    let warning = shrink_warning(old.bytes.len(), new.len());
    let etag_after = etag_of(&new);
    let size = new.len();
    let changes = put_over(&path, &old, new);
    let bytes_written = if changes.is_empty() { 0 } else { size as u64 };
    let message = if changes.is_empty() {
        format!("{path} already had this content")
    } else {
        format!("{verb} {path}.{warning}")
    };
    let data = Data {
        path: path.to_string(),
        etag: etag_after,
        mtime_ms: None,
        mtime: None,
        bytes_written: Some(bytes_written),
    };
    Ok(WritePlan { changes, data: to_map(&data)?, stat: Some(path), message })
}

fn data(path: &VaultPath, content: &[u8], written: usize) -> Data {
    Data {
        path: path.to_string(),
        etag: etag_of(content),
        mtime_ms: None,
        mtime: None,
        bytes_written: Some(written as u64),
    }
}
