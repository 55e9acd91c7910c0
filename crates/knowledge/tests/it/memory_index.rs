//! The contract suite over the index in memory.

use crate::index_suite;
use std::sync::Arc;
use toolyard_knowledge::index::{NoteIndex, memory::MemoryIndex};

index_suite::every_check!(|| async { ((), Arc::new(MemoryIndex::new()) as Arc<dyn NoteIndex>) });
