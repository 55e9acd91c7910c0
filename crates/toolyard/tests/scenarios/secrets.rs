//! A canary in every place where a secret can be configured, looked for everywhere: what commands and methods print, logs,
//! errors, exports, metrics, and every file of the home but the configuration and the credentials themselves.

use crate::harness::{Place, until};
use serde_json::{Value, json};
use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

/// What every canary contains.
const CANARY: &str = "C4N4RY";
/// A token of this length opens the gateway.
const TOKEN: &str = "C4N4RY-gateway-token-01";
/// Variables of the environment that hold secrets.
const VARIABLES: [(&str, &str); 4] = [
    ("FAR_TOKEN", "C4N4RY-bearer-from-env-02"),
    ("LLM_KEY", "C4N4RY-llm-key-03"),
    ("EMBED_KEY", "C4N4RY-embed-key-04"),
    ("GITHUB_TOKEN", "C4N4RY-passed-on-05"),
];

/// An MCP server that prints its arguments and environment.
const TELLTALE: &str = r#"
import json, os, sys
secrets = " ".join(sys.argv[1:]) + " " + " ".join(os.environ.values())
print("started with " + secrets, file=sys.stderr, flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    method, result = m.get("method"), {}
    if method == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "telltale", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "tell", "description": "Tells " + secrets, "inputSchema": {"type": "object"}}]}
    elif method == "tools/call" and m["params"]["arguments"].get("end"):
        sys.exit(3)
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": secrets}], "isError": bool(m["params"]["arguments"].get("fail"))}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"#;

fn config(place: &Place) -> String {
    let (script, token_file) = (place.vault.join("telltale.py"), place.vault.join("token"));
    std::fs::write(&script, TELLTALE).unwrap();
    std::fs::write(&token_file, "C4N4RY-bearer-from-file-06\n").unwrap();
    let (script, token_file) = (script.display(), token_file.display());
    format!(
        r#"
[gateway]
token = "{TOKEN}"
[gateway.tls]
[bridge]
url = "ws://ada:C4N4RY-bridge-07@127.0.0.1:9/bridge?k=C4N4RY-bridge-08"
[mcp.servers.telltale]
command = "python3"
args = ["{script}", "C4N4RY-positional-09", "--token=C4N4RY-flag-10", "--key", "C4N4RY-value-11"]
env = {{ API_KEY = "C4N4RY-env-12", OTHER = "C4N4RY-other-env-13" }}
envFiles = {{ FILED_KEY = "{token_file}" }}
passEnv = ["GITHUB_TOKEN"]
startTimeoutMs = 20000
[mcp.servers.broken]
command = "/bin/sh"
args = ["-c", "echo told $0 $SECRET >&2; exit 3", "C4N4RY-broken-14"]
env = {{ SECRET = "C4N4RY-broken-env-15" }}
[mcp.servers.far]
url = "http://ada:C4N4RY-password-16@127.0.0.1:9/C4N4RY-path-17/mcp?key=C4N4RY-query-18#C4N4RY-fragment-19"
headers = {{ "X-Api-Key" = "C4N4RY-header-20", Cookie = "id=C4N4RY-cookie-21" }}
bearerTokenEnv = "FAR_TOKEN"
[mcp.servers.filed]
url = "http://127.0.0.1:9/mcp"
bearerTokenFile = "{token_file}"
headerFiles = {{ "X-Filed-Key" = "{token_file}" }}
[mcp.servers.agreed]
url = "http://127.0.0.1:9/mcp"
[mcp.servers.agreed.oauth]
clientId = "toolyard"
clientSecretFile = "{token_file}"
clientSecretEnv = "FAR_TOKEN"
issuer = "http://ada:C4N4RY-issuer-22@127.0.0.1:9/"
clientMetadataUrl = "https://x.org/client.json?k=C4N4RY-metadata-23"
[knowledge.index]
uri = "s3://bucket/prefix?k=C4N4RY-index-24"
[knowledge.index.storageOptions]
aws_secret_access_key = "C4N4RY-storage-25"
endpoint = "http://ada:C4N4RY-endpoint-26@127.0.0.1:9"
[knowledge.embedding]
kind = "openai"
url = "http://ada:C4N4RY-embed-27@127.0.0.1:9/v1?k=C4N4RY-embed-28"
model = "m"
apiKeyEnv = "EMBED_KEY"
[context.llm]
kind = "openai"
url = "http://ada:C4N4RY-llm-29@127.0.0.1:9/v1?k=C4N4RY-llm-30"
model = "m"
apiKeyEnv = "LLM_KEY"
[plugins]
npmRegistry = "https://ada:C4N4RY-registry-33@127.0.0.1:9/C4N4RY-registry-34/"
clawhub = "https://ada:C4N4RY-clawhub-37@127.0.0.1:9/C4N4RY-clawhub-38/"
[plugins.entries.some]
config = {{ apiKey = "C4N4RY-plugin-31", deep = {{ list = ["C4N4RY-plugin-32"] }} }}
[plugins.entries.some.grant]
env = ["GITHUB_TOKEN"]
[record]
heads = ["http://127.0.0.1:9/C4N4RY-heads-39"]
[notify]
privateHosts = ["127.0.0.1"]
[notify.channels.topic]
kind = "ntfy"
url = "http://127.0.0.1:9/C4N4RY-topic-40"
token = "C4N4RY-ntfy-41"
[notify.channels.topicEnv]
kind = "ntfy"
url = "http://127.0.0.1:9/C4N4RY-topic-42"
tokenEnv = "FAR_TOKEN"
[notify.channels.topicFile]
kind = "ntfy"
url = "http://127.0.0.1:9/C4N4RY-topic-43"
tokenFile = "{token_file}"
[notify.channels.hook]
kind = "webhook"
url = "http://127.0.0.1:9/C4N4RY-hook-44"
secret = "C4N4RY-hook-secret-45"
[notify.channels.hookEnv]
kind = "webhook"
url = "http://127.0.0.1:9/C4N4RY-hook-46"
secretEnv = "FAR_TOKEN"
[notify.channels.hookFile]
kind = "webhook"
url = "http://127.0.0.1:9/C4N4RY-hook-47"
secretFile = "{token_file}"
[log]
level = "debug"
"#
    )
}

/// The same with the index in its usual place: trying to reach a bucket takes long.
fn with_index_here(place: &Place) -> String {
    config(place).replace("uri = \"s3://bucket/prefix?k=C4N4RY-index-24\"", "")
}

fn command(place: &Place, args: &[&str]) -> Command {
    let vault = place.vault.display().to_string();
    let mut all = vec!["--vault", &vault];
    all.extend(args);
    let mut command = place.command(&all);
    command.envs(VARIABLES);
    command
}

/// What a command printed, on both streams.
fn printed(place: &Place, args: &[&str]) -> String {
    let output = command(place, args).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn assert_hidden(what: &str, text: &str) {
    if let Some(at) = text.find(CANARY) {
        let from = text[..at].char_indices().rev().nth(200).map_or(0, |(at, _)| at);
        let to = text[at..].char_indices().nth(60).map_or(text.len(), |(end, _)| at + end);
        panic!("{what} shows a secret: …{}…", &text[from..to]);
    }
}

/// Files of the home, but the configuration and what holds credentials.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && name != "mcp-tokens" {
            files(&path, found);
        } else if kind.is_file() && !["config.toml", "token", "device-tokens.json"].contains(&name.as_str()) {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
        }
    }
}

/// The value at a path of the configuration, `*` for any key or place.
fn at<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    let Some((first, rest)) = path.split_first() else { return vec![value] };
    match value {
        Value::Object(map) if *first == "*" => map.values().flat_map(|inner| at(inner, rest)).collect(),
        Value::Array(items) if *first == "*" => items.iter().flat_map(|inner| at(inner, rest)).collect(),
        Value::Object(map) => map.get(*first).into_iter().flat_map(|inner| at(inner, rest)).collect(),
        _ => Vec::new(),
    }
}

/// Settings of a cluster's store. Nothing listens at the address, so no command gets past it.
fn store_settings(place: &Place) -> String {
    let secret = place.vault.join("cluster-secret");
    std::fs::write(&secret, "C4N4RY-is-no-hexadecimal-number\n").unwrap();
    format!(
        "[store]\nurl = \"postgres://ada:C4N4RY-store-70@127.0.0.1:9/toolyard?sslmode=disable\"\nsecretFile = {:?}\n",
        secret.display().to_string()
    )
}

#[test]
fn the_address_and_the_secret_of_a_shared_store_are_hidden() {
    for url_only in [true, false] {
        let place = Place::new();
        let settings = store_settings(&place);
        place.config(if url_only { settings.split("secretFile").next().unwrap() } else { &settings });
        for args in [&["config", "show"][..], &["doctor"], &["status"], &["nodes", "list"], &["runs", "list"]] {
            assert_hidden(&args.join(" "), &printed(&place, args));
        }
    }
}

#[test]
fn a_canary_stands_in_every_secret_setting() {
    let place = Place::new();
    let written: Value = toml::from_str(&(config(&place) + &store_settings(&place))).unwrap();
    for (path, mark) in toolyard::config::texts() {
        let Some(mark) = mark else { continue };
        let found = at(&written, &path.split('.').collect::<Vec<_>>());
        let is_set = |v: &&Value| match mark.as_str() {
            "variable" | "file" => v.is_string(),
            _ => v.to_string().contains(CANARY),
        };
        assert!(
            path == "gateway.tls.keyFile" || found.iter().any(is_set),
            "{path} has no canary; add one to this test"
        );
    }
}

#[test]
fn no_command_prints_a_secret() {
    let place = Place::new();
    place.config(&with_index_here(&place));
    for args in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["config", "check"],
        &["doctor"],
        &["doctor", "--json"],
        &["mcp", "servers", "--json"],
        &["mcp", "start", "telltale", "--json"],
        &["mcp", "start", "broken"],
        &["mcp", "start", "far"],
        &["mcp", "start", "filed", "--json"],
        &["mcp", "start", "agreed"],
        &["mcp", "login", "agreed", "--wait", "1"],
        &["mcp", "approve", "telltale", "--json"],
        &["tools", "list", "--json"],
        &["tools", "describe", "telltale__tell", "--json"],
        &["call", "telltale__tell", "--args", "{}", "--json"],
        &["call", "telltale__tell", "--args", "{\"fail\": true}", "--json"],
        &["call", "telltale__tell", "--args", "{\"end\": true}", "--json"],
        &["call", "obsidian_rag_status", "--args", "{}", "--json"],
        &["plugins", "list", "--json"],
        &["runs", "list", "--json"],
        &["notify", "status", "--json"],
        &["notify", "test", "--json"],
    ] {
        assert_hidden(&args.join(" "), &printed(&place, args));
    }
    let told = printed(&place, &["call", "telltale__tell", "--args", "{}", "--json"]);
    assert!(told.contains("(hidden)"), "the server did tell: {told}");
    let runs: Value = serde_json::from_str(
        &String::from_utf8(command(&place, &["runs", "list", "--json"]).output().unwrap().stdout).unwrap(),
    )
    .unwrap();
    for run in runs["runs"].as_array().unwrap() {
        let folder = place.vault.with_file_name("export");
        let id = run["runId"].as_str().unwrap();
        printed(&place, &["runs", "export", id, "--out", folder.to_str().unwrap()]);
        assert_hidden("runs show", &printed(&place, &["runs", "show", id, "--json"]));
    }
    for broken in [
        "[mcp.servers.x]\nheaders = \"Bearer C4N4RY-33\"\n",
        "[gateway]\ntoken = C4N4RY-34\n",
        "[mcp.servers.x]\nurl = \"ftp://ada:C4N4RY-35@x/\"\n",
    ] {
        let other = Place::new();
        other.config(broken);
        assert_hidden(broken, &printed(&other, &["config", "check"]));
    }
    let mut kept = Vec::new();
    files(&place.home, &mut kept);
    let folder = place.vault.with_file_name("export");
    if folder.exists() {
        files(&folder, &mut kept);
    }
    assert!(kept.len() > 3, "{kept:?}");
    for (path, bytes) in kept {
        assert_hidden(&path, &String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn no_method_log_or_metric_of_a_running_toolyard_shows_a_secret() {
    let place = Place::new();
    place.config(&with_index_here(&place));
    let log = place.vault.with_file_name("log");
    let mut up = command(&place, &["up", "--port", "0", "--json"]);
    up.stderr(Stdio::from(File::create(&log).unwrap()));
    let mut child = up.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_hidden("up", &line);
    let url = ready["url"].as_str().unwrap();
    let ask = |method: &str, params: Value| {
        let params = params.to_string();
        printed(&place, &["gateway", "call", method, "--params", &params, "--url", url, "--token", TOKEN])
    };
    printed(&place, &["mcp", "start", "telltale"]);
    for server in ["broken", "far", "filed", "agreed"] {
        assert_hidden(server, &printed(&place, &["mcp", "start", server, "--json"]));
    }
    until("the server's tool is in the catalog", || ask("tools.catalog", json!({})).contains("telltale__tell"));
    for (method, params) in [
        ("health", json!({})),
        ("status", json!({})),
        ("config.get", json!({})),
        ("system-presence", json!({})),
        ("tools.catalog", json!({})),
        ("tools.effective", json!({"sessionKey": "main"})),
        ("tools.invoke", json!({"name": "telltale__tell", "args": {}})),
        ("tools.invoke", json!({"name": "telltale__tell", "args": {"fail": true}})),
        ("sessions.list", json!({})),
        ("approval.history", json!({})),
        ("plugin.approval.list", json!({})),
        ("exec.approval.list", json!({})),
        ("device.pair.list", json!({})),
        ("node.list", json!({})),
        ("bridge.status", json!({})),
        ("runs.list", json!({})),
        ("runs.verify", json!({})),
        ("openviking.feature.gates", json!({})),
        ("logs.tail", json!({"limit": 1000})),
    ] {
        assert_hidden(method, &ask(method, params));
    }
    let address = url.strip_prefix("http://").unwrap();
    for path in ["/metrics", "/ready", "/health"] {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_hidden(path, &text);
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
    assert_hidden("the log", &std::fs::read_to_string(&log).unwrap());
    let mut kept = Vec::new();
    files(&place.home, &mut kept);
    for (path, bytes) in kept {
        assert_hidden(&path, &String::from_utf8_lossy(&bytes));
    }
}
