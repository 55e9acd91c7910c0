//! Standard input and output as streams that do not need a thread of their own where they are pipes or sockets, which
//! they are when another program starts this one.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream as StdUnixStream,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixStream, unix::pipe},
};

/// What is read.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// What is written.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input and output.
pub fn streams() -> (Input, Output) {
    let input = readable().unwrap_or_else(|_| Box::new(tokio::io::stdin()));
    let output = writable().unwrap_or_else(|_| Box::new(tokio::io::stdout()));
    (input, output)
}

fn readable() -> io::Result<Input> {
    let owned: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    match kind(&owned)? {
        Kind::Pipe => Ok(Box::new(pipe::Receiver::from_owned_fd(owned)?)),
        Kind::Socket => Ok(Box::new(socket(owned)?)),
        Kind::Other => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn writable() -> io::Result<Output> {
    let owned: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
    match kind(&owned)? {
        Kind::Pipe => Ok(Box::new(pipe::Sender::from_owned_fd(owned)?)),
        Kind::Socket => Ok(Box::new(socket(owned)?)),
        Kind::Other => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn socket(owned: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(owned);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

enum Kind {
    Pipe,
    Socket,
    /// A terminal, a file, something else.
    Other,
}

fn kind(fd: &OwnedFd) -> io::Result<Kind> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Fifo => Kind::Pipe,
        rustix::fs::FileType::Socket => Kind::Socket,
        _ => Kind::Other,
    })
}
