//! From what a model calls a tool to the tool: an exact id, an exact name, or a helpful refusal.

use crate::effective::EffectiveCatalog;
use std::sync::Arc;
use toolyard_catalog::{Resolution, ToolEntry};
use toolyard_protocol::{ErrorCode, Failure};

/// Tools suggested for an unknown one.
const MAX_SUGGESTIONS: usize = 3;
/// What to do about an unknown tool.
const RECOVERY: &str = "Use tool_search to find the tool, then pass its exact id.";

/// The tool that an id or name stands for, in this caller's catalog.
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
        Resolution::Unknown { .. } => {
            let near = suggestions(catalog, wanted);
            let hint = if near.is_empty() { String::new() } else { format!(" Did you mean: {}?", near.join(", ")) };
            Err(Failure::new(ErrorCode::NotFound, format!("Unknown tool id: {}.{hint} {RECOVERY}", shown(wanted)))
                .suggest(RECOVERY)
                .detail("suggestions", near)
                .retryable(false))
        }
    }
}

/// Ids that share something with what was asked for, the nearest first.
fn suggestions(catalog: &EffectiveCatalog, wanted: &str) -> Vec<String> {
    let needle = wanted.to_lowercase();
    let name_only = needle.splitn(3, ':').nth(2).unwrap_or(&needle).to_owned();
    let tokens: Vec<String> = words(&name_only);
    let mut ranked: Vec<(usize, &str)> = Vec::new();
    for entry in catalog.iter() {
        let name = entry.name().as_str().to_lowercase();
        let mut score = 0;
        if !needle.is_empty() && (needle.contains(&name) || entry.id().to_lowercase().contains(&name_only)) {
            score += 40;
        }
        if tokens.contains(&name) {
            score += 40;
        }
        score += 12 * words(&name).iter().filter(|word| tokens.contains(word)).count();
        let definition = entry.definition();
        if name_only.len() > 2
            && (definition.title.to_lowercase().contains(&name_only)
                || definition.description.to_lowercase().contains(&name_only))
        {
            score += 8;
        }
        if score > 0 {
            ranked.push((score, entry.id()));
        }
    }
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, id)| id.to_owned()).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn shown(text: &str) -> String {
    text.chars().take(120).collect()
}
