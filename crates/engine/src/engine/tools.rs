//! The tools of this moment: how they come, how they go, and who may see them.

use super::{Engine, lock};
use crate::{Caller, Provider};
use arc_swap::ArcSwap;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;
use toolyard_catalog::{Decision, Registry, RegistryError, Snapshot, ToolEntry, ToolSource};

/// The tools of one moment: the snapshot that describes them and the providers that run them, always in step.
pub struct Tools {
    /// What exists.
    pub snapshot: Arc<Snapshot>,
    providers: Arc<Providers>,
}

/// What runs each tool, by id.
type Providers = HashMap<Arc<str>, Arc<dyn Provider>>;

impl Tools {
    /// What runs a tool, by id.
    pub fn provider(&self, id: &str) -> Option<&Arc<dyn Provider>> {
        self.providers.get(id)
    }
}

/// Tools that go and tools that come in their place.
pub struct ToolExchange {
    /// Ids of those that go; unknown ones do not matter.
    pub out: Vec<Arc<str>>,
    /// Those that come.
    pub entries: Vec<ToolEntry>,
    /// What runs them.
    pub provider: Arc<dyn Provider>,
}

/// The registry, and what is published of it.
pub(super) struct Toolbox {
    registry: Mutex<(Registry, Arc<Providers>)>,
    published: ArcSwap<Tools>,
    changed: watch::Sender<()>,
}

impl Default for Toolbox {
    fn default() -> Self {
        Self {
            registry: Mutex::default(),
            published: ArcSwap::from_pointee(Tools { snapshot: Snapshot::empty(), providers: Arc::default() }),
            changed: watch::channel(()).0,
        }
    }
}

impl Toolbox {
    fn publish(&self, registry: &(Registry, Arc<Providers>)) {
        let tools = Tools { snapshot: registry.0.snapshot(), providers: registry.1.clone() };
        self.published.store(Arc::new(tools));
        self.changed.send_replace(());
    }
}

impl Engine {
    /// Adds tools that one provider runs. The snapshot changes once, for all of them or none.
    pub fn register(&self, entries: Vec<ToolEntry>, provider: Arc<dyn Provider>) -> Result<(), RegistryError> {
        self.exchange(vec![ToolExchange { out: Vec::new(), entries, provider }])
    }

    /// Takes tools out and others in, in one change: all of them, or (on an error) none.
    pub fn exchange(&self, exchanges: Vec<ToolExchange>) -> Result<(), RegistryError> {
        let mut registry = lock(&self.inner.toolbox.registry);
        let mut next = registry.0.clone();
        let mut providers = Providers::clone(&registry.1);
        for ToolExchange { out, entries, provider } in exchanges {
            for id in &out {
                next.remove(id);
                providers.remove(&**id);
            }
            for entry in entries {
                providers.insert(entry.shared_id().clone(), provider.clone());
                next.add(entry)?;
            }
        }
        *registry = (next, Arc::new(providers));
        self.inner.toolbox.publish(&registry);
        Ok(())
    }

    /// Removes every tool of a source.
    pub fn unregister(&self, source: &ToolSource) {
        let mut registry = lock(&self.inner.toolbox.registry);
        registry.0.remove_source(source);
        let snapshot = registry.0.snapshot();
        Arc::make_mut(&mut registry.1).retain(|id, _| snapshot.get(id).is_some());
        self.inner.toolbox.publish(&registry);
    }

    /// Hears when tools come or go.
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
