//! A start probes the vault, the index and the embedding server in the background, before the first request, and logs
//! the result.

use crate::harness::{Place, Server};
use serde_json::json;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::ChildStderr,
    sync::mpsc,
};

/// Starts `toolyard up` with its log, and an index program where one is named.
fn up(place: &Place, index_program: Option<&Path>) -> (Server, BufReader<ChildStderr>) {
    let vault = place.vault.display().to_string();
    let mut command = place.command(&["--vault", &vault, "up", "--port", "0", "--json"]);
    command.env("TOOLYARD_LOG", "info");
    if let Some(program) = index_program {
        command.env("TOOLYARD_INDEX_PROGRAM", program);
    }
    let mut child = command.spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not ready ({e}): {line:?}"));
    (Server { child, ready }, log)
}

/// The first log line with the notes' health, before any tool is called.
fn health(log: &mut BufReader<ChildStderr>) -> String {
    let mut lines = log.lines().map_while(Result::ok);
    lines.find(|line| line.contains("the notes' health")).expect("a start tells the notes' health")
}

#[toolyard_shows::shows("000-1-12", "000-1-14")]
#[test]
fn a_start_probes_the_index() {
    let place = Place::new();
    place.note("a.md", "The blue bicycle.\n");
    let (server, mut log) = up(&place, None);
    let line = health(&mut log);
    assert!(line.contains("health=\"unavailable\"") && line.contains("index=\"INDEX_NOT_FOUND\""), "{line}");
    server.stop();
    // A program that ends at once is not an index program.
    let (server, mut log) = up(&place, Some(Path::new("/bin/false")));
    let line = health(&mut log);
    assert!(line.contains("health=\"unavailable\"") && line.contains("index=\"INDEX_PROGRAM_FAILED\""), "{line}");
    server.stop();
    // Without an index program, the index in memory answers, and the log says so.
    let (server, mut log) = up(&place, Some(&place.home.join("no-such-program")));
    let line = health(&mut log);
    assert!(line.contains("index=\"INDEX_") && !line.contains("health=\"healthy\""), "{line}");
    server.stop();
}

#[toolyard_shows::shows("000-1-13", "000-1-14")]
#[test]
fn a_start_probes_the_vault() {
    let place = Place::new();
    place.note("a.md", "The blue bicycle.\n");
    let (server, mut log) = up(&place, None);
    let line = health(&mut log);
    assert!(line.contains("vault=\"ok\""), "{line}");
    server.stop();
    // A vault that is missing at start is an error with a suggestion; no other folder is used instead.
    std::fs::remove_dir_all(&place.vault).unwrap();
    let gone = place.run(&["up", "--port", "0", "--json"]);
    assert_ne!(gone.code, 0, "{gone:?}");
    assert!(gone.stdout.contains(&place.vault.display().to_string()), "it is named: {gone:?}");
    assert!(gone.json()["error"]["suggestion"].is_string(), "{gone:?}");
}

#[toolyard_shows::shows("000-1-11", "000-5-03")]
#[test]
fn a_start_waits_for_no_probe_and_a_probe_does_not_wait_for_ever() {
    let place = Place::new();
    place.note("a.md", "The blue bicycle.\n");
    // An Ollama that takes connections and never answers.
    let ollama = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ollama.local_addr().unwrap();
    place.config(&format!("[knowledge.embedding]\nkind = \"ollama\"\nurl = \"http://{address}\"\n"));
    let (asked, probes) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in ollama.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            std::thread::spawn(move || {
                let mut request = [0; 256];
                let length = (&connection).read(&mut request).unwrap_or_default();
                // The test may be over.
                asked.send(String::from_utf8_lossy(&request[..length]).into_owned()).ok();
                std::io::copy(&mut &connection, &mut std::io::sink()).ok();
                (&connection).flush().ok();
            });
        }
    });
    let (server, mut log) = up(&place, None);
    // The server is ready and tools answer, although the probe never gets an answer.
    let listed = place.call("vault.listFiles", json!({}));
    assert_eq!(listed["ok"], true, "{listed:#}");
    assert!(probes.recv().unwrap().starts_with("GET /"), "the start asks Ollama by itself");
    // A probe without an answer ends with a timeout, and Ollama counts as unreachable.
    let line = health(&mut log);
    assert!(line.contains("embedder=\"OLLAMA_UNREACHABLE\""), "{line}");
    server.stop();
}
