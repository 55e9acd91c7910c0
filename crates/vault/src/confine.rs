//! [`FilteredView`]: a view that hides what the policy's path rules do not allow.
//!
//! Paths that a call names are checked earlier. Tools that find paths themselves read through this view, so that a
//! list, a search or a rename never shows a path that the call may not name.

use crate::{
    error::VaultResult,
    path::VaultPath,
    root::NodeKind,
    view::{Content, Entry, Listing, Purpose, Stat, View},
};
use std::sync::{Arc, Mutex, PoisonError};
use toolyard_catalog::PathFilter;
use toolyard_protocol::Sandbox;

pub(crate) struct FilteredView<'a> {
    view: &'a dyn View,
    filter: &'a PathFilter,
}

impl<'a> FilteredView<'a> {
    pub(crate) fn new(view: &'a dyn View, filter: &'a PathFilter) -> Self {
        Self { view, filter }
    }
}

impl View for FilteredView<'_> {
    fn stat(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Stat>> {
        self.view.stat(path, purpose)
    }
    fn read(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Content>> {
        self.view.read(path, purpose)
    }
    fn etag(&self, path: &VaultPath) -> VaultResult<Option<String>> {
        self.view.etag(path)
    }
    fn list(&self, folder: Option<&VaultPath>, listing: Listing) -> VaultResult<Vec<Entry>> {
        let mut entries = self.view.list(folder, listing)?;
        entries.retain(|entry| match VaultPath::child(folder, &entry.name) {
            Ok(path) if entry.kind == NodeKind::Folder => self.filter.leads_to_allowed(path.as_str()),
            Ok(path) => self.filter.allows(path.as_str()),
            Err(_) => false,
        });
        Ok(entries)
    }
}

/// The filter of the last sandbox seen: nearly every call has the same one, and building it costs more than a read.
#[derive(Default)]
pub(crate) struct Filters(Mutex<Option<(Sandbox, Arc<PathFilter>)>>);

impl Filters {
    pub(crate) fn of(&self, sandbox: &Sandbox) -> Arc<PathFilter> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, filter)) if known == sandbox => filter.clone(),
            _ => {
                let filter = Arc::new(PathFilter::new(sandbox));
                *last = Some((sandbox.clone(), filter.clone()));
                filter
            }
        }
    }
}
