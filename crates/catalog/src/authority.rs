//! The requirements that a method or a tool has for its caller: scope, person, powers.
//!
//! A [`Demand`] is declared beside the method or tool it describes. The engine's `authority::decide` compares it with a
//! caller. Knows no caller, no transport and no tool by name.

/// A scope that a credential can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Looks at runs, sessions, tools and configuration.
    Read,
    /// Calls tools and runs plans, as far as the policy lets it.
    Write,
    /// Answers questions that the policy puts to a person.
    Approvals,
    /// Lets devices in, up to what the caller itself holds.
    Pairing,
    /// Includes all others.
    Admin,
}

impl Scope {
    /// Every scope, from the weakest to the strongest.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Approvals, Self::Pairing, Self::Admin];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "operator.read",
            Self::Write => "operator.write",
            Self::Approvals => "operator.approvals",
            Self::Pairing => "operator.pairing",
            Self::Admin => "operator.admin",
        }
    }
}

/// Whether a list of scopes includes one: admin includes all, write includes read and talk.
pub fn holds(scopes: &[String], wanted: &str) -> bool {
    scopes.iter().any(|held| {
        held == wanted
            || (held == "operator.admin" && wanted.starts_with("operator."))
            || (held == "operator.write" && matches!(wanted, "operator.read" | "operator.talk"))
    })
}

/// Something that must not be reachable with `operator.write` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Power {
    /// Gives a consent that the policy requires of a person: answers an approval question, approves a plan, decides
    /// about a call whose outcome is unknown, or names who may answer. Needs a person or `operator.approvals`.
    Approve,
    /// Gives something more rights than it has: a plugin's grants, an upstream server's definitions. Needs a person.
    Grant,
    /// Lets a device in, or changes or removes one. Needs `operator.pairing`, and every scope that the device has or
    /// would get.
    Pair,
    /// Reads a path of the host that the caller names. Needs a person, or a folder that the configuration grants.
    HostPaths,
}

impl Power {
    /// All powers.
    pub const ALL: [Self; 4] = [Self::Approve, Self::Grant, Self::Pair, Self::HostPaths];

    /// The word in documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Grant => "grant",
            Self::Pair => "pair",
            Self::HostPaths => "host paths",
        }
    }
}

/// What changes because of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The request changes nothing.
    None,
    /// Toolyard's own state about connections and conversations: sessions, captured turns, queued messages, devices. No
    /// tool runs and nothing outside of that state changes.
    State,
    /// Whatever a tool changes, or an answer to an approval: both leave a record before the effect.
    Recorded,
    /// Content or programs, without a recorded call. Needs a person.
    Unrecorded,
}

impl Effect {
    /// The word in documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::State => "own state",
            Self::Recorded => "recorded",
            Self::Unrecorded => "unrecorded",
        }
    }
}

/// What a method or tool requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The scope without which it is refused.
    pub scope: Option<Scope>,
    /// Whether the request must be a person's own act.
    pub person: bool,
    /// Powers that every such request uses.
    pub uses: &'static [Power],
    /// Powers that some parameters ask for; each is decided when it is asked for.
    pub may_use: &'static [Power],
    /// What changes because of it.
    pub effect: Effect,
    /// Whether it is about the installation as a whole: its log, its health, its nodes. Only callers of the default
    /// workspace may ask. What demands [`Scope::Admin`] is about the whole in any case.
    pub is_of_installation: bool,
}

impl Demand {
    /// Requires a scope, or none, and nothing else.
    pub const fn new(scope: Option<Scope>, effect: Effect) -> Self {
        Self { scope, person: false, uses: &[], may_use: &[], effect, is_of_installation: false }
    }

    /// For persons only.
    #[must_use]
    pub const fn person(mut self) -> Self {
        self.person = true;
        self
    }

    /// Is about the installation as a whole.
    #[must_use]
    pub const fn of_installation(mut self) -> Self {
        self.is_of_installation = true;
        self
    }

    /// Uses these powers at every request.
    #[must_use]
    pub const fn uses(mut self, powers: &'static [Power]) -> Self {
        self.uses = powers;
        self
    }

    /// Uses these powers when its parameters ask for them.
    #[must_use]
    pub const fn may_use(mut self, powers: &'static [Power]) -> Self {
        self.may_use = powers;
        self
    }

    /// Whether a request can use a power at all.
    pub fn declares(&self, power: Power) -> bool {
        self.uses.contains(&power) || self.may_use.contains(&power)
    }
}

/// An argument of a tool that names a path of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostArgument {
    /// The argument's name, at the top of the arguments.
    pub name: &'static str,
    /// A value that starts with one of these is an address that is fetched, not a path.
    pub remote: &'static [&'static str],
}

impl HostArgument {
    /// Whether a value of this argument is a path of the host.
    pub fn is_path(&self, value: &str) -> bool {
        let value = value.trim();
        !value.is_empty() && !self.remote.iter().any(|prefix| value.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_include_one_another_as_documented() {
        let held = |s: &str| vec![s.to_owned()];
        assert!(holds(&held("operator.admin"), "operator.pairing"));
        assert!(holds(&held("operator.write"), "operator.read"));
        assert!(!holds(&held("operator.read"), "operator.write"));
        assert!(!holds(&held("operator.approvals"), "operator.read"));
        assert!(!holds(&held("operator.write"), "operator.approvals"));
        assert!(!holds(&[], "operator.read"));
    }

    #[test]
    fn an_address_is_not_a_host_path_and_everything_else_is() {
        let argument = HostArgument { name: "source", remote: &["https://", "git@"] };
        assert!(!argument.is_path("https://example.org/a") && !argument.is_path("git@example.org:a/b"));
        for path in ["/etc/passwd", "notes.md", "~/x", "file:///etc/passwd", "HTTPS:/x", " /etc/passwd"] {
            assert!(argument.is_path(path), "{path}");
        }
    }
}
