//! Tool Search: how a model uses a catalog of thousands of tools without being shown them all.
//!
//! Four control tools (`tool_search`, `tool_describe`, `tool_call`, `tool_search_code`) stand in for the catalog. They
//! are tools like any other, run by [`ToolSearch`]; what they call goes down the same road as a direct call, for the
//! same caller. What a model is shown in each mode is `toolyard_catalog::surface`'s.
//!
//! A door that serves models asks [`ToolSearch`] for what to list (`toolyard_engine::ModelView`), with the caller the
//! model acts for: it follows `tools.toolSearch`, falls back where scripts cannot be isolated (the notice says so), and
//! counts bytes. The gateway does so for `tools.effective` with `forModel`, MCP for `tools/list`. Calls need nothing
//! special: a name that was not listed is found by the engine as long as the caller may use it.
//!
//! Knows no door and no transport, and no ranking: that is `toolyard_catalog::search`. What a caller may find is what the
//! policy lets them call, by the same predicate.

mod arguments;
mod code;
mod config;
mod controls;
mod entries;
mod lookup;
mod meaning;
mod provider;
pub mod quality;
mod telemetry;

pub use config::{Options, Settings, ToolSearchConfig};
pub use controls::definitions;
pub use meaning::StaticMeaning;
pub use provider::ToolSearch;
pub use telemetry::{Counters, Telemetry};
