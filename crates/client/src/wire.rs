//! The way to a gateway: plain, or TLS with the system's certificate authorities and, where given, one more.

use std::{path::Path, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};
use toolyard_protocol::{ErrorCode, Failure};

/// Both directions of a connection.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// Where a URL leads.
pub(crate) struct Place {
    is_tls: bool,
    host: String,
    port: u16,
}

fn unusable(url: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::UsageError, format!("--url {url:?} cannot be used: {why}"))
        .suggest("Write it as ws://127.0.0.1:18789 or wss://HOST:PORT.")
}

impl Place {
    pub(crate) fn read(url: &str, uri: &http::Uri) -> Result<Self, Failure> {
        let is_tls = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(unusable(url, &"it does not begin with ws:// or wss://")),
        };
        let host = uri.host().filter(|h| !h.is_empty()).ok_or_else(|| unusable(url, &"it names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { is_tls, host, port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }) })
    }

    pub(crate) async fn connect(&self, authority: Option<&Path>) -> Result<Box<dyn Wire>, Failure> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| crate::gateway::lost(&e))?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small frames to the gateway may be delayed");
        }
        if !self.is_tls {
            return Ok(Box::new(stream));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?
            .with_root_certificates(roots(authority)?)
            .with_no_client_auth();
        let name = ServerName::try_from(self.host.clone()).map_err(|e| unusable(&self.host, &e))?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|e| {
            crate::gateway::lost(&e)
                .suggest("Is the certificate one that this machine trusts? --ca-file names another one.")
        })?;
        Ok(Box::new(stream))
    }
}

pub(crate) fn read_uri(url: &str) -> Result<http::Uri, Failure> {
    url.parse().map_err(|e: http::uri::InvalidUri| unusable(url, &e))
}

/// Who is believed: whom the system believes, and whoever signed what the file holds.
fn roots(authority: Option<&Path>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    // What the system has and rustls cannot read is not believed.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = authority {
        let wrong = |e: &dyn std::fmt::Display| {
            Failure::new(ErrorCode::UsageError, format!("--ca-file {}: {e}", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?;
        for certificate in certificates {
            roots.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
        }
    }
    Ok(roots)
}
