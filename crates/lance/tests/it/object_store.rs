//! The index in an object store: an S3-compatible server that `make object-store` starts.

use crate::index_suite;
use std::{collections::HashMap, sync::Arc};
use toolyard_lance::{LanceIndex, LanceOptions};
use toolyard_noteindex::NoteIndex;

fn index(prefix: &str) -> Arc<dyn NoteIndex> {
    let endpoint = std::env::var("TOOLYARD_S3_ENDPOINT").expect("run it with `make object-store`");
    let storage_options = HashMap::from([
        ("endpoint".to_owned(), endpoint),
        ("region".to_owned(), "us-east-1".to_owned()),
        ("allow_http".to_owned(), "true".to_owned()),
        ("virtual_hosted_style_request".to_owned(), "false".to_owned()),
    ]);
    Arc::new(LanceIndex::new(LanceOptions { storage_options, ..LanceOptions::new(format!("s3://notes/{prefix}")) }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `make object-store`"]
async fn object_store_holds_versions_full_text_and_rollback() {
    index_suite::nothing_is_there_at_first(index("a")).await;
    index_suite::what_is_complete_can_be_read(index("b")).await;
    index_suite::readers_keep_their_version(index("c")).await;
    index_suite::nothing_half_done_is_seen(index("d")).await;
    index_suite::an_interrupted_writer_is_continued(index("e")).await;
    index_suite::files_are_replaced_touched_and_removed(index("f")).await;
    index_suite::filters_admit_what_they_should(index("g")).await;
    index_suite::another_embedder_begins_anew(index("h")).await;
    index_suite::rollback_returns_to_the_version_before(index("i")).await;
}
