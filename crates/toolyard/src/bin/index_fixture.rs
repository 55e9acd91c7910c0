//! An index program without LanceDB, for the scenarios: the index in memory behind the same pipe, with its complete
//! versions in a file of the index folder. It is a binary and not an example, because `cargo test --test scenarios` builds
//! binaries alone: an older one would be refused for its version.
#![allow(clippy::print_stderr)]

use std::{path::Path, process::ExitCode, sync::Arc};
use toolyard_noteindex::{NoteIndex, memory::MemoryIndex, serve::serve};

fn main() -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let open = |options: toolyard_noteindex::wire::OpenIndex| {
        Ok(Arc::new(MemoryIndex::kept_in(Path::new(&options.uri))) as Arc<dyn NoteIndex>)
    };
    match serve(std::io::stdin().lock(), std::io::stdout(), runtime.handle(), Box::new(open)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
