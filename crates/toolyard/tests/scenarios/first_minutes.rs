//! The first minutes of a new user, and commands that find the Toolyard of their home by themselves.

use crate::harness::{Place, Server, until};
use serde_json::json;
use std::io::{BufRead, BufReader};

const TOKEN: &str = "test-token-of-16-chars";

/// Starts `toolyard up` as a person does: its messages go to standard error.
fn up_for_a_person(place: &Place) -> (Server, Vec<String>) {
    let vault = place.vault.display().to_string();
    let mut child = place.command(&["--vault", &vault, "up", "--port", "0"]).spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        said.push(line);
        if said.last().is_some_and(|line| line.contains("notes  ")) {
            break;
        }
    }
    (Server { child, ready: json!({}) }, said)
}

#[test]
fn the_notes_of_a_new_user_are_indexed_in_the_background_and_that_is_said() {
    let place = Place::new();
    place.note("Welcome.md", "# Welcome\nThe blue bicycle stands in the hall.\n");
    let (_server, said) = up_for_a_person(&place);
    let line = said.last().unwrap();
    assert!(line.contains("indexed"), "{said:?}");
    until("the index is there without anybody asking for it", || {
        place.run(&["status", "--json"]).json()["index"]["state"] == "built"
    });
    let found = place.run(&["vault", "search", "blue bicycle", "--json"]);
    assert_eq!(
        (found.code, &found.json()["data"]["results"][0]["source_file"]),
        (0, &json!("Welcome.md")),
        "{found:?}"
    );
}

#[test]
fn a_search_before_the_first_index_makes_it() {
    let place = Place::new();
    place.note("Welcome.md", "The blue bicycle stands in the hall.\n");
    let script = place.run(&["vault", "search", "bicycle", "--json"]);
    assert_eq!(script.json()["error"]["code"], "INDEX_NOT_FOUND", "a script decides for itself: {script:?}");
    let found = place.run(&["vault", "search", "bicycle"]);
    assert_eq!(found.code, 0, "{found:?}");
    assert!(found.stdout.contains("Welcome.md") && found.stderr.contains("no index yet"), "{found:?}");
    let again = place.run(&["vault", "search", "bicycle"]);
    assert!(again.code == 0 && !again.stderr.contains("no index yet"), "{again:?}");
}

#[test]
fn without_a_command_it_says_where_it_stands() {
    let place = Place::new();
    std::fs::remove_dir_all(&place.home).ok();
    let fresh = place.run(&[]);
    assert_eq!(fresh.code, 0, "{fresh:?}");
    for word in ["running", "no", "vault", "none yet", "toolyard up"] {
        assert!(fresh.stdout.contains(word), "{word}: {fresh:?}");
    }
    assert!(!place.home.exists(), "looking makes nothing");

    place.note("a.md", "A note.\n");
    let server = place.up();
    let standing = place.run(&["status", "--json"]).json();
    assert_eq!((&standing["running"], &standing["url"]), (&json!(true), &server.ready["url"]), "{standing}");
    assert_eq!((&standing["pid"], &standing["openQuestions"]), (&server.ready["pid"], &json!(0)), "{standing}");
    assert_eq!(standing["vault"], place.vault.display().to_string());
    // The session key for scripts can be used unchanged.
    let key = standing["sessionKey"].as_str().unwrap().to_owned();
    assert_eq!(key, "agent:main:main");
    for name in [key.as_str(), "main"] {
        let params = json!({"sessionKey": name}).to_string();
        let effective =
            place.run_bare(&["gateway", "call", "tools.effective", "--params", &params, "--token", TOKEN, "--json"]);
        assert_eq!((effective.code, &effective.json()["agentId"]), (0, &json!("main")), "{effective:?}");
    }
    until("the index is built", || place.run(&["status", "--json"]).json()["index"]["state"] == "built");
    // A watcher may look through the notes once more just after the first index.
    until("the status shows the index", || place.run(&[]).stdout.contains("1 note, "));
    let shown = place.run(&[]);
    assert!(shown.stdout.contains("agent:main:main"), "{shown:?}");
    server.stop();
    assert_eq!(place.run(&["status", "--json"]).json()["running"], false);
}

#[test]
fn commands_talk_to_the_toolyard_of_their_home_and_say_what_to_start() {
    let (one, two) = (Place::new(), Place::new());
    let (first, second) = (one.up(), two.up());
    for (place, server) in [(&one, &first), (&two, &second)] {
        let status = place.run_bare(&["gateway", "call", "status", "--token", TOKEN, "--json"]);
        assert_eq!((status.code, &status.json()["pid"]), (0, &server.ready["pid"]), "{status:?}");
        let opened = place.run_bare(&["bridge", "open", "--session", "claude", "--token", TOKEN, "--json"]);
        assert_eq!(opened.code, 0, "{opened:?}");
    }
    second.stop();
    for command in [
        &["gateway", "call", "status"][..],
        &["gateway", "probe"],
        &["bridge", "status"],
        &["claude", "start", "--session", "x"],
    ] {
        let none = two.run_bare(&[command, &["--json"]].concat());
        assert_eq!((none.code, none.error_code().as_str()), (1, "UNAVAILABLE"), "{command:?}: {none:?}");
        assert!(none.stdout.contains("up`") && none.stdout.contains("--url"), "it says what to start: {none:?}");
    }
    first.stop();
}
