//! Requests without a credential to the real binary: at every mount, their bodies are refused unread and use no memory.

use crate::harness::{Place, Server};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

const TOKEN: &str = "test-token-of-16-chars";
/// A refusal that takes longer than this has waited for the body.
const PATIENCE: Duration = Duration::from_secs(5);

fn connect(server: &Server) -> TcpStream {
    let address = server.ready["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The status line of the answer to a head whose body is declared and never sent.
fn status_without_body(server: &Server, line: &str, headers: &str) -> String {
    let mut stream = connect(server);
    write!(stream, "{line} HTTP/1.1\r\n{headers}Content-Length: 60000000\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(ended.is_ok(), "{line}: {ended:?} after {answer:?}");
    answer.lines().next().unwrap_or_default().to_owned()
}

fn resident_kilobytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn every_door_refuses_strangers_before_it_reads_a_body() {
    let place = Place::new();
    let server = place.up();
    let here = "Host: localhost\r\n";
    for line in ["GET /openviking/health", "GET /openviking/ready", "GET /health", "GET /ready"] {
        let status = status_without_body(&server, line, here);
        assert_eq!(status, "HTTP/1.1 413 Payload Too Large", "{line}: an open path takes no body");
        let foreign = status_without_body(&server, line, "Host: evil.example\r\n");
        assert_eq!(foreign, "HTTP/1.1 403 Forbidden", "{line}");
        let page = status_without_body(&server, line, "Host: localhost\r\nOrigin: https://evil.example\r\n");
        assert_eq!(page, "HTTP/1.1 403 Forbidden", "{line}");
    }
    for line in [
        "POST /mcp",
        "POST /openviking/api/v1/search/find",
        "POST /api/v1/resources/temp_upload",
        "POST /api/openviking/x",
        "POST /tools/invoke",
        "POST /bridge/inbound",
    ] {
        let status = status_without_body(&server, line, here);
        assert_eq!(status, "HTTP/1.1 401 Unauthorized", "{line}");
        let bearer = format!("Host: evil.example\r\nAuthorization: Bearer {TOKEN}\r\n");
        assert_eq!(status_without_body(&server, line, &bearer), "HTTP/1.1 403 Forbidden", "{line}");
    }
    let key = format!("Host: localhost\r\nX-API-Key: {TOKEN}\r\n");
    let mut uploading = connect(&server);
    write!(uploading, "POST /mcp HTTP/1.1\r\n{key}Content-Length: 2\r\n\r\n{{}}").unwrap();
    let mut answer = [0; 12];
    uploading.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401", "only the context store takes the credential as a key");
    server.stop();
}

#[test]
fn bodies_of_strangers_cost_no_memory() {
    const CONNECTIONS: usize = 20;
    const SENT: usize = 8 << 20;
    let place = Place::new();
    let server = place.up();
    assert_eq!(server.get("/openviking/health").0, 200);
    let before = resident_kilobytes(&server);
    let mut held = Vec::new();
    for n in 0..CONNECTIONS {
        let mut stream = connect(&server);
        let line = ["GET /openviking/health", "POST /mcp"][n % 2];
        write!(stream, "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n").unwrap();
        let (piece, mut sent) = ([b'x'; 64 << 10], 0);
        while sent < SENT {
            match stream.write(&piece) {
                Ok(more) => sent += more,
                // Closed: that is what is wanted.
                Err(error) => {
                    assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                    break;
                }
            }
        }
        held.push(stream);
    }
    let more = resident_kilobytes(&server).saturating_sub(before);
    assert!(more < 64 << 10, "{more} KiB more for {CONNECTIONS} strangers");
    assert_eq!(server.get("/health").0, 200);
    server.stop();
}
