//! A compiled filter: names are looked up once, then each document needs only a few comparisons.

use super::{DocumentKey, Filter, RecallIndex, names::NONE};

/// A filter whose names are resolved to numbers.
pub(super) struct ResolvedFilter<'a> {
    filter: &'a Filter,
    owners: Option<Vec<bool>>,
    scopes: Option<Vec<bool>>,
    /// Documents that the filter names by id.
    named: Vec<u32>,
    group: Option<u32>,
}

impl<'a> ResolvedFilter<'a> {
    pub(super) fn new(index: &RecallIndex, filter: &'a Filter) -> Self {
        let owners = (!filter.owners.is_empty())
            .then(|| index.owners.which(|owner| filter.owners.iter().any(|wanted| wanted == owner)));
        let scopes = (!filter.scopes.is_empty())
            .then(|| index.scopes.which(|scope| filter.scopes.iter().any(|wanted| is_under(scope, wanted))));
        let group = filter.group.as_deref().map(|group| index.groups.find(group).unwrap_or(NONE));
        let named = filter.scopes.iter().filter_map(|id| index.by_id.get(id.as_str()).copied()).collect();
        Self { filter, owners, scopes, named, group }
    }

    /// Whether the filter admits documents of an owner.
    pub(super) fn admits_owner(&self, owner: u32) -> bool {
        self.owners.as_ref().is_none_or(|list| list.get(owner as usize).copied().unwrap_or(false))
    }

    pub(super) fn admits(&self, number: u32, key: &DocumentKey) -> bool {
        let listed = |list: &Option<Vec<bool>>, number: u32| {
            list.as_ref().is_none_or(|list| list.get(number as usize).copied().unwrap_or(false))
        };
        key.alive
            && listed(&self.owners, key.owner)
            && (listed(&self.scopes, key.scope) || self.named.contains(&number))
            && (self.filter.kinds.is_empty() || self.filter.kinds.contains(&key.kind))
            && (self.filter.categories.is_empty()
                || key.category.is_some_and(|category| self.filter.categories.contains(&category)))
            && (self.filter.levels.is_empty() || self.filter.levels.contains(&key.level))
            && self.group.is_none_or(|group| key.group == group && group != NONE)
            && self.filter.since_ms.is_none_or(|since| key.time_ms.is_some_and(|time| time >= since))
            && self.filter.until_ms.is_none_or(|until| key.time_ms.is_some_and(|time| time <= until))
    }
}

/// Whether a path equals another or is inside it, compared by whole path segments.
fn is_under(path: &str, parent: &str) -> bool {
    // `viking://` alone is the root of all paths.
    let rest = if parent.ends_with("://") {
        path.strip_prefix(parent)
    } else {
        path.strip_prefix(parent.trim_end_matches('/'))
    };
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || parent.ends_with("://") || parent == "/")
}
