//! End-to-end imports: generated files of each format, real child processes, real servers on loopback.

// Test helpers may panic, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod documents;
mod hostile;
mod made;
mod program;
mod sources;

use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;
use toolyard_import::{ImportError, Imported, Importer, Options, Source};

/// An importer that uses this crate's program as parser.
pub(crate) fn importer() -> Importer {
    Importer::with_program(env!("CARGO_BIN_EXE_toolyard-parse"))
}

pub(crate) async fn import(source: Source, options: &Options) -> Result<Imported, ImportError> {
    importer().import(source, options, &|_| {}, &CancellationToken::new()).await
}

pub(crate) async fn upload(name: &str, bytes: Vec<u8>) -> Result<Imported, ImportError> {
    import(Source::Upload { name: name.to_owned(), bytes }, &Options::default()).await
}

/// The content of all written files.
pub(crate) fn whole(imported: &Imported) -> String {
    imported.files.iter().map(|file| file.content.as_str()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn paths(imported: &Imported) -> Vec<&str> {
    imported.files.iter().map(|file| file.path.as_str()).collect()
}

#[tokio::test]
async fn progress_is_told_and_a_cancelled_import_ends() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5 {
        std::fs::write(folder.path().join(format!("{number}.md")), "# Text").unwrap();
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let source = Source::Path(folder.path().to_owned());
    let tell =
        move |progress: toolyard_import::Progress<'_>| told.lock().unwrap().push((progress.done, progress.total));
    importer().import(source.clone(), &Options::default(), &tell, &CancellationToken::new()).await.unwrap();
    assert_eq!(seen.lock().unwrap().last(), Some(&(5, 5)));
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let stopped = importer()
        .import(
            source,
            &Options::default(),
            &move |progress| {
                if progress.done == 2 {
                    stop.cancel()
                }
            },
            &cancel,
        )
        .await;
    assert_eq!(stopped.unwrap_err(), ImportError::Cancelled);
}
