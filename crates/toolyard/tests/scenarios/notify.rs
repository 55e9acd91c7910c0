//! Notifications, changes of the configuration and what Tool Search saved, through the real program.

use crate::harness::{PATIENCE, Place, Server};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Child,
    sync::mpsc,
    time::Duration,
};

const TOKEN: &str = "test-token-of-16-chars";

/// A webhook on loopback: its address, and the bodies it gets.
fn webhook() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut lines = BufReader::new(stream.unwrap());
            let (mut length, mut line) = (0, String::new());
            while lines.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            lines.read_exact(&mut body).unwrap();
            lines.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (address, bodies)
}

/// A place whose questions go to a webhook, with a link to deny.
fn place_with(address: &str) -> Place {
    let place = Place::new();
    place.config(&format!(
        "# mine\n[notify]\nprivateHosts = [\"127.0.0.1\"]\n\n[notify.channels.team]\nkind = \"webhook\" # for now\nurl = \"{address}\"\ndenyLink = true\n"
    ));
    place
}

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent's call that needs an answer, in a process of its own.
fn ask(place: &Place, server: &Server, path: &str) -> Agent {
    let args = json!({"path": path, "content": "x"});
    let params = json!({"name": "vault.createFile", "args": args, "confirm": true}).to_string();
    let url = server.ready["url"].as_str().unwrap();
    let words = ["gateway", "call", "tools.invoke", "--params", &params, "--url", url, "--token", TOKEN, "--json"];
    Agent(place.command(&words).spawn().unwrap())
}

fn http(verb: &str, url: &str) -> (u16, String) {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{verb} /{path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

#[test]
fn a_question_reaches_a_webhook_and_its_link_denies_once_after_a_confirmation() {
    let (address, bodies) = webhook();
    let place = place_with(&address);
    let server = place.up();
    let mut agent = ask(&place, &server, "in/secret-plan.md");
    let message = bodies.recv_timeout(PATIENCE).unwrap();
    assert_eq!((&message["event"], &message["severity"]), (&json!("question"), &json!("ask")), "{message}");
    assert!(!message.to_string().contains("secret-plan"), "no details unless they are configured: {message}");
    let listed = place.run_bare(&["approvals", "list", "--json"]).json();
    let id = listed["approvals"][0]["id"].as_str().unwrap();
    assert!(message["url"].as_str().unwrap().ends_with(&format!("/approve/{id}")), "{message}");
    let link = message["denyUrl"].as_str().unwrap();
    for verb in ["GET", "HEAD", "GET"] {
        let (status, page) = http(verb, link);
        assert_eq!(status, 200, "{page}");
        assert!(!page.contains("secret-plan") && !page.contains("vault.createFile"), "{page}");
        assert!(page.contains("frame-ancestors 'none'"), "{page}");
    }
    let open = place.run_bare(&["approvals", "list", "--json"]).json();
    assert_eq!(open["approvals"].as_array().unwrap().len(), 1, "looking at the link denies nothing");
    let (status, page) = http("POST", link);
    assert_eq!(status, 200, "{page}");
    assert_eq!(http("POST", link).0, 404, "a link works once");
    let mut text = String::new();
    agent.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(text.contains("denied") || text.contains("Denied"), "{text}");
    assert!(!place.exists("in/secret-plan.md"));
    let shown = place.run_bare(&["approvals", "show", id, "--json"]).json();
    let answer = &shown["approval"]["answer"];
    assert_eq!((&answer["by"], &answer["decision"]), (&json!("deny-link:team"), &json!("deny")), "{shown}");
}

#[test]
fn a_channel_is_tried_and_its_failure_is_in_the_status_and_in_doctor() {
    let (address, bodies) = webhook();
    let place = place_with(&address);
    let _server = place.up();
    let tested = place.run_bare(&["notify", "test", "team", "--json"]);
    assert_eq!((tested.code, &tested.json()["results"][0]["ok"]), (0, &json!(true)), "{tested:?}");
    assert_eq!(bodies.recv_timeout(PATIENCE).unwrap()["event"], "test");
    let unknown = place.run_bare(&["notify", "test", "nobody", "--json"]);
    assert_eq!(unknown.error_code(), "NOT_FOUND", "{unknown:?}");
    // An address at which nobody listens.
    let dead =
        place.run_bare(&["config", "set", "notify.channels.team.url", "http://127.0.0.1:1/SECRETTOPIC", "--json"]);
    assert_eq!(dead.json()["applied"], json!(["notify.channels.team.url"]), "{dead:?}");
    let tested = place.run_bare(&["notify", "test", "team", "--json"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    let status = place.run_bare(&["notify", "status", "--json"]);
    let team = status.json()["channels"].as_array().unwrap().iter().find(|c| c["name"] == "team").unwrap().clone();
    assert_eq!((&team["sent"], &team["failed"]), (&json!(1), &json!(1)), "{team}");
    assert!(team["lastError"]["message"].as_str().unwrap().contains("could not be reached"), "{team}");
    let doctor = place.run_bare(&["doctor", "--json"]);
    let checks = doctor.json()["checks"].clone();
    let found = checks.as_array().unwrap().iter().find(|check| check["check"] == "notify").unwrap();
    assert_eq!(found["ok"], false, "{checks}");
    let shown = place.run_bare(&["config", "show", "--json"]);
    for ran in [&tested, &status, &doctor, &shown] {
        assert!(!format!("{ran:?}").contains("SECRETTOPIC"), "{ran:?}");
    }
}

#[test]
fn a_key_is_set_with_its_comments_kept_and_the_policy_holds_at_once() {
    let place = Place::new();
    place.config("# mine\n[policy] # rules\ndeny = []\n");
    let _server = place.up();
    let decided = |place: &Place| {
        place.run_bare(&["tools", "policy", "vault.createFile", "--json"]).json()["decision"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(decided(&place), "ask");
    let set = place.run_bare(&["config", "set", "policy.deny", "[\"vault.createFile\"]", "--json"]);
    assert_eq!(set.json()["applied"], json!(["policy.deny"]), "{set:?}");
    assert_eq!(decided(&place), "deny");
    let text = std::fs::read_to_string(place.home.join("config.toml")).unwrap();
    assert_eq!(text, "# mine\n[policy] # rules\ndeny = [\"vault.createFile\"]\n");
    let later = place.run_bare(&["config", "set", "gateway.port", "4711", "--json"]).json();
    assert_eq!((&later["applied"], &later["needsRestart"]), (&json!([]), &json!(["gateway.port"])), "{later}");
    let wrong = place.run_bare(&["config", "set", "gateway.prot", "1", "--json"]);
    assert_eq!(wrong.error_code(), "CONFIG_INVALID", "{wrong:?}");
    let unset = place.run_bare(&["config", "unset", "policy.deny", "--json"]);
    assert_eq!(unset.json()["changed"], json!(["policy.deny"]), "{unset:?}");
    assert_eq!(decided(&place), "ask");
    let file = place.home.join("patch.toml");
    std::fs::write(&file, "[policy]\ndeny = [\"vault.createFile\"]\n").unwrap();
    let patched = place.run_bare(&["config", "patch", file.to_str().unwrap(), "--json"]);
    assert_eq!(patched.json()["changed"], json!(["policy.deny"]), "{patched:?}");
    assert_eq!(decided(&place), "deny");
}

#[test]
fn a_change_for_another_text_of_the_file_is_refused() {
    let place = Place::new();
    let mut connection = None;
    let _server = place.up();
    let call = |connection: &mut Option<std::os::unix::net::UnixStream>, hash: &str| {
        let state = place.home.join("state");
        let secret = std::fs::read_to_string(state.join("local.secret")).unwrap();
        let stream = connection.insert(std::os::unix::net::UnixStream::connect(state.join("toolyard.sock")).unwrap());
        writeln!(stream, "{}", json!({"secret": secret})).unwrap();
        let params = json!({"baseHash": hash, "patch": {"log": {"level": "info"}}});
        writeln!(stream, "{}", json!({"id": 1, "method": "config.patch", "params": params})).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let stale = call(&mut connection, "0000");
    assert_eq!(stale["error"]["code"], "CONFLICT", "{stale}");
    assert_eq!(stale["error"]["details"]["reason"], "CONFIG_CHANGED", "{stale}");
    assert!(!place.home.join("config.toml").exists(), "nothing was written");
}

#[test]
fn what_tool_search_saved_is_counted_by_door_and_kept() {
    let place = Place::new();
    place.config("[tools.toolSearch]\nmode = \"tools\"\n");
    let server = place.up();
    let url = server.ready["url"].as_str().unwrap();
    let params = json!({"sessionKey": "main", "forModel": true}).to_string();
    let listed = ["gateway", "call", "tools.effective", "--params", &params, "--url", url, "--token", TOKEN, "--json"];
    let shown = place.run_bare(&listed);
    assert_eq!(shown.code, 0, "{shown:?}");
    let saved = |place: &Place| place.run_bare(&["tools", "savings", "--json"]).json();
    let first = saved(&place);
    let door = &first["days"][0]["doors"][0];
    assert_eq!((&door["door"], &door["lists"]), (&json!("gateway"), &json!(1)), "{first}");
    assert!(door["savedBytes"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(server.stop(), 0);
    assert_eq!(saved(&place)["total"], first["total"], "kept in the store");
}

#[test]
fn a_search_shows_the_parts_of_each_score_and_what_the_policy_decides() {
    let place = Place::new();
    let _server = place.up();
    let text = place.run_bare(&["tools", "search", "create a note", "--explain"]);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.stdout.contains("policy: ask"), "{}", text.stdout);
}

#[test]
fn runs_are_watched_by_their_events() {
    let place = Place::new();
    place.note("a.md", "x");
    let _server = place.up();
    let mut watching = Agent(place.command(&["runs", "watch", "--json"]).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap());
    // The watch may begin after the first calls; each one is news to it if it has begun.
    let (sender, found) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap_or(0) > 0 {
            if sender.send(serde_json::from_str::<Value>(&line).unwrap()).is_err() {
                return;
            }
            line.clear();
        }
    });
    for _ in 0..200 {
        place.call("vault.readFile", json!({"path": "a.md"}));
        if let Ok(run) = found.recv_timeout(Duration::from_millis(300)) {
            assert_eq!(run["title"], "vault.readFile", "{run}");
            return;
        }
    }
    panic!("no run was seen");
}
