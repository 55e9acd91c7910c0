//! Questions that are asked before their call. A coding agent's hook runs before the agent calls one of Toolyard's own
//! tools. The question is asked in the hook, and the following call with the same id does not ask it again.
//!
//! An answer is bound to the caller, the tool, the arguments, the policy and the rule that asked. It is used once, and it
//! expires.

use super::{Asking, CallRequest, Engine};
use crate::{
    Caller, IntentTarget, Recorder,
    approvals::{Allowance, Shown},
    memory_store::MemoryStore,
    pipeline::{self, StepCall},
    scope::RunScope,
};
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use toolyard_protocol::{ErrorCode, Failure, StepId};

/// How long an answer waits for its call: as long as a client may show a dialog of its own in between.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(10);
/// Answers that wait at once. One more is not kept, and its call is asked about again.
const MAX_KEPT: usize = 1000;

/// The result of a question that is asked before its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedAhead {
    /// Nobody had to be asked, or the call itself will be refused and recorded.
    NotNeeded,
    /// The call may be made.
    Allowed,
}

/// The answer to a question, with what was shown.
pub(crate) struct AheadAnswer {
    pub(crate) rule: String,
    pub(crate) allowance: Allowance,
    pub(crate) shown: Option<Shown>,
    pub(crate) targets: Vec<IntentTarget>,
}

/// The properties of the call for which an answer is valid. The answer does not apply if one of them differs.
#[derive(PartialEq, Eq)]
pub(crate) struct AheadTerms {
    pub(crate) tool: String,
    pub(crate) args_hash: String,
    pub(crate) policy_hash: String,
}

/// Answers that wait for their calls, by caller and the client's id of the call.
#[derive(Default)]
pub(super) struct AheadAnswers(Mutex<HashMap<(String, String), StoredAnswer>>);

struct StoredAnswer {
    terms: AheadTerms,
    answer: AheadAnswer,
    expires_at: Timestamp,
}

impl AheadAnswers {
    fn keep(&self, key: (String, String), terms: AheadTerms, answer: AheadAnswer, now: Timestamp) {
        let Ok(expires_at) = now.checked_add(KEPT_FOR) else { return };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, kept| kept.expires_at > now);
        if kept.len() < MAX_KEPT {
            kept.insert(key, StoredAnswer { terms, answer, expires_at });
        }
    }

    /// Takes an answer out, whether it fits or not: a call under the same id with other arguments is another call.
    fn take(&self, key: &(String, String), terms: &AheadTerms, rule: &str, now: Timestamp) -> Option<AheadAnswer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)?;
        let fits = kept.terms == *terms && kept.answer.rule == rule && kept.expires_at > now;
        fits.then_some(kept.answer)
    }
}

impl Engine {
    /// Asks the policy's question about a call that its client has not made yet, and waits for the answer. The answer is
    /// kept under [`CallRequest::client_call`].
    ///
    /// # Errors
    /// The call was denied, which is recorded as a refused call: the client will not make it.
    pub async fn ask_ahead(&self, caller: Arc<Caller>, request: CallRequest) -> Result<AskedAhead, Failure> {
        let caller = caller.settled();
        let Some(id) = request.client_call.clone() else { return Ok(AskedAhead::NotNeeded) };
        let run_id = request.run_id.unwrap_or_else(|| self.new_run_id());
        let cancel = request.cancel.clone().unwrap_or_else(|| self.call_token());
        // The question and its answer are stored with the approvals. The run is the one that makes the call.
        let store = Arc::new(MemoryStore::new());
        let recorder =
            Recorder::begin(run_id, caller.session.clone(), store, Arc::default(), self.inner.signer.clone());
        let policy = self.policy_for(&caller);
        let scope = RunScope {
            is_one_call: true,
            ..self.scope_with(run_id, caller.clone(), policy, cancel.clone(), None, recorder)
        };
        let call = StepCall {
            step_id: StepId::direct(),
            tool: request.tool.clone(),
            args: request.args.clone(),
            iteration: None,
            attempt: 1,
            timeout_ms: request.timeout_ms,
            preview: None,
            never_ran: false,
            is_alone: false,
            recovered: None,
            cancel,
            asking: Asking::default(),
        };
        match pipeline::ask_ahead(self, &scope, &call).await {
            Ok(None) => Ok(AskedAhead::NotNeeded),
            Ok(Some((terms, answer))) => {
                let key = (caller.principal.clone(), id);
                self.inner.ahead.keep(key, terms, answer, self.inner.clock.now());
                Ok(AskedAhead::Allowed)
            }
            Err(failure) if failure.code == ErrorCode::ApprovalDenied => {
                self.refuse_direct(caller, &request, failure.clone());
                Err(failure)
            }
            // The call itself is refused in the same way, and recorded.
            Err(failure) if failure.code != ErrorCode::Cancelled => Ok(AskedAhead::NotNeeded),
            Err(failure) => Err(failure),
        }
    }

    /// The answer that was given ahead of a call, if it fits the call.
    pub(crate) fn answered_ahead(&self, scope: &RunScope, terms: &AheadTerms, rule: &str) -> Option<AheadAnswer> {
        let id = scope.client_call.clone()?;
        self.inner.ahead.take(&(scope.caller.principal.clone(), id), terms, rule, self.inner.clock.now())
    }
}
