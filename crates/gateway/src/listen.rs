//! Listens: takes connections in, one task each, and gives up on those that never say what they want.

use crate::{
    http::{Peer, router},
    hub::Gateway,
    settings::{HEADERS_WITHIN, MAX_HTTP_CONNECTIONS, MAX_HTTP_HEAD},
    tls::TlsListener,
};
use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    serve::{Listener, ListenerExt},
};
use hyper::service::Service as _;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Worker threads of a process that serves. Two more than cores: a worker may wait for a moment, for the record's lock or
/// for room in its queue, and then another one goes on. With a thousand callers on two cores that took a quarter off the
/// slowest hundredth of their calls (`gateway-many`).
pub fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).saturating_add(2).min(16)
}

/// Serves until told to stop, and until what was asked for has been answered.
pub async fn serve(listener: TcpListener, gateway: Gateway, stop: CancellationToken) {
    // An answer is written whole; waiting for more to send with it would only make it late.
    run(listener.tap_io(|stream| drop(stream.set_nodelay(true))), router(gateway), stop).await;
}

/// The same over TLS.
pub async fn serve_tls(listener: TlsListener, gateway: Gateway, stop: CancellationToken) {
    run(listener, router(gateway), stop).await;
}

pub(crate) async fn run<L>(mut listener: L, router: Router, stop: CancellationToken)
where
    L: Listener<Addr = SocketAddr>,
    L::Io: AsyncRead + AsyncWrite,
{
    let open = TaskTracker::new();
    let places = Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS));
    loop {
        // A place first: what waits to be accepted waits in the kernel, and takes nothing of ours.
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let (io, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (router, stop) = (router.clone(), stop.clone());
        open.spawn(async move {
            connection(io, peer, router, stop).await;
            drop(place);
        });
    }
    open.close();
    open.wait().await;
}

/// One connection, until it is closed or has become a WebSocket.
async fn connection<S>(io: S, peer: SocketAddr, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(Peer(peer)));
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
        tracing::debug!(%peer, %error, "an HTTP connection ended early");
    }
}
