//! `toolyard config`: what is configured, and whether it can be.

use super::Outcome;
use crate::{
    authority,
    cli::{self, ConfigCommand, Global},
    config, error_reference, method_reference, output,
};
use serde_json::json;
use std::process::ExitCode;
use toolyard_protocol::{ErrorCode, Failure};

pub(super) fn run(global: &Global, command: ConfigCommand) -> Outcome {
    if let Some(generated) = generated(&command)? {
        output::data(generated.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let resolved = config::resolve(global)?;
    let file = resolved.home.config();
    match command {
        ConfigCommand::Show => {
            let shown = resolved.config.redacted();
            if global.json {
                output::json(
                    &json!({"home": resolved.home.path(), "file": file, "vault": resolved.vault, "config": shown}),
                );
            } else {
                let text = toml::to_string_pretty(&shown)
                    .map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
                output::data(&format!(
                    "# home  {}\n# file  {}{}\n# vault {}\n\n{}",
                    resolved.home.path().display(),
                    file.display(),
                    if file.exists() { "" } else { " (not there: defaults)" },
                    resolved.vault.display(),
                    text.trim_end()
                ));
            }
        }
        ConfigCommand::Check => {
            if global.json {
                output::json(&json!({"ok": true, "file": file, "exists": file.exists()}));
            } else {
                output::data(&format!(
                    "ok: {}{}",
                    file.display(),
                    if file.exists() { "" } else { " (not there: defaults)" }
                ));
            }
        }
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The generated pages, which need no configuration; nothing for the other commands.
fn generated(command: &ConfigCommand) -> Result<Option<String>, Failure> {
    Ok(Some(match command {
        ConfigCommand::Reference => config::reference(),
        ConfigCommand::Authority => authority::page().map_err(crate::wiring::refused)?,
        ConfigCommand::Commands => cli::reference::page(),
        ConfigCommand::Methods => method_reference::page(),
        ConfigCommand::MethodSchemas => {
            method_reference::schemas().map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?
        }
        ConfigCommand::ErrorCodes => error_reference::page(),
        ConfigCommand::MethodTypes => method_reference::types(),
        ConfigCommand::ManPages { folder } => {
            let command = <cli::Cli as clap::CommandFactory>::command();
            clap_mangen::generate_to(command, folder).map_err(|error| {
                Failure::new(ErrorCode::UsageError, format!("cannot write man pages to {}: {error}", folder.display()))
            })?;
            String::new()
        }
        ConfigCommand::Show | ConfigCommand::Check => return Ok(None),
    }))
}
