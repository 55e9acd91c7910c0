//! Builds the MCP server: its tools, resources and prompts, its endpoint in the gateway, and its connection to the
//! Claude bridge.

use crate::{config::Exposure, wiring::App};
use serde_json::Value;
use std::sync::Arc;
use tokio::{net::UnixListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use toolyard_bridge::server::Offer;
use toolyard_engine::{BoxFuture, CallRequest, Caller, Door, FullView, ModelView};
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
use toolyard_protocol::WorkspaceId;
use toolyard_service::{
    Lane, SessionTools,
    cluster::{Answer, Cluster, ForwardedHead, ForwardedRequest},
    workspaces::held_scopes,
};

/// The endpoint's path.
pub const PATH: &str = "/mcp";

/// Makes the MCP server of a Toolyard.
pub fn server(app: &App) -> McpServer {
    let config = &app.mcp;
    let upstreams = Arc::new(app.upstreams.clone());
    let view: Arc<dyn ModelView> = match config.exposure {
        Exposure::Search => app.tool_search.clone(),
        Exposure::Direct => Arc::new(FullView::default()),
    };
    let server = McpServer::new(ServerParts {
        engine: app.service.engine().clone(),
        view,
        extras: Some(upstreams.clone()),
        resources: vec![Arc::new(VaultNotes), upstreams.clone()],
        prompts: vec![app.skills.clone(), upstreams],
        asks: app.asks.clone(),
        info: Implementation {
            name: "toolyard".to_owned(),
            title: "Toolyard".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        agent: config.agent.clone(),
    });
    app.upstreams.tell_changes(server.teller());
    server
}

/// Offers bridged sessions exactly the tools that an MCP client is offered.
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

/// The largest number of `toolyard mcp` clients connected at the same time.
const MAX_LOCAL: usize = 256;

/// Serves the `toolyard mcp` processes of this machine, whose messages arrive over a Unix socket of the owner.
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
                tracing::info!(%error, "an MCP client disconnected");
            }
        });
    }
}

/// The MCP endpoint as the gateway mounts it.
pub struct McpEndpoint {
    door: HttpDoor,
    approvals: HttpClientApprovals,
    /// The other nodes, which may have the session of a request.
    cluster: Option<Arc<Cluster>>,
}

/// The headers of a request that another node needs to answer it.
const PASSED_ON: [&str; 5] = ["content-type", "accept", "mcp-session-id", "mcp-protocol-version", "last-event-id"];

impl McpEndpoint {
    /// `stop` ends its streams.
    pub fn new(
        server: &McpServer,
        approvals: HttpClientApprovals,
        cluster: Option<Arc<Cluster>>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let door = server.http(stop);
        let door = match cluster.clone() {
            Some(cluster) => door.naming(move |random| cluster.session_id(random)),
            None => door,
        };
        Arc::new(Self { door, approvals, cluster })
    }

    /// The answer of the node that has the session of a request; `None` if it is this one, or there is no such session.
    async fn elsewhere(
        &self,
        workspace: &WorkspaceId,
        request: &http::Request<bytes::Bytes>,
    ) -> Option<http::Response<MountBody>> {
        let cluster = self.cluster.as_ref()?;
        let owner = cluster.session_elsewhere(HttpDoor::session_id(request)?)?;
        let header = |name: &&str| Some(((*name).to_owned(), request.headers().get(*name)?.to_str().ok()?.to_owned()));
        let headers = PASSED_ON.iter().filter_map(header).collect();
        let forwarded = ForwardedRequest::new(PATH, request.method().as_str(), headers, request.body());
        let caller = Caller {
            door: Door::Mcp,
            principal: PRINCIPAL.to_owned(),
            agent: "main".to_owned(),
            session: None,
            scopes: Vec::new(),
            is_person: false,
            workspace: workspace.clone(),
        };
        Some(match cluster.pass_on(&owner, &caller, forwarded).await {
            Ok((head, answer)) => passed_on(head, answer),
            Err(failure) => {
                let message = format!("the session's node cannot answer ({}); initialize again", failure.message);
                HttpDoor::session_gone(&message).map(into_mount_body)
            }
        })
    }
}

/// Under which name requests with the gateway's token are recorded.
const PRINCIPAL: &str = "operator";

/// The answer of another node, with its body as it comes. A body that breaks off ends there.
fn passed_on(head: ForwardedHead, answer: Answer) -> http::Response<MountBody> {
    let body = futures_util::stream::unfold(answer, |mut answer| async move {
        match answer.next().await {
            Ok(chunk) => Some((bytes::Bytes::from(chunk?), answer)),
            Err(failure) => {
                tracing::info!(error = %failure.message, "the answer of another node broke off");
                None
            }
        }
    });
    let mut response = http::Response::new(MountBody::Stream(Box::pin(body)));
    *response.status_mut() = http::StatusCode::from_u16(head.status).unwrap_or(http::StatusCode::BAD_GATEWAY);
    for (name, value) in head.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<http::HeaderName>(), value.parse::<http::HeaderValue>()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn into_mount_body(body: HttpBody) -> MountBody {
    match body {
        HttpBody::Whole(bytes) => MountBody::Whole(bytes),
        HttpBody::Stream(stream) => MountBody::Stream(stream),
    }
}

impl Endpoint for McpEndpoint {
    fn rule(&self, _: &str) -> Rule {
        Rule::credential(MAX_BODY_BYTES, BODY_WITHIN)
    }

    fn lane(&self, request: &http::Request<bytes::Bytes>) -> Lane {
        match HttpDoor::kind(request) {
            // Cancellations, and answers to a call's questions, must be processed while calls hang.
            RequestKind::Notice => Lane::Express,
            RequestKind::Listen => Lane::Waiting,
            RequestKind::Call => Lane::Ordinary,
        }
    }

    fn handle(
        &self,
        workspace: WorkspaceId,
        request: http::Request<bytes::Bytes>,
    ) -> BoxFuture<'_, http::Response<MountBody>> {
        Box::pin(async move {
            if let Some(response) = self.elsewhere(&workspace, &request).await {
                return response;
            }
            let client = Client::owner(PRINCIPAL).with_approvals(self.approvals);
            let scopes = held_scopes(&workspace, client.scopes.clone());
            let client = client.of_workspace(workspace, scopes);
            self.door.handle(client, request).await.map(into_mount_body)
        })
    }
}
