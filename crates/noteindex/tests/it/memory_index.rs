//! The contract suite over the in-memory index.

use crate::index_suite;
use std::sync::Arc;
use toolyard_noteindex::{NoteIndex, memory::MemoryIndex};

index_suite::every_check!(|| async { ((), Arc::new(MemoryIndex::new()) as Arc<dyn NoteIndex>) });

mod kept_in_a_folder {
    use super::*;

    index_suite::every_check!(|| async {
        let dir = tempfile::tempdir().unwrap();
        let index = Arc::new(MemoryIndex::kept_in(dir.path())) as Arc<dyn NoteIndex>;
        (dir, index)
    });
}
