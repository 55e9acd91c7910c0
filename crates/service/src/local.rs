//! Methods of the command line and the local socket: the process, its tools, and devices named as people name them.

use crate::{
    AnyJson, Call, Handle, MethodError, NoParams, Object, ProcessInfo, Service, Terms, cluster::DifferingNode,
    devices::DevicesAnswer, methods, plans::end, service::blocking, sessions,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use toolyard_catalog::{Decision, Resolution, ToolEntry, ToolSource, did_you_mean};
use toolyard_engine::{
    CallRequest, Caller,
    authority::{Effect, Scope},
};
use toolyard_protocol::{ErrorCode, Failure, RiskLevel, Schema, ToolDefinition, ToolResult};

/// How many characters of a caller's name are repeated in an error.
const MAX_SHOWN: usize = 80;

methods! {
    /// Reports the version, home, vault and activity of this process.
    YardStatus = "yard.status", Terms::read().local(), YardStatusParams => ProcessStatus;
    /// Lists the tools that the caller may see.
    ToolsList = "tools.list", Terms::read().local(), ToolsListParams => ToolList;
    /// Describes one tool: its definition, its source, and the policy's decision.
    ToolsDescribe = "tools.describe", Terms::read().local(), ToolNameParams => ToolDescription;
    /// Calls a tool and returns its result.
    ToolsCall = "tools.call", Terms::run().local(), ToolsCallParams => ToolCallAnswer;
    /// Lists paired devices and pairing requests.
    DevicesList = "devices.list", Terms::new(Some(Scope::Pairing), Effect::None).local(), NoParams => DevicesAnswer;
    /// Approves a pairing request.
    DevicesApprove = "devices.approve", Terms::pair().local(), IdParams => ApprovedDevice;
    /// Rejects a pairing request.
    DevicesReject = "devices.reject", Terms::pair().local(), IdParams => RejectedDevice;
    /// Removes a paired device and closes its connections.
    DevicesRevoke = "devices.revoke", Terms::pair().local(), IdParams => RevokedDevice;
}

/// The state of this process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    /// Which Toolyard it is.
    #[serde(flatten)]
    pub process: ProcessInfo,
    /// Milliseconds since it began.
    pub uptime_ms: u64,
    /// Tools in the catalog.
    pub tools: usize,
    /// The version of the catalog.
    pub registry_version: String,
    /// Runs and calls under way.
    pub active_runs: usize,
    /// The key that verifies its signatures.
    pub public_key: String,
    /// The session in use, or the main one; only if `full` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Calls that wait for a person's answer; only if `full` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_questions: Option<u64>,
    /// Nodes of the cluster that work with other settings than this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing_nodes: Vec<DifferingNode>,
}

/// The parameters of a status request.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct YardStatusParams {
    /// Whether to include what must be read from the store.
    #[serde(default)]
    pub full: bool,
}

impl Handle<YardStatus> for Service {
    async fn handle(&self, call: &Call<'_>, params: YardStatusParams) -> Result<ProcessStatus, MethodError> {
        let tools = self.engine().tools();
        let (session_key, open_questions) = match params.full {
            true => {
                let (store, workspace) = (self.engine().store().clone(), call.caller.workspace.clone());
                let key = blocking(move || Ok::<_, MethodError>(sessions::in_use(&store, &workspace)?)).await?;
                (Some(key), Some(self.engine().approvals().pending_for(&call.caller).len() as u64))
            }
            false => (None, None),
        };
        Ok(ProcessStatus {
            process: self.info().clone(),
            uptime_ms: self.uptime_ms(),
            tools: tools.snapshot.len(),
            registry_version: tools.snapshot.version().to_owned(),
            active_runs: self.engine().count_active(&call.caller.workspace),
            public_key: self.verifier().to_text(),
            session_key,
            open_questions,
            differing_nodes: self.cluster().map(|cluster| cluster.differing()).unwrap_or_default(),
        })
    }
}

/// Which tools are listed, and how.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolsListParams {
    /// Only tools of this category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Whether the schemas are listed too.
    pub schemas: bool,
}

/// Tools that the caller may see.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolList {
    /// The tools.
    pub tools: Vec<ToolRow>,
    /// The version of the catalog.
    pub registry_version: String,
}

/// A tool in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolRow {
    /// Its name.
    pub name: String,
    /// Its id in the catalog.
    pub id: String,
    /// A short name for people.
    pub title: String,
    /// What it does.
    pub description: String,
    /// Its family.
    pub category: String,
    /// How much harm it can do.
    pub risk_level: RiskLevel,
    /// Whether the policy asks a person before a call.
    pub needs_approval: bool,
    /// The schema of its arguments, where schemas were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<AnyJson>,
    /// The schema of its data, where schemas were asked for; null where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<AnyJson>,
}

impl Handle<ToolsList> for Service {
    async fn handle(&self, call: &Call<'_>, params: ToolsListParams) -> Result<ToolList, MethodError> {
        let policy = self.engine().policy_for(&call.caller);
        let wanted = |entry: &&Arc<ToolEntry>| {
            params.category.as_ref().is_none_or(|category| *category == entry.definition().category)
        };
        let visible = self.engine().visible_tools(&call.caller);
        let rows = visible.iter().filter(wanted).map(|entry| {
            let definition = entry.definition();
            ToolRow {
                name: definition.name.to_string(),
                id: entry.id().to_owned(),
                title: definition.title.clone(),
                description: definition.description.clone(),
                category: definition.category.to_string(),
                risk_level: definition.risk_level,
                needs_approval: matches!(policy.decide(entry, None), Decision::Ask { .. }),
                input_schema: params.schemas.then(|| definition.input_schema.value()),
                output_schema: params
                    .schemas
                    .then(|| definition.output_schema.as_ref().map_or(AnyJson::Null, Schema::value)),
            }
        });
        let registry_version = self.engine().tools().snapshot.version().to_owned();
        Ok(ToolList { tools: rows.collect(), registry_version })
    }
}

/// A tool by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolNameParams {
    /// The tool.
    pub name: String,
}

/// A tool and the policy's decision about it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDescription {
    /// Its definition.
    #[serde(flatten)]
    pub definition: ToolDefinition,
    /// Its id in the catalog.
    pub id: String,
    /// Where it comes from.
    pub source: ToolSource,
    /// The policy's decision about a call.
    pub policy: PolicyView,
}

/// The policy's decision about a tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyView {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// Why; null where a call is allowed.
    pub reason: Option<String>,
}

impl Handle<ToolsDescribe> for Service {
    async fn handle(&self, call: &Call<'_>, params: ToolNameParams) -> Result<ToolDescription, MethodError> {
        let entry = self.visible(&call.caller, &params.name)?;
        let (decision, reason) = match self.engine().policy_for(&call.caller).decide(&entry, None) {
            Decision::Allow => ("allow", None),
            Decision::Ask { reason, .. } => ("ask", Some(reason)),
            Decision::Deny { reason, .. } => ("deny", Some(reason)),
        };
        Ok(ToolDescription {
            definition: ToolDefinition::clone(entry.definition()),
            id: entry.id().to_owned(),
            source: entry.source().clone(),
            policy: PolicyView { decision: decision.to_owned(), reason },
        })
    }
}

impl Service {
    fn visible(&self, caller: &Caller, name: &str) -> Result<Arc<ToolEntry>, Failure> {
        let tools = self.engine().tools();
        let policy = self.engine().policy_for(caller);
        let found = tools.snapshot.get(name).filter(|e| !policy.decide(e, None).is_denied()).cloned();
        found.ok_or_else(|| {
            let near = match tools.snapshot.resolve_visible(name, |e| !policy.decide(e, None).is_denied()) {
                Resolution::Unknown(suggestions) => suggestions.names(),
                _ => Vec::new(),
            };
            let failure = Failure::new(
                ErrorCode::NotFound,
                format!("there is no tool {:?}", name.chars().take(MAX_SHOWN).collect::<String>()),
            );
            let question = did_you_mean(&near);
            failure.suggest(question.unwrap_or_else(|| "List the tools with `toolyard tools list`.".to_owned()))
        })
    }
}

/// A call of a tool.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolsCallParams {
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Object,
    /// The timeout in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// A second call with the same key and arguments answers with the first one's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Whether effects are only predicted.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallAnswer {
    /// The result.
    pub result: ToolResult,
    /// Whether it is the recorded result of an earlier call with the same idempotency key.
    pub deduplicated: bool,
}

impl Handle<ToolsCall> for Service {
    async fn handle(&self, call: &Call<'_>, params: ToolsCallParams) -> Result<ToolCallAnswer, MethodError> {
        let run_id = self.engine().new_run_id();
        let watching = call.events.clone().map(|sink| self.watch(run_id, sink));
        let request = CallRequest {
            tool: params.name.clone(),
            args: params.args,
            timeout_ms: params.timeout_ms,
            idempotency_key: params.idempotency_key,
            dry_run: params.dry_run,
            run_id: Some(run_id),
            ..CallRequest::default()
        };
        let answer = self.invoke(call.caller.clone(), request).await;
        end(watching).await;
        let is_missing = answer.result.error.as_ref().is_some_and(|e| e.code == ErrorCode::NotFound)
            && self.engine().tools().snapshot.get(&params.name).is_none();
        let result = match self.why_left_out(&params.name).filter(|_| is_missing) {
            Some(why) => answer.result.with_suggestion(why),
            None => answer.result,
        };
        Ok(ToolCallAnswer { result, deduplicated: answer.deduplicated })
    }
}

/// A device or a pairing request, as a person names it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdParams {
    /// An id, or a beginning of a device's id that no other device shares.
    pub id: String,
}

/// A device that was approved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedDevice {
    /// The device.
    pub device_id: String,
    /// Its role.
    pub role: String,
    /// Its scopes.
    pub scopes: Vec<String>,
}

/// A device that was rejected.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedDevice {
    /// The device.
    pub device_id: String,
    /// Always true.
    pub rejected: bool,
}

/// A device that was removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevokedDevice {
    /// The device.
    pub device_id: String,
    /// Always true.
    pub revoked: bool,
}

impl Handle<DevicesList> for Service {
    async fn handle(&self, call: &Call<'_>, _: NoParams) -> Result<DevicesAnswer, MethodError> {
        Ok(self.devices().overview(&call.caller)?)
    }
}

impl Handle<DevicesApprove> for Service {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<ApprovedDevice, MethodError> {
        let request = self.devices().request_named(&call.caller, &params.id)?;
        let device = self.devices().approve(&request, &call.caller).await?;
        Ok(ApprovedDevice { device_id: device.device_id, role: device.role, scopes: device.scopes })
    }
}

impl Handle<DevicesReject> for Service {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<RejectedDevice, MethodError> {
        let request = self.devices().request_named(&call.caller, &params.id)?;
        self.devices().reject(&request, &call.caller).await?;
        Ok(RejectedDevice { device_id: request.device.device_id, rejected: true })
    }
}

impl Handle<DevicesRevoke> for Service {
    async fn handle(&self, call: &Call<'_>, params: IdParams) -> Result<RevokedDevice, MethodError> {
        let named = self.devices().device_named(&call.caller, &params.id)?;
        let device = self.devices().revoke(&named.device_id, &call.caller, None).await?;
        Ok(RevokedDevice { device_id: device.device_id, revoked: true })
    }
}
