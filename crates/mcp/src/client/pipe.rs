//! [`Pipe`]: a child's standard input. A message is written at once if it fits; otherwise a task writes the rest as the
//! child reads. Passing every message to a task would take longer than writing it.

use bytes::{Buf, BytesMut};
use std::{
    io::{self, ErrorKind},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{net::unix::pipe::Sender, process::ChildStdin, sync::Notify};
use tokio_util::sync::CancellationToken;

/// Bytes that may wait for the child to read before senders wait too.
const MAX_WAITING: usize = 1 << 20;

/// A child's input.
pub(crate) struct Pipe {
    state: Mutex<State>,
    /// Something waits to be written.
    more: Notify,
    /// Less waits than did.
    room: Notify,
}

struct State {
    /// `None` after the last message; the child then reads the end of its input.
    end: Option<Arc<Sender>>,
    waiting: BytesMut,
}

impl Pipe {
    pub(crate) fn new(stdin: ChildStdin) -> io::Result<Arc<Self>> {
        Ok(Self::over(Sender::from_owned_fd(stdin.into_owned_fd()?)?))
    }

    fn over(end: Sender) -> Arc<Self> {
        let state = State { end: Some(Arc::new(end)), waiting: BytesMut::new() };
        Arc::new(Self { state: Mutex::new(state), more: Notify::new(), room: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line, after all that was sent before. Waits while too much waits already.
    pub(crate) async fn send(&self, line: String) -> io::Result<()> {
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable(); // from here on no change is missed
            if let Some(sent) = self.put(&bytes) {
                return sent;
            }
            room.await;
        }
    }

    /// Sends a line if that needs no waiting.
    pub(crate) fn try_send(&self, line: String) {
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        self.put(&bytes);
    }

    /// Writes what fits and keeps the rest; `None` when too much waits.
    fn put(&self, bytes: &[u8]) -> Option<io::Result<()>> {
        let mut state = self.state();
        let Some(end) = state.end.clone() else { return Some(Err(ErrorKind::BrokenPipe.into())) };
        if state.waiting.len() >= MAX_WAITING {
            return None;
        }
        let mut rest = bytes;
        while state.waiting.is_empty() && !rest.is_empty() {
            match end.try_write(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(Err(error)),
            }
        }
        if !rest.is_empty() {
            state.waiting.extend_from_slice(rest);
            self.more.notify_one();
        }
        Some(Ok(()))
    }

    /// Writes the waiting bytes until `eof` fires or the child stops reading; then closes the input.
    pub(crate) async fn drain(self: Arc<Self>, eof: CancellationToken) {
        loop {
            let written = tokio::select! {
                written = self.write_waiting() => written,
                // A child that does not read must not prevent its own termination.
                () = eof.cancelled() => break,
            };
            if written.is_err() {
                break;
            }
            self.room.notify_waiters();
        }
        let mut state = self.state();
        state.end = None;
        state.waiting = BytesMut::new();
        drop(state);
        self.room.notify_waiters();
    }

    /// Writes some of the waiting bytes, when there are any.
    async fn write_waiting(&self) -> io::Result<()> {
        loop {
            let (end, is_empty) = {
                let state = self.state();
                (state.end.clone(), state.waiting.is_empty())
            };
            let Some(end) = end else { return Err(ErrorKind::BrokenPipe.into()) };
            if is_empty {
                self.more.notified().await;
                continue;
            }
            end.writable().await?;
            let mut state = self.state();
            match end.try_write(&state.waiting) {
                Ok(written) => {
                    state.waiting.advance(written);
                    if state.waiting.is_empty() {
                        state.waiting = BytesMut::new();
                    }
                    return Ok(());
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::{
        io::{AsyncBufReadExt, AsyncReadExt, BufReader},
        net::unix::pipe,
    };

    fn line(number: usize, length: usize) -> String {
        format!("{number} {}", "x".repeat(length))
    }

    #[tokio::test]
    async fn lines_arrive_whole_and_in_order_whatever_their_length() {
        let (end, reader) = pipe::pipe().unwrap();
        let sender = Pipe::over(end);
        tokio::spawn(sender.clone().drain(CancellationToken::new()));
        let lengths = [0, 10, 70_000, 3, 3 << 20, 1, 200_000, 5];
        let sending = tokio::spawn(async move {
            for round in 0..20 {
                for (at, length) in lengths.iter().enumerate() {
                    sender.send(line(round * lengths.len() + at, *length)).await.unwrap();
                }
            }
        });
        let mut lines = BufReader::new(reader).lines();
        for number in 0..20 * lengths.len() {
            let read = lines.next_line().await.unwrap().unwrap();
            assert_eq!(read.len(), line(number, lengths[number % lengths.len()]).len(), "{number}");
            assert!(read.starts_with(&format!("{number} ")), "{number}");
        }
        sending.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_sends_waits_for_a_child_that_does_not_read() {
        let (end, mut reader) = pipe::pipe().unwrap();
        let sender = Pipe::over(end);
        let eof = CancellationToken::new();
        let draining = tokio::spawn(sender.clone().drain(eof.clone()));
        sender.send(line(0, 2 * MAX_WAITING)).await.unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(50), sender.send(line(1, 1)));
        assert!(waits.await.is_err(), "too much waits already");
        let mut seen = vec![0; MAX_WAITING + (MAX_WAITING / 2)];
        reader.read_exact(&mut seen).await.unwrap();
        sender.send(line(1, 1)).await.unwrap();
        eof.cancel();
        draining.await.unwrap();
        assert!(sender.send(line(2, 1)).await.is_err(), "it is closed");
        tokio::time::timeout(Duration::from_secs(60), reader.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_child_that_is_gone_is_told() {
        let (end, reader) = pipe::pipe().unwrap();
        let sender = Pipe::over(end);
        tokio::spawn(sender.clone().drain(CancellationToken::new()));
        drop(reader);
        // The first message may be queued: whether the pipe has room is known only after waiting for it once.
        let told = async {
            while sender.send(line(0, 1)).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    }
}
