//! A few threads for the express lane's reads of the store. They start with the first job and stay.

use crate::{MethodError, RpcError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::mpsc;

/// Threads that read.
const THREADS: usize = 4;
/// How many jobs may wait for a thread; beyond that, callers wait.
const MAX_WAITING: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// Gives a job to the threads. False when they could not be started.
async fn submit(job: Job) -> bool {
    static THREADS_IN: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    match THREADS_IN.get_or_init(start) {
        Some(jobs) => jobs.send(job).await.is_ok(),
        None => false,
    }
}

fn start() -> Option<mpsc::Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>(MAX_WAITING);
    let queue = Arc::new(Mutex::new(queue));
    let mut started = 0;
    for _ in 0..THREADS {
        let queue = queue.clone();
        let work = move || loop {
            let job = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            match job {
                // A panicking job does not affect other jobs: its caller receives an error, and the thread continues.
                Some(job) => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job))),
                None => return,
            }
        };
        match std::thread::Builder::new().name("express".into()).spawn(work) {
            Ok(_) => started += 1,
            Err(error) => tracing::error!(%error, "a thread for the express lane could not be started"),
        }
    }
    (started > 0).then_some(jobs)
}

/// Runs what may block on the store, on threads that tool calls do not share, so that calls that hang on a file cannot hold
/// up health and approvals.
pub(crate) async fn promptly<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MethodError> + Send + 'static,
) -> Result<T, MethodError> {
    let failed = || RpcError::unavailable("reading the store failed unexpectedly").into();
    let (done, answer) = tokio::sync::oneshot::channel();
    let job = move || {
        // The receiver is gone if the request was abandoned.
        drop(done.send(work()));
    };
    if !submit(Box::new(job)).await {
        return Err(failed());
    }
    answer.await.unwrap_or_else(|_| Err(failed()))
}
