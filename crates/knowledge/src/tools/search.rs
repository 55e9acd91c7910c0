//! `obsidian_rag_search`: searches the notes.
// Comments on these types become descriptions in a schema that models read, so not every field has one.
#![allow(missing_docs)]

use super::{Args, Call, NotesTool, Tool, answer, parse, reads};
use crate::{
    envelope::{Health, Problem},
    facts::Fact,
    index::{ChunkFilter, IndexError, ProgramError, file_id},
    note::{day_number, normal_tag, parse_date},
    search::{Hit, Hits, Library, Query, Weights, search},
    sensitive::{Category, ScanInput},
    service::Knowledge,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};
use toolyard_engine::Output;
use toolyard_protocol::Failure;

/// Default number of results.
const DEFAULT_RESULTS: usize = 5;
/// Maximum number of results.
const MAX_RESULTS: usize = 50;
/// Maximum length of a query, in characters.
const MAX_QUERY_CHARS: usize = 2_000;
/// The value of a suggested fact is truncated to this length.
const MAX_SUGGESTION_CHARS: usize = 300;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What to look for, in any language: a question, a phrase or a few words.
    #[schemars(length(min = 1, max = 2000))]
    pub query: String,
    /// Maximum number of results (default 5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub max_results: Option<usize>,
    /// Only notes in these folders (or these notes), from the vault's root: ["Projects", "Journal/2024"].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub directory_filter: Option<Vec<String>>,
    /// Only notes of these days, both included. For a note without a date, the day of its last change counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date_range: Option<DateRange>,
    /// Only notes with at least one of these tags or a nested tag, without the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub tags: Option<Vec<String>>,
    /// Set this after the user has agreed to see results that were withheld as sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_sensitive: Option<bool>,
    /// Explain each score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<bool>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DateRange {
    /// First day (ISO 8601).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Last day (ISO 8601).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Whether a result is a note or a stored fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Note,
    Memory,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ResultItem {
    /// The chunk's plain text; code is left out.
    pub chunk_text: String,
    /// 0 to 1; comparable within one response.
    pub score: f64,
    /// The path of the note, from the vault's root.
    pub source_file: String,
    /// The headings above the chunk.
    pub section: Option<String>,
    /// The note's date.
    pub date: Option<String>,
    /// The note's tags.
    pub tags: Vec<String>,
    /// Index of the chunk in the note, from 0.
    pub chunk_index: u32,
    /// A note, or a fact that was stored with obsidian_rag_memory_store.
    pub kind: Kind,
    /// The note's title.
    pub title: String,
    /// The part that shows the match; may contain code.
    pub snippet: String,
    /// The chunk's byte range in the note: [start, end).
    pub byte_range: Option<[u64; 2]>,
    /// The explanation of the score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explanation>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Explanation {
    pub full_text: Part,
    pub vector: Part,
    pub links: Part,
    /// The terms of the query that the chunk contains.
    pub matched_terms: Vec<String>,
    /// The terms among them that the query repeats; each counts as often as the query contains it.
    pub repeated_terms: Vec<String>,
}

/// One part of a score: the score is the sum of `part * weight`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Part {
    /// The measured value: BM25, cosine, or the note's share of links.
    pub raw: Option<f64>,
    /// 0 to 1 within this response.
    pub part: f64,
    pub weight: f64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Data {
    pub results: Vec<ResultItem>,
    /// Whether any result is about health, money, relations, commitments or secrets.
    pub sensitive_detected: bool,
    /// A fact worth remembering, for obsidian_rag_memory_store once the user agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_suggestion: Option<Suggestion>,
    /// Number of results that are withheld until the user confirms.
    pub withheld_count: usize,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Suggestion {
    pub key: String,
    pub value: String,
    pub source: String,
}

/// The tool `obsidian_rag_search`.
pub struct Search;

impl NotesTool for Search {
    const NAME: &'static str = "obsidian_rag_search";
    type Input = Input;
    type Data = Data;
}

pub(super) const TOOL: Tool = Tool {
    name: Search::NAME,
    define: || {
        reads::<Input, Data>(
            "Search notes",
            "Finds what the user's notes say about something, by meaning and by words, best first. Use it for \
                  \"what did I write about X\". Facts stored with obsidian_rag_memory_store come first. If status is \
                  degraded the results are still good to use; error.suggestion says what would make them better.",
        )
    },
    run: |call, args| Box::pin(run(call, args)),
};

async fn run(call: Call<'_>, args: Args) -> Result<Output, Failure> {
    let input: Input = parse(args)?;
    let (limit, filter) = match understand(&call, &input).await {
        Ok(understood) => understood,
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    let knowledge = call.knowledge;
    let mut library = match knowledge.searchable().await {
        Ok(library) => library,
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    let filter = ChunkFilter { folders: library.spelled(filter.folders), ..filter };
    let embedded = knowledge.embed_question(&library, &input.query).await;
    let weights = knowledge.weights(&library.info().spec);
    let asked =
        Query { text: &input.query, vector: embedded.vector, filter: filter.clone(), allowed: None, limit, weights };
    let mut found = match ask(&call, &mut library, asked).await {
        Ok(found) => found,
        Err(problem) => return call.refused::<Data>(problem).await,
    };
    let facts = known_facts(&call, &library, &filter, &input.query);
    found.hits.truncate(limit.saturating_sub(facts.len()));
    let screened = screen(knowledge, found.hits, facts, input.confirm_sensitive == Some(true));

    let observed = knowledge.observed(Ok(library.clone())).await;
    let (health, problem) = observed.health();
    // A problem with this query matters more than the result of an earlier probe.
    let problem = screened.problem().or(embedded.problem).or(problem);
    let status = if problem.is_some() { Health::Degraded } else { health };
    let meta = knowledge.meta(call.started, Some(&library), found.scanned);
    let explain = input.explain == Some(true);
    let mut results: Vec<ResultItem> = screened.facts.into_iter().map(|(fact, fit)| remembered(fact, fit)).collect();
    results.extend(screened.hits.into_iter().map(|hit| result_item(hit, explain.then_some(&weights))));
    results.truncate(limit);
    let message = format!("{} results", results.len());
    let data = Data {
        results,
        sensitive_detected: !screened.categories.is_empty(),
        memory_suggestion: screened.suggestion,
        withheld_count: screened.withheld,
    };
    answer(status, Some(data), problem, meta, message)
}

/// The number of results and the filter of a request.
async fn understand(call: &Call<'_>, input: &Input) -> Result<(usize, ChunkFilter), Problem> {
    let limit = input.max_results.unwrap_or(DEFAULT_RESULTS);
    let chars = input.query.chars().count();
    if !(1..=MAX_RESULTS).contains(&limit) || !(1..=MAX_QUERY_CHARS).contains(&chars) {
        let message = format!("max_results is 1 to {MAX_RESULTS}, and query has 1 to {MAX_QUERY_CHARS} characters");
        return Err(Problem::argument("", &message, "Call again with arguments within these limits."));
    }
    let mut filter = ChunkFilter { days: days(input.date_range.as_ref())?, ..ChunkFilter::default() };
    for folder in input.directory_filter.iter().flatten() {
        filter.folders.push(call.path(folder, "An entry of directory_filter").await?.to_string());
    }
    for (number, tag) in input.tags.iter().flatten().enumerate() {
        filter.tags.push(normal_tag(tag).ok_or_else(|| {
            let suggestion = "Give tags as notes have them: letters, digits, - _ and /, at least one that is no digit.";
            Problem::argument(&format!("/tags/{number}"), "this is no tag", suggestion)
        })?);
    }
    Ok((limit, filter))
}

/// The results without those that are withheld.
#[derive(Default)]
struct VisibleResults {
    hits: Vec<Hit>,
    facts: Vec<(Fact, f32)>,
    /// The categories of everything that was found, withheld or not.
    categories: BTreeSet<Category>,
    /// Why results are withheld.
    withheld_for: BTreeSet<Category>,
    withheld: usize,
    suggestion: Option<Suggestion>,
}

impl VisibleResults {
    fn problem(&self) -> Option<Problem> {
        let word = |c: &Category| serde_json::to_value(c).ok()?.as_str().map(str::to_owned);
        let words: Vec<String> = self.withheld_for.iter().filter_map(word).collect();
        (self.withheld > 0).then(|| Problem::sensitive(self.withheld, &words.join(", ")))
    }

    /// Records the categories of one result; returns whether the result is withheld.
    fn admits(&mut self, own: &BTreeSet<Category>, asked_for: &[Category]) -> bool {
        self.categories.extend(own);
        let reasons: Vec<Category> = asked_for.iter().copied().filter(|c| own.contains(c)).collect();
        self.withheld += usize::from(!reasons.is_empty());
        self.withheld_for.extend(&reasons);
        !reasons.is_empty()
    }
}

/// Checks everything that would be shown and removes results that need confirmation.
fn screen(knowledge: &Knowledge, hits: Vec<Hit>, facts: Vec<(Fact, f32)>, is_confirmed: bool) -> VisibleResults {
    let configured = &knowledge.config.sensitive.require_confirmation_for;
    let asked_for: &[Category] = if is_confirmed { &[] } else { configured };
    let mut screened = VisibleResults::default();
    for hit in hits {
        let own = knowledge.guard.categories_of(ScanInput {
            title: &hit.title,
            section: hit.chunk.section.as_deref(),
            text: &hit.chunk.text,
            opaque: &hit.chunk.opaque,
            tags: &hit.chunk.tags,
        });
        if screened.admits(&own, asked_for) {
            continue;
        }
        // A secret is never suggested as a fact, even if the user agreed to see it.
        let is_worth_it = own.iter().any(|c| *c != Category::Relations) && !own.contains(&Category::Secrets);
        if screened.suggestion.is_none() && is_worth_it {
            screened.suggestion = Some(suggest(&hit));
        }
        screened.hits.push(hit);
    }
    for (fact, fit) in facts {
        let material = ScanInput { title: &fact.key, text: &fact.value, ..ScanInput::default() };
        if !screened.admits(&knowledge.guard.categories_of(material), asked_for) {
            screened.facts.push((fact, fit));
        }
    }
    screened
}

/// Searches what the caller may see. If the index program was restarted in between and has a newer version, that one is
/// searched.
async fn ask(call: &Call<'_>, library: &mut Arc<Library>, query: Query<'_>) -> Result<Hits, Problem> {
    let knowledge = call.knowledge;
    let allowed = |library: &Library| knowledge.allowed(library, &call.call.policy.sandbox);
    let first = Query { allowed: allowed(library), ..query.clone() };
    let found = match search(library, first).await {
        Err(IndexError::Program(ProgramError::Replaced(_))) => {
            *library = knowledge.refresh().await?;
            search(library, Query { allowed: allowed(library), ..query }).await
        }
        found => found,
    };
    match found {
        Ok(found) => Ok(found),
        Err(error) => Err(knowledge.unreadable(error).await),
    }
}

/// The days of a range; an open end is unlimited.
fn days(range: Option<&DateRange>) -> Result<Option<(i32, i32)>, Problem> {
    let Some(range) = range else { return Ok(None) };
    let day = |text: &Option<String>, place: &str| match text {
        None => Ok(None),
        Some(text) => parse_date(text).map(|date| Some(day_number(date))).ok_or_else(|| {
            let message = "this is no date such as 2024-03-05";
            Problem::argument(&format!("/date_range/{place}"), message, "Give the days as YYYY-MM-DD.")
        }),
    };
    match (day(&range.from, "from")?, day(&range.to, "to")?) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) if from > to => {
            let suggestion = "Give the earlier day as from and the later one as to.";
            Err(Problem::argument("/date_range", "from is after to, so no day lies between them", suggestion))
        }
        (from, to) => Ok(Some((from.unwrap_or(i32::MIN), to.unwrap_or(i32::MAX)))),
    }
}

/// Facts whose source the caller may see. A fact passes a filter if the note in its source does. If the facts cannot be
/// read, notes are still found.
fn known_facts(call: &Call<'_>, library: &Library, filter: &ChunkFilter, question: &str) -> Vec<(Fact, f32)> {
    let paths = call.knowledge.paths_of(&call.call.policy.sandbox);
    // For a note that is not indexed, only the path is known.
    let by_place = filter.tags.is_empty() && filter.days.is_none();
    let admits = |fact: &Fact| {
        let note = library.file_number(file_id(&fact.source)).and_then(|number| library.file(number));
        paths.allows(&fact.source)
            && match note {
                Some(note) => filter.admits(&fact.source, &note.tags, note.day),
                None => by_place && filter.admits(&fact.source, &[], 0),
            }
    };
    call.knowledge.facts.find(question, admits).unwrap_or_else(|error| {
        tracing::warn!(%error, "stored facts cannot be read");
        Vec::new()
    })
}

fn remembered(fact: Fact, fit: f32) -> ResultItem {
    ResultItem {
        chunk_text: format!("{}: {}", fact.key, fact.value),
        score: round(fit),
        source_file: fact.source,
        section: None,
        date: Some(fact.created_at.strftime("%Y-%m-%d").to_string()),
        tags: Vec::new(),
        chunk_index: 0,
        kind: Kind::Memory,
        title: fact.key,
        snippet: fact.value,
        byte_range: None,
        explain: None,
    }
}

fn result_item(hit: Hit, explain: Option<&Weights>) -> ResultItem {
    let fused = hit.fused;
    let explain = explain.map(|weights| {
        let rest = 1.0 - weights.links;
        let part = |raw: Option<f32>, part: f32, weight: f32| Part {
            raw: raw.map(round),
            part: round(part),
            weight: round(weight),
        };
        Explanation {
            full_text: part(fused.text_score, fused.text_part, fused.text_weight * rest),
            vector: part(fused.likeness, fused.vector_part, fused.vector_weight * rest),
            links: part(Some(fused.link_part), fused.link_part, weights.links),
            matched_terms: hit.matched,
            repeated_terms: hit.repeated,
        }
    });
    ResultItem {
        score: round(fused.score),
        byte_range: Some([hit.chunk.start, hit.chunk.end]),
        chunk_text: hit.chunk.text,
        source_file: hit.chunk.source_file,
        section: hit.chunk.section,
        date: hit.chunk.date,
        tags: hit.chunk.tags,
        chunk_index: hit.chunk.chunk_index,
        kind: Kind::Note,
        title: hit.title,
        snippet: hit.snippet,
        explain,
    }
}

/// A suggested fact: its key is the location, its value is the text.
fn suggest(hit: &Hit) -> Suggestion {
    let name = match &hit.chunk.section {
        Some(section) => format!("{} {section}", hit.title),
        None => hit.title.clone(),
    };
    let mut key = String::new();
    for c in name.chars().flat_map(char::to_lowercase).take(80) {
        if c.is_alphanumeric() {
            key.push(c);
        } else if !key.ends_with('-') && !key.is_empty() {
            key.push('-');
        }
    }
    Suggestion {
        key: key.trim_end_matches('-').to_owned(),
        value: hit.snippet.chars().take(MAX_SUGGESTION_CHARS).collect(),
        source: hit.chunk.source_file.clone(),
    }
}

fn round(value: f32) -> f64 {
    (f64::from(value) * 1e4).round() / 1e4
}
