//! The methods about upstream MCP servers, for the command line and the local socket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::authority::{Effect, Power, Scope};
use toolyard_mcp::{
    Upstreams,
    client::{Approved, ServerStatus, ShownDefinition},
};
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, Terms, methods};

/// Starts or stops a server that the configuration names: nothing more is granted.
const OPERATE: Terms = Terms::new(Some(Scope::Admin), Effect::State).local();

methods! {
    /// Lists upstream MCP servers.
    McpServers = "mcp.servers", Terms::read().local(), NoParams => Servers;
    /// Starts an upstream MCP server.
    McpStart = "mcp.start", OPERATE, ServerParams => ServerStatus;
    /// Stops an upstream MCP server.
    McpStop = "mcp.stop", OPERATE, ServerParams => ServerStatus;
    /// Approves withheld tool definitions of an upstream server, each by the hash that was shown.
    McpApprove = "mcp.approve", Terms::administer().uses(&[Power::Grant]), ApproveParams => ApprovedDefinitions;
    /// Forgets the approved tool definitions of an upstream server.
    McpForget = "mcp.forget", Terms::administer(), ServerParams => Forgotten;
}

/// Declares the methods; without upstream servers they cannot be called.
pub(crate) fn declare(methods: &mut Methods, upstreams: Option<&UpstreamMethods>) {
    methods.add::<McpServers, _>(upstreams);
    methods.add::<McpStart, _>(upstreams);
    methods.add::<McpStop, _>(upstreams);
    methods.add::<McpApprove, _>(upstreams);
    methods.add::<McpForget, _>(upstreams);
}

/// Answers the methods about upstream servers.
#[derive(Clone)]
pub(crate) struct UpstreamMethods(pub(crate) Upstreams);

/// Upstream servers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Servers {
    pub(crate) servers: Vec<ServerStatus>,
}

/// A server by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerParams {
    pub(crate) server: String,
}

/// Definitions that a person has seen.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveParams {
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) definitions: Vec<ShownDefinition>,
}

/// Definitions that were approved.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ApprovedDefinitions {
    pub(crate) approved: Vec<Approved>,
}

/// A server whose approvals were forgotten.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Forgotten {
    pub(crate) forgotten: String,
}

impl Handle<McpServers> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<Servers, MethodError> {
        // Plugins' processes are shown with their plugins.
        let own = self.0.status().into_iter().filter(|server| server.plugin.is_none());
        Ok(Servers { servers: own.collect() })
    }
}

impl Handle<McpStart> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ServerStatus, MethodError> {
        Ok(self.0.start(&params.server).await?)
    }
}

impl Handle<McpStop> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ServerStatus, MethodError> {
        Ok(self.0.stop(&params.server).await?)
    }
}

impl Handle<McpApprove> for UpstreamMethods {
    async fn handle(&self, call: &Call<'_>, params: ApproveParams) -> Result<ApprovedDefinitions, MethodError> {
        let approved = self.0.approve(&params.server, &params.definitions, &call.caller.principal).await?;
        Ok(ApprovedDefinitions { approved })
    }
}

impl Handle<McpForget> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<Forgotten, MethodError> {
        self.0.forget(&params.server).await?;
        Ok(Forgotten { forgotten: params.server })
    }
}
