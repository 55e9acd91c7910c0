//! A small MCP server on standard input and output, for tests and measurements only: it echoes, fails, asks, changes
//! its mind and crashes on request. Written without the library it tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    io::{BufRead, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

/// What the command line asks for.
#[derive(Clone)]
struct Options {
    /// More tools, called `tool_0000` and so on.
    tools: usize,
    /// Ends at once, before a word.
    broken: bool,
    /// Says nothing at all.
    silent: bool,
    /// What `echo` says about itself; read from this file for each list, where there is one.
    description_file: Option<String>,
    /// More fields of `echo`, a JSON object that is read from this file for each list; null removes one.
    fields_file: Option<String>,
    /// Speaks 2026-07-28 only.
    modern: bool,
    /// Starts a process that outlives it unless its group is ended, and writes its number here.
    grandchild: Option<String>,
}

struct Server {
    options: Options,
    out: Mutex<std::io::Stdout>,
    waiting: Mutex<HashMap<String, mpsc::Sender<Value>>>,
    cancelled: Mutex<HashMap<String, Arc<AtomicBool>>>,
    next: AtomicU64,
}

fn main() {
    let mut options = Options {
        tools: 0,
        broken: false,
        silent: false,
        description_file: None,
        fields_file: None,
        modern: false,
        grandchild: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tools" => options.tools = args.next().and_then(|n| n.parse().ok()).unwrap_or_default(),
            "--broken" => options.broken = true,
            "--silent" => options.silent = true,
            "--modern" => options.modern = true,
            "--description-file" => options.description_file = args.next(),
            "--fields-file" => options.fields_file = args.next(),
            "--grandchild" => options.grandchild = args.next(),
            other => eprintln!("unknown option {other}"),
        }
    }
    if options.broken {
        eprintln!("this server is broken on purpose");
        std::process::exit(3);
    }
    if let Some(file) = &options.grandchild {
        #[allow(clippy::zombie_processes)] // left behind on purpose: whoever stops this process must stop it too
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        std::fs::write(file, child.id().to_string()).unwrap();
    }
    let server = Arc::new(Server {
        options,
        out: Mutex::new(std::io::stdout()),
        waiting: Mutex::default(),
        cancelled: Mutex::default(),
        next: AtomicU64::new(1),
    });
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if !server.options.silent {
            server.take(message);
        }
    }
}

impl Server {
    fn say(&self, message: &Value) {
        let mut out = self.out.lock().unwrap();
        let mut line = message.to_string();
        line.push('\n');
        let _ = out.write_all(line.as_bytes());
        let _ = out.flush();
    }

    fn answer(&self, id: &Value, result: Value) {
        let mut result = result;
        if self.options.modern {
            result["resultType"] = "complete".into();
        }
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn refuse(&self, id: &Value, code: i64, message: &str) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }

    fn take(self: &Arc<Self>, message: Value) {
        let id = message["id"].clone();
        let Some(method) = message["method"].as_str() else {
            if let Some(waiter) = self.waiting.lock().unwrap().remove(&id.to_string()) {
                let _ = waiter.send(message["result"].clone());
            }
            return;
        };
        let params = message["params"].clone();
        match method {
            "initialize" if self.options.modern => self.refuse(&id, -32601, "Method not found"),
            "initialize" => self.answer(
                &id,
                json!({"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "fixture", "version": "1"},
                    "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {}}}),
            ),
            "server/discover" if self.options.modern => self.answer(
                &id,
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}),
            ),
            "tools/list" => self.answer(&id, json!({"tools": self.tools()})),
            "prompts/list" => self.answer(&id, json!({"prompts": [{"name": "greet", "description": "Greets."}]})),
            "prompts/get" => {
                let text = format!("Hello {}", params["arguments"]["who"].as_str().unwrap_or("you"));
                self.answer(&id, json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}));
            }
            "resources/list" => {
                self.answer(&id, json!({"resources": [{"uri": "fixture://one", "name": "one", "mimeType": "text/plain"}]}));
            }
            "resources/templates/list" => self.answer(&id, json!({"resourceTemplates": []})),
            "resources/read" if params["uri"] == "fixture://one" => {
                self.answer(&id, json!({"contents": [{"uri": "fixture://one", "mimeType": "text/plain", "text": "the one"}]}));
            }
            "resources/read" => self.refuse(&id, -32002, "Resource not found"),
            "ping" => self.answer(&id, json!({})),
            // The quick way: no thread.
            "tools/call" if params["name"] == "echo" => self.answer(&id, text(&params["arguments"]["text"])),
            "tools/call" => {
                let server = self.clone();
                let flag = Arc::new(AtomicBool::new(false));
                self.cancelled.lock().unwrap().insert(id.to_string(), flag.clone());
                std::thread::spawn(move || {
                    server.call(&id, &params, &flag);
                    server.cancelled.lock().unwrap().remove(&id.to_string());
                });
            }
            "notifications/cancelled" => {
                if let Some(flag) = self.cancelled.lock().unwrap().get(&params["requestId"].to_string()) {
                    flag.store(true, Ordering::Release);
                }
            }
            _ if id.is_null() => {}
            _ => self.refuse(&id, -32601, "Method not found"),
        }
    }

    fn tools(&self) -> Vec<Value> {
        let echo = self.options.description_file.as_ref().and_then(|f| std::fs::read_to_string(f).ok());
        let echo = echo.unwrap_or_else(|| "Says what it is told.".to_owned());
        let any = json!({"type": "object"});
        let sum = json!({"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]});
        let reads = json!({"readOnlyHint": true});
        let mut tools = vec![
            json!({"name": "echo", "description": echo.trim(), "annotations": reads, "inputSchema": {
                "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}),
            json!({"name": "add", "description": "Adds.", "annotations": reads, "outputSchema": sum, "inputSchema": {
                "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}),
            json!({"name": "lie", "description": "Answers against its schema.", "annotations": reads, "outputSchema": sum, "inputSchema": any}),
            json!({"name": "write", "description": "Pretends to write.", "inputSchema": any}),
            json!({"name": "environment", "description": "Its environment.", "annotations": reads, "inputSchema": any}),
            json!({"name": "fail", "description": "Fails.", "annotations": reads, "inputSchema": any}),
            json!({"name": "crash", "description": "Ends the server.", "annotations": reads, "inputSchema": any}),
            json!({"name": "forever", "description": "Works until told to stop.", "annotations": reads, "inputSchema": any}),
            json!({"name": "progress", "description": "Tells how far it is.", "annotations": reads, "inputSchema": any}),
            json!({"name": "ask", "description": "Asks the person.", "annotations": reads, "inputSchema": any}),
            json!({"name": "changed", "description": "Says its list has changed.", "annotations": reads, "inputSchema": any}),
            json!({"name": "bad schema", "description": "Cannot be used.", "inputSchema": {"type": "string"}}),
        ];
        let fields = self.options.fields_file.as_ref().and_then(|f| std::fs::read_to_string(f).ok());
        if let Some(Value::Object(fields)) = fields.and_then(|text| serde_json::from_str(&text).ok()) {
            for (key, value) in fields {
                tools[0][key] = value;
            }
        }
        tools.extend((0..self.options.tools).map(|n| {
            json!({"name": format!("tool_{n:04}"), "description": format!("Does thing number {n} with the text it is given."),
                "annotations": reads, "inputSchema": {"type": "object", "required": ["text"],
                    "properties": {"text": {"type": "string", "description": "What to do it with."}}}})
        }));
        tools
    }

    fn call(self: &Arc<Self>, id: &Value, params: &Value, cancelled: &AtomicBool) {
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "add" => {
                let sum = arguments["a"].as_f64().unwrap_or_default() + arguments["b"].as_f64().unwrap_or_default();
                let mut result = text(&sum.to_string().into());
                result["structuredContent"] = json!({"sum": sum});
                self.answer(id, result);
            }
            "lie" => {
                let mut result = text(&"x".into());
                result["structuredContent"] = json!({"sum": "many"});
                self.answer(id, result);
            }
            "environment" => {
                let all: Map<String, Value> = std::env::vars().map(|(k, v)| (k, v.into())).collect();
                self.answer(id, text(&Value::Object(all).to_string().into()));
            }
            "fail" => {
                let mut result = text(&"it did not work".into());
                result["isError"] = true.into();
                self.answer(id, result);
            }
            "crash" => {
                eprintln!("crashing on request");
                std::process::exit(7);
            }
            "forever" => {
                while !cancelled.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for step in 1..=3 {
                    self.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": step, "total": 3, "message": format!("step {step}")}}));
                }
                self.answer(id, text(&"done".into()));
            }
            "ask" if self.options.modern => {
                let answer = &params["inputResponses"]["name"];
                if answer.is_object() {
                    let state = params["requestState"].clone();
                    self.answer(id, text(&json!({"answer": answer, "state": state}).to_string().into()));
                } else {
                    let requests = json!({"name": {"method": "elicitation/create", "params": form()}});
                    self.say(&json!({"jsonrpc": "2.0", "id": id, "result": {
                        "resultType": "input_required", "inputRequests": requests, "requestState": "state-1"}}));
                }
            }
            "ask" => {
                let question = format!("q{}", self.next.fetch_add(1, Ordering::Relaxed));
                let (sender, answer) = mpsc::channel();
                self.waiting.lock().unwrap().insert(Value::from(question.clone()).to_string(), sender);
                self.say(&json!({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": form()}));
                let answer = answer.recv_timeout(Duration::from_secs(60)).unwrap_or_default();
                self.answer(id, text(&answer.to_string().into()));
            }
            "changed" => {
                self.say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                self.answer(id, text(&"told".into()));
            }
            name => self.answer(id, text(&format!("{name}: {arguments}").into())),
        }
    }
}

fn form() -> Value {
    json!({"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}})
}

fn text(text: &Value) -> Value {
    json!({"content": [{"type": "text", "text": text.as_str().unwrap_or_default()}]})
}
