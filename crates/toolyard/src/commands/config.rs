//! `toolyard config`: prints and checks the configuration.

use super::Outcome;
use crate::{
    authority,
    backend::Backend,
    cli::{self, ConfigCommand, Global},
    config::{self, Resolved},
    config_methods::{
        ConfigPatch, ConfigPush, ConfigRollback, ConfigVersion, ConfigVersions, PatchParams, PatchedConfig, PushParams,
        RollbackParams, VersionParams,
    },
    error_reference, method_reference, output,
    shared_config::VersionInfo,
    stores,
    wiring::RequiredParts,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Method, NoParams, Object};

pub(super) async fn run(global: &Global, command: ConfigCommand) -> Outcome {
    if let Some(generated) = generated(&command)? {
        output::data(generated.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(patch) = patch_of(&command)? {
        return change(global, patch).await;
    }
    match command {
        ConfigCommand::Versions => return versions(global).await,
        ConfigCommand::Show { at: Some(version) } => return show_version(global, version).await,
        ConfigCommand::Push { dry_run } => {
            let made = answer::<ConfigPush>(global, &PushParams { dry_run }).await?;
            return Ok(report(global, &made.0, made.1 && !dry_run));
        }
        ConfigCommand::Rollback { to } => {
            let made = answer::<ConfigRollback>(global, &RollbackParams { version: to }).await?;
            return Ok(report(global, &made.0, made.1));
        }
        _ => {}
    }
    let mut resolved = config::resolve(global)?;
    let file = resolved.home.config();
    match command {
        ConfigCommand::Show { .. } => {
            if stores::url(&resolved).is_some() {
                drop(stores::open_agreed(&mut resolved)?);
            }
            show(global, &resolved)?;
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

/// Prints the configuration that this home works with.
fn show(global: &Global, resolved: &Resolved) -> Result<(), Failure> {
    let (file, shown) = (resolved.home.config(), resolved.config.redacted());
    let version = (resolved.version > 0).then_some(resolved.version);
    if global.json {
        let mut printed = json!({"home": resolved.home.path(), "file": file, "vault": resolved.vault, "config": shown});
        if let (Some(version), Some(printed)) = (version, printed.as_object_mut()) {
            printed.insert("version".to_owned(), version.into());
        }
        output::json(&printed);
        return Ok(());
    }
    let text = toml::to_string_pretty(&shown).map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
    output::data(&format!(
        "# home  {}\n# file  {}{}\n# vault {}\n{}\n{}",
        resolved.home.path().display(),
        file.display(),
        if file.exists() { "" } else { " (not there: defaults)" },
        resolved.vault.display(),
        version.map(|version| format!("# version {version} of the cluster's configuration\n")).unwrap_or_default(),
        text.trim_end()
    ));
    Ok(())
}

/// Calls a method, in the running Toolyard if there is one. Answers also whether there is one.
async fn answer<M: Method>(global: &Global, params: &M::Params) -> Result<(M::Answer, bool), Failure>
where
    M::Params: Serialize,
    M::Answer: DeserializeOwned,
{
    let mut backend = Backend::open(global, RequiredParts::Store).await?;
    let is_running = backend.is_remote();
    let outcome = backend.call::<M>(params, None).await;
    backend.close().await;
    Ok((outcome?, is_running))
}

/// Lists the versions of the cluster's configuration.
async fn versions(global: &Global) -> Outcome {
    let (answer, _) = answer::<ConfigVersions>(global, &NoParams {}).await?;
    if global.json {
        output::json(&answer);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = answer.versions.iter().map(|version| {
        let restores = version.restores.map(|earlier| format!("as version {earlier}: ")).unwrap_or_default();
        vec![
            version.version.to_string(),
            version.at.to_string(),
            version.by.clone(),
            version.node.clone(),
            format!("{restores}{}", version.changed.join(", ")),
        ]
    });
    output::data(&output::table(&rows.collect::<Vec<_>>()));
    if !answer.ignored.is_empty() {
        output::note(&format!(
            "config.toml of this node sets these differently, and they are not used: {}",
            answer.ignored.join(", ")
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_version(global: &Global, version: u64) -> Outcome {
    let (shown, _) = answer::<ConfigVersion>(global, &VersionParams { version: Some(version) }).await?;
    if global.json {
        output::json(&shown);
        return Ok(ExitCode::SUCCESS);
    }
    let text =
        toml::to_string_pretty(&shown.config).map_err(|e| Failure::new(ErrorCode::InternalError, e.to_string()))?;
    let VersionInfo { version, at, by, node, .. } = &shown.info;
    output::data(&format!("# version {version}, made {at} by {by} at {node}\n\n{}", text.trim_end()));
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
    let (patched, is_running) = answer::<ConfigPatch>(global, &PatchParams { base_hash: None, patch }).await?;
    Ok(report(global, &patched, is_running))
}

/// Changes the cluster's configuration for a command that would write into `config.toml` on a single machine.
pub(super) async fn change_shared(global: &Global, patch: Object) -> Result<PatchedConfig, Failure> {
    Ok(answer::<ConfigPatch>(global, &PatchParams { base_hash: None, patch }).await?.0)
}

fn report(global: &Global, patched: &PatchedConfig, is_running: bool) -> ExitCode {
    if global.json {
        output::json(patched);
        return ExitCode::SUCCESS;
    }
    if patched.changed.is_empty() {
        output::note("nothing changed: the configuration says so already");
    }
    patched.changed.iter().for_each(|key| output::data(key));
    if is_running && !patched.needs_restart.is_empty() {
        output::note(&format!("used after a restart of Toolyard: {}", patched.needs_restart.join(", ")));
    }
    if let Some(version) = patched.version {
        output::note(&format!("version {version} of the cluster's configuration"));
    }
    ExitCode::SUCCESS
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
        ConfigCommand::Show { .. }
        | ConfigCommand::Versions
        | ConfigCommand::Push { .. }
        | ConfigCommand::Rollback { .. }
        | ConfigCommand::Check
        | ConfigCommand::Set { .. }
        | ConfigCommand::Unset { .. }
        | ConfigCommand::Patch { .. } => return Ok(None),
    }))
}
