//! Approvals: a call that needs a person's approval waits here until a person answers or the time is up.
//!
//! The question and the answer are durable before anything happens because of them: nothing runs without a recorded
//! answer, and an answer survives a restart. A question is answered once: an answer replaces the open question in the
//! store by compare-and-set, and a second answer receives the first one's author. A door decides who is shown a
//! question; this module checks, by scope, who may answer.

mod answer;
mod grants;
mod presence;
mod question;
mod refusals;
mod remote;
mod words;

use answer::ApprovalOutcome;
pub(crate) use answer::allowed_by;
pub use answer::{Allowance, Answer};
pub use grants::{Grant, GrantScope};
use presence::Presence;
pub use presence::{ApproverPresence, PersonPresence};
pub(crate) use question::Prediction;
pub use question::{Approval, ApprovalDecision, ApprovalRequest, PreviewState, Shown, Verdict};
use remote::RemoteQuestions;
pub use words::{CLIENT_USER, ClientAnswer, Denial, DenialCause};

use crate::{
    Caller, Clock, Door, Store,
    authority::{self, Approver},
    store::{StoreError, Swap},
};
use grants::Grantor;
use jiff::{SignedDuration, Timestamp};
use refusals::{already_resolved, not_found, shown_differs};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use toolyard_protocol::{ApprovedVia, ErrorCode, Failure};

/// A caller waits at most this long for an answer. A question may stay open longer: see [`ApprovalRequest::is_kept`].
pub const MAX_WAIT_MS: u64 = 600_000;
/// A question stays open at most this long: 30 days.
pub const MAX_KEEP_MS: u64 = 2_592_000_000;
/// Answered questions are kept this long.
const HISTORY: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Questions of one workspace that may wait at once; one more is refused.
const MAX_PENDING: usize = 1000;
/// Questions of one agent that may stay open without their callers: no agent can fill the list for days.
const MAX_KEPT_FOR_AGENT: usize = 100;
/// The longest note of a person that is kept, in characters.
const MAX_NOTE: usize = 500;
/// The key in [`ApprovalRequest::extra`] under which a door stores the connection whose call waits.
pub const REQUESTER: &str = "requester";
const SPACE: &str = "approvals";

/// The person who answers a question; nobody if the time is up or nobody could be asked.
#[derive(Default)]
struct Settler {
    by: Option<String>,
    client: Option<String>,
    via: ApprovedVia,
    door: Option<Door>,
    note: Option<String>,
    /// The denial that the caller receives.
    denial: Option<Denial>,
}

/// What watchers of approvals hear.
#[derive(Debug, Clone)]
pub enum ApprovalEvent {
    /// A question was asked.
    Requested(Arc<Approval>),
    /// The question has been answered.
    Resolved(Arc<Approval>),
}

/// Which approvers a question can reach.
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
    /// The question is already answered: by a lasting permission, by an earlier answer, or because nobody can be asked.
    Answered(Answer),
    /// The question waits for an answer.
    Waiting(Waiting),
}

/// A waiting question. If it is dropped, the question stays open until somebody answers or a restart closes it.
pub struct Waiting {
    id: String,
    wait: Duration,
    is_kept: bool,
    expires_at: Timestamp,
    answer: oneshot::Receiver<ApprovalOutcome>,
}

struct Pending {
    approval: Arc<Approval>,
    waiters: Vec<oneshot::Sender<ApprovalOutcome>>,
}

/// Removes a question from the list when its caller goes away, unless the question is kept for the caller's return (see
/// [`ApprovalRequest::is_kept`]).
struct WithdrawOnDrop<'a> {
    approvals: &'a Approvals,
    id: &'a str,
    is_kept: bool,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let mut pending = self.approvals.lock();
        if !self.is_kept {
            let was_open = pending.remove(self.id).is_some();
            if let Some(remote) = self.approvals.remote.as_ref().filter(|_| was_open) {
                remote.withdraw(self.id);
            }
        } else if let Some(kept) = pending.get_mut(self.id) {
            kept.waiters.retain(|waiter| !waiter.is_closed());
        }
    }
}

/// Questions and answers.
pub struct Approvals {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    pending: Mutex<HashMap<String, Pending>>,
    events: broadcast::Sender<ApprovalEvent>,
    presence: Presence,
    /// Questions whose callers can come back stay open after their callers have gone.
    keeps: AtomicBool,
    /// The process stops: questions that are kept stay open.
    stopping: AtomicBool,
    /// What is known of the questions of other nodes, where several nodes use the store.
    remote: Option<RemoteQuestions>,
}

impl Approvals {
    /// Creates the approvals over a store. [`Approvals::restore`] reads the questions of an earlier process.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (events, _) = broadcast::channel(256);
        Arc::new(Self {
            remote: store.is_shared().then(RemoteQuestions::default),
            store,
            clock,
            pending: Mutex::default(),
            events,
            presence: Presence::default(),
            keeps: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Keeps questions open for days whose callers can come back. For a process that people can reach later, because it
    /// serves a door to the machine's owner.
    pub fn keep_questions(&self) {
        self.keeps.store(true, Ordering::Release);
    }

    /// Whether questions stay open whose callers can come back.
    pub fn keeps_questions(&self) -> bool {
        self.keeps.load(Ordering::Acquire)
    }

    /// Questions and answers as they come.
    pub fn subscribe(&self) -> broadcast::Receiver<ApprovalEvent> {
        self.events.subscribe()
    }

    /// Asks a question. When this returns, the question is durable and approvers have been notified. A question with
    /// the id of an earlier one is that question: its answer counts, and while it is open the caller waits for it.
    pub async fn open(&self, request: ApprovalRequest, route: Route, wait_ms: u64) -> Result<Opened, Failure> {
        if let Some(grant) = self.grant_for(&request)? {
            return Ok(Opened::Answered(Answer::Allowed(Box::new(allowed_by(&grant)))));
        }
        let now = self.clock.now();
        let (waiter, answer) = oneshot::channel();
        let waiting = Waiting {
            id: request.id.clone(),
            wait: Duration::from_millis(wait_ms.clamp(1, MAX_WAIT_MS)),
            is_kept: request.is_kept,
            expires_at: request.expires_at,
            answer,
        };
        if request.slot.is_none() && self.lock().contains_key(&request.id) {
            return Err(Failure::new(ErrorCode::Conflict, "an approval with this id is waiting already"));
        }
        if request.slot.is_some()
            && let Some(earlier) = self.stored(&request.id)?
        {
            if earlier.decision.is_some() {
                let settled = ApprovalOutcome { approval: Arc::new(earlier), denial: None };
                return Ok(Opened::Answered(Answer::of(&settled)));
            }
            if earlier.is_open(now) {
                let expires_at = earlier.request.expires_at;
                self.join(Arc::new(earlier), waiter);
                return Ok(Opened::Waiting(Waiting { expires_at, ..waiting }));
            }
        }
        let approval = Arc::new(Approval::open(request));
        let workspace = approval.request.workspace();
        let nobody = route == Route::AnyApprover && !self.reach_of(&workspace).approvers;
        if (nobody && !self.is_reached_elsewhere(&workspace)?) || route == Route::None {
            let done = self.closed(&approval, ApprovalDecision::Deny, &Settler::default(), "no-route");
            self.save(&done).await?;
            self.announce(ApprovalEvent::Resolved(Arc::new(done)));
            let reason = "Approval is needed, and nobody who can approve is connected (no approval route).";
            return Ok(Opened::Answered(Answer::Denied(Denial::new(DenialCause::NoRoute, reason))));
        }
        self.room(&approval.request)?;
        self.supersede(&approval.request).await?;
        // Durable before anybody can answer it: otherwise the question could overwrite its own answer.
        self.save(&approval).await?;
        if self.remote.is_some() {
            remote::list_open(&*self.store, &approval.request.id)?;
        }
        self.join(approval.clone(), waiter);
        self.announce(ApprovalEvent::Requested(approval));
        Ok(Opened::Waiting(waiting))
    }

    fn room(&self, request: &ApprovalRequest) -> Result<(), Failure> {
        let pending = self.lock();
        let workspace = request.workspace();
        let of_workspace = || pending.values().filter(|p| workspace.owns(&p.approval.request.id));
        let is_theirs = |p: &&Pending| p.approval.request.is_kept && p.approval.request.agent == request.agent;
        let limit = match request.is_kept && of_workspace().filter(is_theirs).count() >= MAX_KEPT_FOR_AGENT {
            true => MAX_KEPT_FOR_AGENT,
            false if of_workspace().count() >= MAX_PENDING => MAX_PENDING,
            false => return Ok(()),
        };
        Err(Failure::new(ErrorCode::LimitExceeded, "too many approvals are waiting")
            .detail("limit", limit as u64)
            .suggest("Answer some of them: `toolyard approvals list` shows them."))
    }

    /// Adds a waiter to a question, which is listed from here on if it was not.
    fn join(&self, approval: Arc<Approval>, waiter: oneshot::Sender<ApprovalOutcome>) {
        let id = approval.request.id.clone();
        let mut pending = self.lock();
        pending.entry(id).or_insert_with(|| Pending { approval, waiters: Vec::new() }).waiters.push(waiter);
        drop(pending);
        self.reach_changed();
    }

    /// Closes the open questions that a new one replaces: what they show is not what would happen any more.
    async fn supersede(&self, request: &ApprovalRequest) -> Result<(), Failure> {
        let Some(slot) = &request.slot else { return Ok(()) };
        let replaced = |p: &&Pending| p.approval.request.slot.as_ref() == Some(slot);
        let ids: Vec<String> = self.lock().values().filter(replaced).map(|p| p.approval.request.id.clone()).collect();
        for id in ids.iter().filter(|id| **id != request.id) {
            self.finish(id, ApprovalDecision::Deny, Settler::default(), "superseded").await?;
        }
        Ok(())
    }

    /// Waits for the answer to a question that was put.
    pub async fn wait(&self, waiting: Waiting, cancel: &CancellationToken) -> Result<Answer, Failure> {
        let Waiting { id, wait, is_kept, expires_at, answer } = waiting;
        // The waiting caller may go away before the answer comes; then the question is withdrawn.
        let _gone = WithdrawOnDrop { approvals: self, id: &id, is_kept };
        let late = tokio::select! {
            settled = answer => return Ok(settled.map_or(Answer::Cancelled, |settled| Answer::of(&settled))),
            () = tokio::time::sleep(wait) => true,
            () = cancel.cancelled() => false,
        };
        let stops = self.stopping.load(Ordering::Acquire);
        if is_kept && (late || stops) && (stops || expires_at > self.clock.now()) {
            return Ok(Answer::StillOpen(expires_at));
        }
        let (why, answer) = match late {
            true => ("timeout", Answer::Denied(Denial::new(DenialCause::Timeout, "Approval timed out"))),
            false => ("cancelled", Answer::Cancelled),
        };
        match self.finish(&id, ApprovalDecision::Deny, Settler::default(), why).await? {
            Some(_) => Ok(answer),
            // Somebody answered at the last moment, and that answer is on record.
            None => match self.stored(&id)?.filter(|approval| late && approval.decision.is_some()) {
                Some(approval) => Ok(Answer::of(&ApprovalOutcome { approval: Arc::new(approval), denial: None })),
                None => Ok(answer),
            },
        }
    }

    /// Waits until a question is answered, independently of the caller that asked it. `None` if there is no such
    /// question.
    pub async fn settled(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        let mut events = self.events.subscribe();
        loop {
            match self.stored(id)? {
                Some(approval) if approval.decision.is_none() => {
                    let waits_elsewhere = self.remote.is_some() && remote::is_listed(&*self.store, id)?;
                    if !self.lock().contains_key(id) && !waits_elsewhere {
                        // The question was settled between the two checks, or belongs to another process: nothing will
                        // settle it here.
                        return self.stored(id);
                    }
                }
                other => return Ok(other),
            }
            // A watcher that missed events reads the state again.
            match events.recv().await {
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return self.stored(id),
            }
        }
    }

    /// A person answers. The same answer twice is fine; another one is a conflict that names the first.
    pub async fn resolve(&self, id: &str, verdict: impl Into<Verdict>, by: &Caller) -> Result<(), Failure> {
        let Verdict { mut decision, client, reason, shown, note } = verdict.into();
        let approver = Approver::of(by)?;
        if !authority::sees_name(by, id) {
            return Err(not_found());
        }
        let now = self.clock.now();
        let question = self.stored(id)?.filter(|question| question.decision.is_some() || question.is_open(now));
        let question = question.ok_or_else(not_found)?;
        if let Some(shown) = shown.as_deref().filter(|shown| *shown != question.request.shown_hash()) {
            return Err(shown_differs(shown, &question.request));
        }
        if let ApprovalDecision::AllowAlways { scope, .. } = &mut decision {
            *scope = scope.of_question(&question.request)?;
        }
        let note = note.map(|note| note.chars().take(MAX_NOTE).collect());
        let settler =
            Settler { by: Some(approver.into_name()), client, door: Some(by.door), note, ..Settler::default() };
        // A caller waits for it here, or at another node, or can come back for it.
        let is_ours = question.request.is_kept
            || self.lock().contains_key(id)
            || (self.remote.is_some() && remote::is_listed(&*self.store, id)?);
        if question.decision.is_none() && is_ours && self.finish(id, decision.clone(), settler, reason).await?.is_some()
        {
            return Ok(());
        }
        match self.stored(id)? {
            Some(done) if done.decision.as_ref().is_some_and(|d| d.is_same_word(&decision)) => Ok(()),
            Some(done) if done.decision.is_some() => Err(already_resolved(&done)),
            _ => Err(not_found()),
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
            via: ApprovedVia::ClientUser,
            door: Some(client.door),
            denial: cause.map(|cause| Denial::new(cause, reason)),
            ..Settler::default()
        };
        let why = cause.map_or(DenialCause::ClientUser.as_str(), DenialCause::as_str);
        Ok(self.finish(id, decision, settler, why).await?.is_some())
    }

    /// Questions of a caller's workspace that wait, oldest first.
    pub fn pending_for(&self, caller: &Caller) -> Vec<Arc<Approval>> {
        let mut all = self.pending();
        all.retain(|approval| authority::sees_name(caller, &approval.request.id));
        all
    }

    /// Questions of all workspaces that wait, oldest first.
    pub fn pending(&self) -> Vec<Arc<Approval>> {
        let now = self.clock.now();
        let mut all: Vec<_> = self.lock().values().map(|p| p.approval.clone()).collect();
        let others = self.remote.as_ref().map(RemoteQuestions::asked).unwrap_or_default();
        let is_known = |other: &Arc<Approval>| all.iter().any(|known| known.request.id == other.request.id);
        let others: Vec<_> = others.into_iter().filter(|other| !is_known(other)).collect();
        all.extend(others);
        all.retain(|approval| approval.is_open(now));
        all.sort_by(|a, b| {
            a.request.created_at.cmp(&b.request.created_at).then_with(|| a.request.id.cmp(&b.request.id))
        });
        all
    }

    /// Whether a caller waits for the answer to a question in this process, or may wait at another node that is alive.
    pub fn is_awaited(&self, id: &str) -> bool {
        let here = self.lock().get(id).map(|pending| pending.waiters.iter().any(|waiter| !waiter.is_closed()));
        here.unwrap_or_else(|| self.is_awaited_elsewhere(id))
    }

    /// One question of a caller's workspace, waiting or answered within the last 30 days.
    pub fn get_for(&self, caller: &Caller, id: &str) -> Result<Option<Approval>, StoreError> {
        match authority::sees_name(caller, id) {
            true => self.stored(id),
            false => Ok(None),
        }
    }

    /// One question, waiting or answered within the last 30 days.
    pub fn get(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        self.stored(id)
    }

    /// Answered questions of a caller's workspace in the last 30 days, newest first.
    pub fn history(&self, caller: &Caller) -> Result<Vec<Approval>, StoreError> {
        let own = self.store.list(SPACE)?.into_iter().filter(|(id, _)| authority::sees_name(caller, id));
        let mut all: Vec<Approval> = own.filter_map(|(_, b)| serde_json::from_slice(&b).ok()).collect();
        all.retain(|a: &Approval| a.decision.is_some());
        all.sort_by_key(|a| std::cmp::Reverse(a.resolved_at));
        Ok(all)
    }

    /// Restores the questions of an earlier process. Those whose callers can come back are listed again; the others are
    /// closed when they expire, because nobody waits for their answers.
    pub async fn restore(&self) -> Result<(), Failure> {
        let now = self.clock.now();
        for (id, bytes) in self.store.list(SPACE)? {
            let Ok(approval) = serde_json::from_slice::<Approval>(&bytes) else { continue };
            if approval.decision.is_some() || self.lock().contains_key(&id) {
                continue;
            }
            if !approval.is_open(now) {
                let why = if approval.request.is_kept { "timeout" } else { "restart" };
                self.finish(&id, ApprovalDecision::Deny, Settler::default(), why).await?;
            } else if approval.request.is_kept {
                let pending = Pending { approval: Arc::new(approval), waiters: Vec::new() };
                self.lock().entry(id).or_insert(pending);
            }
        }
        Ok(())
    }

    /// Closes kept questions whose time is up and whose callers have gone.
    pub async fn expire(&self) -> Result<(), Failure> {
        let now = self.clock.now();
        let is_over = |p: &&Pending| p.approval.request.is_kept && !p.approval.is_open(now);
        let over: Vec<String> = self.lock().values().filter(is_over).map(|p| p.approval.request.id.clone()).collect();
        for id in over {
            self.finish(&id, ApprovalDecision::Deny, Settler::default(), "timeout").await?;
        }
        Ok(())
    }

    /// Marks the process as stopping: from here on, a cancelled caller leaves a kept question open.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Settles a question that is open; `None` when it is not (any more). Only one of several answers gets here.
    async fn finish(
        &self,
        id: &str,
        decision: ApprovalDecision,
        settler: Settler,
        why: &str,
    ) -> Result<Option<Arc<Approval>>, Failure> {
        let Some(found) = self.store.get(SPACE, id)? else { return Ok(None) };
        let open: Approval = serde_json::from_slice(&found)
            .map_err(|e| Failure::new(ErrorCode::StoreUnavailable, format!("a question cannot be read: {e}")))?;
        if open.decision.is_some() {
            return Ok(None);
        }
        let mut done = self.closed(&open, decision, &settler, why);
        let grant = match &done.decision {
            Some(ApprovalDecision::AllowAlways { until, scope }) => {
                let name = settler.by.as_deref().unwrap_or_default();
                let giver = Grantor { name, door: settler.door, at: self.clock.now() };
                let id = self.clock.new_id().to_string();
                Some(grants::given(id, &open.request, scope.clone(), *until, &giver))
            }
            _ => None,
        };
        done.grant_id = grant.as_ref().map(|grant| grant.id.clone());
        let wanted = (written(&done)?, self.forgotten_at());
        let (store, key) = (self.store.clone(), id.to_owned());
        let swap =
            tokio::task::spawn_blocking(move || store.compare_and_set(SPACE, &key, Some(&found), Some(wanted))).await;
        let swap = swap.map_err(|_| Failure::new(ErrorCode::InternalError, "the store did not answer"))??;
        let Swap::Done = swap else { return Ok(None) };
        // The answer is on record before the grant: of two answers at once only the one that counts gives a grant.
        let kept = match &grant {
            Some(grant) => self.keep_grant(grant).await,
            None => Ok(()),
        };
        let done = Arc::new(done);
        if self.remote.is_some()
            && let Err(error) = remote::unlist(&*self.store, id)
        {
            tracing::warn!(%error, id, "an answered question stays on the list of open ones until the next look");
        }
        let waiters = self.lock().remove(id).map(|pending| pending.waiters).unwrap_or_default();
        let settled = ApprovalOutcome { approval: done.clone(), denial: settler.denial };
        for waiter in waiters {
            // A call that was stopped meanwhile does not wait any more.
            drop(waiter.send(settled.clone()));
        }
        self.announce(ApprovalEvent::Resolved(done.clone()));
        kept?;
        Ok(Some(done))
    }

    /// The question with its answer.
    fn closed(&self, open: &Approval, decision: ApprovalDecision, settler: &Settler, why: &str) -> Approval {
        Approval {
            decision: Some(decision),
            resolved_by: settler.by.clone(),
            resolved_with: settler.client.clone(),
            resolved_via: settler.via,
            resolved_door: settler.door,
            resolved_at: Some(self.clock.now()),
            terminal_reason: Some(why.to_owned()),
            note: settler.note.clone(),
            ..open.clone()
        }
    }

    /// Notifies subscribers; an error means that there are none.
    fn announce(&self, event: ApprovalEvent) {
        drop(self.events.send(event));
    }

    fn stored(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        Ok(self.store.get(SPACE, id)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    async fn save(&self, approval: &Approval) -> Result<(), StoreError> {
        let position = self.store.put(SPACE, &approval.request.id, written(approval)?, self.forgotten_at())?;
        self.store.durable(position).await
    }

    /// When a question that is written now expires from the store: the history period begins when the question can have
    /// ended.
    fn forgotten_at(&self) -> Option<Timestamp> {
        let keep = SignedDuration::from_millis(i64::try_from(MAX_KEEP_MS).unwrap_or(i64::MAX));
        self.clock.now().checked_add(HISTORY).and_then(|at| at.checked_add(keep)).ok()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn written(approval: &Approval) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(approval).map_err(|e| StoreError::failed(e.to_string()))
}
