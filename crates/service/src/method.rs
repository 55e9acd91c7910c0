//! What a method is: a type with a name, the terms on which it may be called, its parameters and its answer.
//!
//! A method is declared with [`methods!`](crate::methods!) and answered by an implementation of [`Handle`].
//! [`Methods`](crate::Methods) combines declarations and handlers; every door looks a method up there.

use crate::{Hub, MethodError, RpcError, Service, hub::Connection};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{fmt, sync::Arc};
use toolyard_engine::{
    Caller,
    authority::{Demand, Effect, Power, Scope},
};
use toolyard_protocol::ExecutionEvent;

/// Receives the events of a run while a method works on it.
pub type EventSink = Arc<dyn Fn(Arc<ExecutionEvent>) + Send + Sync>;

/// A method of one or more doors.
pub trait Method: Send + Sync + 'static {
    /// Its name on the wire.
    const NAME: &'static str;
    /// What it does, in one sentence, for the reference.
    const ABOUT: &'static str;
    /// The terms on which it may be called.
    const TERMS: Terms;
    /// The scope that the caller's credential must hold.
    const SCOPE: Option<Scope> = Self::TERMS.demand.scope;
    /// Whether only a person at this machine may call it.
    const PERSON: bool = Self::TERMS.demand.person;
    /// Its parameters.
    type Params: DeserializeOwned + JsonSchema + Send + 'static;
    /// Its answer.
    type Answer: Serialize + JsonSchema + Send;
}

/// Answers a method.
pub trait Handle<M: Method>: Send + Sync + 'static {
    /// Answers one call. The caller has been admitted and the parameters have been checked.
    fn handle(&self, call: &Call<'_>, params: M::Params)
    -> impl Future<Output = Result<M::Answer, MethodError>> + Send;
}

/// One call of a method, as its handler sees it.
pub struct Call<'a> {
    /// The method's name.
    pub method: &'static str,
    /// What the method declares; powers that parameters ask for are decided against it.
    pub demand: Demand,
    /// The application.
    pub service: &'a Service,
    /// On whose behalf the method is called.
    pub caller: Arc<Caller>,
    /// The state that network clients share; absent in a process without network doors.
    pub hub: Option<&'a Hub>,
    /// The client that called, with its request; absent at the local socket and the command line.
    pub client: Option<ClientRequest<'a>>,
    /// Receives the events of a run that the method starts.
    pub events: Option<EventSink>,
}

/// A request of a connected client.
#[derive(Clone, Copy)]
pub struct ClientRequest<'a> {
    /// The connection.
    pub connection: &'a Arc<Connection>,
    /// The request's id.
    pub id: &'a str,
    /// Sends an intermediate answer before the final one.
    pub early: &'a (dyn Fn(Box<RawValue>) + Send + Sync),
}

impl Call<'_> {
    /// What network clients share.
    pub fn hub(&self) -> Result<&Hub, MethodError> {
        self.hub.ok_or_else(|| RpcError::unavailable("this method needs a running gateway").into())
    }

    /// The client that called.
    pub fn client(&self) -> Result<&ClientRequest<'_>, MethodError> {
        self.client.as_ref().ok_or_else(|| RpcError::unavailable("this method needs a connected client").into())
    }

    /// The connection of the client that called.
    pub fn connection(&self) -> Result<&Arc<Connection>, MethodError> {
        Ok(self.client()?.connection)
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("method", &self.method).field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// Which doors carry a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodDoors {
    /// The WebSocket door, the console, the local socket and the command line.
    Everywhere,
    /// The WebSocket door and the console.
    Gateway,
    /// The local socket, the command line and the console: the owner of this machine.
    Local,
}

impl MethodDoors {
    /// The words in documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everywhere => "gateway, console, local",
            Self::Gateway => "gateway, console",
            Self::Local => "console, local",
        }
    }
}

/// Which role of a connection may send a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The role of people and agents that call methods.
    Operator,
    /// Nodes, which answer requests of the gateway.
    Node,
    /// Both.
    Any,
}

/// The queue of a request: requests in one lane compete for the same slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Health, approvals, cancel, and answers that running calls wait for.
    Express,
    /// Everything else.
    Ordinary,
    /// Requests that wait for a person's decision, or streams that last.
    Waiting,
}

/// On which terms a method may be called.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// What it demands of its caller.
    pub demand: Demand,
    /// The doors that carry it.
    pub reach: MethodDoors,
    /// The roles that may send it.
    pub role: Role,
    /// The requests it competes with.
    pub lane: Lane,
    /// Whether the number of requests per minute and device is limited.
    pub is_limited: bool,
    /// Whether a client's `sessionKey` and `agentId` beside the parameters say for which session it is called.
    pub takes_session: bool,
}

impl Terms {
    /// Terms with a scope and an effect: at the WebSocket door, for operators.
    pub const fn new(scope: Option<Scope>, effect: Effect) -> Self {
        Self {
            demand: Demand::new(scope, effect),
            reach: MethodDoors::Gateway,
            role: Role::Operator,
            lane: Lane::Ordinary,
            is_limited: false,
            takes_session: false,
        }
    }

    /// Needs an authenticated connection and no scope.
    pub const fn open() -> Self {
        Self::new(None, Effect::None)
    }

    /// The terms of a method that reads state.
    pub const fn read() -> Self {
        Self::new(Some(Scope::Read), Effect::None)
    }

    /// Changes state of Toolyard's own.
    pub const fn write() -> Self {
        Self::new(Some(Scope::Write), Effect::State)
    }

    /// Runs tools, each of which is decided on and recorded by the pipeline.
    pub const fn run() -> Self {
        Self::new(Some(Scope::Write), Effect::Recorded)
    }

    /// Reads approvals, or asks a question.
    pub const fn question() -> Self {
        Self::new(Some(Scope::Approvals), Effect::State).lane(Lane::Express)
    }

    /// Answers a question to a person.
    pub const fn consent() -> Self {
        Self::new(Some(Scope::Approvals), Effect::Recorded).uses(&[Power::Approve]).lane(Lane::Express)
    }

    /// Changes which devices may connect. The rate is limited, because a person does this rarely.
    pub const fn pair() -> Self {
        let mut terms = Self::new(Some(Scope::Pairing), Effect::State).uses(&[Power::Pair]);
        terms.is_limited = true;
        terms
    }

    /// For the person at this machine: changes content or programs without a recorded call.
    pub const fn administer() -> Self {
        Self::new(Some(Scope::Admin), Effect::Unrecorded).local().person()
    }

    /// Carried by every door; a client may say for which session.
    pub const fn everywhere(mut self) -> Self {
        self.reach = MethodDoors::Everywhere;
        self.takes_session = true;
        self
    }

    /// Carried by the local socket and the command line alone.
    pub const fn local(mut self) -> Self {
        self.reach = MethodDoors::Local;
        self
    }

    /// A client may say for which session.
    pub const fn takes_session(mut self) -> Self {
        self.takes_session = true;
        self
    }

    /// For connections of a role.
    pub const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// In another lane.
    pub const fn lane(mut self, lane: Lane) -> Self {
        self.lane = lane;
        self
    }

    /// Always uses these powers.
    pub const fn uses(mut self, powers: &'static [Power]) -> Self {
        self.demand = self.demand.uses(powers);
        self
    }

    /// Parameters may ask for these powers.
    pub const fn may_use(mut self, powers: &'static [Power]) -> Self {
        self.demand = self.demand.may_use(powers);
        self
    }

    /// For a person alone.
    pub const fn person(mut self) -> Self {
        self.demand = self.demand.person();
        self
    }

    /// About the installation as a whole: refused to every workspace but the default one.
    pub const fn of_installation(mut self) -> Self {
        self.demand = self.demand.of_installation();
        self
    }

    /// Whether the WebSocket door carries it.
    pub fn is_on_gateway(&self) -> bool {
        self.reach != MethodDoors::Local
    }

    /// Whether the local socket and the command line carry it.
    pub fn is_local(&self) -> bool {
        self.reach != MethodDoors::Gateway
    }
}

/// Declares methods: a sentence for the reference, the type's name, the method's name, its terms, parameters and answer.
///
/// ```ignore
/// methods! {
///     /// Lists the connected nodes.
///     NodeList = "node.list", Terms::read(), NoParams => Nodes;
/// }
/// ```
#[macro_export]
macro_rules! methods {
    ($( $(#[doc = $about:literal])+ $name:ident = $wire:literal, $terms:expr, $params:ty => $answer:ty; )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl $crate::Method for $name {
            const NAME: &'static str = $wire;
            const ABOUT: &'static str = concat!($($about),+);
            const TERMS: $crate::Terms = $terms;
            type Params = $params;
            type Answer = $answer;
        }
    )+};
}

/// Parameters of a method that takes none.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// A JSON value of no fixed shape: a tool's data, another system's payload.
pub type AnyJson = Value;
