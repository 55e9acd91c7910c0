//! What is stored about upstream servers: their last catalog, so that tools are available before a server has started,
//! and the hash of each approved tool definition, so that a change is detected.

use super::terms::HookInterest;
use crate::wire::{
    Payload,
    upstream::{ForwardedPrompt, ForwardedResource, ForwardedTemplate},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use toolyard_engine::{Store, store::StoreError};

const CATALOGS: &str = "mcp-catalogs";
const PINS: &str = "mcp-pins";

/// A server as it was last seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServerCatalog {
    pub(crate) tools: Vec<Payload>,
    pub(crate) prompts: Vec<ForwardedPrompt>,
    pub(crate) resources: Vec<ForwardedResource>,
    pub(crate) templates: Vec<ForwardedTemplate>,
    pub(crate) server: Value,
    pub(crate) hooks: Vec<HookInterest>,
    pub(crate) health: Value,
    pub(crate) protocol: String,
    pub(crate) at: Option<Timestamp>,
}

/// An approved definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pin {
    pub(crate) hash: String,
    pub(crate) at: Timestamp,
    /// The name of the approver; `first seen` if no approval was needed.
    pub(crate) by: String,
    /// The approved description, to show what changed.
    pub(crate) description: String,
    /// The whole definition in normal form, to show what changed. Absent in pins of earlier versions: their hash did not
    /// cover titles, schemas under `parameters` and other fields, so they count as no approval of a definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) definition: Option<String>,
}

/// The pins of one server, by the tool's own name.
pub(crate) type Pins = BTreeMap<String, Pin>;

/// Reads and writes them. Methods may block.
#[derive(Clone)]
pub(crate) struct PinStore(pub(crate) Arc<dyn Store>);

impl PinStore {
    pub(crate) fn seen(&self, server: &str) -> Result<Option<ServerCatalog>, StoreError> {
        Ok(self.0.get(CATALOGS, server)?.and_then(|bytes| Self::read_seen(&bytes)))
    }

    /// Every server as it was last seen, still as bytes.
    pub(crate) fn all_seen(&self) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        Ok(self.0.list(CATALOGS)?.into_iter().collect())
    }

    /// Parses one entry of [`Self::all_seen`].
    pub(crate) fn read_seen(bytes: &[u8]) -> Option<ServerCatalog> {
        let read = serde_json::from_slice(bytes);
        read.inspect_err(|error| tracing::warn!(%error, "what an upstream server offered before cannot be read")).ok()
    }

    pub(crate) fn keep_seen(&self, server: &str, seen: &ServerCatalog) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(seen).map_err(|e| StoreError::failed(e.to_string()))?;
        self.0.put(CATALOGS, server, bytes, None).map(drop)
    }

    pub(crate) fn pins(&self, server: &str) -> Result<Option<Pins>, StoreError> {
        let Some(bytes) = self.0.get(PINS, server)? else { return Ok(None) };
        // Without its pins, a server would count as new, and its tools would need no approval.
        let pins = serde_json::from_slice(&bytes);
        pins.map(Some).map_err(|e| StoreError::failed(format!("the approved tools of {server} cannot be read: {e}")))
    }

    /// Keeps the pins, and returns when they are durable: a definition that is not pinned yet when the process ends would
    /// be taken for a first one by the next process. Must be called on a thread of a runtime that may block.
    pub(crate) fn keep_pins(&self, server: &str, pins: &Pins) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(pins).map_err(|e| StoreError::failed(e.to_string()))?;
        let position = self.0.put(PINS, server, bytes, None)?;
        tokio::runtime::Handle::current().block_on(self.0.durable(position))
    }

    /// Forgets a server.
    pub(crate) fn forget(&self, server: &str) -> Result<(), StoreError> {
        self.0.remove(CATALOGS, server)?;
        self.0.remove(PINS, server).map(drop)
    }
}
