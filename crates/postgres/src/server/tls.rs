//! TLS to the server, with rustls.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    },
};

/// Whose certificates are believed.
#[derive(Debug, Clone)]
pub(crate) enum Trust {
    /// Anyone's: the connection is encrypted and nothing more (`sslmode=require` without a root certificate).
    Anyone,
    /// The system's trust store.
    System,
    /// The certificates in this file.
    File(PathBuf),
}

impl Trust {
    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be used: {e}"))?;
        let mut roots = RootCertStore::empty();
        match self {
            Self::Anyone => {
                let verifier = Arc::new(AnyCertificate(provider));
                return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
            }
            Self::System => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Self::File(path) => {
                let unreadable =
                    |e: &dyn std::fmt::Display| format!("sslrootcert {} cannot be read: {e}", path.display());
                let certificates = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(&e))?;
                for certificate in certificates {
                    roots.add(certificate.map_err(|e| unreadable(&e))?).map_err(|e| unreadable(&e))?;
                }
            }
        }
        if roots.is_empty() {
            return Err("there is no root certificate to verify the database's certificate with".to_owned());
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

#[derive(Clone)]
pub(crate) struct RustlsConnect(Arc<ClientConfig>);

impl RustlsConnect {
    pub(crate) fn new(trust: &Trust) -> Result<Self, String> {
        Ok(Self(Arc::new(trust.config()?)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for RustlsConnect {
    type Stream = Stream<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connect> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other);
        Ok(Connect { name, config: self.0.clone() })
    }
}

pub(crate) struct Connect {
    /// A path of a Unix socket is no name; TLS is not used there.
    name: io::Result<ServerName<'static>>,
    config: Arc<ClientConfig>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, socket: S) -> Self::Future {
        Box::pin(async move {
            let connected = TlsConnector::from(self.config).connect(self.name?, socket).await?;
            Ok(Stream(Box::new(connected)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// Accepts every certificate, and still checks that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, tokio_rustls::rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
