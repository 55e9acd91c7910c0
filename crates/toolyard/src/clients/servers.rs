//! MCP servers in the settings of clients: where each client keeps them, and in which form.

use super::{Program, json::JsonFile, places, toml, unusable};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use toml_edit::value;
use toolyard_hooks::Client;
use toolyard_protocol::Failure;

/// The name of Toolyard's own server in clients. The hooks know it by this name.
pub(crate) const OWN_NAME: &str = "toolyard";

/// A program that can use MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum McpClient {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// OpenClaw
    Openclaw,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Zed
    Zed,
    /// opencode
    Opencode,
    /// Claude Desktop
    ClaudeDesktop,
}

/// A server that a client has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListedServer {
    pub(crate) name: String,
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) url: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
}

impl McpClient {
    /// Every client.
    pub(crate) const ALL: [Self; 9] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Openclaw,
        Self::Cursor,
        Self::Vscode,
        Self::Zed,
        Self::Opencode,
        Self::ClaudeDesktop,
    ];

    /// The word on the command line.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Openclaw => "openclaw",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Zed => "zed",
            Self::Opencode => "opencode",
            Self::ClaudeDesktop => "claude-desktop",
        }
    }

    /// The same client at the hooks' door, if it has hooks.
    pub(crate) const fn hooks(self) -> Option<Client> {
        match self {
            Self::Claude => Some(Client::Claude),
            Self::Codex => Some(Client::Codex),
            Self::Gemini => Some(Client::Gemini),
            _ => None,
        }
    }

    /// The file in which it keeps its servers.
    pub(crate) fn file(self) -> Result<PathBuf, Failure> {
        let config = || places::config_home();
        Ok(match self {
            // The file lies beside the folder of the settings, unless a variable names the folder.
            Self::Claude => match std::env::var_os("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty()) {
                Some(folder) => PathBuf::from(folder).join(".claude.json"),
                None => places::user_home()?.join(".claude.json"),
            },
            Self::Codex => places::codex_config()?,
            Self::Gemini => places::folder(Client::Gemini)?.join("settings.json"),
            Self::Openclaw => places::user_home()?.join(".openclaw/openclaw.json"),
            Self::Cursor => places::user_home()?.join(".cursor/mcp.json"),
            Self::Vscode => config()?.join("Code/User/mcp.json"),
            Self::Zed => config()?.join("zed/settings.json"),
            Self::Opencode => {
                let folder = config()?.join("opencode");
                let commented = folder.join("opencode.jsonc");
                if commented.exists() { commented } else { folder.join("opencode.json") }
            }
            Self::ClaudeDesktop => config()?.join("Claude/claude_desktop_config.json"),
        })
    }

    /// Where in the file the servers are.
    const fn table(self) -> &'static [&'static str] {
        match self {
            Self::Claude | Self::Gemini | Self::Cursor | Self::ClaudeDesktop => &["mcpServers"],
            Self::Codex => &["mcp_servers"],
            Self::Openclaw => &["mcp", "servers"],
            Self::Vscode => &["servers"],
            Self::Zed => &["context_servers"],
            Self::Opencode => &["mcp"],
        }
    }

    /// Toolyard's server entry in the client's format.
    pub(crate) fn entry(self, program: &Program) -> Value {
        let (command, args) = (program.command(), program.arguments(&["mcp"]));
        match self {
            Self::Claude | Self::Vscode => json!({"type": "stdio", "command": command, "args": args}),
            Self::Zed => json!({"source": "custom", "command": command, "args": args}),
            Self::Opencode => {
                let words: Vec<String> = std::iter::once(command).chain(args).collect();
                json!({"type": "local", "command": words, "enabled": true})
            }
            Self::Codex | Self::Gemini | Self::Openclaw | Self::Cursor | Self::ClaudeDesktop => {
                json!({"command": command, "args": args})
            }
        }
    }

    fn is_toml(self) -> bool {
        self == Self::Codex
    }

    /// The file's text with our server, or without it where there is no entry to set.
    pub(crate) fn edited(self, path: &Path, text: &str, entry: Option<&Value>) -> Result<String, Failure> {
        let wrong = |why: String| unusable(path, why);
        if self.is_toml() {
            let mut document = toml::read(text).map_err(wrong)?;
            match entry {
                Some(entry) => {
                    let table = toml::table(&mut document, &[self.table(), &[OWN_NAME]].concat()).map_err(wrong)?;
                    table.insert("command", value(entry["command"].as_str().unwrap_or_default()));
                    table.insert("args", toml::texts(&texts(&entry["args"])));
                }
                None => toml::remove(&mut document, self.table(), OWN_NAME),
            }
            return Ok(document.to_string());
        }
        let file = JsonFile::read(text).map_err(wrong)?;
        match entry {
            Some(entry) => file.set(self.table(), OWN_NAME, entry).map_err(wrong)?,
            None => file.remove(self.table(), OWN_NAME),
        }
        Ok(file.text())
    }

    /// Whether the file has our server as it should be.
    pub(crate) fn has(self, path: &Path, text: &str, entry: &Value) -> Result<bool, Failure> {
        Ok(self.servers(path, text)?.get(OWN_NAME) == Some(entry))
    }

    /// The servers as the client wrote them.
    fn servers(self, path: &Path, text: &str) -> Result<Map<String, Value>, Failure> {
        let wrong = |why: String| unusable(path, why);
        let whole: Value = if self.is_toml() {
            ::toml::from_str(text).map_err(|error| wrong(error.message().to_owned()))?
        } else {
            JsonFile::read(text).map_err(wrong)?.value()
        };
        let found = self.table().iter().try_fold(&whole, |value, name| value.get(name));
        Ok(found.and_then(Value::as_object).cloned().unwrap_or_default())
    }

    /// The servers that the client has, in one form. Ours is not among them.
    pub(crate) fn listed(self, path: &Path, text: &str) -> Result<Vec<ListedServer>, Failure> {
        let servers = self.servers(path, text)?;
        Ok(servers.iter().filter(|(name, _)| *name != OWN_NAME).map(|(name, server)| listed(name, server)).collect())
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn pairs(value: Option<&Value>) -> Vec<(String, String)> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn listed(name: &str, server: &Value) -> ListedServer {
    let text = |key: &str| server.get(key).and_then(Value::as_str).map(str::to_owned);
    let (command, args) = match server.get("command") {
        // opencode writes the program and its arguments as one list.
        Some(Value::Array(_)) => {
            let mut words = texts(&server["command"]).into_iter();
            (words.next(), words.collect())
        }
        _ => (text("command"), server.get("args").map(texts).unwrap_or_default()),
    };
    ListedServer {
        name: name.to_owned(),
        command,
        args,
        env: pairs(server.get("env").or_else(|| server.get("environment"))),
        url: text("url").or_else(|| text("httpUrl")).or_else(|| text("serverUrl")),
        headers: pairs(server.get("headers").or_else(|| server.get("http_headers"))),
    }
}
