//! The method that changes the configuration, for the owner at the command line and in a paired browser.

use crate::{
    config::{self, Change},
    home::Home,
    notify::Notifications,
    server_file,
    shared_config::{AppliedChange, SharedConfig, VersionInfo, split},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::{Door, Engine, authority::Power};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, Object, Terms, methods};

methods! {
    /// Changes the configuration: a JSON merge patch over the file that has the given hash.
    ConfigPatch = "config.patch", Terms::administer().uses(&[Power::Grant]), PatchParams => PatchedConfig;
    /// Lists the versions of the configuration that the nodes of a cluster share.
    ConfigVersions = "config.versions", Terms::read().local(), NoParams => VersionList;
    /// Shows a version of the configuration that the nodes of a cluster share; secrets are hidden.
    ConfigVersion = "config.version", Terms::read().local(), VersionParams => ShownVersion;
    /// Makes the shared settings of this node's `config.toml` the cluster's configuration.
    ConfigPush = "config.push", Terms::administer().uses(&[Power::Grant]), PushParams => PatchedConfig;
    /// Makes an earlier version of the cluster's configuration the newest.
    ConfigRollback = "config.rollback", Terms::administer().uses(&[Power::Grant]), RollbackParams => PatchedConfig;
}

/// Declares the method; without a home it cannot be called.
pub(crate) fn declare(methods: &mut Methods, config: Option<&ConfigMethods>) {
    methods.add::<ConfigPatch, _>(config);
    methods.add::<ConfigVersions, _>(config);
    methods.add::<ConfigVersion, _>(config);
    methods.add::<ConfigPush, _>(config);
    methods.add::<ConfigRollback, _>(config);
}

/// Changes the configuration.
#[derive(Clone)]
pub(crate) struct ConfigMethods {
    pub(crate) home: Home,
    pub(crate) engine: Engine,
    pub(crate) notifications: Notifications,
    /// The configuration that the nodes of a cluster share.
    pub(crate) shared: Option<SharedConfig>,
}

/// A change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchParams {
    /// The `hash` of the configuration that was looked at, from `config.get`. Without it the patch is applied to whatever the
    /// configuration is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_hash: Option<String>,
    /// A JSON merge patch (RFC 7396): keys to set, `null` for keys to remove.
    pub(crate) patch: Object,
}

/// What was changed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchedConfig {
    /// The hash of the configuration as it is now.
    pub(crate) hash: String,
    /// The keys whose values differ.
    pub(crate) changed: Vec<String>,
    /// Those of them that are used from now on.
    pub(crate) applied: Vec<String>,
    /// Those of them that are used after a restart.
    pub(crate) needs_restart: Vec<String>,
    /// The version of the cluster's configuration that has the change; absent on a single machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
}

/// The versions of the shared configuration.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct VersionList {
    /// The newest first.
    pub(crate) versions: Vec<VersionInfo>,
    /// Settings that this node's `config.toml` sets differently. They are not used.
    pub(crate) ignored: Vec<String>,
}

/// Which version.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionParams {
    /// Its number; without it the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
}

/// A version of the shared configuration.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ShownVersion {
    /// About it.
    #[serde(flatten)]
    pub(crate) info: VersionInfo,
    /// Its settings, with defaults. Secrets are hidden.
    pub(crate) config: Object,
}

/// What is done with this node's settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PushParams {
    /// Answers what would change, and changes nothing.
    pub(crate) dry_run: bool,
}

/// The version to go back to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackParams {
    /// Its number.
    pub(crate) version: u64,
}

impl ConfigMethods {
    /// Checks a change and writes it.
    fn write(&self, params: &PatchParams, for_browser: bool) -> Result<(Change, toolyard_catalog::Policy), Failure> {
        let path = self.home.config();
        let _writing = server_file::writing();
        let text = server_file::text_of(&path)?;
        if params.base_hash.as_ref().is_some_and(|hash| config::file_hash(&self.home, &text).as_ref() != Ok(hash)) {
            return Err(Failure::new(ErrorCode::Conflict, "the configuration has changed since it was looked at")
                .detail("reason", "CONFIG_CHANGED")
                .suggest("Read it again with config.get, and make the change anew."));
        }
        let change = Change::make(&text, &params.patch)?;
        if for_browser {
            change.check_for_browser()?;
        }
        let policy = config::checked_policy(&change.config, &path)?;
        if !change.keys.is_empty() {
            server_file::replace(&path, &change.text)?;
        }
        Ok((change, policy))
    }

    fn shared(&self) -> Result<SharedConfig, Failure> {
        self.shared.clone().ok_or_else(|| {
            Failure::new(ErrorCode::PreconditionFailed, "this home has its whole configuration in config.toml")
                .suggest("Versions of the configuration exist in a cluster; see docs/guide/cluster.md.")
        })
    }

    /// Has this node use a version that was just made, and says what that means.
    async fn made(&self, shared: &SharedConfig, made: AppliedChange, by: &str) -> PatchedConfig {
        let AppliedChange { keys, version, hash } = made;
        if let Err(failure) = shared.take_up().await {
            tracing::error!(error = failure.message, "the new configuration is stored, and not used here");
        }
        let (applied, needs_restart) = keys.iter().cloned().partition(|key| config::is_applied_live(key));
        tracing::warn!(keys = keys.join(", "), by, version, "the configuration was changed");
        PatchedConfig { hash, changed: keys, applied, needs_restart, version: Some(version) }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Failure::new(ErrorCode::InternalError, "writing the configuration failed unexpectedly"))
    })
}

impl Handle<ConfigVersions> for ConfigMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<VersionList, MethodError> {
        let (shared, file) = (self.shared()?, self.home.config());
        let list = move || {
            let ignored = split::ignored(&server_file::text_of(&file)?, &shared.in_use())?;
            Ok(VersionList { versions: shared.list()?, ignored })
        };
        Ok(blocking(list).await?)
    }
}

impl Handle<ConfigVersion> for ConfigMethods {
    async fn handle(&self, _: &Call<'_>, params: VersionParams) -> Result<ShownVersion, MethodError> {
        let shared = self.shared()?;
        let (info, config) = blocking(move || shared.show(params.version)).await?;
        Ok(ShownVersion { info, config: split::shown(&config) })
    }
}

impl Handle<ConfigPush> for ConfigMethods {
    async fn handle(&self, call: &Call<'_>, params: PushParams) -> Result<PatchedConfig, MethodError> {
        let (shared, by) = (self.shared()?, call.caller.principal.clone());
        let own = shared.clone();
        let made = blocking(move || own.push(&by, params.dry_run)).await?;
        Ok(match params.dry_run {
            true => {
                let (applied, needs_restart) = made.keys.iter().cloned().partition(|key| config::is_applied_live(key));
                PatchedConfig {
                    hash: made.hash,
                    changed: made.keys,
                    applied,
                    needs_restart,
                    version: Some(made.version),
                }
            }
            false => self.made(&shared, made, &call.caller.principal).await,
        })
    }
}

impl Handle<ConfigRollback> for ConfigMethods {
    async fn handle(&self, call: &Call<'_>, params: RollbackParams) -> Result<PatchedConfig, MethodError> {
        let (shared, by) = (self.shared()?, call.caller.principal.clone());
        let own = shared.clone();
        let made = blocking(move || own.rollback(params.version, &by)).await?;
        Ok(self.made(&shared, made, &call.caller.principal).await)
    }
}

impl Handle<ConfigPatch> for ConfigMethods {
    async fn handle(&self, call: &Call<'_>, params: PatchParams) -> Result<PatchedConfig, MethodError> {
        let (own, for_browser) = (self.clone(), call.caller.door == Door::Console);
        if let Some(shared) = &self.shared {
            let (own, by) = (shared.clone(), call.caller.principal.clone());
            let patch = move || own.patch(&params.patch, params.base_hash.as_deref(), for_browser, &by);
            let made = blocking(patch).await?;
            return Ok(self.made(shared, made, &call.caller.principal).await);
        }
        let write = move || {
            let (change, policy) = own.write(&params, for_browser)?;
            let hash = config::file_hash(&own.home, &change.text)?;
            Ok((change, policy, hash))
        };
        let (change, policy, hash) = blocking(write).await?;
        let (applied, needs_restart) = change.split();
        config::learn_secrets(&change.config);
        if !applied.is_empty() {
            self.engine.set_policy(policy);
            self.notifications.configure(change.config.notify).await;
        }
        let by = &call.caller.principal;
        tracing::warn!(keys = change.keys.join(", "), by, "the configuration was changed");
        Ok(PatchedConfig { hash, changed: change.keys, applied, needs_restart, version: None })
    }
}
