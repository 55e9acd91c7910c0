//! The failures of answers that are not accepted.

use super::{Approval, ApprovalRequest};
use toolyard_protocol::{ErrorCode, Failure};

pub(super) fn not_found() -> Failure {
    Failure::new(ErrorCode::NotFound, "unknown or expired approval id").detail("reason", "APPROVAL_NOT_FOUND")
}

pub(super) fn already_resolved(done: &Approval) -> Failure {
    let by = done.resolved_by.clone().unwrap_or_else(|| "nobody".to_owned());
    let failure = Failure::new(ErrorCode::Conflict, "approval already resolved")
        .detail("reason", "APPROVAL_ALREADY_RESOLVED")
        .detail("resolvedBy", by)
        .suggest("See the answer with `toolyard approvals show ID`.")
        .retryable(false);
    done.resolved_at.iter().fold(failure, |failure, at| failure.detail("resolvedAt", at.to_string()))
}

pub(super) fn shown_differs(answered: &str, request: &ApprovalRequest) -> Failure {
    Failure::new(ErrorCode::Conflict, "the answer was given to something else than this question shows")
        .detail("reason", "APPROVAL_SHOWN_DIFFERS")
        .detail("answered", answered)
        .detail("shown", request.shown_hash())
        .suggest("Look at the question again with `toolyard approvals show ID`, then answer it.")
        .retryable(false)
}
