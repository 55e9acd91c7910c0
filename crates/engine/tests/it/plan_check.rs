//! What is wrong with a plan is found before a step runs.

use crate::support::{agent, approved, bench, bench_under, failure_code, person, plan, plan_of};
use serde_json::{Value, json};
use toolyard_engine::plan::{CheckReport, parse_plan};

fn check(steps: Value) -> CheckReport {
    // Checking needs no runtime; the bench does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { bench().engine.check_plan(&person(), &plan(steps)) })
}

fn error(report: &CheckReport) -> (&str, &str, &str) {
    assert!(!report.ok);
    let first = &report.errors[0];
    (first.kind.as_ref(), &first.path, &first.message)
}

#[test]
fn an_unknown_tool_is_named_with_a_suggestion() {
    let report = check(json!([{"id": "a", "tool": "lab.ecko", "args": {}}]));
    let (kind, path, message) = error(&report);
    assert_eq!((kind, path), ("tool", "/steps/0/tool"));
    assert!(message.contains("lab.ecko") && message.contains("lab.echo"), "{message}");
}

#[test]
fn suggestions_do_not_give_away_hidden_tools() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let b = bench_under(json!({"deny": ["lab.echo"]}));
        let report = b.engine.check_plan(&agent(), &plan(json!([{"id": "a", "tool": "lab.ecko", "args": {}}])));
        assert!(!report.errors[0].message.contains("lab.echo"), "{}", report.errors[0].message);
    });
}

#[test]
fn circles_are_shown() {
    let report = check(json!([
        {"id": "a", "tool": "lab.echo", "args": {"value": "$steps.c.value"}},
        {"id": "b", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["a"]},
        {"id": "c", "tool": "lab.echo", "args": {"value": "$steps.b.value"}}]));
    let (kind, _, message) = error(&report);
    assert_eq!(kind, "dependency");
    assert!(message.contains("a -> c -> b -> a"), "{message}");
    let report = check(json!([{"id": "a", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["a"]}]));
    let (kind, ..) = error(&report);
    assert_eq!(kind, "dependency");
}

#[test]
fn missing_steps_are_named_where_they_are_meant() {
    let report = check(json!([
        {"id": "a", "tool": "lab.echo", "args": {"value": {"deep": ["$steps.gone.x"]}}, "dependsOn": ["away"]},
        {"id": "b", "tool": "lab.echo", "args": {"value": 1}, "foreach": {"from": "$steps.none.items", "itemName": "item"}},
        {"id": "c", "tool": "lab.echo", "args": {"value": "$vars.nothing"}},
        {"id": "d", "tool": "lab.echo", "args": {"value": "$ctx.cursor"}},
        {"id": "e", "tool": "lab.echo", "args": {"value": "$steps.a_3.value"}}]));
    let found: Vec<(&str, &str)> = report.errors.iter().map(|e| (e.kind.as_ref(), e.path.as_str())).collect();
    assert_eq!(
        found,
        [
            ("dependency", "/steps/0/dependsOn/0"),
            ("path", "/steps/0/args/value"),
            ("path", "/steps/1/foreach/from"),
            ("path", "/steps/2/args/value"),
            ("path", "/steps/3/args/value"),
            ("path", "/steps/4/args/value"),
        ]
    );
}

#[test]
fn a_path_that_the_producers_output_cannot_have_is_an_error() {
    let report = check(json!([
        {"id": "r", "tool": "file.read", "args": {"path": "a.md"}},
        {"id": "a", "tool": "lab.echo", "args": {"value": "$steps.r.body"}}]));
    let (kind, path, message) = error(&report);
    assert_eq!((kind, path), ("path", "/steps/1/args/value"));
    assert!(message.contains("content"), "it says what there is: {message}");
    let report = check(json!([
        {"id": "l", "tool": "file.list", "args": {}},
        {"id": "e", "tool": "file.read", "args": {"path": "{item.path}"}, "foreach": {"from": "$steps.l.items", "itemName": "item"}},
        {"id": "bad", "tool": "lab.echo", "args": {"value": "$steps.e.content"}},
        {"id": "good", "tool": "lab.echo", "args": {"value": "$steps.e.items[0].content"}},
        {"id": "worse", "tool": "lab.echo", "args": {"value": "$steps.e.items[0].body"}},
        {"id": "nth", "tool": "lab.echo", "args": {"value": "$steps.e_1.body"}}]));
    let steps: Vec<&str> = report.errors.iter().map(|e| e.step.as_deref().unwrap()).collect();
    assert_eq!(steps, ["bad", "worse", "nth"]);
    assert!(report.errors[0].message.contains("okCount"));
}

#[test]
fn the_declared_risk_must_cover_the_tools() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let b = bench();
        let of = |risk: &str| {
            plan_of(json!({"version": "1.0", "goal": "g", "riskLevel": risk,
                "steps": [{"id": "w", "tool": "file.write", "args": {"path": "a", "content": ""}}]}))
        };
        let low = b.engine.check_plan(&person(), &of("read-only"));
        assert_eq!((low.ok, low.errors[0].kind.as_ref()), (false, "risk-mismatch"));
        let high = b.engine.check_plan(&person(), &of("commands"));
        assert_eq!((high.ok, high.warnings[0].kind.as_ref()), (true, "risk-mismatch"));
        assert!(b.engine.check_plan(&person(), &of("writes")).warnings.is_empty());
    });
}

#[test]
fn arguments_are_checked_as_far_as_they_are_known() {
    let report = check(json!([
        {"id": "a", "tool": "file.write", "args": {"path": 5}},
        {"id": "e", "tool": "lab.echo", "args": {"value": "x"}},
        {"id": "b", "tool": "file.write", "args": {"path": "$steps.e.value", "contents": ""}}]));
    let of = |step: &str| -> Vec<&str> {
        report.errors.iter().filter(|e| e.step.as_deref() == Some(step)).map(|e| e.path.as_str()).collect()
    };
    assert!(report.errors.iter().all(|e| e.kind == "argument"), "{:?}", report.errors);
    assert!(of("a").contains(&"/steps/0/args/path"));
    assert_eq!(of("b"), ["/steps/2/args/contents", "/steps/2/args"]);
}

#[test]
fn names_may_not_be_given_twice() {
    let report = check(json!([
        {"id": "a", "tool": "lab.echo", "args": {"value": 1}, "captureAs": "x"},
        {"id": "a", "tool": "lab.echo", "args": {"value": 1}, "captureAs": "x"}]));
    let paths: Vec<&str> = report.errors.iter().map(|e| e.path.as_str()).collect();
    assert_eq!(paths, ["/steps/1/id", "/steps/1/captureAs"]);
}

#[test]
fn the_summary_says_what_the_plan_would_do() {
    let report = check(json!([
        {"id": "w", "tool": "file.append", "args": {"path": "a.md", "text": "x"}},
        {"id": "d", "tool": "file.delete", "args": {"path": "b.md"}},
        {"id": "c", "tool": "lab.command", "args": {"id": "app:reload"}, "dependsOn": ["w"]}]));
    assert!(report.ok, "{:?}", report.errors);
    let s = &report.summary;
    assert_eq!(
        (s.files_modified.as_slice(), s.files_deleted.as_slice()),
        (&["a.md".to_owned()][..], &["b.md".to_owned()][..])
    );
    assert_eq!(s.commands_executed, ["app:reload"]);
    assert_eq!(s.tools_used, ["file.append", "file.delete", "lab.command"]);
    assert!(s.has_dependencies && !s.has_loops);
}

#[test]
fn what_the_policy_will_refuse_is_a_warning_beforehand() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let b = bench_under(json!({"approval": {"mode": "yolo"}, "deny": ["lab.echo"]}));
        let p = plan(json!([
            {"id": "a", "tool": "lab.echo", "args": {"value": 1}},
            {"id": "b", "tool": "file.write", "args": {"path": ".git/x", "content": ""}}]));
        let report = b.engine.check_plan(&agent(), &p);
        let safety: Vec<&str> =
            report.warnings.iter().filter(|w| w.kind == "safety").map(|w| w.path.as_str()).collect();
        assert_eq!(safety, ["/steps/0/tool", "/steps/1/args"]);
    });
}

#[test]
fn text_that_is_no_plan_is_refused_with_its_place() {
    let unknown = br#"{"version":"1.0","goal":"g","riskLevel":"writes","steps":[{"id":"a","tool":"t","args":{},"dependson":[]}]}"#;
    let failure = parse_plan(unknown).unwrap_err();
    assert_eq!(failure.code.as_str(), "VALIDATION_ERROR");
    assert!(failure.message.contains("dependson") && failure.details.unwrap().contains_key("line"));
    let rounded = br#"{"version":"1.0","goal":"g","riskLevel":"writes","steps":[{"id":"a","tool":"t","args":{"n":9007199254740993}}]}"#;
    assert!(parse_plan(rounded).unwrap_err().message.contains("2^53"));
    assert_eq!(parse_plan(&vec![b' '; 17 << 20]).unwrap_err().code.as_str(), "LIMIT_EXCEEDED");
}

#[tokio::test]
async fn a_plan_that_does_not_pass_leaves_no_run_behind() {
    use toolyard_engine::{Store, store::RunFilter};
    let b = bench();
    let p = plan(json!([{"id": "a", "tool": "lab.nope", "args": {}}]));
    let refused = b.engine.run_plan(person(), &p, approved()).await.unwrap_err();
    assert_eq!(failure_code(&Some(refused)), "VALIDATION_ERROR");
    assert!(b.store.runs(&RunFilter::default()).unwrap().is_empty());
}

/// Errors and warnings of one step's text, in a plan whose loops bind `idea`, `position` and `note`.
fn findings(text: &str, foreach: bool) -> (Vec<String>, Vec<String>) {
    let mut step = json!({"id": "use", "tool": "lab.echo", "args": {"value": {"deep": [text]}}});
    if foreach {
        step["foreach"] = json!({"from": "$steps.list.items", "itemName": "idea", "indexName": "position"});
    }
    let report = check(json!([
        {"id": "list", "tool": "lab.items", "args": {"items": []}},
        {"id": "other", "tool": "lab.echo", "args": {"value": "{note}"}, "foreach": {"from": "$steps.list.items", "itemName": "note"}},
        step]));
    assert!(report.errors.iter().all(|e| (e.kind.as_ref(), e.path.as_str()) == ("path", "/steps/2/args/value")));
    let warnings: Vec<_> = report.warnings.into_iter().filter(|w| w.kind == "placeholder").collect();
    assert!(warnings.iter().all(|w| w.path == "/steps/2/args/value"));
    let words = |issues: Vec<toolyard_engine::plan::Issue>| issues.into_iter().map(|i| i.message).collect();
    (words(report.errors), words(warnings))
}

#[test]
fn a_binding_that_the_loop_does_not_have_is_an_error() {
    for text in
        ["{item.text}", "see {item}", "{index}", "{note}", "{note.title}", "{other.path}", "{idea.}", "{idea[x]}"]
    {
        let (errors, _) = findings(text, true);
        assert_eq!(errors.len(), 1, "{text}");
    }
    let (errors, _) = findings("a {item.text} b", true);
    assert!(errors[0].contains("{idea.text}") && errors[0].contains("{{item.text}}"), "{}", errors[0]);
    for text in ["{item.text}", "{index}", "{note}"] {
        let (errors, _) = findings(text, false);
        assert_eq!(errors.len(), 1, "outside a loop: {text}");
        assert!(errors[0].contains("no foreach"), "{}", errors[0]);
    }
}

#[test]
fn braces_that_are_no_bindings_stay_text() {
    for text in ["{idx}", "{unknown} and {idea.text}"] {
        let (errors, warnings) = findings(text, true);
        assert_eq!((errors.len(), warnings.len()), (0, 1), "{text}");
    }
    assert_eq!(findings("{user.name}", false).1.len(), 1, "dotted, outside a loop: a warning");
    for text in [
        "{idea.text} {position} {idea[0].b}",
        "{{item.text}} is code",
        "{\"a\":{\"b\":1}}",
        "\\frac{1}{2} { item } {e.g. this} {a b} {} {-x} {9.1}",
    ] {
        assert_eq!(findings(text, true), (vec![], vec![]), "{text}");
    }
    for text in ["\\frac{a}{b}", "{x}", "{{item}}"] {
        assert_eq!(findings(text, false), (vec![], vec![]), "{text}");
    }
}

#[test]
fn a_field_that_no_element_of_the_list_can_have_is_an_error() {
    let of = |text: &str| {
        check(json!([
            {"id": "l", "tool": "file.list", "args": {}},
            {"id": "e", "tool": "lab.echo", "args": {"value": text}, "foreach": {"from": "$steps.l.items", "itemName": "item"}}]))
    };
    assert!(of("{item.path}").ok);
    let report = of("# {item.pth}");
    let (kind, path, message) = error(&report);
    assert_eq!((kind, path), ("path", "/steps/1/args/value"));
    assert!(message.contains("{item.pth}") && message.contains("path"), "{message}");
}

#[test]
fn an_unknown_value_of_the_executor_is_an_error() {
    let report = check(json!([
        {"id": "list", "tool": "lab.items", "args": {"items": []}},
        {"id": "each", "tool": "lab.echo", "args": {"value": 1}, "foreach": {"from": "$steps.list.items", "itemName": "item"}},
        {"id": "a", "tool": "lab.echo", "args": {"value": "$vars.run.user"}},
        {"id": "b", "tool": "lab.echo", "args": {"value": "$vars.each.items"}},
        {"id": "c", "tool": "lab.echo", "args": {"value": "$vars.list.count"}}]));
    let messages: Vec<&str> = report.errors.iter().map(|e| e.message.as_str()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].contains("startedAt") && messages[1].contains("failedCount"), "{messages:?}");
    assert!(messages[2].contains("no step captures list"), "{messages:?}");
}
