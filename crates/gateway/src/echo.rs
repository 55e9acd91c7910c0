//! A WebSocket that echoes messages: the Gateway's sockets without the RPC, for RFC 6455 test suites. Used by tests
//! only.

use crate::{
    listen,
    settings::MAX_PAYLOAD_BYTES,
    ws::{connection, upgrade},
};
use axum::{Router, extract::Request, http::StatusCode, response::IntoResponse};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves until `stop` is cancelled.
pub async fn serve(listener: TcpListener, stop: CancellationToken) {
    let router = Router::new().fallback(|mut request: Request| async move {
        if !upgrade::is_wanted(request.method(), request.headers()) {
            return StatusCode::NOT_FOUND.into_response();
        }
        let (response, upgrade) = match upgrade::shake_hands(&mut request) {
            Ok(agreed) => agreed,
            Err(refused) => return refused,
        };
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                let mut socket = upgrade::socket(upgraded, MAX_PAYLOAD_BYTES);
                while let Some(Ok(message)) = socket.next().await {
                    if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                        break;
                    }
                }
                connection::drain(socket).await;
            }
        });
        response
    });
    listen::Door::apart(router).run(listener, stop).await;
}
