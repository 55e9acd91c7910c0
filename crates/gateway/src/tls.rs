//! TLS for the network door, with rustls. Handshakes run beside one another: a slow one keeps nobody out.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    server::TlsStream,
};
use tokio_util::sync::CancellationToken;

/// A TLS handshake takes at most this long.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// TLS handshakes under way at once.
const MAX_HANDSHAKES: usize = 256;

/// Reads a certificate chain and its key, both PEM.
pub fn acceptor(cert_file: &Path, key_file: &Path) -> Result<TlsAcceptor, String> {
    let shown = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let certs: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert_file)
        .map_err(|e| shown(cert_file, &e))?
        .collect::<Result<_, _>>()
        .map_err(|e| shown(cert_file, &e))?;
    if certs.is_empty() {
        return Err(shown(cert_file, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| shown(key_file, &e))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(|e| shown(key_file, &e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A listener whose connections have their TLS handshake behind them.
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    /// Begins accepting.
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor, stop: CancellationToken) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (done, ready) = mpsc::channel(64);
        tokio::spawn(async move {
            let places = Arc::new(Semaphore::new(MAX_HANDSHAKES));
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = stop.cancelled() => return,
                };
                let (stream, peer) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                };
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let _ = stream.set_nodelay(true);
                let (acceptor, done) = (acceptor.clone(), done.clone());
                tokio::spawn(async move {
                    let _place = place;
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        let _ = done.send((stream, peer)).await;
                    }
                });
            }
        });
        Ok(Self { address, ready })
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // Stopped: whoever serves is stopping as well.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
