//! [`RunScope`]: what all calls of one run share.

use crate::{Caller, PreviewProvider, Provider, Recorder};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolyard_catalog::EffectivePolicy;
use toolyard_protocol::{CallId, ConfirmationId, ErrorCode, Failure, PolicyLimits, RunId};

use crate::engine::Tools;

/// What all calls of one run share.
pub(crate) struct RunScope {
    pub(crate) run_id: RunId,
    pub(crate) caller: Arc<Caller>,
    /// The caller as the calls' arguments and their provider see it: by the door that the calls come through last.
    pub(crate) acting: Arc<Caller>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) policy: Arc<EffectivePolicy>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) cancel: CancellationToken,
    pub(crate) permits: Semaphore,
    /// Set when a person approved the run as a whole. The approval of a single call is stored with that call.
    pub(crate) confirmation: OnceLock<ConfirmationId>,
    pub(crate) usage: Usage,
    /// The policy's blob, when this run carries it to the store.
    pub(crate) policy_blob: OnceLock<String>,
    /// The run is one call: its result is queued together with the run's end, which follows at once.
    pub(crate) is_one_call: bool,
    /// The version of the planner that wrote the plan, if known.
    pub(crate) planner_version: Option<String>,
    /// Present for a dry run: providers are replaced by their previews and nothing is recorded durably.
    pub(crate) previews: Option<Previews>,
    /// For calls that a call makes: the call they belong to.
    pub(crate) parent: Option<CallId>,
    /// The run that first asked the questions of this one: this run itself, unless a call with an idempotency key was
    /// made again because nothing had been dispatched.
    pub(crate) origin: RunId,
    /// The idempotency key with which the caller can get the result later, if it gave one.
    pub(crate) retry_key: Option<RetryKey>,
    /// The client's own id of the call that this run makes.
    pub(crate) client_call: Option<String>,
}

/// The idempotency key of a direct call. A caller that stopped waiting gets the result when it repeats the call with
/// this key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetryKey {
    /// The key in the store.
    pub(crate) key: String,
    /// What is stored for it.
    pub(crate) entry: Vec<u8>,
}

impl RunScope {
    pub(crate) fn is_nested(&self) -> bool {
        self.parent.is_some()
    }

    /// The scope for a nested call: recorded in the same run and counted against its limits, but with the current tools
    /// and its own approval, because the person who approved the parent has not seen what it would call.
    pub(crate) fn nested(&self, parent: CallId, tools: Arc<Tools>, policy: Arc<EffectivePolicy>) -> RunScope {
        RunScope {
            run_id: self.run_id,
            caller: self.caller.clone(),
            acting: self.acting.clone(),
            tools,
            policy,
            recorder: self.recorder.clone(),
            cancel: self.cancel.clone(),
            permits: Semaphore::new(1),
            confirmation: OnceLock::new(),
            usage: self.usage.clone(),
            policy_blob: OnceLock::new(),
            is_one_call: false,
            planner_version: self.planner_version.clone(),
            previews: self.previews.clone(),
            parent: Some(parent),
            origin: self.origin,
            // The result of a nested call cannot be asked for later, because the call that makes it does not wait that long.
            retry_key: None,
            // The answer that was given ahead is about the call itself.
            client_call: None,
        }
    }

    pub(crate) fn limits(&self) -> &PolicyLimits {
        self.policy.limits()
    }
}

/// What a run has used of its limits. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct Usage(Arc<UsedAmounts>);

#[derive(Default)]
struct UsedAmounts {
    bytes_written: AtomicU64,
    deletes: AtomicU64,
}

impl Usage {
    /// Adds what a run used before it was resumed.
    pub(crate) fn restore(&self, bytes: u64, deletes: u64) {
        self.0.bytes_written.fetch_add(bytes, Ordering::AcqRel);
        self.0.deletes.fetch_add(deletes, Ordering::AcqRel);
    }

    /// Takes from the limits, or names the one that is exceeded. An amount that was taken is not returned: a failed
    /// write still counts, so that a loop of failing writes ends.
    pub(crate) fn take(&self, limits: &PolicyLimits, bytes: u64, deletes: u64) -> Result<(), Failure> {
        let over = |name: &str, limit: u64, asked: u64| {
            Failure::new(
                ErrorCode::LimitExceeded,
                format!("the run may not go beyond {name} = {limit}; this call would make it {asked}"),
            )
            .detail("limit", name)
            .detail("value", limit)
            .detail("asked", asked)
            .retryable(false)
        };
        let total = self.0.bytes_written.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        if bytes > 0 && total > limits.max_bytes_written {
            return Err(over("maxBytesWritten", limits.max_bytes_written, total));
        }
        let total = self.0.deletes.fetch_add(deletes, Ordering::AcqRel).saturating_add(deletes);
        if deletes > 0 && total > limits.max_deletes {
            return Err(over("maxDeletes", limits.max_deletes, total));
        }
        Ok(())
    }
}

/// The in-memory twins of a dry run, one for each provider it touches, in the order they were first touched: a preview
/// must come out the same each time. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Previews(Arc<Mutex<Vec<PreviewPair>>>);

type PreviewPair = (Arc<dyn Provider>, Option<Arc<dyn PreviewProvider>>);

impl Previews {
    /// The twin of a provider, made at first use.
    pub(crate) fn of(&self, provider: &Arc<dyn Provider>) -> Option<Arc<dyn PreviewProvider>> {
        let mut twins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, twin)) =
            twins.iter().find(|(known, _)| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(provider)))
        {
            return twin.clone();
        }
        let twin = provider.preview();
        twins.push((provider.clone(), twin.clone()));
        twin
    }

    /// Everything the twins changed.
    pub(crate) fn diff(&self) -> String {
        let twins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        twins.iter().filter_map(|(_, twin)| twin.as_ref()).map(|twin| twin.diff()).collect()
    }
}
