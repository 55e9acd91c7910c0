//! Automatic archiving of sessions that have grown: the policy of each session, and whether it is due.

use crate::{
    error::{ApiError, Result},
    sessions::{place, unknown},
    store::{
        account::{Account, lock},
        uri::Identity,
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// When a session is archived automatically.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AutoCommit {
    /// Archive when the live messages have more tokens than this.
    pub(crate) pending_token_threshold: u64,
    /// Archive when there are more live messages than this.
    pub(crate) message_count_threshold: u64,
    /// Stored and returned only; no timer archives an idle session.
    pub(crate) idle_timeout_seconds: u64,
    /// Number of messages that stay live.
    pub(crate) keep_recent_count: u64,
    /// Minimum time between two automatic commits.
    pub(crate) min_commit_interval_seconds: u64,
}

impl Default for AutoCommit {
    fn default() -> Self {
        Self {
            pending_token_threshold: 150_000,
            message_count_threshold: 100,
            idle_timeout_seconds: 86_400,
            keep_recent_count: 0,
            min_commit_interval_seconds: 0,
        }
    }
}

/// A partial update of a policy; unset fields keep their values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicyPatch {
    pending_token_threshold: Option<u64>,
    message_count_threshold: Option<u64>,
    idle_timeout_seconds: Option<u64>,
    keep_recent_count: Option<u64>,
    min_commit_interval_seconds: Option<u64>,
}

impl AutoCommit {
    /// Applies an update and validates the result.
    pub(crate) fn with(self, patch: &PolicyPatch) -> Result<Self> {
        let read = Self {
            pending_token_threshold: patch.pending_token_threshold.unwrap_or(self.pending_token_threshold),
            message_count_threshold: patch.message_count_threshold.unwrap_or(self.message_count_threshold),
            idle_timeout_seconds: patch.idle_timeout_seconds.unwrap_or(self.idle_timeout_seconds),
            keep_recent_count: patch.keep_recent_count.unwrap_or(self.keep_recent_count),
            min_commit_interval_seconds: patch.min_commit_interval_seconds.unwrap_or(self.min_commit_interval_seconds),
        };
        if (1..300).contains(&read.idle_timeout_seconds) {
            return Err(ApiError::argument("Invalid auto_commit_policy: idle_timeout_seconds is 0 or at least 300"));
        }
        const WEEK: u64 = 604_800;
        Ok(Self {
            pending_token_threshold: read.pending_token_threshold.min(1_000_000),
            message_count_threshold: read.message_count_threshold.min(1000),
            idle_timeout_seconds: read.idle_timeout_seconds.min(WEEK),
            keep_recent_count: read.keep_recent_count.min(500),
            min_commit_interval_seconds: read.min_commit_interval_seconds.min(WEEK),
        })
    }
}

/// A change of a session's policy.
pub(crate) enum Policy {
    Same,
    Off,
    Merge(PolicyPatch),
}

/// Changes a session's policy and returns the new one.
pub(crate) fn configure(account: &Account, who: &Identity, id: &str, policy: &Policy) -> Result<Option<AutoCommit>> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    if !session.exists {
        return Err(unknown(id));
    }
    let before = session.meta.auto_commit;
    session.meta.auto_commit = match policy {
        Policy::Same => before,
        Policy::Off => None,
        Policy::Merge(patch) => Some(before.unwrap_or_default().with(patch)?),
    };
    if session.meta.auto_commit != before {
        session.save(&account.path(&place(who, id)))?;
    }
    Ok(session.meta.auto_commit)
}

/// If the session is due to be archived, records the commit and returns how many messages stay live.
pub(crate) fn due(account: &Account, who: &Identity, id: &str) -> Result<Option<usize>> {
    let session = account.sessions.open(account, who, id)?;
    let mut session = lock(&session);
    let Some(policy) = session.meta.auto_commit else { return Ok(None) };
    let last = session.meta.last_auto_commit_at.parse::<Timestamp>().ok();
    let waited = last.is_none_or(|last| {
        let since = Timestamp::now().as_second() - last.as_second();
        u64::try_from(since).unwrap_or_default() >= policy.min_commit_interval_seconds
    });
    let full = session.pending_tokens > policy.pending_token_threshold
        || session.messages.len() as u64 > policy.message_count_threshold;
    if !(full && waited) {
        return Ok(None);
    }
    session.meta.last_auto_commit_at = crate::store::fs::millis(Timestamp::now());
    Ok(Some(usize::try_from(policy.keep_recent_count).unwrap_or_default()))
}
