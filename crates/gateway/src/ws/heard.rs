//! Notes when a peer was last heard, byte by byte: one that is in the middle of a long frame cannot answer a ping, and is
//! there all the same.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When a peer was last heard. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LastHeard(Arc<AtomicU64>);

impl LastHeard {
    fn now() -> u64 {
        BEGINNING.elapsed().as_millis() as u64
    }

    /// Whether nothing was heard since a moment.
    pub(crate) fn is_before(&self, moment: Instant) -> bool {
        let moment = moment.saturating_duration_since(*BEGINNING).as_millis() as u64;
        self.0.load(Ordering::Relaxed) < moment
    }
}

/// A connection that notes when it was last heard.
pub(crate) struct Heard<S> {
    inner: S,
    last: LastHeard,
}

impl<S> Heard<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, last: LastHeard(Arc::new(AtomicU64::new(LastHeard::now()))) }
    }

    pub(crate) fn last(&self) -> LastHeard {
        self.last.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.last.0.store(LastHeard::now(), Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
