//! What a model is shown of a catalog. MCP, the gateway, the bridge and HTTP list a [`Surface`] and nothing else, so
//! that every door shows the same.
//!
//! | mode | tools with their schemas | text for the prompt |
//! | --- | --- | --- |
//! | direct | every tool the caller may use | none |
//! | code | `tool_search_code` | none |
//! | tools | `tool_search`, `tool_describe`, `tool_call` | none |
//! | directory | the same three, the client's own tools, and a few for the turn | a bounded list of names |
//!
//! In every mode except direct, the configuration may name tools that are shown in addition ([`SurfaceSettings`]). A
//! tool that is not shown can still be called if the policy allows it.
//!
//! Does not depend on doors or configuration files, and cannot run a tool.

mod directory;
mod effective;

pub use effective::{EffectiveCatalog, EffectiveCatalogCache, Sources};

use crate::{
    policy::Selectors,
    registry::{Snapshot, SourceKind, ToolEntry, safe_name},
};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};
use toolyard_protocol::{Schema, ToolName, WorkspaceId};

/// Runs a script that searches and calls.
pub const CODE: &str = "tool_search_code";
/// Name of the tool that searches.
pub const SEARCH: &str = "tool_search";
/// Name of the tool that describes a tool.
pub const DESCRIBE: &str = "tool_describe";
/// Name of the tool that calls a tool.
pub const CALL: &str = "tool_call";
/// Calls, under the name newer clients use.
pub const DISPATCH: &str = "dispatch_action";

/// The control tools. They replace a catalog and are never part of one.
pub const CONTROL_NAMES: [&str; 5] = [CODE, SEARCH, DESCRIBE, CALL, DISPATCH];

/// Tools that are shown for one turn in directory mode: required and likely ones together.
pub const MAX_TURN_TOOLS: usize = 4;
/// Bytes of these tools together, as JSON.
pub const MAX_TURN_BYTES: usize = 8 << 10;
/// Number of search hits that are considered as likely tools: some belong to untrusted sources, some are too large.
const LIKELY_HITS: usize = MAX_TURN_TOOLS * 3;

/// Whether a name is a control tool's.
pub fn is_control(name: &str) -> bool {
    CONTROL_NAMES.contains(&name)
}

/// How a model reaches the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every tool with its schema.
    #[default]
    Direct,
    /// One tool that runs a script in a sandbox.
    Code,
    /// Three tools: search, describe, call.
    Tools,
    /// The same three, with a bounded list of names in the prompt.
    Directory,
}

impl Mode {
    /// The modes that hide the catalog behind a search.
    pub const SEARCHING: [Self; 3] = [Self::Code, Self::Tools, Self::Directory];

    /// The word used in configurations and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Code => "code",
            Self::Tools => "tools",
            Self::Directory => "directory",
        }
    }

    /// The searching mode of this word.
    pub fn searching(word: &str) -> Option<Self> {
        Self::SEARCHING.into_iter().find(|mode| mode.as_str().eq_ignore_ascii_case(word.trim()))
    }

    /// The control tools of the mode.
    fn controls(self) -> &'static [&'static str] {
        match self {
            Self::Direct => &[],
            Self::Code => &[CODE],
            Self::Tools | Self::Directory => &[SEARCH, DESCRIBE, CALL],
        }
    }

    /// The mode to use if the policy denies the control tools of this one.
    fn otherwise(self) -> Self {
        match self {
            Self::Code => Self::Tools,
            Self::Direct | Self::Tools | Self::Directory => Self::Direct,
        }
    }
}

/// A tool as a model is shown it.
#[derive(Debug, Clone)]
pub struct ShownTool {
    /// The name to call it by, in the alphabet of models.
    pub name: String,
    /// The tool's catalog entry.
    pub entry: Arc<ToolEntry>,
}

impl ShownTool {
    /// A tool of a snapshot. Nothing but the name is copied: a list of thousands would be as large again.
    pub fn of(snapshot: &Snapshot, entry: &Arc<ToolEntry>) -> Self {
        Self { name: snapshot.safe_name(entry), entry: entry.clone() }
    }

    /// The tool's description.
    pub fn description(&self) -> &str {
        &self.entry.definition().description
    }

    /// The schema of its arguments.
    pub fn input_schema(&self) -> &Schema {
        &self.entry.definition().input_schema
    }

    /// Whether it is one of the control tools, which look and call on behalf of the caller.
    pub fn is_control(&self) -> bool {
        is_control_entry(&self.entry)
    }

    /// Its length as JSON.
    fn json_bytes(&self) -> usize {
        const PUNCTUATION: usize = r#"{"name":,"description":,"inputSchema":}"#.len();
        let text = |text: &str| serde_json::to_string(text).map_or(text.len() + 2, |json| json.len());
        PUNCTUATION + text(&self.name) + text(self.description()) + self.input_schema().text().len()
    }
}

impl Serialize for ShownTool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tool = serializer.serialize_struct("ShownTool", 3)?;
        tool.serialize_field("name", &self.name)?;
        tool.serialize_field("description", self.description())?;
        tool.serialize_field("inputSchema", self.input_schema())?;
        tool.end()
    }
}

fn is_control_entry(entry: &ToolEntry) -> bool {
    entry.source().kind == SourceKind::Core && is_control(entry.name().as_str())
}

/// The length of a list of tools as a JSON array.
fn list_bytes(tools: impl Iterator<Item = usize>) -> usize {
    let (count, bytes) = tools.fold((0_usize, 0), |(count, bytes), tool| (count + 1, bytes + tool));
    bytes + count.saturating_sub(1) + "[]".len()
}

/// The turn for which the tools are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn<'a> {
    /// The prompt of the turn, from which likely tools are guessed.
    pub prompt: Option<&'a str>,
    /// Tokens of the model's context, to size the directory by.
    pub context_tokens: Option<usize>,
    /// Names of tools the turn cannot do without.
    pub required: &'a [String],
}

/// The configuration of the surface.
#[derive(Debug, Clone, Default)]
pub struct SurfaceSettings {
    /// The mode to use.
    pub mode: Mode,
    /// Tools that are shown with their schemas in every mode.
    pub always_visible: Selectors,
}

/// The tools and the text that a model is shown.
#[derive(Debug, Clone)]
pub struct Surface {
    /// The mode it is for: the configured one, unless the policy denies that mode's control tools.
    pub mode: Mode,
    /// Tools with their schemas.
    pub tools: Vec<ShownTool>,
    /// The section for the prompt (directory mode).
    pub directory: Option<String>,
    /// Names of required tools that are left in the directory, because there is no such tool or no room for it.
    pub required_left_out: Vec<String>,
    catalog: Arc<EffectiveCatalog>,
}

impl Surface {
    /// Every tool, as without Tool Search.
    pub fn direct(catalog: &Arc<EffectiveCatalog>) -> Self {
        let tools = catalog.iter().map(|entry| ShownTool::of(catalog.snapshot(), entry)).collect();
        Self { mode: Mode::Direct, tools, directory: None, required_left_out: Vec::new(), catalog: catalog.clone() }
    }

    /// Computes what a model is shown in this turn.
    pub fn of(catalog: &Arc<EffectiveCatalog>, settings: &SurfaceSettings, turn: &Turn<'_>) -> Self {
        let (mode, controls) = usable(catalog, settings.mode);
        if mode == Mode::Direct {
            return Self::direct(catalog);
        }
        let stays = |entry: &Arc<ToolEntry>| {
            settings.always_visible.contains(entry)
                || (mode == Mode::Directory && entry.source().kind == SourceKind::Client)
        };
        let snapshot = catalog.snapshot();
        let shown = controls.iter().chain(catalog.iter().filter(|entry| stays(entry)));
        let tools = shown.map(|entry| ShownTool::of(snapshot, entry)).collect();
        let mut surface =
            Self { mode, tools, directory: None, required_left_out: Vec::new(), catalog: catalog.clone() };
        if mode == Mode::Directory {
            surface.add_directory(turn);
        }
        surface
    }

    /// The tools for the turn, and the list of all others.
    fn add_directory(&mut self, turn: &Turn<'_>) {
        let catalog = self.catalog.clone();
        let mut there: HashSet<Arc<str>> = self.tools.iter().map(|tool| tool.entry.shared_id().clone()).collect();
        let mut room = TurnBudget { tools: MAX_TURN_TOOLS, bytes: MAX_TURN_BYTES };
        for name in turn.required {
            match catalog.named(name) {
                Some(entry) if there.contains(entry.id()) => {}
                Some(entry) if room.take(&ShownTool::of(catalog.snapshot(), entry), &mut self.tools) => {
                    there.insert(entry.shared_id().clone());
                }
                _ => self.required_left_out.push(name.clone()),
            }
        }
        if let Some(prompt) = turn.prompt {
            // A stranger's tool is never guessed: its text could be written to be.
            let likely = catalog.search(prompt, LIKELY_HITS, false).into_iter().map(|hit| hit.entry);
            for entry in likely.filter(|entry| entry.source().is_trusted()) {
                if !there.contains(entry.id()) && room.take(&ShownTool::of(catalog.snapshot(), &entry), &mut self.tools)
                {
                    there.insert(entry.shared_id().clone());
                }
            }
        }
        let listed: Vec<&Arc<ToolEntry>> = catalog.iter().filter(|entry| !there.contains(entry.id())).collect();
        self.directory = Some(directory::write(&listed, turn.context_tokens));
    }

    /// Bytes of the tools as JSON, and of the section.
    pub fn bytes(&self) -> usize {
        let tools = match self.mode {
            Mode::Direct => self.catalog.direct_bytes(),
            _ => list_bytes(self.tools.iter().map(ShownTool::json_bytes)),
        };
        tools + self.directory.as_ref().map_or(0, String::len)
    }

    /// The catalog that it shows.
    pub fn catalog(&self) -> &Arc<EffectiveCatalog> {
        &self.catalog
    }

    /// How much is shown of how much.
    pub fn summary(&self) -> SurfaceSummary<'_> {
        SurfaceSummary {
            mode: self.mode,
            catalog_size: self.catalog.len(),
            sources: self.catalog.sources(),
            bytes: SurfaceBytes { direct: self.catalog.direct_bytes(), shown: self.bytes() },
            schemas_shown: self.tools.len(),
            directory: self.directory.as_deref(),
        }
    }
}

/// The room that is left for the tools of a turn.
struct TurnBudget {
    tools: usize,
    bytes: usize,
}

impl TurnBudget {
    fn take(&mut self, tool: &ShownTool, tools: &mut Vec<ShownTool>) -> bool {
        let bytes = tool.json_bytes();
        if self.tools == 0 || bytes > self.bytes {
            return false;
        }
        self.tools -= 1;
        self.bytes -= bytes;
        tools.push(tool.clone());
        true
    }
}

/// The mode whose control tools the caller may use, and these tools. If the policy denies `tool_search`, hiding the
/// catalog would leave the model without tools.
fn usable(catalog: &EffectiveCatalog, wanted: Mode) -> (Mode, Vec<Arc<ToolEntry>>) {
    let mut mode = wanted;
    loop {
        let names = mode.controls();
        let controls: Vec<Arc<ToolEntry>> = names.iter().filter_map(|name| catalog.control(name)).cloned().collect();
        if controls.len() == names.len() {
            return (mode, controls);
        }
        mode = mode.otherwise();
    }
}

/// How much of a catalog is shown.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceSummary<'a> {
    /// The mode in force.
    pub mode: Mode,
    /// Tools the caller may use.
    pub catalog_size: usize,
    /// Where they come from.
    pub sources: Sources,
    /// Bytes a model is sent.
    pub bytes: SurfaceBytes,
    /// Tools that are shown with their schemas.
    pub schemas_shown: usize,
    /// The section for the prompt (directory mode).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<&'a str>,
}

/// Bytes of tools and prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SurfaceBytes {
    /// Bytes if every tool were shown with its schema.
    pub direct: usize,
    /// Bytes in the mode that is shown.
    pub shown: usize,
}

/// The offered names that are already in use in the workspace, or used twice, in the spelling that models see. `is_own`
/// identifies the client's earlier tools, which the offer replaces.
pub fn taken_names(
    snapshot: &Snapshot,
    workspace: &WorkspaceId,
    offered: &[ToolName],
    is_own: impl Fn(&ToolEntry) -> bool,
) -> Vec<String> {
    let folded = |name: &ToolName| safe_name(name).to_lowercase();
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for name in offered {
        *alike.entry(folded(name)).or_default() += 1;
    }
    let mut taken: HashSet<String> = HashSet::new();
    for entry in snapshot.iter().filter(|entry| entry.is_in(workspace) && !is_own(entry)) {
        for spelling in [folded(entry.name()), snapshot.safe_name(entry).to_lowercase()] {
            if alike.contains_key(&spelling) {
                taken.insert(spelling);
            }
        }
    }
    let is_taken = |name: &&ToolName| {
        let spelling = folded(name);
        is_control(&spelling) || taken.contains(&spelling) || alike.get(&spelling).is_some_and(|count| *count > 1)
    };
    offered.iter().filter(is_taken).map(ToString::to_string).collect()
}

/// White space collapsed, and cut with three dots.
pub fn one_line(text: &str, chars: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > chars * 4 {
            break;
        }
    }
    if line.chars().count() <= chars {
        return line;
    }
    line.chars().take(chars.saturating_sub(3)).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests;
