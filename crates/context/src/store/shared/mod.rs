//! Accounts that several nodes share. Each node has a copy of the files on its disk and works on it as a single machine
//! would. While it does, it holds the account's lease, so that no other node does the same. A request that changed files
//! is answered after its changes are durable in the shared store; a node that takes the lease first reads what others
//! changed.
//!
//! What a request changed becomes visible elsewhere as a whole or not at all. If a node dies during a request, nothing of
//! the request remains.

mod facts;
mod local;
mod transfer;

pub use facts::{PieceStore, SharedParts};
pub use transfer::{Transferred, from_shared, to_shared};

use crate::{
    error::{ApiError, Code, Result},
    store::{
        account::{Account, lock},
        touched::Touched,
        uri::{Kind, SCOPES, StorePath},
    },
};
use facts::{Change, Entry, Facts, Lease};
use local::CollectedChange;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a request waits while another node works on the account.
const WAIT: Duration = Duration::from_secs(20);
/// How often a waiting node looks again: the first time and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(40));
/// After this time a node takes no further requests until it has released the lease, so that other nodes can take it.
const TURN: Duration = Duration::from_millis(250);

thread_local! {
    /// The accounts on which this thread works: a request may use functions that are requests of their own.
    static WITHIN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The accounts that this node shares with others.
pub(crate) struct SharedAccounts {
    parts: SharedParts,
    accounts: Mutex<HashMap<String, Arc<SharedAccount>>>,
}

impl SharedAccounts {
    pub(crate) fn new(parts: SharedParts) -> Self {
        Self { parts, accounts: Mutex::default() }
    }

    fn of(&self, account: &Account) -> Arc<SharedAccount> {
        let mut accounts = lock(&self.accounts);
        let made = || Arc::new(SharedAccount::new(self.parts.clone(), account));
        accounts.entry(account.name.clone()).or_insert_with(made).clone()
    }

    /// Removes pieces of an account from the bucket that no file uses. Answers how many.
    pub(crate) fn sweep(&self, account: &Arc<Account>) -> Result<u64> {
        if self.parts.pieces.is_none() {
            return Ok(0);
        }
        let shared = self.of(account);
        self.request(account, || {
            let known = lock(&shared.known);
            shared.facts.sweep(|hash| known.uses.contains_key(hash))
        })
    }

    /// Runs a request on an account: after what other nodes changed is there, and until what it changes is durable.
    pub(crate) fn request<T, E: From<ApiError>>(
        &self,
        account: &Arc<Account>,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if WITHIN.with_borrow(|within| within.contains(&account.name)) {
            return work();
        }
        let shared = self.of(account);
        shared.enter(account)?;
        let turn = RequestGuard { shared: &shared, account };
        WITHIN.with_borrow_mut(|within| within.push(account.name.clone()));
        let done = work();
        let published = shared.publish(account);
        drop(turn);
        let done = done?;
        published?;
        Ok(done)
    }
}

/// Ends a request when dropped, also after a panic.
struct RequestGuard<'a> {
    shared: &'a SharedAccount,
    account: &'a Arc<Account>,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        WITHIN.with_borrow_mut(|within| within.retain(|name| *name != self.account.name));
        self.shared.leave();
    }
}

enum Phase {
    /// This node does not hold the lease.
    Away,
    /// One thread is acquiring or releasing the lease.
    Changing,
    /// This node holds it since then.
    Held(Instant),
}

struct Gate {
    phase: Phase,
    /// Requests under way.
    requests: usize,
}

/// What this node knows of the shared account.
#[derive(Default)]
struct KnownState {
    /// The lease as this node wrote it, and its bytes.
    lease: Lease,
    raw: Option<Vec<u8>>,
    /// The last change that is on this disk; `None` if nothing is known about this disk.
    cursor: Option<u64>,
    entries: BTreeMap<String, Entry>,
    /// How many entries use a piece.
    uses: HashMap<String, usize>,
}

impl KnownState {
    /// Takes a change in. Answers the pieces that no file uses any more.
    fn take_in(&mut self, change: &Change) -> Vec<String> {
        let mut gone = Vec::new();
        for (name, entry) in &change.files {
            let below = format!("{name}/");
            let mut old = vec![name.clone()];
            if entry.is_none() {
                let inside = self.entries.range(below.clone()..).take_while(|(other, _)| other.starts_with(&below));
                old.extend(inside.map(|(other, _)| other.clone()));
            }
            let removed: Vec<Entry> = old.iter().filter_map(|name| self.entries.remove(name)).collect();
            if let Some(entry) = entry {
                for chunk in &entry.chunks {
                    *self.uses.entry(chunk.clone()).or_default() += 1;
                }
                self.entries.insert(name.clone(), entry.clone());
            }
            for chunk in removed.into_iter().flat_map(|entry| entry.chunks) {
                if let Some(uses) = self.uses.get_mut(&chunk) {
                    *uses -= 1;
                    if *uses == 0 {
                        self.uses.remove(&chunk);
                        gone.push(chunk);
                    }
                }
            }
        }
        gone.retain(|chunk| !self.uses.contains_key(chunk));
        gone
    }
}

struct SharedAccount {
    facts: Facts,
    touched: Arc<Touched>,
    gate: Mutex<Gate>,
    turned: Condvar,
    known: Mutex<KnownState>,
}

impl SharedAccount {
    fn new(parts: SharedParts, account: &Account) -> Self {
        Self {
            facts: Facts::new(parts, &account.name),
            touched: Touched::listen(account.folder.clone()),
            gate: Mutex::new(Gate { phase: Phase::Away, requests: 0 }),
            turned: Condvar::new(),
            known: Mutex::default(),
        }
    }

    /// Begins a request: takes the lease if this node does not hold it.
    fn enter(&self, account: &Account) -> Result<()> {
        let mut gate = lock(&self.gate);
        loop {
            match gate.phase {
                Phase::Held(since) if since.elapsed() < TURN => {
                    gate.requests += 1;
                    return Ok(());
                }
                Phase::Away => break,
                Phase::Held(_) | Phase::Changing => {
                    gate = self.turned.wait(gate).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        gate.phase = Phase::Changing;
        drop(gate);
        let taken = self.take(account);
        let mut gate = lock(&self.gate);
        match &taken {
            Ok(()) => *gate = Gate { phase: Phase::Held(Instant::now()), requests: 1 },
            Err(_) => gate.phase = Phase::Away,
        }
        self.turned.notify_all();
        taken
    }

    /// Ends a request; the last request releases the lease.
    fn leave(&self) {
        let mut gate = lock(&self.gate);
        gate.requests = gate.requests.saturating_sub(1);
        if gate.requests > 0 {
            return;
        }
        gate.phase = Phase::Changing;
        drop(gate);
        if let Err(error) = self.let_go() {
            // The lease ends with this node's own; this node takes it again by itself.
            tracing::warn!(error = error.message, "the lease of a context account could not be given back");
        }
        lock(&self.gate).phase = Phase::Away;
        self.turned.notify_all();
    }

    fn take(&self, account: &Account) -> Result<()> {
        let (began, mut pause) = (Instant::now(), LOOK_AGAIN.0);
        let mut known = lock(&self.known);
        loop {
            let (raw, found) = self.facts.lease()?;
            if !self.facts.is_held_by_another(&found)? {
                let lease = Lease { holder: Some(self.facts.own()), ..found };
                if let Some(raw) = self.facts.swap_lease(raw.as_deref(), &lease)? {
                    (known.lease, known.raw) = (lease, Some(raw));
                    break;
                }
                continue;
            }
            if began.elapsed() > WAIT {
                let message = format!("another node has been working on {:?} for {} s", account.name, WAIT.as_secs());
                return Err(ApiError::new(Code::Unavailable, message));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK_AGAIN.1);
        }
        let caught_up = self.catch_up(account, &mut known);
        // What was written here just now came from other nodes.
        self.touched.take();
        if caught_up.is_err() {
            known.cursor = None;
        }
        drop(known);
        caught_up.inspect_err(|_| {
            if let Err(error) = self.let_go() {
                tracing::warn!(error = error.message, "the lease of a context account could not be given back");
            }
        })
    }

    /// Brings this node's files to the last committed change.
    fn catch_up(&self, account: &Account, known: &mut KnownState) -> Result<()> {
        let head = known.lease.head;
        // A node may have died after it committed a change and before it had written the entries.
        self.facts.apply_left(&mut known.lease)?;
        let missed = match known.cursor {
            Some(cursor) => self.facts.changes(cursor, head)?,
            None => None,
        };
        match missed {
            Some(changes) => {
                // Only the last state of a file is read: the pieces of earlier ones may be gone.
                let change = Change::merged(changes);
                for (name, entry) in &change.files {
                    let text = local::install(&self.facts, &account.folder, name, entry.as_ref())?;
                    account.learn_remote(name, text.as_deref());
                }
                known.take_in(&change);
            }
            None => self.read_everything(account, known)?,
        }
        known.cursor = Some(head);
        Ok(())
    }

    fn read_everything(&self, account: &Account, known: &mut KnownState) -> Result<()> {
        local::clear(&account.folder)?;
        account.make_own_folders()?;
        known.entries.clear();
        known.uses.clear();
        let mut all = Change::default();
        for (name, entry) in self.facts.entries()? {
            local::install(&self.facts, &account.folder, &name, Some(&entry))?;
            all.files.insert(name, Some(entry));
        }
        known.take_in(&all);
        account.forget_everything();
        Ok(())
    }

    /// Makes what was changed on this node durable for all.
    fn publish(&self, account: &Account) -> Result<()> {
        let mut known = lock(&self.known);
        let paths = self.touched.take();
        if known.cursor.is_none() {
            let message = "what an earlier request changed could not be shared; this one was not done either";
            return Err(ApiError::new(Code::Unavailable, message));
        }
        if paths.is_empty() {
            return Ok(());
        }
        let published = self.send(account, &mut known, paths);
        if published.is_err() {
            // The disk has what the store may not have: everything is read again.
            known.cursor = None;
        }
        published
    }

    fn send(&self, account: &Account, known: &mut KnownState, paths: BTreeSet<PathBuf>) -> Result<()> {
        let mut gathered = CollectedChange::default();
        for path in paths {
            gathered.add(&account.folder, &path, &known.entries)?;
        }
        if gathered.change.files.is_empty() {
            return Ok(());
        }
        self.facts.put_chunks(gathered.chunks.into_iter().collect())?;
        let number = known.lease.head + 1;
        self.facts.put_change(number, &gathered.change)?;
        let lease = Lease { head: number, ..known.lease.clone() };
        let Some(raw) = self.facts.swap_lease(known.raw.as_deref(), &lease)? else {
            return Err(ApiError::new(Code::Unavailable, "another node has taken over this account; try again"));
        };
        (known.lease, known.raw) = (lease, Some(raw));
        known.cursor = Some(number);
        let gone = known.take_in(&gathered.change);
        // The change is durable. What follows is done again by the next node if this one fails.
        match self.facts.apply(number, &gathered.change).and_then(|()| self.facts.remove_chunks(&gone)) {
            Ok(()) => known.lease.applied = number,
            Err(error) => tracing::warn!(error = error.message, "a shared change waits to be applied"),
        }
        Ok(())
    }

    fn let_go(&self) -> Result<()> {
        let mut known = lock(&self.known);
        let lease = Lease { holder: None, ..known.lease.clone() };
        let raw = known.raw.take();
        self.facts.swap_lease(raw.as_deref(), &lease)?;
        Ok(())
    }
}

impl Account {
    /// Takes in what another node made of a path.
    fn learn_remote(&self, name: &str, text: Option<&str>) {
        let names: Vec<String> = name.split('/').map(str::to_owned).collect();
        if !names.first().is_some_and(|scope| SCOPES.contains(&scope.as_str())) {
            return;
        }
        let place = StorePath::of_names(names);
        if place.kind() == Kind::Session {
            self.sessions.forget(place.names());
            return;
        }
        if place.name().starts_with('.') {
            // Labels and origins apply to whole folders.
            self.library.reset();
        }
        self.changed(&place, text);
    }
}
