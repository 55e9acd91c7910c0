//! What this crate and the program `toolyard-parse` say to each other over the program's standard input and output.
//!
//! A request is a line of JSON and the document's bytes. An answer is a mark, a line of JSON and, where it says so,
//! bytes. The mark tells answers from what a library might print. A program of another version refuses the request.

use crate::{formats::Format, limits::Limits};
use serde::{Deserialize, Serialize};

/// The program's file name, and `argv[0]` of a child.
pub const PROGRAM: &str = "toolyard-parse";
/// What both sides must be of: the release, and the version of the messages, which goes up with every change to them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");
/// Before every answer.
pub const MARK: u8 = 1;
/// Bytes of one line.
pub const MAX_HEADER_BYTES: usize = 64 << 10;

/// What the parent asks for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`] of the parent.
    #[serde(default)]
    pub version: String,
    /// What the document is.
    pub format: Format,
    /// How many bytes of it follow.
    pub bytes: usize,
    /// How much it may use.
    pub limits: Limits,
}

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The document's text follows.
    Text {
        /// Its own title, where it has one.
        title: Option<String>,
        /// How many bytes of text follow.
        bytes: usize,
    },
    /// A file of the archive follows.
    File {
        /// Where it lies in the archive.
        path: String,
        /// How many bytes of it follow.
        bytes: usize,
    },
    /// A file of the archive was passed over.
    Skipped {
        /// Where it lies in the archive.
        path: String,
        /// Why.
        why: String,
    },
    /// The archive is over.
    Done,
    /// It could not be parsed.
    Failed {
        /// Why.
        why: String,
    },
    /// Nothing can be parsed here: the child cannot be confined, or it is of another version.
    Unavailable {
        /// Why.
        why: String,
    },
}
