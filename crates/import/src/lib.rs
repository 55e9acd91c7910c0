//! From a source to Markdown files: a file, a folder, a zip archive, a Git repository or a URL in; sections, cut by
//! headings and named after them, out. Code keeps its place and its form.
//!
//! ```text
//! Source -> collect (read a folder, unpack, fetch, clone) -> convert (confined child for others' formats) -> split
//! ```
//!
//! What others wrote is read with care: formats whose bytes can attack a parser (PDF, Office, EPUB, HTML, zip) are read
//! by the program `toolyard-parse`, which has nothing but its two pipes, little memory and little time ([`parser`]). Addresses
//! are resolved and checked before anything is sent there ([`fetch`]). Every file has a result of its own: processed,
//! failed, unsupported or skipped ([`Report`]).
//!
//! This crate keeps nothing and knows no store: who calls it writes the files.

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
