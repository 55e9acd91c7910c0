//! Work that may block on the store, on a bounded number of threads.
//!
//! A store on a server may take seconds for each read. The runtime has a limited number of threads for work that blocks (512),
//! and a worker that has to wait itself hands its other tasks over to one of them. If waiting reads had all of them, no
//! task would be left a thread, and `health` would wait for the database as well.

use tokio::{sync::Semaphore, task::JoinError};

/// Threads that may wait for the store at the same time; further work waits without a thread.
pub const STORE_THREADS: usize = 128;

static ROOM: Semaphore = Semaphore::const_new(STORE_THREADS);

/// Runs work that may block on the store. The work continues when the caller goes away.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    // An error would mean that the semaphore was closed, which nobody does.
    let place = ROOM.acquire().await.ok();
    tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier, mpsc};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn waiting_reads_leave_threads_for_others() {
        // The reads wait until the test lets them go.
        let (waiting, go) = (Arc::new(Barrier::new(STORE_THREADS + 1)), Arc::new(Barrier::new(STORE_THREADS + 1)));
        let mut reads = Vec::new();
        for _ in 0..STORE_THREADS {
            let (waiting, go) = (waiting.clone(), go.clone());
            reads.push(tokio::spawn(off_thread(move || {
                waiting.wait();
                go.wait();
            })));
        }
        let (began, begun) = mpsc::channel();
        tokio::task::spawn_blocking(move || waiting.wait()).await.unwrap();
        let further: Vec<_> = (0..600)
            .map(|_| {
                let began = began.clone();
                tokio::spawn(off_thread(move || began.send(()).is_ok()))
            })
            .collect();
        // A worker that waits hands its tasks over to a free thread.
        tokio::spawn(async { tokio::task::block_in_place(|| ()) }).await.unwrap();
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(begun.try_recv().is_err(), "further reads wait for a place");
        tokio::task::spawn_blocking(move || go.wait()).await.unwrap();
        for read in reads {
            read.await.unwrap().unwrap();
        }
        for read in further {
            assert!(read.await.unwrap().unwrap());
        }
    }
}
