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
            if is_due(now.saturating_sub(looked), now.saturating_sub(given_back), started.elapsed()) {
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

/// Whether little was computed since the last look, and enough since memory was last given back.
fn is_due(since_look: Duration, since_given_back: Duration, running: Duration) -> bool {
    let worth_it = if running < STARTING { WORTH_IT_AT_FIRST } else { WORTH_IT };
    since_look < QUIET && since_given_back >= worth_it
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_in_a_quiet_moment_after_work() {
        let ms = Duration::from_millis;
        let (early, late) = (ms(800), STARTING);
        assert!(is_due(ms(2), ms(30), early), "quiet after starting");
        assert!(!is_due(ms(50), ms(80), early), "still starting");
        assert!(!is_due(ms(2), ms(30), late), "too little to be worth it");
        assert!(is_due(ms(2), ms(300), late), "quiet after work");
        assert!(!is_due(ms(50), ms(300), late), "still working");
    }
}
