//! How a call runs: the pipeline that every call passes, approvals, plans, events, and the traits for tools
//! ([`Provider`]) and durable state ([`Store`]).
//!
//! Has no HTTP, SQL, MCP or files: doors turn their requests into a [`Caller`] and a call, stores keep bytes, and
//! providers do the work.

// `Failure` is the only error type of the vocabulary and is returned by value; failing is not the hot path.
#![allow(clippy::result_large_err)]

pub mod approvals;
mod attempt;
pub mod authority;
mod background_task;
mod builtin;
mod caller;
pub mod chain;
mod clock;
pub mod diff;
mod end_tag;
mod engine;
mod events;
mod fact_seal;
mod facts;
mod hooks;
mod keys;
pub mod ledger;
pub mod memory_store;
mod model_view;
mod nested;
mod off_thread;
mod pipeline;
pub mod plan;
mod provider;
pub mod record;
mod recorder;
pub mod redact;
mod scope;
mod sealed_store;
pub mod secrets;
pub mod store;
mod transcript;
pub mod view;

pub use background_task::BackgroundTask;
pub use builtin::{BuiltIn, answer_schema, argument_schema};
pub use caller::{Caller, Door};
pub use clock::{Clock, SystemClock, system_clock};
pub use engine::{
    AskedAhead, Asking, CallAnswer, CallRequest, Engine, EngineOptions, EngineParts, OwnersTools, PrunedRuns,
    Retention, RunEndListener, ToolExchange, Tools,
};
pub use events::{EventBus, Events, Subscription};
pub use hooks::{Hook, HookCall, HookVerdict};
pub use keys::derive_shared;
pub use model_view::{FullView, ModelView, Shown};
pub use nested::{NestedAnswer, NestedCalls};
pub use off_thread::{STORE_THREADS, off_thread};
pub use provider::{
    Blob, Blobs, BoxFuture, CallContext, Failed, Intent, IntentTarget, InverseCall, Output, Prepared, PreviewProvider,
    Progress, ProgressKind, Provider, RETRY_AFTER, Reconciled,
};
pub use recorder::Recorder;
pub use sealed_store::SealedStore;
pub use store::Store;
pub use transcript::{CallContent, SessionMessage, TextContent, transcript};

/// The version of Toolyard, which every call contains.
pub const EXECUTOR_VERSION: &str = env!("CARGO_PKG_VERSION");
