//! Kill -9 of the index program under a running gateway, at seeded points of indexing and searching: the worst answer
//! is a recoverable INDEX_* error, the gateway continues, the indexing job finishes, and the index is complete
//! afterwards. And what a gateway answers without an index program.

use crate::harness::{PATIENCE, Place, Server, index_program, until};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

/// Notes that carry the word of a round.
const MARKED: usize = 40;
/// How long a round of searching lasts.
const SEARCHING: Duration = Duration::from_millis(600);

/// The processes of the index program that a server started. Each runs below the supervisor of its walls.
fn index_processes(server: &Server) -> Vec<i32> {
    let name = index_program().file_name().unwrap().to_string_lossy().chars().take(15).collect::<String>();
    let processes: HashMap<i32, (i32, String)> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            Some((id, (field("PPid:")?.parse().ok()?, field("Name:")?.to_owned())))
        })
        .collect();
    let gateway = server.child.id() as i32;
    let parent = |id: i32| processes.get(&id).map(|(parent, _)| *parent);
    let is_below = |id: i32| std::iter::successors(parent(id), |id| parent(*id)).any(|id| id == gateway);
    processes.iter().filter(|(id, (_, its))| *its == name && is_below(**id)).map(|(id, _)| *id).collect()
}

/// Kills the index program that the server started, and nothing else.
fn kill_index_program(server: &Server) -> usize {
    let ids = index_processes(server);
    for id in &ids {
        if let Some(id) = rustix::process::Pid::from_raw(*id) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
    }
    ids.len()
}

fn envelope(place: &Place, tool: &str, args: Value) -> Value {
    let result = place.call(tool, args);
    assert!(result["error"].is_null(), "the call itself failed: {result:#}");
    result["data"].clone()
}

fn search(place: &Place, query: &str) -> Value {
    envelope(place, "obsidian_rag_search", json!({"query": query, "max_results": 50}))
}

/// An answer, or a recoverable problem of the index; whether it is an answer.
fn is_good(envelope: &Value, what: &str) -> bool {
    if !envelope["data"].is_null() {
        return true;
    }
    let code = envelope["error"]["code"].as_str().unwrap_or_default();
    let is_recoverable = envelope["error"]["recoverable"] == true;
    assert!(code.starts_with("INDEX") && is_recoverable, "{what}: {envelope:#}");
    false
}

fn mark(place: &Place, round: u64) {
    for number in 0..MARKED {
        place.note(&format!("Marked/{number}.md"), &format!("# Marked {number}\nHas the word markerword{round}.\n"));
    }
}

fn count(place: &Place, round: u64) -> usize {
    let start = Instant::now();
    loop {
        let found = search(place, &format!("markerword{round}"));
        if is_good(&found, "counting") {
            let has = |r: &&Value| r["chunk_text"].as_str().is_some_and(|t| t.contains(&format!("markerword{round}.")));
            return found["data"]["results"].as_array().unwrap().iter().filter(has).count();
        }
        assert!(start.elapsed() < PATIENCE, "the index program does not come back: {found:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Starts a job, kills the index program after `delay`, and waits for the end of the job.
fn index_and_kill(place: &Place, server: &Server, delay: Option<Duration>) -> Duration {
    let begun = envelope(place, "obsidian_rag_index", json!({"mode": "sync"}));
    let job = begun["data"]["job_id"].as_str().unwrap_or_else(|| panic!("{begun:#}")).to_owned();
    let start = Instant::now();
    if let Some(delay) = delay {
        std::thread::sleep(delay);
        kill_index_program(server);
    }
    loop {
        let status = envelope(place, "obsidian_rag_status", json!({"job_id": job, "wait_ms": 20_000}));
        is_good(&status, "status during a job");
        match status["data"]["job"]["state"].as_str() {
            Some("done") => return start.elapsed(),
            Some("running") | None => assert!(start.elapsed() < PATIENCE, "the job does not end: {status:#}"),
            Some(_) => panic!("the job did not survive: {status:#}"),
        }
    }
}

/// Searches repeatedly, with a kill in the middle.
fn search_and_kill(place: &Place, server: &Server, round: u64, delay: Duration) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(delay);
            kill_index_program(server);
        });
        let start = Instant::now();
        while start.elapsed() < SEARCHING {
            is_good(&search(place, &format!("markerword{round}")), "searching");
        }
    });
}

#[test]
#[ignore = "run by `make crash`, which is part of `make test`; 50 points by `make index-crash`"]
fn index_crash_leaves_a_whole_index_and_a_gateway_that_answers() {
    let points = crate::notes::setting("TOOLYARD_INDEX_CRASH_POINTS", 6);
    let mut random = crate::notes::setting("TOOLYARD_CRASH_SEED", 42) | 1;
    let place = Place::new();
    place.config("[knowledge.indexing]\nwatch = false\n[policy.approval]\nallowedTools = [\"obsidian_rag_index\"]\n");
    crate::notes::make_vault(&place.vault);
    mark(&place, 0);
    let mut server = place.up();
    index_and_kill(&place, &server, None);
    mark(&place, 1);
    let whole = index_and_kill(&place, &server, None);
    for round in 2..points + 2 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = ((random >> 33) % 1_000) as f64 / 1_000.0;
        mark(&place, round);
        if round % 2 == 0 {
            index_and_kill(&place, &server, Some(whole.mul_f64(share)));
        } else {
            index_and_kill(&place, &server, None);
            search_and_kill(&place, &server, round, SEARCHING.mul_f64(share));
        }
        let (new, old) = (count(&place, round), count(&place, round - 1));
        assert_eq!((new, old), (MARKED, 0), "round {round}");
        assert!(server.child.try_wait().unwrap().is_none(), "the gateway ended");
    }
    // The index is also complete for a restarted index program.
    assert_eq!(server.stop(), 0);
    let status = place.run(&["vault", "status", "--json"]).json();
    assert_eq!(
        (status["data"]["plugin_health"].as_str(), status["data"]["unindexed_files"].as_u64()),
        (Some("healthy"), Some(0)),
        "{status:#}"
    );
    assert_eq!(count(&place, points + 1), MARKED);
    println!("{points} points, a job takes {} ms", whole.as_millis());
}

/// A search after a kill is answered without an error, because the program is started again.
#[test]
fn a_killed_index_program_is_started_again_by_the_next_question() {
    let place = Place::new();
    place.config("[knowledge.indexing]\nwatch = false\n[policy.approval]\nallowedTools = [\"obsidian_rag_index\"]\n");
    mark(&place, 1);
    let server = place.up();
    index_and_kill(&place, &server, None);
    assert_eq!(count(&place, 1), MARKED);
    assert_eq!(kill_index_program(&server), 1, "one index program runs");
    let found = search(&place, "markerword1");
    assert_eq!(found["status"], "healthy", "{found:#}");
    assert_eq!(index_processes(&server).len(), 1);
}

#[test]
fn an_unused_index_program_is_stopped_and_ends_with_the_gateway() {
    let place = Place::new();
    place.config(
        "[knowledge.index]\nidleSecs = 1\n[knowledge.indexing]\nwatch = false\n[policy.approval]\nallowedTools = \
         [\"obsidian_rag_index\"]\n",
    );
    mark(&place, 1);
    let server = place.up();
    assert!(index_processes(&server).is_empty(), "nothing is started before it is used");
    index_and_kill(&place, &server, None);
    until("the idle program is stopped", || index_processes(&server).is_empty());
    assert_eq!(count(&place, 1), MARKED, "and started again");
    let ids = index_processes(&server);
    assert_eq!(ids.len(), 1);
    assert_eq!(server.stop(), 0);
    until("the program ends with the gateway", || {
        !ids.iter().any(|id| Path::new("/proc").join(id.to_string()).exists())
    });
}

/// Without an index program a gateway answers from memory and says so; with one it moves what it has there.
#[test]
fn notes_are_degraded_without_the_index_program_and_move_to_it_by_themselves() {
    let place = Place::new();
    let program = place.home.join("bin/toolyard-index");
    place.config(&format!(
        "[index]\nprogram = \"{}\"\n[knowledge.indexing]\nwatch = false\n[policy.approval]\nallowedTools = \
         [\"obsidian_rag_index\"]\n",
        program.display()
    ));
    mark(&place, 1);
    let server = place.up_without_index_program();
    let before = search(&place, "markerword1");
    assert_eq!(
        (before["status"].as_str(), before["error"]["code"].as_str()),
        (Some("degraded"), Some("INDEX_PROGRAM_MISSING")),
        "{before:#}"
    );
    index_and_kill(&place, &server, None);
    let found = search(&place, "markerword1");
    assert_eq!(
        (found["status"].as_str(), found["error"]["code"].as_str()),
        (Some("degraded"), Some("INDEX_PROGRAM_MISSING")),
        "{found:#}"
    );
    assert_eq!(count(&place, 1), MARKED, "and yet everything is found");

    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::copy(index_program(), &program).unwrap();
    let start = Instant::now();
    while search(&place, "markerword1")["status"] != "healthy" {
        assert!(start.elapsed() < PATIENCE, "the notes never move");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(count(&place, 1), MARKED);
}
