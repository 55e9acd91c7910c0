//! Wrong credentials over all nodes of a cluster: an address that guesses at several nodes is locked out at all of them.
//!
//! Each node counts by itself ([`AuthFailures`]), which costs a request nothing but memory. What it counted goes into one fact for
//! each address a few times a second, by compare-and-set, and lockouts of other nodes are read once a second. The count is
//! therefore coarse: a few guesses more than allowed may be made before all nodes know. Right credentials cause no access
//! to the store, unless the address guessed wrong before.

use crate::auth::{AuthFailures, Pending};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, sync::Arc, time::Duration};
use toolyard_engine::{
    Store,
    store::{StoreError, Swap},
};

/// The space of the facts, by address.
const SPACE: &str = "guesses";
/// How often a node writes its counts to the store.
pub(crate) const TELL_EVERY: Duration = Duration::from_millis(250);
/// How often a node reads which addresses are locked out, in units of [`TELL_EVERY`].
pub(crate) const READ_EVERY: u32 = 4;
/// The largest number of addresses that are written at a time; further addresses are counted by this node only. A flood
/// from very many addresses must not become a flood of statements.
const MAX_TOLD: usize = 64;
/// How often the write is tried when other nodes change the same fact at the same time.
const MAX_ATTEMPTS: u32 = 5;

/// The wrong credentials of an address at all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    /// When they were shown, in milliseconds.
    wrong: Vec<i64>,
    /// Until when the address is locked out, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locked_until: Option<i64>,
}

/// Writes the counts since the last call to the store. May block.
pub(crate) fn tell(store: &dyn Store, guesses: &AuthFailures) -> Result<(), StoreError> {
    let mut told = Ok(());
    for (address, pending) in guesses.take_pending().into_iter().take(MAX_TOLD) {
        if told.is_ok() {
            told = tell_one(store, guesses, address, pending);
        }
    }
    told
}

/// The stored count of an address. A count that cannot be read starts again at zero; the log says so.
fn read_count(address: IpAddr, bytes: &[u8]) -> Count {
    serde_json::from_slice(bytes).unwrap_or_else(|error| {
        tracing::warn!(%address, %error, "a stored count of wrong credentials cannot be read; counting starts again");
        Count::default()
    })
}

fn tell_one(store: &dyn Store, guesses: &AuthFailures, address: IpAddr, pending: Pending) -> Result<(), StoreError> {
    let key = address.to_string();
    let rules = guesses.rules();
    let (window, lockout) = (millis(rules.window), millis(rules.lockout));
    for _ in 0..MAX_ATTEMPTS {
        let found = store.get(SPACE, &key)?;
        let mut count = found.as_deref().map(|bytes| read_count(address, bytes)).unwrap_or_default();
        let now = Timestamp::now().as_millisecond();
        if pending.is_forgotten && count.locked_until.is_none_or(|until| until <= now) {
            count = Count::default();
        }
        count.wrong.retain(|at| now.saturating_sub(*at) < window);
        count.wrong.extend(std::iter::repeat_n(now, pending.wrong as usize));
        let is_new_lockout = count.wrong.len() >= rules.max_attempts.max(1) as usize;
        if is_new_lockout {
            (count.wrong, count.locked_until) = (Vec::new(), Some(now.saturating_add(lockout)));
        }
        let wanted = match count == Count::default() {
            true => None,
            false => {
                let kept = SignedDuration::from_millis(window.max(lockout));
                let bytes = serde_json::to_vec(&count).map_err(|error| StoreError::failed(error.to_string()))?;
                Some((bytes, Timestamp::now().checked_add(kept).ok()))
            }
        };
        if store.compare_and_set(SPACE, &key, found.as_deref(), wanted)? == Swap::Done {
            if is_new_lockout {
                guesses.lock_out(address, rules.lockout);
            }
            return Ok(());
        }
    }
    // Other nodes count the same address at this moment: it is about to be locked out without these.
    Ok(())
}

/// Reads which addresses other nodes have locked out. May block.
pub(crate) fn read(store: &dyn Store, guesses: &AuthFailures) -> Result<(), StoreError> {
    let now = Timestamp::now().as_millisecond();
    for (address, bytes) in store.list(SPACE)? {
        let (Ok(address), Ok(count)) = (address.parse(), serde_json::from_slice::<Count>(&bytes)) else { continue };
        if let Some(left) = count.locked_until.map(|until| until.saturating_sub(now)).filter(|left| *left > 0) {
            guesses.lock_out(address, Duration::from_millis(left.unsigned_abs()));
        }
    }
    Ok(())
}

/// One look of a node: tells, and every few times reads. May block.
pub(crate) fn look(store: &Arc<dyn Store>, guesses: &AuthFailures, number: u32) -> Result<(), StoreError> {
    tell(&**store, guesses)?;
    match number % READ_EVERY {
        0 => read(&**store, guesses),
        _ => Ok(()),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Origin, settings::RateLimit};
    use toolyard_engine::memory_store::MemoryStore;

    fn from(ip: &str) -> Origin {
        Origin {
            address: ip.parse().unwrap(),
            is_local: false,
            browser: None,
            browser_allowed: true,
            own: "http://yard.example".to_owned(),
            is_private: false,
        }
    }

    #[test]
    fn wrong_credentials_at_several_nodes_lock_an_address_out_at_all_of_them() {
        let store = MemoryStore::new();
        let nodes: Vec<AuthFailures> = (0..3).map(|_| AuthFailures::new(RateLimit::default()).shared()).collect();
        let (guesser, other) = (from("203.0.113.9"), from("203.0.113.10"));
        for round in 0..4 {
            for (number, node) in nodes.iter().enumerate() {
                assert!(node.locked(&guesser).is_none(), "round {round} at node {number}: not yet");
                if round * 3 + number < 10 {
                    node.wrong(&guesser);
                }
                tell(&store, node).unwrap();
            }
            if round == 3 {
                break;
            }
            nodes.iter().for_each(|node| read(&store, node).unwrap());
        }
        nodes.iter().for_each(|node| read(&store, node).unwrap());
        for node in &nodes {
            assert!(node.locked(&guesser).is_some());
            assert!(node.locked(&other).is_none());
        }
    }

    #[test]
    fn the_right_credential_starts_the_count_again_and_does_not_end_a_lockout() {
        let store = MemoryStore::new();
        let (a, b) =
            (AuthFailures::new(RateLimit::default()).shared(), AuthFailures::new(RateLimit::default()).shared());
        let origin = from("203.0.113.9");
        (0..9).for_each(|_| a.wrong(&origin));
        tell(&store, &a).unwrap();
        a.right(&origin);
        tell(&store, &a).unwrap();
        b.wrong(&origin);
        tell(&store, &b).unwrap();
        assert!(b.locked(&origin).is_none(), "the nine before are forgotten");
        (0..9).for_each(|_| a.wrong(&origin));
        tell(&store, &a).unwrap();
        assert!(a.locked(&origin).is_some());
        b.right(&origin);
        tell(&store, &b).unwrap();
        read(&store, &b).unwrap();
        assert!(b.locked(&origin).is_some(), "the cluster's lockout lasts");
    }

    #[test]
    fn a_right_credential_without_a_wrong_one_before_is_not_told() {
        let node = AuthFailures::new(RateLimit::default()).shared();
        node.right(&from("203.0.113.9"));
        assert!(node.take_pending().is_empty());
    }
}
