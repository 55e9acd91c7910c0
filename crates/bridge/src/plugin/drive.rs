//! Runs a [`Plugin`]: lines of standard input, lines on standard output, a connection with reconnects, and the clock.

use super::{Identity, Output, Plugin};
use crate::server::BoxFuture;
use std::{
    io,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};

/// A line from Claude Code is at most this long.
const MAX_LINE_BYTES: usize = 20 << 20;
/// How often the plugin receives the time.
const TICK: Duration = Duration::from_secs(1);
/// How long one attempt to connect may take.
const DIAL_WITHIN: Duration = Duration::from_secs(10);

/// A connection to the bridge. Dropping it closes it.
pub struct Connection {
    /// Frames to send.
    pub outgoing: mpsc::UnboundedSender<String>,
    /// What comes in; it ends with [`Incoming::Closed`] or with the channel.
    pub incoming: mpsc::Receiver<Incoming>,
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A frame arrived.
    Text(String),
    /// The connection ended.
    Closed {
        /// The WebSocket's close code, if any.
        code: Option<u16>,
        /// The reason, in words.
        reason: String,
    },
}

/// Opens connections.
pub trait Dial: Send + Sync {
    /// Makes one attempt; the error says why it failed.
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>>;
}

/// Serves until standard input ends.
pub async fn run(
    identity: Identity,
    seed: u64,
    dial: &dyn Dial,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let began = Instant::now();
    let mut driver = Driver {
        plugin: Plugin::new(identity, seed),
        output,
        link: None,
        dial_at: Some(tokio::time::Instant::now()),
        began,
    };
    let mut lines = BufReader::with_capacity(64 << 10, input);
    let mut line = Vec::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut dialling: Option<BoxFuture<'_, Result<Connection, String>>> = None;
    loop {
        let dial_at = driver.dial_at;
        tokio::select! {
            // What was read of a line stays in `line` when another branch is taken.
            read = read_line(&mut lines, &mut line) => match read? {
                LineEnd::End => return Ok(()),
                LineEnd::TooLong => {
                    line.clear();
                    tracing::warn!("a line of more than {MAX_LINE_BYTES} bytes was skipped");
                }
                LineEnd::Whole => {
                    let out = driver.plugin.line(&String::from_utf8_lossy(&line), driver.now());
                    line.clear();
                    driver.act(out).await?;
                }
            },
            incoming = next(&mut driver.link) => match incoming {
                Incoming::Text(text) => {
                    let out = driver.plugin.frame(&text, driver.now());
                    driver.act(out).await?;
                }
                Incoming::Closed { code, reason } => {
                    driver.link = None;
                    let out = driver.plugin.down(code, &reason);
                    driver.act(out).await?;
                }
            },
            () = tokio::time::sleep_until(dial_at.unwrap_or_else(tokio::time::Instant::now)), if dial_at.is_some() && dialling.is_none() => {
                driver.dial_at = None;
                dialling = Some(Box::pin(async move {
                    tokio::time::timeout(DIAL_WITHIN, dial.dial())
                        .await
                        .unwrap_or_else(|_| Err("it does not answer".to_owned()))
                }));
            }
            dialled = wait_for(&mut dialling), if dialling.is_some() => {
                dialling = None;
                let out = match dialled {
                    Ok(link) => {
                        driver.link = Some(link);
                        driver.plugin.up(driver.now())
                    }
                    Err(reason) => driver.plugin.down(None, &reason),
                };
                driver.act(out).await?;
            }
            _ = tick.tick() => {
                let out = driver.plugin.tick(driver.now());
                driver.act(out).await?;
            }
        }
    }
}

struct Driver<W> {
    plugin: Plugin,
    output: W,
    link: Option<Connection>,
    dial_at: Option<tokio::time::Instant>,
    began: Instant,
}

impl<W: AsyncWrite + Unpin> Driver<W> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Actions are carried out in order: a line is written to Claude Code before the frame that confirms it is sent.
    async fn act(&mut self, out: Vec<Output>) -> io::Result<()> {
        for output in out {
            match output {
                Output::Line(mut text) => {
                    text.push('\n');
                    self.output.write_all(text.as_bytes()).await?;
                    self.output.flush().await?;
                }
                Output::Frame(text) => {
                    if let Some(link) = &self.link {
                        // If the connection has ended meanwhile, it reports that itself.
                        drop(link.outgoing.send(text));
                    }
                }
                Output::Hangup => self.link = None,
                Output::Dial { after_ms } => {
                    self.dial_at = Some(tokio::time::Instant::now() + Duration::from_millis(after_ms));
                }
            }
        }
        Ok(())
    }
}

async fn next(link: &mut Option<Connection>) -> Incoming {
    match link {
        Some(link) => link
            .incoming
            .recv()
            .await
            .unwrap_or_else(|| Incoming::Closed { code: None, reason: "the connection ended".to_owned() }),
        None => std::future::pending().await,
    }
}

async fn wait_for<T>(future: &mut Option<BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

enum LineEnd {
    Whole,
    TooLong,
    End,
}

/// Reads up to the end of a line; safe to drop and call again with the same buffer.
async fn read_line<R: AsyncRead + Unpin>(input: &mut BufReader<R>, line: &mut Vec<u8>) -> io::Result<LineEnd> {
    let room = (MAX_LINE_BYTES + 1).saturating_sub(line.len()) as u64;
    let read = (&mut *input).take(room).read_until(b'\n', line).await?;
    if line.last() == Some(&b'\n') {
        return Ok(if line.len() > MAX_LINE_BYTES { LineEnd::TooLong } else { LineEnd::Whole });
    }
    if read == 0 && room > 0 {
        return Ok(if line.is_empty() { LineEnd::End } else { LineEnd::Whole });
    }
    Ok(LineEnd::TooLong)
}
