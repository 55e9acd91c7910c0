//! The bucket's HTTP client is the one that the rest of the program uses. The client that `object_store` brings also speaks
//! HTTP/2, which no bucket needs.

use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::{
    ClientConfigKey, ClientOptions, Error,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use reqwest::{Body, Certificate, Client, NoProxy, Proxy, Request};
use std::{error::Error as _, io::ErrorKind, time::Duration};

/// How this program names itself to a bucket.
const USER_AGENT: &str = concat!("toolyard/", env!("CARGO_PKG_VERSION"));

/// Makes clients with what the environment says about proxies and certificates (`AWS_PROXY_URL`, `AWS_PROXY_EXCLUDES`,
/// `AWS_PROXY_CA_CERTIFICATE`, `AWS_ALLOW_INVALID_CERTIFICATES`), and with the time limits of the bucket.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client =
            client(options).map_err(|error| Error::Generic { store: "S3", source: Box::new(error.without_url()) })?;
        Ok(HttpClient::new(Service(client)))
    }
}

fn client(options: &ClientOptions) -> Result<Client, reqwest::Error> {
    let text = |key| options.get_config_value(&key);
    let is_set = |key| text(key).is_some_and(|value| value == "true" || value == "1");
    let mut builder = Client::builder()
        .user_agent(text(ClientConfigKey::UserAgent).unwrap_or_else(|| USER_AGENT.to_owned()))
        .https_only(!is_set(ClientConfigKey::AllowHttp))
        .danger_accept_invalid_certs(is_set(ClientConfigKey::AllowInvalidCertificates));
    if let Some(within) = text(ClientConfigKey::Timeout).as_deref().and_then(seconds) {
        builder = builder.timeout(within);
    }
    if let Some(within) = text(ClientConfigKey::ConnectTimeout).as_deref().and_then(seconds) {
        builder = builder.connect_timeout(within);
    }
    if let Some(address) = text(ClientConfigKey::ProxyUrl) {
        let excludes = text(ClientConfigKey::ProxyExcludes).and_then(|hosts| NoProxy::from_string(&hosts));
        builder = builder.proxy(Proxy::all(address)?.no_proxy(excludes));
        if let Some(pem) = text(ClientConfigKey::ProxyCaCertificate) {
            builder = builder.tls_certs_merge([Certificate::from_pem(pem.as_bytes())?]);
        }
    }
    builder.build()
}

/// A time limit as the bucket sets it (`5 seconds`), or as `object_store` writes its own (`1s`).
fn seconds(text: &str) -> Option<Duration> {
    let digits = text.strip_suffix(" seconds").or_else(|| text.strip_suffix('s'))?;
    digits.parse().ok().map(Duration::from_secs)
}

#[derive(Debug)]
struct Service(Client);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url =
            parts.uri.to_string().parse().map_err(|error| HttpError::new(HttpErrorKind::Request, NoUrl(error)))?;
        let mut request = Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(Body::wrap(body));
        let response: http::Response<Body> = self.0.execute(request).await.map_err(failed)?.into();
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(failed))))
    }
}

/// The address of a request that is no URL.
#[derive(Debug, thiserror::Error)]
#[error("the address of a request cannot be read: {0}")]
struct NoUrl(url::ParseError);

/// An error with its kind, which decides whether the request is sent again. The address is left out: it may be signed.
fn failed(error: reqwest::Error) -> HttpError {
    let kind = match () {
        () if error.is_timeout() => HttpErrorKind::Timeout,
        () if error.is_connect() => HttpErrorKind::Connect,
        () if error.is_decode() => HttpErrorKind::Decode,
        () => interruption(&error).unwrap_or(HttpErrorKind::Unknown),
    };
    HttpError::new(kind, error.without_url())
}

/// Whether a connection ended before the answer did.
fn interruption(error: &reqwest::Error) -> Option<HttpErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && (error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted())
        {
            return Some(HttpErrorKind::Request);
        }
        match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(ErrorKind::TimedOut) => return Some(HttpErrorKind::Timeout),
            Some(
                ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof,
            ) => return Some(HttpErrorKind::Interrupted),
            _ => source = error.source(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    /// Answers requests on a free port, one connection each, and hands each request's text back.
    fn server(answers: Vec<&'static str>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serve = move |answer: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = Vec::new();
            let mut part = [0; 1024];
            let is_whole = |text: &[u8]| {
                let text = String::from_utf8_lossy(text);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                let length =
                    head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                body.len() >= length.unwrap_or(0)
            };
            while !is_whole(&text) {
                let read = stream.read(&mut part).unwrap();
                assert_ne!(read, 0, "the request ended early: {}", String::from_utf8_lossy(&text));
                text.extend_from_slice(&part[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(text).unwrap()
        };
        (address, std::thread::spawn(move || answers.into_iter().map(serve).collect()))
    }

    fn service(options: ClientOptions, address: &str) -> (HttpClient, HttpRequest) {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let request = http::Request::put(format!("{address}/bucket/key")).header("x-own", "1");
        let body = object_store::PutPayload::from_static(b"twelve bytes");
        (Connector.connect(&options).unwrap(), request.body(body.into()).unwrap())
    }

    #[tokio::test]
    async fn a_request_arrives_with_its_length_and_its_answer_comes_back() {
        let (address, served) =
            server(vec!["HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\nconnection: close\r\n\r\nnone"]);
        let (client, request) = service(ClientOptions::new().with_allow_http(true), &address);
        let answer = client.execute(request).await.unwrap();
        assert_eq!(answer.status(), 404);
        assert_eq!(answer.into_body().bytes().await.unwrap(), "none");
        let sent = served.join().unwrap().remove(0).to_lowercase();
        assert!(sent.starts_with("put /bucket/key http/1.1\r\n"), "{sent}");
        assert!(sent.contains("content-length: 12\r\n") && sent.contains("x-own: 1\r\n"), "{sent}");
        assert!(sent.contains("user-agent: toolyard/") && sent.ends_with("\r\n\r\ntwelve bytes"), "{sent}");
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_a_failure_that_may_be_tried_again() {
        let (address, served) = server(vec!["HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\nhalf"]);
        let (client, request) = service(ClientOptions::new().with_allow_http(true), &address);
        let body = client.execute(request).await.unwrap().into_body();
        served.join().unwrap();
        let error = body.bytes().await.unwrap_err();
        assert!(matches!(error.kind(), HttpErrorKind::Request | HttpErrorKind::Interrupted), "{error:?}");
    }

    #[tokio::test]
    async fn plain_http_is_refused_unless_it_is_allowed() {
        let (client, request) = service(ClientOptions::new(), "http://127.0.0.1:9");
        let error = client.execute(request).await.unwrap_err();
        assert!(!matches!(error.kind(), HttpErrorKind::Connect | HttpErrorKind::Timeout), "{error:?}");
        assert!(!format!("{error:?}").contains("127.0.0.1"), "an address can be signed: {error:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_a_failure_to_connect() {
        let address = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let (client, request) = service(ClientOptions::new().with_allow_http(true), &address);
        assert_eq!(client.execute(request).await.unwrap_err().kind(), HttpErrorKind::Connect);
    }

    #[test]
    fn time_limits_are_read_as_they_are_written() {
        assert_eq!(seconds("120 seconds"), Some(Duration::from_secs(120)));
        // What `object_store` wants for the address that tells a machine its identity.
        let options = ClientOptions::new().with_connect_timeout(Duration::from_secs(1));
        let text = options.get_config_value(&ClientConfigKey::ConnectTimeout).unwrap();
        assert_eq!(seconds(&text), Some(Duration::from_secs(1)), "{text}");
        assert_eq!(seconds("soon"), None);
    }
}
