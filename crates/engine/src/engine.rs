//! [`Engine`]: everything that a call needs, assembled once at start.
//!
//! The parts are in submodules: the registered [`tools`], a direct [`call`] (with its idempotency key, [`once`], and
//! with a question that was asked [`ahead`] of it), the state of every [`run`], what is
//! [`in_flight`] here and at [`others`], and the [`sealing`] of ended runs. Plans are in `plan/`.

mod ahead;
mod call;
mod draining;
mod in_flight;
mod once;
mod others;
mod prune;
mod run;
mod sealing;
mod tools;

pub use ahead::AskedAhead;
pub(crate) use ahead::{AheadAnswer, AheadTerms};
pub use call::{Asking, CallAnswer, CallRequest};
pub(crate) use once::KEYS;
pub use prune::{PrunedRuns, Retention};
pub use run::RunEndListener;
pub use tools::{ToolExchange, Tools};

use self::{
    ahead::AheadAnswers, draining::Draining, in_flight::InFlight, once::KeyLocks, others::OtherRuns, tools::Toolbox,
};
use crate::{
    Blobs, Caller, Clock, EventBus, Hook, SealedStore, Store, approvals::Approvals, chain::Signer, ledger::Sealer,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::SignedDuration;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{EffectivePolicy, Policy, Subject, VisibleTools};
use toolyard_protocol::{Failure, RunId, ToolCall, WorkspaceId};

/// Limits and intervals that the operator sets, as opposed to a policy.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// How long a stopped call may take to clean up.
    pub grace: Duration,
    /// How long the late answer of a call that did not stop is accepted.
    pub late_window: Duration,
    /// Maximum number of calls in flight, over all runs.
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

/// Says whether a workspace has the tools that work on what belongs to the owner of the installation.
pub type OwnersTools = Box<dyn Fn(&WorkspaceId) -> bool + Send + Sync>;

/// Runs calls and plans. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    options: EngineOptions,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// The same store, as what seals its facts.
    facts: Arc<SealedStore>,
    blobs: Arc<dyn Blobs>,
    bus: Arc<EventBus>,
    signer: Arc<Signer>,
    sealer: Arc<Sealer>,
    approvals: Arc<Approvals>,
    toolbox: Toolbox,
    policy: ArcSwap<Policy>,
    hooks: ArcSwap<Vec<Arc<dyn Hook>>>,
    permits: Semaphore,
    in_flight: InFlight,
    others: OtherRuns,
    /// Runs of this process whose end could not be recorded.
    interrupted: Mutex<HashSet<RunId>>,
    /// Policies kept in the store already: hash of the policy to hash of the blob.
    stored_policies: Mutex<HashMap<String, String>>,
    run_end: ArcSwapOption<RunEndListener>,
    owners_tools: OnceLock<OwnersTools>,
    key_locks: KeyLocks,
    ahead: AheadAnswers,
    draining: Draining,
    shutdown: CancellationToken,
}

/// The parts of an engine.
pub struct EngineParts {
    /// The durable state.
    pub store: Arc<dyn Store>,
    /// The key that signs checkpoints.
    pub signer: Signer,
    /// Who may do what.
    pub policy: Policy,
    /// Time and ids.
    pub clock: Arc<dyn Clock>,
    /// Limits and intervals that the operator can set.
    pub options: EngineOptions,
}

struct StoreBlobs(Arc<dyn Store>);

impl Blobs for StoreBlobs {
    fn read_blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.blob(sha256)?)
    }
}

impl Engine {
    /// Creates an engine. Must be called inside a tokio runtime, because ended runs are sealed in the background.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { store, signer, policy, clock, options } = parts;
        let signer = Arc::new(signer);
        let facts = Arc::new(SealedStore::new(store, signer.clone()));
        let sealer = Arc::new(Sealer::new(facts.clone(), signer.clone()).naming_facts_of(&facts));
        let store: Arc<dyn Store> = facts.clone();
        let shutdown = CancellationToken::new();
        tokio::spawn(sealing::seal_in_background(sealer.clone(), options.seal_every, shutdown.clone()));
        let inner = Inner {
            permits: Semaphore::new(options.max_calls),
            approvals: Approvals::new(store.clone(), clock.clone()),
            blobs: Arc::new(StoreBlobs(store.clone())),
            bus: Arc::default(),
            toolbox: Toolbox::default(),
            policy: ArcSwap::from_pointee(policy),
            hooks: ArcSwap::default(),
            in_flight: InFlight::default(),
            others: OtherRuns::default(),
            interrupted: Mutex::default(),
            stored_policies: Mutex::default(),
            key_locks: KeyLocks::default(),
            ahead: AheadAnswers::default(),
            draining: Draining::default(),
            run_end: ArcSwapOption::empty(),
            owners_tools: OnceLock::new(),
            options,
            clock,
            store,
            facts,
            signer,
            sealer,
            shutdown,
        };
        let engine = Self { inner: Arc::new(inner) };
        if engine.inner.store.is_shared() {
            others::start(&engine);
        }
        engine
    }

    /// Adds a hook; hooks run in the order they were added.
    pub fn add_hook(&self, hook: Arc<dyn Hook>) {
        self.inner.hooks.rcu(|hooks| {
            let mut next = Vec::clone(hooks);
            next.push(hook.clone());
            next
        });
    }

    /// Replaces the policy for future runs; runs in flight keep theirs.
    pub fn set_policy(&self, policy: Policy) {
        self.inner.policy.store(Arc::new(policy));
    }

    /// The policy that holds for a caller.
    pub fn policy_for(&self, caller: &Caller) -> Arc<EffectivePolicy> {
        self.policy_through(caller, None)
    }

    /// The policy for a request that passes a second door, such as a script: the rules of both doors apply.
    pub fn policy_through(&self, caller: &Caller, second: Option<crate::Door>) -> Arc<EffectivePolicy> {
        let subject = Subject {
            agent: &caller.agent,
            session: caller.session.as_deref(),
            door: caller.door.as_str(),
            scopes: &caller.scopes,
        };
        let owns = |session: &str| self.inner.toolbox.owns(session);
        let visible = VisibleTools {
            of_session: caller.session.as_deref().is_some_and(owns),
            of_owner: self.has_owners_tools(&caller.workspace),
        };
        self.inner.policy.load().effective_through(&subject, second.map(crate::Door::as_str), visible)
    }

    /// Sets which workspaces besides the default one have the owner's tools; later calls have no effect. Without it, none
    /// has.
    pub fn give_owners_tools(&self, may: OwnersTools) {
        if self.inner.owners_tools.set(may).is_err() {
            tracing::error!("who has the owner's tools is decided already");
        }
    }

    fn has_owners_tools(&self, workspace: &WorkspaceId) -> bool {
        workspace.is_default() || self.inner.owners_tools.get().is_some_and(|may| may(workspace))
    }

    /// Stops all calls, waits for them for a short time, and seals ended runs. The engine accepts no more calls.
    pub async fn shutdown(&self) {
        self.inner.approvals.stop();
        self.inner.shutdown.cancel();
        let give_up = tokio::time::Instant::now() + self.inner.options.grace + Duration::from_secs(1);
        while !self.inner.in_flight.is_idle() && tokio::time::Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.inner.permits.close();
        let sealer = self.inner.sealer.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || sealer.seal()).await {
            tracing::error!(%error, "the last runs could not be sealed");
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
    /// The durable state.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }
    /// Time and ids.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }
    /// The key that signs records.
    pub fn signer(&self) -> &Arc<Signer> {
        &self.inner.signer
    }
    /// Limits and delays.
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
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
    /// Remembers a run whose end could not be recorded, for the next sweep.
    pub(crate) fn note_interrupted(&self, run_id: RunId) {
        lock(&self.inner.interrupted).insert(run_id);
    }
    pub(crate) fn take_interrupted(&self) -> HashSet<RunId> {
        std::mem::take(&mut *lock(&self.inner.interrupted))
    }
    /// An id for a run to come.
    pub fn new_run_id(&self) -> RunId {
        RunId::from_uuid(self.inner.clock.new_id())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// The envelope is shared with tasks that outlive the pipeline, so it must be `Send` and `Sync`.
const _: fn() = || {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<ToolCall>();
    assert_send_sync::<Engine>();
};
