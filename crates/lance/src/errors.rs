//! What LanceDB says, as the index trait's few errors.

use toolyard_knowledge::index::IndexError;

/// Signs that the place is at fault, not what lies there.
const PLACE: [&str; 12] = [
    "no space left",
    "permission denied",
    "read-only file system",
    "too many open files",
    "connection",
    "timed out",
    "timeout",
    "dns error",
    "error sending request",
    "forbidden",
    "unauthorized",
    "access denied",
];

/// Of anything that came out of LanceDB or below it. What is there and cannot be read is damaged; what cannot be
/// reached or written is not.
pub(crate) fn index_error(error: impl std::error::Error) -> IndexError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    let lower = text.to_lowercase();
    // The first line is enough for a log, and keeps whole stack traces out of it.
    let short: String = text.lines().next().unwrap_or_default().chars().take(300).collect();
    if PLACE.iter().any(|sign| lower.contains(sign)) {
        IndexError::Unavailable(short)
    } else {
        IndexError::Corrupted(short)
    }
}

/// Runs work on its own task: a decoder that panics on damaged bytes becomes an error.
pub(crate) async fn guarded<T: Send + 'static>(
    work: impl Future<Output = Result<T, IndexError>> + Send + 'static,
) -> Result<T, IndexError> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(IndexError::Corrupted("reading it failed badly".to_owned())),
        Err(_) => Err(IndexError::Unavailable("stopped".to_owned())),
    }
}
