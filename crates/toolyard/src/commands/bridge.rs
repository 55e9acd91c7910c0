//! `toolyard bridge`: the bridge's methods of a running gateway, for people and scripts.

use super::{Outcome, gateway, input};
use crate::{
    cli::{BridgeCommand, Global, Verdict},
    output,
};
use serde_json::{Value, json};
use std::process::ExitCode;

/// What a verdict, saying who may give one, and seeing the questions need.
pub(super) const APPROVALS: &str = "operator.approvals";

/// Scopes that a command needs beside its method's.
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
    let (method, params, target) = match command {
        BridgeCommand::Open { session, opening, target } => {
            ("bridge.open", gateway::without_nulls(opening.params(&session)), target)
        }
        BridgeCommand::Close { session, target } => ("bridge.close", json!({"sessionKey": session}), target),
        BridgeCommand::Inbound { session, content, meta, target } => {
            let content =
                if content == "-" { String::from_utf8_lossy(&input::read_source("-")?).into_owned() } else { content };
            let meta = Value::Object(input::json_object(&meta)?);
            ("bridge.inbound", json!({"sessionKey": session, "content": content, "meta": meta}), target)
        }
        BridgeCommand::Outbound { session, after, target } => {
            ("bridge.outbound", json!({"sessionKey": session, "after": after}), target)
        }
        BridgeCommand::Reply { session, request_id, verdict, target } => {
            let behavior = match verdict {
                Verdict::Allow => "allow",
                Verdict::Deny => "deny",
            };
            let params = json!({"sessionKey": session, "request_id": request_id, "behavior": behavior});
            ("bridge.permission.reply", params, target)
        }
        BridgeCommand::Status { session, target } => {
            ("bridge.status", gateway::without_nulls(json!({"sessionKey": session})), target)
        }
    };
    match gateway::ask_as(global, &target, method, params, more).await? {
        Ok(payload) => {
            output::json(&payload);
            Ok(if payload["ok"] == false { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Err(error) => {
            output::json(&gateway::Refused { ok: false, error });
            Ok(ExitCode::FAILURE)
        }
    }
}
