//! Notes through the real binary: index, search, status, rollback, a watching server, a damaged index, and kill -9 while
//! indexing.

use crate::harness::{PATIENCE, Place, Ran, is_lancedb, until};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

fn files(envelope: &Value) -> Vec<String> {
    let results = envelope["data"]["results"].as_array().unwrap_or_else(|| panic!("no results: {envelope:#}"));
    results.iter().map(|r| r["source_file"].as_str().unwrap().to_owned()).collect()
}

fn good(ran: Ran) -> Value {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json()
}

fn search(place: &Place, query: &str) -> Value {
    place.run(&["vault", "search", query, "--json", "-n", "50"]).json()
}

#[toolyard_shows::shows("000-2-11")]
#[test]
fn notes_are_indexed_searched_and_rolled_back() {
    let place = Place::new();
    place.note("Bike.md", "# Repair\nThe chain of the blue bicycle is rusty. #bike\n");
    place.note("Journal/2024-03-05.md", "#DayInShort\nRode the bicycle to work.\n");
    place.note("日記/猫.md", "私は黒い猫が好きです。\n");
    let missing = place.run(&["vault", "search", "bicycle", "--json"]);
    assert_eq!((missing.code, missing.json()["error"]["code"].as_str()), (1, Some("INDEX_NOT_FOUND")));

    let first = good(place.run(&["vault", "index", "--json"]));
    assert_eq!((first["data"]["state"].as_str(), first["data"]["indexed_files"].as_u64()), (Some("done"), Some(3)));
    let found = good(place.run(&["vault", "search", "rusty", "bicycle", "chain", "--json"]));
    assert_eq!((found["status"].as_str(), files(&found)[0].as_str()), (Some("healthy"), "Bike.md"));
    assert_eq!(files(&search(&place, "黒い猫"))[0], "日記/猫.md");
    let dated =
        good(place.run(&["vault", "search", "bicycle", "--from", "2024-03-01", "--to", "2024-03-31", "--json"]));
    assert_eq!(files(&dated), ["Journal/2024-03-05.md"]);
    let tagged = good(place.run(&["vault", "search", "bicycle", "--tag", "bike", "--folder", "Bike.md", "--json"]));
    assert_eq!(files(&tagged), ["Bike.md"]);
    let shown = place.run(&["vault", "search", "rusty chain", "--explain"]);
    assert!(shown.stdout.contains("Bike.md › Repair") && shown.stdout.contains("full_text"), "{shown:?}");

    place.note("Bike.md", "The bicycle was sold.\n");
    std::fs::remove_file(place.vault.join("日記/猫.md")).unwrap();
    let status = good(place.run(&["vault", "status", "--json"]));
    assert_eq!(status["data"]["unindexed_files"], 1);
    let second = good(place.run(&["vault", "index", "--json"]));
    assert_eq!(
        (second["data"]["indexed_files"].as_u64(), second["data"]["removed_files"].as_u64()),
        (Some(1), Some(1))
    );
    assert!(!files(&search(&place, "黒い猫")).contains(&"日記/猫.md".to_owned()));
    assert_ne!(first["meta"]["index_version"], second["meta"]["index_version"]);

    let back = place.run(&["vault", "rollback"]);
    assert!(back.code == 0 && back.stderr.contains("back at version"), "{back:?}");
    assert_eq!(files(&search(&place, "黒い猫"))[0], "日記/猫.md");
    let status = good(place.run(&["vault", "status", "--json", "--files", "all"]));
    assert_eq!(status["data"]["file_list"]["total"], 3);
    let none = place.run(&["vault", "rollback", "--json"]);
    assert_eq!((none.code, none.json()["error"]["code"].as_str()), (1, Some("INDEX_NOT_FOUND")));
    assert_eq!(none.json()["status"], "healthy", "the version that is there goes on answering");
}

#[test]
fn the_commands_say_what_they_cannot_do_and_what_they_left_out() {
    let place = Place::new();
    place.note("Colour.md", "The \u{1b}[31mred\u{1b}[0m bicycle\u{7}.\n");
    place.note("b.md", "One.\n");
    place.note("c.md", "Two.\n");
    let alone = place.run(&["vault", "index", "--detach", "--json"]);
    assert_eq!((alone.code, alone.error_code().as_str()), (1, "PRECONDITION_FAILED"), "{alone:?}");
    good(place.run(&["vault", "index", "--json"]));
    let nothing = place.run(&["vault", "index", "--cancel"]);
    assert!(nothing.code == 0 && nothing.stderr.contains("no job was running"), "{nothing:?}");
    let shown = place.run(&["vault", "search", "red", "bicycle"]);
    assert!(shown.stdout.contains("bicycle") && !shown.stdout.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    let page = place.run(&["vault", "status", "--files", "all", "--limit", "2"]);
    assert!(page.stderr.contains("2 of 3 files; --offset 2"), "{page:?}");
    let rest = good(place.run(&["vault", "status", "--files", "all", "--limit", "2", "--offset", "2", "--json"]));
    assert_eq!(rest["data"]["file_list"]["files"].as_array().unwrap().len(), 1);
    assert_eq!(place.run(&["vault", "status", "--offset", "2"]).code, 2, "an offset into nothing");
}

/// A watching server starts its own jobs; the requested job is reported too.
#[test]
fn index_tells_about_its_own_job_while_a_server_watches() {
    let place = Place::new();
    place.config("[knowledge.indexing]\ndebounceMs = 10\nwindowMs = 100\n");
    place.note("a.md", "The first note.\n");
    good(place.run(&["vault", "index", "--json"]));
    let _server = place.up();
    for round in 0..5 {
        place.note("a.md", &format!("The note of round {round}.\n"));
        let done = good(place.run(&["vault", "index", "--json"]));
        assert_eq!(done["data"]["state"], "done", "{done:#}");
        assert!(done["data"]["indexed_files"].is_u64() && done["data"]["started"] == true, "{done:#}");
    }
}

#[test]
fn facts_are_remembered_across_processes() {
    let place = Place::new();
    place.note("Bike.md", "The bicycle is blue.\n");
    good(place.run(&["vault", "index", "--json"]));
    let stored =
        place.call("obsidian_rag_memory_store", json!({"key": "bike-lock", "value": "code 4711", "source": "Bike.md"}));
    assert_eq!(stored["data"]["data"]["stored"], true, "{stored:#}");
    let found = search(&place, "code of the bike lock");
    assert_eq!(
        (found["data"]["results"][0]["kind"].as_str(), found["data"]["results"][0]["snippet"].as_str()),
        (Some("memory"), Some("code 4711"))
    );
    let outside = place.call("obsidian_rag_memory_store", json!({"key": "k", "value": "v", "source": "../x.md"}));
    assert_eq!(outside["data"]["error"]["code"], "SECURITY_VIOLATION");
}

#[test]
fn a_running_server_indexes_what_changes() {
    let place = Place::new();
    place.note("a.md", "The first note.\n");
    good(place.run(&["vault", "index", "--json"]));
    let _server = place.up();
    place.note("new.md", "A yellow submarine.\n");
    // The note may be older than the watcher; then the first scan of the vault finds it.
    until("the new note is found", || files(&search(&place, "yellow submarine")).contains(&"new.md".to_owned()));
    let status = good(place.run(&["vault", "status", "--json"]));
    assert_eq!(status["data"]["plugin_health"], "healthy");
}

fn below(folder: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(below(&path, part));
        } else if path.to_string_lossy().contains(part) {
            found.push(path);
        }
    }
    found
}

/// The matrix: LanceDB corrupted, by a shortened data file and by a damaged manifest.
#[toolyard_shows::shows("000-3-03")]
#[test]
#[ignore = "run by `make unit` with LanceDB's index program, whose files it damages"]
fn a_damaged_index_is_told_and_rebuilt() {
    assert!(is_lancedb(), "name LanceDB's index program in TOOLYARD_INDEX_PROGRAM, as `make unit` does");
    for part in ["obsidian_chunks.lance/data", "obsidian_chunks.lance/_versions"] {
        let place = Place::new();
        place.note("a.md", "The blue bicycle.\n");
        good(place.run(&["vault", "index", "--json"]));
        let damaged = below(&place.home.join("index"), part);
        assert!(!damaged.is_empty(), "{part}");
        for path in damaged {
            let length = std::fs::metadata(&path).unwrap().len();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
        }
        let broken = place.run(&["vault", "search", "bicycle", "--json"]);
        let envelope = broken.json();
        assert_eq!(
            (broken.code, envelope["status"].as_str(), envelope["error"]["code"].as_str()),
            (1, Some("unavailable"), Some("INDEX_CORRUPTED")),
            "{part}: {envelope:#}"
        );
        assert_eq!((envelope["error"]["recoverable"].as_bool(), envelope["data"].is_null()), (Some(true), true));
        let text = envelope.to_string().to_lowercase();
        assert!(!text.contains("lance") && !text.contains("panic") && !text.contains("/home/"), "nothing raw: {text}");
        good(place.run(&["vault", "index", "--rebuild", "--json"]));
        assert_eq!(files(&search(&place, "bicycle")), ["a.md"]);
    }
}

/// Healthy -> unavailable -> healthy: the index is deleted under a running server, and built again.
#[test]
fn a_deleted_index_is_unavailable_until_it_is_built_again() {
    let place = Place::new();
    place.config("[knowledge.indexing]\nwatch = false\n");
    place.note("a.md", "The blue bicycle.\n");
    good(place.run(&["vault", "index", "--json"]));
    let _server = place.up();
    assert_eq!(search(&place, "bicycle")["status"], "healthy");
    for entry in std::fs::read_dir(place.home.join("index")).unwrap() {
        for table in std::fs::read_dir(entry.unwrap().path()).unwrap() {
            let table = table.unwrap().path();
            if table.is_dir() {
                std::fs::remove_dir_all(table).unwrap();
            }
        }
    }
    let start = Instant::now();
    loop {
        let envelope = search(&place, "bicycle");
        if envelope["status"] == "unavailable" {
            assert_eq!(envelope["error"]["code"], "INDEX_NOT_FOUND", "{envelope:#}");
            break;
        }
        assert!(start.elapsed() < PATIENCE, "nobody noticed: {envelope:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
    good(place.run(&["vault", "index", "--json"]));
    let back = search(&place, "bicycle");
    assert_eq!((back["status"].as_str(), files(&back)), (Some("healthy"), vec!["a.md".to_owned()]));
}

#[test]
fn a_misspelt_option_of_the_object_store_is_refused_by_name() {
    let place = Place::new();
    place.config("[knowledge.index.storageOptions]\nregoin = \"eu-west-1\"\n");
    let ran = place.run(&["vault", "status", "--json"]);
    let told = format!("{ran:?}");
    assert!(ran.code == 1 && told.contains("CONFIG_INVALID") && told.contains("regoin"), "{told}");
}

/// The index on an object store, by configuration alone.
#[test]
#[ignore = "run by `make object-store`"]
fn object_store_keeps_the_index_of_the_program() {
    let endpoint = std::env::var("TOOLYARD_S3_ENDPOINT").expect("run it with `make object-store`");
    let place = Place::new();
    place.config(&format!(
        "[knowledge.index]\nuri = \"s3://notes/program\"\nstorageOptions = {{ endpoint = \"{endpoint}\", region = \"us-east-1\", \
         allow_http = \"true\", virtual_hosted_style_request = \"false\" }}\n"
    ));
    place.note("a.md", "The blue bicycle.\n");
    let run = |args: &[&str]| {
        let vault = place.vault.display().to_string();
        let mut command = place.command(&[&["--vault", vault.as_str()], args].concat());
        let out = command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test").output().unwrap();
        serde_json::from_slice::<Value>(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
    };
    assert_eq!(run(&["vault", "index", "--json"])["data"]["state"], "done");
    assert_eq!(files(&run(&["vault", "search", "bicycle", "--json"])), ["a.md"]);
    place.note("b.md", "The bicycle was sold.\n");
    run(&["vault", "index", "--json"]);
    assert_eq!(files(&run(&["vault", "search", "bicycle", "--json"])).len(), 2);
    assert!(below(&place.home, ".lance").is_empty(), "nothing of it lies on this machine");
    let back = run(&["vault", "rollback", "--json"]);
    assert!(back["error"].is_null(), "{back:#}");
    assert_eq!(files(&run(&["vault", "search", "bicycle", "--json"])), ["a.md"]);
}

pub(crate) fn make_vault(folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/make_test_vault.py");
    let made = Command::new("python3").arg(script).arg(folder).output().expect("python3 is there");
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn the_generated_vault_is_indexed_with_a_reason_for_every_file() {
    let place = Place::new();
    make_vault(&place.vault);
    let done = good(place.run(&["vault", "index", "--full", "--json"]));
    assert!(done["data"]["indexed_files"].as_u64().unwrap() >= 300, "{done:#}");
    let status = good(place.run(&["vault", "status", "--json", "--files", "skipped"]));
    let skipped: Vec<(&str, &str)> = status["data"]["file_list"]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["path"].as_str().unwrap(), f["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(skipped, [("Binary.md", "not text"), ("Latin1.md", "not UTF-8")]);
    assert_eq!(
        (status["data"]["files"]["empty"].as_u64(), status["data"]["unindexed_files"].as_u64()),
        (Some(2), Some(0))
    );
    for (question, answer) in
        [("mood calm place home", "Only front matter.md"), ("Text after the mark", "Byte order mark.md")]
    {
        assert_eq!(files(&search(&place, question))[0], answer);
    }
    let again = good(place.run(&["vault", "index", "--json"]));
    assert_eq!(
        (again["data"]["indexed_files"].as_u64(), again["data"]["embedded_chunks"].as_u64()),
        (Some(0), Some(0))
    );
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn notes_below(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = below(folder, ".md");
    // The folder itself may lie below a hidden one; what is hidden in it is no note.
    found.retain(|path| {
        path.strip_prefix(folder)
            .is_ok_and(|inside| !inside.components().any(|c| c.as_os_str().to_string_lossy().starts_with('.')))
    });
    found.sort();
    found
}

/// Kill -9 while indexing, at seeded points: the last complete version answers, incomplete work is not visible, and the
/// next job finishes it.
#[test]
#[ignore = "run by `make crash`, which is part of `make test`"]
fn crash_while_indexing_leaves_the_last_complete_version() {
    let points = setting("TOOLYARD_NOTES_CRASH_POINTS", 6);
    let seed = setting("TOOLYARD_CRASH_SEED", 42);
    let place = Place::new();
    make_vault(&place.vault);
    let marked = |round: u64| {
        let mut count = 0;
        for path in notes_below(&place.vault).iter().filter(|p| p.to_string_lossy().contains("Projects")) {
            std::fs::write(path, format!("# Marked\nEvery one of these notes has the word markerword{round}.\n"))
                .unwrap();
            count += 1;
        }
        assert!(count > 50);
        count
    };
    marked(0);
    good(place.run(&["vault", "index", "--json"]));
    // How long a job takes here, to spread the points over it.
    marked(1);
    let done = good(place.run(&["vault", "index", "--json"]));
    let whole = Duration::from_millis(done["data"]["duration_ms"].as_u64().unwrap());
    let record = below(&place.home.join("index"), "job.json").remove(0);
    let mut random = seed | 1;
    let (mut interrupted, mut completed) = (0, 0);
    for round in 2..points + 2 {
        marked(round);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = whole.mul_f64(1.1 * ((random >> 33) % 1_000) as f64 / 1_000.0);
        let vault = place.vault.display().to_string();
        let before = std::fs::read(&record).unwrap();
        let mut child = place.command(&["--vault", &vault, "vault", "index", "--json"]).spawn().unwrap();
        let start = Instant::now();
        while std::fs::read(&record).unwrap() == before && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "round {round}: the job never began");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        let _ = child.kill();
        let _ = child.wait();

        let count = |word: &str| {
            let found = search(&place, word);
            let results = found["data"]["results"].as_array().unwrap_or_else(|| panic!("round {round}: {found:#}"));
            results.iter().filter(|r| r["chunk_text"].as_str().is_some_and(|t| t.contains(&format!("{word}.")))).count()
        };
        let (new, old) = (count(&format!("markerword{round}")), count(&format!("markerword{}", round - 1)));
        assert!((new == 50 && old == 0) || (new == 0 && old == 50), "round {round}, half done: {new} new, {old} old");
        if new == 0 {
            interrupted += 1
        } else {
            completed += 1
        }
        let finished = good(place.run(&["vault", "index", "--json"]));
        assert_eq!(finished["data"]["state"], "done");
        assert_eq!(
            (count(&format!("markerword{round}")), count(&format!("markerword{}", round - 1))),
            (50, 0),
            "round {round}"
        );
        let status = good(place.run(&["vault", "status", "--json"]));
        assert_eq!(
            (status["data"]["unindexed_files"].as_u64(), status["data"]["plugin_health"].as_str()),
            (Some(0), Some("healthy"))
        );
    }
    println!("{points} points: {interrupted} interrupted, {completed} had completed");
    assert!(interrupted > 0, "every run had completed before it was killed");
}

/// A killed indexer is reported, and a server continues its work.
#[toolyard_shows::shows("000-3-06")]
#[test]
fn a_server_takes_up_a_killed_indexer() {
    let place = Place::new();
    make_vault(&place.vault);
    let vault = place.vault.display().to_string();
    let mut child = place.command(&["--vault", &vault, "vault", "index", "--json"]).spawn().unwrap();
    let job = place.home.join("index");
    let start = Instant::now();
    while below(&job, "job.json").is_empty() {
        assert!(start.elapsed() < PATIENCE, "the job never began");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let interrupted = place.run(&["vault", "search", "garden", "--json"]).json();
    assert_eq!(
        (interrupted["status"].as_str(), interrupted["error"]["code"].as_str()),
        (Some("unavailable"), Some("INDEXER_FAILED")),
        "{interrupted:#}"
    );
    let _server = place.up();
    let start = Instant::now();
    while search(&place, "garden")["data"].is_null() {
        assert!(start.elapsed() < PATIENCE, "the work was never finished");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn evaluation_prints_the_three_ways() {
    let place = Place::new();
    let write = |name: &str, text: &str| {
        let path = place.vault.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let corpus = write(
        "corpus.jsonl",
        "{\"_id\":\"1\",\"title\":\"Bicycle\",\"text\":\"The blue bicycle has a rusty chain.\"}\n{\"_id\":\"2\",\"title\":\"Bread\",\"text\":\"Yeast makes the dough rise.\"}\n",
    );
    let queries = write(
        "queries.jsonl",
        "{\"_id\":\"q1\",\"text\":\"rusty bike chain\"}\n{\"_id\":\"q2\",\"text\":\"how does dough rise\"}\n",
    );
    let qrels = write("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\t1\t1\nq2\t2\t1\n");
    let report =
        good(place.run(&["eval", "notes", "--corpus", &corpus, "--queries", &queries, "--qrels", &qrels, "--json"]));
    for way in ["full_text", "vector", "fused"] {
        assert_eq!(report[way]["ndcg10"], 1.0, "{report:#}");
        assert!(report[way]["p50_ms"].as_f64().is_some() && report[way]["recall100"].as_f64().is_some());
    }
    let bad = place.run(&["eval", "notes", "--corpus", &corpus, "--queries", &queries, "--qrels", &corpus, "--json"]);
    assert_eq!((bad.code, bad.error_code().as_str()), (1, "VALIDATION_ERROR"));
}
