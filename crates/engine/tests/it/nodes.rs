//! Two nodes in one process: engines over handles of one store in memory, each with an owner of its own.

use crate::{
    approvals::{asks, write},
    files::{Disk, Files},
    lab::Lab,
    support::{SECRET, agent, detail, person, policy as compiled, quick, request, within, yolo},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use toolyard_engine::{
    CallRequest, Engine, EngineParts, Store, Subscription,
    approvals::{ApprovalDecision, ApprovalEvent},
    chain::Signer,
    memory_store::MemoryStore,
    system_clock,
};
use toolyard_protocol::{EventType, ResultStatus};

struct Node {
    engine: Engine,
    store: Arc<MemoryStore>,
    lab: Arc<Lab>,
}

fn node(store: MemoryStore, policy: Value) -> Node {
    let store = Arc::new(store);
    let engine = Engine::new(EngineParts {
        store: store.clone(),
        signer: Signer::from_secret("test", &SECRET),
        policy: compiled(policy),
        clock: system_clock(),
        options: quick(),
    });
    let lab = Arc::new(Lab::default());
    engine.register(Lab::entries(), lab.clone()).unwrap();
    engine.register(Files::entries(), Arc::new(Files::new(Arc::<Disk>::default()))).unwrap();
    Node { engine, store, lab }
}

/// Nodes `a` and `b` of one cluster.
fn two_nodes(policy: Value) -> (Node, Node) {
    let first = MemoryStore::node("a");
    let second = first.another_node("b");
    (node(first, policy.clone()), node(second, policy))
}

fn keyed(tool: &str, args: Value, key: &str) -> CallRequest {
    CallRequest { idempotency_key: Some(key.to_owned()), ..request(tool, args) }
}

/// Waits until something holds; a test that waits in vain fails by [`within`].
async fn until(holds: impl Fn() -> bool) {
    within(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_question_of_one_node_is_listed_and_answered_at_another() {
    let (a, b) = two_nodes(asks());
    let mut news = b.engine.approvals().subscribe();
    // The person is connected to the other node, and that is enough for the question to be asked.
    let _reached = b.engine.approvals().person_reachable(&Default::default());
    until(|| a.engine.approvals().is_person_reachable(&Default::default())).await;
    let engine = a.engine.clone();
    let call = tokio::spawn(async move { engine.call(agent(), request("file.write", write("a.md"))).await.result });
    until(|| !b.engine.approvals().pending().is_empty()).await;
    let asked = b.engine.approvals().pending();
    assert_eq!(asked.len(), 1);
    assert!(b.engine.approvals().is_awaited(&asked[0].request.id), "its caller waits at the other node");
    assert!(matches!(within(news.recv()).await, Ok(ApprovalEvent::Requested(_))));
    let id = asked[0].request.id.clone();
    within(b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person())).await.unwrap();
    let result = within(call).await.unwrap();
    assert_eq!(result.status, ResultStatus::Ok, "{:?}", result.error);
    // A second answer, at the first node, learns whose counted.
    let late = a.engine.approvals().resolve(&id, ApprovalDecision::Deny, &person()).await.unwrap_err();
    let details = late.details.unwrap();
    assert_eq!(details["reason"], "APPROVAL_ALREADY_RESOLVED");
    assert_eq!(details["resolvedBy"], "ada");
    until(|| a.engine.approvals().pending().is_empty() && b.engine.approvals().pending().is_empty()).await;
}

#[tokio::test]
async fn nobody_at_any_node_means_that_nobody_is_asked() {
    let (a, b) = two_nodes(asks());
    let reached = b.engine.approvals().person_reachable(&Default::default());
    until(|| a.engine.approvals().is_person_reachable(&Default::default())).await;
    drop(reached);
    until(|| !a.engine.approvals().is_person_reachable(&Default::default())).await;
    let result = within(a.engine.call(agent(), request("file.write", write("a.md")))).await.result;
    assert_eq!(detail(result.error.as_ref().unwrap(), "cause"), "no-route");
}

#[tokio::test]
async fn people_at_a_fenced_node_do_not_count() {
    let (a, b) = two_nodes(asks());
    let _reached = b.engine.approvals().person_reachable(&Default::default());
    until(|| a.engine.approvals().is_person_reachable(&Default::default())).await;
    a.store.fence(&b.store.owner()).unwrap();
    until(|| !a.engine.approvals().is_person_reachable(&Default::default())).await;
}

#[tokio::test]
async fn a_question_whose_caller_went_away_leaves_every_list() {
    let (a, b) = two_nodes(asks());
    let _reached = b.engine.approvals().person_reachable(&Default::default());
    until(|| a.engine.approvals().is_person_reachable(&Default::default())).await;
    let engine = a.engine.clone();
    let call = tokio::spawn(async move { engine.call(agent(), request("file.write", write("a.md"))).await });
    until(|| !b.engine.approvals().pending().is_empty()).await;
    let id = b.engine.approvals().pending()[0].request.id.clone();
    call.abort();
    until(|| b.engine.approvals().pending().is_empty()).await;
    let refused = b.engine.approvals().resolve(&id, ApprovalDecision::AllowOnce, &person()).await.unwrap_err();
    assert_eq!(refused.details.unwrap()["reason"], "APPROVAL_NOT_FOUND");
}

#[tokio::test]
async fn a_watcher_sees_the_runs_of_another_node_without_gaps() {
    let (a, b) = two_nodes(yolo());
    let mut events = within(b.engine.watch_events(Subscription::default())).await;
    let mut own_only = b.engine.bus().subscribe(Subscription::default());
    let result = within(a.engine.call(person(), request("lab.echo", json!({"value": "hi"})))).await.result;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(_, event)| *event != EventType::RunFinished) {
        let event = within(events.next()).await.unwrap();
        assert_eq!(event.run_id, result.run_id);
        seen.push((event.seq, event.event_type));
    }
    let numbers: Vec<u64> = seen.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "{seen:?}");
    // The same events that the record has.
    let store = b.store.clone();
    let recorded = toolyard_engine::view::export_run(&*store, result.run_id).unwrap().events;
    assert_eq!(recorded.len(), seen.len());
    assert!(own_only.try_next().is_none(), "a subscriber of this node's runs hears of no others");
    // A run of this node is heard once, and not a second time from the store.
    let own = within(b.engine.call(person(), request("lab.echo", json!({"value": "own"})))).await.result;
    let mut count = 0;
    loop {
        let event = within(events.next()).await.unwrap();
        assert_eq!(event.run_id, own.run_id);
        count += 1;
        assert_eq!(event.seq, count);
        if event.event_type == EventType::RunFinished {
            break;
        }
    }
    let third = within(a.engine.call(person(), request("lab.echo", json!({"value": "again"})))).await.result;
    assert_eq!(within(events.next()).await.unwrap().run_id, third.run_id);
}

#[tokio::test]
async fn a_duplicate_at_another_node_waits_for_the_first() {
    let (a, b) = two_nodes(yolo());
    let first = a.engine.clone();
    let call = tokio::spawn(async move { first.call(agent(), keyed("lab.hang", json!({}), "k1")).await });
    until(|| a.lab.total() == 1).await;
    let second = b.engine.clone();
    let twin = tokio::spawn(async move { second.call(agent(), keyed("lab.hang", json!({}), "k1")).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!twin.is_finished(), "it waits");
    a.lab.release.notify_one();
    let (call, twin) = (within(call).await.unwrap(), within(twin).await.unwrap());
    assert_eq!(call.result.status, ResultStatus::Ok);
    assert!(twin.deduplicated);
    assert_eq!(twin.result.call_id, call.result.call_id);
    assert_eq!(b.lab.total(), 0, "the other node did not make the call");
}

#[tokio::test]
async fn a_key_of_a_node_that_died_before_its_first_record_is_used_again() {
    let (a, b) = two_nodes(yolo());
    // What a node leaves that is stopped between taking the key and its first record.
    let probe = within(a.engine.call(agent(), keyed("lab.echo", json!({"value": "hi"}), "probe"))).await;
    let (key, entry) = a.engine.store().list("idempotency").unwrap().pop().unwrap();
    let mut entry: Value = serde_json::from_slice(&entry).unwrap();
    entry["runId"] = json!(a.engine.new_run_id());
    a.engine.store().put("idempotency", &key, serde_json::to_vec(&entry).unwrap(), None).unwrap();
    let twin = b.engine.clone();
    let twin =
        tokio::spawn(async move { twin.call(agent(), keyed("lab.echo", json!({"value": "hi"}), "probe")).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!twin.is_finished(), "the node is alive and may be about to record its run");
    b.store.fence(&a.store.owner()).unwrap();
    let twin = within(twin).await.unwrap();
    assert_eq!(twin.result.status, ResultStatus::Ok, "{:?}", twin.result.error);
    assert!(!twin.deduplicated);
    assert_ne!(twin.result.run_id, probe.result.run_id);
}
