//! [`BackgroundTask`]: a future that is polled by its caller and continues as a separate task if the caller goes away.
//!
//! Work that must not end with its caller could be a separate task from the start. But moving a call to another thread
//! takes longer than many calls take, and callers rarely go away. Therefore the work becomes a task only when the
//! caller is dropped.

use futures_util::{
    FutureExt,
    future::{BoxFuture, CatchUnwind},
};
use std::{
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

type Guarded<T> = CatchUnwind<AssertUnwindSafe<BoxFuture<'static, T>>>;

/// Work that continues when its waiter goes away. A panic becomes its result and does not reach the waiter.
pub struct BackgroundTask<T: Send + 'static>(Option<Guarded<T>>);

impl<T: Send + 'static> BackgroundTask<T> {
    /// Nothing is done before it is waited for, or dropped.
    pub fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(AssertUnwindSafe(work.boxed()).catch_unwind()))
    }

    /// Waits for the rest of the work, which is cancelled if this future is dropped.
    pub(crate) async fn rest(mut self) -> Option<std::thread::Result<T>> {
        // Taken out first, so that the work ends with this future from here on.
        let left = self.0.take()?;
        Some(left.await)
    }

    /// Continues as a separate task; the owner may still wait for it.
    pub fn detach(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(left) = self.0.take()
        {
            let task = runtime.spawn(left);
            let joined = async move {
                match task.await {
                    Ok(Ok(result)) => result,
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
                }
            };
            *self = Self::new(joined);
        }
    }
}

impl<T: Send + 'static> Future for BackgroundTask<T> {
    type Output = std::thread::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.0 else {
            return Poll::Pending; // It has been answered already.
        };
        let result = std::task::ready!(work.poll_unpin(context));
        self.0 = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> Drop for BackgroundTask<T> {
    fn drop(&mut self) {
        // Without a runtime the program is ending, and everything with it.
        if let Some(left) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    fn slow(done: &Arc<AtomicBool>) -> BackgroundTask<u32> {
        let done = done.clone();
        BackgroundTask::new(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            done.store(true, Ordering::SeqCst);
            7
        })
    }

    #[tokio::test(start_paused = true)]
    async fn is_done_whether_or_not_somebody_waits() {
        for wait in [0_u64, 5, 50] {
            let done = Arc::new(AtomicBool::new(false));
            let waited = tokio::time::timeout(Duration::from_millis(wait), slow(&done)).await;
            assert_eq!(waited.ok().map(Result::unwrap), (wait > 20).then_some(7));
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert!(done.load(Ordering::SeqCst), "{wait}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_detached_goes_on_and_still_answers() {
        let done = Arc::new(AtomicBool::new(false));
        let mut work = slow(&done);
        work.detach();
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(done.load(Ordering::SeqCst));
        assert_eq!(work.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_ends_where_it_is_dropped() {
        let done = Arc::new(AtomicBool::new(false));
        let waited = tokio::time::timeout(Duration::from_millis(5), slow(&done).rest()).await;
        assert!(waited.is_err());
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(!done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_panic_is_its_result() {
        let mut work = BackgroundTask::<()>::new(async { panic!("told") });
        assert!((&mut work).await.is_err());
        let mut work = BackgroundTask::<()>::new(async { panic!("told") });
        work.detach();
        assert!(work.await.is_err());
    }
}
