//! The local door: a Unix socket for the command line on the same machine, with one JSON object a line in each
//! direction. `toolyard_client::local` describes the lines, because both ends use it.
//!
//! Only the owner can enter the socket's folder, the kernel reports the user of the other process, and the first line
//! must contain the secret of the running server ([`LocalSecret`]), because plugins run as the owner too. Several
//! requests may be in flight on one connection.

use std::{path::Path, sync::Arc};
use tokio::{
    io::{AsyncWriteExt, BufReader, Interest},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;
use toolyard_client::local::{Admitted, LocalSecret, Reply, Request, next_line};
use toolyard_engine::{Caller, redact::redactor};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{
    EventSink, Method, Service, approvals::people::ApprovalsList, follow::RunsFollow, local::YardStatus,
};

/// Connections at once.
const MAX_CONNECTIONS: usize = 256;
/// Methods that wait for news and change nothing. They end with their client; every other call continues without it.
/// `approvals watch` counts as a person who can answer for as long as its request waits.
const WATCHES: [&str; 2] = [ApprovalsList::NAME, RunsFollow::NAME];
/// Maximum number of requests in flight on one connection.
const MAX_IN_FLIGHT: usize = 64;

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

/// Who may connect to a local socket.
#[derive(Clone)]
pub struct Owner {
    /// The only user whose processes may connect.
    pub uid: u32,
    /// The line that they must send first.
    pub secret: LocalSecret,
    /// The name under which their requests are recorded.
    pub principal: String,
}

impl Owner {
    /// What the process at the other end says of itself, if it is the owner's, judged by the user and by the first line. A
    /// refused process gets an error.
    pub async fn admits(&self, stream: &mut UnixStream) -> Option<Admitted> {
        if stream.peer_cred().map(|c| c.uid()).ok() != Some(self.uid) {
            return None;
        }
        if let Some(admitted) = self.secret.admits(stream).await {
            return Some(admitted);
        }
        let failure = Failure::new(ErrorCode::PolicyDenied, "the first line does not hold the local socket's secret")
            .suggest("Send {\"secret\":\"...\"} first, with the text of local.secret beside the socket.");
        let reply = Reply { ok: Some(false), error: Some(failure), ..Reply::default() };
        let line = serde_json::to_string(&reply).map(|line| line + "\n");
        let sent = match line {
            Ok(line) => stream.write_all(line.as_bytes()).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a refused client of the local socket was not told the reason");
        }
        None
    }
}

/// Serves until `stop` is cancelled.
pub async fn serve(listener: UnixListener, service: Service, owner: Owner, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let mut stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the local socket could not accept");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
        let (service, owner, stop) = (service.clone(), owner.clone(), stop.clone());
        tokio::spawn(async move {
            let _slot = slot;
            let served = async {
                if let Some(Admitted { workspace }) = owner.admits(&mut stream).await {
                    connection(stream, service, owner.principal, workspace).await;
                }
            };
            tokio::select! {
                () = served => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn connection(stream: UnixStream, service: Service, principal: String, workspace: Option<String>) {
    let (reader, mut writer) = stream.into_split();
    // Replies queue without limit of number, but each request's events are bounded by the engine's own buffer.
    let (replies, mut outgoing) = mpsc::unbounded_channel::<Reply>();
    let writing = tokio::spawn(async move {
        while let Some(reply) = outgoing.recv().await {
            let mut line = match serde_json::to_vec(&reply) {
                Ok(line) => line,
                Err(error) => {
                    tracing::error!(%error, "a reply cannot be written; the connection is closed");
                    return;
                }
            };
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    });
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let client_gone = CancellationToken::new();
    while let Ok(true) = next_line(&mut reader, &mut line).await {
        let request: Request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                let failure = Failure::new(ErrorCode::ValidationError, format!("not a request: {error}"));
                if replies.send(Reply { ok: Some(false), error: Some(failure), ..Reply::default() }).is_err() {
                    break;
                }
                continue;
            }
        };
        let Ok(slot) = in_flight.clone().acquire_owned().await else { break };
        let (service, replies, client_gone) = (service.clone(), replies.clone(), client_gone.clone());
        let caller = Caller::cli(principal.clone());
        let chosen = request.workspace.or_else(|| workspace.clone());
        tokio::spawn(async move {
            let _slot = slot;
            let id = request.id;
            let events = replies.clone();
            let sink: EventSink = Arc::new(move |event| {
                // Fails after the client has disconnected; the call continues without a listener.
                drop(events.send(Reply { id, event: Some((*event).clone()), ..Reply::default() }));
            });
            let method = method_name(&request.method);
            let only_watches = WATCHES.contains(&method);
            let answered = async {
                let caller = in_workspace(&service, caller, chosen).await?;
                service.call(Arc::new(caller), method, request.params, Some(sink)).await
            };
            let answered = tokio::select! {
                answered = answered => answered,
                () = client_gone.cancelled(), if only_watches => return,
            };
            let reply = match answered {
                Ok(result) => Reply { id, ok: Some(true), result: Some(result), ..Reply::default() },
                Err(failure) => {
                    let error = Some(redactor().failure(failure));
                    Reply { id, ok: Some(false), error, ..Reply::default() }
                }
            };
            if replies.send(reply).is_err() {
                tracing::debug!(method = request.method, "the client had gone before its reply");
            }
        });
    }
    if is_hung_up(reader.get_ref()).await {
        client_gone.cancel();
    }
    drop(replies);
    if let Err(error) = writing.await {
        tracing::warn!(%error, "the writer of a local connection ended unexpectedly");
    }
}

/// The person in the workspace that they choose.
async fn in_workspace(service: &Service, caller: Caller, chosen: Option<String>) -> Result<Caller, Failure> {
    let Some(name) = chosen else { return Ok(caller) };
    let workspaces = service.workspaces().clone();
    let named = tokio::task::spawn_blocking(move || workspaces.named(&name)).await;
    let named = named.map_err(|_| Failure::new(ErrorCode::InternalError, "the store did not answer"))??;
    Ok(caller.in_workspace(named))
}

/// Whether the other end is closed in both directions. A client that has only finished sending still reads its replies.
async fn is_hung_up(reader: &OwnedReadHalf) -> bool {
    reader.as_ref().ready(Interest::WRITABLE).await.is_ok_and(|ready| ready.is_write_closed())
}

/// The name in the list of methods. At this door `status` has always meant the state of the program; over the Gateway it is
/// OpenClaw's method of that name.
fn method_name(said: &str) -> &str {
    if said == "status" { YardStatus::NAME } else { said }
}
