//! `vault.patchFile`: edits a part of a note and leaves every other byte unchanged.

use super::{
    Args, PlanContext, Run, Tool, parse,
    schema::PathArg,
    support::{check_etag, etag_of, put_over, shrink_warning},
    to_map, writes,
};
use crate::{
    change::WritePlan,
    error::VaultResult,
    etag::etag,
    locks::LockScope,
    patch::{self, Patch},
    path::VaultPath,
    text::decode,
    view::{Purpose, missing},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The note.
    path: PathArg,
    /// What to change.
    patch: Patch,
    /// The etag the file must have now; otherwise nothing is changed.
    #[serde(default)]
    expected_etag: Option<String>,
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
    /// How many operations (or hunks of a diff) were applied.
    applied: u64,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.patchFile",
    define: || {
        writes::<Input, Data>(
            "Edit note",
            "Edits part of a note: under a heading, at a block, one front matter key, a piece of text, a byte range, or \
             by unified diff. Either the whole patch applies or nothing changes; headings are never created silently.",
            &["modify-file"],
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
    let Some(old) = context.view.read(&path, Purpose::Write)? else { return Err(missing(context.view, &path)) };
    let current = etag(&old.bytes);
    check_etag(&path, input.expected_etag.as_deref(), &current)?;
    let text = decode(&path, &old.bytes)?;
    let (new, applied) = patch::apply(text, &input.patch)
        .map_err(|failure| failure.detail("path", path.as_str()).detail("currentEtag", current.as_str()))?;
    let new = new.into_bytes();
    let warning = shrink_warning(old.bytes.len(), new.len());
    let data =
        Data { path: path.to_string(), etag: etag_of(&new), mtime_ms: None, mtime: None, applied: applied as u64 };
    let changes = put_over(&path, &old, new);
    let message = if changes.is_empty() {
        format!("{path} already had this content")
    } else {
        format!("Edited {path}.{warning}")
    };
    Ok(WritePlan { changes, data: to_map(&data)?, stat: Some(path), message })
}
