//! The causes of a failure: a person sees them in `debugMessage` and in the record, a model does not. Also the delay
//! that an upstream server over HTTP asks for.

use crate::harness::{Place, Ran};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const TOKEN: &str = "test-token-of-16-chars";

/// An address at which nobody listens.
fn nobody() -> String {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", taken.local_addr().unwrap())
}

/// The `debugMessage` of a person's call, which the record has as well.
fn debug_of(place: &Place, result: &Value) -> String {
    let debug = result["debugMessage"].as_str().unwrap_or_else(|| panic!("no debugMessage: {result:#}")).to_owned();
    let run = result["runId"].as_str().unwrap();
    let shown = place.run(&["runs", "show", run, "--json"]).json();
    assert_eq!(shown["results"][0]["debugMessage"], debug.as_str(), "the record keeps it: {shown:#}");
    debug
}

/// A call by the Gateway, as a model's client makes it.
fn by_gateway(place: &Place, tool: &str, args: Value) -> Ran {
    let params = json!({"name": tool, "sessionKey": "main", "args": args}).to_string();
    place.run_bare(&["gateway", "call", "tools.invoke", "--params", &params, "--token", TOKEN, "--json"])
}

/// A server over standard input and output with one tool; with `MODE=bad` it says why it cannot start, and ends.
const MOODY: &str = r#"
import json, os, sys
if os.environ["MODE"] == "bad":
    for n in range(1, 7):
        print("reason", n, file=sys.stderr)
    sys.exit(7)
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        print("the disk of the server is full", file=sys.stderr, flush=True)
        result = {"content": [{"type": "text", "text": "it did not work"}], "isError": True}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

#[toolyard_shows::shows("002-3.2-25")]
#[test]
fn what_a_server_wrote_to_its_standard_error_is_in_the_debug_message() {
    let place = Place::new();
    let with_mode = |mode: &str| {
        place.config(&format!(
            "[policy.approval]\nmode = \"yolo\"\n\n[mcp.servers.moody]\ncommand = \"/usr/bin/python3\"\n\
             args = [\"-c\", '''{MOODY}''']\nenv = {{ MODE = \"{mode}\" }}\n"
        ));
        place.up()
    };
    let server = with_mode("good");
    let started = place.run(&["mcp", "start", "moody", "--json"]);
    assert_eq!(started.code, 0, "{started:?}");
    // What it wrote during the first call has been read when the second one fails.
    place.call("moody__work", json!({}));
    let failed = place.call("moody__work", json!({}));
    assert_eq!(failed["error"]["message"], "it did not work", "{failed:#}");
    assert!(debug_of(&place, &failed).contains("the disk of the server is full"), "{failed:#}");
    let answer = by_gateway(&place, "moody__work", json!({}));
    assert!(answer.stdout.contains("it did not work") && !answer.stdout.contains("disk"), "{answer:?}");
    server.stop();
    // Its tools are cached, and it does not start any more: the message has its last lines, the record has all of them.
    let server = with_mode("bad");
    let failed = place.call("moody__work", json!({}));
    assert_eq!(failed["error"]["code"], "UNAVAILABLE", "{failed:#}");
    assert!(!failed["error"].to_string().contains("reason 1"), "{failed:#}");
    assert!(debug_of(&place, &failed).contains("reason 1\nreason 2\n"), "{failed:#}");
    let again = place.call("moody__work", json!({}));
    assert!(debug_of(&place, &again).contains("reason 1\n"), "also while it is not started again: {again:#}");
    server.stop();
}

#[toolyard_shows::shows("002-3.2-25")]
#[test]
fn the_causes_of_a_failed_request_are_in_the_debug_message() {
    let place = Place::new();
    place.note("a.md", "The blue bicycle.\n");
    place.config(&format!(
        "[knowledge.embedding]\nkind = \"ollama\"\nurl = \"{}\"\n\n[context]\nenableAddResourceTool = true\n\
         allowPrivateHosts = [\"127.0.0.1\"]\n",
        nobody()
    ));
    let server = place.up();
    let refused = "Connection refused";
    // A failure in the envelope of the notes' tools is an answer, and has a cause too.
    assert_eq!(place.run(&["vault", "index", "--json"]).code, 0);
    let found = place.call("obsidian_rag_search", json!({"query": "bicycle"}));
    assert_eq!(found["data"]["error"]["code"], "OLLAMA_UNREACHABLE", "{found:#}");
    assert!(!found["data"].to_string().contains(refused), "{found:#}");
    assert!(debug_of(&place, &found).contains(refused), "{found:#}");
    // A call that fails.
    let source = format!("{}/page.html", nobody());
    let added = place.call("add_resource", json!({"source": source, "wait": true}));
    assert_eq!(added["status"], "error", "{added:#}");
    assert!(!added["error"].to_string().contains(refused), "{added:#}");
    let debug = debug_of(&place, &added);
    assert!(debug.contains(refused) && debug.contains("caused by: "), "{debug}");
    // A model's client receives the error without its causes.
    for (tool, args) in [
        ("obsidian_rag_search", json!({"query": "bicycle"})),
        ("add_resource", json!({"source": source, "wait": true})),
    ] {
        let answer = by_gateway(&place, tool, args);
        assert!(!answer.stdout.contains(refused) && !answer.stdout.contains("debugMessage"), "{tool}: {answer:?}");
    }
    server.stop();
}

/// An MCP server over HTTP. Its tool `work` refuses the first calls with a status, headers and a body.
struct Busy {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl Busy {
    fn start(refusals: usize, status: &'static str, body: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                std::thread::spawn(move || {
                    while let Some((method, request)) = read_request(&connection) {
                        let (head, body) = match request["method"].as_str() {
                            _ if method == "GET" => ("405 Method Not Allowed", String::new()),
                            Some("tools/call") if counted.fetch_add(1, Ordering::SeqCst) < refusals => {
                                (status, body.replace("ID", &request["id"].to_string()))
                            }
                            Some(asked) => match answer(asked, &request["id"]) {
                                Some(answer) => ("200 OK\r\ncontent-type: application/json", answer.to_string()),
                                None => ("202 Accepted", String::new()),
                            },
                            None => ("202 Accepted", String::new()),
                        };
                        let text = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        (&connection).write_all(text.as_bytes()).unwrap();
                    }
                });
            }
        });
        Self { url, calls }
    }
}

fn answer(method: &str, id: &Value) -> Option<Value> {
    let result = match method {
        "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "busy", "version": "1"}}),
        "tools/list" => json!({"tools": [{"name": "work", "description": "Works.",
            "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}),
        _ => return None,
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn read_request(connection: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(connection);
    let (mut method, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if method.is_empty() {
            method = line.split(' ').next()?.to_owned();
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((method, serde_json::from_slice(&body).unwrap_or_default()))
}

#[toolyard_shows::shows("002-5-10")]
#[test]
fn a_retry_waits_as_long_as_an_http_server_asks() {
    let error = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"not now"}}"#;
    for (status, body) in [
        ("429 Too Many Requests\r\nretry-after: 2", ""),
        ("503 Service Unavailable\r\nretry-after: 2\r\ncontent-type: application/json", error),
    ] {
        let busy = Busy::start(1, status, body);
        let place = Place::new();
        place.config(&format!("[mcp.servers.busy]\nurl = \"{}\"\ntrust = \"annotations\"\n", busy.url));
        let server = place.up();
        assert_eq!(place.run(&["mcp", "start", "busy", "--json"]).code, 0);
        let plan = json!({"version": "1.0", "goal": "work", "riskLevel": "writes", "steps": [
            {"id": "w", "tool": "busy__work", "args": {}, "onError": "retry",
             "retry": {"maxAttempts": 2, "backoffMs": 1}}]});
        let ran = place.run(&["plan", "run", &place.plan(&plan), "--yes", "--json"]).json();
        assert_eq!((&ran["status"], busy.calls.load(Ordering::SeqCst)), (&json!("finished"), 2), "{status}: {ran:#}");
        let shown = place.run(&["runs", "show", ran["runId"].as_str().unwrap(), "--json"]).json();
        let (first, second) = (&shown["results"][0], &shown["results"][1]);
        assert_eq!(first["error"]["details"]["retryAfterMs"], 2_000, "{status}: {first:#}");
        let at = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let waited = at(&second["startedAt"]).duration_since(at(&first["endedAt"]));
        assert!(waited.as_millis() >= 2_000, "{status}: {waited:?}");
        server.stop();
    }
}
