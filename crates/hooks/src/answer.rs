//! The answers of hooks, in the format of each client. A client runs the tool if it cannot parse the answer, so the
//! formats must be exact; the tests compare them with recordings.

use crate::Client;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The exit code that refuses in every client, if something is on standard error.
const REFUSED: u8 = 2;

/// How a hook process ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookAnswer {
    /// The exit code.
    pub exit: u8,
    /// Standard output, written at once.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl HookAnswer {
    /// Refuses in every client.
    pub fn refuse(reason: &str) -> Self {
        let reason = if reason.trim().is_empty() { "Toolyard refused this call" } else { reason };
        Self { exit: REFUSED, stdout: String::new(), stderr: format!("{reason}\n") }
    }
}

/// What is decided about a call, for the client that wants to make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Toolyard does not decide; the client's own rules apply.
    NoOpinion,
    /// A person agreed: the client need not ask again.
    Allow(String),
    /// The call does not run.
    Deny(String),
    /// The client asks its own user.
    Ask(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HookOutput<T> {
    hook_specific_output: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Permission<'a> {
    hook_event_name: &'static str,
    permission_decision: &'static str,
    permission_decision_reason: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionRequest {
    hook_event_name: &'static str,
    decision: Behaviour,
}

#[derive(Serialize)]
struct Behaviour {
    behavior: &'static str,
}

#[derive(Serialize)]
struct GeminiDecision<'a> {
    decision: &'static str,
    reason: &'a str,
}

impl Verdict {
    /// The answer to the hook before a call.
    pub fn before(&self, client: Client) -> HookAnswer {
        match (client, self) {
            (Client::Gemini, Self::NoOpinion | Self::Allow(_)) => stdout("{}".to_owned()),
            (_, Self::NoOpinion) | (Client::Codex | Client::Opencode, Self::Allow(_)) => HookAnswer::default(),
            // The opencode plugin throws the text on standard error.
            (Client::Opencode, Self::Deny(reason) | Self::Ask(reason)) => HookAnswer::refuse(reason),
            (Client::Claude, Self::Allow(reason)) => permission("allow", reason),
            (Client::Claude, Self::Ask(reason)) => permission("ask", reason),
            (Client::Claude | Client::Codex, Self::Deny(reason)) => permission("deny", shown(reason)),
            // Codex runs the tool on "ask", and a Gemini CLI without a terminal waits forever.
            (Client::Codex, Self::Ask(reason)) => permission("deny", shown(reason)),
            (Client::Gemini, Self::Deny(reason) | Self::Ask(reason)) => {
                written(&GeminiDecision { decision: "deny", reason: shown(reason) })
            }
        }
    }

    /// The answer to a client that is about to ask its user: only a person's consent answers for the user.
    pub fn permission(&self, client: Client) -> HookAnswer {
        match (client, self) {
            (Client::Gemini, _) => stdout("{}".to_owned()),
            (Client::Opencode, _) => HookAnswer::default(),
            (_, Self::Allow(_)) => {
                let decision = Behaviour { behavior: "allow" };
                written(&HookOutput {
                    hook_specific_output: PermissionRequest { hook_event_name: "PermissionRequest", decision },
                })
            }
            _ => HookAnswer::default(),
        }
    }
}

/// The answer to an event about which nothing is decided.
pub(crate) fn noted(client: Client) -> HookAnswer {
    Verdict::NoOpinion.before(client)
}

/// An empty reason makes Codex run the tool.
fn shown(reason: &str) -> &str {
    if reason.trim().is_empty() { "Toolyard refused this call" } else { reason }
}

fn permission(word: &'static str, reason: &str) -> HookAnswer {
    written(&HookOutput {
        hook_specific_output: Permission {
            hook_event_name: "PreToolUse",
            permission_decision: word,
            permission_decision_reason: reason,
        },
    })
}

fn written(answer: &impl Serialize) -> HookAnswer {
    match serde_json::to_string(answer) {
        Ok(text) => stdout(text),
        Err(error) => HookAnswer::refuse(&format!("Toolyard could not write its answer: {error}")),
    }
}

fn stdout(text: String) -> HookAnswer {
    HookAnswer { stdout: text, ..HookAnswer::default() }
}
