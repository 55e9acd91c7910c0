//! How a call runs: the one pipeline every call takes, approvals, plans, events, and the traits behind which tools
//! ([`Provider`]) and durable state ([`Store`]) stand.
//!
//! Knows no HTTP, no SQL, no MCP and no files: doors turn their requests into a [`Caller`] and a call, stores keep
//! bytes, providers do the work.

mod caller;
pub mod memory_store;
mod provider;
pub mod store;

pub use caller::{Caller, Door};
pub use provider::{
    Blob, Blobs, BoxFuture, CallContext, Failed, Intent, IntentTarget, InverseCall, Output, Prepared, PreviewProvider,
    Progress, Provider, Reconciled,
};
pub use store::Store;
