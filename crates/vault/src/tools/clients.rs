//! `editor.*`, `workspace.*` and `commands.*`: tools that only a running editor can answer. Toolyard checks the
//! arguments and passes them to the connected editor.

use super::{Args, RiskLevel, Run, Tool, parse, schema::PathArg};
use crate::{
    error::{VaultResult, is_folder},
    path::VaultPath,
    view::{Purpose, View, missing},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::BuiltIn;

/// Text handed to an editor is at most this long.
const MAX_TEXT_BYTES: usize = 4 << 20;

fn client_read<A: JsonSchema, O: JsonSchema>(title: &'static str, description: &'static str) -> BuiltIn {
    client_tool::<A, O>(BuiltIn::reads(title, description)).permissions(&["editor:read"])
}

fn client_write<A: JsonSchema, O: JsonSchema>(
    title: &'static str,
    description: &'static str,
    side_effects: &'static [&'static str],
) -> BuiltIn {
    client_tool::<A, O>(BuiltIn::writes(title, description, side_effects)).permissions(&["editor:write"])
}

fn client_tool<A: JsonSchema, O: JsonSchema>(tool: BuiltIn) -> BuiltIn {
    tool.arguments::<A>().answers::<O>().requires(&["client"])
}

fn check<T: serde::de::DeserializeOwned>(_: &dyn View, args: Args) -> VaultResult<()> {
    parse::<T>(args).map(|_| ())
}

fn check_text(text: &str) -> VaultResult<()> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(crate::error::validation(format!("the text has more than {MAX_TEXT_BYTES} bytes")));
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditorPosition {
    /// Line number, from 0.
    line: u64,
    /// Zero-based character in the line.
    ch: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditorRange {
    from: EditorPosition,
    to: EditorPosition,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "the editor fills it in; here it only makes the schema")]
enum ViewMode {
    Source,
    Preview,
    Unknown,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selection {
    text: String,
    is_empty: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<EditorRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<ViewMode>,
}

pub(super) const GET_SELECTION: Tool = Tool {
    name: "editor.getSelection",
    define: || client_read::<NoArgs, Selection>("Get selection", "What is selected in the editor."),
    run: Run::Client { check: check::<NoArgs>, writes: false },
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReplaceSelection {
    /// What to put in place of the selection.
    text: String,
    /// Indent every line as the first one is.
    #[serde(default)]
    #[allow(dead_code, reason = "checked here, used by the editor")]
    preserve_indent: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Replaced {
    file_path: String,
    range: EditorRange,
    inserted_chars: u64,
}

pub(super) const REPLACE_SELECTION: Tool = Tool {
    name: "editor.replaceSelection",
    define: || {
        client_write::<ReplaceSelection, Replaced>(
            "Replace selection",
            "Replaces what is selected in the editor. Fails when nothing is selected.",
            &["modify-editor"],
        )
    },
    run: Run::Client { check: |_, args| check_text(&parse::<ReplaceSelection>(args)?.text), writes: true },
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InsertAtCursor {
    /// What to insert.
    text: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Inserted {
    file_path: String,
    cursor_after: EditorPosition,
    inserted_chars: u64,
}

pub(super) const INSERT_AT_CURSOR: Tool = Tool {
    name: "editor.insertAtCursor",
    define: || {
        client_write::<InsertAtCursor, Inserted>("Insert at cursor", "Inserts text at the cursor.", &["modify-editor"])
    },
    run: Run::Client { check: |_, args| check_text(&parse::<InsertAtCursor>(args)?.text), writes: true },
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplaceRange {
    /// Where the stretch begins.
    from: EditorPosition,
    /// Where it ends.
    to: EditorPosition,
    /// What to put there.
    text: String,
}

pub(super) const REPLACE_RANGE: Tool = Tool {
    name: "editor.replaceRange",
    define: || {
        client_write::<ReplaceRange, Replaced>(
            "Replace range",
            "Replaces a stretch of the note that is open in the editor.",
            &["modify-editor"],
        )
    },
    run: Run::Client {
        check: |_, args| {
            let input: ReplaceRange = parse(args)?;
            if (input.from.line, input.from.ch) > (input.to.line, input.to.ch) {
                return Err(crate::error::validation("from lies after to"));
            }
            check_text(&input.text)
        },
        writes: true,
    },
};

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ActiveFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

pub(super) const GET_ACTIVE_FILE_PATH: Tool = Tool {
    name: "editor.getActiveFilePath",
    define: || client_read::<NoArgs, ActiveFile>("Get active file", "Which file is open in the editor, if any."),
    run: Run::Client { check: check::<NoArgs>, writes: false },
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "checked here, used by the editor")]
struct GetContext {
    /// Also list the files that are open in tabs.
    #[serde(default)]
    include_open_leaves: Option<bool>,
    /// Include the state of the active view.
    #[serde(default)]
    include_active_view_state: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Leaf {
    id: String,
    view_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SelectionSummary {
    is_empty: bool,
    length: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Workspace {
    #[serde(skip_serializing_if = "Option::is_none")]
    active_file_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_view_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_markdown: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_leaves: Option<Vec<Leaf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selection_summary: Option<SelectionSummary>,
}

pub(super) const GET_CONTEXT: Tool = Tool {
    name: "workspace.getContext",
    define: || client_read::<GetContext, Workspace>("Get workspace", "What the person has open and selected."),
    run: Run::Client { check: check::<GetContext>, writes: false },
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OpenFile {
    /// The file to show. Its content is not touched.
    path: PathArg,
    /// In a new tab.
    #[serde(default)]
    #[allow(dead_code, reason = "checked here, used by the editor")]
    new_leaf: Option<bool>,
    /// Put the cursor there.
    #[serde(default)]
    #[allow(dead_code, reason = "checked here, used by the editor")]
    focus: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Opened {
    path: String,
    opened: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaf_id: Option<String>,
}

pub(super) const OPEN_FILE: Tool = Tool {
    name: "workspace.openFile",
    define: || {
        client_write::<OpenFile, Opened>(
            "Open file",
            "Shows an existing file in the editor. Never creates or changes it.",
            &["open-file"],
        )
        .permissions(&["editor:open"])
    },
    run: Run::Client { check: check_open, writes: true },
};

fn check_open(view: &dyn View, args: Args) -> VaultResult<()> {
    let path = VaultPath::parse(&parse::<OpenFile>(args)?.path.0)?;
    match view.stat(&path, Purpose::Read)? {
        Some(stat) if stat.is_file() => Ok(()),
        Some(_) => Err(is_folder(&path)),
        None => Err(missing(view, &path)),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "checked here, used by the editor")]
struct ListCommands {
    /// Only commands whose name or id contains this.
    #[serde(default)]
    query: Option<String>,
    /// Only commands whose id begins with this.
    #[serde(default)]
    #[schemars(length(max = 200))]
    prefix: Option<String>,
    /// At most this many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "the editor fills it in; here it only makes the schema")]
enum OwnerType {
    Core,
    Community,
    Unknown,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "the editor fills it in; here it only makes the schema")]
enum Confidence {
    High,
    Low,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Command {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_type: Option<OwnerType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Confidence>,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Commands {
    commands: Vec<Command>,
    truncated: bool,
}

pub(super) const LIST_COMMANDS: Tool = Tool {
    name: "commands.list",
    define: || client_read::<ListCommands, Commands>("List commands", "Which commands the editor knows."),
    run: Run::Client { check: check::<ListCommands>, writes: false },
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    /// The command's id, from commands.list.
    #[schemars(length(min = 1, max = 200))]
    id: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Executed {
    id: String,
    executed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
}

pub(super) const RUN_COMMAND: Tool = Tool {
    name: "commands.run",
    define: || {
        client_write::<RunCommand, Executed>(
            "Run command",
            "Runs a command of the editor. What it does is not known beforehand and cannot be undone here.",
            &["run-command"],
        )
        .risk(RiskLevel::Commands)
        .permissions(&["commands:run"])
    },
    run: Run::Client {
        check: |_, args| {
            if parse::<RunCommand>(args)?.id.is_empty() {
                return Err(crate::error::validation("id is empty"));
            }
            Ok(())
        },
        writes: true,
    },
};
