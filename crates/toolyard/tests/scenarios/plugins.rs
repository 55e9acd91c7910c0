//! Plugins through the real binary: the three examples, each in its sandbox, and packages that must be refused.

use crate::harness::{Place, Ran};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins").join(name)
}

fn install(place: &Place, source: &Path, more: &[&str]) -> Ran {
    let source = source.display().to_string();
    let mut args = vec!["plugins", "install", &source, "--json"];
    args.extend(more);
    place.run(&args)
}

/// Fails where a program that the test runs is not installed.
fn needs(program: &str) {
    let version = Command::new(program).env("PATH", "/usr/bin:/bin").arg("--version").output();
    assert!(version.is_ok_and(|output| output.status.success()), "{program} is missing from /usr/bin: install it");
}

fn write_plugin(folder: &Path, manifest: &Value, files: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("openclaw.plugin.json"), manifest.to_string()).unwrap();
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[toolyard_shows::shows("000-1-01", "000-1-09", "001-2-02")]
#[test]
fn the_python_example_counts_keeps_its_data_and_is_checked() {
    needs("python3");
    let place = Place::new();
    let added = install(&place, &example("python"), &[]).json();
    assert_eq!(
        (added["plugin"]["status"].as_str(), added["plugin"]["tools"].as_u64()),
        (Some("healthy"), Some(2)),
        "{added}"
    );
    let counted = place.call("py_count_words", json!({"text": "one two two"}));
    assert_eq!(counted["data"]["details"], json!({"words": 3, "distinct": 2}), "{counted}");
    let listed = || place.run(&["tools", "list", "--json"]).stdout;
    assert!(listed().contains("py_count_words") && listed().contains("vault.readFile"), "{}", listed());
    let noted = place.call("py_remember", json!({"note": "hello"}));
    assert_eq!(noted["ok"], true, "{noted}");
    assert!(place.home.join("plugins/.data/example-python/notes.txt").exists());
    let wrong = place.call("py_count_words", json!({"words": 1}));
    assert_eq!(wrong["error"]["code"], "VALIDATION_ERROR", "checked before the plugin sees it");
    place.config("[policy]\ndeny = [\"py_count_words\"]\n");
    assert!(!listed().contains("py_count_words") && listed().contains("py_remember"), "what is denied is not listed");
    assert_ne!(place.call("py_count_words", json!({"text": "x"}))["ok"], true);
    place.config("[plugins.entries.example-python.config]\nlongest = 5\n");
    let refused = place.call("py_count_words", json!({"text": "longer than five"}));
    assert_eq!(refused["error"]["code"], "VALIDATION_ERROR", "{refused}");
    place.config("[plugins.entries.example-python.config]\nlongest = \"five\"\n");
    let listed = place.run(&["plugins", "list", "--json"]).json();
    assert_eq!(listed["plugins"][0]["status"], "unavailable", "{listed}");
    assert!(listed["plugins"][0]["problems"][0].as_str().unwrap().contains("configSchema"), "{listed}");
    place.config("");
    let healthy = place.run(&["plugins", "doctor", "--json"]);
    assert_eq!(
        (healthy.code, healthy.json()["plugins"][0]["processes"][0]["health"]["checks"][0]["name"].as_str()),
        (0, Some("data folder")),
        "{healthy:?}"
    );
    assert_eq!(place.run(&["plugins", "disable", "example-python", "--json"]).json()["enabled"], false);
    assert_eq!(place.call("py_count_words", json!({"text": "x"}))["error"]["code"], "NOT_FOUND");
    assert_eq!(place.run(&["plugins", "enable", "example-python", "--json"]).json()["enabled"], true);
    assert_eq!(place.run(&["plugins", "update", "example-python", "--json"]).json()["plugin"]["status"], "healthy");
    assert_eq!(install(&place, &example("python"), &[]).error_code(), "CONFLICT");
    assert_eq!(place.run(&["plugins", "remove", "example-python", "--data"]).code, 0);
    assert!(
        !place.home.join("plugins/example-python").exists()
            && !place.home.join("plugins/.data/example-python").exists()
    );
}

#[toolyard_shows::shows("000-1-03", "001-6-15", "003-13-01")]
#[test]
fn the_javascript_example_runs_as_openclaw_would_run_it() {
    needs("node");
    let place = Place::new();
    place.config("[plugins.entries.example-javascript.config]\nforbidden = [\"secret\"]\n");
    let added = install(&place, &example("javascript"), &[]).json();
    let plugin = &added["plugin"];
    assert_eq!(plugin["tools"], 1, "{added}");
    let left_out = plugin["leftOut"].to_string();
    assert!(left_out.contains("js_undeclared") && left_out.contains("plugin must declare contracts.tools"), "{added}");
    let missing = place.call("js_undeclared", json!({}));
    assert_eq!(missing["error"]["code"], "NOT_FOUND", "{missing}");
    let why = missing["error"]["suggestion"].as_str().unwrap();
    assert!(why.contains("example-javascript") && why.contains("contracts.tools"), "{missing}");
    assert_eq!(plugin["hooks"], json!(["vault.createFile"]));
    let ten = place.call("js_calculate", json!({"operation": "add", "a": 4, "b": 6}));
    assert_eq!(ten["data"]["details"]["result"], 10, "{ten}");
    let refused = place.call("js_calculate", json!({"operation": "divide", "a": 1, "b": 0}));
    assert_eq!(refused["error"]["code"], "VALIDATION_ERROR", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("nothing can be divided by 0"));
    // Its hook rewrites one call and blocks another.
    let made = place.call("vault.createFile", json!({"path": "a.md", "content": "text   "}));
    assert_eq!(made["ok"], true, "{made}");
    assert_eq!(place.read("a.md"), "text\n");
    let blocked = place.call("vault.createFile", json!({"path": "b.md", "content": "a secret"}));
    assert_eq!(blocked["error"]["code"], "POLICY_DENIED", "{blocked}");
    assert!(blocked["error"]["message"].as_str().unwrap().contains("must not contain"));
    assert!(!place.exists("b.md"));
}

#[test]
fn the_rust_example_is_an_mcp_server() {
    let place = Place::new();
    let folder = place.home.join("rust-plugin");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    std::fs::copy(example("rust").join("openclaw.plugin.json"), folder.join("openclaw.plugin.json")).unwrap();
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-o"])
        .arg(folder.join("bin/toolyard-example-rust"))
        .arg(example("rust").join("src/main.rs"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let added = install(&place, &folder, &[]).json();
    assert_eq!(
        (added["plugin"]["status"].as_str(), added["plugin"]["tools"].as_u64()),
        (Some("healthy"), Some(1)),
        "{added}"
    );
    let sum = place.call("rs_checksum", json!({"text": "Wikipedia"}));
    assert_eq!(sum["data"]["structuredContent"]["adler32"], "11e60398", "{sum}");
}

#[test]
fn a_plugin_reads_writes_and_connects_only_as_granted() {
    needs("python3");
    let place = Place::new();
    let folder = place.home.join("nosy");
    let secret = place.home.join("secret.txt");
    std::fs::create_dir_all(&place.home).unwrap();
    std::fs::write(&secret, "hush").unwrap();
    let manifest = json!({
        "id": "nosy", "configSchema": {"type": "object"}, "contracts": {"tools": ["nosy_try"]},
        "toolMetadata": {"nosy_try": {"sideEffecting": false}}, "process": {"command": "python3", "args": ["./p.py"]},
    });
    let program = r#"
import json, os, socket, sys
def attempt(what, arg):
    try:
        if what == "read": return open(arg).read()
        if what == "write": open(arg, "w").write("x"); return "wrote"
        if what == "connect":
            host, port = arg.split(":"); socket.create_connection((host, int(port)), 5).close(); return "connected"
        if what == "run": return os.popen("cat " + arg).read() or "nothing"
        if what == "env": return os.environ.get(arg, "unset")
    except OSError as e: return "refused: " + (e.strerror or str(e))
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "start": r = {"tools": [{"name": "nosy_try", "description": "Tries.", "parameters": {"type": "object"}}]}
    elif m["method"] == "call": r = attempt(m["params"]["args"]["what"], m["params"]["args"]["arg"])
    else: r = {}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;
    write_plugin(&folder, &manifest, &[("p.py", program)]);
    let added = install(&place, &folder, &[]).json();
    assert_eq!(added["plugin"]["status"], "healthy", "{added}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let secret_text = secret.display().to_string();
    let attempt = |what: &str, arg: &str| {
        let result = place.call("nosy_try", json!({"what": what, "arg": arg}));
        result["data"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
    };
    assert!(attempt("read", &secret_text).starts_with("refused"), "not granted");
    assert!(attempt("read", &place.home.join("state/token").display().to_string()).starts_with("refused"));
    assert!(attempt("write", &place.vault.join("x").display().to_string()).starts_with("refused"));
    assert_eq!(attempt("run", &secret_text), "nothing", "nor may what it starts");
    assert!(attempt("connect", &address).starts_with("refused"));
    assert_eq!(attempt("env", "TOOLYARD_HOME"), "unset");
    let environment = format!("/proc/{}/environ", std::process::id());
    assert!(attempt("read", &environment).starts_with("refused"), "nor into other processes of the same user");
    let grant =
        ["plugins", "enable", "nosy", "--grant", "network", "--grant", &format!("read:{secret_text}"), "--json"];
    assert_eq!(place.run(&grant).json()["status"], "healthy");
    assert_eq!(attempt("read", &secret_text), "hush");
    assert!(attempt("write", &secret_text).starts_with("refused"), "reading is not writing");
    assert_eq!(attempt("connect", &address), "connected");
}

#[test]
fn a_repository_is_cloned_updated_and_shown() {
    needs("git");
    needs("python3");
    let place = Place::new();
    let repository = place.home.join("repository");
    std::fs::create_dir_all(&repository).unwrap();
    for file in ["openclaw.plugin.json", "plugin.py"] {
        std::fs::copy(example("python").join(file), repository.join(file)).unwrap();
    }
    let witness = place.home.join("ran");
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
        let ran = Command::new("git").current_dir(&repository).args(identity).args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    let source = format!("git:file://{}", repository.display());
    let added = place.run(&["plugins", "install", &source, "--json"]).json();
    assert_eq!(added["plugin"]["status"], "healthy", "{added}");
    let shown = place.run(&["plugins", "info", "example-python", "--json"]).json();
    assert_eq!(shown["source"], source, "{shown}");
    assert_eq!(shown["declared"], json!(["py_count_words", "py_remember"]), "{shown}");
    let words = place.run(&["plugins", "info", "example-python"]).stdout;
    assert!(words.contains("healthy") && words.contains("py_remember") && words.contains(&source), "{words}");
    // Changes at the source are installed by an update, and not before.
    let text = std::fs::read_to_string(repository.join("openclaw.plugin.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["version"] = json!("9.9.9");
    std::fs::write(repository.join("openclaw.plugin.json"), manifest.to_string()).unwrap();
    git(&["commit", "-q", "-a", "-m", "second"]);
    assert_ne!(place.run(&["plugins", "info", "example-python", "--json"]).json()["version"], "9.9.9");
    let updated = place.run(&["plugins", "update", "example-python", "--json"]).json();
    assert_eq!(
        (&updated["plugin"]["version"], &updated["plugin"]["status"]),
        (&json!("9.9.9"), &json!("healthy")),
        "{updated}"
    );
    // Transports that run commands are refused.
    let command = format!("git:ext::touch {}", witness.display());
    assert_eq!(place.run(&["plugins", "install", &command, "--json"]).error_code(), "USAGE_ERROR");
    assert!(!witness.exists());
    // `doctor` reports a plugin that cannot start, and its exit code says so.
    std::fs::write(place.home.join("plugins/example-python/package/plugin.py"), "raise SystemExit(3)").unwrap();
    let sick = place.run(&["plugins", "doctor", "--json"]);
    assert_eq!((sick.code, &sick.json()["plugins"][0]["status"]), (1, &json!("unavailable")), "{sick:?}");
}

#[toolyard_shows::shows("000-1-02")]
#[test]
fn nothing_runs_before_the_manifest_is_good() {
    let place = Place::new();
    let folder = place.home.join("bad");
    let witness = place.home.join("ran");
    let index = format!("require('fs').writeFileSync({:?}, 'x')", witness.display().to_string());
    let package = json!({"name": "bad", "version": "1.0.0", "scripts": {"postinstall": format!("touch {}", witness.display())}, "openclaw": {"extensions": ["./index.js"]}});
    write_plugin(&folder, &json!({"id": "bad"}), &[("index.js", &index), ("package.json", &package.to_string())]);
    let refused = install(&place, &folder, &[]);
    assert_eq!(refused.error_code(), "VALIDATION_ERROR", "{refused:?}");
    assert!(refused.stdout.contains("configSchema is missing"));
    assert!(!witness.exists() && !place.home.join("plugins/bad").exists());
    assert_eq!(place.run(&["plugins", "install", "npm:--global", "--json"]).error_code(), "USAGE_ERROR");
    assert_eq!(place.run(&["plugins", "info", "nobody", "--json"]).error_code(), "NOT_FOUND");
}

#[test]
fn a_tarball_is_unpacked_and_an_agent_cannot_install_one() {
    needs("python3");
    let place = Place::new();
    let packed = place.home.join("p.tgz");
    std::fs::create_dir_all(&place.home).unwrap();
    let tar = Command::new("tar").arg("czf").arg(&packed).arg("-C").arg(example("")).arg("python").output().unwrap();
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    let server = place.up();
    let added = install(&place, &packed, &[]).json();
    assert_eq!(added["plugin"]["status"], "healthy", "{added}");
    let url = server.ready["url"].as_str().unwrap().replacen("http", "ws", 1);
    let params = json!({"source": packed.display().to_string()}).to_string();
    let asked = place.run_bare(&[
        "gateway",
        "call",
        "plugins.install",
        "--params",
        &params,
        "--url",
        &url,
        "--token",
        "test-token-of-16-chars",
    ]);
    assert_ne!(asked.code, 0, "no such method for clients of the gateway: {asked:?}");
    assert_eq!(server.stop(), 0);
}

#[toolyard_shows::shows("000-1-03")]
#[test]
fn a_plugins_tool_answers_from_the_moment_the_server_is_ready() {
    needs("python3");
    let place = Place::new();
    install(&place, &example("python"), &[]);
    for start in 0..3 {
        let server = place.up();
        let counted = place.call("py_count_words", json!({"text": "one two"}));
        assert_eq!(counted["data"]["details"]["words"], 2, "start {start}: {counted}");
        server.stop();
    }
}

#[toolyard_shows::shows("000-1-01")]
#[test]
fn clawhub_is_known_with_and_without_a_mirror() {
    needs("python3");
    let place = Place::new();
    let unset = place.run(&["plugins", "install", "clawhub:example-python", "--json"]);
    assert_eq!(unset.error_code(), "PRECONDITION_FAILED", "{unset:?}");
    for word in ["ClawHub", "plugins.clawhub", "npm:example-python", "git:URL", "folder"] {
        assert!(unset.stdout.contains(word), "{word}: {unset:?}");
    }
    place.config(&format!("[plugins]\nclawhub = {:?}\n", example("").display().to_string()));
    let added = place.run(&["plugins", "install", "clawhub:python", "--json"]).json();
    assert_eq!((&added["plugin"]["status"], &added["plugin"]["source"]), (&json!("healthy"), &json!("clawhub:python")));
    let missing = place.run(&["plugins", "install", "clawhub:nothing", "--json"]);
    assert_eq!(missing.error_code(), "NOT_FOUND", "{missing:?}");
}

#[toolyard_shows::shows("000-1-01")]
#[test]
fn the_plugin_of_the_specification_is_part_of_toolyard() {
    let place = Place::new();
    place.note("a.md", "A note.\n");
    let offered = place.run(&["plugins", "install", "clawhub:obsidian-rag", "--json"]).json();
    assert_eq!((&offered["builtIn"], &offered["enabled"]), (&json!("obsidian-rag"), &json!(true)), "{offered}");
    assert_eq!(offered["tools"].as_array().unwrap().len(), 4, "{offered}");
    assert_eq!(offered["status"], "unavailable");
    assert!(offered["next"][0].as_str().unwrap().contains("index"), "{offered}");
    assert_eq!(place.run(&["vault", "index", "--json"]).code, 0);
    let shown = place.run(&["plugins", "install", "clawhub:obsidian-rag"]);
    assert!(
        shown.code == 0 && shown.stdout.contains("obsidian_rag_search") && shown.stdout.contains("healthy"),
        "{shown:?}"
    );
    place.config("[knowledge]\nenabled = false\n");
    let off = place.run(&["plugins", "install", "clawhub:obsidian-rag", "--json"]).json();
    assert!(off["next"][0].as_str().unwrap().contains("knowledge.enabled"), "{off}");
}
