//! Parsers of documents that other people wrote: PDF, Office, EPUB, HTML and zip to Markdown or files.
//!
//! The program `toolyard-parse` reads one document over its standard input, gives up every right but its two pipes, parses
//! the document and ends ([`child`]). `crates/import` starts it and checks what it answers. It is a program of its own because
//! the parsers are a fifth of the crates that `toolyard` would otherwise carry and are needed only while a document is
//! imported.
//!
//! Knows no network, no store and no place in the file system.

pub mod child;
mod formats;
#[doc(hidden)]
pub mod fuzzing;
