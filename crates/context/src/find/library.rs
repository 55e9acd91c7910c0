//! [`Library`]: the search index of an account. It is built from the files on first use, updated by every change and
//! never persisted: the files are the source of truth.

use crate::{
    error::Result,
    find::learned::{IndexedText, PASSAGE, PreparedFile, index_kind, owner},
    store::{
        account::Account,
        disk,
        layers::{ABSTRACT, Layers, OVERVIEW},
        memory::Fields,
        origin::{self, Origin},
        uri::{Identity, Kind, StorePath},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use toolyard_recall::index::{self, Document, Filter, Question, RankingWeights, RecallIndex};

/// Larger files are not indexed.
const MAX_INDEXED_BYTES: u64 = 8 << 20;
/// Maximum number of folders whose descriptions are refreshed before a search; the rest are refreshed by later
/// searches.
const REFRESHED: usize = 32;
/// Factor for a memory's score when the query contains none of its words. It keeps the score of a memory that merely
/// answers the query below that of a quotation, because only quoted memories are forgotten without confirmation.
const PARTLY: f32 = 0.7;
/// The search index of an account.
#[derive(Default)]
pub(crate) struct Library {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    loaded: bool,
    index: RecallIndex,
    /// Indexed files and described folders, by URI.
    known: BTreeMap<String, IndexedText>,
    /// Folders whose descriptions are out of date.
    stale: BTreeSet<StorePath>,
    /// Labels of folders; they apply to everything inside.
    labels: BTreeMap<StorePath, Vec<String>>,
}

/// One result of a search.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The URI; for levels 0 and 1, that of the description file.
    pub uri: String,
    /// What the resource is.
    pub kind: Kind,
    /// The level: 0, 1 or 2.
    pub level: u8,
    /// The relevance, 0 to 1: below about 0.15 it is chance, from 0.85 on it is nearly a literal match.
    pub score: f32,
    /// The value by which results are ordered.
    pub rank: f32,
    /// The components of the rank.
    pub parts: index::RankParts,
    /// A short description.
    pub abstract_text: String,
    /// Labels.
    pub tags: Vec<String>,
    /// The category, for a memory.
    pub category: Option<String>,
}

impl Hit {
    /// The score rounded to four digits, which is precise enough and prints the same everywhere.
    pub(crate) fn rounded_score(&self) -> f64 {
        (f64::from(self.score) * 10_000.0).round() / 10_000.0
    }
}

/// A search request.
pub(crate) struct SearchRequest<'a> {
    /// The query text.
    pub query: &'a str,
    /// Only inside these places; empty: everywhere.
    pub within: Vec<StorePath>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// Only these levels; empty: all.
    pub levels: Vec<u8>,
    /// Only resources with all of these labels.
    pub tags: Vec<String>,
    /// Maximum number of results.
    pub limit: usize,
    /// Minimum score.
    pub least: f32,
    /// Only resources from this time on.
    pub since_ms: Option<i64>,
    /// Only resources up to this time.
    pub until_ms: Option<i64>,
    /// The ranking weights.
    pub weights: RankingWeights,
}

impl<'a> SearchRequest<'a> {
    /// A request with a query and a limit.
    pub(crate) fn new(query: &'a str, limit: usize) -> Self {
        Self {
            query,
            within: Vec::new(),
            kinds: Vec::new(),
            levels: Vec::new(),
            tags: Vec::new(),
            limit,
            least: 0.0,
            since_ms: None,
            until_ms: None,
            weights: RankingWeights::default(),
        }
    }
}

impl Library {
    /// The text of a file without the stored metadata, as people and models read it.
    pub(crate) fn readable<'a>(place: &StorePath, text: &'a str) -> &'a str {
        if place.kind() == Kind::Memory { Fields::split(text).0 } else { text }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything. The next search reads the files again.
    pub(crate) fn reset(&self) {
        *self.write() = State::default();
    }

    /// Indexes a new or changed file.
    pub(crate) fn learn(&self, place: &StorePath, text: &str) {
        if place.kind() == Kind::Session || place.name().starts_with('.') {
            return;
        }
        let learned = PreparedFile::from(place, text);
        let mut state = self.write();
        if state.loaded {
            state.learn(place, learned);
        }
    }

    /// Indexes many files under one lock.
    pub(crate) fn learn_all(&self, files: Vec<(StorePath, String)>) {
        let learned: Vec<_> = files
            .iter()
            .filter(|(p, _)| !p.name().starts_with('.'))
            .map(|(p, t)| (p, PreparedFile::from(p, t)))
            .collect();
        let mut state = self.write();
        if state.loaded {
            for (place, learned) in learned {
                state.learn(place, learned);
            }
        }
    }

    /// Removes a file, or everything inside a folder, from the index.
    pub(crate) fn forget(&self, place: &StorePath) {
        let mut state = self.write();
        state.forget(place);
        state.outdated(place);
    }

    /// Marks the descriptions of the folders above a place as out of date. The next search refreshes them.
    pub(crate) fn outdated(&self, place: &StorePath) {
        self.write().outdated(place);
    }

    /// Sets the labels of a folder, which apply to everything inside it.
    pub(crate) fn label(&self, folder: &StorePath, labels: Vec<String>) {
        let mut state = self.write();
        if state.loaded {
            state.label(folder, labels);
        }
    }

    /// The labels that apply to a place.
    pub(crate) fn labels_of(&self, account: &Account, place: &StorePath) -> Result<Vec<String>> {
        self.load(account)?;
        Ok(self.read().labels_of(place).to_vec())
    }

    /// Indexes the descriptions of a folder.
    pub(crate) fn describe(&self, place: &StorePath, layers: &Layers) {
        let mut state = self.write();
        state.stale.remove(place);
        if state.loaded {
            state.describe(place, layers);
        }
    }

    /// A short description of a file.
    pub(crate) fn abstract_of(&self, place: &StorePath) -> Option<String> {
        self.read().known.get(&place.to_string()).map(|known| known.abstract_text.clone())
    }

    /// Builds the index from the files, once.
    pub(crate) fn load(&self, account: &Account) -> Result<()> {
        if self.read().loaded {
            return Ok(());
        }
        let mut state = self.write();
        if state.loaded {
            return Ok(());
        }
        let root = StorePath::parse(crate::store::uri::SCHEME, &Identity::default())?;
        for scope in crate::store::uri::SCOPES {
            state.walk(account, &root.child(scope))?;
        }
        state.loaded = true;
        Ok(())
    }

    /// Refreshes outdated folder descriptions that this search could return.
    fn refresh(&self, account: &Account, owners: &[String], wanted: &SearchRequest<'_>) {
        if !wanted.levels.is_empty() && wanted.levels.iter().all(|level| *level == index::LEAF) {
            return;
        }
        let asked =
            |place: &StorePath| wanted.within.is_empty() || wanted.within.iter().any(|within| place.is_within(within));
        let stale: Vec<StorePath> = {
            let state = self.read();
            // Deepest first: a folder's description is built from those below it.
            let findable = state.stale.iter().filter(|place| asked(place) && owners.contains(&owner(place)));
            let mut stale: Vec<StorePath> = findable.cloned().collect();
            stale.sort_by_key(|place| std::cmp::Reverse(place.names().len()));
            stale.truncate(REFRESHED);
            stale
        };
        for place in stale {
            match crate::store::fs::layers_of(account, &place) {
                // If another thread has already built the descriptions, they are only indexed here.
                Ok(layers) if self.read().stale.contains(&place) => self.describe(&place, &layers),
                Ok(_) => {}
                Err(_) => drop(self.write().stale.remove(&place)),
            }
        }
    }

    /// The owners whose documents a caller may find.
    fn owners(account: &Account, who: &Identity) -> Vec<String> {
        let mut owners = vec!["shared".to_owned(), format!("user:{}", who.user)];
        match &who.peer {
            Some(peer) => owners.push(format!("peer:{}/{peer}", who.user)),
            None => {
                let peers = disk::list(&account.path(&who.home().child("peers"))).unwrap_or_default();
                owners
                    .extend(peers.into_iter().filter(|p| p.is_folder).map(|p| format!("peer:{}/{}", who.user, p.name)));
            }
        }
        owners
    }

    /// Searches what the caller may see. A file is represented by its best passage.
    pub(crate) fn search(&self, account: &Account, who: &Identity, wanted: &SearchRequest<'_>) -> Result<Vec<Hit>> {
        self.load(account)?;
        let owners = Self::owners(account, who);
        self.refresh(account, &owners, wanted);
        let kinds: Vec<Kind> = if wanted.kinds.is_empty() {
            vec![Kind::Memory, Kind::Resource, Kind::Skill]
        } else {
            wanted.kinds.clone()
        };
        let filter = Filter {
            owners,
            scopes: wanted.within.iter().filter(|p| !p.is_root()).map(StorePath::to_string).collect(),
            kinds: kinds.into_iter().map(index_kind).collect(),
            levels: wanted.levels.clone(),
            since_ms: wanted.since_ms,
            until_ms: wanted.until_ms,
            ..Filter::default()
        };
        let state = self.read();
        let filter = if wanted.tags.is_empty() {
            filter
        } else {
            let scopes = state.labelled(&wanted.tags, &wanted.within);
            if scopes.is_empty() {
                return Ok(Vec::new());
            }
            Filter { scopes, ..filter }
        };
        let question = Question {
            now_ms: Some(jiff::Timestamp::now().as_millisecond()),
            filter,
            // Several hits may be passages of the same file.
            limit: wanted.limit.saturating_mul(3).saturating_add(10),
            least: wanted.least,
            weights: wanted.weights.clone(),
            ..Question::new(wanted.query, wanted.limit)
        };
        let mut seen = BTreeSet::new();
        let mut hits = Vec::new();
        for hit in state.index.search(&question) {
            let uri = hit.id.split(PASSAGE).next().unwrap_or(&hit.id);
            if !seen.insert(uri.to_owned()) {
                continue;
            }
            let Ok(place) = StorePath::parse(uri, who) else { continue };
            let known = state.known.get(uri);
            let tags = state.labels_of(&place);
            if !wanted.tags.iter().all(|tag| tags.contains(tag)) {
                continue;
            }
            let whole = match (place.kind(), known) {
                (Kind::Memory, Some(known)) if hit.level == index::LEAF => {
                    said_in_full(wanted.query, known.abstract_text.get(..known.own).unwrap_or(&known.abstract_text))
                }
                _ => 1.0,
            };
            let score = hit.score * (PARTLY + (1.0 - PARTLY) * whole);
            if score < wanted.least {
                continue;
            }
            hits.push(Hit {
                uri: uri.to_owned(),
                kind: if hit.level == index::LEAF {
                    place.kind()
                } else {
                    place.parent().unwrap_or(place.clone()).kind()
                },
                level: hit.level,
                score,
                rank: hit.rank,
                parts: hit.parts,
                abstract_text: known.map(|k| k.abstract_text.clone()).unwrap_or_default(),
                tags: tags.to_vec(),
                category: place.category().map(str::to_owned),
            });
            if hits.len() >= wanted.limit {
                break;
            }
        }
        Ok(hits)
    }
}

/// The share of a memory's words that occur in the query.
fn said_in_full(query: &str, abstract_text: &str) -> f32 {
    let words = |text: &str| -> BTreeSet<String> {
        let lower = text.to_lowercase();
        lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let (query, abstract_text) = (words(query), words(abstract_text));
    if abstract_text.is_empty() {
        1.0
    } else {
        abstract_text.intersection(&query).count() as f32 / abstract_text.len() as f32
    }
}

impl State {
    fn learn(&mut self, place: &StorePath, learned: PreparedFile) {
        let uri = place.to_string();
        self.drop_passages(&uri, learned.documents.len());
        for document in &learned.documents {
            self.index.add(document);
        }
        self.known.insert(uri, learned.known);
        if let (Some(labels), Some(folder)) = (learned.labels, place.parent()) {
            self.label(&folder, labels);
        }
    }

    fn label(&mut self, folder: &StorePath, labels: Vec<String>) {
        if labels.is_empty() {
            self.labels.remove(folder);
        } else {
            self.labels.insert(folder.clone(), labels);
        }
    }

    /// The labels of the nearest folder that has any.
    fn labels_of(&self, place: &StorePath) -> &[String] {
        let mut at = Some(place.clone());
        while let Some(folder) = at {
            if let Some(labels) = self.labels.get(&folder) {
                return labels;
            }
            at = folder.parent();
        }
        &[]
    }

    /// The scopes within the given places that have all of these labels.
    fn labelled(&self, tags: &[String], within: &[StorePath]) -> Vec<String> {
        let roots = self.labels.iter().filter(|(_, labels)| tags.iter().all(|tag| labels.contains(tag)));
        let mut scopes = BTreeSet::new();
        for (root, _) in roots {
            if within.is_empty() || within.iter().any(|place| root.is_within(place)) {
                scopes.insert(root.to_string());
            } else {
                scopes.extend(within.iter().filter(|place| place.is_within(root)).map(StorePath::to_string));
            }
        }
        scopes.into_iter().collect()
    }

    /// Removes old passages that the new content does not replace.
    fn drop_passages(&mut self, uri: &str, keep: usize) {
        let had = self.known.get(uri).map_or(0, |known| known.passages);
        for at in keep..had {
            if at == 0 {
                self.index.remove(uri);
            } else {
                self.index.remove(&format!("{uri}{PASSAGE}{at}"));
            }
        }
    }

    fn forget(&mut self, place: &StorePath) {
        let uri = place.to_string();
        self.drop_passages(&uri, 0);
        self.known.remove(&uri);
        let below = format!("{uri}/");
        let gone: Vec<String> = self
            .known
            .range(below.clone()..)
            .take_while(|(u, _)| u.starts_with(&below))
            .map(|(u, _)| u.clone())
            .collect();
        for uri in gone {
            self.drop_passages(&uri, 0);
            self.known.remove(&uri);
        }
        self.stale.retain(|stale| !stale.is_within(place));
        self.labels.retain(|folder, _| !folder.is_within(place));
    }

    fn outdated(&mut self, place: &StorePath) {
        let mut at = place.parent();
        while let Some(folder) = at {
            if folder.is_root() || folder.kind() == Kind::Session {
                break;
            }
            for name in [ABSTRACT, OVERVIEW] {
                let uri = folder.child(name).to_string();
                if self.known.remove(&uri).is_some() {
                    self.index.remove(&uri);
                }
            }
            let is_users = folder.names().len() == 1 && folder.name() == "user";
            if self.loaded && !is_users {
                self.stale.insert(folder.clone());
            }
            at = folder.parent();
        }
    }

    fn describe(&mut self, place: &StorePath, layers: &Layers) {
        for (name, level, text) in [(ABSTRACT, 0, &layers.abstract_), (OVERVIEW, 1, &layers.overview)] {
            let uri = place.child(name).to_string();
            let document = Document {
                id: uri.clone(),
                kind: index_kind(place.kind()),
                owner: owner(place),
                scope: place.to_string(),
                title: place.name().replace(['_', '-'], " "),
                text: text.clone(),
                level,
                ..Document::default()
            };
            if !place.is_hidden() {
                self.index.add(&document);
            }
            self.known.insert(uri, IndexedText { abstract_text: text.clone(), own: text.len(), passages: 1 });
        }
    }

    fn walk(&mut self, account: &Account, folder: &StorePath) -> Result<()> {
        if folder.kind() == Kind::Session {
            return Ok(());
        }
        let path = account.path(folder);
        let mut described = [None, None];
        for found in disk::list(&path)? {
            let child = folder.child(&found.name);
            if found.is_folder {
                self.walk(account, &child)?;
            } else if found.name == ABSTRACT || found.name == OVERVIEW {
                let text = disk::read_text(&path.join(&found.name)).unwrap_or_default();
                described[usize::from(found.name == OVERVIEW)] = Some(crate::store::layers::body(&text).to_owned());
            } else if found.name == origin::FILE {
                let labels = Origin::tags_at(&path);
                if !labels.is_empty() {
                    self.label(folder, labels);
                }
            } else if !found.is_hidden() && found.size <= MAX_INDEXED_BYTES {
                let text = disk::read_text(&path.join(&found.name)).unwrap_or_default();
                self.learn(&child, PreparedFile::from(&child, &text));
            }
        }
        let is_users = folder.names().len() == 1 && folder.name() == "user";
        match described {
            [Some(abstract_), Some(overview)] => self.describe(folder, &Layers { abstract_, overview }),
            _ if !is_users => {
                self.stale.insert(folder.clone());
            }
            _ => {}
        }
        Ok(())
    }
}
