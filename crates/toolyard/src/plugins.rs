//! The methods about plugins, for the command line and the local socket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::authority::Power;
use toolyard_plugins::{Added, Grant, PluginInfo, Plugins, Source};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, LeftOutTool, MethodError, Methods, NoParams, PluginReport, Terms, methods};

methods! {
    /// Lists plugins.
    PluginsList = "plugins.list", Terms::read().local(), NoParams => PluginList;
    /// Shows one plugin.
    PluginsInfo = "plugins.info", Terms::read().local(), PluginParams => PluginInfo;
    /// Looks every plugin over, starting those that do not run.
    PluginsDoctor = "plugins.doctor", Terms::read().local(), NoParams => PluginList;
    /// Installs a plugin from a folder, an archive, npm or Git.
    PluginsInstall = "plugins.install", Terms::administer().uses(&[Power::Grant, Power::HostPaths]), InstallParams => Added;
    /// Installs the newest version of a plugin from where it came from.
    PluginsUpdate = "plugins.update", Terms::administer().uses(&[Power::Grant]), PluginParams => Added;
    /// Uses a plugin, with what it is granted.
    PluginsEnable = "plugins.enable", Terms::administer().uses(&[Power::Grant]), EnableParams => PluginInfo;
    /// Uses a plugin no more.
    PluginsDisable = "plugins.disable", Terms::administer(), PluginParams => PluginInfo;
    /// Removes a plugin, with its data where that is asked for.
    PluginsRemove = "plugins.remove", Terms::administer(), RemoveParams => RemovedPlugin;
}

/// Declares the methods; without plugins they cannot be called.
pub(crate) fn declare(methods: &mut Methods, plugins: Option<&PluginMethods>) {
    methods.add::<PluginsList, _>(plugins);
    methods.add::<PluginsInfo, _>(plugins);
    methods.add::<PluginsDoctor, _>(plugins);
    methods.add::<PluginsInstall, _>(plugins);
    methods.add::<PluginsUpdate, _>(plugins);
    methods.add::<PluginsEnable, _>(plugins);
    methods.add::<PluginsDisable, _>(plugins);
    methods.add::<PluginsRemove, _>(plugins);
}

/// Answers the methods about plugins.
#[derive(Clone)]
pub(crate) struct PluginMethods(pub(crate) Plugins);

/// Plugins as `health` reports them.
pub(crate) fn report(plugins: &Plugins) -> Vec<PluginReport> {
    let report = |plugin: PluginInfo| PluginReport {
        status: plugin.status.as_str(),
        id: plugin.id,
        enabled: plugin.enabled,
        problems: plugin.problems,
        left_out: plugin.left_out.into_iter().map(|l| LeftOutTool { tool: l.tool, reason: l.reason }).collect(),
    };
    plugins.list().into_iter().map(report).collect()
}

/// Plugins.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PluginList {
    pub(crate) plugins: Vec<PluginInfo>,
}

/// A plugin by id.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginParams {
    pub(crate) id: String,
}

/// What is installed, and what it is granted.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallParams {
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) grant: Vec<String>,
}

/// What is used, and what it is granted.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnableParams {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) grant: Vec<String>,
}

/// What is removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveParams {
    pub(crate) id: String,
    /// Whether its data goes too.
    #[serde(default)]
    pub(crate) data: bool,
}

/// A plugin that was removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RemovedPlugin {
    pub(crate) removed: String,
}

fn grant(words: &[String]) -> Result<Grant, Failure> {
    Grant::parse(words).map_err(|why| Failure::new(ErrorCode::UsageError, why))
}

impl Handle<PluginsList> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<PluginList, MethodError> {
        Ok(PluginList { plugins: self.0.list() })
    }
}

impl Handle<PluginsInfo> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: PluginParams) -> Result<PluginInfo, MethodError> {
        Ok(self.0.info(&params.id)?)
    }
}

impl Handle<PluginsDoctor> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<PluginList, MethodError> {
        Ok(PluginList { plugins: self.0.doctor().await })
    }
}

impl Handle<PluginsInstall> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: InstallParams) -> Result<Added, MethodError> {
        Ok(self.0.install(&Source::parse(&params.source)?, grant(&params.grant)?).await?)
    }
}

impl Handle<PluginsUpdate> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: PluginParams) -> Result<Added, MethodError> {
        Ok(self.0.update(&params.id).await?)
    }
}

impl Handle<PluginsEnable> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: EnableParams) -> Result<PluginInfo, MethodError> {
        Ok(self.0.set_enabled(&params.id, true, &grant(&params.grant)?).await?)
    }
}

impl Handle<PluginsDisable> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: PluginParams) -> Result<PluginInfo, MethodError> {
        Ok(self.0.set_enabled(&params.id, false, &Grant::default()).await?)
    }
}

impl Handle<PluginsRemove> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: RemoveParams) -> Result<RemovedPlugin, MethodError> {
        self.0.remove(&params.id, params.data).await?;
        Ok(RemovedPlugin { removed: params.id })
    }
}
