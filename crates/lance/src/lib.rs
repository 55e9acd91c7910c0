//! The note index on LanceDB, on a local disk or an object store.
//!
//! Two tables: `obsidian_chunks` with text, terms and vectors, and `obsidian_files` with what became of each file. A
//! complete version is a tag on both, the one on the chunks last: it is what makes a version current. Readers open the
//! tables at the tagged versions and so never see what a writer does; a writer that dies leaves versions without a tag,
//! on which the next writer goes on.
//!
//! The tables are LanceDB's, worked with by its engine, `lance`; LanceDB itself opens them (`make lancedb`).
//!
//! The only crate that names lance and arrow. Its program, `toolyard-index`, serves the index to `toolyard` over a pipe.
//! Knows nothing of notes, embedders or tools.

mod errors;
mod filter;
mod index;
mod maintain;
mod reader;
mod rows;
mod s3;
mod table;
mod tables;
mod writer;

pub use index::{LanceIndex, LanceOptions};
