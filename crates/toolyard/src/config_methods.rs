//! The method that changes the configuration, for the owner at the command line and in a paired browser.

use crate::{
    config::{self, Change},
    home::Home,
    notify::Notifications,
    server_file,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::{Door, Engine, authority::Power};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, Object, Terms, methods};

methods! {
    /// Changes the configuration: a JSON merge patch over the file that has the given hash.
    ConfigPatch = "config.patch", Terms::administer().uses(&[Power::Grant]), PatchParams => PatchedConfig;
}

/// Declares the method; without a home it cannot be called.
pub(crate) fn declare(methods: &mut Methods, config: Option<&ConfigMethods>) {
    methods.add::<ConfigPatch, _>(config);
}

/// Changes the configuration.
#[derive(Clone)]
pub(crate) struct ConfigMethods {
    pub(crate) home: Home,
    pub(crate) engine: Engine,
    pub(crate) notifications: Notifications,
}

/// A change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchParams {
    /// The `hash` of the configuration that was looked at, from `config.get`.
    pub(crate) base_hash: String,
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
}

impl ConfigMethods {
    /// Checks a change and writes it.
    fn write(&self, params: &PatchParams, for_browser: bool) -> Result<(Change, toolyard_catalog::Policy), Failure> {
        let path = self.home.config();
        let _writing = server_file::writing();
        let text = server_file::text_of(&path)?;
        if config::file_hash(&self.home, &text)? != params.base_hash {
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
}

impl Handle<ConfigPatch> for ConfigMethods {
    async fn handle(&self, call: &Call<'_>, params: PatchParams) -> Result<PatchedConfig, MethodError> {
        let (own, for_browser) = (self.clone(), call.caller.door == Door::Console);
        let written = tokio::task::spawn_blocking(move || {
            let (change, policy) = own.write(&params, for_browser)?;
            let hash = config::file_hash(&own.home, &change.text)?;
            Ok::<_, Failure>((change, policy, hash))
        });
        let unexpected =
            |_| Err(Failure::new(ErrorCode::InternalError, "writing the configuration failed unexpectedly"));
        let (change, policy, hash) = written.await.unwrap_or_else(unexpected)?;
        let (applied, needs_restart) = change.split();
        config::learn_secrets(&change.config);
        if !applied.is_empty() {
            self.engine.set_policy(policy);
            self.notifications.configure(change.config.notify).await;
        }
        let by = &call.caller.principal;
        tracing::warn!(keys = change.keys.join(", "), by, "the configuration was changed");
        Ok(PatchedConfig { hash, changed: change.keys, applied, needs_restart })
    }
}
