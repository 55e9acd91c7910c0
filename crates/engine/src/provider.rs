//! [`Provider`]: runs a tool. Vault tools, plugins and upstream servers implement this trait.
//!
//! A call with side effects has two steps, so that it can be recorded between them: `prepare` determines the changes
//! (and may stage them), the pipeline makes the record durable, and `execute` makes the changes. After a crash between
//! the two, `reconcile` looks at the target and reports whether the changes were made.

use crate::{Caller, NestedCalls};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{any::Any, future::Future, pin::Pin, sync::Arc};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{Effects, ErrorCode, Failure, ToolCall, ToolResult};

/// A boxed future that can cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a provider may know about the call beyond its envelope.
#[derive(Clone)]
pub struct CallContext {
    /// Fires when the call should stop; after a grace period it is dropped.
    pub cancel: CancellationToken,
    /// Who asked, by which door, in which session.
    pub caller: Arc<Caller>,
    /// Where to say how far the work is.
    pub progress: Progress,
    /// Before-images and large values by content hash.
    pub blobs: Arc<dyn Blobs>,
    /// How to call other tools on the caller's behalf; only for a provider that [`Provider::makes_calls`].
    pub calls: NestedCalls,
}

/// Reads blobs kept by content hash. May block; call it from a blocking thread.
pub trait Blobs: Send + Sync {
    /// Reads the blob with this SHA-256 (lowercase hex).
    fn read_blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, Failure>;
}

/// Sends `step.progress` events. Cheap to clone; never blocks and never fails.
#[derive(Clone)]
pub struct Progress(Arc<ProgressSink>);

type ProgressSink = dyn Fn(ProgressKind, String, Option<Map<String, Value>>) + Send + Sync;

/// Whether a report stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressKind {
    /// For who watches now.
    Passing,
    /// Part of the run's record as well.
    Kept,
}

impl Progress {
    /// Wraps whatever takes the reports.
    pub fn new(sink: impl Fn(ProgressKind, String, Option<Map<String, Value>>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }
    /// For calls without subscribers.
    pub fn none() -> Self {
        Self::new(|_, _, _| {})
    }
    /// Reports how far the work is.
    pub fn report(&self, message: impl Into<String>, payload: Option<Map<String, Value>>) {
        (self.0)(ProgressKind::Passing, message.into(), payload);
    }
    /// Reports what was done, for the run's record.
    pub fn keep(&self, message: impl Into<String>, payload: Map<String, Value>) {
        (self.0)(ProgressKind::Kept, message.into(), Some(payload));
    }
}

/// The result of `prepare`.
#[derive(Default)]
pub struct Prepared {
    /// What is going to change; recorded with the call.
    pub intent: Option<Intent>,
    /// Before-images, kept by content hash and durable before the effect.
    pub blobs: Vec<Blob>,
    /// Whatever `execute` needs: staged files, locks held.
    pub state: Option<Box<dyn Any + Send>>,
}

/// The intended changes of a call, precise enough to determine later whether they were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Intent {
    /// Each file that will change.
    pub targets: Vec<IntentTarget>,
    /// Bytes that will be written, for the policy's `maxBytesWritten`.
    #[serde(default)]
    pub bytes_written: u64,
    /// Files and folders that will be deleted, for the policy's `maxDeletes`.
    #[serde(default)]
    pub deletes: u64,
    /// What the provider itself needs to reconcile.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub state: Map<String, Value>,
}

/// One file's content before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IntentTarget {
    /// The path.
    pub path: String,
    /// Etag before; absent when the file did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Etag after; absent when the file will be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// SHA-256 (hex) of the before-image in the blob store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_blob: Option<String>,
}

/// Bytes kept by content hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Blob {
    /// SHA-256 of the bytes, lowercase hex.
    pub sha256: String,
    /// The content.
    pub bytes: Arc<[u8]>,
}

impl Blob {
    /// Hashes and wraps.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { sha256: toolyard_protocol::canonical::sha256_hex(&bytes), bytes }
    }
}

/// The output of a successful call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Must fit the tool's output schema.
    pub data: Map<String, Value>,
    /// What was seen to change.
    pub effects: Effects,
    /// Short and safe to show.
    pub user_message: Option<String>,
    /// More details, for logs only: an answer that reports a failure has causes, as a failed call has.
    pub debug_message: Option<String>,
    /// Before-images that are known only after the effect. The data refers to them by content hash.
    pub blobs: Vec<Blob>,
}

impl Output {
    /// Data without effects.
    pub fn data(data: Map<String, Value>) -> Self {
        Self { data, ..Self::default() }
    }

    /// Data from a type of the tool's own.
    ///
    /// # Errors
    /// A type that is not written as a JSON object: a defect of the tool.
    pub fn of<T: Serialize>(data: &T) -> Result<Self, Failure> {
        let problem = match serde_json::to_value(data) {
            Ok(Value::Object(data)) => return Ok(Self::data(data)),
            Ok(_) => "the output is not an object".to_owned(),
            Err(error) => format!("the output cannot be written: {error}"),
        };
        Err(Failure::new(ErrorCode::InternalError, problem).retryable(false))
    }
}

/// The key in a failure's details with which a tool sets the delay before a retry, in milliseconds.
pub const RETRY_AFTER: &str = "retryAfterMs";

/// Bytes of a debug message that are kept.
const MAX_DEBUG_BYTES: usize = 8 << 10;

/// The end of a text for logs, at most [`MAX_DEBUG_BYTES`] of it.
fn last_bytes(text: String) -> String {
    let from = text.len().saturating_sub(MAX_DEBUG_BYTES);
    let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    if from == 0 { text } else { text[from..].to_owned() }
}

/// A call that did not work, with whatever it had changed by then.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// The failure.
    pub failure: Failure,
    /// What had changed all the same.
    pub effects: Effects,
    /// Further details, for logs only.
    pub debug_message: Option<String>,
}

impl Failed {
    /// A failure before anything changed.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Failure::new(code, message).into()
    }

    /// A failure after something had changed.
    pub fn after(failure: Failure, effects: Effects) -> Self {
        Self { effects, ..failure.into() }
    }

    /// Adds a text for logs, in addition to the failure's message and causes. The last 8 KiB are kept.
    pub fn debug(mut self, text: Option<String>) -> Self {
        let more = text.filter(|text| !text.trim().is_empty());
        let known = self.debug_message.into_iter().chain(more).collect::<Vec<_>>().join("\n");
        self.debug_message = (!known.is_empty()).then(|| last_bytes(known));
        self
    }
}

impl From<Failure> for Failed {
    fn from(mut failure: Failure) -> Self {
        let causes = failure.take_causes();
        Self { failure, effects: Effects::default(), debug_message: None }.debug(causes)
    }
}

/// What `reconcile` found after a crash.
#[derive(Debug)]
pub enum Reconciled {
    /// The effect happened; this is the output that the call would have returned.
    Done(Output),
    /// The effect is not there; the call can be made again.
    NotDone,
    /// The target has neither the state before nor the state after the change.
    Conflict(Failed),
}

/// A call that undoes another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InverseCall {
    /// The tool to call.
    pub tool: String,
    /// Its arguments, guarded by etags.
    pub args: Map<String, Value>,
    /// One line for people.
    pub preview: String,
    /// Set if the call removes something that concurrent calls may depend on (a folder): it waits until all of those
    /// are undone, and among several, the deepest goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_at_depth: Option<u32>,
}

/// Runs tools. One provider serves any number of tools; `call.tool` is the name of the tool.
pub trait Provider: Send + Sync + 'static {
    /// Determines what will change. Must not have an effect that others can see.
    fn prepare<'a>(
        &'a self,
        _context: &'a CallContext,
        _call: &'a ToolCall,
    ) -> BoxFuture<'a, Result<Prepared, Failed>> {
        Box::pin(async { Ok(Prepared::default()) })
    }

    /// Makes the change. Called at most once for each `prepare`.
    fn execute<'a>(
        &'a self,
        context: &'a CallContext,
        call: &'a ToolCall,
        prepared: Prepared,
    ) -> BoxFuture<'a, Result<Output, Failed>>;

    /// Determines after a crash whether the change was made. Only called for tools with idempotency `etag`.
    fn reconcile<'a>(
        &'a self,
        _context: &'a CallContext,
        _call: &'a ToolCall,
        _intent: &'a Intent,
    ) -> BoxFuture<'a, Result<Reconciled, Failed>> {
        Box::pin(async {
            Err(Failed::new(ErrorCode::InternalError, "this provider cannot tell whether an interrupted call happened"))
        })
    }

    /// Whether it calls other tools, through [`CallContext::calls`].
    fn makes_calls(&self) -> bool {
        false
    }

    /// A provider whose effects stay in memory, where its later calls see them. For dry runs.
    fn preview(&self) -> Option<Arc<dyn PreviewProvider>> {
        None
    }

    /// The calls that undo a finished call, in the order in which to make them. `Err` contains the reason if it cannot
    /// be undone.
    fn inverse(
        &self,
        call: &ToolCall,
        _result: &ToolResult,
        _intent: Option<&Intent>,
    ) -> Result<Vec<InverseCall>, Failure> {
        Err(Failure::new(ErrorCode::PreconditionFailed, format!("{} cannot be undone", call.tool)))
    }
}

/// A provider whose effects stay in memory, for dry runs.
pub trait PreviewProvider: Provider {
    /// A unified diff of everything changed so far, text files only, in path order.
    fn diff(&self) -> String;
}
