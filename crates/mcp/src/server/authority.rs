//! What each method of the MCP server requires of its caller. [`super::dispatch`] answers only methods listed here.
//!
//! An MCP client is always an agent: its caller is never a person, and no method of this door approves, grants, pairs
//! or names a path of the host. A tool call passes the pipeline like any other.

use toolyard_engine::authority::{Demand, Effect, Scope};

const READ: Demand = Demand::new(Some(Scope::Read), Effect::None);
const STATE: Demand = Demand::new(Some(Scope::Read), Effect::State);
const RUN: Demand = Demand::new(Some(Scope::Write), Effect::Recorded);

/// Every method, with what it demands.
pub const METHODS: &[(&str, Demand)] = &[
    ("initialize", Demand::new(None, Effect::None)),
    ("ping", Demand::new(None, Effect::None)),
    ("server/discover", READ),
    ("logging/setLevel", STATE),
    ("tools/list", READ),
    ("tools/call", RUN),
    ("resources/list", READ),
    ("resources/templates/list", READ),
    // Reading a note is a recorded call of the tool that reads it.
    ("resources/read", READ),
    ("resources/subscribe", STATE),
    ("resources/unsubscribe", STATE),
    ("prompts/list", READ),
    ("prompts/get", READ),
    ("completion/complete", READ),
    ("subscriptions/listen", STATE),
];

/// What a method requires; `None` if the method does not exist.
pub(crate) fn demand(method: &str) -> Option<&'static Demand> {
    METHODS.iter().find(|(name, _)| *name == method).map(|(_, demand)| demand)
}
