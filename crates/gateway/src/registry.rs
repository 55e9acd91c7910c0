//! Every method that a door of the gateway carries, and what it demands of its caller.
//!
//! The WebSocket door ([`crate::rpc`]) and the method table that the command line and the local socket use
//! ([`crate::methods`]) look a method up here before they dispatch it. A method that is not in the table cannot be called
//! by any door, whoever implements it; so a new method starts with its line here. `docs/authority.md` and the test that
//! tries every method with every scope are made from the same table.

use toolyard_engine::{
    Caller,
    authority::{self, Demand, Effect, Power, Refusal, Scope},
};

/// Which doors carry a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The WebSocket door, the local socket and the command line.
    Everywhere,
    /// The WebSocket door alone.
    Gateway,
    /// The local socket and the command line: the owner of this machine.
    Local,
}

impl Reach {
    /// The words in documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everywhere => "gateway, local",
            Self::Gateway => "gateway",
            Self::Local => "local",
        }
    }
}

/// Which role of a connection may send a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Operators.
    Operator,
    /// Nodes, which answer what they were asked.
    Node,
    /// Both.
    Any,
}

/// A method and what it demands.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Its name on the wire.
    pub name: &'static str,
    /// What it demands of its caller.
    pub demand: Demand,
    /// The doors that carry it.
    pub reach: Reach,
    /// The roles that may send it.
    pub role: Role,
    /// Whether only so many are accepted in a minute from one device.
    pub is_limited: bool,
}

impl Method {
    const fn new(name: &'static str, scope: Option<Scope>, effect: Effect) -> Self {
        let demand = Demand::new(scope, effect);
        Self { name, demand, reach: Reach::Gateway, role: Role::Operator, is_limited: false }
    }

    const fn everywhere(mut self) -> Self {
        self.reach = Reach::Everywhere;
        self
    }

    const fn local(mut self) -> Self {
        self.reach = Reach::Local;
        self
    }

    const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    const fn uses(mut self, powers: &'static [Power]) -> Self {
        self.demand = self.demand.uses(powers);
        self
    }

    const fn may_use(mut self, powers: &'static [Power]) -> Self {
        self.demand = self.demand.may_use(powers);
        self
    }

    const fn person(mut self) -> Self {
        self.demand = self.demand.person();
        self
    }

    /// The scope it needs, if any.
    pub fn scope(&self) -> Option<&'static str> {
        self.demand.scope.map(Scope::as_str)
    }

    /// Whether the WebSocket door carries it.
    pub fn is_on_gateway(&self) -> bool {
        self.reach != Reach::Local
    }

    /// Whether the local socket and the command line carry it.
    pub fn is_local(&self) -> bool {
        self.reach != Reach::Gateway
    }
}

/// Needs no scope, only a connection that was let in.
const fn open(name: &'static str) -> Method {
    Method::new(name, None, Effect::None)
}

const fn read(name: &'static str) -> Method {
    Method::new(name, Some(Scope::Read), Effect::None)
}

/// Changes state of Toolyard's own.
const fn write(name: &'static str) -> Method {
    Method::new(name, Some(Scope::Write), Effect::State)
}

/// Runs tools, each of which is decided on and recorded by the pipeline.
const fn run(name: &'static str) -> Method {
    Method::new(name, Some(Scope::Write), Effect::Recorded)
}

/// Looks at approvals, or puts a question.
const fn question(name: &'static str) -> Method {
    Method::new(name, Some(Scope::Approvals), Effect::State)
}

/// Answers a question that is put to a person.
const fn consent(name: &'static str) -> Method {
    Method::new(name, Some(Scope::Approvals), Effect::Recorded).uses(&[Power::Approve])
}

/// Changes who may come in. A person does not do that thirty times a minute, so it is limited.
const fn pair(name: &'static str) -> Method {
    let mut method = Method::new(name, Some(Scope::Pairing), Effect::State).uses(&[Power::Pair]);
    method.is_limited = true;
    method
}

/// For the person at this machine: changes content or programs without a recorded call.
const fn administer(name: &'static str) -> Method {
    Method::new(name, Some(Scope::Admin), Effect::Unrecorded).local().person()
}

/// The method by which a node answers what it was asked.
pub(crate) const NODE_RESULT: &str = "node.invoke.result";

/// Every method. Those of the WebSocket door come first, in the order in which `hello-ok` lists them.
pub const METHODS: &[Method] = &[
    open("health").role(Role::Any),
    read("status").everywhere(),
    read("system-presence"),
    read("tools.catalog"),
    read("tools.effective"),
    run("tools.invoke"),
    write("tools.cancel"),
    write("tools.offer"),
    write("tools.result"),
    write("sessions.create"),
    read("sessions.list"),
    read("sessions.get"),
    write("sessions.patch"),
    write("sessions.delete"),
    question("plugin.approval.request"),
    question("plugin.approval.waitDecision"),
    question("plugin.approval.list"),
    consent("plugin.approval.resolve"),
    question("exec.approval.request"),
    question("exec.approval.waitDecision"),
    question("exec.approval.list"),
    question("exec.approval.get"),
    consent("exec.approval.resolve"),
    question("approval.get"),
    consent("approval.resolve"),
    question("approval.history"),
    read("config.get"),
    read("logs.tail"),
    read("node.list"),
    read("node.describe"),
    Method::new(NODE_RESULT, None, Effect::State).role(Role::Node),
    Method::new("device.pair.list", Some(Scope::Pairing), Effect::None),
    pair("device.pair.approve"),
    pair("device.pair.reject"),
    pair("device.pair.remove"),
    pair("device.token.rotate"),
    pair("device.token.revoke"),
    read("plans.check").everywhere(),
    Method::new("plans.dryRun", Some(Scope::Write), Effect::None).everywhere(),
    run("plans.run").everywhere().may_use(&[Power::Approve]),
    write("plans.cancel"),
    read("plans.replay").everywhere(),
    run("plans.fork").everywhere().may_use(&[Power::Approve]),
    run("plans.undo").everywhere().may_use(&[Power::Approve]),
    read("runs.list").everywhere(),
    read("runs.get").everywhere(),
    read("runs.events"),
    read("runs.verify").everywhere(),
    run("runs.resume").everywhere().may_use(&[Power::Approve]),
    write("runs.cancel").everywhere(),
    read("runs.subscribe"),
    read("runs.unsubscribe"),
    write("bridge.open").may_use(&[Power::Approve]),
    write("bridge.close"),
    write("bridge.inbound").may_use(&[Power::Approve]),
    read("bridge.outbound"),
    read("bridge.status"),
    consent("bridge.permission.reply"),
    read("openviking.feature.gates").everywhere(),
    run("context.command").everywhere().may_use(&[Power::HostPaths]),
    write("context.capture").everywhere(),
    write("context.assemble").everywhere(),
    write("context.compact").everywhere(),
    // The command line and the local socket alone.
    read("tools.list").local(),
    read("tools.describe").local(),
    run("tools.call").local(),
    read("runs.export").local(),
    read("runs.transcript").local(),
    Method::new("devices.list", Some(Scope::Pairing), Effect::None).local(),
    pair("devices.approve").local(),
    pair("devices.reject").local(),
    pair("devices.revoke").local(),
    administer("context.add").uses(&[Power::HostPaths]),
    administer("context.request"),
    read("plugins.list").local(),
    read("plugins.info").local(),
    read("plugins.doctor").local(),
    administer("plugins.install").uses(&[Power::Grant, Power::HostPaths]),
    administer("plugins.update").uses(&[Power::Grant]),
    administer("plugins.enable").uses(&[Power::Grant]),
    administer("plugins.disable"),
    administer("plugins.remove"),
    read("mcp.servers").local(),
    Method::new("mcp.start", Some(Scope::Admin), Effect::State).local(),
    Method::new("mcp.stop", Some(Scope::Admin), Effect::State).local(),
    administer("mcp.approve").uses(&[Power::Grant]),
    administer("mcp.forget"),
];

/// What an HTTP route wants to be shown before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// Nothing: it says whether the program is up.
    None,
    /// The gateway's token. Whoever shows it is let in as an agent of the owner, never as a person.
    Shared,
    /// The token of one bridged session, in the first frame.
    Session,
}

impl Credential {
    /// The words in documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shared => "the gateway's token",
            Self::Session => "a session's token",
        }
    }
}

/// An HTTP route and what it demands.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The path, or the beginning of all paths below it where it ends in `/*`.
    pub path: &'static str,
    /// What must be shown.
    pub credential: Credential,
    /// What a request may do.
    pub demand: Demand,
}

const fn route(path: &'static str, credential: Credential, effect: Effect) -> Route {
    Route { path, credential, demand: Demand::new(None, effect) }
}

/// Every HTTP route. Any other path is answered with 404, or leads to the WebSocket door.
pub const ROUTES: &[Route] = &[
    route("/health", Credential::None, Effect::None),
    route("/healthz", Credential::None, Effect::None),
    route("/ready", Credential::None, Effect::None),
    route("/readyz", Credential::None, Effect::None),
    route("/metrics", Credential::Shared, Effect::None),
    route("/tools/invoke", Credential::Shared, Effect::Recorded),
    route("/runs/{run}/events", Credential::Shared, Effect::None),
    route("/bridge", Credential::Session, Effect::Recorded),
    route("/bridge/inbound", Credential::Shared, Effect::State),
    route("/mcp", Credential::Shared, Effect::Recorded),
    // The context store's own protocol: a store with accounts, without tools and without host paths.
    route("/openviking/health", Credential::None, Effect::None),
    route("/openviking/ready", Credential::None, Effect::None),
    route("/openviking/*", Credential::Shared, Effect::State),
    route("/api/v1/*", Credential::Shared, Effect::State),
    route("/api/openviking/*", Credential::Shared, Effect::None),
];

/// What the call of a tool by a bridged session demands.
pub(crate) const BRIDGED_CALL: Demand = Demand::new(Some(Scope::Write), Effect::Recorded);

/// The frames that a bridged session sends, and what each demands. None answers a permission question: answers come by
/// `bridge.permission.reply` alone.
pub const BRIDGE_FRAMES: &[(&str, Demand)] = &[
    ("hello", Demand::new(None, Effect::State)),
    ("tool_call", BRIDGED_CALL),
    ("tool_cancel", Demand::new(None, Effect::State)),
    ("permission_request", Demand::new(None, Effect::State)),
    ("outbound_message", Demand::new(None, Effect::State)),
    ("ack", Demand::new(None, Effect::State)),
    ("ping", Demand::new(None, Effect::None)),
    ("pong", Demand::new(None, Effect::None)),
];

/// A method by name.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// The names that `hello-ok` lists.
pub(crate) fn gateway_names() -> Vec<&'static str> {
    METHODS.iter().filter(|method| method.is_on_gateway()).map(|method| method.name).collect()
}

/// Whether the parameters of a method may ask for a power. A method that is not in the table may not.
pub fn decide_power(caller: &Caller, method: &str, power: Power) -> Result<(), Refusal> {
    match find(method) {
        Some(known) => authority::decide_power(caller, &known.demand, power),
        None => Err(Refusal::Undeclared(power)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use toolyard_bridge::frames::FromPlugin;

    #[test]
    fn every_method_is_declared_once_and_no_declaration_contradicts_itself() {
        let names: HashSet<&str> = METHODS.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), METHODS.len());
        for method in METHODS {
            let demand = &method.demand;
            let only_node = method.role == Role::Node;
            assert!(demand.effect == Effect::None || demand.scope.is_some() || only_node, "{}", method.name);
            if demand.effect == Effect::Unrecorded {
                assert_eq!(method.reach, Reach::Local, "{}: what leaves no record stays on this machine", method.name);
            }
            if demand.uses.contains(&Power::Grant) || demand.uses.contains(&Power::HostPaths) {
                assert!(demand.person && method.reach == Reach::Local, "{}", method.name);
            }
        }
    }

    /// The name of a frame's type. A frame that is added does not compile until it is named here.
    fn frame_name(frame: &FromPlugin) -> Option<&'static str> {
        Some(match frame {
            FromPlugin::Hello(_) => "hello",
            FromPlugin::ToolCall { .. } => "tool_call",
            FromPlugin::ToolCancel { .. } => "tool_cancel",
            FromPlugin::PermissionRequest(_) => "permission_request",
            FromPlugin::OutboundMessage(_) => "outbound_message",
            FromPlugin::Ack { .. } => "ack",
            FromPlugin::Ping { .. } => "ping",
            FromPlugin::Pong { .. } => "pong",
            FromPlugin::Unknown => return None,
        })
    }

    #[test]
    fn every_frame_of_a_bridged_session_is_declared() {
        for (name, demand) in BRIDGE_FRAMES {
            assert!(demand.uses.is_empty() && demand.may_use.is_empty(), "{name}");
            // A frame without its fields is still read as its own type, or refused for what it lacks.
            let read = serde_json::from_value::<FromPlugin>(serde_json::json!({"type": name}));
            assert!(read.as_ref().ok().and_then(frame_name).is_none_or(|own| own == *name), "{name}");
            assert!(!matches!(read, Ok(FromPlugin::Unknown)), "{name} is no frame");
        }
    }

    #[test]
    fn a_method_that_is_not_declared_may_use_nothing() {
        let refused = decide_power(&Caller::cli("ada"), "plans.approve", Power::Approve);
        assert_eq!(refused, Err(Refusal::Undeclared(Power::Approve)));
    }
}
