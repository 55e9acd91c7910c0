//! Every spelling of a path that must not get through, and the rules for those that may.

use crate::support::TestVault;
use proptest::prelude::*;
use serde_json::json;
use std::os::unix::fs::symlink;
use toolyard_protocol::ErrorCode;
use toolyard_vault::{PathError, VaultOptions, VaultPath};

const MALFORMED: &[&str] = &[
    "",
    "/",
    "/etc/passwd",
    "//x",
    "..",
    "../x",
    "a/../b",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "..\\x",
    "a\\b",
    "C:/x",
    "c:x",
    "a\0b",
    "a\nb",
    "a\u{7f}b",
    "a\u{85}b",
    "file:///etc/passwd",
    "obsidian://open",
    "%2e%2e/x",
    "%2E%2E/x",
    "..%2fx",
    "..%2Fx",
    "a/%2e%2e/b",
    "a%2fb",
    "%2e/x",
    "%252e%252e/x",
    "%25252e%25252e/x",
    "a%5cb",
    "..%5cx",
    "a%00b",
    "a%0ab",
    ".. /x",
    "... ",
    ". .",
    "a/.. /b",
    "%2fetc/passwd",
    "a/%2e./b",
    "\u{2028}",
    "．．/etc/passwd",
    "a/．．/b",
    "․․/x",
    "‥/x",
    "a／．．／b",
    "a＼．．＼b",
    "\u{200b}../x",
    "%c0%ae%c0%ae/etc",
    "a%c0%af..%c0%afetc",
    "%e0%80%ae%e0%80%ae/x",
    "%ff%2e%2e/x",
    "%2525252e%2525252e/x",
    "%25252525252525252525252e/x",
    "%u002e%u002e/x",
    "a%u002fb",
    "％２ｅ％２ｅ/x",
    "a%2500b",
    "a%u0000b",
];
const BLOCKED: &[&str] = &[
    ".obsidian/app.json",
    ".OBSIDIAN/x",
    ".git/config",
    ".trash/a.md",
    "a/.hidden/b.md",
    ".env",
    "a/.b",
    ".toolyard-tmp-1",
    "..a/b",
    "...x",
    "..%c0%afetc",
    "%2egit/config",
    "%252egit/config",
    "a/%u002egit",
    "．git/config",
    "\u{feff}.git/config",
    "a/\u{200b}%2eenv",
    ".\u{fe0f}./x",
    "a/.\u{200d}./x",
];
/// Names that people give to notes, however odd they look to the rules above.
const LEGAL: &[&str] = &[
    "100% sure.md",
    "50%25 off.md",
    "100%effective.md",
    "20%ab Mai.md",
    "C#／.NET.md",
    "Q：なぜ／どうして.md",
    "…und dann.md",
    "‥そして.md",
    "❤️ list.md",
    "👩‍👧/می‌خواهم.md",
    "co\u{ad}operate.md",
];

#[test]
fn malformed_and_blocked_are_told_apart() {
    for text in MALFORMED {
        assert!(
            matches!(VaultPath::parse(text), Err(PathError::Malformed { .. })),
            "{text:?}: {:?}",
            VaultPath::parse(text)
        );
    }
    for text in BLOCKED {
        assert!(
            matches!(VaultPath::parse(text), Err(PathError::Blocked { .. })),
            "{text:?}: {:?}",
            VaultPath::parse(text)
        );
    }
    for text in LEGAL {
        assert_eq!(VaultPath::parse(text).map(|path| path.to_string()), Ok((*text).to_owned()));
    }
    assert!(VaultPath::parse(&"x".repeat(256)).is_err());
    assert!(VaultPath::parse(&"a/".repeat(3000)).is_err());
    assert!(VaultPath::parse(&vec!["a"; 129].join("/")).is_err());
    assert!(VaultPath::parse(&vec!["a"; 128].join("/")).is_ok());
}

#[tokio::test]
async fn every_tool_refuses_every_spelling() {
    let vault = TestVault::new();
    vault.write("n.md", "# A\n");
    let before = vault.snapshot();
    for (paths, code) in [(MALFORMED, ErrorCode::ValidationError), (BLOCKED, ErrorCode::PolicyDenied)] {
        for path in paths {
            let lists_root = matches!(*path, "" | "/");
            for (tool, args) in [
                ("vault.readFile", json!({"path":path})),
                ("vault.createFile", json!({"path":path,"content":"x"})),
                ("vault.writeFile", json!({"path":path,"content":"x","mode":"append"})),
                ("vault.ensureFolder", json!({"path":path})),
                ("vault.patchFile", json!({"path":path,"patch":{"diff":"@@ -1 +1 @@\n-a\n+b\n"}})),
                ("vault.delete", json!({"path":path,"requireExists":false,"recursive":true})),
                ("vault.rename", json!({"fromPath":path,"toPath":"x.md"})),
                ("vault.rename", json!({"fromPath":"n.md","toPath":path})),
                ("vault.restoreFile", json!({"path":path,"blob":"0".repeat(64)})),
                ("vault.restoreFile", json!({"path":"x.md","trashPath":format!(".trash/{path}")})),
                ("workspace.openFile", json!({"path":path})),
            ] {
                vault.fails(tool, args, code).await;
            }
            // A folder filter may be the root or end in a slash.
            if !lists_root && *path != "a/" {
                vault.fails("vault.listFiles", json!({"prefix":path}), code).await;
                vault.fails("vault.searchText", json!({"query":"x","paths":[path]}), code).await;
            }
        }
    }
    assert_eq!(vault.snapshot(), before);
}

#[tokio::test]
async fn links_out_of_the_vault_are_denied_by_both_ways_of_resolving() {
    for portable in [false, true] {
        for follow in [false, true] {
            let outside = tempfile::tempdir().unwrap();
            std::fs::write(outside.path().join("s.md"), "secret").unwrap();
            let vault = TestVault::with(
                |o: &mut VaultOptions| {
                    o.portable_resolution = portable;
                    o.follow_symlinks = follow;
                },
                std::sync::Arc::new(toolyard_vault::NoEditors),
            );
            symlink(outside.path(), vault.path("out")).unwrap();
            symlink(outside.path().join("s.md"), vault.path("s.md")).unwrap();
            symlink("/proc/self/cwd", vault.path("magic")).unwrap();
            vault.write("in/real.md", "inside");
            symlink("in/real.md", vault.path("alias.md")).unwrap();
            for path in ["out/s.md", "s.md", "magic/x.md"] {
                vault.fails("vault.readFile", json!({"path":path}), ErrorCode::PolicyDenied).await;
                vault
                    .fails(
                        "vault.writeFile",
                        json!({"path":path,"content":"x","collisionStrategy":"overwrite"}),
                        ErrorCode::PolicyDenied,
                    )
                    .await;
            }
            vault.fails("vault.createFile", json!({"path":"out/new.md","content":"x"}), ErrorCode::PolicyDenied).await;
            let listed = vault.ok("vault.listFiles", json!({"recursive":true})).await;
            let names: Vec<&str> =
                listed.output.data["items"].as_array().unwrap().iter().map(|i| i["path"].as_str().unwrap()).collect();
            let read = vault.call("vault.readFile", json!({"path":"alias.md"})).await;
            if follow && !portable {
                assert_eq!(read.unwrap().output.data["content"], "inside");
                assert_eq!(names, ["alias.md", "in", "in/real.md"]);
            } else {
                assert_eq!(read.err().unwrap().failure.code, ErrorCode::PolicyDenied);
                assert_eq!(names, ["in", "in/real.md"]);
            }
            let found = vault.ok("vault.searchText", json!({"query":"secret"})).await;
            assert_eq!(found.output.data["matches"], json!([]));
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
            assert_eq!(std::fs::read_to_string(outside.path().join("s.md")).unwrap(), "secret");
        }
    }
}

#[tokio::test]
async fn new_names_are_checked_but_old_ones_can_be_used() {
    let vault = TestVault::new();
    for path in ["a?.md", "CON.md", "x/aux", "a#b.md", "[x].md", "end.", "end ", "a|b.md", "t:x.md/y", "bad?/n.md"] {
        vault.fails("vault.createFile", json!({"path":path,"content":""}), ErrorCode::ValidationError).await;
    }
    vault.write("what? #1.md", "old");
    assert_eq!(vault.ok("vault.readFile", json!({"path":"what? #1.md"})).await.output.data["content"], "old");
    vault.ok("vault.writeFile", json!({"path":"what? #1.md","content":"more","mode":"append"})).await;
    vault.ok("vault.rename", json!({"fromPath":"what? #1.md","toPath":"what 1.md"})).await;
}

#[tokio::test]
async fn names_that_differ_only_in_case_or_form_collide() {
    let vault = TestVault::new();
    vault.write("Dir/Note.md", "x");
    vault.write("Cafe\u{301}.md", "nfd");
    for (tool, args, existing) in [
        ("vault.createFile", json!({"path":"Dir/NOTE.md","content":""}), "Dir/Note.md"),
        ("vault.createFile", json!({"path":"dir/other.md","content":""}), "Dir"),
        ("vault.createFile", json!({"path":"Café.md","content":""}), "Cafe\u{301}.md"),
        ("vault.ensureFolder", json!({"path":"DIR"}), "Dir"),
        ("vault.writeFile", json!({"path":"Dir/note.md","content":""}), "Dir/Note.md"),
        ("vault.rename", json!({"fromPath":"Dir/Note.md","toPath":"cafÉ.md"}), "Cafe\u{301}.md"),
    ] {
        let failure = vault.fails(tool, args, ErrorCode::Conflict).await;
        assert_eq!(failure.details.unwrap()["existing"], existing, "{tool}");
    }
    let unique = vault
        .ok("vault.createFile", json!({"path":"Dir/NOTE.md","content":"y","collisionStrategy":"create-unique"}))
        .await;
    assert_eq!(unique.output.data["path"], "Dir/NOTE (2).md");
    let failure = vault.fails("vault.readFile", json!({"path":"Dir/note.md"}), ErrorCode::NotFound).await;
    assert_eq!(failure.details.unwrap()["similar"], "Dir/Note.md");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_parsed_path_never_escapes_and_parses_again(text in "([a-zA-Z.%25efEF/\\\\ :~é\u{0}-]|\\.\\./|%2e|%2f){0,24}") {
        if let Ok(path) = VaultPath::parse(&text) {
            prop_assert_eq!(path.as_str(), text.as_str());
            prop_assert_eq!(VaultPath::parse(path.as_str()), Ok(path.clone()));
            let joined = std::path::Path::new("/root/vault").join(path.as_str());
            prop_assert!(joined.starts_with("/root/vault"));
            prop_assert!(joined.components().all(|c| matches!(c, std::path::Component::Normal(_) | std::path::Component::RootDir)));
            prop_assert!(!path.segments().any(|s| s.is_empty() || s.starts_with('.')));
        }
    }

    #[test]
    fn any_text_at_all_is_parsed_without_panic(text in any::<String>()) {
        let _ = VaultPath::parse(&text);
    }
}

/// Plain random bytes, seeded, in bulk: cheaper than proptest and just as repeatable.
#[test]
fn a_hundred_thousand_random_paths() {
    let alphabet = ["a", "B", ".", "..", "/", "\\", "%2e", "%2F", "%", " ", ":", "é", "\u{0}", "x.md", "%25", "2e"];
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..100_000 {
        let length = next() % 8;
        let text: String = (0..length).map(|_| alphabet[(next() % alphabet.len() as u64) as usize]).collect();
        if let Ok(path) = VaultPath::parse(&text) {
            let normal =
                std::path::Path::new(path.as_str()).components().all(|c| matches!(c, std::path::Component::Normal(_)));
            assert!(normal && !text.contains('\\') && !text.contains('\0'), "{text:?}");
        }
    }
}
