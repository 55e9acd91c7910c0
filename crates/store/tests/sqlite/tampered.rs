//! An attacker who can write the database file and has no key: what a later start and `runs verify` report.

use crate::support::*;
use jiff::Timestamp;
use std::sync::Arc;
use toolyard_engine::{
    Blob, EventBus, Recorder, Store,
    chain::{Signer, genesis, link},
    ledger::{Sealer, VerifyOptions, verify_ledger},
    record::{FinishedRecord, NoteRecord, Record, RecordKind},
    store::{Durability::*, RunKind, RunRow},
};
use toolyard_protocol::{EventLevel, RunId, RunStatus};

pub fn signer() -> Arc<Signer> {
    Arc::new(Signer::from_secret("test", &[7; 32]))
}

/// Records and seals a run as the engine does: a start with a policy in a blob, a note, a large result, the end.
pub async fn record_run(store: &Arc<dyn Store>, sealer: &Sealer, note: &str, seed: u64) -> RunId {
    let run_id = new_run();
    let recorder = Recorder::begin(run_id, None, store.clone(), Arc::new(EventBus::default()), signer());
    let at: Timestamp = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap();
    let policy = Blob::new(format!("{{\"seed\":{seed}}}").into_bytes());
    let data = Blob::new(noise(3000, seed));
    let text = format!(
        r#"{{"runId":"{run_id}","kind":"call","policyHash":"h","policyBlob":"{}","registryVersion":"1","executorVersion":"1","caller":{{}},"startedAt":"{at}","title":"a run"}}"#,
        policy.sha256
    );
    let result = format!(r#"{{"c":"{run_id}","o":{{"st":"ok","db":"{}","b":1,"us":2}}}}"#, data.sha256);
    let message = note.to_owned();
    let level = EventLevel::Info;
    recorder.push(&Record::decode(RecordKind::RunStarted as u8, text.as_bytes()).unwrap());
    let payload = Default::default();
    recorder.push(&Record::Note(NoteRecord { at, level, message, call_id: None, step_id: None, payload }));
    recorder.push_blobs([policy, data]);
    recorder.flush(Deferred).unwrap();
    recorder.push(&Record::decode(RecordKind::Result as u8, result.as_bytes()).unwrap());
    let status = RunStatus::Finished;
    recorder.push(&Record::Finished(FinishedRecord { at, status, error: None, message: "done".into() }));
    let title = "a run".to_owned();
    let (session, kind) = (None, RunKind::Call);
    recorder.set_row(RunRow { run_id, kind, status, title, session, started_at: at, ended_at: Some(at) });
    recorder.flush(Sync).unwrap();
    let (seq, chain) = recorder.head();
    sealer.run_ended(run_id, seq, &chain);
    // A start with a damaged ledger cannot seal; verification reports the damage.
    drop(sealer.seal());
    run_id
}

/// Records and seals a run with a sealer of its own.
async fn sealed_run(store: Arc<dyn Store>, note: &str) -> RunId {
    let sealer = Sealer::new(store.clone(), signer());
    record_run(&store, &sealer, note, 1).await
}

/// Rewrites the first record of a run in the database file, with the chain made anew.
fn rewrite(db: &rusqlite::Connection, run_id: RunId, from: &str, to: &str) {
    let no: i64 =
        db.query_row("SELECT no FROM runs WHERE run_id = ?1", [run_id.as_uuid().as_bytes()], |r| r.get(0)).unwrap();
    let mut frames = db.prepare("SELECT id, kind, payload FROM frames WHERE id >> 32 = ?1 ORDER BY id").unwrap();
    let frames: Vec<(i64, i64, Vec<u8>)> =
        frames.query_map([no], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap().map(Result::unwrap).collect();
    assert_eq!(frames.len(), 4);
    let mut chain = genesis(run_id);
    for (i, (id, kind, payload)) in frames.into_iter().enumerate() {
        let (kind, payload) = toolyard_store::fuzzing::unpacked(kind, &payload);
        let payload = String::from_utf8(payload).unwrap().replace(from, to).into_bytes();
        chain = link(&chain, i as u64 + 1, kind as u8, &payload);
        let sql = "UPDATE frames SET kind = ?1, payload = ?2, chain = ?3 WHERE id = ?4";
        db.execute(sql, (kind, payload, chain, id)).unwrap();
    }
}

#[tokio::test]
async fn a_run_rewritten_in_the_file_is_neither_signed_at_the_next_start_nor_verified() {
    let home = SqliteHome::new();
    let first = sealed_run(Arc::new(home.open()), "untouched").await;
    let second = sealed_run(Arc::new(home.open()), "honest").await;
    let db = rusqlite::Connection::open(home.0.path().join("toolyard.db")).unwrap();
    rewrite(&db, second, "honest", "forged");
    assert_eq!(db.execute("DELETE FROM ledger WHERE seq = 2", []).unwrap(), 1);
    drop(db);

    let store: Arc<dyn Store> = Arc::new(home.open());
    let found = Sealer::new(store.clone(), signer()).seal_found().unwrap();
    assert_eq!((found.sealed, found.unsigned), (0, vec![second]));
    let report = verify_ledger(&*store, &signer().verifier(), &VerifyOptions::default()).unwrap();
    assert!(!report.ok);
    assert_eq!(report.bad_runs.iter().map(|bad| bad.run_id).collect::<Vec<_>>(), [second]);
    assert!(report.missing_runs.is_empty() && report.runs == 1, "{report:?}");
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_record_edited_in_the_file_is_found_by_verifying_everything() {
    let home = SqliteHome::new();
    let run_id = sealed_run(Arc::new(home.open()), "honest").await;
    let db = rusqlite::Connection::open(home.0.path().join("toolyard.db")).unwrap();
    rewrite(&db, run_id, "honest", "forged");
    drop(db);
    let report = verify_ledger(&home.open(), &signer().verifier(), &VerifyOptions::default()).unwrap();
    assert!(!report.ok);
    assert_eq!((report.bad_runs[0].run_id, report.bad_runs[0].first_bad.seq), (run_id, 4), "{report:?}");
}
