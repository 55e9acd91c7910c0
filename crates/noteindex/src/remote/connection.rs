//! [`Connection`]: the connection to one running index program. One task writes frames and another reads them, so a
//! cancelled caller never leaves a partially written frame.

use super::launch::{Child, RunningProgram};
use crate::{
    IndexError, IndexResult, ProgramError,
    wire::{self, Hello, LENGTH_BYTES, Part, Reply, Request},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

/// Capacity of the queue of outgoing frames; senders wait when it is full.
const OUTBOX: usize = 16;
/// How long a program may take to exit after its pipe is closed, before it is killed.
const END_WITHIN: Duration = Duration::from_secs(5);
/// A frame's body is read in chunks of at most this size, so that a large length field alone allocates no memory.
const READ_PIECE: usize = 1 << 20;

type Pending = Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<Part>>>>;

/// The connection to one running index program.
pub(super) struct Connection {
    /// Number of the program start. Handles are valid for one start only.
    pub(super) epoch: u64,
    pub(super) started: Instant,
    /// `None` once the program is asked to exit. Readers keep the connection alive, but must not keep the program
    /// running.
    outbox: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    pending: Pending,
    next: AtomicU64,
    answers: AtomicU64,
    /// Number of open writers. The program is not idle while there are any.
    writers: AtomicU64,
    last_used: Mutex<Instant>,
    is_alive: Arc<AtomicBool>,
    why: Arc<Mutex<String>>,
}

impl Connection {
    /// Performs the handshake with a program that was just started.
    pub(super) async fn open(running: RunningProgram, epoch: u64) -> Result<Arc<Self>, ProgramError> {
        let RunningProgram { mut replies, mut requests, mut child } = running;
        let own = Hello::own();
        let shaken = async {
            requests.write_all(&own.frame()).await.map_err(|e| ProgramError::NotStarted(e.to_string()))?;
            requests.flush().await.map_err(|e| ProgramError::NotStarted(e.to_string()))?;
            let body = read_body(&mut replies).await?;
            let body = body.ok_or_else(|| ProgramError::NotStarted("it ended at once".to_owned()))?;
            own.accept(&Hello::parse(&body)?, "toolyard", wire::PROGRAM)
        };
        if let Err(error) = shaken.await {
            return Err(child.explain(error).await);
        }
        let (outbox, frames) = mpsc::channel(OUTBOX);
        let connection = Arc::new(Self {
            epoch,
            started: Instant::now(),
            outbox: Mutex::new(Some(outbox)),
            pending: Pending::default(),
            next: AtomicU64::new(1),
            answers: AtomicU64::new(0),
            writers: AtomicU64::new(0),
            last_used: Mutex::new(Instant::now()),
            is_alive: Arc::new(AtomicBool::new(true)),
            why: Arc::default(),
        });
        tokio::spawn(send(requests, frames, connection.is_alive.clone()));
        tokio::spawn(receive(
            replies,
            child,
            connection.pending.clone(),
            connection.is_alive.clone(),
            connection.why.clone(),
        ));
        Ok(connection)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    /// Number of responses received.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// How long the program has been idle; `None` while a request is in flight.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let is_busy = self.writers.load(Ordering::Acquire) > 0
            || !self.pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let last_used = *self.last_used.lock().unwrap_or_else(PoisonError::into_inner);
        (!is_busy).then(|| last_used.elapsed())
    }

    pub(super) fn writer_opened(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn writer_closed(&self) {
        self.writers.fetch_sub(1, Ordering::AcqRel);
        self.touch();
    }

    pub(super) fn touch(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Sends a request that has a one-part response.
    pub(super) async fn call(&self, request: &Request) -> IndexResult<Reply> {
        let mut parts = self.ask(request).await?;
        self.next_part(&mut parts).await.map(|(reply, _)| reply)
    }

    /// Sends a request whose response may have several parts.
    pub(super) async fn ask(&self, request: &Request) -> IndexResult<PendingParts> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = wire::frame(number, request)?;
        let (sender, parts) = mpsc::unbounded_channel();
        self.touch();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        let parts = PendingParts { number, parts, pending: self.pending.clone() };
        // Checked after the request is registered: the receiving task clears `is_alive` before it empties the list of
        // pending requests.
        let outbox = self.outbox().filter(|_| self.is_alive()).ok_or_else(|| self.ended())?;
        outbox.send(frame).await.map_err(|_| self.ended())?;
        Ok(parts)
    }

    /// The next part of a response, and whether it is the last.
    pub(super) async fn next_part(&self, parts: &mut PendingParts) -> IndexResult<(Reply, bool)> {
        let part = parts.parts.recv().await;
        self.touch();
        match part {
            None => Err(self.ended()),
            Some(Part { reply, is_last }) => {
                self.answers.fetch_add(1, Ordering::Relaxed);
                Ok((reply?, is_last))
            }
        }
    }

    /// Sends a request and ignores its response; drops the request when the queue is full.
    pub(super) fn send_only(&self, request: &Request) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(frame) = wire::frame(number, request)
            && self.outbox().is_some_and(|outbox| outbox.try_send(frame).is_err())
        {
            tracing::debug!("a handle could not be closed; it stays open until the index program ends");
        }
    }

    fn outbox(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the program's input after all queued frames are sent, which makes the program exit.
    pub(super) fn close(&self) {
        drop(self.outbox.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn ended(&self) -> IndexError {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ProgramError::Ended(if why.is_empty() { "its pipe was closed".to_owned() } else { why }).into()
    }
}

/// The pending parts of a response. Dropping it cancels the wait.
pub(super) struct PendingParts {
    number: u64,
    parts: mpsc::UnboundedReceiver<Part>,
    pending: Pending,
}

impl Drop for PendingParts {
    fn drop(&mut self) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

async fn send(
    mut requests: Box<dyn AsyncWrite + Send + Unpin>,
    mut frames: mpsc::Receiver<Vec<u8>>,
    is_alive: Arc<AtomicBool>,
) {
    while let Some(frame) = frames.recv().await {
        if requests.write_all(&frame).await.is_err() || requests.flush().await.is_err() {
            // The receiving task also detects the end of the program and fails all pending requests, but possibly
            // later. Until then a new request must not be given this connection.
            is_alive.store(false, Ordering::Release);
            return;
        }
    }
}

async fn receive(
    mut replies: Box<dyn AsyncRead + Send + Unpin>,
    mut child: Child,
    pending: Pending,
    is_alive: Arc<AtomicBool>,
    why: Arc<Mutex<String>>,
) {
    let broken = loop {
        match read_body(&mut replies).await {
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
            Ok(Some(body)) => match wire::parse::<Part>(&body) {
                Err(error) => break Some(error.to_string()),
                Ok((number, part)) => {
                    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
                    let is_last = part.is_last;
                    let is_waited_for = pending.get(&number).is_some_and(|sender| sender.send(part).is_ok());
                    if is_last || !is_waited_for {
                        pending.remove(&number);
                    }
                }
            },
        }
    };
    // A program that violates the protocol is killed at once.
    let status = child.end(if broken.is_some() { Duration::ZERO } else { END_WITHIN }).await;
    *why.lock().unwrap_or_else(PoisonError::into_inner) = broken.unwrap_or(status);
    is_alive.store(false, Ordering::Release);
    pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

async fn read_body(pipe: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, ProgramError> {
    let broken = |e: std::io::Error| ProgramError::Ended(e.to_string());
    let mut prefix = [0; LENGTH_BYTES];
    match pipe.read(&mut prefix).await.map_err(broken)? {
        0 => return Ok(None),
        read => pipe.read_exact(&mut prefix[read..]).await.map_err(broken)?,
    };
    let length = wire::body_length(prefix)?;
    let mut body = vec![0; length.min(READ_PIECE)];
    let mut read = 0;
    loop {
        pipe.read_exact(&mut body[read..]).await.map_err(broken)?;
        read = body.len();
        if read == length {
            return Ok(Some(body));
        }
        body.resize(length.min(read + READ_PIECE), 0);
    }
}
