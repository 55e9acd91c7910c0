//! Which files of an account were changed, for accounts that several nodes share. On a single machine there is no
//! listener, and recording a change costs one load and a branch.

use crate::store::account::lock;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

/// The folders somebody listens to. The functions in `disk.rs` know paths and nothing else.
static FOLDERS: RwLock<Vec<Weak<Touched>>> = RwLock::new(Vec::new());
/// Whether there ever was one.
static ANY: AtomicBool = AtomicBool::new(false);

/// The changed paths below a folder.
pub(crate) struct Touched {
    folder: PathBuf,
    paths: Mutex<BTreeSet<PathBuf>>,
}

impl Touched {
    /// Listens to a folder, until dropped.
    pub(crate) fn listen(folder: PathBuf) -> Arc<Self> {
        let touched = Arc::new(Self { folder, paths: Mutex::default() });
        let mut folders = FOLDERS.write().unwrap_or_else(PoisonError::into_inner);
        folders.retain(|known| known.strong_count() > 0);
        folders.push(Arc::downgrade(&touched));
        ANY.store(true, Ordering::Release);
        touched
    }

    /// The changed paths, relative to the folder, which are then forgotten.
    pub(crate) fn take(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut *lock(&self.paths))
    }
}

/// Notes that a file or folder was written, moved or removed.
pub(crate) fn touch(path: &Path) {
    if !ANY.load(Ordering::Acquire) {
        return;
    }
    let folders = FOLDERS.read().unwrap_or_else(PoisonError::into_inner);
    for touched in folders.iter().filter_map(Weak::upgrade) {
        if let Ok(below) = path.strip_prefix(&touched.folder) {
            lock(&touched.paths).insert(below.to_owned());
        }
    }
}
