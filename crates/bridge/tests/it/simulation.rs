//! A thousand reconnects over a bad network: no message is lost, none is delivered twice, and they keep their order.

use crate::network::{Network, SESSION};
use toolyard_bridge::server::ApprovalRole;

/// Steps after which a run that does not end is broken.
const MAX_STEPS: usize = 20_000_000;

fn run(seed: u64, reconnects: usize) {
    let mut network = Network::new(seed);
    let mut steps = 0;
    while network.seen.joined <= reconnects {
        network.step();
        steps += 1;
        assert!(steps < MAX_STEPS, "seed {seed}: only {} connections", network.seen.joined);
    }
    // The network is good again: whatever is still on its way arrives.
    network.is_bad = false;
    while network.hub.view(Some(SESSION), ApprovalRole::Approver)[0].waiting > 0
        || network.seen.answers.values().any(|n| *n == 0)
    {
        network.step();
        steps += 1;
        assert!(
            steps < MAX_STEPS,
            "seed {seed}: {} wait",
            network.hub.view(Some(SESSION), ApprovalRole::Approver)[0].waiting
        );
    }
    let seen = &network.seen;
    assert!(seen.dropped.is_empty(), "seed {seed}: below the limit nothing is dropped");
    assert!(seen.sent.len() > reconnects, "seed {seed}: {} messages are too few", seen.sent.len());
    assert_eq!(seen.told, seen.sent, "seed {seed}: each once, in order");
    assert!(seen.answers.values().all(|n| *n == 1), "seed {seed}: every call is answered once");
    assert!(seen.verdicts.values().all(|n| *n == 1), "seed {seed}: an answer counts once");
    assert!(seen.asked > 0 && !seen.verdicts.is_empty());
    assert_eq!(seen.faults.len(), 8, "seed {seed}: every fault was tried: {:?}", seen.faults);
    for code in [4005, 4006] {
        assert!(seen.closes.contains_key(&code), "seed {seed}: no close with {code}: {:?}", seen.closes);
    }
    for code in [4001, 4002] {
        assert!(!seen.closes.contains_key(&code), "seed {seed}: {:?}", seen.closes);
    }
}

#[toolyard_shows::shows("004-6-04")]
#[test]
fn a_thousand_reconnects_lose_no_message_and_tell_none_twice() {
    for seed in [1, 20261116] {
        run(seed, 1_000);
    }
}

#[test]
fn many_short_lives_do_neither() {
    for seed in 100..120 {
        run_short(seed);
    }
}

/// Too short for every fault to come up.
fn run_short(seed: u64) {
    let mut network = Network::new(seed);
    while network.seen.joined <= 20 {
        network.step();
    }
    network.is_bad = false;
    for _ in 0..200_000 {
        if network.hub.view(Some(SESSION), ApprovalRole::Approver)[0].waiting == 0 {
            break;
        }
        network.step();
    }
    assert_eq!(network.seen.told, network.seen.sent, "seed {seed}");
}
