//! The connection from the Claude Code plugin to its bridge: a WebSocket behind two channels.

use crate::wire;
use futures_util::{SinkExt, StreamExt};
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio_websockets::{ClientBuilder, Limits, Message, WebSocketStream};
use toolyard_bridge::{
    frames::MAX_FRAME_BYTES,
    plugin::drive::{Connection, Dial, Incoming},
    server::BoxFuture,
};
use toolyard_protocol::Failure;

/// Capacity of the queue of received frames; when it is full, the socket is not read.
const MAX_UNSEEN: usize = 256;

/// Connects to a bridge.
pub struct BridgeConnector {
    /// The URL, `ws://HOST:PORT/bridge` or `wss://…`.
    pub url: String,
    /// A PEM file with a certificate that is trusted in addition to the system's trust store.
    pub ca_file: Option<PathBuf>,
}

impl Dial for BridgeConnector {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async move {
            let socket = self.open().await.map_err(|failure| failure.message)?;
            let (outgoing, to_send) = mpsc::unbounded_channel();
            let (heard, incoming) = mpsc::channel(MAX_UNSEEN);
            tokio::spawn(pump(socket, to_send, heard));
            Ok(Connection { outgoing, incoming })
        })
    }
}

impl BridgeConnector {
    async fn open(&self) -> Result<WebSocketStream<Box<dyn wire::Wire>>, Failure> {
        let uri = wire::read_uri(&self.url)?;
        let stream = wire::UrlTarget::read(&self.url, &uri)?.connect(self.ca_file.as_deref()).await?;
        // A message of the server with its tools may exceed the limit for a plugin's own frames.
        let limits = Limits::default().max_payload_len(Some(2 * MAX_FRAME_BYTES));
        let (socket, _) = ClientBuilder::from_uri(uri)
            .limits(limits)
            .connect_on(stream)
            .await
            .map_err(|e| crate::gateway::lost(&e))?;
        Ok(socket)
    }
}

/// Transfers frames in both directions until either side is gone. Dropping the connection closes the socket.
async fn pump(
    socket: WebSocketStream<Box<dyn wire::Wire>>,
    mut to_send: mpsc::UnboundedReceiver<String>,
    heard: mpsc::Sender<Incoming>,
) {
    let (mut sink, mut stream) = socket.split();
    let writing = async {
        while let Some(text) = to_send.recv().await {
            if sink.send(Message::text(text)).await.is_err() {
                // The reading side reports the error.
                std::future::pending::<()>().await;
            }
        }
        if let Err(error) = sink.close().await {
            tracing::debug!(%error, "the bridge closed the connection first");
        }
    };
    let reading = async {
        loop {
            let next = match stream.next().await {
                Some(Ok(message)) => match (message.as_text(), message.as_close()) {
                    (Some(text), _) => Incoming::Text(text.to_owned()),
                    (None, Some((code, reason))) => {
                        Incoming::Closed { code: Some(u16::from(code)), reason: reason.to_owned() }
                    }
                    (None, None) => continue,
                },
                Some(Err(error)) => Incoming::Closed { code: None, reason: error.to_string() },
                None => Incoming::Closed { code: None, reason: "the connection ended".to_owned() },
            };
            let is_end = matches!(next, Incoming::Closed { .. });
            if heard.send(next).await.is_err() || is_end {
                return;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
}
