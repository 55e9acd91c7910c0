//! Places: how many requests may run and wait, and how many connections of one address may be without a credential.

use super::{Gateway, Inner, lock};
use crate::settings::{MAX_PREAUTH_PER_ADDRESS, MAX_RUNNING_REQUESTS, MAX_WAITING_BYTES, MAX_WAITING_REQUESTS};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted.
pub(crate) struct Places {
    preauth: Mutex<HashMap<IpAddr, usize>>,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            preauth: Mutex::default(),
            running: Arc::new(Semaphore::new(MAX_RUNNING_REQUESTS)),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
        }
    }
}

/// A place among the requests under way.
pub(crate) enum Place {
    /// It may start.
    Now(OwnedSemaphorePermit),
    /// It waits its turn.
    Queued(QueuedPlace),
}

/// A place in the queue, given back when dropped.
pub(crate) struct QueuedPlace {
    inner: Arc<Inner>,
    bytes: usize,
}

impl QueuedPlace {
    pub(crate) async fn turn(self) -> Option<OwnedSemaphorePermit> {
        self.inner.places.running.clone().acquire_owned().await.ok()
    }
}

impl Drop for QueuedPlace {
    fn drop(&mut self) {
        self.inner.places.waiting.fetch_sub(1, Ordering::AcqRel);
        self.inner.places.waiting_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Counts a connection that has not shown a credential yet.
pub(crate) struct Unproven {
    inner: Arc<Inner>,
    address: IpAddr,
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut preauth = lock(&self.inner.places.preauth);
        if let Some(count) = preauth.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                preauth.remove(&self.address);
            }
        }
    }
}

impl Gateway {
    /// Counts a connection whose handshake is not done; `None` when its address has too many.
    pub(crate) fn unproven(&self, address: IpAddr) -> Option<Unproven> {
        let mut preauth = lock(&self.inner.places.preauth);
        let count = preauth.entry(address).or_default();
        if *count >= MAX_PREAUTH_PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Unproven { inner: self.inner.clone(), address })
    }

    /// A place for a request, or `None` when the queue is full.
    pub(crate) fn place(&self, bytes: usize) -> Option<Place> {
        let places = &self.inner.places;
        if let Ok(permit) = places.running.clone().try_acquire_owned() {
            return Some(Place::Now(permit));
        }
        let place = QueuedPlace { inner: self.inner.clone(), bytes };
        let ahead = places.waiting.fetch_add(1, Ordering::AcqRel);
        let ahead_bytes = places.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        // Dropping the place gives both back.
        (ahead < MAX_WAITING_REQUESTS && ahead_bytes + bytes <= MAX_WAITING_BYTES).then_some(Place::Queued(place))
    }
}
