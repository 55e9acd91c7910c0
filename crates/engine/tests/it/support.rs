//! What every test needs: an engine over a store, a policy from JSON, plans from JSON, callers.

use crate::{files::Disk, files::Files, lab::Lab, stores::Tap};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use toolyard_catalog::{Policy, PolicyConfig, ToolEntry, ToolSource};
use toolyard_engine::{
    Blob, CallAnswer, CallRequest, Caller, Clock, Door, Engine, EngineOptions, EngineParts, Store,
    authority::Approver,
    chain::Signer,
    plan::{Consent, PlanRequest, RunReport},
    store::RunRow,
    system_clock,
    view::{RunExport, export_run},
};
use toolyard_protocol::{ActionPlan, Failure, RunId, RunStatus, ToolDefinition, ToolResult};
use uuid::Uuid;

pub(crate) const SECRET: [u8; 32] = [7; 32];

/// An engine with the lab's tools and a disk.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<Tap>,
    pub(crate) lab: Arc<Lab>,
    pub(crate) disk: Arc<Disk>,
}

pub(crate) struct BenchParts {
    pub(crate) store: Arc<Tap>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) policy: Value,
    pub(crate) options: EngineOptions,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for BenchParts {
    fn default() -> Self {
        Self {
            store: Arc::new(Tap::new()),
            disk: Arc::default(),
            policy: yolo(),
            options: quick(),
            clock: system_clock(),
        }
    }
}

/// The machine's clock, which a test can set forward instead of waiting.
#[derive(Default)]
pub(crate) struct SettableClock(AtomicI64);

impl SettableClock {
    pub(crate) fn advance(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(Timestamp::now().as_microsecond() + self.0.load(Ordering::SeqCst)).unwrap()
    }
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Short waits, so that tests that really wait do not wait long.
pub(crate) fn quick() -> EngineOptions {
    EngineOptions { grace: Duration::from_millis(200), late_window: Duration::from_secs(5), ..EngineOptions::default() }
}

/// Nobody is asked.
pub(crate) fn yolo() -> Value {
    json!({"approval": {"mode": "yolo"}, "allowCommands": true})
}

/// `yolo` with limits.
pub(crate) fn limits(limits: Value) -> Value {
    json!({"approval": {"mode": "yolo"}, "allowCommands": true, "limits": limits})
}

pub(crate) fn policy(config: Value) -> Policy {
    let config: PolicyConfig = serde_json::from_value(config).unwrap();
    Policy::compile(&config).unwrap()
}

pub(crate) fn bench() -> Bench {
    bench_with(BenchParts::default())
}

pub(crate) fn bench_under(policy: Value) -> Bench {
    bench_with(BenchParts { policy, ..BenchParts::default() })
}

pub(crate) fn bench_with(parts: BenchParts) -> Bench {
    let engine = Engine::new(EngineParts {
        store: parts.store.clone(),
        signer: Signer::from_secret("test", &SECRET),
        policy: policy(parts.policy),
        clock: parts.clock,
        options: parts.options,
    });
    let lab = Arc::new(Lab::default());
    engine.register(Lab::entries(), lab.clone()).unwrap();
    engine.register(Files::entries(), Arc::new(Files::new(parts.disk.clone()))).unwrap();
    Bench { engine, store: parts.store, lab, disk: parts.disk }
}

pub(crate) fn entry(definition: Value) -> ToolEntry {
    entry_of(definition, ToolSource::core())
}

pub(crate) fn entry_of(definition: Value, source: ToolSource) -> ToolEntry {
    let definition: ToolDefinition = serde_json::from_value(definition).unwrap();
    ToolEntry::new(definition, source).unwrap()
}

/// The person at the keyboard.
pub(crate) fn person() -> Arc<Caller> {
    Arc::new(Caller::cli("ada"))
}

/// An agent in a session.
pub(crate) fn agent() -> Arc<Caller> {
    Arc::new(Caller {
        door: Door::Gateway,
        principal: "device-1".into(),
        agent: "scribe".into(),
        session: Some("s1".into()),
        scopes: vec!["operator.write".into()],
        is_person: false,
        workspace: Default::default(),
    })
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

pub(crate) fn request(tool: &str, args: Value) -> CallRequest {
    CallRequest { tool: tool.into(), args: object(args), ..CallRequest::default() }
}

pub(crate) fn plan(steps: Value) -> ActionPlan {
    plan_of(json!({"version": "1.0", "goal": "test", "riskLevel": "commands", "steps": steps}))
}

pub(crate) fn plan_of(value: Value) -> ActionPlan {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn approved() -> PlanRequest {
    PlanRequest {
        consent: Consent::Approved { by: approver("ada"), plan_hash: None, policy_hash: None, preview_hash: None },
        ..PlanRequest::default()
    }
}

/// A person's consent.
pub(crate) fn approver(name: &str) -> Approver {
    Approver::of(&Caller::cli(name)).unwrap()
}

pub(crate) fn blob_text(text: &str) -> Blob {
    Blob::new(text.as_bytes().to_vec())
}

impl Bench {
    pub(crate) async fn call(&self, tool: &str, args: Value) -> ToolResult {
        self.answer(person(), request(tool, args)).await.result
    }

    pub(crate) async fn call_as(&self, caller: Arc<Caller>, tool: &str, args: Value) -> ToolResult {
        self.answer(caller, request(tool, args)).await.result
    }

    pub(crate) async fn answer(&self, caller: Arc<Caller>, request: CallRequest) -> CallAnswer {
        within(self.engine.call(caller, request)).await
    }

    pub(crate) async fn run(&self, steps: Value) -> RunReport {
        self.run_plan(&plan(steps)).await
    }

    pub(crate) async fn run_plan(&self, plan: &ActionPlan) -> RunReport {
        within(self.engine.run_plan(person(), plan, approved())).await.unwrap()
    }

    pub(crate) fn export(&self, run_id: RunId) -> RunExport {
        export_run(&*self.store, run_id).unwrap()
    }

    pub(crate) fn row(&self, run_id: RunId) -> RunRow {
        self.store.run(run_id).unwrap().unwrap()
    }

    /// Waits until a run has ended or waits for a person.
    pub(crate) async fn until_settled(&self, run_id: RunId) -> RunStatus {
        within(async {
            loop {
                let status = self.row(run_id).status;
                if !matches!(status, RunStatus::Running | RunStatus::Pending) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        until(what, || holds(self)).await;
    }
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..30_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never came about: {what}");
}

/// A timeout for tests that hang; long enough for retry delays under a paused clock.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), work).await.expect("it ends")
}

/// The text of a step's `data.value`, and of other fields, without the ceremony.
pub(crate) fn data(result: &ToolResult) -> Value {
    Value::Object(result.data.clone().unwrap_or_default())
}

pub(crate) fn code(result: &ToolResult) -> &'static str {
    result.error.as_ref().map_or("none", |e| e.code.as_str())
}

pub(crate) fn failure_code(failure: &Option<Failure>) -> &'static str {
    failure.as_ref().map_or("none", |e| e.code.as_str())
}

pub(crate) fn detail<'a>(failure: &'a Failure, key: &str) -> &'a Value {
    failure.details.as_ref().and_then(|d| d.get(key)).unwrap_or(&Value::Null)
}

pub(crate) fn step<'a>(report: &'a RunReport, id: &str) -> &'a toolyard_engine::plan::StepReport {
    report.steps.iter().find(|s| s.id.as_str() == id).unwrap()
}

pub(crate) fn status_words(report: &RunReport) -> Vec<(String, &'static str)> {
    report.steps.iter().map(|s| (s.id.to_string(), s.status.map_or("open", |s| s.as_str()))).collect()
}

pub(crate) fn words<const N: usize>(pairs: [(&str, &'static str); N]) -> Vec<(String, &'static str)> {
    pairs.map(|(id, status)| (id.to_owned(), status)).to_vec()
}
