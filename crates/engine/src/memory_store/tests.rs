use super::*;
use crate::store::Durability;
use toolyard_protocol::RunStatus;
use uuid::Uuid;

fn batch(run_id: RunId, seqs: &[u64]) -> Batch {
    let frames =
        seqs.iter().map(|&seq| Frame { seq, kind: 1, payload: b"{}".to_vec(), chain: [seq as u8; 32] }).collect();
    Batch { run_id, frames, blobs: Vec::new(), row: None, epoch: 1, release: false, durability: Durability::Sync }
}

#[test]
fn a_run_that_lost_a_batch_waits_for_a_claim() {
    let store = MemoryStore::new();
    let run_id = RunId::from_uuid(Uuid::now_v7());
    let mut first = batch(run_id, &[1]);
    first.row = Some(RunRow {
        run_id,
        kind: crate::store::RunKind::Call,
        status: RunStatus::Running,
        title: "t".into(),
        session: None,
        started_at: Timestamp::now(),
        ended_at: None,
    });
    store.append(first).unwrap();
    assert!(store.append(batch(run_id, &[2, 1])).is_err());
    assert!(store.append(batch(run_id, &[2])).is_err(), "the record would have a hole");
    assert!(!store.claim(run_id, None).unwrap(), "it is held");
    assert!(store.claim(run_id, Some(&store.owner())).unwrap());
    store.append(batch(run_id, &[2])).unwrap();
    let mut seqs = Vec::new();
    store
        .frames(run_id, 0, &mut |frame| {
            seqs.push(frame.seq);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seqs, [1, 2]);
}

#[test]
fn a_poisoned_store_takes_nothing_more() {
    let store = MemoryStore::new();
    let run_id = RunId::from_uuid(Uuid::now_v7());
    store.append(batch(run_id, &[1])).unwrap();
    store.poison("the disk said no");
    assert_eq!(store.append(batch(run_id, &[2])).unwrap_err().to_string(), "the disk said no");
    assert!(store.put("s", "k", vec![1], None).is_err());
}

#[test]
fn nodes_of_one_store_know_each_other() {
    let one = MemoryStore::node("one");
    let two = one.another_node("two");
    assert!(one.is_shared() && two.is_shared() && !MemoryStore::new().is_shared());
    assert_eq!(one.shared_secret(), two.shared_secret());
    two.set_address("127.0.0.1:7").unwrap();
    one.set_draining().unwrap();
    let nodes = two.nodes().unwrap();
    let seen: Vec<_> = nodes.iter().map(|n| (n.owner.node.as_str(), n.address.as_deref(), n.state)).collect();
    assert_eq!(seen, [("one", None, NodeState::Draining), ("two", Some("127.0.0.1:7"), NodeState::Live)]);
    one.fence(&two.owner()).unwrap();
    assert_eq!(two.may_dispatch(), Err(StoreError::Fenced(two.owner())));
    assert_eq!(one.nodes().unwrap().len(), 1);
    assert!(one.may_dispatch().is_ok());
}
