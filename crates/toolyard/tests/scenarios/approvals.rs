//! Questions to a person through the real program: shown, answered at the command line, kept over `kill -9`.

use crate::harness::{Place, Ran, Server, until};
use serde_json::{Value, json};
use std::process::Child;

const TOKEN: &str = "test-token-of-16-chars";

/// An agent's call in a process of its own, killed when dropped.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Waiting {
    fn payload(mut self) -> Value {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.0.stdout.take().unwrap(), &mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"))
    }
}

fn invoke(path: &str, content: &str, key: &str) -> Value {
    let args = json!({"path": path, "content": content});
    json!({"name": "vault.createFile", "args": args, "confirm": true, "idempotencyKey": key})
}

fn arguments<'a>(server: &'a Server, method: &'a str, params: &'a str) -> Vec<&'a str> {
    let url = server.ready["url"].as_str().unwrap();
    vec!["gateway", "call", method, "--params", params, "--url", url, "--token", TOKEN, "--json"]
}

fn call(place: &Place, server: &Server, method: &str, params: &Value) -> Value {
    place.run_bare(&arguments(server, method, &params.to_string())).json()
}

fn begin(place: &Place, server: &Server, params: &Value) -> Waiting {
    Waiting(place.command(&arguments(server, "tools.invoke", &params.to_string())).spawn().unwrap())
}

fn open(place: &Place) -> Vec<Value> {
    let listed = place.run_bare(&["approvals", "list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.json()["approvals"].as_array().unwrap().clone()
}

/// Waits until this number of questions is open.
fn asked(place: &Place, count: usize) -> Vec<Value> {
    let mut questions = Vec::new();
    until("this number of questions is open", || {
        questions = open(place);
        questions.len() == count
    });
    questions
}

fn allow(place: &Place, id: &Value, more: &[&str]) -> Ran {
    place.run_bare(&[&["approvals", "allow", id.as_str().unwrap(), "--json"], more].concat())
}

#[test]
fn a_waiting_call_is_shown_allowed_and_recorded_at_the_command_line() {
    let place = Place::new();
    let server = place.up();
    let waiting = begin(&place, &server, &invoke("in/a.md", "hello\n", "k"));
    let question = asked(&place, 1).remove(0);
    for field in ["id", "agent", "askedAt", "expiresAt", "shown", "rule"] {
        assert!(question[field].is_string(), "{field}: {question}");
    }
    assert_eq!((&question["tool"], &question["args"]["path"]), (&json!("vault.createFile"), &json!("in/a.md")));
    assert!(question["diff"].as_str().unwrap().contains("+hello"), "{question}");
    assert_eq!(question["effects"]["created"][1]["path"], "in/a.md", "{question}");
    assert!(!place.exists("in/a.md"));
    let wrong = allow(&place, &question["id"], &["--shown", "sha256:other"]);
    assert_eq!((wrong.code, wrong.error_code().as_str()), (1, "CONFLICT"), "{wrong:?}");
    let answered = allow(&place, &question["id"], &["--shown", question["shown"].as_str().unwrap()]);
    assert_eq!((answered.code, &answered.json()["applied"]), (0, &json!(true)), "{answered:?}");
    let done = waiting.payload();
    assert_eq!(done["ok"], true, "{done}");
    assert_eq!(place.read("in/a.md"), "hello\n");
    // The second answer is refused and names the first.
    let late = place.run_bare(&["approvals", "deny", question["id"].as_str().unwrap(), "--json"]);
    assert_eq!((late.code, &late.json()["applied"]), (1, &json!(false)), "{late:?}");
    assert_eq!(late.json()["approval"]["answer"]["by"], "tester");
    let run = done["output"]["meta"]["runId"].as_str().unwrap();
    let record = place.run(&["runs", "show", run, "--json"]).json();
    let given = &record["approvals"][0];
    assert_eq!((&given["by"], &given["door"]), (&json!("tester"), &json!("cli")), "{record}");
    assert_eq!((&given["shown"], &given["approvalId"]), (&question["shown"], &question["id"]));
    let verified = place.run(&["runs", "verify", run, "--json"]);
    assert_eq!((verified.code, &verified.json()["ok"]), (0, &json!(true)), "{verified:?}");
    server.stop();
}

#[test]
fn a_question_survives_kill_9_and_its_call_runs_once() {
    let place = Place::new();
    let mut server = place.up();
    let params = invoke("a.md", "x", "once");
    let waiting = begin(&place, &server, &params);
    let before = asked(&place, 1).remove(0);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    drop(waiting);
    let server = place.up();
    let after = asked(&place, 1).remove(0);
    assert_eq!((&after["id"], &after["shown"]), (&before["id"], &before["shown"]));
    assert_eq!(after["waiting"], false, "its caller has gone");
    assert_eq!(allow(&place, &after["id"], &[]).code, 0);
    assert!(!place.exists("a.md"), "nothing runs without its caller");
    let done = call(&place, &server, "tools.invoke", &params);
    assert_eq!((&done["ok"], &done["deduplicated"]), (&json!(true), &Value::Null), "{done}");
    assert_eq!(place.read("a.md"), "x");
    std::fs::remove_file(place.vault.join("a.md")).unwrap();
    let again = call(&place, &server, "tools.invoke", &params);
    assert_eq!((&again["ok"], &again["deduplicated"]), (&json!(true), &json!(true)), "{again}");
    assert!(!place.exists("a.md"), "it ran once");
    server.stop();
    let verified = place.run(&["runs", "verify", "--json"]);
    assert_eq!(verified.json()["ok"], true, "{verified:?}");
}

#[test]
fn a_plan_that_waits_for_its_approval_goes_on_after_kill_9() {
    let place = Place::new();
    let mut server = place.up();
    let step = json!({"id": "w", "tool": "vault.createFile", "args": {"path": "p.md", "content": "plan\n"}});
    let plan = json!({"version": "1.0", "goal": "write p", "riskLevel": "writes", "steps": [step]});
    let params = json!({"plan": plan, "consent": {"ask": true}, "detach": true});
    let begun = call(&place, &server, "plans.run", &params);
    let run = begun["runId"].as_str().unwrap().to_owned();
    let before = asked(&place, 1).remove(0);
    assert_eq!((&before["tool"], &before["args"]["goal"]), (&json!("plans.run"), &json!("write p")));
    assert!(before["diff"].as_str().unwrap().contains("+plan"), "{before}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = place.up();
    let after = asked(&place, 1).remove(0);
    assert_eq!(after["id"], before["id"], "asked once");
    assert_eq!(allow(&place, &after["id"], &[]).code, 0);
    until("the plan runs", || place.exists("p.md"));
    assert_eq!(place.read("p.md"), "plan\n");
    server.stop();
    let record = place.run(&["runs", "show", &run, "--json"]).json();
    assert_eq!(record["run"]["confirmation"]["shown"], after["shown"], "{record}");
    assert_eq!(record["run"]["confirmation"]["door"], "cli");
}

#[test]
fn a_permission_for_a_folder_is_listed_ends_and_is_revoked() {
    let place = Place::new();
    let server = place.up();
    let waiting = begin(&place, &server, &invoke("in/a.md", "x", "1"));
    let question = asked(&place, 1).remove(0);
    let outside = allow(&place, &question["id"], &["--scope", "folder", "--folder", "out"]);
    assert_eq!(outside.error_code(), "VALIDATION_ERROR", "{outside:?}");
    let given = allow(&place, &question["id"], &["--scope", "folder", "--for", "1h"]);
    assert_eq!(given.code, 0, "{given:?}");
    assert_eq!(waiting.payload()["ok"], true);
    let free = call(&place, &server, "tools.invoke", &invoke("in/b.md", "x", "2"));
    assert_eq!(free["ok"], true, "{free}");
    let elsewhere = begin(&place, &server, &invoke("out/c.md", "x", "3"));
    let asked_again = asked(&place, 1).remove(0);
    let denied = place.run_bare(&["approvals", "deny", asked_again["id"].as_str().unwrap(), "--reason", "not there"]);
    assert_eq!(denied.code, 0, "{denied:?}");
    let refused = elsewhere.payload();
    assert!(refused["error"]["message"].as_str().unwrap().contains("not there"), "{refused}");
    let grants = place.run_bare(&["grants", "list", "--json"]).json()["grants"].clone();
    assert_eq!(grants[0]["scope"], json!({"kind": "folder", "path": "in"}), "{grants}");
    assert!(grants[0]["until"].is_string() && grants[0]["givenBy"] == "tester", "{grants}");
    let revoked = place.run_bare(&["grants", "revoke", grants[0]["id"].as_str().unwrap(), "--json"]);
    assert_eq!(revoked.json()["revoked"], true);
    let _asks = begin(&place, &server, &invoke("in/d.md", "x", "4"));
    asked(&place, 1);
    server.stop();
}

#[test]
fn somebody_who_watches_is_told_of_questions_and_answers_and_can_be_asked() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let server = place.up();
    let mut watch = Waiting(place.command(&["approvals", "watch", "--json"]).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let waiting = begin(&place, &server, &invoke("a.md", "x", "k"));
    let news: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&news["event"], &news["approval"]["waiting"]), (&json!("asked"), &json!(true)), "{news}");
    assert_eq!(allow(&place, &news["approval"]["id"], &[]).code, 0);
    let news: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&news["event"], &news["approval"]["answer"]["decision"]), (&json!("settled"), &json!("allow-once")));
    assert_eq!(waiting.payload()["ok"], true);
    server.stop();
}

#[test]
fn once_the_watching_command_is_killed_nobody_is_left_to_ask() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let server = place.up();
    let mut watch = Waiting(place.command(&["approvals", "watch", "--json"]).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let waiting = begin(&place, &server, &invoke("a.md", "x", "k"));
    let news: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(allow(&place, &news["approval"]["id"], &[]).code, 0);
    assert_eq!(waiting.payload()["ok"], true);
    lines.next().unwrap().unwrap();
    drop(watch);
    // The killed command's last request would have waited for 25 seconds. A question asked meanwhile would stay open until
    // its own time is over, although nobody can see it.
    let mut params = invoke("b.md", "x", "");
    params.as_object_mut().unwrap().remove("idempotencyKey");
    let refused = call(&place, &server, "tools.invoke", &params);
    assert!(refused.to_string().contains("no approval route"), "{refused}");
    server.stop();
}

#[test]
fn without_a_running_toolyard_and_for_an_unknown_question_the_next_step_is_named() {
    let place = Place::new();
    let none = place.run_bare(&["approvals", "list", "--json"]);
    assert_eq!((none.code, none.error_code().as_str()), (1, "UNAVAILABLE"), "{none:?}");
    assert!(none.json()["error"]["suggestion"].as_str().unwrap().contains("toolyard up"));
    assert_eq!(place.run_bare(&["grants", "list", "--json"]).json(), json!({"grants": []}));
    let server = place.up();
    assert_eq!(place.run_bare(&["approvals", "list", "--json"]).json(), json!({"approvals": []}));
    let unknown = place.run_bare(&["approvals", "allow", "policy:nope", "--json"]);
    assert_eq!((unknown.code, unknown.error_code().as_str()), (1, "NOT_FOUND"), "{unknown:?}");
    assert_eq!(place.run_bare(&["grants", "revoke", "nope", "--json"]).error_code(), "NOT_FOUND");
    server.stop();
}
