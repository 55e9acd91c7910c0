//! [`RecallIndex`]: an in-memory index of documents that are added, replaced, removed and searched.
//!
//! Words are stored in inverted lists of packed 32-bit postings, meaning in a table of 8-bit vectors that is scanned
//! exactly. Each document's terms are also stored with the document, so that the few hundred candidates of a question
//! can be scored in full. A removed document leaves a tombstone; when a quarter of the slots are deleted, the index is
//! compacted.
//!
//! ```
//! use toolyard_recall::index::{Document, Question, RecallIndex};
//! let mut index = RecallIndex::new();
//! index.add(&Document::new("m1", "Anna prefers tea in the morning."));
//! index.add(&Document::new("m2", "The build runs on two cores."));
//! let hits = index.search(&Question::new("What does Anna like to drink?", 5));
//! assert_eq!(hits[0].id, "m1");
//! ```

mod admit;
mod document;
pub mod fitted;
mod kinds;
mod names;
mod persons;
mod rank;
mod read;
mod search;
mod shape;
pub mod signals;

pub use document::{Category, Document, Filter, Hit, Kind, LEAF, Question, RankParts, RankingWeights};
pub use persons::Role;
pub use rank::RECENCY_HALF_LIFE_DAYS;

use names::{NONE, NameTable};
use persons::GrammaticalPersons;
use shape::TextShape;
use std::collections::HashMap;
use toolyard_text::{
    dates::{self, DaySpan},
    embedding::{StaticEmbedder, VectorTable},
    terms::{self, MEMORIES, Side},
};

/// Maximum number of slots, including deleted ones: a posting stores the slot in 24 bits.
pub const MAX_DOCUMENTS: usize = 1 << 24;
/// Maximum number of terms per document; the rest of a longer text is not searchable by words. Callers split long texts
/// first.
const MAX_DOCUMENT_TERMS: usize = 4_096;
/// Term weights in quarters for title, text and additional text.
const QUARTERS: [u8; 3] = [6, 4, 3];
/// The index is compacted when this many slots are deleted and they make up at least a quarter of all slots.
const MIN_DEAD: usize = 1_024;
/// Only this many leading bytes of a text are embedded.
const MAX_EMBED_BYTES: usize = 4_096;

/// A position in a group, and the slot of the document there.
type Member = (u64, u32);

/// A term of a document and its weighted count, in quarters.
#[derive(Debug, Clone, Copy)]
struct Entry {
    term: u32,
    quarters: u8,
}

#[derive(Debug)]
struct TermInfo {
    /// Postings `slot << 8 | quarters`, ordered by slot.
    list: Vec<u32>,
    /// Number of live documents that contain the term.
    living: u32,
}

/// The fields that every search reads for every document: small and contiguous in memory.
#[derive(Debug, Clone, Copy)]
struct DocumentKey {
    owner: u32,
    scope: u32,
    group: u32,
    /// Weighted number of terms.
    length: f32,
    time_ms: Option<i64>,
    kind: Kind,
    category: Option<Category>,
    level: u8,
    alive: bool,
}

/// Further fields of a document, except its text; read only for candidates.
#[derive(Debug)]
struct DocumentFields {
    id: Box<str>,
    speaker: u32,
    role: Option<Role>,
    position: u64,
    /// Ordered by term number.
    terms: Box<[Entry]>,
    /// Sorted hashes of pairs of neighbouring terms.
    pairs: Box<[u32]>,
    /// The days the document mentions; its own day comes first if it has one.
    days: Box<[DaySpan]>,
    marks: TextProperties,
}

/// Properties of a text.
#[derive(Debug, Clone, Copy, Default)]
struct TextProperties {
    /// The text says when something happened.
    tells_when: bool,
    /// The text states a preference.
    prefers: bool,
    persons: GrammaticalPersons,
    shape: TextShape,
}

/// A searchable in-memory index of documents.
#[derive(Debug, Default)]
pub struct RecallIndex {
    keys: Vec<DocumentKey>,
    places: Vec<DocumentFields>,
    vectors: VectorTable,
    by_id: HashMap<Box<str>, u32>,
    terms: NameTable,
    lists: Vec<TermInfo>,
    /// A vector for each term, to match words of similar meaning.
    term_vectors: VectorTable,
    owners: NameTable,
    scopes: NameTable,
    /// Speakers by folded name.
    speakers: NameTable,
    /// Speakers by each word of their names.
    speaker_words: HashMap<Box<str>, Vec<u32>>,
    /// For each speaker, the owners of documents that the speaker said.
    speaker_owners: Vec<Vec<u32>>,
    groups: NameTable,
    /// Positions and slots of each group, in order.
    members: Vec<Vec<Member>>,
    dead: usize,
    /// Sum of the lengths of all live documents.
    total_length: f64,
}

impl RecallIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of live documents.
    pub fn len(&self) -> usize {
        self.places.len() - self.dead
    }

    /// Whether the index has no live documents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the index has a document with this id.
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The ids of all live documents.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().zip(&self.places).filter(|(key, _)| key.alive).map(|(_, place)| &*place.id)
    }

    /// Adds a document and replaces one with the same id. Returns `false` when the index is full.
    pub fn add(&mut self, document: &Document) -> bool {
        self.remove(&document.id);
        if self.places.len() >= MAX_DOCUMENTS {
            return false;
        }
        let number = self.places.len() as u32;
        let (entries, pairs, length) = self.count_terms(document);
        for entry in &entries {
            let info = &mut self.lists[entry.term as usize];
            info.list.push(number << 8 | u32::from(entry.quarters));
            info.living += 1;
        }
        let embedder = StaticEmbedder::shared();
        self.vectors.push(embedder.embed(&meaning_of(document), None).as_ref());
        let day = document.time_ms.map(dates::date_of_ms);
        let mut days: Vec<DaySpan> = day.map(|day| DaySpan::new(day, day)).into_iter().collect();
        let told = dates::spans(&document.text, day);
        // With a reference day, every expression of time resolves to days.
        let tells_when = if day.is_some() { !told.is_empty() } else { dates::tells_when(&document.text) };
        days.extend(told);
        let group = document.group.as_deref().map_or(NONE, |group| self.groups.number(group));
        if group != NONE {
            self.members.resize_with(self.groups.len(), Vec::new);
            let members = &mut self.members[group as usize];
            let at = members.partition_point(|(position, _)| *position <= document.position);
            members.insert(at, (document.position, number));
        }
        let owner = self.owners.number(&document.owner);
        let role = document.role.or_else(|| document.speaker.as_deref().and_then(Role::of_name));
        // "user" is a role, not a name: a question about users does not ask for what this speaker said.
        let name = document.speaker.as_deref().filter(|name| Role::of_name(name).is_none());
        let speaker = name.map_or(NONE, |name| self.speaker_number(name, owner));
        self.keys.push(DocumentKey {
            owner,
            scope: self.scopes.number(document.scope.trim_end_matches('/')),
            group,
            length,
            time_ms: document.time_ms,
            kind: document.kind,
            category: document.category,
            level: document.level,
            alive: true,
        });
        let place = DocumentFields {
            id: document.id.as_str().into(),
            speaker,
            role,
            position: document.position,
            terms: entries.into_boxed_slice(),
            pairs: pairs.into_boxed_slice(),
            days: days.into_boxed_slice(),
            marks: TextProperties { tells_when, ..self.marks_of(&document.text) },
        };
        self.by_id.insert(place.id.clone(), number);
        self.places.push(place);
        self.total_length += f64::from(length);
        true
    }

    /// Removes a document; returns `false` when there is none with this id.
    pub fn remove(&mut self, id: &str) -> bool {
        let Some(number) = self.by_id.remove(id) else { return false };
        let (key, place) = (&mut self.keys[number as usize], &mut self.places[number as usize]);
        key.alive = false;
        self.total_length -= f64::from(key.length);
        for entry in std::mem::take(&mut place.terms) {
            let info = &mut self.lists[entry.term as usize];
            info.living = info.living.saturating_sub(1);
        }
        if let Some(members) = self.members.get_mut(key.group as usize) {
            members.retain(|(_, member)| *member != number);
        }
        self.dead += 1;
        if self.dead >= MIN_DEAD && self.dead * 4 >= self.places.len() {
            self.pack();
        }
        true
    }

    /// Compacts the index by dropping deleted slots. Terms keep their numbers, because words recur.
    fn pack(&mut self) {
        let mut moved = vec![NONE; self.places.len()];
        let mut vectors = VectorTable::with_capacity(self.len());
        let mut next = 0u32;
        for (number, key) in self.keys.iter().enumerate() {
            if key.alive {
                moved[number] = next;
                next += 1;
                match self.vectors.get(number) {
                    Some(vector) => vectors.push_quantised(&vector),
                    None => vectors.push(None),
                }
            }
        }
        self.vectors = vectors;
        let mut keys = self.keys.iter();
        self.places.retain(|_| keys.next().is_some_and(|key| key.alive));
        self.keys.retain(|key| key.alive);
        self.by_id.values_mut().for_each(|number| *number = moved[*number as usize]);
        for info in &mut self.lists {
            info.list.retain_mut(|packed| {
                let number = moved[(*packed >> 8) as usize];
                *packed = number << 8 | (*packed & 0xFF);
                number != NONE
            });
            info.list.shrink_to_fit();
        }
        for member in self.members.iter_mut().flatten() {
            member.1 = moved[member.1 as usize];
        }
        self.dead = 0;
    }

    fn count_terms(&mut self, document: &Document) -> (Vec<Entry>, Vec<u32>, f32) {
        let mut counts: Vec<(u32, u32)> = Vec::new();
        let mut length = 0u32;
        for (text, quarters) in [&document.title, &document.text, &document.also].into_iter().zip(QUARTERS) {
            let (names, lists, vectors) = (&mut self.terms, &mut self.lists, &mut self.term_vectors);
            MEMORIES.terms(text, Side::Document, |term, word| {
                if counts.len() >= MAX_DOCUMENT_TERMS {
                    return;
                }
                let number = names.number(term);
                if number as usize == lists.len() {
                    lists.push(TermInfo { list: Vec::new(), living: 0 });
                    vectors.push(StaticEmbedder::shared().embed(word, None).as_ref());
                }
                counts.push((number, u32::from(quarters)));
                length += u32::from(quarters);
            });
        }
        let mut pairs: Vec<u32> = counts.windows(2).map(|two| pair(two[0].0, two[1].0)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        counts.sort_unstable_by_key(|(term, _)| *term);
        let entries = counts
            .chunk_by(|a, b| a.0 == b.0)
            .map(|same| Entry {
                term: same[0].0,
                quarters: same.iter().map(|(_, quarters)| quarters).sum::<u32>().min(255) as u8,
            })
            .collect();
        (entries, pairs, length as f32 / 4.0)
    }

    fn speaker_number(&mut self, speaker: &str, owner: u32) -> u32 {
        let mut folded = Vec::new();
        terms::words(speaker, |word| folded.push(word.to_owned()));
        let known = self.speakers.len();
        let number = self.speakers.number(&folded.join(" "));
        if number as usize == known {
            for word in folded {
                self.speaker_words.entry(word.into_boxed_str()).or_default().push(number);
            }
            self.speaker_owners.push(Vec::new());
        }
        let owners = &mut self.speaker_owners[number as usize];
        if !owners.contains(&owner) {
            owners.push(owner);
        }
        number
    }

    /// Computes all marks except `tells_when`, which follows from the days. Only speakers seen so far are recognised as
    /// names; a person who is addressed has usually spoken before.
    fn marks_of(&self, text: &str) -> TextProperties {
        let mut persons = GrammaticalPersons::default();
        let mut shape = TextShape::of_writing(text, |word| self.speaker_words.contains_key(word));
        let mut before = String::new();
        terms::words(text, |word| {
            persons.read(word);
            shape.read(word, &before);
            before.clear();
            before.push_str(word);
        });
        TextProperties { tells_when: false, prefers: crate::extract::states_preference(text), persons, shape }
    }

    /// Up to `reach` neighbours of a document in its group, before and after it.
    fn neighbours(&self, number: u32, reach: usize) -> (&[Member], &[Member]) {
        let place = &self.places[number as usize];
        let Some(members) = self.members.get(self.keys[number as usize].group as usize) else { return (&[], &[]) };
        let mut at = members.partition_point(|(position, _)| *position < place.position);
        while members.get(at).is_some_and(|(position, member)| *position == place.position && *member != number) {
            at += 1;
        }
        let before = &members[at.saturating_sub(reach)..at.min(members.len())];
        let after = members.get(at + 1..).unwrap_or_default();
        (before, &after[..reach.min(after.len())])
    }
}

/// Hashes two neighbouring terms to one number. Collisions are rare enough for one signal among many.
fn pair(first: u32, second: u32) -> u32 {
    first.wrapping_mul(0x9E37_79B1).rotate_left(13) ^ second.wrapping_mul(0x85EB_CA77)
}

fn meaning_of(document: &Document) -> String {
    let mut text = String::with_capacity(document.title.len() + document.text.len() + document.also.len() + 2);
    for part in [&document.title, &document.text, &document.also] {
        if !part.is_empty() {
            text.push_str(part);
            text.push('\n');
        }
    }
    let mut end = text.len().min(MAX_EMBED_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests;
