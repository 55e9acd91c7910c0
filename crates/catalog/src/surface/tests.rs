use super::*;
use crate::{Policy, PolicyConfig, Registry, Subject, ToolSource};
use serde_json::{Value, json};

fn entry(name: &str, description: &str, source: ToolSource) -> ToolEntry {
    let definition = serde_json::from_value(json!({
        "name": name, "title": name, "description": description, "category": "x", "riskLevel": "read-only",
        "idempotency": "pure", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
    }))
    .unwrap();
    ToolEntry::new(definition, source).unwrap()
}

/// These tools and the control tools, for a caller under a policy.
fn catalog_for(
    effectives: &EffectiveCatalogCache,
    entries: Vec<ToolEntry>,
    scopes: &[String],
    policy: Value,
) -> Arc<EffectiveCatalog> {
    let mut registry = Registry::new();
    let controls = CONTROL_NAMES.map(|name| entry(name, "Controls.", ToolSource::core()));
    entries.into_iter().chain(controls).for_each(|entry| registry.add(entry).unwrap());
    let policy: PolicyConfig = serde_json::from_value(policy).unwrap();
    let policy = Policy::compile(&policy).unwrap();
    let subject = Subject { agent: "main", session: None, door: "mcp", scopes };
    effectives.of(&registry.snapshot(), &policy.effective(&subject), scopes)
}

fn catalog(effectives: &EffectiveCatalogCache, entries: Vec<ToolEntry>, scopes: &[String]) -> Arc<EffectiveCatalog> {
    catalog_for(effectives, entries, scopes, json!({}))
}

fn many(count: usize) -> Vec<ToolEntry> {
    let text = "Does something rather specific with the thing it is named after, and explains at length how.".repeat(3);
    (0..count).map(|n| entry(&format!("plugin_tool_{n:04}"), &text, ToolSource::plugin("p"))).collect()
}

fn settings(mode: Mode, always: &[&str]) -> SurfaceSettings {
    let words: Vec<String> = always.iter().map(|word| (*word).to_owned()).collect();
    let always_visible = Selectors::parse("alwaysVisible", &words, &BTreeMap::new()).unwrap();
    SurfaceSettings { mode, always_visible }
}

fn names(surface: &Surface) -> Vec<&str> {
    surface.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn directory_of(catalog: &Arc<EffectiveCatalog>, context_tokens: Option<usize>) -> String {
    let turn = Turn { context_tokens, ..Turn::default() };
    Surface::of(catalog, &settings(Mode::Directory, &[]), &turn).directory.unwrap()
}

#[test]
fn catalogs_are_kept_for_callers_alike() {
    let effectives = EffectiveCatalogCache::new(None);
    let first = catalog(&effectives, many(5), &[]);
    assert!(Arc::ptr_eq(&first, &catalog(&effectives, many(5), &[])), "the same tools, policy and scopes");
    let other = catalog(&effectives, many(5), &["operator.read".to_owned()]);
    assert!(!Arc::ptr_eq(&first, &other), "scopes decide what is visible");
    assert_eq!(first.fingerprint(), other.fingerprint());
    assert_ne!(first.fingerprint(), catalog(&effectives, many(6), &[]).fingerprint());
}

#[test]
fn an_earlier_version_goes_with_its_last_reader() {
    let effectives = EffectiveCatalogCache::new(None);
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

#[toolyard_shows::shows("001-5-07")]
#[test]
fn descriptions_shrink_before_names_are_left_out() {
    let effectives = EffectiveCatalogCache::new(None);
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
fn every_source_is_behind_the_search_but_for_what_the_configuration_names() {
    let mut entries = many(20);
    entries.push(entry("vault.read", "Reads.", ToolSource::core()));
    entries.push(entry("mine", "Of the client.", ToolSource::client()));
    entries.push(entry("server__there", "A stranger's words.", ToolSource::mcp("server")));
    let catalog = catalog(&EffectiveCatalogCache::new(None), entries, &[]);
    let shown = |mode, always: &[&str]| {
        let surface = Surface::of(&catalog, &settings(mode, always), &Turn::default());
        names(&surface).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let three = ["tool_search", "tool_describe", "tool_call"];
    assert_eq!(shown(Mode::Code, &[]), ["tool_search_code"]);
    assert_eq!(shown(Mode::Tools, &[]), three);
    assert_eq!(shown(Mode::Directory, &[]), ["tool_search", "tool_describe", "tool_call", "mine"]);
    assert_eq!(shown(Mode::Direct, &[]).len(), 23, "and no control tool");
    assert_eq!(shown(Mode::Code, &["vault.read"]), ["tool_search_code", "vault_read"]);
    assert_eq!(shown(Mode::Code, &["group:mcp"]), ["tool_search_code", "server__there"]);
    let directory = directory_of(&catalog, None);
    assert!(directory.contains("- server__there (server): MCP tool, reads, 1 argument.\n"), "{directory}");
    assert!(directory.contains("- vault.read (core): Reads.\n") && !directory.contains("stranger"), "{directory}");
}

#[test]
fn the_tools_of_a_turn_are_bounded_in_number_and_bytes() {
    let mut entries = many(20);
    entries.push(entry("huge", &"x".repeat(9_000), ToolSource::plugin("p")));
    let catalog = catalog(&EffectiveCatalogCache::new(None), entries, &[]);
    let of = |required: &[&str], prompt: Option<&str>| {
        let required: Vec<String> = required.iter().map(|name| (*name).to_owned()).collect();
        Surface::of(
            &catalog,
            &settings(Mode::Directory, &[]),
            &Turn { prompt, required: &required, context_tokens: None },
        )
    };
    let all: Vec<String> = (0..9).map(|n| format!("plugin_tool_{n:04}")).collect();
    let many = of(&all.iter().map(String::as_str).collect::<Vec<_>>(), Some("plugin_tool_0015"));
    assert_eq!((many.tools.len(), many.required_left_out.len()), (3 + MAX_TURN_TOOLS, 5));
    let large = of(&["huge", "nobody"], Some("plugin_tool_0015"));
    assert_eq!(large.required_left_out, ["huge", "nobody"]);
    assert_eq!(names(&large)[3], "plugin_tool_0015", "a likely one");
    assert!(!large.directory.unwrap().contains("plugin_tool_0015 "), "what is shown is not listed");
}

#[test]
fn where_the_policy_denies_the_control_tools_the_catalog_is_not_hidden() {
    let effectives = EffectiveCatalogCache::new(None);
    let mode = |wanted, deny: &[&str]| {
        let catalog = catalog_for(&effectives, many(3), &[], json!({"deny": deny}));
        Surface::of(&catalog, &settings(wanted, &[]), &Turn::default()).mode
    };
    assert_eq!(mode(Mode::Code, &["tool_search_code"]), Mode::Tools);
    assert_eq!(mode(Mode::Code, &["tool_search_code", "tool_call"]), Mode::Direct);
    assert_eq!(mode(Mode::Directory, &["tool_search"]), Mode::Direct);
    assert_eq!(mode(Mode::Code, &["tool_search"]), Mode::Code, "a script searches by itself");
}

#[test]
fn bytes_are_those_of_the_json_that_is_sent() {
    let mut entries = many(3);
    entries.push(entry("quotes", "Says \"ü\"\n and \\ more.", ToolSource::plugin("p")));
    let catalog = catalog(&EffectiveCatalogCache::new(None), entries, &[]);
    let direct = Surface::direct(&catalog);
    assert_eq!(direct.bytes(), serde_json::to_string(&direct.tools).unwrap().len());
    let compact = Surface::of(&catalog, &settings(Mode::Directory, &[]), &Turn::default());
    let tools = serde_json::to_string(&compact.tools).unwrap().len();
    assert_eq!(compact.bytes(), tools + compact.directory.as_ref().unwrap().len());
    assert_eq!(compact.summary().bytes, SurfaceBytes { direct: direct.bytes(), shown: compact.bytes() });
}

#[test]
fn a_clients_names_are_told_from_all_others_in_the_spelling_of_models() {
    let tools = vec![
        entry("vault.readFile", "Reads.", ToolSource::core()),
        entry("server__there", "There.", ToolSource::mcp("server")),
        entry("earlier", "Offered before.", ToolSource::client()),
    ];
    let catalog = catalog(&EffectiveCatalogCache::new(None), tools, &[]);
    let taken = |offered: &[&str]| {
        let names: Vec<ToolName> = offered.iter().map(|name| ToolName::parse(name).unwrap()).collect();
        taken_names(catalog.snapshot(), &WorkspaceId::default(), &names, |entry| entry.name().as_str() == "earlier")
    };
    assert_eq!(taken(&["vault_readfile", "Server__There", "tool_call", "fine"]).len(), 3);
    assert_eq!(taken(&["a.b", "a_b"]), ["a.b", "a_b"], "nor can the model tell these two apart");
    assert!(taken(&["earlier", "own"]).is_empty());
}
