//! [`Service`]: what methods work on in every process, with or without network doors.

use crate::{Methods, RpcError, devices::Devices, list, proof::ProofKeeper};
use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};
use toolyard_engine::{CallAnswer, CallRequest, Caller, Engine, ModelView, chain::Verifier, store::Lease};
use toolyard_protocol::Failure;

/// What methods work on. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    devices: Arc<Devices>,
    is_alive: Box<dyn Fn(&Lease) -> bool + Send + Sync>,
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
    pub left_out: Vec<LeftOutTool>,
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
pub struct LeftOutTool {
    /// The tool.
    pub tool: String,
    /// Why it is left out.
    pub reason: String,
}

impl Service {
    /// `info` is shown by `yard.status`; `is_alive` says whether the process of a lease still runs.
    pub fn new(engine: Engine, info: ProcessInfo, is_alive: impl Fn(&Lease) -> bool + Send + Sync + 'static) -> Self {
        let devices = Arc::new(Devices::new(engine.store().clone(), engine.clock().clone()));
        Self {
            inner: Arc::new(Inner {
                engine,
                devices,
                is_alive: Box::new(is_alive),
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

    /// Sets who reports on plugins; the first to be set stays.
    pub fn report_plugins(&self, report: impl Fn() -> Vec<PluginReport> + Send + Sync + 'static) {
        if self.inner.plugins.set(Box::new(report)).is_err() {
            tracing::error!("plugins are reported on already");
        }
    }

    /// Plugins and how they are, where there are any.
    pub(crate) fn plugins(&self) -> Vec<PluginReport> {
        self.inner.plugins.get().map_or_else(Vec::new, |report| report())
    }

    /// Why a tool that a plugin has is not available, where that is so: its manifest does not list it, for example.
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

    /// Sets who decides what models are shown; the first to be set stays. Without one, models are shown everything.
    pub fn show_models(&self, view: Arc<dyn ModelView>) {
        if self.inner.models.set(view).is_err() {
            tracing::error!("what models are shown is decided already");
        }
    }

    /// Who decides what models are shown.
    pub fn models(&self) -> Option<&Arc<dyn ModelView>> {
        self.inner.models.get()
    }

    /// Devices that may connect.
    pub fn devices(&self) -> &Arc<Devices> {
        &self.inner.devices
    }

    /// Calls a tool: the one way every door takes.
    pub async fn invoke(&self, caller: Arc<Caller>, request: CallRequest) -> CallAnswer {
        self.engine().call(caller, request).await
    }

    /// Milliseconds since the service began.
    pub fn uptime_ms(&self) -> u64 {
        self.inner.started.elapsed().as_millis() as u64
    }

    /// Takes up what a process that is gone left behind.
    pub async fn recover(&self) -> Result<toolyard_engine::plan::Recovered, Failure> {
        self.inner.engine.recover(|lease| self.is_alive(lease)).await
    }

    pub(crate) fn is_alive(&self, lease: &Lease) -> bool {
        (self.inner.is_alive)(lease)
    }

    pub(crate) fn info(&self) -> &ProcessInfo {
        &self.inner.info
    }

    /// Checks what this process signs.
    pub(crate) fn verifier(&self) -> Verifier {
        self.engine().signer().verifier()
    }

    /// What is kept beside the store.
    pub(crate) fn proof_keeper_slot(&self) -> &OnceLock<Arc<dyn ProofKeeper>> {
        &self.inner.proof
    }
}

/// Runs what may block on the store.
pub(crate) async fn blocking<T: Send + 'static, E: From<RpcError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(RpcError::unavailable("reading the store failed unexpectedly").into()))
}
