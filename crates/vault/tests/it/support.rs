//! A vault in a temporary folder, and calls made the way the engine makes them.

use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use toolyard_engine::{Blobs, CallContext, Caller, Failed, Intent, Output, Prepared, Progress, Provider};
use toolyard_protocol::{
    CallId, ErrorCode, Failure, PolicySnapshot, ResultStatus, RiskLevel, RunId, StepId, ToolCall, ToolCallParts,
    ToolName, ToolResult, ToolResultParts,
};
use toolyard_vault::{EditorClients, NoEditors, Vault, VaultOptions, VaultProvider};

/// Compiled output schemas: every answer of every test is held against them.
static OUTPUT_SCHEMAS: LazyLock<HashMap<String, jsonschema::Validator>> = LazyLock::new(|| {
    toolyard_vault::definitions()
        .unwrap()
        .into_iter()
        .map(|d| (d.name.to_string(), jsonschema::validator_for(&d.output_schema.unwrap().value()).unwrap()))
        .collect()
});
static INPUT_SCHEMAS: LazyLock<HashMap<String, jsonschema::Validator>> = LazyLock::new(|| {
    toolyard_vault::definitions()
        .unwrap()
        .into_iter()
        .map(|d| (d.name.to_string(), jsonschema::validator_for(&d.input_schema.value()).unwrap()))
        .collect()
});

#[derive(Default)]
pub(crate) struct MemoryBlobs(pub(crate) Mutex<HashMap<String, Vec<u8>>>);

impl Blobs for MemoryBlobs {
    fn read_blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.0.lock().unwrap().get(sha256).cloned())
    }
}

pub(crate) struct TestVault {
    pub(crate) dir: Arc<TempDir>,
    pub(crate) locks: Arc<TempDir>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) blobs: Arc<MemoryBlobs>,
    pub(crate) cancel: CancellationToken,
}

pub(crate) struct Done {
    pub(crate) call: ToolCall,
    pub(crate) output: Output,
    pub(crate) intent: Option<Intent>,
}

impl Done {
    pub(crate) fn etag(&self) -> String {
        self.output.data["etag"].as_str().unwrap().to_owned()
    }
    pub(crate) fn message(&self) -> &str {
        self.output.user_message.as_deref().unwrap_or_default()
    }
    pub(crate) fn data(&self) -> Value {
        Value::Object(self.output.data.clone())
    }
    /// The result as the engine would record it.
    pub(crate) fn result(&self) -> ToolResult {
        let now = jiff::Timestamp::UNIX_EPOCH;
        ToolResult::new(ToolResultParts {
            call_id: self.call.call_id,
            run_id: self.call.run_id,
            step_id: self.call.step_id.clone(),
            tool: self.call.tool.clone(),
            attempt: 1,
            status: ResultStatus::Ok,
            ok: true,
            data: Some(self.output.data.clone()),
            data_hash: None,
            error: None,
            started_at: now,
            ended_at: now,
            duration_ms: 0,
            effects: Some(self.output.effects.clone()),
            user_message: None,
            debug_message: None,
        })
        .unwrap()
    }
}

impl TestVault {
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, Arc::new(NoEditors))
    }

    pub(crate) fn with(options: impl FnOnce(&mut VaultOptions), clients: Arc<dyn EditorClients>) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let locks = Arc::new(tempfile::tempdir().unwrap());
        let mut chosen = VaultOptions::new(locks.path());
        options(&mut chosen);
        let vault = Vault::open(dir.path(), chosen).unwrap();
        let provider = Arc::new(VaultProvider::new(Arc::new(vault), clients));
        Self { dir, locks, provider, blobs: Arc::default(), cancel: CancellationToken::new() }
    }

    /// A folder that another process made.
    pub(crate) fn at(dir: &std::path::Path, locks: &std::path::Path) -> Self {
        let vault = Vault::open(dir, VaultOptions::new(locks)).unwrap();
        Self {
            dir: Arc::new(tempfile::tempdir().unwrap()),
            locks: Arc::new(tempfile::tempdir().unwrap()),
            provider: Arc::new(VaultProvider::new(Arc::new(vault), Arc::new(NoEditors))),
            blobs: Arc::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// The same folder, opened again: another process, or this one after a crash.
    pub(crate) fn reopened(&self) -> Self {
        let vault = Vault::open(self.dir.path(), VaultOptions::new(self.locks.path())).unwrap();
        Self {
            dir: self.dir.clone(),
            locks: self.locks.clone(),
            provider: Arc::new(VaultProvider::new(Arc::new(vault), Arc::new(NoEditors))),
            blobs: self.blobs.clone(),
            cancel: CancellationToken::new(),
        }
    }

    /// The same vault through its dry-run twin.
    pub(crate) fn previewed(&self) -> (Self, Arc<dyn toolyard_engine::PreviewProvider>) {
        let twin = self.provider.preview().unwrap();
        let this = Self {
            dir: self.dir.clone(),
            locks: self.locks.clone(),
            provider: twin.clone(),
            blobs: self.blobs.clone(),
            cancel: CancellationToken::new(),
        };
        (this, twin)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }
    /// Every file and folder, hidden ones included, with the content of files.
    pub(crate) fn snapshot(&self) -> Vec<(String, Option<Vec<u8>>)> {
        fn visit(root: &std::path::Path, at: &std::path::Path, out: &mut Vec<(String, Option<Vec<u8>>)>) {
            for entry in std::fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                if path.symlink_metadata().unwrap().is_dir() {
                    out.push((name, None));
                    visit(root, &path, out);
                } else {
                    out.push((name, Some(std::fs::read(&path).unwrap_or_default())));
                }
            }
        }
        let mut out = Vec::new();
        visit(self.dir.path(), self.dir.path(), &mut out);
        out.sort();
        out
    }
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.snapshot().into_iter().map(|(name, _)| name).filter(|name| name.contains(".toolyard-tmp-")).collect()
    }

    pub(crate) fn context(&self) -> CallContext {
        CallContext {
            cancel: self.cancel.clone(),
            caller: Arc::new(Caller::cli("test")),
            progress: Progress::none(),
            blobs: self.blobs.clone(),
            calls: toolyard_engine::NestedCalls::none(),
        }
    }

    pub(crate) async fn prepare(&self, call: &ToolCall) -> Result<Prepared, Failed> {
        let prepared = self.provider.prepare(&self.context(), call).await?;
        for blob in &prepared.blobs {
            self.blobs.0.lock().unwrap().insert(blob.sha256.clone(), blob.bytes.to_vec());
        }
        Ok(prepared)
    }

    /// The whole call. Arguments are checked against the input schema, the answer against the output schema.
    pub(crate) async fn call(&self, tool: &str, args: Value) -> Result<Done, Failed> {
        let call = tool_call(tool, args);
        if let Err(error) = INPUT_SCHEMAS[tool].validate(&Value::Object(call.args.as_ref().clone())) {
            return Err(Failed::new(ErrorCode::ValidationError, error.to_string()));
        }
        self.unchecked(call).await
    }

    /// As [`TestVault::call`], but past the input schema: what a careless engine would do.
    pub(crate) async fn unchecked(&self, call: ToolCall) -> Result<Done, Failed> {
        let prepared = self.prepare(&call).await?;
        let intent = prepared.intent.clone();
        let output = self.provider.execute(&self.context(), &call, prepared).await?;
        let data = Value::Object(output.data.clone());
        if let Err(error) = OUTPUT_SCHEMAS[call.tool.as_str()].validate(&data) {
            panic!("{} answered what its schema does not allow: {error}: {data}", call.tool);
        }
        Ok(Done { call, output, intent })
    }

    pub(crate) async fn ok(&self, tool: &str, args: Value) -> Done {
        self.call(tool, args.clone())
            .await
            .unwrap_or_else(|f| panic!("{tool} {args}: {} {:?}", f.failure, f.failure.details))
    }

    pub(crate) async fn fails(&self, tool: &str, args: Value, code: ErrorCode) -> Failure {
        match self.call(tool, args.clone()).await {
            Ok(done) => panic!("{tool} {args} should fail with {code}, but answered {}", done.data()),
            Err(failed) => {
                assert_eq!(failed.failure.code, code, "{tool} {args}: {}", failed.failure);
                assert!(failed.failure.suggestion.is_some());
                failed.failure
            }
        }
    }
}

pub(crate) fn tool_call(tool: &str, args: Value) -> ToolCall {
    let args: Map<String, Value> = args.as_object().unwrap().clone();
    ToolCall::new(ToolCallParts {
        call_id: CallId::from_uuid(uuid::Uuid::now_v7()),
        run_id: RunId::from_uuid(uuid::Uuid::now_v7()),
        step_id: StepId::direct(),
        tool: ToolName::parse(tool).unwrap(),
        attempt: 1,
        args: args.into(),
        args_hash: None,
        timeout_ms: Some(30_000),
        deadline_at: None,
        cancellable: true,
        iteration: None,
        loop_id: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        planner_version: None,
        executor_version: "test".into(),
        tool_registry_version: "test".into(),
        preview: None,
        risk_level: RiskLevel::Writes,
        category: None,
        policy: Arc::new(PolicySnapshot::default()),
        confirmation_id: None,
    })
    .unwrap()
}

/// `{"op": …, "target": {"type": "heading", "path": […]}, "value": …}` in a patch.
pub(crate) fn under_heading(path: &[&str], value: &str) -> Value {
    json!({"operations":[{"op":"insert","target":{"type":"heading","path":path},"value":value}]})
}
