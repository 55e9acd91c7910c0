//! [`RecallIndex`]: documents in memory, added, replaced and removed one by one, and asked.
//!
//! Words are kept in inverted lists of packed 32-bit entries, meaning in a table of 8-bit vectors that is scanned
//! exactly, and each document's own terms beside it, so that the few hundred candidates of a question can be weighed
//! in full. A removed document leaves a tombstone; when a quarter of the places are dead the index is packed anew.
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
pub mod signs;

pub use document::{Category, Document, Filter, Hit, Kind, LEAF, Parts, Question, RankingWeights};
pub use persons::Role;
pub use rank::RECENCY_HALF_LIFE_DAYS;

use names::{NONE, Names};
use persons::Persons;
use shape::Shape;
use std::collections::HashMap;
use toolyard_text::{
    dates::{self, DaySpan},
    embedding::{StaticEmbedder, VectorTable},
    terms::{self, MEMORIES, Side},
};

/// Places that an index has at most, dead ones included: what 24 bits of a list entry can name.
pub const MAX_DOCUMENTS: usize = 1 << 24;
/// Terms of one document at most; the rest of a longer text is not searched by words. Long texts are to be cut before.
const MAX_DOCUMENT_TERMS: usize = 4_096;
/// How often a term counts, in quarters: a caption's word counts one, a text's four, a title's six.
const QUARTERS: [u8; 3] = [6, 4, 3];
/// An index is packed when it has this many dead places, and they are at least a quarter of all.
const MIN_DEAD: usize = 1_024;
/// Bytes of a text that its vector is made of, from its beginning.
const MAX_EMBED_BYTES: usize = 4_096;

/// A position in a group, and the place of the document there.
type Member = (u64, u32);

/// One term of a document and how often it has it, in quarters.
#[derive(Debug, Clone, Copy)]
struct Entry {
    term: u32,
    quarters: u8,
}

#[derive(Debug)]
struct TermInfo {
    /// `place << 8 | quarters`, by place.
    list: Vec<u32>,
    /// Living documents that have it.
    living: u32,
}

/// What every document is asked about in every search: small, and one after the other in memory.
#[derive(Debug, Clone, Copy)]
struct Key {
    owner: u32,
    scope: u32,
    group: u32,
    /// Terms, weighed as they count.
    length: f32,
    time_ms: Option<i64>,
    kind: Kind,
    category: Option<Category>,
    level: u8,
    alive: bool,
}

/// What else is known of a document without its text: looked at only for candidates.
#[derive(Debug)]
struct Place {
    id: Box<str>,
    speaker: u32,
    role: Option<Role>,
    position: u64,
    /// By number of the term.
    terms: Box<[Entry]>,
    /// Hashes of neighbouring terms, in order of size.
    pairs: Box<[u32]>,
    /// Days it speaks of, its own day first if it has one.
    days: Box<[DaySpan]>,
    marks: Marks,
}

/// What a text looks like.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// It says when something was.
    tells_when: bool,
    /// It says what somebody likes.
    prefers: bool,
    /// It asks more than it says.
    asks: bool,
    persons: Persons,
    shape: Shape,
}

/// Documents in memory that can be asked.
#[derive(Debug, Default)]
pub struct RecallIndex {
    keys: Vec<Key>,
    places: Vec<Place>,
    vectors: VectorTable,
    by_id: HashMap<Box<str>, u32>,
    terms: Names,
    lists: Vec<TermInfo>,
    /// A vector for each term, for words that are near in meaning.
    term_vectors: VectorTable,
    owners: Names,
    scopes: Names,
    /// Speakers by their folded names.
    speakers: Names,
    /// For each word of a speaker's name the speakers that have it.
    speaker_words: HashMap<Box<str>, Vec<u32>>,
    /// By speaker: the owners among whose documents is something they said.
    speaker_owners: Vec<Vec<u32>>,
    groups: Names,
    /// Positions and places of each group, in order.
    members: Vec<Vec<Member>>,
    dead: usize,
    /// Sum of the lengths of living documents.
    total_length: f64,
}

impl RecallIndex {
    /// An index without documents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Living documents.
    pub fn len(&self) -> usize {
        self.places.len() - self.dead
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a document of this id is in it.
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The ids of all living documents.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().zip(&self.places).filter(|(key, _)| key.alive).map(|(_, place)| &*place.id)
    }

    /// Adds a document, in the place of one with the same id. `false` when the index is full.
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
        // With a day to be relative to, every word about time names days.
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
        // "user" is a role and no name: a question about users does not ask for what that speaker said.
        let name = document.speaker.as_deref().filter(|name| Role::of_name(name).is_none());
        let speaker = name.map_or(NONE, |name| self.speaker_number(name, owner));
        self.keys.push(Key {
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
        let place = Place {
            id: document.id.as_str().into(),
            speaker,
            role,
            position: document.position,
            terms: entries.into_boxed_slice(),
            pairs: pairs.into_boxed_slice(),
            days: days.into_boxed_slice(),
            marks: Marks { tells_when, ..self.marks_of(&document.text) },
        };
        self.by_id.insert(place.id.clone(), number);
        self.places.push(place);
        self.total_length += f64::from(length);
        true
    }

    /// Removes a document; `false` when there is none of this id.
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

    /// Gives up dead places. Terms keep their numbers: words come back.
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

    /// All but whether it tells when, which is known from its days. Speakers are those met so far: whoever is spoken to has
    /// mostly spoken before.
    fn marks_of(&self, text: &str) -> Marks {
        let asked = toolyard_text::sentences::sentences(text);
        let questions = asked.iter().filter(|sentence| sentence.ends_with(['?', '？'])).count();
        let mut persons = Persons::default();
        let mut shape = Shape::of_writing(text, |word| self.speaker_words.contains_key(word));
        let mut before = String::new();
        terms::words(text, |word| {
            persons.read(word);
            shape.read(word, &before);
            before.clear();
            before.push_str(word);
        });
        Marks {
            tells_when: false,
            prefers: crate::extract::states_preference(text),
            asks: questions * 2 > asked.len(),
            persons,
            shape,
        }
    }

    /// The neighbours of a document in its group, nearest first on each side: so many before and after it.
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

/// Two neighbouring terms as one number. Two pairs of the same number are rare enough for a sign among others.
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
