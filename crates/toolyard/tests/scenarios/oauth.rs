//! The binary logs in to an upstream server: `toolyard mcp login`, with the test as the person's browser, and a server
//! with its own authorisation server on loopback.

use crate::harness::Place;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const TOKEN: &str = "a-token-nobody-may-see";

/// A server that requires tokens and issues them at the same address. It can be set to refuse all tokens.
struct Far {
    url: String,
    closed: Arc<AtomicBool>,
}

impl Far {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let closed = Arc::new(AtomicBool::new(false));
        let (base, refuses) = (url.clone(), closed.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (base, refuses) = (base.clone(), refuses.clone());
                std::thread::spawn(move || answer(stream, &base, refuses.load(Ordering::SeqCst)));
            }
        });
        Self { url, closed }
    }
}

/// The head and body of one request.
fn read(stream: &TcpStream) -> Option<(String, Vec<String>, String)> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length = lines.iter().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((lines.remove(0), lines, String::from_utf8(body).ok()?))
}

fn answer(mut stream: TcpStream, base: &str, refuses: bool) {
    let Some((first, headers, body)) = read(&stream) else { return };
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, extra, says) = match path.split('?').next().unwrap_or_default() {
        "/.well-known/oauth-protected-resource/mcp" => {
            (200, String::new(), json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]}))
        }
        "/.well-known/oauth-authorization-server" => (
            200,
            String::new(),
            json!({
                "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
                "registration_endpoint": format!("{base}/register"), "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }),
        ),
        "/register" => (201, String::new(), json!({"client_id": "us"})),
        "/token" => (200, String::new(), json!({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})),
        "/mcp" if first.starts_with("GET") => (405, String::new(), json!({})),
        "/mcp" => {
            let authorised = headers.iter().any(|h| h.eq_ignore_ascii_case(&format!("authorization: Bearer {TOKEN}")));
            if authorised && !refuses {
                mcp(&body)
            } else {
                (401, "WWW-Authenticate: Bearer\r\n".to_owned(), json!({}))
            }
        }
        _ => (404, String::new(), json!({})),
    };
    let says = says.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n{extra}Content-Length: {}\r\n\r\n{says}",
        says.len()
    );
}

fn mcp(body: &str) -> (u16, String, Value) {
    let message: Value = serde_json::from_str(body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}})
        }
        "tools/list" => {
            json!({"tools": [{"name": "greet", "description": "Greets.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}]})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": "hello from afar"}]}),
        _ => return (202, String::new(), json!({})),
    };
    (200, String::new(), json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

/// Calls an address; gives the whole answer.
fn get(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn parameter<'a>(url: &'a str, name: &str) -> &'a str {
    let found = url.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {url}"))
}

/// Runs `toolyard mcp login`; `query` builds the redirect's query from the state.
fn log_in(place: &Place, query: impl Fn(&str) -> String) -> (i32, String) {
    let mut child = place.command(&["mcp", "login", "far", "--json", "--wait", "20"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = lines.next().unwrap().unwrap();
    let first: Value = serde_json::from_str(&said).unwrap();
    if let Some(url) = first["url"].as_str() {
        let back = parameter(url, "redirect_uri").replace("%3A", ":").replace("%2F", "/");
        assert!(back.starts_with("http://127.0.0.1:") && back.ends_with("/callback"), "{back}");
        assert!(get(&format!("{back}?code=c&state=guessed")).contains("404"), "a guess is turned away");
        assert!(get(&back.replace("/callback", "/other")).contains("404"));
        let state = parameter(url, "state");
        assert!(get(&format!("{back}?{}", query(state))).contains("200 OK"));
        said = lines.next().unwrap().unwrap();
    }
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(!errors.contains(TOKEN) && !said.contains(TOKEN), "{errors} {said}");
    (child.wait().unwrap().code().unwrap_or(-1), said)
}

#[test]
fn a_person_logs_in_and_the_server_can_be_used_until_they_log_out() {
    let (place, far) = (Place::new(), Far::start());
    place.config(&format!(
        "[policy]\nallow = [\"group:mcp\"]\n[policy.approval]\nmode = \"yolo\"\n[mcp.servers.far]\nurl = \"{}/mcp\"\n",
        far.url
    ));
    let begun = Instant::now();
    let listed = place.run(&["mcp", "servers", "--json"]).json();
    assert_eq!(listed["servers"][0]["status"], "unavailable");
    assert_eq!(listed["servers"][0]["error"], "authorisation needed: run `toolyard mcp login far`");
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits for a login: {:?}", begun.elapsed());

    let (code, said) = log_in(&place, |state| format!("error=access_denied&state={state}"));
    assert!(code == 1 && said.contains("access_denied"), "{said}");
    let (code, said) = log_in(&place, |state| format!("code=c&state={state}&iss=https%3A%2F%2Fevil.example"));
    assert!(code == 1 && said.contains("does not come from"), "{said}");
    let (code, said) = log_in(&place, |state| format!("code=c&state={state}"));
    assert_eq!(code, 0, "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["tools"], 1);

    let kept = place.home.join("state/mcp-tokens/far.json");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let called = place.call("far__greet", json!({}));
    assert_eq!(called["data"]["content"][0]["text"], "hello from afar", "{called}");
    for shown in [&["config", "show"][..], &["mcp", "servers", "--json"], &["runs", "list", "--json"], &["doctor"]] {
        let ran = place.run(shown);
        assert!(!ran.stdout.contains(TOKEN) && !ran.stderr.contains(TOKEN), "{shown:?}");
    }
    assert_eq!(place.run(&["mcp", "login", "far", "--json"]).json()["authorised"], true, "no second login is needed");

    assert_eq!(place.run(&["mcp", "logout", "far", "--json"]).json()["loggedOut"], true);
    assert!(!kept.exists());
    let called = place.call("far__greet", json!({}));
    assert!(called["error"]["message"].as_str().unwrap().contains("toolyard mcp login far"), "{called}");
    assert_eq!(place.run(&["mcp", "login", "nobody", "--json"]).error_code(), "NOT_FOUND");
}

#[test]
fn a_running_toolyard_takes_a_login_up_and_is_not_held_up_without() {
    let (place, far) = (Place::new(), Far::start());
    place.config(&format!(
        "[policy]\nallow = [\"group:mcp\", \"vault.readFile\"]\n[policy.approval]\nmode = \"yolo\"\n[mcp.servers.far]\nurl = \"{}/mcp\"\n",
        far.url
    ));
    let server = place.up();
    place.note("a.md", "# Alpha\n");
    assert_eq!(place.call("vault.readFile", json!({"path": "a.md"}))["ok"], true);
    let (code, said) = log_in(&place, |state| format!("code=c&state={state}"));
    assert_eq!(code, 0, "{said}");
    let called = place.call("far__greet", json!({}));
    assert_eq!(called["ok"], true, "{called}");
    far.closed.store(true, Ordering::SeqCst);
    let refused = place.call("far__greet", json!({}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("toolyard mcp login far"), "{refused}");
    assert_eq!(server.stop(), 0);
}
