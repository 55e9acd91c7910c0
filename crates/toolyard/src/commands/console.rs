//! `toolyard console`: creates a one-use link that pairs a browser with the owner's rights, and opens it in the
//! desktop's browser.

use super::Outcome;
use crate::{
    backend,
    cli::{ConsoleArgs, Global},
    config, home,
    output::{self, Paint},
};
use qrcode::{EcLevel, QrCode, render::unicode};
use std::{
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};
use toolyard_engine::Caller;
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{
    Method, NoParams, Service,
    console::{ConsoleCode, ConsoleCodeParams, NewCode, Rights},
    devices::DevicesAnswer,
    local::DevicesList,
};

pub(super) async fn run(global: &Global, args: &ConsoleArgs) -> Outcome {
    let resolved = config::resolve(global)?;
    let running = if global.in_process { None } else { backend::running(&resolved, global).await? };
    let Some(mut client) = running else {
        let home = resolved.home.path().display();
        return Err(Failure::new(ErrorCode::Unavailable, format!("no Toolyard runs for the home {home}"))
            .suggest(format!("Start one with `toolyard --home {home} up`, then run this again.")));
    };
    let rights = match (args.read_only, args.approver) {
        (true, _) => Rights::Viewer,
        (false, true) => Rights::Approver,
        (false, false) => Rights::Owner,
    };
    let made = client.call::<ConsoleCode>(&ConsoleCodeParams { rights, phone: args.phone }, None).await?;
    let opened = !args.print && !args.phone && open(&made.url);
    if args.phone && is_loopback(&made.url) && !global.quiet {
        output::note(&format!(
            "hint: a phone cannot reach {}; set gateway.publicUrl to an https address that leads here",
            address_of(&made.url)
        ));
    }
    if global.json {
        output::json(&made);
        return Ok(ExitCode::SUCCESS);
    }
    if args.phone {
        output::data(&picture(&made.url)?);
    }
    output::data(&made.url);
    if !global.quiet {
        let what = if opened { "opened in the browser" } else { "open it in a browser" };
        output::note(&format!("{what}; it pairs one browser as {} until {}", rights.as_str(), made.expires_at));
    }
    Ok(ExitCode::SUCCESS)
}

fn address_of(url: &str) -> &str {
    url.split_once("/pair#").map_or(url, |(address, _)| address)
}

fn is_loopback(url: &str) -> bool {
    let host = address_of(url).split_once("://").map_or("", |(_, host)| host);
    host.starts_with("127.") || host.starts_with("[::1]") || host.starts_with("localhost")
}

/// The address as a QR code in half blocks. On a terminal it is black on white, as cameras expect, whatever the terminal's
/// colours are.
fn picture(url: &str) -> Result<String, Failure> {
    let code = QrCode::with_error_correction_level(url, EcLevel::M)
        .map_err(|error| Failure::new(ErrorCode::InternalError, format!("the code cannot be drawn: {error}")))?;
    let drawn = code.render::<unicode::Dense1x2>().build();
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return Ok(drawn);
    }
    let lines: Vec<String> = drawn.lines().map(|line| format!("\u{1b}[30;47m{line}\u{1b}[0m")).collect();
    Ok(lines.join("\n"))
}

/// Opens an address in the desktop's browser. False where there is no desktop.
fn open(url: &str) -> bool {
    let has_display = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match std::env::consts::OS {
        "macos" => "open",
        _ if has_display("DISPLAY") || has_display("WAYLAND_DISPLAY") => "xdg-open",
        _ => return false,
    };
    let started =
        Command::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        Ok(mut child) => {
            // The program passes the address to the browser and ends; its exit code is not used.
            std::thread::spawn(move || drop(child.wait()));
            true
        }
        Err(error) => {
            tracing::debug!(%error, program, "no browser could be opened");
            false
        }
    }
}

/// What `toolyard up` says about the console: a link that pairs the first browser, or where the console is.
pub(super) async fn invite(service: &Service) {
    let Some(address) = service.console().address() else { return };
    let paint = Paint::stderr();
    let caller = Arc::new(Caller::cli(home::user_name()));
    if is_paired(service, caller.clone()).await {
        return output::note(&format!("  console  {address} (pair another browser with `toolyard console`)"));
    }
    let made = service.call(caller, ConsoleCode::NAME, serde_json::json!({}), None).await;
    match made.map(|answer| serde_json::from_str::<NewCode>(answer.get())) {
        Ok(Ok(made)) => {
            output::note(
                "Open this in a browser to see what agents do and to answer them. It pairs one browser, within two",
            );
            output::note("minutes; `toolyard console` makes another link.");
            output::note(&format!("  {}", paint.bold(&made.url)));
            if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
                open(&made.url);
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, "the link to the console cannot be read"),
        Err(failure) => tracing::warn!(error = %failure.message, "no link to the console could be made"),
    }
}

/// Whether a browser is paired already. Where that cannot be known, no link is printed.
async fn is_paired(service: &Service, caller: Arc<Caller>) -> bool {
    let Ok(params) = serde_json::to_value(NoParams {}) else { return true };
    let answer = service.call(caller, DevicesList::NAME, params, None).await.ok();
    let devices = answer.and_then(|answer| serde_json::from_str::<DevicesAnswer>(answer.get()).ok());
    devices.is_none_or(|devices| devices.paired.iter().any(|device| device.console.is_some()))
}
