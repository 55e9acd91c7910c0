//! The packages.

use super::{
    MANIFEST, TestHome, git, installed_names, need, npm_traps,
    packages::{Registry, entry, packed},
    scripts, write_files,
};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

fn names_of(outcome: &super::Outcome) -> String {
    outcome.executed.iter().map(|e| format!("{} ", e.arguments)).collect()
}

#[test]
fn npm_configuration_of_a_package_with_a_git_dependency_runs_nothing() {
    let test_home = TestHome::new();
    let traps = npm_traps(&test_home);
    let traps: Vec<(&str, &str)> = traps.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let folder = test_home.package(&traps);
    for range in
        ["git+file:///srv/x.git", "git+ssh://git@e.org/x.git", "owner/x", "https://e.org/x.tgz", "file:./payload"]
    {
        let said = json!({"name": "p", "version": "1.0.0", "dependencies": {"x": range}}).to_string();
        write_files(&folder, &[("package.json", &said)]);
        let outcome =
            test_home.refuse(&folder.display().to_string(), "VALIDATION_ERROR", "only packages of the registry");
        assert!(outcome.executed.is_empty(), "refused before any tool touches it: {:?}", outcome.executed);
    }
}

#[test]
fn scripts_bin_links_and_node_gyp_of_packages_and_dependencies_do_not_run() {
    need("npm");
    let test_home = TestHome::new();
    let traps = npm_traps(&test_home);
    let traps: Vec<(&str, &str)> = traps.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let hostile = json!({
        "scripts": scripts(&test_home), "gypfile": true, "hasInstallScript": true,
        "bin": {"git": "payload", "sh": "payload", "node": "payload"},
    });
    test_home.registry.publish("dep", &hostile, &traps);
    let mut said = hostile.clone();
    said["name"] = json!("p");
    said["version"] = json!("1.0.0");
    said["dependencies"] = json!({"dep": "^1.0.0"});
    let folder = test_home.package(&traps);
    write_files(&folder, &[("package.json", &said.to_string())]);
    let outcome = test_home.accept(&folder.display().to_string());
    assert!(names_of(&outcome).contains("npm"), "npm ran, inside walls: {:?}", outcome.executed);
    let names = installed_names(&outcome.folder);
    assert!(names.contains(&"node_modules/dep/package.json".to_owned()), "{names:?}");
    for name in names {
        let last = name.rsplit('/').next().unwrap();
        assert!(![".npmrc", ".bin", ".git"].contains(&last) || name.starts_with("node_modules/dep/"), "{name}");
    }
    assert!(!outcome.folder.join("node_modules/.bin").exists());
    let shown: Vec<String> = test_home.registry.requests();
    assert!(shown.iter().any(|path| path.starts_with("dep")), "the registry of the configuration was asked: {shown:?}");
}

#[test]
fn a_package_of_the_registry_is_unpacked_and_not_run() {
    need("npm");
    let test_home = TestHome::new();
    let traps = npm_traps(&test_home);
    let mut files: Vec<(&str, &str)> = traps.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.extend([("openclaw.plugin.json", MANIFEST), ("skills/good/SKILL.md", "# Good")]);
    test_home.registry.publish(
        "evil-plugin",
        &json!({"scripts": scripts(&test_home), "dependencies": {"dep": "*"}}),
        &files,
    );
    test_home.registry.publish("dep", &json!({"scripts": scripts(&test_home)}), &[]);
    let outcome = test_home.accept("npm:evil-plugin@1.0.0");
    assert!(outcome.folder.join("node_modules/dep/package.json").exists());
    assert!(!outcome.folder.join(".npmrc").exists());
    // An invalid manifest ends the installation before npm sees a dependency.
    let test_home = TestHome::new();
    test_home.registry.publish(
        "evil-plugin",
        &json!({"dependencies": {"dep": "*"}}),
        &[("openclaw.plugin.json", "{}")],
    );
    let outcome = test_home.refuse("npm:evil-plugin", "VALIDATION_ERROR", "id is missing");
    let ran = names_of(&outcome);
    assert!(ran.contains("npm pack") && !ran.contains("install") && !ran.contains(" ci "), "{ran}");
}

#[toolyard_shows::shows("000-1-01")]
#[test]
fn a_package_at_clawhubs_address_is_downloaded_and_not_run() {
    need("npm");
    let test_home = TestHome::new();
    let url = &test_home.registry.url;
    test_home.place.config(&format!("[plugins]\nnpmRegistry = \"{url}\"\nclawhub = \"{url}/\"\n"));
    let traps = npm_traps(&test_home);
    let mut files: Vec<(&str, &str)> = traps.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.extend([("openclaw.plugin.json", MANIFEST), ("skills/good/SKILL.md", "# Good")]);
    test_home.registry.publish(
        "@a/hub-plugin",
        &json!({"scripts": scripts(&test_home), "dependencies": {"dep": "*"}}),
        &files,
    );
    test_home.registry.publish("dep", &json!({"scripts": scripts(&test_home)}), &[]);
    test_home.refuse("clawhub:@a/hub-plugin", "USAGE_ERROR", "names no version");
    test_home.refuse("clawhub:@a/hub-plugin@2.0.0", "UNAVAILABLE", "404");
    test_home.refuse("clawhub:nothing@1.0.0", "UNAVAILABLE", "404");
    let outcome = test_home.accept("clawhub:@a/hub-plugin@1.0.0");
    assert_eq!(outcome.answer["plugin"]["source"], "clawhub:@a/hub-plugin@1.0.0", "{}", outcome.answer);
    assert!(outcome.folder.join("node_modules/dep/package.json").exists());
    let asked = test_home.registry.requests();
    let expected = "api/v1/packages/%40a%2Fhub-plugin/versions/1.0.0/artifact/download";
    assert!(asked.iter().any(|path| path == expected), "{asked:?}");
}

#[test]
fn a_dependency_of_a_dependency_comes_from_the_registry_with_its_hash_or_not_at_all() {
    need("npm");
    let test_home = TestHome::new();
    let elsewhere = Registry::start();
    elsewhere.publish("far", &json!({"scripts": scripts(&test_home)}), &[]);
    let said = json!({"name": "p", "version": "1.0.0", "dependencies": {"dep": "1.0.0"}}).to_string();
    let folder = test_home.package(&[("package.json", &said)]).display().to_string();
    let far = format!("{}/far/-/far-1.0.0.tgz", elsewhere.url);
    for range in ["git+file:///srv/x.git", "git+https://127.0.0.1:1/x.git", "owner/x", "file:../x", &far] {
        test_home.registry.publish("dep", &json!({"dependencies": {"far": range}}), &[]);
        let outcome = test_home.install(&folder);
        assert_ne!(outcome.code, 0, "{range}: {}", outcome.answer);
        let is_git = |executed: &super::Executed| executed.program.file_name().is_some_and(|name| name == "git");
        assert!(!outcome.executed.iter().any(is_git), "{range}: {:?}", outcome.executed);
        assert!(!test_home.place.home.join("plugins/hostile").exists(), "{range}");
    }
    let wrong = format!("sha512-{}==", "A".repeat(86));
    test_home.registry.publish_with_hash("dep", &json!({}), &[], Some(&wrong));
    let outcome = test_home.refuse(&folder, "UNAVAILABLE", "npm");
    assert!(outcome.answer.to_string().contains("EINTEGRITY"), "{}", outcome.answer);
}

#[test]
fn a_lockfile_cannot_say_where_packages_come_from() {
    need("npm");
    let test_home = TestHome::new();
    let elsewhere = Registry::start();
    elsewhere.publish("dep", &json!({"scripts": scripts(&test_home)}), &[("evil.js", "x")]);
    test_home.registry.publish("dep", &json!({}), &[("good.js", "x")]);
    let said = json!({"name": "p", "version": "1.0.0", "dependencies": {"dep": "^1.0.0"}}).to_string();
    let lock = |entry: Value| json!({"lockfileVersion": 3, "packages": {"node_modules/dep": entry}}).to_string();
    let folder = test_home.package(&[("package.json", &said)]);
    let source = folder.display().to_string();
    for entry in [
        json!({"version": "1.0.0", "resolved": "git+ssh://git@e.org/x.git#abc"}),
        json!({"version": "1.0.0", "resolved": "file:../../outside"}),
        json!({"resolved": "../outside", "link": true}),
    ] {
        write_files(&folder, &[("package-lock.json", &lock(entry))]);
        let outcome = test_home.refuse(&source, "VALIDATION_ERROR", "package-lock.json");
        assert!(outcome.executed.is_empty(), "{:?}", outcome.executed);
    }
    let foreign = json!({"version": "1.0.0", "resolved": format!("{}/dep/-/dep-1.0.0.tgz", elsewhere.url)});
    write_files(&folder, &[("package-lock.json", &lock(foreign))]);
    let outcome = test_home.accept(&source);
    assert!(outcome.folder.join("node_modules/dep/good.js").exists());
    assert_eq!(elsewhere.requests(), Vec::<String>::new(), "the address in the lockfile was not asked");
}

#[test]
fn filters_hooks_and_lfs_of_a_repository_do_not_run() {
    need("git");
    let test_home = TestHome::new();
    let payload = test_home.payload_text();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    let files = [
        (".gitattributes", "*.txt filter=evil\n*.bin filter=lfs diff=lfs merge=lfs -text\n"),
        (".lfsconfig", "[lfs]\n\turl = http://127.0.0.1:1/\n"),
        (".gitconfig", "[core]\n\tfsmonitor = ./payload\n"),
        ("hooks/post-checkout", payload.as_str()),
        (".githooks/post-checkout", payload.as_str()),
        ("a.txt", "text\n"),
        ("big.bin", pointer),
    ];
    let source = test_home.repository(&files, |folder| {
        // The repository's own configuration is not part of a clone.
        git(
            folder,
            &["config", "uploadpack.packObjectsHook", &test_home.outside.join("payload").display().to_string()],
        );
        git(folder, &["config", "core.hooksPath", "hooks"]);
        git(folder, &["config", "filter.evil.clean", "cat"]);
        git(folder, &["config", "core.hooksPath", "/dev/null"]);
    });
    let outcome = test_home.accept(&source);
    assert!(names_of(&outcome).contains("clone"), "{:?}", outcome.executed);
    assert_eq!(std::fs::read_to_string(outcome.folder.join("big.bin")).unwrap(), pointer, "the pointer, not the file");
    assert_eq!(std::fs::read_to_string(outcome.folder.join("a.txt")).unwrap(), "text\n");
    assert!(!outcome.folder.join(".git").exists(), "neither hooks nor configuration stay behind");
}

#[test]
fn submodules_are_not_fetched() {
    need("git");
    let test_home = TestHome::new();
    let inner = test_home.outside.join("inner");
    write_files(&inner, &[("secret.md", "hush")]);
    git(&inner, &["init", "-q"]);
    git(&inner, &["add", "-A"]);
    git(&inner, &["commit", "-q", "-m", "first"]);
    let source = test_home.repository(&[], |folder| {
        git(folder, &["submodule", "add", "-q", &inner.display().to_string(), "sub"]);
    });
    let outcome = test_home.accept(&source);
    assert!(!outcome.folder.join("sub/secret.md").exists());
    assert!(!names_of(&outcome).contains(" submodule "), "{:?}", outcome.executed);
}

#[test]
fn a_link_in_a_repository_is_no_way_to_a_file_of_the_user() {
    need("git");
    let test_home = TestHome::new();
    let key = test_home.outside.join("keys/SKILL.md");
    let source = test_home.repository(&[], |folder| {
        std::fs::create_dir_all(folder.join("skills/stolen")).unwrap();
        symlink(&key, folder.join("skills/stolen/SKILL.md")).unwrap();
        symlink(test_home.outside.join("keys"), folder.join("skills/folder")).unwrap();
    });
    let outcome = test_home.accept(&source);
    let link = std::fs::symlink_metadata(outcome.folder.join("skills/stolen/SKILL.md")).unwrap();
    assert!(link.is_file(), "the link is a text file");
    let (listed, got) = mcp_prompts(&test_home, "hostile__stolen");
    assert!(listed.contains("hostile__good") && !got.contains("hush"), "{listed} {got}");
}

/// Row 15 of the attacks: a link that is put into an installed plugin later is not followed either.
#[test]
fn a_linked_skill_of_an_installed_plugin_is_not_served() {
    let test_home = TestHome::new();
    let folder = test_home.package(&[]).display().to_string();
    let outcome = test_home.accept(&folder);
    let skills = outcome.folder.join("skills");
    std::fs::create_dir(skills.join("stolen")).unwrap();
    symlink(test_home.outside.join("keys/SKILL.md"), skills.join("stolen/SKILL.md")).unwrap();
    symlink(test_home.outside.join("keys"), skills.join("folder")).unwrap();
    let (listed, got) = mcp_prompts(&test_home, "hostile__key");
    assert!(listed.contains("hostile__good") && !listed.contains("hostile__key"), "{listed}");
    assert!(got.contains("error") && !got.contains("hush"), "{got}");
}

/// Lists the prompts over MCP once the plugin is loaded, and asks for one; gives both answers.
fn mcp_prompts(test_home: &TestHome, name: &str) -> (String, String) {
    use std::io::{BufRead, BufReader, Write};
    let vault = test_home.place.vault.display().to_string();
    let mut command = test_home.place.command(&["--vault", &vault, "mcp"]);
    let mut child = command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |method: &str, params: Value| {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params})).unwrap();
        lines.find_map(|line| line.ok().filter(|line| line.contains(&format!("\"id\":\"{method}\"")))).unwrap()
    };
    let client = json!({"name": "t", "version": "1"});
    ask("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}));
    let mut listed = ask("prompts/list", json!({}));
    for _ in 0..600 {
        if listed.contains("hostile__good") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        listed = ask("prompts/list", json!({}));
    }
    let got = ask("prompts/get", json!({"name": name}));
    drop(stdin);
    child.wait().unwrap();
    (listed, got)
}

#[test]
fn archives_with_links_devices_and_paths_out_are_refused() {
    let test_home = TestHome::new();
    let key = test_home.outside.join("keys/SKILL.md").display().to_string();
    for (bad, why) in [
        (entry("p/skills/x/SKILL.md", b'2', &key, b""), "Symlink"),
        (entry("p/skills/x/SKILL.md", b'1', &key, b""), "Link"),
        (entry("p/dev", b'3', "", b""), "Char"),
        (entry("p/dev", b'4', "", b""), "Block"),
        (entry("p/pipe", b'6', "", b""), "Fifo"),
        (entry("../witness", b'0', "", b"x"), "leads out"),
        (entry("p/../../../outside/witness", b'0', "", b"x"), "leads out"),
        (entry(&test_home.witness.display().to_string(), b'0', "", b"x"), "leads out"),
        (entry("p/openclaw.plugin.json", b'0', "", b"{}"), "exists"),
        (entry("p/OPENCLAW.plugin.json", b'0', "", b"{}"), "differ only"),
        (entry("p/openclaw.plug\u{131}n.json", b'0', "", b"{}"), "differ only"),
        (entry("p/sk\u{131}lls/x", b'0', "", b"{}"), "differ only"),
        (entry("p/a\u{202e}txt.sh", b'0', "", b"x"), "direction"),
    ] {
        let outcome = test_home.refuse(&test_home.tarball(&[bad]), "VALIDATION_ERROR", why);
        assert!(outcome.executed.is_empty(), "{why}: {:?}", outcome.executed);
    }
    let two = [entry("p/caf\u{e9}", b'0', "", b"1"), entry("p/cafe\u{301}", b'0', "", b"2")];
    test_home.refuse(&test_home.tarball(&two), "VALIDATION_ERROR", "differ only");
}

#[test]
fn archives_that_grow_are_refused_and_archives_in_archives_stay_packed() {
    let test_home = TestHome::new();
    // 1.5 GiB of zeros, 7 MB packed: refused because of the size in the header, before they are unpacked.
    let mut huge = entry("p/zeros", b'0', "", b"");
    huge[124..136].copy_from_slice(format!("{:011o}\0", 3_u64 << 29).as_bytes());
    huge[148..156].copy_from_slice(b"        ");
    let sum: u32 = huge.iter().take(512).map(|b| u32::from(*b)).sum();
    huge[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    test_home.refuse(&test_home.tarball(&[huge]), "VALIDATION_ERROR", "bytes");
    let many: Vec<Vec<u8>> = vec![entry("p/d/", b'5', "", b""); 100_001];
    test_home.refuse(&test_home.tarball(&many), "VALIDATION_ERROR", "files and folders");
    // The path of the second entry stands in the first: a header has no room for it.
    let deep = format!("p/{}x\0", "d/".repeat(70));
    let long = [entry("././@LongLink", b'L', "", deep.as_bytes()), entry("p/short", b'0', "", b"")];
    test_home.refuse(&test_home.tarball(&long), "VALIDATION_ERROR", "deep");
    let inner = packed(&[entry("../../outside/witness", b'0', "", b"x")]);
    let outcome = test_home.accept(&test_home.tarball(&[entry("p/inner.tgz", b'0', "", &inner)]));
    assert_eq!(std::fs::read(outcome.folder.join("inner.tgz")).unwrap(), inner);
}

#[test]
fn folders_with_links_out_second_names_and_pipes_are_refused() {
    let test_home = TestHome::new();
    let key = test_home.outside.join("keys/SKILL.md");
    let folder = test_home.package(&[]);
    let source = folder.display().to_string();
    let bad = folder.join("skills/bad");
    let try_one = |why: &str| {
        let outcome = test_home.refuse(&source, "VALIDATION_ERROR", why);
        assert!(outcome.executed.is_empty(), "{why}: {:?}", outcome.executed);
        std::fs::remove_file(&bad).unwrap();
    };
    symlink(&key, &bad).unwrap();
    try_one("symbolic link");
    symlink(test_home.outside.join("keys"), &bad).unwrap();
    try_one("symbolic link");
    symlink("/proc/self/environ", &bad).unwrap();
    try_one("symbolic link");
    std::fs::hard_link(&key, &bad).unwrap();
    try_one("hard link");
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, &bad, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    try_one("a pipe");
    let large = std::fs::File::create(&bad).unwrap();
    large.set_len(2 << 30).unwrap();
    try_one("bytes");
    std::fs::write(&bad, "1").unwrap();
    std::fs::write(folder.join("skills/BAD"), "2").unwrap();
    try_one("differ only");
}

#[test]
fn a_manifest_cannot_ask_for_more_than_is_shown() {
    let test_home = TestHome::new();
    let folder = test_home.package(&[]);
    let source = folder.display().to_string();
    let manifest = |more: &str| {
        format!(r#"{{"id": "hostile", "configSchema": {{"type": "object"}}, "skills": ["skills"], {more}}}"#)
    };
    for (more, why) in [
        (r#""permissions": {}, "permissions": {"network": true}"#, "duplicate"),
        (r#""permissions": {"network": false, "network": true}"#, "duplicate"),
        (r#""permissions": {"read": [""]}"#, "absolute"),
        (r#""permissions": {"read": ["/data/../"]}"#, "absolute"),
        (r#""permissions": {"write": ["~/x"]}"#, "absolute"),
        (r#""permissions": {"read": ["/data\u001b[8m"]}"#, "not shown"),
        (r#""permissions": {"env": ["A=1 B"]}"#, "variable"),
        (r#""name": "x\u202e""#, "not shown"),
    ] {
        write_files(&folder, &[("openclaw.plugin.json", &manifest(more))]);
        test_home.refuse(&source, "VALIDATION_ERROR", why);
    }
    let asks = r#""permissions": {"network": true, "read": ["/data", "*"], "write": ["*"], "env": ["KEY"]}"#;
    write_files(&folder, &[("openclaw.plugin.json", &manifest(asks))]);
    let outcome = test_home.accept(&source);
    assert_eq!(outcome.answer["plugin"]["grant"], json!({"network": false}), "asking grants nothing");
    let lacking = json!(["network", "read:/data", "read:PATH", "write:PATH", "env:KEY"]);
    assert_eq!(outcome.answer["notGranted"], lacking, "all that it asks for is shown");
}
