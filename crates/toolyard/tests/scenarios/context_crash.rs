//! A hundred sessions store, recall, forget and import at once while the process is killed and started again. Nothing
//! that was acknowledged is lost, nothing that was forgotten comes back, and no user sees another's memories.
//!
//! Bounded: `TOOLYARD_CONTEXT_ROUNDS` sets how often it is killed (3), `TOOLYARD_CRASH_SEED` the seed. Each start checks all
//! that was acknowledged, so a new home is begun after some kills.

use crate::{
    harness::{Place, Server},
    random::Random,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const TOKEN: &str = "test-token-of-16-chars";
const SESSIONS: usize = 100;
/// The smallest number of acknowledged changes in a round before the process is killed, unless that takes too long.
const ACKNOWLEDGED: usize = 150;
const ROUND: Duration = Duration::from_secs(20);
/// Kills of one home.
const ROUNDS_PER_HOME: u64 = 5;

/// Uploads a document and imports it; gives its root.
fn import(address: &str, user: &str, word: &str) -> Option<String> {
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{word}.md\"\r\n\r\n# {word}\n\nImported {word}.\r\n--b--\r\n"
    );
    let kind = "Content-Type: multipart/form-data; boundary=b\r\n";
    let (_, sent) = send(address, user, "POST /api/v1/resources/temp_upload", kind, &body)?;
    let new = json!({"temp_file_id": sent["result"]["temp_file_id"], "source_name": format!("{word}.md"), "to": format!("viking://user/{user}/resources/{word}"), "wait": true});
    let (status, done) = ask(address, user, "POST /api/v1/resources", &new)?;
    (status == 200).then(|| done["result"]["root_uri"].as_str().unwrap().to_owned())
}

/// One request; `None` when there was no whole answer: then nothing was acknowledged.
fn ask(address: &str, user: &str, request: &str, body: &Value) -> Option<(u16, Value)> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(address, user, request, "", &body)
}

fn send(address: &str, user: &str, request: &str, headers: &str, body: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}X-API-Key: {TOKEN}\r\nX-OpenViking-User: {user}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?))
}

/// What a session knows to be so.
#[derive(Default)]
struct Known {
    /// Memories by URI, with a word that only they hold.
    kept: BTreeMap<String, String>,
    /// Words of memories that were forgotten.
    forgotten: Vec<String>,
    /// Messages that were taken.
    messages: Vec<String>,
    /// Memories whose change was not acknowledged.
    unsure: Vec<String>,
}

fn work(address: &str, number: usize, seed: u64, stop: &AtomicBool, known: &Mutex<Known>) {
    let user = format!("user{number}");
    let mut random = Random(seed ^ (number as u64) << 32);
    let mut made = 0u64;
    while !stop.load(Ordering::Relaxed) {
        made += 1;
        let word = format!("w{number}x{seed:x}x{made}");
        let mut known = known.lock().unwrap();
        match random.below(10) {
            0..=3 => {
                let uri = format!("viking://user/{user}/memories/entities/{word}.md");
                let body = json!({"uri": uri, "content": format!("The token of session {number} is {word}."), "mode": "create"});
                match ask(address, &user, "POST /api/v1/content/write", &body) {
                    Some((200, _)) => drop(known.kept.insert(uri, word)),
                    _ => known.unsure.push(uri),
                }
            }
            4..=5 => {
                let body = json!({"role": "user", "content": format!("I like {word} very much.")});
                if let Some((200, _)) = ask(address, &user, "POST /api/v1/sessions/s/messages", &body) {
                    known.messages.push(word);
                }
            }
            6 => drop(ask(address, &user, "POST /api/v1/sessions/s/commit", &json!({}))),
            7 => {
                let Some(uri) = known.kept.keys().find(|uri| uri.contains("/memories/")).cloned() else { continue };
                let word = known.kept.remove(&uri).unwrap();
                match ask(address, &user, &format!("DELETE /api/v1/fs?uri={uri}"), &Value::Null) {
                    Some((200, _)) => known.forgotten.push(word),
                    _ => known.unsure.push(uri),
                }
            }
            8 => {
                let body = json!({"query": format!("token of session {number}"), "limit": 50, "context_type": "memory", "level": [0, 1, 2]});
                if let Some((200, found)) = ask(address, &user, "POST /api/v1/search/find", &body) {
                    check_own(number, &known, &found.to_string());
                }
            }
            _ => {
                if let Some(root) = import(address, &user, &word) {
                    known.kept.insert(format!("{root}/{word}.md"), word);
                }
            }
        }
    }
}

fn check_own(number: usize, known: &Known, found: &str) {
    for other in 0..SESSIONS {
        assert!(
            other == number || !found.contains(&format!("user{other}/")),
            "session {number} saw user{other}: {found}"
        );
    }
    for word in &known.forgotten {
        assert!(!found.contains(&format!("{word}.")), "{word} was forgotten and came back: {found}");
    }
}

fn verify(address: &str, number: usize, known: &Known) {
    let user = format!("user{number}");
    for (uri, word) in &known.kept {
        let (status, read) = ask(address, &user, &format!("GET /api/v1/content/read?uri={uri}"), &Value::Null).unwrap();
        assert!(
            status == 200 && read["result"].as_str().unwrap().contains(word.as_str()),
            "{uri} was acknowledged and is lost: {read}"
        );
    }
    // Descriptions of folders must not contain forgotten memories either.
    let find = json!({"query": format!("The token of session {number}"), "limit": 500, "context_type": "memory", "level": [0, 1, 2]});
    let (status, found) = ask(address, &user, "POST /api/v1/search/find", &find).unwrap();
    assert_eq!(status, 200, "{found}");
    check_own(number, known, &found.to_string());
    let (_, grep) = ask(
        address,
        &user,
        "POST /api/v1/search/grep",
        &json!({"uri": format!("viking://user/{user}"), "pattern": "I like w", "node_limit": 5000}),
    )
    .unwrap();
    let said = grep.to_string();
    for word in &known.messages {
        assert!(said.contains(word.as_str()), "a message of session {number} was acknowledged and is lost: {word}");
    }
}

#[test]
#[ignore = "takes minutes in a debug build: make context-crash"]
fn a_hundred_sessions_lose_nothing_and_nothing_forgotten_returns_when_the_process_is_killed() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (rounds, seed) = (number("TOOLYARD_CONTEXT_ROUNDS", 3), number("TOOLYARD_CRASH_SEED", 6));
    let began = Instant::now();
    for first in (0..rounds).step_by(ROUNDS_PER_HOME as usize) {
        one_home(ROUNDS_PER_HOME.min(rounds - first), seed + first);
    }
    println!(
        "{}",
        json!({"bench":"crash-context","points":rounds,"seed":seed,"lost":0,"seconds":began.elapsed().as_secs()})
    );
}

/// A hundred sessions in one home, killed this often.
fn one_home(rounds: u64, seed: u64) {
    let place = Place::new();
    let mut random = Random(seed);
    let known: Arc<Vec<Mutex<Known>>> = Arc::new((0..SESSIONS).map(|_| Mutex::default()).collect());
    for round in 0..rounds {
        let mut server: Server = place.up();
        let address = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        for (n, known) in known.iter().enumerate() {
            verify(&address, n, &known.lock().unwrap());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..SESSIONS)
            .map(|n| {
                let (address, stop, known) = (address.clone(), stop.clone(), known.clone());
                std::thread::spawn(move || work(&address, n, seed + round, &stop, &known[n]))
            })
            .collect();
        let count = || -> usize {
            let one = |known: &Known| known.kept.len() + 2 * known.forgotten.len() + known.messages.len();
            known.iter().map(|known| known.try_lock().map_or(0, |known| one(&known))).sum()
        };
        let (before, began) = (count(), Instant::now());
        while count() < before + ACKNOWLEDGED && began.elapsed() < ROUND {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(random.below(700)));
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
    }
    let server = place.up();
    let address = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let (mut kept, mut forgotten, mut messages) = (0, 0, 0);
    for (n, known) in known.iter().enumerate() {
        let known = known.lock().unwrap();
        verify(&address, n, &known);
        kept += known.kept.len();
        forgotten += known.forgotten.len();
        messages += known.messages.len();
    }
    assert!(
        kept > 50 && forgotten > 5 && messages > 50,
        "too little happened: {kept} kept, {forgotten} forgotten, {messages} messages"
    );
    server.stop();
}
