//! An engine with a few tools, and clients that send exactly the given messages.

use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split};
use tokio_util::sync::CancellationToken;
use toolyard_catalog::{Policy, PolicyConfig, ToolEntry, ToolSource};
use toolyard_engine::{
    BoxFuture, CallContext, Engine, EngineOptions, EngineParts, Failed, Output, Prepared, Provider, chain::Signer,
    memory_store::MemoryStore, system_clock,
};
use toolyard_mcp::{
    ClientRoutes, Implementation, McpServer, ServerParts,
    server::{Client, ClientApprovals, ResourceSource, Skills, VaultNotes},
};
use toolyard_protocol::{ErrorCode, ToolCall};

/// A timeout that is longer than anything takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Does what the tool's name says.
pub(crate) struct TestTools {
    pub(crate) asks: ClientRoutes,
}

impl Provider for TestTools {
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        _: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            match call.tool.as_str() {
                "test.echo" | "test.write" => {
                    Ok(Output::data(Map::from_iter([("said".to_owned(), call.args["text"].clone())])))
                }
                "test.fail" => Err(Failed::new(ErrorCode::Conflict, "somebody was faster")),
                "test.forever" => {
                    context.cancel.cancelled().await;
                    Err(Failed::new(ErrorCode::Cancelled, "stopped"))
                }
                "test.steps" => {
                    for step in 1..=3 {
                        let payload = json!({"progress": step, "total": 3}).as_object().cloned();
                        context.progress.report(format!("step {step}"), payload);
                    }
                    Ok(Output::data(Map::new()))
                }
                "test.ask" => {
                    let params = json!({"mode": "form", "message": "Your name?", "requestedSchema": {
                        "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}});
                    match self.asks.ask(call.run_id, "elicitation/create", params).await {
                        Ok(answer) => Ok(Output::data(Map::from_iter([("answer".to_owned(), answer)]))),
                        Err(error) => Err(Failed::new(ErrorCode::Unavailable, error.message)),
                    }
                }
                other => Err(Failed::new(ErrorCode::InternalError, other)),
            }
        })
    }
}

pub(crate) struct Lab {
    pub(crate) engine: Engine,
    pub(crate) server: McpServer,
    pub(crate) skills: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(vec![Arc::new(VaultNotes)])
    }

    /// With these resources.
    pub(crate) fn with(resources: Vec<Arc<dyn ResourceSource>>) -> Self {
        let policy = PolicyConfig { deny: vec!["test.denied".into()], ..PolicyConfig::default() };
        let engine = Engine::new(EngineParts {
            store: Arc::new(MemoryStore::new()),
            signer: Signer::from_secret("test", &[1; 32]),
            policy: Policy::compile(&policy).unwrap(),
            clock: system_clock(),
            options: EngineOptions::default(),
        });
        let asks = ClientRoutes::default();
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
            "additionalProperties": false});
        let said = json!({"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]});
        let any = json!({"type": "object"});
        let entries = [
            entry("test.echo", "read-only", &text, Some(&said)),
            entry("test.write", "writes", &text, Some(&said)),
            entry("test.fail", "read-only", &any, None),
            entry("test.forever", "read-only", &any, None),
            entry("test.steps", "read-only", &any, None),
            entry("test.ask", "read-only", &any, None),
            entry("test.denied", "read-only", &any, None),
        ];
        engine.register(entries.into(), Arc::new(TestTools { asks: asks.clone() })).unwrap();
        let skills = tempfile::tempdir().unwrap();
        std::fs::create_dir(skills.path().join("review")).unwrap();
        let text = "---\nname: review\ndescription: Looks back.\n---\nReview $ARGUMENTS now.";
        std::fs::write(skills.path().join("review/SKILL.md"), text).unwrap();
        let server = McpServer::new(ServerParts {
            engine: engine.clone(),
            view: Arc::new(toolyard_engine::FullView::default()),
            extras: None,
            resources,
            prompts: vec![Skills::new(vec![skills.path().to_owned()])],
            asks,
            info: Implementation { name: "toolyard".into(), title: "Toolyard".into(), version: "0".into() },
            agent: "main".into(),
        });
        Self { engine, server, skills }
    }

    /// A client on standard input and output.
    pub(crate) fn stdio(&self) -> Wire {
        self.stdio_as(ClientApprovals::Off)
    }

    /// The same with a setting for approvals by the client's user.
    pub(crate) fn stdio_as(&self, approvals: ClientApprovals) -> Wire {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (input, output) = split(far);
        let server = self.server.clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let served = tokio::spawn(async move {
            let client = Client::owner("tester").with_approvals(approvals);
            server.serve_stdio(client, input, output, stopped).await.unwrap();
        });
        let (read, write) = split(near);
        Wire {
            lines: BufReader::new(read).lines(),
            write,
            next: 0,
            others: Vec::new(),
            served,
            _stop: stop.drop_guard(),
        }
    }

    /// A client that is in.
    pub(crate) async fn opened(&self, revision: &str, capabilities: Value) -> Wire {
        self.opened_as(ClientApprovals::Off, revision, capabilities).await
    }

    /// The same with a setting for approvals by the client's user.
    pub(crate) async fn opened_as(&self, approvals: ClientApprovals, revision: &str, capabilities: Value) -> Wire {
        let mut wire = self.stdio_as(approvals);
        let hello = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"}});
        let answer = wire.ask("initialize", hello).await;
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        wire.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        wire
    }
}

pub(crate) fn entry(name: &str, risk: &str, input: &Value, output: Option<&Value>) -> ToolEntry {
    let mut definition = json!({
        "name": name, "title": name, "description": format!("Does {name}."), "category": "test", "riskLevel": risk,
        "idempotency": if risk == "read-only" { "pure" } else { "none" }, "inputSchema": input,
    });
    if let Some(output) = output {
        definition["outputSchema"] = output.clone();
    }
    ToolEntry::new(serde_json::from_value(definition).unwrap(), ToolSource::core()).unwrap()
}

/// One end of a line protocol.
pub(crate) struct Wire {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    next: u64,
    /// Messages that were not what was waited for.
    pub(crate) others: Vec<Value>,
    served: tokio::task::JoinHandle<()>,
    _stop: tokio_util::sync::DropGuard,
}

impl Wire {
    pub(crate) async fn raw(&mut self, line: &str) {
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.raw(&message.to_string()).await;
    }

    pub(crate) async fn read(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("nothing came").unwrap();
        serde_json::from_str(&line.expect("the server hung up")).unwrap()
    }

    /// Sends a request and gives its id.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})).await;
        self.next
    }

    /// The answer to a request; what comes before it is kept.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.read().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.others.push(message);
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    /// The next message of a method, kept ones first.
    pub(crate) async fn heard(&mut self, method: &str) -> Value {
        if let Some(at) = self.others.iter().position(|m| m["method"] == method) {
            return self.others.remove(at);
        }
        loop {
            let message = self.read().await;
            if message["method"] == method {
                return message;
            }
            self.others.push(message);
        }
    }

    /// Disconnects and waits until the server has ended.
    pub(crate) async fn close(self) {
        drop((self.lines, self.write));
        tokio::time::timeout(PATIENCE, self.served).await.expect("the server did not end").unwrap();
    }
}

/// `_meta` of revision 2026-07-28.
pub(crate) fn meta(capabilities: Value) -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities})
}
