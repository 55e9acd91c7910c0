//! Decides when each channel sends which notices: thresholds, the pause before a question is sent, coalescing, quiet
//! hours. Pure: time is an argument.

use crate::{Notice, Severity, Subject, quiet::QuietHours};
use jiff::{SignedDuration, Timestamp};

/// Notices that wait for one channel; beyond it the oldest is dropped, and counted.
const MAX_WAITING: usize = 200;

struct PendingNotice {
    notice: Notice,
    due: Timestamp,
}

/// The queued notices of one channel.
pub(crate) struct ChannelQueue {
    min_severity: Severity,
    waiting: Vec<PendingNotice>,
    /// Before this time a further message is not sent.
    gathers_until: Timestamp,
}

impl ChannelQueue {
    pub(crate) fn new(min_severity: Severity) -> Self {
        Self { min_severity, waiting: Vec::new(), gathers_until: Timestamp::MIN }
    }

    /// Takes over what another lane waited for, when the settings change.
    pub(crate) fn inherit(&mut self, older: Self) {
        let least = self.min_severity;
        self.waiting = older.waiting;
        self.waiting.retain(|waiting| waiting.notice.subject.severity() >= least);
        self.gathers_until = older.gathers_until;
    }

    /// Adds a notice that matters to this channel; a question is due after `asked_after`. Returns whether an older
    /// notice was dropped.
    pub(crate) fn add(&mut self, notice: &Notice, now: Timestamp, asked_after: SignedDuration) -> bool {
        if notice.subject.severity() < self.min_severity {
            return false;
        }
        let pause = match notice.subject {
            Subject::Question { .. } => asked_after,
            _ => SignedDuration::ZERO,
        };
        let due = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let is_full = self.waiting.len() >= MAX_WAITING;
        if is_full {
            self.waiting.remove(0);
        }
        self.waiting.push(PendingNotice { notice: notice.clone(), due });
        is_full
    }

    /// Notices that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What is to be sent now as one message; nothing, or at least one notice. `is_current` says whether a notice is still
    /// worth sending: an answered question is not.
    pub(crate) fn take_due(
        &mut self,
        now: Timestamp,
        coalesce: SignedDuration,
        quiet: Option<&QuietHours>,
        is_current: &dyn Fn(&Notice) -> bool,
    ) -> Vec<Notice> {
        if now < self.gathers_until {
            return Vec::new();
        }
        let quiet = quiet.filter(|quiet| quiet.ends_after(now).is_some());
        let may_go = |notice: &Notice| quiet.is_none_or(|quiet| quiet.passes_urgent && notice.is_urgent);
        let mut due = Vec::new();
        let mut later = Vec::new();
        for waiting in self.waiting.drain(..) {
            match waiting.due <= now && may_go(&waiting.notice) {
                true => due.push(waiting.notice),
                false => later.push(waiting),
            }
        }
        self.waiting = later;
        due.retain(|notice| is_current(notice));
        if !due.is_empty() {
            self.gathers_until = now.saturating_add(coalesce).unwrap_or(Timestamp::MAX);
        }
        due
    }

    /// The time of the next check.
    pub(crate) fn next(&self, now: Timestamp, quiet: Option<&QuietHours>) -> Option<Timestamp> {
        let quiet_end = quiet.and_then(|quiet| Some((quiet, quiet.ends_after(now)?)));
        let at = |waiting: &PendingNotice| {
            let due = waiting.due.max(self.gathers_until);
            match quiet_end {
                Some((quiet, end)) if !(quiet.passes_urgent && waiting.notice.is_urgent) => due.max(end),
                _ => due,
            }
        };
        self.waiting.iter().map(at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuietConfig;

    const COALESCE: SignedDuration = SignedDuration::from_secs(10);
    const AFTER: SignedDuration = SignedDuration::from_secs(2);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn question(id: &str) -> Notice {
        let subject = Subject::Question { id: id.to_owned(), expires_at: at(1000) };
        Notice { subject, is_urgent: false, details: String::new() }
    }

    fn failed() -> Notice {
        Notice { subject: Subject::RunFailed { run: "r".to_owned() }, is_urgent: false, details: String::new() }
    }

    fn always(_: &Notice) -> bool {
        true
    }

    #[test]
    fn a_question_is_sent_after_two_seconds_if_it_is_still_open() {
        let mut lane = ChannelQueue::new(Severity::Ask);
        lane.add(&question("a"), at(0), AFTER);
        assert_eq!(lane.next(at(0), None), Some(at(2)));
        assert!(lane.take_due(at(1), COALESCE, None, &always).is_empty());
        assert_eq!(lane.take_due(at(2), COALESCE, None, &always), [question("a")]);
        lane.add(&question("b"), at(20), AFTER);
        assert!(lane.take_due(at(22), COALESCE, None, &|_| false).is_empty(), "it was answered");
        assert_eq!((lane.len(), lane.next(at(22), None)), (0, None));
    }

    #[test]
    fn questions_within_the_window_become_one_message() {
        let mut lane = ChannelQueue::new(Severity::Ask);
        lane.add(&question("a"), at(0), AFTER);
        assert_eq!(lane.take_due(at(2), COALESCE, None, &always).len(), 1);
        for (id, second) in [("b", 3), ("c", 4), ("d", 5)] {
            lane.add(&question(id), at(second), AFTER);
        }
        assert_eq!(lane.next(at(5), None), Some(at(12)));
        assert!(lane.take_due(at(11), COALESCE, None, &always).is_empty());
        assert_eq!(lane.take_due(at(12), COALESCE, None, &always).len(), 3);
    }

    #[test]
    fn what_matters_less_than_the_threshold_is_not_sent() {
        let mut lane = ChannelQueue::new(Severity::Ask);
        lane.add(&failed(), at(0), AFTER);
        assert_eq!(lane.len(), 0);
        let mut lane = ChannelQueue::new(Severity::Warn);
        lane.add(&failed(), at(0), AFTER);
        assert_eq!(lane.take_due(at(0), COALESCE, None, &always), [failed()]);
    }

    #[test]
    fn quiet_hours_hold_everything_but_what_is_urgent_until_they_end() {
        let hours = |urgent| {
            let config = QuietConfig {
                from: Some("00:00".to_owned()),
                to: Some("23:00".to_owned()),
                time_zone: Some("UTC".to_owned()),
                urgent,
            };
            QuietHours::read(&config).unwrap().unwrap()
        };
        // 1,800,000,000 is 08:00 in UTC.
        let end = at(15 * 3600);
        let urgent = Notice { is_urgent: true, ..question("u") };
        let mut lane = ChannelQueue::new(Severity::Ask);
        lane.add(&question("a"), at(0), AFTER);
        lane.add(&urgent, at(0), AFTER);
        assert_eq!(lane.take_due(at(2), COALESCE, Some(&hours(true)), &always), std::slice::from_ref(&urgent));
        assert_eq!(lane.next(at(2), Some(&hours(true))), Some(end));
        lane.add(&urgent, at(3), AFTER);
        assert!(lane.take_due(at(100), COALESCE, Some(&hours(false)), &always).is_empty());
        assert_eq!(lane.take_due(end, COALESCE, Some(&hours(false)), &always), [question("a"), urgent]);
    }

    #[test]
    fn a_full_lane_drops_the_oldest_and_says_so() {
        let mut lane = ChannelQueue::new(Severity::Ask);
        for n in 0..MAX_WAITING {
            assert!(!lane.add(&question(&n.to_string()), at(0), AFTER));
        }
        assert!(lane.add(&question("last"), at(0), AFTER));
        let due = lane.take_due(at(2), COALESCE, None, &always);
        assert_eq!((due.len(), &due[0], due.last()), (MAX_WAITING, &question("1"), Some(&question("last"))));
    }
}
