//! A process that waits should weigh little. Starting, taking in a hundred servers' tools, or writing a long list touches
//! code and memory that waiting does not need; when little has been computed for a moment, it is given back.

use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::{clock, heap, image};

/// How often it is looked at how much was computed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Less than this since the last look is rest: a hundredth of one processor.
const QUIET: Duration = Duration::from_millis(5);
/// After starting there is always something to give back; later once this much was computed since the last time, so that a
/// process with little to do does not map the same pages over and over.
const WORTH_IT: Duration = Duration::from_millis(100);

/// Gives back until told to stop.
pub(crate) async fn give_back_when_quiet(stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut looked, mut given_back) = (clock::computed(), None);
    // The first look is at once.
    looks.tick().await;
    let quietly = async {
        loop {
            looks.tick().await;
            let now = clock::computed();
            if is_due(now, looked, given_back) {
                let _ = tokio::task::spawn_blocking(|| {
                    heap::give_back();
                    image::let_go();
                })
                .await;
                given_back = Some(clock::computed());
            }
            looked = clock::computed();
        }
    };
    stop.run_until_cancelled(quietly).await;
}

/// Whether little was computed since the last look, and enough since memory was last given back.
fn is_due(now: Duration, looked: Duration, given_back: Option<Duration>) -> bool {
    now.saturating_sub(looked) < QUIET && given_back.is_none_or(|then| now.saturating_sub(then) >= WORTH_IT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_in_a_quiet_moment_after_work() {
        let ms = Duration::from_millis;
        assert!(is_due(ms(102), ms(100), None), "quiet after starting");
        assert!(!is_due(ms(150), ms(100), None), "still starting");
        assert!(is_due(ms(902), ms(900), Some(ms(800))), "quiet after work");
        assert!(!is_due(ms(950), ms(900), Some(ms(800))), "still working");
        assert!(!is_due(ms(805), ms(804), Some(ms(800))), "nothing happened since");
    }
}
