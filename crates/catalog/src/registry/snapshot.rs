//! [`Registry`], the mutable side, and [`Snapshot`], the immutable catalog that every question is put to.

use super::{
    entry::{RegistryError, ToolEntry, ToolSource},
    names::{closeness, safe_name, with_hash},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use toolyard_protocol::canonical;

/// The semantic version of the catalog's form; the fingerprint of its content follows after `+`.
pub const CATALOG_VERSION: &str = "1.0.0";
/// Hex digits of the fingerprint in a version.
const VERSION_DIGITS: usize = 12;
/// Names suggested for an unknown one.
const MAX_SUGGESTIONS: usize = 3;

/// Which tools there are now. Change it, then take a [`Snapshot`].
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: BTreeMap<String, Arc<ToolEntry>>,
}

impl Registry {
    /// Without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a tool in. An id that is there already is refused: the first one stays.
    pub fn add(&mut self, entry: ToolEntry) -> Result<(), RegistryError> {
        match self.entries.entry(entry.id().to_owned()) {
            std::collections::btree_map::Entry::Occupied(there) => {
                Err(RegistryError::Duplicate { id: there.key().clone() })
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Arc::new(entry));
                Ok(())
            }
        }
    }

    /// Removes every tool of a source.
    pub fn remove_source(&mut self, source: &ToolSource) {
        self.entries.retain(|_, entry| entry.source() != source);
    }

    /// Removes one tool, by id.
    pub fn remove(&mut self, id: &str) {
        self.entries.remove(id);
    }

    /// Puts these tools in place of all that the source had: all of them, or (on an error) none.
    pub fn replace_source(&mut self, source: &ToolSource, entries: Vec<ToolEntry>) -> Result<(), RegistryError> {
        let mut next = self.clone();
        next.remove_source(source);
        entries.into_iter().try_for_each(|entry| next.add(entry))?;
        *self = next;
        Ok(())
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The catalog as it stands now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(Snapshot::build(self.entries.values().cloned().collect()))
    }
}

/// What a name or id stands for.
#[derive(Debug)]
pub enum Resolution<'a> {
    /// This tool.
    Found(&'a Arc<ToolEntry>),
    /// Several tools of that name: their ids.
    Ambiguous(Vec<String>),
    /// No tool.
    Unknown {
        /// Names that may have been meant, at most three.
        suggestions: Vec<String>,
    },
}

/// An immutable catalog.
#[derive(Debug)]
pub struct Snapshot {
    version: String,
    /// Sorted by id.
    entries: Vec<Arc<ToolEntry>>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, Vec<usize>>,
    by_safe_name: HashMap<String, usize>,
    /// The spelling shown to models, by position.
    safe_names: Vec<String>,
}

impl Snapshot {
    /// A catalog without tools.
    pub fn empty() -> Arc<Snapshot> {
        Arc::new(Self::build(Vec::new()))
    }

    fn build(entries: Vec<Arc<ToolEntry>>) -> Self {
        let mut catalog = String::with_capacity(entries.len() * 112);
        let mut by_id = HashMap::with_capacity(entries.len());
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::with_capacity(entries.len());
        let mut spelled: HashMap<String, usize> = HashMap::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            catalog.push_str(entry.id());
            catalog.push('\n');
            catalog.push_str(entry.fingerprint());
            catalog.push('\n');
            by_id.insert(entry.id().to_owned(), index);
            by_name.entry(entry.name().to_string()).or_default().push(index);
            *spelled.entry(safe_name(entry.name())).or_default() += 1;
        }
        let mut by_safe_name = HashMap::with_capacity(entries.len());
        let mut safe_names = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let plain = safe_name(entry.name());
            let is_own_name = plain == entry.name().as_str();
            let named_alike = by_name.get(&plain).map_or(0, Vec::len);
            // A name that is already safe keeps its spelling; whoever would only be spelled like it gets a hash.
            let unique =
                if is_own_name { named_alike == 1 } else { named_alike == 0 && spelled.get(&plain) == Some(&1) };
            let shown = if unique { plain } else { with_hash(entry.name().as_str(), entry.id()) };
            by_safe_name.insert(shown.clone(), index);
            safe_names.push(shown);
        }
        let digest = canonical::sha256_hex(catalog.as_bytes());
        let version = format!("{CATALOG_VERSION}+{}", &digest[..VERSION_DIGITS]);
        Self { version, entries, by_id, by_name, by_safe_name, safe_names }
    }

    /// `1.0.0+<12 hex digits>`: the same for the same tools, another for any others.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The tool with this id, this name, or this safe spelling, if there is exactly one.
    pub fn get(&self, name_or_id: &str) -> Option<&Arc<ToolEntry>> {
        self.position(name_or_id).and_then(|index| self.entries.get(index))
    }

    /// Where in [`Snapshot::iter`] the tool stands.
    pub fn position(&self, name_or_id: &str) -> Option<usize> {
        if let Some(&index) = self.by_id.get(name_or_id) {
            return Some(index);
        }
        match self.by_name.get(name_or_id).map(Vec::as_slice) {
            Some([index]) => Some(*index),
            Some(_) => None,
            None => self.by_safe_name.get(name_or_id).copied(),
        }
    }

    /// What a name or id stands for, and what it may have meant when it stands for nothing.
    pub fn resolve(&self, name_or_id: &str) -> Resolution<'_> {
        self.resolve_visible(name_or_id, |_| true)
    }

    /// Like [`Snapshot::resolve`], as if only the tools that `visible` accepts existed: nothing is suggested that the
    /// caller may not use, and a hidden tool makes no name ambiguous.
    pub fn resolve_visible(&self, name_or_id: &str, visible: impl Fn(&ToolEntry) -> bool) -> Resolution<'_> {
        let shown = |index: &usize| self.entries.get(*index).filter(|entry| visible(entry));
        let named = self.by_name.get(name_or_id).map(Vec::as_slice).unwrap_or_default();
        let alike: Vec<&Arc<ToolEntry>> = named.iter().filter_map(shown).collect();
        if let Some(entry) = self.by_id.get(name_or_id).and_then(shown) {
            return Resolution::Found(entry);
        }
        match alike.as_slice() {
            [entry] => return Resolution::Found(entry),
            [] => {}
            several => return Resolution::Ambiguous(several.iter().map(|entry| entry.id().to_owned()).collect()),
        }
        if let Some(entry) = self.by_safe_name.get(name_or_id).and_then(shown) {
            return Resolution::Found(entry);
        }
        Resolution::Unknown { suggestions: self.suggest(name_or_id, visible) }
    }

    /// The spelling of a tool's name that is shown to models: safe, and unique in this catalog. For an entry of
    /// another catalog, [`safe_name`].
    pub fn safe_name(&self, entry: &ToolEntry) -> String {
        let known = self.by_id.get(entry.id()).and_then(|&index| self.safe_names.get(index));
        known.cloned().unwrap_or_else(|| safe_name(entry.name()))
    }

    /// Every tool, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.entries.iter()
    }
    /// The tool at a position of [`Snapshot::iter`].
    pub fn at(&self, position: usize) -> Option<&Arc<ToolEntry>> {
        self.entries.get(position)
    }
    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn suggest(&self, wanted: &str, visible: impl Fn(&ToolEntry) -> bool) -> Vec<String> {
        // An id names its tool after the second colon; only that part is likely to be mistyped.
        let wanted_name = wanted.splitn(3, ':').nth(2).unwrap_or(wanted);
        let words = words_of(wanted_name);
        let mut ranked: Vec<(usize, &str, &Arc<ToolEntry>)> = Vec::new();
        for entry in &self.entries {
            let name = entry.name().as_str();
            let shared = words_of(name).iter().filter(|word| words.contains(word)).count();
            let typo = closeness(wanted_name, name).map_or(0, |distance| 100usize.saturating_sub(distance));
            let score = typo + 10 * shared;
            if score > 0 && visible(entry) {
                ranked.push((score, name, entry));
            }
        }
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let unique = |name: &str| self.by_name.get(name).is_some_and(|list| list.len() == 1);
        let spelled = |(_, name, entry): &(usize, &str, &Arc<ToolEntry>)| {
            if unique(name) { (*name).to_owned() } else { entry.id().to_owned() }
        };
        ranked.iter().take(MAX_SUGGESTIONS).map(spelled).collect()
    }
}

/// The words of a name, split at punctuation and at capitals, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous_lower = false;
    let mut open = false;
    for c in name.chars().take(256) {
        if !c.is_alphanumeric() {
            open = false;
        } else {
            if !open || (c.is_uppercase() && previous_lower) {
                words.push(String::new());
                open = true;
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        previous_lower = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| word.chars().count() > 1);
    words
}
