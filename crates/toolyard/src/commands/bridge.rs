//! `toolyard bridge`: the bridge's methods of a running gateway, for people and scripts.

use super::{Outcome, gateway, input};
use crate::{
    cli::{BridgeCommand, GatewayTarget, Global, Verdict},
    output,
};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use toolyard_client::local::unread;
use toolyard_service::{
    Method,
    bridge::{
        BehaviorWord, BridgeClose, BridgeInbound, BridgeOpen, BridgeOutbound, BridgePermissionReply, BridgeStatus,
        InboundParams, OutboundParams, ReplyParams, SessionParams, StatusParams,
    },
    params::{Count, Text},
};

/// The scope that is needed to answer a permission question, to name who may answer, and to see the open questions.
pub(super) const APPROVALS: &str = "operator.approvals";

/// Scopes that a command needs in addition to its method's.
fn more_scopes(command: &BridgeCommand) -> &'static [&'static str] {
    let approves = match command {
        BridgeCommand::Open { opening, .. } => opening.names_senders(),
        BridgeCommand::Inbound { content, .. } => toolyard_bridge::verdict::read(content).is_some(),
        // A paired device may lack the scope; it is still shown everything but the questions.
        BridgeCommand::Status { target, .. } | BridgeCommand::Outbound { target, .. } => !target.device,
        _ => false,
    };
    if approves { &[APPROVALS] } else { &[] }
}

pub(super) async fn run(global: &Global, command: BridgeCommand) -> Outcome {
    let more = more_scopes(&command);
    match command {
        BridgeCommand::Open { session, opening, target } => {
            tell::<BridgeOpen>(global, &target, &opening.params(&session), more).await
        }
        BridgeCommand::Close { session, target } => {
            let params = SessionParams { session_key: Text(session), agent_id: None };
            tell::<BridgeClose>(global, &target, &params, more).await
        }
        BridgeCommand::Inbound { session, content, meta, target } => {
            let content =
                if content == "-" { String::from_utf8_lossy(&input::read_source("-")?).into_owned() } else { content };
            let meta = input::json_object(&meta)?;
            let params = InboundParams { session_key: Text(session), agent_id: None, content: Text(content), meta };
            tell::<BridgeInbound>(global, &target, &params, more).await
        }
        BridgeCommand::Outbound { session, after, target } => {
            let params = OutboundParams { session_key: Text(session), agent_id: None, after: Some(Count(after)) };
            tell::<BridgeOutbound>(global, &target, &params, more).await
        }
        BridgeCommand::Reply { session, request_id, verdict, target } => {
            let behavior = match verdict {
                Verdict::Allow => BehaviorWord::Allow,
                Verdict::Deny => BehaviorWord::Deny,
            };
            let params =
                ReplyParams { session_key: Text(session), agent_id: None, request_id: Text(request_id), behavior };
            tell::<BridgePermissionReply>(global, &target, &params, more).await
        }
        BridgeCommand::Status { session, target } => {
            let params = StatusParams { session_key: session.map(Text), agent_id: None };
            tell::<BridgeStatus>(global, &target, &params, more).await
        }
    }
}

/// Whether an answer says that nothing was done.
#[derive(Deserialize)]
struct Done {
    #[serde(default = "done")]
    ok: bool,
}

fn done() -> bool {
    true
}

/// Calls a method and prints what the gateway answers.
async fn tell<M: Method>(global: &Global, target: &GatewayTarget, params: &M::Params, more: &[&str]) -> Outcome
where
    M::Params: Serialize,
{
    match gateway::ask::<M>(global, target, params, more).await? {
        Ok(payload) => {
            output::json(&payload);
            let done = Done::deserialize(&payload).map_err(|error| unread(M::NAME, &error))?;
            Ok(if done.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            output::json(&gateway::Refused { ok: false, error });
            Ok(ExitCode::FAILURE)
        }
    }
}
