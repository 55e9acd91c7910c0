//! The configuration that the nodes of a cluster share: numbered versions in their store, and a node that follows them.
//!
//! `config.toml` of a node holds what is the node's own (`split.rs`). Everything else comes from the newest version in the
//! store (`versions.rs`), which takes precedence over the file. The first node that serves makes version 1 from its file.
//! A node looks for a new version twice a second and uses at once what a single machine would use without a restart.
//! *Does not exist* over a store that one machine uses alone.

pub(crate) mod split;
mod versions;

pub(crate) use versions::VersionInfo;

use crate::{
    config::{self, Change, Config, Resolved},
    home::Home,
    notify::Notifications,
    server_file,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::Policy;
use toolyard_engine::{Engine, Store};
use toolyard_mcp::Upstreams;
use toolyard_plugins::sandboxed::server_spec;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_sandbox::launch::ConfinedLauncher;
use toolyard_service::Object;
use versions::{Version, Versions};

/// How often a node looks for a new version.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What each node works with, by node.
const IN_USE: &str = "nodeConfig";

/// The settings that a node uses, as `nodes list` shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSettings {
    /// The node's present life.
    pub(crate) epoch: u64,
    /// The version.
    pub(crate) version: u64,
    /// Settings of that version that the node uses after a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs_restart: Vec<String>,
    /// Why the node does not use a newer version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// The parts of a process that settings are applied to while it runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) engine: Engine,
    pub(crate) notifications: Notifications,
    pub(crate) upstreams: Upstreams,
}

/// The shared configuration, as a node follows it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SharedConfig {
    versions: Versions,
    home: Home,
    running: Running,
    state: Arc<Mutex<State>>,
    /// Held while a version is taken up, so that two tasks do not apply two versions in the wrong order.
    taking_up: Arc<tokio::sync::Mutex<()>>,
}

struct State {
    /// The stored bytes of the version that was looked at last.
    seen: Option<Vec<u8>>,
    /// The number of the version in use; 0 before there is one.
    version: u64,
    /// The configuration in use.
    config: Config,
    /// The configuration with which the process started.
    started: Config,
    problem: Option<String>,
}

/// A change that was applied.
pub(crate) struct AppliedChange {
    pub(crate) keys: Vec<String>,
    pub(crate) version: u64,
    pub(crate) hash: String,
}

/// Replaces the shared part of a configuration by the version in the store, if there is one. Settings of the file that are
/// therefore not used are logged by name. May block.
pub(crate) fn agree(resolved: &mut Resolved, store: Arc<dyn Store>) -> Result<(), Failure> {
    let Some(versions) = Versions::of(store)? else { return Ok(()) };
    let Some(version) = versions.current()? else { return Ok(()) };
    let config = node_config(&version, &resolved.config)?;
    let file = resolved.home.config();
    let ignored = split::ignored(&server_file::text_of(&file)?, &config)?;
    if resolved.serves && !ignored.is_empty() {
        tracing::warn!(
            keys = ignored.join(", "),
            version = version.info.version,
            "config.toml sets these differently than the cluster's configuration, which is used: remove them from the \
             file, or make them the cluster's with `toolyard config push`"
        );
    }
    resolved.policy = config::checked_policy(&config, &file)?;
    resolved.config = config;
    resolved.version = version.info.version;
    Ok(())
}

/// The newest version, and the settings that a node's file sets differently. May block.
pub(crate) fn compared(
    resolved: &Resolved,
    store: Arc<dyn Store>,
) -> Result<Option<(VersionInfo, Vec<String>)>, Failure> {
    let Some(version) = Versions::of(store)?.map(|versions| versions.current()).transpose()?.flatten() else {
        return Ok(None);
    };
    let config = node_config(&version, &resolved.config)?;
    let ignored = split::ignored(&server_file::text_of(&resolved.home.config())?, &config)?;
    Ok(Some((version.info, ignored)))
}

/// Writes the newest version into a node's file, which is then the file of a single machine. Answers whether the file
/// changed. May block.
pub(crate) fn take_back(home: &Home, store: Arc<dyn Store>) -> Result<bool, Failure> {
    let Some(version) = Versions::of(store)?.map(|versions| versions.current()).transpose()?.flatten() else {
        return Ok(false);
    };
    let path = home.config();
    let file = server_file::text_of(&path)?;
    let (before, shared) = (config::parsed(&file, "config.toml")?, config::parsed(&version.text, "the configuration")?);
    if split::changed(&before, &shared).is_empty() {
        return Ok(false);
    }
    server_file::replace(&path, &split::with_shared(&file, &version.text)?)?;
    Ok(true)
}

/// A node's configuration under a version.
fn node_config(version: &Version, own: &Config) -> Result<Config, Failure> {
    let number = version.info.version;
    let shared = config::parsed(&version.text, &format!("version {number} of the cluster's configuration"));
    let shared = shared.map_err(|failure| {
        failure.suggest(
            "It was made by another version of Toolyard: upgrade this node, or restore an earlier one at another node \
             with `toolyard config rollback`.",
        )
    })?;
    Ok(split::combined(shared, own))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Failure::new(ErrorCode::InternalError, "the configuration could not be read or written"))
    })
}

impl SharedConfig {
    /// The shared configuration of a process that works with `config`; `None` if one machine uses the store alone.
    pub(crate) fn of(running: Running, home: Home, config: &Config, version: u64) -> Result<Option<Self>, Failure> {
        let Some(versions) = Versions::of(running.engine.store().clone())? else { return Ok(None) };
        let state = State { seen: None, version, config: config.clone(), started: config.clone(), problem: None };
        let state = Arc::new(Mutex::new(state));
        Ok(Some(Self { versions, home, running, state, taking_up: Arc::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration that this node works with.
    pub(crate) fn in_use(&self) -> Config {
        self.state().config.clone()
    }

    /// The hash of file and version together. May block.
    pub(crate) fn hash(&self) -> Result<String, Failure> {
        let text = server_file::text_of(&self.home.config())?;
        self.hash_of(&text, self.versions.current()?.map_or(0, |version| version.info.version))
    }

    fn hash_of(&self, file: &str, version: u64) -> Result<String, Failure> {
        config::file_hash(&self.home, &format!("version {version}\n{file}"))
    }

    /// The text of the newest version, and the version if there is one. Before there is one, the file's shared part.
    fn base(&self, file: &str) -> Result<(String, Option<Version>), Failure> {
        Ok(match self.versions.current()? {
            Some(version) => (version.text.clone(), Some(version)),
            None => (split::shared_text(file)?, None),
        })
    }

    fn add(
        &self,
        before: Option<&Version>,
        text: String,
        changed: Vec<String>,
        by: &str,
        restores: Option<u64>,
    ) -> Result<Version, Failure> {
        let (at, by, node) = (Timestamp::now(), by.to_owned(), self.versions.node());
        let info = VersionInfo { version: 0, at, by, node, changed, restores };
        self.versions.add(before, Version { info, text })
    }

    /// Makes version 1 from this node's file, unless there is a version. May block.
    fn begin(&self) -> Result<(), Failure> {
        if self.versions.current()?.is_some() {
            return Ok(());
        }
        let text = split::shared_text(&server_file::text_of(&self.home.config())?)?;
        let keys = split::changed(&Config::default(), &config::parsed(&text, "config.toml")?);
        match self.add(None, text, keys, &crate::home::user_name(), None) {
            Ok(_) => {
                tracing::info!("the shared settings of config.toml are version 1 of the cluster's configuration");
                Ok(())
            }
            // Another node was faster.
            Err(failure) if failure.code == ErrorCode::Conflict => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Applies a patch: the node's own settings to its file, the shared ones to a new version. May block.
    pub(crate) fn patch(
        &self,
        patch: &Object,
        base_hash: Option<&str>,
        for_browser: bool,
        by: &str,
    ) -> Result<AppliedChange, Failure> {
        let path = self.home.config();
        let _writing = server_file::writing();
        let file = server_file::text_of(&path)?;
        let (base, before) = self.base(&file)?;
        let number = before.as_ref().map_or(0, |version| version.info.version);
        if base_hash.is_some_and(|hash| self.hash_of(&file, number).as_deref() != Ok(hash)) {
            return Err(Failure::new(ErrorCode::Conflict, "the configuration has changed since it was looked at")
                .detail("reason", "CONFIG_CHANGED")
                .suggest("Read it again with config.get, and make the change anew."));
        }
        let (shared, own) = split::change(&base, &file, patch)?;
        if for_browser {
            shared.check_for_browser()?;
            own.check_for_browser()?;
        }
        config::checked_policy(&split::combined(shared.config.clone(), &own.config), &path)?;
        let Change { text, keys, .. } = shared;
        let number = match keys.is_empty() {
            true => number,
            false => self.add(before.as_ref(), text, keys.clone(), by, None)?.info.version,
        };
        if !own.keys.is_empty() {
            server_file::replace(&path, &own.text)?;
        }
        let keys = keys.into_iter().chain(own.keys).collect();
        Ok(AppliedChange { keys, version: number, hash: self.hash_of(&own.text, number)? })
    }

    /// Makes the shared part of this node's file the next version. With `dry_run` it answers what would change. May block.
    pub(crate) fn push(&self, by: &str, dry_run: bool) -> Result<AppliedChange, Failure> {
        let file = server_file::text_of(&self.home.config())?;
        self.replace(split::shared_text(&file)?, by, None, dry_run)
    }

    /// Makes an earlier version the next one. May block.
    pub(crate) fn rollback(&self, to: u64, by: &str) -> Result<AppliedChange, Failure> {
        let earlier = self.versions.get(to)?;
        self.replace(earlier.text, by, Some(to), false)
    }

    fn replace(&self, text: String, by: &str, restores: Option<u64>, dry_run: bool) -> Result<AppliedChange, Failure> {
        let path = self.home.config();
        let file = server_file::text_of(&path)?;
        let before = self.versions.current()?;
        let after = config::parsed(&text, "the new configuration")?;
        let old = match &before {
            Some(before) => config::parsed(&before.text, "the configuration before")?,
            None => Config::default(),
        };
        let keys = split::changed(&old, &after);
        let own = config::load(&self.home)?;
        config::checked_policy(&split::combined(after, &own), &path)?;
        let number = before.as_ref().map_or(0, |version| version.info.version);
        let number = match dry_run || (keys.is_empty() && before.is_some()) {
            true => number,
            false => self.add(before.as_ref(), text, keys.clone(), by, restores)?.info.version,
        };
        Ok(AppliedChange { keys, version: number, hash: self.hash_of(&file, number)? })
    }

    /// The versions that are kept, the newest first. May block.
    pub(crate) fn list(&self) -> Result<Vec<VersionInfo>, Failure> {
        Ok(self.versions.all()?.into_iter().map(|version| version.info).collect())
    }

    /// A version by its number, or the newest: about it, and its settings without secrets. May block.
    pub(crate) fn show(&self, number: Option<u64>) -> Result<(VersionInfo, Config), Failure> {
        let version = match number {
            Some(number) => self.versions.get(number)?,
            None => self.versions.current()?.ok_or_else(|| {
                Failure::new(ErrorCode::NotFound, "the cluster has no version of its configuration yet")
                    .suggest("The first node that starts makes one; `toolyard config push` does too.")
            })?,
        };
        let config = config::parsed(&version.text, &format!("version {}", version.info.version))?;
        Ok((version.info, config.redacted()))
    }

    /// Uses the newest version, if it is not in use. Answers the settings that are used from now on, and those that are
    /// used after a restart.
    pub(crate) async fn take_up(&self) -> Result<(Vec<String>, Vec<String>), Failure> {
        let _one = self.taking_up.lock().await;
        let (own, seen) = (self.clone(), self.state().seen.clone());
        let read = move || {
            let bytes = own.versions.current_bytes()?;
            match bytes {
                Some(bytes) if Some(&bytes) != seen.as_ref() => Ok(Some((own.versions.open(&bytes), bytes))),
                _ => Ok(None),
            }
        };
        let Some((version, bytes)) = blocking(read).await? else { return Ok(Default::default()) };
        self.state().seen = Some(bytes);
        let before = self.in_use();
        let next = version.and_then(|version| {
            let config = node_config(&version, &before)?;
            let policy = config::checked_policy(&config, &self.home.config())?;
            Ok((version.info, config, policy))
        });
        match next {
            Err(failure) => {
                tracing::error!(error = failure.message, "a new version of the configuration is not used here");
                self.state().problem = Some(failure.message.to_string());
                self.report().await?;
                Err(failure)
            }
            Ok((info, config, policy)) => {
                let keys = split::changed(&before, &config);
                let (applied, _): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| config::is_applied_live(key));
                self.apply(&before, &config, policy, &applied).await;
                let (version, by) = (info.version, info.by);
                let is_new = {
                    let mut state = self.state();
                    let is_new = state.version != version;
                    (state.version, state.config, state.problem) = (version, config, None);
                    is_new
                };
                let needs_restart = self.needs_restart();
                if is_new {
                    let (applied, later) = (applied.join(", "), needs_restart.join(", "));
                    tracing::warn!(version, by, applied, later, "a new version of the cluster's configuration is used");
                }
                self.report().await?;
                Ok((applied, needs_restart))
            }
        }
    }

    /// Settings that differ from those with which the process started and are read at a start alone.
    fn needs_restart(&self) -> Vec<String> {
        let state = self.state();
        let keys = split::changed(&state.started, &state.config);
        keys.into_iter().filter(|key| !config::is_applied_live(key)).collect()
    }

    async fn apply(&self, before: &Config, after: &Config, policy: Policy, keys: &[String]) {
        if keys.is_empty() {
            return;
        }
        self.running.engine.set_policy(policy);
        if before.notify != after.notify {
            self.running.notifications.configure(after.notify.clone()).await;
        }
        let (old, new) = (&before.mcp.servers, &after.mcp.servers);
        for (name, _) in old.iter().filter(|(name, server)| new.get(*name) != Some(*server)) {
            self.running.upstreams.remove(name).await;
        }
        let launcher = ConfinedLauncher::new();
        let added = new.iter().filter(|(name, server)| old.get(*name) != Some(*server));
        let added: Vec<_> = added.map(|(name, server)| server_spec(&launcher, name, server, config::expand)).collect();
        if !added.is_empty() {
            // Servers that start slowly do not hold up the other settings.
            drop(self.running.upstreams.add(added));
        }
    }

    /// Tells the other nodes what this one works with.
    async fn report(&self) -> Result<(), Failure> {
        let store = self.running.engine.store().clone();
        let (version, problem) = {
            let state = self.state();
            (state.version, state.problem.clone())
        };
        let needs_restart = self.needs_restart();
        blocking(move || {
            let owner = store.owner();
            let in_use = NodeSettings { epoch: owner.epoch, version, needs_restart, problem };
            let value = serde_json::to_vec(&in_use)
                .map_err(|error| Failure::new(ErrorCode::InternalError, error.to_string()))?;
            store.put(IN_USE, &owner.node, value, None)?;
            Ok(())
        })
        .await
    }

    /// Follows the versions until stopped. The first node makes version 1 before.
    pub(crate) async fn follow(self, stop: CancellationToken) {
        let own = self.clone();
        if let Err(failure) = blocking(move || own.begin()).await {
            tracing::error!(error = failure.message, "the cluster's configuration cannot be kept in the store");
        }
        loop {
            if let Err(failure) = self.take_up().await {
                tracing::debug!(error = failure.message, "no new version of the configuration was taken up");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

/// What the nodes work with, by node. May block.
pub(crate) fn of_nodes(store: &dyn Store) -> Result<Vec<(String, NodeSettings)>, Failure> {
    let facts = store.list(IN_USE)?.into_iter();
    Ok(facts.filter_map(|(node, value)| Some((node, serde_json::from_slice(&value).ok()?))).collect())
}
