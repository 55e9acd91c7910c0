//! Decides whether a failed call is retried, and after what delay.

use toolyard_protocol::{ErrorCode, OnError, RunId, StepId, canonical};

/// The longest wait between two tries.
const MAX_DELAY_MS: u64 = 30_000;

/// The wait before a try: doubles each time, at most 30 s, with full jitter that depends on nothing but these names.
pub fn retry_delay(run_id: RunId, step: &StepId, index: u32, failed_attempt: u32, backoff_ms: u64) -> u64 {
    let exponent = failed_attempt.saturating_sub(1).min(20);
    let ceiling = backoff_ms.saturating_mul(1 << exponent).min(MAX_DELAY_MS);
    let seed = canonical::sha256_hex(format!("{run_id}/{step}/{index}/{failed_attempt}").as_bytes());
    let fraction = u64::from_str_radix(&seed[..13], 16).unwrap_or_default(); // 52 bits
    ((u128::from(ceiling + 1) * u128::from(fraction)) >> 52) as u64
}

/// Whether a call may be retried. Some failures are never retried, whatever the step or the tool says.
pub(super) fn may_retry(on_error: OnError, code: ErrorCode, retryable: Option<bool>) -> bool {
    use ErrorCode::{ApprovalDenied, Cancelled, Conflict, LimitExceeded, PolicyDenied, ValidationError};
    let never = matches!(code, ValidationError | PolicyDenied | Cancelled | ApprovalDenied | LimitExceeded | Conflict);
    !never && (retryable == Some(true) || (on_error == OnError::Retry && retryable != Some(false)))
}
