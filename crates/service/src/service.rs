//! [`Service`]: the state that methods work on in every process, with or without network doors.

use crate::{
    Methods, RpcError, cluster::Cluster, console::Console, devices::Devices, list, proof::ProofKeeper,
    run_facts::RunFactsCache, workspaces::Workspaces,
};
use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{
    CallAnswer, CallRequest, Caller, Engine, ModelView,
    chain::Verifier,
    plan::{Recovered, SweepHistory},
};
use toolyard_protocol::{ErrorCode, Failure};

/// How often a running process looks for runs that another one left behind.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// The state that methods work on. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    devices: Arc<Devices>,
    workspaces: Arc<Workspaces>,
    cluster: Option<Arc<Cluster>>,
    console: Console,
    run_facts: RunFactsCache,
    started: Instant,
    info: ProcessInfo,
    methods: ArcSwap<Methods>,
    models: OnceLock<Arc<dyn ModelView>>,
    plugins: OnceLock<Box<dyn Fn() -> Vec<PluginReport> + Send + Sync>>,
    proof: OnceLock<Arc<dyn ProofKeeper>>,
}

/// Which Toolyard this process is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessInfo {
    /// The program's version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The folder of its state.
    pub home: String,
    /// The vault it serves.
    pub vault: String,
    /// What starts this program in a shell: its name if `PATH` finds it, otherwise its path.
    #[serde(default)]
    pub command: String,
}

/// A plugin's state, as `health` reports it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginReport {
    /// The plugin.
    pub id: String,
    /// Whether it is used.
    #[serde(skip)]
    pub enabled: bool,
    /// `healthy`, `degraded` or `unavailable`.
    pub status: &'static str,
    /// What is wrong.
    pub problems: Vec<String>,
    /// Tools left out, and why.
    pub left_out: Vec<OmittedTool>,
}

impl PluginReport {
    /// Whether its tools can be called.
    pub(crate) fn works(&self) -> bool {
        self.status != "unavailable"
    }
}

/// A tool of a plugin that cannot be called.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OmittedTool {
    /// The tool.
    pub tool: String,
    /// Why it is left out.
    pub reason: String,
}

impl Service {
    /// `info` is shown by `yard.status`.
    pub fn new(engine: Engine, info: ProcessInfo) -> Self {
        let devices = Arc::new(Devices::new(engine.store().clone(), engine.clock().clone()));
        let console = Console::new(engine.store().clone(), engine.clock().clone(), devices.clone(), &info.home);
        let workspaces = Arc::new(Workspaces::new(engine.store().clone(), engine.clock().clone()));
        let cluster = Cluster::of(engine.store()).map(Arc::new);
        Self {
            inner: Arc::new(Inner {
                cluster,
                engine,
                devices,
                workspaces,
                console,
                run_facts: RunFactsCache::default(),
                started: Instant::now(),
                info,
                methods: ArcSwap::from_pointee(list::built_in()),
                models: OnceLock::new(),
                plugins: OnceLock::new(),
                proof: OnceLock::new(),
            }),
        }
    }

    /// Adds methods that other parts answer.
    pub fn extend(&self, add: impl Fn(&mut Methods)) {
        self.inner.methods.rcu(|methods| {
            let mut methods = Methods::clone(methods);
            add(&mut methods);
            methods
        });
    }

    /// The one list of methods.
    pub fn methods(&self) -> Arc<Methods> {
        self.inner.methods.load_full()
    }

    /// Sets the function that reports on plugins; later calls have no effect.
    pub fn report_plugins(&self, report: impl Fn() -> Vec<PluginReport> + Send + Sync + 'static) {
        if self.inner.plugins.set(Box::new(report)).is_err() {
            tracing::error!("plugins are reported on already");
        }
    }

    /// The state of the plugins.
    pub(crate) fn plugins(&self) -> Vec<PluginReport> {
        self.inner.plugins.get().map_or_else(Vec::new, |report| report())
    }

    /// Why a plugin's tool is not available, if it is left out: its manifest does not list it, for example.
    pub(crate) fn why_left_out(&self, tool: &str) -> Option<String> {
        self.plugins().iter().find_map(|plugin| {
            let left_out = plugin.left_out.iter().find(|left_out| left_out.tool == tool)?;
            Some(format!("The plugin {} is without it: {}", plugin.id, left_out.reason))
        })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Sets the view that selects the tools that models are shown; later calls have no effect. Without a view, models
    /// are shown all tools.
    pub fn show_models(&self, view: Arc<dyn ModelView>) {
        if self.inner.models.set(view).is_err() {
            tracing::error!("what models are shown is decided already");
        }
    }

    /// The view that selects the tools that models are shown.
    pub fn models(&self) -> Option<&Arc<dyn ModelView>> {
        self.inner.models.get()
    }

    /// Devices that may connect.
    pub fn devices(&self) -> &Arc<Devices> {
        &self.inner.devices
    }

    /// The workspaces of this installation.
    pub fn workspaces(&self) -> &Arc<Workspaces> {
        &self.inner.workspaces
    }

    /// The other nodes, where several use the store.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.inner.cluster.as_ref()
    }

    /// Pairing codes, paired browsers and tickets.
    pub fn console(&self) -> &Console {
        &self.inner.console
    }

    /// The cached facts about runs.
    pub(crate) fn run_facts(&self) -> &RunFactsCache {
        &self.inner.run_facts
    }

    /// Calls a tool; every door uses this function.
    pub async fn invoke(&self, caller: Arc<Caller>, request: CallRequest) -> CallAnswer {
        self.engine().call(caller, request).await
    }

    /// Milliseconds since the service began.
    pub fn uptime_ms(&self) -> u64 {
        self.inner.started.elapsed().as_millis() as u64
    }

    /// Recovers the runs that a dead process left behind.
    pub async fn recover(&self) -> Result<Recovered, Failure> {
        self.inner.engine.recover().await
    }

    /// Recovers the runs of other processes when they die, until stopped.
    pub async fn keep_recovering(&self, stop: CancellationToken) {
        let mut swept = SweepHistory::default();
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => return,
            }
            match self.engine().sweep(&mut swept).await {
                Ok(recovered) if recovered.is_empty() => {}
                Ok(Recovered { resumed, settled_calls, paused, failed }) => {
                    let (resumed, settled, paused) = (resumed.len(), settled_calls.len(), paused.len());
                    tracing::info!(resumed, settled, paused, "recovered runs of a dead process");
                    for (run_id, failure) in failed {
                        // Several nodes see that an owner died, and one of them takes the run up.
                        if failure.code == ErrorCode::Conflict {
                            tracing::info!(%run_id, reason = %failure.message, "a run was left to another process");
                            continue;
                        }
                        tracing::error!(%run_id, error = %failure.message, "a run could not be taken up");
                    }
                }
                Err(failure) => tracing::warn!(error = %failure.message, "cannot look for runs of other processes"),
            }
        }
    }

    pub(crate) fn info(&self) -> &ProcessInfo {
        &self.inner.info
    }

    /// Checks what this process signs.
    pub(crate) fn verifier(&self) -> Verifier {
        self.engine().signer().verifier()
    }

    /// The keeper of the files beside the store.
    pub(crate) fn proof_keeper_slot(&self) -> &OnceLock<Arc<dyn ProofKeeper>> {
        &self.inner.proof
    }
}

/// Runs work that may block on the store.
pub(crate) async fn blocking<T: Send + 'static, E: From<RpcError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(RpcError::unavailable("reading the store failed unexpectedly").into()))
}
