//! Connections to a gateway: plain, or TLS with the system's trust store and, if given, an additional certificate.

use std::{path::Path, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
            verify_server_name,
        },
        crypto::ring,
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
        server::ParsedCertificate,
    },
};
use toolyard_protocol::{ErrorCode, Failure};

/// A bidirectional byte stream.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// The target of a URL.
pub(crate) struct UrlTarget {
    is_tls: bool,
    host: String,
    port: u16,
}

fn unusable(url: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::UsageError, format!("--url {url:?} cannot be used: {why}"))
        .suggest("Write it as ws://127.0.0.1:18789 or wss://HOST:PORT.")
}

impl UrlTarget {
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
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PinnedOrTrusted::new(authority)?))
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

/// Accepts certificates signed by the system's certificate authorities or by those of `--ca-file`, and a server
/// certificate that is itself in `--ca-file`.
///
/// Most programs create self-signed certificates that are marked as a certificate authority, and a certificate
/// authority is not accepted as a server certificate. The exact certificate that the user named is the exception; its
/// validity period and host names are still checked.
#[derive(Debug)]
struct PinnedOrTrusted {
    trusted: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl PinnedOrTrusted {
    fn new(authority: Option<&Path>) -> Result<Self, Failure> {
        let pinned = authority.map(certificates).transpose()?.unwrap_or_default();
        let provider = Arc::new(ring::default_provider());
        let trusted = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authority, &pinned)?), provider)
            .build()
            .map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
        Ok(Self { trusted, pinned })
    }
}

impl ServerCertVerifier for PinnedOrTrusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            Err(error) if is_authority(&error) && self.pinned.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trusted.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}

/// Whether a certificate was rejected because it is marked as a certificate authority. The validity period is checked
/// before that.
fn is_authority(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::Other(other))
        if other.to_string().contains("CaUsedAsEndEntity"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(path).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    read.map_err(|e| Failure::new(ErrorCode::UsageError, format!("--ca-file {}: {e}", path.display())))
}

/// The trusted certificate authorities: the system's, and those of `--ca-file`.
fn roots(authority: Option<&Path>, own: &[CertificateDer<'static>]) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    // System certificates that rustls cannot parse are ignored.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = authority {
        let wrong = |e: &dyn std::fmt::Display| {
            Failure::new(ErrorCode::UsageError, format!("--ca-file {}: {e}", path.display()))
        };
        for certificate in own {
            roots.add(certificate.clone()).map_err(|e| wrong(&e))?;
        }
    }
    Ok(roots)
}
