//! The methods about upstream MCP servers, for the command line and the local socket.

use crate::{server_file, shared_config::SharedConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toolyard_engine::{
    Door,
    authority::{Effect, Power, Scope},
};
use toolyard_mcp::{
    Upstreams,
    client::{Approved, SandboxConfig, ServerConfig, ServerStatus, ShownDefinition},
};
use toolyard_plugins::sandboxed::server_spec;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_sandbox::launch::ConfinedLauncher;
use toolyard_service::{Call, Handle, MethodError, Methods, NoParams, Object, Terms, methods};

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
    McpForget = "mcp.forget", Terms::administer(), ServerParams => ForgottenApprovals;
    /// Adds an upstream MCP server to the configuration and starts it.
    McpAdd = "mcp.add", Terms::administer().uses(&[Power::Grant]), AddParams => ServerTest;
    /// Stops an upstream MCP server and removes it from the configuration.
    McpRemove = "mcp.remove", Terms::administer(), ServerParams => Removed;
    /// Starts an upstream MCP server, lists its tools, and returns the error if that fails.
    McpTest = "mcp.test", OPERATE, ServerParams => ServerTest;
    /// Shows the last lines that the process of an upstream MCP server wrote to standard error.
    McpLog = "mcp.log", Terms::read().local().of_installation(), ServerParams => ServerLog;
}

/// Declares the methods; without upstream servers they cannot be called.
pub(crate) fn declare(methods: &mut Methods, upstreams: Option<&UpstreamMethods>) {
    methods.add::<McpServers, _>(upstreams);
    methods.add::<McpStart, _>(upstreams);
    methods.add::<McpStop, _>(upstreams);
    methods.add::<McpApprove, _>(upstreams);
    methods.add::<McpForget, _>(upstreams);
    methods.add::<McpAdd, _>(upstreams);
    methods.add::<McpRemove, _>(upstreams);
    methods.add::<McpTest, _>(upstreams);
    methods.add::<McpLog, _>(upstreams);
}

/// Answers the methods about upstream servers.
#[derive(Clone)]
pub(crate) struct UpstreamMethods {
    pub(crate) upstreams: Upstreams,
    /// The file that servers are added to.
    pub(crate) config: PathBuf,
    /// The configuration that they are added to in a cluster.
    pub(crate) shared: Option<SharedConfig>,
}

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
pub struct ForgottenApprovals {
    pub(crate) forgotten: String,
}

/// A server to add: a program, or a URL.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AddParams {
    /// Its name.
    pub(crate) name: String,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// The program's arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    /// The URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// What the program may read, write and reach; nothing by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<SandboxConfig>,
}

/// The result of a start.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerTest {
    /// Whether it runs and answers.
    pub(crate) ok: bool,
    /// The status of the server.
    pub(crate) status: ServerStatus,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
    /// What its process wrote to its standard error last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<String>,
}

/// A server that was removed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    pub(crate) removed: String,
}

/// What a server's process wrote.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ServerLog {
    pub(crate) server: String,
    /// The end of its standard error; empty where it wrote nothing or is not a program.
    pub(crate) log: String,
}

impl UpstreamMethods {
    /// Makes a version of the cluster's configuration with a change, and has this node use it.
    async fn change_shared(&self, shared: &SharedConfig, patch: Object, call: &Call<'_>) -> Result<(), Failure> {
        let (own, by) = (shared.clone(), call.caller.principal.clone());
        blocking(move || own.patch(&patch, None, false, &by)).await?;
        shared.take_up().await.map(drop)
    }

    fn tested(&self, name: &str, started: Result<ServerStatus, Failure>) -> Result<ServerTest, Failure> {
        let status = self.upstreams.status().into_iter().find(|server| server.name == name);
        let log = self.upstreams.log(name)?;
        match (started, status) {
            (Ok(status), _) => Ok(ServerTest { ok: true, status, error: None, log }),
            (Err(failure), Some(status)) => Ok(ServerTest { ok: false, status, error: Some(failure), log }),
            (Err(failure), None) => Err(failure),
        }
    }
}

impl Handle<McpAdd> for UpstreamMethods {
    async fn handle(&self, call: &Call<'_>, params: AddParams) -> Result<ServerTest, MethodError> {
        let AddParams { name, command, args, url, sandbox } = params;
        let is_program = command.is_some();
        let sandbox =
            is_program.then(|| sandbox.unwrap_or(SandboxConfig { enabled: true, ..SandboxConfig::default() }));
        // Access to a paired browser is not access to the machine: a program that is added from the console always runs
        // in a sandbox.
        if call.caller.door == Door::Console && sandbox.as_ref().is_some_and(|sandbox| !sandbox.enabled) {
            return Err(Failure::new(
                ErrorCode::PolicyDenied,
                "a server that is added in the browser runs in a sandbox",
            )
            .suggest("Grant it folders in `sandbox`, or add it with `toolyard mcp add --no-sandbox`.")
            .into());
        }
        if self.upstreams.status().iter().any(|server| server.name == name) {
            return Err(Failure::new(ErrorCode::Conflict, format!("the server {name} is configured already"))
                .suggest("Choose another name, or remove it first.")
                .into());
        }
        let config = ServerConfig { command, args, url, sandbox, ..ServerConfig::default() };
        config.check(&name).map_err(|why| Failure::new(ErrorCode::ValidationError, why))?;
        if let Some(shared) = &self.shared {
            self.change_shared(shared, server_file::patch_adding(&name, &config)?, call).await?;
        } else {
            let (file, kept, own) = (self.config.clone(), config.clone(), name.clone());
            blocking(move || server_file::add(&file, &own, &kept)).await?;
            let spec = server_spec(&ConfinedLauncher::new(), &name, &config, crate::config::expand);
            drop(self.upstreams.add(vec![spec]));
        }
        let started = self.upstreams.start(&name).await;
        Ok(self.tested(&name, started)?)
    }
}

impl Handle<McpRemove> for UpstreamMethods {
    async fn handle(&self, call: &Call<'_>, params: ServerParams) -> Result<Removed, MethodError> {
        if let Some(shared) = &self.shared {
            if !shared.in_use().mcp.servers.contains_key(&params.server) {
                let message = format!("{} is not in the cluster's configuration", params.server);
                return Err(Failure::new(ErrorCode::NotFound, message).into());
            }
            self.change_shared(shared, server_file::patch_removing(&params.server)?, call).await?;
            return Ok(Removed { removed: params.server });
        }
        let (file, own) = (self.config.clone(), params.server.clone());
        blocking(move || server_file::remove(&file, &own)).await?;
        self.upstreams.remove(&params.server).await;
        Ok(Removed { removed: params.server })
    }
}

impl Handle<McpTest> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ServerTest, MethodError> {
        let started = self.upstreams.restart(&params.server).await;
        Ok(self.tested(&params.server, started)?)
    }
}

impl Handle<McpLog> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ServerLog, MethodError> {
        let log = self.upstreams.log(&params.server)?.unwrap_or_default();
        Ok(ServerLog { server: params.server, log })
    }
}

/// Runs work that writes files on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(Failure::new(ErrorCode::InternalError, "writing the configuration failed unexpectedly"))
    })
}

impl Handle<McpServers> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, _: NoParams) -> Result<Servers, MethodError> {
        // Plugins' processes are shown with their plugins.
        let own = self.upstreams.status().into_iter().filter(|server| server.plugin.is_none());
        Ok(Servers { servers: own.collect() })
    }
}

impl Handle<McpStart> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ServerStatus, MethodError> {
        Ok(self.upstreams.start(&params.server).await?)
    }
}

impl Handle<McpStop> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ServerStatus, MethodError> {
        Ok(self.upstreams.stop(&params.server).await?)
    }
}

impl Handle<McpApprove> for UpstreamMethods {
    async fn handle(&self, call: &Call<'_>, params: ApproveParams) -> Result<ApprovedDefinitions, MethodError> {
        let approved = self.upstreams.approve(&params.server, &params.definitions, &call.caller.principal).await?;
        Ok(ApprovedDefinitions { approved })
    }
}

impl Handle<McpForget> for UpstreamMethods {
    async fn handle(&self, _: &Call<'_>, params: ServerParams) -> Result<ForgottenApprovals, MethodError> {
        self.upstreams.forget(&params.server).await?;
        Ok(ForgottenApprovals { forgotten: params.server })
    }
}
