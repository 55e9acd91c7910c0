//! [`SearchIndex`]: the terms of a catalog with their weights in each tool. Built once for each snapshot and never
//! changed.

use super::{
    fuzzy::FuzzyTerms,
    meaning::{Meaning, MeaningModel},
};
use crate::registry::{Snapshot, ToolEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::Arc};
use toolyard_text::terms::{Side, TOOLS, written_words};

/// Maximum depth of parameters that are indexed. Deeper ones rarely describe the tool.
const MAX_PARAMETER_DEPTH: usize = 4;
/// Characters of a tool's description that a model of meaning reads.
const MAX_MEANT_CHARS: usize = 1_000;
/// Names of parameters that it reads.
const MAX_MEANT_PARAMETERS: usize = 12;

/// A part of a tool's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Field {
    /// Its name, its title and the name of the server or plugin it comes from.
    Name,
    /// Its description and category.
    Description,
    /// The names of its parameters.
    Parameters,
    /// The descriptions of its parameters.
    ParameterDescriptions,
}

impl Field {
    /// All fields, in the order of per-field arrays.
    pub(super) const ALL: [Field; 4] =
        [Field::Name, Field::Description, Field::Parameters, Field::ParameterDescriptions];
}

/// How much each kind of evidence counts. The defaults are meant for any catalog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// By field: name, description, parameter names, parameter descriptions.
    pub fields: [f32; 4],
    /// By field: how far a long text is discounted, 0 to 1.
    pub length: [f32; 4],
    /// How soon repeating a term stops helping.
    pub saturation: f32,
    /// Weight of a synonym, relative to the word itself.
    pub thesaurus: f32,
    /// The weight of a term that is only similar, multiplied by its similarity.
    pub fuzzy: f32,
    /// Bonus if the query covers the whole name of a tool.
    pub coverage: f32,
    /// The weight of two words that are adjacent both in the query and in a tool's name or description.
    pub neighbours: f32,
    /// Score of the tool that is closest in meaning; the tool with the best word score gets 1.
    pub meaning: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            fields: [2.0, 1.0, 0.5, 0.75],
            length: [0.5, 0.75, 0.5, 0.5],
            saturation: 1.0,
            thesaurus: 0.25,
            fuzzy: 0.65,
            coverage: 0.35,
            neighbours: 0.4,
            meaning: 0.65,
        }
    }
}

/// One term in one tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// The weight of the term in this tool.
    pub(super) impact: f32,
    /// How often the term occurs in each field.
    pub(super) counts: [u8; 4],
}

/// One term of the catalog.
#[derive(Debug, Default)]
pub(super) struct Term {
    pub(super) rarity: f32,
    pub(super) postings: Vec<Posting>,
}

/// The index of one snapshot.
pub struct SearchIndex {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) weights: Weights,
    pub(super) numbers: HashMap<String, u32>,
    /// The terms themselves, by number.
    pub(super) names: Vec<String>,
    pub(super) terms: Vec<Term>,
    /// The rarity of all words of each tool's name, added up.
    pub(super) name_rarity: Vec<f32>,
    /// By tool, field lengths against the average.
    pub(super) lengths: Vec<[f32; 4]>,
    pub(super) fuzzy: FuzzyTerms,
    /// Pairs of adjacent terms with the tools that contain them, sorted.
    pub(super) neighbours: Vec<(u64, u32)>,
    /// Names and ids in lower case, to find exact ones whatever their case.
    pub(super) exact: HashMap<String, Vec<u32>>,
    pub(super) meaning: Option<Box<dyn Meaning>>,
}

impl SearchIndex {
    /// Indexes a snapshot.
    pub fn build(snapshot: &Arc<Snapshot>) -> Self {
        Self::build_with(snapshot, Weights::default())
    }

    /// Indexes a snapshot with weights of one's own.
    pub fn build_with(snapshot: &Arc<Snapshot>, weights: Weights) -> Self {
        let mut builder = Builder::default();
        let mut exact: HashMap<String, Vec<u32>> = HashMap::new();
        for (number, entry) in snapshot.iter().enumerate() {
            let number = number as u32;
            builder.add(number, entry);
            for spelling in [entry.id().to_owned(), entry.name().to_string(), snapshot.safe_name(entry)] {
                let tools = exact.entry(spelling.to_lowercase()).or_default();
                if tools.last() != Some(&number) {
                    tools.push(number);
                }
            }
        }
        let lengths = relative_lengths(&builder.lengths);
        let mut name_rarity = vec![0.0; lengths.len()];
        let mut terms = Vec::with_capacity(builder.terms.len());
        for postings in builder.terms {
            let (all, with) = (lengths.len() as f32, postings.len() as f32);
            let rarity = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
            let value = |(tool, counts): (u32, [u8; 4])| {
                if counts[0] > 0 {
                    name_rarity[tool as usize] += rarity;
                }
                let weighted: f32 = field_shares(&weights, &counts, &lengths[tool as usize]).iter().sum();
                let impact = rarity * weighted * (weights.saturation + 1.0) / (weights.saturation + weighted);
                Posting { tool, impact, counts }
            };
            terms.push(Term { rarity, postings: postings.into_iter().map(value).collect() });
        }
        let mut names = vec![String::new(); terms.len()];
        for (term, number) in &builder.numbers {
            names[*number as usize].clone_from(term);
        }
        let fuzzy = FuzzyTerms::new(names.iter().map(String::as_str));
        let mut neighbours = builder.neighbours;
        neighbours.sort_unstable();
        neighbours.dedup();
        let snapshot = Arc::clone(snapshot);
        Self {
            snapshot,
            weights,
            numbers: builder.numbers,
            names,
            terms,
            name_rarity,
            lengths,
            fuzzy,
            neighbours,
            exact,
            meaning: None,
        }
    }

    /// Lets a model read the tools. Searches then rank by meaning as well.
    #[must_use]
    pub fn with_meaning(mut self, model: &dyn MeaningModel) -> Self {
        let texts: Vec<String> = self.snapshot.iter().map(|entry| text_for_model(entry)).collect();
        self.meaning = model.read(&texts);
        self
    }

    /// The version of the snapshot it was built from: an index and a snapshot belong together when these are equal.
    pub fn version(&self) -> &str {
        self.snapshot.version()
    }

    /// The snapshot it was built from.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// How many different terms there are.
    pub fn vocabulary(&self) -> usize {
        self.terms.len()
    }
}

/// What each field adds to a term's weighted count.
pub(super) fn field_shares(weights: &Weights, counts: &[u8; 4], lengths: &[f32; 4]) -> [f32; 4] {
    std::array::from_fn(|field| {
        if counts[field] == 0 {
            return 0.0;
        }
        let discount = 1.0 - weights.length[field] + weights.length[field] * lengths[field];
        weights.fields[field] * f32::from(counts[field]) / discount
    })
}

/// Two terms side by side, as one key.
pub(super) fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

fn relative_lengths(lengths: &[[u32; 4]]) -> Vec<[f32; 4]> {
    let averages: [f32; 4] = std::array::from_fn(|field| {
        let filled = lengths.iter().filter(|l| l[field] > 0).count().max(1) as f32;
        (lengths.iter().map(|l| l[field]).sum::<u32>() as f32 / filled).max(1.0)
    });
    lengths.iter().map(|length| std::array::from_fn(|field| length[field] as f32 / averages[field])).collect()
}

#[derive(Default)]
struct Builder {
    numbers: HashMap<String, u32>,
    terms: Vec<Vec<(u32, [u8; 4])>>,
    lengths: Vec<[u32; 4]>,
    neighbours: Vec<(u64, u32)>,
    /// Words as they are written, with the terms they give: a catalog uses the same few thousand again and again.
    seen: HashMap<String, Box<[u32]>>,
}

impl Builder {
    fn add(&mut self, tool: u32, entry: &ToolEntry) {
        self.lengths.push([0; 4]);
        let definition = entry.definition();
        self.text(tool, Field::Name, definition.name.as_str(), true);
        self.text(tool, Field::Name, &definition.title, true);
        self.text(tool, Field::Description, &definition.description, false);
        if !matches!(entry.source().kind, crate::SourceKind::Core) {
            self.text(tool, Field::Name, &entry.source().name, true);
        }
        // Schemas of untrusted sources are not indexed, because they could be written to match unrelated searches.
        if entry.source().is_trusted() {
            self.text(tool, Field::Description, &definition.category, false);
            self.parameters(tool, &definition.input_schema.parse(), MAX_PARAMETER_DEPTH);
        }
    }

    fn parameters(&mut self, tool: u32, schema: &Map<String, Value>, depth: usize) {
        if depth == 0 {
            return;
        }
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                self.text(tool, Field::Parameters, name, false);
                if let Value::Object(property) = property {
                    if let Some(Value::String(text)) = property.get("description") {
                        self.text(tool, Field::ParameterDescriptions, text, false);
                    }
                    if let Some(Value::Array(options)) = property.get("enum") {
                        for option in options.iter().filter_map(Value::as_str).take(20) {
                            self.text(tool, Field::ParameterDescriptions, option, false);
                        }
                    }
                    self.parameters(tool, property, depth - 1);
                }
            }
        }
        if let Some(Value::Object(items)) = schema.get("items") {
            self.parameters(tool, items, depth - 1);
        }
    }

    /// Counts the terms of a text. With `once`, a term the field has already is not counted again: a title often
    /// repeats the name.
    fn text(&mut self, tool: u32, field: Field, text: &str, once: bool) {
        let field = field as usize;
        let Self { numbers, terms, lengths, neighbours, seen } = self;
        let with_neighbours = field < 2;
        let mut previous: Option<u32> = None;
        written_words(text, |word| {
            if !seen.contains_key(word) {
                seen.insert(word.to_owned(), numbered(word, numbers, terms));
            }
            for &number in seen.get(word).map(|numbers| &**numbers).unwrap_or_default() {
                if let Some(previous) = previous.replace(number).filter(|_| with_neighbours) {
                    neighbours.push((pair(previous, number), tool));
                }
                let postings = &mut terms[number as usize];
                if postings.last().is_none_or(|(last, _)| *last != tool) {
                    postings.push((tool, [0; 4]));
                }
                if let Some((_, counts)) = postings.last_mut()
                    && !(once && counts[field] > 0)
                {
                    counts[field] = counts[field].saturating_add(1);
                    lengths[tool as usize][field] += 1;
                }
            }
        });
    }
}

/// The numbers of a word's terms; new terms are numbered.
fn numbered(word: &str, numbers: &mut HashMap<String, u32>, terms: &mut Vec<Vec<(u32, [u8; 4])>>) -> Box<[u32]> {
    let mut found = Vec::new();
    TOOLS.word_terms(word, Side::Document, &mut |term: &str, _: &str| {
        let number = match numbers.get(term) {
            Some(&number) => number,
            None => {
                let number = terms.len() as u32;
                numbers.insert(term.to_owned(), number);
                terms.push(Vec::new());
                number
            }
        };
        found.push(number);
    });
    found.into_boxed_slice()
}

/// The text of a tool that a model of meaning reads: its name in words, its title if it adds something, its
/// description, and the names of its parameters. Descriptions of parameters are left out, because they describe formats
/// more than purposes.
fn text_for_model(entry: &ToolEntry) -> String {
    let definition = entry.definition();
    let mut text = String::new();
    spaced(definition.name.as_str(), &mut text);
    let mut title = String::new();
    spaced(&definition.title, &mut title);
    if !title.eq_ignore_ascii_case(&text) {
        text.push_str(". ");
        text.push_str(&title);
    }
    text.push_str(". ");
    text.extend(definition.description.chars().take(MAX_MEANT_CHARS));
    // The schema of an untrusted source is not read, as with words.
    if entry.source().is_trusted()
        && let Some(Value::Object(properties)) = definition.input_schema.parse().get("properties")
    {
        for name in properties.keys().take(MAX_MEANT_PARAMETERS) {
            text.push_str(". ");
            spaced(name, &mut text);
        }
    }
    text
}

/// A name as words: split where case changes and at punctuation.
fn spaced(name: &str, out: &mut String) {
    let mut previous = ' ';
    for c in name.chars() {
        if c.is_uppercase() && previous.is_lowercase() {
            out.push(' ');
        }
        out.push(if c.is_alphanumeric() { c } else { ' ' });
        previous = c;
    }
}
