//! [`Plugins`]: the plugins, which of them are enabled, and their health.

mod info;

pub use info::{MissingSandboxFeature, PluginInfo};

use crate::{
    Source,
    hooks::PluginHooks,
    host::{HostContext, PluginLaunch, line_name},
    install,
    manifest::{Manifest, Permissions},
    settings::{Entry, Grant, PluginsConfig},
    state::{self, Record, State},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use toolyard_engine::Engine;
use toolyard_mcp::{Upstreams, server::Skills};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_sandbox::launch::ConfinedLauncher;

/// A staging folder that is older than this belongs to no running installation.
const STALE_STAGING: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The parts that plugins are managed with.
pub struct PluginsParts {
    /// Runs calls; hooks are added to it.
    pub engine: Engine,
    /// Runs the processes.
    pub upstreams: Upstreams,
    /// Takes the plugins' skills.
    pub skills: Arc<Skills>,
    /// Where plugins are kept.
    pub folder: PathBuf,
    /// The configuration.
    pub config: PluginsConfig,
    /// Starts processes in the sandbox.
    pub launcher: ConfinedLauncher,
}

/// All plugins. Cheap to clone.
#[derive(Clone)]
pub struct Plugins {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) upstreams: Upstreams,
    skills: Arc<Skills>,
    folder: PathBuf,
    config: PluginsConfig,
    hosting: HostContext,
    fetcher: install::Fetcher,
    loaded: Mutex<BTreeMap<String, Loaded>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
}

/// An installed plugin.
#[derive(Clone)]
struct Loaded {
    manifest: Option<Arc<Manifest>>,
    /// Where it came from.
    source: String,
    version: String,
    folder: PathBuf,
    enabled: bool,
    grant: Grant,
    /// Why it is not used although it should be.
    problem: Option<Failure>,
    /// Names of its processes.
    processes: Vec<String>,
}

/// The result of an installation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// The plugin, as it is now.
    pub plugin: PluginInfo,
    /// Permissions in its manifest that were not granted.
    pub not_granted: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plugins {
    /// Creates the manager and adds its hook to the engine. Starts nothing.
    pub fn new(parts: PluginsParts) -> Self {
        let PluginsParts { engine, upstreams, skills, folder, config, launcher } = parts;
        let fetcher = install::Fetcher::new(launcher.clone(), &config);
        let hosting =
            HostContext { launcher, sandbox: config.sandbox, node: config.node.clone(), place: folder.clone() };
        let inner = Arc::new(Inner {
            upstreams,
            skills,
            folder,
            config,
            hosting,
            fetcher,
            loaded: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
        });
        engine.add_hook(Arc::new(PluginHooks(Arc::downgrade(&inner))));
        Self { inner }
    }

    /// Loads all enabled plugins. Returns after those without cached tools have been started once.
    pub async fn load(&self) {
        let _one = self.inner.changing.lock().await;
        let state = match state::read(&self.inner.folder) {
            Ok(state) => state,
            Err(failure) => {
                tracing::error!(%failure, "installed plugins are not used");
                return;
            }
        };
        let mut meetings = Vec::new();
        for (id, record) in &state {
            meetings.extend(self.inner.take_in(id, record));
        }
        for folder in self.inner.config.paths.clone() {
            meetings.extend(self.inner.take_in_place(&folder));
        }
        for meeting in meetings {
            finished(meeting).await;
        }
    }

    /// Lists all plugins.
    pub fn list(&self) -> Vec<PluginInfo> {
        let loaded = lock(&self.inner.loaded).clone();
        let statuses = self.inner.upstreams.status();
        loaded
            .iter()
            .map(|(id, plugin)| plugin.info(id, &statuses, &self.inner.upstreams, self.inner.hosting.sandbox))
            .collect()
    }

    /// Returns one plugin.
    pub fn info(&self, id: &str) -> Result<PluginInfo, Failure> {
        self.list().into_iter().find(|plugin| plugin.id == id).ok_or_else(|| self.inner.unknown(id))
    }

    /// Installs a plugin. Its manifest is checked first.
    pub async fn install(&self, source: &Source, grant: Grant) -> Result<Installation, Failure> {
        let _one = self.inner.changing.lock().await;
        self.inner.install(source, Some(grant), None).await
    }

    /// Installs a plugin again from its source.
    pub async fn update(&self, id: &str) -> Result<Installation, Failure> {
        let _one = self.inner.changing.lock().await;
        let record = state::read(&self.inner.folder)?.remove(id).ok_or_else(|| self.inner.unknown(id))?;
        self.inner.install(&Source::parse(&record.source)?, None, Some(id)).await
    }

    /// Turns a plugin on or off, and grants it more if wanted.
    pub async fn set_enabled(&self, id: &str, enabled: bool, grant: &Grant) -> Result<PluginInfo, Failure> {
        let _one = self.inner.changing.lock().await;
        let mut state = state::read(&self.inner.folder)?;
        let record = state.get_mut(id).ok_or_else(|| self.inner.unknown(id))?;
        record.enabled = Some(enabled);
        record.grant = record.grant.with(grant);
        let record = record.clone();
        state::write(&self.inner.folder, &state)?;
        self.inner.let_go(id).await;
        if let Some(meeting) = self.inner.take_in(id, &record) {
            finished(meeting).await;
        }
        self.info(id)
    }

    /// Removes a plugin, with its own data if wanted.
    pub async fn remove(&self, id: &str, with_data: bool) -> Result<(), Failure> {
        let _one = self.inner.changing.lock().await;
        let mut state = state::read(&self.inner.folder)?;
        if state.remove(id).is_none() {
            return Err(self.inner.unknown(id));
        }
        self.inner.let_go(id).await;
        self.inner.forget(id).await;
        lock(&self.inner.loaded).remove(id);
        state::write(&self.inner.folder, &state)?;
        let mut places = vec![self.inner.folder.join(id)];
        if with_data {
            places.push(self.inner.hosting.data(id));
        }
        for place in places {
            remove_folder(&place)?;
        }
        Ok(())
    }

    /// Starts every enabled plugin and asks for its health.
    pub async fn doctor(&self) -> Vec<PluginInfo> {
        let processes: Vec<(String, String)> = lock(&self.inner.loaded)
            .iter()
            .flat_map(|(id, plugin)| plugin.processes.iter().map(|name| (id.clone(), name.clone())))
            .collect();
        for (id, process) in processes {
            let probed = if process == line_name(&id) {
                self.inner.upstreams.probe(&process).await.map(drop)
            } else {
                self.inner.upstreams.start(&process).await.map(drop)
            };
            if let Err(failure) = probed {
                tracing::info!(plugin = id, %failure, "a plugin's probe failed");
            }
        }
        self.list()
    }
}

impl Inner {
    fn unknown(&self, id: &str) -> Failure {
        let known: Vec<String> = lock(&self.loaded).keys().cloned().collect();
        let shown: String = id.chars().take(80).collect();
        let failure = Failure::new(ErrorCode::NotFound, format!("there is no plugin {shown:?}"));
        if known.is_empty() {
            failure.suggest("None is installed: `toolyard plugins install`.")
        } else {
            failure.suggest(format!("There is {}.", known.join(", ")))
        }
    }

    /// Plugins whose hooks match a tool.
    pub(crate) fn hooked(&self, tool: &str) -> Vec<String> {
        let plugins: Vec<String> = lock(&self.loaded)
            .iter()
            .filter(|(id, plugin)| plugin.processes.contains(&line_name(id)))
            .map(|(id, _)| id.clone())
            .collect();
        let wants = |id: &String| {
            let hooks = self.upstreams.hooks(&line_name(id));
            hooks
                .iter()
                .any(|h| h.event == "before_tool_call" && (h.matcher.is_empty() || h.matcher.iter().any(|m| m == tool)))
        };
        plugins.into_iter().filter(wants).collect()
    }

    fn entry(&self, id: &str) -> Entry {
        self.config.entries.get(id).cloned().unwrap_or_default()
    }

    /// Takes an installed plugin in.
    fn take_in(&self, id: &str, record: &Record) -> Option<tokio::task::JoinHandle<()>> {
        let package = self.folder.join(id);
        let folder = package.join(&record.root);
        let manifest = Manifest::read(&folder).and_then(|manifest| {
            if manifest.id == id {
                return Ok(manifest);
            }
            let why = format!("the manifest in {} is that of {}", folder.display(), manifest.id);
            Err(Failure::new(ErrorCode::ValidationError, why))
        });
        self.use_it(id, manifest, record, &folder, &package)
    }

    /// Uses a plugin in place, without installing it.
    fn take_in_place(&self, folder: &Path) -> Option<tokio::task::JoinHandle<()>> {
        let manifest = match Manifest::read(folder) {
            Ok(manifest) => manifest,
            Err(failure) => {
                tracing::warn!(%failure, "a plugin in plugins.paths is not used");
                return None;
            }
        };
        let id = manifest.id.clone();
        if lock(&self.loaded).contains_key(&id) {
            tracing::warn!(plugin = id, folder = %folder.display(), "a plugin of that id is installed; this one is not used");
            return None;
        }
        let record = Record {
            source: folder.display().to_string(),
            root: ".".to_owned(),
            version: manifest.version.clone(),
            installed_at: Timestamp::now(),
            enabled: None,
            grant: Grant::default(),
        };
        self.use_it(&id, Ok(manifest), &record, folder, folder)
    }

    fn use_it(
        &self,
        id: &str,
        manifest: Result<Manifest, Failure>,
        record: &Record,
        folder: &Path,
        package: &Path,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let entry = self.entry(id);
        let mut loaded = Loaded {
            manifest: None,
            source: record.source.clone(),
            version: record.version.clone(),
            folder: folder.to_owned(),
            enabled: false,
            grant: record.grant.with(&entry.grant),
            problem: None,
            processes: Vec::new(),
        };
        let mut specs = Vec::new();
        match manifest {
            Err(failure) => loaded.problem = Some(failure),
            Ok(manifest) => {
                let wanted = entry.enabled.or(record.enabled).unwrap_or_else(|| manifest.starts_enabled());
                loaded.enabled = wanted && self.config.admits(id);
                loaded.grant = loaded.grant.within(manifest.permissions.as_ref());
                if loaded.enabled {
                    match self.prepare(&manifest, &entry, &loaded, folder, package) {
                        Ok(ready) => specs = ready,
                        Err(failure) => loaded.problem = Some(failure),
                    }
                }
                loaded.manifest = Some(Arc::new(manifest));
            }
        }
        if let Some(failure) = &loaded.problem {
            tracing::warn!(plugin = id, %failure, "a plugin cannot be used");
        }
        loaded.processes = specs.iter().map(|spec| spec.name.clone()).collect();
        let has_processes = !specs.is_empty();
        lock(&self.loaded).insert(id.to_owned(), loaded);
        has_processes.then(|| self.upstreams.add(specs))
    }

    /// Checks everything that must be valid before code runs, and returns the processes to start.
    fn prepare(
        &self,
        manifest: &Manifest,
        entry: &Entry,
        loaded: &Loaded,
        folder: &Path,
        package: &Path,
    ) -> Result<Vec<toolyard_mcp::client::ServerSpec>, Failure> {
        manifest.check_config(&entry.config)?;
        let missing: Vec<&String> = {
            let there = lock(&self.loaded);
            manifest.requires_plugins.iter().filter(|id| !there.contains_key(*id)).collect()
        };
        if let Some(missing) = missing.first() {
            return Err(Failure::new(
                ErrorCode::PreconditionFailed,
                format!("the plugin {} needs the plugin {missing}, which is not installed", manifest.id),
            ));
        }
        entry
            .limits
            .check()
            .map_err(|why| Failure::new(ErrorCode::ConfigInvalid, format!("plugins.entries.{}.{why}", manifest.id)))?;
        let (config, grant, limits) = (&entry.config, &loaded.grant, entry.limits);
        let running = PluginLaunch { manifest, folder, package, config, grant, limits };
        let specs = self.hosting.processes(&running).map_err(|why| {
            Failure::new(ErrorCode::Unavailable, format!("the plugin {} cannot be run: {why}", manifest.id))
        })?;
        for skills in &manifest.skills {
            self.skills.add(&manifest.id, folder, skills);
        }
        Ok(specs)
    }

    /// Stops using a plugin.
    async fn let_go(&self, id: &str) {
        let processes = lock(&self.loaded).get_mut(id).map(|plugin| std::mem::take(&mut plugin.processes));
        self.skills.remove(id);
        for process in processes.into_iter().flatten() {
            self.upstreams.remove(&process).await;
        }
    }

    /// Removes the cached tool lists of a plugin's processes.
    async fn forget(&self, id: &str) {
        let prefix = format!("{}/", line_name(id));
        let statuses = self.upstreams.status();
        let names = statuses.into_iter().map(|s| s.name).filter(|name| name.starts_with(&prefix));
        for name in names.chain([line_name(id)]) {
            if let Err(failure) = self.upstreams.forget(&name).await {
                tracing::warn!(plugin = id, %failure, "what was seen of a plugin could not be forgotten");
            }
        }
    }

    async fn install(
        &self,
        source: &Source,
        grant: Option<Grant>,
        update: Option<&str>,
    ) -> Result<Installation, Failure> {
        let broken =
            |e: std::io::Error| Failure::new(ErrorCode::StoreUnavailable, format!("{}: {e}", self.folder.display()));
        sweep_stale(&self.folder.join(".staging"));
        let stage = self.folder.join(".staging").join(uuid::Uuid::new_v4().simple().to_string());
        std::fs::create_dir_all(&stage).map_err(broken)?;
        let _swept = StagingCleanup(stage.clone());
        let install::Fetched { manifest, root } = install::fetch(source, &stage, &self.fetcher).await?;
        let id = manifest.id.clone();
        let mut state: State = state::read(&self.folder)?;
        match (update, state.contains_key(&id)) {
            (None, true) => {
                return Err(Failure::new(ErrorCode::Conflict, format!("the plugin {id} is installed already"))
                    .suggest(format!("`toolyard plugins update {id}`, or remove it first.")));
            }
            (Some(asked), _) if asked != id => {
                return Err(Failure::new(
                    ErrorCode::Conflict,
                    format!("{source} has become another plugin: {id} instead of {asked}"),
                ));
            }
            _ => {}
        }
        // From here on the new version replaces the old one.
        self.let_go(&id).await;
        self.forget(&id).await;
        let place = self.folder.join(&id);
        let aside = self.folder.join(".staging").join(format!("old-{}", uuid::Uuid::new_v4().simple()));
        let had = place.exists();
        if had {
            std::fs::rename(&place, &aside).map_err(broken)?;
        }
        if let Err(e) = std::fs::rename(&stage, &place) {
            if had && let Err(error) = std::fs::rename(&aside, &place) {
                tracing::error!(plugin = id, aside = %aside.display(), %error, "the plugin's earlier version could not be put back");
            }
            return Err(broken(e));
        }
        if had {
            remove_folder(&aside)?;
        }
        let before = state.get(&id);
        let record = Record {
            source: source.to_string(),
            root: root.display().to_string(),
            version: manifest.version.clone(),
            installed_at: Timestamp::now(),
            enabled: before.and_then(|record| record.enabled),
            grant: grant.or_else(|| before.map(|record| record.grant.clone())).unwrap_or_default(),
        };
        state.insert(id.clone(), record.clone());
        state::write(&self.folder, &state)?;
        if let Some(meeting) = self.take_in(&id, &record) {
            finished(meeting).await;
        }
        let statuses = self.upstreams.status();
        let plugin = lock(&self.loaded).get(&id).cloned().ok_or_else(|| self.unknown(&id))?;
        let not_granted =
            manifest.permissions.as_ref().map(|asked| missing_grants(asked, &plugin.grant)).unwrap_or_default();
        Ok(Installation { plugin: plugin.info(&id, &statuses, &self.upstreams, self.hosting.sandbox), not_granted })
    }
}

/// The permissions that a plugin asks for and does not have, in the form of `--grant`.
fn missing_grants(asked: &Permissions, grant: &Grant) -> Vec<String> {
    let mut words = Vec::new();
    if asked.network && !grant.network {
        words.push("network".to_owned());
    }
    let lacks = |asked: &[PathBuf], given: &[PathBuf], word: &str| {
        let anything = Path::new("*");
        let has =
            |path: &Path| if path == anything { !given.is_empty() } else { given.iter().any(|g| path.starts_with(g)) };
        let missing = asked.iter().filter(|path| !has(path));
        let shown = |path: &PathBuf| if path == anything { "PATH".to_owned() } else { path.display().to_string() };
        missing.map(|path| format!("{word}:{}", shown(path))).collect::<Vec<_>>()
    };
    words.extend(lacks(&asked.read, &grant.read, "read"));
    words.extend(lacks(&asked.write, &grant.write, "write"));
    words.extend(asked.env.iter().filter(|name| !grant.env.contains(name)).map(|name| format!("env:{name}")));
    words
}

/// Waits until a plugin's processes have been started and have registered their tools.
async fn finished(meeting: tokio::task::JoinHandle<()>) {
    if let Err(error) = meeting.await {
        tracing::error!(%error, "taking in a plugin's processes ended unexpectedly");
    }
}

/// Removes a staging folder however the installation ended.
struct StagingCleanup(PathBuf);

impl Drop for StagingCleanup {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.0.display(), %error, "a staging folder could not be removed");
        }
    }
}

/// Removes staging folders of processes that were killed while they installed. One that is younger may be in use.
fn sweep_stale(staging: &Path) {
    for entry in std::fs::read_dir(staging).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|about| about.modified()).ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > STALE_STAGING)
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(%error, folder = %entry.path().display(), "a stale staging folder cannot be removed");
        }
    }
}

fn remove_folder(place: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(place) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::new(ErrorCode::StoreUnavailable, format!("{}: {e}", place.display()))),
    }
}
