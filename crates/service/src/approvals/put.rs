//! Questions that clients ask themselves: `plugin.approval.request` and `exec.approval.request`, answered in one
//! response or two.

use super::{
    Asker, ExecApprovalRequest, PluginApprovalRequest,
    question::{DecisionWord, ExecQuestion, PluginQuestion, REQUEST},
    show::Decided,
};
use crate::{Call, Handle, Hub, MethodError, Object, RpcError, express::promptly, params::Count};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolyard_engine::approvals::{Answer, ApprovalRequest, MAX_WAIT_MS, Opened, REQUESTER, Route};
use toolyard_protocol::{WorkspaceId, canonical};

/// How long a question waits by default, in milliseconds.
const DEFAULT_WAIT_MS: u64 = 120_000;
/// Characters of a command that its question shows.
const MAX_DESCRIPTION: usize = 512;

/// A question that is about to be asked.
struct Question {
    id: String,
    kind: &'static str,
    title: String,
    description: String,
    severity: &'static str,
    tool: String,
    agent: Option<String>,
    session: Option<String>,
    /// What an allow-always would cover, and nothing else. The possible answers are part of it, so that an allow-always
    /// does not answer a later question that excludes allow-always.
    subject: Value,
    /// The client's own description of the question.
    words: Value,
    wait: Option<Count>,
    is_two_phase: bool,
    /// Whether the question ends at once if nobody can answer it; otherwise it waits until somebody can.
    needs_route: bool,
}

/// The first of two responses: the question has been asked.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted<'a> {
    status: &'static str,
    id: &'a str,
    delivery_route: &'static str,
    created_at_ms: i64,
    expires_at_ms: i64,
}

fn unwritten(error: serde_json::Error) -> MethodError {
    RpcError::unavailable(format!("the question cannot be kept: {error}")).into()
}

impl Handle<PluginApprovalRequest> for Hub {
    async fn handle(&self, call: &Call<'_>, params: PluginQuestion) -> Result<Decided, MethodError> {
        let subject =
            (&params.plugin_id, &params.tool_name, &params.title, &params.description, &params.allowed_decisions);
        let question = Question {
            id: call.caller.workspace.key(&format!("plugin:{}", uuid::Uuid::new_v4())).into_owned(),
            kind: "plugin",
            title: params.title.to_string(),
            description: params.description.to_string(),
            severity: params.severity.map_or("warning", |severity| severity.as_str()),
            tool: params.tool_name.as_deref().unwrap_or("plugin").to_owned(),
            agent: params.agent_id.as_deref().map(str::to_owned),
            session: params.session_key.as_deref().map(str::to_owned),
            subject: serde_json::to_value(subject).map_err(unwritten)?,
            words: serde_json::to_value(&params).map_err(unwritten)?,
            wait: params.timeout_ms,
            is_two_phase: params.two_phase,
            needs_route: true,
        };
        self.put(call, question).await
    }
}

impl Handle<ExecApprovalRequest> for Hub {
    async fn handle(&self, call: &Call<'_>, mut params: ExecQuestion) -> Result<Decided, MethodError> {
        let argv = params.command_argv.as_ref().filter(|argv| !argv.is_empty());
        let command = match (&params.command, argv) {
            (Some(command), _) => command.to_string(),
            (None, Some(argv)) => argv.join(" "),
            (None, None) => String::new(),
        };
        let missing = match params.host.as_deref() == Some("node") {
            true if params.node_id.is_none() => Some("nodeId is required for host=node"),
            true if params.system_run_plan.is_none() => Some("systemRunPlan is required for host=node"),
            true if argv.is_none() => Some("commandArgv is required for host=node"),
            _ if command.trim().is_empty() => Some("command is required"),
            _ if params.id.as_ref().is_some_and(|id| id.starts_with("plugin:")) => {
                Some("approval ids starting with plugin: are reserved")
            }
            _ => None,
        };
        if let Some(missing) = missing {
            return Err(RpcError::invalid(missing).into());
        }
        params.env_keys = params.env.take().map(|env| {
            let mut names: Vec<String> = env.into_iter().map(|(name, _)| name).collect();
            names.sort();
            names
        });
        params.command = Some(command.as_str().into());
        let subject = (
            &command,
            &params.command_argv,
            &params.cwd,
            &params.host,
            &params.node_id,
            &params.env_keys,
            &params.ask,
            &params.unavailable_decisions,
        );
        let id = params.id.as_deref().map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
        if !WorkspaceId::of(&id).0.is_default() {
            return Err(RpcError::invalid("approval ids starting with @ and a name are reserved").into());
        }
        let question = Question {
            id: call.caller.workspace.key(&id).into_owned(),
            kind: "exec",
            title: "Run a command".to_owned(),
            description: command.chars().take(MAX_DESCRIPTION).collect(),
            severity: "warning",
            tool: "exec".to_owned(),
            agent: params.agent_id.as_deref().map(str::to_owned),
            session: params.session_key.as_deref().map(str::to_owned),
            subject: serde_json::to_value(subject).map_err(unwritten)?,
            words: serde_json::to_value(&params).map_err(unwritten)?,
            wait: params.timeout_ms,
            is_two_phase: params.two_phase,
            needs_route: params.require_delivery_route.unwrap_or(true),
        };
        self.put(call, question).await
    }
}

impl Hub {
    /// Asks a client's question and waits for the answer, with one response or two.
    async fn put(&self, call: &Call<'_>, question: Question) -> Result<Decided, MethodError> {
        let client = call.client()?;
        let wait = question.wait.map_or(DEFAULT_WAIT_MS, |wait| wait.0).clamp(1, MAX_WAIT_MS);
        let engine = self.service().engine();
        let created_at = engine.clock().now();
        let expires_at = created_at.checked_add(Duration::from_millis(wait)).unwrap_or(created_at);
        let request = ApprovalRequest {
            id: question.id.clone(),
            kind: question.kind.to_owned(),
            title: question.title,
            description: question.description,
            severity: question.severity.to_owned(),
            tool: question.tool,
            args_hash: canonical::hash(&question.subject).unwrap_or_default(),
            agent: question.agent.unwrap_or_else(|| "main".to_owned()),
            session: question.session.map(|key| call.caller.workspace.key(&key).into_owned()),
            rule: format!("{}.approval.request", question.kind),
            extra: Object::from_iter([
                (REQUEST.to_owned(), question.words),
                (REQUESTER.to_owned(), Asker::note(client.connection).into()),
            ]),
            created_at,
            expires_at,
            ..ApprovalRequest::default()
        };
        let last = |decision: Option<DecisionWord>| Decided {
            id: question.id.clone(),
            decision,
            created_at_ms: created_at.as_millisecond(),
            expires_at_ms: expires_at.as_millisecond(),
        };
        let is_heard = Asker::of(&request).is_heard(self, question.kind);
        let route = match (is_heard, question.needs_route) {
            (true, _) => Route::AnyApprover,
            (false, true) => Route::None,
            (false, false) => Route::Later,
        };
        let approvals = engine.approvals();
        let waiting = match approvals.open(request, route, wait).await? {
            Opened::Answered(Answer::Allowed { .. }) => return Ok(last(Some(DecisionWord::AllowAlways))),
            Opened::Answered(_) => return Ok(last(None)),
            Opened::Waiting(waiting) => waiting,
        };
        if question.is_two_phase {
            let accepted = Accepted {
                status: "accepted",
                id: &question.id,
                delivery_route: if is_heard { "approval-client" } else { "none" },
                created_at_ms: created_at.as_millisecond(),
                expires_at_ms: expires_at.as_millisecond(),
            };
            (client.early)(serde_json::value::to_raw_value(&accepted).map_err(unwritten)?);
        }
        approvals.wait(waiting, &CancellationToken::new()).await?;
        let (approvals, id) = (approvals.clone(), question.id.clone());
        let settled = promptly(move || Ok(approvals.get(&id)?)).await?;
        Ok(settled.map_or_else(|| last(None), |approval| Decided::from(&approval)))
    }
}
