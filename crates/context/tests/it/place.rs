//! A temporary store for a test.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use toolyard_context::{
    ContextConfig, ContextStore,
    store::shared::SharedParts,
    wire::{
        http::HttpDoor,
        tools::{self, Answer, Session, ToolFailure},
    },
};

pub(crate) struct Store {
    pub(crate) dir: TempDir,
    pub(crate) context: Arc<ContextStore>,
    pub(crate) door: HttpDoor,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::with(ContextConfig::default())
    }

    pub(crate) fn with(config: ContextConfig) -> Self {
        Self::at(tempfile::tempdir().unwrap(), config)
    }

    pub(crate) fn at(dir: TempDir, config: ContextConfig) -> Self {
        let context = ContextStore::open(dir.path().join("context"), config).unwrap();
        let door = HttpDoor::new(context.clone());
        Self { dir, context, door }
    }

    /// A node of a cluster whose store is `shared`.
    pub(crate) fn node(shared: Arc<dyn toolyard_engine::Store>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let parts = SharedParts { store: shared, pieces: None };
        Self::node_with(dir, parts)
    }

    /// A node of a cluster, whose copy lies in `dir`.
    pub(crate) fn node_with(dir: TempDir, parts: SharedParts) -> Self {
        let folder = dir.path().join("context-copy");
        let context = ContextStore::open_shared(folder, ContextConfig::default(), parts).unwrap();
        let door = HttpDoor::new(context.clone());
        Self { dir, context, door }
    }

    /// Reopens the store as after a crash: only the files remain.
    pub(crate) fn reopened(self) -> Self {
        let Self { dir, context, door } = self;
        let config = context.config().clone();
        drop((context, door));
        Self::at(dir, config)
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.door.handle(None, request.body(body).unwrap()).await;
        let status = response.status().as_u16();
        (status, serde_json::from_slice(response.body()).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, Bytes::new(), &[]).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.request("POST", path, Bytes::from(body.to_string()), &[]).await
    }

    pub(crate) async fn as_user(&self, user: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        self.request(method, path, body, &[("x-openviking-user", user)]).await
    }

    pub(crate) async fn upload(&self, name: &str, content: &str) -> String {
        let body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n--b--\r\n"
        );
        let headers = [("content-type", "multipart/form-data; boundary=b")];
        let (status, answer) = self.request("POST", "/api/v1/resources/temp_upload", Bytes::from(body), &headers).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["temp_file_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn tool(&self, session: &Session, name: &str, args: Value) -> Result<Answer, ToolFailure> {
        let (context, session, name) = (self.context.clone(), session.clone(), name.to_owned());
        let args: Map<String, Value> = args.as_object().cloned().unwrap_or_default();
        tokio::task::spawn_blocking(move || tools::run(&context, &session, &name, &args)).await.unwrap()
    }
}

pub(crate) fn session() -> Session {
    Session {
        key: Some("agent:main:main".to_owned()),
        id: Some("e211be14-ad73-4f0b-861b-9e2b39c390fe".to_owned()),
        agent: Some("main".to_owned()),
        host_paths: toolyard_context::HostPaths::All,
        ..Session::default()
    }
}

pub(crate) fn lines() -> String {
    (0..2000).map(|n| format!("line {n} error code {}", n % 7)).collect::<Vec<_>>().join("\n")
}

pub(crate) const WIDGET: &str = "# Widget API\n\nIntro to the Widget API.\n\n## Authentication\n\nUse an API key in the X-Widget-Key header.\n\n## Rate limits\n\nThe limit is 100 requests per minute.\n";

/// The keys of an object, or of the first object in a list.
pub(crate) fn keys(value: &Value) -> Vec<String> {
    let mut keys: Vec<String> = match value {
        Value::Object(map) => map.keys().cloned().collect(),
        Value::Array(all) => all.first().map(keys).unwrap_or_default(),
        _ => Vec::new(),
    };
    keys.sort();
    keys
}

pub(crate) fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "text": text}]})
}
