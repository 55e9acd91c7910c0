//! `toolyard devices`: who may connect from elsewhere.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{DevicesCommand, Global},
    output,
    wiring::Needs,
};
use serde_json::{Value, json};
use std::process::ExitCode;

pub(super) async fn run(global: &Global, command: DevicesCommand) -> Outcome {
    let (method, params) = match &command {
        DevicesCommand::List => ("devices.list", json!({})),
        DevicesCommand::Approve { request } => ("devices.approve", json!({"id": request})),
        DevicesCommand::Reject { request } => ("devices.reject", json!({"id": request})),
        DevicesCommand::Revoke { device } => ("devices.revoke", json!({"id": device})),
    };
    let mut backend = Backend::open(global, Needs::Store).await?;
    let answer = backend.call(method, params, None).await;
    backend.close().await;
    let answer = answer?;
    if global.json {
        output::json(&answer);
        return Ok(ExitCode::SUCCESS);
    }
    let own = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    match command {
        DevicesCommand::List => {
            for (title, key) in [("waiting", "pending"), ("paired", "paired")] {
                for device in answer[key].as_array().map(Vec::as_slice).unwrap_or_default() {
                    let scopes: Vec<&str> =
                        device["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                    output::data(&format!(
                        "{title:<8} {:.12}  {:<20} {:<10} {}  {}",
                        own(device, "deviceId"),
                        own(device, "clientId"),
                        own(device, "platform"),
                        scopes.join(","),
                        own(device, "requestId"),
                    ));
                }
            }
        }
        DevicesCommand::Approve { .. } => output::data(&format!("let in: {}", own(&answer, "deviceId"))),
        DevicesCommand::Reject { .. } => output::data(&format!("turned away: {}", own(&answer, "deviceId"))),
        DevicesCommand::Revoke { .. } => output::data(&format!("forgotten: {}", own(&answer, "deviceId"))),
    }
    Ok(ExitCode::SUCCESS)
}
