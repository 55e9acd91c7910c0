//! Run rows: listing and leases.

use crate::support::*;
use std::sync::Arc;
use toolyard_engine::{
    Store,
    store::{Durability::*, RunFilter, RunKind},
};
use toolyard_protocol::RunStatus;

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
        let mut update = batch_of(run, Vec::new(), Ride);
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
