//! [`SealedStore`]: a [`Store`] whose facts carry seals, over any other one. Records, blobs and the ledger pass through.
//!
//! A reader gets only facts that this program wrote. A forged fact is refused: a single read fails with
//! [`StoreError::Tampered`], and a listing leaves the fact out and logs it, so that one forged fact does not hide the others.
//!
//! A store of an earlier version holds facts without seals. The first process that works with it seals what it finds and
//! leaves a mark. From then on a fact without a seal is forged. Removing the mark does not make the store seal such
//! facts again: the ledger names facts by then.

use crate::{
    BoxFuture,
    chain::Signer,
    fact_seal::{self, FactChanges, FactName, SealError, SealedFact},
    ledger,
    store::{
        Batch, FrameVisitor, Head, Hints, LedgerEntry, LedgerMaker, LeftBehind, NewFact, NodeRow, Owner, Position,
        RemovedBlobs, RunFilter, RunRow, Store, StoreError, StoredFact, Swap,
    },
};
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use toolyard_protocol::RunId;

/// The key of the mark which says that facts are sealed.
const MARK: (&str, &str) = ("facts", "sealed");
/// How long a removed fact leaves a trace. The ledger knows it for good.
const TRACE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Facts read at a time.
const FACTS_PER_PAGE: usize = 1000;
/// A fact is named within this time of its change, or at the next start.
const NAMING_MARGIN_MICROS: i64 = 2 * 60 * 1_000_000;
/// Facts whose newest version a process remembers. Further ones are not remembered; verification still finds older
/// versions that were put back.
const MAX_REMEMBERED: usize = 10_000;

/// Seals the facts of a store.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    signer: Arc<Signer>,
    changes: Arc<FactChanges>,
    is_prepared: AtomicBool,
    /// The mark cannot be verified: the store was restored without its key. Its facts count as absent, so that Toolyard
    /// can be used.
    has_foreign: AtomicBool,
    /// Held while the facts of an earlier version are sealed.
    preparing: Mutex<()>,
    /// The newest version that was given out.
    last_version: AtomicU64,
    /// Held from the choice of a version until the change is queued, so that versions of a fact grow in the store's order.
    setting: Mutex<()>,
    /// The newest version seen of each fact in a small space that the ledger names.
    newest: Mutex<HashMap<FactName, u64>>,
}

impl SealedStore {
    /// Seals the facts of a store with the key that belongs to a signer.
    pub fn new(inner: Arc<dyn Store>, signer: Arc<Signer>) -> Self {
        Self {
            inner,
            signer,
            changes: Arc::default(),
            is_prepared: AtomicBool::new(false),
            has_foreign: AtomicBool::new(false),
            preparing: Mutex::default(),
            last_version: AtomicU64::new(0),
            setting: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    /// What the ledger is to name.
    pub(crate) fn changes(&self) -> Arc<FactChanges> {
        self.changes.clone()
    }

    /// Has the ledger name the facts that the last process set and did not live to name. May block.
    pub(crate) fn note_unnamed(&self) -> Result<(), StoreError> {
        self.prepare()?;
        let since = ledger::last_entry_at(&*self.inner)?.unwrap_or(0).saturating_sub(NAMING_MARGIN_MICROS);
        let since = since.max(0).cast_unsigned();
        for space in fact_seal::small_spaces() {
            self.each_stored(space, &mut |fact| {
                // A forged one is named by verification, and never by the ledger.
                if let Ok(sealed) = self.signer.facts().open(space, &fact.key, &fact.value)
                    && sealed.version >= since
                {
                    self.changes.note(self.signer.facts().change(space, &fact.key, &sealed), false);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn each_stored(
        &self,
        space: &str,
        visit: &mut dyn FnMut(&StoredFact) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.inner.stored_facts(space, after.as_deref(), FACTS_PER_PAGE)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.key.clone());
            page.iter().try_for_each(&mut *visit)?;
        }
    }

    /// Looks at the mark, once; seals the facts of an earlier version.
    fn prepare(&self) -> Result<(), StoreError> {
        if self.is_prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = lock(&self.preparing);
        if self.is_prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        // A clock that was set back must not make versions smaller than those that the ledger names.
        let floor = ledger::last_entry_at(&*self.inner)?.unwrap_or(0).max(0).cast_unsigned();
        self.last_version.fetch_max(floor, Ordering::AcqRel);
        let (space, key) = MARK;
        match self.inner.get(space, key)? {
            Some(mark) if self.signer.facts().open(space, key, &mark).is_ok() => {}
            Some(_) => {
                self.has_foreign.store(true, Ordering::Release);
                tracing::error!(
                    "the facts of this store were sealed with another key and are not used: state/secrets.key was \
                     replaced, or somebody edited the store; see `toolyard runs verify`"
                );
            }
            None if ledger::names_facts(&*self.inner)? => {
                tracing::error!("the mark that facts are sealed was removed; see `toolyard runs verify`");
            }
            None => self.seal_earlier()?,
        }
        self.is_prepared.store(true, Ordering::Release);
        Ok(())
    }

    /// Seals facts that an earlier version wrote, and leaves the mark.
    fn seal_earlier(&self) -> Result<(), StoreError> {
        let mut sealed = 0_u64;
        for space in self.inner.fact_spaces()? {
            self.each_stored(&space, &mut |fact| {
                if self.signer.facts().open(&space, &fact.key, &fact.value) != Err(SealError::Missing) {
                    return Ok(());
                }
                let new = self.sealed(Some(&fact.value), fact.expires_at);
                let bytes = self.signer.facts().seal(&space, &fact.key, &new);
                let wanted = Some((bytes, fact.expires_at));
                // Another process that does the same may have been quicker.
                if self.inner.compare_and_set(&space, &fact.key, Some(&fact.value), wanted)? == Swap::Done {
                    sealed += 1;
                    self.note(&space, &fact.key, &new, false);
                }
                Ok(())
            })?;
        }
        let (space, key) = MARK;
        let mark = self.sealed(Some(b"1"), None);
        let bytes = self.signer.facts().seal(space, key, &mark);
        if self.inner.compare_and_set(space, key, None, Some((bytes, None)))? == Swap::Done {
            self.note(space, key, &mark, false);
        }
        if sealed > 0 {
            tracing::info!(facts = sealed, "sealed the facts that an earlier version wrote");
        }
        Ok(())
    }

    /// A fact as it is to be sealed now.
    fn sealed<'a>(&self, value: Option<&'a [u8]>, expires_at: Option<Timestamp>) -> SealedFact<'a> {
        let now = Timestamp::now().as_microsecond().max(0).cast_unsigned();
        let next = |last: u64| Some(now.max(last + 1));
        // The closure always returns a value, so both outcomes hold the previous version.
        let last =
            self.last_version.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_else(|last| last);
        SealedFact { version: now.max(last + 1), until: expires_at.map(Timestamp::as_microsecond), value }
    }

    fn note(&self, space: &str, key: &str, fact: &SealedFact<'_>, is_due: bool) {
        if fact_seal::is_named(space) {
            let change = self.signer.facts().change(space, key, fact);
            if fact_seal::is_small(space) {
                self.remember(space, change.0, fact.version);
            }
            self.changes.note(change, is_due);
        }
    }

    /// Remembers the newest version of a fact. Permissions are always remembered: people give them, so they are few, and the
    /// ledger would be read again for each one that is not.
    fn remember(&self, space: &str, name: FactName, version: u64) {
        let mut newest = lock(&self.newest);
        if newest.len() >= MAX_REMEMBERED && !newest.contains_key(&name) && !fact_seal::is_permission(space) {
            return;
        }
        let known = newest.entry(name).or_insert(version);
        *known = version.max(*known);
    }

    /// Learns the newest version of a permission from the ledger, together with those of the other permissions in the
    /// store: the ledger is read once for all of them. Without this, a grant that was revoked before this process started
    /// would be used again if somebody put it back.
    fn ask_ledger(&self, space: &str, name: FactName) -> Result<(), StoreError> {
        let mut names = HashSet::from([name]);
        for permissions in fact_seal::PERMISSION_SPACES {
            self.each_stored(permissions, &mut |fact| {
                names.insert(self.signer.facts().name(permissions, &fact.key));
                Ok(())
            })?;
        }
        let versions = ledger::named_versions(&*self.inner, &names)?;
        versions.into_iter().for_each(|(name, version)| self.remember(space, name, version));
        Ok(())
    }

    /// Opens what was read of a fact.
    ///
    /// A fact may be replaced, and its new version remembered, between the read and this check. So a version older than
    /// the newest one known is read once more: what was known before a read began must be seen by it, and only an older
    /// version that is still there was put back by somebody else.
    fn opened(&self, space: &str, key: &str, stored: Vec<u8>) -> Result<Opened, StoreError> {
        let name = fact_seal::is_small(space).then(|| self.signer.facts().name(space, key));
        let mut known = name.and_then(|name| lock(&self.newest).get(&name).copied());
        if known.is_none()
            && fact_seal::is_permission(space)
            && let Some(name) = name
        {
            self.ask_ledger(space, name)?;
            known = lock(&self.newest).get(&name).copied();
        }
        let known = known.unwrap_or(0);
        let read = self.unsealed(space, key, stored)?;
        let read = match read.version < known && !read.is_foreign {
            false => read,
            true => match self.inner.get(space, key)? {
                Some(stored) => self.unsealed(space, key, stored)?,
                None => return Ok(Opened::default()),
            },
        };
        if read.is_foreign {
            return Ok(read);
        }
        if read.version < known {
            return Err(tampered(space, &"an older version of it was put back"));
        }
        self.last_version.fetch_max(read.version, Ordering::AcqRel);
        if let Some(name) = name {
            self.remember(space, name, read.version);
        }
        Ok(read)
    }

    /// What stored bytes say, whichever version they are.
    fn unsealed(&self, space: &str, key: &str, stored: Vec<u8>) -> Result<Opened, StoreError> {
        let (version, value, is_foreign) = match self.signer.facts().open(space, key, &stored) {
            Ok(fact) => {
                let is_over = fact.until.is_some_and(|until| until <= Timestamp::now().as_microsecond());
                (fact.version, fact.value.filter(|_| !is_over).map(<[u8]>::to_vec), false)
            }
            Err(SealError::Forged) if self.has_foreign.load(Ordering::Acquire) => (0, None, true),
            Err(problem) => return Err(tampered(space, &problem)),
        };
        Ok(Opened { stored: Some(stored), version, value, is_foreign })
    }

    /// Sets a fact, or leaves the trace of one that is removed.
    fn set(
        &self,
        space: &str,
        key: &str,
        value: Option<&[u8]>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError> {
        self.prepare()?;
        let _order = lock(&self.setting);
        let fact = self.sealed(value, expires_at);
        let position = self.inner.put(space, key, self.signer.facts().seal(space, key, &fact), expires_at)?;
        self.note(space, key, &fact, true);
        Ok(position)
    }

    fn trace_until(&self) -> Option<Timestamp> {
        // Whole microseconds, as stores keep them.
        Timestamp::from_microsecond(Timestamp::now().checked_add(TRACE).ok()?.as_microsecond()).ok()
    }
}

/// A fact as it was read.
#[derive(Default)]
struct Opened {
    /// The sealed bytes; `None` if the fact is gone.
    stored: Option<Vec<u8>>,
    version: u64,
    /// `None` for a fact that was removed, has ended, or was sealed with another key.
    value: Option<Vec<u8>>,
    is_foreign: bool,
}

fn tampered(space: &str, problem: &dyn std::fmt::Display) -> StoreError {
    tracing::error!(space, %problem, "a fact is refused; see `toolyard runs verify`");
    StoreError::Tampered(format!("a fact of {space:?} cannot be trusted: {problem}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for SealedStore {
    fn append(&self, batch: Batch) -> Result<Position, StoreError> {
        self.inner.append(batch)
    }
    fn durable(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        self.inner.durable(position)
    }
    fn durable_here(&self, position: Position) -> BoxFuture<'static, Result<(), StoreError>> {
        self.inner.durable_here(position)
    }
    fn writable(&self) -> Result<(), StoreError> {
        self.inner.writable()
    }
    fn settle(&self) -> Result<(), StoreError> {
        self.inner.settle()
    }
    fn run(&self, run_id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.run(run_id)
    }
    fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.inner.runs(filter)
    }
    fn count_runs(&self, filter: &RunFilter) -> Result<u64, StoreError> {
        self.inner.count_runs(filter)
    }
    fn frames(&self, run_id: RunId, from_seq: u64, visit: FrameVisitor<'_>) -> Result<(), StoreError> {
        self.inner.frames(run_id, from_seq, visit)
    }
    fn unlisted_runs(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        self.inner.unlisted_runs(limit)
    }
    fn head(&self, run_id: RunId) -> Result<Option<Head>, StoreError> {
        self.inner.head(run_id)
    }
    fn owner(&self) -> Owner {
        self.inner.owner()
    }
    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }
    fn is_alive(&self, owner: &Owner) -> Result<bool, StoreError> {
        self.inner.is_alive(owner)
    }
    fn fence(&self, owner: &Owner) -> Result<(), StoreError> {
        self.inner.fence(owner)
    }
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }
    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.inner.nodes()
    }
    fn set_address(&self, address: &str) -> Result<(), StoreError> {
        self.inner.set_address(address)
    }
    fn set_draining(&self) -> Result<(), StoreError> {
        self.inner.set_draining()
    }
    fn shared_secret(&self) -> Option<[u8; 32]> {
        self.inner.shared_secret()
    }
    fn may_dispatch(&self) -> Result<(), StoreError> {
        self.inner.may_dispatch()
    }
    fn holder(&self, run_id: RunId) -> Result<Option<Owner>, StoreError> {
        self.inner.holder(run_id)
    }
    fn left_behind(&self, limit: usize) -> Result<Vec<LeftBehind>, StoreError> {
        self.inner.left_behind(limit)
    }
    fn claim(&self, run_id: RunId, from: Option<&Owner>) -> Result<bool, StoreError> {
        self.inner.claim(run_id, from)
    }
    fn blob(&self, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.blob(sha256)
    }
    fn blob_hashes(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.blob_hashes(after, limit)
    }

    fn put(
        &self,
        space: &str,
        key: &str,
        value: Vec<u8>,
        expires_at: Option<Timestamp>,
    ) -> Result<Position, StoreError> {
        self.set(space, key, Some(&value), expires_at)
    }

    fn compare_and_set(
        &self,
        space: &str,
        key: &str,
        expected: Option<&[u8]>,
        wanted: NewFact,
    ) -> Result<Swap, StoreError> {
        self.prepare()?;
        let mut stored = match expected {
            Some(_) => self.inner.get(space, key)?,
            None => None,
        };
        loop {
            let found = match stored {
                Some(stored) => self.opened(space, key, stored)?,
                None => Opened::default(),
            };
            if found.value.as_deref() != expected {
                return Ok(Swap::Differs(found.value));
            }
            let fact = match &wanted {
                Some((value, expires_at)) => Some((self.sealed(Some(value), *expires_at), *expires_at)),
                None if fact_seal::is_named(space) => {
                    let until = self.trace_until();
                    Some((self.sealed(None, until), until))
                }
                None => None,
            };
            let new = fact.as_ref().map(|(fact, until)| (self.signer.facts().seal(space, key, fact), *until));
            match self.inner.compare_and_set(space, key, found.stored.as_deref(), new)? {
                Swap::Done => {
                    if let Some((fact, _)) = &fact {
                        self.note(space, key, fact, true);
                    }
                    return Ok(Swap::Done);
                }
                Swap::Differs(now) => stored = now,
            }
        }
    }

    fn get(&self, space: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.prepare()?;
        match self.inner.get(space, key)? {
            Some(stored) => Ok(self.opened(space, key, stored)?.value),
            None => Ok(None),
        }
    }

    fn remove(&self, space: &str, key: &str) -> Result<Position, StoreError> {
        if fact_seal::is_named(space) {
            return self.set(space, key, None, self.trace_until());
        }
        self.inner.remove(space, key)
    }

    fn list_page(
        &self,
        space: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.prepare()?;
        let mut listed = Vec::new();
        let mut after = after.map(str::to_owned);
        // Facts that are left out must not make a page look like the last one.
        while listed.len() < limit {
            let page = self.inner.list_page(space, prefix, after.as_deref(), limit)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let is_last = page.len() < limit;
            for (key, stored) in page {
                // A fact that cannot be trusted is left out, and was logged.
                if let Ok(Opened { value: Some(value), .. }) = self.opened(space, &key, stored)
                    && listed.len() < limit
                {
                    listed.push((key, value));
                }
            }
            if is_last {
                break;
            }
        }
        Ok(listed)
    }

    fn fact_spaces(&self) -> Result<Vec<String>, StoreError> {
        self.inner.fact_spaces()
    }
    fn stored_facts(&self, space: &str, after: Option<&str>, limit: usize) -> Result<Vec<StoredFact>, StoreError> {
        self.inner.stored_facts(space, after, limit)
    }
    fn remove_runs(&self, runs: &[RunId]) -> Result<u64, StoreError> {
        self.inner.remove_runs(runs)
    }
    fn remove_unused_blobs(&self, keep: &[String]) -> Result<RemovedBlobs, StoreError> {
        self.inner.remove_unused_blobs(keep)
    }
    fn used_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.inner.used_bytes()
    }
    fn watch(&self) -> Hints {
        self.inner.watch()
    }
    fn ledger_append(&self, make: LedgerMaker<'_>) -> Result<LedgerEntry, StoreError> {
        self.inner.ledger_append(make)
    }
    fn ledger(&self, from_seq: u64, limit: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.inner.ledger(from_seq, limit)
    }
}
