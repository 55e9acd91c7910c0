//! Any small plan that is interrupted at any place ends as if it had not been interrupted.

use crate::{
    files::Tree,
    recovery::{assert_sound, wreck},
    support::{bench, plan, within, yolo},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use toolyard_protocol::{ActionPlan, RunStatus};

#[derive(Debug, Clone)]
enum Kind {
    Read(u8),
    Write(u8, u8),
    Append(u8, u8),
    Delete(u8),
    Copy(usize, u8),
    Loop(Vec<u8>, u8, u32),
    Flaky(u8),
    Fails,
    Same,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => (0..3u8).prop_map(Kind::Read),
        2 => (0..3u8, any::<u8>()).prop_map(|(f, c)| Kind::Write(f, c)),
        3 => (0..3u8, any::<u8>()).prop_map(|(f, c)| Kind::Append(f, c)),
        1 => (0..3u8).prop_map(Kind::Delete),
        2 => (0..8usize, 0..3u8).prop_map(|(s, f)| Kind::Copy(s, f)),
        2 => (prop::collection::vec(any::<u8>(), 0..4), 0..3u8, 1..3u32).prop_map(|(i, f, c)| Kind::Loop(i, f, c)),
        1 => (0..3u8).prop_map(Kind::Flaky),
        1 => Just(Kind::Fails),
        1 => Just(Kind::Same),
    ]
}

/// `(kind, depends on an earlier step, onError)` for each step.
type Shape = Vec<(Kind, Option<usize>, u8)>;

fn to_plan(shape: &Shape) -> ActionPlan {
    let mut steps: Vec<Value> = Vec::new();
    for (i, (kind, depends, on_error)) in shape.iter().enumerate() {
        let id = format!("s{i}");
        let file = |f: &u8| format!("f{f}.md");
        let mut step = match kind {
            Kind::Read(f) => json!({"tool": "file.read", "args": {"path": file(f)}}),
            Kind::Write(f, c) => json!({"tool": "file.write", "args": {"path": file(f), "content": format!("w{c}")}}),
            Kind::Append(f, c) => json!({"tool": "file.append", "args": {"path": file(f), "text": format!("+{c}")}}),
            Kind::Delete(f) => json!({"tool": "file.delete", "args": {"path": file(f)}}),
            Kind::Copy(from, f) => {
                // From an earlier step that wrote something: its etag is as good a text as any.
                let earlier: Vec<usize> = (0..i)
                    .filter(|&j| matches!(shape[j].0, Kind::Write(..) | Kind::Append(..) | Kind::Copy(..)))
                    .collect();
                let text = match earlier.get(from % earlier.len().max(1)) {
                    Some(j) => format!("$steps.s{j}.etag"),
                    None => "nothing before".to_owned(),
                };
                json!({"tool": "file.append", "args": {"path": file(f), "text": text}})
            }
            Kind::Loop(items, f, concurrency) => {
                steps.push(json!({"id": format!("l{i}"), "tool": "lab.items", "args": {"items": items.iter().map(|i| format!("<{i}>")).collect::<Vec<_>>()}}));
                // Side by side only when each iteration has a file of its own: otherwise the order would be anybody's.
                let path = if *concurrency > 1 { format!("f{f}-{{index}}.md") } else { file(f) };
                json!({"tool": "file.append", "args": {"path": path, "text": "{item}"},
                       "foreach": {"from": format!("$steps.l{i}.items"), "itemName": "item", "concurrency": concurrency}})
            }
            Kind::Flaky(n) => {
                json!({"tool": "lab.flaky", "args": {"key": id, "failures": n}, "retry": {"maxAttempts": 3, "backoffMs": 2}})
            }
            Kind::Fails => json!({"tool": "lab.flaky", "args": {"key": id, "failures": 99, "retryable": false}}),
            Kind::Same => json!({"tool": "lab.same", "args": {"value": i}}),
        };
        step["id"] = id.into();
        if let Some(d) = depends.filter(|_| i > 0) {
            step["dependsOn"] = json!([format!("s{}", d % i)]);
        }
        match on_error {
            0 => {}
            1 => step["onError"] = "skip".into(),
            2 => step["onError"] = "retry".into(),
            _ => {}
        }
        if matches!(kind, Kind::Flaky(_)) {
            step["onError"] = "retry".into();
        }
        steps.push(step);
    }
    plan(Value::Array(steps))
}

/// Each case is a whole run and three recoveries; `PROPTEST_CASES` asks for more of them.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_crash_at_any_record_of_any_plan_changes_nothing_in_the_end(
        shape in prop::collection::vec((kind(), prop::option::of(0..8usize), 0..3u8), 1..7),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 3),
    ) {
        let plan = to_plan(&shape);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let original = bench();
            let start = Tree::from([("f0.md".to_owned(), "zero".to_owned())]);
            original.disk.set("f0.md", "zero");
            let whole = original.run_plan(&plan).await;
            prop_assert!(matches!(whole.status, RunStatus::Finished | RunStatus::Failed), "{:?}", whole);
            let end = original.disk.snapshot();
            let n = original.store.kept_frames(whole.run_id).len();
            for (at, happened) in &cuts {
                let k = 2 + at.index(n - 1);
                let b = wreck(&original, &start, whole.run_id, k, *happened).bench(yolo());
                within(b.engine.recover()).await.unwrap();
                let status = b.until_settled(whole.run_id).await;
                let context = format!("cut after {k} of {n}, effect {happened}");
                prop_assert_eq!(status, whole.status, "{}", &context);
                prop_assert_eq!(&b.disk.snapshot(), &end, "{}", &context);
                let applied = b.disk.applied.lock().unwrap().clone();
                prop_assert!(applied.values().all(|n| *n == 1), "{}", &context);
                prop_assert_eq!(applied.len(), original.disk.applied.lock().unwrap().len(), "{}", &context);
                assert_sound(&b, whole.run_id, &context);
            }
            Ok(())
        })?;
    }
}
