//! Frames and blobs: order, durability, uniqueness (promises 1, 2 and 5).

use crate::support::*;
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use toolyard_engine::{
    Blob, Store,
    store::{Durability::*, Frame},
};

pub async fn frames_come_back_as_they_went<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    // Every kind, sizes around every threshold, text that compresses and bytes that do not.
    let mut frames: Vec<Frame> = (0..=255).map(|kind| frame(u64::from(kind) + 1, kind, b"{}".to_vec())).collect();
    for (n, size) in [0, 1, 2047, 2048, 4090, 70_000, 300_000, 3_000_000].into_iter().enumerate() {
        frames.push(frame(257 + 2 * n as u64, 7, b"again ".repeat(size / 6 + 1)[..size].to_vec()));
        frames.push(frame(258 + 2 * n as u64, 255, noise(size, n as u64)));
    }
    let position = store.append(batch_of(&store, run, frames.clone(), Sync)).unwrap();
    store.durable(position).await.unwrap();
    assert!(frames_of(&store, run, 0) == frames);
    assert!(frames_of(&store, run, 1) == frames);
    assert!(frames_of(&store, run, 200) == frames[199..]);
    assert!(frames_of(&store, run, u64::MAX).is_empty());
    assert!(frames_of(&store, new_run(), 0).is_empty());
}

pub async fn a_walk_can_be_ended_and_may_use_the_store<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    store.append(batch(&store, run, 1..=10, Deferred)).unwrap();
    store.settle().unwrap();
    let mut seen = Vec::new();
    store
        .frames(run, 3, &mut |frame| {
            store.put("walk", "at", frame.seq.to_be_bytes().to_vec(), None).unwrap();
            assert_eq!(frames_of(&store, run, frame.seq)[0], frame);
            seen.push(frame.seq);
            if frame.seq == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, [3, 4, 5]);
}

pub async fn a_long_run_is_read_in_order<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    let other = new_run();
    for start in (0..20_000).step_by(100) {
        store.append(batch(&store, run, start + 1..=start + 100, Deferred)).unwrap();
        store.append(batch(&store, other, start + 1..=start + 100, Deferred)).unwrap();
    }
    store.settle().unwrap();
    let seqs: Vec<u64> = frames_of(&store, run, 0).iter().map(|frame| frame.seq).collect();
    assert!(seqs == (1..=20_000).collect::<Vec<_>>());
}

pub async fn settle_makes_visible_what_only_rides<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    for n in 1..=50 {
        store.append(batch(&store, run, n..=n, Deferred)).unwrap();
    }
    store.settle().unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 50);
    store.settle().unwrap();
}

pub async fn a_ride_becomes_visible_by_itself<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    store.append(batch(&store, run, 1..=1, Deferred)).unwrap();
    let started = Instant::now();
    while frames_of(&store, run, 0).is_empty() {
        assert!(started.elapsed() < PATIENCE, "a ride was never committed");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn durable_makes_rides_durable_as_well<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    let first = store.append(batch(&store, run, 1..=1, Deferred)).unwrap();
    let second = store.append(batch(&store, run, 2..=2, Deferred)).unwrap();
    assert!(first < second);
    store.durable(second).await.unwrap();
    store.durable(first).await.unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 2);
    // One that is already committed, but only rode.
    let third = store.append(batch(&store, run, 3..=3, Deferred)).unwrap();
    store.settle().unwrap();
    store.durable(third).await.unwrap();
}

pub async fn durable_of_nothing<H: Home>() {
    let home = H::new();
    let store = home.open();
    store.durable(Default::default()).await.unwrap();
    let run = new_run();
    let position = store.append(batch(&store, run, 1..=1, Sync)).unwrap();
    let beyond = toolyard_engine::store::Position(position.0 + 1);
    assert!(store.durable(beyond).await.is_err(), "nothing was appended there");
}

/// Promise 1: readers see complete batches, in the order of their appends.
pub async fn batches_appear_whole_and_in_order<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    let (first, second) = (new_run(), new_run());
    let done = Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        move || {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                let behind = frames_of(&*store, second, 0).len();
                let ahead = frames_of(&*store, first, 0).len();
                assert!(behind.is_multiple_of(3) && ahead.is_multiple_of(3), "half a batch was visible");
                assert!(ahead >= behind, "a later batch was visible before an earlier one");
                looks += 1;
            }
            looks
        }
    });
    for n in 0..300 {
        let durability = if n % 7 == 0 { Sync } else { Deferred };
        store.append(batch(&*store, first, 3 * n + 1..=3 * n + 3, durability)).unwrap();
        let position = store.append(batch(&*store, second, 3 * n + 1..=3 * n + 3, Deferred)).unwrap();
        if n % 10 == 0 {
            store.durable(position).await.unwrap();
        }
    }
    store.settle().unwrap();
    done.store(true, Ordering::Relaxed);
    assert!(watcher.join().unwrap() > 0);
    assert_eq!(frames_of(&*store, second, 0).len(), 900);
}

pub async fn many_tasks_at_once<H: Home>() {
    let home = H::new();
    let store = Arc::new(home.open());
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let run = new_run();
            for seq in 1..=25 {
                let position = store.append(batch(&*store, run, seq..=seq, Sync)).unwrap();
                store.durable(position).await.unwrap();
                assert_eq!(frames_of(&*store, run, seq).len(), 1, "durable, so visible");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Promise 5 and its consequence: the run accepts nothing more until it is claimed; other runs continue.
pub async fn a_frame_that_exists_is_refused<H: Home>() {
    let home = H::new();
    let store = home.open();
    let (run, other) = (new_run(), new_run());
    let mut first = batch(&store, run, 1..=2, Sync);
    first.row = Some(row(run));
    let position = store.append(first).unwrap();
    store.durable(position).await.unwrap();
    let original = frames_of(&store, run, 0);

    let mut again = batch(&store, run, 2..=3, Sync);
    again.frames[0].payload = b"{\"other\":true}".to_vec();
    again.blobs = vec![Blob::new(b"of the refused batch".to_vec())];
    let refused_blob = again.blobs[0].sha256.clone();
    let bystander = store.append(batch(&store, other, 1..=1, Deferred)).unwrap();
    let refused = store.append(again);
    let later = store.append(batch(&store, run, 3..=3, Sync));
    let unharmed = store.append(batch(&store, other, 2..=2, Sync)).unwrap();
    let refused = outcome(&store, refused).await.unwrap_err();
    assert!(refused.to_string().contains("frame 2"), "{refused}");
    assert!(outcome(&store, later).await.is_err(), "frame 3 without frame 2 of the same batch leaves a hole");
    store.durable(bystander).await.unwrap();
    store.durable(unharmed).await.unwrap();
    assert!(store.append(batch(&store, run, 3..=3, Sync)).is_err());
    assert_eq!(frames_of(&store, run, 0), original);
    assert_eq!(frames_of(&store, other, 0).len(), 2);
    assert_eq!(store.blob(&refused_blob).unwrap(), None, "a batch is whole or not at all");

    assert!(store.claim(run, Some(&store.owner())).unwrap());
    let position = store.append(batch(&store, run, 3..=3, Sync)).unwrap();
    store.durable(position).await.unwrap();
    assert_eq!(frames_of(&store, run, 0).len(), 3);
}

pub async fn a_frame_twice_in_one_batch_is_refused<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    let mut twice = batch(&store, run, 1..=2, Sync);
    twice.frames[1].seq = 1;
    let appended = store.append(twice);
    assert!(outcome(&store, appended).await.is_err());
    assert!(frames_of(&store, run, 0).is_empty());
    let mut zero = batch(&store, new_run(), 1..=1, Sync);
    zero.frames[0].seq = 0;
    assert!(store.append(zero).is_err());
    let mut stranger = batch(&store, new_run(), 1..=1, Sync);
    stranger.row = Some(row(new_run()));
    assert!(store.append(stranger).is_err(), "the row of another run");
}

pub async fn blobs_are_kept_by_content<H: Home>() {
    let home = H::new();
    let store = home.open();
    let blobs: Vec<Blob> = [
        Vec::new(),
        b"small".to_vec(),
        b"compresses well ".repeat(10_000),
        noise(200_000, 1),
        b"large and dull ".repeat(300_000),
        noise(3 << 20, 2),
    ]
    .into_iter()
    .map(Blob::new)
    .collect();
    for round in 0..2 {
        let mut with_blobs = batch(&store, new_run(), 1..=1, Sync);
        with_blobs.blobs = blobs.clone();
        let position = store.append(with_blobs).unwrap();
        store.durable(position).await.unwrap();
        for blob in &blobs {
            let found = store.blob(&blob.sha256).unwrap();
            assert!(found.as_deref() == Some(&blob.bytes), "round {round}, {} bytes", blob.bytes.len());
        }
    }
    assert_eq!(store.blob(&"0".repeat(64)).unwrap(), None);
    assert_eq!(store.blob("../../etc/passwd").unwrap(), None);
}
