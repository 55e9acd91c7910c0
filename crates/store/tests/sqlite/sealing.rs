//! The ledger under several threads of one process.

use super::tampered::{record_run, signer};
use std::sync::Arc;
use toolyard_engine::{
    Store,
    ledger::{RunHead, Sealer, VerifyOptions, verify_ledger},
};
use toolyard_protocol::canonical;
use toolyard_store::{SqliteStore, StoreOptions};

/// Runs that are removed, and runs that end meanwhile.
const RUNS: u64 = 60;

/// Runs end while others are pruned, so that the store writes entries of both in one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runs_that_end_while_others_are_pruned_leave_a_ledger_that_holds() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path(), StoreOptions::default()).unwrap());
    let sealer = Arc::new(Sealer::new(store.clone(), signer()));
    let mut old = Vec::new();
    for n in 0..RUNS {
        old.push(record_run(&store, &sealer, "old", n).await);
    }
    let ending: Vec<_> = (0..3)
        .map(|task| {
            let (store, sealer) = (store.clone(), sealer.clone());
            tokio::spawn(async move {
                for n in 0..RUNS / 3 {
                    record_run(&store, &sealer, "new", 1000 * (task + 1) + n).await;
                }
            })
        })
        .collect();
    let (pruned_store, pruned_sealer) = (store.clone(), sealer.clone());
    let pruning = tokio::task::spawn_blocking(move || {
        for run_id in old {
            let head = pruned_store.head(run_id).unwrap().unwrap();
            let head = RunHead { run_id, seq: head.seq, hash: canonical::hex(&head.chain) };
            pruned_sealer.prune(vec![head]).unwrap();
            assert_eq!(pruned_store.remove_runs(&[run_id]).unwrap(), 1);
        }
    });
    for task in ending {
        task.await.unwrap();
    }
    pruning.await.unwrap();
    sealer.seal().unwrap();
    store.settle().unwrap();
    let report = verify_ledger(&*store, &signer().verifier(), &VerifyOptions::default()).unwrap();
    assert!(report.ok, "{report:?}");
    assert_eq!((report.runs, report.pruned), (2 * RUNS, RUNS), "{report:?}");
}
