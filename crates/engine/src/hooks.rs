//! Hooks before a call: plugins and doors may inspect, rewrite or block it, or ask a person.

use crate::{BoxFuture, Caller};
use serde_json::{Map, Value};
use std::sync::Arc;
use toolyard_catalog::ToolEntry;
use toolyard_protocol::ToolResult;

/// What a hook sees before a call.
pub struct HookCall<'a> {
    /// The caller.
    pub caller: &'a Arc<Caller>,
    /// The tool.
    pub tool: &'a ToolEntry,
    /// The arguments, which are valid.
    pub args: &'a Map<String, Value>,
}

/// The decision of a hook.
#[derive(Debug, Clone, PartialEq)]
pub enum HookVerdict {
    /// The call continues.
    Proceed,
    /// Continue with other arguments; they are validated and checked against the policy again.
    Rewrite(Map<String, Value>),
    /// Do not run it.
    Block {
        /// Shown to the caller.
        reason: String,
    },
    /// Continue with other arguments, if a person approves them.
    RewriteAndAsk {
        /// The other arguments; they are validated and checked against the policy again.
        args: Map<String, Value>,
        /// A short title for the question.
        title: String,
        /// What is asked.
        description: String,
        /// How long to wait; clamped to ten minutes.
        timeout_ms: u64,
    },
    /// A person decides.
    Ask {
        /// A short title for the question.
        title: String,
        /// What is asked.
        description: String,
        /// How long to wait; clamped to ten minutes.
        timeout_ms: u64,
    },
}

/// Inspects calls. Hooks run in the order in which they were added; the first block ends the call.
pub trait Hook: Send + Sync + 'static {
    /// A name for records.
    fn name(&self) -> &str;

    /// Before a call is made. Must not take long: it is under the call's own deadline.
    fn before<'a>(&'a self, call: HookCall<'a>) -> BoxFuture<'a, HookVerdict>;

    /// After a call has its result.
    fn after(&self, _result: &ToolResult) {}
}
