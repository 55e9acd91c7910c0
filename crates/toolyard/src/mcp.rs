//! Puts the MCP server together: what it shows, where its resources and prompts come from, and how it is mounted in the
//! gateway and joined to the Claude bridge.

use crate::{config::Exposure, wiring::Yard};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{net::UnixListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use toolyard_bridge::server::Offer;
use toolyard_engine::{BoxFuture, CallRequest, Caller, Everything, ModelView};
use toolyard_gateway::{
    Lane, SessionTools,
    admission::Rule,
    local::Owner,
    methods::MethodExtension,
    mount::{Endpoint, MountBody},
};
use toolyard_mcp::{
    Implementation, McpServer, ServerParts, Upstreams,
    client::ShownDefinition,
    server::{
        Client, HttpClientApprovals, VaultNotes,
        http::{BODY_WITHIN, HttpBody, HttpDoor, MAX_BODY_BYTES, RequestKind},
    },
};
use toolyard_protocol::{ErrorCode, Failure};

/// The endpoint's path.
pub const PATH: &str = "/mcp";

/// Makes the MCP server of a Toolyard.
pub fn server(yard: &Yard) -> McpServer {
    let config = &yard.mcp;
    let upstreams = Arc::new(yard.upstreams.clone());
    let view: Arc<dyn ModelView> = match config.exposure {
        Exposure::Search => yard.tool_search.clone(),
        Exposure::Direct => Arc::new(Everything::default()),
    };
    let server = McpServer::new(ServerParts {
        engine: yard.service.engine().clone(),
        view,
        extras: Some(upstreams.clone()),
        resources: vec![Arc::new(VaultNotes), upstreams.clone()],
        prompts: vec![yard.skills.clone(), upstreams],
        asks: yard.asks.clone(),
        info: Implementation {
            name: "toolyard".to_owned(),
            title: "Toolyard".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        agent: config.agent.clone(),
    });
    yard.upstreams.tell_changes(server.teller());
    server
}

/// Bridged sessions see and get exactly what an MCP client does.
pub struct BridgedTools(pub McpServer);

impl SessionTools for BridgedTools {
    fn offer(&self, caller: Arc<Caller>) -> BoxFuture<'_, Offer> {
        Box::pin(async move {
            match self.0.shown_to(&caller).await {
                Ok((tools, instructions)) => Offer { tools, instructions },
                Err(failure) => {
                    tracing::warn!(%failure, principal = caller.principal, "a bridged session is shown no tools");
                    Offer::default()
                }
            }
        })
    }

    fn call(&self, caller: Arc<Caller>, request: CallRequest) -> BoxFuture<'_, Value> {
        Box::pin(async move { Value::Object(self.0.call_rendered(caller, request).await) })
    }
}

/// Clients of `toolyard mcp` on this machine at once.
const MAX_LOCAL: usize = 256;

/// Serves those who start `toolyard mcp` while this Toolyard runs: their lines come over a socket of the owner's.
pub async fn serve_local(
    listener: UnixListener,
    server: McpServer,
    owner: Owner,
    client: Client,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MAX_LOCAL));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((mut stream, _)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (server, owner, client, stop) = (server.clone(), owner.clone(), client.clone(), stop.clone());
        tokio::spawn(async move {
            let _place = place;
            if !owner.admits(&mut stream).await {
                return;
            }
            let (input, output) = stream.into_split();
            if let Err(error) = server.serve_stdio(client, input, output, stop).await {
                tracing::info!(%error, "an MCP client is gone");
            }
        });
    }
}

/// The methods about upstream servers, for every door.
pub struct UpstreamMethods(pub Upstreams);

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Named {
    server: String,
    /// Only for `mcp.approve`.
    #[serde(default)]
    definitions: Vec<ShownDefinition>,
}

impl MethodExtension for UpstreamMethods {
    fn call<'a>(
        &'a self,
        caller: &'a Caller,
        method: &'a str,
        params: &'a Value,
    ) -> BoxFuture<'a, Option<Result<Value, Failure>>> {
        Box::pin(async move {
            let answer = match method {
                "mcp.servers" => {
                    // Plugins' processes are shown with their plugins.
                    let servers = self.0.status().into_iter().filter(|server| server.plugin.is_none());
                    Ok(json!({"servers": servers.collect::<Vec<_>>()}))
                }
                "mcp.start" | "mcp.stop" | "mcp.approve" | "mcp.forget" => self.named(caller, method, params).await,
                _ => return None,
            };
            Some(answer)
        })
    }
}

impl UpstreamMethods {
    async fn named(&self, caller: &Caller, method: &str, params: &Value) -> Result<Value, Failure> {
        let Named { server, definitions } = serde_json::from_value(params.clone())
            .map_err(|e| Failure::new(ErrorCode::ValidationError, format!("the parameters cannot be read: {e}")))?;
        match method {
            "mcp.start" => Ok(json!(self.0.start(&server).await?)),
            "mcp.stop" => Ok(json!(self.0.stop(&server).await?)),
            _ if !caller.is_person => Err(Failure::new(
                ErrorCode::PolicyDenied,
                "only a person approves or forgets an upstream server's tools",
            )),
            "mcp.approve" => Ok(json!({"approved": self.0.approve(&server, &definitions, &caller.principal).await?})),
            _ => {
                self.0.forget(&server).await?;
                Ok(json!({"forgotten": server}))
            }
        }
    }
}

/// The MCP endpoint as the gateway mounts it.
pub struct McpEndpoint {
    door: HttpDoor,
    approvals: HttpClientApprovals,
}

impl McpEndpoint {
    /// `stop` ends its streams.
    pub fn new(server: &McpServer, approvals: HttpClientApprovals, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { door: server.http(stop), approvals })
    }
}

impl Endpoint for McpEndpoint {
    fn rule(&self, _: &str) -> Rule {
        Rule::credential(MAX_BODY_BYTES, BODY_WITHIN)
    }

    fn lane(&self, request: &http::Request<bytes::Bytes>) -> Lane {
        match HttpDoor::kind(request) {
            // Cancelling, and answering what a call asks, must work while calls hang.
            RequestKind::Notice => Lane::Express,
            RequestKind::Listen => Lane::Waiting,
            RequestKind::Call => Lane::Ordinary,
        }
    }

    fn handle(&self, request: http::Request<bytes::Bytes>) -> BoxFuture<'_, http::Response<MountBody>> {
        Box::pin(async move {
            let client = Client::owner("operator").with_approvals(self.approvals);
            let response = self.door.handle(client, request).await;
            response.map(|body| match body {
                HttpBody::Whole(bytes) => MountBody::Whole(bytes),
                HttpBody::Stream(stream) => MountBody::Stream(stream),
            })
        })
    }
}
