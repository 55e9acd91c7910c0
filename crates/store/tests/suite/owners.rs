//! Owners of runs: claims, dead owners, and owners that only seem to be dead.

use crate::support::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use toolyard_engine::{
    Store,
    store::{Batch, Durability::*, Head, Owner, StoreError},
};
use toolyard_protocol::{RunId, RunStatus};

async fn begin(store: &impl Store) -> RunId {
    let run = new_run();
    let mut first = batch(store, run, 1..=1, Sync);
    first.row = Some(row(run));
    let position = store.append(first).unwrap();
    store.durable(position).await.unwrap();
    run
}

pub async fn whoever_begins_a_run_holds_it_until_it_ends_or_is_let_go<H: Home>() {
    let home = H::new();
    let store = home.open();
    assert!(store.is_alive(&store.owner()).unwrap());
    let (ended, left) = (begin(&store).await, begin(&store).await);
    assert_eq!(store.holder(ended).unwrap(), Some(store.owner()));
    assert_eq!(store.holder(new_run()).unwrap(), None);
    // A row never changes the holder of a run, however late it arrives.
    let mut last = batch(&store, ended, 2..=2, Deferred);
    last.row = Some(toolyard_engine::store::RunRow { status: RunStatus::Finished, ..row(ended) });
    store.append(last).unwrap();
    store.append(Batch { release: true, ..batch(&store, left, 2..=2, Deferred) }).unwrap();
    store.settle().unwrap();
    assert_eq!(store.holder(ended).unwrap(), None);
    assert_eq!(store.holder(left).unwrap(), None);
    let found: Vec<_> = store.left_behind(10).unwrap().into_iter().map(|l| (l.row.run_id, l.holder)).collect();
    assert_eq!(found, [(left, None)], "an ended run is not left behind");
    assert!(store.claim(left, None).unwrap());
    assert_eq!(store.holder(left).unwrap(), Some(store.owner()));
    assert!(store.left_behind(10).unwrap().is_empty());
}

pub async fn a_run_is_taken_only_from_an_owner_that_is_gone<H: Home>() {
    let home = H::new();
    let (one, two) = (home.open(), home.open());
    assert_ne!(one.owner(), two.owner());
    assert!(!two.claim(new_run(), None).unwrap(), "there is no such run");
    let run = begin(&one).await;
    assert!(!two.claim(run, None).unwrap(), "it is held");
    assert!(!two.claim(run, Some(&one.owner())).unwrap(), "its owner lives");
    let stranger = Owner { node: "elsewhere".into(), epoch: one.epoch() };
    assert!(!two.claim(run, Some(&stranger)).unwrap());
    assert!(two.left_behind(10).unwrap().is_empty());
    let refused = two.append(batch(&two, run, 2..=2, Sync));
    assert!(outcome(&two, refused).await.is_err(), "only its owner writes a run");
    let gone = one.owner();
    drop(one);
    assert!(!two.is_alive(&gone).unwrap());
    let left = two.left_behind(10).unwrap();
    assert_eq!(left.iter().map(|left| left.row.run_id).collect::<Vec<_>>(), [run]);
    let holder = two.holder(run).unwrap();
    assert!(two.claim(run, holder.as_ref()).unwrap());
    let position = two.append(batch(&two, run, 2..=2, Sync)).unwrap();
    two.durable(position).await.unwrap();
    assert_eq!(frames_of(&two, run, 0).len(), 2);
}

pub async fn of_many_claims_one_wins<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    for _ in 0..20 {
        let run = new_run();
        let mut first = batch(&*store, run, 1..=1, Deferred);
        first.row = Some(row(run));
        store.append(Batch { release: true, ..first }).unwrap();
        let won = race(8, |_| {
            let store = Arc::clone(&store);
            move || store.claim(run, None).unwrap()
        });
        assert_eq!(won.into_iter().filter(|(_, won)| *won).count(), 1);
        assert_eq!(store.holder(run).unwrap(), Some(store.owner()));
    }
}

/// Promise 7 for an owner that is alive: it was suspended while others took its runs.
pub async fn a_zombie_writes_nothing<H: Home>() {
    let home = H::new();
    let (zombie, heir) = (home.open(), home.open());
    let run = begin(&zombie).await;
    let position = zombie.append(batch(&zombie, run, 2..=5, Sync)).unwrap();
    zombie.durable(position).await.unwrap();
    heir.fence(&zombie.owner()).unwrap();
    assert!(!heir.is_alive(&zombie.owner()).unwrap());
    assert_eq!(frames_of(&heir, run, 0).len(), 5, "what the zombie was told is durable is there");
    assert!(heir.claim(run, Some(&zombie.owner())).unwrap() || heir.holder(run).unwrap() == Some(heir.owner()));
    let appended = zombie.append(batch(&zombie, run, 6..=6, Sync));
    let refused = outcome(&zombie, appended).await.unwrap_err();
    assert_eq!(refused, StoreError::Fenced(zombie.owner()));
    assert!(zombie.put_if_absent("s", "k", vec![1], None).is_err());
    assert!(zombie.claim(run, None).is_err());
    assert_eq!(frames_of(&heir, run, 0).len(), 5);
    let position = heir.append(batch(&heir, run, 6..=6, Sync)).unwrap();
    heir.durable(position).await.unwrap();
    assert_eq!(frames_of(&heir, run, 0).len(), 6);
    // A batch of an earlier epoch is refused, whichever handle appends it.
    let late = Batch { epoch: zombie.epoch(), ..batch(&heir, run, 7..=7, Sync) };
    assert!(matches!(heir.append(late), Err(StoreError::Fenced(owner)) if owner.epoch == zombie.epoch()));
    heir.fence(&zombie.owner()).unwrap();
}

/// Owners are fenced while they write as fast as they can: everything that was reported durable is present, and nothing
/// is written after the fence.
pub async fn a_storm_of_fences_loses_and_adds_nothing<H: Home>() {
    let home = H::new();
    let heir = home.open();
    for round in 0..10_u64 {
        let zombie = Arc::new(home.open());
        let run = begin(&*zombie).await;
        let told = Arc::new(AtomicU64::new(1));
        let writing = tokio::spawn({
            let (zombie, told) = (zombie.clone(), told.clone());
            async move {
                for seq in 2..1_000_000 {
                    let appended = zombie.append(batch(&*zombie, run, seq..=seq, Sync));
                    if let Err(error) = outcome(&*zombie, appended).await {
                        return error;
                    }
                    told.store(seq, Ordering::SeqCst);
                }
                panic!("it was never fenced");
            }
        });
        tokio::time::sleep(Duration::from_millis(3 + 2 * round)).await;
        heir.fence(&zombie.owner()).unwrap();
        let fenced = frames_of(&heir, run, 0);
        let error = tokio::time::timeout(PATIENCE, writing).await.unwrap().unwrap();
        assert_eq!(error, StoreError::Fenced(zombie.owner()), "round {round}");
        let told = told.load(Ordering::SeqCst);
        assert!(fenced.len() as u64 >= told, "round {round}: told {told}, found {}", fenced.len());
        assert!(fenced.iter().map(|frame| frame.seq).eq(1..=fenced.len() as u64));
        assert!(heir.claim(run, heir.holder(run).unwrap().as_ref()).unwrap());
        drop(zombie);
        assert_eq!(frames_of(&heir, run, 0), fenced, "round {round}: nothing came after the fence");
    }
}

/// A caller that does not learn the result of a batch reads the run's head.
pub async fn a_batch_whose_answer_was_lost_is_settled_by_the_head<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = begin(&store).await;
    let first = store.head(run).unwrap().unwrap();
    let sent = batch(&store, run, 2..=3, Sync);
    let last = Head { seq: 3, chain: sent.frames[1].chain };
    drop(store.durable(store.append(sent).unwrap()));
    store.settle().unwrap();
    assert_eq!(store.head(run).unwrap(), Some(last), "it was written");
    // A batch that was never written: the head is the frame before it, and the batch can be appended again.
    let lost = batch(&store, run, 4..=4, Sync);
    assert_eq!((store.head(run).unwrap(), first.seq), (Some(last), 1));
    let position = store.append(lost).unwrap();
    store.durable(position).await.unwrap();
    assert_eq!(store.head(run).unwrap().unwrap().seq, 4);
    assert_eq!(store.head(new_run()).unwrap(), None);
}

pub async fn watchers_hear_of_changes_made_by_anybody<H: Home>() {
    let home = H::new();
    let (one, two) = (home.open(), home.open());
    let mut hints = one.watch();
    hints.mark_unchanged();
    let position = one.put("s", "k", vec![1], None).unwrap();
    one.durable(position).await.unwrap();
    tokio::time::timeout(PATIENCE, hints.changed()).await.unwrap().unwrap();
    // Whatever else the first change brought comes at once; the other handle's comes later.
    tokio::time::sleep(Duration::from_millis(600)).await;
    hints.mark_unchanged();
    let position = two.put("s", "k", vec![2], None).unwrap();
    two.durable(position).await.unwrap();
    tokio::time::timeout(PATIENCE, hints.changed()).await.unwrap().unwrap();
    assert_eq!(one.get("s", "k").unwrap(), Some(vec![2]));
}
