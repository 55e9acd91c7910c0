//! A receiver of messages on loopback: keeps what it was sent, and answers as it is told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)).is_some();
        self.head.lines().find(|own| line(own)).and_then(|own| own.split_once(": ")).map(|(_, value)| value.trim())
    }
}

/// Listens until it is dropped.
pub(crate) struct Receiver {
    pub(crate) address: String,
    statuses: Arc<Mutex<VecDeque<u16>>>,
    requests: mpsc::UnboundedReceiver<Received>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let statuses: Arc<Mutex<VecDeque<u16>>> = Arc::default();
        let (sender, requests) = mpsc::unbounded_channel();
        let answers = statuses.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, sender.clone(), answers.clone()));
            }
        });
        Self { address, statuses, requests, task }
    }

    /// The next requests get these statuses, later ones 200.
    pub(crate) fn answer_with(&self, statuses: &[u16]) {
        self.statuses.lock().unwrap().extend(statuses);
    }

    pub(crate) async fn next(&mut self) -> Received {
        self.requests.recv().await.unwrap()
    }

    /// What came and was not looked at.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

async fn answer(mut stream: TcpStream, sender: mpsc::UnboundedSender<Received>, statuses: Arc<Mutex<VecDeque<u16>>>) {
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 4096];
    let (head, mut body) = loop {
        let read = stream.read(&mut chunk).await.unwrap();
        if read == 0 {
            return;
        }
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            break (String::from_utf8(bytes).unwrap(), body);
        }
    };
    let mut received = Received { head, body: Vec::new() };
    let length: usize = received.header("content-length").unwrap_or("0").parse().unwrap();
    while body.len() < length {
        let read = stream.read(&mut chunk).await.unwrap();
        body.extend_from_slice(&chunk[..read]);
    }
    received.body = body;
    let status = statuses.lock().unwrap().pop_front().unwrap_or(200);
    sender.send(received).unwrap();
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
}
