//! [`Key`]: the name of a session, with the agent it belongs to.

use super::DEFAULT_AGENT;
use crate::RpcError;
use toolyard_protocol::WorkspaceId;

/// A key is at most this long.
const MAX_KEY_BYTES: usize = 512;

/// A session key with its agent: `main` stands for `agent:main:main`, `x` for `agent:main:x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The whole key. It names the workspace, unless that is the default one.
    pub full: String,
    /// The agent it belongs to.
    pub agent: String,
}

impl Key {
    /// Completes a key for a workspace and checks that it belongs to the agent, where one is named. A key of another
    /// workspace becomes a key that nobody has.
    pub fn read(workspace: &WorkspaceId, given: &str, agent: Option<&str>) -> Result<Self, RpcError> {
        let given = match WorkspaceId::of(given) {
            (named, rest) if named == *workspace => rest,
            _ => given,
        };
        let key = Self::complete(given, agent)?;
        Ok(Self { full: workspace.key(&key.full).into_owned(), ..key })
    }

    /// The agent in a whole key.
    pub(crate) fn agent_of(full: &str) -> String {
        let (_, name) = WorkspaceId::of(full);
        Self::complete(name, None).map_or_else(|_| DEFAULT_AGENT.to_owned(), |key| key.agent)
    }

    fn complete(given: &str, agent: Option<&str>) -> Result<Self, RpcError> {
        let bad = given.is_empty() || given.len() > MAX_KEY_BYTES || given.chars().any(char::is_control);
        if bad {
            return Err(RpcError::invalid(format!(
                "invalid session key: 1 to {MAX_KEY_BYTES} bytes without control characters"
            )));
        }
        let mut parts = given.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("agent"), Some(owner), Some(rest)) if !owner.is_empty() && !rest.is_empty() => {
                if let Some(wanted) = agent.filter(|wanted| *wanted != owner) {
                    return Err(RpcError::invalid(format!(
                        "The agent-scoped session key belongs to \"{owner}\", not \"{wanted}\"."
                    )));
                }
                Ok(Self { full: given.to_owned(), agent: owner.to_owned() })
            }
            _ => {
                let agent = agent.unwrap_or(DEFAULT_AGENT);
                Ok(Self { full: format!("agent:{agent}:{given}"), agent: agent.to_owned() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_completed_and_owners_checked() {
        let none = WorkspaceId::default();
        let key = |given, agent| Key::read(&none, given, agent).map(|k| (k.full, k.agent)).map_err(|e| e.message);
        assert_eq!(key("main", None), Ok(("agent:main:main".into(), "main".into())));
        assert_eq!(key("agent:other:x:y", None), Ok(("agent:other:x:y".into(), "other".into())));
        assert_eq!(key("x", Some("bot")), Ok(("agent:bot:x".into(), "bot".into())));
        assert!(key("agent:other:main", Some("main")).unwrap_err().contains("belongs to \"other\""));
        assert!(key("a\nb", None).is_err());
        assert!(key(&"x".repeat(600), None).is_err());
    }

    #[test]
    fn a_key_is_one_of_the_callers_workspace_however_it_is_spelled() {
        let (none, bob) = (WorkspaceId::default(), WorkspaceId::parse("bob").unwrap());
        let full = |workspace: &WorkspaceId, given: &str| Key::read(workspace, given, None).unwrap().full;
        assert_eq!(full(&bob, "main"), "@bob:agent:main:main");
        assert_eq!(full(&bob, "@bob:agent:main:main"), "@bob:agent:main:main");
        assert_eq!(full(&bob, "@eve:agent:main:main"), "@bob:agent:main:@eve:agent:main:main");
        assert_eq!(full(&none, "@bob:agent:main:main"), "agent:main:@bob:agent:main:main");
        assert_eq!(Key::agent_of("@bob:agent:other:x"), "other");
    }
}
