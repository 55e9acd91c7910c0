//! The tools that represent native calls in the catalog: one for each class of calls, and one that undoes changes.

use crate::{Client, image::FileState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;
use toolyard_catalog::{RegistryError, ToolEntry, ToolSource, authority::HostArgument, native::NativeClass};
use toolyard_engine::BuiltIn;
use toolyard_protocol::{Idempotency, ToolDefinitionError, Undo};

/// Restores one file to its state before a call.
pub(crate) const RESTORE: &str = "native.restore";
/// The most time between a call's two hooks.
const CALL_MS: u64 = 600_000;
/// The permission that undoing needs. Only the owner has it.
const RESTORE_PERMISSION: &str = "native:restore";
const RESTORED_PATH: &[HostArgument] = &[HostArgument { name: "path", remote: &[] }];

/// The tool that represents a class of native calls.
pub(crate) const fn tool_of(class: NativeClass) -> &'static str {
    match class {
        NativeClass::Read => "native.read",
        NativeClass::Write => "native.write",
        NativeClass::Shell => "native.shell",
        NativeClass::Destroy => "native.destroy",
        NativeClass::Leave => "native.leave",
    }
}

/// A native call as it is recorded.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NativeArgs {
    /// The client whose tool is called.
    pub(crate) client: Client,
    /// The client's tool.
    pub(crate) tool: String,
    /// The tool's input.
    pub(crate) input: Map<String, Value>,
    /// The folder the client works in.
    pub(crate) cwd: PathBuf,
    /// The root of the project.
    pub(crate) project: PathBuf,
    /// The client's session.
    pub(crate) session: String,
    /// The client's id of the prompt or turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    /// The client's id of the subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subagent: Option<String>,
    /// The kind of the subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subagent_kind: Option<String>,
    /// The client's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<String>,
    /// Why the call has its class.
    pub(crate) reason: String,
    /// Files whose state is kept before the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<PathBuf>,
    /// Whether the whole project is compared before and after.
    #[serde(default)]
    pub(crate) snapshot: bool,
}

/// The arguments of [`RESTORE`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RestoreArgs {
    /// The file.
    pub(crate) path: PathBuf,
    /// The state it must have now.
    pub(crate) expect: FileState,
    /// The state to restore.
    pub(crate) restore: FileState,
}

/// A file before and after a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    /// The file.
    pub(crate) path: PathBuf,
    /// The state of the file before the call.
    pub(crate) before: FileState,
    /// The state of the file after the call.
    pub(crate) after: FileState,
}

/// How the end of a call became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClosedBy {
    /// The client's hook after the call.
    Hook,
    /// The session went on or ended without such a hook: the client's user declined, or the client does not report.
    Session,
    /// Toolyard stopped, or was killed and started again.
    Recovery,
}

/// What came of a native call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NativeOutcome {
    /// How its end became known.
    pub(crate) closed_by: ClosedBy,
    /// Whether the client reports that it failed.
    #[serde(default)]
    pub(crate) has_failed: bool,
    /// The beginning of the tool's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response: Option<String>,
    /// Files that changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<Change>,
    /// Why not every change is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unseen: Option<String>,
}

/// The tools, for the catalog.
///
/// # Errors
/// A description that contradicts itself, which the tests would show.
pub fn entries() -> Result<Vec<ToolEntry>, RegistryError> {
    let mut entries = Vec::new();
    for class in NativeClass::ALL {
        let entry = ToolEntry::new(definition(class)?, ToolSource::core())?;
        entries.push(entry.with_native(class).with_own_checks(true));
    }
    let restore = BuiltIn::writes(
        "Take back a file",
        "Gives a file the state it had before a coding agent's call. Undo plans of native calls consist of it.",
        &["write-file"],
    );
    let restore = restore
        .arguments::<RestoreArgs>()
        .idempotency(Idempotency::Etag)
        .permissions(&[RESTORE_PERMISSION])
        .undo(Undo::RestoreBlob)
        .build(RESTORE)?;
    // An agent that could name the path would write anywhere on the host; only the person at this machine may.
    entries.push(ToolEntry::new(restore, ToolSource::core())?.with_host_arguments(RESTORED_PATH, false));
    Ok(entries)
}

fn definition(class: NativeClass) -> Result<toolyard_protocol::ToolDefinition, ToolDefinitionError> {
    let (title, description) = match class {
        NativeClass::Read => ("Agent reads", "A call of a coding agent's own tool that changes nothing."),
        NativeClass::Write => ("Agent writes", "A call of a coding agent's own tool that writes files of the project."),
        NativeClass::Shell => ("Agent runs a command", "A command of a coding agent that changes the project."),
        NativeClass::Destroy => {
            ("Agent destroys", "A call of a coding agent's own tool that destroys something, or cannot be judged.")
        }
        NativeClass::Leave => {
            ("Agent leaves the project", "A call of a coding agent's own tool that reaches beyond the project.")
        }
    };
    let built = match class {
        NativeClass::Read => BuiltIn::reads(title, description),
        _ => {
            BuiltIn::writes(title, description, &["native-call"]).idempotency(Idempotency::Etag).undo(Undo::RestoreBlob)
        }
    };
    built.arguments::<NativeArgs>().timeout_ms(CALL_MS, Some(CALL_MS)).build(tool_of(class))
}
