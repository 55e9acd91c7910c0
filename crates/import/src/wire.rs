//! The protocol between this crate and the program `toolyard-parse`, over the program's standard input and output.
//!
//! A request is a line of JSON followed by the document's bytes. A response is a marker byte, a line of JSON and, where
//! the line says so, a body. The marker separates responses from anything that a library might print. A program of
//! another version refuses the request.

use crate::{formats::Format, limits::Limits};
use serde::{Deserialize, Serialize};

/// The program's file name, and `argv[0]` of a child process.
pub const PROGRAM: &str = "toolyard-parse";
/// The version that both sides must have: the release and the protocol version, which increases with every change to
/// the messages.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");
/// The marker byte before every response.
pub const MARK: u8 = 1;
/// Maximum length of a JSON line, in bytes.
pub const MAX_HEADER_BYTES: usize = 64 << 10;

/// A request from the parent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`] of the parent.
    #[serde(default)]
    pub version: String,
    /// The format of the document.
    pub format: Format,
    /// Size of the document that follows, in bytes.
    pub bytes: usize,
    /// Resource limits.
    pub limits: Limits,
}

/// A response from the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParseResponse {
    /// The document's text follows.
    Text {
        /// The document's own title, if it has one.
        title: Option<String>,
        /// Size of the text that follows, in bytes.
        bytes: usize,
    },
    /// A file of the archive follows.
    File {
        /// Path in the archive.
        path: String,
        /// Size of the file that follows, in bytes.
        bytes: usize,
    },
    /// A file of the archive was skipped.
    Skipped {
        /// Path in the archive.
        path: String,
        /// The reason.
        why: String,
    },
    /// All files of the archive were sent.
    Done,
    /// The document could not be parsed.
    Failed {
        /// The reason.
        why: String,
    },
    /// Parsing is impossible: the child cannot be confined, or it has another version.
    Unavailable {
        /// The reason.
        why: String,
    },
}
