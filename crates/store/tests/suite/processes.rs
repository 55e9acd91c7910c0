//! What needs a store that outlives its process: `kill -9` and several processes at once.

use crate::support::*;
use std::time::{Duration, Instant};
use toolyard_engine::{Blob, Store, store::Durability::*};

/// Only for persistent stores: everything queued is present after a clean end.
pub async fn dropping_writes_everything<H: Home>() {
    let home = H::new();
    let (run, blob) = (new_run(), Blob::new(noise(2 << 20, 3)));
    let store = home.open();
    let mut last = batch(&store, run, 1..=3, Deferred);
    last.blobs = vec![blob.clone()];
    last.row = Some(row(run));
    store.append(last).unwrap();
    store.append(batch(&store, run, 4..=4, Deferred)).unwrap();
    store.put("s", "k", vec![1], None).unwrap();
    drop(store);
    let store = home.open();
    assert_eq!(frames_of(&store, run, 0).len(), 4);
    assert_eq!(store.get("s", "k").unwrap(), Some(vec![1]));
    assert_eq!(store.blob(&blob.sha256).unwrap().as_deref(), Some(&*blob.bytes));
    assert_eq!(store.run(run).unwrap(), Some(row(run)));
    let again = store.append(batch(&store, run, 4..=4, Sync));
    assert!(outcome(&store, again).await.is_err(), "unique across restarts as well");
}

/// Promises 1, 2 and 5 against `kill -9`, several times over the same store.
pub async fn what_was_durable_survives_kill<H: Home>() {
    let home = H::new();
    for round in 0..4_u64 {
        let acknowledged = run_and_kill(&home, "append", Duration::from_millis(60 + 70 * round), 30);
        assert!(!acknowledged.is_empty());
        let store = home.open();
        for (run, seq) in last_of_each(&acknowledged) {
            let seqs: Vec<u64> = frames_of(&store, run, 0).iter().map(|frame| frame.seq).collect();
            assert!(seqs.len() as u64 >= seq, "run {run}: {seq} was durable, {} are there", seqs.len());
            assert!(seqs == (1..=seqs.len() as u64).collect::<Vec<_>>(), "a gap: {seqs:?}");
            assert!(seqs.len().is_multiple_of(CHILD_BATCH as usize), "half a batch");
            assert_eq!(store.run(run).unwrap().map(|row| row.run_id), Some(run));
        }
    }
}

/// Promise 2 for an earlier process: the claimant of a run sees its whole record.
pub async fn a_claim_sees_what_a_killed_process_left<H: Home>() {
    let home = H::new();
    let store = home.open();
    for round in 0..3_u64 {
        let acknowledged = run_and_kill(&home, "append", Duration::from_millis(40 + 30 * round), 30);
        for (run, seq) in last_of_each(&acknowledged) {
            let holder = store.holder(run).unwrap();
            // A store that knows a dead process by its lease takes as long as the lease.
            let started = Instant::now();
            while !store.claim(run, holder.as_ref()).unwrap() {
                assert!(started.elapsed() < PATIENCE, "the run of a killed process was never given up");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let seqs: Vec<u64> = frames_of(&store, run, 0).iter().map(|frame| frame.seq).collect();
            assert!(seqs.len() as u64 >= seq, "run {run}: {seq} was durable, {} are there", seqs.len());
            assert!(seqs == (1..=seqs.len() as u64).collect::<Vec<_>>(), "a gap: {seqs:?}");
        }
    }
}

/// Promise 3. The store commits a ride after 50 ms at most; a busy machine may run its writer later than that.
pub async fn a_ride_survives_kill_after_its_delay<H: Home>() {
    let home = H::new();
    for _ in 0..2 {
        let acknowledged = run_and_kill(&home, "ride", Duration::from_secs(1), 1);
        let store = home.open();
        for (run, seq) in last_of_each(&acknowledged) {
            assert!(frames_of(&store, run, 0).len() as u64 >= seq);
        }
    }
}

pub async fn several_processes_append_at_once<H: Home>() {
    let home = H::new();
    let store = home.open();
    let children: Vec<_> = (0..2).map(|_| spawn(&home, "batches")).collect();
    let run = new_run();
    for seq in 1..=100 {
        let position = store.append(batch(&store, run, seq..=seq, Sync)).unwrap();
        store.durable(position).await.unwrap();
    }
    let mut runs = vec![(run, 100)];
    for child in children {
        runs.extend(last_of_each(&finish(child)));
    }
    assert_eq!(runs.len(), 3);
    for (run, count) in runs {
        assert_eq!(count, 100);
        assert_eq!(frames_of(&store, run, 0).len(), 100);
    }
}

pub async fn the_ledger_never_forks_between_processes<H: Home>() {
    let home = H::new();
    let store = home.open();
    let children: Vec<_> = (0..2).map(|_| spawn(&home, "ledger")).collect();
    for n in 0..40_u8 {
        store.ledger_append(&mut |last| link(last, vec![n])).unwrap();
    }
    children.into_iter().for_each(|child| drop(finish(child)));
    let entries = store.ledger(0, 1000).unwrap();
    assert_eq!(entries.len(), 120);
    check_chain(&entries);
}

/// A claim and a key that is set only once, between processes: each child reports what it won.
pub async fn between_processes_one_wins<H: Home>() {
    let home = H::new();
    let store = home.open();
    for n in 0..CHILD_RACES {
        let mut batch = batch(&store, run_at(n), 1..=1, Deferred);
        batch.row = Some(row(run_at(n)));
        batch.release = true;
        store.append(batch).unwrap();
    }
    store.settle().unwrap();
    let children: Vec<_> = (0..3).map(|_| spawn(&home, "race")).collect();
    let won: Vec<_> = children.into_iter().flat_map(finish).collect();
    for n in 0..CHILD_RACES {
        // Each prize is announced as (run, 1) for the claim and (run, 2) for the key.
        for prize in [1, 2] {
            let winners = won.iter().filter(|(run, what)| *run == run_at(n) && *what == prize).count();
            assert_eq!(winners, 1, "race {n}, prize {prize}");
        }
    }
}
