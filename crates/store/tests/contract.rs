//! The suite every [`Store`] must pass. `contract!` expands it over an implementation; `across_processes!` adds what
//! only a store that outlives its process can be asked: `kill -9`, several processes at once.
//!
//! A new store adds one `Home` and two lines at the end of this file.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

mod support;

use jiff::{SignedDuration, Timestamp};
use std::{
    ops::ControlFlow,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use support::*;
use toolyard_engine::{
    Blob, Store,
    store::{Durability::*, Frame, RunFilter, RunKind},
};
use toolyard_protocol::RunStatus;

mod suite {
    use super::*;

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
        let position = store.append(batch_of(run, frames.clone(), Sync)).unwrap();
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
        store.append(batch(run, 1..=10, Ride)).unwrap();
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
            store.append(batch(run, start + 1..=start + 100, Ride)).unwrap();
            store.append(batch(other, start + 1..=start + 100, Ride)).unwrap();
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
            store.append(batch(run, n..=n, Ride)).unwrap();
        }
        store.settle().unwrap();
        assert_eq!(frames_of(&store, run, 0).len(), 50);
        store.settle().unwrap();
    }

    pub async fn a_ride_becomes_visible_by_itself<H: Home>() {
        let home = H::new();
        let store = home.open();
        let run = new_run();
        store.append(batch(run, 1..=1, Ride)).unwrap();
        let started = Instant::now();
        while frames_of(&store, run, 0).is_empty() {
            assert!(started.elapsed() < Duration::from_secs(2), "a ride was never committed");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn durable_makes_rides_durable_as_well<H: Home>() {
        let home = H::new();
        let store = home.open();
        let run = new_run();
        let first = store.append(batch(run, 1..=1, Ride)).unwrap();
        let second = store.append(batch(run, 2..=2, Ride)).unwrap();
        assert!(first < second);
        store.durable(second).await.unwrap();
        store.durable(first).await.unwrap();
        assert_eq!(frames_of(&store, run, 0).len(), 2);
        // One that is already committed, but only rode.
        let third = store.append(batch(run, 3..=3, Ride)).unwrap();
        store.settle().unwrap();
        store.durable(third).await.unwrap();
    }

    pub async fn durable_of_nothing<H: Home>() {
        let home = H::new();
        let store = home.open();
        store.durable(Default::default()).await.unwrap();
        let run = new_run();
        let position = store.append(batch(run, 1..=1, Sync)).unwrap();
        let beyond = toolyard_engine::store::Position(position.0 + 1);
        assert!(store.durable(beyond).await.is_err(), "nothing was appended there");
    }

    /// Promise 1: whoever looks sees whole batches, in the order of their appends.
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
            let durability = if n % 7 == 0 { Sync } else { Ride };
            store.append(batch(first, 3 * n + 1..=3 * n + 3, durability)).unwrap();
            let position = store.append(batch(second, 3 * n + 1..=3 * n + 3, Ride)).unwrap();
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
                    let position = store.append(batch(run, seq..=seq, Sync)).unwrap();
                    store.durable(position).await.unwrap();
                    assert_eq!(frames_of(&*store, run, seq).len(), 1, "durable, so visible");
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }

    /// Promise 5, and what follows from it: the run takes nothing more until it is claimed; other runs go on.
    pub async fn a_frame_that_exists_is_refused<H: Home>() {
        let home = H::new();
        let store = home.open();
        let (run, other) = (new_run(), new_run());
        let mut first = batch(run, 1..=2, Sync);
        first.row = Some(row(run));
        let position = store.append(first).unwrap();
        store.durable(position).await.unwrap();
        let original = frames_of(&store, run, 0);

        let mut again = batch(run, 2..=3, Sync);
        again.frames[0].payload = b"{\"other\":true}".to_vec();
        again.blobs = vec![Blob::new(b"of the refused batch".to_vec())];
        let refused_blob = again.blobs[0].sha256.clone();
        let bystander = store.append(batch(other, 1..=1, Ride)).unwrap();
        let refused = store.append(again);
        let later = store.append(batch(run, 3..=3, Sync));
        let unharmed = store.append(batch(other, 2..=2, Sync)).unwrap();
        let refused = outcome(&store, refused).await.unwrap_err();
        assert!(refused.0.contains("frame 2"), "{refused}");
        assert!(outcome(&store, later).await.is_err(), "frame 3 without frame 2 of the same batch leaves a hole");
        store.durable(bystander).await.unwrap();
        store.durable(unharmed).await.unwrap();
        assert!(store.append(batch(run, 3..=3, Sync)).is_err());
        assert_eq!(frames_of(&store, run, 0), original);
        assert_eq!(frames_of(&store, other, 0).len(), 2);
        assert_eq!(store.blob(&refused_blob).unwrap(), None, "a batch is whole or not at all");

        assert!(store.claim(run, None, &lease(1)).unwrap());
        let position = store.append(batch(run, 3..=3, Sync)).unwrap();
        store.durable(position).await.unwrap();
        assert_eq!(frames_of(&store, run, 0).len(), 3);
    }

    pub async fn a_frame_twice_in_one_batch_is_refused<H: Home>() {
        let home = H::new();
        let store = home.open();
        let run = new_run();
        let mut twice = batch(run, 1..=2, Sync);
        twice.frames[1].seq = 1;
        let appended = store.append(twice);
        assert!(outcome(&store, appended).await.is_err());
        assert!(frames_of(&store, run, 0).is_empty());
        let mut zero = batch(new_run(), 1..=1, Sync);
        zero.frames[0].seq = 0;
        assert!(store.append(zero).is_err());
        let mut stranger = batch(new_run(), 1..=1, Sync);
        stranger.row = Some(row(new_run()));
        assert!(store.append(stranger).is_err(), "the row of another run");
    }

    pub async fn rows_come_back_as_they_went<H: Home>() {
        let home = H::new();
        let store = home.open();
        let run = new_run();
        assert_eq!(store.run(run).unwrap(), None);
        store.append(batch(run, 1..=1, Ride)).unwrap();
        store.settle().unwrap();
        assert_eq!(store.run(run).unwrap(), None, "frames alone make no row");
        assert!(store.runs(&RunFilter::default()).unwrap().is_empty());
        let mut wanted = row(run);
        wanted.lease = Some(lease(u64::MAX));
        let statuses = [
            RunStatus::Pending,
            RunStatus::Running,
            RunStatus::Paused,
            RunStatus::Finished,
            RunStatus::Failed,
            RunStatus::Cancelled,
        ];
        for (n, status) in statuses.into_iter().enumerate() {
            wanted.status = status;
            wanted.kind = if n % 2 == 0 { RunKind::Plan } else { RunKind::Call };
            wanted.session = (n % 2 == 0).then(|| "s\u{0}ession ü".to_owned());
            wanted.ended_at = status.is_final().then(|| "2026-11-15T01:02:03.123456789Z".parse().unwrap());
            if status.is_final() {
                wanted.lease = None;
            }
            let mut update = batch(run, 2..=1, Ride);
            update.row = Some(wanted.clone());
            store.append(update).unwrap();
            store.settle().unwrap();
            assert_eq!(store.run(run).unwrap().as_ref(), Some(&wanted));
            assert_eq!(store.runs(&RunFilter::default()).unwrap(), [wanted.clone()]);
        }
        assert_eq!(frames_of(&store, run, 0).len(), 1);
    }

    pub async fn runs_are_listed_newest_first<H: Home>() {
        let home = H::new();
        let store = home.open();
        let mut rows: Vec<_> = (0..130_u64)
            .map(|n| {
                let mut row = row(run_at(n));
                row.status = if n % 10 == 0 { RunStatus::Running } else { RunStatus::Finished };
                row.kind = if n % 3 == 0 { RunKind::Plan } else { RunKind::Call };
                row.session = (n % 5 == 0).then(|| format!("session {}", n % 2));
                row
            })
            .collect();
        for row in &rows {
            let mut batch = batch(row.run_id, 1..=1, Ride);
            batch.row = Some(row.clone());
            store.append(batch).unwrap();
        }
        store.settle().unwrap();
        rows.reverse();
        let list = |filter: RunFilter| store.runs(&filter).unwrap();
        assert_eq!(list(RunFilter::default()), rows[..100]);
        assert_eq!(list(RunFilter { limit: 7, ..Default::default() }), rows[..7]);
        assert_eq!(list(RunFilter { limit: usize::MAX, ..Default::default() }), rows);
        let page = RunFilter { limit: 50, before: Some(rows[49].run_id), ..Default::default() };
        assert_eq!(list(page), rows[50..100]);
        let chosen = |wanted: &dyn Fn(&toolyard_engine::store::RunRow) -> bool| {
            rows.iter().filter(|row| wanted(row)).take(100).cloned().collect::<Vec<_>>()
        };
        let open = vec![RunStatus::Running, RunStatus::Paused];
        assert_eq!(
            list(RunFilter { statuses: open.clone(), ..Default::default() }),
            chosen(&|row| row.status == RunStatus::Running)
        );
        assert_eq!(
            list(RunFilter { statuses: vec![RunStatus::Running, RunStatus::Finished], ..Default::default() }),
            chosen(&|_| true)
        );
        assert_eq!(
            list(RunFilter { kind: Some(RunKind::Plan), ..Default::default() }),
            chosen(&|row| row.kind == RunKind::Plan)
        );
        let session = Some("session 0".to_owned());
        assert_eq!(
            list(RunFilter { session: session.clone(), ..Default::default() }),
            chosen(&|row| row.session == session)
        );
        let all = RunFilter {
            statuses: open,
            kind: Some(RunKind::Call),
            session: session.clone(),
            before: Some(rows[20].run_id),
            limit: 5,
        };
        let expected: Vec<_> = rows[21..]
            .iter()
            .filter(|row| row.status == RunStatus::Running && row.kind == RunKind::Call && row.session == session)
            .take(5)
            .cloned()
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(list(all), expected);
    }

    pub async fn a_claim_needs_the_right_lease<H: Home>() {
        let home = H::new();
        let store = home.open();
        let run = new_run();
        assert!(!store.claim(run, None, &lease(1)).unwrap(), "there is no such run");
        let mut first = batch(run, 1..=1, Ride);
        first.row = Some(row(run));
        store.append(first).unwrap();
        // Ordered after the append that makes the row, although nobody waited for that.
        assert!(store.claim(run, Some(&lease(9)), &lease(1)).unwrap(), "nobody holds it");
        assert!(!store.claim(run, None, &lease(2)).unwrap());
        assert!(!store.claim(run, Some(&lease(9)), &lease(2)).unwrap());
        let almost = toolyard_engine::store::Lease { boot_id: "another boot".into(), ..lease(1) };
        assert!(!store.claim(run, Some(&almost), &lease(2)).unwrap());
        assert!(store.claim(run, Some(&lease(1)), &lease(2)).unwrap());
        assert_eq!(store.run(run).unwrap().unwrap().lease, Some(lease(2)));
    }

    pub async fn of_many_claims_one_wins<H: Home>() {
        let home = H::new();
        let store = Arc::new(home.open());
        for _ in 0..20 {
            let run = new_run();
            let mut first = batch(run, 1..=1, Ride);
            first.row = Some(row(run));
            store.append(first).unwrap();
            let won = race(8, |n| {
                let store = Arc::clone(&store);
                move || store.claim(run, None, &lease(n)).unwrap()
            });
            let winners: Vec<u64> = won.into_iter().filter(|(_, won)| *won).map(|(n, _)| n).collect();
            assert_eq!(winners.len(), 1);
            assert_eq!(store.run(run).unwrap().unwrap().lease, Some(lease(winners[0])));
        }
    }

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

    pub async fn expired_facts_are_gone<H: Home>() {
        let home = H::new();
        let store = home.open();
        let soon = || Some(Timestamp::now() + SignedDuration::from_millis(60));
        let late = Some("9999-12-30T22:00:00Z".parse().unwrap());
        for settled in [false, true] {
            store.put("s", "soon", vec![1], soon()).unwrap();
            store.put("s", "late", vec![2], late).unwrap();
            store.put("s", "past", vec![3], Some(Timestamp::UNIX_EPOCH)).unwrap();
            if settled {
                store.settle().unwrap();
            }
            assert_eq!(store.get("s", "soon").unwrap(), Some(vec![1]));
            assert_eq!(store.get("s", "past").unwrap(), None);
            assert_eq!(store.list("s").unwrap().len(), 2);
            tokio::time::sleep(Duration::from_millis(70)).await;
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
            let mut with_blobs = batch(new_run(), 1..=1, Sync);
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

    /// Only for stores that keep something: everything queued is there after a clean end.
    pub async fn dropping_writes_everything<H: Home>() {
        let home = H::new();
        let (run, blob) = (new_run(), Blob::new(noise(2 << 20, 3)));
        let store = home.open();
        let mut last = batch(run, 1..=3, Ride);
        last.blobs = vec![blob.clone()];
        last.row = Some(row(run));
        store.append(last).unwrap();
        store.append(batch(run, 4..=4, Ride)).unwrap();
        store.put("s", "k", vec![1], None).unwrap();
        drop(store);
        let store = home.open();
        assert_eq!(frames_of(&store, run, 0).len(), 4);
        assert_eq!(store.get("s", "k").unwrap(), Some(vec![1]));
        assert_eq!(store.blob(&blob.sha256).unwrap().as_deref(), Some(&*blob.bytes));
        assert_eq!(store.run(run).unwrap(), Some(row(run)));
        let again = store.append(batch(run, 4..=4, Sync));
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

    /// Promise 3.
    pub async fn a_ride_survives_kill_after_100_ms<H: Home>() {
        let home = H::new();
        for _ in 0..2 {
            let acknowledged = run_and_kill(&home, "ride", Duration::from_millis(100), 1);
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
            let position = store.append(batch(run, seq..=seq, Sync)).unwrap();
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

    /// A claim and a key that is set only once, between processes: each child says what it won.
    pub async fn between_processes_one_wins<H: Home>() {
        let home = H::new();
        let store = home.open();
        for n in 0..CHILD_RACES {
            let mut batch = batch(run_at(n), 1..=1, Ride);
            batch.row = Some(row(run_at(n)));
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

    fn race<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        runners: u64,
        runner: impl Fn(u64) -> F,
    ) -> Vec<(u64, T)> {
        let barrier = Arc::new(Barrier::new(runners as usize));
        let threads: Vec<_> = (0..runners)
            .map(|n| {
                let (run, barrier) = (runner(n), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    barrier.wait();
                    (n, run())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

macro_rules! expand {
    ($home:ty: $($test:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::suite::$test::<$home>().await;
        })*
    };
}

macro_rules! contract {
    ($home:ty) => {
        expand!($home:
            frames_come_back_as_they_went,
            a_walk_can_be_ended_and_may_use_the_store,
            a_long_run_is_read_in_order,
            settle_makes_visible_what_only_rides,
            a_ride_becomes_visible_by_itself,
            durable_makes_rides_durable_as_well,
            durable_of_nothing,
            batches_appear_whole_and_in_order,
            many_tasks_at_once,
            a_frame_that_exists_is_refused,
            a_frame_twice_in_one_batch_is_refused,
            rows_come_back_as_they_went,
            runs_are_listed_newest_first,
            a_claim_needs_the_right_lease,
            of_many_claims_one_wins,
            facts_are_there_at_once,
            expired_facts_are_gone,
            put_if_absent_sets_once,
            blobs_are_kept_by_content,
            the_ledger_is_one_chain,
            a_ledger_maker_may_read_the_store_and_may_fail,
        );
    };
}

macro_rules! across_processes {
    ($home:ty) => {
        expand!($home:
            dropping_writes_everything,
            what_was_durable_survives_kill,
            a_ride_survives_kill_after_100_ms,
            several_processes_append_at_once,
            the_ledger_never_forks_between_processes,
            between_processes_one_wins,
        );
    };
}

mod memory {
    contract!(crate::support::MemoryHome);
}

mod sqlite {
    contract!(crate::support::SqliteHome);
    across_processes!(crate::support::SqliteHome);

    mod only;
}

/// Where child processes begin: see [`support::spawn`].
#[test]
#[ignore = "runs only inside the child processes of other tests"]
fn child() {
    support::child();
}
