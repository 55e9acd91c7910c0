//! MCP's messages as types: our responses ([`answers`]), requests of clients ([`requests`]), and our requests to
//! upstream servers with the parts of their responses that we read ([`upstream`]). JSON-RPC is in `jsonrpc.rs`.
//!
//! A gateway forwards much that it does not interpret. Such parts stay untyped, and their types say so: [`Arguments`]
//! belong to a tool or prompt, a [`Payload`] is an object of another program that is passed on unchanged.

pub mod answers;
pub mod requests;
pub mod upstream;

use crate::RpcError;
use crate::jsonrpc::INTERNAL_ERROR;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// The arguments of a tool or a prompt, which its own schema describes.
pub type Arguments = Map<String, Value>;

/// An object of another program, passed on as it came.
pub type Payload = Map<String, Value>;

/// An entry of a list or an answer: one of ours, or another server's.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Item<Own, Theirs = Payload> {
    /// An entry made by Toolyard.
    Own(Own),
    /// Another server's, passed on unchanged except for names, which get a prefix.
    Forwarded(Theirs),
}

/// The name and version of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Implementation {
    /// A name for programs.
    pub name: String,
    /// A name for people.
    pub title: String,
    /// The version.
    pub version: String,
}

/// An empty object: a capability without settings, or an empty result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Empty {}

/// The parameters of `notifications/cancelled`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cancelled<'a> {
    pub(crate) request_id: &'a Value,
    pub(crate) reason: &'a str,
}

/// Reads the parameters of a method.
pub(crate) fn read<T: DeserializeOwned>(method: &str, params: Payload) -> Result<T, RpcError> {
    T::deserialize(params).map_err(|error| RpcError::params(format!("{method}: {error}")))
}

/// A message of ours as text.
pub(crate) fn text(message: &impl Serialize) -> Result<String, RpcError> {
    serde_json::to_string(message).map_err(unwritable)
}

/// A message of ours as a value.
pub(crate) fn value(message: &impl Serialize) -> Result<Value, RpcError> {
    serde_json::to_value(message).map_err(unwritable)
}

/// A message of ours as an object.
pub(crate) fn object(message: &impl Serialize) -> Result<Payload, RpcError> {
    match value(message)? {
        Value::Object(object) => Ok(object),
        _ => Err(RpcError::new(INTERNAL_ERROR, "a message of ours is no object")),
    }
}

fn unwritable(error: serde_json::Error) -> RpcError {
    RpcError::new(INTERNAL_ERROR, format!("an answer cannot be written: {error}"))
}
