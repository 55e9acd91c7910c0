//! The local door: a Unix socket for the command line on the same machine. One JSON object a line, each way.
//!
//! ```text
//! -> {"id":1,"method":"plans.run","params":{...}}
//! <- {"id":1,"event":{...}}                       any number
//! <- {"id":1,"ok":true,"result":{...}}            exactly one; or {"id":1,"ok":false,"error":{code,message,...}}
//! ```
//!
//! Who may connect is the file system's business: the socket lies in a folder only its owner can enter, and the
//! kernel tells who is at the other end. Several requests may be under way on one connection.

use crate::methods::{EventSink, Service};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{path::Path, sync::Arc};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;
use toolyard_engine::{Caller, redact::redactor};
use toolyard_protocol::{ErrorCode, ExecutionEvent, Failure};

/// A line longer than this ends the connection.
const MAX_LINE: usize = 32 << 20;
/// Connections at once.
const MAX_CONNECTIONS: usize = 256;
/// Requests under way at once on one connection.
const MAX_IN_FLIGHT: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    id: u64,
    method: String,
    #[serde(default)]
    params: Value,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Reply {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<ExecutionEvent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

/// Binds the socket, replacing one that a dead process left behind. Fails when a living one answers there.
pub async fn bind(path: &Path) -> std::io::Result<UnixListener> {
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            return Err(std::io::Error::new(
                std::io::ErrorKind::AddrInUse,
                "another Toolyard serves this home already",
            ));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until told to stop. `owner` is the only user who may connect.
pub async fn serve(listener: UnixListener, service: Service, owner: u32, principal: String, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the local socket could not accept");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        if stream.peer_cred().map(|c| c.uid()).ok() != Some(owner) {
            continue; // dropped: somebody else's process
        }
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let (service, principal, stop) = (service.clone(), principal.clone(), stop.clone());
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                () = connection(stream, service, principal) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn connection(stream: UnixStream, service: Service, principal: String) {
    let (reader, mut writer) = stream.into_split();
    // Replies queue without limit of number, but each request's events are bounded by the engine's own buffer.
    let (replies, mut outgoing) = mpsc::unbounded_channel::<Reply>();
    let writing = tokio::spawn(async move {
        while let Some(reply) = outgoing.recv().await {
            let Ok(mut line) = serde_json::to_vec(&reply) else { continue };
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    });
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    while let Ok(true) = next_line(&mut reader, &mut line).await {
        let request: Request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                let failure = Failure::new(ErrorCode::ValidationError, format!("not a request: {error}"));
                let _ = replies.send(Reply { ok: Some(false), error: Some(failure), ..Reply::default() });
                continue;
            }
        };
        let Ok(place) = in_flight.clone().acquire_owned().await else { break };
        let (service, replies) = (service.clone(), replies.clone());
        let caller = Arc::new(Caller::cli(principal.clone()));
        tokio::spawn(async move {
            let _place = place;
            let id = request.id;
            let events = replies.clone();
            let sink: EventSink = Arc::new(move |event| {
                let _ = events.send(Reply { id, event: Some((*event).clone()), ..Reply::default() });
            });
            let reply = match service.call(caller, &request.method, request.params, Some(sink)).await {
                Ok(result) => Reply { id, ok: Some(true), result: Some(result), ..Reply::default() },
                Err(failure) => {
                    let error = Some(redactor().failure(failure));
                    Reply { id, ok: Some(false), error, ..Reply::default() }
                }
            };
            let _ = replies.send(reply);
        });
    }
    drop(replies);
    let _ = writing.await;
}

/// Reads one line of at most [`MAX_LINE`] bytes. False at the end of the stream or past the limit.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
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

/// The command line's end.
pub struct Client {
    reader: BufReader<tokio::net::unix::OwnedReadHalf>,
    writer: tokio::net::unix::OwnedWriteHalf,
    next_id: u64,
}

impl Client {
    /// Connects, if a living Toolyard listens there.
    pub async fn connect(path: &Path) -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::connect(path).await?.into_split();
        Ok(Self { reader: BufReader::new(reader), writer, next_id: 1 })
    }

    /// Calls a method; events go to the sink as they come.
    pub async fn call(&mut self, method: &str, params: Value, events: Option<EventSink>) -> Result<Value, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let lost = |e: &dyn std::fmt::Display| {
            Failure::new(ErrorCode::Unavailable, format!("the connection to the running Toolyard was lost: {e}"))
                .suggest("What it was doing goes on or was recorded: see `toolyard runs list`.")
        };
        let mut line = serde_json::to_vec(&Request { id, method: method.to_owned(), params }).map_err(|e| lost(&e))?;
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
                Reply { result, .. } => return Ok(result.unwrap_or_default()),
            }
        }
    }
}
