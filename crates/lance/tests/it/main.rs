//! Tests of the LanceDB index: the contract suite, in this process and over the program's pipe, damage, and versions
//! across restarts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../../../noteindex/tests/it/index_suite.rs"]
mod index_suite;

mod at_once;
mod damage;
mod object_store;
mod program;

use std::sync::Arc;
use toolyard_lance::{LanceIndex, LanceOptions};
use toolyard_noteindex::NoteIndex;

index_suite::every_check!(|| async {
    let dir = tempfile::tempdir().unwrap();
    let index = Arc::new(LanceIndex::new(LanceOptions::new(dir.path().display().to_string()))) as Arc<dyn NoteIndex>;
    (dir, index)
});
