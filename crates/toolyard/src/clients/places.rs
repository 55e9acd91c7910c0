//! Where clients keep their settings, by the same variables that the clients obey.

use std::path::PathBuf;
use toolyard_hooks::Client;
use toolyard_protocol::{ErrorCode, Failure};

fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The user's home.
pub(crate) fn user_home() -> Result<PathBuf, Failure> {
    from_environment("HOME").ok_or_else(|| Failure::new(ErrorCode::ConfigInvalid, "HOME is not set"))
}

/// The folder for settings of desktop programs.
pub(crate) fn config_home() -> Result<PathBuf, Failure> {
    match from_environment("XDG_CONFIG_HOME") {
        Some(folder) => Ok(folder),
        None => Ok(user_home()?.join(".config")),
    }
}

/// The folder of a client with hooks.
pub(crate) fn folder(client: Client) -> Result<PathBuf, Failure> {
    let (variable, name) = match client {
        Client::Claude => ("CLAUDE_CONFIG_DIR", ".claude"),
        Client::Codex => ("CODEX_HOME", ".codex"),
        Client::Opencode => return Ok(config_home()?.join("opencode")),
        // This one names the folder that takes the place of the user's home.
        Client::Gemini => return Ok(from_environment("GEMINI_CLI_HOME").map_or_else(user_home, Ok)?.join(".gemini")),
    };
    match from_environment(variable) {
        Some(folder) => Ok(folder),
        None => Ok(user_home()?.join(name)),
    }
}

/// The file with a client's hooks.
pub(crate) fn hooks_file(client: Client) -> Result<PathBuf, Failure> {
    let name = match client {
        Client::Claude | Client::Gemini => "settings.json",
        Client::Codex => "hooks.json",
        Client::Opencode => "opencode.json",
    };
    Ok(folder(client)?.join(name))
}

/// The file in which Codex keeps which hooks are trusted, and its MCP servers.
pub(crate) fn codex_config() -> Result<PathBuf, Failure> {
    Ok(folder(Client::Codex)?.join("config.toml"))
}
