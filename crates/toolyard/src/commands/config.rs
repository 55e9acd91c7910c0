//! `toolyard config`: prints and checks the configuration.

use super::Outcome;
use crate::{
    authority,
    backend::Backend,
    cli::{self, ConfigCommand, Global},
    config,
    config_methods::{ConfigPatch, PatchParams},
    error_reference, method_reference, output,
    wiring::Needs,
};
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::Object;

pub(super) async fn run(global: &Global, command: ConfigCommand) -> Outcome {
    if let Some(generated) = generated(&command)? {
        output::data(generated.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(patch) = patch_of(&command)? {
        return change(global, patch).await;
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

/// The change that a command means; nothing for the other commands.
fn patch_of(command: &ConfigCommand) -> Result<Option<Object>, Failure> {
    Ok(Some(match command {
        ConfigCommand::Set { key, value } => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.clone()));
            nested(key, value)?
        }
        ConfigCommand::Unset { key } => nested(key, Value::Null)?,
        ConfigCommand::Patch { file } => read_patch(file)?,
        _ => return Ok(None),
    }))
}

fn usage(message: String) -> Failure {
    Failure::new(ErrorCode::UsageError, message)
}

/// `a.b` and a value as `{"a": {"b": value}}`. A name with a dot in it is quoted, as in TOML.
fn nested(key: &str, value: Value) -> Result<Object, Failure> {
    let keys = toml_edit::Key::parse(key).map_err(|_| {
        usage(format!("{key} is not a key")).suggest("Write it as in config.toml, such as notify.quiet.from.")
    })?;
    let value = keys.iter().rev().fold(value, |value, key| json!({key.get(): value}));
    match value {
        Value::Object(patch) => Ok(patch),
        _ => Err(usage("the key is empty".to_owned())),
    }
}

fn read_patch(file: &Path) -> Result<Object, Failure> {
    let shown = file.display();
    let unread = |error: std::io::Error| usage(format!("{shown} cannot be read: {error}"));
    let text = match file == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()).map_err(unread)?,
        false => std::fs::read_to_string(file).map_err(unread)?,
    };
    let as_json = serde_json::from_str::<Object>(&text);
    as_json.or_else(|_| toml::from_str::<Object>(&text)).map_err(|_| {
        usage(format!("{shown} is neither a JSON object nor TOML")).suggest("`toolyard config show` prints the shape.")
    })
}

/// Changes the configuration, in the running Toolyard if there is one.
async fn change(global: &Global, patch: Object) -> Outcome {
    let home = config::resolve(global)?.home;
    let mut backend = Backend::open(global, Needs::Store).await?;
    let text = crate::server_file::text_of(&home.config())?;
    let params = PatchParams { base_hash: config::file_hash(&home, &text)?, patch };
    let is_running = backend.is_remote();
    let outcome = backend.call::<ConfigPatch>(&params, None).await;
    backend.close().await;
    let patched = outcome?;
    if global.json {
        output::json(&patched);
        return Ok(ExitCode::SUCCESS);
    }
    if patched.changed.is_empty() {
        output::note("nothing changed: the configuration says so already");
    }
    patched.changed.iter().for_each(|key| output::data(key));
    if is_running && !patched.needs_restart.is_empty() {
        output::note(&format!("used after a restart of Toolyard: {}", patched.needs_restart.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

/// The generated pages, which need no configuration; nothing for the other commands.
fn generated(command: &ConfigCommand) -> Result<Option<String>, Failure> {
    let unreadable = |error: std::io::Error| Failure::new(ErrorCode::InternalError, error.to_string());
    Ok(Some(match command {
        ConfigCommand::Reference => config::reference(),
        ConfigCommand::Authority => authority::page().map_err(crate::wiring::refused)?,
        ConfigCommand::Commands => cli::reference::page(),
        ConfigCommand::Schema => config::schema_text(),
        ConfigCommand::Methods => method_reference::page().map_err(unreadable)?,
        ConfigCommand::MethodSchemas => method_reference::schemas().map_err(unreadable)?,
        ConfigCommand::ErrorCodes => error_reference::page(),
        ConfigCommand::MethodTypes => method_reference::types().map_err(unreadable)?,
        ConfigCommand::ManPages { folder } => {
            let command = <cli::Cli as clap::CommandFactory>::command();
            clap_mangen::generate_to(command, folder).map_err(|error| {
                Failure::new(ErrorCode::UsageError, format!("cannot write man pages to {}: {error}", folder.display()))
            })?;
            String::new()
        }
        ConfigCommand::Show
        | ConfigCommand::Check
        | ConfigCommand::Set { .. }
        | ConfigCommand::Unset { .. }
        | ConfigCommand::Patch { .. } => return Ok(None),
    }))
}
