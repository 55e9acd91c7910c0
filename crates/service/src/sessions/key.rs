//! [`Key`]: the name of a session, with the agent it belongs to.

use super::DEFAULT_AGENT;
use crate::RpcError;

/// A key is at most this long.
const MAX_KEY_BYTES: usize = 512;

/// A session key with its agent: `main` stands for `agent:main:main`, `x` for `agent:main:x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The whole key.
    pub full: String,
    /// The agent it belongs to.
    pub agent: String,
}

impl Key {
    /// Completes a key and checks that it belongs to the agent, where one is named.
    pub fn read(given: &str, agent: Option<&str>) -> Result<Self, RpcError> {
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
        let key = |given, agent| Key::read(given, agent).map(|k| (k.full, k.agent)).map_err(|e| e.message);
        assert_eq!(key("main", None), Ok(("agent:main:main".into(), "main".into())));
        assert_eq!(key("agent:other:x:y", None), Ok(("agent:other:x:y".into(), "other".into())));
        assert_eq!(key("x", Some("bot")), Ok(("agent:bot:x".into(), "bot".into())));
        assert!(key("agent:other:main", Some("main")).unwrap_err().contains("belongs to \"other\""));
        assert!(key("a\nb", None).is_err());
        assert!(key(&"x".repeat(600), None).is_err());
    }
}
