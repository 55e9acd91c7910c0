//! The application: every method of every door as a type, and the state that methods work on.
//!
//! A method is declared in the file of its family, with its parameters and its answer, and listed in `list.rs`; a door
//! looks it up there, checks the caller, and passes the request on. Parameters are parsed in `params/` alone.
//!
//! [`Service`] exists in every process. [`Hub`] is the state that clients of network doors share: connections,
//! sessions, offered tools, approvals and bridged sessions. *Has no* sockets or frames.

pub mod approvals;
pub mod bridge;
pub mod cluster;
pub mod console;
pub mod devices;
mod error;
mod express;
pub mod follow;
mod health;
pub mod hub;
mod list;
pub mod load_monitor;
pub mod local;
pub mod logs;
mod method;
pub mod metrics;
mod nodes;
mod offers;
mod operate;
pub mod params;
pub mod plans;
pub mod policy;
pub mod proof;
mod registry;
pub mod run_digest;
mod run_facts;
pub mod run_pages;
pub mod runs;
mod service;
pub mod sessions;
mod settings;
pub mod stored;
mod subscriptions;
pub mod tools;
pub mod workspaces;

pub use bridge::{BRIDGE_FRAMES, BridgeOut, BridgeOutgoing, Message, Receive, SessionTools};
pub use error::{MethodError, RpcError};
pub use hub::{Hub, RequestError, WeakHub};
pub use list::EVENTS;
pub use method::{AnyJson, Call, ClientRequest, EventSink, Handle, Lane, Method, MethodDoors, NoParams, Role, Terms};
pub use operate::{ConfigAnswer, LogTail, LogsTail, TailParams};
pub use registry::{Definitions, Entry, MethodSchemas, Methods, SharedSchemas, TypeSchemas};
pub use run_facts::RunCounts;
pub use service::{OmittedTool, PluginReport, ProcessInfo, Service};
pub use settings::HubSettings;

/// A JSON object of no fixed shape.
pub type Object = serde_json::Map<String, serde_json::Value>;
