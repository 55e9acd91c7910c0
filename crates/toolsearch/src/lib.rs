//! Tool Search: how a model uses a catalog of thousands of tools without being shown them all.
//!
//! Four control tools (`tool_search`, `tool_describe`, `tool_call`, `tool_search_code`) replace the catalog. They are
//! ordinary tools, run by [`ToolSearch`]; their calls pass the same pipeline as direct calls, for the same caller.
//! `toolyard_catalog::surface` defines what a model is shown in each mode.
//!
//! A door that serves models asks [`ToolSearch`] what to list (`toolyard_engine::ModelView`), for the caller that the
//! model acts for. It follows `tools.toolSearch`, falls back if scripts cannot be isolated (with a notice), and counts
//! bytes. The gateway uses it for `tools.effective` with `forModel`, MCP for `tools/list`. A tool that was not listed
//! can be called by name if the caller may use it.
//!
//! Has no door, transport or ranking; the ranking is in `toolyard_catalog::search`. A caller finds exactly the tools
//! that the policy lets it call.

mod arguments;
mod code;
mod config;
mod controls;
mod entries;
mod explained;
mod lookup;
mod meaning;
mod provider;
pub mod quality;
mod savings;
mod telemetry;

pub use config::{Options, Settings, ToolSearchConfig};
pub use controls::definitions;
pub use explained::{ExplainedSearch, HitPart, HitWord, SurfaceFigures, ToolHit};
pub use meaning::StaticMeaning;
pub use provider::ToolSearch;
pub use savings::{DaySavings, DoorSavings, MAX_DAYS, Savings, SavingsCounter, SavingsHistory};
pub use telemetry::{Counters, Telemetry};
