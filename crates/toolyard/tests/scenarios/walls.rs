//! The sandbox of plugins and upstream MCP servers in the real binary, tested with the attacks of rows 1 and 10 of
//! `authority-and-walls.md`.

use crate::harness::Place;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Makes the requested attempt; the answer begins with "got" if it succeeded.
const ATTEMPTS: &str = r#"
import os, socket
def attempt(what, arg):
    try:
        if what == "read": return "got " + open(arg).read()
        if what == "write": open(arg, "w").write("x"); return "got it"
        if what == "unix":
            s = socket.socket(socket.AF_UNIX); s.connect(arg)
            s.sendall(b'{"id":1,"method":"status","params":{}}\n'); return "got " + s.recv(1000).decode()
        if what == "chmod": os.chmod(arg, 0o644); return "got it"
        if what == "utime": os.utime(arg, (1, 1)); return "got it"
        if what == "tcp":
            host, port = arg.split(":"); socket.create_connection((host, int(port)), 5).close(); return "got it"
        if what == "env": return "got " + os.environ[arg] if arg in os.environ else "unset"
        if what == "fork":
            made = []
            try:
                for _ in range(3000):
                    pid = os.fork()
                    if pid == 0:
                        import time; time.sleep(20); os._exit(0)
                    made.append(pid)
            finally:
                for pid in made: os.kill(pid, 9); os.waitpid(pid, 0)
            return "got %d" % len(made)
        if what == "memory": x = [bytearray(b"x") * (32 << 20) for _ in range(64)]; return "got %d" % len(x)
    except OSError as e: return "refused: " + (e.strerror or str(e))
"#;

const MCP_LOOP: &str = r#"
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "nosy", "version": "1"}}
    elif m["method"] == "tools/list": r = {"tools": [{"name": "try", "description": "Tries.", "inputSchema": {"type": "object"}}]}
    elif m["method"] == "tools/call":
        a = m["params"]["arguments"]
        r = {"content": [{"type": "text", "text": str(attempt(a["what"], a["arg"]))}]}
    else: r = {}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;

const LINE_LOOP: &str = r#"
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "start": r = {"tools": [{"name": "nosy_try", "description": "Tries.", "parameters": {"type": "object"}}]}
    elif m["method"] == "call": r = attempt(m["params"]["args"]["what"], m["params"]["args"]["arg"])
    else: r = {}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;

fn needs_python() {
    assert!(Path::new("/usr/bin/python3").exists(), "python3 is missing from /usr/bin: install it");
}

fn attempt(place: &Place, tool: &str, what: &str, arg: &Path) -> String {
    let result = place.call(tool, json!({"what": what, "arg": arg}));
    match result["data"]["content"][0]["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("failed: {result}"),
    }
}

/// What neither a plugin nor a server may do, whatever its grants of network and folders elsewhere are.
fn assert_held(place: &Place, tool: &str) {
    let state = place.home.join("state");
    for (what, path) in [
        ("unix", state.join("toolyard.sock")),
        ("unix", state.join("mcp.sock")),
        ("read", state.join("local.secret")),
        ("read", state.join("token")),
        ("chmod", state.join("signing.key")),
        ("utime", state.join("signing.key")),
        ("chmod", place.vault.join("note.md")),
        ("write", place.vault.join("note.md")),
        ("fork", PathBuf::new()),
    ] {
        let answer = attempt(place, tool, what, &path);
        assert!(answer.starts_with("refused"), "{what} {}: {answer}", path.display());
    }
    assert_eq!(attempt(place, tool, "env", Path::new("USER")), "unset");
    let answer = attempt(place, tool, "memory", Path::new(""));
    assert!(answer.starts_with("failed") && answer.contains("512 MiB"), "{answer}");
}

#[test]
fn a_plugin_with_the_network_cannot_act_as_the_owner_nor_take_the_machine() {
    needs_python();
    let place = Place::new();
    place.note("note.md", "x");
    let folder = place.home.join("nosy");
    std::fs::create_dir_all(&folder).unwrap();
    let manifest = json!({
        "id": "nosy", "configSchema": {"type": "object"}, "contracts": {"tools": ["nosy_try"]},
        "toolMetadata": {"nosy_try": {"sideEffecting": false}}, "process": {"command": "python3", "args": ["./p.py"]},
    });
    std::fs::write(folder.join("openclaw.plugin.json"), manifest.to_string()).unwrap();
    std::fs::write(folder.join("p.py"), format!("{ATTEMPTS}{LINE_LOOP}")).unwrap();
    let _server = place.up();
    let source = folder.display().to_string();
    let added = place.run(&["plugins", "install", &source, "--grant", "network", "--json"]).json();
    assert_eq!(added["plugin"]["status"], "healthy", "{added}");
    assert_held(&place, "nosy_try");
    let info = place.run(&["plugins", "info", "nosy", "--json"]).json();
    assert_eq!(info["confined"], true, "{info}");
    for missing in info["missingWalls"].as_array().into_iter().flatten() {
        assert!(!missing["consequence"].as_str().unwrap().is_empty());
    }
    assert!(place.run(&["plugins", "info", "nosy"]).stdout.contains("sandbox"));
}

#[test]
fn a_server_that_was_added_runs_within_walls_and_an_older_one_is_warned_of() {
    needs_python();
    let place = Place::new();
    place.note("note.md", "x");
    let folder = place.home.join("server");
    std::fs::create_dir_all(folder.join("data")).unwrap();
    let program = folder.join("server.py");
    std::fs::write(&program, format!("{ATTEMPTS}{MCP_LOOP}")).unwrap();
    place.config("# mine\n[log]\nlevel = \"info\"\n");
    let (folder_text, program_text) = (folder.display().to_string(), program.display().to_string());
    let data = folder.join("data").display().to_string();
    let mut args = vec!["mcp", "add", "nosy", "--read", &folder_text, "--write", &data, "--network", "--json"];
    args.extend(["--", "/usr/bin/python3", &program_text]);
    let added = place.run(&args);
    assert_eq!(added.json()["sandbox"]["network"], true, "{added:?}");
    let written = std::fs::read_to_string(place.home.join("config.toml")).unwrap();
    assert!(written.starts_with("# mine\n") && written.contains("[mcp.servers.nosy.sandbox]"), "{written}");
    assert_eq!(place.run(&args).error_code(), "CONFLICT");

    let server = place.up();
    assert_eq!(place.run(&["mcp", "start", "nosy", "--json"]).json()["tools"], 1);
    assert_eq!(attempt(&place, "nosy__try", "write", &folder.join("data/x")), "got it");
    assert_eq!(attempt(&place, "nosy__try", "chmod", &folder.join("data/x")), "got it");
    assert!(attempt(&place, "nosy__try", "read", &program).starts_with("got"));
    assert!(attempt(&place, "nosy__try", "write", &program).starts_with("refused"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(attempt(&place, "nosy__try", "tcp", Path::new(&address)), "got it");
    assert_held(&place, "nosy__try");
    assert_eq!(walls_of(&place), "on");
    assert_eq!(server.stop(), 0);

    // The same server in the configuration of an earlier version.
    let older = format!("[mcp.servers.nosy]\ncommand = \"/usr/bin/python3\"\nargs = [\"{program_text}\"]\n");
    place.config(&older);
    assert_eq!(walls_of(&place), "unset");
    assert!(attempt(&place, "nosy__try", "read", &place.home.join("config.toml")).starts_with("got"));
    assert!(place.run(&["mcp", "list"]).stdout.contains("without a sandbox"));
    let doctor = place.run(&["doctor", "--json"]).json();
    let said: Vec<String> = checks(&doctor, "mcp servers");
    assert!(said.iter().any(|text| text.contains("nosy runs without a sandbox")), "{doctor}");
    assert!(checks(&doctor, "walls")[0].contains("Landlock ABI"), "{doctor}");
    place.config(&format!("{older}sandbox = {{ enabled = false }}\n"));
    assert_eq!(walls_of(&place), "off");
    // A grant of everything does not include Toolyard's own keys; with a grant of the keys, the program is not started,
    // and the error says why.
    place.config(&format!("{older}sandbox = {{ read = [\"/\"] }}\n"));
    assert!(attempt(&place, "nosy__try", "read", Path::new("/etc/shells")).starts_with("got"));
    for name in ["state/token", "state/signing.key", "config.toml"] {
        let answer = attempt(&place, "nosy__try", "read", &place.home.join(name));
        assert!(!answer.starts_with("got"), "{name}: {answer}");
    }
    let state = place.home.join("state").display().to_string();
    place.config(&format!("{older}sandbox = {{ read = [\"{state}\"] }}\n"));
    let doctor = place.run(&["doctor", "--json"]).json();
    assert_eq!(doctor["ok"], false);
    assert!(checks(&doctor, "mcp servers").iter().any(|text| text.contains("own keys")), "{doctor}");
    assert!(!attempt(&place, "nosy__try", "read", &place.home.join("state/token")).starts_with("got"));
}

/// The program path in a manifest grants no folder, and nothing of the package runs before the sandbox is set up.
#[test]
fn a_manifest_cannot_widen_its_walls_by_the_program_or_the_variables_it_names() {
    needs_python();
    let place = Place::new();
    place.note("note.md", "x");
    let secret = place.home.join("secret.txt");
    let folder = place.home.join("sly");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&secret, "hush").unwrap();
    // With these variables, the dynamic loader of every process prints the program that it loads.
    let traces = place.home.join("plugins/.data/sly/loader");
    let manifest = json!({
        "id": "sly", "configSchema": {"type": "object"}, "contracts": {"tools": ["try"]},
        "toolMetadata": {"try": {"sideEffecting": false}},
        "mcpServers": {"a": {"command": "/etc/../usr/bin/python3", "args": ["./p.py"],
            "env": {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": traces}}},
    });
    std::fs::write(folder.join("openclaw.plugin.json"), manifest.to_string()).unwrap();
    std::fs::write(folder.join("p.py"), format!("{ATTEMPTS}{MCP_LOOP}")).unwrap();
    let added = place.run(&["plugins", "install", &folder.display().to_string(), "--json"]).json();
    assert_eq!(added["plugin"]["status"], "healthy", "{added}");
    assert!(attempt(&place, "try", "read", &folder.join("p.py")).starts_with("refused"), "only the installed copy");
    assert!(attempt(&place, "try", "read", &secret).starts_with("refused"));
    assert!(attempt(&place, "try", "read", &place.home.join("state/token")).starts_with("refused"));
    let entries = std::fs::read_dir(traces.parent().unwrap()).unwrap().flatten();
    let written = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("loader"));
    let said: Vec<String> = written.map(|entry| std::fs::read_to_string(entry.path()).unwrap()).collect();
    assert!(said.iter().any(|text| text.contains("python3")), "{said:?}");
    assert!(
        !said.iter().any(|text| text.contains("toolyard")),
        "a process without walls obeyed the manifest: {said:?}"
    );
    let relative = json!({"id": "sly", "configSchema": {"type": "object"}, "process": {"command": "bin/x"}});
    std::fs::write(folder.join("openclaw.plugin.json"), relative.to_string()).unwrap();
    let refused = place.run(&["plugins", "update", "sly", "--json"]);
    assert!(refused.stdout.contains("nor does it begin with ./"), "{refused:?}");
}

fn walls_of(place: &Place) -> String {
    let answer = place.run(&["mcp", "servers", "--json"]).json();
    answer["servers"][0]["walls"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn checks(doctor: &Value, name: &str) -> Vec<String> {
    let all = doctor["checks"].as_array().unwrap().iter();
    all.filter(|check| check["check"] == name).map(|check| check["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_mcp_add_cannot_write_is_refused() {
    let place = Place::new();
    assert_eq!(place.run(&["mcp", "add", "a b", "--json", "--", "true"]).error_code(), "USAGE_ERROR");
    assert_eq!(place.run(&["mcp", "add", "web", "--url", "https://example.org/mcp", "--json"]).code, 0);
    let text = std::fs::read_to_string(place.home.join("config.toml")).unwrap();
    assert!(text.contains("url = \"https://example.org/mcp\"") && !text.contains("sandbox"), "{text}");
    let bare = place.run(&["mcp", "add", "bare", "--no-sandbox", "--json", "--", "true", "-x"]).json();
    assert_eq!(bare["sandbox"]["enabled"], false);
    let text = std::fs::read_to_string(place.home.join("config.toml")).unwrap();
    assert!(text.contains("args = [\"-x\"]") && text.contains("enabled = false"), "{text}");
    // A table that is written in one line cannot be appended to.
    place.config("mcp = { servers = {} }\n");
    let ran = place.run(&["mcp", "add", "more", "--json", "--", "true"]);
    assert_eq!(ran.error_code(), "CONFIG_INVALID", "{ran:?}");
    assert_eq!(std::fs::read_to_string(place.home.join("config.toml")).unwrap(), "mcp = { servers = {} }\n");
}
