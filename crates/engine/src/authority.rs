//! Authority: decides whether a caller may make a request.
//!
//! Every method and every built-in tool declares a [`Demand`]; [`decide`] compares it with the caller that a door built
//! from credentials. An [`Approver`] is needed to give consent, and only this module creates one, so that no function
//! of the engine can receive one that was not checked here.
//!
//! Pure: no IO, clock or transport, and no method or tool by name.

use crate::{Caller, Door, facts};
use serde::Serialize;
use serde_json::{Map, Value};
use toolyard_catalog::ToolEntry;
use toolyard_protocol::{ErrorCode, Failure, WorkspaceId};

pub use toolyard_catalog::authority::{Demand, Effect, HostArgument, Power, Scope, holds};

/// Why a caller may not do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The credential lacks a scope.
    MissingScope {
        /// The first scope that is missing.
        missing: String,
        /// All that are needed.
        required: Vec<String>,
    },
    /// The request must be a person's own act.
    PersonNeeded,
    /// A request asks for a power that its method does not declare.
    Undeclared(Power),
    /// An agent names a path of the host that no configured folder includes.
    HostPath {
        /// The argument that names it.
        argument: &'static str,
    },
}

impl Refusal {
    fn scope(scope: Scope) -> Self {
        Self::MissingScope { missing: scope.as_str().to_owned(), required: vec![scope.as_str().to_owned()] }
    }

    /// The sentence that a caller is shown.
    pub fn message(&self) -> String {
        match self {
            Self::MissingScope { missing, .. } => format!("missing scope: {missing}"),
            Self::PersonNeeded => "only a person may do this, at the command line of this machine".to_owned(),
            Self::Undeclared(power) => format!("this method does not declare the power \"{}\"", power.as_str()),
            Self::HostPath { argument } => format!("agents may not name paths of this machine (argument {argument})"),
        }
    }

    /// What a program needs to act on it.
    pub fn details(&self) -> Map<String, Value> {
        facts::payload(&match self {
            Self::MissingScope { missing, required } => {
                RefusalDetails::MissingScope { missing_scope: missing, required_scopes: required }
            }
            Self::PersonNeeded => RefusalDetails::PersonRequired,
            Self::Undeclared(power) => RefusalDetails::UndeclaredPower { power: power.as_str() },
            Self::HostPath { argument } => RefusalDetails::HostPathDenied { argument },
        })
    }
}

#[derive(Serialize)]
#[serde(tag = "code", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
enum RefusalDetails<'a> {
    MissingScope { missing_scope: &'a str, required_scopes: &'a [String] },
    PersonRequired,
    UndeclaredPower { power: &'a str },
    HostPathDenied { argument: &'a str },
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let mut failure = Failure::new(ErrorCode::PolicyDenied, refusal.message()).retryable(false);
        for (name, value) in refusal.details() {
            failure = failure.detail(&name, value);
        }
        match refusal {
            Refusal::PersonNeeded => failure.suggest("Ask the person to run it with the `toolyard` command."),
            Refusal::HostPath { .. } => failure.suggest(
                "Pass the content itself, or have the owner name the folder in `context.importRoots` of config.toml.",
            ),
            _ => failure,
        }
    }
}

/// Whether something of a workspace exists for a caller. Nobody sees another workspace, whatever their scopes: the person
/// at this machine chooses one instead.
pub fn sees(caller: &Caller, workspace: &WorkspaceId) -> bool {
    caller.workspace == *workspace
}

/// Whether a kept name (a session, a question) exists for a caller; see [`WorkspaceId::key`].
pub fn sees_name(caller: &Caller, kept: &str) -> bool {
    sees(caller, &WorkspaceId::of(kept).0)
}

/// Whether a caller may make a request that demands this.
pub fn decide(caller: &Caller, demand: &Demand) -> Result<(), Refusal> {
    // The installation as a whole belongs to the default workspace.
    let is_of_all = demand.scope == Some(Scope::Admin) || demand.is_of_installation;
    if is_of_all && !caller.workspace.is_default() {
        return Err(Refusal::scope(Scope::Admin));
    }
    if let Some(scope) = demand.scope
        && !holds(&caller.scopes, scope.as_str())
    {
        return Err(Refusal::scope(scope));
    }
    let needs_person = demand.person || demand.effect == Effect::Unrecorded;
    if needs_person && !caller.is_person {
        return Err(Refusal::PersonNeeded);
    }
    demand.uses.iter().try_for_each(|power| may_use(caller, *power))
}

/// Whether a caller's parameters may ask for a power. A power that is not declared is refused to everybody, so that the
/// declaration, the documentation and the test that are made from it cannot leave one out.
pub fn decide_power(caller: &Caller, demand: &Demand, power: Power) -> Result<(), Refusal> {
    if !demand.declares(power) {
        return Err(Refusal::Undeclared(power));
    }
    may_use(caller, power)
}

fn may_use(caller: &Caller, power: Power) -> Result<(), Refusal> {
    match power {
        Power::Approve if caller.is_person => Ok(()),
        Power::Approve if carries_consent(caller.door) && holds(&caller.scopes, Scope::Approvals.as_str()) => Ok(()),
        Power::Approve => Err(Refusal::scope(Scope::Approvals)),
        Power::Pair if holds(&caller.scopes, Scope::Pairing.as_str()) => Ok(()),
        Power::Pair => Err(Refusal::scope(Scope::Pairing)),
        Power::Grant if caller.is_person => Ok(()),
        Power::HostPaths if caller.names_host_paths() => Ok(()),
        Power::Grant | Power::HostPaths => Err(Refusal::PersonNeeded),
    }
}

/// Whether an answer to an approval can come by a door. The other doors are used by agents, whatever their credential.
fn carries_consent(door: Door) -> bool {
    match door {
        Door::Cli | Door::Gateway | Door::Console => true,
        Door::Http | Door::Mcp | Door::Bridge | Door::Script | Door::Hooks | Door::Internal => false,
    }
}

/// Whether a caller may call a tool with these arguments, as far as they name paths of the host. `given` are the
/// caller's own arguments: a path that a hook inserted is not the caller's.
pub fn decide_arguments(
    caller: &Caller,
    tool: &ToolEntry,
    given: &Map<String, Value>,
    args: &Map<String, Value>,
) -> Result<(), Refusal> {
    for argument in tool.host_arguments() {
        let value = args.get(argument.name);
        if !value.and_then(Value::as_str).is_some_and(|value| argument.is_path(value)) {
            continue;
        }
        let may = match caller.names_host_paths() {
            true => given.get(argument.name) == value,
            false => tool.host_paths_granted(),
        };
        if !may {
            return Err(Refusal::HostPath { argument: argument.name });
        }
    }
    Ok(())
}

/// Whether a caller has every scope that an object has or would get: nobody can give, change or remove more than they
/// have. The person at this machine owns every object.
pub fn covers<'a>(caller: &Caller, wanted: impl IntoIterator<Item = &'a String>) -> Result<(), Refusal> {
    let wanted: Vec<&String> = wanted.into_iter().collect();
    match wanted.iter().find(|scope| !caller.is_person && !holds(&caller.scopes, scope)) {
        None => Ok(()),
        Some(missing) => Err(Refusal::MissingScope {
            missing: (*missing).clone(),
            required: wanted.iter().map(|scope| (*scope).clone()).collect(),
        }),
    }
}

/// Somebody who may give a consent that the policy asks of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    name: String,
    door: Door,
}

impl Approver {
    /// The caller as an approver: a person, or a credential with `operator.approvals` at a door that carries consent.
    pub fn of(caller: &Caller) -> Result<Self, Refusal> {
        may_use(caller, Power::Approve).map(|()| Self { name: caller.principal.clone(), door: caller.door })
    }

    /// The name that is recorded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that is recorded, by value.
    pub fn into_name(self) -> String {
        self.name
    }

    /// The door by which the consent comes.
    pub fn door(&self) -> Door {
        self.door
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agent(scopes: &[&str]) -> Caller {
        Caller {
            door: Door::Gateway,
            is_person: false,
            scopes: scopes.iter().map(|s| (*s).to_owned()).collect(),
            ..Caller::cli("agent")
        }
    }

    #[test]
    fn powers_are_out_of_reach_of_write_pairing_and_read() {
        for scopes in [&[][..], &["operator.read"], &["operator.write"], &["operator.pairing", "operator.write"]] {
            let caller = agent(scopes);
            for power in [Power::Approve, Power::Grant, Power::HostPaths] {
                let demand = Demand { uses: std::slice::from_ref(Box::leak(Box::new(power))), ..open() };
                assert!(decide(&caller, &demand).is_err(), "{scopes:?} {power:?}");
            }
            assert!(Approver::of(&caller).is_err(), "{scopes:?}");
            assert_eq!(
                decide(&caller, &Demand::new(None, Effect::Unrecorded)),
                Err(Refusal::PersonNeeded),
                "{scopes:?}"
            );
        }
        assert_eq!(Approver::of(&agent(&["operator.approvals"])).unwrap().name(), "agent");
        for door in [Door::Http, Door::Mcp, Door::Bridge, Door::Script] {
            assert!(Approver::of(&Caller { door, ..agent(&["operator.admin"]) }).is_err(), "{door:?}");
        }
        let admin = agent(&["operator.admin"]);
        assert_eq!(
            decide(&admin, &open().uses(&[Power::Grant])),
            Err(Refusal::PersonNeeded),
            "an agent grants nothing"
        );
        assert!(decide(&Caller::cli("ada"), &open().uses(&Power::ALL).person()).is_ok());
    }

    fn open() -> Demand {
        Demand::new(None, Effect::None)
    }

    #[test]
    fn a_power_that_is_not_declared_is_refused_even_to_a_person() {
        let person = Caller::cli("ada");
        assert_eq!(decide_power(&person, &open(), Power::Approve), Err(Refusal::Undeclared(Power::Approve)));
        assert!(decide_power(&person, &open().may_use(&[Power::Approve]), Power::Approve).is_ok());
    }

    #[test]
    fn nobody_covers_more_than_they_hold() {
        let own = |scopes: &[&str]| scopes.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let held = agent(&["operator.pairing", "operator.write"]);
        assert!(covers(&held, &own(&["operator.read", "operator.write"])).is_ok());
        let refused = covers(&held, &own(&["operator.read", "operator.admin"])).unwrap_err();
        assert_eq!(refused.message(), "missing scope: operator.admin");
        let failure = Failure::from(refused);
        assert_eq!(failure.details.unwrap()["requiredScopes"], json!(["operator.read", "operator.admin"]));
    }
}
