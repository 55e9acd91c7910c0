//! The local socket: its line format, its secret, and the command line's end.
//!
//! ```text
//! -> {"secret":"..."}                             once, first; with "workspace":"NAME" where it is not the default one
//! -> {"id":1,"method":"plans.run","params":{...}}
//! <- {"id":1,"event":{...}}                       any number
//! <- {"id":1,"ok":true,"result":{...}}            exactly one; or {"id":1,"ok":false,"error":{code,message,...}}
//! ```

mod secret;

pub use secret::{Admitted, LocalSecret};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{path::Path, sync::Arc};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use toolyard_protocol::{ErrorCode, ExecutionEvent, Failure, WorkspaceId};
use toolyard_service::{EventSink, Method};

/// Maximum length of a line; a longer one ends the connection.
pub const MAX_LINE: usize = 32 << 20;

/// A request; one line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The request id; replies carry the same id.
    pub id: u64,
    /// The name of the method.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Value,
    /// The workspace that the person chooses; that of the connection's first line where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// An event or the result of a request; one line.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// The id of the request.
    pub id: u64,
    /// An event of a run that the request started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<ExecutionEvent>,
    /// Whether the request succeeded; absent for an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// Reads one line of at most [`MAX_LINE`] bytes. Returns `false` at the end of the stream or when the line is too long.
pub async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return Ok(false);
        }
        let (part, done) = match available.iter().position(|b| *b == b'\n') {
            Some(at) => (&available[..at], true),
            None => (available, false),
        };
        if line.len() + part.len() > MAX_LINE {
            return Ok(false);
        }
        line.extend_from_slice(part);
        let used = part.len() + usize::from(done);
        reader.consume(used);
        if done {
            return Ok(true);
        }
    }
}

/// Connects to a local socket and sends the secret, for a client that works in a workspace. Returns `None` when nothing
/// listens on it.
pub async fn connect(path: &Path, workspace: &WorkspaceId) -> Result<Option<UnixStream>, Failure> {
    let Ok(mut stream) = UnixStream::connect(path).await else { return Ok(None) };
    let secret = LocalSecret::of_socket(path).map_err(|e| {
        Failure::new(ErrorCode::PolicyDenied, format!("a Toolyard is running, but {e}"))
            .suggest("Run the command as the user who started it, outside of any sandbox; restart an older Toolyard.")
    })?;
    secret.send(workspace, &mut stream).await.map_err(|e| {
        Failure::new(ErrorCode::Unavailable, format!("the running Toolyard closed the connection: {e}"))
    })?;
    Ok(Some(stream))
}

/// The command line's end of the local socket.
pub struct LocalClient {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    next_id: u64,
    workspace: Option<String>,
}

fn lost(what: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("the connection to the running Toolyard was lost: {what}"))
        .suggest("A run in progress continues, or was recorded: see `toolyard runs list`.")
}

impl LocalClient {
    /// Connects and sends the secret. Returns `None` when no running Toolyard listens, and an error when one does but
    /// its secret cannot be read.
    pub async fn connect(path: &Path) -> Result<Option<Self>, Failure> {
        let Some(stream) = connect(path, &WorkspaceId::default()).await? else { return Ok(None) };
        let (reader, writer) = stream.into_split();
        Ok(Some(Self { reader: BufReader::new(reader), writer, next_id: 1, workspace: None }))
    }

    /// Calls methods in a workspace from here on.
    #[must_use]
    pub fn in_workspace(self, workspace: Option<String>) -> Self {
        Self { workspace, ..self }
    }

    /// Calls a method; events are sent to the sink as they arrive.
    pub async fn call<M: Method>(&mut self, params: &M::Params, events: Option<EventSink>) -> Result<M::Answer, Failure>
    where
        M::Params: Serialize,
        M::Answer: DeserializeOwned,
    {
        let params = serde_json::to_value(params).map_err(|e| lost(&e))?;
        let answer = self.call_by_name(M::NAME, params, events).await?;
        serde_json::from_str(answer.get()).map_err(|error| unread(M::NAME, &error))
    }

    /// Calls a method by name; returns the result as JSON.
    pub async fn call_by_name(
        &mut self,
        method: &str,
        params: Value,
        events: Option<EventSink>,
    ) -> Result<Box<RawValue>, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let request = Request { id, method: method.to_owned(), params, workspace: self.workspace.clone() };
        let mut line = serde_json::to_vec(&request).map_err(|e| lost(&e))?;
        line.push(b'\n');
        self.writer.write_all(&line).await.map_err(|e| lost(&e))?;
        let mut line = Vec::new();
        loop {
            if !next_line(&mut self.reader, &mut line).await.map_err(|e| lost(&e))? {
                return Err(lost(&"it closed"));
            }
            let reply: Reply = serde_json::from_slice(&line).map_err(|e| lost(&e))?;
            if reply.id != id {
                continue;
            }
            match reply {
                Reply { event: Some(event), .. } => {
                    if let Some(sink) = &events {
                        sink(Arc::new(event));
                    }
                }
                Reply { error: Some(failure), .. } => return Err(failure),
                Reply { result, .. } => return Ok(result.unwrap_or_else(|| RawValue::NULL.to_owned())),
            }
        }
    }
}

/// The error for a result that this version cannot parse.
pub fn unread(method: &str, error: &serde_json::Error) -> Failure {
    Failure::new(ErrorCode::InternalError, format!("the answer to {method} cannot be read: {error}"))
        .suggest("The running Toolyard may be of another version; restart it.")
}
