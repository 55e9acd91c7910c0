//! Run rows: listing.

use crate::support::*;
use toolyard_engine::{
    Store,
    store::{Durability::*, RunFilter, RunKind},
};
use toolyard_protocol::{RunStatus, WorkspaceId};

pub async fn rows_come_back_as_they_went<H: Home>() {
    let home = H::new();
    let store = home.open();
    let run = new_run();
    assert_eq!(store.run(run).unwrap(), None);
    store.append(batch(&store, run, 1..=1, Deferred)).unwrap();
    store.settle().unwrap();
    assert_eq!(store.run(run).unwrap(), None, "frames alone make no row");
    assert!(store.runs(&RunFilter::default()).unwrap().is_empty());
    let mut wanted = row(run);
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
        let mut update = batch_of(&store, run, Vec::new(), Deferred);
        update.row = Some(wanted.clone());
        store.append(update).unwrap();
        store.settle().unwrap();
        assert_eq!(store.run(run).unwrap().as_ref(), Some(&wanted));
        assert_eq!(store.runs(&RunFilter::default()).unwrap(), [wanted.clone()]);
    }
    assert_eq!(frames_of(&store, run, 0).len(), 1);
}

pub async fn runs_are_listed_by_the_workspace_that_their_sessions_name<H: Home>() {
    let home = H::new();
    let store = home.open();
    let sessions = [
        None,
        Some("agent:main:main"),
        Some("@bob:agent:main:main"),
        Some("@bob-2:x"),
        Some("@bo:x"),
        Some("@bob:mcp:1"),
    ];
    for (n, session) in sessions.into_iter().enumerate() {
        let mut row = row(run_at(n as u64));
        row.session = session.map(str::to_owned);
        let mut batch = batch(&store, row.run_id, 1..=1, Deferred);
        batch.row = Some(row);
        store.append(batch).unwrap();
    }
    store.settle().unwrap();
    let listed = |name: &str| {
        let workspace = Some(WorkspaceId::parse(name).unwrap());
        let rows = store.runs(&RunFilter { workspace, ..Default::default() }).unwrap();
        rows.into_iter().map(|row| row.session).collect::<Vec<_>>()
    };
    assert_eq!(listed("default"), [Some("agent:main:main".to_owned()), None]);
    assert_eq!(listed("bob"), [Some("@bob:mcp:1".to_owned()), Some("@bob:agent:main:main".to_owned())]);
    assert_eq!(listed("bo"), [Some("@bo:x".to_owned())]);
    assert!(listed("eve").is_empty());
    assert_eq!(store.runs(&RunFilter::default()).unwrap().len(), sessions.len(), "without one, those of all");
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
        let mut batch = batch(&store, row.run_id, 1..=1, Deferred);
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
        after: None,
        workspace: None,
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
    let count = |filter: RunFilter| store.count_runs(&filter).unwrap();
    assert_eq!(count(RunFilter::default()), 130, "a limit does not count");
    assert_eq!(count(RunFilter { limit: 7, ..Default::default() }), 130);
    assert_eq!(count(RunFilter { statuses: vec![RunStatus::Running], ..Default::default() }), 13);
    let both = RunFilter { kind: Some(RunKind::Plan), session: session.clone(), ..Default::default() };
    assert_eq!(count(both.clone()), list(RunFilter { limit: 200, ..both }).len() as u64);
    let (newest, oldest) = (Some(rows[9].run_id), Some(rows[20].run_id));
    assert_eq!(count(RunFilter { before: newest, after: oldest, ..Default::default() }), 10, "between two runs");
    rows.reverse();
    let nil = toolyard_protocol::RunId::from_uuid(uuid::Uuid::nil());
    let oldest = |after, limit| list(RunFilter { after: Some(after), limit, ..Default::default() });
    assert_eq!(oldest(nil, 30), rows[..30], "oldest first");
    assert_eq!(oldest(rows[29].run_id, 200), rows[30..]);
}
