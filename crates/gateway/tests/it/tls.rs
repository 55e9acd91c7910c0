//! TLS: the same door behind a certificate, and files that cannot be used.

use crate::harness::{Server, TOKEN};
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName},
    },
};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolyard_gateway::{listen, tls};

/// A gateway behind a certificate of its own, until it is dropped.
struct Door {
    address: SocketAddr,
    certificate: PathBuf,
    der: CertificateDer<'static>,
    _files: tempfile::TempDir,
    _server: Server,
    _stop: DropGuard,
}

impl Door {
    async fn open() -> Self {
        Self::open_with(rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap()).await
    }

    async fn open_with(params: rcgen::CertificateParams) -> Self {
        let files = tempfile::tempdir().unwrap();
        let signing_key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&signing_key).unwrap();
        let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
        std::fs::write(&certificate, made.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        let acceptor = tls::acceptor(&certificate, &key).unwrap();
        let server = Server::start().await;
        let stop = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = tls::TlsListener::new(listener, acceptor);
        tokio::spawn(listen::serve_tls(listener, server.gateway.clone(), stop.clone()));
        let der = made.der().clone();
        Self { address, certificate, der, _files: files, _server: server, _stop: stop.drop_guard() }
    }
}

#[toolyard_shows::shows("003-1-04")]
#[tokio::test]
async fn the_door_opens_behind_a_certificate_and_plain_text_gets_nowhere() {
    let door = Door::open().await;
    // A client that sends nothing does not block others.
    let silent = TcpStream::connect(door.address).await.unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(door.der.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(door.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    assert!(String::from_utf8_lossy(&text).starts_with("HTTP/1.1 200"));

    let mut plain = TcpStream::connect(door.address).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    let _ = plain.read_to_end(&mut text).await;
    assert!(!String::from_utf8_lossy(&text).contains("200 OK"));
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_handshakes_shut_nobody_out() {
    use toolyard_client::{Client, Connect, Credential};
    let door = Door::open().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(door.address).await.unwrap());
    }
    let connect = Connect {
        url: format!("wss://localhost:{}", door.address.port()),
        ca_file: Some(door.certificate.clone()),
        credential: Credential::Shared(TOKEN.to_owned()),
        identity: None,
        scopes: vec!["operator.read".to_owned()],
        mode: "backend".to_owned(),
        // Well below the time that a half handshake may take.
        timeout: std::time::Duration::from_secs(5),
    };
    let mut client = Client::connect(&connect).await.unwrap();
    assert_eq!(client.call("health", serde_json::json!({})).await.unwrap()["ok"], true);
    drop(silent);
}

/// What `openssl req -x509` makes: a certificate that signed itself and says that it is an authority.
#[tokio::test]
async fn a_self_signed_certificate_of_an_authority_is_accepted_where_it_is_the_one_that_was_named() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa};
    use toolyard_client::{Client, Connect, Credential};
    let authority = |name: &str| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let connect = |door: &Door, named: &Door| Connect {
        url: format!("wss://localhost:{}", door.address.port()),
        ca_file: Some(named.certificate.clone()),
        credential: Credential::Shared(TOKEN.to_owned()),
        identity: None,
        scopes: vec!["operator.read".to_owned()],
        mode: "cli".to_owned(),
        timeout: std::time::Duration::from_secs(20),
    };
    let door = Door::open_with(authority("localhost")).await;
    let mut client = Client::connect(&connect(&door, &door)).await.unwrap();
    assert_eq!(client.call("health", serde_json::json!({})).await.unwrap()["ok"], true);
    let other = Door::open_with(authority("localhost")).await;
    assert!(Client::connect(&connect(&door, &other)).await.is_err(), "another certificate was named");
    let elsewhere = Door::open_with(authority("elsewhere.example")).await;
    assert!(Client::connect(&connect(&elsewhere, &elsewhere)).await.is_err(), "it is made for another name");
    let mut params = authority("localhost");
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    let expired = Door::open_with(params).await;
    assert!(Client::connect(&connect(&expired, &expired)).await.is_err(), "its time is over");
}

#[tokio::test]
async fn our_own_client_signs_and_comes_in_through_tls() {
    use toolyard_client::{Client, Connect, Credential, Identity};
    let door = Door::open().await;
    let mut connect = Connect {
        url: format!("wss://localhost:{}", door.address.port()),
        ca_file: Some(door.certificate.clone()),
        credential: Credential::Shared(TOKEN.to_owned()),
        identity: Some(Identity::new(&[9; 32])),
        scopes: vec!["operator.read".to_owned()],
        mode: "cli".to_owned(),
        timeout: std::time::Duration::from_secs(20),
    };
    let mut client = Client::connect(&connect).await.unwrap();
    assert_eq!(client.call("health", serde_json::json!({})).await.unwrap()["ok"], true);
    let token = client.hello.auth.device_token.clone().unwrap();
    client.close().await;
    // From now on the device's own token is enough.
    connect.credential = Credential::Device(token);
    assert_eq!(Client::connect(&connect).await.unwrap().hello.auth.method, "device-token");
    connect.identity = Some(Identity::new(&[8; 32]));
    let refused = Client::connect(&connect).await.err().unwrap();
    assert_eq!(refused.details.unwrap()["code"], "AUTH_DEVICE_TOKEN_MISMATCH", "it is no other device's");
    connect.ca_file = None;
    let strange = Client::connect(&connect).await.err().unwrap();
    assert!(strange.suggestion.unwrap().contains("--ca-file"), "a certificate nobody vouches for");
    connect.url = "http://localhost".to_owned();
    assert!(Client::connect(&connect).await.err().unwrap().message.contains("ws://"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    assert!(tls::acceptor(&cert, &key).err().unwrap().contains("cert.pem"));
    std::fs::write(&cert, "nothing").unwrap();
    assert!(tls::acceptor(&cert, &key).err().unwrap().contains("no certificate"));
}
