//! [`Engine`]: everything a call needs, put together once at start.

use crate::{
    Blobs, Caller, Clock, EventBus, Hook, Provider, Recorder, Store,
    approvals::Approvals,
    chain::Signer,
    ledger::Sealer,
    pipeline::{self, StepCall},
    record::{FinishedRecord, Record, RunStarted},
    scope::{RunScope, Usage},
    store::{Durability, Lease, RunKind, RunRow, StoreError},
};
use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{EffectivePolicy, Policy, Registry, RegistryError, Snapshot, Subject, ToolEntry, ToolSource};
use toolyard_protocol::{
    CallId, ErrorCode, Failure, ResultStatus, RunId, RunStatus, StepId, ToolCall, ToolResult, canonical,
};

/// Policies remembered as stored.
const MAX_STORED_POLICIES: usize = 1024;

/// Numbers that are the operator's rather than a policy's.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// How long a stopped call may take to clean up.
    pub grace: Duration,
    /// How long a call that did not stop is listened to, for its late answer.
    pub late_window: Duration,
    /// Calls under way at once, over all runs.
    pub max_calls: usize,
    /// How often ended runs are sealed into the ledger.
    pub seal_every: Duration,
    /// How long an idempotency key is remembered.
    pub idempotency_window: SignedDuration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(2),
            late_window: Duration::from_secs(60),
            max_calls: 1024,
            seal_every: Duration::from_millis(500),
            idempotency_window: SignedDuration::from_hours(24),
        }
    }
}

/// The tools of one moment: the snapshot that describes them and the providers that run them, always in step.
pub struct Tools {
    /// What exists.
    pub snapshot: Arc<Snapshot>,
    providers: Providers,
}

/// What runs each tool, by id.
type Providers = HashMap<String, Arc<dyn Provider>>;

impl Tools {
    /// What runs a tool, by id.
    pub fn provider(&self, id: &str) -> Option<&Arc<dyn Provider>> {
        self.providers.get(id)
    }
}

/// Tools that go and tools that come in their place.
pub struct ToolExchange {
    /// Ids of those that go; unknown ones do not matter.
    pub out: Vec<String>,
    /// Those that come.
    pub entries: Vec<ToolEntry>,
    /// What runs them.
    pub provider: Arc<dyn Provider>,
}

/// Runs calls and plans. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    options: EngineOptions,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    bus: Arc<EventBus>,
    signer: Arc<Signer>,
    sealer: Arc<Sealer>,
    approvals: Arc<Approvals>,
    registry: Mutex<(Registry, Providers)>,
    tools: ArcSwap<Tools>,
    tools_changed: watch::Sender<()>,
    policy: ArcSwap<Policy>,
    hooks: ArcSwap<Vec<Arc<dyn Hook>>>,
    permits: Semaphore,
    lease: Lease,
    runs: Mutex<HashMap<RunId, CancellationToken>>,
    calls: Mutex<HashMap<CallId, CancellationToken>>,
    /// Policies kept in the store already: hash of the policy to hash of the blob.
    stored_policies: Mutex<HashMap<String, String>>,
    run_end: arc_swap::ArcSwapOption<RunEndListener>,
    in_flight_keys: Mutex<HashMap<String, watch::Receiver<()>>>,
    shutdown: CancellationToken,
}

/// Hears of every run that ends, paused ones included. Must return at once.
pub type RunEndListener = Box<dyn Fn(RunId, RunKind, RunStatus) + Send + Sync>;

/// What an engine is made of.
pub struct EngineParts {
    /// Durable state.
    pub store: Arc<dyn Store>,
    /// Signs checkpoints.
    pub signer: Signer,
    /// Who may do what.
    pub policy: Policy,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// This process, for leases.
    pub lease: Lease,
    /// Numbers.
    pub options: EngineOptions,
}

/// A direct call.
#[derive(Debug, Clone, Default)]
pub struct CallRequest {
    /// Name or id.
    pub tool: String,
    /// Arguments.
    pub args: Map<String, Value>,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// One line for people.
    pub preview: Option<String>,
    /// The same key with the same arguments within 24 hours gives the recorded result again.
    pub idempotency_key: Option<String>,
    /// Predict instead of doing.
    pub dry_run: bool,
    /// The run's id, from [`Engine::new_run_id`], for whoever wants to watch it from its first event on.
    pub run_id: Option<RunId>,
    /// What to do when a person must be asked.
    pub asking: Asking,
    /// Stops the call when it fires; made by [`Engine::call_token`].
    pub cancel: Option<CancellationToken>,
}

/// What a direct call does when policy or a hook wants a person's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    /// Ask, and wait for the answer. `requester` names the connection that waits, so that a door can keep it from
    /// answering its own question.
    Wait {
        /// The connection.
        requester: Option<String>,
    },
    /// Do not ask: refuse with `CONFIRMATION_REQUIRED`, so that the caller can decide to ask.
    Report,
    /// Nobody can be reached who could answer: the question is recorded as denied at once.
    Unreachable,
}

impl Default for Asking {
    fn default() -> Self {
        Self::Wait { requester: None }
    }
}

/// The answer to a direct call.
#[derive(Debug, Clone)]
pub struct CallAnswer {
    /// The result.
    pub result: ToolResult,
    /// True when it is the recorded result of an earlier call with the same idempotency key.
    pub deduplicated: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyUse {
    tool: String,
    args_hash: String,
    run_id: RunId,
}

struct StoreBlobs(Arc<dyn Store>);

impl Blobs for StoreBlobs {
    fn read_blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.blob(sha256)?)
    }
}

impl Engine {
    /// Puts an engine together. Must be called inside a tokio runtime: ended runs are sealed in the background.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { store, signer, policy, clock, lease, options } = parts;
        let signer = Arc::new(signer);
        let sealer = Arc::new(Sealer::new(store.clone(), signer.clone()));
        let shutdown = CancellationToken::new();
        tokio::spawn(seal_in_background(sealer.clone(), options.seal_every, shutdown.clone()));
        let inner = Inner {
            permits: Semaphore::new(options.max_calls),
            approvals: Approvals::new(store.clone(), clock.clone()),
            blobs: Arc::new(StoreBlobs(store.clone())),
            bus: Arc::default(),
            registry: Mutex::new((Registry::new(), HashMap::new())),
            tools: ArcSwap::from_pointee(Tools { snapshot: Snapshot::empty(), providers: HashMap::new() }),
            tools_changed: watch::channel(()).0,
            policy: ArcSwap::from_pointee(policy),
            hooks: ArcSwap::default(),
            runs: Mutex::default(),
            calls: Mutex::default(),
            stored_policies: Mutex::default(),
            in_flight_keys: Mutex::default(),
            run_end: arc_swap::ArcSwapOption::empty(),
            options,
            clock,
            store,
            signer,
            sealer,
            lease,
            shutdown,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Adds tools that one provider runs. The snapshot changes once, for all of them or none.
    pub fn register(&self, entries: Vec<ToolEntry>, provider: Arc<dyn Provider>) -> Result<(), RegistryError> {
        let mut registry = lock(&self.inner.registry);
        let mut next = registry.0.clone();
        let mut providers = registry.1.clone();
        for entry in entries {
            providers.insert(entry.id().to_owned(), provider.clone());
            next.add(entry)?;
        }
        *registry = (next, providers);
        self.publish_tools(&registry);
        Ok(())
    }

    /// Takes tools out and others in, in one change: all of them, or (on an error) none.
    pub fn exchange(&self, exchanges: Vec<ToolExchange>) -> Result<(), RegistryError> {
        let mut registry = lock(&self.inner.registry);
        let mut next = registry.0.clone();
        let mut providers = registry.1.clone();
        for ToolExchange { out, entries, provider } in exchanges {
            for id in &out {
                next.remove(id);
                providers.remove(id);
            }
            for entry in entries {
                providers.insert(entry.id().to_owned(), provider.clone());
                next.add(entry)?;
            }
        }
        *registry = (next, providers);
        self.publish_tools(&registry);
        Ok(())
    }

    /// Removes every tool of a source.
    pub fn unregister(&self, source: &ToolSource) {
        let mut registry = lock(&self.inner.registry);
        registry.0.remove_source(source);
        let snapshot = registry.0.snapshot();
        registry.1.retain(|id, _| snapshot.get(id).is_some());
        self.publish_tools(&registry);
    }

    fn publish_tools(&self, registry: &(Registry, Providers)) {
        let tools = Tools { snapshot: registry.0.snapshot(), providers: registry.1.clone() };
        self.inner.tools.store(Arc::new(tools));
        self.inner.tools_changed.send_replace(());
    }

    /// Hears when tools come or go.
    pub fn watch_tools(&self) -> watch::Receiver<()> {
        self.inner.tools_changed.subscribe()
    }

    /// Adds a hook; hooks run in the order they were added.
    pub fn add_hook(&self, hook: Arc<dyn Hook>) {
        self.inner.hooks.rcu(|hooks| {
            let mut next = Vec::clone(hooks);
            next.push(hook.clone());
            next
        });
    }

    /// Sets who hears of ended runs.
    pub fn on_run_end(&self, listener: RunEndListener) {
        self.inner.run_end.store(Some(Arc::new(listener)));
    }

    pub(crate) fn tell_run_end(&self, run_id: RunId, kind: RunKind, status: RunStatus) {
        if let Some(listener) = &*self.inner.run_end.load() {
            listener(run_id, kind, status);
        }
    }

    /// Replaces the policy for calls from now on; runs under way keep theirs.
    pub fn set_policy(&self, policy: Policy) {
        self.inner.policy.store(Arc::new(policy));
    }

    /// The tools of this moment.
    pub fn tools(&self) -> Arc<Tools> {
        self.inner.tools.load_full()
    }

    /// The policy that holds for a caller.
    pub fn policy_for(&self, caller: &Caller) -> Arc<EffectivePolicy> {
        self.policy_through(caller, None)
    }

    /// The policy that holds for what a caller asks through a second door, such as a script: both doors' rules hold.
    pub fn policy_through(&self, caller: &Caller, second: Option<crate::Door>) -> Arc<EffectivePolicy> {
        let subject = Subject {
            agent: &caller.agent,
            session: caller.session.as_deref(),
            door: caller.door.as_str(),
            scopes: &caller.scopes,
        };
        self.inner.policy.load().effective_through(&subject, second.map(crate::Door::as_str))
    }

    /// Tools the caller may use, by id: exactly those a call would not be denied for by name.
    pub fn visible_tools(&self, caller: &Caller) -> Vec<Arc<ToolEntry>> {
        let policy = self.policy_for(caller);
        let tools = self.tools();
        tools
            .snapshot
            .iter()
            .filter(|entry| !matches!(policy.decide(entry, None), toolyard_catalog::Decision::Deny { .. }))
            .cloned()
            .collect()
    }

    /// Calls one tool. Always answers with a result; it is durable when this returns if the call had side effects.
    pub async fn call(&self, caller: Arc<Caller>, request: CallRequest) -> CallAnswer {
        match request.idempotency_key.clone() {
            Some(key) if !request.dry_run => self.call_once(caller, request, key).await,
            _ => {
                let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
                CallAnswer { result: self.call_in_run(caller, request, run_id).await, deduplicated: false }
            }
        }
    }

    /// A token with which a door can stop a call it is about to make. Stopping the engine fires it as well.
    pub fn call_token(&self) -> CancellationToken {
        self.inner.shutdown.child_token()
    }

    async fn call_in_run(&self, caller: Arc<Caller>, request: CallRequest, run_id: RunId) -> ToolResult {
        let previews = request.dry_run.then(Default::default);
        let cancel = request.cancel.unwrap_or_else(|| self.call_token());
        let scope = RunScope { is_one_call: true, ..self.scope(run_id, caller, cancel, previews) };
        let _registered = self.register_run(run_id, scope.cancel.clone());
        let started_at = self.begin_direct(&scope, &request.tool);
        let call = StepCall {
            step_id: StepId::direct(),
            tool: request.tool.clone(),
            args: request.args,
            iteration: None,
            attempt: 1,
            timeout_ms: request.timeout_ms,
            preview: request.preview,
            first_of_step: true,
            recovered: None,
            cancel: scope.cancel.child_token(),
            asking: request.asking,
        };
        let settled = pipeline::run_call(self, &scope, call).await;
        let status = match settled.result.status {
            ResultStatus::Ok => RunStatus::Finished,
            ResultStatus::Cancelled => RunStatus::Cancelled,
            _ => RunStatus::Failed,
        };
        let message = settled.result.user_message.clone().unwrap_or_else(|| status.as_str().to_owned());
        let ended = self.finish_run(
            &scope,
            RunKind::Call,
            &request.tool,
            started_at,
            status,
            settled.result.error.clone(),
            message,
        );
        if let Err(error) = ended
            && settled.result.ok
        {
            // The result was to be recorded with the end: what is not recorded is not reported as done.
            return pipeline::with_store_failure(settled.result, error.into());
        }
        if settled.side_effects
            && scope.previews.is_none()
            && let Err(error) = scope.recorder.sync().await
        {
            // The effect may have happened, but its record did not reach the disk: the caller must know.
            tracing::error!(%error, %run_id, "a result could not be made durable");
            return pipeline::with_store_failure(settled.result, error.into());
        }
        settled.result
    }

    /// A direct call with an idempotency key.
    async fn call_once(&self, caller: Arc<Caller>, request: CallRequest, key: String) -> CallAnswer {
        let args_hash = canonical::hash(&request.args).unwrap_or_default();
        let full_key = format!("{}\n{}\n{key}", caller.principal, caller.session.as_deref().unwrap_or_default());
        let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
        let mine = KeyUse { tool: request.tool.clone(), args_hash: args_hash.clone(), run_id };
        let _turn = self.take_turn(&full_key).await;
        let expires = self.inner.clock.now().checked_add(self.inner.options.idempotency_window).ok();
        let bytes = serde_json::to_vec(&mine).unwrap_or_default();
        let store = self.inner.store.clone();
        let space_key = full_key.clone();
        let existing =
            tokio::task::spawn_blocking(move || store.put_if_absent("idempotency", &space_key, bytes, expires)).await;
        match existing {
            Ok(Ok(None)) => CallAnswer { result: self.call_in_run(caller, request, run_id).await, deduplicated: false },
            Ok(Ok(Some(earlier))) => self.earlier_answer(caller, request, &args_hash, &earlier).await,
            Ok(Err(error)) => self.refuse_direct(caller, &request, error.into()),
            Err(_) => {
                self.refuse_direct(caller, &request, Failure::new(ErrorCode::InternalError, "the store did not answer"))
            }
        }
    }

    /// Waits until nobody else works under an idempotency key. The turn ends when the answer is dropped, also when the
    /// caller goes away in the middle of it.
    async fn take_turn(&self, key: &str) -> Turn<'_> {
        loop {
            let mut other = {
                let mut keys = lock(&self.inner.in_flight_keys);
                match keys.get(key) {
                    Some(other) => other.clone(),
                    None => {
                        let (done, waiting) = watch::channel(());
                        keys.insert(key.to_owned(), waiting);
                        return Turn { keys: &self.inner.in_flight_keys, key: key.to_owned(), _done: done };
                    }
                }
            };
            // Nothing is ever sent: this answers when the other turn is dropped.
            let _ = other.changed().await;
        }
    }

    async fn earlier_answer(
        &self,
        caller: Arc<Caller>,
        request: CallRequest,
        args_hash: &str,
        earlier: &[u8],
    ) -> CallAnswer {
        let Ok(earlier) = serde_json::from_slice::<KeyUse>(earlier) else {
            return self.refuse_direct(
                caller,
                &request,
                Failure::new(ErrorCode::InternalError, "the idempotency key's entry cannot be read"),
            );
        };
        if earlier.args_hash != args_hash || earlier.tool != request.tool {
            let failure =
                Failure::new(ErrorCode::Conflict, "this idempotency key was used with another tool or other arguments")
                    .suggest("Use a new key for a new call.")
                    .detail("runId", earlier.run_id.to_string())
                    .retryable(false);
            return self.refuse_direct(caller, &request, failure);
        }
        let store = self.inner.store.clone();
        let run_id = earlier.run_id;
        let max_output = self.policy_for(&caller).limits().max_output_bytes;
        let recorded = tokio::task::spawn_blocking(move || {
            store.settle()?;
            crate::view::last_result(&*store, run_id, max_output)
        })
        .await;
        let result = recorded.ok().and_then(Result::ok).flatten();
        match result {
            Some(result) => CallAnswer { result, deduplicated: true },
            None => {
                let failure = Failure::new(
                    ErrorCode::Conflict,
                    "a call with this idempotency key was interrupted; its outcome is not known",
                )
                .suggest("Look at the run with `toolyard runs show`, then use a new key.")
                .detail("runId", run_id.to_string())
                .detail("reason", "IN_DOUBT");
                self.refuse_direct(caller, &request, failure)
            }
        }
    }

    fn refuse_direct(&self, caller: Arc<Caller>, request: &CallRequest, failure: Failure) -> CallAnswer {
        let run_id = self.new_run_id();
        let scope = self.scope(run_id, caller, self.inner.shutdown.child_token(), None);
        let started_at = self.begin_direct(&scope, &request.tool);
        let call = StepCall {
            step_id: StepId::direct(),
            tool: request.tool.clone(),
            args: request.args.clone(),
            iteration: None,
            attempt: 1,
            timeout_ms: None,
            preview: None,
            first_of_step: true,
            recovered: None,
            cancel: scope.cancel.clone(),
            asking: Asking::Report,
        };
        let call_id = CallId::from_uuid(self.inner.clock.new_id());
        let settled = pipeline::refuse(self, &scope, call_id, &call, failure.clone());
        let message = failure.to_string();
        // A refusal stays one, recorded or not.
        let _ = self.finish_run(
            &scope,
            RunKind::Call,
            &request.tool,
            started_at,
            RunStatus::Failed,
            Some(failure),
            message,
        );
        CallAnswer { result: settled.result, deduplicated: false }
    }

    pub(crate) fn scope(
        &self,
        run_id: RunId,
        caller: Arc<Caller>,
        cancel: CancellationToken,
        previews: Option<crate::scope::Previews>,
    ) -> RunScope {
        let policy = self.policy_for(&caller);
        // What is only imagined is recorded nowhere and told to nobody.
        let (store, bus): (Arc<dyn Store>, Arc<EventBus>) = if previews.is_some() {
            (Arc::new(crate::memory_store::MemoryStore::new()), Arc::default())
        } else {
            (self.inner.store.clone(), self.inner.bus.clone())
        };
        let recorder = Recorder::begin(run_id, caller.session.clone(), store, bus, self.inner.signer.clone());
        self.scope_with(run_id, caller, policy, cancel, previews, recorder)
    }

    pub(crate) fn scope_with(
        &self,
        run_id: RunId,
        caller: Arc<Caller>,
        policy: Arc<EffectivePolicy>,
        cancel: CancellationToken,
        previews: Option<crate::scope::Previews>,
        recorder: Recorder,
    ) -> RunScope {
        RunScope {
            run_id,
            permits: Semaphore::new(policy.limits().max_concurrency.max(1) as usize),
            caller,
            tools: self.tools(),
            policy,
            recorder: Arc::new(recorder),
            cancel,
            confirmation: OnceLock::new(),
            usage: Usage::default(),
            policy_blob: OnceLock::new(),
            is_one_call: false,
            planner_version: None,
            previews,
            parent: None,
        }
    }

    fn begin_direct(&self, scope: &RunScope, tool: &str) -> Timestamp {
        let started_at = self.inner.clock.now();
        let policy_blob = self.policy_blob(scope);
        scope.recorder.push(&Record::RunStarted(RunStarted {
            run_id: scope.run_id,
            kind: RunKind::Call,
            plan: None,
            plan_hash: None,
            policy_hash: scope.policy.hash().to_owned(),
            policy: None,
            policy_blob: Some(policy_blob),
            registry_version: scope.tools.snapshot.version().to_owned(),
            executor_version: crate::EXECUTOR_VERSION.to_owned(),
            planner_version: None,
            caller: scope.caller.to_map(),
            context: Map::new(),
            started_at,
            parent_run_id: None,
            imported_steps: Vec::new(),
            preview_hash: None,
        }));
        scope.recorder.set_row(self.row(scope, RunKind::Call, tool, started_at, RunStatus::Running, None));
        started_at
    }

    /// Single calls share one copy of their policy, kept by content. Until a run that carries it has ended (and so has
    /// been handed to the store) every run carries it: one that still waits for a person has stored nothing.
    fn policy_blob(&self, scope: &RunScope) -> String {
        if scope.previews.is_none()
            && let Some(sha256) = lock(&self.inner.stored_policies).get(scope.policy.hash())
        {
            return sha256.clone();
        }
        let blob = crate::Blob::new(serde_json::to_vec(&**scope.policy.snapshot()).unwrap_or_default());
        let sha256 = blob.sha256.clone();
        scope.recorder.push_blobs([blob]);
        let _ = scope.policy_blob.set(sha256.clone());
        sha256
    }

    pub(crate) fn row(
        &self,
        scope: &RunScope,
        kind: RunKind,
        title: &str,
        started_at: Timestamp,
        status: RunStatus,
        ended_at: Option<Timestamp>,
    ) -> RunRow {
        RunRow {
            run_id: scope.run_id,
            kind,
            status,
            title: title.chars().take(200).collect(),
            session: scope.caller.session.clone(),
            started_at,
            ended_at,
            lease: (!status.is_final()).then(|| self.inner.lease.clone()),
        }
    }

    /// Records a run's end and hands its head to the ledger. An error is logged here as well.
    #[allow(clippy::too_many_arguments)] // the parts of one closing record
    pub(crate) fn finish_run(
        &self,
        scope: &RunScope,
        kind: RunKind,
        title: &str,
        started_at: Timestamp,
        status: RunStatus,
        error: Option<Failure>,
        message: String,
    ) -> Result<(), StoreError> {
        let at = self.inner.clock.now();
        scope.recorder.push(&Record::Finished(FinishedRecord { at, status, error, message }));
        if kind == RunKind::Plan {
            scope.recorder.checkpoint();
        }
        scope.recorder.set_row(self.row(scope, kind, title, started_at, status, Some(at)));
        match scope.recorder.flush(Durability::Ride) {
            Ok(_) => {
                if scope.previews.is_none() {
                    if let Some(sha256) = scope.policy_blob.get() {
                        let mut stored = lock(&self.inner.stored_policies);
                        if stored.len() >= MAX_STORED_POLICIES {
                            stored.clear(); // a blob that is stored twice is kept once
                        }
                        stored.insert(scope.policy.hash().to_owned(), sha256.clone());
                    }
                    let (seq, chain) = scope.recorder.head();
                    self.inner.sealer.run_ended(scope.run_id, seq, &chain);
                    self.tell_run_end(scope.run_id, kind, status);
                }
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, run_id = %scope.run_id, "the end of a run could not be recorded");
                Err(error)
            }
        }
    }

    /// Stops a run. `false` when it is not under way here.
    pub fn cancel_run(&self, run_id: RunId) -> bool {
        let token = lock(&self.inner.runs).get(&run_id).cloned();
        token.is_some_and(|t| {
            t.cancel();
            true
        })
    }

    /// Stops one call. `false` when it is not under way here.
    pub fn cancel_call(&self, call_id: CallId) -> bool {
        let token = lock(&self.inner.calls).get(&call_id).cloned();
        token.is_some_and(|t| {
            t.cancel();
            true
        })
    }

    /// Runs under way in this process.
    pub fn active_runs(&self) -> Vec<RunId> {
        lock(&self.inner.runs).keys().copied().collect()
    }

    /// Stops everything, waits a little for it, and seals what ended. The engine takes no more calls.
    pub async fn shutdown(&self) {
        self.inner.shutdown.cancel();
        let give_up = tokio::time::Instant::now() + self.inner.options.grace + Duration::from_secs(1);
        while !lock(&self.inner.runs).is_empty() && tokio::time::Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.inner.permits.close();
        let sealer = self.inner.sealer.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || sealer.seal()).await {
            tracing::error!(%error, "the last runs could not be sealed");
        }
    }

    /// Seals what a process that is gone had ended and not sealed.
    pub(crate) async fn seal_left_behind(&self) -> Result<(), Failure> {
        let sealer = self.inner.sealer.clone();
        let sealed = tokio::task::spawn_blocking(move || sealer.note_unsealed().and_then(|()| sealer.seal())).await;
        match sealed {
            Ok(sealed) => Ok(sealed?),
            Err(_) => Err(Failure::new(ErrorCode::InternalError, "the sealing task failed")),
        }
    }

    /// Seals ended runs now rather than with the next tick.
    pub async fn seal(&self) -> Result<(), Failure> {
        let sealer = self.inner.sealer.clone();
        match tokio::task::spawn_blocking(move || sealer.seal()).await {
            Ok(sealed) => Ok(sealed?),
            Err(_) => Err(Failure::new(ErrorCode::InternalError, "the sealing task failed")),
        }
    }

    /// Events as they happen.
    pub fn bus(&self) -> &Arc<EventBus> {
        &self.inner.bus
    }
    /// Questions to people.
    pub fn approvals(&self) -> &Arc<Approvals> {
        &self.inner.approvals
    }
    /// Durable state.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }
    /// Time and ids.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }
    /// Signs records.
    pub fn signer(&self) -> &Arc<Signer> {
        &self.inner.signer
    }
    /// Numbers.
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }
    pub(crate) fn lease(&self) -> &Lease {
        &self.inner.lease
    }
    pub(crate) fn hooks(&self) -> Arc<Vec<Arc<dyn Hook>>> {
        self.inner.hooks.load_full()
    }
    pub(crate) fn permits(&self) -> &Semaphore {
        &self.inner.permits
    }
    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        self.inner.blobs.clone()
    }
    pub(crate) fn shutdown_token(&self) -> &CancellationToken {
        &self.inner.shutdown
    }
    /// An id for a run to come.
    pub fn new_run_id(&self) -> RunId {
        RunId::from_uuid(self.inner.clock.new_id())
    }

    pub(crate) fn register_call(&self, call_id: CallId, token: CancellationToken) -> Registered<'_, CallId> {
        lock(&self.inner.calls).insert(call_id, token);
        Registered { map: &self.inner.calls, key: call_id }
    }
    pub(crate) fn register_run(&self, run_id: RunId, token: CancellationToken) -> Registered<'_, RunId> {
        lock(&self.inner.runs).insert(run_id, token);
        Registered { map: &self.inner.runs, key: run_id }
    }
}

/// The right to work under an idempotency key.
struct Turn<'a> {
    keys: &'a Mutex<HashMap<String, watch::Receiver<()>>>,
    key: String,
    _done: watch::Sender<()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(self.keys).remove(&self.key);
    }
}

/// Keeps a run or call findable for as long as it is under way.
pub(crate) struct Registered<'a, K: std::hash::Hash + Eq> {
    map: &'a Mutex<HashMap<K, CancellationToken>>,
    key: K,
}

impl<K: std::hash::Hash + Eq> Drop for Registered<'_, K> {
    fn drop(&mut self) {
        lock(self.map).remove(&self.key);
    }
}

async fn seal_in_background(sealer: Arc<Sealer>, every: Duration, shutdown: CancellationToken) {
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shutdown.cancelled() => return,
        }
        if sealer.is_idle() {
            continue;
        }
        let sealer = sealer.clone();
        match tokio::task::spawn_blocking(move || sealer.seal()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "ended runs could not be sealed"),
            Err(_) => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// The envelope is shared with tasks that outlive the pipeline; this keeps that honest.
const _: fn() = || {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<ToolCall>();
    assert_send_sync::<Engine>();
};
