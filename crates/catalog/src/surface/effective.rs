//! [`EffectiveCatalog`]: the tools that one caller may use, prepared for searching and shared by callers with the same
//! rights.

use super::{ShownTool, is_control_entry, list_bytes};
use crate::{
    policy::EffectivePolicy,
    registry::{Snapshot, SourceKind, ToolEntry},
    search::{Hit, MeaningModel, SearchIndex, SearchOptions},
};
use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use toolyard_protocol::canonical;

/// Catalogs kept for callers that come again.
const MAX_KEPT: usize = 256;

/// How many tools come from where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sources {
    /// Core and plugin tools.
    pub openclaw: usize,
    /// Tools of upstream MCP servers.
    pub mcp: usize,
    /// Tools of the connected client.
    pub client: usize,
}

/// The tools one caller may use: exactly those the policy does not deny, without the control tools. Immutable.
pub struct EffectiveCatalog {
    snapshot: Arc<Snapshot>,
    visible: HashSet<Arc<str>>,
    /// The control tools that the caller may use.
    controls: Vec<Arc<ToolEntry>>,
    fingerprint: String,
    sources: Sources,
    index: Arc<SharedIndex>,
    direct_bytes: OnceLock<usize>,
    is_announced: AtomicBool,
}

/// The search index of a snapshot, built when first asked for.
struct SharedIndex {
    snapshot: Arc<Snapshot>,
    model: Option<Arc<dyn MeaningModel>>,
    index: OnceLock<SearchIndex>,
}

impl SharedIndex {
    fn get(&self) -> &SearchIndex {
        self.index.get_or_init(|| {
            let index = SearchIndex::build(&self.snapshot);
            match &self.model {
                Some(model) => index.with_meaning(&**model),
                None => index,
            }
        })
    }
}

impl EffectiveCatalog {
    /// Every tool, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.snapshot.iter().filter(|entry| self.contains(entry))
    }
    /// Whether the caller may use this tool.
    pub fn contains(&self, entry: &ToolEntry) -> bool {
        self.visible.contains(entry.id())
    }
    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.visible.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.visible.is_empty()
    }
    /// How many come from where.
    pub fn sources(&self) -> Sources {
        self.sources
    }
    /// SHA-256 over the ids and fingerprints of all its tools.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
    /// The catalog it is a part of.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The tools that fit a query best.
    pub fn search(&self, query: &str, limit: usize, explain: bool) -> Vec<Hit> {
        self.index.get().search(query, &SearchOptions { limit, explain }, |entry| self.contains(entry))
    }

    /// Whether a search can be answered at once.
    pub fn is_indexed(&self) -> bool {
        self.index.index.get().is_some()
    }
    /// Builds the index, if it is not there.
    pub fn warm(&self) {
        self.index.get();
    }

    /// Bytes a model would be shown of it directly.
    pub fn direct_bytes(&self) -> usize {
        let shown = |entry: &Arc<ToolEntry>| ShownTool::of(&self.snapshot, entry).json_bytes();
        *self.direct_bytes.get_or_init(|| list_bytes(self.iter().map(shown)))
    }

    /// True for the first who asks: that a catalog was made is logged once.
    pub fn is_new(&self) -> bool {
        !self.is_announced.swap(true, Ordering::Relaxed)
    }

    /// The control tool of this name, if the caller may use it.
    pub fn control(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.controls.iter().find(|entry| entry.name().as_str() == name)
    }

    /// The only tool with exactly this name, for a model that calls a tool that it was not shown.
    pub fn named(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        let mut named =
            self.iter().filter(|entry| entry.name().as_str() == name || self.snapshot.safe_name(entry) == name);
        match (named.next(), named.next()) {
            (Some(entry), None) => Some(entry),
            _ => None,
        }
    }
}

impl std::fmt::Debug for EffectiveCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EffectiveCatalog").field("fingerprint", &self.fingerprint).field("tools", &self.len()).finish()
    }
}

/// What decides an effective catalog.
#[derive(PartialEq, Eq)]
struct CacheKey {
    version: String,
    policy: String,
    scopes: Vec<String>,
    own: Option<String>,
}

/// Builds effective catalogs and caches them for callers with the same rights.
#[derive(Default)]
pub struct EffectiveCatalogCache {
    model: Option<Arc<dyn MeaningModel>>,
    kept: Mutex<VecDeque<(CacheKey, Arc<EffectiveCatalog>)>>,
    indexes: Mutex<VecDeque<Arc<SharedIndex>>>,
}

impl EffectiveCatalogCache {
    /// With a model of meaning, or by words alone.
    pub fn new(model: Option<Arc<dyn MeaningModel>>) -> Self {
        Self { model, ..Self::default() }
    }

    /// The catalog for a policy. `scopes` are those the policy was made for: they are no part of its hash.
    pub fn of(&self, snapshot: &Arc<Snapshot>, policy: &EffectivePolicy, scopes: &[String]) -> Arc<EffectiveCatalog> {
        let mut scopes = scopes.to_vec();
        scopes.sort_unstable();
        scopes.dedup();
        let key = CacheKey {
            version: snapshot.version().to_owned(),
            policy: policy.hash().to_owned(),
            scopes,
            own: policy.own().map(str::to_owned),
        };
        let mut kept = lock(&self.kept);
        if let Some(place) = kept.iter().position(|(known, _)| *known == key)
            && let Some(found) = kept.remove(place)
        {
            let catalog = found.1.clone();
            kept.push_front(found);
            return catalog;
        }
        // Callers of an earlier version have theirs; kept here it would hold that whole version in memory.
        kept.retain(|(known, _)| known.version == key.version);
        let catalog = Arc::new(self.build(snapshot, policy));
        kept.push_front((key, catalog.clone()));
        kept.truncate(MAX_KEPT);
        catalog
    }

    fn build(&self, snapshot: &Arc<Snapshot>, policy: &EffectivePolicy) -> EffectiveCatalog {
        let mut visible = HashSet::new();
        let mut controls = Vec::new();
        let mut sources = Sources::default();
        let mut content = String::new();
        for entry in snapshot.iter() {
            if policy.decide(entry, None).is_denied() {
                continue;
            }
            if is_control_entry(entry) {
                controls.push(entry.clone());
                continue;
            }
            match entry.source().kind {
                SourceKind::Core | SourceKind::Plugin => sources.openclaw += 1,
                SourceKind::Mcp => sources.mcp += 1,
                SourceKind::Client => sources.client += 1,
            }
            content.push_str(entry.id());
            content.push('\n');
            content.push_str(&canonical::hex(entry.fingerprint()));
            content.push('\n');
            visible.insert(entry.shared_id().clone());
        }
        let fingerprint = canonical::sha256_hex(content.as_bytes());
        EffectiveCatalog {
            index: self.index(snapshot),
            snapshot: snapshot.clone(),
            visible,
            controls,
            fingerprint,
            sources,
            direct_bytes: OnceLock::new(),
            is_announced: AtomicBool::new(false),
        }
    }

    fn index(&self, snapshot: &Arc<Snapshot>) -> Arc<SharedIndex> {
        let mut indexes = lock(&self.indexes);
        if let Some(known) = indexes.iter().find(|index| index.snapshot.version() == snapshot.version()) {
            return known.clone();
        }
        // Indexes of earlier versions that a search still uses.
        indexes.retain(|index| Arc::strong_count(index) > 1);
        let index =
            Arc::new(SharedIndex { snapshot: snapshot.clone(), model: self.model.clone(), index: OnceLock::new() });
        indexes.push_front(index.clone());
        index
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
