//! What a native call can do: its class, the files it will change, and a line for people.

use crate::{
    Client,
    locations::{PathLocation, joined, real_location, root_of},
    patch::{self, PatchedFile},
    payload::NativeCall,
    shell,
};
use std::path::{Path, PathBuf};
use toolyard_catalog::native::NativeClass;

/// Characters of a preview.
const MAX_PREVIEW_CHARS: usize = 160;
/// Tools that change nothing outside the client itself.
const HARMLESS: &[&str] = &[
    // Claude Code
    "Read",
    "Grep",
    "Glob",
    "LS",
    "NotebookRead",
    "TodoWrite",
    "TodoRead",
    "Task",
    "Agent",
    "ToolSearch",
    "ExitPlanMode",
    "EnterPlanMode",
    "AskUserQuestion",
    "Skill",
    "SlashCommand",
    "BashOutput",
    "TaskOutput",
    "TaskCreate",
    "TaskUpdate",
    "TaskList",
    "TaskGet",
    "ListMcpResourcesTool",
    "ReadMcpResourceTool",
    "KillShell",
    "KillBash",
    "TaskStop",
    "SendMessage",
    "StructuredOutput",
    // Codex
    "view_image",
    "update_plan",
    "spawn_agent",
    "wait",
    "wait_agent",
    "close_agent",
    "send_input",
    "request_user_input",
    // Gemini CLI
    "read_file",
    "read_many_files",
    "glob",
    "grep_search",
    "search_file_content",
    "list_directory",
    "write_todos",
    "invoke_agent",
    "activate_skill",
    "ask_user",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_internal_docs",
];
/// The same of opencode, whose names are common words.
const OPENCODE_HARMLESS: &[&str] =
    &["read", "grep", "glob", "list", "todowrite", "todoread", "task", "skill", "question"];
/// Tools that reach the network or change what the client remembers.
const LEAVERS: &[&str] =
    &["WebFetch", "WebSearch", "web_fetch", "google_web_search", "web_search", "save_memory", "webfetch", "websearch"];

/// A native call with its class, the reason, and the files it touches.
#[derive(Debug)]
pub(crate) struct ClassifiedCall {
    pub(crate) class: NativeClass,
    pub(crate) reason: String,
    pub(crate) root: PathBuf,
    /// Files whose state before the call is kept.
    pub(crate) files: Vec<PathBuf>,
    /// Whether the whole project is kept before and after.
    pub(crate) needs_snapshot: bool,
    pub(crate) preview: String,
}

pub(crate) fn classify(call: &NativeCall) -> ClassifiedCall {
    let root = root_of(&call.cwd);
    let text = |key: &str| call.input.get(key).and_then(serde_json::Value::as_str);
    let preview = |what: &str| {
        let line: String = format!("{} {}: {what}", call.client, call.tool).chars().take(MAX_PREVIEW_CHARS).collect();
        line.replace(['\n', '\r', '\t'], " ")
    };
    let plain = |class, reason: &str, what: &str| ClassifiedCall {
        class,
        reason: reason.to_owned(),
        root: root.clone(),
        files: Vec::new(),
        needs_snapshot: false,
        preview: preview(what),
    };
    match (call.client, call.tool.as_str()) {
        (Client::Claude | Client::Codex, "Bash")
        | (Client::Gemini, "run_shell_command")
        | (Client::Opencode, "bash") => {
            let Some(command) = text("command") else {
                return plain(NativeClass::Destroy, "the call has no command", "");
            };
            let cwd = text("dir_path")
                .or(text("workdir"))
                .map_or_else(|| call.cwd.clone(), |folder| joined(&call.cwd, Path::new(folder)));
            let classified = shell::classify(command, &root, &cwd);
            let needs_snapshot = classified.class != NativeClass::Read;
            ClassifiedCall { needs_snapshot, ..plain(classified.class, &classified.reason, command) }
        }
        (Client::Codex, "apply_patch") => match patch::read(text("command").or(text("input")).unwrap_or_default()) {
            Ok(files) => patched(call, plain, &root, &files),
            Err(why) => ClassifiedCall { needs_snapshot: true, ..plain(NativeClass::Destroy, why, "") },
        },
        (Client::Claude, "Write" | "Edit" | "MultiEdit" | "NotebookEdit")
        | (Client::Gemini, "write_file" | "replace")
        | (Client::Opencode, "write" | "edit") => {
            match text("file_path").or(text("notebook_path")).or(text("filePath")) {
                Some(path) => written(plain, &root, &[(joined(&call.cwd, Path::new(path)), NativeClass::Write)], path),
                None => plain(NativeClass::Destroy, "the call names no file", ""),
            }
        }
        (Client::Opencode, tool) if OPENCODE_HARMLESS.contains(&tool) => reading(call, plain, &root),
        (_, tool) if LEAVERS.contains(&tool) => {
            let what = text("url").or(text("query")).or(text("prompt")).unwrap_or_default();
            plain(NativeClass::Leave, "it reaches beyond the project", what)
        }
        (_, tool) if HARMLESS.contains(&tool) => reading(call, plain, &root),
        (_, tool) if tool.starts_with("mcp_") => {
            plain(NativeClass::Leave, "what another server's tool does is not known", "")
        }
        _ => plain(NativeClass::Destroy, "what this tool does is not known", ""),
    }
}

fn reading(
    call: &NativeCall,
    plain: impl Fn(NativeClass, &str, &str) -> ClassifiedCall,
    root: &Path,
) -> ClassifiedCall {
    let named = ["file_path", "filePath", "path", "notebook_path", "absolute_path", "dir_path"];
    let path = named.iter().find_map(|key| call.input.get(*key).and_then(serde_json::Value::as_str));
    match path.map(|path| (path, real_location(root, &joined(&call.cwd, Path::new(path))))) {
        Some((path, PathLocation::Private)) => {
            plain(NativeClass::Leave, "it reads a hidden folder outside the project", path)
        }
        Some((path, _)) => plain(NativeClass::Read, "it reads", path),
        None => plain(NativeClass::Read, "it reads", ""),
    }
}

fn patched(
    call: &NativeCall,
    plain: impl Fn(NativeClass, &str, &str) -> ClassifiedCall,
    root: &Path,
    files: &[PatchedFile],
) -> ClassifiedCall {
    let mut paths = Vec::new();
    for file in files {
        let class = match file {
            PatchedFile::Delete(_) => NativeClass::Destroy,
            _ => NativeClass::Write,
        };
        paths.extend(file.paths().into_iter().map(|path| (joined(&call.cwd, Path::new(path)), class)));
    }
    let names: Vec<&str> = files.iter().flat_map(PatchedFile::paths).collect();
    written(plain, root, &paths, &names.join(", "))
}

/// A call that changes the files it names.
fn written(
    plain: impl Fn(NativeClass, &str, &str) -> ClassifiedCall,
    root: &Path,
    files: &[(PathBuf, NativeClass)],
    what: &str,
) -> ClassifiedCall {
    let mut worst = (NativeClass::Write, "it writes files of the project");
    for (path, class) in files {
        let this = match real_location(root, path) {
            PathLocation::Inside | PathLocation::Sink if *class == NativeClass::Destroy => {
                (*class, "it deletes a file")
            }
            PathLocation::Inside | PathLocation::Sink => (*class, "it writes files of the project"),
            PathLocation::Protected => (NativeClass::Destroy, "it changes settings or the repository's own files"),
            PathLocation::Outside | PathLocation::Private => (NativeClass::Leave, "it writes outside the project"),
        };
        if this.0 > worst.0 {
            worst = this;
        }
    }
    let files = files.iter().map(|(path, _)| path.clone()).collect();
    ClassifiedCall { files, ..plain(worst.0, worst.1, what) }
}
