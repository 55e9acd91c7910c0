//! Upstream MCP servers in `config.toml`: added at its end and taken out of it, so that the rest of the file stays as
//! people wrote it. The complete new text is parsed before it replaces the file.

use crate::config::Config;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};
use toolyard_mcp::client::{SandboxConfig, ServerConfig};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::Object;

/// The part of a server's configuration that is written. What is left out keeps its default.
#[derive(Serialize)]
struct WrittenServer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    args: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<&'a SandboxConfig>,
}

#[derive(Serialize)]
struct Servers<'a> {
    /// `None` removes a server, in a patch.
    servers: BTreeMap<&'a str, Option<WrittenServer<'a>>>,
}

#[derive(Serialize)]
struct File<'a> {
    mcp: Servers<'a>,
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::StoreUnavailable, format!("{} cannot be written: {error}", path.display()))
}

/// One change of the file at a time in this process.
pub(crate) fn writing() -> MutexGuard<'static, ()> {
    static WRITING: Mutex<()> = Mutex::new(());
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn text_of(path: &Path) -> Result<String, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(failed(path, &error)),
    }
}

impl<'a> File<'a> {
    fn with(name: &'a str, config: &'a ServerConfig) -> Self {
        let written = WrittenServer {
            command: config.command.as_deref(),
            args: &config.args,
            url: config.url.as_deref(),
            sandbox: config.sandbox.as_ref(),
        };
        Self { mcp: Servers { servers: BTreeMap::from([(name, Some(written))]) } }
    }

    fn into_patch(self) -> Result<Object, Failure> {
        let unwritten = || Failure::new(ErrorCode::InternalError, "the server cannot be written");
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(patch)) => Ok(patch),
            _ => Err(unwritten()),
        }
    }
}

/// A patch of the configuration that adds a server.
pub(crate) fn patch_adding(name: &str, config: &ServerConfig) -> Result<Object, Failure> {
    File::with(name, config).into_patch()
}

/// A patch of the configuration that removes a server.
pub(crate) fn patch_removing(name: &str) -> Result<Object, Failure> {
    File { mcp: Servers { servers: BTreeMap::from([(name, None)]) } }.into_patch()
}

/// Appends a server's table.
pub(crate) fn add(path: &Path, name: &str, config: &ServerConfig) -> Result<(), Failure> {
    let table = toml::to_string(&File::with(name, config)).map_err(|e| failed(path, &e))?;
    let _writing = writing();
    let before = text_of(path)?;
    let gap = if before.is_empty() { "" } else { "\n" };
    let text = format!("{before}{gap}{table}");
    let read: Config = toml::from_str(&text).map_err(|e| {
        Failure::new(ErrorCode::ConfigInvalid, format!("the server cannot be appended to {}: {e}", path.display()))
            .suggest("Add the table [mcp.servers.NAME] to the file by hand.")
    })?;
    if read.mcp.servers.get(name) != Some(config) {
        return Err(failed(path, &"the server does not read back as it was written"));
    }
    replace(path, &text)
}

/// Removes a server's tables. All other settings must have the same values afterwards.
pub(crate) fn remove(path: &Path, name: &str) -> Result<(), Failure> {
    let _writing = writing();
    let before = text_of(path)?;
    let by_hand = || {
        Failure::new(
            ErrorCode::PreconditionFailed,
            format!("{name} is not in a table of its own in {}", path.display()),
        )
        .suggest(format!("Remove [mcp.servers.{name}] from the file by hand."))
    };
    let text = without_tables(&before, name);
    let read = |text: &str| toml::from_str::<Config>(text).map_err(|_| by_hand());
    let (mut was, is) = (read(&before)?, read(&text)?);
    if was.mcp.servers.remove(name).is_none() {
        return Err(Failure::new(ErrorCode::NotFound, format!("{name} is not in {}", path.display())));
    }
    let same = serde_json::to_value(&was).ok() == serde_json::to_value(&is).ok();
    if !same {
        return Err(by_hand());
    }
    replace(path, &text)
}

/// The file without `[mcp.servers.NAME]` and the tables below it.
fn without_tables(text: &str, name: &str) -> String {
    let heads = [format!("mcp.servers.{name}"), format!("mcp.servers.\"{name}\"")];
    let mut kept = String::new();
    let mut is_in = false;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if let Some(head) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(head, _)| head.trim())
        {
            is_in = heads
                .iter()
                .any(|own| head == own || head.strip_prefix(own.as_str()).is_some_and(|r| r.starts_with('.')));
        }
        if !is_in {
            kept.push_str(line);
        }
    }
    kept
}

/// Writes the file in one go, with the permissions it had.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let staged = path.with_extension(format!("toml.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = fs::File::create(&staged)?;
        if let Ok(about) = fs::metadata(path) {
            file.set_permissions(about.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&staged, path)
    };
    write().map_err(|e| failed(path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_added_and_taken_out_and_the_rest_of_the_file_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let own = "# my notes\n[gateway]\nport = 1\n\n[mcp.servers.other]\ncommand = \"cat\"\n";
        fs::write(&path, own).unwrap();
        let sandbox = SandboxConfig { enabled: true, ..SandboxConfig::default() };
        let config =
            ServerConfig { command: Some("cat".to_owned()), sandbox: Some(sandbox), ..ServerConfig::default() };
        add(&path, "files", &config).unwrap();
        let read: Config = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read.mcp.servers.get("files"), Some(&config));
        remove(&path, "files").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), own.trim_end());
        assert_eq!(remove(&path, "files").unwrap_err().code, ErrorCode::NotFound);
        fs::write(&path, "mcp = { servers = { inline = { command = \"cat\" } } }\n").unwrap();
        assert_eq!(remove(&path, "inline").unwrap_err().code, ErrorCode::PreconditionFailed);
    }
}
