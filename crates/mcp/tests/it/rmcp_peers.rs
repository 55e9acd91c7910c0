//! Another implementation of MCP at the other end, in both directions: the SDK's client against our server, and the SDK's
//! server as an upstream of ours; over standard streams and streamable HTTP, with a handshake and without one.

use crate::{
    harness::{Lab, PATIENCE},
    upstream::{TestHost, fixture, said},
    upstream_http::{answer_of, serve},
};
use http::Request;
use http_body_util::BodyExt;
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
        ElicitRequestParams, ElicitResult, ElicitationAction, GetPromptRequestParams, GetPromptResponse,
        GetPromptResult, Implementation, ListPromptsResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, Prompt, PromptMessage, ProtocolVersion, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, Role, ServerCapabilities,
        ServerConfig as PeerConfig, Tool, ToolAnnotations,
    },
    service::{RequestContext, RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolyard_mcp::{
    ServerConfig,
    client::{RevisionChoice, Trust},
    server::{Client, PromptSource, ResourceSource},
};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A client whose user always answers "Ada".
#[derive(Clone)]
struct Person;

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("peer", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else { panic!("{request:?}") };
        assert_eq!(message, "Your name?");
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": "Ada"})))
    }
}

type Peer = RunningService<RoleClient, Person>;

/// Both generations: with a handshake, and without one.
fn lifecycles() -> [(ClientLifecycleMode, ProtocolVersion); 2] {
    let newest = ProtocolVersion::V_2026_07_28;
    [
        (ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_11_25),
        (ClientLifecycleMode::Discover { preferred_versions: vec![newest.clone()] }, newest),
    ]
}

/// Everything a client does with our server.
async fn use_server(peer: &Peer, version: &ProtocolVersion) {
    let info = peer.peer_info().unwrap();
    assert_eq!(&info.protocol_version, version);
    assert_eq!(info.server_info.as_ref().unwrap().name, "toolyard");
    let tools = peer.list_all_tools().await.unwrap();
    let echo = tools.iter().find(|tool| tool.name == "test_echo").unwrap();
    assert_eq!(echo.annotations.as_ref().unwrap().read_only_hint, Some(true));
    assert_eq!(echo.output_schema.as_ref().unwrap()["required"], json!(["said"]));
    assert!(tools.iter().all(|tool| tool.name != "test_denied"));

    let call = |name: &'static str, arguments: Value| {
        peer.call_tool(CallToolRequestParams::new(name).with_arguments(object(arguments)))
    };
    let echoed = call("test_echo", json!({"text": "hi"})).await.unwrap();
    assert_eq!(echoed.structured_content, Some(json!({"said": "hi"})));
    assert!(echoed.content[0].as_text().unwrap().text.contains("hi"));
    let failed = call("test_fail", json!({})).await.unwrap();
    assert_eq!(failed.is_error, Some(true));
    assert!(failed.content[0].as_text().unwrap().text.starts_with("CONFLICT: somebody was faster"));
    let unknown = call("test_nothing", json!({})).await.unwrap_err();
    let ServiceError::McpError(unknown) = unknown else { panic!("{unknown:?}") };
    assert_eq!(unknown.code.0, -32602);
    let asked = call("test_ask", json!({})).await.unwrap();
    assert_eq!(asked.structured_content.unwrap()["answer"]["content"]["name"], "Ada");

    let prompts = peer.list_all_prompts().await.unwrap();
    assert_eq!(prompts.iter().map(|prompt| prompt.name.as_str()).collect::<Vec<_>>(), ["review"]);
    let mut params = GetPromptRequestParams::new("review");
    params.arguments = Some(object(json!({"arguments": "it"})));
    let review = peer.get_prompt(params).await.unwrap();
    assert!(review.messages[0].content.as_text().unwrap().text.starts_with("Review it now."));
    assert_eq!(peer.list_all_resources().await.unwrap(), []);
    let templates = peer.list_all_resource_templates().await.unwrap();
    assert_eq!(templates[0].uri_template, "vault:///{+path}");
    let missing = peer.read_resource(ReadResourceRequestParams::new("vault:///none.md")).await.unwrap_err();
    let ServiceError::McpError(missing) = missing else { panic!("{missing:?}") };
    assert_eq!(missing.code.0, if version == &ProtocolVersion::V_2026_07_28 { -32602 } else { -32002 });
}

#[tokio::test]
async fn the_sdks_client_uses_our_server_over_standard_streams() {
    for (lifecycle, version) in lifecycles() {
        let lab = Lab::new();
        let (near, far) = tokio::io::duplex(1 << 20);
        let (input, output) = tokio::io::split(far);
        let server = lab.server.clone();
        let served = tokio::spawn(async move {
            server.serve_stdio(Client::owner("tester"), input, output, CancellationToken::new()).await.unwrap();
        });
        let peer = Person.serve_with_lifecycle(near, lifecycle).await.unwrap();
        tokio::time::timeout(PATIENCE, use_server(&peer, &version)).await.unwrap();
        peer.cancel().await.unwrap();
        tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_sdks_client_uses_our_server_over_http() {
    // The SDK's HTTP client is built with rustls where the workspace is, and then wants a provider, also for plain HTTP.
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    provider.install_default().unwrap();
    for (lifecycle, version) in lifecycles() {
        let lab = Lab::new();
        let stop = CancellationToken::new();
        let door = lab.server.http(stop.clone());
        let url = serve(move |request| {
            let door = door.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                answer_of(&door, Request::from_parts(parts, body)).await
            }
        })
        .await;
        let transport = StreamableHttpClientTransport::from_uri(format!("{url}/mcp"));
        let peer = Person.serve_with_lifecycle(transport, lifecycle).await.unwrap();
        tokio::time::timeout(PATIENCE, use_server(&peer, &version)).await.unwrap();
        peer.cancel().await.unwrap();
        stop.cancel();
    }
}

/// A server of the SDK's with one of everything.
#[derive(Clone)]
struct Small;

impl ServerHandler for Small {
    fn get_info(&self) -> PeerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build();
        PeerConfig::new(capabilities).with_server_info(Implementation::new("small", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let number = json!({"type": "number"});
        let schema = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
        let sum = json!({"type": "object", "properties": {"sum": number}, "required": ["sum"]});
        let reads = ToolAnnotations::new().read_only(true);
        let add = Tool::new("add", "Adds.", object(schema)).with_raw_output_schema(Arc::new(object(sum)));
        let fail = Tool::new("fail", "Fails.", object(json!({"type": "object"})));
        Ok(ListToolsResult::with_all_items(vec![add.with_annotations(reads.clone()), fail.with_annotations(reads)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let number = |name: &str| arguments[name].as_f64().unwrap();
        Ok(match &*request.name {
            "add" => CallToolResult::structured(json!({"sum": number("a") + number("b")})).into(),
            _ => CallToolResult::error(vec![ContentBlock::text("it did not work")]).into(),
        })
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new("greet", Some("Greets."), None)]))
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, "Say hello.")]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new("memo://one", "one")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text("the memo", request.uri)]).into())
    }
}

/// Everything our client does with an upstream server.
async fn use_upstream(config: ServerConfig, spoken: &str) {
    let host = TestHost::new();
    host.add(vec![("small", ServerConfig { trust: Trust::Annotations, ..config })]).await;
    let sum = host.call("small__add", json!({"a": 2, "b": 3})).await;
    assert_eq!(sum.data.as_ref().unwrap_or_else(|| panic!("{sum:?}"))["structuredContent"]["sum"], 5.0);
    assert!(said(&sum).contains('5'));
    let failed = host.call("small__fail", json!({})).await;
    assert_eq!(failed.error.as_ref().unwrap().message, "it did not work");
    let status = host.status("small");
    assert_eq!(status.protocol.as_deref(), Some(spoken));
    assert_eq!((status.tools, status.prompts, status.resources), (2, 1, 1), "{status:?}");
    let asker = host.asker();
    let prompt = PromptSource::get(&host.upstreams, &asker, "small__greet", &Map::new()).await.unwrap().unwrap();
    let prompt = serde_json::to_value(prompt).unwrap();
    assert_eq!(prompt["messages"][0]["content"]["text"], "Say hello.");
    let memo = ResourceSource::read(&host.upstreams, &asker, "mcp-small+memo://one").await.unwrap().unwrap();
    let memo = serde_json::to_value(memo).unwrap();
    assert_eq!((&memo[0]["text"], &memo[0]["uri"]), (&json!("the memo"), &json!("mcp-small+memo://one")));
    host.upstreams.shutdown().await;
}

#[tokio::test]
async fn the_sdks_server_is_our_upstream_over_standard_streams() {
    for (protocol, spoken) in [(RevisionChoice::Auto, "2025-11-25"), (RevisionChoice::V20260728, "2026-07-28")] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("peer.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            Small.serve(stream).await.unwrap().waiting().await.unwrap();
        });
        let relayed = fixture(&["--relay", socket.to_str().unwrap()]);
        use_upstream(ServerConfig { protocol, ..relayed }, spoken).await;
        tokio::time::timeout(PATIENCE, serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_sdks_server_is_our_upstream_over_http() {
    for (protocol, spoken) in [(RevisionChoice::Auto, "2025-11-25"), (RevisionChoice::V20260728, "2026-07-28")] {
        let stop = CancellationToken::new();
        let config = StreamableHttpServerConfig::default().with_cancellation_token(stop.clone());
        let service = StreamableHttpService::new(|| Ok(Small), Arc::new(LocalSessionManager::default()), config);
        let url = serve(move |request| {
            let service = service.clone();
            async move { service.handle(request).await }
        })
        .await;
        use_upstream(ServerConfig { url: Some(format!("{url}/mcp")), protocol, ..ServerConfig::default() }, spoken)
            .await;
        stop.cancel();
    }
}

/// Why the SDK's types are not ours: docs/decisions/2026-11-18-mcp-dispatch.md.
#[test]
fn the_sdks_types_lose_what_is_forwarded_here() {
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"},
        "annotations": {"readOnlyHint": true, "com.example/cost": 3}});
    let through = serde_json::to_value(serde_json::from_value::<Tool>(tool).unwrap()).unwrap();
    assert_eq!(through["execution"], Value::Null);
    assert_eq!(through["annotations"], json!({"readOnlyHint": true}));
    let block = json!({"type": "com.example/chart", "points": [1, 2]});
    assert!(serde_json::from_value::<ContentBlock>(block).is_err());
}
