//! Puts the MCP server together: what it shows, where its resources and prompts come from, and how it is mounted in the
//! gateway.

use crate::{config::Exposure, home::Home, wiring::Yard};
use std::{path::PathBuf, sync::Arc};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{BoxFuture, Caller, Engine};
use toolyard_gateway::mount::{Endpoint, MountBody};
use toolyard_mcp::{
    Asks, Implementation, McpServer, ServerParts,
    server::{
        Client, Shelf, Shown, ShownTool, Skills, VaultNotes,
        http::{HttpBody, HttpDoor, MAX_BODY_BYTES},
    },
};
use toolyard_protocol::Failure;
use toolyard_toolsearch::{Mode, Settings, Surface, SurfaceRequest, ToolSearch};

/// The endpoint's path.
pub const PATH: &str = "/mcp";

/// Shows tools directly or by search, as configured.
struct SearchShelf {
    search: Arc<ToolSearch>,
    exposure: Exposure,
}

impl Shelf for SearchShelf {
    fn show<'a>(&'a self, engine: &'a Engine, caller: &'a Caller) -> BoxFuture<'a, Result<Shown, Failure>> {
        Box::pin(async move {
            let surface = match self.exposure {
                Exposure::Search => self.search.surface(engine, caller, &SurfaceRequest::default()).await?.0,
                Exposure::Direct => {
                    let off = Settings { enabled: false, ..*self.search.settings() };
                    let catalog = self.search.catalog(engine, caller);
                    Surface::of(&catalog, &off, Mode::Tools, &SurfaceRequest::default())?
                }
            };
            let tools = surface.tools.into_iter().map(|tool| ShownTool {
                name: tool.name,
                description: tool.description,
                input_schema: tool.input_schema,
                id: tool.id,
            });
            Ok(Shown { tools: tools.collect(), instructions: surface.directory })
        })
    }
}

/// Makes the MCP server of a Toolyard.
pub fn server(yard: &Yard, home: &Home) -> McpServer {
    let config = &yard.mcp;
    let mut folders = vec![home.path().join("skills")];
    folders.extend(config.skills.iter().map(|folder| expanded(folder)));
    McpServer::new(ServerParts {
        engine: yard.service.engine().clone(),
        shelf: Arc::new(SearchShelf { search: yard.tool_search.clone(), exposure: config.exposure }),
        extras: None,
        resources: vec![Arc::new(VaultNotes)],
        prompts: vec![Skills::new(folders)],
        asks: Asks::default(),
        info: Implementation {
            name: "toolyard".to_owned(),
            title: "Toolyard".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        agent: config.agent.clone(),
    })
}

fn expanded(path: &std::path::Path) -> PathBuf {
    crate::config::expand(path)
}

/// The MCP endpoint as the gateway mounts it.
pub struct McpEndpoint(HttpDoor);

impl McpEndpoint {
    /// `stop` ends its streams.
    pub fn new(server: &McpServer, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self(server.http(stop)))
    }
}

impl Endpoint for McpEndpoint {
    fn max_body(&self) -> usize {
        MAX_BODY_BYTES
    }

    fn handle(&self, request: http::Request<bytes::Bytes>) -> BoxFuture<'_, http::Response<MountBody>> {
        Box::pin(async move {
            let response = self.0.handle(Client::owner("operator"), request).await;
            response.map(|body| match body {
                HttpBody::Whole(bytes) => MountBody::Whole(bytes),
                HttpBody::Stream(stream) => MountBody::Stream(stream),
            })
        })
    }
}
