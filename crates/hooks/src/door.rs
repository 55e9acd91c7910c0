//! Connects the events of clients with calls: the event before a call starts one and is answered when the call may run
//! or is refused; the event after it closes it.

use crate::{
    Client, HookAnswer, Verdict,
    answer::noted,
    classify::{ClassifiedCall, classify},
    native::{ClosedBy, NativeArgs, tool_of},
    payload::{CallEnd, CallKey, Event, NativeCall},
    provider::{CallGate, EndReport, NativeProvider},
};
use serde_json::{Map, Value};
use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{broadcast, oneshot},
    task::JoinHandle,
};
use toolyard_engine::{
    AskedAhead, CallAnswer, CallRequest, Caller, Door, Engine,
    approvals::{Approval, ApprovalEvent, ClientAnswer, DenialCause},
};
use toolyard_protocol::{Failure, RunId, ToolResult, WorkspaceId};

/// How long a hook may wait for the decision about its call. The hooks are installed with a timeout of ten minutes, and
/// a hook that is cut off runs the tool.
const HELD_FOR: Duration = Duration::from_secs(570);
/// How long the hook after a call waits until the call's end is durable.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// The advice for a call about which nobody could be asked.
const NOBODY_ASKED: &str = "Run `toolyard approvals watch` or open the console to answer, then make the call again; or \
                            allow it in the policy.";
/// The events before a call, of all clients. If such an event cannot be processed, the call is refused.
const DECIDING: [&str; 3] = ["PreToolUse", "BeforeTool", "ConfigChange"];

/// An event as a hook process sends it.
#[derive(Debug)]
pub struct HookRequest {
    /// The client whose hook it is.
    pub client: Client,
    /// What the client wrote to the hook.
    pub payload: Value,
    /// Whether the client says that its user is there to answer its own questions.
    pub is_attended: bool,
    /// The workspace of its sender.
    pub workspace: WorkspaceId,
}

/// How calls of Toolyard's own MCP tools are asked about.
#[derive(Debug, Clone)]
pub struct OwnTools {
    /// The agent as whom MCP clients call.
    pub agent: String,
    /// Who asks.
    pub asked_by: OwnToolApproval,
}

/// Who asks about calls of Toolyard's own MCP tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnToolApproval {
    /// The hook asks Toolyard's approvers.
    People,
    /// The hook lets the client's own dialog ask if somebody sits at the client, and otherwise Toolyard's approvers.
    ClientOrPeople,
    /// The MCP door: it counts the client's calls as approved, or refuses what would be asked about.
    McpDoor,
}

/// Who sends an event.
struct HookCaller {
    is_attended: bool,
    workspace: WorkspaceId,
}

/// The door for hooks. Cheap to clone.
#[derive(Clone)]
pub struct HooksDoor(Arc<Inner>);

struct Inner {
    engine: Engine,
    provider: Arc<NativeProvider>,
    user: String,
    own: OwnTools,
    open: Mutex<HashMap<CallKey, VecDeque<OpenCall>>>,
}

/// A call between its two hooks.
struct OpenCall {
    tool: String,
    command: Option<String>,
    /// A person agreed to it.
    is_approved: bool,
    end: oneshot::Sender<EndReport>,
    call: JoinHandle<CallAnswer>,
}

impl HooksDoor {
    /// A door for the calls of a user's clients.
    pub fn new(engine: Engine, provider: Arc<NativeProvider>, user: String, own: OwnTools) -> Self {
        Self(Arc::new(Inner { engine, provider, user, own, open: Mutex::default() }))
    }

    /// Answers an event.
    pub async fn event(&self, request: HookRequest) -> HookAnswer {
        let HookRequest { client, payload, is_attended, workspace } = request;
        let asker = HookCaller { is_attended, workspace };
        let name = payload.get("hook_event_name").and_then(Value::as_str).unwrap_or_default();
        let decides = name.is_empty() || DECIDING.contains(&name);
        match Event::read(client, payload) {
            Ok(Event::Before(call)) => match call.own_tool.clone() {
                Some(tool) => self.before_own(call, tool, &asker).await.before(client),
                None => self.before(call, &asker).await.before(client),
            },
            Ok(Event::Permission(call)) => self.permission(&call).permission(client),
            Ok(Event::After(end)) => {
                self.close(end).await;
                noted(client)
            }
            Ok(Event::Quiet { session }) => {
                self.close_session(client, &session).await;
                noted(client)
            }
            Ok(Event::SettingsChanged { file }) => settings_changed(client, file.as_deref()),
            Ok(Event::Other) => noted(client),
            Err(why) if decides => HookAnswer::refuse(&format!("Toolyard refused the call: {why}")),
            Err(why) => {
                tracing::warn!(%client, why, "an event of a client's hook could not be read");
                noted(client)
            }
        }
    }

    async fn before(&self, native: NativeCall, asker: &HookCaller) -> Verdict {
        let classified = classify(&native);
        let (engine, provider) = (&self.0.engine, &self.0.provider);
        let run_id = engine.new_run_id();
        let (go, mut may_go) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut questions = engine.approvals().subscribe();
        let caller = self.caller(&native, &asker.workspace);
        let asks_itself = asker.is_attended && native.client == Client::Claude;
        // The client's own dialog answers, so the question is not refused when no approver is connected.
        let _presence = asks_itself.then(|| engine.approvals().approver_connected(&asker.workspace));
        let cancel = engine.call_token();
        let request = CallRequest { cancel: Some(cancel.clone()), ..call_request(&native, classified, run_id) };
        provider.wait_at(run_id, CallGate { go, end: ended });
        let mut call = tokio::spawn({
            let (engine, caller) = (engine.clone(), caller.clone());
            async move { engine.call(caller, request).await }
        });
        let mut asked: Option<String> = None;
        let deadline = tokio::time::sleep(HELD_FOR);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                biased;
                question = next_question(&mut questions, run_id) => {
                    asked = Some(question.request.description.clone());
                    if asks_itself {
                        self.answer_for_client(&question, &caller).await;
                    }
                }
                gone = &mut may_go => match gone {
                    Ok(()) => break,
                    // The call ended before it was allowed; its result has the reason.
                    Err(_) => {
                        provider.forget(run_id);
                        return match call.await {
                            Ok(answer) => refused(&answer.result),
                            Err(error) => Verdict::Deny(format!("Toolyard failed: {error}")),
                        };
                    }
                },
                ended = &mut call => {
                    provider.forget(run_id);
                    return match ended {
                        Ok(answer) => refused(&answer.result),
                        Err(error) => Verdict::Deny(format!("Toolyard failed: {error}")),
                    };
                }
                () = &mut deadline => {
                    cancel.cancel();
                    provider.forget(run_id);
                    return Verdict::Deny("Nobody answered in time. The call did not run.".to_owned());
                }
            }
        }
        let command = native.command().map(str::to_owned);
        let is_approved = asked.is_some() && !asks_itself;
        let open = OpenCall { tool: native.tool.clone(), command, is_approved, end, call };
        self.open().entry(native.key()).or_default().push_back(open);
        match asked {
            Some(reason) if asks_itself => Verdict::Ask(reason),
            Some(_) => Verdict::Allow("Approved in Toolyard".to_owned()),
            None => Verdict::NoOpinion,
        }
    }

    /// Asks about a call of one of Toolyard's own tools before its client makes it. The call itself comes through the MCP
    /// door under the same id, which records it and does not ask again. Gemini CLI sends no id, so there the MCP door
    /// asks.
    async fn before_own(&self, native: NativeCall, tool: String, asker: &HookCaller) -> Verdict {
        let own = &self.0.own;
        let Some(id) = native.call.clone().filter(|_| own.asked_by != OwnToolApproval::McpDoor) else {
            return Verdict::NoOpinion;
        };
        let engine = &self.0.engine;
        let asks_itself =
            asker.is_attended && native.client == Client::Claude && own.asked_by == OwnToolApproval::ClientOrPeople;
        let _presence = asks_itself.then(|| engine.approvals().approver_connected(&asker.workspace));
        let mut questions = engine.approvals().subscribe();
        // The same rights as the MCP door gives, so that the same policy holds.
        let caller = Arc::new(Caller {
            door: Door::Mcp,
            agent: own.agent.clone(),
            scopes: vec!["operator.admin".to_owned()],
            ..Caller::clone(&self.caller(&native, &asker.workspace))
        });
        let (run_id, cancel) = (engine.new_run_id(), engine.call_token());
        let request = CallRequest {
            tool,
            args: native.input,
            client_call: Some(id),
            run_id: Some(run_id),
            cancel: Some(cancel.clone()),
            ..CallRequest::default()
        };
        let asking = engine.ask_ahead(caller.clone(), request);
        tokio::pin!(asking);
        let deadline = tokio::time::sleep(HELD_FOR);
        tokio::pin!(deadline);
        let mut asked = None;
        loop {
            tokio::select! {
                biased;
                question = next_question(&mut questions, run_id), if asks_itself => {
                    asked = Some(question.request.description.clone());
                    self.answer_for_client(&question, &caller).await;
                }
                ended = &mut asking => return match (ended, asked) {
                    (Ok(AskedAhead::NotNeeded), _) => Verdict::NoOpinion,
                    (Ok(AskedAhead::Allowed), Some(reason)) => Verdict::Ask(reason),
                    (Ok(AskedAhead::Allowed), None) => Verdict::Allow("Approved in Toolyard".to_owned()),
                    (Err(failure), _) => Verdict::Deny(refusal(&failure)),
                },
                () = &mut deadline => {
                    cancel.cancel();
                    return Verdict::Deny("Nobody answered in time. The call did not run.".to_owned());
                }
            }
        }
    }

    /// Lets the client's own dialog answer. Its user can still decline, and then the call is closed without an effect.
    async fn answer_for_client(&self, question: &Approval, caller: &Caller) {
        let id = &question.request.id;
        let answered = self.0.engine.approvals().answer_by_client(id, ClientAnswer::AllowOnce, caller).await;
        if let Err(failure) = answered {
            tracing::warn!(%failure, "a question could not be left to the client");
        }
    }

    /// Whether a person has agreed to a call that the client is about to ask about.
    fn permission(&self, native: &NativeCall) -> Verdict {
        let command = native.command();
        let open = self.open();
        let mut calls =
            open.iter().filter(|(key, _)| key.is_of(native.client, &native.session)).flat_map(|(_, all)| all);
        let is_approved =
            calls.any(|call| call.is_approved && call.tool == native.tool && call.command.as_deref() == command);
        if is_approved { Verdict::Allow("Approved in Toolyard".to_owned()) } else { Verdict::NoOpinion }
    }

    async fn close(&self, CallEnd { key, has_failed, response }: CallEnd) {
        let call = {
            let mut open = self.open();
            let call = open.get_mut(&key).and_then(VecDeque::pop_front);
            if open.get(&key).is_some_and(VecDeque::is_empty) {
                open.remove(&key);
            }
            call
        };
        // A call of our own tools, or one from before this Toolyard started, which recovery closes.
        let Some(call) = call else { return };
        finish(call, EndReport { by: ClosedBy::Hook, has_failed, response }).await;
    }

    async fn close_session(&self, client: Client, session: &str) {
        let calls: Vec<OpenCall> = {
            let mut open = self.open();
            let keys: Vec<CallKey> = open.keys().filter(|key| key.is_of(client, session)).cloned().collect();
            keys.iter().filter_map(|key| open.remove(key)).flatten().collect()
        };
        for call in calls {
            finish(call, EndReport { by: ClosedBy::Session, has_failed: false, response: None }).await;
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<CallKey, VecDeque<OpenCall>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(&self, native: &NativeCall, workspace: &WorkspaceId) -> Arc<Caller> {
        let caller = Caller {
            door: Door::Hooks,
            principal: self.0.user.clone(),
            agent: native.client.as_str().to_owned(),
            session: Some(format!("{}:{}", native.client, native.session)),
            scopes: vec!["operator.write".to_owned()],
            is_person: false,
            workspace: WorkspaceId::default(),
        };
        Arc::new(caller.in_workspace(workspace.clone()))
    }
}

/// Closes a call and waits until its end is durable.
async fn finish(call: OpenCall, end_report: EndReport) {
    if call.end.send(end_report).is_err() {
        return;
    }
    match tokio::time::timeout(CLOSED_WITHIN, call.call).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::error!(%error, "a native call ended unexpectedly"),
        Err(_) => tracing::warn!("a native call takes long to close; its record follows"),
    }
}

async fn next_question(questions: &mut broadcast::Receiver<ApprovalEvent>, run_id: RunId) -> Arc<Approval> {
    loop {
        match questions.recv().await {
            Ok(ApprovalEvent::Requested(approval)) if approval.request.run_id == Some(run_id) => return approval,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending::<()>().await,
        }
    }
}

fn call_request(native: &NativeCall, classified: ClassifiedCall, run_id: RunId) -> CallRequest {
    let ClassifiedCall { class, reason, root, files, needs_snapshot, preview } = classified;
    let args = NativeArgs {
        client: native.client,
        tool: native.tool.clone(),
        input: native.input.clone(),
        cwd: native.cwd.clone(),
        project: root,
        session: native.session.clone(),
        prompt: native.prompt.clone(),
        subagent: native.subagent.clone(),
        subagent_kind: native.subagent_kind.clone(),
        call: native.call.clone(),
        reason: reason.clone(),
        files,
        snapshot: needs_snapshot,
    };
    let args: Map<String, Value> = match serde_json::to_value(&args) {
        Ok(Value::Object(args)) => args,
        _ => Map::new(),
    };
    CallRequest {
        tool: tool_of(class).to_owned(),
        args,
        preview: Some(format!("{preview} ({reason})")),
        title: Some(preview),
        run_id: Some(run_id),
        ..CallRequest::default()
    }
}

/// The verdict on a call that was not allowed.
fn refused(result: &ToolResult) -> Verdict {
    match &result.error {
        Some(failure) => Verdict::Deny(refusal(failure)),
        None => Verdict::Deny("Toolyard closed the call before it ran.".to_owned()),
    }
}

/// What the model and the person at the client read.
fn refusal(failure: &Failure) -> String {
    let detail = |name: &str| failure.details.as_ref().and_then(|details| details.get(name)).and_then(Value::as_str);
    let rule = detail("rule");
    let mut text = format!("Toolyard: {}", failure.message);
    if let Some(rule) = rule {
        text.push_str(&format!(" (rule: {rule})"));
    }
    let nobody = (detail("cause") == Some(DenialCause::NoRoute.as_str())).then_some(NOBODY_ASKED);
    if let Some(suggestion) = failure.suggestion.as_deref().or(nobody) {
        text.push(' ');
        text.push_str(suggestion);
    }
    text
}

/// Keeps Claude Code from taking settings in mid-session that switch hooks off.
fn settings_changed(client: Client, file: Option<&Path>) -> HookAnswer {
    let Some(file) = file else { return noted(client) };
    let Ok(text) = std::fs::read_to_string(file) else { return noted(client) };
    let settings: Option<Value> = serde_json::from_str(&text).ok();
    let off = settings.as_ref().and_then(|settings| settings.get("disableAllHooks")).and_then(Value::as_bool);
    match (settings.is_some(), off) {
        (true, Some(true)) => {
            HookAnswer::refuse("Toolyard: these settings switch hooks off, so the change is refused.")
        }
        (true, _) => noted(client),
        // Claude Code ignores settings that it cannot read, and hooks in them.
        (false, _) => HookAnswer::refuse("Toolyard: these settings are not JSON, so the change is refused."),
    }
}
