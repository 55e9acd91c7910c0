//! Facts that an agent stored: an append-only file with one JSON object a line. The last line of a key is its value;
//! earlier lines are its history.
//!
//! A fact matches a query if the query contains every word of its key (at least two), or if the fact contains most of
//! the query's words. Question words do not count, and words that occur in many facts count less.

use crate::text::{index_terms, query_terms};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// Maximum length of a key, in characters.
pub(crate) const MAX_KEY_CHARS: usize = 200;
/// Maximum length of a value, in characters.
pub(crate) const MAX_VALUE_CHARS: usize = 4_000;
/// Maximum number of keys.
pub(crate) const MAX_FACTS: usize = 100_000;
/// Maximum number of facts that one search shows.
const MAX_SHOWN: usize = 3;
/// A fact is shown when it contains more than this share of the query's weighted terms.
const MIN_SHARE: f32 = 0.5;
/// A fact is also shown when the query contains its whole key and the key has at least this many terms; one term alone
/// is too ambiguous.
const MIN_KEY_TERMS: usize = 2;

/// Question words. The remaining words are what a query asks about.
const ASKING: &str = "what when where who whom whose which why how i me my mine we us our you your he him his she her do \
                      did does done am were been have has had can could would should shall may might must from about any \
                      anything some something everything all much many tell told say said says write wrote written note \
                      noted know find show give get got look remember please again now ever";

static ASKING_TERMS: LazyLock<HashSet<String>> = LazyLock::new(|| term_set(ASKING));

/// A stored fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The key of the fact.
    pub key: String,
    /// The value of the fact.
    pub value: String,
    /// The source: a vault path.
    pub source: String,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// The facts of one vault.
pub struct FactStore {
    path: PathBuf,
    state: Mutex<LoadedFacts>,
}

#[derive(Default)]
struct LoadedFacts {
    entries: Vec<Entry>,
    /// Index of each entry, by key.
    places: HashMap<String, usize>,
    /// Indexes of the entries that contain a term.
    holders: HashMap<String, HashSet<usize>>,
    /// How many bytes of the file were read.
    read: u64,
}

/// The values of one key.
#[derive(Default)]
struct Entry {
    /// All values of the key, oldest first; the last one is current.
    history: Vec<Fact>,
    /// The words that a query must contain to name the fact.
    key_terms: Vec<String>,
    /// All terms of the current value and of the key.
    terms: HashSet<String>,
}

impl FactStore {
    /// Creates a store with this file, which is created when the first fact is stored.
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default() }
    }

    fn known(&self) -> std::io::Result<MutexGuard<'_, LoadedFacts>> {
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Other processes also append to the file, so new lines are read first.
        match File::open(&self.path) {
            Ok(file) => known.read_on(file)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => *known = LoadedFacts::default(),
            Err(e) => return Err(e),
        }
        Ok(known)
    }

    /// Stores a fact; returns `false` when it is already stored.
    pub fn store(&self, key: &str, value: &str, source: &str) -> std::io::Result<bool> {
        let mut known = self.known()?;
        if known.current(key).is_some_and(|fact| fact.value == value && fact.source == source) {
            return Ok(false);
        }
        if known.entries.len() >= MAX_FACTS && !known.places.contains_key(key) {
            return Err(std::io::Error::other(format!("there are {MAX_FACTS} facts already")));
        }
        let fact = Fact {
            key: key.to_owned(),
            value: value.to_owned(),
            source: source.to_owned(),
            created_at: Timestamp::now(),
        };
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&self.path)?;
        file.lock()?;
        let mut line = serde_json::to_vec(&fact)?;
        line.push(b'\n');
        // A crash may have left an incomplete line; a line break keeps it from corrupting the new line.
        if ends_inside_a_line(&mut file)? {
            line.insert(0, b'\n');
        }
        toolyard_faults::write_all(&mut file, &line)?;
        toolyard_faults::sync_data(&file)?;
        known.read_on(File::open(&self.path)?)?;
        Ok(true)
    }

    /// All values of a key, oldest first.
    pub fn history(&self, key: &str) -> std::io::Result<Vec<Fact>> {
        Ok(self.known()?.entry(key).map(|entry| entry.history.clone()).unwrap_or_default())
    }

    /// Number of keys.
    pub fn len(&self) -> std::io::Result<usize> {
        Ok(self.known()?.entries.len())
    }

    /// Whether there are no facts.
    pub fn is_empty(&self) -> std::io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The admitted facts that match a query, best first, each with its score, 0 to 1.
    pub fn find(&self, question: &str, admits: impl Fn(&Fact) -> bool) -> std::io::Result<Vec<(Fact, f32)>> {
        let mut wanted = query_terms(question);
        if wanted.iter().any(|term| !is_asking(term)) {
            wanted.retain(|term| !is_asking(term));
        }
        // In a script without spaces a key may be a part of the query, so every part is looked up.
        let named = term_set(question);
        let known = self.known()?;
        let candidates: HashSet<usize> =
            wanted.iter().chain(&named).filter_map(|term| known.holders.get(term)).flatten().copied().collect();
        let weights: Vec<(&String, f32)> = wanted.iter().map(|term| (term, known.weight(term))).collect();
        let all: f32 = weights.iter().map(|(_, weight)| weight).sum();
        let fit = |entry: &Entry| {
            let shared: f32 =
                weights.iter().filter(|(term, _)| entry.terms.contains(*term)).map(|(_, weight)| weight).sum();
            let share = if all > 0.0 { shared / all } else { 0.0 };
            let is_named =
                entry.key_terms.len() >= MIN_KEY_TERMS && entry.key_terms.iter().all(|term| named.contains(term));
            // Facts whose key the query contains rank above facts that only share words.
            if is_named { (1.0 + share) / 2.0 } else { share }
        };
        let mut found: Vec<(&Fact, f32)> = candidates
            .into_iter()
            .filter_map(|place| known.entries.get(place))
            .filter_map(|entry| Some((entry.history.last()?, fit(entry))))
            .filter(|(fact, fit)| *fit > MIN_SHARE && admits(fact))
            .collect();
        found.sort_by(|a, b| {
            b.1.total_cmp(&a.1).then(b.0.created_at.cmp(&a.0.created_at)).then_with(|| a.0.key.cmp(&b.0.key))
        });
        Ok(found.into_iter().take(MAX_SHOWN).map(|(fact, fit)| (fact.clone(), fit)).collect())
    }
}

impl LoadedFacts {
    fn entry(&self, key: &str) -> Option<&Entry> {
        self.places.get(key).and_then(|place| self.entries.get(*place))
    }

    fn current(&self, key: &str) -> Option<&Fact> {
        self.entry(key).and_then(|entry| entry.history.last())
    }

    /// The weight of a term, which falls with the number of facts that contain it.
    fn weight(&self, term: &str) -> f32 {
        let holders = self.holders.get(term).map_or(0, HashSet::len);
        (1.0 + self.entries.len() as f32 / (1.0 + holders as f32)).ln()
    }

    fn add(&mut self, fact: Fact) {
        let key = fact.key.replace(['_', '-', '.', '/'], " ");
        let key_terms = query_terms(&key).into_iter().filter(|term| !is_asking(term)).collect();
        let terms = term_set(&format!("{key}\n{}", fact.value));
        let place = *self.places.entry(fact.key.clone()).or_insert(self.entries.len());
        if place == self.entries.len() {
            self.entries.push(Entry::default());
        }
        let Some(entry) = self.entries.get_mut(place) else { return };
        for gone in entry.terms.difference(&terms) {
            if let Some(holders) = self.holders.get_mut(gone) {
                holders.remove(&place);
            }
        }
        for term in &terms {
            self.holders.entry(term.clone()).or_default().insert(place);
        }
        entry.history.push(fact);
        (entry.key_terms, entry.terms) = (key_terms, terms);
    }

    fn read_on(&mut self, mut file: File) -> std::io::Result<()> {
        let length = file.metadata()?.len();
        if length < self.read {
            *self = LoadedFacts::default();
        }
        if length == self.read {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if count == 0 || line.last() != Some(&b'\n') {
                return Ok(());
            }
            self.read += count as u64;
            // A line truncated by a crash is skipped.
            let Ok(fact) = serde_json::from_slice::<Fact>(&line) else { continue };
            self.add(fact);
        }
    }
}

fn is_asking(term: &str) -> bool {
    ASKING_TERMS.contains(term)
}

/// All terms of a text of any length, including single characters of scripts without spaces.
fn term_set(text: &str) -> HashSet<String> {
    let mut terms = String::new();
    index_terms(text, &mut terms);
    terms.split_ascii_whitespace().map(str::to_owned).collect()
}

fn ends_inside_a_line(file: &mut File) -> std::io::Result<bool> {
    use std::io::Read;
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::fs::PermissionsExt};

    #[test]
    fn the_last_value_holds_and_the_others_are_history() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("facts.jsonl");
        let (a, b) = (FactStore::new(path.clone()), FactStore::new(path.clone()));
        assert!(a.store("anna.birthday", "3 May", "People/Anna.md").unwrap());
        assert!(!b.store("anna.birthday", "3 May", "People/Anna.md").unwrap(), "it is so already");
        assert!(b.store("anna.birthday", "4 May", "People/Anna.md").unwrap());
        let values: Vec<String> = a.history("anna.birthday").unwrap().into_iter().map(|f| f.value).collect();
        assert_eq!(values, ["3 May", "4 May"]);
        let found = a.find("When is Anna's birthday?", |_| true).unwrap();
        assert_eq!(found[0].0.value, "4 May");
        assert!(a.find("the weather tomorrow", |_| true).unwrap().is_empty());
        assert!(a.find("3", |_| true).unwrap().is_empty(), "what no longer holds is not found");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn keys(store: &FactStore, question: &str) -> Vec<String> {
        store.find(question, |_| true).unwrap().into_iter().map(|(fact, _)| fact.key).collect()
    }

    #[test]
    fn facts_are_found_by_ordinary_questions_and_not_by_one_common_word() {
        let dir = tempfile::tempdir().unwrap();
        let store = FactStore::new(dir.path().join("facts.jsonl"));
        store.store("anna-birthday", "3 May", "People/Anna.md").unwrap();
        for question in [
            "what did I write about anna's birthday",
            "When is Anna's birthday?",
            "please tell me what I noted about the birthday of Anna and her plans for a party at the lake",
            "was habe ich über Annas birthday geschrieben",
            "birthday",
        ] {
            assert_eq!(keys(&store, question), ["anna-birthday"], "{question}");
        }
        for question in
            ["what did Anna say about the boat", "anna's car", "what did I write", "a birthday cake recipe", ""]
        {
            assert!(keys(&store, question).is_empty(), "{question}");
        }
        store.store("anna-car", "a red Volvo", "People/Anna.md").unwrap();
        store.store("bob_car", "a blue Fiat", "People/Bob.md").unwrap();
        assert_eq!(keys(&store, "which car does Anna have"), ["anna-car"]);
        assert_eq!(keys(&store, "who has the red Volvo"), ["anna-car"], "by its value");
        assert_eq!(keys(&store, "bob's car"), ["bob_car"]);
        assert!(keys(&store, "how do I sell the old car of my aunt").is_empty());
    }

    #[test]
    fn long_values_and_single_characters_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let store = FactStore::new(dir.path().join("facts.jsonl"));
        let words: String = (0..300).map(|i| format!("word{i} ")).collect();
        store.store("list", &format!("{words} zebra"), "a.md").unwrap();
        assert_eq!(keys(&store, "zebra"), ["list"]);
        store.store("猫の名前", "タマ", "猫.md").unwrap();
        assert_eq!(keys(&store, "猫"), ["猫の名前"]);
        assert_eq!(keys(&store, "私の猫の名前は何ですか"), ["猫の名前"]);
        assert!(keys(&store, "犬").is_empty());
    }

    #[test]
    fn what_is_not_admitted_does_not_take_the_place_of_what_is() {
        let dir = tempfile::tempdir().unwrap();
        let store = FactStore::new(dir.path().join("facts.jsonl"));
        for number in 0..10 {
            let source = if number == 0 { "Open/a.md" } else { "Secret/a.md" };
            store.store(&format!("bike code {number}"), "1234", source).unwrap();
        }
        let found = store.find("bike code", |fact| fact.source.starts_with("Open/")).unwrap();
        assert_eq!(found.iter().map(|(fact, _)| fact.key.as_str()).collect::<Vec<_>>(), ["bike code 0"]);
        assert_eq!(keys(&store, "bike code").len(), MAX_SHOWN);
    }

    #[test]
    fn half_a_line_from_a_crash_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("facts.jsonl");
        let store = FactStore::new(path.clone());
        store.store("a", "1", "x.md").unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"key\":\"b\",\"va").unwrap();
        let again = FactStore::new(path);
        again.store("c", "3", "x.md").unwrap();
        assert_eq!(again.len().unwrap(), 2);
        assert_eq!(FactStore::new(again.path.clone()).history("c").unwrap()[0].value, "3");
    }
}
