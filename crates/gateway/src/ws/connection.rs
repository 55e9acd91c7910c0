//! One connection in one task: the handshake, then concurrent reading and writing until either ends.
//!
//! Requests run in separate tasks and answer through the connection's queue, so that a slow request does not delay
//! others and work continues when the client disconnects.

use super::{
    control_frames::ControlFrames,
    frame::{self, BadFrame},
    handshake, trace,
    tracked_stream::TrackedStream,
};
use crate::{
    admission::connection_slots::ConnectionSlot,
    auth::Origin,
    console,
    gateway::Gateway,
    request_slots::{Permit, QueuedSlot, RequestGroup, RequestSlot},
    rpc,
    settings::{
        HANDSHAKE_TIMEOUT, MAX_EXPRESS_PER_CONNECTION, MAX_PAYLOAD_BYTES, MAX_REQUESTS_PER_CONNECTION,
        MAX_UNPROVEN_CONTROL_FRAMES, WRITE_STALL,
    },
};
use futures_util::{FutureExt, Sink, SinkExt, Stream, StreamExt};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_websockets::{CloseCode, Error, Message, WebSocketStream};
use toolyard_service::{
    Lane, RpcError,
    hub::{Connection, EventBody, OutboxItem, Outgoing},
};
use tracing::Instrument;

/// The longest reason a close frame can carry.
const MAX_REASON: usize = 123;
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long a client may continue to send after the gateway closed the connection.
const DRAIN: Duration = Duration::from_secs(10);
/// Maximum number of bytes that a client may send after the gateway closed the connection.
const MAX_DRAIN: usize = 64 << 20;
/// How many messages are read in a row before waiting frames are written.
const MAX_IN_A_ROW: u32 = 16;
/// Consecutive calls with the wrong role before the connection is closed.
const MAX_WRONG_ROLE: u32 = 10;

/// The event `connect.challenge`.
#[derive(Serialize)]
struct Challenge<'a> {
    nonce: &'a str,
    ts: i64,
    capabilities: [&'a str; 0],
}

/// A connected client and its counters.
struct Client {
    connection: Arc<Connection>,
    share: RequestGroup,
    /// Requests in flight in the ordinary and the waiting lane, and in the express lane.
    in_flight: AtomicUsize,
    express_in_flight: AtomicUsize,
}

/// Why a connection ends.
enum End {
    /// The peer has disconnected, or violated the protocol and was notified.
    Gone,
    /// The gateway closes the connection.
    Close(u16, String),
}

/// The path of a connection, which determines what its first frame must prove.
pub(crate) enum SocketPath {
    /// The WebSocket door.
    Gateway,
    /// The console's socket.
    Console(console::PendingBrowser),
}

/// Serves a connection from its first byte to its last. A handshake that is refused stays counted as unproven until its
/// socket is closed.
pub(crate) async fn serve<S>(
    mut socket: WebSocketStream<TrackedStream<S>>,
    gateway: Gateway,
    origin: Origin,
    slot: Arc<ConnectionSlot>,
    entrance: SocketPath,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stop = gateway.stop().clone();
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(HANDSHAKE_TIMEOUT, greet(&mut socket, &gateway, &origin, &slot, entrance)) => {
            greeted.unwrap_or_else(|_| Err(End::Close(1000, "handshake timeout".to_owned())))
        }
        () = stop.cancelled() => Err(End::Close(1012, "service restart".to_owned())),
    };
    drop(slot);
    let (connection, outgoing) = match greeted {
        Ok(greeted) => greeted,
        Err(End::Close(code, reason)) => {
            close(&mut socket, code, &reason).await;
            return drain(socket).await;
        }
        Err(End::Gone) => return drain(socket).await,
    };
    socket.limits_mut().set_max_payload_len(Some(MAX_PAYLOAD_BYTES));
    let (mut sink, mut stream) = socket.split();
    let end = {
        let reading = Box::pin(read(&mut stream, &gateway, &connection));
        let writing = Box::pin(write(&mut sink, outgoing));
        // Reads first, so that immediate answers are written in the same turn.
        tokio::select! {
            biased;
            end = reading => end,
            end = writing => end,
            () = connection.outbox.overflow.cancelled() => {
                gateway.hub().metrics().slow_consumer();
                tracing::warn!(connection = %connection.id, "closed: the client does not read");
                End::Close(1008, "slow consumer".to_owned())
            }
            () = connection.stop.cancelled() => End::Close(1001, "going away".to_owned()),
        }
    };
    gateway.hub().dismiss(&connection);
    let Ok(mut socket) = sink.reunite(stream) else { return };
    if let End::Close(code, reason) = end {
        close(&mut socket, code, &reason).await;
    }
    drain(socket).await;
}

/// Challenge, `connect`, `hello-ok`.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<TrackedStream<S>>,
    gateway: &Gateway,
    origin: &Origin,
    slot: &ConnectionSlot,
    entrance: SocketPath,
) -> Result<(Arc<Connection>, Outgoing), End> {
    let nonce = uuid::Uuid::new_v4().to_string();
    let challenge = Challenge { nonce: &nonce, ts: Timestamp::now().as_millisecond(), capabilities: [] };
    let challenge = frame::event(&EventBody::new("connect.challenge", &challenge), None);
    socket.send(Message::text(challenge)).await.map_err(|_| End::Gone)?;
    let mut control_frames = 0;
    let first = loop {
        match socket.next().await {
            Some(Ok(message)) if message.is_ping() || message.is_pong() => {
                // The answer to each is queued inside the socket, however slowly the peer reads.
                control_frames += 1;
                if control_frames > MAX_UNPROVEN_CONTROL_FRAMES {
                    return Err(End::Close(1008, "too many control frames before connect".to_owned()));
                }
            }
            Some(Ok(message)) if message.is_text() => break message,
            Some(Ok(message)) if message.is_binary() => {
                return Err(End::Close(1000, "the first frame must be text".to_owned()));
            }
            Some(Err(error)) => return Err(broken(&error)),
            _ => return Err(End::Gone),
        }
    };
    let request = match frame::read(first.as_payload()) {
        Ok(request) => request,
        Err(BadFrame::NotJson) => return Err(End::Close(1000, "the first frame is not JSON".to_owned())),
        Err(BadFrame::NotARequest { .. }) => return Err(End::Close(1008, "invalid request frame".to_owned())),
    };
    let id = request.id;
    let welcome = match (request.method.as_str(), entrance) {
        ("connect", SocketPath::Gateway) => {
            let welcome = handshake::connect(gateway, origin, &nonce, request.params).await;
            welcome.map(|handshake::AcceptedClient { admitted, auth }| (admitted, Some(auth)))
        }
        ("connect", SocketPath::Console(visitor)) => {
            let admitted = console::connect(gateway, origin, &nonce, visitor, request.params).await;
            admitted.map(|admitted| (admitted, None))
        }
        _ => {
            let error = RpcError::invalid("invalid handshake: first request must be connect");
            Err(handshake::Refusal { error, close: 1008 })
        }
    };
    match welcome {
        Ok((admitted, auth)) => {
            if slot.prove_socket().is_err() {
                return Err(End::Gone);
            }
            let hello = match auth {
                Some(auth) => Some(handshake::hello(gateway, &admitted, auth).await),
                None => None,
            };
            let (connection, outgoing) = gateway.hub().admit(admitted, socket.get_ref().last());
            let hello = hello.unwrap_or_else(|| console::hello(gateway, &connection));
            let hello = frame::response(&id, &hello);
            if socket.send(Message::text(hello)).await.is_err() {
                gateway.hub().dismiss(&connection);
                return Err(End::Gone);
            }
            Ok((connection, outgoing))
        }
        Err(refusal) => {
            gateway.hub().metrics().refused(refusal.code());
            let (close, message) = (refusal.close, refusal.error.message.clone());
            // A client that has disconnected does not need the reason.
            drop(socket.send(Message::text(frame::response(&id, &Err(refusal.error)))).await);
            Err(End::Close(close, message))
        }
    }
}

async fn read(
    stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
    gateway: &Gateway,
    connection: &Arc<Connection>,
) -> End {
    let (mut wrong_role, mut in_a_row, mut control_frames) = (0, 0u32, ControlFrames::new());
    let client = Arc::new(Client {
        share: RequestGroup::new(&connection.principal, &connection.id),
        in_flight: AtomicUsize::new(0),
        express_in_flight: AtomicUsize::new(0),
        connection: connection.clone(),
    });
    while let Some(message) = stream.next().await {
        // Answers are also written while a client sends many messages at once.
        in_a_row = in_a_row.wrapping_add(1);
        if in_a_row.is_multiple_of(MAX_IN_A_ROW) {
            tokio::task::yield_now().await;
        }
        let message = match message {
            Ok(message) => message,
            Err(error) => return broken(&error),
        };
        if message.is_text() || message.is_binary() {
            let bytes = message.into_payload();
            match frame::read(&bytes) {
                Ok(request) => {
                    if let Some(needed) = rpc::wrong_role(gateway, connection, &request.method) {
                        wrong_role += 1;
                        answer(connection, &request.id, &Err(needed));
                        if wrong_role > MAX_WRONG_ROLE {
                            return End::Close(1008, "repeated unauthorized calls".to_owned());
                        }
                        continue;
                    }
                    wrong_role = 0;
                    start(gateway, &client, request, bytes.len());
                }
                // As the real gateway does: a client that sends no JSON gets no answer.
                Err(BadFrame::NotJson) => {}
                Err(BadFrame::NotARequest { id, error }) => answer(connection, &id, &Err(*error)),
            }
        } else if message.is_close() {
            return End::Gone;
        } else if !control_frames.take() {
            return End::Close(1008, "too many control frames".to_owned());
        }
    }
    End::Gone
}

/// The consequence of a broken frame. The library has already notified the peer, except when a message became too long
/// in pieces; it also prevents a second notification.
fn broken(error: &Error) -> End {
    match error {
        Error::PayloadTooLong { .. } => End::Close(1009, String::new()),
        _ => End::Gone,
    }
}

/// Starts a request, or reports that there are too many. A request that can be answered at once is; any other runs in a
/// separate task.
fn start(gateway: &Gateway, client: &Arc<Client>, request: frame::Request, bytes: usize) {
    let connection = &client.connection;
    let busy = |what: &str| RpcError::busy(format!("too many requests {what}"), 500);
    let id = request.id.clone();
    let lane = gateway.service().methods().lane(&request.method);
    let Some(under_way) = RequestInFlight::begin(client, lane) else {
        return answer(connection, &id, &Err(busy("on this connection")));
    };
    let Some(slot) = gateway.slot(&client.share, lane, bytes) else {
        return answer(connection, &id, &Err(busy("are waiting to start")));
    };
    let (gateway, connection) = (gateway.clone(), connection.clone());
    let mut work = Box::pin(async move {
        let _under_way = under_way;
        let _permit = match slot {
            RequestSlot::Now(permit) => Some(permit),
            RequestSlot::Queued(slot) => turn(&gateway, &connection, &request, slot).await,
        };
        let _queued = QueuedCall { connection: &connection, id: &id };
        match request.traceparent.as_deref().and_then(trace::parse) {
            None => respond(&gateway, &connection, &id, request).await,
            Some(trace) => {
                let span = tracing::info_span!(
                    "request", method = %request.method, trace_id = %trace.trace_id, parent_id = %trace.parent_id
                );
                let responding = async {
                    respond(&gateway, &connection, &id, request).await;
                    tracing::info!("answered");
                };
                responding.instrument(span).await;
            }
        }
    });
    // Most requests never wait for anything. A task for each would cost more than they do: it wakes another thread.
    if (&mut work).now_or_never().is_none() {
        tokio::spawn(work);
    }
}

/// Removes the token of a queued call that was never started.
struct QueuedCall<'a> {
    connection: &'a Connection,
    id: &'a str,
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        self.connection.forget_queued_call(self.id);
    }
}

/// Waits for a slot. A call that is cancelled while it waits continues without a slot, to be recorded as cancelled.
async fn turn(
    gateway: &Gateway,
    connection: &Connection,
    request: &frame::Request,
    slot: QueuedSlot,
) -> Option<Permit> {
    if request.method != "tools.invoke" {
        return slot.turn().await;
    }
    let cancel = gateway.service().engine().call_token();
    connection.queue_call(&request.id, cancel.clone());
    tokio::select! {
        permit = slot.turn() => permit,
        () = cancel.cancelled() => None,
    }
}

async fn respond(gateway: &Gateway, connection: &Arc<Connection>, id: &str, request: frame::Request) {
    let began = Instant::now();
    let early = |first: Box<RawValue>| answer(connection, &id, &Ok(first));
    let answered = AssertUnwindSafe(rpc::dispatch(gateway, connection, request, &early)).catch_unwind().await;
    let (method, outcome) = answered.unwrap_or_else(|_| {
        tracing::error!("a request made its method panic");
        ("unknown", Err(RpcError::unavailable("the method failed unexpectedly")))
    });
    let word = if outcome.is_ok() { "ok" } else { "error" };
    answer(connection, &id, &outcome);
    gateway.hub().metrics().answered(method, word, began.elapsed());
}

/// Counts the requests of a connection. A connection full of hanging calls can still cancel them and answer approvals.
struct RequestInFlight {
    client: Arc<Client>,
    lane: Lane,
}

impl RequestInFlight {
    fn begin(client: &Arc<Client>, lane: Lane) -> Option<Self> {
        let under_way = Self { client: client.clone(), lane };
        let (count, most) = under_way.count();
        // Dropping it releases the slot.
        (count.fetch_add(1, Ordering::AcqRel) < most).then_some(under_way)
    }

    fn count(&self) -> (&AtomicUsize, usize) {
        match self.lane {
            Lane::Express => (&self.client.express_in_flight, MAX_EXPRESS_PER_CONNECTION),
            Lane::Ordinary | Lane::Waiting => (&self.client.in_flight, MAX_REQUESTS_PER_CONNECTION),
        }
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.count().0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Queues a response.
fn answer(connection: &Connection, id: &impl Serialize, outcome: &Result<Box<RawValue>, RpcError>) {
    connection.outbox.send(OutboxItem::Frame(frame::response(id, outcome)));
}

async fn write(sink: &mut (impl Sink<Message, Error = Error> + Unpin), mut outgoing: Outgoing) -> End {
    let mut seq = 0;
    while let Some(first) = outgoing.receiver.recv().await {
        let mut weight = 0;
        let mut next = Some(first);
        // All waiting frames are written together, with one flush.
        while let Some(out) = next {
            weight += out.weight();
            let message = match out {
                OutboxItem::Frame(text) => Message::text(text),
                OutboxItem::Event(body) => {
                    seq += 1;
                    Message::text(frame::event(&body, Some(seq)))
                }
                OutboxItem::Ping => Message::ping(""),
                OutboxItem::Close(code, reason) => {
                    // The connection ends here; a failed write to a closed peer does not matter.
                    drop(tokio::time::timeout(GOODBYE, sink.flush()).await);
                    return End::Close(code, reason);
                }
            };
            match tokio::time::timeout(WRITE_STALL, sink.feed(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return End::Gone,
                Err(_) => return End::Close(1008, "slow consumer".to_owned()),
            }
            next = outgoing.receiver.try_recv().ok();
        }
        match tokio::time::timeout(WRITE_STALL, sink.flush()).await {
            Ok(Ok(())) => outgoing.written(weight),
            Ok(Err(_)) => return End::Gone,
            Err(_) => return End::Close(1008, "slow consumer".to_owned()),
        }
    }
    End::Gone
}

/// Sends the close frame and gives the peer time to read it.
pub(crate) async fn hang_up<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
    code: u16,
    reason: &str,
) {
    close(&mut socket, code, reason).await;
    drain(socket).await;
}

async fn close<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, code: u16, reason: &str) {
    let mut cut = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(cut) {
        cut -= 1;
    }
    let code = CloseCode::try_from(code).unwrap_or(CloseCode::NORMAL_CLOSURE);
    let message = Message::close(Some(code), &reason[..cut]);
    let goodbye = async {
        if socket.send(message).await.is_ok() {
            // Until the peer has closed its side as well.
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    if tokio::time::timeout(GOODBYE, goodbye).await.is_err() {
        tracing::debug!("a client did not say goodbye in time");
    }
}

/// Reads what the peer still sends: closing with unread bytes would reset the connection, and the peer might never
/// see why it was closed.
pub(crate) async fn drain<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>) {
    let drained = async {
        // Writes a close frame that is still queued. The peer may disconnect at any of these steps; reading to the end
        // is correct in each case.
        drop(socket.next().await);
        drop(socket.flush().await);
        let inner = socket.get_mut();
        drop(tokio::io::AsyncWriteExt::shutdown(inner).await);
        let mut scrap = vec![0u8; 16 << 10];
        let mut read = 0;
        while let Ok(n) = inner.read(&mut scrap).await {
            read += n;
            if n == 0 || read > MAX_DRAIN {
                return;
            }
        }
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::debug!("a client kept its connection open; it is dropped");
    }
}
