//! How something is found: the index over the files (`library.rs`), questions by meaning and words (`search.rs`),
//! patterns (`scan.rs`), the parameters of a query (`query_config.rs`) and the traces of what was recalled (`trace/`).

pub(crate) mod learned;
pub mod library;
pub mod query_config;
pub(crate) mod recall;
pub mod scan;
pub mod search;
pub mod trace;
