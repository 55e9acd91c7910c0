//! Registry, snapshots, names, schema checks.

use crate::{args, core, definition, from};
use serde_json::{Value, json};
use toolyard_catalog::{Registry, RegistryError, Resolution, Snapshot, ToolEntry, ToolSource, Violation};
use toolyard_protocol::WorkspaceId;

fn registry(entries: Vec<ToolEntry>) -> Registry {
    let mut registry = Registry::new();
    entries.into_iter().for_each(|entry| registry.add(entry).unwrap());
    registry
}

fn with_schema(schema: Value) -> ToolEntry {
    core("t.x", "read-only", json!({ "inputSchema": schema }))
}

fn violations(schema: Value, given: Value) -> Vec<Violation> {
    with_schema(schema).check_input(&given).unwrap_err()
}

fn texts(schema: Value, given: Value) -> Vec<String> {
    violations(schema, given).iter().map(Violation::to_string).collect()
}

#[test]
fn ids_say_where_a_tool_comes_from() {
    assert_eq!(core("vault.readFile", "read-only", json!({})).id(), "openclaw:core:vault.readFile");
    assert_eq!(from(ToolSource::plugin("bench"), "echo", "read-only").id(), "openclaw:bench:echo");
    assert_eq!(from(ToolSource::mcp("calendar"), "create_event", "writes").id(), "mcp:calendar:create_event");
    assert_eq!(from(ToolSource::client(), "foo", "writes").id(), "client:client:foo");
}

#[test]
fn a_source_that_would_blur_ids_is_refused() {
    for source in
        [ToolSource::mcp("a:b"), ToolSource::mcp(""), ToolSource::plugin("core"), ToolSource::mcp("x".repeat(129))]
    {
        let error = ToolEntry::new(definition("t", "read-only", json!({})), source).unwrap_err();
        assert!(matches!(error, RegistryError::Source { .. }), "{error}");
    }
}

#[toolyard_shows::shows("000-1-05", "000-1-06", "000-1-07")]
#[test]
fn definitions_that_contradict_themselves_are_refused() {
    let error =
        ToolEntry::new(definition("t", "read-only", json!({"sideEffects":["x"]})), ToolSource::core()).unwrap_err();
    assert!(error.to_string().contains("side effects"), "{error}");
    for schema in [json!({"type":"object","properties":[]}), json!({"type":"object","required":"a"})] {
        let error = ToolEntry::new(definition("t", "read-only", json!({"inputSchema":schema})), ToolSource::core());
        assert!(matches!(error.unwrap_err(), RegistryError::Schema { schema: "inputSchema", .. }));
    }
}

#[test]
fn a_second_tool_of_the_same_id_is_refused_and_the_first_stays() {
    let mut registry = registry(vec![core("a", "read-only", json!({"title":"first"}))]);
    let error = registry.add(core("a", "read-only", json!({"title":"second"}))).unwrap_err();
    assert_eq!(error, RegistryError::Duplicate { id: "openclaw:core:a".into() });
    assert_eq!(registry.snapshot().get("a").unwrap().definition().title, "first");
}

#[toolyard_shows::shows("002-3.1-17")]
#[test]
fn the_version_is_a_fingerprint_of_all_tools_and_nothing_else() {
    let one = registry(vec![core("a", "read-only", json!({})), core("b", "read-only", json!({}))]).snapshot();
    let same = registry(vec![core("b", "read-only", json!({})), core("a", "read-only", json!({}))]).snapshot();
    assert_eq!(one.version(), same.version());
    assert!(one.version().starts_with("1.0.0+") && one.version().len() == 18, "{}", one.version());
    let changed = [
        registry(vec![core("a", "read-only", json!({}))]).snapshot(),
        registry(vec![core("a", "read-only", json!({})), core("b", "read-only", json!({"description":"else"}))])
            .snapshot(),
        registry(vec![core("a", "read-only", json!({})), core("b", "read-only", json!({})).with_optional(true)])
            .snapshot(),
        Snapshot::empty(),
    ];
    assert!(changed.iter().all(|other| other.version() != one.version()));
}

#[test]
fn snapshots_stay_as_they_were() {
    let mut registry = registry(vec![core("a", "read-only", json!({})), from(ToolSource::mcp("m"), "b", "writes")]);
    let before = registry.snapshot();
    registry.remove_source(&ToolSource::mcp("m"));
    assert!(before.get("b").is_some() && registry.snapshot().get("b").is_none());
    let ids: Vec<&str> = before.iter().map(|entry| entry.id()).collect();
    assert_eq!(ids, ["mcp:m:b", "openclaw:core:a"]);
}

#[test]
fn replacing_a_source_is_all_or_nothing() {
    let source = ToolSource::mcp("m");
    let mut registry = registry(vec![from(source.clone(), "old", "writes")]);
    let twice = vec![from(source.clone(), "new", "writes"), from(source.clone(), "new", "writes")];
    assert!(registry.replace_source(&source, twice).is_err());
    assert!(registry.snapshot().get("old").is_some());
    registry.replace_source(&source, vec![from(source.clone(), "new", "writes")]).unwrap();
    assert!(registry.snapshot().get("old").is_none() && registry.snapshot().get("new").is_some());
}

#[test]
fn a_tool_is_found_by_id_name_and_safe_spelling() {
    let snapshot =
        registry(vec![core("vault.createFile", "writes", json!({})), core("other", "writes", json!({}))]).snapshot();
    for key in ["openclaw:core:vault.createFile", "vault.createFile", "vault_createFile"] {
        assert_eq!(snapshot.get(key).unwrap().name().as_str(), "vault.createFile", "{key}");
    }
    assert!(snapshot.get("vault-createFile").is_none());
}

#[test]
fn safe_spellings_are_unique_and_lead_back() {
    let names = ["a.b", "a_b", "a:b", "a/b", &format!("x.{}", "y".repeat(100)), &format!("x_{}", "y".repeat(100))];
    let mut entries: Vec<ToolEntry> = names.iter().map(|name| core(name, "read-only", json!({}))).collect();
    entries.push(from(ToolSource::mcp("m"), "a_b", "writes"));
    let snapshot = registry(entries).snapshot();
    let mut seen = std::collections::HashSet::new();
    for entry in snapshot.iter() {
        let shown = snapshot.safe_name(entry);
        assert!(
            shown.len() <= 64 && shown.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
            "{shown}"
        );
        assert_eq!(snapshot.get(&shown).map(|found| found.id()), Some(entry.id()), "{shown}");
        assert!(seen.insert(shown));
    }
    assert!(snapshot.get("a_b").is_none(), "two tools have exactly that name");
}

#[test]
fn an_ambiguous_name_gives_the_ids_and_an_unknown_one_gives_ideas() {
    let snapshot = registry(vec![
        from(ToolSource::mcp("one"), "search", "read-only"),
        from(ToolSource::mcp("two"), "search", "read-only"),
        core("vault.readFile", "read-only", json!({})),
        core("vault.writeFile", "writes", json!({})),
    ])
    .snapshot();
    match snapshot.resolve("search") {
        Resolution::Ambiguous(ids) => assert_eq!(ids, ["mcp:one:search", "mcp:two:search"]),
        other => panic!("{other:?}"),
    }
    assert!(matches!(snapshot.resolve("mcp:two:search"), Resolution::Found(_)));
    for wrong in ["vault.readfile", "vault.raedFile", "openclaw:core:vault.reedFile", "readFile"] {
        match snapshot.resolve(wrong) {
            Resolution::Unknown(suggestions) => {
                assert_eq!(suggestions.names().first().unwrap(), "vault.readFile", "{wrong}")
            }
            other => panic!("{wrong}: {other:?}"),
        }
    }
    match snapshot.resolve("zzzz") {
        Resolution::Unknown(suggestions) => assert!(suggestions.names().is_empty(), "{suggestions:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_hidden_is_neither_suggested_nor_in_the_way() {
    let snapshot = registry(vec![
        from(ToolSource::mcp("one"), "search", "read-only"),
        from(ToolSource::mcp("two"), "search", "read-only"),
    ])
    .snapshot();
    let only_one = |entry: &ToolEntry| &*entry.source().name == "one";
    assert!(
        matches!(snapshot.resolve_visible("search", only_one), Resolution::Found(entry) if entry.id() == "mcp:one:search")
    );
    assert!(matches!(snapshot.resolve_visible("mcp:two:search", only_one), Resolution::Unknown(_)));
    match snapshot.resolve_visible("serach", only_one) {
        Resolution::Unknown(suggestions) => {
            assert_eq!(suggestions.names(), ["search"], "a hidden tool of that name does not count")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn violations_say_where_and_what_was_expected() {
    let schema = json!({"type":"object","additionalProperties":false,"required":["path"],"properties":{
        "path":{"type":"string","minLength":1},"limit":{"type":"integer","minimum":1,"maximum":50},
        "mode":{"enum":["overwrite","append"]},"range":{"type":"object","additionalProperties":false,"required":["start"],
            "properties":{"start":{"type":"integer"},"end":{"type":"integer"}}},
        "tags":{"type":"array","items":{"type":["string","null"]}}}});
    let cases = [
        (json!({}), "/path: required, but missing"),
        (json!({"path":5}), "/path: expected string, got integer"),
        (json!({"path":""}), "/path: expected at least 1 characters"),
        (json!({"path":"a","limit":0}), "/limit: expected at least 1"),
        (json!({"path":"a","limit":51}), "/limit: expected at most 50"),
        (
            json!({"path":"a","mode":"apend"}),
            "/mode: expected one of \"overwrite\", \"append\"; did you mean \"append\"?",
        ),
        (json!({"path":"a","limt":3}), "/limt: no such property; did you mean \"limit\"?"),
        (json!({"path":"a","range":{"start":1,"edn":2}}), "/range/edn: no such property; did you mean \"end\"?"),
        (json!({"path":"a","range":{}}), "/range/start: required, but missing"),
        (json!({"path":"a","tags":["x",1]}), "/tags/1: expected string or null, got integer"),
        (
            json!({"path":"a","q/r~s":1}),
            "/q~1r~0s: no such property; expected \"path\", \"limit\", \"mode\", \"range\", \"tags\"",
        ),
    ];
    for (given, expected) in cases {
        let found = texts(schema.clone(), given.clone());
        assert!(found.iter().any(|text| same_types(text, expected)), "{given}: {found:?}");
    }
    assert_eq!(with_schema(schema).check_input(&json!({"path":"a","tags":[null]})), Ok(()));
}

/// Equal, whichever order the types of a union are listed in.
fn same_types(text: &str, expected: &str) -> bool {
    text == expected || text == expected.replace("string or null", "null or string")
}

#[test]
fn did_you_mean_looks_through_references() {
    let schema = json!({"type":"object","properties":{"at":{"$ref":"#/$defs/point"}},
        "$defs":{"point":{"type":"object","additionalProperties":false,"properties":{"line":{"type":"integer"}}}}});
    assert_eq!(texts(schema, json!({"at":{"lien":1}})), ["/at/lien: no such property; did you mean \"line\"?"]);
}

#[test]
fn one_of_several_forms_explains_the_nearest() {
    let schema = json!({"type":"object","properties":{"patch":{"oneOf":[
        {"type":"object","required":["diff"],"properties":{"diff":{"type":"string"}}},
        {"type":"string"}]}}});
    let found = texts(schema, json!({"patch":{}}));
    assert!(found[0].starts_with("/patch: fits none of the accepted forms; the nearest lacks \"diff\""), "{found:?}");
}

#[test]
fn reports_are_bounded_and_do_not_repeat_the_input() {
    let huge = "y".repeat(1 << 20);
    let mut given = serde_json::Map::new();
    for i in 0..100 {
        given.insert(format!("{i}{}", "k".repeat(1000)), Value::String(huge[..1000].to_owned()));
    }
    given.insert("n".into(), Value::String(huge));
    let schema = json!({"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"}}});
    let found = violations(schema, Value::Object(given));
    assert!(found.len() <= 16);
    for violation in &found {
        assert!(violation.message.chars().count() <= 300 && violation.path.chars().count() <= 300, "{violation}");
        assert!(!violation.to_string().contains("yyyy"));
    }
}

#[test]
fn a_schema_that_cannot_be_compiled_is_an_answer_not_a_crash() {
    for schema in [
        json!({"type":"object","properties":{"a":{"type":"nonsense"}}}),
        json!({"type":"object","properties":{"a":{"pattern":"("}}}),
        json!({"type":"object","properties":{"a":{"$ref":"https://example.com/other.json"}}}),
        json!({"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}),
        json!({"type":"object","properties":{"a":{"$ref":"#/$defs/missing"}}}),
    ] {
        let found = texts(schema.clone(), json!({"a":"x"}));
        assert!(found[0].starts_with("the tool's own input schema is broken: "), "{schema}: {found:?}");
    }
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let tree = json!({"type":"object","properties":{"child":{"$ref":"#"},"n":{"type":"integer"}},"additionalProperties":false});
    assert_eq!(texts(tree, json!({"child":{"child":{"n":"x"}}})), ["/child/child/n: expected integer, got string"]);
    for schema in [
        json!({"type":"object","$ref":"#"}),
        json!({"type":"object","allOf":[{"$ref":"#"}]}),
        json!({"type":"object","anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"oneOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}}}),
        json!({"type":"object","not":{"$ref":"#"}}),
        json!({"type":"object","$dynamicRef":"#x","$dynamicAnchor":"x"}),
        json!({"type":"object","if":{"$ref":"#top"},"$anchor":"top"}),
        json!({"type":"object","$id":"http://x/y","allOf":[{"$ref":"http://x/y"}]}),
        json!({"type":"object","dependentSchemas":{"a":{"$ref":"#"}}}),
    ] {
        // Refused at registration, or answered; never an endless recursion.
        if let Ok(entry) =
            ToolEntry::new(definition("t", "read-only", json!({"inputSchema":schema})), ToolSource::core())
        {
            let _ = entry.check_input(&json!({"a":1}));
        }
    }
}

#[test]
fn output_is_checked_when_there_is_a_schema_for_it() {
    let any = core("t", "read-only", json!({}));
    assert_eq!(any.check_output(&json!({"x":1})), Ok(()));
    let strict = core("t", "read-only", json!({"outputSchema":{"type":"object","required":["slug"]}}));
    assert_eq!(strict.check_output(&json!({"slug":"a"})), Ok(()));
    assert_eq!(strict.check_output(&json!({})).unwrap_err()[0].path, "/slug");
}

#[test]
fn path_arguments_are_those_the_schema_marks() {
    let tool = core(
        "vault.rename",
        "writes",
        json!({"inputSchema":{"type":"object","properties":{
        "fromPath":{"type":"string","format":"vault-path"},"toPath":{"type":"string","format":"vault-path"},"note":{"type":"string"}}}}),
    );
    let given = args(json!({"fromPath":"a.md","toPath":"b.md","note":"c.md"}));
    assert_eq!(tool.path_arguments(&given), [("/fromPath".to_owned(), "a.md"), ("/toPath".to_owned(), "b.md")]);
}

#[test]
fn what_one_session_has_is_in_nobody_elses_way() {
    let shared =
        || vec![from(ToolSource::mcp("docs"), "docs__find", "read-only"), core("vault.read", "read-only", json!({}))];
    let own = ["docs__find", "vault_read", "mine"]
        .map(|name| from(ToolSource::client(), name, "read-only").with_session("agent:main:a"));
    let alone = registry(shared()).snapshot();
    let both = registry(shared().into_iter().chain(own).collect()).snapshot();
    for entry in alone.iter() {
        assert_eq!(both.safe_name(entry), alone.safe_name(entry), "{}", entry.id());
        for name in [entry.name().to_string(), alone.safe_name(entry)] {
            let Resolution::Found(found) = both.resolve_visible(&name, |e| e.session().is_none()) else {
                panic!("{name} was lost");
            };
            assert_eq!(found.id(), entry.id(), "{name}");
        }
    }
    assert_eq!(both.get("docs__find").unwrap().id(), "mcp:docs:find", "the name is the one that all have");
    assert_eq!(both.get("mine").unwrap().session(), Some("agent:main:a"));
    let spelled = both.safe_name(both.get("client:client:docs__find").unwrap());
    assert_eq!(both.get(&spelled).unwrap().id(), "client:client:docs__find", "{spelled} is told apart");
}

#[test]
fn each_workspace_has_names_of_its_own() {
    let (none, bob, eve) = (WorkspaceId::default(), workspace("bob"), workspace("eve"));
    let offered = |of: &WorkspaceId, name: &str| {
        from(ToolSource::client_of(of), name, "read-only").with_session(of.key("agent:main:main").into_owned())
    };
    let alone = registry(vec![offered(&bob, "pick.file"), offered(&bob, "long-name")]);
    let (alone, all) = (alone.snapshot(), {
        let shared = core("vault.read", "read-only", json!({}));
        let mut tools = vec![shared];
        for of in [&none, &bob, &eve] {
            tools.extend([offered(of, "pick.file"), offered(of, "long-name"), offered(of, "vault.read")]);
        }
        registry(tools).snapshot()
    });
    for of in [&none, &bob, &eve] {
        for name in ["pick.file", "pick_file", "long-name"] {
            let found = all.get_in(of, name).unwrap_or_else(|| panic!("{of}: {name}"));
            assert!(found.is_in(of) && found.source() == &ToolSource::client_of(of), "{of}: {}", found.id());
        }
        assert_eq!(all.get_in(of, "vault.read").unwrap().id(), "openclaw:core:vault.read");
        assert_eq!(all.get_in(of, "openclaw:core:vault.read").unwrap().id(), "openclaw:core:vault.read");
        // A list of the workspace has no name twice.
        let shown: Vec<String> = all.iter().filter(|tool| tool.is_in(of)).map(|tool| all.safe_name(tool)).collect();
        assert_eq!(shown.iter().collect::<std::collections::BTreeSet<_>>().len(), shown.len(), "{of}: {shown:?}");
    }
    let theirs = all.get("client:client@eve:pick.file").unwrap();
    assert!(all.get_in(&bob, theirs.id()).is_none() && all.get_in(&none, theirs.id()).is_none());
    assert_eq!(all.get("pick.file").unwrap().id(), "client:client:pick.file", "the default workspace's own");
    for tool in alone.iter() {
        let among_all = all.get(tool.id()).unwrap();
        assert_eq!(all.safe_name(among_all), alone.safe_name(tool), "others do not change what models are shown");
    }
}

fn workspace(name: &str) -> WorkspaceId {
    WorkspaceId::parse(name).unwrap()
}
