//! A process that waits should weigh little. Starting, taking in a hundred servers' tools, or writing a long list touches
//! code and memory that waiting does not need; when little has been computed for a moment, it is given back.

use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::{clock, heap, image};

/// How often it is looked at how much was computed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Less than this since the last look is rest: a hundredth of one processor.
const QUIET: Duration = Duration::from_millis(5);
/// There is something to give back once this much was computed since the last time: little while the parts of the program
/// are still starting one after another,
const WORTH_IT_AT_FIRST: Duration = Duration::from_millis(5);
/// which is over after this time,
const STARTING: Duration = Duration::from_secs(60);
/// and more later, so that a process with little to do does not map the same pages over and over.
const WORTH_IT: Duration = Duration::from_millis(100);

/// Gives back until told to stop.
pub(crate) async fn give_back_when_quiet(stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut looked, mut given_back, started) = (clock::computed(), Duration::ZERO, Instant::now());
    // The first look is at once.
    looks.tick().await;
    let quietly = async {
        loop {
            looks.tick().await;
            let now = clock::computed();
            let worth_it = if started.elapsed() < STARTING { WORTH_IT_AT_FIRST } else { WORTH_IT };
            if now.saturating_sub(looked) < QUIET && now.saturating_sub(given_back) >= worth_it {
                let _ = tokio::task::spawn_blocking(|| {
                    heap::give_back();
                    image::let_go();
                })
                .await;
                given_back = clock::computed();
            }
            looked = clock::computed();
        }
    };
    stop.run_until_cancelled(quietly).await;
}
