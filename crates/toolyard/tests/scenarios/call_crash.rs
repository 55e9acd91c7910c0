//! SIGKILL of a running Toolyard while clients make calls, ask questions and get answers. Each client repeats what was not
//! acknowledged with the same idempotency key. If it is told that the call is in doubt, it looks at the file, and uses a new
//! key if the effect is not there, as the guide says.
//!
//! What must hold: every call has its effect exactly once; nothing runs before its question was answered; a question that a
//! person answered is not asked again; every record verifies. `TOOLYARD_CALL_CRASH_POINTS` sets the number of kills,
//! `TOOLYARD_CRASH_SEED` the seed.

use crate::{
    harness::{Place, Server},
    notes::setting,
    random::Random,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const TOKEN: &str = "test-token-of-16-chars";
/// Kills of one store; then another one is begun, so that checking everything stays cheap.
const KILLS_PER_STORE: u64 = 20;
/// Clients that append lines, and clients whose calls ask.
const APPENDING: usize = 3;
const ASKING: usize = 3;
/// The longest time between a start and a kill.
const LONGEST_LIFE: Duration = Duration::from_millis(400);
/// The beginning of a staged file's path.
const STAGED: &str = "asked/.toolyard-tmp-";
/// Only what hangs takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What clients and the person know, over all lives of the process.
#[derive(Default)]
struct Known {
    /// Calls without a question, by key: whether they were acknowledged.
    appended: BTreeMap<String, bool>,
    /// Calls with one.
    created: BTreeMap<String, bool>,
    /// Files whose question the person has begun to answer.
    allowed: BTreeSet<String>,
    /// Questions whose answer was acknowledged.
    answered: BTreeSet<String>,
    /// How often a call got a new key.
    keys: BTreeMap<String, u32>,
    in_doubt: usize,
}

/// What a client is told.
enum Told {
    Done,
    /// No whole answer, or one that says to try again.
    Nothing,
    /// The recorded result: the process ended before the call was made.
    NotMade,
    InDoubt,
}

struct Story {
    address: String,
    vault: PathBuf,
    /// Set when clients must not begin anything new.
    over: AtomicBool,
    known: Mutex<Known>,
}

impl Story {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    fn invoke(&self, tool: &str, args: &Value, key: &str) -> Told {
        let number = self.known().keys.get(key).copied().unwrap_or_default();
        let body = json!({"tool": tool, "args": args, "idempotencyKey": format!("{key}#{number}")}).to_string();
        let Some((status, answer)) = post(&self.address, &body) else { return Told::Nothing };
        match (status, &answer["error"]["details"]["reason"]) {
            (200, _) if answer["ok"] == true => Told::Done,
            (409, reason) if reason == "IN_DOUBT" => Told::InDoubt,
            (500, _) if answer["error"]["code"] == "cancelled" => Told::NotMade,
            (503, _) => Told::Nothing,
            _ => panic!("{key}: {status} {answer}"),
        }
    }

    /// Makes a call and keeps what is known about it afterwards. `is_done` looks for its effect.
    fn make(
        &self,
        calls: fn(&mut Known) -> &mut BTreeMap<String, bool>,
        call: (&str, &Value, &str),
        is_done: impl Fn() -> bool,
    ) {
        let (tool, args, key) = call;
        calls(&mut self.known()).entry(key.to_owned()).or_insert(false);
        let told = self.invoke(tool, args, key);
        let mut known = self.known();
        match told {
            Told::Nothing => return,
            Told::Done => {}
            Told::NotMade => {
                assert!(!is_done(), "{key} was made, and its caller is told that it was not");
                *known.keys.entry(key.to_owned()).or_default() += 1;
                return;
            }
            Told::InDoubt => {
                known.in_doubt += 1;
                if !is_done() {
                    *known.keys.entry(key.to_owned()).or_default() += 1;
                    return;
                }
            }
        }
        calls(&mut known).insert(key.to_owned(), true);
    }

    fn append(&self, key: &str) {
        let path = format!("calls/{}.md", key.split('-').next().unwrap());
        let args = json!({"path": path, "content": format!("{key}\n"), "mode": "append"});
        let is_done = || {
            let text = std::fs::read_to_string(self.vault.join(&path)).unwrap_or_default();
            text.lines().any(|line| line == key)
        };
        self.make(|known| &mut known.appended, ("vault.writeFile", &args, key), is_done);
    }

    fn create(&self, key: &str) {
        let path = format!("asked/{key}.md");
        let args = json!({"path": path, "content": key});
        self.make(|known| &mut known.created, ("vault.createFile", &args, key), || self.vault.join(&path).exists());
    }

    /// Makes calls until the process is killed: first again what was not acknowledged.
    fn client(&self, name: &str, life: u64, asks: bool) {
        let mine = |calls: &BTreeMap<String, bool>| -> Vec<String> {
            let open = calls.iter().filter(|(key, done)| !**done && key.starts_with(&format!("{name}-")));
            open.map(|(key, _)| key.clone()).collect()
        };
        let again = if asks { mine(&self.known().created) } else { mine(&self.known().appended) };
        let new = (0..).map(|n| format!("{name}-{life}-{n}"));
        for key in again.into_iter().chain(new) {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            if asks { self.create(&key) } else { self.append(&key) }
        }
    }

    /// Answers questions as they come, until the process is killed.
    fn person(&self, place: &Place) {
        let Some(mut local) = Local::open(place) else { return };
        while !self.over.load(Ordering::Relaxed) && self.answer_all(&mut local).is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Allows every open question; how many there were. `None` when the process is gone.
    fn answer_all(&self, local: &mut Local) -> Option<usize> {
        let open = local.ask("approvals.list", &json!({}))?;
        let questions = open["approvals"].as_array().unwrap_or_else(|| panic!("{open}")).clone();
        for question in &questions {
            let (id, path) = (question["id"].as_str().unwrap(), question["args"]["path"].as_str().unwrap());
            assert!(!self.known().answered.contains(id), "{path} was answered and is asked again");
            self.known().allowed.insert(path.to_owned());
            let params = json!({"id": id, "decision": "allow-once", "shown": question["shown"]});
            let answered = local.ask("approvals.answer", &params)?;
            assert_eq!(answered["applied"], true, "{answered}");
            self.known().answered.insert(id.to_owned());
        }
        Some(questions.len())
    }
}

fn post(address: &str, body: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?))
}

/// The local socket, as the command line uses it.
struct Local {
    out: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Local {
    fn open(place: &Place) -> Option<Self> {
        let state = place.home.join("state");
        let secret = std::fs::read_to_string(state.join("local.secret")).ok()?;
        let mut out = UnixStream::connect(state.join("toolyard.sock")).ok()?;
        writeln!(out, "{}", json!({"secret": secret})).ok()?;
        let lines = BufReader::new(out.try_clone().ok()?);
        Some(Self { out, lines })
    }

    /// The result of a method; `None` when the process is gone.
    fn ask(&mut self, method: &str, params: &Value) -> Option<Value> {
        writeln!(self.out, "{}", json!({"id": 1, "method": method, "params": params})).ok()?;
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let mut message: Value = serde_json::from_str(&line).ok()?;
            if message.get("event").is_none() {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return Some(message["result"].take());
            }
        }
    }
}

/// One life of the process, ended by a kill.
fn live(place: &Place, known: Known, life: u64, random: &mut Random) -> Known {
    let mut server: Server = place.up();
    nothing_ran_unanswered(place, &known);
    let address = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let story = Story { address, vault: place.vault.clone(), over: AtomicBool::new(false), known: Mutex::new(known) };
    std::thread::scope(|scope| {
        for n in 0..APPENDING + ASKING {
            let story = &story;
            let (name, asks) = (format!("c{n}"), n >= APPENDING);
            scope.spawn(move || story.client(&name, life, asks));
        }
        scope.spawn(|| story.person(place));
        std::thread::sleep(Duration::from_micros(random.below(LONGEST_LIFE.as_micros() as u64)));
        server.child.kill().unwrap();
        story.over.store(true, Ordering::Relaxed);
        server.child.wait().unwrap();
    });
    story.known.into_inner().unwrap()
}

fn nothing_ran_unanswered(place: &Place, known: &Known) {
    for file in std::fs::read_dir(place.vault.join("asked")).into_iter().flatten().flatten() {
        let path = format!("asked/{}", file.file_name().to_string_lossy());
        // What a killed process had staged is removed a moment after the start; `finish` looks.
        assert!(
            path.starts_with(STAGED) || known.allowed.contains(&path),
            "{path} was made and its question never answered"
        );
    }
}

/// Repeats everything that was not acknowledged, then counts effects and verifies the record.
fn finish(place: &Place, known: Known) -> Known {
    let server = place.up();
    let address = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let story = Story { address, vault: place.vault.clone(), over: AtomicBool::new(false), known: Mutex::new(known) };
    let again = |calls: &BTreeMap<String, bool>| -> Vec<String> {
        calls.iter().filter(|(_, done)| !**done).map(|(key, _)| key.clone()).collect()
    };
    let appends = again(&story.known().appended);
    let creates = again(&story.known().created);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A second time for those that get a new key.
            for _ in 0..2 {
                appends.iter().filter(|key| !story.known().appended[*key]).for_each(|key| story.append(key));
                let open: Vec<&String> = creates.iter().filter(|key| !story.known().created[*key]).collect();
                std::thread::scope(|each| open.iter().for_each(|key| drop(each.spawn(|| story.create(key)))));
            }
            story.over.store(true, Ordering::Relaxed);
        });
        let begun = Instant::now();
        let mut local = Local::open(place).unwrap();
        while !story.over.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < PATIENCE, "calls are never answered");
            story.answer_all(&mut local).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(server.stop(), 0);
    let known = story.known.into_inner().unwrap();
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..APPENDING {
        let text = std::fs::read_to_string(place.vault.join(format!("calls/c{n}.md"))).unwrap_or_default();
        text.lines().for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
    }
    for (key, done) in &known.appended {
        assert!(done, "{key} is never acknowledged");
        assert_eq!(lines.get(key), Some(&1), "{key} is lost or repeated");
    }
    assert_eq!(lines.len(), known.appended.len(), "a line that nobody sent");
    for (key, done) in &known.created {
        assert!(done, "{key} is never acknowledged");
        assert_eq!(place.read(&format!("asked/{key}.md")), *key);
    }
    let files = std::fs::read_dir(place.vault.join("asked")).into_iter().flatten().flatten();
    assert_eq!(files.count(), known.created.len(), "something is left in the folder");
    let verified = place.run(&["runs", "verify", "--json"]);
    assert_eq!(verified.json()["ok"], true, "{verified:?}");
    known
}

#[test]
#[ignore = "run by `make crash`, which is part of `make test`"]
fn crash_of_calls_and_questions_loses_nothing_and_repeats_nothing() {
    let points = setting("TOOLYARD_CALL_CRASH_POINTS", 20);
    let seed = setting("TOOLYARD_CRASH_SEED", 2026);
    let (mut appended, mut created, mut in_doubt, mut done) = (0, 0, 0, 0);
    let began = Instant::now();
    while done < points {
        let place = Place::new();
        place.config("[policy.approval]\nallowedTools = [\"vault.writeFile\"]\n");
        let mut known = Known::default();
        for life in done..points.min(done + KILLS_PER_STORE) {
            let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(life));
            known = live(&place, known, life, &mut random);
        }
        let known = finish(&place, known);
        appended += known.appended.len();
        created += known.created.len();
        in_doubt += known.in_doubt;
        done = points.min(done + KILLS_PER_STORE);
    }
    assert!(appended > 0 && created > 0, "nothing was called: {appended} and {created}");
    println!(
        "{}",
        json!({"bench":"crash-calls","points":points,"seed":seed,"calls":appended,"questions":created,"in_doubt":in_doubt,"lost":0,"repeated":0,"seconds":began.elapsed().as_secs()})
    );
}
