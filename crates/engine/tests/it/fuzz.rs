//! Plan parsing and checking under random damage: an answer every time, never a panic, and what is accepted runs.
//!
//! The seeds are fixed, so that a failure comes back; `fuzz_plan` is what a coverage-guided fuzzer would be pointed at.

use serde_json::{Value, json};
use toolyard_catalog::{Policy, PolicyConfig, Snapshot, Subject};
use toolyard_engine::plan::{check::check, parse_plan};

/// Takes any bytes.
fn fuzz_plan(bytes: &[u8]) -> bool {
    let Ok(plan) = parse_plan(bytes) else { return false };
    let policy = Policy::compile(&PolicyConfig::default()).unwrap();
    let policy = policy.effective(&Subject { agent: "a", session: None, door: "cli", scopes: &[] });
    let (report, compiled) = check(&plan, &Snapshot::empty(), &policy);
    assert_eq!(report.ok, compiled.is_some());
    assert!(report.ok || report.to_failure().is_some(), "what cannot be run says why");
    // A plan that was read is written and read again as itself.
    let text = serde_json::to_vec(&plan).unwrap();
    assert_eq!(parse_plan(&text).unwrap(), plan);
    true
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn seed_plans() -> Vec<Value> {
    let step = json!({"id":"a","tool":"x.y","args":{"p":"$steps.b.items[0]","q":["{item.n}","{{z}}","$$run.id"],"n":1.5},
        "dependsOn":["b"],"foreach":{"from":"$steps.b.items","itemName":"item","concurrency":2},"captureAs":"v.w",
        "onError":"retry","retry":{"maxAttempts":3,"backoffMs":10},"timeoutMs":5,"tags":["t"],"preview":"p"});
    let plan = json!({"version":"1.0","goal":"g","riskLevel":"writes","assumptions":["x"],"contextRequests":[{"kind":"selection"}],
        "defaults":{"onError":"stop","retry":{"maxAttempts":2}},"steps":[step,{"id":"b","tool":"z","args":{}}],
        "outputs":{"showCreatedFiles":false},"uiHints":{"title":"t"}});
    vec![plan, json!({"version":"1.0","goal":"g","riskLevel":"read-only","steps":[{"id":"a","tool":"t","args":{}}]})]
}

#[test]
fn damaged_bytes_are_refused_or_read_and_never_panic() {
    let mut random = Random(7);
    let mut accepted = 0;
    for plan in seed_plans() {
        let original = plan.to_string().into_bytes();
        assert!(fuzz_plan(&original), "the seed itself is read");
        for _ in 0..4000 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes[at] = random.next() as u8,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"{}[]\",:$\\0e-"[random.below(12)]),
                    _ => {
                        let from = random.below(bytes.len());
                        let piece: Vec<u8> = bytes[from..(from + random.below(12)).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
            }
            accepted += u32::from(fuzz_plan(&bytes));
        }
    }
    assert!(accepted > 100, "some damage is harmless, so the checks behind parsing were reached: {accepted}");
}

#[test]
fn random_json_in_every_place_is_answered() {
    let mut random = Random(11);
    let odd = [
        json!(null),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!("$steps."),
        json!("$vars.v.w[99999999999]"),
        json!("{item"),
        json!([]),
        json!({}),
        json!([[[[]]]]),
        json!({"a":{"b":{"c":1}}}),
        json!("\u{0}\u{202e}"),
        json!("x".repeat(5000)),
        json!(true),
    ];
    for plan in seed_plans() {
        let mut pointers = Vec::new();
        collect(&plan, String::new(), &mut pointers);
        for pointer in &pointers {
            for value in &odd {
                let mut changed = plan.clone();
                *changed.pointer_mut(pointer).unwrap() = value.clone();
                if random.below(3) == 0 {
                    let other = &pointers[random.below(pointers.len())];
                    if let Some(place) = changed.pointer_mut(other) {
                        *place = odd[random.below(odd.len())].clone();
                    }
                }
                fuzz_plan(changed.to_string().as_bytes());
            }
        }
    }
}

fn collect(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(k, v)| collect(v, format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), out))
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| collect(v, format!("{at}/{i}"), out)),
        _ => {}
    }
    out.push(at);
}
