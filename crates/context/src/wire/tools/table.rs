//! The table of tools and their definitions for the registry.

use crate::config::ContextConfig;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use toolyard_engine::{BuiltIn, authority::HostArgument};
use toolyard_protocol::{Idempotency, ToolDefinition, ToolDefinitionError};

/// The plugin name of the tools.
pub const PLUGIN: &str = "openviking";
/// Default timeout of a call.
const TIMEOUT_MS: u64 = 60_000;
/// Default timeout of an import.
const IMPORT_TIMEOUT_MS: u64 = 300_000;
/// Maximum timeout of a call.
const MAX_TIMEOUT_MS: u64 = 600_000;

/// The argument schemas of the tools, by name, taken from OpenViking's plugin.
static SCHEMAS: &str = include_str!("schemas.json");

struct Tool {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    group: &'static str,
    writes: bool,
}

const fn tool(
    name: &'static str,
    title: &'static str,
    group: &'static str,
    writes: bool,
    description: &'static str,
) -> Tool {
    Tool { name, title, description, group, writes }
}

const TOOLS: [Tool; 15] = [
    tool(
        "ov_search",
        "Search (OpenViking)",
        "resource_query",
        false,
        "Searches resources, skills and memories by words and meaning. Gives ranked viking:// URIs with abstracts; read the exact URIs with ov_read before answering.",
    ),
    tool("ov_read", "Read (OpenViking)", "resource_query", false, "Reads the file at one exact viking:// URI."),
    tool(
        "ov_multi_read",
        "Multi Read (OpenViking)",
        "resource_query",
        false,
        "Reads the files at several exact viking:// URIs at once. One that is missing does not fail the others.",
    ),
    tool(
        "ov_list",
        "List (OpenViking)",
        "resource_query",
        false,
        "Lists what lies in a viking:// folder, with the abstracts of folders.",
    ),
    tool(
        "memory_recall",
        "Memory Recall (OpenViking)",
        "memory",
        false,
        "Recalls what is remembered about the user, or what resources say, for a question. Gives whole memories, the most relevant first.",
    ),
    tool(
        "memory_store",
        "Memory Store (OpenViking)",
        "memory",
        true,
        "Remembers a text for later conversations: what the user likes, who somebody is, what happened, how a problem was solved.",
    ),
    tool(
        "memory_forget",
        "Memory Forget (OpenViking)",
        "memory",
        true,
        "Forgets a memory for good: by its exact URI, or by a query that finds candidates. Only a single, nearly literal match of a query is deleted at once.",
    ),
    tool(
        "add_skill",
        "Add Skill (OpenViking)",
        "import",
        true,
        "Keeps a skill for later: a Markdown text (its heading names it, its first paragraph or a front matter describes it) or the description of an MCP tool, as `data`. `source` names a file or folder of this machine and is for folders that the owner granted.",
    ),
    tool(
        "add_resource",
        "Add Resource (OpenViking)",
        "import",
        true,
        "Brings a document, folder, archive, web page or Git repository into viking://resources, so that it can be searched.",
    ),
    tool(
        "ov_archive_search",
        "Archive Search (OpenViking)",
        "archive",
        false,
        "Finds a word or phrase in this session's archived messages, in either letter case.",
    ),
    tool(
        "ov_archive_expand",
        "Archive Expand (OpenViking)",
        "archive",
        false,
        "Gives the messages of one archive of this session as they were.",
    ),
    tool(
        "ov_recall_trace",
        "Recall Trace (OpenViking)",
        "recall_trace",
        false,
        "Shows what was recalled or searched for in this session, what was found, and what was used.",
    ),
    tool(
        "openviking_tool_result_list",
        "Tool Result List (OpenViking)",
        "tool_result",
        false,
        "Lists large tool results of this session that were stored outside the conversation.",
    ),
    tool(
        "openviking_tool_result_search",
        "Tool Result Search (OpenViking)",
        "tool_result",
        false,
        "Finds exact text in a tool result that was stored outside the conversation.",
    ),
    tool(
        "openviking_tool_result_read",
        "Tool Result Read (OpenViking)",
        "tool_result",
        false,
        "Reads a part of a tool result that was stored outside the conversation, by character offset.",
    ),
];

const GROUPS: [&str; 6] = ["memory", "resource_query", "import", "recall_trace", "archive", "tool_result"];

/// The tools that a selector matches; `None` for an unknown selector.
fn selected(word: &str) -> Option<Vec<&'static str>> {
    let names = |wanted: &dyn Fn(&Tool) -> bool| TOOLS.iter().filter(|t| wanted(t)).map(|t| t.name).collect::<Vec<_>>();
    match word {
        "all" => Some(names(&|_| true)),
        "default" => Some(names(&|t| t.name != "add_resource")),
        "experience" => Some(vec!["ov_search", "ov_read"]),
        group if GROUPS.contains(&group) => Some(names(&|t| t.group == group)),
        name => TOOLS.iter().find(|t| t.name == name).map(|t| vec![t.name]),
    }
}

/// Splits list entries at commas and line breaks.
fn words(list: &[String]) -> Vec<String> {
    list.iter()
        .flat_map(|text| text.split([',', '\n']))
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The enabled tools.
pub fn enabled(config: &ContextConfig) -> Result<Vec<&'static str>, String> {
    let pick = |list: &[String], key: &str| {
        let words = words(list);
        let unknown: Vec<&str> = words.iter().map(String::as_str).filter(|w| selected(w).is_none()).collect();
        if unknown.is_empty() {
            Ok(words.iter().filter_map(|w| selected(w)).flatten().collect::<Vec<_>>())
        } else {
            Err(format!("openviking {key} contains unknown tool selectors: {}", unknown.join(", ")))
        }
    };
    let on = if words(&config.enabled_tools).is_empty() {
        selected("all").unwrap_or_default()
    } else {
        pick(&config.enabled_tools, "enabledTools")?
    };
    let off = pick(&config.disabled_tools, "disabledTools")?;
    Ok(TOOLS
        .iter()
        .map(|tool| tool.name)
        .filter(|name| on.contains(name) && !off.contains(name))
        .filter(|name| *name != "add_resource" || config.enable_add_resource_tool)
        .collect())
}

/// The tool definitions for the registry. There are none if the configuration names unknown tools; then only commands
/// work.
///
/// # Errors
/// A tool whose definition is invalid.
pub fn definitions(config: &ContextConfig) -> Result<Vec<ToolDefinition>, ToolDefinitionError> {
    let broken = |error: serde_json::Error| ToolDefinitionError {
        tool: PLUGIN.to_owned(),
        problem: format!("the schemas of the tools cannot be read: {error}"),
    };
    let mut schemas: BTreeMap<String, Map<String, Value>> = serde_json::from_str(SCHEMAS).map_err(broken)?;
    let enabled = enabled(config).unwrap_or_default();
    let on = TOOLS.iter().filter(|tool| enabled.contains(&tool.name));
    on.map(|tool| tool.definition(schemas.remove(tool.name).unwrap_or_default())).collect()
}

/// The argument of the import tools that names a local file or folder.
const SOURCE: &[HostArgument] = &[HostArgument { name: "source", remote: &crate::store::resources::NOT_HOST_PATHS }];

/// The arguments of a tool that name local paths.
pub fn host_arguments(name: &str) -> &'static [HostArgument] {
    match name {
        // A skill is never fetched, so its source is always treated as a path.
        "add_skill" => &[HostArgument { name: "source", remote: &[] }],
        "add_resource" => SOURCE,
        _ => &[],
    }
}

/// The names of the tools that write.
pub fn writing_tools() -> Vec<&'static str> {
    TOOLS.iter().filter(|tool| tool.writes).map(|tool| tool.name).collect()
}

impl Tool {
    fn definition(&self, arguments: Map<String, Value>) -> Result<ToolDefinition, ToolDefinitionError> {
        let tool = if self.writes {
            // These tools are idempotent: a text is stored once, a URI is deleted once, and a source has one place.
            BuiltIn::writes(self.title, self.description, &["memory.write"])
                .idempotency(Idempotency::Idempotent)
                .permissions(&["memory:write"])
        } else {
            BuiltIn::reads(self.title, self.description).permissions(&["memory:read"])
        };
        let timeout = if self.group == "import" { IMPORT_TIMEOUT_MS } else { TIMEOUT_MS };
        tool.category("memory").argument_schema(arguments).timeout_ms(timeout, Some(MAX_TIMEOUT_MS)).build(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[toolyard_shows::shows("003-13-02")]
    #[test]
    fn tools_are_selected_by_name_and_group() {
        let config = |on: &[&str], off: &[&str], resource: bool| ContextConfig {
            enabled_tools: on.iter().map(|s| (*s).to_owned()).collect(),
            disabled_tools: off.iter().map(|s| (*s).to_owned()).collect(),
            enable_add_resource_tool: resource,
            ..ContextConfig::default()
        };
        assert_eq!(enabled(&config(&[], &[], false)).unwrap().len(), 14);
        assert_eq!(enabled(&config(&[], &[], true)).unwrap().len(), 15);
        assert_eq!(
            enabled(&config(&["memory, archive"], &["memory_forget"], false)).unwrap(),
            ["memory_recall", "memory_store", "ov_archive_search", "ov_archive_expand"]
        );
        assert_eq!(enabled(&config(&["import"], &[], false)).unwrap(), ["add_skill"]);
        assert_eq!(
            enabled(&config(&["a", "memory", "b"], &[], false)).unwrap_err(),
            "openviking enabledTools contains unknown tool selectors: a, b"
        );
        let all = definitions(&config(&["all"], &[], true)).unwrap();
        assert_eq!(all.len(), 15);
        let named = |tool: &ToolDefinition| tool.input_schema.value().get("properties").is_some();
        assert!(all.iter().all(named), "each tool has a schema of its own");
    }
}
