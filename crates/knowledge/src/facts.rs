//! Facts an agent was asked to remember: an append-only file, one JSON object a line. The last line of a key is what
//! holds; the lines before it are its history.

use crate::text::query_terms;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A key is at most this long.
pub(crate) const MAX_KEY_CHARS: usize = 200;
/// A value is at most this long.
pub(crate) const MAX_VALUE_CHARS: usize = 4_000;
/// At most this many keys are kept; more is a database, not a memory.
pub(crate) const MAX_FACTS: usize = 100_000;
/// Facts that one search shows at most.
const MAX_SHOWN: usize = 3;
/// A fact is shown for a question when it has at least this share of the question's terms,
const MIN_SHARE: f32 = 0.5;

/// One remembered fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is about.
    pub key: String,
    /// What is so.
    pub value: String,
    /// Where it was read: a vault path.
    pub source: String,
    /// When it was stored.
    pub created_at: Timestamp,
}

/// The facts of one vault.
pub struct FactStore {
    path: PathBuf,
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By key: every value it had, oldest first.
    facts: HashMap<String, Vec<Fact>>,
    /// The keys' and values' terms, of what holds.
    terms: HashMap<String, Vec<String>>,
    /// How far the file was read.
    read: u64,
}

impl FactStore {
    /// In this file, which is made when the first fact is stored.
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::default() }
    }

    fn known(&self) -> std::io::Result<MutexGuard<'_, Known>> {
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Other processes append too; what they added is read before anything is answered.
        match File::open(&self.path) {
            Ok(file) => known.read_on(file)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => *known = Known::default(),
            Err(e) => return Err(e),
        }
        Ok(known)
    }

    /// Stores a fact; `false` when it is so already.
    pub fn store(&self, key: &str, value: &str, source: &str) -> std::io::Result<bool> {
        let mut known = self.known()?;
        if known.current(key).is_some_and(|fact| fact.value == value && fact.source == source) {
            return Ok(false);
        }
        if known.facts.len() >= MAX_FACTS && !known.facts.contains_key(key) {
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
        // Half a line from a crash must not swallow this one.
        if ends_inside_a_line(&mut file)? {
            line.insert(0, b'\n');
        }
        file.write_all(&line)?;
        file.sync_data()?;
        known.read_on(File::open(&self.path)?)?;
        Ok(true)
    }

    /// Every value a key had, oldest first.
    pub fn history(&self, key: &str) -> std::io::Result<Vec<Fact>> {
        Ok(self.known()?.facts.get(key).cloned().unwrap_or_default())
    }

    /// How many keys there are.
    pub fn len(&self) -> std::io::Result<usize> {
        Ok(self.known()?.facts.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> std::io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The facts that answer a question, best first, each with the share of the question's terms it has.
    pub fn find(&self, question: &str) -> std::io::Result<Vec<(Fact, f32)>> {
        let terms = query_terms(question);
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.known()?;
        let mut found: Vec<(&Fact, f32)> = known
            .terms
            .iter()
            .filter_map(|(key, own)| {
                let shared = terms.iter().filter(|term| own.contains(term)).count();
                let share = shared as f32 / terms.len() as f32;
                (share >= MIN_SHARE).then(|| known.current(key).map(|fact| (fact, share))).flatten()
            })
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.created_at.cmp(&a.0.created_at)));
        Ok(found.into_iter().take(MAX_SHOWN).map(|(fact, share)| (fact.clone(), share)).collect())
    }
}

impl Known {
    fn current(&self, key: &str) -> Option<&Fact> {
        self.facts.get(key).and_then(|history| history.last())
    }

    fn read_on(&mut self, mut file: File) -> std::io::Result<()> {
        let length = file.metadata()?.len();
        if length < self.read {
            *self = Known::default();
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
            // A line cut short by a crash is no fact.
            let Ok(fact) = serde_json::from_slice::<Fact>(&line) else { continue };
            let terms = query_terms(&format!("{} {}", fact.key.replace(['_', '-', '.', '/'], " "), fact.value));
            self.terms.insert(fact.key.clone(), terms);
            self.facts.entry(fact.key.clone()).or_default().push(fact);
        }
    }
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
    use std::os::unix::fs::PermissionsExt;

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
        let found = a.find("When is Anna's birthday?").unwrap();
        assert_eq!(found[0].0.value, "4 May");
        assert!(a.find("the weather tomorrow").unwrap().is_empty());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
