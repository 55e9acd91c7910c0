//! A disk in memory and the tools over it: etags, intents, reconciliation, a preview twin, inverses. The disk outlives
//! engines, so that a crash is real: what was applied stays applied, and how often is counted.

use crate::support::{blob_text, entry};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};
use tokio::sync::Notify;
use toolyard_catalog::ToolEntry;
use toolyard_engine::{
    BoxFuture, CallContext, Failed, Intent, IntentTarget, InverseCall, Output, Prepared, PreviewProvider, Provider,
    Reconciled,
};
use toolyard_protocol::{CallId, Effects, EntryKind, ErrorCode, Failure, ToolCall, ToolResult, canonical};

pub(crate) type Tree = BTreeMap<String, String>;

/// Where a write stops for ever, as if the process died there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dies {
    BeforeTheChange,
    AfterTheChange,
}

/// One change: which call left what at a path.
pub(crate) struct Change {
    pub(crate) call: CallId,
    pub(crate) path: String,
    pub(crate) after: Option<String>,
}

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) tree: Mutex<Tree>,
    /// How often each call changed something.
    pub(crate) applied: Mutex<HashMap<CallId, u32>>,
    /// Every change, in order.
    pub(crate) history: Mutex<Vec<Change>>,
    dies: Mutex<Option<(String, Dies)>>,
    /// Told when a write has reached the place where it dies.
    pub(crate) died: Notify,
    /// When set, `execute` writes to this log first.
    pub(crate) log: Mutex<Option<Arc<Mutex<Vec<String>>>>>,
    pub(crate) reads: Mutex<u32>,
}

pub(crate) fn etag(content: &str) -> String {
    canonical::sha256_hex(content.as_bytes())[..16].to_owned()
}

impl Disk {
    pub(crate) fn of(tree: Tree) -> Arc<Self> {
        Arc::new(Self { tree: Mutex::new(tree), ..Self::default() })
    }
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        self.tree.lock().unwrap().get(path).cloned()
    }
    pub(crate) fn set(&self, path: &str, content: &str) {
        self.tree.lock().unwrap().insert(path.into(), content.into());
    }
    pub(crate) fn snapshot(&self) -> Tree {
        self.tree.lock().unwrap().clone()
    }
    pub(crate) fn dies_at(&self, path: &str, when: Dies) {
        *self.dies.lock().unwrap() = Some((path.to_owned(), when));
    }
    pub(crate) fn lives(&self) {
        *self.dies.lock().unwrap() = None;
    }
    pub(crate) fn changes(&self) -> usize {
        self.history.lock().unwrap().len()
    }
    async fn maybe_die(&self, path: &str, when: Dies) {
        let here = self.dies.lock().unwrap().as_ref().is_some_and(|(p, w)| p == path && *w == when);
        if here {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

pub(crate) struct Files {
    disk: Arc<Disk>,
    /// For a twin: what the real disk held when it was made.
    base: Option<Tree>,
}

impl Files {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        Self { disk, base: None }
    }

    pub(crate) fn entries() -> Vec<ToolEntry> {
        let text = || json!({"type":"string"});
        let path = || json!({"type":"string","format":"vault-path"});
        let tool = |name: &str,
                    risk: &str,
                    idempotency: &str,
                    properties: Value,
                    required: Value,
                    output: Value,
                    effects: Value| {
            entry(json!({
                "name": name, "title": name, "description": name, "category": "file", "riskLevel": risk,
                "idempotency": idempotency, "sideEffects": effects, "supportsDryRun": true, "undo": "restore-blob",
                "inputSchema": {"type":"object","additionalProperties":false,"properties":properties,"required":required},
                "outputSchema": {"type":"object","additionalProperties":false,"properties":output},
            }))
        };
        let written = || json!({"path":text(),"etag":text(),"created":{"type":"boolean"}});
        vec![
            tool(
                "file.read",
                "read-only",
                "pure",
                json!({"path":path()}),
                json!(["path"]),
                json!({"path":text(),"content":text(),"etag":text()}),
                json!([]),
            ),
            tool(
                "file.list",
                "read-only",
                "pure",
                json!({"prefix":text()}),
                json!([]),
                json!({"items":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"path":text(),"etag":text()}}}}),
                json!([]),
            ),
            tool(
                "file.write",
                "writes",
                "etag",
                json!({"path":path(),"content":text(),"expectedEtag":text(),"ifNotExists":{"type":"boolean"}}),
                json!(["path", "content"]),
                written(),
                json!(["create-file", "modify-file"]),
            ),
            tool(
                "file.append",
                "writes",
                "etag",
                json!({"path":path(),"text":text()}),
                json!(["path", "text"]),
                written(),
                json!(["modify-file"]),
            ),
            tool(
                "file.delete",
                "writes",
                "etag",
                json!({"path":path(),"expectedEtag":text()}),
                json!(["path"]),
                json!({"path":text(),"deleted":{"type":"boolean"}}),
                json!(["trash"]),
            ),
            tool(
                "file.restore",
                "writes",
                "etag",
                json!({"path":path(),"blob":text(),"expectedEtag":text()}),
                json!(["path", "blob"]),
                written(),
                json!(["modify-file"]),
            ),
        ]
    }

    /// What the call would leave at its path: `None` when the file would be gone.
    fn after(&self, context: &CallContext, call: &ToolCall, before: Option<&str>) -> Result<Option<String>, Failed> {
        let path = arg(call, "path");
        let gone = || Failed::new(ErrorCode::NotFound, format!("there is no {path}"));
        if let Some(expected) = call.args.get("expectedEtag").and_then(Value::as_str)
            && before.map(etag).as_deref() != Some(expected)
        {
            return Err(Failure::new(ErrorCode::Conflict, format!("{path} was changed by somebody else"))
                .detail("currentEtag", before.map(etag).unwrap_or_default())
                .into());
        }
        Ok(match call.tool.as_str() {
            "file.write" => {
                if before.is_some() && call.args.get("ifNotExists") == Some(&Value::Bool(true)) {
                    return Err(Failed::new(ErrorCode::Conflict, format!("{path} is there already")));
                }
                Some(arg(call, "content"))
            }
            "file.append" => Some(format!("{}{}", before.unwrap_or_default(), arg(call, "text"))),
            "file.delete" => {
                before.ok_or_else(gone)?;
                None
            }
            "file.restore" => {
                let bytes = context.blobs.read_blob(&arg(call, "blob"))?.ok_or_else(gone)?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
            other => return Err(Failed::new(ErrorCode::InternalError, format!("no file tool {other}"))),
        })
    }
}

fn arg(call: &ToolCall, key: &str) -> String {
    call.args.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The output of a change from `before` to `after`, the same whether it was just made or found made.
fn output_of(path: &str, before: Option<&str>, after: Option<&str>) -> Output {
    let mut effects = Effects::default();
    let data = match (before, after) {
        (_, None) => {
            effects.deleted(path, EntryKind::File, true);
            json!({"path": path, "deleted": true})
        }
        (None, Some(after)) => {
            effects.created(path, EntryKind::File);
            json!({"path": path, "etag": after, "created": true})
        }
        (Some(before), Some(after)) => {
            if before != after {
                effects.modified(path, Some(before.to_owned()), Some(after.to_owned()));
            }
            json!({"path": path, "etag": after, "created": false})
        }
    };
    Output { data: data.as_object().unwrap().clone(), effects, ..Output::default() }
}

impl Provider for Files {
    fn prepare<'a>(&'a self, context: &'a CallContext, call: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(async move {
            if matches!(call.tool.as_str(), "file.read" | "file.list") {
                return Ok(Prepared::default());
            }
            let path = arg(call, "path");
            let before = self.disk.get(&path);
            let after = self.after(context, call, before.as_deref())?;
            let blob = before.as_deref().map(blob_text);
            let target = IntentTarget {
                path,
                before: before.as_deref().map(etag),
                after: after.as_deref().map(etag),
                before_blob: blob.as_ref().map(|b| b.sha256.clone()),
            };
            let intent = Intent {
                bytes_written: after.as_ref().map_or(0, |a| a.len() as u64),
                deletes: u64::from(after.is_none()),
                targets: vec![target],
                state: Map::new(),
            };
            let state: Box<dyn std::any::Any + Send> = Box::new((before, after));
            Ok(Prepared { intent: Some(intent), blobs: blob.into_iter().collect(), state: Some(state) })
        })
    }

    fn execute<'a>(
        &'a self,
        _: &'a CallContext,
        call: &'a ToolCall,
        prepared: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            if let Some(log) = &*self.disk.log.lock().unwrap() {
                log.lock().unwrap().push(format!("execute {}", call.tool));
            }
            let path = arg(call, "path");
            match call.tool.as_str() {
                "file.read" => {
                    *self.disk.reads.lock().unwrap() += 1;
                    let content = self
                        .disk
                        .get(&path)
                        .ok_or_else(|| Failed::new(ErrorCode::NotFound, format!("there is no {path}")))?;
                    let data = json!({"path": path, "etag": etag(&content), "content": content});
                    return Ok(Output::data(data.as_object().unwrap().clone()));
                }
                "file.list" => {
                    *self.disk.reads.lock().unwrap() += 1;
                    let prefix = arg(call, "prefix");
                    let items: Vec<Value> = self
                        .disk
                        .snapshot()
                        .iter()
                        .filter(|(p, _)| p.starts_with(&prefix))
                        .map(|(p, c)| json!({"path": p, "etag": etag(c)}))
                        .collect();
                    return Ok(Output::data(Map::from_iter([("items".to_owned(), Value::from(items))])));
                }
                _ => {}
            }
            let (before, after) = *prepared.state.unwrap().downcast::<(Option<String>, Option<String>)>().unwrap();
            self.disk.maybe_die(&path, Dies::BeforeTheChange).await;
            {
                let mut tree = self.disk.tree.lock().unwrap();
                if tree.get(&path) != before.as_ref() {
                    return Err(Failed::new(ErrorCode::Conflict, format!("{path} changed meanwhile")));
                }
                match &after {
                    Some(content) => drop(tree.insert(path.clone(), content.clone())),
                    None => drop(tree.remove(&path)),
                }
                *self.disk.applied.lock().unwrap().entry(call.call_id).or_default() += 1;
                self.disk.history.lock().unwrap().push(Change {
                    call: call.call_id,
                    path: path.clone(),
                    after: after.clone(),
                });
            }
            self.disk.maybe_die(&path, Dies::AfterTheChange).await;
            Ok(output_of(&path, before.as_deref().map(etag).as_deref(), after.as_deref().map(etag).as_deref()))
        })
    }

    fn reconcile<'a>(
        &'a self,
        _: &'a CallContext,
        _: &'a ToolCall,
        intent: &'a Intent,
    ) -> BoxFuture<'a, Result<Reconciled, Failed>> {
        Box::pin(async move {
            let target = &intent.targets[0];
            let now = self.disk.get(&target.path).as_deref().map(etag);
            Ok(if now == target.after {
                Reconciled::Done(output_of(&target.path, target.before.as_deref(), target.after.as_deref()))
            } else if now == target.before {
                Reconciled::NotDone
            } else {
                let failure = Failure::new(ErrorCode::Conflict, format!("{} is neither before nor after", target.path));
                Reconciled::Conflict(failure.detail("currentEtag", now.unwrap_or_default()).into())
            })
        })
    }

    fn preview(&self) -> Option<Arc<dyn PreviewProvider>> {
        let base = self.disk.snapshot();
        Some(Arc::new(Files { disk: Disk::of(base.clone()), base: Some(base) }))
    }

    fn inverse(&self, call: &ToolCall, _: &ToolResult, intent: Option<&Intent>) -> Result<Vec<InverseCall>, Failure> {
        let target = intent
            .and_then(|i| i.targets.first())
            .ok_or_else(|| Failure::new(ErrorCode::PreconditionFailed, format!("{} said nothing", call.tool)))?;
        let mut args = Map::from_iter([("path".to_owned(), Value::from(target.path.clone()))]);
        if let Some(after) = &target.after {
            args.insert("expectedEtag".into(), after.clone().into());
        }
        let tool = match &target.before_blob {
            Some(blob) => {
                args.insert("blob".into(), blob.clone().into());
                "file.restore"
            }
            None => "file.delete",
        };
        Ok(vec![InverseCall {
            tool: tool.into(),
            args,
            preview: format!("Take back {}", target.path),
            waits_at_depth: None,
        }])
    }
}

impl PreviewProvider for Files {
    fn diff(&self) -> String {
        let (base, now) = (self.base.clone().unwrap_or_default(), self.disk.snapshot());
        let paths: std::collections::BTreeSet<&String> = base.keys().chain(now.keys()).collect();
        let mut out = String::new();
        for path in paths {
            if base.get(path) != now.get(path) {
                out += &format!("--- {path}\n+++ {path}\n");
                out += &base.get(path).map(|c| format!("-{c}\n")).unwrap_or_default();
                out += &now.get(path).map(|c| format!("+{c}\n")).unwrap_or_default();
            }
        }
        out
    }
}
