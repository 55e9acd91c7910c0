//! Facts and the ledger.

use crate::support::*;
use jiff::{SignedDuration, Timestamp};
use std::{sync::Arc, time::Duration};
use toolyard_engine::{
    Store,
    store::{Durability::Deferred, Swap},
};

pub async fn facts_are_there_at_once<H: Home>() {
    let home = H::new();
    let store = home.open();
    assert_eq!(store.get("s", "k").unwrap(), None);
    assert!(store.list("s").unwrap().is_empty());
    for round in 0..3_u8 {
        store.put("s", "k", vec![round], None).unwrap();
        assert_eq!(store.get("s", "k").unwrap(), Some(vec![round]));
        store.put("s", "a", vec![], None).unwrap();
        store.put("s2", "k", vec![9; 10_000], None).unwrap();
        assert_eq!(store.list("s").unwrap(), [("a".to_owned(), vec![]), ("k".to_owned(), vec![round])]);
        store.remove("s", "a").unwrap();
        assert_eq!(store.get("s", "a").unwrap(), None);
        assert_eq!(store.list("s").unwrap(), [("k".to_owned(), vec![round])]);
        let position = store.put("s", "b", vec![round, round], None).unwrap();
        store.durable(position).await.unwrap();
        assert_eq!(store.list("s").unwrap().len(), 2);
        let position = store.remove("s", "b").unwrap();
        store.durable(position).await.unwrap();
        assert_eq!(store.get("s", "b").unwrap(), None);
        assert_eq!(store.get("s", "k").unwrap(), Some(vec![round]));
        assert_eq!(store.get("s2", "k").unwrap(), Some(vec![9; 10_000]));
    }
    store.remove("nowhere", "nothing").unwrap();
}

/// The lifetime of a fact that must not expire during the test, even on a busy machine.
const LONG: SignedDuration = SignedDuration::from_hours(1);
/// The lifetime of a fact whose expiry the test waits for.
const SHORT: SignedDuration = SignedDuration::from_millis(20);

pub async fn expired_facts_are_gone<H: Home>() {
    let home = H::new();
    let store = home.open();
    let late = Some("9999-12-30T22:00:00Z".parse().unwrap());
    for settled in [false, true] {
        store.put("s", "soon", vec![1], Some(Timestamp::now() + LONG)).unwrap();
        store.put("s", "late", vec![2], late).unwrap();
        store.put("s", "past", vec![3], Some(Timestamp::UNIX_EPOCH)).unwrap();
        if settled {
            store.settle().unwrap();
        }
        assert_eq!(store.get("s", "soon").unwrap(), Some(vec![1]));
        assert_eq!(store.get("s", "past").unwrap(), None);
        assert_eq!(store.list("s").unwrap().len(), 2);
        let end = Timestamp::now() + SHORT;
        store.put("s", "soon", vec![1], Some(end)).unwrap();
        if settled {
            store.settle().unwrap();
        }
        while Timestamp::now() <= end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(store.get("s", "soon").unwrap(), None);
        assert_eq!(store.list("s").unwrap(), [("late".to_owned(), vec![2])]);
        assert_eq!(store.put_if_absent("s", "soon", vec![4], None).unwrap(), None, "expired means absent");
        assert_eq!(store.get("s", "soon").unwrap(), Some(vec![4]));
    }
}

pub async fn put_if_absent_sets_once<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    assert_eq!(store.put_if_absent("s", "k", vec![1], None).unwrap(), None);
    assert_eq!(store.put_if_absent("s", "k", vec![2], None).unwrap(), Some(vec![1]));
    assert_eq!(store.get("s", "k").unwrap(), Some(vec![1]));
    store.remove("s", "k").unwrap();
    assert_eq!(store.put_if_absent("s", "k", vec![3], None).unwrap(), None, "ordered after the remove");
    store.put("s", "q", vec![5], None).unwrap();
    assert_eq!(store.put_if_absent("s", "q", vec![6], None).unwrap(), Some(vec![5]), "ordered after the put");
    for round in 0..20 {
        let key = format!("race {round}");
        let answers = race(8, |n| {
            let (store, key) = (Arc::clone(&store), key.clone());
            move || store.put_if_absent("s", &key, n.to_be_bytes().to_vec(), None).unwrap()
        });
        let there = store.get("s", &key).unwrap();
        let winners: Vec<u64> = answers.iter().filter(|(_, found)| found.is_none()).map(|(n, _)| *n).collect();
        assert_eq!(winners.len(), 1);
        assert_eq!(there, Some(winners[0].to_be_bytes().to_vec()));
        assert!(answers.iter().all(|(n, found)| *n == winners[0] || *found == there));
    }
}

pub async fn compare_and_set_changes_only_what_is_expected<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    let set = |expected: Option<&[u8]>, wanted: Option<u8>| {
        store.compare_and_set("s", "k", expected, wanted.map(|value| (vec![value], None))).unwrap()
    };
    assert_eq!(set(Some(&[1]), Some(2)), Swap::Differs(None), "it is not there");
    assert_eq!(set(None, Some(1)), Swap::Done);
    assert_eq!(set(None, Some(2)), Swap::Differs(Some(vec![1])));
    assert_eq!(set(Some(&[1]), Some(2)), Swap::Done);
    assert_eq!(set(Some(&[1]), None), Swap::Differs(Some(vec![2])));
    assert_eq!(store.get("s", "k").unwrap(), Some(vec![2]));
    assert_eq!(set(Some(&[2]), None), Swap::Done);
    assert_eq!(store.get("s", "k").unwrap(), None);
    // A counter that many threads increment: every increment counts once.
    store.put("s", "n", vec![0], None).unwrap();
    race(8, |_| {
        let store = Arc::clone(&store);
        move || {
            for _ in 0..5 {
                let mut seen = store.get("s", "n").unwrap();
                while let Swap::Differs(found) = {
                    let next = seen.as_ref().map(|value| (vec![value[0] + 1], None));
                    store.compare_and_set("s", "n", seen.as_deref(), next).unwrap()
                } {
                    seen = found;
                }
            }
        }
    });
    assert_eq!(store.get("s", "n").unwrap(), Some(vec![40]));
}

pub async fn facts_are_listed_by_prefix_and_page<H: Home>() {
    let home = H::new();
    let store = home.open();
    let keys = ["", "a", "a\u{0}b", "a/1", "a/2", "a/3", "a/é", "a0", "b/1", "\u{10ffff}"];
    for settled in [false, true] {
        for key in keys {
            store.put("s", key, key.as_bytes().to_vec(), None).unwrap();
        }
        store.put("s", "a/25", vec![1], None).unwrap();
        store.remove("s", "a/25").unwrap();
        if settled {
            store.settle().unwrap();
        }
        let page = |prefix: &str, after: Option<&str>, limit: usize| -> Vec<String> {
            let page = store.list_page("s", prefix, after, limit).unwrap();
            assert!(page.iter().all(|(key, value)| key.as_bytes() == value));
            page.into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(page("", None, 100), keys);
        assert_eq!(page("a/", None, 100), ["a/1", "a/2", "a/3", "a/é"]);
        assert_eq!(page("a/", None, 2), ["a/1", "a/2"]);
        assert_eq!(page("a/", Some("a/2"), 2), ["a/3", "a/é"]);
        assert_eq!(page("a/", Some("a"), 1), ["a/1"]);
        assert_eq!(page("a/", Some("b"), 10), [""; 0]);
        assert_eq!(page("c", None, 10), [""; 0]);
        assert_eq!(page("", Some(""), 1), ["a"]);
        assert_eq!(store.list("s").unwrap().len(), keys.len());
    }
}

pub async fn the_ledger_is_one_chain<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    assert!(store.ledger(0, 10).unwrap().is_empty());
    for n in 0..5_u8 {
        let entry = store.ledger_append(&mut |last| link(last, vec![n])).unwrap();
        assert_eq!(entry.seq, u64::from(n) + 1);
        assert_eq!(entry.payload, [n]);
    }
    race(8, |n| {
        let store = Arc::clone(&store);
        move || {
            for i in 0..5 {
                store.ledger_append(&mut |last| link(last, format!("{n}/{i}").into_bytes())).unwrap();
            }
        }
    });
    let entries = store.ledger(0, usize::MAX).unwrap();
    assert_eq!(entries.len(), 45);
    check_chain(&entries);
    assert_eq!(store.ledger(3, 4).unwrap(), entries[2..6]);
    assert!(store.ledger(46, 10).unwrap().is_empty());
    assert!(store.ledger(1, 0).unwrap().is_empty());
}

/// An entry seals the heads of runs, so it must not be there without their records.
pub async fn a_ledger_entry_follows_the_records_queued_before_it<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    store.append(batch(&store, run, 1..=3, Deferred)).unwrap();
    store.ledger_append(&mut |last| link(last, vec![1])).unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 3);
}

pub async fn a_ledger_maker_may_read_the_store_and_may_fail<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    store.put("s", "k", vec![1], None).unwrap();
    store
        .ledger_append(&mut |last| {
            assert!(store.ledger(0, 10).unwrap().is_empty());
            link(last, store.get("s", "k").unwrap().unwrap())
        })
        .unwrap();
    let broken = Arc::clone(&store);
    let thread = std::thread::spawn(move || broken.ledger_append(&mut |_| panic!("the signer broke")));
    assert!(thread.join().is_err());
    let entry = store.ledger_append(&mut |last| link(last, vec![2])).unwrap();
    assert_eq!(entry.seq, 2);
    check_chain(&store.ledger(0, 10).unwrap());
}
