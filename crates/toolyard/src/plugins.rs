//! The methods about plugins, for the command line and the local socket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use toolyard_engine::{CallRequest, Caller, Engine, authority::Power};
use toolyard_plugins::{Grant, Installation, PluginInfo, Plugins, Source};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, OmittedTool, PluginReport, Terms, methods};

methods! {
    /// Lists plugins.
    PluginsList = "plugins.list", Terms::read().local(), NoParams => PluginList;
    /// Shows one plugin.
    PluginsInfo = "plugins.info", Terms::read().local(), PluginParams => PluginInfo;
    /// Checks every plugin, starting those that do not run.
    PluginsDoctor = "plugins.doctor", Terms::read().local(), NoParams => PluginList;
    /// Installs a plugin from a folder, an archive, npm or Git.
    PluginsInstall = "plugins.install", Terms::administer().uses(&[Power::Grant, Power::HostPaths]), InstallParams => Installed;
    /// Installs the newest version of a plugin from its source.
    PluginsUpdate = "plugins.update", Terms::administer().uses(&[Power::Grant]), PluginParams => Installation;
    /// Enables a plugin, optionally with more grants.
    PluginsEnable = "plugins.enable", Terms::administer().uses(&[Power::Grant]), EnableParams => PluginInfo;
    /// Disables a plugin.
    PluginsDisable = "plugins.disable", Terms::administer(), PluginParams => PluginInfo;
    /// Removes a plugin, optionally with its data.
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
pub(crate) struct PluginMethods {
    pub(crate) plugins: Plugins,
    /// Runs the tools of the built-in set.
    pub(crate) engine: Engine,
}

/// The plugin of the specification whose tools are part of Toolyard.
const BUILT_IN: &str = "obsidian-rag";

/// The result of an installation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Installed {
    /// A plugin was installed.
    Plugin(Box<Installation>),
    /// The tools are part of Toolyard.
    BuiltIn(BuiltIn),
}

/// The result of installing a built-in set of tools.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuiltIn {
    /// The set.
    pub(crate) built_in: String,
    pub(crate) enabled: bool,
    /// `healthy`, `degraded` or `unavailable`.
    pub(crate) status: String,
    pub(crate) tools: Vec<String>,
    /// What is left to do, in the order in which to do it.
    pub(crate) next: Vec<String>,
}

/// The status fields of the notes' envelope.
#[derive(Default, Deserialize)]
#[serde(default)]
struct NotesEnvelope {
    status: Option<String>,
    error: Option<NotesProblem>,
}

#[derive(Deserialize)]
struct NotesProblem {
    suggestion: Option<String>,
}

impl PluginMethods {
    /// The built-in set: its tools, its status, and the remaining steps.
    async fn built_in(&self, caller: &Arc<Caller>) -> BuiltIn {
        let snapshot = self.engine.tools().snapshot.clone();
        let names =
            toolyard_knowledge::definitions().into_iter().flatten().map(|definition| definition.name.to_string());
        let tools: Vec<String> = names.filter(|name| snapshot.get(name).is_some()).collect();
        let request = CallRequest { tool: "obsidian_rag_status".to_owned(), ..CallRequest::default() };
        let data = self.engine.call(caller.clone(), request).await.result.into_parts().data;
        let envelope = data.map(|data| NotesEnvelope::deserialize(Value::Object(data)).unwrap_or_default());
        let envelope = envelope.unwrap_or_default();
        let next = match tools.is_empty() {
            true => vec!["set knowledge.enabled = true in config.toml and start Toolyard again".to_owned()],
            false => envelope.error.and_then(|error| error.suggestion).into_iter().collect(),
        };
        let status = envelope.status.unwrap_or_else(|| "unavailable".to_owned());
        BuiltIn { built_in: BUILT_IN.to_owned(), enabled: !tools.is_empty(), status, tools, next }
    }
}

/// Plugins as `health` reports them.
pub(crate) fn report(plugins: &Plugins) -> Vec<PluginReport> {
    let report = |plugin: PluginInfo| PluginReport {
        status: plugin.status.as_str(),
        id: plugin.id,
        enabled: plugin.enabled,
        problems: plugin.problems,
        left_out: plugin.left_out.into_iter().map(|l| OmittedTool { tool: l.tool, reason: l.reason }).collect(),
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

/// The parameters of an installation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallParams {
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) grant: Vec<String>,
}

/// The parameters for enabling a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnableParams {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) grant: Vec<String>,
}

/// The parameters for removing a plugin.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveParams {
    pub(crate) id: String,
    /// Whether to remove its data too.
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
        Ok(PluginList { plugins: self.plugins.list() })
    }
}

impl Handle<PluginsInfo> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: PluginParams) -> Result<PluginInfo, MethodError> {
        Ok(self.plugins.info(&params.id)?)
    }
}

impl Handle<PluginsDoctor> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<PluginList, MethodError> {
        Ok(PluginList { plugins: self.plugins.doctor().await })
    }
}

impl Handle<PluginsInstall> for PluginMethods {
    async fn handle(&self, call: &Call<'_>, params: InstallParams) -> Result<Installed, MethodError> {
        let grant = grant(&params.grant)?;
        Ok(match Source::parse(&params.source)? {
            Source::Clawhub(spec) if spec.split('@').next() == Some(BUILT_IN) => {
                Installed::BuiltIn(self.built_in(&call.caller).await)
            }
            source => Installed::Plugin(Box::new(self.plugins.install(&source, grant).await?)),
        })
    }
}

impl Handle<PluginsUpdate> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: PluginParams) -> Result<Installation, MethodError> {
        Ok(self.plugins.update(&params.id).await?)
    }
}

impl Handle<PluginsEnable> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: EnableParams) -> Result<PluginInfo, MethodError> {
        Ok(self.plugins.set_enabled(&params.id, true, &grant(&params.grant)?).await?)
    }
}

impl Handle<PluginsDisable> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: PluginParams) -> Result<PluginInfo, MethodError> {
        Ok(self.plugins.set_enabled(&params.id, false, &Grant::default()).await?)
    }
}

impl Handle<PluginsRemove> for PluginMethods {
    async fn handle(&self, _: &Call<'_>, params: RemoveParams) -> Result<RemovedPlugin, MethodError> {
        self.plugins.remove(&params.id, params.data).await?;
        Ok(RemovedPlugin { removed: params.id })
    }
}
