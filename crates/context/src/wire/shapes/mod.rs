//! Responses in OpenViking's format, built from this store's own types. Fields that this store has no data for are in
//! [`Compat`](super::compat::Compat).

mod files;
mod import;
mod search;
mod sessions;

pub(crate) use files::{CopiedShape, MemoryShape, RemovedShape, Row, RowStyle, StatShape, TaggedShape, WrittenShape};
pub use import::ImportShape;
pub(crate) use import::{InspectedShape, InstalledShape, SkillShape, SkillsShape};
pub(crate) use search::{GlobShape, GrepShape, Grouped, Item, RecallRequest, RecallShape};
pub(crate) use sessions::{
    ChunkShape, CommitShape, ListedSessionShape, MatchesShape, NewSessionShape, SessionConfigShape, SessionShape,
    TaskShape,
};

use crate::error::Result;
use serde::Serialize;

/// Serialises a response. A response that cannot be serialised is a defect.
pub(crate) fn value(shape: impl Serialize) -> Result<serde_json::Value> {
    Ok(serde_json::to_value(shape)?)
}
