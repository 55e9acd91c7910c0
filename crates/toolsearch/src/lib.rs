//! Tool Search: how a model uses a catalog of thousands of tools without being shown them all.
//!
//! Four control tools (`tool_search`, `tool_describe`, `tool_call`, `tool_search_code`) stand in for the catalog. They
//! are tools like any other, run by [`ToolSearch`]; what they call goes down the same road as a direct call, for the
//! same caller. [`Surface`] says what a model is shown in each mode.
//!
//! A door that serves models asks [`ToolSearch::surface`] for what to list, with the caller the model acts for: it
//! follows `tools.toolSearch`, falls back where scripts cannot be isolated (the notice says so), and counts bytes. The
//! gateway does so for `tools.effective` with `forModel`, MCP for `tools/list`. Calls need nothing special: a name that
//! was not listed is found by the engine as long as the caller may use it.
//!
//! Knows no door and no transport, and no ranking: that is `toolyard_catalog::search`. What a caller may find is what the
//! policy lets them call, by the same predicate.

mod arguments;
mod code;
mod config;
mod controls;
mod effective;
mod entries;
mod lookup;
mod meaning;
mod provider;
pub mod quality;
mod surface;
mod telemetry;

pub use config::{Mode, Options, Settings, ToolSearchConfig};
pub use controls::{CONTROL_NAMES, definitions, is_control};
pub use effective::{EffectiveCatalog, Effectives};
pub use meaning::StaticMeaning;
pub use provider::ToolSearch;
pub use surface::{ShownTool, Surface, SurfaceRequest, client_conflicts};
pub use telemetry::{Counters, Telemetry};
