//! The ledger for other parties: receipts, heads and tiles checked with other implementations, replaced keys, and
//! stores of earlier versions.

use crate::{
    stores::Tap,
    support::{Bench, BenchParts, SECRET, bench, bench_with, within},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::json;
use signed_note::{Note, StandardVerifier, VerifierList};
use std::{path::PathBuf, sync::Arc};
use tlog_tiles::{Checkpoint, Hash, HashReader, Tile, TileHashReader, TileReader};
use toolyard_engine::{
    Clock, Store,
    chain::{Signer, Verifier},
    ledger::{
        self, Leaf, LedgerReport, Receipt, SignedHead, VerifyOptions, chained_entry, prove_consistency, read_heads,
        verify_ledger, verify_receipt, verify_run, write_tiles,
    },
};
use toolyard_protocol::{RunId, RunStatus};

fn verifier(b: &Bench) -> Verifier {
    b.engine.signer().verifier()
}

fn verify_all(b: &Bench) -> LedgerReport {
    verify_ledger(&*b.store, &verifier(b), &VerifyOptions::default()).unwrap()
}

/// Calls, sealed a few at a time, so that the tree has entries of several sizes.
async fn sealed_calls(b: &Bench, n: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for i in 0..n {
        runs.push(b.call("lab.echo", json!({"value": i})).await.run_id);
        if i % 3 == 0 {
            b.engine.seal().await.unwrap();
        }
    }
    b.engine.seal().await.unwrap();
    runs
}

/// The tree head of a checkpoint, by the crates `signed_note` and `tlog_tiles`.
fn read_by_others(note: &str, key: &str) -> Checkpoint {
    let known = VerifierList::new(vec![Box::new(StandardVerifier::new(key).unwrap())]);
    let note = Note::from_bytes(note.as_bytes()).unwrap();
    let (signed, unknown) = note.verify(&known).unwrap();
    assert_eq!((signed.len(), unknown.len()), (1, 0));
    Checkpoint::from_bytes(note.text()).unwrap()
}

fn hashes(proof: &[String]) -> Vec<Hash> {
    proof.iter().map(|hash| Hash(BASE64.decode(hash).unwrap().try_into().unwrap())).collect()
}

#[tokio::test]
async fn receipts_verify_with_other_peoples_code() {
    let b = bench();
    let runs = sealed_calls(&b, 40).await;
    for (i, run_id) in runs.iter().enumerate() {
        let receipt = Receipt::make(&*b.store, b.engine.signer(), *run_id, None).unwrap();
        let head = read_by_others(&receipt.checkpoint, &receipt.key);
        assert_eq!((head.origin(), head.size(), receipt.index), (ledger::ORIGIN, 40, i as u64));
        let leaf = tlog_tiles::record_hash(receipt.leaf.as_bytes());
        tlog_tiles::check_record(&hashes(&receipt.proof), head.size(), *head.hash(), receipt.index, leaf).unwrap();
        let Leaf::Run { head, .. } = serde_json::from_str(&receipt.leaf).unwrap() else { panic!("{}", receipt.leaf) };
        assert_eq!(head.run_id, *run_id);
        assert!(verify_receipt(&receipt, &[verifier(&b)]).ok);
    }
}

#[tokio::test]
async fn a_tree_is_shown_to_extend_an_earlier_head_with_other_peoples_code() {
    let b = bench();
    sealed_calls(&b, 7).await;
    let old = b.engine.sealer().head().unwrap().unwrap();
    sealed_calls(&b, 30).await;
    let new = b.engine.sealer().head().unwrap().unwrap();
    let (old, new) = (read_by_others(&old.note, &old.key), read_by_others(&new.note, &new.key));
    let proof: Vec<Hash> =
        prove_consistency(&*b.store, old.size(), new.size()).unwrap().into_iter().map(Hash).collect();
    tlog_tiles::check_tree(&proof, new.size(), *new.hash(), old.size(), *old.hash()).unwrap();
}

struct Files(PathBuf);

impl TileReader for Files {
    fn height(&self) -> u8 {
        8
    }
    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, tlog_tiles::Error> {
        // The crate's paths name the height, which C2SP fixed since.
        let path = |tile: &Tile| self.0.join(tile.path().replacen("tile/8/", "tile/", 1));
        Ok(tiles
            .iter()
            .map(|tile| std::fs::read(path(tile)).unwrap_or_else(|e| panic!("{:?}: {e}", path(tile))))
            .collect())
    }
    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

#[tokio::test]
async fn the_tree_as_files_is_read_by_other_peoples_code() {
    let b = bench();
    for i in 0..600 {
        b.call("lab.echo", json!({"value": i})).await;
        if i % 100 == 0 {
            b.engine.seal().await.unwrap();
        }
    }
    b.engine.seal().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let written = write_tiles(&*b.store, &verifier(&b), folder.path()).unwrap();
    assert_eq!(written.size, 600);
    let checkpoint = std::fs::read_to_string(folder.path().join("checkpoint")).unwrap();
    let head = read_by_others(&checkpoint, &verifier(&b).to_text());
    let files = Files(folder.path().to_owned());
    let reader = TileHashReader::new(head.size(), *head.hash(), &files);
    let bundle = std::fs::read(folder.path().join("tile/entries/001")).unwrap();
    let length = usize::from(u16::from_be_bytes([bundle[0], bundle[1]]));
    let leaf = tlog_tiles::record_hash(&bundle[2..2 + length]);
    let stored = reader.read_hashes(&[tlog_tiles::stored_hash_index(0, 256)]).unwrap();
    assert_eq!(stored[0], leaf, "the first entry of the second bundle is leaf 256");
    let proof = tlog_tiles::prove_record(head.size(), 599, &reader).unwrap();
    let last = reader.read_hashes(&[tlog_tiles::stored_hash_index(0, 599)]).unwrap()[0];
    tlog_tiles::check_record(&proof, head.size(), *head.hash(), 599, last).unwrap();
}

#[tokio::test]
async fn the_receipt_of_a_call_proves_its_records_and_no_others() {
    let b = bench();
    let steps = json!([{"id": "a", "tool": "lab.echo", "args": {"value": 1}},
                       {"id": "b", "tool": "lab.echo", "args": {"value": "$steps.a.value"}}]);
    let run_id = b.run(steps).await.run_id;
    sealed_calls(&b, 3).await;
    let call = b.export(run_id).calls.into_iter().find(|call| call.step_id.as_str() == "b").unwrap();
    let receipt = Receipt::make(&*b.store, b.engine.signer(), run_id, Some(call.call_id)).unwrap();
    let keys = [verifier(&b)];
    let report = verify_receipt(&receipt, &keys);
    assert!(report.ok && report.records >= 3, "{report:?}");
    assert!(!receipt.records.iter().any(|record| record.payload.contains("\"s\":\"a\"")), "earlier calls are left out");

    let refused = |change: &dyn Fn(&mut Receipt)| {
        let mut changed = receipt.clone();
        change(&mut changed);
        let report = verify_receipt(&changed, &keys);
        assert!(!report.ok && report.first_bad.is_some(), "{report:?}");
    };
    refused(&|r| r.records[0].payload = r.records[0].payload.replace("\"b\"", "\"c\""));
    refused(&|r| drop(r.records.pop()));
    refused(&|r| drop(r.records.remove(0)));
    refused(&|r| r.previous = None);
    refused(&|r| r.records.clear());
    refused(&|r| r.records[0].seq = u64::MAX);
    refused(&|r| r.call_id = None);
    refused(&|r| r.key = Signer::from_secret("test", &[9; 32]).verifier().to_text());
    refused(&|r| r.key_pem = r.key_pem.replace("PUBLIC", "PRIVATE"));
    refused(&|r| r.cose = String::new());
    for place in [4, 40] {
        refused(&|r| {
            let mut message = BASE64.decode(&r.cose).unwrap();
            let at = message.len() - place;
            message[at] ^= 1;
            r.cose = BASE64.encode(message);
        });
    }
    refused(&|r| r.leaf = r.leaf.replace("\"seq\":", "\"seq\":1"));
    refused(&|r| r.index += 1);
    refused(&|r| drop(r.proof.pop()));
    refused(&|r| r.run_id = RunId::from_uuid(uuid::Uuid::nil()));
    refused(&|r| r.checkpoint = Signer::from_secret("test", &[9; 32]).sign(ledger::ORIGIN, 4, &[0; 32]));
    let other = Signer::from_secret("test", &[9; 32]).verifier();
    assert!(!verify_receipt(&receipt, &[other]).ok, "another key");
}

#[tokio::test]
async fn a_run_that_has_not_ended_has_no_receipt() {
    let b = bench();
    let failure = Receipt::make(&*b.store, b.engine.signer(), RunId::from_uuid(uuid::Uuid::nil()), None).unwrap_err();
    assert_eq!(failure.code.as_str(), "NOT_FOUND");
}

#[tokio::test]
async fn a_replaced_key_is_signed_by_the_old_one_and_both_are_accepted_at_their_places() {
    let b = bench();
    let before = sealed_calls(&b, 5).await;
    let old = b.engine.sealer().head().unwrap().unwrap();
    let old_receipt = Receipt::make(&*b.store, b.engine.signer(), before[0], None).unwrap();
    b.engine.sealer().rotate(&[42; 32], &|| Ok(())).unwrap();
    let after = sealed_calls(&b, 5).await;
    b.engine.sealer().rotate(&[43; 32], &|| Ok(())).unwrap();
    sealed_calls(&b, 2).await;

    let heads = read_heads("kept", &serde_json::to_string(&old).unwrap()).unwrap();
    let options = VerifyOptions { heads, ..VerifyOptions::default() };
    let report = verify_ledger(&*b.store, &verifier(&b), &options).unwrap();
    assert!(report.ok, "{report:?}");
    assert_eq!((report.keys, report.heads), (3, 1));
    let spans = ledger::keys(&*b.store, &verifier(&b)).unwrap();
    assert_eq!(spans.iter().map(|span| span.to.is_none()).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(spans[0].key, Signer::from_secret("test", &SECRET).verifier().to_text());
    for run_id in [before[0], after[0]] {
        assert!(verify_run(&*b.store, run_id, &verifier(&b)).unwrap().ok);
    }
    let keys: Vec<Verifier> = spans.iter().map(|span| Verifier::parse(&span.key).unwrap()).collect();
    // Each change is proven under the key before it and under the key after it.
    let changes = ledger::key_changes(&*b.store, &verifier(&b)).unwrap();
    assert_eq!(changes.len(), 2);
    for (change, pair) in changes.iter().zip(keys.windows(2)) {
        let leaf: serde_json::Value = serde_json::from_str(&change.leaf).unwrap();
        assert_eq!(leaf["type"], "key");
        assert_eq!(
            (leaf["old"].as_str(), leaf["new"].as_str()),
            (Some(&*pair[0].to_text()), Some(&*pair[1].to_text()))
        );
        let accepted = change.accepted.as_ref().unwrap();
        for (inclusion, key) in [(&change.announced, &pair[0]), (accepted, &pair[1])] {
            let receipt = Receipt {
                leaf: change.leaf.clone(),
                index: change.index,
                proof: inclusion.proof.clone(),
                checkpoint: inclusion.checkpoint.clone(),
                ..old_receipt.clone()
            };
            // The leaf is no run's, which is found after the proof and the signature were accepted.
            let problem =
                |key: &Verifier| verify_receipt(&receipt, std::slice::from_ref(key)).first_bad.unwrap().problem;
            assert_eq!(problem(key), "its leaf is not the end of the run that it names");
            let other = Signer::from_secret("test", &[9; 32]).verifier();
            assert_eq!(problem(&other), "its checkpoint is not signed with a key that is known here");
        }
    }
    assert!(verify_receipt(&old_receipt, &keys).ok, "a receipt outlives the key that signed it");
    // The first key does not vouch for what the second one signed.
    let first = Signer::from_secret("test", &SECRET).verifier();
    assert!(!verify_ledger(&*b.store, &first, &VerifyOptions::default()).unwrap().ok);
    // A process that still has the old key seals nothing more.
    let late = ledger::Sealer::new(b.store.clone(), Arc::new(Signer::from_secret("test", &SECRET)));
    late.run_ended(before[0], 1, &[0; 32]);
    assert!(late.seal().unwrap_err().to_string().contains("replaced"));
    assert!(verify_all(&b).ok);
}

#[tokio::test]
async fn a_chained_ledger_of_an_earlier_version_is_taken_into_the_tree() {
    let b = bench();
    let runs =
        [b.call("lab.echo", json!({"value": 1})).await.run_id, b.call("lab.echo", json!({"value": 2})).await.run_id];
    let signer = Signer::from_secret("test", &SECRET);
    let store = Tap::new();
    for run_id in runs {
        let frames = b.store.kept_frames(run_id);
        let head = frames.last().map(|frame| (run_id, frame.seq, frame.chain)).unwrap();
        let row = b.store.run(run_id).unwrap();
        let blobs = vec![toolyard_engine::Blob::new(b.store.blob(&policy_blob(&b, run_id)).unwrap().unwrap())];
        store.append(store.batch(run_id, frames, blobs, row)).unwrap();
        store.ledger_append(&mut |last| chained_entry(&signer, last, &[head])).unwrap();
    }
    let next = bench_with(BenchParts { store: Arc::new(store), ..BenchParts::default() });
    assert!(verify_all(&next).ok, "as the earlier version left it");
    within(next.engine.recover()).await.unwrap();
    let new = sealed_calls(&next, 1).await[0];
    let report = verify_all(&next);
    assert!(report.ok, "{report:?}");
    assert_eq!(
        (report.entries, report.size, report.runs),
        (4, 3, 3),
        "two chained, the chain's end, one run, the mark"
    );
    for run_id in [runs[0], runs[1], new] {
        let report = verify_run(&*next.store, run_id, &verifier(&next)).unwrap();
        assert!(report.ok && report.ledger_entry.is_some(), "{report:?}");
    }
    // An old entry cannot be edited, because the tree holds the end of their chain.
    let copy = Tap::new();
    for entry in next.store.ledger(1, 10).unwrap() {
        let forged = chained_entry(&Signer::from_secret("test", &[9; 32]), None, &[]).unwrap();
        let made = if entry.seq == 1 { forged } else { (entry.payload.clone(), entry.chain) };
        copy.ledger_append(&mut |_| Ok(made.clone())).unwrap();
    }
    let report = verify_ledger(&copy, &verifier(&next), &VerifyOptions::default()).unwrap();
    assert_eq!((report.ok, report.first_bad.unwrap().seq), (false, 1));
}

#[tokio::test]
async fn a_ledger_that_was_begun_anew_is_found_by_the_runs_that_name_the_one_before() {
    let b = bench();
    let runs = sealed_calls(&b, 12).await;
    assert!(verify_all(&b).ok);
    // Somebody removes a run and the whole ledger. The next start seals the other runs, whose ends it wrote.
    let store = b.store.without_run(runs[5]).rewritten(runs[0], |_| {}, false);
    let next = bench_with(BenchParts { store: Arc::new(store), ..BenchParts::default() });
    within(next.engine.recover()).await.unwrap();
    sealed_calls(&next, 4).await;
    let report = verify_all(&next);
    assert_eq!((report.bad, report.missing_runs.len()), (0, 0), "nothing else gives it away: {report:?}");
    let bad = report.first_bad.expect("the runs name another ledger");
    assert!(bad.problem.contains("names the tree of") && bad.run_id.is_some(), "{bad}");
    let report = verify_run(&*next.store, runs[11], &verifier(&next)).unwrap();
    assert!(!report.ok, "{report:?}");
    // The end of the ledger alone.
    let cut = b.store.without_run(runs[9]).rewritten(runs[0], |_| {}, false);
    for entry in b.store.ledger(1, 2).unwrap() {
        cut.ledger_append(&mut |_| Ok((entry.payload.clone(), entry.chain))).unwrap();
    }
    let next = bench_with(BenchParts { store: Arc::new(cut), ..BenchParts::default() });
    within(next.engine.recover()).await.unwrap();
    assert!(!verify_all(&next).ok);
}

/// A clock that made ids three days ahead of the time at which the ledger is written: it was set back in between.
struct SetBack;

impl Clock for SetBack {
    fn now(&self) -> jiff::Timestamp {
        toolyard_engine::system_clock().now()
    }
    fn new_id(&self) -> uuid::Uuid {
        let seconds = self.now().as_second().unsigned_abs() + 3 * 24 * 3600;
        uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0))
    }
}

#[tokio::test]
async fn a_run_is_proven_after_the_clock_was_set_back() {
    let b = bench_with(BenchParts { clock: Arc::new(SetBack), ..BenchParts::default() });
    let runs = sealed_calls(&b, 5).await;
    for run_id in runs {
        assert!(
            verify_receipt(&Receipt::make(&*b.store, b.engine.signer(), run_id, None).unwrap(), &[verifier(&b)]).ok
        );
        let report = verify_run(&*b.store, run_id, &verifier(&b)).unwrap();
        assert!(report.ok && report.ledger_entry.is_some(), "{report:?}");
    }
}

fn policy_blob(b: &Bench, run_id: RunId) -> String {
    let frames = b.store.kept_frames(run_id);
    let started: serde_json::Value = serde_json::from_slice(&frames[0].payload).unwrap();
    started["policyBlob"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_rollback_is_found_with_a_head_that_was_kept_elsewhere() {
    let b = bench();
    sealed_calls(&b, 4).await;
    let earlier = Tap::new();
    for entry in b.store.ledger(1, 100).unwrap() {
        earlier.ledger_append(&mut |_| Ok((entry.payload.clone(), entry.chain))).unwrap();
    }
    sealed_calls(&b, 4).await;
    let head = b.engine.sealer().head().unwrap().unwrap();
    for kept in [head.note.clone(), serde_json::to_string_pretty(&head).unwrap()] {
        let options = VerifyOptions { heads: read_heads("kept", &kept).unwrap(), ..VerifyOptions::default() };
        assert!(verify_ledger(&*b.store, &verifier(&b), &options).unwrap().ok);
        let report = verify_ledger(&earlier, &verifier(&b), &options).unwrap();
        let bad = report.first_bad.unwrap();
        assert!(!report.ok && bad.problem.contains("rolled back"), "{bad}");
    }
    let mut edited = head.clone();
    edited.size -= 1;
    assert!(
        read_heads("kept", &serde_json::to_string(&edited).unwrap()).is_err(),
        "it does not say what its note says"
    );
    edited = SignedHead { root: edited.root.replace(['0', '1'], "2"), ..head.clone() };
    assert!(read_heads("kept", &serde_json::to_string(&edited).unwrap()).is_err());
    let forged = Signer::from_secret("test", &[9; 32]).sign(ledger::ORIGIN, 1, &[0; 32]);
    let options = VerifyOptions { heads: read_heads("kept", &forged).unwrap(), ..VerifyOptions::default() };
    assert!(!verify_ledger(&*b.store, &verifier(&b), &options).unwrap().ok, "a head of another tree");
    assert!(read_heads("kept", "nonsense").is_err());
}

#[tokio::test]
async fn a_record_added_after_the_end_of_a_run_is_found() {
    let b = bench();
    let run_id = sealed_calls(&b, 1).await[0];
    let add = |frames: &mut Vec<toolyard_engine::store::Frame>| {
        let last = frames.last().unwrap().clone();
        let payload = br#"{"at":"2026-01-01T00:00:00Z","level":"info","message":"forged"}"#.to_vec();
        let (seq, kind) = (last.seq + 1, 8);
        let chain = toolyard_engine::chain::link(&last.chain, seq, kind, &payload);
        frames.push(toolyard_engine::store::Frame { seq, kind, payload, chain });
    };
    let store = b.store.with_frames(run_id, add, false);
    let report = verify_run(&store, run_id, &verifier(&b)).unwrap();
    assert!(!report.ok && report.first_bad.unwrap().problem.contains("neither a tag"));
}

#[tokio::test]
async fn a_row_that_says_something_else_than_the_records_is_found() {
    let b = bench();
    let run_id = sealed_calls(&b, 1).await[0];
    let row = b.store.run(run_id).unwrap().unwrap();
    let changes: [&dyn Fn(&mut toolyard_engine::store::RunRow); 4] = [
        &|row| row.status = RunStatus::Failed,
        &|row| row.title.push('x'),
        &|row| row.session = Some("other".to_owned()),
        &|row| row.started_at = "2020-01-01T00:00:00Z".parse().unwrap(),
    ];
    for change in changes {
        let store = b.store.with_frames(run_id, |_| {}, false);
        let mut edited = row.clone();
        change(&mut edited);
        store.append(store.batch(run_id, vec![], vec![], Some(edited))).unwrap();
        let report = verify_run(&store, run_id, &verifier(&b)).unwrap();
        assert!(report.first_bad.unwrap().problem.contains("row says another"));
    }
}
