//! `recall.why`: why a note, a memory or a tool was found for a question, or was not. Each step that a search goes through
//! is checked in order, with the same tools that an agent uses.

use schemars::JsonSchema;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use std::{collections::HashSet, sync::Arc};
use toolyard_engine::{CallRequest, Caller};
use toolyard_knowledge::{
    envelope::Envelope,
    tools::{NotesTool, search, status},
};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::{Call, Handle, MethodError, Methods, Service, Terms, methods};

/// How many results are searched for the expected one; an agent is shown far fewer.
const LOOKED_AT: usize = 50;
/// Files in a page of the index's list.
const FILES_PER_PAGE: usize = 1000;
/// Pages of that list that are read.
const MAX_PAGES: usize = 100;

methods! {
    /// Explains why a note, a memory or a tool was found for a question, or was not.
    RecallWhy = "recall.why", Terms::run().everywhere(), WhyParams => Why;
}

/// Declares the method; without an application it cannot be called.
pub(crate) fn declare(methods: &mut Methods, why: Option<&WhyMethods>) {
    methods.add::<RecallWhy, _>(why);
}

/// Answers the method.
#[derive(Clone)]
pub(crate) struct WhyMethods(pub(crate) Service);

/// Where something is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Corpus {
    /// The notes of the vault.
    Notes,
    /// What agents remember.
    Memory,
    /// The tools.
    Tools,
}

/// The query, and the expected result.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhyParams {
    /// Where to search.
    pub corpus: Corpus,
    /// The question.
    pub query: String,
    /// What should be found: a note's path, a memory's URI, or a tool's name.
    pub expect: String,
}

/// A step that a search goes through.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `exists`, `allowed`, `indexed`, `fresh` or `ranked`.
    pub check: String,
    /// Whether it holds. The first that does not is the reason.
    pub ok: bool,
    /// The details of the check.
    pub detail: String,
}

/// One part of a score.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScorePart {
    /// `words`, `meaning`, `links` and so on.
    pub name: String,
    /// Its contribution to the score.
    pub value: f64,
    /// The measured value, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<f64>,
}

/// A result with its place.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RankedHit {
    /// Its place, from 1.
    pub rank: usize,
    /// The note, the memory or the tool.
    pub id: String,
    /// How well it fits; comparable within one answer.
    pub score: f64,
    /// What the score is made of, where that is known.
    pub parts: Vec<ScorePart>,
    /// Words of the question that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
    /// Whether this is the expected result.
    pub expected: bool,
}

/// Why something was found, or was not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// Whether it was found.
    pub found: bool,
    /// The checks that were made.
    pub steps: Vec<Step>,
    /// What was found, the best first.
    pub hits: Vec<RankedHit>,
    /// The rank of the expected result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// One sentence that says why.
    pub sentence: String,
}

impl Why {
    fn new() -> Self {
        Self { found: false, steps: Vec::new(), hits: Vec::new(), rank: None, sentence: String::new() }
    }

    fn step(&mut self, check: &str, ok: bool, detail: impl Into<String>) -> bool {
        self.steps.push(Step { check: check.to_owned(), ok, detail: detail.into() });
        ok
    }

    /// Ends the explanation at the first check that fails.
    fn because(mut self, sentence: impl Into<String>) -> Self {
        self.sentence = sentence.into();
        self
    }

    /// Ends the explanation with the ranking.
    fn ranked(mut self, hits: Vec<RankedHit>) -> Self {
        self.rank = hits.iter().find(|hit| hit.expected).map(|hit| hit.rank);
        self.found = self.rank.is_some();
        let detail = match self.rank {
            Some(rank) => format!("place {rank} of {}", hits.len()),
            None => format!("not among the best {}", hits.len()),
        };
        self.step("ranked", self.rank.is_some(), detail);
        self.sentence = match hits.iter().find(|hit| hit.expected) {
            Some(hit) => sentence_of(hit),
            None if hits.is_empty() => "Nothing was found for this question.".to_owned(),
            None => format!(
                "Not among the best {}: it has less in common with the question than {}.",
                hits.len(),
                hits.last().map_or("the others", |hit| hit.id.as_str())
            ),
        };
        self.hits = hits;
        self
    }
}

/// "Ranked 2nd: the word “projects” in common, meaning 0.31." Words are left out where nothing is known about them.
fn sentence_of(hit: &RankedHit) -> String {
    let quoted: Vec<String> = hit.matched.iter().map(|word| format!("“{word}”")).collect();
    let words = match quoted.as_slice() {
        [] if hit.parts.is_empty() => format!("score {:.2}", hit.score),
        [] => "no word in common".to_owned(),
        [word] => format!("the word {word} in common"),
        words => format!("the words {} in common", words.join(", ")),
    };
    let meaning = hit.parts.iter().find(|part| part.name == "meaning").and_then(|part| part.raw);
    let meaning = meaning.map(|raw| format!(", meaning {raw:.2}")).unwrap_or_default();
    format!("Ranked {}: {words}{meaning}.", ordinal(hit.rank))
}

/// `1st`, `2nd`, `3rd`, `11th`.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

impl WhyMethods {
    /// Calls a tool as the caller, and reads its data.
    async fn ask<T: DeserializeOwned>(&self, caller: &Arc<Caller>, tool: &str, args: Value) -> Result<T, Failure> {
        let Value::Object(args) = args else {
            return Err(Failure::new(ErrorCode::InternalError, "the arguments of a tool must be an object"));
        };
        let request = CallRequest { tool: tool.to_owned(), args, ..CallRequest::default() };
        let result = self.0.invoke(caller.clone(), request).await.result.into_parts();
        match (result.error, result.data) {
            (Some(failure), _) => Err(failure),
            (None, data) => serde_json::from_value(Value::Object(data.unwrap_or_default()))
                .map_err(|error| Failure::new(ErrorCode::InternalError, format!("{tool} answered oddly: {error}"))),
        }
    }

    async fn notes(&self, caller: &Arc<Caller>, params: &WhyParams) -> Result<Why, Failure> {
        let mut why = Why::new();
        let expected = params.expect.trim_start_matches('/').to_owned();
        let read: Result<IgnoredAny, Failure> = self.ask(caller, "vault.readFile", json!({"path": expected})).await;
        match read {
            Ok(_) => why.step("exists", true, format!("{expected} is in the vault")),
            Err(failure) if failure.code == ErrorCode::PolicyDenied => {
                why.step("exists", true, "the policy does not let this caller look");
                why.step("allowed", false, failure.message.clone());
                return Ok(why.because(format!("The policy hides {expected}: {}.", failure.message)));
            }
            Err(failure) => {
                why.step("exists", false, failure.message);
                return Ok(why.because(format!("There is no note {expected} in the vault.")));
            }
        };
        why.step("allowed", true, "the policy lets this caller read it");
        let Some(file) = self.indexed_file(caller, &expected).await? else {
            why.step("indexed", false, "the index does not know it");
            let advice = "It is not in the index yet: run `toolyard vault index`, or wait for the watcher.";
            return Ok(why.because(advice));
        };
        if !why.step("indexed", file.state == "indexed", format!("{} ({} chunks)", file.state, file.chunks)) {
            return Ok(why.because(format!("It is {} in the index: {}.", file.state, file.reason)));
        }
        let args = json!({"query": params.query, "max_results": LOOKED_AT, "explain": true, "confirm_sensitive": true});
        let found: Envelope<search::Data> = self.ask(caller, "obsidian_rag_search", args).await?;
        let is_fresh = found.error.is_none();
        why.step("fresh", is_fresh, found.error.as_ref().map_or("the index is current", |e| e.message.as_str()));
        // The search ranks passages, and a note has several: its best passage stands for it.
        let mut notes = HashSet::new();
        let mut results = found.data.map(|data| data.results).unwrap_or_default();
        results.retain(|item| notes.insert(item.source_file.clone()));
        let hits = results.into_iter().enumerate().map(|(place, item)| RankedHit {
            rank: place + 1,
            expected: item.source_file == expected,
            parts: item.explain.as_ref().map(note_parts).unwrap_or_default(),
            matched: item.explain.map(|explain| explain.matched_terms).unwrap_or_default(),
            id: item.source_file,
            score: item.score,
        });
        Ok(why.ranked(hits.collect()))
    }

    /// The file as the index has it.
    async fn indexed_file(&self, caller: &Arc<Caller>, path: &str) -> Result<Option<status::FileData>, Failure> {
        for page in 0..MAX_PAGES {
            let args = json!({"files": "all", "limit": FILES_PER_PAGE, "offset": page * FILES_PER_PAGE});
            let answer: Envelope<status::Data> = self.ask(caller, status::Status::NAME, args).await?;
            let files = answer.data.and_then(|data| data.file_list).map(|list| list.files).unwrap_or_default();
            let is_last = files.len() < FILES_PER_PAGE;
            if let Some(file) = files.into_iter().find(|file| file.path == path) {
                return Ok(Some(file));
            }
            if is_last {
                break;
            }
        }
        Ok(None)
    }

    async fn memory(&self, caller: &Arc<Caller>, params: &WhyParams) -> Result<Why, Failure> {
        let mut why = Why::new();
        let args = json!({"query": params.query, "limit": LOOKED_AT, "scoreThreshold": 0.0});
        let found: MemoryAnswer = self.ask(caller, "memory_recall", args).await?;
        let read: Result<IgnoredAny, Failure> = self.ask(caller, "ov_read", json!({"uri": params.expect})).await;
        let is_listed = found.details.memories.iter().any(|memory| memory.uri == params.expect);
        match read {
            _ if is_listed => why.step("exists", true, "it is remembered"),
            Ok(_) => why.step("exists", true, "it is remembered"),
            Err(failure) => why.step("exists", false, failure.message),
        };
        let hits = found.details.memories.into_iter().enumerate().map(|(place, memory)| RankedHit {
            rank: place + 1,
            expected: memory.uri == params.expect,
            id: memory.uri,
            score: memory.score,
            parts: Vec::new(),
            matched: Vec::new(),
        });
        Ok(why.ranked(hits.collect()))
    }

    async fn tools(&self, caller: &Arc<Caller>, params: &WhyParams) -> Result<Why, Failure> {
        let mut why = Why::new();
        let engine = self.0.engine();
        let tools = engine.tools();
        let Some(entry) = tools.snapshot.get(&params.expect) else {
            why.step("exists", false, "no tool has this name");
            return Ok(why.because(format!("There is no tool {}.", params.expect)));
        };
        why.step("exists", true, "it is in the catalog");
        let decision = engine.policy_for(caller).decide(entry, None);
        if let toolyard_catalog::Decision::Deny { reason, rule } = decision {
            why.step("allowed", false, format!("{reason} ({rule})"));
            return Ok(why.because(format!("The policy hides it: {reason}.")));
        }
        why.step("allowed", true, "the policy lets this caller see it");
        let args = json!({"query": params.query, "limit": LOOKED_AT, "explain": true});
        let found: ToolAnswer = self.ask(caller, "tool_search", args).await?;
        let hits = found.tools.into_iter().enumerate().map(|(place, tool)| RankedHit {
            rank: place + 1,
            expected: tool.id == entry.id() || tool.id == params.expect,
            parts: tool.explain.as_ref().map(ToolExplanation::parts).unwrap_or_default(),
            matched: tool.explain.map(ToolExplanation::terms).unwrap_or_default(),
            id: tool.id,
            score: tool.score,
        });
        Ok(why.ranked(hits.collect()))
    }
}

fn note_parts(explain: &search::Explanation) -> Vec<ScorePart> {
    let part = |name: &str, part: &search::Part| ScorePart {
        name: name.to_owned(),
        value: part.part * part.weight,
        raw: part.raw,
    };
    vec![part("words", &explain.full_text), part("meaning", &explain.vector), part("links", &explain.links)]
}

/// The fields of `memory_recall`'s answer that are used here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MemoryAnswer {
    details: MemoryDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MemoryDetails {
    memories: Vec<MemoryHit>,
}

#[derive(Deserialize)]
struct MemoryHit {
    uri: String,
    #[serde(default)]
    score: f64,
}

/// The fields of `tool_search`'s answer that are used here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolAnswer {
    tools: Vec<ToolHit>,
}

#[derive(Deserialize)]
struct ToolHit {
    id: String,
    #[serde(default)]
    score: f64,
    explain: Option<ToolExplanation>,
}

#[derive(Deserialize)]
struct ToolExplanation {
    #[serde(default)]
    words: Vec<TermScore>,
    #[serde(default)]
    coverage: f64,
    #[serde(default)]
    neighbours: f64,
    similarity: Option<f64>,
}

#[derive(Deserialize)]
struct TermScore {
    term: String,
    score: f64,
}

impl ToolExplanation {
    fn terms(self) -> Vec<String> {
        self.words.into_iter().map(|word| word.term).collect()
    }

    fn parts(&self) -> Vec<ScorePart> {
        let part = |name: &str, value: f64, raw: Option<f64>| ScorePart { name: name.to_owned(), value, raw };
        let words = self.words.iter().map(|word| word.score).sum();
        let mut parts = vec![
            part("words", words, None),
            part("coverage", self.coverage, None),
            part("neighbours", self.neighbours, None),
        ];
        parts.extend(self.similarity.map(|similarity| part("meaning", similarity, Some(similarity))));
        parts
    }
}

impl Handle<RecallWhy> for WhyMethods {
    async fn handle(&self, call: &Call<'_>, params: WhyParams) -> Result<Why, MethodError> {
        let caller = &call.caller;
        Ok(match params.corpus {
            Corpus::Notes => self.notes(caller, &params).await?,
            Corpus::Memory => self.memory(caller, &params).await?,
            Corpus::Tools => self.tools(caller, &params).await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(rank: usize, matched: &[&str], meaning: Option<f64>) -> RankedHit {
        let part = |raw: f64| ScorePart { name: "meaning".to_owned(), value: raw / 2.0, raw: Some(raw) };
        RankedHit {
            rank,
            id: "Garden.md".to_owned(),
            score: 0.5,
            parts: meaning.map(part).into_iter().collect(),
            matched: matched.iter().map(|word| (*word).to_owned()).collect(),
            expected: true,
        }
    }

    #[test]
    fn the_sentence_says_the_rank_and_what_it_comes_from() {
        assert_eq!(
            sentence_of(&hit(1, &["garden"], Some(0.66))),
            "Ranked 1st: the word “garden” in common, meaning 0.66."
        );
        assert_eq!(sentence_of(&hit(37, &[], Some(0.31))), "Ranked 37th: no word in common, meaning 0.31.");
        assert_eq!(sentence_of(&hit(3, &["a", "b"], None)), "Ranked 3rd: the words “a”, “b” in common.");
        assert_eq!(sentence_of(&hit(2, &[], None)), "Ranked 2nd: score 0.50.");
    }

    #[test]
    fn ordinals_have_their_endings() {
        let endings = [1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111].map(ordinal);
        assert_eq!(endings, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "103rd", "111th"]);
    }
}
