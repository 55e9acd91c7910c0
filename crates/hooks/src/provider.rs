//! The engine's view of a native call. The client runs the tool, not Toolyard: `prepare` stores the before-images, and
//! `execute` lets the client continue, waits for its next hook, and then finds what changed.

use crate::{
    image::{self, FileState},
    native::{Change, ClosedBy, NativeArgs, NativeOutcome, RESTORE, RestoreArgs},
    shadow::{PrunedSnapshots, Shadows, SnapshotLimits, SnapshotRetention, Tree},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;
use toolyard_engine::{
    Blob, BoxFuture, CallContext, Failed, Intent, IntentTarget, InverseCall, Output, Prepared, Provider, Reconciled,
};
use toolyard_protocol::{Effects, EntryKind, ErrorCode, Failure, RunId, ToolCall, ToolResult};

/// How the end of a call was reported.
#[derive(Debug)]
pub(crate) struct EndReport {
    pub(crate) by: ClosedBy,
    pub(crate) has_failed: bool,
    pub(crate) response: Option<String>,
}

/// The point at which a call waits between its `before` hook and its `after` hook.
pub(crate) struct CallGate {
    /// Fires when the client may go on.
    pub(crate) go: oneshot::Sender<()>,
    /// Fires when the call has ended.
    pub(crate) end: oneshot::Receiver<EndReport>,
}

/// The state of the files before a call, as recorded with the call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BeforeCall {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileBeforeCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree: Option<Tree>,
    /// Why the project was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unseen: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct FileBeforeCall {
    path: PathBuf,
    image: FileState,
}

/// Runs native calls. One for each Toolyard.
pub struct NativeProvider {
    shadows: Arc<Shadows>,
    gates: Mutex<HashMap<RunId, CallGate>>,
}

impl NativeProvider {
    /// Keeps its snapshots in a separate folder.
    pub fn new(snapshots: PathBuf, limits: SnapshotLimits) -> Arc<Self> {
        Arc::new(Self { shadows: Arc::new(Shadows::new(snapshots, limits)), gates: Mutex::new(HashMap::new()) })
    }

    /// Removes snapshots that are not needed any more.
    ///
    /// # Errors
    /// The folder cannot be read, or something in it cannot be removed.
    pub async fn prune(&self, retention: SnapshotRetention) -> Result<PrunedSnapshots, Failure> {
        let shadows = self.shadows.clone();
        let pruned = blocking(move || shadows.prune(retention)).await.map_err(|failed| failed.failure)?;
        pruned.map_err(|error| {
            let message = format!("snapshots of projects cannot be removed: {error}");
            Failure::new(ErrorCode::StoreUnavailable, message)
        })
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<RunId, CallGate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call wait for its client.
    pub(crate) fn wait_at(&self, run_id: RunId, gate: CallGate) {
        self.gates().insert(run_id, gate);
    }

    /// Removes the gate of a call that was refused.
    pub(crate) fn forget(&self, run_id: RunId) {
        self.gates().remove(&run_id);
    }

    async fn keep(&self, call: &ToolCall) -> Result<Prepared, Failed> {
        let args: NativeArgs = read(&call.args)?;
        let shadows = self.shadows.clone();
        let (kept, blobs) = blocking(move || {
            let mut blobs = Vec::new();
            let mut kept = BeforeCall::default();
            for path in args.files {
                let (image, blob) = image::take(&path);
                blobs.extend(blob);
                kept.files.push(FileBeforeCall { path, image });
            }
            if args.snapshot {
                match shadows.take(&args.project) {
                    Ok(tree) => kept.tree = Some(tree),
                    Err(why) => kept.unseen = Some(why),
                }
            }
            (kept, blobs)
        })
        .await?;
        prepared(&kept, blobs)
    }

    /// Looks at what changed since `kept`.
    async fn observe(&self, call: &ToolCall, kept: BeforeCall, end_report: EndReport) -> Result<Output, Failed> {
        let args: NativeArgs = read(&call.args)?;
        let shadows = self.shadows.clone();
        let (changes, blobs, unseen) = blocking(move || {
            let mut changes: Vec<Change> = Vec::new();
            for file in &kept.files {
                let (after, _) = image::take(&file.path);
                if after != file.image {
                    changes.push(Change { path: file.path.clone(), before: file.image.clone(), after });
                }
            }
            let Some(tree) = &kept.tree else { return (changes, Vec::new(), kept.unseen) };
            match shadows.changes(&args.project, tree) {
                Ok((more, blobs)) => {
                    changes.extend(more);
                    (changes, blobs, None)
                }
                Err(why) => (changes, Vec::new(), Some(why)),
            }
        })
        .await?;
        let effects = effects_of(&changes);
        let EndReport { by: closed_by, has_failed, response } = end_report;
        let user_message = match (closed_by, has_failed) {
            (ClosedBy::Hook, true) => format!("{} reports that {} failed", args.client, args.tool),
            (ClosedBy::Hook, false) => format!("{} ran {}; {} files changed", args.client, args.tool, changes.len()),
            (_, _) if changes.is_empty() => {
                format!("{} did not report the end of {}; no file changed", args.client, args.tool)
            }
            (_, _) => format!("{} did not report the end of {}; files changed", args.client, args.tool),
        };
        let outcome = NativeOutcome { closed_by, has_failed, response, changes, unseen };
        Ok(Output { effects, user_message: Some(user_message), blobs, ..Output::of(&outcome)? })
    }

    async fn run_native(&self, context: &CallContext, call: &ToolCall, prepared: Prepared) -> Result<Output, Failed> {
        let kept = before_call(prepared.intent.as_ref())?;
        let gate = self.gates().remove(&call.run_id);
        let unreported = |by| EndReport { by, has_failed: false, response: None };
        // Without a gate no client waits: the call was recorded by a Toolyard that is gone.
        let Some(gate) = gate else { return self.observe(call, kept, unreported(ClosedBy::Recovery)).await };
        if gate.go.send(()).is_err() {
            // The hook gave up before the answer, so the client did not run the tool.
            return self.observe(call, kept, unreported(ClosedBy::Session)).await;
        }
        let end_report = tokio::select! {
            end_report = gate.end => end_report.unwrap_or_else(|_| unreported(ClosedBy::Session)),
            () = context.cancel.cancelled() => unreported(ClosedBy::Recovery),
        };
        self.observe(call, kept, end_report).await
    }

    async fn prepare_restore(&self, call: &ToolCall) -> Result<Prepared, Failed> {
        let args: RestoreArgs = read(&call.args)?;
        if !args.path.is_absolute() {
            return Err(Failed::new(ErrorCode::ValidationError, "the path must be absolute"));
        }
        let (image, blob) = blocking({
            let path = args.path.clone();
            move || image::take(&path)
        })
        .await?;
        if !image.is_same(&args.expect) {
            return Err(conflict(&args.path));
        }
        prepared(
            &BeforeCall { files: vec![FileBeforeCall { path: args.path, image }], ..BeforeCall::default() },
            Vec::from_iter(blob),
        )
    }

    async fn restore(&self, context: &CallContext, call: &ToolCall) -> Result<Output, Failed> {
        let args: RestoreArgs = read(&call.args)?;
        let blobs = context.blobs.clone();
        let changed = blocking(move || {
            let (before, _) = image::take(&args.path);
            if !before.is_same(&args.expect) {
                return Err(conflict(&args.path));
            }
            let content = match &args.restore {
                FileState::File { sha256, .. } => blobs.read_blob(sha256)?,
                _ => None,
            };
            image::put(&args.path, &args.restore, content.as_deref()).map_err(|error| {
                let message = format!("{} cannot be taken back: {error}", args.path.display());
                Failed::new(ErrorCode::PreconditionFailed, message)
            })?;
            Ok(Change { path: args.path.clone(), before, after: args.restore })
        })
        .await??;
        restored(changed)
    }
}

fn restored(change: Change) -> Result<Output, Failed> {
    let message = format!("Took {} back", change.path.display());
    let changes = vec![change];
    let effects = effects_of(&changes);
    let outcome = NativeOutcome { closed_by: ClosedBy::Hook, has_failed: false, response: None, changes, unseen: None };
    Ok(Output { effects, user_message: Some(message), ..Output::of(&outcome)? })
}

impl Provider for NativeProvider {
    fn prepare<'a>(&'a self, _: &'a CallContext, call: &'a ToolCall) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(async move {
            if call.tool.as_str() == RESTORE { self.prepare_restore(call).await } else { self.keep(call).await }
        })
    }

    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        prepared: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>> {
        Box::pin(async move {
            if call.tool.as_str() == RESTORE {
                self.restore(context, call).await
            } else {
                self.run_native(context, call, prepared).await
            }
        })
    }

    fn reconcile<'a>(
        &'a self,
        _: &'a CallContext,
        call: &'a ToolCall,
        intent: &'a Intent,
    ) -> BoxFuture<'a, Result<Reconciled, Failed>> {
        Box::pin(async move {
            if call.tool.as_str() != RESTORE {
                // Whether the client ran the tool is unknown; the call has ended, and the files show what changed.
                let end_report = EndReport { by: ClosedBy::Recovery, has_failed: false, response: None };
                return self.observe(call, before_call(Some(intent))?, end_report).await.map(Reconciled::Done);
            }
            let args: RestoreArgs = read(&call.args)?;
            let (now, _) = blocking({
                let path = args.path.clone();
                move || image::take(&path)
            })
            .await?;
            Ok(if now.is_same(&args.restore) {
                Reconciled::Done(restored(Change { path: args.path, before: args.expect, after: args.restore })?)
            } else if now.is_same(&args.expect) {
                Reconciled::NotDone
            } else {
                Reconciled::Conflict(conflict(&args.path))
            })
        })
    }

    fn inverse(&self, call: &ToolCall, result: &ToolResult, _: Option<&Intent>) -> Result<Vec<InverseCall>, Failure> {
        let cannot = |why: &str| {
            let message = format!("{} cannot be undone: {why}", call.tool);
            Failure::new(ErrorCode::PreconditionFailed, message)
        };
        let Some(data) = &result.data else { return Err(cannot("its end was not seen")) };
        let outcome: NativeOutcome = NativeOutcome::deserialize(Value::Object(data.clone()))
            .map_err(|error| cannot(&format!("its record has another form: {error}")))?;
        let mut calls = Vec::new();
        for Change { path, before, after } in outcome.changes.into_iter().rev() {
            if let FileState::Unkept { reason } = &before {
                return Err(cannot(&format!("{}: {reason}", path.display())));
            }
            let preview = match &before {
                FileState::Absent => format!("Remove {}", path.display()),
                _ => format!("Restore {}", path.display()),
            };
            let args = RestoreArgs { path, expect: after, restore: before };
            calls.push(InverseCall { tool: RESTORE.to_owned(), args: fields(&args)?, preview, waits_at_depth: None });
        }
        if calls.is_empty()
            && let Some(why) = outcome.unseen
        {
            return Err(cannot(&why));
        }
        Ok(calls)
    }
}

fn effects_of(changes: &[Change]) -> Effects {
    let mut effects = Effects::default();
    for Change { path, before, after } in changes {
        let path = path.display().to_string();
        match (before, after) {
            (FileState::Absent, FileState::Folder) => effects.created(path, EntryKind::Folder),
            (FileState::Absent, _) => effects.created(path, EntryKind::File),
            (_, FileState::Absent) => effects.deleted(path, EntryKind::File, false),
            (before, after) => effects.modified(path, before.etag(), after.etag()),
        }
    }
    effects
}

fn prepared(kept: &BeforeCall, blobs: Vec<Blob>) -> Result<Prepared, Failed> {
    let targets = kept.files.iter().map(|file| IntentTarget {
        path: file.path.display().to_string(),
        before: file.image.etag(),
        after: None,
        before_blob: match &file.image {
            FileState::File { sha256, .. } => Some(sha256.clone()),
            _ => None,
        },
    });
    let intent = Intent { targets: targets.collect(), state: fields(kept)?, ..Intent::default() };
    Ok(Prepared { intent: Some(intent), blobs, state: None })
}

fn before_call(intent: Option<&Intent>) -> Result<BeforeCall, Failure> {
    let state = intent.map(|intent| intent.state.clone()).unwrap_or_default();
    BeforeCall::deserialize(Value::Object(state)).map_err(|error| unreadable(&error))
}

fn read<T: DeserializeOwned>(args: &Map<String, Value>) -> Result<T, Failure> {
    T::deserialize(Value::Object(args.clone())).map_err(|error| {
        Failure::new(ErrorCode::ValidationError, format!("the arguments have another form: {error}")).retryable(false)
    })
}

fn fields(value: &impl Serialize) -> Result<Map<String, Value>, Failure> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Failure::new(ErrorCode::InternalError, "the recorded state is not an object")),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::new(ErrorCode::InternalError, format!("the recorded state cannot be read: {error}"))
}

fn conflict(path: &Path) -> Failed {
    let message = format!("{} was changed since; it is left as it is", path.display());
    let failure = Failure::new(ErrorCode::Conflict, message).retryable(false);
    failure.suggest("Look at the file and restore by hand what you need.").into()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failed::new(ErrorCode::InternalError, format!("looking at files failed: {error}")))
}
