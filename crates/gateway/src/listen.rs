//! Accepts connections, gives each a slot and a task, and closes connections that do not send a request in time.

use crate::{
    admission::{
        Peer,
        connection_slots::{ConnectionSlots, SlottedSocket},
    },
    gateway::Gateway,
    http::router,
    settings::{HEADERS_WITHIN, MAX_HTTP_HEAD, TLS_WITHIN},
    tls::TlsListener,
};
use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::service::Service as _;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long the listener waits after the system could not open one more socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Worker threads of a process that serves. Two more than cores: a worker may wait for a moment, for the record's lock
/// or for room in its queue, and then another one continues. With a thousand callers on two cores this reduced the 99th
/// percentile of their calls by a quarter (`gateway-many`).
pub fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).saturating_add(2).min(16)
}

/// Serves until `stop` is cancelled and all requests have been answered.
pub async fn serve(listener: TcpListener, gateway: Gateway, stop: CancellationToken) {
    Door::of(gateway, None).run(listener, stop).await;
}

/// The same over TLS.
pub async fn serve_tls(listener: TlsListener, gateway: Gateway, stop: CancellationToken) {
    let TlsListener { listener, acceptor } = listener;
    Door::of(gateway, Some(acceptor)).run(listener, stop).await;
}

/// What every connection of a listener needs.
pub(crate) struct Door {
    router: Router,
    connection_slots: Arc<ConnectionSlots>,
    /// Their connections belong to other addresses, which they name with each request.
    trusted_proxies: Vec<IpAddr>,
    tls: Option<TlsAcceptor>,
}

impl Door {
    fn of(gateway: Gateway, tls: Option<TlsAcceptor>) -> Self {
        let trusted_proxies = gateway.settings().trusted_proxies.clone();
        Self { connection_slots: gateway.inner.connection_slots.clone(), trusted_proxies, router: router(gateway), tls }
    }

    /// A door with separate slots.
    pub(crate) fn apart(router: Router) -> Self {
        Self { router, connection_slots: ConnectionSlots::new(), trusted_proxies: Vec::new(), tls: None }
    }

    pub(crate) async fn run(self, listener: TcpListener, stop: CancellationToken) {
        let door = Arc::new(self);
        let open = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (io, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The usual cause is too many open files. Unproven sockets can be closed to free some.
                    tracing::warn!(%error, "a connection could not be accepted");
                    door.connection_slots.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let limited = !door.trusted_proxies.contains(&address.ip().to_canonical());
            // Without a slot the connection is dropped: its address has too many connections that are just as new.
            let Some(slot) = door.connection_slots.take(address.ip(), limited).await else { continue };
            let (door, stop) = (door.clone(), stop.clone());
            open.spawn(async move {
                door.welcome(io, Peer { address, is_tls: door.tls.is_some(), slot }, stop).await;
            });
        }
        open.close();
        open.wait().await;
    }

    async fn welcome(&self, io: TcpStream, peer: Peer, stop: CancellationToken) {
        // Answers are written whole, so Nagle's algorithm would only delay them.
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(peer = %peer.address, %error, "cannot turn Nagle's algorithm off");
        }
        let io = SlottedSocket::new(io, peer.slot.clone());
        let Some(acceptor) = &self.tls else { return connection(io, peer, self.router.clone(), stop).await };
        if let Ok(Ok(io)) = tokio::time::timeout(TLS_WITHIN, acceptor.accept(io)).await {
            connection(io, peer, self.router.clone(), stop).await;
        }
    }
}

/// One connection, until it is closed or has become a WebSocket.
async fn connection<S>(io: S, peer: Peer, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    let service = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        service.call(request)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(MAX_HTTP_HEAD)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %address, %error, "an HTTP connection ended early");
    }
}
