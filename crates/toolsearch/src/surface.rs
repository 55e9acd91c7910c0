//! [`Surface`]: what a model is shown of a catalog, in each mode. Doors send it; nothing here is sent.

use crate::{
    config::{Mode, Settings},
    controls::{CALL, CODE, DESCRIBE, SEARCH, definitions, is_control},
    effective::EffectiveCatalog,
    entries::{one_line, shown_name},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};
use toolyard_catalog::{SourceKind, ToolEntry};
use toolyard_protocol::{ErrorCode, Failure};

/// The directory is never longer than this.
const MAX_DIRECTORY_CHARS: usize = 18_000;
/// Nor shorter, whatever the model's context.
const MIN_DIRECTORY_CHARS: usize = 768;
/// Characters of the directory for each ten tokens of context.
const TOKENS_PER_CHAR: usize = 10;
/// Lengths of descriptions tried, longest first, before names are left out.
const DESCRIPTION_STEPS: [usize; 3] = [180, 64, 0];
/// Likely tools whose schemas are shown in directory mode.
const MAX_LIKELY: usize = 4;
/// Required and likely tools together.
const MAX_HYDRATED: usize = 12;

/// A tool as a model is shown it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownTool {
    /// The name to call it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    #[serde(rename = "inputSchema")]
    pub input_schema: Map<String, Value>,
    /// Its id in the catalog; control tools have none.
    #[serde(skip)]
    pub id: Option<String>,
}

/// What to show, and to whom.
#[derive(Debug, Clone, Copy, Default)]
pub struct SurfaceRequest<'a> {
    /// What the model is about to be asked, to guess which tools it needs (directory mode).
    pub prompt: Option<&'a str>,
    /// Tools it must have, by name (directory mode).
    pub required: &'a [&'a str],
    /// The model's context window, to size the directory by.
    pub context_tokens: Option<usize>,
}

/// What a model is shown.
#[derive(Debug, Clone)]
pub struct Surface {
    /// The mode it is for; `None` when every tool is shown directly.
    pub mode: Option<Mode>,
    /// Tools with their schemas.
    pub tools: Vec<ShownTool>,
    /// The section for the prompt (directory mode).
    pub directory: Option<String>,
    /// Bytes of the tools as JSON, and of the section.
    pub bytes: usize,
}

impl Surface {
    /// Every tool, as without Tool Search.
    pub fn direct(catalog: &EffectiveCatalog) -> Self {
        Self::put(None, catalog.iter().map(|entry| shown_entry(catalog, entry)).collect(), None)
    }

    /// What a model is shown under these settings.
    pub fn of(
        catalog: &EffectiveCatalog,
        settings: &Settings,
        mode: Mode,
        request: &SurfaceRequest<'_>,
    ) -> Result<Self, Failure> {
        let conflicts = client_conflicts(catalog, mode);
        if !conflicts.is_empty() {
            return Err(Failure::new(
                ErrorCode::Conflict,
                format!("client tool name conflict: {}", conflicts.join(", ")),
            )
            .suggest("Rename the client's tools; these names belong to others.")
            .detail("names", conflicts)
            .retryable(false));
        }
        if !settings.enabled {
            return Ok(Self::direct(catalog));
        }
        let controls: &[&str] = match mode {
            Mode::Code => &[CODE],
            Mode::Tools | Mode::Directory => &[SEARCH, DESCRIBE, CALL],
        };
        let mut tools: Vec<ShownTool> = controls.iter().filter_map(|name| shown_control(name)).collect();
        let stays = |entry: &ToolEntry| {
            // Hiding what every task needs costs more turns than it saves bytes.
            entry.source().kind == SourceKind::Core
                || entry.always_load()
                || (mode == Mode::Directory && entry.source().kind == SourceKind::Client)
        };
        tools.extend(catalog.iter().filter(|entry| stays(entry)).map(|entry| shown_entry(catalog, entry)));
        if mode != Mode::Directory {
            return Ok(Self::put(Some(mode), tools, None));
        }
        let mut there: HashSet<String> = tools.iter().filter_map(|tool| tool.id.clone()).collect();
        for entry in hydrated(catalog, request) {
            if there.insert(entry.id().to_owned()) {
                tools.push(shown_entry(catalog, &entry));
            }
        }
        let listed: Vec<&Arc<ToolEntry>> = catalog.iter().filter(|entry| !there.contains(entry.id())).collect();
        Ok(Self::put(Some(mode), tools, Some(directory(&listed, request.context_tokens))))
    }

    fn put(mode: Option<Mode>, tools: Vec<ShownTool>, directory: Option<String>) -> Self {
        let bytes = serde_json::to_vec(&tools).map_or(0, |json| json.len()) + directory.as_ref().map_or(0, String::len);
        Self { mode, tools, directory, bytes }
    }
}

fn shown_entry(catalog: &EffectiveCatalog, entry: &ToolEntry) -> ShownTool {
    ShownTool {
        name: shown_name(catalog.snapshot(), entry),
        description: entry.definition().description.clone(),
        input_schema: entry.definition().input_schema.parse(),
        id: Some(entry.id().to_owned()),
    }
}

fn shown_control(name: &str) -> Option<ShownTool> {
    let definition = definitions().ok()?.into_iter().find(|definition| definition.name.as_str() == name)?;
    let input_schema = definition.input_schema.parse();
    Some(ShownTool { name: name.to_owned(), description: definition.description, input_schema, id: None })
}

/// Tools whose schemas are worth showing for this turn: those required, then those the prompt seems to be about.
/// A stranger's tool is never guessed: its text could be written to be.
fn hydrated(catalog: &EffectiveCatalog, request: &SurfaceRequest<'_>) -> Vec<Arc<ToolEntry>> {
    let required = request.required.iter().filter_map(|name| catalog.hydrate(name)).cloned();
    let mut chosen: Vec<Arc<ToolEntry>> = required.take(MAX_HYDRATED).collect();
    if let Some(prompt) = request.prompt {
        let likely = catalog.search(prompt, MAX_LIKELY * 3, false).into_iter().map(|hit| hit.entry);
        let trusted = likely.filter(|entry| entry.source().is_trusted()).take(MAX_LIKELY);
        for entry in trusted {
            if chosen.len() < MAX_HYDRATED && !chosen.iter().any(|known| known.id() == entry.id()) {
                chosen.push(entry);
            }
        }
    }
    chosen
}

/// The directory's text. Only what the operator installed is listed: anything else could talk to the model from here.
fn directory(entries: &[&Arc<ToolEntry>], context_tokens: Option<usize>) -> String {
    let room = context_tokens.map_or(MAX_DIRECTORY_CHARS, |tokens| {
        (tokens / TOKENS_PER_CHAR).clamp(MIN_DIRECTORY_CHARS, MAX_DIRECTORY_CHARS)
    });
    let mut named: BTreeMap<&str, Vec<&Arc<ToolEntry>>> = BTreeMap::new();
    for entry in entries {
        named.entry(entry.name().as_str()).or_default().push(entry);
    }
    let listed: Vec<&Arc<ToolEntry>> = named
        .iter()
        .filter(|(name, entries)| entries.len() == 1 && is_plain(name))
        .filter_map(|(_, entries)| entries.first().copied())
        .filter(|entry| entry.source().is_trusted())
        .collect();
    let left_out = entries.len() - listed.len();
    if entries.is_empty() {
        return "### Deferred Tool Schemas\n\nAvailable deferred-schema tools: none.".to_owned();
    }
    let mut lines = Vec::new();
    let mut shown = 0;
    for chars in DESCRIPTION_STEPS {
        lines = listed.iter().map(|entry| line(entry, chars)).collect();
        shown = fitting(&lines, left_out, room);
        if shown == lines.len() {
            break;
        }
    }
    text(&lines[..shown], entries.len() - shown)
}

/// How many lines fit, by bisection: more lines never make the text shorter.
fn fitting(lines: &[String], left_out: usize, room: usize) -> usize {
    let fits = |count: usize| text(&lines[..count], lines.len() - count + left_out).chars().count() <= room;
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn text(lines: &[String], omitted: usize) -> String {
    let mut text = "### Deferred Tool Schemas\n\nAvailable deferred-schema tools:\n".to_owned();
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    if omitted > 0 {
        text.push_str(&format!("{omitted} additional tools omitted. Use tool_search to find them, "));
        text.push_str("one short query per step of the task. ");
    }
    text.push_str("Use tool_describe for a tool's schema and tool_call to call it.");
    text
}

fn line(entry: &ToolEntry, chars: usize) -> String {
    let name = entry.name();
    if chars == 0 {
        return format!("- {name}");
    }
    let description = one_line(&entry.definition().description, chars);
    let description = if description.is_empty() { "No description.".to_owned() } else { description };
    format!("- {name} ({}): {description}", entry.source().name)
}

/// Names that are nothing but a name.
fn is_plain(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 128
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b))
}

/// Names of client tools that belong to others: to core or control tools, to another client tool, and where hidden names
/// can be called directly, to any tool.
pub fn client_conflicts(catalog: &EffectiveCatalog, mode: Mode) -> Vec<String> {
    let normal = |entry: &ToolEntry| entry.name().as_str().trim().to_lowercase();
    let mut clients: BTreeMap<String, usize> = BTreeMap::new();
    for entry in catalog.iter().filter(|entry| entry.source().kind == SourceKind::Client) {
        *clients.entry(normal(entry)).or_default() += 1;
    }
    if clients.is_empty() {
        return Vec::new();
    }
    let mut taken: HashSet<String> = HashSet::new();
    // Denied tools count as well: their names are taken all the same.
    for entry in catalog.snapshot().iter() {
        let kind = entry.source().kind;
        if kind == SourceKind::Core || (mode == Mode::Directory && kind != SourceKind::Client) {
            taken.insert(normal(entry));
        }
    }
    let conflicts = |(name, count): (&String, &usize)| {
        (*count > 1 || is_control(name) || taken.contains(name)).then(|| name.clone())
    };
    clients.iter().filter_map(conflicts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effectives, ToolSearchConfig};
    use serde_json::json;
    use toolyard_catalog::{Policy, PolicyConfig, Registry, Subject, ToolSource};

    fn entry(name: &str, description: &str, source: ToolSource) -> ToolEntry {
        let definition = serde_json::from_value(json!({
            "name": name, "title": name, "description": description, "category": "x", "riskLevel": "read-only",
            "idempotency": "pure", "inputSchema": {"type": "object"},
        }))
        .unwrap();
        ToolEntry::new(definition, source).unwrap()
    }

    fn catalog(effectives: &Effectives, entries: Vec<ToolEntry>, scopes: &[String]) -> Arc<EffectiveCatalog> {
        let mut registry = Registry::new();
        entries.into_iter().for_each(|entry| registry.add(entry).unwrap());
        let policy = Policy::compile(&PolicyConfig::default()).unwrap();
        let subject = Subject { agent: "main", session: None, door: "mcp", scopes };
        effectives.of(&registry.snapshot(), &policy.effective(&subject), scopes)
    }

    fn many(count: usize) -> Vec<ToolEntry> {
        let text =
            "Does something rather specific with the thing it is named after, and explains at length how.".repeat(3);
        (0..count).map(|n| entry(&format!("plugin_tool_{n:04}"), &text, ToolSource::plugin("p"))).collect()
    }

    fn directory_of(catalog: &EffectiveCatalog, context_tokens: Option<usize>) -> String {
        let settings = ToolSearchConfig::Switch(true).settings();
        let request = SurfaceRequest { context_tokens, ..SurfaceRequest::default() };
        Surface::of(catalog, &settings, Mode::Directory, &request).unwrap().directory.unwrap()
    }

    #[test]
    fn catalogs_are_kept_for_callers_alike() {
        let effectives = Effectives::new(None);
        let first = catalog(&effectives, many(5), &[]);
        assert!(Arc::ptr_eq(&first, &catalog(&effectives, many(5), &[])), "the same tools, policy and scopes");
        let other = catalog(&effectives, many(5), &["operator.read".to_owned()]);
        assert!(!Arc::ptr_eq(&first, &other), "scopes decide what is visible");
        assert_eq!(first.fingerprint(), other.fingerprint());
        assert_ne!(first.fingerprint(), catalog(&effectives, many(6), &[]).fingerprint());
    }

    #[test]
    fn an_earlier_version_goes_with_its_last_reader() {
        let effectives = Effectives::new(None);
        let first = catalog(&effectives, many(5), &[]);
        first.warm();
        let earlier = Arc::downgrade(first.snapshot());
        let other = catalog(&effectives, many(6), &[]);
        assert_eq!(first.search("plugin_tool_0001", 1, false).len(), 1, "who has it can go on searching it");
        drop(first);
        let again = catalog(&effectives, many(7), &[]);
        assert!(earlier.upgrade().is_none(), "nobody holds five tools in memory any more");
        assert_eq!((other.len(), again.len()), (6, 7));
    }

    #[test]
    fn descriptions_shrink_before_names_are_left_out() {
        let effectives = Effectives::new(None);
        let lines = |text: &str| text.lines().filter(|line| line.starts_with("- ")).count();
        let long = directory_of(&catalog(&effectives, many(50), &[]), None);
        assert!(lines(&long) == 50 && long.contains("...") && !long.contains("omitted"));
        let shorter = directory_of(&catalog(&effectives, many(150), &[]), None);
        assert!(lines(&shorter) == 150 && shorter.len() < 18_001, "64 characters each");
        let bare = directory_of(&catalog(&effectives, many(600), &[]), None);
        assert!(lines(&bare) == 600 && !bare.contains("(p)"), "names alone");
        let cut = directory_of(&catalog(&effectives, many(3_000), &[]), None);
        assert!(lines(&cut) > 700 && cut.contains("additional tools omitted") && cut.chars().count() <= 18_000);
        let small = directory_of(&catalog(&effectives, many(600), &[]), Some(20_000));
        assert!(small.chars().count() <= 2_000, "a tenth of the context's tokens");
        assert!(directory_of(&catalog(&effectives, Vec::new(), &[]), None).ends_with("tools: none."));
    }

    #[test]
    fn core_and_always_loaded_tools_are_never_hidden() {
        let mut entries = many(20);
        entries.push(entry("read", "Reads.", ToolSource::core()));
        entries.push(entry("needed", "Needed.", ToolSource::plugin("p")).with_always_load(true));
        entries.push(entry("mine", "Of the client.", ToolSource::client()));
        let catalog = catalog(&Effectives::new(None), entries, &[]);
        let names = |mode| {
            let settings = ToolSearchConfig::Switch(true).settings();
            let surface = Surface::of(&catalog, &settings, mode, &SurfaceRequest::default()).unwrap();
            let mut names: Vec<String> = surface.tools.into_iter().filter(|t| t.id.is_some()).map(|t| t.name).collect();
            names.sort();
            names
        };
        assert_eq!(names(Mode::Code), ["needed", "read"]);
        assert_eq!(names(Mode::Tools), ["needed", "read"]);
        assert_eq!(names(Mode::Directory), ["mine", "needed", "read"]);
    }
}
