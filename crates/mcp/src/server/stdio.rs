//! Standard input and output: one message a line. Each request runs in a separate task, so that a slow call delays no
//! other; responses are sent in the order in which they are ready.

use super::{
    Client, Exchange, Inner, McpServer, forward_changes, listen,
    session::{self, ClientOutput, Session},
};
use crate::{
    Revision, RpcError,
    jsonrpc::{self, INVALID_REQUEST, Incoming, UNSUPPORTED_REVISION},
    revision::{ClientCapabilities, META_CAPABILITIES, META_LOG_LEVEL, META_VERSION},
    wire::{
        self, Payload,
        answers::Unsupported,
        requests::{CallOrigin, Initialize, Request, RequestMeta},
    },
};
use futures_util::StreamExt;
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    sync::CancellationToken,
};

/// A line is at most this long.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// Answers are gathered up to this size before they are written.
const WRITE_BATCH: usize = 64 << 10;
/// How long the last answers may take after the client has closed its input.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

impl McpServer {
    /// Serves one client until its input ends or `stop` fires. Requests in flight are then cancelled.
    pub async fn serve_stdio(
        &self,
        client: Client,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let (outlet, messages) = ClientOutput::new();
        let writer = tokio::spawn(write_all(messages, output));
        let id = uuid::Uuid::new_v4().simple().to_string();
        let session = Session::new(id, Revision::NEWEST_WITH_HANDSHAKE, ClientCapabilities::default());
        let process = Arc::new(Process {
            inner: self.inner.clone(),
            client,
            session: Arc::new(session),
            outlet,
            is_open: Mutex::new(false),
        });
        let mut lines = FramedRead::new(input, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = stop.cancelled() => break,
                () = process.outlet.0.closed() => break,
            };
            match line {
                None => break,
                Some(Ok(line)) if line.trim().is_empty() => {}
                Some(Ok(line)) => process.take(line).await,
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    let error = RpcError::new(INVALID_REQUEST, format!("a line is longer than {MAX_LINE_BYTES} bytes"));
                    process.outlet.send(jsonrpc::error_text(&Value::Null, &error)).await;
                }
                Some(Err(LinesCodecError::Io(error))) if error.kind() == std::io::ErrorKind::InvalidData => {
                    let error = RpcError::new(jsonrpc::PARSE_ERROR, "not UTF-8");
                    process.outlet.send(jsonrpc::error_text(&Value::Null, &error)).await;
                }
                Some(Err(LinesCodecError::Io(error))) => {
                    process.session.end();
                    return Err(error);
                }
            }
        }
        process.session.end();
        drop(process);
        // Cancelled requests still answer; the last task drops the last sender, and the writer ends.
        match tokio::time::timeout(LAST_ANSWERS_WITHIN, writer).await {
            Ok(Ok(Ok(()))) => {}
            // A client that has closed its output does not wait for answers.
            Ok(Ok(Err(error))) => tracing::debug!(%error, "the last answers could not be written"),
            Ok(Err(error)) => tracing::error!(%error, "writing to the client ended unexpectedly"),
            Err(_) => tracing::info!("calls that did not stop in time are left without an answer"),
        }
        Ok(())
    }
}

async fn write_all(
    mut messages: tokio::sync::mpsc::Receiver<String>,
    mut output: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut batch = Vec::new();
    while let Some(message) = messages.recv().await {
        batch.clear();
        batch.extend_from_slice(message.as_bytes());
        batch.push(b'\n');
        while batch.len() < WRITE_BATCH
            && let Ok(message) = messages.try_recv()
        {
            batch.extend_from_slice(message.as_bytes());
            batch.push(b'\n');
        }
        output.write_all(&batch).await?;
        output.flush().await?;
    }
    Ok(())
}

/// The one client of a process.
struct Process {
    inner: Arc<Inner>,
    client: Client,
    session: Arc<Session>,
    outlet: ClientOutput,
    /// Whether `initialize` has been answered.
    is_open: Mutex<bool>,
}

impl Process {
    async fn take(self: &Arc<Self>, line: String) {
        match Incoming::read(line.as_bytes()) {
            Err(bad) => {
                self.outlet.send(jsonrpc::error_text(&bad.id, &bad.error)).await;
            }
            Ok(Incoming::Response { id, outcome }) => self.session.answered(&id, outcome),
            Ok(Incoming::Notification { method, params }) => self.session.notified(&method, params),
            Ok(Incoming::Request { id, method, params }) => self.request(Request::new(id, method, params)).await,
        }
    }

    async fn request(self: &Arc<Self>, request: Request) {
        if request.method == "initialize" {
            let answer = self.initialize(&request.id, request.params).await;
            self.outlet.send(jsonrpc::answer_text(&request.id, answer)).await;
            return;
        }
        let Request { id, method, meta, params } = request;
        let exchange = match self.exchange(&id, &method, meta) {
            Ok(exchange) => exchange,
            Err(error) => {
                self.outlet.send(jsonrpc::error_text(&id, &error)).await;
                return;
            }
        };
        let Some(in_flight) = self.session.begin(&id, exchange.cancel.clone()) else {
            let error =
                RpcError::new(INVALID_REQUEST, format!("more than {} requests at once", session::MAX_IN_FLIGHT));
            self.outlet.send(jsonrpc::error_text(&id, &error)).await;
            return;
        };
        let process = self.clone();
        tokio::spawn(async move {
            let answer = process.inner.answer(&exchange, &method, params).await;
            drop(in_flight);
            // A cancelled request gets no answer; a cancelled subscription does.
            if !exchange.cancel.is_cancelled() || method == "subscriptions/listen" {
                process.outlet.send(jsonrpc::answer_text(&id, answer)).await;
            }
        });
    }

    async fn initialize(self: &Arc<Self>, id: &Value, params: Payload) -> Result<String, RpcError> {
        let (revision, capabilities) = opening(params)?;
        self.session.agree(revision, capabilities);
        let answer = self.inner.initialize(&self.legacy(id, None)).await?;
        let was_open = std::mem::replace(&mut *session::lock(&self.is_open), true);
        if !was_open {
            listen(&self.session, self.outlet.clone());
            tokio::spawn(forward_changes(self.inner.clone(), self.session.clone()));
        }
        Ok(answer)
    }

    fn exchange(&self, id: &Value, method: &str, meta: RequestMeta) -> Result<Exchange, RpcError> {
        let origin = meta.origin();
        if let Some(modern) = modern(&meta)? {
            return Ok(Exchange {
                revision: Revision::V20260728,
                capabilities: Arc::new(modern.capabilities),
                caller: self.inner.caller(&self.client, Some(format!("mcp:{}", self.session.id))),
                approvals: self.client.approvals,
                outlet: self.outlet.clone(),
                cancel: self.session.ended.child_token(),
                session: None,
                log_level: modern.log_level,
                progress_token: meta.progress_token,
                origin,
                id: id.clone(),
            });
        }
        // Some clients ping before they begin.
        if !*session::lock(&self.is_open) && method != "ping" {
            return Err(not_open(method));
        }
        Ok(Exchange { origin, ..self.legacy(id, meta.progress_token) })
    }

    fn legacy(&self, id: &Value, progress_token: Option<Value>) -> Exchange {
        Exchange {
            revision: self.session.revision(),
            capabilities: self.session.capabilities(),
            caller: self.inner.caller(&self.client, Some(format!("mcp:{}", self.session.id))),
            approvals: self.client.approvals,
            outlet: self.outlet.clone(),
            cancel: self.session.ended.child_token(),
            session: Some(self.session.clone()),
            log_level: None,
            progress_token,
            origin: CallOrigin::default(),
            id: id.clone(),
        }
    }
}

/// The metadata of a request of a revision without a handshake.
pub(crate) struct Modern {
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) log_level: Option<usize>,
}

/// Reads `_meta`; `None` for a request of a revision with a handshake.
pub(crate) fn modern(meta: &RequestMeta) -> Result<Option<Modern>, RpcError> {
    let Some(version) = &meta.version else {
        if meta.capabilities.is_some() {
            return Err(RpcError::params(format!("_meta lacks {META_VERSION}")));
        }
        return Ok(None);
    };
    let version = version.as_str().ok_or_else(|| RpcError::params(format!("{META_VERSION} must be a string")))?;
    if Revision::parse(version).is_none_or(Revision::has_handshake) {
        return Err(unsupported(version));
    }
    let Some(capabilities) = meta.capabilities.as_ref().filter(|c| c.is_object()) else {
        return Err(RpcError::params(format!("_meta lacks {META_CAPABILITIES}")));
    };
    let log_level = match &meta.log_level {
        None => None,
        Some(level) => {
            let level = level.as_str().and_then(session::level);
            Some(level.ok_or_else(|| RpcError::params(format!("{META_LOG_LEVEL} is no log level")))?)
        }
    };
    Ok(Some(Modern { capabilities: ClientCapabilities::read(Some(capabilities)), log_level }))
}

/// Reads the parameters of `initialize`.
pub(crate) fn opening(params: Payload) -> Result<(Revision, ClientCapabilities), RpcError> {
    let Initialize { protocol_version, capabilities } = wire::read("initialize", params)?;
    Ok((Revision::negotiate(&protocol_version), ClientCapabilities::read(capabilities.as_ref())))
}

/// A revision that is not spoken here.
pub(crate) fn unsupported(requested: &str) -> RpcError {
    let supported = Revision::names();
    RpcError::new(UNSUPPORTED_REVISION, "Unsupported protocol version").with(&Unsupported { supported, requested })
}

fn not_open(method: &str) -> RpcError {
    let known =
        matches!(method.split_once('/'), Some(("tools" | "resources" | "prompts" | "completion" | "logging", _)));
    if known { RpcError::new(INVALID_REQUEST, "initialize comes first") } else { RpcError::method(method) }
}
