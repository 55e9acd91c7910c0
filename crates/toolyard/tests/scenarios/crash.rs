//! The crash test: SIGKILL at seeded random points of a 200-step mixed plan, resume, count.
//!
//! `make crash` runs it with a few points, `make crash CRASH_POINTS=1000` in full. `TOOLYARD_CRASH_SEED` sets the seed.

use crate::{harness::Place, random::Random};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};

/// 200 steps: appends (which would show a repetition), creates, patches, renames with links, deletes, reads, a loop.
fn mixed_plan() -> Value {
    let mut steps: Vec<Value> = Vec::new();
    let mut add = |tool: &str, args: Value, extra: Value| {
        let mut step = json!({"id": format!("s{}", steps.len()), "tool": tool, "args": args});
        for (k, v) in extra.as_object().unwrap() {
            step[k] = v.clone();
        }
        steps.push(step);
    };
    for i in 0..20 {
        add("vault.writeFile", json!({"path":"log.md","content":format!("append {i}\n"),"mode":"append"}), json!({}));
        add(
            "vault.createFile",
            json!({"path":format!("made/{}/note {i}.md", i % 3),"content":format!("# Note {i}\n\nsee [[target {i}]]\n")}),
            json!({}),
        );
        add(
            "vault.createFile",
            json!({"path":format!("target {i}.md"),"content":format!("# Target {i}\n\n## Items\n\n- one\n")}),
            json!({}),
        );
        add("vault.readFile", json!({"path":format!("target {i}.md")}), json!({}));
        add(
            "vault.patchFile",
            json!({"path":format!("target {i}.md"),"patch":{"operations":[{"op":"insert","target":{"type":"heading","path":[format!("Target {i}"),"Items"]},"position":"end","value":format!("- patched {i}\n")}]}}),
            json!({}),
        );
        add("util.slugifyTitle", json!({"title":format!("Step {i}")}), json!({}));
        add(
            "vault.rename",
            json!({"fromPath":format!("target {i}.md"),"toPath":format!("moved/target {i} moved.md")}),
            json!({}),
        );
        add("vault.ensureFolder", json!({"path":format!("folder {i}")}), json!({}));
        add("vault.createFile", json!({"path":format!("short lived {i}.md"),"content":"gone soon"}), json!({}));
        add("vault.delete", json!({"path":format!("short lived {i}.md")}), json!({}));
    }
    json!({"version":"1.0","goal":"a bit of everything","riskLevel":"writes","steps":steps})
}

/// Every file with its content, the trash included; staged leftovers must not be there.
fn contents(root: &Path) -> BTreeMap<String, String> {
    fn walk(root: &Path, dir: &Path, out: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                out.insert(name + "/", String::new());
                walk(root, &path, out);
            } else {
                out.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(root, root, &mut out);
    out
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "run by `make crash`, which is part of `make test`"]
fn crash_points_lose_nothing_and_repeat_nothing() {
    let points = setting("TOOLYARD_CRASH_POINTS", 40);
    let seed = setting("TOOLYARD_CRASH_SEED", 2026);
    let plan = mixed_plan();

    // Three runs without a kill give the expected vault and the shortest duration of a run.
    let mut took = Duration::MAX;
    let mut expected = BTreeMap::new();
    for _ in 0..3 {
        let reference = Place::new();
        let file = reference.plan(&plan);
        let begun = Instant::now();
        let ran = reference.run(&["plan", "run", &file, "--yes", "--json"]);
        took = took.min(begun.elapsed());
        assert_eq!(ran.code, 0, "{ran:?}");
        expected = contents(&reference.vault);
    }
    assert_eq!(expected["log.md"].lines().count(), 20);

    let (mut kills, mut before_start, mut finished_anyway) = (0u64, 0u64, 0u64);
    for point in 0..points {
        let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(point));
        let place = Place::new();
        let file = place.plan(&plan);
        let vault = place.vault.display().to_string();
        let mut command = vec![
            "--vault".to_owned(),
            vault.clone(),
            "plan".into(),
            "run".into(),
            file.clone(),
            "--yes".into(),
            "--json".into(),
        ];
        // In some rounds the resumed run is killed as well.
        let rounds = 1 + u64::from(random.below(4) == 0) + u64::from(random.below(16) == 0);
        for _ in 0..rounds {
            let argv: Vec<&str> = command.iter().map(String::as_str).collect();
            let mut child = place.command(&argv).spawn().unwrap();
            let delay = Duration::from_micros(random.below((took.as_micros() as u64 * 21) / 20));
            let begun = Instant::now();
            let mut ended = false;
            while begun.elapsed() < delay {
                if child.try_wait().unwrap().is_some() {
                    ended = true;
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            if ended {
                finished_anyway += 1;
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            let runs = place.run(&["--in-process", "runs", "list", "--json"]).json();
            match runs["runs"].as_array().unwrap().first() {
                None => {
                    before_start += 1;
                    assert!(contents(&place.vault).is_empty(), "point {point}: an effect without a record");
                    break;
                }
                Some(run) => {
                    command = vec![
                        "--vault".into(),
                        vault.clone(),
                        "runs".into(),
                        "resume".into(),
                        run["runId"].as_str().unwrap().into(),
                        "--json".into(),
                    ]
                }
            }
        }
        let runs = place.run(&["runs", "list", "--json"]).json();
        let run = match runs["runs"].as_array().unwrap().first() {
            None => {
                let ran = place.run(&["plan", "run", &file, "--yes", "--json"]);
                assert_eq!(ran.code, 0, "point {point}: {ran:?}");
                ran.json()["runId"].as_str().unwrap().to_owned()
            }
            Some(row) => {
                let run = row["runId"].as_str().unwrap().to_owned();
                if row["status"] != "finished" {
                    let ran = place.run(&["runs", "resume", &run, "--json"]);
                    assert_eq!(
                        (ran.code, ran.json()["status"].clone()),
                        (0, json!("finished")),
                        "point {point}: {ran:?}"
                    );
                }
                run
            }
        };
        let found = contents(&place.vault);
        for (path, content) in &expected {
            assert_eq!(found.get(path), Some(content), "point {point}: {path} is lost or wrong");
        }
        for path in found.keys() {
            assert!(expected.contains_key(path), "point {point}: {path} should not be there");
        }
        let verified = place.run(&["runs", "verify", &run, "--json"]);
        assert_eq!(verified.json()["ok"], true, "point {point}: {verified:?}");
        one_result_for_each_call(&place, &run, point);
    }
    println!(
        "{}",
        json!({"bench":"crash","points":points,"seed":seed,"kills":kills,"before_start":before_start,"finished_anyway":finished_anyway,"lost":0,"repeated":0,"run_ms":took.as_millis() as u64})
    );
}

fn one_result_for_each_call(place: &Place, run: &str, point: u64) {
    let shown = place.run(&["runs", "show", run, "--json"]).json();
    let ids = |key: &str| -> Vec<String> {
        shown[key].as_array().unwrap().iter().map(|c| c["callId"].as_str().unwrap().to_owned()).collect()
    };
    let (calls, results) = (ids("calls"), ids("results"));
    let distinct: HashSet<&String> = results.iter().collect();
    assert_eq!(distinct.len(), results.len(), "point {point}: a call has two results");
    assert!(calls.iter().all(|c| distinct.contains(c)), "point {point}: a call has no result");
}
