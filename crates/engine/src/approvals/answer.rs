//! The result of a question, as the waiting caller receives it.

use super::{Approval, ApprovalDecision, Denial, Grant};
use jiff::Timestamp;
use std::sync::Arc;
use toolyard_protocol::ApprovedVia;

/// The result of a question, as its waiters receive it.
#[derive(Clone)]
pub(super) struct ApprovalOutcome {
    pub(super) approval: Arc<Approval>,
    pub(super) denial: Option<Denial>,
}

/// Who allowed a call, and how that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Allowance {
    /// The name of the approver.
    pub by: String,
    /// How the approver is known.
    pub via: ApprovedVia,
    /// The door by which the answer came.
    pub door: Option<String>,
    /// When the answer was given.
    pub at: Timestamp,
    /// The question that was answered.
    pub approval_id: Option<String>,
    /// The grant that covers the call, or that came with the answer.
    pub grant_id: Option<String>,
    /// The hash of what the person was shown. A grant was given for another call, so its calls have none.
    pub shown: Option<String>,
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The call may proceed.
    Allowed(Box<Allowance>),
    /// The call may not proceed.
    Denied(Denial),
    /// The caller has waited long enough; the question stays open until the time given here.
    StillOpen(Timestamp),
    /// The call was cancelled while it waited.
    Cancelled,
}

impl Answer {
    pub(super) fn of(settled: &ApprovalOutcome) -> Self {
        let approval = &*settled.approval;
        match &approval.decision {
            None => Self::Cancelled,
            Some(ApprovalDecision::Deny) => {
                let denial = settled.denial.clone();
                Self::Denied(denial.unwrap_or_else(|| Denial::by_user(approval)))
            }
            Some(_) => Self::Allowed(Box::new(Allowance {
                by: approval.resolved_by.clone().unwrap_or_default(),
                via: approval.resolved_via,
                door: approval.resolved_door.map(|door| door.as_str().to_owned()),
                at: approval.resolved_at.unwrap_or(approval.request.created_at),
                approval_id: Some(approval.request.id.clone()),
                grant_id: approval.grant_id.clone(),
                shown: Some(approval.request.shown_hash().to_owned()),
            })),
        }
    }
}

/// The approval that a grant gives to a call that it covers.
pub(crate) fn allowed_by(grant: &Grant) -> Allowance {
    Allowance {
        by: format!("{} (allow-always)", grant.given_by),
        via: ApprovedVia::Operator,
        door: grant.door.clone(),
        at: grant.given_at.unwrap_or_default(),
        approval_id: grant.approval_id.clone(),
        grant_id: Some(grant.id.clone()),
        shown: None,
    }
}
