//! Toolyard's entries in the hook settings of each client.

use super::{Program, WORKSPACE_OPTION, json::JsonFile};
use jsonc_parser::cst::{CstArray, CstObject};
use serde_json::{Value, json};
use toolyard_hooks::Client;
use toolyard_protocol::WorkspaceId;

/// What the shell does when this program does not answer: exit codes other than 2 run the tool.
const REFUSE: &str = " || { echo 'Toolyard did not answer: refused' >&2; exit 2; }";
/// Words of every entry of ours, after the program's path.
const RUN: [&str; 3] = ["hooks", "run", "--client"];

/// A hook that is installed.
struct HookSpec {
    event: &'static str,
    /// The event concerns tools, so its entry has a matcher.
    is_for_tools: bool,
    /// The hook decides about a call, so a failed hook must refuse the call.
    decides: bool,
    seconds: u64,
}

const fn hook(event: &'static str, is_for_tools: bool, decides: bool, seconds: u64) -> HookSpec {
    HookSpec { event, is_for_tools, decides, seconds }
}

const CLAUDE: [HookSpec; 10] = [
    hook("PreToolUse", true, true, 600),
    hook("PostToolUse", true, false, 120),
    hook("PostToolUseFailure", true, false, 120),
    hook("PermissionDenied", true, false, 120),
    hook("ConfigChange", false, true, 120),
    hook("SessionStart", false, false, 30),
    hook("SessionEnd", false, false, 30),
    hook("UserPromptSubmit", false, false, 30),
    hook("Stop", false, false, 30),
    hook("SubagentStop", false, false, 30),
];
const CODEX: [HookSpec; 9] = [
    hook("PreToolUse", true, true, 600),
    hook("PermissionRequest", true, false, 600),
    hook("PostToolUse", true, false, 60),
    hook("SessionStart", false, false, 30),
    hook("UserPromptSubmit", false, false, 30),
    hook("Stop", false, false, 30),
    hook("SubagentStop", false, false, 30),
    hook("Interrupt", false, false, 3),
    hook("SessionEnd", false, false, 3),
];
const GEMINI: [HookSpec; 7] = [
    hook("BeforeTool", true, true, 600),
    hook("AfterTool", true, false, 60),
    hook("SessionStart", false, false, 30),
    hook("SessionEnd", false, false, 30),
    hook("BeforeAgent", false, false, 30),
    hook("AfterAgent", false, false, 30),
    hook("Notification", false, false, 30),
];

fn specs(client: Client) -> &'static [HookSpec] {
    match client {
        Client::Claude => &CLAUDE,
        Client::Codex => &CODEX,
        Client::Gemini => &GEMINI,
        // Its plugin runs `hooks run` by itself.
        Client::Opencode => &[],
    }
}

/// The events with their groups, as they are installed.
pub(crate) fn wanted(client: Client, program: &Program) -> Vec<(&'static str, Value)> {
    specs(client).iter().map(|spec| (spec.event, group(client, spec, program))).collect()
}

fn group(client: Client, spec: &HookSpec, program: &Program) -> Value {
    let words = ["hooks", "run", "--client", client.as_str()];
    let line = || format!("{}{}", program.line(&words), if spec.decides { REFUSE } else { "" });
    let mut entry = match client {
        Client::Claude => json!({
            "type": "command", "command": program.command(), "args": program.arguments(&words), "timeout": spec.seconds,
        }),
        Client::Codex | Client::Opencode => json!({"type": "command", "command": line(), "timeout": spec.seconds}),
        Client::Gemini => {
            json!({"type": "command", "name": "toolyard", "command": line(), "timeout": spec.seconds * 1000})
        }
    };
    if client == Client::Claude && spec.decides {
        entry["onFailure"] = json!("block");
    }
    if client == Client::Claude && spec.event == "PreToolUse" {
        entry["statusMessage"] = json!("Toolyard");
    }
    if spec.is_for_tools { json!({"matcher": "*", "hooks": [entry]}) } else { json!({"hooks": [entry]}) }
}

/// Whether an entry of a group runs `hooks run` of this program, or of a Toolyard in another place.
fn is_ours(entry: &Value, client: Client, this: &Program) -> bool {
    let command = entry.get("command").and_then(Value::as_str).unwrap_or_default();
    let args: Vec<&str> =
        entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if args.is_empty() {
        is_our_line(command, client, this)
    } else {
        names_toolyard(command, this) && args.get(..3) == Some(&RUN[..]) && args.get(3) == Some(&client.as_str())
    }
}

/// The workspace that our entries in a file name; the default one if they name none or there are none.
pub(crate) fn workspace(client: Client, program: &Program, settings: &Value) -> WorkspaceId {
    let groups = settings.get("hooks").and_then(Value::as_object).into_iter().flatten();
    let groups = groups.filter_map(|(_, groups)| groups.as_array()).flatten();
    let entries = groups.filter_map(|group| group.get("hooks").and_then(Value::as_array)).flatten();
    let mut ours = entries.filter(|entry| is_ours(entry, client, program));
    ours.find_map(named_workspace).unwrap_or_default()
}

/// The workspace that an entry of ours names. The name of a workspace needs no quotes in a shell.
fn named_workspace(entry: &Value) -> Option<WorkspaceId> {
    let line = entry.get("command").and_then(Value::as_str).unwrap_or_default().split(' ');
    let args = entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut words = line.chain(args);
    words.find(|word| *word == WORKSPACE_OPTION)?;
    WorkspaceId::parse(words.next()?).ok()
}

/// Whether an entry that is one line for a shell runs `hooks run` of this program, or of a Toolyard in another place.
pub(crate) fn is_our_line(line: &str, client: Client, this: &Program) -> bool {
    let run = format!(" {} {client}", RUN.join(" "));
    line.find(&run).is_some_and(|at| names_toolyard(&line[..at], this))
}

fn names_toolyard(program: &str, this: &Program) -> bool {
    let program = program.trim_matches('\'');
    let is_named = program.rsplit('/').next().is_some_and(|name| name.starts_with("toolyard"));
    program.starts_with('/') && (is_named || program == this.command())
}

/// Whether the hooks are installed in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installed {
    /// None of Toolyard's hooks.
    No,
    /// Some are missing, or are for another program, home or version.
    Partly,
    /// All of them.
    Yes,
}

/// Looks whether all wanted groups are there, and none of ours besides.
pub(crate) fn installed(client: Client, program: &Program, settings: &Value) -> Installed {
    let hooks = settings.get("hooks");
    let groups = |event: &str| hooks.and_then(|hooks| hooks.get(event)).and_then(Value::as_array);
    let ours = |group: &Value| {
        group
            .get("hooks")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().any(|entry| is_ours(entry, client, program)))
    };
    let all = hooks.and_then(Value::as_object).into_iter().flatten();
    let count = all.filter_map(|(_, groups)| groups.as_array()).flatten().filter(|group| ours(group)).count();
    let wanted = wanted(client, program);
    let there = wanted.iter().all(|(event, group)| groups(event).is_some_and(|groups| groups.contains(group)));
    let enabled = client != Client::Gemini || settings.pointer("/hooksConfig/enabled") == Some(&Value::Bool(true));
    match (there && enabled && count == wanted.len(), count) {
        (true, _) => Installed::Yes,
        (false, 0) => Installed::No,
        (false, _) => Installed::Partly,
    }
}

/// Adds our groups to a file that has none of them.
pub(crate) fn add(client: Client, program: &Program, file: &JsonFile) -> Result<(), String> {
    if client == Client::Gemini {
        file.set(&["hooksConfig"], "enabled", &Value::Bool(true))?;
    }
    let hooks = file.object(&["hooks"])?;
    for (event, group) in wanted(client, program) {
        let groups = hooks.array_value_or_create(event).ok_or_else(|| format!("hooks.{event} is not a list"))?;
        groups.ensure_multiline();
        groups.append(super::json::input(&group));
    }
    Ok(())
}

/// Takes our entries out, and groups, events and tables that are empty because of it. What was empty before stays: it is
/// the user's.
pub(crate) fn remove(client: Client, program: &Program, file: &JsonFile) {
    let Some(hooks) = file.top().object_value("hooks") else { return };
    let mut removed = false;
    for member in hooks.properties() {
        let Some(groups) = member.array_value() else { continue };
        let mut removed_here = false;
        for group in groups.elements() {
            let Some(entries) = group.as_object().and_then(|group: CstObject| group.array_value("hooks")) else {
                continue;
            };
            if remove_entries(client, program, &entries) {
                removed_here = true;
                if entries.elements().is_empty() {
                    group.remove();
                }
            }
        }
        if removed_here && groups.elements().is_empty() {
            member.remove();
        }
        removed |= removed_here;
    }
    if removed && hooks.properties().is_empty() {
        file.remove(&[], "hooks");
    }
}

fn remove_entries(client: Client, program: &Program, entries: &CstArray) -> bool {
    let mut removed = false;
    for entry in entries.elements() {
        if entry.to_serde_value().is_some_and(|entry| is_ours(&entry, client, program)) {
            entry.remove();
            removed = true;
        }
    }
    removed
}
