//! [`Account`]: one account's folder with its locks and fixed subfolders. Accounts share nothing, not even an index.

use crate::{
    error::Result,
    find::library::Library,
    sessions::Sessions,
    store::{
        disk::{self, Durability},
        layers,
        uri::{Identity, Kind, SCOPES, StorePath, USER_FOLDERS},
    },
};
use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// Number of lock stripes; a file is changed under the lock that its folder hashes to.
const STRIPES: usize = 64;

/// One account.
pub struct Account {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Held for reading while single files change, and for writing while trees are moved or removed.
    tree: RwLock<()>,
    stripes: Vec<Mutex<()>>,
    /// Per user, held while new memories are merged with the stored ones.
    memories: Vec<Mutex<()>>,
    pub(crate) library: Library,
    pub(crate) sessions: Sessions,
    known_users: Mutex<HashSet<String>>,
    /// Change counters that folder descriptions depend on. They are separate per user, so that one user's writes do not
    /// invalidate the descriptions of another user's folders.
    changes: Vec<AtomicU64>,
    /// Original names of uploads.
    pub(crate) upload_names: Mutex<HashMap<String, String>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stripe(value: impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or_default()
}

/// The part of the tree that a place belongs to: a user's folder, or a scope.
fn area(place: &StorePath) -> &[String] {
    let names = place.names();
    let length = if names.first().is_some_and(|scope| scope == "user") { 2 } else { 1 };
    &names[..names.len().min(length)]
}

impl Account {
    pub(crate) fn open(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join(name);
        disk::make_folders(&folder)?;
        for own in ["_staging", "_trash", "_uploads"] {
            // The leftovers of a killed process were never acknowledged, or were already deleted.
            disk::discard(&folder.join(own));
        }
        let account = Self {
            name: name.to_owned(),
            folder,
            tree: RwLock::default(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            memories: (0..STRIPES).map(|_| Mutex::default()).collect(),
            library: Library::default(),
            sessions: Sessions::default(),
            known_users: Mutex::default(),
            changes: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            upload_names: Mutex::default(),
        };
        account.make_own_folders()?;
        Ok(account)
    }

    /// Creates the folders that every account has.
    pub(crate) fn make_own_folders(&self) -> Result<()> {
        for own in ["_staging", "_trash", "_uploads", "_system", "_system/pending"] {
            disk::make_folders(&self.folder.join(own))?;
        }
        for scope in SCOPES {
            disk::make_folders(&self.folder.join(scope))?;
        }
        Ok(disk::make_folders(&self.folder.join("agent/skills"))?)
    }

    /// Forgets what is in memory, after all files were replaced.
    pub(crate) fn forget_everything(&self) {
        self.library.reset();
        self.sessions.forget(&[]);
        lock(&self.known_users).clear();
    }

    /// Creates a user's folders on first use.
    pub(crate) fn meet(&self, who: &Identity) -> Result<()> {
        if lock(&self.known_users).contains(&who.user) {
            return Ok(());
        }
        for name in USER_FOLDERS {
            disk::make_folders(&self.path(&who.home().child(name)))?;
        }
        lock(&self.known_users).insert(who.user.clone());
        Ok(())
    }

    pub(crate) fn path(&self, place: &StorePath) -> PathBuf {
        let mut path = self.folder.clone();
        path.extend(place.names());
        path
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.folder.join("_trash")
    }

    /// Creates a private staging folder.
    pub(crate) fn staging(&self) -> Result<PathBuf> {
        let folder = self.folder.join("_staging").join(uuid::Uuid::new_v4().simple().to_string());
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// The lock for changing files in a folder.
    pub(crate) fn change(&self, folder: &StorePath) -> (RwLockReadGuard<'_, ()>, MutexGuard<'_, ()>) {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        (tree, lock(&self.stripes[stripe(folder)]))
    }

    /// The lock for moving and removing trees.
    pub(crate) fn restructure(&self) -> RwLockWriteGuard<'_, ()> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the descriptions of a folder while nothing is removed, and discards them if something was written
    /// meanwhile.
    pub(crate) fn describing<T>(&self, folder: &StorePath, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let _held = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let before = self.changes_below(folder);
        let made = make();
        if self.changes_below(folder) != before {
            layers::invalidate(self, &folder.child("any"));
            self.library.outdated(&folder.child("any"));
        }
        made
    }

    /// Records a change, before the descriptions that depend on it are deleted.
    pub(crate) fn note_change(&self, place: &StorePath) {
        self.changes[stripe(area(place))].fetch_add(1, Ordering::AcqRel);
    }

    /// Number of changes inside a folder; it may include changes elsewhere that share the counter.
    fn changes_below(&self, folder: &StorePath) -> u64 {
        match area(folder) {
            [] => self.changes.iter().map(|count| count.load(Ordering::Acquire)).sum(),
            [scope] if scope == "user" => self.changes.iter().map(|count| count.load(Ordering::Acquire)).sum(),
            own => self.changes[stripe(own)].load(Ordering::Acquire),
        }
    }

    /// The lock for merging a user's memories.
    pub(crate) fn remember(&self, user: &str) -> MutexGuard<'_, ()> {
        lock(&self.memories[stripe(user)])
    }

    /// Writes a file durably and indexes it.
    pub(crate) fn put(&self, place: &StorePath, text: &str) -> Result<()> {
        let folder = place.parent().unwrap_or_else(|| place.clone());
        {
            let _held = self.change(&folder);
            disk::make_folders(&self.path(&folder))?;
            disk::write(&self.path(place), text.as_bytes(), Durability::Durable)?;
        }
        self.changed(place, Some(text));
        Ok(())
    }

    /// Deletes a file or folder. Descriptions that mention it are deleted first, so that no overview contains forgotten
    /// content.
    pub(crate) fn take_away(&self, place: &StorePath) -> Result<()> {
        {
            let _held = self.restructure();
            for folder in layers::invalidate(self, place) {
                disk::sync_folder(&folder)?;
            }
            disk::remove(&self.path(place), &self.trash())?;
        }
        self.library.forget(place);
        Ok(())
    }

    /// Updates the index and the folder descriptions after a file changed.
    pub(crate) fn changed(&self, place: &StorePath, text: Option<&str>) {
        layers::invalidate(self, place);
        if place.kind() == Kind::Session {
            return;
        }
        match text {
            Some(text) => self.library.learn(place, text),
            None => self.library.forget(place),
        }
        self.library.outdated(place);
    }
}
