//! Reads messages, one a line, from a child's stream. No buffer is kept between messages: data is read to the stack,
//! and only an incomplete line is stored. There may be hundreds of children, most of them silent.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;

/// Reads once and passes on the data, which is empty at the end of the stream.
pub(super) async fn read_once<T>(
    stream: &mut (impl AsyncRead + Unpin),
    mut take: impl FnMut(&[u8]) -> T,
) -> io::Result<T> {
    poll_fn(|context| {
        let mut room = [MaybeUninit::<u8>::uninit(); READ_BYTES];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
        Poll::Ready(Ok(take(room.filled())))
    })
    .await
}

/// Splits a stream into lines.
pub(super) struct LineSplitter {
    /// The beginning of a line.
    begun: Vec<u8>,
    max: usize,
}

/// A line is longer than it may be.
#[derive(Debug, PartialEq)]
pub(super) struct TooLong;

impl LineSplitter {
    /// Of lines up to `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        Self { begun: Vec::new(), max }
    }

    /// Gives `take` every line that these bytes complete, without its end.
    pub(super) fn add(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(at);
            rest = &after[1..];
            if self.begun.len() + line.len() > self.max {
                return Err(TooLong);
            }
            if self.begun.is_empty() {
                take(line);
            } else {
                self.begun.extend_from_slice(line);
                take(&self.begun);
                self.begun = Vec::new();
            }
        }
        self.begun.extend_from_slice(rest);
        if self.begun.len() > self.max { Err(TooLong) } else { Ok(()) }
    }

    /// What came after the last line.
    pub(super) fn rest(&self) -> &[u8] {
        &self.begun
    }
}
