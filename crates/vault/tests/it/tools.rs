//! What each tool does, beyond the complaints.

use crate::support::{TestVault, under_heading};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use toolyard_protocol::ErrorCode;
use toolyard_vault::etag;

fn names(data: &Value) -> Vec<&str> {
    data["items"].as_array().unwrap().iter().map(|i| i["path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn listing_pages_filters_and_hides() {
    let vault = TestVault::new();
    for path in ["b.md", "a/x.md", "a/y.txt", "a/sub/z.MD", "c.png", ".obsidian/app.json", "a/.hidden.md"] {
        vault.write(path, "12345");
    }
    let list = async |args: Value| vault.ok("vault.listFiles", args).await.data();
    assert_eq!(names(&list(json!({})).await), ["a", "b.md", "c.png"]);
    assert_eq!(
        names(&list(json!({"recursive":true})).await),
        ["a", "a/sub", "a/sub/z.MD", "a/x.md", "a/y.txt", "b.md", "c.png"]
    );
    assert_eq!(names(&list(json!({"recursive":true,"extensions":[".md"]})).await), ["a/sub/z.MD", "a/x.md", "b.md"]);
    assert_eq!(names(&list(json!({"prefix":"a/"})).await), ["a/sub", "a/x.md", "a/y.txt"]);
    assert_eq!(names(&list(json!({"prefix":"a/x"})).await), ["a/x.md"]);
    assert_eq!(names(&list(json!({"prefix":"nothing"})).await), Vec::<&str>::new());
    vault.fails("vault.listFiles", json!({"prefix":"no/such"}), ErrorCode::NotFound).await;
    let first = list(json!({"recursive":true,"limit":3})).await;
    assert_eq!((first["truncated"].clone(), first["nextOffset"].clone()), (json!(true), json!(3)));
    let rest = list(json!({"recursive":true,"limit":10,"offset":3})).await;
    assert_eq!(
        (names(&first), names(&rest)),
        (vec!["a", "a/sub", "a/sub/z.MD"], vec!["a/x.md", "a/y.txt", "b.md", "c.png"])
    );
    let entry = &list(json!({"prefix":"b.md","withEtags":true})).await["items"][0];
    assert_eq!((entry["sizeBytes"].clone(), entry["etag"].clone()), (json!(5), json!(etag(b"12345"))));
    assert_eq!(entry["mtimeMs"], entry["mtime"]);
    assert!(list(json!({})).await["items"][1].get("etag").is_none());
    vault.fails("vault.listFiles", json!({"limit":10001}), ErrorCode::ValidationError).await;
}

#[tokio::test]
async fn reading_ranges_forms_and_what_is_not_text() {
    let vault = TestVault::new();
    vault.write("n.md", "aäb");
    vault.write("bin", [0xff, 0, 1]);
    let read = async |args: Value| vault.ok("vault.readFile", args).await.data();
    let whole = read(json!({"path":"n.md"})).await;
    assert_eq!(
        (whole["content"].clone(), whole["truncated"].clone(), whole["etag"].clone()),
        (json!("aäb"), json!(false), json!(etag("aäb".as_bytes())))
    );
    // Pages that end inside a character still join without loss.
    let (one, two) = (
        read(json!({"path":"n.md","range":{"start":0,"end":2}})).await,
        read(json!({"path":"n.md","range":{"start":2,"end":99}})).await,
    );
    assert_eq!((one["content"].clone(), two["content"].clone()), (json!("a"), json!("äb")));
    assert_eq!((one["truncated"].clone(), two["truncated"].clone()), (json!(true), json!(false)));
    assert_eq!(read(json!({"path":"n.md","maxBytes":3})).await["content"], "aä");
    assert_eq!(read(json!({"path":"bin","as":"base64"})).await["content"], "/wAB");
    let failure = vault.fails("vault.readFile", json!({"path":"bin"}), ErrorCode::PreconditionFailed).await;
    assert!(failure.suggestion.unwrap().contains("base64"));
    for range in [json!({"start":9,"end":10}), json!({"start":2,"end":1})] {
        vault.fails("vault.readFile", json!({"path":"n.md","range":range}), ErrorCode::ValidationError).await;
    }
    vault.fails("vault.readFile", json!({"path":"none.md"}), ErrorCode::NotFound).await;
    std::fs::create_dir(vault.path("d")).unwrap();
    vault.fails("vault.readFile", json!({"path":"d"}), ErrorCode::Conflict).await;
    let big = std::fs::File::create(vault.path("big.md")).unwrap();
    big.set_len(toolyard_vault::MAX_FILE_BYTES + 1).unwrap();
    vault.fails("vault.readFile", json!({"path":"big.md"}), ErrorCode::LimitExceeded).await;
    vault.ok("vault.rename", json!({"fromPath":"big.md","toPath":"bigger.md"})).await;
}

#[tokio::test]
async fn searching() {
    let vault = TestVault::new();
    vault.write("a.md", "one\nTwo two\nthree");
    vault.write("d/b.md", "two äöü Straße");
    vault.write("bin.md", [b't', b'w', b'o', 0]);
    vault.write(".obsidian/x.md", "two");
    let search = async |args: Value| vault.ok("vault.searchText", args).await.data();
    let found = search(json!({"query":"two"})).await;
    let places: Vec<(String, u64, u64, u64)> = found["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            (
                m["path"].as_str().unwrap().to_owned(),
                m["line"].as_u64().unwrap(),
                m["start"].as_u64().unwrap(),
                m["end"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(places, [("a.md".into(), 2, 4, 7), ("a.md".into(), 2, 8, 11), ("d/b.md".into(), 1, 0, 3)]);
    assert_eq!(
        search(json!({"query":"two","caseSensitive":true,"paths":["a.md"]})).await["matches"].as_array().unwrap().len(),
        1
    );
    assert_eq!(search(json!({"query":"^t\\w+","mode":"regex"})).await["matches"].as_array().unwrap().len(), 3);
    assert_eq!(search(json!({"query":"ÄÖ"})).await["matches"][0]["path"], "d/b.md");
    let limited = search(json!({"query":"two","limit":2})).await;
    assert_eq!((limited["matches"].as_array().unwrap().len(), limited["truncated"].clone()), (2, json!(true)));
    assert_eq!(search(json!({"query":"x*","mode":"regex"})).await["matches"], json!([]));
    for (query, mode) in [("(", "regex"), ("", "plain"), ("(a{1000}){1000}", "regex"), ("(?=x)", "regex")] {
        vault.fails("vault.searchText", json!({"query":query,"mode":mode}), ErrorCode::ValidationError).await;
    }
    vault.fails("vault.searchText", json!({"query":"x","paths":["none"]}), ErrorCode::NotFound).await;
    // An expression that takes others exponential time.
    vault.write("evil.md", "a".repeat(50_000));
    let started = std::time::Instant::now();
    search(json!({"query":"(a+)+$b","mode":"regex","paths":["evil.md"]})).await;
    assert!(started.elapsed() < std::time::Duration::from_secs(60));
}

#[toolyard_shows::shows("002-8-06")]
#[tokio::test]
async fn writing_keeps_the_files_habits() {
    let vault = TestVault::new();
    vault.write("n.md", "\u{feff}a\r\nb\r\n");
    let first = vault.ok("vault.writeFile", json!({"path":"n.md","content":"c\nd","mode":"append"})).await;
    assert_eq!(vault.read("n.md"), "\u{feff}a\r\nb\r\nc\r\nd\r\n");
    let second =
        vault.ok("vault.writeFile", json!({"path":"n.md","content":"x\ny\n","expectedEtag":first.etag()})).await;
    assert_eq!(vault.read("n.md"), "\u{feff}x\r\ny\r\n");
    assert_eq!(second.output.data["bytesWritten"], 9);
    let same =
        vault.ok("vault.writeFile", json!({"path":"n.md","content":"x\ny\n","expectedEtag":second.etag()})).await;
    assert!(same.output.effects.is_empty() && same.output.data["bytesWritten"] == 0 && same.etag() == second.etag());
    vault
        .fails("vault.writeFile", json!({"path":"none.md","content":"","expectedEtag":"0"}), ErrorCode::Conflict)
        .await;
    vault.write("bin", [0xff]);
    vault
        .fails("vault.writeFile", json!({"path":"bin","content":"x","mode":"append"}), ErrorCode::PreconditionFailed)
        .await;
    assert!(second.output.data["mtimeMs"].is_i64() && second.output.data["mtimeMs"] == second.output.data["mtime"]);
}

#[tokio::test]
async fn creating() {
    let vault = TestVault::new();
    let done = vault
        .ok(
            "vault.createFile",
            json!({"path":"a/b/n.md","content":"text\n","frontmatter":{"title":"N: 1","tags":["x"]}}),
        )
        .await;
    assert_eq!(vault.read("a/b/n.md"), "---\ntitle: \"N: 1\"\ntags:\n  - x\n---\ntext\n");
    let created: Vec<(&str, String)> =
        done.output.effects.created.iter().map(|c| (c.path.as_str(), format!("{:?}", c.kind))).collect();
    assert_eq!(created, [("a", "Folder".into()), ("a/b", "Folder".into()), ("a/b/n.md", "File".into())]);
    let again =
        vault.ok("vault.createFile", json!({"path":"a/b/n.md","content":"","collisionStrategy":"create-unique"})).await;
    assert_eq!(again.output.data["path"], "a/b/n (2).md");
    let replaced =
        vault.ok("vault.createFile", json!({"path":"a/b/n.md","content":"x","collisionStrategy":"overwrite"})).await;
    assert_eq!((replaced.output.data["created"].clone(), vault.read("a/b/n.md")), (json!(false), "x".into()));
    vault
        .ok("vault.createFile", json!({"path":"a/b/n.md","content":"y","ifNotExists":false,"expectedEtag":etag(b"x")}))
        .await;
    for args in [
        json!({"path":"a/b/n.md","content":"z","ifNotExists":false}),
        json!({"path":"a/b","content":"z"}),
        json!({"path":"a/b/n.md/deeper.md","content":"z"}),
        json!({"path":"a/b/n.md","content":"z","collisionStrategy":"overwrite","expectedEtag":"00"}),
    ] {
        vault.fails("vault.createFile", args, ErrorCode::Conflict).await;
    }
    vault
        .fails(
            "vault.createFile",
            json!({"path":"q.md","content":"","collisionStrategy":"overwrite","ifNotExists":true}),
            ErrorCode::ValidationError,
        )
        .await;
    assert_eq!(vault.read("a/b/n.md"), "y");
}

#[tokio::test]
async fn deleting() {
    let vault = TestVault::new();
    vault.write("d/n.md", "1");
    let done = vault.ok("vault.delete", json!({"path":"d/n.md","expectedEtag":etag(b"1")})).await;
    assert_eq!(
        (done.output.data["trashPath"].clone(), vault.read(".trash/d/n.md")),
        (json!(".trash/d/n.md"), "1".into())
    );
    assert_eq!((done.intent.unwrap().deletes, done.output.effects.created.len()), (1, 0));
    vault.write("d/n.md", "2");
    let again = vault.ok("vault.delete", json!({"path":"d/n.md"})).await;
    assert_eq!(
        (again.output.data["trashPath"].clone(), vault.read(".trash/d/n (2).md")),
        (json!(".trash/d/n (2).md"), "2".into())
    );
    vault.fails("vault.delete", json!({"path":"d/n.md"}), ErrorCode::NotFound).await;
    assert_eq!(
        vault.ok("vault.delete", json!({"path":"d/n.md","requireExists":false})).await.output.data["deleted"],
        false
    );
    // Empty folders go, full ones need a word.
    assert_eq!(vault.ok("vault.delete", json!({"path":"d"})).await.output.data["trashed"], false);
    assert!(!vault.exists("d"));
    vault.write("f/.hidden", "h");
    vault.write("f/s/x.md", "x");
    vault.fails("vault.delete", json!({"path":"f"}), ErrorCode::Conflict).await;
    assert_eq!(vault.ok("vault.delete", json!({"path":"f","ifEmpty":true})).await.output.data["deleted"], false);
    let done = vault.ok("vault.delete", json!({"path":"f","recursive":true})).await;
    assert_eq!((done.intent.unwrap().deletes, vault.read(".trash/f/s/x.md")), (4, "x".into()));
    // A file in the trash where a folder is needed.
    vault.write(".trash/g", "file");
    vault.write("g/y.md", "y");
    assert_eq!(vault.ok("vault.delete", json!({"path":"g/y.md"})).await.output.data["trashPath"], ".trash/g (2)/y.md");
    // A folder that was itself trashed is not added to: it must come back as it went.
    vault.write("f/new.md", "new");
    assert_eq!(
        vault.ok("vault.delete", json!({"path":"f/new.md"})).await.output.data["trashPath"],
        ".trash/f (2)/new.md"
    );
    vault.write("gone.md", "x");
    vault.ok("vault.delete", json!({"path":"gone.md","trash":false})).await;
    assert!(!vault.exists(".trash/gone.md") && !vault.exists("gone.md"));
    // Names that no path can spell go with their folder, and links in it are not followed.
    vault.write("odd/back\\slash", "x");
    vault.write("kept/y.md", "y");
    std::fs::write(vault.path("odd").join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    std::os::unix::fs::symlink("../kept", vault.path("odd/link")).unwrap();
    vault.ok("vault.delete", json!({"path":"odd","recursive":true,"trash":false})).await;
    assert!(!vault.exists("odd") && vault.exists("kept/y.md") && vault.leftovers().is_empty());
    vault.write("k.md", "x");
    vault.fails("vault.delete", json!({"path":"k.md","expectedEtag":"00"}), ErrorCode::Conflict).await;
}

#[tokio::test]
async fn restoring() {
    let vault = TestVault::new();
    vault.write("n.md", "old");
    let done =
        vault.ok("vault.writeFile", json!({"path":"n.md","content":"new","collisionStrategy":"overwrite"})).await;
    let blob = done.intent.unwrap().targets[0].before_blob.clone().unwrap();
    vault.fails("vault.restoreFile", json!({"path":"n.md","blob":blob}), ErrorCode::Conflict).await;
    vault.fails("vault.restoreFile", json!({"path":"n.md","blob":blob,"expectAbsent":true}), ErrorCode::Conflict).await;
    vault
        .fails(
            "vault.restoreFile",
            json!({"path":"n.md","blob":"0".repeat(64),"expectedEtag":etag(b"new")}),
            ErrorCode::NotFound,
        )
        .await;
    vault.fails("vault.restoreFile", json!({"path":"n.md","blob":"../x"}), ErrorCode::ValidationError).await;
    vault.fails("vault.restoreFile", json!({"path":"n.md"}), ErrorCode::ValidationError).await;
    vault.fails("vault.restoreFile", json!({"path":"x.md","trashPath":".trash/none.md"}), ErrorCode::NotFound).await;
    vault.ok("vault.restoreFile", json!({"path":"n.md","blob":blob,"expectedEtag":etag(b"new")})).await;
    assert_eq!(vault.read("n.md"), "old");
    vault.ok("vault.restoreFile", json!({"path":"copy/n.md","blob":blob,"expectAbsent":true})).await;
    assert_eq!(vault.read("copy/n.md"), "old");
}

#[tokio::test]
async fn patching_all_or_nothing() {
    let vault = TestVault::new();
    vault.write("n.md", "# A\ntext ^b1\n");
    let patch = json!({"operations":[
        {"op":"insert","target":{"type":"frontmatter","key":"k"},"value":null},
        {"op":"replace","target":{"type":"block","id":"b1"},"value":"TEXT"},
        {"op":"replace","target":{"type":"text","find":"TEXT","count":1},"value":"text!"},
        {"op":"insert","target":{"type":"heading","path":["A"]},"position":"start","value":"first"}]});
    let done = vault.ok("vault.patchFile", json!({"path":"n.md","patch":patch})).await;
    assert_eq!(done.output.data["applied"], 4);
    assert_eq!(vault.read("n.md"), "---\nk: null\n---\n# A\nfirst\ntext! ^b1\n");
    let broken = json!({"operations":[{"op":"delete","target":{"type":"block","id":"b1"}},{"op":"delete","target":{"type":"block","id":"b1"}}]});
    let failure = vault.fails("vault.patchFile", json!({"path":"n.md","patch":broken}), ErrorCode::NotFound).await;
    assert_eq!(failure.details.unwrap()["operation"], 1);
    assert_eq!(vault.read("n.md"), "---\nk: null\n---\n# A\nfirst\ntext! ^b1\n");
    let diff = json!({"diff":"--- a/n.md\n+++ b/n.md\n@@ -4,2 +4,2 @@\n # A\n-first\n+1st\n"});
    vault.ok("vault.patchFile", json!({"path":"n.md","patch":diff})).await;
    let range = json!({"replaceRange":{"start":20,"end":23,"text":"second","expectedText":"1st"}});
    vault.ok("vault.patchFile", json!({"path":"n.md","patch":range})).await;
    assert_eq!(vault.read("n.md"), "---\nk: null\n---\n# A\nsecond\ntext! ^b1\n");
    vault
        .fails("vault.patchFile", json!({"path":"none.md","patch":under_heading(&["A"], "x")}), ErrorCode::NotFound)
        .await;
    vault.write("bin", [0xff]);
    vault
        .fails(
            "vault.patchFile",
            json!({"path":"bin","patch":under_heading(&["A"], "x")}),
            ErrorCode::PreconditionFailed,
        )
        .await;
}

#[tokio::test]
async fn without_an_editor_the_answer_says_what_to_do() {
    let vault = TestVault::new();
    for (tool, args) in [
        ("editor.getSelection", json!({})),
        ("commands.list", json!({})),
        ("editor.replaceSelection", json!({"text":"x"})),
    ] {
        let failure = vault.fails(tool, args, ErrorCode::PreconditionFailed).await;
        assert!(failure.suggestion.unwrap().contains("vault.*"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a note holds, a write through the provider is read back byte for byte.
    #[test]
    fn what_is_written_is_read(content in any::<String>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let vault = TestVault::new();
            let done = vault.ok("vault.createFile", json!({"path":"n.md","content":content})).await;
            assert_eq!(vault.ok("vault.readFile", json!({"path":"n.md"})).await.output.data["content"], content.as_str());
            assert_eq!(done.etag(), etag(content.as_bytes()));
        });
    }
}
