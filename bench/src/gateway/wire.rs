//! A raw WebSocket client with minimal cost: frames are built once and sent repeatedly, and responses are read from a
//! buffer and parsed only as far as needed. The measurement must be dominated by the server.

use anyhow::{Context, Result, bail, ensure};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// An authenticated connection.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

/// A client frame with this payload. The masking key is zero, so that masking changes nothing.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        n @ 0..126 => frame.push(0x80 | n as u8),
        n @ 126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend((n as u16).to_be_bytes());
        }
        n => {
            frame.push(0x80 | 127);
            frame.extend((n as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// A request frame.
pub(crate) fn request(id: &str, method: &str, params: &serde_json::Value) -> Vec<u8> {
    let text = serde_json::json!({"type": "req", "id": id, "method": method, "params": params}).to_string();
    frame(TEXT, text.as_bytes())
}

impl Wire {
    /// Connects and authenticates as a backend without a device.
    pub(crate) async fn connect(address: SocketAddr, token: &str) -> Result<Self> {
        Self::connect_as(address, token, &["operator.read", "operator.write"], &[]).await
    }

    /// Connects with these scopes and capabilities.
    pub(crate) async fn connect_as(address: SocketAddr, token: &str, scopes: &[&str], caps: &[&str]) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let upgrade = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        stream.write_all(upgrade.as_bytes()).await?;
        let mut wire = Self { stream, buffer: Vec::new(), start: 0 };
        let end = loop {
            ensure!(wire.fill().await? > 0, "closed during the upgrade");
            if let Some(end) = wire.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8_lossy(&wire.buffer[..end]).into_owned();
        ensure!(head.starts_with("HTTP/1.1 101"), "the upgrade was refused: {head}");
        wire.start = end;
        let hello = request(
            "c",
            "connect",
            &serde_json::json!({
                "minProtocol": 4, "maxProtocol": 4,
                "client": {"id": "gateway-client", "version": "1", "platform": "linux", "mode": "backend"},
                "role": "operator", "scopes": scopes, "caps": caps, "auth": {"token": token},
            }),
        );
        let answer = wire.call(&hello).await?;
        ensure!(contains(answer, b"hello-ok"), "not let in: {}", String::from_utf8_lossy(answer));
        // The hello response is long and later ones are short, so the buffer is shrunk.
        wire.buffer = wire.buffer.split_off(wire.start);
        wire.buffer.shrink_to_fit();
        wire.start = 0;
        Ok(wire)
    }

    async fn fill(&mut self) -> Result<usize> {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        Ok(self.stream.read_buf(&mut self.buffer).await?)
    }

    pub(crate) async fn send(&mut self, frame: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(frame).await?)
    }

    /// Sends a request and returns the text of its response, ignoring events.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.send(request).await?;
        let (from, to) = loop {
            let (from, to) = self.next().await?;
            if self.buffer[from..to].starts_with(br#"{"type":"res""#) {
                break (from, to);
            }
        };
        Ok(&self.buffer[from..to])
    }

    /// The text of the next event.
    pub(crate) async fn event(&mut self) -> Result<&[u8]> {
        let (from, to) = self.next().await?;
        Ok(&self.buffer[from..to])
    }

    /// Position of the next text in the buffer.
    async fn next(&mut self) -> Result<(usize, usize)> {
        loop {
            if let Some((opcode, from, to)) = self.whole_frame() {
                self.start = to;
                match opcode {
                    TEXT => return Ok((from, to)),
                    PING => {
                        let pong = frame(PONG, &self.buffer[from..to]);
                        self.stream.write_all(&pong).await?;
                    }
                    CLOSE => bail!("closed: {}", String::from_utf8_lossy(&self.buffer[from..to])),
                    _ => {}
                }
                continue;
            }
            ensure!(self.fill().await? > 0, "the connection was closed");
        }
    }

    fn whole_frame(&self) -> Option<(u8, usize, usize)> {
        let bytes = &self.buffer[self.start..];
        let (first, second) = (*bytes.first()?, *bytes.get(1)?);
        let (length, head) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
            127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?), 10),
            n => (u64::from(n), 2),
        };
        let to = head + usize::try_from(length).ok()?;
        (bytes.len() >= to).then_some((first & 0x0f, self.start + head, self.start + to))
    }
}

/// Whether the bytes contain `wanted`.
pub(crate) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Sends a call and checks that it succeeded.
pub(crate) async fn echo(wire: &mut Wire, request: &[u8]) -> Result<()> {
    let answer = wire.call(request).await.context("no answer")?;
    // The payload's `ok` comes right after the frame's.
    let good = answer.len() > 60 && contains(&answer[..answer.len().min(90)], br#""payload":{"ok":true"#);
    ensure!(good, "an echo failed: {}", String::from_utf8_lossy(answer));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_length_they_say() {
        assert_eq!(frame(TEXT, b"hi"), [0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
        assert_eq!(frame(TEXT, &[0; 200])[1..4], [0x80 | 126, 0, 200]);
        assert_eq!(frame(TEXT, &[0; 70_000])[1], 0x80 | 127);
    }
}
