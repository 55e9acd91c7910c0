//! One-use pairing codes. A code is random, kept as a hash, short-lived, and invalid after its first use.

use super::{Console, Rights, hash_of, new_secret};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use toolyard_engine::{
    Caller,
    store::{StoreError, Swap},
};
use toolyard_protocol::WorkspaceId;

const SPACE: &str = "consoleCodes";
/// Random bytes of a code.
const CODE_BYTES: usize = 16;
/// How long a code can be used.
const CODE_LIFE: SignedDuration = SignedDuration::from_mins(2);
/// The same for a code that is shown as a picture: somebody must find their phone first.
const PHONE_CODE_LIFE: SignedDuration = SignedDuration::from_mins(5);
/// How long it is known afterwards, to tell a late browser from a wrong code.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// A code that was made.
#[derive(Debug, Clone)]
pub struct PairingCode {
    /// The code itself. Only its hash is kept.
    pub code: String,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

/// Why a code does not pair a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeProblem {
    /// Nobody made it.
    Unknown,
    /// A browser was paired with it already.
    Used,
    /// Its time is over.
    Expired,
    /// The store did not answer.
    Store(StoreError),
}

impl From<StoreError> for CodeProblem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What is kept of a code.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredCode {
    pub(super) rights: Rights,
    /// Who had it made.
    pub(super) by: String,
    /// The workspace in which it was made.
    #[serde(default, skip_serializing_if = "WorkspaceId::is_default")]
    pub(super) workspace: WorkspaceId,
    expires_at_ms: i64,
    #[serde(default)]
    used: bool,
}

impl Console {
    /// Makes a code with which one browser can be paired.
    pub async fn make_code(&self, rights: Rights, for_phone: bool, by: &Caller) -> Result<PairingCode, StoreError> {
        let code = new_secret::<CODE_BYTES>()?;
        let life = if for_phone { PHONE_CODE_LIFE } else { CODE_LIFE };
        let expires_at = self.now().saturating_add(life).map_err(|e| StoreError::failed(e.to_string()))?;
        let (by, workspace) = (by.principal.clone(), by.workspace.clone());
        let expires_at_ms = expires_at.as_millisecond();
        let kept = StoredCode { rights, by, workspace, expires_at_ms, used: false };
        let position =
            self.store.put(SPACE, &hash_of(&code), write(&kept)?, expires_at.checked_add(REMEMBERED).ok())?;
        self.store.durable(position).await?;
        Ok(PairingCode { code, expires_at })
    }

    /// Uses a code up. Of two that come at once, one succeeds.
    pub(super) fn use_code(&self, code: &str) -> Result<StoredCode, CodeProblem> {
        let key = hash_of(code);
        let Some(found) = self.store.get(SPACE, &key)? else { return Err(CodeProblem::Unknown) };
        let kept: StoredCode = serde_json::from_slice(&found)
            .map_err(|e| StoreError::failed(format!("a pairing code is damaged: {e}")))?;
        if kept.used {
            return Err(CodeProblem::Used);
        }
        let now = self.now();
        if kept.expires_at_ms <= now.as_millisecond() {
            return Err(CodeProblem::Expired);
        }
        let used = write(&StoredCode { used: true, ..kept.clone() })?;
        let forgotten_at = now.checked_add(REMEMBERED).ok();
        match self.store.compare_and_set(SPACE, &key, Some(&found), Some((used, forgotten_at)))? {
            Swap::Done => Ok(kept),
            Swap::Differs(_) => Err(CodeProblem::Used),
        }
    }
}

fn write(kept: &StoredCode) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(kept).map_err(|e| StoreError::failed(e.to_string()))
}
