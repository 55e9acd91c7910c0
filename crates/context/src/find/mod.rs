//! Search: the index over the files (`library.rs`), search by words and meaning (`search.rs`), patterns (`scan.rs`),
//! query parameters (`query_config.rs`) and recall traces (`trace/`).

pub(crate) mod learned;
pub mod library;
pub mod query_config;
pub(crate) mod recall;
pub mod scan;
pub mod search;
pub mod trace;
