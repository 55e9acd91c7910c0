//! Finds the tool that a model names: by exact id or exact name; otherwise an error with suggestions.

use std::sync::Arc;
use toolyard_catalog::{Resolution, ToolEntry, surface::EffectiveCatalog};
use toolyard_protocol::{ErrorCode, Failure};

/// What to do about an unknown tool.
const RECOVERY: &str = "Use tool_search to find the tool, then pass its exact id.";

/// Finds a tool by id or name in this caller's catalog.
pub(crate) fn find(catalog: &EffectiveCatalog, wanted: &str) -> Result<Arc<ToolEntry>, Failure> {
    match catalog.snapshot().resolve_visible(wanted, |entry| catalog.contains(entry)) {
        Resolution::Found(entry) => Ok(entry.clone()),
        Resolution::Ambiguous(ids) => Err(Failure::new(
            ErrorCode::ValidationError,
            format!("Ambiguous tool name: {}; use an exact tool id.", shown(wanted)),
        )
        .suggest("Pass one of the ids in details.ids.")
        .detail("ids", ids)
        .retryable(false)),
        Resolution::Unknown(suggestions) => {
            let near = suggestions.ids();
            // The specification requires the colon.
            let hint = if near.is_empty() { String::new() } else { format!(" Did you mean: {}?", near.join(", ")) };
            Err(Failure::new(ErrorCode::NotFound, format!("Unknown tool id: {}.{hint} {RECOVERY}", shown(wanted)))
                .suggest(RECOVERY)
                .detail("suggestions", near)
                .retryable(false))
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(120).collect()
}
