//! Parsers of untrusted documents: PDF, Office, EPUB, HTML and zip to Markdown or files.
//!
//! The program `toolyard-parse` reads one document from standard input, gives up every right except its two pipes,
//! parses the document and exits ([`child`]). `crates/import` starts it and validates its responses. It is a separate
//! program because the parsers are a fifth of the crates that `toolyard` would otherwise include, and they are needed
//! only during an import.
//!
//! This crate knows no network, no store and no file system paths.

pub mod child;
mod formats;
#[doc(hidden)]
pub mod fuzzing;
