//! The socket of a bridge plugin: reads, writes and handles timers concurrently until one of them ends.

use crate::{
    admission::{Admitted, connection_slots::ConnectionSlot},
    gateway::Gateway,
    settings::{MAX_UNPROVEN_CONTROL_FRAMES, WRITE_STALL},
    ws::{connection::hang_up, control_frames::ControlFrames, tracked_stream::TrackedStream, upgrade},
};
use axum::{http::StatusCode, response::Response};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{Error, Message, WebSocketStream};
use toolyard_bridge::{
    frames::{HELLO_WITHIN_MS, MAX_FRAME_BYTES, MAX_HELLO_BYTES, close},
    server::ConnectionId,
};
use toolyard_service::{BridgeOut, BridgeOutgoing};

/// How often the hub receives the time.
const TICK: Duration = Duration::from_secs(1);
/// The first frame must have come within this time.
const HELLO_WITHIN: Duration = Duration::from_millis(HELLO_WITHIN_MS);

/// Answers a request for the bridge's WebSocket.
pub(crate) fn accept(gateway: &Gateway, request: Admitted) -> Response {
    let own = gateway.clone();
    upgrade::open(gateway, request, MAX_HELLO_BYTES, move |socket, origin, slot| async move {
        if !origin.browser_allowed || own.inner.auth_failures.locked(&origin).is_some() {
            return hang_up(socket, 1008, "not allowed").await;
        }
        if serve(socket, own.clone(), slot).await == Some(close::BAD_TOKEN) {
            own.inner.auth_failures.wrong(&origin);
        }
    })
}

/// The refusal of a request that is not a WebSocket upgrade.
pub(crate) fn not_a_socket() -> (StatusCode, &'static str) {
    (StatusCode::UPGRADE_REQUIRED, "the bridge speaks WebSocket")
}

/// Serves a connection. Returns the close code if the gateway closed it.
async fn serve<S>(
    mut socket: WebSocketStream<TrackedStream<S>>,
    gateway: Gateway,
    slot: Arc<ConnectionSlot>,
) -> Option<u16>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (id, mut outgoing) = gateway.hub().bridge_connected();
    // Long frames are accepted after the plugin has presented its session's secret. A plugin whose hello was refused
    // receives the reason in the close frame.
    let hello = tokio::time::timeout(HELLO_WITHIN, hello(&mut socket, &gateway, id)).await.unwrap_or(Hello::Open);
    if gateway.hub().bridge_is_bound(id) && slot.prove_socket().is_ok() {
        socket.limits_mut().set_max_payload_len(Some(MAX_FRAME_BYTES));
    }
    drop(slot);
    let (mut sink, mut stream) = socket.split();
    let ended = if let Hello::Ended(ended) = hello {
        ended
    } else {
        let reading = Box::pin(read(&mut stream, &gateway, id));
        let writing = Box::pin(write(&mut sink, &mut outgoing, &gateway, id));
        let ticking = async {
            let mut every = tokio::time::interval(TICK);
            loop {
                every.tick().await;
                gateway.hub().bridge_tick(id);
            }
        };
        tokio::select! {
            ended = reading => ended,
            ended = writing => ended,
            () = ticking => None,
            () = gateway.stop().cancelled() => Some((close::GOING_AWAY, "Toolyard is stopping")),
        }
    };
    gateway.hub().bridge_disconnected(id);
    let Ok(socket) = sink.reunite(stream) else { return None };
    match ended {
        Some((code, reason)) => {
            hang_up(socket, code, reason).await;
            Some(code)
        }
        None => None,
    }
}

type End = Option<(u16, &'static str)>;

/// The result of waiting for the first frame.
enum Hello {
    /// A frame arrived, or none in time; the hub decides what follows.
    Open,
    /// The connection ended.
    Ended(End),
}

/// Waits for the first frame, which must be short.
async fn hello(
    stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
    gateway: &Gateway,
    id: ConnectionId,
) -> Hello {
    let mut control_frames = 0;
    loop {
        match stream.next().await {
            Some(Ok(message)) => {
                if let Some(text) = message.as_text() {
                    gateway.hub().bring_bridge(text).await;
                    gateway.hub().bridge_text(id, text);
                    return Hello::Open;
                }
                // The answer to each ping is queued inside the socket, however slowly the peer reads.
                control_frames += 1;
                if message.is_close() || control_frames > MAX_UNPROVEN_CONTROL_FRAMES {
                    return Hello::Ended(None);
                }
            }
            Some(Err(Error::PayloadTooLong { .. })) => {
                return Hello::Ended(Some((close::TOO_BIG, "the frame is too big")));
            }
            Some(Err(_)) | None => return Hello::Ended(None),
        }
    }
}

async fn read(
    stream: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
    gateway: &Gateway,
    id: ConnectionId,
) -> End {
    let mut control_frames = ControlFrames::new();
    loop {
        match stream.next().await {
            Some(Ok(message)) => {
                if let Some(text) = message.as_text() {
                    gateway.hub().bridge_text(id, text);
                } else if message.is_close() || !control_frames.take() {
                    return None;
                }
            }
            Some(Err(Error::PayloadTooLong { .. })) => return Some((close::TOO_BIG, "the frame is too big")),
            Some(Err(_)) | None => return None,
        }
    }
}

async fn write(
    sink: &mut (impl Sink<Message, Error = Error> + Unpin),
    outgoing: &mut BridgeOutgoing,
    gateway: &Gateway,
    id: ConnectionId,
) -> End {
    while let Some(first) = outgoing.receiver.recv().await {
        let (mut bytes, mut receipts) = (0, Vec::new());
        let mut next = Some(first);
        // All waiting frames are written together, with one flush.
        while let Some(out) = next {
            match out {
                BridgeOut::Close(code, reason) => {
                    // The connection ends here; a failed write to a closed peer does not matter.
                    drop(tokio::time::timeout(TICK, sink.flush()).await);
                    return Some((code, reason));
                }
                BridgeOut::Frame { text, receipt } => {
                    bytes += text.len();
                    receipts.extend(receipt);
                    match tokio::time::timeout(WRITE_STALL, sink.feed(Message::text(text))).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return None,
                        Err(_) => return Some((close::SLOW, "the plugin does not read")),
                    }
                }
            }
            next = outgoing.receiver.try_recv().ok();
        }
        match tokio::time::timeout(WRITE_STALL, sink.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return None,
            Err(_) => return Some((close::SLOW, "the plugin does not read")),
        }
        outgoing.written(bytes);
        for receipt in receipts {
            gateway.hub().bridge_written(id, &receipt);
        }
    }
    None
}
