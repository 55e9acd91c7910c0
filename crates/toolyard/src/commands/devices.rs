//! `toolyard devices`: the devices that may connect from other machines.

use super::Outcome;
use crate::{
    backend::Backend,
    cli::{DevicesCommand, Global},
    output,
    wiring::RequiredParts,
};
use serde::Serialize;
use std::process::ExitCode;
use toolyard_protocol::Failure;
use toolyard_service::{
    NoParams,
    devices::{DevicesAnswer, ShownDevice},
    local::{DevicesApprove, DevicesList, DevicesReject, DevicesRevoke, IdParams},
};

pub(super) async fn run(global: &Global, command: DevicesCommand) -> Outcome {
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let outcome = answer(global, &mut backend, command).await;
    backend.close().await;
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn answer(global: &Global, backend: &mut Backend, command: DevicesCommand) -> Result<(), Failure> {
    match command {
        DevicesCommand::List => {
            let devices = backend.call::<DevicesList>(&NoParams {}, None).await?;
            if global.json { output::json(&devices) } else { list(&devices) }
        }
        DevicesCommand::Approve { request } => {
            let device = backend.call::<DevicesApprove>(&IdParams { id: request }, None).await?;
            say(global, &device, "let in", &device.device_id);
        }
        DevicesCommand::Reject { request } => {
            let device = backend.call::<DevicesReject>(&IdParams { id: request }, None).await?;
            say(global, &device, "turned away", &device.device_id);
        }
        DevicesCommand::Revoke { device } => {
            let device = backend.call::<DevicesRevoke>(&IdParams { id: device }, None).await?;
            say(global, &device, "forgotten", &device.device_id);
        }
    }
    Ok(())
}

fn say(global: &Global, answer: &impl Serialize, word: &str, device: &str) {
    if global.json {
        output::json(answer);
    } else {
        output::data(&format!("{word}: {device}"));
    }
}

fn list(devices: &DevicesAnswer) {
    let line = |title: &str, device: &ShownDevice, request: &str| {
        let name = device.display_name.as_deref().unwrap_or(&device.client_id);
        let may = match &device.console {
            Some(console) => format!("console {}, until {}", console.rights.as_str(), console.expires_at),
            None => device.scopes.join(","),
        };
        output::data(&format!(
            "{title:<8} {:.12}  {:<20} {:<10} {may}  {request}",
            device.device_id,
            output::plain(name),
            device.platform,
        ));
    };
    devices.pending.iter().for_each(|waiting| line("waiting", &waiting.device, &waiting.request_id));
    devices.paired.iter().for_each(|device| line("paired", device, ""));
}
