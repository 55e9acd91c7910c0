//! Approvals: a call that needs a person's approval waits here until a person answers or the time is up.
//!
//! The question and the answer are durable before anything happens because of them: nothing runs without a recorded
//! answer, and an answer survives a restart. A door decides who is shown a question; this module checks, by scope, who
//! may answer.

mod words;

pub use words::{CLIENT_USER, ClientAnswer, Denial, DenialCause};

use crate::{Caller, Clock, Store, authority::Approver, store::StoreError};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ApprovedVia, CallId, ErrorCode, Failure, RunId};

/// A question waits at most this long.
pub const MAX_WAIT_MS: u64 = 600_000;
/// Answered questions are kept this long.
const HISTORY: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Questions that may wait at once; one more is refused.
const MAX_PENDING: usize = 1000;
/// The key in [`ApprovalRequest::extra`] under which a door stores the connection whose call waits.
pub const REQUESTER: &str = "requester";
const SPACE: &str = "approvals";
const GRANTS: &str = "grants";
/// How earlier versions named that approver. They took lasting permissions from clients, which do not count.
const OLD_CLIENT_USER: &str = " (asked by the MCP client)";

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// The unique id of the question.
    pub id: String,
    /// `policy`, `plugin` or `exec`.
    pub kind: String,
    /// A few words.
    pub title: String,
    /// What is asked.
    pub description: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// The tool that should be called.
    pub tool: String,
    /// Hash of the arguments that would be used: the answer is for these and no others.
    pub args_hash: String,
    /// The call that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The run of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The agent that made the call.
    pub agent: String,
    /// The session of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The rule or hook that asked.
    pub rule: String,
    /// Whatever a door wants to show besides.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it is too late.
    pub expires_at: Timestamp,
}

impl ApprovalRequest {
    /// What an allow-always to this question covers: the tool, or, for a question that no tool call waits on, this
    /// very question and no other.
    pub fn grant_subject(&self) -> String {
        if self.call_id.is_some() { self.tool.clone() } else { format!("{}\n{}", self.kind, self.args_hash) }
    }
}

/// What a person can say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalDecision {
    /// This call only.
    AllowOnce,
    /// This agent may use this tool from now on, or until a time.
    AllowAlways {
        /// Until when; for ever when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The call is denied.
    Deny,
}

impl ApprovalDecision {
    /// Whether both say the same, whatever the time limit.
    pub fn is_same_word(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A question with its answer, if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The question.
    pub request: ApprovalRequest,
    /// The answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ApprovalDecision>,
    /// Who answered; absent when time ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// What the answering client calls itself; shown, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_with: Option<String>,
    /// How it is known who answered.
    #[serde(default, skip_serializing_if = "ApprovedVia::is_operator")]
    pub resolved_via: ApprovedVia,
    /// When the question was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// The cause: a [`DenialCause`], a [`Verdict`], `user`, `cancelled` or `restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_reason: Option<String>,
}

/// A person's answer, as a door hands it on.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The answer.
    pub decision: ApprovalDecision,
    /// What the answering client calls itself.
    pub client: Option<String>,
    /// Why it ends so: `user`, unless the answer could not be taken as it was given.
    pub reason: &'static str,
}

impl From<ApprovalDecision> for Verdict {
    fn from(decision: ApprovalDecision) -> Self {
        Self { decision, client: None, reason: "user" }
    }
}

/// The person who answers a question; nobody if the time is up or nobody could be asked.
#[derive(Default)]
struct Settler {
    by: Option<String>,
    client: Option<String>,
    via: ApprovedVia,
    /// The denial that the caller receives.
    denial: Option<Denial>,
}

/// How a question was settled, as its waiter hears it.
struct Settled {
    decision: ApprovalDecision,
    via: ApprovedVia,
    denial: Option<Denial>,
}

/// What watchers of approvals hear.
#[derive(Debug, Clone)]
pub enum ApprovalEvent {
    /// A question was asked.
    Requested(Arc<Approval>),
    /// It has its answer.
    Resolved(Arc<Approval>),
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The call may proceed.
    Allowed {
        /// The name of the approver.
        by: String,
        /// How that is known.
        via: ApprovedVia,
    },
    /// The call may not proceed.
    Denied(Denial),
    /// The call was cancelled while it waited.
    Cancelled,
}

/// Who could answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Any connected approver. If none is connected, nobody is asked.
    AnyApprover,
    /// Any approver, also one who connects later.
    Later,
    /// The door knows that nobody can answer.
    None,
}

/// The state of a question after it was asked.
pub enum Opened {
    /// The question is already answered: a lasting permission covers it, or nobody can be asked.
    Answered(Answer),
    /// The question waits for an answer.
    Waiting(Waiting),
}

/// A waiting question. If it is dropped, the question stays open until somebody answers or a restart closes it.
pub struct Waiting {
    id: String,
    wait: Duration,
    answer: oneshot::Receiver<Settled>,
}

struct Pending {
    approval: Arc<Approval>,
    waiter: Option<oneshot::Sender<Settled>>,
}

/// Removes a question from the list when its caller goes away.
struct Withdrawn<'a> {
    approvals: &'a Approvals,
    id: &'a str,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.approvals.lock().remove(self.id);
    }
}

/// Questions and answers.
pub struct Approvals {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pending: Mutex<HashMap<String, Pending>>,
    events: broadcast::Sender<ApprovalEvent>,
    approvers: AtomicUsize,
}

/// Somebody who can answer is connected for as long as this lives.
pub struct ApproverPresence(Arc<Approvals>);

impl Drop for ApproverPresence {
    fn drop(&mut self) {
        self.0.approvers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Approvals {
    /// Creates the approvals over a store. Questions that a dead process left open are closed as denied.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (events, _) = broadcast::channel(256);
        Arc::new(Self { store, clock, pending: Mutex::default(), events, approvers: AtomicUsize::new(0) })
    }

    /// Registers that an approver is connected.
    pub fn approver_connected(self: &Arc<Self>) -> ApproverPresence {
        self.approvers.fetch_add(1, Ordering::AcqRel);
        ApproverPresence(self.clone())
    }

    /// Questions and answers as they come.
    pub fn subscribe(&self) -> broadcast::Receiver<ApprovalEvent> {
        self.events.subscribe()
    }

    /// Whether an earlier allow-always covers this agent and tool.
    pub fn granted(&self, agent: &str, tool: &str) -> Result<Option<String>, StoreError> {
        let value = self.store.get(GRANTS, &grant_key(agent, tool))?;
        let by = value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(by.filter(|by| !by.ends_with(OLD_CLIENT_USER)))
    }

    /// Takes an allow-always back.
    pub fn revoke(&self, agent: &str, tool: &str) -> Result<(), StoreError> {
        self.store.remove(GRANTS, &grant_key(agent, tool)).map(drop)
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, request: ApprovalRequest, cancel: &CancellationToken) -> Result<Answer, Failure> {
        match self.open(request, Route::AnyApprover).await? {
            Opened::Answered(answer) => Ok(answer),
            Opened::Waiting(waiting) => self.wait(waiting, cancel).await,
        }
    }

    /// Asks a question. When this returns, the question is durable and approvers have been notified.
    pub async fn open(&self, request: ApprovalRequest, route: Route) -> Result<Opened, Failure> {
        if let Some(by) = self.granted(&request.agent, &request.grant_subject())? {
            return Ok(Opened::Answered(Answer::Allowed {
                by: format!("{by} (allow-always)"),
                via: ApprovedVia::Operator,
            }));
        }
        let id = request.id.clone();
        let wait = request.expires_at.duration_since(request.created_at).unsigned_abs();
        let (waiter, answer) = oneshot::channel();
        let approval = Arc::new(Approval {
            request,
            decision: None,
            resolved_by: None,
            resolved_with: None,
            resolved_via: ApprovedVia::default(),
            resolved_at: None,
            terminal_reason: None,
        });
        let nobody = route == Route::AnyApprover && self.approvers.load(Ordering::Acquire) == 0;
        if nobody || route == Route::None {
            let _ =
                self.events.send(self.close(&approval, ApprovalDecision::Deny, Settler::default(), "no-route").await?);
            let reason = "Approval is needed, and nobody who can approve is connected (no approval route).";
            return Ok(Opened::Answered(Answer::Denied(Denial::new(DenialCause::NoRoute, reason))));
        }
        let room = |pending: &HashMap<String, Pending>| {
            if pending.len() >= MAX_PENDING {
                return Err(Failure::new(ErrorCode::LimitExceeded, "too many approvals are waiting")
                    .detail("limit", MAX_PENDING as u64));
            }
            if pending.contains_key(&id) {
                return Err(Failure::new(ErrorCode::Conflict, "an approval with this id is waiting already"));
            }
            Ok(())
        };
        room(&self.lock())?;
        // Durable before anybody can answer it: otherwise the question could overwrite its own answer.
        self.save(&approval).await?;
        {
            let mut pending = self.lock();
            room(&pending)?;
            pending.insert(id.clone(), Pending { approval: approval.clone(), waiter: Some(waiter) });
        }
        self.announce(ApprovalEvent::Requested(approval));
        Ok(Opened::Waiting(Waiting { id, wait: wait.min(Duration::from_millis(MAX_WAIT_MS)), answer }))
    }

    /// Waits for the answer to a question that was put.
    pub async fn wait(&self, waiting: Waiting, cancel: &CancellationToken) -> Result<Answer, Failure> {
        let Waiting { id, wait, answer } = waiting;
        // The waiting caller may go away before the answer comes; then the question is withdrawn.
        let _gone = Withdrawn { approvals: self, id: &id };
        tokio::select! {
            settled = answer => match settled {
                Ok(Settled { decision: ApprovalDecision::Deny, denial, .. }) => {
                    let by_user = || Denial::new(DenialCause::User, "Denied by user. The tool call did not run.");
                    Ok(Answer::Denied(denial.unwrap_or_else(by_user)))
                }
                Ok(Settled { via, .. }) => {
                    let by = self.get(&id)?.and_then(|a| a.resolved_by).unwrap_or_default();
                    Ok(Answer::Allowed { by, via })
                }
                Err(_) => Ok(Answer::Cancelled),
            },
            () = tokio::time::sleep(wait) => {
                self.finish(&id, ApprovalDecision::Deny, Settler::default(), "timeout").await?;
                Ok(Answer::Denied(Denial::new(DenialCause::Timeout, "Approval timed out")))
            }
            () = cancel.cancelled() => {
                self.finish(&id, ApprovalDecision::Deny, Settler::default(), "cancelled").await?;
                Ok(Answer::Cancelled)
            }
        }
    }

    /// Waits until a question is answered, independently of the caller that asked it. `None` if there is no such
    /// question.
    pub async fn settled(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        let mut events = self.events.subscribe();
        loop {
            match self.get(id)? {
                Some(approval) if approval.decision.is_none() => {
                    if !self.lock().contains_key(id) {
                        // Settled between the two looks, or left behind by another process: nothing will settle
                        // it here.
                        return self.get(id);
                    }
                }
                other => return Ok(other),
            }
            // A watcher that fell behind simply looks again.
            match events.recv().await {
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return self.get(id),
            }
        }
    }

    /// A person answers. The same answer twice is fine; another one is a conflict.
    pub async fn resolve(&self, id: &str, verdict: impl Into<Verdict>, by: &Caller) -> Result<(), Failure> {
        let Verdict { decision, client, reason } = verdict.into();
        let by = Approver::of(by)?;
        let settler = Settler { by: Some(by.into_name()), client, ..Settler::default() };
        if self.finish(id, decision.clone(), settler, reason).await? {
            return Ok(());
        }
        match self.settled(id).await? {
            Some(done) if done.decision.as_ref().is_some_and(|d| d.is_same_word(&decision)) => Ok(()),
            Some(done) if done.decision.is_some() => {
                Err(Failure::new(ErrorCode::Conflict, "approval already resolved")
                    .detail("reason", "APPROVAL_ALREADY_RESOLVED"))
            }
            _ => Err(Failure::new(ErrorCode::NotFound, "unknown or expired approval id")
                .detail("reason", "APPROVAL_NOT_FOUND")),
        }
    }

    /// Records the answer that the client of a waiting call reports for its user. Such an answer needs no right to
    /// approve; the door's settings decide whether it is accepted. It is valid for this call only and recorded as the
    /// client's report. False if the question is already answered.
    pub async fn answer_by_client(&self, id: &str, answer: ClientAnswer, client: &Caller) -> Result<bool, Failure> {
        let own = |request: &ApprovalRequest| {
            request.call_id.is_some() && request.agent == client.agent && request.session == client.session
        };
        if !self.lock().get(id).is_some_and(|pending| own(&pending.approval.request)) {
            return Ok(false);
        }
        let (decision, cause, reason) = match answer {
            ClientAnswer::AllowOnce => (ApprovalDecision::AllowOnce, None, String::new()),
            ClientAnswer::Deny => {
                let reason = format!("Denied by {CLIENT_USER}. The tool call did not run.");
                (ApprovalDecision::Deny, Some(DenialCause::ClientUser), reason)
            }
            ClientAnswer::NobodyAsked(why) => (ApprovalDecision::Deny, Some(DenialCause::NobodyAsked), why),
        };
        let settler = Settler {
            by: (cause != Some(DenialCause::NobodyAsked)).then(|| format!("{CLIENT_USER} ({})", client.principal)),
            client: None,
            via: ApprovedVia::ClientUser,
            denial: cause.map(|cause| Denial::new(cause, reason)),
        };
        let why = cause.map_or(DenialCause::ClientUser.as_str(), DenialCause::as_str);
        self.finish(id, decision, settler, why).await
    }

    /// Questions that wait, oldest first.
    pub fn pending(&self) -> Vec<Arc<Approval>> {
        let mut all: Vec<_> = self.lock().values().map(|p| p.approval.clone()).collect();
        all.sort_by(|a, b| {
            a.request.created_at.cmp(&b.request.created_at).then_with(|| a.request.id.cmp(&b.request.id))
        });
        all
    }

    /// One question, waiting or answered within the last 30 days.
    pub fn get(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        if let Some(p) = self.lock().get(id) {
            return Ok(Some((*p.approval).clone()));
        }
        let bytes = self.store.get(SPACE, id)?;
        Ok(bytes.and_then(|b| serde_json::from_slice(&b).ok()))
    }

    /// Answered questions of the last 30 days, newest first.
    pub fn history(&self) -> Result<Vec<Approval>, StoreError> {
        let mut all: Vec<Approval> =
            self.store.list(SPACE)?.into_iter().filter_map(|(_, b)| serde_json::from_slice(&b).ok()).collect();
        all.retain(|a: &Approval| a.decision.is_some());
        all.sort_by_key(|a| std::cmp::Reverse(a.resolved_at));
        Ok(all)
    }

    /// Closes questions that a dead process left open, because nobody waits for their answers.
    pub async fn close_orphans(&self) -> Result<usize, Failure> {
        let now = self.clock.now();
        let mut closed = 0;
        for (_, bytes) in self.store.list(SPACE)? {
            let Ok(approval) = serde_json::from_slice::<Approval>(&bytes) else { continue };
            let alive = self.lock().contains_key(&approval.request.id);
            if approval.decision.is_none() && !alive && approval.request.expires_at < now {
                let approval = Arc::new(approval);
                let event = self.close(&approval, ApprovalDecision::Deny, Settler::default(), "restart").await?;
                self.announce(event);
                closed += 1;
            }
        }
        Ok(closed)
    }

    /// Settles a question that waits; false when it does not wait (any more). Only one of several answers gets here.
    async fn finish(&self, id: &str, decision: ApprovalDecision, settler: Settler, why: &str) -> Result<bool, Failure> {
        // The thread that takes the waiter answers the question. The question stays pending until its answer can be
        // read.
        let taken = self.lock().get_mut(id).and_then(|p| p.waiter.take().map(|w| (p.approval.clone(), w)));
        let Some((approval, waiter)) = taken else { return Ok(false) };
        let settled = Settled { decision: decision.clone(), via: settler.via, denial: settler.denial.clone() };
        let closed = match self.keep_grant(&approval, &decision, settler.by.as_deref()).await {
            Ok(()) => self.close(&approval, decision, settler, why).await,
            Err(error) => Err(error.into()),
        };
        self.lock().remove(id);
        let event = closed?;
        // The waiter hears it only once the decision is durable; when it cannot be, dropping the sender stops the call.
        // A call that was stopped meanwhile does not wait any more.
        drop(waiter.send(settled));
        self.announce(event);
        Ok(true)
    }

    async fn keep_grant(
        &self,
        approval: &Approval,
        decision: &ApprovalDecision,
        by: Option<&str>,
    ) -> Result<(), StoreError> {
        let ApprovalDecision::AllowAlways { until } = decision else { return Ok(()) };
        let key = grant_key(&approval.request.agent, &approval.request.grant_subject());
        let position = self.store.put(GRANTS, &key, by.unwrap_or_default().as_bytes().to_vec(), *until)?;
        self.store.durable(position).await
    }

    async fn close(
        &self,
        approval: &Arc<Approval>,
        decision: ApprovalDecision,
        settler: Settler,
        why: &str,
    ) -> Result<ApprovalEvent, Failure> {
        let done = Arc::new(Approval {
            decision: Some(decision),
            resolved_by: settler.by,
            resolved_with: settler.client,
            resolved_via: settler.via,
            resolved_at: Some(self.clock.now()),
            terminal_reason: Some(why.to_owned()),
            ..(**approval).clone()
        });
        self.save(&done).await?;
        Ok(ApprovalEvent::Resolved(done))
    }

    /// Tells whoever listens. Nobody has to: an error says that nobody does.
    fn announce(&self, event: ApprovalEvent) {
        drop(self.events.send(event));
    }

    async fn save(&self, approval: &Approval) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(approval).map_err(|e| StoreError::failed(e.to_string()))?;
        let expires = self.clock.now().checked_add(HISTORY).ok();
        let position = self.store.put(SPACE, &approval.request.id, bytes, expires)?;
        self.store.durable(position).await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn grant_key(agent: &str, tool: &str) -> String {
    format!("{agent}\n{tool}")
}
