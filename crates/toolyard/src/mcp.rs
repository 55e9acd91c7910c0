//! Puts the MCP server together: what it shows, where its resources and prompts come from, and how it is mounted in the
//! gateway and joined to the Claude bridge.

use crate::{config::Exposure, wiring::Yard};
use serde_json::Value;
use std::sync::Arc;
use tokio::{net::UnixListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use toolyard_bridge::server::Offer;
use toolyard_engine::{BoxFuture, CallRequest, Caller, Everything, ModelView};
use toolyard_gateway::{
    admission::Rule,
    local::Owner,
    mount::{Endpoint, MountBody},
};
use toolyard_mcp::{
    Implementation, McpServer, ServerParts,
    server::{
        Client, HttpClientApprovals, VaultNotes,
        http::{BODY_WITHIN, HttpBody, HttpDoor, MAX_BODY_BYTES, RequestKind},
    },
};
use toolyard_service::{Lane, SessionTools};

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
