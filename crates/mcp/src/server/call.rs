//! Runs requests that may take long or ask the client something: calls, prompts, resources.
//!
//! The work continues when its request ends ([`BackgroundTask`]): if a client of a revision with sessions disconnects, the
//! call goes on and its result is recorded. A question goes to the client: as a request if the revision supports that;
//! otherwise the response to the request is the question, the work waits here, and the client's next request contains
//! the answer.

use super::{ClientApprovals, Exchange, Inner, PromptSource, Requester, ResourceSource, approve, session::lock, tools};
use crate::{
    Revision, RpcError,
    asks::{Ask, ClientBound, OpenRoute},
    jsonrpc::INTERNAL_ERROR,
    wire::{
        self, Arguments,
        answers::{InputRequest, InputRequired, Outcome, Progress, ReadResourceResult, SuggestionDetails},
        requests::{InputResponses, LogMessage},
    },
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolyard_engine::{
    Asking, BackgroundTask, CallRequest, Events, Subscription,
    approvals::{ApprovalEvent, ApproverPresence, ClientAnswer},
};
use toolyard_protocol::{EventType, RunId, canonical};

/// Requests that wait for their client's next one, over all clients.
const MAX_SUSPENDED: usize = 1000;
/// How long a suspended request is kept.
const SUSPENDED_FOR: Duration = Duration::from_secs(600);

/// A request of a client that may take long or ask the client something.
pub(crate) enum ClientRequest {
    /// Call a tool.
    Tool { name: String, arguments: Arguments, client_call: Option<String> },
    /// Get a prompt.
    Prompt { name: String, arguments: Arguments, sources: Vec<Arc<dyn PromptSource>> },
    /// Read a resource.
    Resource { uri: String, sources: Vec<Arc<dyn ResourceSource>>, not_found: RpcError },
}

impl ClientRequest {
    /// The same for the same request: an answer to a question belongs to the request that raised it.
    fn digest(&self) -> Result<String, RpcError> {
        let what = match self {
            Self::Tool { name, arguments, .. } => wire::value(&("tools/call", name, arguments)),
            Self::Prompt { name, arguments, .. } => wire::value(&("prompts/get", name, arguments)),
            Self::Resource { uri, .. } => wire::value(&("resources/read", uri)),
        }?;
        Ok(canonical::hash(&what).unwrap_or_else(|_| what.to_string()))
    }
}

/// The outcome of a request: its result, or questions that the client must answer first.
pub(crate) enum RequestOutcome {
    /// With its result.
    Result(Outcome),
    /// With questions that its repetition must answer.
    NeedsInput(InputRequired),
}

/// What the client sends along to answer earlier questions.
#[derive(Default)]
pub(crate) struct InputAnswers {
    answers: InputResponses,
    state: Option<String>,
}

impl InputAnswers {
    /// Only revisions without a handshake send answers along.
    pub(crate) fn new(exchange: &Exchange, answers: Option<InputResponses>, state: Option<String>) -> Self {
        if exchange.revision.has_handshake() {
            return Self::default();
        }
        Self { answers: answers.unwrap_or_default(), state }
    }
}

/// Work in flight.
struct Running {
    run_id: RunId,
    work: BackgroundTask<Result<Outcome, RpcError>>,
    cancel: CancellationToken,
    way: Option<OpenRoute>,
    approvals: Option<(broadcast::Receiver<ApprovalEvent>, ApproverPresence)>,
    /// Open approval questions; the token fires when somebody else answers.
    asked: HashMap<String, CancellationToken>,
    progress: Option<(Events, Value)>,
    last_progress: f64,
    /// Questions the client has been sent and has not answered.
    waiting: Vec<(String, Ask)>,
    /// Answers that came before their questions.
    given: InputResponses,
    questions: usize,
    /// Stops the work when the client disconnects, in revisions where a disconnect cancels.
    _stops: Option<DropGuard>,
}

/// Requests that wait for their client's next one.
#[derive(Default)]
pub(crate) struct Suspensions(Mutex<HashMap<String, SuspendedRequest>>);

struct SuspendedRequest {
    running: Running,
    principal: String,
    digest: String,
}

impl Inner {
    /// Runs a request, or continues one that waited for the client's answers.
    pub(crate) async fn run(
        self: &Arc<Self>,
        exchange: &Exchange,
        work: ClientRequest,
        input: InputAnswers,
    ) -> Result<RequestOutcome, RpcError> {
        // Only if answers come with another request must that request be identified.
        let digest = if exchange.revision.has_handshake() { String::new() } else { work.digest()? };
        let mut running = match &input.state {
            None => {
                let mut running = self.start(exchange, work);
                running.given = input.answers;
                running
            }
            Some(state) => {
                let mut running = self.wake(exchange, state, &digest)?;
                running.take_answers(input.answers);
                running
            }
        };
        if !running.waiting.is_empty() {
            // Not all questions are answered: they are asked again.
            return self.suspend(exchange, running, digest);
        }
        match self.drive(exchange, &mut running).await? {
            Some(result) => Ok(RequestOutcome::Result(result)),
            None => self.suspend(exchange, running, digest),
        }
    }

    fn start(self: &Arc<Self>, exchange: &Exchange, work: ClientRequest) -> Running {
        let engine = &self.engine;
        let run_id = engine.new_run_id();
        let cancel = engine.call_token();
        let handshake = exchange.revision.has_handshake();
        let talks = handshake || exchange.capabilities.answers_anything() || exchange.log_level.is_some();
        let way = talks.then(|| self.asks.open(run_id, exchange.capabilities.clone(), exchange.caller.session.clone()));
        let answers = match exchange.approvals {
            ClientApprovals::Off | ClientApprovals::Refuse => false,
            ClientApprovals::Ask => exchange.capabilities.shows_forms(),
            ClientApprovals::Trust => true,
        };
        let approvals = answers.then(|| {
            let approvals = engine.approvals();
            (approvals.subscribe(), approvals.approver_connected(&exchange.caller.workspace))
        });
        let token = exchange.progress_token.as_ref();
        let progress = token.filter(|t| t.is_string() || t.is_number()).map(|token| {
            let subscription = Subscription { run_id: Some(run_id), ..Subscription::default() };
            (engine.bus().subscribe(subscription), token.clone())
        });
        let stops = (!handshake).then(|| cancel.clone().drop_guard());
        let inner = self.clone();
        let caller = exchange.caller.clone();
        let token = cancel.clone();
        let asking = match exchange.approvals {
            ClientApprovals::Refuse => Asking::Unreachable,
            _ => Asking::default(),
        };
        let work = BackgroundTask::new(async move { inner.work(caller, run_id, work, asking, token).await });
        Running {
            run_id,
            work,
            cancel,
            way,
            approvals,
            asked: HashMap::new(),
            progress,
            last_progress: 0.0,
            waiting: Vec::new(),
            given: InputResponses::new(),
            questions: 0,
            _stops: stops,
        }
    }

    async fn work(
        self: Arc<Self>,
        caller: Arc<toolyard_engine::Caller>,
        run_id: RunId,
        work: ClientRequest,
        asking: Asking,
        cancel: CancellationToken,
    ) -> Result<Outcome, RpcError> {
        let requester = Requester { engine: self.engine.clone(), caller: caller.clone(), run_id: Some(run_id) };
        match work {
            ClientRequest::Tool { name, arguments, client_call } => {
                let request = CallRequest {
                    tool: name.clone(),
                    args: arguments,
                    client_call,
                    asking,
                    cancel: Some(cancel),
                    run_id: Some(run_id),
                    ..CallRequest::default()
                };
                let result = self.engine.call(caller.clone(), request).await.result;
                tools::call_result(&self.engine, &caller, &name, result).map(|result| Outcome::Tool(Box::new(result)))
            }
            ClientRequest::Prompt { name, arguments, sources } => {
                let found = async {
                    for source in sources {
                        if let Some(result) = source.get(&requester, &name, &arguments).await? {
                            return Ok(Outcome::Prompt(result));
                        }
                    }
                    let shown: String = name.chars().take(128).collect();
                    Err(RpcError::params(format!("Unknown prompt: {shown}")))
                };
                tokio::select! { found = found => found, () = cancel.cancelled() => Err(stopped()) }
            }
            ClientRequest::Resource { uri, sources, not_found } => {
                let found = async {
                    for source in sources {
                        if let Some(contents) = source.read(&requester, &uri).await? {
                            return Ok(Outcome::Resource(ReadResourceResult { contents }));
                        }
                    }
                    Err(not_found)
                };
                tokio::select! { found = found => found, () = cancel.cancelled() => Err(stopped()) }
            }
        }
    }

    /// Waits for the result and passes on questions and notifications. `None` if the client must answer first.
    async fn drive(self: &Arc<Self>, exchange: &Exchange, running: &mut Running) -> Result<Option<Outcome>, RpcError> {
        let mut taken_back = false;
        loop {
            tokio::select! {
                biased;
                () = exchange.cancel.cancelled(), if !taken_back => {
                    taken_back = true;
                    running.cancel.cancel();
                }
                Some(bound) = next_bound(&mut running.way) => match bound {
                    ClientBound::Notification { method, params } => pass_on(exchange, &method, params),
                    ClientBound::Ask(ask) => {
                        if self.put(exchange, running, ask) {
                            return Ok(None);
                        }
                    }
                },
                Some(event) = next_approval(&mut running.approvals) => {
                    if let Some(ask) = self.approval(exchange, running, event)
                        && self.put(exchange, running, ask)
                    {
                        return Ok(None);
                    }
                }
                Some(event) = next_progress(&mut running.progress) => running.tell_progress(exchange, &event),
                done = &mut running.work => {
                    running.finish_progress(exchange);
                    let result = done.unwrap_or_else(|_| Err(RpcError::new(INTERNAL_ERROR, "the call failed unexpectedly")));
                    return result.map(Some);
                }
            }
        }
    }

    /// Asks the client a question. Returns whether the request must end so that the client can answer.
    fn put(self: &Arc<Self>, exchange: &Exchange, running: &mut Running, ask: Ask) -> bool {
        match &exchange.session {
            Some(session) if exchange.revision.has_handshake() => {
                let (session, outlet) = (session.clone(), exchange.outlet.clone());
                let give_up = running.asked.get(ask.key.as_deref().unwrap_or_default()).cloned();
                let give_up = give_up.unwrap_or_else(|| running.cancel.child_token());
                tokio::spawn(async move {
                    let params = shaped(&ask.method, ask.params, session.revision());
                    let outcome = session.ask(&outlet, &ask.method, &params, &give_up).await;
                    answered(ask.answer, outcome);
                });
                false
            }
            _ => {
                running.questions += 1;
                let key = match &ask.key {
                    Some(key) if key.starts_with(APPROVAL_ID) => approve::KEY.to_owned(),
                    Some(key) => key.clone(),
                    None => format!("question_{}", running.questions),
                };
                let more = ask.more;
                match running.given.remove(&key) {
                    Some(answer) => answered(ask.answer, Ok(Value::Object(answer))),
                    None => running.waiting.push((key, ask)),
                }
                more == 0 && !running.waiting.is_empty()
            }
        }
    }

    /// Turns a question to a person into one to this client, if it is about this call.
    fn approval(self: &Arc<Self>, exchange: &Exchange, running: &mut Running, event: ApprovalEvent) -> Option<Ask> {
        match event {
            ApprovalEvent::Requested(approval)
                if approval.request.run_id == Some(running.run_id)
                    && approve::is_for_client(&approval, exchange.approvals) =>
            {
                if exchange.approvals == ClientApprovals::Trust {
                    // The client's user agreed before the call was made, as the client says.
                    let (engine, caller) = (self.engine.clone(), exchange.caller.clone());
                    tokio::spawn(approve::resolve(engine, approval, caller, ClientAnswer::AllowOnce));
                    return None;
                }
                let (answer, answered) = oneshot::channel();
                let key = format!("{APPROVAL_ID}{}", approval.request.id);
                running.asked.insert(key.clone(), running.cancel.child_token());
                let params = match approve::form(&approval) {
                    Ok(params) => params,
                    Err(error) => {
                        tracing::error!(error = error.message, "a client cannot be asked for an approval");
                        return None;
                    }
                };
                let (engine, caller, asked_at) = (self.engine.clone(), exchange.caller.clone(), Instant::now());
                let is_headless = exchange.origin.is_headless;
                tokio::spawn(async move {
                    // A client that cannot answer has not approved.
                    let answer = answered.await.ok().and_then(Result::ok);
                    let answer = approve::read(answer.as_ref(), asked_at.elapsed(), is_headless);
                    approve::resolve(engine, approval, caller, answer).await;
                });
                Some(Ask { key: Some(key), method: "elicitation/create".to_owned(), params, more: 0, answer })
            }
            ApprovalEvent::Resolved(approval) => {
                let key = format!("{APPROVAL_ID}{}", approval.request.id);
                if let Some(withdrawn) = running.asked.remove(&key) {
                    withdrawn.cancel();
                }
                None
            }
            ApprovalEvent::Requested(_) => None,
        }
    }

    /// Ends the request with its questions; the work waits for the client's next request.
    fn suspend(
        self: &Arc<Self>,
        exchange: &Exchange,
        mut running: Running,
        digest: String,
    ) -> Result<RequestOutcome, RpcError> {
        // Nothing polls the work until then, and its deadlines still apply.
        running.work.detach();
        let input_requests = running
            .waiting
            .iter()
            .map(|(key, ask)| {
                let params = shaped(&ask.method, ask.params.clone(), Revision::V20260728);
                (key.clone(), InputRequest { method: ask.method.clone(), params })
            })
            .collect();
        let state = uuid::Uuid::new_v4().simple().to_string();
        let suspended = SuspendedRequest { running, principal: exchange.caller.principal.clone(), digest };
        {
            let mut all = lock(&self.suspended.0);
            if all.len() >= MAX_SUSPENDED {
                return Err(RpcError::new(INTERNAL_ERROR, "too many requests wait for their clients' answers"));
            }
            all.insert(state.clone(), suspended);
        }
        let (inner, id) = (Arc::downgrade(self), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(SUSPENDED_FOR).await;
            if let Some(inner) = inner.upgrade() {
                // Dropping it stops the work.
                lock(&inner.suspended.0).remove(&id);
            }
        });
        Ok(RequestOutcome::NeedsInput(InputRequired { input_requests, request_state: state }))
    }

    fn wake(&self, exchange: &Exchange, state: &str, digest: &str) -> Result<Running, RpcError> {
        let unknown = || {
            let suggestion = "Send the request again without requestState.";
            RpcError::params("requestState is unknown, has expired, or belongs to another request")
                .with(&SuggestionDetails { suggestion })
        };
        let mut all = lock(&self.suspended.0);
        // The state cannot be guessed, but its holder must also be the client that received it, with the same request.
        let fits = |s: &SuspendedRequest| s.principal == exchange.caller.principal && s.digest == digest;
        if !all.get(state).is_some_and(fits) {
            return Err(unknown());
        }
        all.remove(state).map(|suspended| suspended.running).ok_or_else(unknown)
    }
}

/// Marks the key of a question that is an approval.
const APPROVAL_ID: &str = "\0approval:";

impl Running {
    fn take_answers(&mut self, mut answers: InputResponses) {
        let waiting = std::mem::take(&mut self.waiting);
        for (key, ask) in waiting {
            match answers.remove(&key) {
                Some(answer) => answered(ask.answer, Ok(Value::Object(answer))),
                None => self.waiting.push((key, ask)),
            }
        }
    }

    fn tell_progress(&mut self, exchange: &Exchange, event: &toolyard_protocol::ExecutionEvent) {
        let Some((_, token)) = &self.progress else { return };
        if event.event_type != EventType::StepProgress {
            return;
        }
        let number = |key: &str| event.payload.as_ref().and_then(|p| p.get(key)).and_then(Value::as_f64);
        // Progress must increase, even if the tool reports otherwise.
        let reported = number("progress").filter(|p| *p > self.last_progress);
        self.last_progress = reported.unwrap_or(self.last_progress + 1.0);
        let progress = Progress {
            progress_token: token,
            progress: whole(self.last_progress),
            total: number("total").map(whole),
            message: &event.message,
        };
        exchange.outlet.tell("notifications/progress", Some(&progress));
    }

    /// Sends the progress that was reported before the result.
    fn finish_progress(&mut self, exchange: &Exchange) {
        while let Some(event) = self.progress.as_mut().and_then(|(events, _)| events.try_next()) {
            self.tell_progress(exchange, &event);
        }
        while let Some(bound) = self.way.as_mut().and_then(|way| way.bound.try_recv().ok()) {
            if let ClientBound::Notification { method, params } = bound {
                pass_on(exchange, &method, params);
            }
        }
    }
}

/// A whole number is written as one.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { Value::from(number as i64) } else { Value::from(number) }
}

/// The parameters for a revision: the oldest one has no `mode`.
fn shaped(method: &str, mut params: Value, revision: Revision) -> Value {
    if method == "elicitation/create"
        && revision == Revision::V20250618
        && let Some(map) = params.as_object_mut()
    {
        map.remove("mode");
    }
    params
}

/// Passes an upstream server's notification to the client, if it wants it.
fn pass_on(exchange: &Exchange, method: &str, params: Value) {
    if method == "notifications/message" {
        let loud = LogMessage::deserialize(&params).ok().and_then(|message| super::session::level(message.level));
        let wanted = exchange.session.as_ref().filter(|_| exchange.revision.has_handshake()).map(|s| s.log_level());
        let wanted = wanted.or(exchange.log_level);
        if loud.zip(wanted).is_none_or(|(loud, wanted)| loud < wanted) {
            return;
        }
    }
    exchange.outlet.tell(method, Some(&params));
}

/// Passes the answer to the party that asked.
fn answered(requester: oneshot::Sender<Result<Value, RpcError>>, answer: Result<Value, RpcError>) {
    if requester.send(answer).is_err() {
        tracing::debug!("the asker does not wait for the client's answer any more");
    }
}

async fn next_bound(way: &mut Option<OpenRoute>) -> Option<ClientBound> {
    match way {
        Some(way) => way.bound.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_approval(
    approvals: &mut Option<(broadcast::Receiver<ApprovalEvent>, ApproverPresence)>,
) -> Option<ApprovalEvent> {
    match approvals {
        Some((events, _)) => loop {
            match events.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending::<()>().await,
            }
        },
        None => std::future::pending().await,
    }
}

async fn next_progress(progress: &mut Option<(Events, Value)>) -> Option<Arc<toolyard_protocol::ExecutionEvent>> {
    match progress {
        Some((events, _)) => match events.next().await {
            Some(event) => Some(event),
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn stopped() -> RpcError {
    RpcError::new(INTERNAL_ERROR, "the request was cancelled")
}
