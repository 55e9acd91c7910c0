//! TLS for the network door, with rustls. A handshake runs in the connection's own task and uses its address's slot.

use std::{path::Path, sync::Arc};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

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

/// A listener behind a certificate.
pub struct TlsListener {
    pub(crate) listener: TcpListener,
    pub(crate) acceptor: TlsAcceptor,
}

impl TlsListener {
    /// Connections of this listener begin with a TLS handshake.
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        Self { listener, acceptor }
    }
}
