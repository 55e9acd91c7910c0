//! What a person reads: one message for one or several notices, with or without details.

use crate::{Notice, Severity, Subject};
use jiff::Timestamp;

/// Characters of the details of one notice.
const MAX_DETAILS: usize = 300;
/// Notices whose details are in one message; the others are counted.
const MAX_LISTED: usize = 5;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) title: String,
    pub(crate) text: String,
    /// The page of the console, below its address.
    pub(crate) page: String,
    /// The whole address of the page; absent where the console has none.
    pub(crate) url: Option<String>,
    /// The address with which the question can be denied once.
    pub(crate) deny_url: Option<String>,
    pub(crate) severity: Severity,
    /// The word for what happened, if all notices are about the same.
    pub(crate) event: &'static str,
    pub(crate) count: usize,
    /// Messages with the same tag replace each other on a screen.
    pub(crate) tag: String,
    /// After this time the message is worthless.
    pub(crate) expires_at: Option<Timestamp>,
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.chars().count() <= MAX_DETAILS {
        return plain;
    }
    plain.chars().take(MAX_DETAILS).chain(['…']).collect()
}

/// `A question waits` or `3 questions wait`.
fn counted(notices: &[Notice]) -> String {
    let count = |is: fn(&Subject) -> bool| notices.iter().filter(|notice| is(&notice.subject)).count();
    let words = [
        (count(|s| matches!(s, Subject::Question { .. })), "question waits", "questions wait"),
        (count(|s| matches!(s, Subject::RunWaiting { .. })), "run waits", "runs wait"),
        (count(|s| matches!(s, Subject::RunFailed { .. })), "plan has failed", "plans have failed"),
        (count(|s| matches!(s, Subject::RunFinished { .. })), "plan has finished", "plans have finished"),
        (count(|s| matches!(s, Subject::ServerBroken { .. })), "server does not answer", "servers do not answer"),
        (count(|s| matches!(s, Subject::Test)), "test", "tests"),
    ];
    let parts: Vec<String> = words
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    format!("{}.", parts.join(", "))
}

impl Message {
    /// The message for notices that are sent together; there is at least one.
    pub(crate) fn of(notices: &[Notice], with_details: bool, address: Option<&str>) -> Self {
        let single = match notices {
            [one] => Some(one),
            _ => None,
        };
        let mut text = single.map_or_else(|| counted(notices), |one| one.subject.generic().to_owned());
        if with_details {
            for notice in notices.iter().filter(|notice| !notice.details.is_empty()).take(MAX_LISTED) {
                text.push('\n');
                text.push_str(&shortened(&notice.details));
            }
        }
        let page = single.map_or_else(|| "/".to_owned(), |one| one.subject.page());
        let events: Vec<&'static str> = notices.iter().map(|notice| notice.subject.event()).collect();
        let event = match events.first() {
            Some(first) if events.iter().all(|event| event == first) => first,
            _ => "several",
        };
        let expires = notices.iter().map(|notice| match &notice.subject {
            Subject::Question { expires_at, .. } => Some(*expires_at),
            _ => None,
        });
        Self {
            title: "Toolyard".to_owned(),
            text,
            url: address.map(|address| format!("{address}{page}")),
            tag: single.map_or_else(|| "toolyard".to_owned(), |_| format!("toolyard:{page}")),
            page,
            deny_url: None,
            severity: notices.iter().map(|notice| notice.subject.severity()).max().unwrap_or_default(),
            event,
            count: notices.len(),
            expires_at: expires.collect::<Option<Vec<Timestamp>>>().and_then(|all| all.into_iter().max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str, details: &str) -> Notice {
        let subject = Subject::Question { id: id.to_owned(), expires_at: Timestamp::UNIX_EPOCH };
        Notice { subject, is_urgent: false, details: details.to_owned() }
    }

    #[test]
    fn a_message_names_nothing_unless_details_are_configured() {
        let notices = [question("policy:1", "main wants to call vault.writeFile: Diary.md")];
        let message = Message::of(&notices, false, Some("https://yard.example"));
        assert_eq!(message.text, "A question waits for your answer.");
        assert_eq!(message.url.as_deref(), Some("https://yard.example/approve/policy:1"));
        let message = Message::of(&notices, true, None);
        assert!(message.text.ends_with("\nmain wants to call vault.writeFile: Diary.md"), "{}", message.text);
    }

    #[test]
    fn several_are_counted_and_lead_to_the_first_page() {
        let failed =
            Notice { subject: Subject::RunFailed { run: "r".to_owned() }, is_urgent: false, details: String::new() };
        let notices = [question("a", ""), question("b", ""), failed];
        let message = Message::of(&notices, false, Some("https://yard.example"));
        assert_eq!(message.text, "2 questions wait, 1 plan has failed.");
        assert_eq!((message.page.as_str(), message.count, message.event), ("/", 3, "several"));
        assert_eq!(message.expires_at, None, "the failed plan stays worth knowing");
        assert_eq!(Message::of(&notices[..2], false, None).event, "question");
    }

    #[test]
    fn details_are_cut_and_lines_in_them_are_one_line() {
        let text = format!("line\nbreak {}", "x".repeat(MAX_DETAILS));
        let message = Message::of(&[question("a", &text)], true, None);
        assert_eq!(message.text.lines().count(), 2);
        assert!(message.text.ends_with('…'));
    }
}
