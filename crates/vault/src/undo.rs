//! The inverse calls of a finished call, computed from its intent and its observed effects. Each is guarded by the etag
//! that the call left behind, so that later changes by others are not lost.

use crate::{
    change::MoveRole,
    commit::{Commit, DeletedRecord, Step},
};
use serde_json::{Map, Value, json};
use toolyard_engine::{Intent, InverseCall};
use toolyard_protocol::{Effects, ErrorCode, Failure, ToolCall, ToolResult};

pub(crate) fn inverse(
    call: &ToolCall,
    result: &ToolResult,
    intent: Option<&Intent>,
) -> Result<Vec<InverseCall>, Failure> {
    let nothing = Effects::default();
    let effects = result.effects.as_ref().unwrap_or(&nothing);
    let touches_files = !(effects.created.is_empty()
        && effects.modified.is_empty()
        && effects.deleted.is_empty()
        && effects.renamed.is_empty());
    if !touches_files && effects.side_effects_observed.is_empty() {
        return Ok(Vec::new());
    }
    let cannot =
        |why: &str| Failure::new(ErrorCode::PreconditionFailed, format!("{} cannot be undone: {why}", call.tool));
    if !touches_files {
        return Err(cannot("its effects were inside the editor"));
    }
    let intent = intent.ok_or_else(|| cannot("there is no record of what it changed"))?;
    let commit = Commit::from_intent(intent)?;
    let mut calls = Vec::new();
    for step in commit.steps.iter().rev() {
        undo_step(step, effects, &mut calls).map_err(|why| cannot(&why))?;
    }
    Ok(calls)
}

fn undo_step(step: &Step, effects: &Effects, calls: &mut Vec<InverseCall>) -> Result<(), String> {
    let was_created = |path: &str| effects.created.iter().any(|c| c.path == path);
    match step {
        Step::MakeFolder { path } if was_created(path.as_str()) => calls.push(InverseCall {
            // Another call may have put its note into the folder before this one had put its own.
            waits_at_depth: u32::try_from(path.as_str().matches('/').count()).ok(),
            ..call(
                "vault.delete",
                json!({"path": path, "ifEmpty": true, "requireExists": false}),
                format!("Remove folder {path} if it is empty"),
            )
        }),
        Step::MakeFolder { .. } => {}
        Step::Put { path, before: None, after, .. } => {
            if was_created(path.as_str()) {
                calls.push(call(
                    "vault.delete",
                    json!({"path": path, "expectedEtag": after}),
                    format!("Move {path} to the trash"),
                ));
            }
        }
        Step::Put { path, before: Some(_), after, before_blob, .. } => {
            if effects.modified.iter().any(|m| m.path == path.as_str()) {
                let blob = before_blob.as_ref().ok_or("its earlier content was not kept")?;
                calls.push(call(
                    "vault.restoreFile",
                    json!({"path": path, "blob": blob, "expectedEtag": after}),
                    format!("Restore the earlier content of {path}"),
                ));
            }
        }
        Step::Move { from, to, etag, role, .. } => match role {
            MoveRole::Rename => {
                if effects.renamed.iter().any(|r| r.from == from.as_str()) {
                    // Links are restored byte for byte from the notes' own before-images, not rewritten back.
                    let mut args = json!({"fromPath": to, "toPath": from, "updateLinks": false});
                    if let Some(etag) = etag {
                        args["expectedEtag"] = etag.as_str().into();
                    }
                    calls.push(call("vault.rename", args, format!("Move {to} back to {from}")));
                }
            }
            MoveRole::Trash => {
                if effects.deleted.iter().any(|d| d.path == from.as_str()) {
                    calls.push(call(
                        "vault.restoreFile",
                        json!({"path": from, "trashPath": to, "expectAbsent": true}),
                        format!("Restore {from} from the trash"),
                    ));
                }
            }
            MoveRole::Restore => {
                if was_created(to.as_str()) {
                    let mut args = json!({"path": to, "recursive": true});
                    if let Some(etag) = etag {
                        args = json!({"path": to, "expectedEtag": etag});
                    }
                    calls.push(call("vault.delete", args, format!("Move {to} to the trash again")));
                }
            }
        },
        Step::Remove { path, kept, .. } => {
            if effects.deleted.iter().any(|d| d.path == path.as_str()) {
                let kept =
                    kept.as_ref().ok_or_else(|| format!("{path} was removed for good and was too much to keep"))?;
                calls.extend(put_back(kept));
            }
        }
    }
    Ok(())
}

/// Creates the removed folders and files again, folders first.
fn put_back(kept: &DeletedRecord) -> impl Iterator<Item = InverseCall> {
    let folders = kept
        .folders
        .iter()
        .map(|folder| call("vault.ensureFolder", json!({"path": folder}), format!("Make folder {folder} again")));
    let files = kept.files.iter().map(|(file, blob)| {
        let args = json!({"path": file, "blob": blob, "expectAbsent": true});
        call("vault.restoreFile", args, format!("Restore {file}"))
    });
    folders.chain(files)
}

fn call(tool: &str, args: Value, preview: String) -> InverseCall {
    let args = match args {
        Value::Object(args) => args,
        _ => Map::new(),
    };
    InverseCall { tool: tool.to_owned(), args, preview, waits_at_depth: None }
}
