//! Checks facts: each one's seal, and whether the newest version that the ledger names is there.

use super::{
    Leaf,
    entry::{Opened, open},
    log::Log,
    verify::{FirstBad, ProblemLocation},
    walk::WalkResult,
};
use crate::{
    Store,
    chain::Verifier,
    fact_seal::{FactKey, FactName, SealError},
    store::{StoreError, StoredFact},
};
use jiff::Timestamp;
use memchr::memmem;
use std::collections::{HashMap, HashSet};

/// Facts read at a time.
const FACTS_PER_PAGE: usize = 1000;
/// Entries read at a time while the ledger is searched for facts.
const ENTRIES_PER_PAGE: usize = 512;
/// What the JSON of every leaf that names facts contains.
const FACTS_MARK: &[u8] = b"\"type\":\"facts\"";

fn bad(name: Option<String>, seq: u64, problem: String) -> FirstBad {
    FirstBad { place: ProblemLocation::Fact, run_id: None, name, seq, problem }
}

/// Checks every fact of a store, and returns how many there are. With the public key alone, facts cannot be checked.
pub(super) fn check_facts(store: &dyn Store, verifier: &Verifier, walked: &WalkResult) -> Result<u64, FirstBad> {
    let Some(key) = verifier.facts() else { return Ok(0) };
    let unreadable = |error: StoreError| FirstBad::unreadable(&error);
    let mut seen: HashSet<FactName> = HashSet::new();
    let mut checked = 0;
    for space in store.fact_spaces().map_err(unreadable)? {
        let mut after: Option<String> = None;
        loop {
            let page = store.stored_facts(&space, after.as_deref(), FACTS_PER_PAGE).map_err(unreadable)?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for fact in &page {
                checked += 1;
                seen.insert(check_fact(key, &space, fact, walked)?);
            }
        }
    }
    // Read after the facts: one that ended meanwhile was rightly not answered.
    let now = Timestamp::now().as_microsecond();
    let is_gone = |name: &FactName, until: Option<i64>| until.is_none_or(|until| until > now) && !seen.contains(name);
    let missing = walked.facts.iter().filter(|(name, named)| is_gone(name, named.until));
    match missing.map(|(_, named)| named.entry).min() {
        Some(entry) => {
            Err(bad(None, entry, "a fact that the ledger entry names is missing: somebody removed it".to_owned()))
        }
        None => Ok(checked),
    }
}

fn check_fact(key: &FactKey, space: &str, fact: &StoredFact, walked: &WalkResult) -> Result<FactName, FirstBad> {
    let fact_name = || Some(format!("{space}/{}", fact.key));
    let name = key.name(space, &fact.key);
    let opened = match key.open(space, &fact.key, &fact.value) {
        // An earlier version wrote this store, and this one has not worked with it yet.
        Err(SealError::Missing) if !walked.names_facts => return Ok(name),
        opened => opened.map_err(|problem| bad(fact_name(), 0, problem.to_string()))?,
    };
    if opened.until != fact.expires_at.map(Timestamp::as_microsecond) {
        return Err(bad(fact_name(), 0, "the time at which it ends was changed".to_owned()));
    }
    match walked.facts.get(&name).filter(|named| named.version > opened.version) {
        Some(named) => {
            let problem = format!("an older version was put back: ledger entry {} names a newer one", named.entry);
            Err(bad(fact_name(), named.entry, problem))
        }
        None => Ok(name),
    }
}

/// Whether any entry of the ledger names facts: then this program has sealed the facts of the store before.
pub(crate) fn names_facts(store: &dyn Store) -> Result<bool, StoreError> {
    let mut next = 1;
    loop {
        let entries = store.ledger(next, ENTRIES_PER_PAGE)?;
        let Some(last) = entries.last() else { return Ok(false) };
        next = last.seq + 1;
        let names = |leaf: &Leaf| matches!(leaf, Leaf::Facts { .. });
        let is_naming = entries.iter().any(|entry| match open(entry) {
            Ok(Opened::Tree(entry)) => entry.leaves.iter().any(|(_, leaf)| names(leaf)),
            _ => false,
        });
        if is_naming {
            return Ok(true);
        }
    }
}

/// The newest version that the ledger names of each of these facts. Facts that it does not name are left out.
pub(crate) fn named_versions(
    store: &dyn Store,
    names: &HashSet<FactName>,
) -> Result<HashMap<FactName, u64>, StoreError> {
    let mut versions = HashMap::new();
    let mut next = 1;
    loop {
        let entries = store.ledger(next, ENTRIES_PER_PAGE)?;
        let Some(last) = entries.last() else { return Ok(versions) };
        next = last.seq + 1;
        for entry in &entries {
            // Most entries name runs alone. Searching their bytes is much cheaper than reading them.
            if memmem::find(&entry.payload, FACTS_MARK).is_none() {
                continue;
            }
            // Verification reports an entry that cannot be read.
            let Ok(Opened::Tree(entry)) = open(entry) else { continue };
            for (_, leaf) in &entry.leaves {
                let Leaf::Facts { changes, .. } = leaf else { continue };
                for change in changes {
                    let Some(name) = change.name().filter(|name| names.contains(name)) else { continue };
                    let newest = versions.entry(name).or_insert(change.version);
                    *newest = change.version.max(*newest);
                }
            }
        }
    }
}

/// When the last entry of the ledger was made, microseconds since 1970.
pub(crate) fn last_entry_at(store: &dyn Store) -> Result<Option<i64>, StoreError> {
    let Some(last) = Log(store).last()? else { return Ok(None) };
    Ok(match open(&last) {
        Ok(Opened::Tree(entry)) => Some(entry.at().saturating_mul(1000)),
        _ => None,
    })
}
