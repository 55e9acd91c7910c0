//! Maps LanceDB errors to the few errors of the index trait. Data that exists but cannot be read is damaged and may be
//! discarded when the index is rebuilt. A location that cannot be reached or written to is not damage, and nothing may
//! be discarded. Errors are therefore classified by type. Their text is used only where the type was lost on the way,
//! because the text may contain parts of a user's path.

use lance::Error as LanceError;
use object_store::Error as StoreError;
use std::{
    error::Error,
    io::{self, ErrorKind},
};
use toolyard_noteindex::IndexError;

/// Operating system errors that say nothing about the data: I/O error, out of memory, no permission, too many open
/// files, no space, read-only file system, connection errors, quota.
const PLACE_NUMBERS: [i32; 16] = [1, 5, 11, 12, 13, 16, 23, 24, 28, 30, 103, 104, 110, 111, 113, 122];
/// Phrases of the libraries that mean the same where only the text of an error is left, in addition to "(os error 28)"
/// and so on.
const PLACE_PHRASES: [&str; 4] = [
    "generic s3 error:",
    "lacked the necessary privileges to complete",
    "lacked valid authentication credentials",
    "no object store provider found",
];
/// The S3 error code for a missing bucket.
const NO_BUCKET: &str = "NoSuchBucket";
/// Maximum length of an error in the log, in characters.
const MAX_REASON: usize = 300;
/// Maximum depth of the chain of causes.
const MAX_CAUSES: usize = 32;

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The data is damaged.
    Damage,
    /// The location cannot be reached or written to.
    Place,
}

/// Converts any error of LanceDB or of a library below it.
pub(crate) fn index_error(error: impl Error + 'static) -> IndexError {
    let causes = causes(&error);
    let text = causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(": ");
    // Only the first line goes to the log, which keeps stack traces out.
    let short: String = text.lines().next().unwrap_or_default().chars().take(MAX_REASON).collect();
    match causes.iter().find_map(|cause| fault_of(*cause)).unwrap_or_else(|| fault_by_text(&text)) {
        Fault::Place => IndexError::Unavailable(short),
        Fault::Damage => IndexError::Corrupted(short),
    }
}

/// The error and its causes, outermost first.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut all = vec![error];
    let mut at = error;
    while let Some(cause) = cause_of(at).filter(|_| all.len() < MAX_CAUSES) {
        all.push(cause);
        at = cause;
    }
    all
}

/// The error that this one wraps. Some wrappers skip the wrapped error itself in `source()`.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(io) = error.downcast_ref::<io::Error>() {
        return io.get_ref().map(|inner| inner as &(dyn Error + 'static));
    }
    if let Some(LanceError::External { source }) = error.downcast_ref::<LanceError>() {
        return Some(source.as_ref());
    }
    error.source()
}

/// Classifies an error by its type; `None` where only its cause can decide.
fn fault_of(error: &(dyn Error + 'static)) -> Option<Fault> {
    if let Some(error) = error.downcast_ref::<LanceError>() {
        return match error {
            LanceError::NotFound { .. }
            | LanceError::DatasetNotFound { .. }
            | LanceError::CorruptFile { .. }
            | LanceError::VersionNotFound { .. }
            | LanceError::RefNotFound { .. }
            | LanceError::IndexNotFound { .. }
            | LanceError::FieldNotFound { .. } => Some(Fault::Damage),
            LanceError::Timeout { .. }
            | LanceError::TooMuchWriteContention { .. }
            | LanceError::CommitConflict { .. }
            | LanceError::RetryableCommitConflict { .. }
            | LanceError::IncompatibleTransaction { .. }
            | LanceError::RefConflict { .. }
            | LanceError::DiskCapExceeded { .. }
            | LanceError::InvalidTableLocation { .. } => Some(Fault::Place),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return match error {
            StoreError::NotFound { source, .. } if source.to_string().contains(NO_BUCKET) => Some(Fault::Place),
            StoreError::NotFound { .. } => Some(Fault::Damage),
            StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. }
            | StoreError::UnknownConfigurationKey { .. }
            | StoreError::AlreadyExists { .. }
            | StoreError::Precondition { .. }
            | StoreError::Generic { store: "S3", .. } => Some(Fault::Place),
            _ => None,
        };
    }
    fault_of_io(error.downcast_ref::<io::Error>()?)
}

fn fault_of_io(error: &io::Error) -> Option<Fault> {
    if let Some(number) = error.raw_os_error()
        && PLACE_NUMBERS.contains(&number)
    {
        return Some(Fault::Place);
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData => Some(Fault::Damage),
        ErrorKind::PermissionDenied
        | ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::OutOfMemory
        | ErrorKind::ResourceBusy
        | ErrorKind::NotADirectory
        | ErrorKind::StaleNetworkFileHandle
        | ErrorKind::TimedOut
        | ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::BrokenPipe => Some(Fault::Place),
        _ => None,
    }
}

/// Classifies an error that was converted to text. Everything that looks like a path is ignored.
fn fault_by_text(text: &str) -> Fault {
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.contains('/')).collect();
    let text = words.join(" ").to_lowercase();
    let is_place = PLACE_PHRASES.iter().any(|phrase| text.contains(phrase))
        || PLACE_NUMBERS.iter().any(|number| text.contains(&format!("(os error {number})")));
    if is_place { Fault::Place } else { Fault::Damage }
}

/// Runs the work in its own task, so that a panic of a decoder on damaged bytes becomes an error.
pub(crate) async fn guarded<T: Send + 'static>(
    work: impl Future<Output = Result<T, IndexError>> + Send + 'static,
) -> Result<T, IndexError> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(IndexError::Corrupted("reading it failed badly".to_owned())),
        Err(_) => Err(IndexError::Unavailable("stopped".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path whose segments look like the texts of other errors.
    const HOME: &str = "/srv/connection/timed out/forbidden/permission denied/no space left";

    fn is_damage(error: impl Error + 'static) -> bool {
        match index_error(error) {
            IndexError::Corrupted(_) => true,
            IndexError::Unavailable(_) => false,
            other => panic!("{other:?}"),
        }
    }
    fn io(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }
    fn store(name: &'static str, source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Generic { store: name, source: Box::new(source) }
    }

    #[test]
    fn the_place_is_told_from_damage_by_the_kind_of_the_error() {
        const NOT_FOUND: i32 = 2;
        const NO_ROOM: i32 = 28;
        const QUOTA: i32 = 122;
        const TOO_MANY_FILES: i32 = 24;
        for number in [NO_ROOM, QUOTA, TOO_MANY_FILES] {
            assert!(!is_damage(io(number)));
            assert!(!is_damage(LanceError::from(io(number))));
            assert!(!is_damage(LanceError::from(store("LocalFileSystem", io(number)))));
            assert!(!is_damage(LanceError::external(Box::new(io::Error::other(io(number))))));
            assert!(!is_damage(LanceError::execution(format!("reading {HOME}: {}", io(number)))));
        }
        assert!(is_damage(io(NOT_FOUND)));
        assert!(is_damage(LanceError::from(store("LocalFileSystem", io(NOT_FOUND)))));
        assert!(!is_damage(LanceError::from(store("S3", io::Error::other("error sending request")))));
        let refused = StoreError::PermissionDenied { path: "a".to_owned(), source: "403".into() };
        assert!(!is_damage(LanceError::from(refused)));
        let bucket = StoreError::NotFound { path: "a".to_owned(), source: "<Code>NoSuchBucket</Code>".into() };
        assert!(!is_damage(bucket));
    }

    #[test]
    fn words_in_a_path_say_nothing() {
        assert!(is_damage(LanceError::not_found(HOME)));
        assert!(is_damage(LanceError::execution(format!("file {HOME}/x.lance has no footer"))));
        assert!(is_damage(LanceError::from(io::Error::new(ErrorKind::UnexpectedEof, HOME))));
        assert!(!is_damage(LanceError::invalid_input("No object store provider found for scheme: 'gs'")));
    }
}
