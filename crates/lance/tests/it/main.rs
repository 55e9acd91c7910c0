//! The index on LanceDB: the contract suite, damage, versions over restarts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../../../knowledge/tests/it/index_suite.rs"]
mod index_suite;

mod at_once;
mod damage;
mod object_store;

use std::sync::Arc;
use toolyard_knowledge::index::NoteIndex;
use toolyard_lance::{LanceIndex, LanceOptions};

index_suite::every_check!(|| async {
    let dir = tempfile::tempdir().unwrap();
    let index = Arc::new(LanceIndex::new(LanceOptions::new(dir.path().display().to_string()))) as Arc<dyn NoteIndex>;
    (dir, index)
});
