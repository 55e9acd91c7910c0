//! One-use codes with which a question can be denied, for messages that go through other people's servers. Such a message
//! may be read by others; the worst that a reader can do with it is to deny one question once. Nothing here can allow a call.

use super::{CodeProblem, Console, hash_of, new_secret};
use crate::Service;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolyard_engine::{
    Caller, Door,
    approvals::{ApprovalDecision, Verdict},
    authority::Scope,
    store::{StoreError, Swap},
};
use toolyard_protocol::{Failure, WorkspaceId};

const SPACE: &str = "denyCodes";
/// Random bytes of a code.
const CODE_BYTES: usize = 16;

/// What is kept of a code.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCode {
    question: String,
    /// The channel whose message carries it.
    channel: String,
    expires_at_ms: i64,
    #[serde(default)]
    used: bool,
}

/// What became of a denial by link.
#[derive(Debug)]
pub enum DenyOutcome {
    /// The question is denied.
    Denied,
    /// The question had an answer, or its time was over.
    TooLate,
}

impl Console {
    /// Makes a code with which a question can be denied once, until the question expires.
    pub async fn make_deny_code(
        &self,
        question: &str,
        channel: &str,
        expires_at: Timestamp,
    ) -> Result<String, StoreError> {
        let code = new_secret::<CODE_BYTES>()?;
        let kept = StoredCode {
            question: question.to_owned(),
            channel: channel.to_owned(),
            expires_at_ms: expires_at.as_millisecond(),
            used: false,
        };
        let position = self.store.put(SPACE, &hash_of(&code), write(&kept)?, Some(expires_at))?;
        self.store.durable(position).await?;
        Ok(code)
    }

    /// Whether a code can be used. Looking does not use it: previews of links look.
    pub fn is_deny_code(&self, code: &str) -> Result<bool, StoreError> {
        Ok(self.deny_code(code)?.is_some())
    }

    fn deny_code(&self, code: &str) -> Result<Option<(Vec<u8>, StoredCode)>, StoreError> {
        let Some(found) = self.store.get(SPACE, &hash_of(code))? else { return Ok(None) };
        let kept: StoredCode = serde_json::from_slice(&found)
            .map_err(|error| StoreError::failed(format!("a code to deny is damaged: {error}")))?;
        let is_usable = !kept.used && kept.expires_at_ms > self.now().as_millisecond();
        Ok(is_usable.then_some((found, kept)))
    }

    /// Uses a code up. Of two that come at once, one succeeds.
    fn use_deny_code(&self, code: &str) -> Result<StoredCode, CodeProblem> {
        let Some((found, kept)) = self.deny_code(code)? else { return Err(CodeProblem::Unknown) };
        let used = write(&StoredCode { used: true, ..kept.clone() })?;
        let forgotten_at = Timestamp::from_millisecond(kept.expires_at_ms).ok();
        match self.store.compare_and_set(SPACE, &hash_of(code), Some(&found), Some((used, forgotten_at)))? {
            Swap::Done => Ok(kept),
            Swap::Differs(_) => Err(CodeProblem::Used),
        }
    }
}

fn write(kept: &StoredCode) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(kept).map_err(|error| StoreError::failed(error.to_string()))
}

impl Service {
    /// Denies the question that a code was made for. The caller that is recorded is the channel's link, not a person: who
    /// followed the link is not known.
    pub async fn deny_by_link(&self, code: &str) -> Result<DenyOutcome, CodeProblem> {
        let kept = self.console().use_deny_code(code)?;
        let by = Caller {
            door: Door::Console,
            scopes: vec![Scope::Approvals.as_str().to_owned()],
            is_person: false,
            ..Caller::cli(format!("deny-link:{}", kept.channel))
        };
        let by = by.in_workspace(WorkspaceId::of(&kept.question).0);
        let verdict = Verdict {
            client: Some(format!("a link of the channel {}", kept.channel)),
            ..Verdict::from(ApprovalDecision::Deny)
        };
        match self.engine().approvals().resolve(&kept.question, verdict, &by).await {
            Ok(()) => Ok(DenyOutcome::Denied),
            Err(Failure { message, .. }) => {
                tracing::info!(question = kept.question, why = message, "a link to deny came too late");
                Ok(DenyOutcome::TooLate)
            }
        }
    }
}
