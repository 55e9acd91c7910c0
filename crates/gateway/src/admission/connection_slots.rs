//! Counts the sockets of each address, from the accepted TCP connection until the socket is closed.
//!
//! A connection is *unproven* until it presents a credential. The number of unproven connections is limited for each
//! address and in total; when the limit is reached, the oldest one that has kept the gateway waiting is closed, so that
//! idle sockets cannot lock others out. A connection that has presented a credential is *proven*, is not counted as
//! unproven, and is never evicted. The slot is stored in the socket ([`SlottedSocket`]), so that it is released exactly when
//! the socket is dropped.
//!
//! This module handles addresses and sockets. It does not know HTTP, WebSocket or credentials.

use crate::settings::{LINGER, MAX_HTTP_CONNECTIONS, MAX_LINGER_BYTES, MAX_UNPROVEN, MAX_UNPROVEN_PER_ADDRESS, YOUNG};
use futures_util::task::AtomicWaker;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, Ipv6Addr},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// When an address has fewer free slots than this, one old connection is closed for each new one, so that a new
/// connection seldom has to wait.
const HEADROOM: usize = 16;
/// The same for all addresses together.
const HEADROOM_IN_ALL: usize = 64;
/// How long the listener waits for a free slot: until the oldest connection is old enough, and closed.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the listener waits between two looks for a free slot.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Descriptors that stay free for files, upstream servers and the database: the others may be used by unauthenticated
/// connections.
const UNPROVEN_SHARE_OF_FILES: u64 = 4;

const UNPROVEN: u8 = 0;
const PROVEN: u8 = 1;
const EVICTED: u8 = 2;

/// All slots of a listener.
pub(crate) struct ConnectionSlots {
    state: Mutex<State>,
    per_address: usize,
    in_all: usize,
    proven_http: usize,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Unproven connections of all addresses, evicted ones included until they are closed.
    unproven: usize,
    /// Proven connections that are not WebSockets.
    proven_http: usize,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Default)]
struct Address {
    /// By arrival, the oldest first. Evicted ones stay until they are closed.
    unproven: BTreeMap<u64, Arc<SlotState>>,
    /// Proven connections, of any kind.
    proven: usize,
}

/// What a slot and its socket share.
struct SlotState {
    status: AtomicU8,
    /// A request was refused before its body was read: the rest of it is discarded before the socket is closed.
    unread: AtomicBool,
    since: Instant,
    /// Milliseconds from `since` to the moment from which we have been waiting for the peer to send or to read; 0 while it
    /// is our turn.
    waiting_from: AtomicU64,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl SlotState {
    fn is(&self, status: u8) -> bool {
        self.status.load(Ordering::Acquire) == status
    }

    /// Whether it is old enough to be closed for another connection.
    fn is_old(&self) -> bool {
        self.is(UNPROVEN) && self.since.elapsed() >= YOUNG
    }

    /// Whether the peer has kept us waiting, rather than we the peer.
    fn is_idle(&self) -> bool {
        let from = self.waiting_from.load(Ordering::Relaxed);
        from > 0 && self.since.elapsed() >= Duration::from_millis(from) + YOUNG
    }

    /// Records after a read or a write whether the peer or the gateway must act next.
    fn note<T>(&self, poll: Poll<T>) -> Poll<T> {
        if self.is(PROVEN) {
            return poll;
        }
        if poll.is_ready() {
            self.waiting_from.store(0, Ordering::Relaxed);
        } else if self.waiting_from.load(Ordering::Relaxed) == 0 {
            let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.waiting_from.store(now.max(1), Ordering::Relaxed);
        }
        poll
    }

    fn evict(&self) {
        if self.status.compare_exchange(UNPROVEN, EVICTED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.reader.wake();
            self.writer.wake();
        }
    }
}

/// Where a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Unproven,
    ProvenHttp,
    ProvenSocket,
}

/// The slot of one connection; released on drop.
pub(crate) struct ConnectionSlot {
    connection_slots: Arc<ConnectionSlots>,
    shared: Arc<SlotState>,
    number: u64,
    entry: Mutex<(IpAddr, Counted)>,
}

/// Why a connection is closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// It was evicted while it tried, and is being closed.
    Evicted,
    /// There are too many proven HTTP connections.
    TooMany,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address under which a peer is counted. A peer with an IPv6 address usually has its whole /64.
pub(super) fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

impl ConnectionSlots {
    /// With the fixed limits, and fewer slots where this process may open few files.
    pub(crate) fn new() -> Arc<Self> {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let by_files = usize::try_from(files / UNPROVEN_SHARE_OF_FILES).unwrap_or(usize::MAX).max(2 * HEADROOM_IN_ALL);
        Self::with_limits(MAX_UNPROVEN_PER_ADDRESS, MAX_UNPROVEN.min(by_files), MAX_HTTP_CONNECTIONS)
    }

    fn with_limits(per_address: usize, in_all: usize, proven_http: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), per_address, in_all, proven_http })
    }

    /// A slot for a newly accepted connection. `limited` is false for a trusted proxy, whose connections belong to
    /// other addresses. `None` means that the address has too many young connections, and this one must be dropped.
    pub(crate) async fn take(self: &Arc<Self>, peer: IpAddr, limited: bool) -> Option<Arc<ConnectionSlot>> {
        let address = counted_as(peer);
        let give_up = Instant::now() + PATIENCE;
        loop {
            let patient = match self.try_take(address, limited) {
                Ok(slot) => return Some(slot),
                Err(patient) => patient,
            };
            if !patient || Instant::now() >= give_up {
                return None;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// A slot, or whether to wait for one: if clients with a credential come from this address, a burst of new
    /// connections is probably theirs, and they prove themselves within milliseconds.
    fn try_take(self: &Arc<Self>, address: IpAddr, limited: bool) -> Result<Arc<ConnectionSlot>, bool> {
        let mut state = lock(&self.state);
        if state.unproven + HEADROOM_IN_ALL > self.in_all {
            state.evict_from_the_most_crowded();
        }
        let own = state.addresses.entry(address).or_default();
        if limited && own.unproven.len() + HEADROOM > self.per_address {
            own.evict_oldest();
        }
        // The connection that is being accepted uses a descriptor too.
        let full = (limited && own.unproven.len() + 1 >= self.per_address) || state.unproven + 1 >= self.in_all;
        if full {
            let own = state.addresses.get(&address);
            let patient = address.is_loopback() || own.is_some_and(|own| own.proven > 0);
            state.forget_if_empty(address);
            return Err(patient);
        }
        let shared = Arc::new(SlotState {
            status: AtomicU8::new(UNPROVEN),
            unread: AtomicBool::new(false),
            since: Instant::now(),
            waiting_from: AtomicU64::new(0),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        });
        let number = state.next;
        state.next += 1;
        state.enter(address, number, &shared);
        let entry = Mutex::new((address, Counted::Unproven));
        Ok(Arc::new(ConnectionSlot { connection_slots: self.clone(), shared, number, entry }))
    }

    /// Makes room after the system refused to open one more file.
    pub(crate) fn make_room(&self) {
        lock(&self.state).evict_from_the_most_crowded();
    }

    /// Unproven connections now.
    pub(crate) fn unproven(&self) -> usize {
        lock(&self.state).unproven
    }
}

impl State {
    fn enter(&mut self, address: IpAddr, number: u64, shared: &Arc<SlotState>) {
        self.unproven += 1;
        self.addresses.entry(address).or_default().unproven.insert(number, shared.clone());
    }

    fn leave(&mut self, address: IpAddr, number: u64, counted: Counted) {
        let own = self.addresses.entry(address).or_default();
        match counted {
            Counted::Unproven => {
                if own.unproven.remove(&number).is_some() {
                    self.unproven -= 1;
                }
            }
            Counted::ProvenHttp => {
                own.proven = own.proven.saturating_sub(1);
                self.proven_http = self.proven_http.saturating_sub(1);
            }
            Counted::ProvenSocket => own.proven = own.proven.saturating_sub(1),
        }
        self.forget_if_empty(address);
    }

    fn forget_if_empty(&mut self, address: IpAddr) {
        if self.addresses.get(&address).is_some_and(|own| own.unproven.is_empty() && own.proven == 0) {
            self.addresses.remove(&address);
        }
    }

    fn evict_from_the_most_crowded(&mut self) {
        if let Some(most) = self.addresses.values().max_by_key(|own| own.unproven.len()) {
            for _ in 0..HEADROOM {
                most.evict_oldest();
            }
        }
    }
}

impl Address {
    /// Closes the connection that has been unproven for longest, unless all of them have just arrived. A connection
    /// whose peer keeps the gateway waiting is closed before one whose request is not answered.
    fn evict_oldest(&self) {
        let mut old = self.unproven.values().filter(|shared| shared.is_old());
        let idle = old.clone().find(|shared| shared.is_idle());
        if let Some(shared) = idle.or_else(|| old.next()) {
            shared.evict();
        }
    }
}

impl ConnectionSlot {
    /// Counts the connection at another address: that of a trusted proxy's client.
    pub(crate) fn attribute(&self, client: IpAddr) {
        let address = counted_as(client);
        let mut entry = lock(&self.entry);
        if entry.0 == address || entry.1 != Counted::Unproven {
            return;
        }
        let mut state = lock(&self.connection_slots.state);
        state.leave(entry.0, self.number, Counted::Unproven);
        state.enter(address, self.number, &self.shared);
        if let Some(own) = state.addresses.get(&address)
            && own.unproven.len() > self.connection_slots.per_address
        {
            // The newest connection is dropped here, because the listener does not wait for clients behind a proxy.
            self.shared.evict();
        }
        entry.0 = address;
    }

    /// The connection has shown a credential: it leaves the unproven count.
    pub(crate) fn prove(&self) -> Result<(), SlotError> {
        if self.shared.is(PROVEN) {
            return Ok(());
        }
        let mut entry = lock(&self.entry);
        let mut state = lock(&self.connection_slots.state);
        if entry.1 != Counted::Unproven {
            return Ok(());
        }
        if state.proven_http >= self.connection_slots.proven_http {
            return Err(SlotError::TooMany);
        }
        let status = &self.shared.status;
        if status.compare_exchange(UNPROVEN, PROVEN, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(SlotError::Evicted);
        }
        let address = entry.0;
        state.proven_http += 1;
        // Counted before it leaves, so that the address is not forgotten in between.
        state.addresses.entry(address).or_default().proven += 1;
        state.leave(address, self.number, Counted::Unproven);
        entry.1 = Counted::ProvenHttp;
        Ok(())
    }

    /// Marks the connection as a proven WebSocket, which has a separate limit.
    pub(crate) fn prove_socket(&self) -> Result<(), SlotError> {
        let proven = self.prove();
        // The limit of HTTP connections does not apply to WebSockets.
        let mut entry = lock(&self.entry);
        let mut state = lock(&self.connection_slots.state);
        match (proven, entry.1) {
            (Err(SlotError::Evicted), _) => return Err(SlotError::Evicted),
            (_, Counted::ProvenHttp) => state.proven_http = state.proven_http.saturating_sub(1),
            (_, Counted::Unproven) => {
                let status = &self.shared.status;
                if status.compare_exchange(UNPROVEN, PROVEN, Ordering::AcqRel, Ordering::Acquire).is_err() {
                    return Err(SlotError::Evicted);
                }
                let address = entry.0;
                state.addresses.entry(address).or_default().proven += 1;
                state.leave(address, self.number, Counted::Unproven);
            }
            (_, Counted::ProvenSocket) => {}
        }
        entry.1 = Counted::ProvenSocket;
        Ok(())
    }

    /// A request on this connection is refused without reading its body.
    pub(crate) fn leave_unread(&self) {
        self.shared.unread.store(true, Ordering::Release);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let (address, counted) = *lock(&self.entry);
        lock(&self.connection_slots.state).leave(address, self.number, counted);
    }
}

/// A socket with its slot. An evicted socket fails at its next read or write, whatever was being done with it.
pub(crate) struct SlottedSocket<S> {
    io: S,
    slot: Arc<ConnectionSlot>,
    lingering: Option<Lingering>,
}

/// Discards for a moment what a peer still sends after its request was refused: closing with unread bytes would reset
/// the connection, and the peer might never read the refusal.
struct Lingering {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl<S> SlottedSocket<S> {
    pub(crate) fn new(io: S, slot: Arc<ConnectionSlot>) -> Self {
        Self { io, slot, lingering: None }
    }

    /// Whether the connection may go on; wakes the task when that changes.
    fn watch(&self, waker: &AtomicWaker, cx: &Context<'_>) -> io::Result<()> {
        let shared = &self.slot.shared;
        if shared.is(PROVEN) {
            return Ok(());
        }
        waker.register(cx.waker());
        if shared.is(EVICTED) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed to make room for another connection"));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlottedSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.watch(&self.slot.shared.reader, cx)?;
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        self.slot.shared.note(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SlottedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(&self.slot.shared.writer, cx)?;
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.slot.shared.note(written)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(&self.slot.shared.writer, cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            std::task::ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if !this.slot.shared.unread.load(Ordering::Acquire) {
                return Poll::Ready(Ok(()));
            }
        }
        this.watch(&this.slot.shared.reader, cx)?;
        let lingering = this
            .lingering
            .get_or_insert_with(|| Lingering { until: Box::pin(tokio::time::sleep(LINGER)), left: MAX_LINGER_BYTES });
        let mut scrap = [0; 4 << 10];
        while lingering.left > 0 && lingering.until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut scrap);
            match std::task::ready!(Pin::new(&mut this.io).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {
                    lingering.left = lingering.left.saturating_sub(buf.filled().len())
                }
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(&self.slot.shared.writer, cx)?;
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.slot.shared.note(written)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    const HERE: &str = "127.0.0.1";
    const FAR: &str = "203.0.113.9";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    async fn fill(connection_slots: &Arc<ConnectionSlots>, address: &str, count: usize) -> Vec<Arc<ConnectionSlot>> {
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(connection_slots.take(ip(address), true).await.expect("a slot"));
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_unproven_connection_makes_room_and_a_proven_one_never_does() {
        let connection_slots = ConnectionSlots::with_limits(32, 1000, 1000);
        let mut held = fill(&connection_slots, HERE, 20).await;
        held[0].prove().unwrap();
        tokio::time::sleep(YOUNG).await;
        held.extend(fill(&connection_slots, HERE, 2).await);
        assert!(held[0].shared.is(PROVEN));
        assert!(held[1].shared.is(EVICTED), "the oldest unproven one");
        assert!(held[3].shared.is(UNPROVEN));
        let (mut peer, own) = tokio::io::duplex(64);
        let mut evicted = SlottedSocket::new(own, held[1].clone());
        assert_eq!(evicted.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(held[1].prove(), Err(SlotError::Evicted), "too late");
        drop(evicted);
        assert_eq!(peer.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_keeps_us_waiting_goes_before_one_that_waits_for_us() {
        let connection_slots = ConnectionSlots::with_limits(32, 1000, 1000);
        let mut held = fill(&connection_slots, HERE, 20).await;
        let (mut peer, own) = tokio::io::duplex(64);
        let mut silent = SlottedSocket::new(own, held[5].clone());
        let reading = tokio::spawn(async move { silent.read(&mut [0; 8]).await });
        tokio::time::sleep(2 * YOUNG).await;
        held.extend(fill(&connection_slots, HERE, 1).await);
        assert!(held[5].shared.is(EVICTED) && held[0].shared.is(UNPROVEN));
        assert!(reading.await.unwrap().is_err());
        assert_eq!(peer.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_is_counted_until_it_is_dropped() {
        let connection_slots = ConnectionSlots::with_limits(32, 1000, 1000);
        let held = fill(&connection_slots, FAR, 31).await;
        assert!(
            connection_slots.take(ip(FAR), true).await.is_none(),
            "all of them are young, and none has a credential"
        );
        assert!(connection_slots.take(ip("203.0.113.10"), true).await.is_some(), "another address is not affected");
        assert_eq!(connection_slots.unproven(), 31);
        tokio::time::sleep(YOUNG).await;
        assert!(connection_slots.take(ip(FAR), true).await.is_none(), "evicted, but still open: they count");
        drop(held);
        assert_eq!(connection_slots.unproven(), 0);
        assert!(
            lock(&connection_slots.state).addresses.is_empty(),
            "nothing is remembered about an address that is gone"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_on_loopback_waits_for_those_before_it() {
        let connection_slots = ConnectionSlots::with_limits(32, 1000, 1000);
        let held = fill(&connection_slots, HERE, 31).await;
        let waiting = tokio::spawn({
            let connection_slots = connection_slots.clone();
            async move { connection_slots.take(ip(HERE), true).await.is_some() }
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        held[30].prove().unwrap();
        assert!(waiting.await.unwrap());
        assert!(held.iter().all(|slot| !slot.shared.is(EVICTED)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_crowded_address_gives_way_when_all_seats_are_taken() {
        let connection_slots = ConnectionSlots::with_limits(1000, 200, 1000);
        let crowd = fill(&connection_slots, FAR, 120).await;
        let few = fill(&connection_slots, HERE, 10).await;
        tokio::time::sleep(YOUNG).await;
        fill(&connection_slots, "203.0.113.77", 8).await;
        assert!(crowd.iter().any(|slot| slot.shared.is(EVICTED)));
        assert!(few.iter().all(|slot| slot.shared.is(UNPROVEN)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxys_connection_is_counted_at_its_client() {
        let connection_slots = ConnectionSlots::with_limits(32, 1000, 1000);
        let mut held = Vec::new();
        for _ in 0..40 {
            held.push(connection_slots.take(ip(HERE), false).await.expect("a proxy has no limit of its own"));
        }
        for slot in &held {
            slot.attribute(ip("2001:db8::1"));
        }
        assert_eq!(held.iter().filter(|slot| slot.shared.is(EVICTED)).count(), 8);
        let neighbour = connection_slots.take(ip("2001:db8::2"), true).await;
        assert!(neighbour.is_none(), "the same /64");
        held[0].prove_socket().unwrap();
        drop(held);
        assert_eq!((connection_slots.unproven(), lock(&connection_slots.state).proven_http), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn proven_http_connections_have_a_limit_that_sockets_do_not_share() {
        let connection_slots = ConnectionSlots::with_limits(32, 1000, 2);
        let held = fill(&connection_slots, HERE, 4).await;
        held[0].prove().unwrap();
        held[1].prove().unwrap();
        assert_eq!(held[2].prove(), Err(SlotError::TooMany));
        held[2].prove_socket().unwrap();
        held[1].prove_socket().unwrap();
        held[3].prove().unwrap();
    }
}
