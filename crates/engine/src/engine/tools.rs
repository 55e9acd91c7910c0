//! The current set of tools: registration, removal, and who may see them.

use super::{Engine, lock};
use crate::{Caller, Provider};
use arc_swap::ArcSwap;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use toolyard_catalog::{Decision, Registry, RegistryError, Snapshot, ToolEntry, ToolSource};

/// The tools of one moment: the snapshot that describes them and the providers that run them, always in step.
pub struct Tools {
    /// The catalog.
    pub snapshot: Arc<Snapshot>,
    /// What runs each of them, by its position there.
    providers: Vec<Option<Arc<dyn Provider>>>,
    /// Sessions that have their own tools.
    owners: HashSet<Box<str>>,
}

impl Tools {
    /// What runs a tool, by id.
    pub fn provider(&self, id: &str) -> Option<&Arc<dyn Provider>> {
        self.providers.get(self.snapshot.with_id(id)?)?.as_ref()
    }
}

/// Tools to remove, and tools to add in their place.
pub struct ToolExchange {
    /// The ids of the tools to remove; unknown ids are ignored.
    pub out: Vec<Arc<str>>,
    /// The tools to add.
    pub entries: Vec<ToolEntry>,
    /// The provider that runs the tools.
    pub provider: Arc<dyn Provider>,
}

/// The registry, and what is published of it.
pub(super) struct Toolbox {
    registry: Mutex<Registry>,
    published: ArcSwap<Tools>,
    changed: watch::Sender<()>,
}

impl Default for Toolbox {
    fn default() -> Self {
        Self {
            registry: Mutex::default(),
            published: ArcSwap::from_pointee(Tools {
                snapshot: Snapshot::empty(),
                providers: Vec::new(),
                owners: HashSet::new(),
            }),
            changed: watch::channel(()).0,
        }
    }
}

impl Toolbox {
    /// Whether a session has its own tools.
    pub(super) fn owns(&self, session: &str) -> bool {
        self.published.load().owners.contains(session)
    }

    /// Publishes the registry's current content. Tools in `came` have a new provider; the others keep theirs.
    fn publish(&self, registry: &Registry, came: &HashMap<Arc<str>, Arc<dyn Provider>>) {
        let (snapshot, before) = (registry.snapshot(), self.published.load());
        let provider = |entry: &Arc<ToolEntry>| came.get(entry.id()).or_else(|| before.provider(entry.id())).cloned();
        let providers = snapshot.iter().map(provider).collect();
        let owners = snapshot.iter().filter_map(|entry| entry.session()).map(Into::into).collect();
        self.published.store(Arc::new(Tools { snapshot, providers, owners }));
        self.changed.send_replace(());
    }
}

impl Engine {
    /// Adds tools that one provider runs. The snapshot changes once, for all of them or none.
    pub fn register(&self, entries: Vec<ToolEntry>, provider: Arc<dyn Provider>) -> Result<(), RegistryError> {
        self.exchange(vec![ToolExchange { out: Vec::new(), entries, provider }])
    }

    /// Removes and adds tools in one change: all of them, or none if there is an error.
    pub fn exchange(&self, exchanges: Vec<ToolExchange>) -> Result<(), RegistryError> {
        let mut registry = lock(&self.inner.toolbox.registry);
        let mut next = registry.clone();
        let mut came = HashMap::new();
        for ToolExchange { out, entries, provider } in exchanges {
            for id in &out {
                next.remove(id);
            }
            for entry in entries {
                came.insert(entry.shared_id().clone(), provider.clone());
                next.add(entry)?;
            }
        }
        *registry = next;
        self.inner.toolbox.publish(&registry, &came);
        Ok(())
    }

    /// Removes every tool of a source.
    pub fn unregister(&self, source: &ToolSource) {
        let mut registry = lock(&self.inner.toolbox.registry);
        registry.remove_source(source);
        self.inner.toolbox.publish(&registry, &HashMap::new());
    }

    /// A receiver that is notified when tools are added or removed.
    pub fn watch_tools(&self) -> watch::Receiver<()> {
        self.inner.toolbox.changed.subscribe()
    }

    /// The tools of this moment.
    pub fn tools(&self) -> Arc<Tools> {
        self.inner.toolbox.published.load_full()
    }

    /// Tools the caller may use, by id: exactly those a call would not be denied for by name.
    pub fn visible_tools(&self, caller: &Caller) -> Vec<Arc<ToolEntry>> {
        let policy = self.policy_for(caller);
        let tools = self.tools();
        tools
            .snapshot
            .iter()
            .filter(|entry| !matches!(policy.decide(entry, None), Decision::Deny { .. }))
            .cloned()
            .collect()
    }
}
