//! One test for each complaint that users of comparable servers have filed (contract, section 5.2).

use crate::support::{TestVault, tool_call, under_heading};
use serde_json::{Value, json};
use std::{
    os::unix::fs::{MetadataExt, symlink},
    sync::{Arc, Mutex},
    time::Duration,
};
use toolyard_engine::{BoxFuture, Caller, Failed};
use toolyard_protocol::ErrorCode;
use toolyard_vault::{EditorClients, etag};

#[toolyard_shows::shows("002-5-04")]
#[tokio::test]
async fn c01_etags_are_enforced_and_parallel_patches_both_land() {
    let vault = TestVault::new();
    vault.write("n.md", "# A\n\n# B\n");
    let stale = etag(b"older");
    let failure = vault
        .fails(
            "vault.patchFile",
            json!({"path":"n.md","patch":under_heading(&["A"], "x"),"expectedEtag":stale}),
            ErrorCode::Conflict,
        )
        .await;
    assert_eq!(failure.details.unwrap()["currentEtag"], etag(b"# A\n\n# B\n"));
    let (a, b) = tokio::join!(
        vault.call("vault.patchFile", json!({"path":"n.md","patch":under_heading(&["A"], "from a")})),
        vault.call("vault.patchFile", json!({"path":"n.md","patch":under_heading(&["B"], "from b")})),
    );
    a.unwrap();
    b.unwrap();
    assert_eq!(vault.read("n.md"), "# A\nfrom a\n\n# B\nfrom b\n");
    // With the same etag only one of two may win.
    let now = etag(vault.read("n.md").as_bytes());
    let args = |value: &str| json!({"path":"n.md","patch":under_heading(&["A"], value),"expectedEtag":now});
    let (a, b) = tokio::join!(vault.call("vault.patchFile", args("1")), vault.call("vault.patchFile", args("2")));
    assert_eq!(a.is_ok() as u8 + b.is_ok() as u8, 1);
}

#[tokio::test]
async fn c02_appending_to_a_missing_note_creates_it_in_one_write_and_notices_a_template() {
    let vault = TestVault::new();
    let done = vault.ok("vault.writeFile", json!({"path":"daily/1.md","content":"- did it\n","mode":"append"})).await;
    assert_eq!(vault.read("daily/1.md"), "- did it\n");
    assert_eq!(done.output.effects.created.len(), 2, "folder and file");

    // A template plugin overwrites the note just after it has appeared.
    let vault = Arc::new(TestVault::with(|o| o.settle = Duration::from_secs(3), Arc::new(toolyard_vault::NoEditors)));
    let path = vault.path("d.md");
    let plugin = std::thread::spawn(move || {
        for _ in 0..60_000 {
            if path.exists() {
                // Long after the write itself has been verified.
                std::thread::sleep(Duration::from_millis(100));
                std::fs::write(&path, "TEMPLATE").unwrap();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the note never appeared");
    });
    let failed =
        vault.call("vault.writeFile", json!({"path":"d.md","content":"mine","mode":"append"})).await.err().unwrap();
    plugin.join().unwrap();
    assert_eq!(failed.failure.code, ErrorCode::Conflict);
    assert_eq!(failed.failure.details.unwrap()["currentEtag"], etag(b"TEMPLATE"));
    assert_eq!(failed.effects.created.len(), 1, "the effect is reported all the same");
}

#[tokio::test]
async fn c03_every_call_is_answered_once_also_when_it_fails() {
    let vault = TestVault::new();
    vault.write("n.md", "x");
    for definition in toolyard_vault::definitions().unwrap() {
        for args in [json!({}), json!({"path":"none.md"}), json!({"path":"n.md","patch":{}}), json!({"path": 7})] {
            let answer = tokio::time::timeout(
                Duration::from_secs(60),
                vault.unchecked(tool_call(definition.name.as_str(), args.clone())),
            );
            assert!(answer.await.is_ok(), "{} {args} never answered", definition.name);
        }
    }
}

#[tokio::test]
async fn c04_the_patch_format_is_our_own_and_unknown_forms_are_refused() {
    let vault = TestVault::new();
    vault.write("n.md", "# A\n");
    for patch in [
        json!({"targetType":"heading","target":["A"],"operation":"append","content":"x"}),
        json!({"operations":[{"op":"append","target":{"type":"heading","path":["A"]},"value":"x"}]}),
        json!({"operations":[{"op":"insert","target":{"type":"heading","path":["A"],"level":1},"value":"x"}]}),
    ] {
        let call = tool_call("vault.patchFile", json!({"path":"n.md","patch":patch.clone()}));
        let failed = vault.unchecked(call).await.err().unwrap();
        assert_eq!(failed.failure.code, ErrorCode::ValidationError, "{patch}");
        vault.fails("vault.patchFile", json!({"path":"n.md","patch":patch}), ErrorCode::ValidationError).await;
    }
    assert_eq!(vault.read("n.md"), "# A\n");
}

#[tokio::test]
async fn c05_a_heading_is_found_at_its_level_and_never_made() {
    let vault = TestVault::new();
    let note = "# Top\n\n## Another Heading\n\ntext\n\n## Last\n";
    vault.write("n.md", note);
    vault.ok("vault.patchFile", json!({"path":"n.md","patch":under_heading(&["Another Heading"], "added")})).await;
    assert_eq!(vault.read("n.md"), "# Top\n\n## Another Heading\n\ntext\nadded\n\n## Last\n");
    let failure = vault
        .fails("vault.patchFile", json!({"path":"n.md","patch":under_heading(&["Another"], "x")}), ErrorCode::NotFound)
        .await;
    assert_eq!(failure.details.unwrap()["headings"][0], "## Another Heading (line 3)");
    vault.write("twice.md", "# A\n## X\n# B\n## X\n");
    let failure = vault
        .fails("vault.patchFile", json!({"path":"twice.md","patch":under_heading(&["X"], "x")}), ErrorCode::Conflict)
        .await;
    assert_eq!(failure.details.unwrap()["lines"], json!([2, 4]));
}

#[tokio::test]
async fn c06_a_shorter_content_leaves_no_padding_and_is_verified() {
    let vault = TestVault::new();
    vault.write("n.md", "long ".repeat(1000));
    let before = vault.path("n.md").metadata().unwrap().ino();
    let current = etag("long ".repeat(1000).as_bytes());
    let done = vault.ok("vault.writeFile", json!({"path":"n.md","content":"short","expectedEtag":current})).await;
    assert_eq!(std::fs::read(vault.path("n.md")).unwrap(), b"short");
    assert_eq!(done.etag(), etag(b"short"));
    assert_ne!(vault.path("n.md").metadata().unwrap().ino(), before, "written beside and renamed, never in place");
    assert_eq!(vault.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn c07_a_whole_note_is_not_replaced_without_its_etag() {
    let vault = TestVault::new();
    let note = "line\n".repeat(450);
    vault.write("n.md", &note);
    let failure =
        vault.fails("vault.writeFile", json!({"path":"n.md","content":"one line"}), ErrorCode::Conflict).await;
    assert_eq!(failure.details.unwrap()["currentEtag"], etag(note.as_bytes()));
    assert!(failure.suggestion.unwrap().contains("expectedEtag"));
    vault.fails("vault.createFile", json!({"path":"n.md","content":"x"}), ErrorCode::Conflict).await;
    assert_eq!(vault.read("n.md"), note);
    let dry = vault
        .ok("vault.writeFile", json!({"path":"n.md","content":"x","collisionStrategy":"overwrite","dryRun":true}))
        .await;
    assert!(dry.message().contains("shrinks"), "{}", dry.message());
    assert_eq!(vault.read("n.md"), note);
    let quoted = format!("\"{}\"", etag(note.as_bytes()));
    vault.ok("vault.writeFile", json!({"path":"n.md","content":"x","expectedEtag":quoted})).await;
    assert_eq!(vault.read("n.md"), "x");
}

/// Remembers what it was asked.
#[derive(Default)]
struct RecordingEditor(Mutex<Vec<(String, Value)>>);

impl EditorClients for RecordingEditor {
    fn request<'a>(
        &'a self,
        _: &'a Caller,
        tool: &'a str,
        args: &'a serde_json::Map<String, Value>,
        _: Duration,
    ) -> BoxFuture<'a, Result<serde_json::Map<String, Value>, Failed>> {
        self.0.lock().unwrap().push((tool.to_owned(), Value::Object(args.clone())));
        let answer = match tool {
            "workspace.openFile" => json!({"path": args["path"], "opened": true}),
            "commands.run" => json!({"id": args["id"], "executed": false, "errorMessage": "no such command"}),
            _ => json!({}),
        };
        Box::pin(async move { Ok(answer.as_object().unwrap().clone()) })
    }
}

#[tokio::test]
async fn c08_opening_a_note_writes_nothing() {
    let editor = Arc::new(RecordingEditor::default());
    let vault = TestVault::with(|_| {}, editor.clone());
    vault.write("n.md", "content");
    let before = vault.snapshot();
    let done = vault.ok("workspace.openFile", json!({"path":"n.md"})).await;
    assert!(done.intent.is_none());
    assert_eq!(done.output.effects.side_effects_observed, ["open-file"]);
    assert!(done.output.effects.modified.is_empty() && done.output.effects.created.is_empty());
    vault.fails("workspace.openFile", json!({"path":"missing.md"}), ErrorCode::NotFound).await;
    vault.fails("workspace.openFile", json!({"path":"../n.md"}), ErrorCode::ValidationError).await;
    assert_eq!(vault.snapshot(), before);
    assert_eq!(editor.0.lock().unwrap().as_slice(), [("workspace.openFile".to_owned(), json!({"path":"n.md"}))]);
    // No tool that reads or opens declares a file effect.
    for definition in toolyard_vault::definitions().unwrap().iter().filter(|d| d.name.as_str().contains("open")) {
        assert_eq!(definition.side_effects, ["open-file"]);
    }
    // An editor that says "not executed" has not succeeded.
    vault.fails("commands.run", json!({"id":"x"}), ErrorCode::PreconditionFailed).await;
}

#[toolyard_shows::shows("002-3.2-21", "002-3.2-23")]
#[tokio::test]
async fn c09_a_rename_leaves_no_dangling_link_and_lists_every_touched_note() {
    let vault = TestVault::new();
    vault.write("Old.md", "self [[Old#x]]\n");
    vault.write("a.md", "[[Old]] ![[Old|al]] `[[Old]]`\n");
    vault.write("sub/b.md", "[x](../Old.md)\n```\n[[Old]]\n```\n");
    vault.write("c.md", "---\nup: \"[[Old]]\"\n---\n");
    vault.write("none.md", "[[Other]]\n");
    let done = vault.ok("vault.rename", json!({"fromPath":"Old.md","toPath":"New/Name it.md"})).await;
    assert_eq!(vault.read("New/Name it.md"), "self [[Name it#x]]\n");
    assert_eq!(vault.read("a.md"), "[[Name it]] ![[Name it|al]] `[[Old]]`\n");
    assert_eq!(vault.read("sub/b.md"), "[x](../New/Name%20it.md)\n```\n[[Old]]\n```\n");
    assert_eq!(vault.read("c.md"), "---\nup: \"[[Name it]]\"\n---\n");
    let effects = &done.output.effects;
    let mut touched: Vec<&str> = effects.modified.iter().map(|m| m.path.as_str()).collect();
    touched.sort_unstable();
    assert_eq!(touched, ["New/Name it.md", "a.md", "c.md", "sub/b.md"]);
    assert!(effects.modified.iter().all(|m| m.after_etag == Some(etag(&std::fs::read(vault.path(&m.path)).unwrap()))));
    assert_eq!(effects.renamed.len(), 1);
    assert_eq!(effects.created.len(), 1, "the folder");
}

#[tokio::test]
async fn c10_a_move_never_replaces_and_onto_itself_is_nothing() {
    let vault = TestVault::new();
    vault.write("a.md", "a");
    vault.write("b.md", "b");
    let failure = vault.fails("vault.rename", json!({"fromPath":"a.md","toPath":"b.md"}), ErrorCode::Conflict).await;
    assert_eq!(failure.details.unwrap()["currentEtag"], etag(b"b"));
    let done = vault.ok("vault.rename", json!({"fromPath":"a.md","toPath":"a.md"})).await;
    assert!(done.output.effects.is_empty());
    assert_eq!((vault.read("a.md"), vault.read("b.md")), ("a".into(), "b".into()));
    let done =
        vault.ok("vault.rename", json!({"fromPath":"a.md","toPath":"b.md","collisionStrategy":"create-unique"})).await;
    assert_eq!(done.output.data["toPath"], "b (2).md");
    vault.ok("vault.rename", json!({"fromPath":"b (2).md","toPath":"b.md","collisionStrategy":"overwrite"})).await;
    assert_eq!((vault.read("b.md"), vault.read(".trash/b.md")), ("a".into(), "b".into()));
    vault.write("dir/x.md", "");
    vault.fails("vault.rename", json!({"fromPath":"dir","toPath":"dir/sub"}), ErrorCode::ValidationError).await;
}

#[tokio::test]
async fn c11_a_front_matter_edit_touches_one_key_only() {
    let vault = TestVault::new();
    let note = "---\n# comment\ntitle: \"Quoted\" # why\ndate: 2024-01-02\ntags: [a, 'b']\nstatus: draft\n---\nText being typed";
    vault.write("n.md", note);
    let patch = json!({"operations":[{"op":"replace","target":{"type":"frontmatter","key":"status"},"value":"done"}]});
    vault.ok("vault.patchFile", json!({"path":"n.md","patch":patch})).await;
    assert_eq!(vault.read("n.md"), note.replace("draft", "done"));
}

#[tokio::test]
async fn c12_a_link_in_the_vault_cannot_redirect_an_edit_or_a_delete() {
    let vault = TestVault::new();
    vault.write("real.md", "# A\n");
    vault.write("folder/x.md", "x");
    symlink("real.md", vault.path("alias.md")).unwrap();
    symlink("folder", vault.path("alias")).unwrap();
    let before = vault.snapshot();
    for (tool, args) in [
        ("vault.delete", json!({"path":"alias.md"})),
        ("vault.delete", json!({"path":"alias/x.md"})),
        ("vault.delete", json!({"path":"alias","recursive":true})),
        ("vault.patchFile", json!({"path":"alias.md","patch":under_heading(&["A"], "x")})),
        ("vault.writeFile", json!({"path":"alias.md","content":"x","collisionStrategy":"overwrite"})),
        ("vault.writeFile", json!({"path":"alias/new.md","content":"x"})),
        ("vault.rename", json!({"fromPath":"alias.md","toPath":"z.md"})),
        ("vault.rename", json!({"fromPath":"real.md","toPath":"alias/z.md"})),
        ("vault.readFile", json!({"path":"alias.md"})),
    ] {
        vault.fails(tool, args, ErrorCode::PolicyDenied).await;
    }
    assert_eq!(vault.snapshot(), before);
}

#[tokio::test]
async fn c13_a_case_only_rename_works() {
    let vault = TestVault::new();
    vault.write("note.md", "content");
    vault.write("links.md", "[[note]] [x](note.md)");
    let done = vault.ok("vault.rename", json!({"fromPath":"note.md","toPath":"Note.md"})).await;
    assert_eq!(done.output.effects.renamed.len(), 1);
    assert_eq!(vault.read("Note.md"), "content");
    let names: Vec<String> = vault.snapshot().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Note.md", "links.md"]);
    vault.write("dir/x.md", "x");
    vault.ok("vault.rename", json!({"fromPath":"dir","toPath":"Dir"})).await;
    assert!(vault.exists("Dir/x.md") && !vault.exists("dir"));
}

#[tokio::test]
async fn c14_outputs_fit_their_schema_and_errors_report_their_effects() {
    // `TestVault::call` holds every answer of every test against the output schema; here are all vault tools once.
    let vault = TestVault::new();
    vault.ok("vault.ensureFolder", json!({"path":"f"})).await;
    vault.ok("vault.createFile", json!({"path":"f/n.md","content":"# A\n","frontmatter":{"a":1}})).await;
    vault.ok("vault.writeFile", json!({"path":"f/n.md","content":"x","mode":"append"})).await;
    vault.ok("vault.readFile", json!({"path":"f/n.md"})).await;
    vault.ok("vault.readFile", json!({"path":"f/n.md","as":"base64","range":{"start":1,"end":3}})).await;
    vault.ok("vault.listFiles", json!({"recursive":true,"withEtags":true})).await;
    vault.ok("vault.searchText", json!({"query":"a"})).await;
    vault.ok("vault.rename", json!({"fromPath":"f","toPath":"g"})).await;
    vault.ok("vault.delete", json!({"path":"g/n.md"})).await;
    vault.ok("vault.restoreFile", json!({"path":"n.md","trashPath":".trash/g/n.md"})).await;
    vault.ok("util.slugifyTitle", json!({"title":"Ä b"})).await;
    vault.ok("util.parseMarkdownBullets", json!({"text":"- a"})).await;

    // A call that fails half way says what it had done by then.
    vault.write("m.md", "[[n]]");
    let call = tool_call("vault.rename", json!({"fromPath":"n.md","toPath":"o.md"}));
    let prepared = vault.prepare(&call).await.unwrap();
    vault.write("m.md", "[[n]] changed by somebody");
    let failed = vault.provider.execute(&vault.context(), &call, prepared).await.unwrap_err();
    assert_eq!(failed.failure.code, ErrorCode::Conflict);
    assert_eq!(failed.effects.renamed.len(), 1);
    assert!(failed.effects.modified.is_empty());
    assert_eq!(vault.read("m.md"), "[[n]] changed by somebody");
    assert_eq!(vault.leftovers(), Vec::<String>::new());
}
