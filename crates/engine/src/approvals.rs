//! Approvals: a call that needs a person waits here until one decides, or until its time is up.
//!
//! The question and the decision are durable facts before anything happens because of them: nothing runs without a
//! recorded decision, and a decision survives a restart. Who is shown a question is a door's business; who may answer
//! is checked here, by scope.

use crate::{Caller, Clock, Store, store::StoreError};
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
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId};

/// A question waits at most this long.
pub const MAX_WAIT_MS: u64 = 600_000;
/// Answered questions are kept this long.
const HISTORY: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Questions that may wait at once; one more is refused.
const MAX_PENDING: usize = 1000;
const SPACE: &str = "approvals";
const GRANTS: &str = "grants";

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// Unique id.
    pub id: String,
    /// `policy`, `plugin` or `exec`.
    pub kind: String,
    /// A few words.
    pub title: String,
    /// What is asked.
    pub description: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// The tool.
    pub tool: String,
    /// Hash of the arguments that would be used: the answer is for these and no others.
    pub args_hash: String,
    /// The call that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Who asks.
    pub agent: String,
    /// The session.
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
    /// No.
    Deny,
}

/// A question with its answer, where there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The question.
    pub request: ApprovalRequest,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ApprovalDecision>,
    /// Who answered; absent when time ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// `user`, `timeout`, `no-route`, `cancelled` or `restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_reason: Option<String>,
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
    /// Go ahead; who said so.
    Allowed {
        /// Who.
        by: String,
    },
    /// Do not; why, for the caller.
    Denied {
        /// A sentence.
        reason: String,
    },
    /// The call was stopped meanwhile.
    Cancelled,
}

struct Pending {
    approval: Arc<Approval>,
    waiter: oneshot::Sender<ApprovalDecision>,
}

/// Takes a question off the list when whoever asked it is gone.
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
    /// Questions whose answers are kept in a store. Questions a dead process left open are closed as denied.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (events, _) = broadcast::channel(256);
        Arc::new(Self { store, clock, pending: Mutex::default(), events, approvers: AtomicUsize::new(0) })
    }

    /// Notes that somebody who can answer is connected.
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
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Takes an allow-always back.
    pub fn revoke(&self, agent: &str, tool: &str) -> Result<(), StoreError> {
        self.store.remove(GRANTS, &grant_key(agent, tool)).map(drop)
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, request: ApprovalRequest, cancel: &CancellationToken) -> Result<Answer, Failure> {
        if let Some(by) = self.granted(&request.agent, &request.tool)? {
            return Ok(Answer::Allowed { by: format!("{by} (allow-always)") });
        }
        let id = request.id.clone();
        let wait = request.expires_at.duration_since(request.created_at).unsigned_abs();
        let (waiter, answer) = oneshot::channel();
        let approval =
            Arc::new(Approval { request, decision: None, resolved_by: None, resolved_at: None, terminal_reason: None });
        if self.approvers.load(Ordering::Acquire) == 0 {
            self.close(&approval, ApprovalDecision::Deny, None, "no-route").await?;
            return Ok(Answer::Denied {
                reason: "Approval is needed, and nobody who can approve is connected.".to_owned(),
            });
        }
        if self.lock().len() >= MAX_PENDING {
            return Err(Failure::new(ErrorCode::LimitExceeded, "too many approvals are waiting")
                .detail("limit", MAX_PENDING as u64));
        }
        // Durable before anybody can answer it: otherwise the question could overwrite its own answer.
        self.save(&approval).await?;
        self.lock().insert(id.clone(), Pending { approval: approval.clone(), waiter });
        let _gone = Withdrawn { approvals: self, id: &id };
        let _ = self.events.send(ApprovalEvent::Requested(approval.clone()));
        let wait = wait.min(Duration::from_millis(MAX_WAIT_MS));
        let mut answer = answer;
        let closed = tokio::select! {
            biased;
            decision = &mut answer => return self.answered(&id, decision.ok()),
            () = cancel.cancelled() => self.finish(&id, "cancelled").await?.then_some(Answer::Cancelled),
            () = tokio::time::sleep(wait) => {
                let denied = Answer::Denied { reason: "Approval timed out.".to_owned() };
                self.finish(&id, "timeout").await?.then_some(denied)
            }
        };
        match closed {
            Some(closed) => Ok(closed),
            // Somebody's answer is being recorded at this very moment: it counts.
            None => {
                let decision = answer.await.ok();
                self.answered(&id, decision)
            }
        }
    }

    fn answered(&self, id: &str, decision: Option<ApprovalDecision>) -> Result<Answer, Failure> {
        Ok(match decision {
            Some(ApprovalDecision::Deny) => {
                Answer::Denied { reason: "Denied by user. The tool call did not run.".to_owned() }
            }
            Some(_) => {
                let by = self.get(id)?.and_then(|a| a.resolved_by).unwrap_or_default();
                Answer::Allowed { by }
            }
            None => Answer::Cancelled,
        })
    }

    /// A person answers. The same answer twice is fine; another one is a conflict.
    pub async fn resolve(&self, id: &str, decision: ApprovalDecision, by: &Caller) -> Result<(), Failure> {
        let may = by.scopes.iter().any(|s| s == "operator.admin" || s == "operator.approvals");
        if !may {
            return Err(Failure::new(
                ErrorCode::PolicyDenied,
                "answering approvals needs the scope operator.approvals",
            ));
        }
        // Taken out at once: of two answers given at the same time, one is first.
        let taken = self.lock().remove(id);
        let Some(Pending { approval, waiter }) = taken else {
            return match self.get(id)? {
                Some(done) if done.decision.as_ref() == Some(&decision) => Ok(()),
                Some(_) => Err(Failure::new(ErrorCode::Conflict, "approval already resolved")
                    .detail("reason", "APPROVAL_ALREADY_RESOLVED")),
                None => Err(Failure::new(ErrorCode::NotFound, "unknown or expired approval id")
                    .detail("reason", "APPROVAL_NOT_FOUND")),
            };
        };
        if let ApprovalDecision::AllowAlways { until } = &decision {
            let key = grant_key(&approval.request.agent, &approval.request.tool);
            let position = self.store.put(GRANTS, &key, by.principal.clone().into_bytes(), *until)?;
            self.store.durable(position).await?;
        }
        self.close(&approval, decision.clone(), Some(by.principal.clone()), "user").await?;
        // The waiter hears it only once the decision is durable; when it cannot be, dropping the sender stops the call.
        let _ = waiter.send(decision);
        Ok(())
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

    /// Closes questions that a process which is gone left open: nobody waits for their answers any more.
    pub async fn close_orphans(&self) -> Result<usize, Failure> {
        let now = self.clock.now();
        let mut closed = 0;
        for (_, bytes) in self.store.list(SPACE)? {
            let Ok(approval) = serde_json::from_slice::<Approval>(&bytes) else { continue };
            let alive = self.lock().contains_key(&approval.request.id);
            if approval.decision.is_none() && !alive && approval.request.expires_at < now {
                self.close(&Arc::new(approval), ApprovalDecision::Deny, None, "restart").await?;
                closed += 1;
            }
        }
        Ok(closed)
    }

    /// Closes a question that nobody answered. False when somebody just did.
    async fn finish(&self, id: &str, why: &str) -> Result<bool, Failure> {
        let Some(pending) = self.lock().remove(id) else { return Ok(false) };
        self.close(&pending.approval, ApprovalDecision::Deny, None, why).await?;
        Ok(true)
    }

    async fn close(
        &self,
        approval: &Arc<Approval>,
        decision: ApprovalDecision,
        by: Option<String>,
        why: &str,
    ) -> Result<(), Failure> {
        let done = Arc::new(Approval {
            decision: Some(decision),
            resolved_by: by,
            resolved_at: Some(self.clock.now()),
            terminal_reason: Some(why.to_owned()),
            ..(**approval).clone()
        });
        self.save(&done).await?;
        let _ = self.events.send(ApprovalEvent::Resolved(done));
        Ok(())
    }

    async fn save(&self, approval: &Approval) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(approval).map_err(|e| StoreError(e.to_string()))?;
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
