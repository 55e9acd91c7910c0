//! Notifies watchers that the store has changed, by this process or another one.

use crate::{limits, schema};
use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// The source of hints.
#[derive(Default)]
pub(crate) struct Hints {
    sender: watch::Sender<u64>,
    /// Whether a thread polls for changes of other processes.
    is_polled: Mutex<bool>,
    is_closed: AtomicBool,
}

impl Hints {
    /// Reports a commit of this process.
    pub(crate) fn changed(&self) {
        self.sender.send_modify(|number| *number += 1);
    }

    /// Ends all hints, because the store closes.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// A new watcher. While there is one, a thread asks SQLite whether another process has changed the database.
    pub(crate) fn watch(self: &Arc<Self>, dir: &Path) -> watch::Receiver<u64> {
        let receiver = self.sender.subscribe();
        let mut is_polled = self.is_polled.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_polled {
            let (hints, dir) = (Arc::clone(self), dir.to_owned());
            let thread = std::thread::Builder::new()
                .name("store-hints".into())
                .stack_size(256 << 10)
                .spawn(move || hints.poll(&dir));
            match thread {
                Ok(_) => *is_polled = true,
                Err(error) => tracing::warn!(%error, "changes of other processes are not noticed"),
            }
        }
        receiver
    }

    fn poll(&self, dir: &Path) {
        let mut seen: Option<i64> = None;
        let connection = schema::open_reader(dir).inspect_err(|error| {
            tracing::warn!(%error, "changes of other processes are not noticed");
        });
        loop {
            {
                let mut is_polled = self.is_polled.lock().unwrap_or_else(PoisonError::into_inner);
                if self.sender.receiver_count() == 0 || self.is_closed.load(Ordering::Acquire) || connection.is_err() {
                    *is_polled = false;
                    return;
                }
            }
            if let Ok(connection) = &connection {
                match connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)) {
                    Ok(version) if seen.replace(version).is_some_and(|seen| seen != version) => self.changed(),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "changes of other processes are not noticed now"),
                }
            }
            std::thread::sleep(limits::HINT_POLL);
        }
    }
}
