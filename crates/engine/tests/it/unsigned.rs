//! Unsigned records are not signed later: a start that finds a rewritten run does not authenticate it.

use crate::{
    stores::Tap,
    support::{Bench, BenchParts, bench, bench_with, within},
};
use serde_json::json;
use std::sync::Arc;
use toolyard_engine::{
    Store,
    chain::{genesis, link},
    ledger::{LedgerReport, VerifyOptions, verify_ledger, verify_run},
    record::RecordKind,
    store::Frame,
};
use toolyard_protocol::{RunId, RunStatus};

/// Replaces a word in every record and makes the chain anew, as somebody without the key can.
fn rewrite(run_id: RunId, frames: &mut [Frame], from: &str, to: &str) {
    let mut chain = genesis(run_id);
    for frame in frames {
        frame.payload = String::from_utf8(frame.payload.clone()).unwrap().replace(from, to).into_bytes();
        frame.chain = link(&chain, frame.seq, frame.kind, &frame.payload);
        chain = frame.chain;
    }
}

/// Starts over a store, as the next process does.
async fn start_over(store: Tap) -> Bench {
    let next = bench_with(BenchParts { store: Arc::new(store), ..BenchParts::default() });
    within(next.engine.recover()).await.unwrap();
    next.engine.seal().await.unwrap();
    next
}

fn verify_all(b: &Bench) -> LedgerReport {
    verify_ledger(&*b.store, &b.engine.signer().verifier(), &VerifyOptions::default()).unwrap()
}

#[tokio::test]
async fn a_rewritten_run_whose_ledger_entry_was_dropped_is_not_signed_at_the_next_start() {
    let b = bench();
    let run_id = b.call("lab.echo", json!({"value": "honest"})).await.run_id;
    b.engine.seal().await.unwrap();
    let next = start_over(b.store.rewritten(run_id, |f| rewrite(run_id, f, "honest", "forged"), false)).await;
    assert!(next.store.ledger(1, 10).unwrap().is_empty(), "nothing was sealed");
    let report = verify_run(&*next.store, run_id, &next.engine.signer().verifier()).unwrap();
    let bad = report.first_bad.expect("a record that nothing proves");
    assert_eq!((report.ok, report.ledger_entry, bad.seq), (false, None, 1), "{bad}");
    assert!(bad.problem.contains("nor the ledger proves"), "{bad}");
    let report = verify_all(&next);
    assert!(!report.ok);
    assert_eq!(report.bad_runs.iter().map(|bad| bad.run_id).collect::<Vec<_>>(), [run_id]);
}

#[tokio::test]
async fn the_same_holds_for_the_run_of_a_plan_without_its_signature() {
    let b = bench();
    let report = b.run(json!([{"id": "e", "tool": "lab.echo", "args": {"value": "honest"}}])).await;
    let run_id = report.run_id;
    let cut_and_rewrite = |f: &mut Vec<Frame>| {
        f.retain(|frame| frame.kind != RecordKind::Checkpoint as u8);
        rewrite(run_id, f, "honest", "forged");
    };
    let next = start_over(b.store.rewritten(run_id, cut_and_rewrite, false)).await;
    assert!(next.store.ledger(1, 10).unwrap().is_empty());
    assert_eq!(verify_all(&next).bad_runs.len(), 1);
}

#[tokio::test]
async fn an_edited_record_is_found_by_verifying_everything() {
    let b = bench();
    let run_id = b.call("lab.echo", json!({"value": "honest"})).await.run_id;
    b.call("lab.echo", json!({"value": "other"})).await;
    b.engine.seal().await.unwrap();
    assert!(verify_all(&b).ok);
    for (what, store) in [
        ("its bytes", b.store.with_frames(run_id, |f| f[1].payload.push(b' '), false)),
        ("its bytes and the chain", b.store.with_frames(run_id, |f| rewrite(run_id, f, "honest", "forged"), false)),
        ("the end is cut off", b.store.with_frames(run_id, |f| drop(f.pop()), false)),
    ] {
        let report = verify_ledger(&store, &b.engine.signer().verifier(), &VerifyOptions::default()).unwrap();
        assert!(!report.ok, "{what}");
        assert_eq!((report.bad, report.bad_runs[0].run_id), (1, run_id), "{what}");
    }
}

#[tokio::test]
async fn an_unsealed_run_that_toolyard_ended_is_sealed_and_the_ledger_says_when() {
    let b = bench();
    let run_id = b.call("lab.echo", json!({"value": 1})).await.run_id;
    let next = start_over(b.store.rewritten(run_id, |_| {}, false)).await;
    let report = verify_all(&next);
    assert!(report.ok, "{report:?}");
    assert_eq!((report.entries, report.runs, report.sealed_at_start), (1, 1, 1));
}

#[tokio::test]
async fn a_forged_run_that_looks_interrupted_is_not_taken_up_and_not_signed() {
    let b = bench();
    let run_id = b.call("lab.echo", json!({"value": "honest"})).await.run_id;
    let without_end = |f: &mut Vec<Frame>| {
        f.pop();
        let result = f.iter_mut().find(|frame| frame.kind == RecordKind::Result as u8).unwrap();
        result.payload = String::from_utf8(result.payload.clone()).unwrap().replace("honest", "forged").into_bytes();
        rewrite(run_id, f, "", "");
    };
    let next = start_over(b.store.rewritten(run_id, without_end, true)).await;
    assert_eq!(next.row(run_id).status, RunStatus::Running, "nobody went on with it");
    assert!(next.store.ledger(1, 10).unwrap().is_empty(), "nothing was sealed");
    let report = verify_run(&*next.store, run_id, &next.engine.signer().verifier()).unwrap();
    assert_eq!((report.ok, report.first_bad.unwrap().seq), (false, 1));
    assert_eq!(verify_all(&next).bad_runs[0].run_id, run_id);
}

#[tokio::test]
async fn a_run_with_a_broken_chain_is_not_taken_up() {
    let b = bench();
    let run_id = b.run(json!([{"id": "e", "tool": "lab.echo", "args": {"value": 1}}])).await.run_id;
    let edit = |f: &mut Vec<Frame>| {
        f.truncate(3);
        f[1].payload.push(b' ');
    };
    let store = b.store.with_frames(run_id, edit, true);
    let next = bench_with(BenchParts { store: Arc::new(store), ..BenchParts::default() });
    let recovered = within(next.engine.recover()).await.unwrap();
    assert_eq!(recovered.failed.len(), 1);
    assert_eq!((recovered.failed[0].0, recovered.failed[0].1.code.as_str()), (run_id, "RECORD_CORRUPTED"));
}
