//! A socket for which the calling thread itself waits, without a runtime: an answer then wakes no other thread.

use crate::limits;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::Timespec,
    net::sockopt,
};
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Shared {
    kind: Kind,
    /// A write found no room.
    is_full: AtomicBool,
}

/// The socket. What reads or writes it never waits and wakes nobody: [`WaitingSocket::drive`] waits.
#[derive(Clone)]
pub(crate) struct WaitingSocket(Arc<Shared>);

/// Which two ends a connection has, as this side sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Tcp {
        local: SocketAddr,
        peer: SocketAddr,
    },
    /// The process that listens.
    Unix {
        listener: i32,
    },
}

impl WaitingSocket {
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limits::CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        let patience = limits::STATEMENT_TIMEOUT;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, patience)?;
        sockopt::set_tcp_user_timeout(&stream, u32::try_from(patience.as_millis()).unwrap_or(u32::MAX))?;
        stream.set_nonblocking(true)?;
        Ok(Self::new(Kind::Tcp(stream)))
    }

    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        Ok(Self::new(Kind::Unix(stream)))
    }

    fn new(kind: Kind) -> Self {
        Self(Arc::new(Shared { kind, is_full: AtomicBool::new(false) }))
    }

    pub(crate) fn ends(&self) -> io::Result<Ends> {
        Ok(match &self.0.kind {
            Kind::Tcp(stream) => Ends::Tcp { local: stream.local_addr()?, peer: stream.peer_addr()? },
            Kind::Unix(stream) => Ends::Unix { listener: sockopt::socket_peercred(stream)?.pid.as_raw_nonzero().get() },
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.0.kind {
            Kind::Tcp(stream) => stream.as_fd(),
            Kind::Unix(stream) => stream.as_fd(),
        }
    }

    fn wait(&self, time: Duration) {
        let mut events = PollFlags::IN;
        if self.0.is_full.swap(false, Ordering::Relaxed) {
            events |= PollFlags::OUT;
        }
        let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        let fd = self.fd();
        if let Err(error) = poll(&mut [PollFd::new(&fd, events)], Some(&time)) {
            // A signal; the read that follows finds errors of the socket.
            tracing::trace!(%error, "waiting for the database was interrupted");
        }
    }

    /// Repeats `step`, waiting for the socket in between. `None` when `until` has passed.
    pub(crate) fn drive<T>(&self, until: Instant, mut step: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answer) = step(&mut context) {
                return Some(answer);
            }
            // One part of the work has something for another one.
            if woken.0.swap(false, Ordering::Relaxed) {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.wait(left);
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0.kind {
            Kind::Tcp(stream) => (&*stream).read(buffer),
            Kind::Unix(stream) => (&*stream).read(buffer),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0.kind {
            Kind::Tcp(stream) => (&*stream).write(bytes),
            Kind::Unix(stream) => (&*stream).write(bytes),
        }
    }
}

/// Whether a step that was not ready has become ready meanwhile.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The result, unless the socket is not ready.
fn ready<T>(mut attempt: impl FnMut() -> io::Result<T>) -> Poll<io::Result<T>> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            result => return Poll::Ready(result),
        }
    }
}

impl AsyncRead for WaitingSocket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let unfilled = buf.initialize_unfilled();
        ready(|| self.try_read(unfilled)).map_ok(|count| buf.advance(count))
    }
}

impl AsyncWrite for WaitingSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready(|| self.try_write(bytes));
        if written.is_pending() {
            self.0.is_full.store(true, Ordering::Relaxed);
        }
        written
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match &self.0.kind {
            Kind::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Kind::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        })
    }
}
