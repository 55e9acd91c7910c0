//! The clients that have hooks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A coding agent with hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// opencode, which has no hooks in its settings; Toolyard's plugin sends its calls.
    Opencode,
}

impl Client {
    /// Every client.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Opencode];
    /// The clients whose settings name hooks.
    pub const WITH_SETTINGS: [Self; 3] = [Self::Claude, Self::Codex, Self::Gemini];

    /// The word on the command line and in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
        }
    }

    /// The client with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.as_str() == word)
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
