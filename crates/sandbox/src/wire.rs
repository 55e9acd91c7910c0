//! The messages between parent and child: JSON, preceded by a length of four bytes in little-endian order.
//!
//! A message is an object with one key, its kind. Values inside are passed on as the original text.
//!
//! The parent does not trust the child: sizes, counts, ids and order are checked on arrival.

use crate::limits::{Limits, MAX_FRAME_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io::{self, Read, Write};

/// What a script may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The request `openclaw.tools.search(query, options?)`.
    Search,
    /// The request `openclaw.tools.describe(id)`.
    Describe,
    /// The request `openclaw.tools.call(id, args)`.
    Call,
}

/// From the parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToChild {
    /// The script, once, first.
    Run {
        /// The body of an async function.
        code: String,
        /// The limits of the script.
        limits: Limits,
    },
    /// The answer to a bridge call.
    Answer {
        /// The id of the request.
        id: u32,
        /// What was answered.
        value: Box<RawValue>,
    },
    /// A wait is over.
    Elapsed {
        /// The id of the timer.
        id: u32,
    },
    /// A bridge call that failed.
    Failure {
        /// The id of the request.
        id: u32,
        /// The error.
        error: ScriptException,
    },
}

/// From the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromChild {
    /// The script asks for something.
    Bridge {
        /// Chosen by the child: 1, 2, 3.
        id: u32,
        /// The method.
        method: Method,
        /// The arguments.
        args: Vec<Box<RawValue>>,
    },
    /// The script waits for a time: the parent holds the clock.
    Wait {
        /// Chosen by the child, apart from those of calls: 1, 2, 3.
        id: u32,
        /// The time in milliseconds.
        ms: u32,
    },
    /// A line of console output.
    Log {
        /// The line.
        line: String,
    },
    /// The script ended.
    Returned {
        /// What it returned.
        value: Box<RawValue>,
    },
    /// The script ended with an exception.
    Threw {
        /// The error.
        error: ScriptException,
    },
    /// The child cannot confine itself here, and has run nothing.
    Unavailable {
        /// What is missing.
        reason: String,
    },
}

/// A script's exception, as it is sent over the pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptException {
    /// For example `TypeError`.
    pub name: String,
    /// The message.
    pub message: String,
    /// Where it was thrown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// An error code, if a tool returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl ScriptException {
    /// An exception with a message.
    pub fn new(name: &str, message: impl Into<String>) -> Self {
        Self { name: name.to_owned(), message: message.into(), stack: None, code: None }
    }
}

/// A message with its length in front.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too large"));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Checks the length in front of a message.
pub fn frame_length(header: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(header) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too large"));
    }
    Ok(length)
}

/// Reads one message; waits for it.
pub(crate) fn read_message(from: &mut impl Read) -> io::Result<ToChild> {
    let mut header = [0; 4];
    from.read_exact(&mut header)?;
    let mut bytes = vec![0; frame_length(header)?];
    from.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Writes one message.
pub(crate) fn write_message(to: &mut impl Write, message: &FromChild) -> io::Result<()> {
    to.write_all(&frame(message)?)?;
    to.flush()
}
