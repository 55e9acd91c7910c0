//! Builds the program from its parts: store, engine, vault, notes, tool search, method table.

use crate::{
    clients,
    config::{Resolved, RunFilesMode},
    config_methods::ConfigMethods,
    context,
    context_methods::ContextMethods,
    editors::Editors,
    heads::{Heads, HomeProof},
    hooks::HookMethods,
    notes,
    notify::{self, Notifications},
    plugins::PluginMethods,
    run_files::RunFiles,
    shared_config::{Running, SharedConfig},
    stores::{self, Opened},
    tool_methods::ToolMethods,
    upkeep::Upkeep,
    upstreams::UpstreamMethods,
    why::WhyMethods,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{ToolEntry, ToolSource};
use toolyard_engine::{
    Engine, EngineParts,
    memory_store::MemoryStore,
    store::{RunFilter, StoreError},
    system_clock,
};
use toolyard_hooks::{NativeProvider, SnapshotLimits};
use toolyard_knowledge::Knowledge;
use toolyard_mcp::{ClientRoutes, Upstreams, server::Skills};
use toolyard_plugins::{Plugins, PluginsParts, sandboxed::server_spec};
use toolyard_protocol::{ErrorCode, Failure, RunStatus, ToolDefinition, ToolDefinitionError};
use toolyard_sandbox::{ScriptRunner, launch::ConfinedLauncher};
use toolyard_service::{Methods, ProcessInfo, Service};
use toolyard_toolsearch::{StaticMeaning, ToolSearch};
use toolyard_vault::{Vault, VaultOptions, VaultProvider};

/// The interval at which [`App::notes_line`] checks whether an indexing job has begun.
const NOTES_LOOK: std::time::Duration = std::time::Duration::from_millis(20);
/// How long [`App::notes_line`] waits for an indexing job before it reports the status.
const NOTES_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Everything that runs in this process.
pub struct App {
    /// The workspace in which commands act.
    pub workspace: toolyard_protocol::WorkspaceId,
    /// The method table.
    pub service: Service,
    /// Writes the four files of each run; absent when nothing is recorded.
    pub run_files: Option<RunFiles>,
    /// Keeps signed heads apart from the store.
    heads: Option<Heads>,
    vault: Option<Arc<Vault>>,
    /// Editors that are connected.
    pub(crate) editors: Arc<Editors>,
    /// The notes, if they are enabled.
    notes: Option<Arc<Knowledge>>,
    watching: NotesTask,
    /// Tool Search: what models are shown, and what it saved.
    pub tool_search: Arc<ToolSearch>,
    /// What MCP clients are shown.
    pub mcp: crate::config::McpConfig,
    /// Upstream MCP servers.
    pub upstreams: Upstreams,
    /// Routes by which a call can ask the MCP client that made it.
    pub asks: ClientRoutes,
    /// Plugins.
    pub plugins: Plugins,
    /// Skills of the user and of plugins.
    pub skills: Arc<Skills>,
    /// What agents remember.
    pub context: Option<Arc<toolyard_context::ContextStore>>,
    /// Backup, retention and checks of the store; absent without one.
    pub(crate) upkeep: Option<Upkeep>,
    /// Notifications to a person elsewhere.
    pub(crate) notifications: Notifications,
    /// The configuration that the nodes of a cluster share; absent on a single machine.
    pub(crate) shared: Option<SharedConfig>,
}

/// Declares the methods that are implemented outside the service: of the context store, plugins and upstream servers.
/// The methods of a missing part are declared too, and cannot be called.
fn declare(
    methods: &mut Methods,
    context: Option<&ContextMethods>,
    plugins: Option<&PluginMethods>,
    upstreams: Option<&UpstreamMethods>,
    upkeep: Option<&Upkeep>,
    hooks: Option<&HookMethods>,
) {
    crate::context_methods::declare(methods, context);
    crate::plugins::declare(methods, plugins);
    crate::upstreams::declare(methods, upstreams);
    crate::upkeep::declare(methods, upkeep);
    crate::hooks::declare(methods, hooks);
}

/// Every method of the program, as it is declared.
pub fn all_methods() -> Methods {
    let mut methods = Methods::built_in();
    declare(&mut methods, None, None, None, None, None);
    crate::why::declare(&mut methods, None);
    notify::declare(&mut methods, None);
    crate::config_methods::declare(&mut methods, None);
    crate::tool_methods::declare(&mut methods, None);
    methods
}

/// Which parts a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredParts {
    /// The descriptions of the tools; nothing is recorded or written.
    Catalog,
    /// The store as well.
    Store,
}

impl App {
    /// Opens the parts that the configuration and `needs` select.
    pub fn open(mut resolved: Resolved, needs: RequiredParts) -> Result<Self, Failure> {
        let home = resolved.home.clone();
        toolyard_sandbox::launch::hide(home.hidden_from_programs());
        let Opened { store, signer, on_disk, shared: in_database, .. } = if needs == RequiredParts::Store {
            stores::open_agreed(&mut resolved)?
        } else {
            let signer = toolyard_engine::chain::Signer::from_secret("none", &[0; 32]);
            Opened { store: Arc::new(MemoryStore::new()), signer, on_disk: None, shared: None, facts: None }
        };
        let (started_with, version) = (resolved.config.clone(), resolved.version);
        let engine = Engine::new(EngineParts {
            store: store.clone(),
            signer,
            policy: resolved.policy,
            clock: system_clock(),
            options: resolved.config.engine_options(),
        });
        let editors = Arc::new(Editors::default());
        let follow_symlinks = resolved.config.policy.sandbox.follow_symlinks;
        let vault = register_vault(&engine, &resolved.vault, &home, follow_symlinks, needs, editors.clone())?;
        let notes = match &vault {
            Some(vault) if resolved.config.knowledge.enabled => {
                let knowledge = notes::open(&resolved.config.knowledge, &home, &resolved.vault, vault.clone());
                notes::register(&engine, notes::provider(&knowledge))?;
                Some(knowledge)
            }
            None if resolved.config.knowledge.enabled => {
                notes::register(&engine, Arc::new(Described))?;
                None
            }
            _ => None,
        };
        let context = match needs {
            RequiredParts::Store if resolved.config.context.enabled => context::open(
                &resolved.config.context,
                &home,
                &resolved.vault,
                &engine,
                stores::pieces(&resolved.config)?,
            )?,
            RequiredParts::Catalog if resolved.config.context.enabled => {
                context::register(&engine, &resolved.config.context, Arc::new(Described))?;
                None
            }
            _ => None,
        };
        let native = match needs {
            RequiredParts::Store => Some(register_native(&engine, &home, resolved.config.hooks.snapshots.limits())?),
            RequiredParts::Catalog => None,
        };
        let settings = resolved.config.tool_search()?;
        let tool_search = Arc::new(ToolSearch::new(settings, ScriptRunner::new(), Some(Arc::new(StaticMeaning))));
        ToolSearch::register(&tool_search, &engine).map_err(refused)?;
        let run_files = (needs == RequiredParts::Store && resolved.config.record.files != RunFilesMode::None)
            .then(|| RunFiles::start(home.runs(), store, &resolved.config.record))
            .transpose()
            .map_err(|e| {
                Failure::new(ErrorCode::StoreUnavailable, format!("{} cannot be used: {e}", home.runs().display()))
            })?;
        let heads = (needs == RequiredParts::Store)
            .then(|| Heads::start(&home, &engine, &resolved.config.record))
            .transpose()
            .map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("the heads cannot be kept: {e:#}")))?;
        let info = ProcessInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            home: home.path().display().to_string(),
            vault: resolved.vault.display().to_string(),
            command: clients::shell_command(),
        };
        let asks = ClientRoutes::default();
        let upstreams = Upstreams::new(engine.clone(), asks.clone(), tokio_util::sync::CancellationToken::new());
        if needs == RequiredParts::Store {
            upstreams.keep_tokens(home.tokens());
        }
        let service = Service::new(engine, info);
        service.show_models(tool_search.clone());
        if needs == RequiredParts::Store {
            service.keep_proof(Arc::new(HomeProof::new(home.clone(), service.engine().store().is_shared())));
        }
        let notifications = Notifications::new(resolved.config.notify, home.clone(), service.clone());
        let (files, notices) = (run_files.as_ref().map(RunFiles::listener), notifications.listener());
        service.engine().on_run_end(Box::new(move |run_id, kind, status| {
            files.iter().for_each(|files| files(run_id, kind, status));
            notices(run_id, kind, status);
        }));
        let mcp = resolved.config.mcp;
        let mut folders = vec![home.path().join("skills")];
        folders.extend(mcp.skills.iter().map(|folder| crate::config::expand(folder)));
        let skills = Skills::new(folders);
        let plugins = Plugins::new(PluginsParts {
            engine: service.engine().clone(),
            upstreams: upstreams.clone(),
            skills: skills.clone(),
            folder: home.plugins(),
            config: resolved.config.plugins,
            launcher: ConfinedLauncher::new(),
        });
        let reported = plugins.clone();
        service.report_plugins(move || crate::plugins::report(&reported));
        let context_methods = context.as_ref().map(|store| ContextMethods::new(store.clone(), service.engine()));
        let running = Running {
            engine: service.engine().clone(),
            notifications: notifications.clone(),
            upstreams: upstreams.clone(),
        };
        let shared = match needs {
            RequiredParts::Store => SharedConfig::of(running, home.clone(), &started_with, version)?,
            RequiredParts::Catalog => None,
        };
        let upstream_methods =
            UpstreamMethods { upstreams: upstreams.clone(), config: home.config(), shared: shared.clone() };
        let why = WhyMethods(service.clone());
        let plugin_methods = PluginMethods { plugins: plugins.clone(), engine: service.engine().clone() };
        let retention = resolved.config.retention;
        if let Some(age) = &retention.older_than {
            crate::upkeep::parse_age(age).map_err(|failure| {
                Failure::new(ErrorCode::ConfigInvalid, format!("retention.olderThan: {}", failure.message))
                    .suggest("Write a number and a unit: 45m, 12h, 30d or 2w.")
            })?;
        }
        let snapshots = native.clone().map(|native| (native, resolved.config.hooks.snapshots.retention()));
        let upkeep = (needs == RequiredParts::Store)
            .then(|| Upkeep::new((on_disk, in_database), service.engine().clone(), home.clone(), retention, snapshots));
        let hook_methods = native.map(|provider| HookMethods::new(service.engine().clone(), provider, &mcp));
        let tool_methods = ToolMethods { search: tool_search.clone(), engine: service.engine().clone() };
        let config_methods = (needs == RequiredParts::Store).then(|| ConfigMethods {
            home: home.clone(),
            engine: service.engine().clone(),
            notifications: notifications.clone(),
            shared: shared.clone(),
        });
        service.extend(|methods| {
            let upstreams = Some(&upstream_methods);
            declare(
                methods,
                context_methods.as_ref(),
                Some(&plugin_methods),
                upstreams,
                upkeep.as_ref(),
                hook_methods.as_ref(),
            );
            crate::why::declare(methods, Some(&why));
            notify::declare(methods, Some(&notifications));
            crate::config_methods::declare(methods, config_methods.as_ref());
            crate::tool_methods::declare(methods, Some(&tool_methods));
        });
        let workspaces = service.workspaces().clone();
        service.engine().give_owners_tools(Box::new(move |workspace| workspaces.sees_vault(workspace)));
        Ok(Self {
            workspace: toolyard_protocol::WorkspaceId::default(),
            service,
            run_files,
            heads,
            vault,
            editors,
            notes,
            watching: NotesTask::default(),
            tool_search,
            mcp,
            upstreams,
            asks,
            plugins,
            skills,
            context,
            upkeep,
            notifications,
            shared,
        })
    }

    /// Registers the tools of upstream servers and plugins, in the background.
    pub fn connect(&self) -> Connecting {
        let (plugins, remembered) = (self.plugins.clone(), CancellationToken::new());
        let servers = self.connect_upstreams(remembered.clone());
        Connecting { servers, remembered, plugins: tokio::spawn(async move { plugins.load().await }) }
    }

    fn connect_upstreams(&self, remembered: CancellationToken) -> tokio::task::JoinHandle<()> {
        let launcher = ConfinedLauncher::new();
        let mut specs = Vec::new();
        for (name, config) in &self.mcp.servers {
            if config.enabled && config.command.is_some() && config.sandbox.is_none() {
                tracing::warn!(
                    server = name,
                    "this MCP server runs without a sandbox: set mcp.servers.{name}.sandbox, see docs/guide/mcp.md"
                );
            }
            specs.push(server_spec(&launcher, name, config, crate::config::expand));
        }
        self.upstreams.add_telling(specs, remembered)
    }

    /// Removes the files that killed processes staged in the vault, after the interrupted runs that might need them
    /// have ended.
    pub async fn tidy(&self) {
        let Some(vault) = self.vault.clone() else { return };
        let store = self.service.engine().store().clone();
        let tidied = tokio::task::spawn_blocking(move || {
            if !vault.has_leftovers() {
                return Ok(0);
            }
            let open = RunFilter {
                statuses: vec![RunStatus::Running, RunStatus::Pending, RunStatus::Paused],
                limit: 10_000,
                ..RunFilter::default()
            };
            store.settle()?;
            let mut orphaned = false;
            for run in store.runs(&open)? {
                let holder = store.holder(run.run_id)?;
                orphaned |= !holder.map_or(Ok(false), |holder| store.is_alive(&holder))?;
            }
            Ok::<_, StoreError>(if orphaned { 0 } else { vault.sweep_leftovers() })
        });
        if let Ok(Err(error)) = tidied.await {
            tracing::warn!(%error, "staged files of killed processes could not be removed");
        }
    }

    /// Probes the notes, watches the vault and indexes what changes, until closed.
    pub fn watch_notes(&self) {
        self.spawn_watching(|notes, stop| tokio::spawn(toolyard_knowledge::serve(notes, stop)));
    }

    /// The same, but watches the vault even if the configuration turns that off for servers.
    pub fn watch_notes_in_any_case(&self) {
        self.spawn_watching(|notes, stop| tokio::spawn(toolyard_knowledge::serve_watching(notes, stop)));
    }

    fn spawn_watching(&self, spawn: impl FnOnce(Arc<Knowledge>, CancellationToken) -> tokio::task::JoinHandle<()>) {
        if let Some(notes) = self.notes.clone()
            && let Ok(mut task) = self.watching.task.lock()
            && task.is_none()
        {
            *task = Some(spawn(notes, self.watching.stop.clone()));
        }
    }

    /// The status of the notes in a few words, printed when a server starts. `None` if notes are not indexed.
    pub async fn notes_line(&self) -> Option<String> {
        let notes = self.notes.as_ref()?;
        // The task of the notes starts the first indexing job, and that task has only just begun.
        let is_indexing = async {
            while notes.jobs.active().is_none() {
                tokio::time::sleep(NOTES_LOOK).await;
            }
        };
        let library = async { notes.library().await.map(|library| library.totals.indexed).ok() };
        match tokio::time::timeout(NOTES_WAIT, library).await.ok().flatten() {
            Some(1) => Some("1 note is indexed".to_owned()),
            Some(files) => Some(format!("{files} notes are indexed")),
            None if tokio::time::timeout(NOTES_WAIT, is_indexing).await.is_ok() => {
                Some("being indexed in the background; `toolyard vault status` shows how far it is".to_owned())
            }
            None => Some("not indexed yet; `toolyard vault index` does it".to_owned()),
        }
    }

    /// Asks the indexing job to stop, if one runs here; the next one continues where it stopped.
    pub fn cancel_indexing(&self) {
        if let Some(notes) = &self.notes {
            notes.jobs.cancel();
        }
    }

    /// Stops what runs, seals the ledger and finishes writing files.
    pub async fn close(self) {
        self.watching.stop.cancel();
        let watching = self.watching.task.lock().ok().and_then(|mut task| task.take());
        if let Some(task) = watching
            && let Err(error) = task.await
        {
            tracing::error!(%error, "watching the notes ended unexpectedly");
        }
        if let Some(notes) = &self.notes {
            notes.close().await;
        }
        self.tidy().await;
        self.service.engine().shutdown().await;
        self.upstreams.shutdown().await;
        // Facts are queued. A command that ends at once must not lose the ones it has just set.
        let (store, savings) = (self.service.engine().store().clone(), self.tool_search.savings().clone());
        match tokio::task::spawn_blocking(move || savings.write(&*store).and_then(|()| store.settle())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the store could not be settled"),
            Err(error) => tracing::error!(%error, "settling the store ended unexpectedly"),
        }
        if let Some(heads) = self.heads
            && let Err(error) = tokio::task::spawn_blocking(move || heads.finish()).await
        {
            tracing::error!(%error, "keeping the last head ended unexpectedly");
        }
        if let Some(files) = self.run_files
            && let Err(error) = tokio::task::spawn_blocking(move || files.finish()).await
        {
            tracing::error!(%error, "finishing the run files ended unexpectedly");
        }
    }
}

/// The registration of upstream servers and plugins. It continues if this value is dropped.
pub struct Connecting {
    /// Ends when the tools of the plugins that are used are in the catalog.
    pub plugins: tokio::task::JoinHandle<()>,
    /// Cancelled when the tools that servers offered before are in the catalog.
    pub remembered: CancellationToken,
    servers: tokio::task::JoinHandle<()>,
}

impl Connecting {
    /// Waits for both.
    pub async fn done(self) {
        for (what, task) in [("plugins", self.plugins), ("MCP servers", self.servers)] {
            if let Err(error) = task.await {
                tracing::error!(%error, "taking in the {what} ended unexpectedly");
            }
        }
    }
}

/// The task that probes, watches and indexes the notes, and the token that stops it.
#[derive(Default)]
struct NotesTask {
    stop: CancellationToken,
    task: std::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

fn register_vault(
    engine: &Engine,
    root: &std::path::Path,
    home: &crate::home::Home,
    follow_symlinks: bool,
    needs: RequiredParts,
    editors: Arc<Editors>,
) -> Result<Option<Arc<Vault>>, Failure> {
    let unusable = |e: String| {
        Failure::new(ErrorCode::ConfigInvalid, format!("the vault {} cannot be used: {e}", root.display()))
            .suggest("Pass another folder with --vault DIR, or set vault.path in config.toml.")
    };
    if needs == RequiredParts::Catalog {
        // Listing tools touches no file, so a slow or missing vault does not matter.
        register(engine, toolyard_vault::definitions(), Arc::new(Described))?;
        return Ok(None);
    }
    if !root.exists() && root == home.default_vault() {
        // The default vault is created; a folder that the user named must exist.
        std::fs::create_dir_all(root).map_err(|e| unusable(e.to_string()))?;
    }
    let options = VaultOptions { follow_symlinks, ..VaultOptions::new(home.locks()) };
    let vault = Arc::new(Vault::open(root, options).map_err(|e| unusable(e.to_string()))?);
    register(engine, toolyard_vault::definitions(), Arc::new(VaultProvider::new(vault.clone(), editors)))?;
    Ok(Some(vault))
}

/// Registers the tools that represent calls of coding agents.
fn register_native(
    engine: &Engine,
    home: &crate::home::Home,
    limits: SnapshotLimits,
) -> Result<Arc<NativeProvider>, Failure> {
    let provider = NativeProvider::new(home.snapshots(), limits);
    engine.register(toolyard_hooks::entries().map_err(refused)?, provider.clone()).map_err(refused)?;
    Ok(provider)
}

pub(crate) fn register(
    engine: &Engine,
    definitions: Result<Vec<ToolDefinition>, ToolDefinitionError>,
    provider: Arc<dyn toolyard_engine::Provider>,
) -> Result<(), Failure> {
    let entries = definitions
        .map_err(refused)?
        .into_iter()
        .map(|definition| {
            Ok::<_, toolyard_catalog::RegistryError>(ToolEntry::new(definition, ToolSource::core())?.of_owner())
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(refused)?;
    engine.register(entries, provider).map_err(refused)
}

pub(crate) fn refused(error: impl Into<toolyard_catalog::RegistryError>) -> Failure {
    Failure::new(ErrorCode::InternalError, format!("a built-in tool was refused: {}", error.into()))
}

/// The provider of tools that are only listed.
pub(crate) struct Described;

impl toolyard_engine::Provider for Described {
    fn execute<'a>(
        &'a self,
        _: &'a toolyard_engine::CallContext,
        call: &'a toolyard_protocol::ToolCall,
        _: toolyard_engine::Prepared,
    ) -> toolyard_engine::BoxFuture<'a, Result<toolyard_engine::Output, toolyard_engine::Failed>> {
        Box::pin(async move {
            Err(toolyard_engine::Failed::new(ErrorCode::Unavailable, format!("{} cannot run here", call.tool)))
        })
    }
}
