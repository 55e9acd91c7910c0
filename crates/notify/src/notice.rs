//! [`Notice`]: one thing that a person may want to know.

use crate::Severity;
use jiff::Timestamp;

/// What a notice is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A question waits for an answer.
    Question {
        /// Its id.
        id: String,
        /// When it is too late.
        expires_at: Timestamp,
    },
    /// A run is paused until a person decides.
    RunWaiting {
        /// The run.
        run: String,
    },
    /// A plan has failed.
    RunFailed {
        /// The run.
        run: String,
    },
    /// A plan has finished.
    RunFinished {
        /// The run.
        run: String,
    },
    /// An MCP server or a plugin does not answer.
    ServerBroken {
        /// Its name.
        server: String,
    },
    /// A person tries a channel.
    Test,
}

impl Subject {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Question { .. } | Self::RunWaiting { .. } | Self::Test => Severity::Ask,
            Self::RunFailed { .. } | Self::ServerBroken { .. } => Severity::Warn,
            Self::RunFinished { .. } => Severity::Info,
        }
    }

    /// The word in webhooks.
    pub fn event(&self) -> &'static str {
        match self {
            Self::Question { .. } => "question",
            Self::RunWaiting { .. } => "run.waiting",
            Self::RunFailed { .. } => "run.failed",
            Self::RunFinished { .. } => "run.finished",
            Self::ServerBroken { .. } => "server.broken",
            Self::Test => "test",
        }
    }

    /// The page of the console that shows it.
    pub fn page(&self) -> String {
        match self {
            Self::Question { id, .. } => format!("/approve/{}", encoded(id)),
            Self::RunWaiting { run } | Self::RunFailed { run } | Self::RunFinished { run } => {
                format!("/runs/{}", encoded(run))
            }
            Self::ServerBroken { server } => format!("/servers/{}", encoded(server)),
            Self::Test => "/".to_owned(),
        }
    }

    /// The text without details, which a third party may read.
    pub(crate) fn generic(&self) -> &'static str {
        match self {
            Self::Question { .. } => "A question waits for your answer.",
            Self::RunWaiting { .. } => "A run waits for your decision.",
            Self::RunFailed { .. } => "A plan has failed.",
            Self::RunFinished { .. } => "A plan has finished.",
            Self::ServerBroken { .. } => "A server does not answer.",
            Self::Test => "This is a test: the channel works.",
        }
    }
}

/// One segment of a path. Ids of clients' own questions may contain anything.
fn encoded(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// One thing that a person may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub subject: Subject,
    /// Whether it is sent in quiet hours, if those let urgent ones pass.
    pub is_urgent: bool,
    /// One sentence with names, for channels that are configured to get details. Secrets are hidden already.
    pub details: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_from_outside_stays_one_segment_of_the_path() {
        let subject = Subject::Question { id: "../logout?x=1#/é".to_owned(), expires_at: Timestamp::UNIX_EPOCH };
        assert_eq!(subject.page(), "/approve/..%2Flogout%3Fx%3D1%23%2F%C3%A9");
    }
}
