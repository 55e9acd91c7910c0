//! Moving files and folders, and the links that follow.

use crate::support::TestVault;
use serde_json::json;
use toolyard_protocol::ErrorCode;

#[tokio::test]
async fn a_folder_takes_its_links_along() {
    let vault = TestVault::new();
    vault.write("p/a.md", "[b](b.md) [out](../o.md) ![[p/img.png]] [[a]]\n");
    vault.write("p/b.md", "[[p/a]] [x](../p/a.md)\n");
    vault.write("p/img.png", [0x89, b'P', 0, 1]);
    vault.write("o.md", "[[p/a#h|t]] ![i](p/img.png) [[b]] [r]\n\n[r]: p/b.md \"t\"\n");
    let done = vault.ok("vault.rename", json!({"fromPath":"p","toPath":"q/deep"})).await;
    assert_eq!(vault.read("q/deep/a.md"), "[b](b.md) [out](../../o.md) ![[q/deep/img.png]] [[a]]\n");
    assert_eq!(vault.read("q/deep/b.md"), "[[q/deep/a]] [x](a.md)\n");
    assert_eq!(vault.read("o.md"), "[[q/deep/a#h|t]] ![i](q/deep/img.png) [[b]] [r]\n\n[r]: q/deep/b.md \"t\"\n");
    assert_eq!(done.output.data["updatedNotes"], 3);
    assert_eq!(done.output.effects.renamed.len(), 1);
    assert!(!vault.exists("p"));
}

#[tokio::test]
async fn crlf_mode_and_untouched_notes_survive() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let vault = TestVault::new();
    vault.write("n.md", "x");
    vault.write("l.md", "\u{feff}[[n]]\r\nline\r\n");
    vault.write("other.md", "[[else]]");
    std::fs::set_permissions(vault.path("l.md"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let inode = vault.path("other.md").metadata().unwrap().ino();
    vault.ok("vault.rename", json!({"fromPath":"n.md","toPath":"m.md"})).await;
    assert_eq!(vault.read("l.md"), "\u{feff}[[m]]\r\nline\r\n");
    assert_eq!(vault.path("l.md").metadata().unwrap().mode() & 0o777, 0o640);
    assert_eq!(vault.path("other.md").metadata().unwrap().ino(), inode);
}

#[tokio::test]
async fn links_can_be_left_alone_and_etags_guard() {
    let vault = TestVault::new();
    vault.write("n.md", "x");
    vault.write("l.md", "[[n]]");
    vault
        .fails(
            "vault.rename",
            json!({"fromPath":"n.md","toPath":"m.md","expectedEtag":"0000000000000000"}),
            ErrorCode::Conflict,
        )
        .await;
    vault
        .ok(
            "vault.rename",
            json!({"fromPath":"n.md","toPath":"m.md","updateLinks":false,"expectedEtag":toolyard_vault::etag(b"x")}),
        )
        .await;
    assert_eq!(vault.read("l.md"), "[[n]]");
    vault.write("d/x.md", "");
    vault
        .fails("vault.rename", json!({"fromPath":"d","toPath":"e","expectedEtag":"0"}), ErrorCode::ValidationError)
        .await;
    vault.fails("vault.rename", json!({"fromPath":"none.md","toPath":"e.md"}), ErrorCode::NotFound).await;
    vault.fails("vault.rename", json!({"fromPath":"m.md","toPath":"l.md/x.md"}), ErrorCode::Conflict).await;
}

#[tokio::test]
async fn two_hard_links_are_two_files() {
    let vault = TestVault::new();
    vault.write("note.md", "x");
    std::fs::hard_link(vault.path("note.md"), vault.path("Note.md")).unwrap();
    vault.fails("vault.rename", json!({"fromPath":"note.md","toPath":"Note.md"}), ErrorCode::Conflict).await;
    assert!(vault.exists("note.md") && vault.exists("Note.md"));
}

/// On a real case-insensitive file system: a casefolded tmpfs, mounted in a namespace of the child's own, so that nothing
/// is left behind on the machine. Few kernels have one and only root may mount it, so it runs by a command of its own;
/// the tests of `src/commit.rs` cover the steps of such a rename on any file system.
#[test]
#[ignore = "needs root and a kernel with casefolded tmpfs: make casefold"]
fn a_case_only_rename_on_a_case_insensitive_file_system() {
    let script = "mount -t tmpfs -o size=4m,casefold tmpfs \"$VAULT_DIR\" || exit 77
        mkdir \"$VAULT_DIR/v\" && chattr +F \"$VAULT_DIR/v\" || exit 77
        exec \"$TEST_EXE\" --exact rename::child_on_a_case_insensitive_file_system --ignored";
    let (dir, locks) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let child = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .env("VAULT_DIR", dir.path())
        .env("LOCK_DIR", locks.path())
        .env("TEST_EXE", std::env::current_exe().unwrap())
        .output()
        .expect("unshare is missing: install util-linux");
    assert_ne!(
        child.status.code(),
        Some(77),
        "no casefolded tmpfs can be mounted: {}",
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(
        child.status.success(),
        "{}{}",
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(locks.path().join("ran").exists(), "the child did run its test")
}

#[test]
#[ignore = "run by a_case_only_rename_on_a_case_insensitive_file_system in a process of its own"]
fn child_on_a_case_insensitive_file_system() {
    let (Ok(dir), Ok(locks)) = (std::env::var("VAULT_DIR"), std::env::var("LOCK_DIR")) else { return };
    let dir = std::path::Path::new(&dir).join("v");
    std::fs::write(dir.join("note.md"), "x [[note]]").unwrap();
    assert!(dir.join("NOTE.md").exists(), "the file system folds case");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let vault = TestVault::at(&dir, locks.as_ref());
        vault.ok("vault.rename", json!({"fromPath":"note.md","toPath":"Note.md"})).await;
        let names: Vec<String> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names, ["Note.md"]);
        assert_eq!(std::fs::read_to_string(dir.join("Note.md")).unwrap(), "x [[note]]");
        vault.fails("vault.createFile", json!({"path":"NOTE.md","content":""}), ErrorCode::Conflict).await;
    });
    std::fs::write(std::path::Path::new(&locks).join("ran"), "").unwrap();
}
