//! A thread with a runtime of its own, so that callers without one (the store's methods block) can use an asynchronous
//! client, and a caller's runtime that ends does not end a request of somebody else.

use std::{future::Future, pin::Pin, sync::mpsc};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs futures for callers that block. Ends when it is dropped and what it was given is done.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: UnboundedSender<Job>,
}

impl Worker {
    pub(crate) fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Every caller waits for its own job, so the queue is as long as there are callers.
        let (jobs, mut waiting) = unbounded_channel::<Job>();
        std::thread::Builder::new().name("toolyard-bucket".into()).spawn(move || {
            runtime.block_on(async {
                let mut running = tokio::task::JoinSet::new();
                loop {
                    tokio::select! {
                        job = waiting.recv() => match job {
                            Some(job) => drop(running.spawn(job)),
                            None => break,
                        },
                        Some(_) = running.join_next() => {}
                    }
                }
                while running.join_next().await.is_some() {}
            });
        })?;
        Ok(Self { jobs })
    }

    /// Runs a future and blocks until it has ended. `None` when it panicked or the thread is gone.
    pub(crate) fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (done, result) = mpsc::sync_channel(1);
        let job = async move {
            let sent = done.send(work.await);
            debug_assert!(sent.is_ok(), "the caller waits");
        };
        self.jobs.send(Box::pin(job)).ok()?;
        result.recv().ok()
    }
}
