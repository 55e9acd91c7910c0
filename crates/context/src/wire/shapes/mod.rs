//! Answers in OpenViking's shapes, made from this store's own types. What the shapes have beyond those is in
//! [`Compat`](super::compat::Compat).

mod files;
mod import;
mod search;
mod sessions;

pub(crate) use files::{CopiedShape, RemovedShape, Row, RowStyle, StatShape, TaggedShape, WrittenShape};
pub use import::ImportShape;
pub(crate) use import::{InspectedShape, InstalledShape, SkillShape, SkillsShape};
pub(crate) use search::{GlobShape, GrepShape, Grouped, Item, RecallRequest, RecallShape};
pub(crate) use sessions::{
    ChunkShape, CommitShape, ListedSessionShape, MatchesShape, NewSessionShape, SessionConfigShape, SessionShape,
    TaskShape,
};

use crate::error::Result;
use serde::Serialize;

/// An answer as JSON. A shape of ours that cannot be written is a defect.
pub(crate) fn value(shape: impl Serialize) -> Result<serde_json::Value> {
    Ok(serde_json::to_value(shape)?)
}
