//! The note index on LanceDB, on a local disk or in an object store.
//!
//! There are two tables: `obsidian_chunks` with text, terms and vectors, and `obsidian_files` with the state of each
//! file. A complete version has a tag on both tables. The tag on the chunks is set last and makes the version current.
//! Readers open the tables at the tagged versions, so they never see the changes of a writer. A writer that dies leaves
//! untagged versions, from which the next writer continues.
//!
//! The tables have LanceDB's format and are accessed through its engine, `lance`; LanceDB itself can open them (`make
//! lancedb`).
//!
//! This is the only crate that depends on lance and arrow. Its program, `toolyard-index`, serves the index to
//! `toolyard` over a pipe. It knows no notes, embedders or tools.

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
