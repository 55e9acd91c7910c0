//! [`Registry`], which is mutable, and [`Snapshot`], the immutable catalog that queries read.

use super::{
    entry::{RegistryError, ToolEntry, ToolSource},
    names::{safe_name, with_hash},
};
use crate::suggest::Suggestions;
use std::{collections::HashMap, sync::Arc};
use toolyard_protocol::{WorkspaceId, canonical};

/// The semantic version of the catalog's form; the fingerprint of its content follows after `+`.
pub const CATALOG_VERSION: &str = "1.0.0";
/// Hex digits of the fingerprint in a version.
const VERSION_DIGITS: usize = 12;

/// Which tools there are now. Change it, then take a [`Snapshot`].
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// Sorted by id, and shared with the snapshots taken of it.
    entries: Arc<Vec<Arc<ToolEntry>>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. An id that is already registered is refused: the first tool stays.
    pub fn add(&mut self, entry: ToolEntry) -> Result<(), RegistryError> {
        match position_of(&self.entries, entry.id()) {
            Ok(_) => Err(RegistryError::Duplicate { id: entry.id().to_owned() }),
            Err(place) => {
                Arc::make_mut(&mut self.entries).insert(place, Arc::new(entry));
                Ok(())
            }
        }
    }

    /// Removes every tool of a source.
    pub fn remove_source(&mut self, source: &ToolSource) {
        Arc::make_mut(&mut self.entries).retain(|entry| entry.source() != source);
    }

    /// Removes one tool, by id.
    pub fn remove(&mut self, id: &str) {
        if let Ok(place) = position_of(&self.entries, id) {
            Arc::make_mut(&mut self.entries).remove(place);
        }
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

    /// The current catalog.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(Snapshot::build(self.entries.clone()))
    }
}

/// The result of looking up a name or id.
#[derive(Debug)]
pub enum Resolution<'a> {
    /// Exactly one tool matches.
    Found(&'a Arc<ToolEntry>),
    /// Several tools of that name: their ids.
    Ambiguous(Vec<String>),
    /// No tool; these may have been meant.
    Unknown(Suggestions<'a>),
}

/// An immutable catalog. Names are found by binary search in sorted lists of positions: during a change, a catalog of
/// thousands of tools exists twice, and maps with a copy of each name took most of its memory.
#[derive(Debug)]
pub struct Snapshot {
    version: String,
    /// Sorted by id.
    entries: Arc<Vec<Arc<ToolEntry>>>,
    /// Positions, sorted by name.
    by_name: Vec<u32>,
    /// Positions of the tools whose safe name differs from their name, sorted by safe name.
    by_safe_name: Vec<u32>,
    /// The name shown to models, by position, where it differs from the tool's name.
    safe_names: Vec<Option<Box<str>>>,
}

impl Snapshot {
    /// A catalog without tools.
    pub fn empty() -> Arc<Snapshot> {
        Arc::new(Self::build(Arc::default()))
    }

    fn build(entries: Arc<Vec<Arc<ToolEntry>>>) -> Self {
        let mut catalog = String::with_capacity(entries.len() * 112);
        for entry in entries.iter() {
            catalog.push_str(entry.id());
            catalog.push('\n');
            catalog.push_str(&canonical::hex(entry.fingerprint()));
            catalog.push('\n');
        }
        let digest = canonical::sha256_hex(catalog.as_bytes());
        drop(catalog);
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX); // more tools than memory
        let mut by_name: Vec<u32> = (0..count).collect();
        let of_session = |at: u32| entries.get(at as usize).is_some_and(|entry| entry.session().is_some());
        by_name.sort_by_key(|at| (name_at(&entries, *at), of_session(*at)));
        let mut snapshot = Self {
            version: format!("{CATALOG_VERSION}+{}", &digest[..VERSION_DIGITS]),
            safe_names: Vec::new(),
            by_safe_name: Vec::new(),
            by_name,
            entries,
        };
        snapshot.safe_names = snapshot.spell();
        let safe = &snapshot.safe_names;
        let mut spelled: Vec<u32> =
            (0..count).filter(|at| safe.get(*at as usize).is_some_and(Option::is_some)).collect();
        spelled.sort_by(|a, b| safe.get(*a as usize).cmp(&safe.get(*b as usize)));
        snapshot.by_safe_name = spelled;
        snapshot
    }

    /// Computes the names shown to models for tools whose own name is not acceptable or not unique.
    fn spell(&self) -> Vec<Option<Box<str>>> {
        let plain: Vec<Option<String>> = self
            .entries
            .iter()
            .map(|entry| Some(safe_name(entry.name())).filter(|plain| plain != entry.name().as_str()))
            .collect();
        // How many would be spelled so: in each workspace, and of those that all sessions have.
        let mut alike: HashMap<(&str, Option<WorkspaceId>), usize> = HashMap::new();
        for (entry, plain) in self.entries.iter().zip(&plain) {
            if let Some(plain) = plain {
                *alike.entry((plain, entry.workspace())).or_default() += 1;
            }
        }
        let spelled = self.entries.iter().enumerate().zip(&plain).map(|((at, entry), plain)| {
            // A name that is already safe keeps its spelling; another name that would become equal to it gets a hash. A
            // tool of one session does not change the spelling of a tool that all sessions have, nor that of a tool of
            // another workspace.
            let workspace = entry.workspace();
            let is_beside = |by: &ToolEntry| match &workspace {
                Some(workspace) => by.is_in(workspace),
                None => by.session().is_none(),
            };
            let beside = |name: &str| {
                let all = self.named(name).iter().map(|at| *at as usize);
                all.filter(|at| self.entries.get(*at).is_some_and(|by| is_beside(by))).collect::<Vec<_>>()
            };
            let is_taken = |plain: &str| !beside(plain).is_empty();
            let is_alone = |plain: &str| {
                let count = |of: Option<WorkspaceId>| alike.get(&(plain, of)).copied().unwrap_or_default();
                count(None) + workspace.clone().map_or(0, |own| count(Some(own))) == 1
            };
            match plain {
                None if matches!(beside(entry.name().as_str()).as_slice(), [only] if *only == at) => None,
                Some(plain) if !is_taken(plain) && is_alone(plain) => Some(plain.as_str().into()),
                _ => Some(with_hash(entry.name().as_str(), entry.id()).into_boxed_str()),
            }
        });
        spelled.collect()
    }

    /// The positions of all tools with this name. Where all sessions have such a tool, one that a single session has is
    /// not meant by it: it has an id.
    fn named(&self, name: &str) -> &[u32] {
        let from = self.by_name.partition_point(|at| name_at(&self.entries, *at) < name);
        let rest = self.by_name.get(from..).unwrap_or_default();
        let count = rest.partition_point(|at| name_at(&self.entries, *at) == name);
        let all = rest.get(..count).unwrap_or_default();
        // Those come first.
        let is_shared = |at: &u32| self.entries.get(*at as usize).is_some_and(|entry| entry.session().is_none());
        match all.partition_point(is_shared) {
            0 => all,
            shared => all.get(..shared).unwrap_or_default(),
        }
    }

    /// The position of the tool with this id in [`Snapshot::iter`].
    pub fn with_id(&self, id: &str) -> Option<usize> {
        position_of(&self.entries, id).ok()
    }

    /// The positions of the tools that are spelled so: at most one for each workspace.
    fn spelled(&self, safe_name: &str) -> impl Iterator<Item = usize> {
        let spelling = |at: &u32| self.safe_names.get(*at as usize).and_then(Option::as_deref).unwrap_or_default();
        let from = self.by_safe_name.partition_point(|at| spelling(at) < safe_name);
        let rest = self.by_safe_name.get(from..).unwrap_or_default();
        let count = rest.partition_point(|at| spelling(at) == safe_name);
        rest.iter().take(count).map(|at| *at as usize)
    }

    /// `1.0.0+<12 hex digits>`: the same for the same tools, another for any others.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The tool with this id, or the tool of the default workspace with this name or this safe spelling, if there is
    /// exactly one.
    pub fn get(&self, name_or_id: &str) -> Option<&Arc<ToolEntry>> {
        let with_id = self.with_id(name_or_id).and_then(|at| self.entries.get(at));
        with_id.or_else(|| self.get_in(&WorkspaceId::default(), name_or_id))
    }

    /// The tool with this id, this name, or this safe spelling, if there is exactly one for the sessions of a workspace.
    pub fn get_in(&self, workspace: &WorkspaceId, name_or_id: &str) -> Option<&Arc<ToolEntry>> {
        let there = |at: usize| self.entries.get(at).filter(|entry| entry.is_in(workspace));
        if let Some(entry) = self.with_id(name_or_id).and_then(there) {
            return Some(entry);
        }
        let mut named = self.named(name_or_id).iter().filter_map(|at| there(*at as usize));
        match (named.next(), named.next()) {
            (Some(entry), None) => Some(entry),
            (None, _) => self.spelled(name_or_id).find_map(there),
            _ => None,
        }
    }

    /// Looks up a name or id. If there is no match, the result contains suggestions.
    pub fn resolve(&self, name_or_id: &str) -> Resolution<'_> {
        self.resolve_visible(name_or_id, |_| true)
    }

    /// Like [`Snapshot::resolve`], as if only the tools that `visible` accepts existed: nothing is suggested that the
    /// caller may not use, and a hidden tool makes no name ambiguous.
    pub fn resolve_visible(&self, name_or_id: &str, visible: impl Fn(&ToolEntry) -> bool) -> Resolution<'_> {
        let shown = |at: usize| self.entries.get(at).filter(|entry| visible(entry));
        if let Some(entry) = self.with_id(name_or_id).and_then(shown) {
            return Resolution::Found(entry);
        }
        let alike: Vec<&Arc<ToolEntry>> = self.named(name_or_id).iter().filter_map(|at| shown(*at as usize)).collect();
        match alike.as_slice() {
            [entry] => return Resolution::Found(entry),
            [] => {}
            several => return Resolution::Ambiguous(several.iter().map(|entry| entry.id().to_owned()).collect()),
        }
        if let Some(entry) = self.spelled(name_or_id).find_map(shown) {
            return Resolution::Found(entry);
        }
        let is_alone = |entry: &ToolEntry| {
            self.named(entry.name().as_str()).iter().filter(|at| shown(**at as usize).is_some()).count() == 1
        };
        let tools = self.entries.iter().filter(|entry| visible(entry)).map(|entry| (entry, is_alone(entry)));
        Resolution::Unknown(Suggestions::among(name_or_id, tools))
    }

    /// The spelling of a tool's name that is shown to models: safe, and unique in this catalog. For an entry of
    /// another catalog, [`safe_name`].
    pub fn safe_name(&self, entry: &ToolEntry) -> String {
        match self.with_id(entry.id()).and_then(|at| self.safe_names.get(at)) {
            Some(Some(spelling)) => spelling.to_string(),
            Some(None) => entry.name().to_string(),
            None => safe_name(entry.name()),
        }
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
}

/// Where the tool with this id is, or would have to be.
fn position_of(entries: &[Arc<ToolEntry>], id: &str) -> Result<usize, usize> {
    // Tools mostly come in the order of their ids.
    match entries.last() {
        Some(last) if last.id() < id => Err(entries.len()),
        _ => entries.binary_search_by(|entry| entry.id().cmp(id)),
    }
}

fn name_at(entries: &[Arc<ToolEntry>], at: u32) -> &str {
    entries.get(at as usize).map_or("", |entry| entry.name().as_str())
}
