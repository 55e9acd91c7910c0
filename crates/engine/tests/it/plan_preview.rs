//! Predictions, and approvals that are bound to them.

use crate::{
    files::etag,
    support::{approved, bench, bench_under, detail, person, plan, policy, step, within, yolo},
};
use serde_json::{Value, json};
use std::sync::Arc;
use toolyard_engine::{
    BoxFuture, CallContext, Failed, Output, Prepared, PreviewProvider, Provider, Store, Subscription,
    plan::{Consent, DryRunReport, PlanRequest},
    store::RunFilter,
};
use toolyard_protocol::{ActionPlan, EntryKind, ResultStatus, RunStatus, ToolCall};

fn asks() -> Value {
    json!({"risk": {"writes": "ask"}, "allowCommands": true})
}

fn two_writes() -> ActionPlan {
    plan(json!([
        {"id": "w", "tool": "file.write", "args": {"path": "new.md", "content": "one"}},
        {"id": "r", "tool": "file.read", "args": {"path": "new.md"}, "dependsOn": ["w"]},
        {"id": "copy", "tool": "file.write", "args": {"path": "copy.md", "content": "$steps.r.content"}},
        {"id": "e", "tool": "file.append", "args": {"path": "old.md", "text": "!"}}]))
}

fn approval(dry: &DryRunReport) -> PlanRequest {
    PlanRequest {
        consent: Consent::Approved {
            by: crate::support::approver("ada"),
            plan_hash: Some(dry.plan_hash.clone()),
            policy_hash: Some(dry.policy_hash.clone()),
            preview_hash: Some(dry.preview_hash.clone()),
        },
        ..PlanRequest::default()
    }
}

#[tokio::test]
async fn a_dry_run_sees_its_own_writes_and_writes_nothing() {
    let b = bench();
    b.disk.set("old.md", "old");
    let mut events = b.engine.bus().subscribe(Subscription::default());
    let dry = within(b.engine.dry_run(person(), &two_writes(), Default::default())).await.unwrap();
    assert_eq!(dry.status, RunStatus::Finished, "{dry:?}");
    let read = dry.steps.iter().find(|s| s.id.as_str() == "r").unwrap();
    assert_eq!(read.data.as_ref().unwrap()["content"], "one", "the later step sees the earlier write");
    assert_eq!(dry.effects.created.iter().map(|c| c.path.as_str()).collect::<Vec<_>>(), ["new.md", "copy.md"]);
    assert_eq!(dry.effects.modified[0].after_etag.as_deref(), Some(etag("old!").as_str()));
    assert_eq!(
        dry.diff,
        "--- copy.md\n+++ copy.md\n+one\n--- new.md\n+++ new.md\n+one\n--- old.md\n+++ old.md\n-old\n+old!\n"
    );
    assert_eq!(b.disk.snapshot().len(), 1);
    assert_eq!(b.disk.get("old.md").unwrap(), "old");
    assert!(b.store.runs(&RunFilter::default()).unwrap().is_empty());
    assert!(events.try_next().is_none());
}

/// Another provider with a twin, so that several diffs have to be put in an order.
struct Other(&'static str);
impl Provider for Other {
    fn execute<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async {
            let mut output = Output::default();
            output.effects.created(self.0, EntryKind::File);
            Ok(output)
        })
    }
    fn preview(&self) -> Option<Arc<dyn PreviewProvider>> {
        Some(Arc::new(Other(self.0)))
    }
}
impl PreviewProvider for Other {
    fn diff(&self) -> String {
        format!("+{}\n", self.0)
    }
}

#[tokio::test]
async fn the_same_plan_over_the_same_state_has_the_same_preview() {
    let b = bench();
    b.disk.set("old.md", "old");
    let names = ["o.a", "o.b", "o.c", "o.d", "o.e"];
    for name in names {
        let tool = json!({"name":name,"title":"t","description":"d","category":"x","riskLevel":"writes","idempotency":"idempotent",
            "supportsDryRun":true,"inputSchema":{"type":"object"}});
        b.engine.register(vec![crate::support::entry(tool)], Arc::new(Other(name))).unwrap();
    }
    let mut steps = serde_json::to_value(&two_writes().steps).unwrap();
    for (i, name) in names.iter().enumerate() {
        steps.as_array_mut().unwrap().push(json!({"id": format!("o{i}"), "tool": name, "args": {}}));
    }
    let p = plan(steps);
    let first = within(b.engine.dry_run(person(), &p, Default::default())).await.unwrap();
    assert!(first.diff.ends_with("+o.a\n+o.b\n+o.c\n+o.d\n+o.e\n"), "{}", first.diff);
    for _ in 0..5 {
        let again = within(b.engine.dry_run(person(), &p, Default::default())).await.unwrap();
        assert_eq!(again, first);
    }
    b.disk.set("old.md", "other");
    let changed = within(b.engine.dry_run(person(), &p, Default::default())).await.unwrap();
    assert_ne!(changed.preview_hash, first.preview_hash);
}

#[tokio::test]
async fn what_cannot_be_predicted_is_skipped_and_what_builds_on_it_too() {
    let b = bench();
    let dry = within(b.engine.dry_run(
        person(),
        &plan(json!([
            {"id": "c", "tool": "lab.command", "args": {"id": "x"}},
            {"id": "use", "tool": "lab.echo", "args": {"value": "$steps.c.tries"}},
            {"id": "each", "tool": "lab.echo", "args": {"value": "{item}"}, "foreach": {"from": "$steps.c.items", "itemName": "item"}},
            {"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x"}}])),
        Default::default(),
    ))
    .await
    .unwrap();
    let status = |id: &str| dry.steps.iter().find(|s| s.id.as_str() == id).unwrap();
    assert_eq!(status("c").status, Some(ResultStatus::Skipped));
    assert!(status("c").user_message.as_ref().unwrap().contains("run-command"));
    assert_eq!(status("use").status, Some(ResultStatus::Skipped));
    assert!(status("each").user_message.as_ref().unwrap().contains("Cannot be predicted"));
    assert_eq!(status("w").status, Some(ResultStatus::Ok));
    assert_eq!(dry.effects.created.len(), 1);
    assert_eq!(b.lab.total(), 0);
}

#[tokio::test]
async fn a_dry_run_predicts_failure_as_well() {
    let b = bench();
    b.disk.set("a.md", "there");
    let p =
        plan(json!([{"id": "w", "tool": "file.write", "args": {"path": "a.md", "content": "x", "ifNotExists": true}}]));
    let dry = within(b.engine.dry_run(person(), &p, Default::default())).await.unwrap();
    assert_eq!((dry.status, dry.error.unwrap().code.as_str()), (RunStatus::Failed, "CONFLICT"));
}

#[tokio::test]
async fn side_effects_need_an_approval_and_reads_do_not() {
    let b = bench_under(asks());
    let refused = b.engine.run_plan(person(), &two_writes(), PlanRequest::default()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "CONFIRMATION_REQUIRED");
    assert_eq!(
        detail(&refused, "planHash").as_str(),
        Some(b.engine.check_plan(&person(), &two_writes()).plan_hash.as_str())
    );
    assert_eq!(b.disk.changes(), 0);
    let reads = plan(json!([{"id": "l", "tool": "file.list", "args": {}}]));
    let report = within(b.engine.run_plan(person(), &reads, PlanRequest::default())).await.unwrap();
    assert_eq!(report.status, RunStatus::Finished);
}

#[tokio::test]
async fn an_approval_is_for_this_plan_policy_and_preview_and_no_other() {
    let b = bench_under(asks());
    b.disk.set("old.md", "old");
    let dry = within(b.engine.dry_run(person(), &two_writes(), Default::default())).await.unwrap();
    let refused = async |p: &ActionPlan| {
        let failure = b.engine.run_plan(person(), p, approval(&dry)).await.unwrap_err();
        assert_eq!(failure.code.as_str(), "CONFIRMATION_REQUIRED");
        failure.message
    };
    let mut edited = two_writes();
    edited.steps[0].args["content"] = "two".into();
    assert!(refused(&edited).await.contains("plan"));

    b.engine.set_policy(policy(json!({"risk": {"writes": "ask"}, "allowCommands": true, "allowDelete": true})));
    assert!(refused(&two_writes()).await.contains("policy"));
    b.engine.set_policy(policy(asks()));

    b.disk.set("old.md", "changed meanwhile");
    assert!(refused(&two_writes()).await.contains("preview"));
    b.disk.set("old.md", "old");
    assert_eq!(b.disk.changes(), 0);

    let report = within(b.engine.run_plan(person(), &two_writes(), approval(&dry))).await.unwrap();
    assert_eq!((report.status, report.deviation.as_ref()), (RunStatus::Finished, None));
    let confirmation = b.export(report.run_id).manifest.confirmation.unwrap();
    assert_eq!(confirmation.preview_hash, Some(dry.preview_hash.clone()));
    assert_eq!((confirmation.plan_hash, confirmation.policy_hash), (dry.plan_hash, dry.policy_hash));
}

#[tokio::test]
async fn what_differs_from_the_approved_preview_is_reported_and_recorded() {
    let b = bench();
    b.disk.set("old.md", "old");
    // A command without a prediction changes the file during the run, so the append differs from the preview.
    struct Meddler(Arc<crate::files::Disk>);
    impl Provider for Meddler {
        fn execute<'a>(
            &'a self,
            _: &'a CallContext,
            _: &'a ToolCall,
            _: Prepared,
        ) -> BoxFuture<'a, Result<Output, Failed>> {
            Box::pin(async {
                self.0.set("old.md", "meddled");
                Ok(Output::default())
            })
        }
    }
    let tool = json!({"name":"x.meddle","title":"t","description":"d","category":"x","riskLevel":"commands","idempotency":"none","inputSchema":{"type":"object"}});
    b.engine.register(vec![crate::support::entry(tool)], Arc::new(Meddler(b.disk.clone()))).unwrap();
    let p = plan(json!([
        {"id": "m", "tool": "x.meddle", "args": {}},
        {"id": "e", "tool": "file.append", "args": {"path": "old.md", "text": "!"}, "dependsOn": ["m"]}]));
    let dry = within(b.engine.dry_run(person(), &p, Default::default())).await.unwrap();
    let report = within(b.engine.run_plan(person(), &p, approval(&dry))).await.unwrap();
    assert_eq!(report.status, RunStatus::Finished);
    let deviation = report.deviation.unwrap();
    assert_eq!(deviation.missing, [format!("modify old.md -> {}", etag("old!"))]);
    assert_eq!(deviation.unexpected, [format!("modify old.md -> {}", etag("meddled!"))]);
    let events = b.export(report.run_id).events;
    assert!(events.iter().any(|e| e.payload.as_ref().is_some_and(|p| p.contains_key("deviation"))));
}

#[tokio::test]
async fn predicted_and_observed_agree_when_nothing_interferes() {
    let b = bench_under(yolo());
    b.disk.set("old.md", "old");
    let dry = within(b.engine.dry_run(person(), &two_writes(), Default::default())).await.unwrap();
    let report = within(b.engine.run_plan(person(), &two_writes(), approved())).await.unwrap();
    assert_eq!(report.effects, dry.effects);
    assert_eq!(step(&report, "copy").status, Some(ResultStatus::Ok));
}
