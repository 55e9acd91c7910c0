//! Converts a source (a file, a folder, a zip archive, a Git repository or a URL) to Markdown files: sections that are
//! split at headings and named after them. Code keeps its path and content.
//!
//! ```text
//! Source -> collect (read a folder, unpack, fetch, clone) -> convert (confined child for others' formats) -> split
//! ```
//!
//! Input is untrusted. Formats whose parsers can be attacked (PDF, Office, EPUB, HTML, zip) are parsed by the program
//! `toolyard-parse`, which has only its two pipes, little memory and little time ([`parser`]). Host names are resolved
//! and their addresses checked before anything is sent to them ([`fetch`]). Every file has its own outcome: processed,
//! failed, unsupported or skipped ([`Report`]).
//!
//! This crate stores nothing and knows no store: the caller writes the files.

mod collect;
pub mod fetch;
mod formats;
mod git;
mod importer;
mod limits;
pub mod names;
pub mod parser;
pub mod sections;
mod source;
pub mod text;
pub mod wire;

pub use formats::{Converted, Format, ParseFailure};
pub use importer::{FileOutcome, ImportError, Imported, Importer, Options, OutFile, Progress, Report};
pub use limits::Limits;
pub use source::{GitSource, Source};
