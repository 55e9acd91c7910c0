//! A search as a model sees it, for people: each tool that was found with the parts of its score and with what the policy
//! decides about calling it. Nothing is recorded, because nothing is called.

use crate::{ToolSearch, telemetry::Counters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolyard_catalog::{
    Decision,
    search::{Explanation, Hit},
    surface::{Mode, one_line},
};
use toolyard_engine::{Caller, Engine};
use toolyard_protocol::{ErrorCode, Failure};

/// Characters of a description.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// What a model finds, with reasons.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedSearch {
    /// The query.
    pub query: String,
    /// The tools, the best first.
    pub hits: Vec<ToolHit>,
    /// What a model is shown before it searches.
    pub surface: SurfaceFigures,
}

/// A tool that was found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolHit {
    /// Its place, from 1.
    pub rank: usize,
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// How well it fits; comparable within one answer.
    pub score: f32,
    /// Whether the query names it.
    pub exact: bool,
    /// What the score is made of.
    pub parts: Vec<HitPart>,
    /// What each word gave, the most important first.
    pub words: Vec<HitWord>,
    /// What the policy decides about a call: `allow`, `ask` or `deny`.
    pub decision: String,
    /// Why; absent where the call is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The key of the configuration that decides; absent where the call is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A part of a score.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HitPart {
    /// `words`, `name covered`, `words side by side` or `meaning`.
    pub name: String,
    /// What it gives; for `meaning` the similarity, -1 to 1.
    pub value: f32,
}

/// What one word gave in one field.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HitWord {
    /// The word of the tool, as a stem.
    pub term: String,
    /// The field that contains it.
    pub field: String,
    /// What it gave.
    pub score: f32,
    /// The word of the query, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// What a model is shown, in figures.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceFigures {
    /// `direct`, `code`, `tools` or `directory`.
    pub mode: String,
    /// The tools that it is shown with their schemas.
    pub tools: Vec<String>,
    /// Bytes of tools and prompt.
    pub bytes: usize,
    /// Tools that it may use.
    pub catalog_size: usize,
    /// Bytes that all of them would take.
    pub direct_bytes: usize,
    /// Why the mode is not the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

impl ToolSearch {
    /// What a model that acts for a caller finds.
    ///
    /// # Errors
    /// The tools cannot be indexed.
    pub async fn explained(
        &self,
        engine: &Engine,
        caller: &Caller,
        query: &str,
        limit: Option<usize>,
    ) -> Result<ExplainedSearch, Failure> {
        let catalog = self.catalog(engine, caller);
        if !catalog.is_indexed() {
            let warm = catalog.clone();
            tokio::task::spawn_blocking(move || warm.warm()).await.map_err(|error| {
                Failure::new(ErrorCode::InternalError, format!("the tools could not be indexed: {error}"))
            })?;
        }
        Counters::add(&self.counters.searches);
        let policy = engine.policy_for(caller);
        let limit = limit.unwrap_or(self.settings().default_limit).clamp(1, self.settings().max_limit);
        let hits = catalog.search(query, limit, true).into_iter().enumerate().map(|(at, hit)| {
            let decision = policy.decide(&hit.entry, None);
            ToolHit::of(at + 1, hit, decision)
        });
        let hits = hits.collect();
        let (mode, notice) = self.mode(self.settings().surface.mode).await;
        let surface = self.first_surface(&catalog, mode);
        Ok(ExplainedSearch {
            query: query.to_owned(),
            hits,
            surface: SurfaceFigures {
                mode: Mode::as_str(surface.mode).to_owned(),
                tools: surface.tools.iter().map(|tool| tool.name.clone()).collect(),
                bytes: surface.bytes(),
                catalog_size: catalog.len(),
                direct_bytes: catalog.direct_bytes(),
                notice,
            },
        })
    }
}

impl ToolHit {
    fn of(rank: usize, hit: Hit, decision: Decision) -> Self {
        let (decision, reason, rule) = match decision {
            Decision::Allow => ("allow", None, None),
            Decision::Ask { reason, rule, .. } => ("ask", Some(reason), Some(rule)),
            Decision::Deny { reason, rule } => ("deny", Some(reason), Some(rule)),
        };
        let (parts, words) = hit.explain.map(reasons).unwrap_or_default();
        Self {
            rank,
            id: hit.entry.id().to_owned(),
            name: hit.entry.name().to_string(),
            description: one_line(&hit.entry.definition().description, MAX_DESCRIPTION_CHARS),
            score: hit.score,
            exact: hit.exact,
            parts,
            words,
            decision: decision.to_owned(),
            reason,
            rule,
        }
    }
}

fn reasons(explanation: Explanation) -> (Vec<HitPart>, Vec<HitWord>) {
    let words: f32 = explanation.words.iter().map(|word| word.score).sum();
    let parts = [
        ("words", words),
        ("name covered", explanation.coverage),
        ("words side by side", explanation.neighbours),
        ("meaning", explanation.similarity.unwrap_or_default()),
    ];
    let parts = parts.into_iter().filter(|(_, value)| *value != 0.0);
    let parts = parts.map(|(name, value)| HitPart { name: name.to_owned(), value }).collect();
    let word = |word: toolyard_catalog::search::Contribution| {
        let field = serde_json::to_value(word.field).ok();
        let field = field.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        HitWord { term: word.term, field, score: word.score, from: word.from }
    };
    (parts, explanation.words.into_iter().map(word).collect())
}
