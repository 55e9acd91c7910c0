//! An engine over a store on disk, with the benchmark's tools. Every benchmark runs on it.

use crate::{
    Setup,
    tools::{self, BenchTools},
};
use anyhow::{Context, Result, bail};
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolyard_catalog::{Policy, PolicyConfig};
use toolyard_engine::{
    Caller, Engine, EngineOptions, EngineParts, Store,
    authority::Approver,
    chain::Signer,
    plan::{Consent, PlanRequest, RunReport},
    system_clock,
};
use toolyard_protocol::{ActionPlan, RunId, RunStatus};
use toolyard_store::{SqliteStore, StoreOptions};

/// Maximum number of steps and iterations of a run, above the default policy, for the long runs.
const LONG: u32 = 1_000_000;
/// The key that signs the benchmark's records.
const SECRET: [u8; 32] = [7; 32];

/// An engine, its store and its tools.
pub(crate) struct Rig {
    // Dropped in this order: the runtime's tasks hold the engine, the engine holds the store, and the store its
    // directory.
    pub(crate) engine: Engine,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) tools: Arc<BenchTools>,
    pub(crate) runtime: Runtime,
    home: Home,
}

/// The location of the store, and whether it is deleted afterwards.
enum Home {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Rig {
    /// In a new directory that is removed afterwards.
    pub(crate) fn new(setup: &Setup) -> Result<Self> {
        let dir = TempDir::with_prefix_in("toolyard-bench-", &setup.dir).context("cannot make a directory")?;
        Self::build(Home::Temporary(dir))
    }

    /// Over a store that already exists, or that is to be kept.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        Self::build(Home::Kept(dir.to_owned()))
    }

    fn build(home: Home) -> Result<Self> {
        let workers = toolyard_gateway::listen::worker_threads();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let dir = match &home {
            Home::Temporary(dir) => dir.path(),
            Home::Kept(dir) => dir,
        };
        let store = Arc::new(SqliteStore::open(&dir.join("state"), StoreOptions::default())?);
        let tools = Arc::new(BenchTools::default());
        let mut config = PolicyConfig::default();
        config.limits.max_iterations = LONG;
        config.limits.max_steps = LONG;
        let _inside = runtime.enter();
        let engine = Engine::new(EngineParts {
            store: store.clone(),
            signer: signer(),
            policy: Policy::compile(&config)?,
            clock: system_clock(),
            options: EngineOptions::default(),
        });
        engine.register(tools::entries()?, tools.clone())?;
        Ok(Self { engine, store, tools, runtime, home })
    }

    /// The directory of the store.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// The directory that contains everything.
    pub(crate) fn dir(&self) -> &Path {
        match &self.home {
            Home::Temporary(dir) => dir.path(),
            Home::Kept(dir) => dir,
        }
    }

    /// Runs a plan on a worker thread, as a server does, and checks that it finishes.
    pub(crate) fn run(&self, plan: &Arc<ActionPlan>) -> Result<RunReport> {
        let (engine, plan) = (self.engine.clone(), plan.clone());
        let by = Approver::of(&Caller::cli("bench")).map_err(|refusal| anyhow::anyhow!("{}", refusal.message()))?;
        let consent = Consent::Approved { by, plan_hash: None, policy_hash: None, preview_hash: None };
        let request = PlanRequest { consent, ..PlanRequest::default() };
        let run = self.runtime.spawn(async move { engine.run_plan(caller(), &plan, request).await });
        let report = self.runtime.block_on(run)?.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        if report.status != RunStatus::Finished {
            bail!("the run ended as {}: {:?}", report.status.as_str(), report.error);
        }
        Ok(report)
    }

    /// Number of records of a run and their size in bytes: payload and chain value.
    pub(crate) fn size_of(&self, run_id: RunId) -> Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        self.store.settle()?;
        self.store.frames(run_id, 1, &mut |frame| {
            records += 1;
            bytes += (frame.payload.len() + frame.chain.len()) as u64;
            ControlFlow::Continue(())
        })?;
        Ok((records, bytes))
    }

    /// Shuts everything down; when this returns, the store has written all data. The temporary directory is returned so
    /// that the caller decides when it is deleted.
    pub(crate) fn close(self) -> Option<TempDir> {
        let Self { engine, store, tools, runtime, home } = self;
        runtime.block_on(engine.shutdown());
        drop((engine, tools));
        // The runtime's tasks also hold the store, which is closed only when they have ended.
        runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        drop(store);
        match home {
            Home::Temporary(dir) => Some(dir),
            Home::Kept(_) => None,
        }
    }
}

/// The caller of all requests.
pub(crate) fn caller() -> Arc<Caller> {
    Arc::new(Caller::cli("bench"))
}

/// The signer and verifier of the benchmark's records.
pub(crate) fn signer() -> Signer {
    Signer::from_secret("bench", &SECRET)
}
