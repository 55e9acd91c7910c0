//! A gateway on a free port of this machine, and a client that sends exactly the given frames.

use crate::bench_tools;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_websockets::{ClientBuilder, MaybeTlsStream, Message, WebSocketStream};
use toolyard_bridge::server::Offer;
use toolyard_catalog::{Policy, PolicyConfig};
use toolyard_engine::{
    BoxFuture, CallRequest, Caller, Engine, EngineOptions, EngineParts, chain::Signer, memory_store::MemoryStore,
    system_clock,
};
use toolyard_gateway::{Gateway, Settings, listen};
use toolyard_mcp::{ClientRoutes, Implementation, McpServer, ServerParts, server::Skills};
use toolyard_service::{ConfigAnswer, ProcessInfo, Service, SessionTools};

/// How long an event may take on a busy machine. An event that never happens fails the test after this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const TOKEN: &str = "test-token-abc123";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) gateway: Gateway,
    pub(crate) service: Service,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::new(TOKEN)).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Self {
        Self::start_on(std::sync::Arc::new(MemoryStore::new()), settings).await
    }

    /// Starts a gateway on an existing store.
    pub(crate) async fn start_on(store: std::sync::Arc<MemoryStore>, settings: Settings) -> Self {
        let policy = PolicyConfig { deny: vec!["bench_denied".into()], ..PolicyConfig::default() };
        let engine = Engine::new(EngineParts {
            store,
            signer: Signer::from_secret("test", &[1; 32]),
            policy: Policy::compile(&policy).unwrap(),
            clock: system_clock(),
            options: EngineOptions::default(),
        });
        bench_tools::register(&engine);
        let service = Service::new(engine.clone(), ProcessInfo::default());
        let stop = CancellationToken::new();
        let config = ConfigAnswer {
            path: "/nowhere/config.toml".to_owned(),
            hash: "0".to_owned(),
            parsed: json!({}),
            config: json!({}),
            valid: true,
            ..ConfigAnswer::default()
        };
        let address = Some("127.0.0.1".parse().unwrap());
        let settings = Settings {
            config_path: Some(config.path.clone()),
            config: std::sync::Arc::new(move || config.clone()),
            address,
            state_path: "/nowhere/state".to_owned(),
            ..settings
        };
        let gateway = Gateway::new(service.clone(), settings, stop.clone());
        gateway.set_bridge_tools(std::sync::Arc::new(Bridged(mcp(&engine))));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listen::serve(listener, gateway.clone(), stop.clone()));
        Self { address, engine, gateway, service, stop }
    }

    pub(crate) async fn open(&self) -> Ws {
        self.open_with("/", &[]).await.unwrap()
    }

    pub(crate) async fn open_with(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Ws, String> {
        let uri = format!("ws://{}{path}", self.address).parse().unwrap();
        let mut builder =
            ClientBuilder::from_uri(uri).limits(tokio_websockets::Limits::default().max_payload_len(None));
        for (name, value) in headers {
            builder = builder.add_header(name.parse().unwrap(), value.parse().unwrap()).unwrap();
        }
        let (socket, _) = builder.connect().await.map_err(|e| e.to_string())?;
        Ok(Ws { socket, closed: None, events: Vec::new(), next: 0 })
    }

    /// A client that is in.
    pub(crate) async fn client(&self, scopes: &[&str], caps: &[&str]) -> Ws {
        let mut ws = self.open().await;
        let hello = ws.connect(connect_params(scopes, caps)).await;
        assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
        ws
    }

    /// A plain HTTP exchange: status and body.
    pub(crate) async fn http(&self, request: &str, body: &str) -> (u16, String) {
        let (status, _, body) = self.exchange(request, body).await;
        (status, body)
    }

    /// A plain HTTP exchange: status, headers and body.
    pub(crate) async fn exchange(&self, request: &str, body: &str) -> (u16, String, String) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let text = format!(
            "{request}\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_default();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (status, head.to_owned(), body.to_owned())
    }
}

/// MCP's view of the tools, as the program joins it to the bridge.
struct Bridged(McpServer);

fn mcp(engine: &Engine) -> McpServer {
    McpServer::new(ServerParts {
        engine: engine.clone(),
        view: std::sync::Arc::new(toolyard_engine::FullView::default()),
        extras: None,
        resources: Vec::new(),
        prompts: vec![Skills::new(Vec::new())],
        asks: ClientRoutes::default(),
        info: Implementation { name: "t".into(), title: "T".into(), version: "0".into() },
        agent: "main".to_owned(),
    })
}

impl SessionTools for Bridged {
    fn offer(&self, caller: std::sync::Arc<Caller>) -> BoxFuture<'_, Offer> {
        Box::pin(async move {
            let (tools, instructions) = self.0.shown_to(&caller).await.unwrap();
            Offer { tools, instructions }
        })
    }

    fn call(&self, caller: std::sync::Arc<Caller>, request: CallRequest) -> BoxFuture<'_, Value> {
        Box::pin(async move { Value::Object(self.0.call_rendered(caller, request).await) })
    }
}

pub(crate) fn connect_params(scopes: &[&str], caps: &[&str]) -> Value {
    json!({
        "minProtocol": 4, "maxProtocol": 4,
        "client": {"id": "gateway-client", "version": "1.0.0", "platform": "linux", "mode": "backend"},
        "role": "operator", "scopes": scopes, "caps": caps, "auth": {"token": TOKEN},
    })
}

pub(crate) struct Ws {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) closed: Option<(u16, String)>,
    pub(crate) events: Vec<Value>,
    next: u64,
}

impl Ws {
    pub(crate) async fn send(&mut self, text: impl Into<String>) {
        let _ = self.socket.send(Message::text(text.into())).await;
    }

    /// The next frame; `None` when the connection is closed.
    pub(crate) async fn frame(&mut self) -> Option<Value> {
        self.frame_within(PATIENCE).await
    }

    pub(crate) async fn frame_within(&mut self, time: Duration) -> Option<Value> {
        let socket = &mut self.socket;
        let read = async {
            loop {
                match socket.next().await {
                    Some(Ok(message)) if message.is_text() => {
                        return Ok(serde_json::from_str(message.as_text().unwrap()).unwrap());
                    }
                    Some(Ok(message)) if message.is_close() => {
                        let (code, reason) = message.as_close().unwrap();
                        return Err((u16::from(code), reason.to_owned()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err((1006, String::new())),
                }
            }
        };
        match tokio::time::timeout(time, read).await {
            Ok(Ok(frame)) => Some(frame),
            Ok(Err(closed)) => {
                self.closed.get_or_insert(closed);
                None
            }
            Err(_) => None,
        }
    }

    pub(crate) async fn challenge(&mut self) -> Value {
        let frame = self.frame().await.expect("a challenge");
        assert_eq!(frame["event"], "connect.challenge");
        frame
    }

    /// Challenge and connect.
    pub(crate) async fn connect(&mut self, params: Value) -> Value {
        self.challenge().await;
        self.call("connect", params).await
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> String {
        self.next += 1;
        let id = format!("r{}", self.next);
        self.send(json!({"type": "req", "id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.response(&id).await
    }

    pub(crate) async fn response(&mut self, id: &str) -> Value {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.frame_within(end - tokio::time::Instant::now()).await {
                Some(frame) if frame["type"] == "res" && frame["id"] == id => return frame,
                Some(frame) => self.events.push(frame),
                None => panic!("no answer to {id}; closed: {:?}; events {:?}", self.closed, self.events.len()),
            }
        }
    }

    /// The next event of a name, seen already or still to come.
    pub(crate) async fn event(&mut self, name: &str) -> Value {
        if let Some(at) = self.events.iter().position(|e| e["event"] == name) {
            return self.events.remove(at);
        }
        // Other events arrive all the time; they do not restart the timeout for this one.
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.frame_within(end - tokio::time::Instant::now()).await {
                Some(frame) if frame["event"] == name => return frame,
                Some(frame) => self.events.push(frame),
                None => panic!("no event {name}; closed: {:?}", self.closed),
            }
        }
    }

    /// Reads until the connection is closed, and returns the close code and reason.
    pub(crate) async fn until_closed(&mut self, time: Duration) -> (u16, String) {
        let end = tokio::time::Instant::now() + time;
        while self.closed.is_none() && tokio::time::Instant::now() < end {
            self.frame_within(end - tokio::time::Instant::now()).await;
        }
        self.closed.clone().expect("it should have been closed")
    }
}
