//! Reads request bodies with a size limit and a time limit, and limits the memory that all bodies use together.
//!
//! Memory is counted as bytes arrive, for each address and in total, and released when the request has been answered. A
//! body for which there is no memory is refused and never waits: half-read bodies that wait for each other would keep
//! their memory until their time limit.

use super::connection_slots::counted_as;
use crate::{
    auth::Origin,
    settings::{MAX_BODIES_BYTES, MAX_BODIES_BYTES_PER_ADDRESS},
};
use axum::{
    body::{Body, Bytes},
    http::request::Parts,
};
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The account of all bodies.
pub(crate) struct Bodies {
    used: Mutex<MemoryUse>,
    per_address: usize,
    in_all: usize,
}

#[derive(Default)]
struct MemoryUse {
    in_all: usize,
    addresses: HashMap<IpAddr, usize>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { used: Mutex::default(), per_address: MAX_BODIES_BYTES_PER_ADDRESS, in_all: MAX_BODIES_BYTES }
    }
}

/// The memory of one body; released on drop.
pub(crate) struct BodyMemory {
    bodies: Arc<Bodies>,
    address: IpAddr,
    bytes: usize,
}

impl BodyMemory {
    /// Counts more bytes, if there is room for them.
    fn grow(&mut self, more: usize) -> bool {
        let mut used = self.bodies.used.lock().unwrap_or_else(PoisonError::into_inner);
        let own = used.addresses.get(&self.address).copied().unwrap_or_default();
        if used.in_all + more > self.bodies.in_all || own + more > self.bodies.per_address {
            return false;
        }
        used.in_all += more;
        used.addresses.insert(self.address, own + more);
        self.bytes += more;
        true
    }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.bodies.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.in_all = used.in_all.saturating_sub(self.bytes);
        if let Some(own) = used.addresses.get_mut(&self.address) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.addresses.remove(&self.address);
            }
        }
    }
}

/// A request whose body was read.
pub(crate) struct Received {
    pub(crate) parts: Parts,
    pub(crate) bytes: Bytes,
    pub(crate) origin: Origin,
    /// The workspace that the credential names.
    pub(crate) workspace: toolyard_protocol::WorkspaceId,
    /// Keeps the body's memory counted for as long as the request is worked on.
    pub(crate) held: BodyMemory,
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is longer than the rule allows.
    TooLarge,
    /// The body did not arrive in time.
    TooSlow,
    /// Other bodies take all memory that there is for bodies.
    NoMemory,
    /// The connection or its framing broke.
    Broken,
}

/// Reads a body of at most `max` bytes within a time.
pub(crate) async fn read(
    bodies: &Arc<Bodies>,
    address: IpAddr,
    body: Body,
    max: usize,
    within: Duration,
) -> Result<(Bytes, BodyMemory), BodyError> {
    let mut held = BodyMemory { bodies: bodies.clone(), address: counted_as(address), bytes: 0 };
    if axum::body::HttpBody::is_end_stream(&body) {
        return Ok((Bytes::new(), held));
    }
    let bytes = tokio::time::timeout(within, collect(&mut held, body, max)).await.map_err(|_| BodyError::TooSlow)??;
    Ok((bytes, held))
}

async fn collect(held: &mut BodyMemory, body: Body, max: usize) -> Result<Bytes, BodyError> {
    let mut pieces = body.into_data_stream();
    let mut first = Bytes::new();
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| BodyError::Broken)?;
        if held.bytes + piece.len() > max {
            return Err(BodyError::TooLarge);
        }
        if !held.grow(piece.len()) {
            return Err(BodyError::NoMemory);
        }
        // Most bodies come in one piece, which need not be copied.
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;

    const SOON: Duration = Duration::from_millis(200);

    fn pieces(sizes: &'static [usize]) -> Body {
        Body::from_stream(stream::iter(sizes.iter().map(|n| Ok::<_, Infallible>(Bytes::from(vec![b'x'; *n])))))
    }

    fn here() -> IpAddr {
        "127.0.0.1".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_whole_or_refused_and_its_memory_comes_back() {
        let bodies = Arc::new(Bodies { used: Mutex::default(), per_address: 100, in_all: 150 });
        let (bytes, held) = read(&bodies, here(), pieces(&[10, 20, 30]), 60, SOON).await.unwrap();
        assert_eq!((bytes.len(), held.bytes), (60, 60));
        let refused = read(&bodies, here(), pieces(&[10, 51]), 60, SOON).await.err();
        assert_eq!(refused, Some(BodyError::TooLarge));
        let refused = read(&bodies, here(), pieces(&[41]), 60, SOON).await.err();
        assert_eq!(refused, Some(BodyError::NoMemory), "this address has taken its part");
        let other: IpAddr = "203.0.113.9".parse().unwrap();
        let (_, second) = read(&bodies, other, pieces(&[80]), 90, SOON).await.unwrap();
        let third: IpAddr = "203.0.113.10".parse().unwrap();
        assert_eq!(read(&bodies, third, pieces(&[20]), 90, SOON).await.err(), Some(BodyError::NoMemory));
        drop((held, second));
        assert_eq!(bodies.used.lock().unwrap().in_all, 0);
        assert!(bodies.used.lock().unwrap().addresses.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up_and_holds_nothing() {
        let bodies = Arc::new(Bodies::default());
        let slow = stream::unfold(0, |n| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), n + 1))
        });
        let given_up = read(&bodies, here(), Body::from_stream(slow), 1000, Duration::from_secs(30)).await.err();
        assert_eq!(given_up, Some(BodyError::TooSlow), "one more byte now and then buys no time");
        assert_eq!(bodies.used.lock().unwrap().in_all, 0);
    }
}
