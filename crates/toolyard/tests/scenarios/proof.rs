//! The proof of the record with the real program: heads, receipts, keys, and attacks on its files between two starts.

use crate::harness::{Place, Ran};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::Command,
};

/// Attacks without the key on the database, as SQL, or on the file of heads.
const ATTACKS: [&str; 11] = [
    "UPDATE frames SET payload = zeroblob(length(payload)) WHERE id = (SELECT max(id) - 1 FROM frames)",
    "DELETE FROM frames WHERE id = (SELECT max(id) FROM frames)",
    "UPDATE runs SET title = 'another'",
    "DELETE FROM runs WHERE no = (SELECT min(no) FROM runs)",
    "DELETE FROM ledger WHERE seq = (SELECT max(seq) FROM ledger)",
    "UPDATE ledger SET payload = CAST(replace(CAST(payload AS TEXT), '\"seq\":', '\"seq\":1') AS BLOB) WHERE seq = 1",
    "DELETE FROM blobs WHERE id = (SELECT min(id) FROM blobs)",
    "UPDATE runs SET no = no + 17179869184 WHERE no = 1",
    "UPDATE frames SET kind = kind + 33554432 WHERE id = (SELECT max(id) FROM frames)",
    "heads",
    "ledger",
];

fn note(place: &Place, n: u32) -> Value {
    let result = place.call("vault.createFile", json!({"path": format!("n{n}.md"), "content": format!("note {n}")}));
    assert_eq!(result["status"], "ok", "{result}");
    result
}

fn verify(place: &Place, more: &[&str]) -> Ran {
    let mut args = vec!["runs", "verify", "--json"];
    args.extend(more);
    place.run(&args)
}

fn sql(state: &Path, statement: &str) {
    let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\nchanged = db.execute(sys.argv[2]).rowcount\n\
                  db.commit()\ndb.close()\nsys.exit(0 if changed > 0 else 1)";
    let database = state.join("toolyard.db");
    let status = Command::new("python3").arg("-c").arg(script).arg(database).arg(statement).status().unwrap();
    assert!(status.success(), "{statement} failed or changed nothing");
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_plain_verify_finds_what_was_done_to_the_files_between_two_starts() {
    let place = Place::new();
    (1..=3).for_each(|n| drop(note(&place, n)));
    let good = verify(&place, &[]);
    assert_eq!((good.code, good.json()["ok"].as_bool()), (0, Some(true)), "{good:?}");
    let head = place.run(&["runs", "head", "--json"]);
    let kept = place.vault.parent().unwrap().join("head.json");
    fs::write(&kept, &head.stdout).unwrap();
    let state = place.home.join("state");
    let saved = place.vault.parent().unwrap().join("saved");
    copy(&state, &saved);
    let attacked = |attack: &str| match attack {
        "heads" => fs::write(state.join("heads.jsonl"), "").unwrap(),
        // The ledger begins anew, without one of the runs.
        "ledger" => {
            fs::write(state.join("heads.jsonl"), "").unwrap();
            sql(&state, "DELETE FROM ledger");
            sql(&state, "DELETE FROM frames WHERE id >> 32 = 2");
            sql(&state, "DELETE FROM runs WHERE no = 2");
        }
        statement => sql(&state, statement),
    };
    for attack in ATTACKS {
        fs::remove_dir_all(&state).unwrap();
        copy(&saved, &state);
        attacked(attack);
        drop(place.up());
        let found = verify(&place, &[]);
        assert_eq!(found.code, 1, "{attack}: {found:?}");
        assert!(found.json()["firstBad"]["problem"].is_string(), "{attack}: {found:?}");
    }
    // An older copy of everything: only a head that was kept elsewhere reveals it.
    fs::remove_dir_all(&state).unwrap();
    copy(&saved, &state);
    note(&place, 4);
    let newer = place.run(&["runs", "head", "--json"]);
    fs::write(&kept, &newer.stdout).unwrap();
    let kept = kept.display().to_string();
    assert_eq!(verify(&place, &["--head", &kept]).code, 0);
    fs::remove_dir_all(&state).unwrap();
    copy(&saved, &state);
    assert_eq!(verify(&place, &[]).code, 0, "it verifies as far as it goes");
    let found = verify(&place, &["--head", &kept]);
    assert_eq!(found.code, 1);
    assert!(found.json()["firstBad"]["problem"].as_str().unwrap().contains("rolled back"), "{found:?}");
}

#[test]
fn a_receipt_outlives_its_key_and_heads_are_kept_where_the_configuration_says() {
    let place = Place::new();
    let elsewhere = place.vault.parent().unwrap().join("elsewhere.jsonl");
    place.config(&format!("[record]\nheads = [\"{}\"]\nheadsEverySeconds = 0\n", elsewhere.display()));
    let first = note(&place, 1);
    let (run, call) = (first["runId"].as_str().unwrap(), first["callId"].as_str().unwrap());
    let file = |name: &str| place.vault.parent().unwrap().join(name).display().to_string();
    for (id, name) in [(run, "run.json"), (call, "call.json")] {
        let proved = place.run(&["runs", "prove", id, "--out", &file(name), "--json"]);
        assert_eq!(proved.code, 0, "{proved:?}");
    }
    let before = place.run(&["keys", "list", "--json"]).json();
    assert_eq!(before["keys"].as_array().unwrap().len(), 1);
    let rotated = place.run(&["keys", "rotate", "--json"]).json();
    assert_eq!(rotated["keys"].as_array().unwrap().len(), 2, "{rotated}");
    assert_eq!(rotated["keys"][0]["key"], before["keys"][0]["key"]);
    note(&place, 2);
    let report = verify(&place, &[]);
    assert_eq!((report.code, report.json()["keys"].as_u64()), (0, Some(2)), "{report:?}");
    for name in ["run.json", "call.json"] {
        let report = verify(&place, &["--receipt", &file(name)]);
        assert_eq!((report.code, report.json()["ok"].as_bool()), (0, Some(true)), "{report:?}");
    }
    let text = fs::read_to_string(file("run.json")).unwrap();
    fs::write(file("forged.json"), text.replace(run, "00000000-0000-7000-8000-000000000000")).unwrap();
    assert_eq!(verify(&place, &["--receipt", &file("forged.json")]).code, 1);
    let heads = fs::read_to_string(&elsewhere).unwrap();
    assert!(heads.lines().count() >= 3, "{heads}");
    let kept = elsewhere.display().to_string();
    assert_eq!(verify(&place, &["--head", &kept]).code, 0, "a file of many heads");
    let tiles = place.run(&["runs", "head", "--tiles", &file("tiles"), "--json"]);
    assert_eq!(tiles.code, 0, "{tiles:?}");
    assert!(Path::new(&file("tiles")).join("checkpoint").exists());
}

#[test]
fn heads_are_sent_to_an_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let place = Place::new();
    place.config(&format!("[record]\nheads = [\"http://{address}/topic\"]\nheadsEverySeconds = 0\n"));
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        (head, String::from_utf8(body).unwrap())
    });
    note(&place, 1);
    let (head, body) = receiver.join().unwrap();
    assert!(head.starts_with("POST /topic "), "{head}");
    let kept = place.vault.with_file_name("kept.json");
    fs::write(&kept, body).unwrap();
    let report = verify(&place, &["--head", kept.to_str().unwrap()]);
    assert_eq!(report.code, 0, "what was sent is a head of this ledger: {report:?}");
}

/// The files of a rotation that was killed before (`named` is false) or after the ledger named the next key, and before
/// the next key was the one in use.
fn cut_rotation_short(place: &Place, named: bool) -> (Vec<u8>, Vec<u8>) {
    let state = place.home.join("state");
    let (key, next, heads) = (state.join("signing.key"), state.join("signing.key.next"), state.join("heads.jsonl"));
    let (old, kept) = (fs::read(&key).unwrap(), fs::read(&heads).unwrap());
    let rotated = place.run(&["keys", "rotate", "--json"]);
    assert_eq!(rotated.code, 0, "{rotated:?}");
    let new = fs::read(&key).unwrap();
    fs::rename(&key, &next).unwrap();
    fs::copy(&next, &key).unwrap();
    fs::write(&key, &old).unwrap();
    fs::write(&heads, kept).unwrap();
    for _ in 0..if named { 1 } else { 2 } {
        sql(&state, "DELETE FROM ledger WHERE seq = (SELECT max(seq) FROM ledger)");
    }
    (old, new)
}

#[test]
fn a_rotation_that_was_cut_short_is_finished_or_taken_back_at_the_next_start() {
    for named in [true, false] {
        let place = Place::new();
        note(&place, 1);
        let (old, new) = cut_rotation_short(&place, named);
        note(&place, 2);
        let state = place.home.join("state");
        assert_eq!(fs::read(state.join("signing.key")).unwrap(), if named { new } else { old }, "named: {named}");
        assert!(!state.join("signing.key.next").exists());
        let report = verify(&place, &[]);
        assert_eq!(report.code, 0, "named: {named}: {report:?}");
        assert_eq!(report.json()["keys"], if named { 2 } else { 1 }, "{report:?}");
    }
}
