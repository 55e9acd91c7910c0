//! Whole plans: order, references, loops, failures, retries, limits, stops.

use crate::support::{
    BenchParts, agent, approved, bench, bench_under, bench_with, detail, failure_code, limits, object, person, plan,
    plan_of, status_words, step, until, within, words,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use toolyard_engine::plan::{PlanRequest, scheduler::retry_delay};
use toolyard_protocol::{ResultStatus, RunStatus, StepId};

fn echo(id: &str, value: Value) -> Value {
    json!({"id": id, "tool": "lab.echo", "args": {"value": value}})
}

// The twelve defects of the origin executor (contract, section 1.5), as the right behaviour.

#[tokio::test]
async fn defect_1_foreach_takes_its_list_from_a_step() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": ["a", "b"]}},
            {"id": "each", "tool": "lab.echo", "args": {"value": "{item}"}, "foreach": {"from": "$steps.list.items", "itemName": "item"}}]))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    let seen: Vec<Value> = step(&report, "each")
        .iterations
        .as_ref()
        .unwrap()
        .iter()
        .map(|i| i.data.as_ref().unwrap()["value"].clone())
        .collect();
    assert_eq!(seen, ["a", "b"]);
}

#[tokio::test]
async fn defect_2_bindings_are_filled_in_inside_text() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": [{"path": "a.md", "n": 3}]}},
            {"id": "each", "tool": "lab.echo", "args": {"value": {"text": "{item.path} is #{index}", "n": "{item.n}"}},
             "foreach": {"from": "$steps.list.items", "itemName": "item"}}]))
        .await;
    assert_eq!(
        step(&report, "each").iterations.as_ref().unwrap()[0].data.as_ref().unwrap()["value"],
        json!({"text": "a.md is #0", "n": 3})
    );
}

#[tokio::test]
async fn defect_3_a_dependency_may_stand_later_in_the_list() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "second", "tool": "lab.echo", "args": {"value": "$steps.first.value"}, "dependsOn": ["first"]},
            echo("first", json!(1))]))
        .await;
    assert_eq!(status_words(&report), words([("second", "ok"), ("first", "ok")]));
    assert_eq!(step(&report, "second").data.as_ref().unwrap()["value"], 1);
}

#[tokio::test]
async fn defect_4_dependents_of_a_failed_step_do_not_run_and_say_why() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "bad", "tool": "lab.flaky", "args": {"key": "k", "failures": 9, "retryable": false}, "onError": "skip"},
            {"id": "next", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["bad"]},
            {"id": "after", "tool": "lab.echo", "args": {"value": 1}, "dependsOn": ["next"]},
            echo("free", json!(1))]))
        .await;
    assert_eq!(
        status_words(&report),
        words([("bad", "error"), ("next", "skipped"), ("after", "skipped"), ("free", "ok")])
    );
    assert_eq!(report.status, RunStatus::Finished);
    assert!(step(&report, "next").user_message.as_ref().unwrap().contains("bad"));
    assert!(step(&report, "after").user_message.as_ref().unwrap().contains("next"));
    assert_eq!(b.lab.calls_of("lab.echo"), 1);
    let export = b.export(report.run_id);
    let skipped: Vec<_> = export.results.iter().filter(|r| r.status == ResultStatus::Skipped).collect();
    assert_eq!(skipped.len(), 2, "recorded, with the cause");
    assert!(skipped[0].user_message.as_ref().unwrap().contains("bad"));
}

#[tokio::test]
async fn defect_5_without_on_error_a_failure_ends_the_run() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "bad", "tool": "lab.flaky", "args": {"key": "k", "failures": 9, "retryable": false}},
            {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}]))
        .await;
    assert_eq!(report.status, RunStatus::Failed);
    assert_eq!(status_words(&report), words([("bad", "error"), ("w", "skipped")]));
    assert_eq!(detail(report.error.as_ref().unwrap(), "step"), "bad");
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn defect_6_a_loops_output_stands_under_its_own_id() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": [{"k": "a", "f": 0}, {"k": "b", "f": 9}, {"k": "c", "f": 0}]}},
            {"id": "each", "tool": "lab.flaky", "args": {"key": "{item.k}", "failures": "{item.f}", "retryable": false},
             "onError": "skip", "foreach": {"from": "$steps.list.items", "itemName": "item"}},
            {"id": "whole", "tool": "lab.echo", "args": {"value": "$steps.each"}},
            {"id": "nth", "tool": "lab.echo", "args": {"value": "$steps.each_2.tries"}},
            {"id": "count", "tool": "lab.echo", "args": {"value": "$steps.each.okCount"}}]))
        .await;
    assert_eq!(report.status, RunStatus::Finished, "{report:?}");
    let whole = &step(&report, "whole").data.as_ref().unwrap()["value"];
    assert_eq!(whole["items"], json!([{"tries": 1}, null, {"tries": 1}]));
    assert_eq!((&whole["count"], &whole["okCount"]), (&json!(3), &json!(2)));
    let results = whole["results"].as_array().unwrap();
    assert_eq!(results[0], json!({"index": 0, "status": "ok", "data": {"tries": 1}}));
    assert_eq!((&results[1]["status"], &results[1]["error"]["code"]), (&json!("error"), &json!("UNAVAILABLE")));
    assert_eq!(step(&report, "nth").data.as_ref().unwrap()["value"], 1);
    assert_eq!(step(&report, "count").data.as_ref().unwrap()["value"], 2);
}

#[tokio::test(start_paused = true)]
async fn defect_7_timeouts_captures_and_defaults_count() {
    let b = bench();
    let report = b
        .run_plan(&plan_of(json!({"version": "1.0", "goal": "g", "riskLevel": "read-only",
            "defaults": {"onError": "skip", "retry": {"maxAttempts": 2, "backoffMs": 1}},
            "steps": [
                {"id": "slow", "tool": "lab.slow", "args": {"ms": 60_000}, "timeoutMs": 10},
                {"id": "flaky", "tool": "lab.flaky", "args": {"key": "k", "failures": 9, "retryable": true}},
                {"id": "kept", "tool": "lab.echo", "args": {"value": 7}, "captureAs": "my.var"},
                {"id": "used", "tool": "lab.echo", "args": {"value": "$vars.my.var.value"}}]})))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(status_words(&report)[0].1, "timeout");
    assert_eq!(step(&report, "flaky").attempts, 2, "defaults.retry");
    assert_eq!(step(&report, "used").data.as_ref().unwrap()["value"], 7);
}

#[tokio::test]
async fn defect_8_what_a_run_changed_can_be_taken_back() {
    let b = bench();
    let report = b.run(json!([{"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}])).await;
    let undo = b.engine.plan_undo(report.run_id).await.unwrap();
    assert_eq!(b.run_plan(&undo.plan.unwrap()).await.status, RunStatus::Finished);
    assert_eq!(b.disk.get("a.md"), None);
}

#[tokio::test]
async fn defect_9_a_missing_reference_is_an_error_and_never_undefined() {
    let b = bench();
    let refused = b.engine.run_plan(person(), &plan(json!([echo("a", json!("$steps.gone.value"))])), approved()).await;
    assert_eq!(refused.unwrap_err().code.as_str(), "VALIDATION_ERROR");
    // What cannot be known before: the tool has no output schema.
    let report = b
        .run(json!([{"id": "open", "tool": "lab.open", "args": {"data": {"a": 1}}}, echo("use", json!("$steps.open.b"))]))
        .await;
    assert_eq!(report.status, RunStatus::Failed);
    let error = step(&report, "use").error.as_ref().unwrap();
    assert_eq!(error.code.as_str(), "VALIDATION_ERROR");
    assert_eq!(detail(error, "errors")[0]["path"], "/value");
    assert_eq!(b.lab.calls_of("lab.echo"), 0);
    assert!(b.export(report.run_id).calls.iter().all(|c| c.step_id.as_str() != "use"), "never dispatched");
}

#[tokio::test]
async fn defect_10_argument_names_are_checked_before_anything_runs() {
    let b = bench();
    let p = plan(
        json!([{"id": "w", "tool": "file.write", "args": {"filename": "a.md", "content": "$steps.e.value"}}, echo("e", json!("x"))]),
    );
    let refused = b.engine.run_plan(person(), &p, approved()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "VALIDATION_ERROR");
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test]
async fn defect_11_a_path_is_judged_by_its_segments() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "legal", "tool": "file.write", "args": {"path": "a..b.md", "content": "x"}},
            {"id": "outside", "tool": "file.write", "args": {"path": "x/../../y.md", "content": "x"}}]))
        .await;
    assert_eq!(status_words(&report), words([("legal", "ok"), ("outside", "error")]));
    assert_eq!(failure_code(&step(&report, "outside").error), "POLICY_DENIED");
}

#[tokio::test]
async fn defect_12_a_failed_call_is_a_failed_step() {
    let b = bench();
    let report = b.run(json!([{"id": "c", "tool": "lab.command", "args": {"id": "x", "failures": 1}}])).await;
    assert_eq!(report.status, RunStatus::Failed);
    assert_eq!(status_words(&report), words([("c", "error")]));
}

// References.

#[tokio::test]
async fn references_keep_their_type_and_reach_run_and_context() {
    let b = bench();
    let p = plan_of(
        json!({"version": "1.0", "goal": "g", "riskLevel": "read-only", "contextRequests": [{"kind": "selection"}],
        "steps": [
            echo("a", json!({"list": [1, {"deep": [true, null]}]})),
            echo("typed", json!({"x": "$steps.a.value.list[1].deep", "text": "$5 is not a reference", "escaped": "$$steps.a"})),
            echo("run", json!(["$run.id", "$run.startedAt", "$ctx.selection.text"]))]}),
    );
    let request = PlanRequest { context: object(json!({"selection": {"text": "hi"}})), ..approved() };
    let report = within(b.engine.run_plan(person(), &p, request)).await.unwrap();
    assert_eq!(
        step(&report, "typed").data.as_ref().unwrap()["value"],
        json!({"x": [true, null], "text": "$5 is not a reference", "escaped": "$steps.a"})
    );
    let run = &step(&report, "run").data.as_ref().unwrap()["value"];
    assert_eq!(run[0], report.run_id.to_string());
    assert_eq!(run[1], report.started_at.to_string());
    assert_eq!(run[2], "hi");
}

#[tokio::test]
async fn context_that_nobody_supplied_keeps_the_plan_from_starting() {
    let b = bench();
    let p = plan_of(json!({"version": "1.0", "goal": "g", "riskLevel": "read-only",
        "contextRequests": [{"kind": "selection"}, {"kind": "cursor"}], "steps": [echo("a", json!(1))]}));
    let request = PlanRequest { context: object(json!({"cursor": {}})), ..approved() };
    let refused = b.engine.run_plan(person(), &p, request).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "PRECONDITION_FAILED");
    assert_eq!(detail(&refused, "missing"), &json!(["selection"]));
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test]
async fn later_steps_refer_into_an_output_that_was_too_large_to_hand_over() {
    let b = bench_under(limits(json!({"maxOutputBytes": 70_000})));
    let report = b
        .run(json!([
            {"id": "big", "tool": "lab.huge", "args": {"bytes": 100_000}},
            echo("use", json!("$steps.big.n")),
            {"id": "list", "tool": "lab.items", "args": {"items": [100_000]}},
            {"id": "each", "tool": "lab.huge", "args": {"bytes": "{item}"}, "foreach": {"from": "$steps.list.items", "itemName": "item"}},
            echo("useEach", json!("$steps.each.items[0].n"))]))
        .await;
    assert_eq!(report.status, RunStatus::Finished, "{:?}", report.error);
    assert_eq!(step(&report, "use").data.as_ref().unwrap()["value"], 7);
    assert_eq!(step(&report, "useEach").data.as_ref().unwrap()["value"], 7);
    assert_eq!(step(&report, "big").data.as_ref().unwrap()["externalized"], true, "the report stays small");
    assert!(b.engine.replay(report.run_id).await.unwrap().ok);
}

// Loops.

#[tokio::test(start_paused = true)]
async fn iterations_run_side_by_side_and_their_results_stand_in_order() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": [50, 10, 30, 20, 40]}},
            {"id": "each", "tool": "lab.slow", "args": {"ms": "{item}", "value": "{i}"},
             "foreach": {"from": "$steps.list.items", "itemName": "item", "indexName": "i", "concurrency": 3}}]))
        .await;
    let each = step(&report, "each").iterations.as_ref().unwrap();
    assert_eq!(each.iter().map(|i| i.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(each.iter().map(|i| i.data.as_ref().unwrap()["value"].clone()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(b.lab.widest.load(Ordering::SeqCst), 3);
    let export = b.export(report.run_id);
    let of_loop: Vec<_> = export.calls.iter().filter(|c| c.iteration.is_some()).collect();
    assert_eq!(of_loop.len(), 5);
    assert!(of_loop.iter().all(|c| c.loop_id == of_loop[0].loop_id && c.loop_id.is_some()));
    assert_eq!(
        of_loop
            .iter()
            .find(|c| c.iteration.as_ref().unwrap().index == 2)
            .unwrap()
            .iteration
            .as_ref()
            .unwrap()
            .item_value,
        30
    );
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_concurrency_runs_one_after_another_and_policy_clamps_the_rest() {
    let b = bench_under(limits(json!({"maxConcurrency": 2})));
    let steps = |concurrency: Value| {
        let mut foreach = json!({"from": "$steps.list.items", "itemName": "item"});
        if !concurrency.is_null() {
            foreach["concurrency"] = concurrency;
        }
        json!([{"id": "list", "tool": "lab.count", "args": {"n": 6}},
               {"id": "each", "tool": "lab.slow", "args": {"ms": 10, "value": "{item}"}, "foreach": foreach}])
    };
    b.run(steps(Value::Null)).await;
    assert_eq!(b.lab.widest.load(Ordering::SeqCst), 1);
    b.run(steps(json!(50))).await;
    assert_eq!(b.lab.widest.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_loop_over_nothing_is_done_at_once() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": []}},
            {"id": "each", "tool": "lab.echo", "args": {"value": "{item}"}, "foreach": {"from": "$steps.list.items", "itemName": "item"}},
            echo("after", json!("$steps.each"))]))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(
        step(&report, "after").data.as_ref().unwrap()["value"],
        json!({"items": [], "results": [], "count": 0, "okCount": 0})
    );
}

#[tokio::test]
async fn a_loop_over_what_is_no_list_fails_with_a_hint() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "open", "tool": "lab.open", "args": {"data": {"a": {"items": [1]}}}},
            {"id": "each", "tool": "lab.echo", "args": {"value": "{item}"}, "foreach": {"from": "$steps.open.a", "itemName": "item"}}]))
        .await;
    assert_eq!(report.status, RunStatus::Failed);
    assert!(report.error.as_ref().unwrap().message.contains("did you mean $steps.open.a.items?"), "{:?}", report.error);
    let export = b.export(report.run_id);
    assert!(export.results.iter().any(|r| r.step_id.as_str() == "each" && r.status == ResultStatus::Error));
}

#[tokio::test]
async fn a_loop_that_stops_at_a_failure_starts_no_more_iterations() {
    let b = bench();
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.items", "args": {"items": [0, 9, 0, 0]}},
            {"id": "each", "tool": "lab.flaky", "args": {"key": "k{index}", "failures": "{item}", "retryable": false},
             "foreach": {"from": "$steps.list.items", "itemName": "item"}}]))
        .await;
    assert_eq!(report.status, RunStatus::Failed);
    let each = step(&report, "each").iterations.as_ref().unwrap();
    assert_eq!(each.iter().map(|i| i.status.as_str()).collect::<Vec<_>>(), ["ok", "error"]);
    assert_eq!(b.lab.calls_of("lab.flaky"), 2);
}

// Failures and retries.

#[toolyard_shows::shows("002-5-13")]
#[tokio::test(start_paused = true)]
async fn a_failing_step_is_tried_again_after_seeded_delays() {
    let b = bench();
    let began = tokio::time::Instant::now();
    let report = b
        .run(json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 2}, "onError": "retry",
            "retry": {"maxAttempts": 3, "backoffMs": 10_000}}]))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(step(&report, "f").attempts, 3);
    let id = StepId::parse("f").unwrap();
    let expected: u64 = (1..=2).map(|n| retry_delay(report.run_id, &id, 0, n, 10_000)).sum();
    let took = began.elapsed().as_millis() as u64;
    assert!(took >= expected && took < expected + 200, "{took} against {expected}");
    let export = b.export(report.run_id);
    assert_eq!(export.calls.iter().map(|c| c.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        export.results.iter().map(|r| (r.attempt, r.ok)).collect::<Vec<_>>(),
        [(1, false), (2, false), (3, true)]
    );
    let ids: std::collections::HashSet<_> = export.calls.iter().map(|c| c.call_id).collect();
    assert_eq!(ids.len(), 3, "each try is a call of its own");
    let retries = export.events.iter().filter(|e| e.payload.as_ref().is_some_and(|p| p.contains_key("retry")));
    assert_eq!(retries.count(), 2);
}

#[toolyard_shows::shows("002-5-11")]
#[tokio::test(start_paused = true)]
async fn whether_to_try_again_is_decided_by_the_plan_and_the_tool_and_clamped_by_policy() {
    let b = bench_under(limits(json!({"maxAttempts": 3})));
    let mut n = 0;
    let mut tries = async |args: Value, more: Value| {
        n += 1;
        let mut args = args;
        args["key"] = format!("k{n}").into();
        args["failures"] = 99.into();
        let mut s = json!({"id": "f", "tool": "lab.flaky", "args": args, "retry": {"maxAttempts": 10, "backoffMs": 1}});
        s.as_object_mut().unwrap().extend(object(more));
        let report = b.run(json!([s])).await;
        step(&report, "f").attempts
    };
    assert_eq!(tries(json!({}), json!({})).await, 1, "stop, and the tool says nothing");
    assert_eq!(tries(json!({"retryable": true}), json!({})).await, 3, "the tool says so; clamped");
    assert_eq!(tries(json!({}), json!({"onError": "retry"})).await, 3, "the plan says so");
    assert_eq!(tries(json!({"retryable": false}), json!({"onError": "retry"})).await, 1, "the tool says no");
    assert_eq!(tries(json!({"retryable": true}), json!({"onError": "skip"})).await, 3);
    for code in ["VALIDATION_ERROR", "POLICY_DENIED", "CANCELLED", "CONFLICT", "LIMIT_EXCEEDED", "APPROVAL_DENIED"] {
        assert_eq!(tries(json!({"retryable": true, "code": code}), json!({"onError": "retry"})).await, 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_have_happened_and_cannot_be_asked_is_not_tried_again() {
    let b = bench();
    for (tool, args) in [("lab.hang", json!({})), ("lab.panicWrite", json!({"later": true}))] {
        let report = b
            .run(json!([{"id": "x", "tool": tool, "args": args, "timeoutMs": 10, "onError": "retry", "retry": {"maxAttempts": 3, "backoffMs": 1}}]))
            .await;
        assert_eq!(step(&report, "x").attempts, 1, "{tool}");
    }
    let report = b
        .run(json!([{"id": "x", "tool": "lab.panic", "args": {}, "onError": "retry", "retry": {"maxAttempts": 3, "backoffMs": 1}}]))
        .await;
    assert_eq!(step(&report, "x").attempts, 3, "one without effects is");
}

#[tokio::test(start_paused = true)]
async fn without_a_retry_policy_three_tries_are_made() {
    let b = bench();
    let report =
        b.run(json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 9}, "onError": "retry"}])).await;
    assert_eq!(step(&report, "f").attempts, 3);
    assert_eq!(report.status, RunStatus::Failed);
}

// Side by side.

#[tokio::test(start_paused = true)]
async fn reads_run_side_by_side_and_writes_alone() {
    let b = bench();
    let slow = |id: &str| json!({"id": id, "tool": "lab.slow", "args": {"ms": 20}});
    let report = b
        .run(json!([slow("a"), slow("b"), slow("c"),
            {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}, slow("d"), slow("e")]))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    assert_eq!(b.lab.widest.load(Ordering::SeqCst), 3);
    let export = b.export(report.run_id);
    let w = export.results.iter().find(|r| r.step_id.as_str() == "w").unwrap();
    for other in export.results.iter().filter(|r| r.step_id.as_str() != "w") {
        let apart = other.ended_at <= w.started_at || other.started_at >= w.ended_at;
        assert!(apart, "{} overlaps the write", other.step_id);
    }
    let b = bench_under(limits(json!({"maxConcurrency": 1})));
    b.run(json!([slow("a"), slow("b")])).await;
    assert_eq!(b.lab.widest.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn every_dependent_waits_until_the_write_before_it_is_durable() {
    let b = bench();
    *b.lab.log.lock().unwrap() = Some(b.store.log.clone());
    let after = |id: &str| json!({"id": id, "tool": "lab.echo", "args": {"value": id}, "dependsOn": ["w"]});
    let report = b
        .run(json!([{"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}, after("a"), after("b"), after("c")]))
        .await;
    assert_eq!(report.status, RunStatus::Finished);
    let log = b.store.log();
    let result = log.iter().position(|l| l.contains("Result")).unwrap();
    let durable = result + log[result..].iter().position(|l| l == "durable").unwrap();
    let first = log.iter().position(|l| l == "execute lab.echo").unwrap();
    assert!(durable < first, "{log:?}");
}

// Limits and stops.

#[tokio::test]
async fn a_plan_with_too_many_steps_is_refused_and_a_loop_with_too_many_items_fails() {
    let b = bench_under(limits(json!({"maxSteps": 2, "maxIterations": 3})));
    let p = plan(json!([echo("a", json!(1)), echo("b", json!(1)), echo("c", json!(1))]));
    let refused = b.engine.run_plan(person(), &p, approved()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "LIMIT_EXCEEDED");
    let report = b
        .run(json!([
            {"id": "list", "tool": "lab.count", "args": {"n": 4}},
            {"id": "each", "tool": "lab.echo", "args": {"value": 1}, "foreach": {"from": "$steps.list.items", "itemName": "item"}}]))
        .await;
    assert_eq!(failure_code(&report.error), "LIMIT_EXCEEDED");
    assert_eq!(detail(report.error.as_ref().unwrap(), "limit"), "maxIterations");
    assert_eq!(b.lab.calls_of("lab.echo"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_stopped_and_says_which_limit() {
    let b = bench_under(limits(json!({"maxRunMs": 100})));
    let report = b
        .run(json!([{"id": "a", "tool": "lab.slow", "args": {"ms": 60_000}}, {"id": "b", "tool": "file.write", "args": {"path": "a.md", "content": ""}}]))
        .await;
    assert_eq!(report.status, RunStatus::Cancelled);
    assert_eq!(failure_code(&report.error), "LIMIT_EXCEEDED");
    assert_eq!(detail(report.error.as_ref().unwrap(), "limit"), "maxRunMs");
    assert_eq!(status_words(&report), words([("a", "cancelled"), ("b", "skipped")]));
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn bytes_written_are_counted_over_the_whole_run() {
    let b = bench_under(limits(json!({"maxBytesWritten": 10})));
    let write =
        |id: &str| json!({"id": id, "tool": "file.write", "args": {"path": format!("{id}.md"), "content": "123456"}});
    let report = b.run(json!([write("a"), write("b")])).await;
    assert_eq!(status_words(&report), words([("a", "ok"), ("b", "error")]));
    assert_eq!(failure_code(&report.error), "LIMIT_EXCEEDED");
    assert_eq!(b.disk.get("b.md"), None);
}

#[toolyard_shows::shows("002-3.3-05")]
#[tokio::test(start_paused = true)]
async fn a_run_stopped_midway_keeps_what_it_did_and_records_the_rest_as_not_run() {
    let b = Arc::new(bench());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            b.run(json!([
                {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}},
                {"id": "slow", "tool": "lab.slow", "args": {"ms": 60_000}, "dependsOn": ["w"]},
                {"id": "never", "tool": "file.write", "args": {"path": "b.md", "content": "x"}, "dependsOn": ["slow"]}]))
                .await
        })
    };
    until("the slow step runs", || b.lab.total() == 1).await;
    assert!(b.engine.cancel_run(b.engine.active_runs()[0]));
    let report = within(run).await.unwrap();
    assert_eq!(report.status, RunStatus::Cancelled);
    assert_eq!(status_words(&report), words([("w", "ok"), ("slow", "cancelled"), ("never", "skipped")]));
    assert_eq!(b.disk.snapshot().len(), 1);
    let export = b.export(report.run_id);
    assert_eq!(export.manifest.status, RunStatus::Cancelled);
    assert!(export.events.iter().any(|e| e.event_type.as_str() == "run.cancelled"));
    assert!(b.engine.active_runs().is_empty());
    assert!(!b.engine.cancel_run(report.run_id));
}

#[tokio::test(start_paused = true)]
async fn a_run_stopped_while_it_waits_for_another_try_ends_at_once() {
    let b = Arc::new(bench());
    let run = {
        let b = b.clone();
        tokio::spawn(async move {
            b.run(json!([{"id": "f", "tool": "lab.flaky", "args": {"key": "k", "failures": 9}, "onError": "retry",
                "retry": {"maxAttempts": 10, "backoffMs": 600_000}}]))
                .await
        })
    };
    until("the first try failed", || b.lab.total() == 1).await;
    let began = tokio::time::Instant::now();
    b.engine.cancel_run(b.engine.active_runs()[0]);
    let report = within(run).await.unwrap();
    assert_eq!(report.status, RunStatus::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(1));
}

// Starting.

#[tokio::test]
async fn a_started_run_can_be_seen_before_it_is_driven() {
    let b = bench();
    let p = plan(json!([echo("a", json!(1))]));
    let started = b.engine.start_plan(person(), &p, PlanRequest::default(), Default::default()).await.unwrap();
    assert_eq!(b.row(started.run_id()).status, RunStatus::Running);
    assert_eq!(b.export(started.run_id()).manifest.plan.as_ref(), Some(&p));
    let report = within(started.drive()).await.unwrap();
    assert_eq!(b.row(report.run_id).status, RunStatus::Finished);
}

#[tokio::test]
async fn a_run_whose_store_fails_says_so() {
    let b = bench();
    let p = plan(json!([echo("a", json!(1))]));
    b.store.fail_appends(true);
    let refused = b.engine.run_plan(person(), &p, approved()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "STORE_UNAVAILABLE");
    assert_eq!(b.lab.total(), 0);
    b.store.fail_appends(false);
    let p = plan(json!([
        {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}},
        {"id": "v", "tool": "file.write", "args": {"path": "b.md", "content": "x"}, "dependsOn": ["w"]}]));
    let started = b.engine.start_plan(person(), &p, approved(), Default::default()).await.unwrap();
    b.store.fail_syncs(true);
    let report = within(started.drive()).await.unwrap();
    assert_eq!(failure_code(&report.error), "STORE_UNAVAILABLE");
    assert_eq!(b.disk.changes(), 0);
}

#[tokio::test]
async fn a_denied_tool_in_a_plan_is_a_failed_step_and_not_a_crash() {
    let b = bench_with(BenchParts {
        policy: json!({"approval": {"mode": "yolo"}, "deny": ["lab.echo"]}),
        ..BenchParts::default()
    });
    let report = within(b.engine.run_plan(agent(), &plan(json!([echo("a", json!(1))])), approved())).await.unwrap();
    assert_eq!(failure_code(&report.error), "POLICY_DENIED");
    assert_eq!(b.lab.total(), 0);
}
